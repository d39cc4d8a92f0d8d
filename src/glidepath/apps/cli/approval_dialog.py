"""The dialog about one call: shows all of it, page by page, and takes a person's decision. Chat and run share it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from textwrap import wrap
from typing import Any, Protocol

from glidepath._wire import Value
from glidepath.apps.cli.display_text import escape_invisible, size_of
from glidepath.apps.cli.file_changes import ASKED, Change, NoChange, format_difference
from glidepath.guards.approvals import AlwaysAllowed, scope_of
from glidepath.run import USUAL_REASON, Decision, approve, deny, question_rows
from glidepath.values import PendingCall

ALLOW = "allow it? y or a (always) and Enter; [n]o, [e]dit, [r]efuse and say why: "
ALWAYS = "always? y and Enter; anything else goes back: "
KEYS = ("n", "e", "r")
"""Answers that need no Enter. A yes does: the first letter of a word does not count."""
YES = "y"
"""The key that approves, with Enter behind it."""
_WORDS = {"yes": YES, "ok": YES, "okay": YES, "approve": YES, "allow": YES, "always": "a"}
"""Words that mean a yes, and the key to press instead."""
_KEPT_FREE = 2  # rows of the screen for the prompt and what is typed
_FEWEST = 3
_USUAL_REASONS = (USUAL_REASON, ASKED)


class AskPerson(Protocol):
    """Shows rows and a prompt, drops earlier typing, and returns one line; None when the person left.

    A key in `keys` is an answer by itself. `draft` is put into the line, if that is possible. Where the answer
    `decides`, nothing that is typed before a person can have read the question counts.
    """

    def __call__(
        self, rows: Sequence[str], prompt: str, keys: Sequence[str] = (), draft: str = "", *, decides: bool = False
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
    tools: tuple[Any, ...] = ()
    """The agent's tools: what *always* covers depends on what the tool does."""


async def consult(
    one: ApprovalAsked, size: tuple[int, int], ask: AskPerson, allow: str = ALLOW, always: AlwaysAllowed | None = None
) -> Decision | None:
    """Show a whole call, page by page, then ask about it; None when the person left.

    A person may skip to the end, and sees how much was left out. Only an answer to the last question allows the call.
    A call that `always` covers is allowed without asking.
    """
    columns, lines = size
    if always is not None and always.is_covered(one.pending, one.tools):
        return approve()
    if one.pending.form is not None:
        from glidepath.apps.cli.forms import fill_in

        return await fill_in(one.pending, columns - 1, ask)
    rows = format_question(one, columns - 1)
    room = max(lines - _KEPT_FREE, _FEWEST)
    shown = 0
    while len(rows) - shown > room:
        page, shown = rows[shown : shown + room], shown + room
        said = await ask(
            page, f"{shown} of {len(rows)} rows. Enter shows more, s skips to the end, n denies: ", ("Enter", "s", "n")
        )
        word = None if said is None else said.strip().lower()
        if word is None:
            return None
        if word in ("n", "no"):
            return deny()
        if word in ("s", "skip") and len(rows) - shown > room:
            end = len(rows) - room + 2
            size_told = f"the arguments are {size_of(one.pending.call.arguments):,} characters long"
            rest = wrap(f"({end - shown} of {len(rows)} rows were not shown; {size_told})", columns - 1)
            # Nobody allows for good what they have not seen: there is no always.
            return await _decide([*rest, *rows[end:]], one, ask, allow, None)
    return await _decide(rows[shown:], one, ask, allow, always)


async def _decide(
    rows: Sequence[str], one: ApprovalAsked, ask: AskPerson, allow: str, always: AlwaysAllowed | None
) -> Decision | None:
    said = await ask(rows, allow, KEYS, decides=True)
    word = "" if said is None else said.strip()
    lower = word.lower()
    if lower == "a":
        return await _allow_always(one, ask, allow, always)
    if lower in ("e", "edit"):
        return await _ask_edited_arguments(one, ask, allow, always)
    if lower == "r":
        why = await ask([], "why not: ")
        return None if why is None else deny(why.strip())
    if word.startswith("/") or lower in _WORDS:  # anyone who types "yes" means it, but a line of text never is one
        note = f"{escape_invisible(word)} is a command of the chat, not an answer."
        if lower in _WORDS:
            note = f"{word!r} is a word, and words never approve a call: press {_WORDS[lower]}, then Enter."
        return await _decide([note], one, ask, allow, always)
    if lower == YES:
        return approve()
    return None if said is None else deny("" if lower in ("", "n", "no") else word)


async def _allow_always(
    one: ApprovalAsked, ask: AskPerson, allow: str, always: AlwaysAllowed | None
) -> Decision | None:
    """Show what *always* would cover, and take a second answer; anything but a yes goes back to the question."""
    scope = None if always is None else scope_of(one.pending, one.tools)
    if always is None or scope is None:
        why = ["Only this call can be allowed: it has operators, or runs another program, or was not shown in full."]
        return await _decide(why, one, ask, allow, always)
    said = await ask([f"From now on, without asking: {escape_invisible(scope.told)}"], ALWAYS, decides=True)
    if said is None:
        return None
    if said.strip().lower() != YES:
        return await _decide(["Not allowed for good."], one, ask, allow, always)
    always.add(scope)
    return approve()


def describe_refusal(decision: Decision) -> str:
    """What a person sees of their refusal."""
    words = escape_invisible(" ".join(decision.text.split()))
    return f"Refused. The model is told why: {words}" if words else "Refused."


async def _ask_edited_arguments(
    one: ApprovalAsked, ask: AskPerson, allow: str, always: AlwaysAllowed | None
) -> Decision | None:
    """Other arguments for the call, as JSON; an empty line goes back to the question."""
    note = "The arguments, as JSON. Edit them and press Enter to run the call; an empty line goes back."
    draft = json.dumps(dict(one.pending.call.arguments), ensure_ascii=False)
    while True:
        said = await ask([note], "arguments: ", (), draft)
        if said is None:
            return None
        if not said.strip():
            return await _decide(["Not changed."], one, ask, allow, always)
        try:
            given = json.loads(said)
        except ValueError as error:
            note, draft = f"That is not JSON ({error}). Try again, or leave the line empty to go back.", said.strip()
            continue
        if isinstance(given, dict):
            return approve(given)
        note = 'Expected an object such as {"path": "a.txt"}. Try again, or leave the line empty to go back.'
        draft = said.strip()


def format_question(one: ApprovalAsked, width: int) -> list[str]:
    """The question about a call, in rows: who wants it, whether there is a sandbox, and every argument in full."""
    from glidepath.workspace.shell import NO_SANDBOX, SANDBOXED

    where = SANDBOXED if one.sandboxed else "no sandbox: it runs as you"
    where = "in the workspace" if one.change is not None else where
    usual = [*_USUAL_REASONS, SANDBOXED, *([one.pending.reason] if one.pending.reason.startswith(NO_SANDBOX) else [])]
    rows = format_difference(one.change, width) if isinstance(one.change, Change) else None
    fate = [] if not isinstance(one.change, NoChange) or not one.change.why else [f"  {one.change.why}"]
    return question_rows(one.pending, width, who=one.who, where=where, usual=usual, arguments=rows) + fate
