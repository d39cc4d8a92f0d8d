"""What a model call costs, settled by one rule: for a turn, a landing, a checkpoint, a question of an MCP server.

- Charged is what the provider reports, else our own over-estimate, flagged; at the price of the model in use, with what
  its provider takes for searches of the web, sound and pictures, or what it says the call cost, if that is more.
- A report that is higher than ours is believed, however high: prompts that the provider keeps and tools that run there
  are billed, and we do not see them. One that the call cannot explain is also logged, and `BudgetSettled` says so; in
  wallets what is above our own over-estimate is disputed: held there until a person accepts or rejects it.
- No tokenizer puts more than eight characters of ordinary text into a token. A report below that is replaced by our own
  over-estimate; one that is only lower than our estimate is believed, on every host. What a report says came from a
  cache is believed of a vendor (`usage_is_billed`); of others only as far as it was sent before.
- Free is a call that was not sent, or that failed by itself before its first delta. What we stopped, by a cancellation
  or a time limit, is charged: the provider may have worked on it.
- The whole reservation is released, once, whatever happened.
- Every `BudgetReserved` has its `BudgetSettled`.
- A crash settles nothing. The journal has the worst case since before the call went out, and the run that
  takes over is charged for that (`sessions/recover.py`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, Value, replace
from glidepath.kernel.model_call.media import media_in
from glidepath.run import Amount, characters_of, dispute
from glidepath.values import (
    PICO,
    SATURATED,
    BudgetSettled,
    Media,
    Message,
    ReplyInfo,
    StreamEnd,
    Usage,
    dollars,
    read_dollars,
)

if TYPE_CHECKING:
    from glidepath.kernel.model_call.attempt import Attempt
    from glidepath.kernel.model_call.booking import Booking
    from glidepath.run import Price, Run

_log = logging.getLogger("glidepath")
_MORE_THAN_EXPLAINED = (
    "%s: the provider reports %d input and %d output tokens for a prompt of about %d. They are charged, because that "
    "may be the bill. Look for a prompt or a tool that the provider keeps, or for a mistake of this host."
)
_DEARER_THAN_EXPLAINED = (
    "%s: the provider says that the call cost $%s; at the price we know it costs $%s. The higher figure is charged, "
    "because that may be the bill. Look for a fee or a mistake of this host."
)
_CHARS_PER_TOKEN_AT_MOST = 8
_SURELY = 0.375  # our estimate counts a token for three characters at least: from this share on it is one for eight
_ABSURD = 16
_ABSURD_SLACK = 100_000
_CACHE_SLACK = 1.25  # our count of what was sent before and the provider's differ
_CACHE_BLOCK = 256  # tokens: caches keep whole blocks
_MOST_SEARCHES = 1_000  # in one call; more is a slip of the provider
_NONE = 0  # compared by identity: unlike False, 0.0 and None it is an int, and a journal keeps only ints


def settle(
    run: Run,
    booking: Booking,
    attempt: Attempt,
    sent: Sequence[Message],
    pay: Callable[[Usage, int], None],
    failed: bool,
    system_prompt: str | None = None,
) -> Usage:
    """Charge what a call used, by `pay`, release the rest of what was booked, and report it; returns what it used.

    `sent` and `system_prompt` (None: the agent's own) are what the model was sent; `failed`: it was not sent, or there
    is no reply.
    """
    price, held, money, end = run.plan.price, booking.reservation, 0, attempt.end
    implausible = False
    # Stopped by us before it ended, it may have been worked on although nothing has come.
    if failed and not (attempt.dead and end is None) and not attempt.progress_mark():
        usage = Usage()
        # What it held is free for others in the same step: they may have been waiting for exactly this.
        held.cancel()
    else:
        try:
            reported: Any = None if end is None else end.usage
            if _is_believable(reported, booking.estimate, attempt.size):
                usage = reported
            else:
                usage = settle_usage(reported, _evidence(run, booking, sent, attempt, system_prompt))
                implausible = is_implausible(usage, booking.estimate, attempt.size)
                if implausible:  # before it is charged: nobody may count it as used in between
                    _dispute_tokens(run, booking, attempt, usage, sent)
            health = run.plan.health
            # The most that this model was ever sent: no cache of its provider can hold more of ours.
            health.sent = max(health.sent, usage.input)
            if price is not None:
                info = _info_of(run, price, end, sent, usage)
                money = cost_of(price, usage, info)
                if info is not None and info.billed is not None and not implausible:
                    implausible = _dispute_bill(run, price, usage, info, money)
            held.settle(usage.input + usage.output, money)
            pay(usage, money)
            if implausible or run.spend.unexplained is not None:
                run.spend.record_dispute(Amount(usage.total, money) if implausible else None)
        except BaseException:
            held.settle(held.tokens, held.money)  # nobody will do it later: what is reserved would be lost to others
            raise
    emit = run.voice.emit
    if emit is not None and run.result is None:
        # May be negative: a reply can cost more than its worst case when the provider counts what we do not see.
        refunded = held.tokens - usage.input - usage.output
        emit(BudgetSettled, usage, None if price is None else money, max(0, refunded), implausible)
    return usage


# --- what a call really used --------------------------------------------------------------------------------------


class Evidence(Record, gc=False):
    """What we know of a call beside its provider's report. The functions are asked only when a report is in doubt."""

    estimate: int
    """Our count of the prompt."""
    booked: int
    """What was booked for the prompt: charged when the report says nothing that can be true."""
    size: int
    """Characters that streamed."""
    metered: Callable[[], int]
    """Our own count of the output."""
    least_input: Callable[[], int]
    """The fewest tokens the prompt can have."""
    most_cached: Callable[[int], int] | None = None
    """How much of this many input tokens can come from a cache; None: the report is the vendor's own bill."""


class CallCharge(Value, frozen=True):
    """What a call is charged: its usage, pico-dollars, and whether the report is more than anybody could foresee."""

    usage: Usage
    money: int
    is_implausible: bool


def work_out_charge(reported: Any, known: Evidence, price: Price | None, info: ReplyInfo | None) -> CallCharge:
    """What a call costs that somebody else's loop has made: the rule of `settle`, for anyone who has no run."""
    if _is_believable(reported, known.estimate, known.size):
        usage, implausible = reported, False
    else:
        usage = settle_usage(reported, known)
        implausible = is_implausible(usage, known.estimate, known.size)
    return CallCharge(usage, 0 if price is None else cost_of(price, usage, info), implausible)


def settle_usage(reported: Usage | None, known: Evidence) -> Usage:
    """The usage to charge: the provider's figures if plausible, else our own, flagged."""
    if not isinstance(reported, Usage):  # none at all, or nothing that can be read
        return Usage(known.booked, known.metered(), estimated=True)
    sure = type(reported.input) is int and reported.input >= known.estimate * _SURELY
    # The least input walks through the whole prompt: it is only counted when the quick look leaves a doubt.
    given = _check_figure(reported.input, 0 if sure else known.least_input(), known.estimate)
    written = _check_figure(reported.output, known.size / _CHARS_PER_TOKEN_AT_MOST - 4, known.size)
    whole_input = known.booked if given is None else given
    whole_output = known.metered() if written is None else written
    parts = (
        _check_part(reported.cache_read, whole_input),
        _check_part(reported.cache_write, whole_input),
        _check_part(reported.reasoning, whole_output),
    )
    is_whole = type(reported.estimated) is bool and all(part is not None for part in (given, written, *parts))
    if not (is_whole and given is reported.input and written is reported.output):
        read, write, reasoning = [part or 0 for part in parts]
        reported = Usage(whole_input, whole_output, read, write, reasoning, estimated=True)
    if reported.cache_read and known.most_cached is not None:
        most = known.most_cached(reported.input)
        if reported.cache_read > most:
            return replace(reported, cache_read=most, estimated=True)
    return reported


def _evidence(
    run: Run, booking: Booking, view: Sequence[Message], attempt: Attempt, system_prompt: str | None
) -> Evidence:
    """What a run knows of its call. `view` and `system_prompt` (None: the agent's own) are what was sent."""
    return Evidence(
        booking.estimate,
        booking.input,
        attempt.size,
        attempt.count_output,
        lambda: _count_least_input(run, view, system_prompt),
        None if run.plan.usage_is_billed else lambda given: _limit_cached_tokens(run, given, booking.estimate),
    )


def _is_believable(reported: Any, estimate: int, size: int) -> bool:
    """Whether a report can be taken as it is, as most can: two counts that are neither too low nor absurd.

    What it says of caches and reasoning is looked at closely. The estimate is of the prompt, `size` is what streamed.
    """
    if reported.__class__ is not Usage:
        return False
    given, written = reported.input, reported.output
    return (
        given.__class__ is int
        and written.__class__ is int
        and estimate * _SURELY <= given <= _ABSURD * estimate + _ABSURD_SLACK
        and 0 < written <= _ABSURD * size + _ABSURD_SLACK
        and written >= size / _CHARS_PER_TOKEN_AT_MOST - 4
        and reported.cache_read is _NONE
        and reported.cache_write is _NONE
        and reported.reasoning is _NONE
        and reported.estimated is False
    )


def is_implausible(usage: Usage, estimate: int, size: int) -> bool:
    """Whether a report is far more than the prompt we know and the bytes that streamed can explain."""
    return usage.input > _ABSURD * estimate + _ABSURD_SLACK or usage.output > _ABSURD * size + _ABSURD_SLACK


def _dispute_tokens(run: Run, booking: Booking, attempt: Attempt, usage: Usage, sent: Sequence[Message]) -> None:
    """Say that a report is far more than its call explains, and note the part above our own over-estimate."""
    price, ours, more = run.plan.price, Usage(booking.input, attempt.count_output()), 0
    if price is not None:
        more = cost_of(price, usage, _info_of(run, price, attempt.end, sent, usage))
        more -= price.at(ours.input).worst(ours.input, ours.output)
    _log.warning(_MORE_THAN_EXPLAINED, run.run_id, usage.input, usage.output, booking.estimate)
    dispute(run.meter, Amount(max(0, usage.total - ours.total), max(0, more)))


def _dispute_bill(run: Run, price: Price, usage: Usage, info: ReplyInfo, money: int) -> bool:
    """The same for a bill in money that its tokens do not explain; False when they do."""
    known = cost_of(price, usage, replace(info, billed=None))
    if money <= _ABSURD * known + _ABSURD_SLACK * price.output:
        return False
    _log.warning(_DEARER_THAN_EXPLAINED, run.run_id, f"{dollars(money):f}", f"{dollars(known):f}")
    dispute(run.meter, Amount(0, money - known))
    return True


def _info_of(run: Run, price: Price, end: StreamEnd | None, sent: Sequence[Message], usage: Usage) -> ReplyInfo | None:
    """What a reply says of itself, with our own count of sound and pictures where it knows of none."""
    info = None if end is None else end.info
    return _add_media_counts(info, sent, usage) if price.prices_media and run.transcript.picture_bytes else info


def cost_of(price: Price, usage: Usage, info: ReplyInfo | None) -> int:
    """What a call costs in pico-dollars: its tokens and what is billed beside them, or its bill, if that is higher."""
    money = price.cost(usage)
    if info is not None:
        searches: Any = info.web_searches
        if type(searches) is int and 0 < searches <= _MOST_SEARCHES:
            # Billed beside the tokens and by the piece; a reply of few tokens can cost most of its bill this way.
            money += price.web_search * searches
        sessions: Any = info.code_sessions
        if type(sessions) is int and 0 < sessions <= _MOST_SEARCHES:
            money += price.code_session * sessions
        if info.media is not None:
            money += price.at(usage.input).surcharge(_cap_media_counts(info.media, usage))
        billed = read_dollars(info.billed)
        if billed is not None:
            # The price list may be old, or not know the host's fee: of the two the higher one is believed.
            money = max(money, math.ceil(min(billed, SATURATED / PICO) * PICO))
    return min(money, SATURATED)


def _add_media_counts(info: ReplyInfo | None, sent: Sequence[Message], usage: Usage) -> ReplyInfo:
    info = ReplyInfo() if info is None else info
    media, ours = info.media or Media(), media_in(sent)
    # A provider that does not say is charged by our count, and never for more than its own total.
    audio = _check_part(media.audio_input, usage.input) or min(ours.audio_input, usage.input)
    image = _check_part(media.image_input, usage.input - audio) or min(ours.image_input, usage.input - audio)
    return replace(info, media=replace(media, audio_input=audio, image_input=image))


def _cap_media_counts(media: Media, usage: Usage) -> Media:
    """Counts of sound and pictures that can be true: together they are not more than the call has used."""
    audio = _check_part(media.audio_input, usage.input) or 0
    image = _check_part(media.image_input, usage.input - audio) or 0
    spoken = _check_part(media.audio_output, usage.output) or 0
    return Media(
        audio,
        _check_part(media.audio_cached, audio) or 0,
        spoken,
        image,
        _check_part(media.image_cached, image) or 0,
        _check_part(media.image_output, usage.output - spoken) or 0,
    )


def _check_figure(given: object, least: float, estimate: int) -> int | None:
    """The figure, when it is a number that is not too low; booleans, NaN, text and negatives are not."""
    if type(given) is not int:
        given = _round_up(given)
    if type(given) is not int or given < least or given < (estimate > 0):
        return None
    return min(given, SATURATED)


def _round_up(given: Any) -> int | None:
    """A figure of another type as a whole one: a slip of a host, and still the bill. None if not a number."""
    if isinstance(given, bool | str | bytes):
        return None
    try:
        # A part of a token is charged as a whole one.
        return int(given.__index__()) if hasattr(given, "__index__") else math.ceil(given)
    except Exception:  # NaN, infinity, and whatever a type of somebody else raises
        return None


def _check_part(part: object, whole: int) -> int | None:
    return part if type(part) is int and 0 <= part <= whole else None


def _limit_cached_tokens(run: Run, given: int, estimate: int) -> int:
    """How much of a prompt of `given` tokens can come from a cache.

    System prompt, tools and what the session held before this run may have been sent by somebody else; beyond that
    only what this model object has been sent.
    """
    most = int(run.plan.health.sent * _CACHE_SLACK) + _CACHE_BLOCK
    # First by what is cheap: counting what the session held before walks through all its sizes.
    if most >= given:
        return given
    known = run.plan.fixed_tokens + sum(run.transcript.sizes[: run.transcript.first_new])
    return min(given, max(most, int(known / max(1, estimate) * given * _CACHE_SLACK) + _CACHE_BLOCK))


def _count_least_input(run: Run, view: Sequence[Message], system_prompt: str | None) -> int:
    """The fewest tokens the prompt can have: one for eight characters of its texts and calls."""
    if system_prompt is None:
        system_prompt = run.plan.system_prompt
    transcript = run.transcript
    known = transcript.weighed_view is view  # what was counted before is not counted again
    characters = transcript.weighed_characters if known else 0
    for index in range(transcript.weighed_messages if known else 0, len(view)):
        characters += characters_of(view[index])
    # Kept with the view it belongs to: the next call has the same one and a few messages more.
    transcript.record_weight(view, characters)
    return (len(system_prompt) + characters) // _CHARS_PER_TOKEN_AT_MOST
