"""The names of OpenTelemetry's GenAI conventions, and of our own attributes, in one place.

Two vocabularies are in use: the released one (v1.41), which backends read today, and the next one, chosen by
`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`. Spans are the same in both but for the cache figures, whose
two names are always written. Metrics differ.
"""

from __future__ import annotations

import os

__all__ = ["CONTENT_SWITCH", "OPT_IN", "latest", "provider_name", "wants_content"]

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


def latest() -> bool:
    """Whether the next vocabulary of metrics is asked for."""
    return "gen_ai_latest_experimental" in os.environ.get(OPT_IN, "").split(",")


def wants_content() -> bool:
    """Whether the environment asks for messages on spans."""
    return os.environ.get(CONTENT_SWITCH, "").strip().upper() in ("SPAN_ONLY", "SPAN_AND_EVENT", "TRUE")
