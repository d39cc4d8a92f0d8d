"""What the scripted model says, before a dialect puts it on the wire; and how it counts tokens.

A token is four bytes of UTF-8, rounded up for each part by itself: a text, a tool call (name and arguments together),
a block of the input as compact JSON. Real tokenizers differ; this one never changes, so a test can predict it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from glidepath._wire import Value, replace
from glidepath.testing.upstream.asked import InputBlock

BYTES_PER_TOKEN = 4
LONGEST_WHOLE = 32_000
"""Tokens of an endless reply that is not streamed and has no maximum."""


def count_tokens(data: bytes | str) -> int:
    """How many tokens these bytes are."""
    size = len(data) if isinstance(data, bytes) else len(data.encode())
    return -(-size // BYTES_PER_TOKEN)


def count_input(blocks: Sequence[InputBlock]) -> int:
    """How many tokens a request has as input; at least one."""
    return max(1, sum(count_tokens(block.data) for block in blocks))


class SpokenCall(Value):
    """A tool call that the model makes; `arguments` is the JSON, or the free text of a custom tool."""

    name: str
    arguments: str
    kind: str = "function"
    namespace: str | None = None

    @property
    def tokens(self) -> int:
        """What the call costs as output."""
        return count_tokens(self.name + self.arguments)


class Spoken(Value):
    """A reply: hidden thinking, text, tool calls. `stop` is `end`, `calls`, `length` or `refusal`."""

    text: str = ""
    calls: tuple[SpokenCall, ...] = ()
    thinking: str = ""
    stop: str = "end"
    endless: int = 0
    """Tokens of text that follow without an end being in sight; -1 until the client leaves."""

    @property
    def tokens(self) -> int:
        """What the whole reply costs as output, an endless one without a maximum aside."""
        return self.hidden + count_tokens(self.text) + sum(one.tokens for one in self.calls) + max(0, self.endless)

    @property
    def hidden(self) -> int:
        """Tokens of the thinking."""
        return count_tokens(self.thinking)

    def fit(self, most: int | None, *, stream: bool) -> Spoken:
        """The reply as far as `most` tokens of output reach, stopped by `length` when that is not all of it."""
        if most is None and self.endless < 0 and not stream:
            most = LONGEST_WHOLE
        if most is None or (self.tokens <= most and self.endless >= 0):
            return self
        thinking = self.thinking[: most * BYTES_PER_TOKEN]
        left = most - count_tokens(thinking)
        text = _cut_bytes(self.text, left)
        left -= count_tokens(text)
        endless = left if self.endless < 0 else min(left, self.endless)
        left -= endless
        calls = []
        for one in self.calls:
            if left <= count_tokens(one.name):
                break
            arguments = _cut_bytes(one.arguments, left - count_tokens(one.name))
            calls.append(replace(one, arguments=arguments))
            left -= calls[-1].tokens
        return Spoken(text=text, calls=tuple(calls), thinking=thinking, stop="length", endless=endless)

    def deltas(self, size: int) -> Iterator[str]:
        """The text in pieces of about `size` bytes, the endless part included."""
        for start in range(0, len(self.text), size):
            yield self.text[start : start + size]
        if self.endless:
            yield from _babble(self.endless * BYTES_PER_TOKEN if self.endless > 0 else None, size)


def _cut_bytes(text: str, tokens: int) -> str:
    return text.encode()[: max(0, tokens) * BYTES_PER_TOKEN].decode(errors="ignore")


def _babble(most: int | None, size: int) -> Iterator[str]:
    left = most
    for number in count(1):
        piece = f"and on it goes, line {number}, ".ljust(size, ".")[:size]
        if left is not None:
            if left <= 0:
                return
            piece, left = piece[:left], left - size
        yield piece
