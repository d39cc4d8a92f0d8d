"""The names of OpenTelemetry's GenAI conventions, and of our own attributes, in one place.

Two vocabularies are in use: the released one (v1.41), which backends read today, and the next one, chosen by
`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`. Spans are the same in both but for the cache figures, whose
two names are always written. Metrics differ.
"""

from __future__ import annotations

import os

from glidepath.values import StopReason

__all__ = ["CONTENT_SWITCH", "OPT_IN", "finish_reason", "provider_name", "wants_content", "wants_latest_vocabulary"]

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
CONTENT_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_PROVIDERS = {
    "google": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
    "x-ai": "x_ai",
    "xai": "x_ai",
}


def provider_name(provider: str | None) -> str:
    """The name that the conventions have for a provider; others keep theirs."""
    if provider is None:
        return "unknown"
    return _PROVIDERS.get(provider, provider)


_FINISH = {"end_turn": "stop", "tool_use": "tool_call", "max_tokens": "length", "refusal": "content_filter"}


def finish_reason(reason: StopReason) -> str:
    """The word that the conventions have for why a reply ended; others keep theirs."""
    return _FINISH.get(reason.value, reason.value)


def wants_latest_vocabulary() -> bool:
    """Whether the next vocabulary of metrics is asked for."""
    return "gen_ai_latest_experimental" in [word.strip() for word in os.environ.get(OPT_IN, "").split(",")]


def wants_content() -> bool:
    """Whether the environment asks for messages on spans."""
    return os.environ.get(CONTENT_SWITCH, "").strip().upper() in ("SPAN_ONLY", "SPAN_AND_EVENT", "TRUE")
