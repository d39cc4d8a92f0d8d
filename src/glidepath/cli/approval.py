"""Asks a person about calls that need approval."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from glidepath._wire import Value
from glidepath.cli.file_changes import ASKED, Changes, colored, difference
from glidepath.cli.layers import LoadedSettings
from glidepath.cli.screens import Screen
from glidepath.cli.shown import argument_rows, revealed, size_of, width_of, wrapped
from glidepath.cli.signals import Caught
from glidepath.cli.world import World
from glidepath.outcome import PendingCall, RunResult
from glidepath.run import Decision, approve, deny

NOBODY = "a form needs an answer, and there is nobody to give one"
ALLOW = "allow it? [y]es, [n]o, [a]lways this tool, [e]dit it, [r]efuse and say why: "
KEYS = ("y", "n", "a", "e", "r")
"""Answers that need no Enter."""
_KEPT_FREE = 2  # rows of the screen for the prompt and what is typed
_FEWEST = 3
_USUAL_SIZE = (80, 24)


class AskPerson(Protocol):
    """Shows rows and a prompt, drops earlier typing, and returns one line; None when the person left.

    A key in `keys` is an answer by itself. `draft` is put into the line, if that is possible.
    """

    def __call__(
        self, rows: Sequence[str], prompt: str, keys: Sequence[str] = (), draft: str = ""
    ) -> Awaitable[str | None]:
        """Ask."""


class ApprovalAsked(Value, frozen=True, kw_only=True):
    """A call to decide about: what the decision is filed under, who wants it, and whether it runs in a sandbox."""

    name: str
    pending: PendingCall
    who: str = "The agent"
    sandboxed: bool = False
    change: Any = None
    """What it would change in a file, if that is known."""


async def decide(
    result: RunResult,
    tools: Iterable[Any],
    screen: Screen,
    settings: LoadedSettings,
    world: World,
    caught: Caught,
    *,
    changes: Changes | None = None,
    always: set[str] | None = None,
) -> dict[str, Any] | None:
    """A decision for every pending call; None if nobody can be asked, and the run stays paused."""
    if settings["approve"] == "ask" and settings["output_format"] == "text" and somebody(world):
        getattr(screen, "pause", screen.close)()
    elif settings["approve"] == "ask":
        return None
    known = tuple(tools)
    asked = [
        ApprovalAsked(
            name=pending.call.id,
            pending=pending,
            sandboxed=sandboxed(pending, known),
            change=None if changes is None else changes.planned(pending.call.name, pending.call.arguments),
        )
        for pending in result.pending
    ]
    return await decisions_about(asked, settings["approve"], world, caught, always)


def somebody(world: World) -> bool:
    """True if a person can be asked."""
    return world.is_terminal(world.stdin) and world.is_terminal(world.stderr)


def sandboxed(pending: PendingCall, tools: Iterable[Any]) -> bool:
    """True if the tool is known to run in a sandbox."""
    from glidepath.workspace import runs_in_sandbox

    return any(tool.name == pending.call.name and runs_in_sandbox(tool) for tool in tools)


async def decisions_about(
    asked: Sequence[ApprovalAsked], policy: str, world: World, caught: Caught, always: set[str] | None = None
) -> dict[str, Decision] | None:
    """A decision for every call, by the policy or a person; None when the person left."""
    if policy == "all":
        return {one.name: approve() if not one.pending.form else deny(NOBODY) for one in asked}
    if policy == "deny":
        return {one.name: deny("calls that need approval are denied here") for one in asked}

    async def ask(rows: Sequence[str], prompt: str, keys: Sequence[str] = (), draft: str = "") -> str | None:
        color = not world.environ.get("NO_COLOR")
        if rows:
            world.note(
                "\n".join(f"{_ANSI[kind]}{row}\x1b[0m" if color and kind else row for row, kind in colored(rows))
            )
        if draft:
            world.note(draft)
        return await _line(prompt, world, caught, keys)

    decisions = {}
    known = set() if always is None else always
    for one in asked:
        if one.pending.call.name not in known:
            world.note("")
        decision = await consult(one, _size(world), ask, always=known)
        if decision is None:
            return None
        decisions[one.name] = decision
    return decisions


async def consult(
    one: ApprovalAsked, size: tuple[int, int], ask: AskPerson, allow: str = ALLOW, always: set[str] | None = None
) -> Decision | None:
    """Show a whole call, page by page, then ask about it; None when the person left.

    A person may skip the rest, and sees how much that is. Only an answer to the last question allows the call. A tool
    in `always` is allowed without asking.
    """
    columns, lines = size
    if always is not None and one.pending.form is None and one.pending.call.name in always:
        return approve()
    if one.pending.form is not None:
        from glidepath.cli.forms import fill_in

        return await fill_in(one.pending, columns - 1, ask)
    rows = question(one, columns - 1)
    room = max(lines - _KEPT_FREE, _FEWEST)
    characters = f"the arguments are {size_of(one.pending.call.arguments):,} characters long"
    shown = 0
    while len(rows) - shown > room:
        page, shown = rows[shown : shown + room], shown + room
        said = await ask(
            page, f"{shown} of {len(rows)} rows. Enter shows more, s skips the rest, n denies: ", ("s", "n")
        )
        word = None if said is None else said.strip().lower()
        if word is None:
            return None
        if word in ("n", "no"):
            return deny()
        if word in ("s", "skip"):
            rest = f"({len(rows) - shown} of {len(rows)} rows were not shown; {characters})"
            return await _decision([rest], one, ask, allow, always)
    return await _decision(rows[shown:], one, ask, allow, always)


async def _decision(
    rows: Sequence[str], one: ApprovalAsked, ask: AskPerson, allow: str, always: set[str] | None
) -> Decision | None:
    said = await ask(rows, allow, KEYS)
    if said is None:
        return None
    word = said.strip()
    if word.lower() in ("a", "always") and always is not None:
        always.add(one.pending.call.name)
        return approve()
    if word.lower() in ("e", "edit"):
        return await _edited(one, ask, allow, always)
    if word.lower() == "r":
        why = await ask([], "why not: ")
        return None if why is None else deny(why.strip())
    if word.lower() in ("y", "yes"):
        return approve()
    return deny("" if word.lower() in ("", "n", "no", "a", "always") else word)


async def _edited(one: ApprovalAsked, ask: AskPerson, allow: str, always: set[str] | None) -> Decision | None:
    """Other arguments for the call, as JSON; an empty line goes back to the question."""
    note = "The arguments, as JSON. Edit them and press Enter to run the call; an empty line goes back."
    draft = json.dumps(dict(one.pending.call.arguments), ensure_ascii=False)
    while True:
        said = await ask([note], "arguments: ", (), draft)
        if said is None:
            return None
        if not said.strip():
            return await _decision(["Not changed."], one, ask, allow, always)
        try:
            given = json.loads(said)
        except ValueError as error:
            note, draft = f"That is not JSON ({error}). Try again, or leave the line empty to go back.", said.strip()
            continue
        if isinstance(given, dict):
            return approve(given)
        note = 'Expected an object such as {"path": "a.txt"}. Try again, or leave the line empty to go back.'
        draft = said.strip()


def question(one: ApprovalAsked, width: int) -> list[str]:
    """The question about a call, in rows: who wants it, whether there is a sandbox, and every argument in full."""
    from glidepath.workspace.shell import NO_SANDBOX, SANDBOXED

    call, reason = one.pending.call, one.pending.reason
    where = SANDBOXED if one.sandboxed else "no sandbox: it runs as you"
    where = "in the workspace" if one.change is not None else where
    who, name = revealed(one.who), revealed(call.name)
    head = f"{who} wants to call {name} ({where}):"
    rows = [head]
    if width_of(head) > width:
        rows = [f"{who} wants to call {name}", f"({where}):"]
    if max(map(width_of, rows)) > width:
        rows = ["Somebody named", *wrapped(one.who, width), "wants to call", *wrapped(call.name, width), f"({where}):"]
    if reason and reason not in (*_USUAL_REASONS, SANDBOXED) and not reason.startswith(NO_SANDBOX):
        rows += ["Why you are asked:", *wrapped(reason, width), "The arguments:"]
    if one.change is not None:
        return rows + difference(one.change, width)
    return rows + argument_rows(call.arguments, width)


_USUAL_REASONS = ("this tool needs a person's approval", ASKED)
_ANSI = {"green": "\x1b[32m", "red": "\x1b[31m", "dim": "\x1b[2m"}


def _size(world: World) -> tuple[int, int]:
    try:
        columns, lines = os.get_terminal_size(world.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return _USUAL_SIZE
    return (columns, lines) if columns > 0 and lines > 0 else _USUAL_SIZE


async def _line(prompt: str, world: World, caught: Caught, keys: Sequence[str] = ()) -> str | None:
    """One line typed after the prompt, or one of the keys; None at the end of input or when a signal came first."""
    fd = world.stdin.fileno()
    with single_keys(fd, wanted=bool(keys)) as single:
        data = await _typed(prompt, world, caught)
        if single and data and data.decode(errors="replace").lower() in keys:
            world.note(data.decode(errors="replace"))
            return data.decode().lower()
        if single and data and data not in (b"\n", b"\r"):
            world.stderr.write(data.decode(errors="replace"))  # the first key of a line: the terminal did not echo it
            world.stderr.flush()
    if data is None:
        world.note("")  # the person left before pressing Enter
        return None
    if single and data not in (b"\n", b"\r") and not data.endswith(b"\n"):
        rest = await _typed("", world, caught, keep=True)
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


async def _typed(prompt: str, world: World, caught: Caught, *, keep: bool = False) -> bytes | None:
    """The next input; None at its end or when a signal came first."""
    fd = world.stdin.fileno()
    if not keep:
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
    return data if data and data != b"\x04" else None
