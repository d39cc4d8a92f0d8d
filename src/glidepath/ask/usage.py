"""What a call really used. The provider's figures are charged if they are plausible.

No tokenizer puts more than eight characters of ordinary text into a token. A report below that is replaced by our own
over-estimate and flagged; one that is only lower than our estimate is believed, on every host. What a report says
came from a cache is believed of a vendor (`usage_is_billed`); of others only as far as it was sent before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.messages import Message, Usage
from glidepath.run.survey import characters_of

if TYPE_CHECKING:
    from glidepath.ask.attempt import Attempt
    from glidepath.ask.booking import Booking
    from glidepath.ledger import Price
    from glidepath.run import Run

_CHARS_PER_TOKEN_AT_MOST = 8
_SURELY = 0.375  # our estimate counts a token for three characters at least: from this share on it is one for eight
_ABSURD = 16
_ABSURD_SLACK = 100_000
_CACHE_SLACK = 1.25  # our count of what was sent before and the provider's differ
_CACHE_BLOCK = 256  # tokens: caches keep whole blocks
_MOST_SEARCHES = 1_000  # in one call; more is a slip of the provider


def settled(
    run: Run,
    reported: Usage | None,
    booking: Booking,
    view: Sequence[Message],
    attempt: Attempt,
    system_prompt: str | None = None,
) -> Usage:
    """The usage to charge: the provider's figures if plausible, else our own, flagged.

    `view` and `system_prompt` (None: the agent's own) are what was sent. `settle_ordinary` knows most reports at a
    glance.
    """
    if not isinstance(reported, Usage):  # none at all, or nothing that can be read
        return Usage(booking.input, attempt.metered(), estimated=True)
    sure = type(reported.input) is int and reported.input >= booking.estimate * _SURELY
    given = _plausible(reported.input, 0 if sure else _least_input(run, view, system_prompt), booking.estimate)
    written = _plausible(reported.output, attempt.size / _CHARS_PER_TOKEN_AT_MOST - 4, attempt.size)
    whole_input = booking.input if given is None else given
    whole_output = attempt.metered() if written is None else written
    parts = (
        _within(reported.cache_read, whole_input),
        _within(reported.cache_write, whole_input),
        _within(reported.reasoning, whole_output),
    )
    known = type(reported.estimated) is bool and all(part is not None for part in (given, written, *parts))
    if not (known and given is reported.input and written is reported.output):
        read, write, reasoning = [part or 0 for part in parts]
        reported = Usage(whole_input, whole_output, read, write, reasoning, estimated=True)
    if reported.cache_read and not run.plan.usage_is_billed:
        most = _sent_before(run, reported.input, booking.estimate)
        if reported.cache_read > most:
            return replace(reported, cache_read=most, estimated=True)
    return reported


def fees(price: Price, attempt: Attempt) -> int:
    """What a provider charges for a call beside its tokens: the searches of the web that it reports."""
    info = None if attempt.end is None else attempt.end.info
    searches: Any = 0 if info is None else info.web_searches
    return price.web_search * searches if type(searches) is int and 0 < searches <= _MOST_SEARCHES else 0


def _plausible(given: object, least: float, estimate: int) -> int | None:
    """The figure, when it is a whole number that can be true; booleans, NaN, text and negatives are not."""
    if type(given) is float and math.isfinite(given):
        given = math.ceil(given)
    if type(given) is not int or given < least or given < (estimate > 0) or given > _ABSURD * estimate + _ABSURD_SLACK:
        return None
    return given


def _within(part: object, whole: int) -> int | None:
    return part if type(part) is int and 0 <= part <= whole else None


def _sent_before(run: Run, given: int, estimate: int) -> int:
    """How much of a prompt of `given` tokens can come from a cache.

    System prompt, tools and what the session held before this run may have been sent by somebody else; beyond that
    only what this model object has been sent.
    """
    most = int(run.plan.health.sent * _CACHE_SLACK) + _CACHE_BLOCK
    if most >= given:
        return given
    known = run.plan.fixed_tokens + sum(run.transcript.sizes[: run.transcript.first_new])
    return min(given, max(most, int(known / max(1, estimate) * given * _CACHE_SLACK) + _CACHE_BLOCK))


def _least_input(run: Run, view: Sequence[Message], system_prompt: str | None) -> int:
    """The fewest tokens the prompt can have: one for eight characters of its texts and calls."""
    if system_prompt is None:
        system_prompt = run.plan.system_prompt
    transcript = run.transcript
    known = transcript.weighed_view is view  # what was counted before is not counted again
    characters = transcript.weighed_characters if known else 0
    for index in range(transcript.weighed_messages if known else 0, len(view)):
        characters += characters_of(view[index])
    transcript.weighed(view, characters)
    return (len(system_prompt) + characters) // _CHARS_PER_TOKEN_AT_MOST
