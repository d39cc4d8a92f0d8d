"""A person decides about the calls that wait for approval."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Any

from glidepath.cli.layers import Settings
from glidepath.cli.screens import Screen
from glidepath.cli.signals import Caught
from glidepath.cli.status import arguments_line
from glidepath.cli.world import World
from glidepath.outcome import PendingCall, RunResult
from glidepath.run import approve, deny

__all__ = ["decide", "decisions_about", "question", "somebody"]

_MOST = 2000


async def decide(
    result: RunResult, screen: Screen, settings: Settings, world: World, caught: Caught
) -> dict[str, Any] | None:
    """A decision for every pending call, or None when there is nobody to ask: then the run stays paused."""
    if settings["approve"] == "ask" and settings["output_format"] == "text" and somebody(world):
        getattr(screen, "pause", screen.close)()
    elif settings["approve"] == "ask":
        return None
    return await decisions_about(
        [(pending.call.id, pending, "The agent") for pending in result.pending], settings["approve"], world, caught
    )


def somebody(world: World) -> bool:
    """True when a person can be asked."""
    return world.is_terminal(world.stdin) and world.is_terminal(world.stderr)


async def decisions_about(
    asked: Sequence[tuple[str, PendingCall, str]], policy: str, world: World, caught: Caught
) -> dict[str, Any] | None:
    """A decision for every name, call and who wants it, as the policy or a person says; None when the person left."""
    if policy == "all":
        return {name: approve() for name, _, _ in asked}
    if policy == "deny":
        return {name: deny("calls that need approval are denied here") for name, _, _ in asked}
    decisions = {}
    for name, pending, who in asked:
        world.note(question(pending, who))
        line = await _ask("allow it? [y]es, [n]o, or say why not: ", world, caught)
        if line is None:
            return None
        word = line.strip()
        if word.lower() in ("y", "yes"):
            decisions[name] = approve()
        else:
            decisions[name] = deny("" if word.lower() in ("", "n", "no") else word)
    return decisions


def question(pending: PendingCall, who: str = "The agent") -> str:
    """What is asked about a call: the tool and its arguments, in full, with nothing that could steer the terminal."""
    arguments = arguments_line(pending.call.arguments)
    shown = "".join(sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in arguments)
    if len(shown) > _MOST:
        shown = f"{shown[:_MOST]}... ({len(shown)} characters)"
    return f"\n{who} wants to call {pending.call.name}:\n  " + shown.replace("\n", "\n  ")


async def _ask(prompt: str, world: World, caught: Caught) -> str | None:
    """One line from the terminal; None at its end or when a signal came first."""
    world.stderr.write(prompt)
    world.stderr.flush()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    fd = world.stdin.fileno()

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
    if answer.cancelled():
        return None
    data = answer.result()
    return data.decode(errors="replace") if data else None
