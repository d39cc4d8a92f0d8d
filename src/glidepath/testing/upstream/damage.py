"""What a fault does to a reply: to its words before they are written, to its usage, to its pieces on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from glidepath._wire import replace
from glidepath.testing.upstream.asked import AskedCall
from glidepath.testing.upstream.reported import Reported
from glidepath.testing.upstream.script import Fault
from glidepath.testing.upstream.spoken import Spoken, SpokenCall

ON_THE_WIRE = frozenset({"slow", "stall", "cut", "garbage"})
"""Faults that strike while a reply is sent: they need not know what it says."""
GARBAGE = b"data: {not json\n\n"
WEB_PAGE = b"<!doctype html><html><head><title>Sign in</title></head><body><h1>Sign in to continue</h1></body></html>"
REFUSAL = "I cannot help with that."
NO_SUCH_TOOL = "look_into_the_future"
_NO_JSON = '{"nonsense": tr'
_NO_ARGUMENTS = '{"nonsense": true}'
_CUT_TEXT = "The first thing to say about this is that"


def damage_words(spoken: Spoken, asked: AskedCall, faults: Mapping[str, Fault]) -> Spoken:
    """The reply with the faults that change what is said."""
    if "huge" in faults:
        spoken = replace(spoken, text="h" * 4 * faults["huge"].tokens + spoken.text)
    if "half_call" in faults:
        halves = [replace(one, arguments=one.arguments[: len(one.arguments) // 2]) for one in spoken.calls]
        spoken = replace(spoken, calls=tuple(halves))
    if "bad_arguments" in faults:
        # Gemini's arguments are an object on the wire: they can be wrong, but not broken.
        wrong = _NO_ARGUMENTS if asked.dialect == "gemini" else _NO_JSON
        spoken = replace(spoken, calls=tuple([replace(one, arguments=wrong) for one in spoken.calls]))
    if "unknown_tool" in faults and asked.tools:
        spoken = Spoken(calls=(SpokenCall(name=NO_SUCH_TOOL, arguments='{"day": "tomorrow"}'),), stop="calls")
    if "empty" in faults:
        spoken = Spoken()
    if "refusal" in faults:
        spoken = Spoken(text=REFUSAL, stop="refusal")
    if "truncated" in faults:
        text = spoken.text[: len(spoken.text) // 2] or _CUT_TEXT
        spoken = Spoken(text=text, thinking=spoken.thinking, stop="length")
    return spoken


def misreport(usage: Reported, faults: Mapping[str, Fault]) -> Reported:
    """The usage as the faults report it."""
    if "no_usage" in faults:
        return replace(usage, is_told=False)
    if "absurd_usage" in faults:
        factor = faults["absurd_usage"].factor
        return replace(usage, input=usage.input * factor, output=usage.output * factor)
    return usage


async def damage_pieces(pieces: AsyncIterator[bytes], faults: Mapping[str, Fault]) -> AsyncIterator[bytes]:
    """The pieces of a reply with the faults that strike on the wire, at its end where it is shorter.

    A cut just ends them.
    """
    if "slow" in faults:
        await asyncio.sleep(faults["slow"].seconds)
    cut, stall, garbage = [_place(faults, name) for name in ("cut", "stall", "garbage")]
    place = 0
    while place != cut:
        if place == stall:
            await asyncio.sleep(faults["stall"].seconds)
        if place == garbage:
            yield GARBAGE
        piece = await anext(pieces, None)
        if piece is None:
            break
        yield piece
        place += 1
    if place < stall:
        await asyncio.sleep(faults["stall"].seconds)
    if place < garbage:
        yield GARBAGE


def _place(faults: Mapping[str, Fault], name: str) -> int:
    """After how many pieces it strikes; -1 when it does not."""
    return faults[name].after if name in faults else -1
