"""Reading JSON out of what a model said, whatever it wrapped around it."""

from __future__ import annotations

from typing import Any

from glidepath import _wire

__all__ = ["json_in"]

_LONGEST = 200_000
_TRIES = 50


def json_in(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text that reads as one; None when there is none. Fences and prose do not matter."""
    text = text[:_LONGEST]
    start = -1
    for _ in range(_TRIES):
        start = text.find("{", start + 1)
        if start < 0:
            return None
        end = _closing(text, start)
        if end is None:
            continue
        try:
            found = _wire.loads(text[start : end + 1])
        except (_wire.WireError, ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _closing(text: str, start: int) -> int | None:
    """Where the brace at `start` is closed, strings apart."""
    depth, quoted, escaped = 0, False, False
    for at in range(start, len(text)):
        sign = text[at]
        if quoted:
            if escaped:
                escaped = False
            elif sign == "\\":
                escaped = True
            elif sign == '"':
                quoted = False
        elif sign == '"':
            quoted = True
        elif sign == "{":
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                return at
    return None
