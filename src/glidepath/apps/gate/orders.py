"""What a person does to a foreign run: land it, stop it, raise its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.apps.gate.gate_verdicts import judge_stop
from glidepath.apps.gate.tree import GateLimits
from glidepath.sessions import await_store, call_store
from glidepath.values import AgentState, ConfigurationError, pico

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun
    from glidepath.apps.gate.session_keeper import SessionKeeper
    from glidepath.apps.gate.tree import ForeignSession

PATIENCE = 2.0
"""Seconds that a stop waits for what it cuts."""
_ONLY_ENTRY = 1 << 62  # a number that no commit has
_WHOLE = frozenset({"tokens", "money", "calls", "agents", "depth"})
_NAMES = {
    "max_tokens": "tokens",
    "max_cost": "money",
    "max_iterations": "calls",
    "timeout": "seconds",
    "max_descendants": "agents",
    "max_depth": "depth",
}
"""Limits as people call them, and as `GateLimits` does."""


def land_run(run: ForeignRun, reason: str) -> None:
    """The next call of each of its agents is the last: no tools, and the order to answer."""
    if run.parent is None:
        run.session.order = reason
    else:
        run.agent.order = reason


def stop_run(run: ForeignRun, reason: str) -> None:
    """No further call; what is in flight is cut, in its dialect."""
    if run.parent is None:
        run.session.stopped = reason
    else:
        run.stopped = reason
        run.agent.landed = run.agent.landing = judge_stop(reason)
    for one in (run, *run.descendants()):
        for passage in list(one.passages):
            passage.stop(judge_stop(reason))


async def land_now(keeper: SessionKeeper, run: ForeignRun, reason: str) -> None:
    """Land a run, and end it at once where it waits for nothing."""
    land_run(run, reason)
    if run.writer is not None:
        run.writer.put(summarize=True)
    if run.has_answered and not run.passages and not any(one.passages for one in run.descendants()):
        await keeper.end_family(run)


async def stop_now(keeper: SessionKeeper, run: ForeignRun, reason: str) -> None:
    """Stop a run and write its end. The store says so, too: another gate does not continue with it."""
    stop_run(run, reason)
    if keeper.store is not None:
        await await_store(call_store(keeper.store.flag, run.name, reason))
        run.session.record.is_flagged = run.parent is None
    family = (run, *run.descendants())
    until = asyncio.get_running_loop().time() + PATIENCE
    while any(one.passages for one in family) and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # the server itself looks every few milliseconds for calls to cut
    await keeper.end_family(run)


async def release_run(keeper: SessionKeeper, run: ForeignRun) -> None:
    """Take a stop back: the next call goes out."""
    if run.parent is None:
        run.session.stopped = None
    if run.stopped is not None and run.agent.landed == judge_stop(run.stopped):
        run.agent.landed = run.agent.landing = None
    run.stopped = None
    if keeper.store is not None:
        await await_store(call_store(keeper.store.flag, run.name, None))


async def look_at_flag(store: Any, session: ForeignSession) -> None:
    """A session was stopped through the store: it continues when that was taken back there."""
    root: ForeignRun | None = session.record.root
    if root is None:
        return
    try:
        entry, _ = await store.load(root.name, since=_ONLY_ENTRY)
    except TypeError:  # a store that has no part to offer
        entry, _ = await await_store(call_store(store.load, root.name))
    if entry.flag is None:
        session.stopped, session.record.is_flagged = None, False


def raise_limits(session: ForeignSession, limits: Mapping[str, Any]) -> None:
    """Raise limits of a session, by the names that people use.

    Raises `ConfigurationError` for one that is lower, missing or wrong; then none is raised.
    """
    figures = {_named(name): _figure(name, value) for name, value in limits.items()}
    for name, value in figures.items():
        now = getattr(session.limits, name)
        if now is None:
            there = ", ".join(one for one in GateLimits.__struct_fields__ if getattr(session.limits, one) is not None)
            raise ConfigurationError(f"{name}: this run has no such limit; it has {there or 'none'}")
        if value < now:
            raise ConfigurationError(f"{name}: {value:g} is less than {now:g}; a running limit can only be raised")
    set_limits(session, {**(session.raised or {}), **figures})
    _revive(session)


def _named(name: str) -> str:
    if name not in _NAMES:
        raise ConfigurationError(f"{name:.80}: a foreign run has no such limit; there are {', '.join(_NAMES)}")
    return _NAMES[name]


def _figure(name: str, value: Any) -> float:
    try:
        if name == "max_cost":
            return pico(Decimal(str(value)), field=name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
            raise ValueError
    except (ValueError, InvalidOperation, OverflowError):
        raise ConfigurationError(f"{name} must be a number above 0, not {value!r:.40}") from None
    return value


def set_limits(session: ForeignSession, limits: Mapping[str, float]) -> None:
    """Let these limits hold from now on."""
    known = {name: value for name, value in limits.items() if name in GateLimits.__struct_fields__}
    whole = {name: int(value) if name in _WHOLE else float(value) for name, value in known.items()}
    session.raised = dict(known)
    session.set_limits(replace(session.limits, **whole))


def _revive(session: ForeignSession) -> None:
    """Agents that a limit has brought down may call again: there is room now."""
    for agent in session.agents.values():
        if agent.landed is not None and agent.landed.state is not AgentState.CANCELLED:
            agent.landed = agent.landing = None
