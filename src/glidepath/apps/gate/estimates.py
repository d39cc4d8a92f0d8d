"""What a call will cost at most: its prompt by what the provider last counted, its output in slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value
from glidepath.apps.gate.dialects import write_body
from glidepath.run import Amount, Meter, Price
from glidepath.tools import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from glidepath.apps.gate.dialects import RequestFacts
    from glidepath.apps.gate.tree import ForeignAgent, LastCall
    from glidepath.values import Usage


FIRST_SLICE = 1024
"""Output tokens that are reserved before a reply begins; as it grows it asks for slices of the kernel's size."""
LEAST_SLICE = 128
SHARE = 128
"""A small budget is cut into so many slices: a slice of it must leave something to work with."""
UNSEEN = 512
"""Tokens that providers add to a first prompt: their own instructions for tools."""
PICTURE = 1600
FIXED_SHARE = 0.9
"""Schemas are written in more bytes a token than prose: less of a prompt than of its bytes."""
CACHED_FOR = 240.0
"""Seconds in which what was sent is still in the provider's cache: a minute less than vendors promise."""


class Estimate(Value, frozen=True):
    """Tokens of a prompt at most, and how many of them will come from the provider's cache."""

    tokens: int
    cached: int = 0
    cached_in_landing: int = 0
    """How many of them still do when the choice of tools has changed."""


def estimate_call(agent: ForeignAgent, facts: RequestFacts, size: int, now: float) -> Estimate:
    """The prompt of a call. `size` are the bytes of its text: pictures are counted by the piece."""
    pictures = facts.media * PICTURE + sum(agent.session.count_held_tokens(one) for one in facts.held_by_server)
    last = agent.last
    if last is None or last.model != facts.model or size < last.size or facts.messages < last.messages:
        # The first one, or the client has cut its history: nothing that was counted before is known to be in it.
        like = agent.session.beginnings.get((facts.model, agent.fixed_size))
        if like is not None and 2 * agent.fixed_size >= max(size, like.size):
            # Another agent began with the same tools and instructions, and the provider has counted them.
            tokens = like.usage.input + max(0, size - like.size) // BYTES_PER_TOKEN + 1 + pictures
            # What it found in the cache when it began was not its own, so this one will find it, too.
            cached = min(tokens, like.usage.cache_read) if now - like.at < CACHED_FOR else 0
            return Estimate(tokens, cached, _cached_in_landing(agent, facts, like, cached))
        unseen = UNSEEN if facts.has_tools else 0
        return Estimate(size // BYTES_PER_TOKEN + unseen + pictures + 1)
    tokens = last.usage.input + (size - last.size) // BYTES_PER_TOKEN + 1 + pictures
    if now - last.at >= CACHED_FOR:
        return Estimate(tokens)
    return _with_cache(agent, facts, last, tokens)


def estimate_landing(agent: ForeignAgent, facts: RequestFacts, usage: Usage) -> Estimate:
    """The prompt of a landing right after a call that used this much."""
    assert agent.last is not None  # noqa: S101 - for the type checker
    return _with_cache(agent, facts, agent.last, usage.total)


def _with_cache(agent: ForeignAgent, facts: RequestFacts, last: LastCall, tokens: int) -> Estimate:
    cached = min(tokens, last.usage.cache_read + last.usage.cache_write)
    return Estimate(tokens, cached, _cached_in_landing(agent, facts, last, cached))


def _cached_in_landing(agent: ForeignAgent, facts: RequestFacts, last: LastCall, cached: int) -> int:
    """Another choice of tools loses what Anthropic has cached of the messages, and keeps tools and system prompt."""
    if facts.dialect != "anthropic":
        return cached
    fixed = agent.fixed_size * last.usage.input / max(1, last.size)
    like = agent.session.beginnings.get((last.model, agent.fixed_size))
    shared = 0 if like is None else min(int(fixed), like.usage.cache_read)  # what all find there that begin like it
    return min(cached, max(shared, int(fixed * FIXED_SHARE)))


def measure_fixed_part(body: Mapping[str, Any]) -> int:
    """Bytes of what stays the same from call to call: tools and system prompt."""
    return len(write_body({name: body.get(name) for name in ("tools", "system")}))


def worst_case(estimate: Estimate, output: int, price: Price | None) -> Amount:
    """What a call may use: a prefix that was just read is paid as read, the rest as dear as input can be."""
    money = 0
    if price is not None:
        price = price.at(estimate.tokens)
        money = price.worst(estimate.tokens, output)
        if price.cache_read is not None and price.cache_read < price.worst_input:
            money -= estimate.cached * (price.worst_input - price.cache_read)
    return Amount(estimate.tokens + output, money)


def slice_size(nodes: Iterable[Meter], price: Price | None) -> int:
    """Tokens of output to reserve at a time, by the smallest budget above a call."""
    size = FIRST_SLICE
    for node in nodes:
        caps = node.caps
        if caps.tokens is not None:
            size = min(size, (caps.tokens + node.ahead_tokens) // SHARE)
        if caps.money is not None and price is not None and price.output:
            size = min(size, (caps.money + node.ahead_money) // price.output // SHARE)
    return max(LEAST_SLICE, size)


def landing_amount(estimate: Estimate, price: Price | None, size: int, children: int) -> Amount:
    """What the landing after this call will need: the conversation, its growth, reports of children, an answer.

    `size` is a slice: one for what the model writes now, one for what its tools return, one for the answer. A result
    that is longer than that loses its middle if it comes to the worst.
    """
    grown = estimate.tokens + 2 * size + children * size
    return worst_case(Estimate(grown, estimate.cached_in_landing), size, price)
