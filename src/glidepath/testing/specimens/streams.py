"""Streams and providers that fail: stalls, drips, disconnects, rate limits, overflows, and false usage reports."""

from __future__ import annotations

import math

from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, Tireless, specimen, table
from glidepath.testing.turns import Turn, UsageReport, fail, hang, no_end, say
from glidepath.values import ContextOverflowError, RateLimitedError, RejectedError, TransientError, Usage


class _Failing(Specimen):
    family = "streams"
    answers = False


def _recovers(moment: Moment) -> Turn:
    if moment.number == 1:
        return fail(RateLimitedError("slow down", retry_after=1.0))
    return no_end("The beginning of ") if moment.number == 2 else say(ANSWER)


def _too_many(seconds: float) -> RateLimitedError:
    return RateLimitedError("too many requests", retry_after=seconds)


_RESET = TransientError("connection reset by peer")
_BEGUN = "The beginning of an answer is "

STREAMS = (
    *table(
        _Failing,
        "says",
        stalls_before_text=("Accepts the request and never sends a byte.", hang()),
        stalls_midway=("Begins its answer and then goes silent with the connection open.", hang(_BEGUN)),
        drips_slowly=(
            "Sends one word every thirty seconds, forever: never silent long enough to count as stalled.",
            say("drip " * 10_000, delay=30.0),
        ),
        missing_terminal_event=(
            "Streams a whole answer and closes without its terminal event.",
            no_end("This looks like an answer, but nobody said it was over."),
        ),
        disconnects_before_text=("Drops the connection before the first byte.", fail(_RESET)),
        disconnects_midway=("Drops the connection in the middle of every answer.", fail(_RESET, text=_BEGUN)),
        rate_limit_storm=("Answers every request with 429.", fail(_too_many(2.0))),
        retry_after_an_hour=("Answers 429 and asks to come back in an hour.", fail(_too_many(3600.0))),
        server_errors=("Answers every request with 500.", fail(TransientError("HTTP 500: internal error"))),
        rejects_the_key=("Answers every request with 401.", fail(RejectedError("HTTP 401: the key is not valid"))),
        crashes_the_client=(
            "Raises its own exception from inside the stream.",
            fail(ZeroDivisionError("a defect in the client library"), text="Half "),
        ),
        context_overflows=(
            "Refuses every prompt as too long, however short.",
            fail(ContextOverflowError("the prompt is too long")),
        ),
    ),
    specimen(
        "recovers_after_faults",
        "Fails twice, in two ways, and then answers: a retry must find that answer.",
        reply=_recovers,
        family="streams",
        succeeds=True,
    ),
)


class _Value(_Failing):
    """Somebody reads its answer as a list while it is written."""

    output_type = list[str]


VALUES = table(
    _Value,
    "says",
    value_without_end=("Writes a list that has no end, and is read all along.", no_end("[" + '"more", ' * 8_000)),
    value_of_another_type=("Writes a value of another type, however often it is asked.", say('{"answer": 1}')),
)


class _Liar(Tireless):
    """Keeps working, and lies about what that costs."""

    family = "usage"
    needs_tools = True
    usage: UsageReport = "missing"

    def step(self, moment: Moment) -> Turn:
        return moment.call().with_text("word " * 800).with_usage(self.usage)

    async def work(self, number: int) -> str:
        return f"result {number}"


def _half(moment: Moment) -> Turn:
    sent = sum(len(message.text) for message in moment.request.messages) // 4
    return moment.call().with_text("word " * 800).with_usage(Usage(input=max(1, sent // 2), output=500))


_NOT_A_NUMBER = Usage(input=math.nan, output=math.nan)  # type: ignore[arg-type]

USAGE = (
    *table(
        _Liar,
        "usage",
        zero_usage=("Reports zero tokens for everything.", Usage()),
        negative_usage=("Reports negative tokens.", Usage(input=-1_000, output=-1_000)),
        nan_usage=("Reports NaN tokens.", _NOT_A_NUMBER),
        absurd_usage=(
            "Reports a trillion tokens for each call: that is charged, because it may be the bill, and ends the run.",
            Usage(input=10**12, output=10**12),
        ),
        absent_usage=("Reports no usage at all.", "missing"),
    ),
    specimen("half_usage", "Reports half of what it really used, in every call.", _Liar, step=_half),
)
