"""Agents: the only place that knows the defaults and introduces the parts to each other."""

from typing import TYPE_CHECKING, Any

from glidepath.agent.agent import Agent
from glidepath.agent.config import ExecutionMode, LoopConfig
from glidepath.agent.limits import Budget, Limits

if TYPE_CHECKING:
    from glidepath.agent.builder import AgentBuilder

__all__ = ["Agent", "AgentBuilder", "Budget", "ExecutionMode", "Limits", "LoopConfig"]


def __getattr__(name: str) -> Any:
    if name == "AgentBuilder":  # its methods are made from the settings, which takes a while
        from glidepath.agent.builder import AgentBuilder

        return AgentBuilder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
