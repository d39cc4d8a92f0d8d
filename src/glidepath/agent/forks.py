"""Forking for an agent: from its store, with its texts; calls of its read-only tools do not count as effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath.errors import ConfigurationError

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig
    from glidepath.agent.resuming import Target
    from glidepath.run import Plan
    from glidepath.sessions.forking import Fork


class ForkingAgent:
    """What an `Agent` can do with the sessions in its store besides running."""

    __slots__ = ()
    config: LoopConfig
    _plan: Plan

    async def fork(self, target: Target, *, at: int | None = None, name: str | None = None) -> Fork:
        """A new session from this one as it was after turn `at`, the last one by default; this one does not change.

        Continue with `run(..., session=fork.session_id)` or `resume(fork.session_id)`. `fork.effects` lists what the
        original did after that turn, and the model is told. Raises `ConfigurationError` for a turn that is not there.
        """
        from glidepath.agent.durable import session_of
        from glidepath.sessions.forking import fork

        return await fork(_store(self, "fork"), session_of(target), at=at, name=name, **_views(self))

    async def rewind(self, target: Target, *, at: int) -> Fork:
        """Rewind a session to turn `at`; its old state is kept as the session `fork.origin`."""
        from glidepath.agent.durable import session_of
        from glidepath.sessions.forking import rewind

        return await rewind(_store(self, "rewind"), session_of(target), at=at, **_views(self))


def _store(agent: ForkingAgent, what: str) -> Any:
    if agent.config.store is None:
        raise ConfigurationError(f"{what} needs the store that keeps the session: pass Agent(store=...)")
    return agent.config.store


def _views(agent: ForkingAgent) -> dict[str, Any]:
    tools = agent._plan.tools.values()  # noqa: SLF001 - a part of the agent, in its own file
    return {"texts": agent.config.texts, "harmless": frozenset(one.name for one in tools if one.read_only)}
