"""Spending that is hard to see: endless replies, low usage reports, reasoning that is sent back, long ids."""

from __future__ import annotations

from glidepath.testing.specimens.specimen import ANSWER, Moment, Tireless, specimen
from glidepath.testing.turns import Turn, raw
from glidepath.values import ReasoningDelta, StreamEnd, TextDelta, ToolCallDelta, Usage


class _Spender(Tireless):
    family = "overshoot"
    needs_tools = True

    async def work(self, number: int) -> str:
        return f"page {number}: " + "some words that have to be sent back, " * 40


def _call(moment: Moment) -> ToolCallDelta:
    named = moment.call().calls[0]
    return ToolCallDelta(index=0, id=f"call_{moment.number}", name=named.name, arguments=named.arguments)


def _count_characters(moment: Moment) -> int:
    return sum(len(message.text) for message in moment.request.messages)


def _make_underreported_turn(moment: Moment) -> Turn:
    """Some words and a call, for next to nothing."""
    words = TextDelta("a few words about the next step, " * 30)
    return raw(words, _call(moment), StreamEnd("tool_use", Usage(input=_count_characters(moment) // 40 + 1, output=25)))


def _reasoning(moment: Moment) -> Turn:
    """A reasoning item of a thousand tokens, and a call."""
    opaque = 0
    for message in moment.request.messages:
        opaque += sum(len(getattr(block, "opaque", "")) for block in getattr(message, "blocks", ()))
    used = Usage(input=(_count_characters(moment) + opaque) // 4 + 1, output=1_030, reasoning=1_000)
    return raw(ReasoningDelta(opaque="o" * 4_000, vendor="specimen"), _call(moment), StreamEnd("tool_use", used))


def _long_ids(moment: Moment) -> Turn:
    """One call, whose id and name come again and again."""
    again = ToolCallDelta(index=0, id="i" * 500, name="n" * 500)
    return raw(_call(moment), *[again] * 100, StreamEnd("tool_use", None))


def _make_cached_turn(moment: Moment) -> Turn:
    """A call, with all of its input from a cache."""
    sent = _count_characters(moment) // 4 + 50
    return raw(_call(moment), StreamEnd("tool_use", Usage(input=sent, output=20, cache_read=sent)))


OVERSHOOT = (
    specimen(
        "endless_reply",
        "Writes megabytes in one reply, in small pieces, and never ends by itself.",
        family="overshoot",
        reply=lambda _: raw(TextDelta(ANSWER), *[TextDelta(" and then some more")] * 60_000),
    ),
    specimen(
        "under_reporter", "Works honestly and reports a tenth of what it used.", _Spender, step=_make_underreported_turn
    ),
    specimen(
        "heavy_reasoning",
        "Thinks in opaque items that are sent back, and paid for, with every later call.",
        _Spender,
        step=_reasoning,
        work=lambda number: f"result {number}",
    ),
    specimen(
        "long_ids",
        "Streams a hundred thousand characters in the ids and names of its calls, and reports no usage.",
        _Spender,
        step=_long_ids,
        work=lambda number: f"result {number}",
    ),
    specimen(
        "says_all_was_cached",
        "Reports that every prompt came from a cache, even what was never sent before.",
        _Spender,
        step=_make_cached_turn,
    ),
)
