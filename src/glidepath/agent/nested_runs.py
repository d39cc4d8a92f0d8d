"""An agent that is started inside a tool or a guarding hook of another run: on which loop, and as whose child."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from glidepath.agent.limits import Budget, Limits
from glidepath.run import (
    CallScope,
    CancelToken,
    Post,
    RunStream,
    attach_child,
    launch,
    link_tokens,
    run_on_own_loop,
    run_on_parent_loop,
)
from glidepath.tools import Tool, ToolContext
from glidepath.values import ConfigurationError, RunResult

if TYPE_CHECKING:
    from glidepath.agent.agent import Agent
    from glidepath.agent.prepare import RunRequest

DELEGATES: WeakKeyDictionary[Any, tuple[Any, Limits | None]] = WeakKeyDictionary()
"""The agents that were made tools, and their limits, by the function of the tool."""


def delegate_of(tool: Tool) -> tuple[Any, Limits | None]:
    """The agent behind a tool that `as_tool` made, and its limits; nobody behind any other."""
    with suppress(TypeError):  # a function that nobody can refer to weakly is none of ours
        return DELEGATES.get(tool.fn, (None, None))
    return None, None


def place_of(parent: object) -> CallScope | None:
    """Where a run belongs that is given this `parent`; None for a root. A `ToolContext` names its call."""
    if isinstance(parent, ToolContext):
        return call_of(parent)
    if isinstance(parent, Budget):
        return parent.place
    return None


def call_of(context: ToolContext) -> CallScope:
    """The call of a `ToolContext`, as a place where children are started."""
    place = getattr(context._host, "place", None)  # noqa: SLF001 - ours
    if place is None:
        raise ConfigurationError("this ToolContext has no run: stream() needs the context of a running call")
    return place(context.call_id)  # type: ignore[no-any-return]


def _name_child(place: CallScope, asked: RunRequest, name: str) -> str:
    """The name of a child in its parent's journal. That of a hook or a team is another: stable for the same request.

    A call of the model has an id and counts its children; what a hook or a team does has no such order.
    """
    run = place.run
    if run.journal is None or not (place.is_hook or asked.budget is not None):
        return name
    from hashlib import blake2b

    from glidepath.sessions import HOOK

    said = "\0".join([str(run.turn.checkpoint), *[message.text for message in asked.prompt]])
    digest = blake2b(said.encode(errors="replace"), digest_size=6).hexdigest()
    name = f"{HOOK}{place.key}:{run.turn.iterations}.{digest}" if place.is_hook else f"{place.key}.{digest}"
    return f"{name}-{run.work.count_child_name(name)}"


async def run_inside(agent: Agent, place: CallScope, asked: RunRequest) -> RunResult:
    """Run an agent as a child of the run whose call or hook this is, wherever it was started.

    In a thread with its own loop the child runs on the loop of its parent, where everything about it is known.
    Only where that loop is blocked, by `run_sync` in an `async def`, it runs here, on the same ledger.
    """
    cancel = asked.cancel

    def begin(token: CancelToken, name: str) -> Any:
        asked.cancel = token
        return agent.run_below(asked, place.run, _name_child(place, asked, name))

    here = partial(launch, place, begin, cancel, partial(agent.run_detached, asked))
    away = partial(_run_on_this_loop, agent, place, asked)
    result: RunResult = await (here() if place.here else run_on_parent_loop(place, here, away))
    return result


async def stream_inside(agent: Agent, place: CallScope, asked: RunRequest, stream: RunStream) -> RunResult:
    """The same with its events, in the task of the stream."""
    asked.stream = stream
    if not place.is_open:
        place.warn()
        return await agent.run_detached(asked)
    if not place.here:
        return await _run_on_this_loop(agent, place, asked)
    asked.cancel, let_go = link_tokens(asked.cancel)
    run = place.run
    name = _name_child(place, asked, f"{place.key}.{len(run.work.spawned.get(place.key, ())) + 1}")
    attach_child(place, asked.cancel, asyncio.current_task())  # type: ignore[arg-type] # a stream has its own task
    try:
        return await agent.run_below(asked, run, name)
    finally:
        let_go()


async def _run_on_this_loop(agent: Agent, place: CallScope, asked: RunRequest) -> RunResult:
    """Run a child on this loop, which is not its parent's: without its own journal, unless its agent has one."""
    run, cancel = place.run, asked.cancel

    def fly(token: CancelToken, post: Post) -> Any:
        asked.cancel = token
        return agent.run_below(asked, run, post=post)

    return await run_on_own_loop(place, fly, cancel, partial(agent.run_detached, asked))  # type: ignore[no-any-return]
