"""Streams and providers that fail: stalls, drips, disconnects, rate limits, overflows, and usage that lies."""

from __future__ import annotations

import math
from typing import Any

from glidepath.errors import ContextOverflowError, RateLimitedError, RejectedError, TransientError
from glidepath.messages import Usage
from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, Tireless, replying
from glidepath.testing.turns import Turn, UsageReport, fail, hang, no_end, say

__all__ = [
    "REPLYING",
    "AbsentUsage",
    "AbsurdUsage",
    "HalfUsage",
    "NanUsage",
    "NegativeUsage",
    "RecoversAfterFaults",
    "ZeroUsage",
]

REPLYING = (
    *replying(
        "streams",
        {
            "stalls_before_text": (
                "Accepts the request and never sends a byte.",
                lambda _: hang(),
            ),
            "stalls_midway": (
                "Begins its answer and then goes silent with the connection open.",
                lambda _: hang("The beginning of an answer is "),
            ),
            "drips_slowly": (
                "Sends one word every thirty seconds, forever: never silent for long enough to be called stalled.",
                lambda _: say("drip " * 10_000, delay=30.0),
            ),
            "missing_terminal_event": (
                "Streams a whole answer and closes without its terminal event.",
                lambda _: no_end("This looks like an answer, but nobody said it was over."),
            ),
            "disconnects_before_text": (
                "Drops the connection before the first byte.",
                lambda _: fail(TransientError("connection reset by peer")),
            ),
            "disconnects_midway": (
                "Drops the connection in the middle of every answer.",
                lambda _: fail(TransientError("connection reset by peer"), text="The beginning of an answer is "),
            ),
            "rate_limit_storm": (
                "Answers every request with 429.",
                lambda _: fail(RateLimitedError("too many requests", retry_after=2.0)),
            ),
            "retry_after_an_hour": (
                "Answers 429 and asks to come back in an hour.",
                lambda _: fail(RateLimitedError("too many requests", retry_after=3600.0)),
            ),
            "server_errors": (
                "Answers every request with 500.",
                lambda _: fail(TransientError("HTTP 500: internal error")),
            ),
            "rejects_the_key": (
                "Answers every request with 401.",
                lambda _: fail(RejectedError("HTTP 401: the key is not valid")),
            ),
            "crashes_the_client": (
                "Raises its own exception from inside the stream.",
                lambda _: fail(ZeroDivisionError("a defect in the client library"), text="Half "),
            ),
            "context_overflows": (
                "Refuses every prompt as too long, however short.",
                lambda _: fail(ContextOverflowError("the prompt is too long")),
            ),
        },
        answers=False,
    ),
)
"""Those that only reply."""


class RecoversAfterFaults(Specimen):
    """Fails twice, in two ways, and then answers: a retry must find that answer."""

    name = "recovers_after_faults"
    family = "streams"
    succeeds = True

    def reply(self, moment: Moment) -> Turn:
        """Two faults, then the answer."""
        if moment.number == 1:
            return fail(RateLimitedError("slow down", retry_after=1.0))
        return no_end("The beginning of ") if moment.number == 2 else say(ANSWER)


class _Liar(Tireless):
    """Works on and on, and lies about what that costs."""

    family = "usage"
    needs_tools = True
    usage: UsageReport = "missing"

    def step(self, moment: Moment) -> Turn:
        """A long reply and a call, with the lie."""
        return moment.call().with_text("word " * 800).with_usage(self.usage)

    async def work(self, number: int) -> Any:
        """Something new."""
        return f"result {number}"


class ZeroUsage(_Liar):
    """Reports zero tokens for everything."""

    name = "zero_usage"
    usage = Usage()


class NegativeUsage(_Liar):
    """Reports negative tokens."""

    name = "negative_usage"
    usage = Usage(input=-1_000, output=-1_000)


class NanUsage(_Liar):
    """Reports NaN tokens."""

    name = "nan_usage"
    usage = Usage(input=math.nan, output=math.nan)  # type: ignore[arg-type]


class AbsurdUsage(_Liar):
    """Reports a trillion tokens a call: charging that would end any run at once."""

    name = "absurd_usage"
    usage = Usage(input=10**12, output=10**12)


class AbsentUsage(_Liar):
    """Reports no usage at all."""

    name = "absent_usage"


class HalfUsage(_Liar):
    """Reports half of what it really used, in every call."""

    name = "half_usage"
    usage = None

    def step(self, moment: Moment) -> Turn:
        """The same, with half of the truth."""
        sent = sum(len(message.text) for message in moment.request.messages) // 4
        return moment.call().with_text("word " * 800).with_usage(Usage(input=max(1, sent // 2), output=500))
