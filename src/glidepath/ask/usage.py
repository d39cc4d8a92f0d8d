"""What a call really used. A provider's figures are believed only when they can be true.

A provider may also report a little too little in every call. No single figure gives that away, so the ledger keeps
count: all calls of a tree together may report less than our own count (a token for every four characters of text)
by a sixteenth of one call's worst case. From then on the larger figure is charged. A model whose reports are its bill
is not held to that (`usage_is_billed`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath.messages import Message, Usage

if TYPE_CHECKING:
    from glidepath.ask.attempt import Attempt
    from glidepath.run import Run

__all__ = ["held_to_our_count", "settled"]

# No tokenizer packs more than eight bytes of ordinary text into a token on average, and our own input estimate counts
# three: less than three tenths of it, or many times as much, cannot be true.
_BYTES_PER_TOKEN_AT_MOST = 8
_LEAST_SHARE = 0.3
_SLACK = 64
_ABSURD = 16
_ABSURD_SLACK = 100_000
_CHARS_PER_TOKEN = 4
_CALL_TOKENS = 8  # what a tool call costs beside its arguments
_NONE = 0  # compared by identity: False, 0.0 and None are no whole numbers, and a journal keeps nothing else
_SIXTEENTH = 16  # our worst case is more than a call: of the call itself this is less than a tenth


def settled(reported: Usage | None, estimate: int, charge: int, attempt: Attempt) -> Usage:
    """The usage to charge: what was reported where it is plausible, else our own figures, flagged.

    `estimate` is our count of the whole prompt, `charge` what to charge for it when the provider's cannot be used.
    """
    if not isinstance(reported, Usage):  # none at all, or nothing that can be read
        return Usage(charge, attempt.metered(), estimated=True)
    given, written, size = reported.input, reported.output, attempt.size
    if (
        reported.cache_read is not _NONE
        or reported.cache_write is not _NONE
        or reported.reasoning is not _NONE
        or given.__class__ is not int
        or reported.estimated.__class__ is not bool
    ):
        return _examined(reported, estimate, charge, attempt)
    input_ok = _LEAST_SHARE * estimate - _SLACK <= given <= _ABSURD * estimate + _ABSURD_SLACK and given > 0
    output_ok = written.__class__ is int and size <= (written + 4) * _BYTES_PER_TOKEN_AT_MOST and (written or not size)
    if output_ok and 0 <= written <= _ABSURD * size + _ABSURD_SLACK:
        return reported if input_ok else Usage(charge, written, estimated=True)
    return Usage(given if input_ok else charge, attempt.metered(), estimated=True)


def _examined(reported: Usage, estimate: int, charge: int, attempt: Attempt) -> Usage:
    """A closer look: figures that come in parts, or are no whole numbers."""
    given = _plausible(reported.input, _LEAST_SHARE * estimate - _SLACK, estimate)
    written = _plausible(reported.output, attempt.size / _BYTES_PER_TOKEN_AT_MOST - 4, attempt.size)
    whole_input = charge if given is None else given
    whole_output = attempt.metered() if written is None else written
    parts = (
        _within(reported.cache_read, whole_input),
        _within(reported.cache_write, whole_input),
        _within(reported.reasoning, whole_output),
    )
    known = type(reported.estimated) is bool and all(part is not None for part in (given, written, *parts))
    if known and given is reported.input and written is reported.output:
        return reported
    read, write, reasoning = [part or 0 for part in parts]
    return Usage(whole_input, whole_output, read, write, reasoning, estimated=True)


def _plausible(given: Any, least: float, estimate: int) -> int | None:
    """The figure, when it is a whole number that can be true; booleans, NaN, text and negatives are not."""
    if type(given) is float and math.isfinite(given):
        given = math.ceil(given)
    if type(given) is not int or given < least or given < (estimate > 0) or given > _ABSURD * estimate + _ABSURD_SLACK:
        return None
    return given


def _within(part: Any, whole: int) -> int | None:
    return part if type(part) is int and 0 <= part <= whole else None


def held_to_our_count(run: Run, usage: Usage, reserved: int, view: Sequence[Message], attempt: Attempt) -> Usage:
    """A plausible report, or our own count where the tree's reports have fallen too far behind it.

    `reserved` is the worst case of the call, in tokens; `view` is what it sent.
    """
    sent = (len(run.plan.system_prompt) + _characters(run, view)) // _CHARS_PER_TOKEN
    written = attempt.visible() // _CHARS_PER_TOKEN + _CALL_TOKENS * len(attempt.calls)
    short = max(0, sent - usage.input) + max(0, written - usage.output)
    if not short or run.meter.tree.tolerates(short, reserved // _SIXTEENTH):
        return usage
    return Usage(
        max(sent, usage.input),
        max(written, usage.output),
        usage.cache_read,
        usage.cache_write,
        usage.reasoning,
        estimated=True,
    )


def _characters(run: Run, view: Sequence[Message]) -> int:
    """The characters a call sends; what was counted before is not counted again."""
    if run.weighed_view is not view:
        run.weighed_view, run.weighed_messages, run.weighed_characters = view, 0, 0
    characters = run.weighed_characters
    for index in range(run.weighed_messages, len(view)):
        characters += len(view[index].text) + 1  # something stands between two messages
    run.weighed_messages, run.weighed_characters = len(view), characters
    return characters
