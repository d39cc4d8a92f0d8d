"""Spending that is hard to see: endless replies, reports that are too low, reasoning that is sent back, long ids."""

from __future__ import annotations

from typing import Any

from glidepath.messages import ReasoningDelta, StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, Tireless
from glidepath.testing.turns import Turn, raw

__all__ = ["EndlessReply", "HeavyReasoning", "LongIds", "SaysAllWasCached", "UnderReporter"]


class EndlessReply(Specimen):
    """Writes megabytes in one reply, in small pieces, and never comes to an end by itself."""

    name = "endless_reply"
    family = "overshoot"

    def reply(self, moment: Moment) -> Turn:
        """The answer, and more than any model may write."""
        return raw(TextDelta(ANSWER), *[TextDelta(" and then some more")] * 60_000)


class UnderReporter(Tireless):
    """Works honestly and reports a tenth of what it used."""

    name = "under_reporter"
    family = "overshoot"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """Some words and a call, for next to nothing."""
        named = moment.call().calls[0]
        sent = sum(len(message.text) for message in moment.request.messages)
        return raw(
            TextDelta("a few words about the next step, " * 30),
            ToolCallDelta(index=0, id=f"call_{moment.number}", name=named.name, arguments=named.arguments),
            StreamEnd("tool_use", Usage(input=sent // 40 + 1, output=25)),
        )

    async def work(self, number: int) -> Any:
        """A page of text."""
        return f"page {number}: " + "some words that have to be sent back, " * 40


class HeavyReasoning(Tireless):
    """Thinks in opaque items that are sent back, and paid for, with every later call."""

    name = "heavy_reasoning"
    family = "overshoot"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """A reasoning item of a thousand tokens, and a call."""
        named = moment.call().calls[0]
        opaque = 0
        for message in moment.request.messages:
            opaque += sum(len(getattr(block, "opaque", "")) for block in getattr(message, "blocks", ()))
        sent = (sum(len(message.text) for message in moment.request.messages) + opaque) // 4
        return raw(
            ReasoningDelta(opaque="o" * 4_000, vendor="specimen"),
            ToolCallDelta(index=0, id=f"call_{moment.number}", name=named.name, arguments=named.arguments),
            StreamEnd("tool_use", Usage(input=sent + 1, output=1_030, reasoning=1_000)),
        )

    async def work(self, number: int) -> Any:
        """Something new."""
        return f"result {number}"


class LongIds(Tireless):
    """Streams a hundred thousand characters in the ids and names of its calls, and reports no usage."""

    name = "long_ids"
    family = "overshoot"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """One call, whose id and name come again and again."""
        named = moment.call().calls[0]
        again = ToolCallDelta(index=0, id="i" * 500, name="n" * 500)
        first = ToolCallDelta(index=0, id=f"call_{moment.number}", name=named.name, arguments=named.arguments)
        return raw(first, *[again] * 100, StreamEnd("tool_use", None))

    async def work(self, number: int) -> Any:
        """Something new."""
        return f"result {number}"


class SaysAllWasCached(Tireless):
    """Reports that every prompt came from a cache, also what was never sent before."""

    name = "says_all_was_cached"
    family = "overshoot"
    needs_tools = True

    def step(self, moment: Moment) -> Turn:
        """A call, with all of its input from a cache."""
        named = moment.call().calls[0]
        sent = sum(len(message.text) for message in moment.request.messages) // 4 + 50
        return raw(
            ToolCallDelta(index=0, id=f"call_{moment.number}", name=named.name, arguments=named.arguments),
            StreamEnd("tool_use", Usage(input=sent, output=20, cache_read=sent)),
        )

    async def work(self, number: int) -> Any:
        """A page of text."""
        return f"page {number}: " + "some words that have to be sent back, " * 40
