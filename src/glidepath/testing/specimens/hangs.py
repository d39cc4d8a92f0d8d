"""Things that block an event loop or keep a run waiting: floods after the end, tools that never pause, long waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from glidepath.errors import RateLimitedError
from glidepath.messages import StreamEnd, TextDelta, Usage
from glidepath.testing.specimens.specimen import ANSWER, Moment, Outside, Specimen
from glidepath.testing.turns import Turn, fail, raw, say

__all__ = ["BreathlessTool", "FloodAfterTheEnd", "ResultWithoutJson", "RetryAfterAYear"]

MANY = 20_000
YEAR = 365 * 86_400.0


class FloodAfterTheEnd(Specimen):
    """Ends its answer properly and then keeps sending deltas without a pause."""

    family = "streams"
    succeeds = True

    def reply(self, moment: Moment) -> Turn:
        """The answer, its end, and a flood."""
        end = StreamEnd("end_turn", Usage(input=100, output=10))
        return raw(TextDelta(ANSWER), end, *[TextDelta("more and more ")] * MANY)


class RetryAfterAYear(Specimen):
    """Answers 429 and asks to come back in a year."""

    family = "streams"
    answers = False

    def reply(self, moment: Moment) -> Turn:
        """Come back much later."""
        return fail(RateLimitedError("too many requests", retry_after=YEAR))


class BreathlessTool(Specimen):
    """A tool that reports progress without ever waiting, while somebody cancels the run."""

    family = "tools"
    needs_tools = True
    answers = False
    reports = True
    ends_from_outside = True

    def reply(self, moment: Moment) -> Turn:
        """One call."""
        return moment.call()

    async def progress(self, number: int) -> AsyncIterator[Any]:
        """Report, and never give way."""
        for step in range(MANY):
            yield f"step {step}"
        raise RuntimeError("nobody could stop it")

    async def outside(self, flight: Outside) -> None:
        """Cancel as soon as the tool runs."""
        await flight.in_tool.wait()
        flight.cancel()


class ResultWithoutJson(Specimen):
    """A tool whose result has no JSON form: keys that are tuples, infinity, and a reference to itself."""

    family = "tools"
    needs_tools = True
    succeeds = True

    def reply(self, moment: Moment) -> Turn:
        """One call, then the answer."""
        return moment.call() if moment.number == 1 and moment.request.tools else say(ANSWER)

    async def work(self, number: int) -> Any:
        """Something odd."""
        odd: dict[Any, Any] = {(1, 2): float("inf")}
        odd["self"] = odd
        return odd
