"""What a person is shown about a call that waits for them: one function for every door."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from glidepath.run.revealing import argument_rows, escape_invisible, width_of, wrap_lines
from glidepath.values import PendingCall

__all__ = ["question_rows"]

PAGE_WIDTH = 100
"""The columns of a question that is drawn by somebody else: a page, an editor, a front end."""
_NOBODY = "The agent"  # has no name of its own
USUAL_REASON = "this tool needs a person's approval"


def question_rows(
    pending: PendingCall,
    width: int = PAGE_WIDTH,
    *,
    who: str = "",
    where: str = "",
    usual: Sequence[str] = (USUAL_REASON,),
    arguments: Sequence[str] | None = None,
) -> list[str]:
    """The question about a call, in rows: who wants it, where it runs, why a person is asked, and every argument.

    All of it, with nothing hidden. Reasons in `usual` go without saying; `arguments` are rows that show them better
    than their plain values would.
    """
    who = _NOBODY if who in ("", "agent") else who
    name = escape_invisible(pending.call.name)
    end = f"({where}):" if where else ":"
    head = f"{escape_invisible(who)} wants to call {name}{' ' if where else ''}{end}"
    rows = [head]
    if width_of(head) > width:
        rows = [f"{escape_invisible(who)} wants to call {name}", *wrap(end, width)]
    if width_of(rows[0]) > width:
        rows = [
            "Somebody named",
            *wrap_lines(who, width),
            "wants to call",
            *wrap_lines(pending.call.name, width),
            *rows[1:],
        ]
    if pending.reason and pending.reason not in usual:
        rows += ["Why you are asked:", *wrap_lines(pending.reason, width), "The arguments:"]
    if pending.origins:
        rows += ["Untrusted content it comes from:", *wrap_lines("\n".join(pending.origins), width)]
    return rows + (argument_rows(pending.call.arguments, width) if arguments is None else list(arguments))
