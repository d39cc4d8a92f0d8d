"""An agent that is started inside a tool or a guarding hook of another run: on which loop, and as whose child."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from glidepath.agent.limits import Budget, Limits
from glidepath.agent.per_run import NOTHING, Given
from glidepath.errors import ConfigurationError
from glidepath.messages import Message
from glidepath.outcome import RunResult
from glidepath.run import INHERIT, CancelToken, Place, RunStream
from glidepath.run.inside import Post, apart, around, at_home, enlist, launch, linked
from glidepath.sessions import Session
from glidepath.tools import ToolContext

if TYPE_CHECKING:
    from glidepath.agent.agent import Agent

__all__ = ["DELEGATES", "call_of", "place_of", "run_inside", "stream_inside"]

DELEGATES: WeakKeyDictionary[Any, tuple[Any, Limits | None]] = WeakKeyDictionary()
"""The agents that were made tools, and their limits, by the function of the tool."""


def place_of(parent: object) -> Place | None:
    """Where a run belongs that is started with this `parent`; None for a root. A `ToolContext` names its call."""
    if parent is INHERIT:
        return around()
    if isinstance(parent, ToolContext):
        return call_of(parent)
    if isinstance(parent, Budget):
        return parent.place
    return None


def call_of(context: ToolContext) -> Place:
    """The call of a `ToolContext`, as a place where children are started."""
    place = getattr(context._host, "place", None)  # noqa: SLF001 - ours
    if place is None:
        raise ConfigurationError("this ToolContext has no run: stream() needs the context of a running call")
    return place(context.call_id)  # type: ignore[no-any-return]


def named(place: Place, messages: tuple[Message, ...]) -> str:
    """The journal name of a child that a hook or a team starts: stable for the same request.

    A call of the model has an id and counts its children; what a hook or a team does has no such order.
    """
    from hashlib import blake2b

    from glidepath.sessions.fold import HOOK

    run = place.run
    asked = "\0".join([str(run.turn.checkpoint), *[message.text for message in messages]])
    digest = blake2b(asked.encode(errors="replace"), digest_size=6).hexdigest()
    name = f"{HOOK}{place.key}:{run.turn.iterations}.{digest}" if place.is_hook else f"{place.key}.{digest}"
    return f"{name}-{run.work.number(name)}"


async def run_inside(
    agent: Agent,
    place: Place,
    messages: tuple[Message, ...],
    home: Session | None,
    cancel: CancelToken | None,
    given: Given = NOTHING,
    budget: Budget | None = None,
) -> RunResult:
    """Run an agent as a child of the run whose call or hook this is, wherever it was started.

    In a thread with its own loop the child runs on the loop of its parent, where everything about it is known.
    Only where that loop is blocked, by `run_sync` in an `async def`, it runs here, on the same ledger.
    """

    def begin(token: CancelToken, name: str) -> Any:
        if place.run.journal is not None and (place.is_hook or budget is not None):
            name = named(place, messages)
        return agent.fly_child(
            messages, parent=place.run, cancel=token, place=name, home=home, budget=budget, given=given
        )

    here = partial(launch, place, begin, cancel, partial(agent.fly_alone, messages, home, cancel, given, None))
    away = partial(_apart, agent, place, messages, home, cancel, given, budget=budget)
    result: RunResult = await (here() if place.here else at_home(place, here, away))
    return result


async def stream_inside(
    agent: Agent,
    place: Place,
    messages: tuple[Message, ...],
    home: Session | None,
    cancel: CancelToken | None,
    given: Given,
    stream: RunStream,
) -> RunResult:
    """The same with its events, in the task of the stream."""
    if not place.is_open:
        place.warn()
        return await agent.fly_alone(messages, home, cancel, given, stream)
    if not place.here:
        return await _apart(agent, place, messages, home, cancel, given, stream=stream)
    token, let_go = linked(cancel)
    run = place.run
    name = f"{place.key}.{len(run.work.spawned.get(place.key, ())) + 1}"
    if place.is_hook and run.journal is not None:
        name = named(place, messages)
    enlist(place, token, asyncio.current_task())  # type: ignore[arg-type] # a stream has its own task
    try:
        return await agent.fly_child(
            messages, parent=run, cancel=token, place=name, home=home, stream=stream, given=given
        )
    finally:
        let_go()


async def _apart(
    agent: Agent,
    place: Place,
    messages: tuple[Message, ...],
    home: Session | None,
    cancel: CancelToken | None,
    given: Given,
    *,
    stream: RunStream | None = None,
    budget: Budget | None = None,
) -> RunResult:
    """Run a child on this loop, which is not its parent's: without its own journal, unless its agent has one."""
    run = place.run

    def fly(token: CancelToken, post: Post) -> Any:
        return agent.fly_child(
            messages, parent=run, cancel=token, home=home, stream=stream, budget=budget, given=given, post=post
        )

    alone = partial(agent.fly_alone, messages, home, cancel, given, stream)
    return await apart(place, fly, cancel, alone)  # type: ignore[no-any-return]
