"""Reads what providers report about the tokens of a call: one rule for each format, for adapters and the gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath.models.content import count, dollars_in
from glidepath.values import Media, Usage


def anthropic_usage(given: Mapping[str, Any]) -> Usage:
    """The usage of a message: the figures of all its events, the later ones over the earlier ones."""
    read, written = count(given, "cache_read_input_tokens"), count(given, "cache_creation_input_tokens")
    thoughts = count(given, "output_tokens_details", "thinking_tokens")
    usage = Usage(count(given, "input_tokens") + read + written, count(given, "output_tokens"), read, written, thoughts)
    # What the vendor's own compaction of the context took is billed, and not part of the figures above.
    passes = [one for one in given.get("iterations") or () if one.get("type") == "compaction"]
    return sum([anthropic_usage({**one, "iterations": None}) for one in passes], usage)


def anthropic_searches(given: Mapping[str, Any]) -> int:
    """Web searches that Anthropic, or a server that copies its figures, bills."""
    return count(given, "server_tool_use", "web_search_requests")


def chat_usage(given: Mapping[str, Any]) -> Usage:
    """The usage of a chat completion."""
    prompt, completion = count(given, "prompt_tokens"), count(given, "completion_tokens")
    reasoning = count(given, "completion_tokens_details", "reasoning_tokens")
    if reasoning and count(given, "total_tokens") == prompt + completion + reasoning:
        completion += reasoning  # this server counts them separately
    cached = count(given, "prompt_tokens_details", "cached_tokens") or count(given, "prompt_cache_hit_tokens")
    written = count(given, "prompt_tokens_details", "cache_write_tokens")
    return Usage(prompt, completion, cached, written, reasoning)


def chat_media(given: Mapping[str, Any]) -> Media:
    """Sound and pictures of a chat completion."""
    return _media(given, "prompt_tokens_details", "completion_tokens_details")


def chat_bill(given: Mapping[str, Any]) -> float | None:
    """What OpenRouter says the call cost. A caller with its own key at the provider pays there in addition."""
    own, upstream = dollars_in(given, "cost"), dollars_in(given, "cost_details", "upstream_inference_cost")
    if own is None:
        return None
    return own + (upstream or 0.0) if given.get("is_byok") else own


def responses_usage(given: Mapping[str, Any]) -> Usage:
    """The usage of a response."""
    return Usage(
        count(given, "input_tokens"),
        count(given, "output_tokens"),
        count(given, "input_tokens_details", "cached_tokens"),
        count(given, "input_tokens_details", "cache_write_tokens"),
        count(given, "output_tokens_details", "reasoning_tokens"),
    )


def responses_media(given: Mapping[str, Any]) -> Media:
    """Sound and pictures of a response."""
    return _media(given, "input_tokens_details", "output_tokens_details")


def is_billed_search(item: Mapping[str, Any]) -> bool:
    """Whether an item of a response is a web search that is billed: opening a page it found is free."""
    action = item.get("action")
    kind = action.get("type", "search") if isinstance(action, Mapping) else "search"
    return item.get("type") == "web_search_call" and kind == "search"


def gemini_usage(given: object) -> Usage:
    """The usage of a Gemini reply: an object of the SDK, or a mapping with the same names."""
    thoughts = count(given, "thoughts_token_count")
    return Usage(
        count(given, "prompt_token_count") + count(given, "tool_use_prompt_token_count"),
        count(given, "candidates_token_count") + thoughts,
        count(given, "cached_content_token_count"),
        0,
        thoughts,
    )


def gemini_media(given: object) -> Media:
    """Sound and pictures, which have prices of their own. Of what a tool at the provider has read, too."""
    return Media(
        audio_input=_count_media_kind(given, "AUDIO", "prompt_tokens_details", "tool_use_prompt_tokens_details"),
        audio_cached=_count_media_kind(given, "AUDIO", "cache_tokens_details"),
        audio_output=_count_media_kind(given, "AUDIO", "candidates_tokens_details"),
        image_input=_count_media_kind(given, "IMAGE", "prompt_tokens_details", "tool_use_prompt_tokens_details"),
        image_cached=_count_media_kind(given, "IMAGE", "cache_tokens_details"),
        image_output=_count_media_kind(given, "IMAGE", "candidates_tokens_details"),
    )


def gemini_searches(queries: object, *, each: bool) -> int:
    """Searches that are billed. Gemini 3 bills every query; earlier models bill a prompt once."""
    if not isinstance(queries, list) or not queries:
        return 0
    return len(queries) if each else 1


def _media(given: Mapping[str, Any], read: str, written: str) -> Media:
    return Media(
        audio_input=count(given, read, "audio_tokens"),
        audio_output=count(given, written, "audio_tokens"),
        image_input=count(given, read, "image_tokens"),
        image_output=count(given, written, "image_tokens"),
    )


def _count_media_kind(given: object, kind: str, *lists: str) -> int:
    entries = [one for name in lists for one in _part(given, name) or ()]
    return sum(count(one, "token_count") for one in entries if _word(_part(one, "modality")).upper() == kind)


def _part(given: object, name: str) -> Any:
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _word(reason: object) -> str:
    return str(getattr(reason, "value", reason))
