"""The dialog about one call: shows all of it, page by page, and takes a person's decision. Chat and run share it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from textwrap import wrap
from typing import Protocol

from glidepath._wire import Value
from glidepath.cli.file_changes import ASKED, Change, NoChange, difference
from glidepath.cli.shown import argument_rows, revealed, size_of, width_of, wrapped
from glidepath.outcome import PendingCall
from glidepath.run import Decision, approve, deny

ALLOW = "allow it? [y]es, [n]o, [a]lways for this tool, [e]dit, [r]efuse and say why: "
KEYS = ("y", "n", "a", "e", "r")
"""Answers that need no Enter."""
_KEPT_FREE = 2  # rows of the screen for the prompt and what is typed
_FEWEST = 3
_USUAL_REASONS = ("this tool needs a person's approval", ASKED)


class AskPerson(Protocol):
    """Shows rows and a prompt, drops earlier typing, and returns one line; None when the person left.

    A key in `keys` is an answer by itself. `draft` is put into the line, if that is possible.
    """

    def __call__(
        self, rows: Sequence[str], prompt: str, keys: Sequence[str] = (), draft: str = ""
    ) -> Awaitable[str | None]:
        """Ask."""


class ResizedError(Exception):
    """The window has another size: the question must be laid out again."""


class ApprovalAsked(Value, frozen=True, kw_only=True):
    """A call to decide about: what the decision is filed under, who wants it, and whether it runs in a sandbox."""

    name: str
    pending: PendingCall
    who: str = "The agent"
    sandboxed: bool = False
    change: Change | NoChange | None = None
    """What it would change in a file of the workspace; None for a tool that does more than that."""


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
            page, f"{shown} of {len(rows)} rows. Enter shows more, s skips the rest, n denies: ", ("Enter", "s", "n")
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
    word = "" if said is None else said.strip()
    if word.lower() in ("a", "always") and always is not None:
        always.add(one.pending.call.name)
        word = "yes"
    if word.lower() in ("e", "edit"):
        return await _edited(one, ask, allow, always)
    if word.lower() == "r":
        why = await ask([], "why not: ")
        return None if why is None else deny(why.strip())
    if word.startswith("/"):
        return await _decision([f"{revealed(word)} is a command of the chat, not an answer."], one, ask, allow, always)
    if word.lower() in ("y", "yes"):
        return approve()
    return None if said is None else deny("" if word.lower() in ("", "n", "no", "a", "always") else word)


def refusal(decision: Decision) -> str:
    """What a person sees of their refusal."""
    words = revealed(" ".join(decision.text.split()))
    return f"Refused. The model is told why: {words}" if words else "Refused."


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
        rows = [f"{who} wants to call {name}", *wrap(f"({where}):", width)]
    if width_of(rows[0]) > width:
        rows = ["Somebody named", *wrapped(one.who, width), "wants to call", *wrapped(call.name, width), *rows[1:]]
    if reason and reason not in (*_USUAL_REASONS, SANDBOXED) and not reason.startswith(NO_SANDBOX):
        rows += ["Why you are asked:", *wrapped(reason, width), "The arguments:"]
    if isinstance(one.change, Change):
        return rows + difference(one.change, width)
    fate = [] if one.change is None or not one.change.why else [f"  {one.change.why}"]
    return rows + argument_rows(call.arguments, width) + fate
