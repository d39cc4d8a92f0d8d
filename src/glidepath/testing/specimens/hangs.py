"""Things that block an event loop or keep a run waiting: floods after the end, tools that never pause, long waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from glidepath.testing.specimens.specimen import ANSWER, Moment, OneCall, Outside, specimen
from glidepath.testing.turns import Turn, fail, raw
from glidepath.values import RateLimitedError, StreamEnd, TextDelta, Usage

MANY = 20_000
YEAR = 365 * 86_400.0


def _flood(_moment: Moment) -> Turn:
    end = StreamEnd("end_turn", Usage(input=100, output=10))
    return raw(TextDelta(ANSWER), end, *[TextDelta("more and more ")] * MANY)


async def _breathless(_number: int) -> AsyncIterator[Any]:
    """Report, and never give way."""
    for step in range(MANY):
        yield f"step {step}"
    raise RuntimeError("nobody could stop it")


async def _cancel_at_once(flight: Outside) -> None:
    await flight.in_tool.wait()
    flight.cancel()


def _odd(_number: int) -> dict[Any, Any]:
    odd: dict[Any, Any] = {(1, 2): float("inf")}
    odd["self"] = odd
    return odd


HANGS = (
    specimen(
        "flood_after_the_end",
        "Ends its answer properly and then keeps sending deltas without a pause.",
        reply=_flood,
        family="streams",
        succeeds=True,
    ),
    specimen(
        "retry_after_a_year",
        "Answers 429 and asks to come back in a year.",
        reply=lambda _: fail(RateLimitedError("too many requests", retry_after=YEAR)),
        family="streams",
        answers=False,
    ),
    specimen(
        "breathless_tool",
        "A tool that reports progress without ever waiting, while somebody cancels the run.",
        reply=Moment.call,
        progress=_breathless,
        outside=_cancel_at_once,
        family="tools",
        needs_tools=True,
        answers=False,
        reports=True,
        ends_from_outside=True,
    ),
    specimen(
        "result_without_json",
        "A tool whose result has no JSON form: keys that are tuples, infinity, and a reference to itself.",
        OneCall,
        work=_odd,
        family="tools",
        needs_tools=True,
    ),
)
