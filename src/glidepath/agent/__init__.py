"""Agents, their limits and configuration; `assemble` fills in the defaults and connects the parts."""

from typing import TYPE_CHECKING

from glidepath.agent.agent import Agent
from glidepath.agent.config import ExecutionMode, LoopConfig
from glidepath.agent.limits import Budget, Limits
from glidepath.late import lazy_attributes

if TYPE_CHECKING:
    from glidepath.agent.builder import AgentBuilder

__all__ = ["Agent", "AgentBuilder", "Budget", "ExecutionMode", "Limits", "LoopConfig"]

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, builder=("AgentBuilder",))
