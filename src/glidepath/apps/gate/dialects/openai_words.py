"""Shared by OpenAI's two dialects: error bodies, and which models reason out of sight."""

from __future__ import annotations

from glidepath.apps.gate.dialects.wire_body import write_body
from glidepath.models.thinkers import REASONING, is_plain_openai

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


def openai_error(status: int, kind: str, message: str) -> bytes:
    """The body of an error."""
    word = _ERRORS.get(status, "server_error")
    return write_body({"error": {"message": message, "type": word, "param": None, "code": kind or None}})


def find_hidden_reasoning(model: str, effort: object) -> str:
    """Whether a model reasons out of sight: `none`, `asked`, or `unknown` for a model that nobody knows here."""
    if effort == "none" or is_plain_openai(model):
        return "none"
    if effort is not None or REASONING.match(model):
        return "asked"
    return "unknown"
