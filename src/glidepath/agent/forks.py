"""Forking for an agent: from its store, or from a session in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath.agent.durable import session_of
from glidepath.errors import ConfigurationError
from glidepath.sessions.forking import Fork, fork, rewind

if TYPE_CHECKING:
    from glidepath.agent.agent import Agent
    from glidepath.agent.resuming import Target

__all__ = ["forked", "rewound"]


async def forked(agent: Agent, target: Target, at: int | None, name: str | None) -> Fork:
    """A fork of a session in the agent's store; calls of its read-only tools are no effects."""
    return await fork(_store(agent, "fork"), session_of(target), at=at, name=name, **_views(agent))


async def rewound(agent: Agent, target: Target, at: int) -> Fork:
    """The same session, taken back to that turn."""
    return await rewind(_store(agent, "rewind"), session_of(target), at=at, **_views(agent))


def _store(agent: Agent, what: str) -> Any:
    if agent.config.store is None:
        raise ConfigurationError(f"{what} needs the store that keeps the session: pass Agent(store=...)")
    return agent.config.store


def _views(agent: Agent) -> dict[str, Any]:
    tools = agent._plan.tools.values()  # noqa: SLF001 - a part of the agent, in a file of its own
    return {"texts": agent.config.texts, "harmless": frozenset(one.name for one in tools if one.read_only)}
