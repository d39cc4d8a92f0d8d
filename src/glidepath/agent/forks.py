"""Forking for an agent: from its store, with its texts; calls of read-only tools do not count as effects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath.errors import ConfigurationError

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig
    from glidepath.agent.resuming import Target
    from glidepath.run import Plan
    from glidepath.sessions.forking import Fork
    from glidepath.tools import Tool


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
    tools = list(_all_tools(agent, []))
    acting = {one.name for one in tools if not one.read_only}
    harmless = frozenset(one.name for one in tools if one.read_only) - acting
    return {"texts": agent.config.texts, "harmless": harmless}


def _all_tools(agent: ForkingAgent, seen: list[object]) -> Iterator[Tool]:
    """The tools of an agent, and of the agents among them."""
    from glidepath.agent.inner_run import DELEGATES

    seen.append(agent)
    for tool in agent._plan.tools.values():  # noqa: SLF001 - a part of the agent, in its own file
        yield tool
        inner = None
        with suppress(TypeError):  # a function that nobody can refer to weakly is none of ours
            inner, _ = DELEGATES.get(tool.fn, (None, None))
        if inner is not None and inner not in seen:
            yield from _all_tools(inner, seen)
