"""Asks a person about calls that need approval."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from glidepath.apps.cli.approval_dialog import ApprovalAsked, consult
from glidepath.apps.cli.cli_context import CliContext, screen_size
from glidepath.apps.cli.file_changes import Changes, color_rows
from glidepath.apps.cli.layers import LoadedSettings
from glidepath.apps.cli.screens import Screen
from glidepath.apps.cli.signals import Caught
from glidepath.guards.approvals import AlwaysAllowed
from glidepath.run import Decision, approve, deny
from glidepath.values import PendingCall, RunResult

NOBODY = "a form needs an answer, and there is nobody to give one"


async def decide(
    result: RunResult,
    tools: Iterable[Any],
    screen: Screen,
    settings: LoadedSettings,
    world: CliContext,
    caught: Caught,
    *,
    changes: Changes | None = None,
    always: AlwaysAllowed | None = None,
) -> dict[str, Any] | None:
    """A decision for every pending call; None if nobody can be asked, and the run stays paused."""
    if settings["approve"] == "ask" and settings["output_format"] == "text" and has_person(world):
        getattr(screen, "pause", screen.close)()
    elif settings["approve"] == "ask":
        return None
    known = tuple(tools)
    asked = [
        ApprovalAsked(
            name=pending.call.id,
            pending=pending,
            sandboxed=is_sandboxed(pending, known),
            tools=known,
            change=None if changes is None else changes.plan_change(pending.call.name, pending.call.arguments, known),
        )
        for pending in result.pending
    ]
    return await decisions_about(asked, settings["approve"], world, caught, always)


def has_person(world: CliContext) -> bool:
    """True if a person can be asked."""
    return world.is_terminal(world.stdin) and world.is_terminal(world.stderr)


def is_sandboxed(pending: PendingCall, tools: Iterable[Any]) -> bool:
    """True if the tool is known to run in a sandbox. A tool of an agent below may have the name of one of these."""
    from glidepath.run import find_call_of_child
    from glidepath.workspace import runs_in_sandbox

    return not find_call_of_child(pending) and any(
        tool.name == pending.call.name and runs_in_sandbox(tool) for tool in tools
    )


async def decisions_about(
    asked: Sequence[ApprovalAsked], policy: str, world: CliContext, caught: Caught, always: AlwaysAllowed | None = None
) -> dict[str, Decision] | None:
    """A decision for every call, by the policy or a person; None when the person left."""
    if policy == "all":
        return {one.name: approve() if not one.pending.form else deny(NOBODY) for one in asked}
    if policy == "deny":
        return {one.name: deny("calls that need approval are denied here") for one in asked}

    async def ask(
        rows: Sequence[str], prompt: str, keys: Sequence[str] = (), draft: str = "", *, decides: bool = False
    ) -> str | None:
        color = not world.environ.get("NO_COLOR")
        if rows:
            world.note(
                "\n".join(f"{_ANSI[kind]}{row}\x1b[0m" if color and kind else row for row, kind in color_rows(rows)),
                styled=True,
            )
        if draft:
            world.note(draft)
        return await _read_line(prompt, world, caught, keys, decides=decides)

    decisions = {}
    known = AlwaysAllowed() if always is None else always
    for one in asked:
        if not known.is_covered(one.pending, one.tools):
            world.note("")
        decision = await consult(one, screen_size(world.stderr), ask, always=known)
        if decision is None:
            return None
        decisions[one.name] = decision
    return decisions


_ANSI = {"green": "\x1b[32m", "red": "\x1b[31m", "dim": "\x1b[2m"}


async def _read_line(
    prompt: str, world: CliContext, caught: Caught, keys: Sequence[str] = (), *, decides: bool = False
) -> str | None:
    """One line typed after the prompt, or one of the keys; None at the end of input or when a signal came first."""
    fd = world.stdin.fileno()
    with single_keys(fd, wanted=bool(keys)) as single:
        data = await _read_answer(prompt, world, caught, decides=decides)
        if single and data and data.decode(errors="replace").lower() in keys:
            world.note(data.decode(errors="replace"))
            return data.decode().lower()
        if single and data and data != b"\n":
            world.stderr.write(data.decode(errors="replace"))  # the first key of a line: the terminal did not echo it
            world.stderr.flush()
    if data is None:
        world.note("")  # the person left before pressing Enter
        return None
    if single and data != b"\n" and not data.endswith(b"\n"):
        rest = await _read_answer("", world, caught, keep=True)
        data = None if rest is None else data + rest
    elif single:
        world.note("")
    if data is None:
        world.note("")
        return None
    return data.decode(errors="replace")


@contextlib.contextmanager
def single_keys(fd: int, *, wanted: bool) -> Iterator[bool]:
    """While inside, keys arrive without Enter; False where the terminal cannot do that, and whole lines arrive."""
    if not wanted:
        yield False
        return
    try:
        import termios
        import tty

        before = termios.tcgetattr(fd)
        tty.setcbreak(fd, termios.TCSANOW)
    except Exception:  # no such module, not a terminal, or termios.error, which is not an OSError
        yield False
        return
    try:
        yield True
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


async def _read_answer(
    prompt: str, world: CliContext, caught: Caught, *, keep: bool = False, decides: bool = False
) -> bytes | None:
    """The next input; None at its end or when a signal came first.

    Where it `decides`, what is typed before a person can have read the question is dropped.
    """
    fd = world.stdin.fileno()
    if not keep:
        world.discard_input()
    world.stderr.write(prompt)
    world.stderr.flush()
    first = caught.number
    caught.asking = True
    if decides:
        await asyncio.sleep(world.unread)
        world.discard_input()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def ready() -> None:
        loop.remove_reader(fd)
        if not answer.done():
            answer.set_result(os.read(fd, 65_536))

    loop.add_reader(fd, ready)
    try:
        while not answer.done() and caught.number == first and not caught.hurry.is_set():
            await asyncio.wait([answer], timeout=0.05)
    finally:
        caught.asking = False
        with contextlib.suppress(ValueError):
            loop.remove_reader(fd)
        answer.cancel() if not answer.done() else None
    # Single keys of Python 3.12.0 and 3.12.1 leave Enter as the carriage return that the terminal sends.
    data = b"" if answer.cancelled() else answer.result().replace(b"\r", b"\n")
    return data if data and data != b"\x04" else None
