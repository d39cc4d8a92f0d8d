"""Agents: the only place that knows the defaults and introduces the parts to each other."""

from glidepath.agent.agent import Agent
from glidepath.agent.builder import AgentBuilder
from glidepath.agent.config import ExecutionMode, LoopConfig
from glidepath.agent.limits import Budget, Limits

__all__ = ["Agent", "AgentBuilder", "Budget", "ExecutionMode", "Limits", "LoopConfig"]
