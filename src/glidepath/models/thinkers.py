"""Which models think, by their names: for adapters, and for anyone who must know what a reply may hide."""

from __future__ import annotations

import re

THINKS = re.compile(r"claude-(fable|mythos|opus-5-[5-9](?!\d)|(opus|sonnet|haiku)-([6-9]|\d\d)(?!\d))")
"""Models that always think: they refuse to have it turned off, and refuse a forced call. Unknown models count too."""
PAUSES = re.compile(r"claude-sonnet-5-[5-9](?!\d)")
"""Models that think between tools at least: they accept that instead of no thinking, and refuse a forced call."""
BEGINS_THINKING = re.compile(r"claude-(fable|mythos|(sonnet|opus|haiku)-[5-9])")
"""Models that think unless they are told not to."""
REASONING = re.compile(r"(openai/)?(o\d|gpt-([5-9]|\d\d))")
"""OpenAI's reasoning models. They refuse `max_tokens`, wherever they are served."""
PLAIN = ("gpt-3", "gpt-4", "chatgpt-", "ft:gpt-3", "ft:gpt-4")
"""How the names of OpenAI's models without reasoning begin."""
UNTHINKING = re.compile(r"(models/)?gemini-(1|2\.0)")
"""Gemini models that cannot think."""
LEVELED = re.compile(r"(models/)?gemini-([3-9]|\d\d)")
"""Gemini models that take a level of thinking and want signatures back; earlier ones take a budget of tokens."""
_BARE = re.compile(r"claude-[^:/]*")
"""The part of a cloud's model name that is Anthropic's."""


def strip_cloud_prefix(name: str) -> str:
    """The name of a Claude model as Anthropic spells it, without what a cloud adds."""
    found = _BARE.search(name)
    return found[0].replace("@", "-") if found else name


def claude_thinks_unasked(name: str) -> bool:
    """Whether a Claude model thinks in a request that does not mention it."""
    bare = strip_cloud_prefix(name)
    return any(names.match(bare) for names in (THINKS, PAUSES, BEGINS_THINKING))


def claude_can_be_forced(name: str) -> bool:
    """Whether a Claude model accepts a tool choice that forces a call, if its thinking is off."""
    bare = strip_cloud_prefix(name)
    return not (THINKS.match(bare) or PAUSES.match(bare))


def is_plain_openai(name: str) -> bool:
    """Whether this is a model of OpenAI that never reasons."""
    return name.startswith(PLAIN) or (name.startswith("gpt-") and "-chat" in name)
