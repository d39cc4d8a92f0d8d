"""Thoughts between visible tags, told apart from the answer while it streams."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from glidepath.values import Delta, TextDelta, ThinkingDelta

_NAMES = r"(?:think|thinking|thought|reasoning|reflection)"
_OPEN = rf"(?i:<\s*{_NAMES}\s*>)"  # compiled when it is needed
_CLOSE = rf"(?i:<\s*/\s*{_NAMES}\s*>)"
_LONGEST = 40  # a tag with its spaces is never longer; a tail longer than this cannot become one


class ThinkingTags:
    """Splits a stream of text into what is visible and what is thought.

    Case and spaces do not matter, a tag may be split over deltas, any synonym closes, and an unclosed tag hides
    its tail.
    """

    __slots__ = ("_held", "_inside")

    def __init__(self) -> None:
        self._held = ""
        self._inside = False

    def feed(self, text: str) -> tuple[str, str]:
        """The next delta, as (visible, thought)."""
        text = self._held + text
        self._held = ""
        visible: list[str] = []
        thought: list[str] = []
        while text:
            tag = re.search(_CLOSE if self._inside else _OPEN, text)
            out = thought if self._inside else visible
            if tag is None:
                start = text.rfind("<", max(0, len(text) - _LONGEST))
                # What could be the beginning of a tag waits for the next delta.
                kept = 0 if start < 0 or ">" in text[start:] else len(text) - start
                out.append(text[: len(text) - kept])
                self._held = text[len(text) - kept :]
                break
            out.append(text[: tag.start()])
            text = text[tag.end() :]
            self._inside = not self._inside
        return "".join(visible), "".join(thought)

    def finish(self) -> str:
        """What was held back and turned out to be visible text."""
        held, self._held = self._held, ""
        return "" if self._inside else held


async def split_thinking_tags(stream: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
    """The stream with its thoughts told apart from its text."""
    tags = ThinkingTags()
    try:
        async for delta in stream:
            if isinstance(delta, TextDelta):
                visible, thought = tags.feed(delta.text)
                if thought:
                    yield ThinkingDelta(thought)
                yield TextDelta(visible)
            else:
                rest = tags.finish()
                if rest:
                    yield TextDelta(rest)
                yield delta
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
