"""Reading JSON out of what a model said, whatever it wrapped around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glidepath import _wire

__all__ = ["objects_in"]

_LONGEST = 200_000
_TRIES = 50
_READ = 2 * _LONGEST  # characters in all tries together, so that no answer holds up the event loop


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text that read as such, one after the other. Fences and prose do not matter."""
    text = text[:_LONGEST]
    at, left = 0, _READ
    for _ in range(_TRIES):
        start = text.find("{", at)
        if start < 0 or left <= 0:
            return
        end = _closing(text, start)
        left -= (len(text) if end is None else end) - start
        at = start + 1
        if end is None:
            continue
        try:
            found = _wire.loads(text[start : end + 1])
        except (_wire.WireError, ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            at = end + 1
            yield found


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
