"""A person decides about the calls that wait for approval."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from glidepath._wire import Value
from glidepath.cli.layers import LoadedSettings
from glidepath.cli.screens import Screen
from glidepath.cli.shown import argument_rows, revealed, size_of, width_of, wrapped
from glidepath.cli.signals import Caught
from glidepath.cli.world import World
from glidepath.outcome import PendingCall, RunResult
from glidepath.run import Decision, approve, deny

__all__ = ["ApprovalAsked", "consult", "decide", "decisions_about", "question", "sandboxed", "somebody"]

NOBODY = "a form needs an answer, and nobody is there to give one"
ALLOW = "allow it? [y]es, [n]o, or say why not: "
_KEPT_FREE = 2  # rows of the screen for the prompt and what is typed
_FEWEST = 3
_USUAL_SIZE = (80, 24)

Ask = Callable[[Sequence[str], str], Awaitable[str | None]]
"""Shows rows, then a prompt, forgets what was typed before, and answers with one line; None when the person left."""


class ApprovalAsked(Value, frozen=True, kw_only=True):
    """A call to decide about: what the decision is filed under, who wants it, and whether it runs in a sandbox."""

    name: str
    pending: PendingCall
    who: str = "The agent"
    sandboxed: bool = False


async def decide(
    result: RunResult, tools: Iterable[Any], screen: Screen, settings: LoadedSettings, world: World, caught: Caught
) -> dict[str, Any] | None:
    """A decision for every pending call, or None when there is nobody to ask: then the run stays paused."""
    if settings["approve"] == "ask" and settings["output_format"] == "text" and somebody(world):
        getattr(screen, "pause", screen.close)()
    elif settings["approve"] == "ask":
        return None
    known = tuple(tools)
    asked = [
        ApprovalAsked(name=pending.call.id, pending=pending, sandboxed=sandboxed(pending, known))
        for pending in result.pending
    ]
    return await decisions_about(asked, settings["approve"], world, caught)


def somebody(world: World) -> bool:
    """True when a person can be asked."""
    return world.is_terminal(world.stdin) and world.is_terminal(world.stderr)


def sandboxed(pending: PendingCall, tools: Iterable[Any]) -> bool:
    """True when the tool that would run is known to run in a sandbox."""
    from glidepath.workspace import runs_in_sandbox

    return any(tool.name == pending.call.name and runs_in_sandbox(tool) for tool in tools)


async def decisions_about(
    asked: Sequence[ApprovalAsked], policy: str, world: World, caught: Caught
) -> dict[str, Decision] | None:
    """A decision for every call, as the policy or a person says; None when the person left."""
    if policy == "all" and not any(one.pending.form for one in asked):
        return {one.name: approve() for one in asked}
    if policy == "all":
        return {one.name: approve() if not one.pending.form else deny(NOBODY) for one in asked}
    if policy == "deny":
        return {one.name: deny("calls that need approval are denied here") for one in asked}

    async def ask(rows: Sequence[str], prompt: str) -> str | None:
        world.note("\n".join(rows))
        return await _line(prompt, world, caught)

    decisions = {}
    for one in asked:
        world.note("")
        decision = await consult(one, _size(world), ask)
        if decision is None:
            return None
        decisions[one.name] = decision
    return decisions


async def consult(one: ApprovalAsked, size: tuple[int, int], ask: Ask, allow: str = ALLOW) -> Decision | None:
    """Show a call to its end, page by page, and ask about it then; None when the person left.

    Whoever does not want to read it all skips the rest, and is told how much that is. Nothing but an answer to the last
    question allows anything.
    """
    columns, lines = size
    if one.pending.form is not None:
        from glidepath.cli.forms import fill_in

        return await fill_in(one.pending, columns - 1, ask)
    rows = question(one, columns - 1)
    room = max(lines - _KEPT_FREE, _FEWEST)
    characters = f"the arguments are {size_of(one.pending.call.arguments):,} characters long"
    shown = 0
    while len(rows) - shown > room:
        page, shown = rows[shown : shown + room], shown + room
        said = await ask(page, f"{shown} of {len(rows)} rows. Enter shows more, s skips the rest, n denies: ")
        word = None if said is None else said.strip().lower()
        if word is None:
            return None
        if word in ("n", "no"):
            return deny()
        if word in ("s", "skip"):
            rest = f"({len(rows) - shown} of {len(rows)} rows were not shown; {characters})"
            return _decision(await ask([rest], allow))
    return _decision(await ask(rows[shown:], allow))


def _decision(said: str | None) -> Decision | None:
    if said is None:
        return None
    word = said.strip()
    if word.lower() in ("y", "yes"):
        return approve()
    return deny("" if word.lower() in ("", "n", "no") else word)


def question(one: ApprovalAsked, width: int) -> list[str]:
    """What is asked about a call, in rows: who wants it, with or without a sandbox, and every argument in full."""
    from glidepath.workspace.shell import NO_SANDBOX, SANDBOXED

    call, reason = one.pending.call, one.pending.reason
    where = SANDBOXED if one.sandboxed else "no sandbox: it runs as you"
    who, name = revealed(one.who), revealed(call.name)
    head = f"{who} wants to call {name} ({where}):"
    rows = [head]
    if width_of(head) > width:
        rows = [f"{who} wants to call {name}", f"({where}):"]
    if max(map(width_of, rows)) > width:
        rows = ["Somebody named", *wrapped(one.who, width), "wants to call", *wrapped(call.name, width), f"({where}):"]
    if reason and reason not in (*_USUAL_REASONS, SANDBOXED) and not reason.startswith(NO_SANDBOX):
        rows += ["Why you are asked:", *wrapped(reason, width), "The arguments:"]
    return rows + argument_rows(call.arguments, width)


_USUAL_REASONS = ("this tool needs a person's approval",)


def _size(world: World) -> tuple[int, int]:
    try:
        columns, lines = os.get_terminal_size(world.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return _USUAL_SIZE
    return (columns, lines) if columns > 0 and lines > 0 else _USUAL_SIZE


async def _line(prompt: str, world: World, caught: Caught) -> str | None:
    """One line typed after the prompt; None at the end of input or when a signal came first."""
    fd = world.stdin.fileno()
    world.forget_typed()
    world.stderr.write(prompt)
    world.stderr.flush()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def ready() -> None:
        loop.remove_reader(fd)
        if not answer.done():
            answer.set_result(os.read(fd, 65_536))

    loop.add_reader(fd, ready)
    first = caught.number
    try:
        while not answer.done() and caught.number == first and not caught.hurry.is_set():
            await asyncio.wait([answer], timeout=0.05)
    finally:
        with contextlib.suppress(ValueError):
            loop.remove_reader(fd)
        answer.cancel() if not answer.done() else None
    data = b"" if answer.cancelled() else answer.result()
    if not data:
        world.note("")  # the person left in the middle of our line
        return None
    return data.decode(errors="replace")
