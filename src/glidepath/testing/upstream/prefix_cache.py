"""The scripted prompt cache: which part of a request's input was read before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from glidepath._wire import Value
from glidepath.testing.upstream.asked import InputBlock
from glidepath.testing.upstream.spoken import count_input, count_tokens

SMALLEST = 1024
"""Tokens: a shorter prefix is not cached, as with the vendors."""
STEP = 128
MOST_ENTRIES = 50_000


class InputTokens(Value):
    """The tokens of a request's input: all of them, and how many were read from or written to the cache."""

    total: int
    cached: int = 0
    written: int = 0


class PrefixCache:
    """Remembers prefixes of requests by digest, the latest 50,000. A block is cached whole or not at all."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def look_up(self, model: str, blocks: Sequence[InputBlock]) -> InputTokens:
        """OpenAI and Gemini: every prefix is cached by itself, in steps of 128 tokens from 1,024 on."""
        reach, total = 0, 0
        digests = self._walk(model, blocks)
        for digest, tokens in digests:
            total = tokens
            if digest in self._seen:
                reach = tokens
        self._remember(digest for digest, _ in digests)
        cached = reach // STEP * STEP if reach >= SMALLEST else 0
        return InputTokens(total=max(1, total), cached=cached)

    def look_up_marked(self, model: str, blocks: Sequence[InputBlock]) -> InputTokens:
        """Anthropic: what is up to a marked block is written, and read when a later request has it up to a mark."""
        total = count_input(blocks)
        digests = self._walk(model, blocks)
        last = max((place for place, block in enumerate(blocks) if block.is_marked), default=-1)
        upto = digests[: last + 1]
        reach = max((tokens for digest, tokens in upto if digest in self._seen), default=0)
        end = upto[-1][1] if upto else 0
        if end < SMALLEST:
            return InputTokens(total=total)
        self._remember(digest for place, (digest, _) in enumerate(upto) if blocks[place].is_marked)
        return InputTokens(total=total, cached=reach, written=end - reach)

    def _walk(self, model: str, blocks: Sequence[InputBlock]) -> list[tuple[bytes, int]]:
        rolling = blake2b(model.encode(), digest_size=16)
        tokens, found = 0, []
        for block in blocks:
            rolling.update(block.salt + block.data)
            tokens += count_tokens(block.data)
            found.append((rolling.digest(), tokens))
        return found

    def _remember(self, digests: Iterable[bytes]) -> None:
        for digest in digests:
            self._seen[digest] = None
            self._seen.move_to_end(digest)
        while len(self._seen) > MOST_ENTRIES:
            self._seen.popitem(last=False)
