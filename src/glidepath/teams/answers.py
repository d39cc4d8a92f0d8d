"""Finds JSON in what a model said, whatever it wrapped around it."""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any

_LONGEST = 200_000
_TRIES = 50
_READ = 2 * _LONGEST  # characters in all tries together, so that no answer holds up the event loop


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, one after the other. Fences and prose do not matter."""
    text = text[:_LONGEST]
    at, left, decoder = 0, _READ, JSONDecoder()
    for _ in range(_TRIES):
        start = text.find("{", at)
        if start < 0 or left <= 0:
            return
        try:
            found, at = decoder.raw_decode(text, start)
        except JSONDecodeError as error:
            at, left = start + 1, left - (error.pos - start)
        except (ValueError, RecursionError):  # a number or a nesting that Python refuses to read
            at, left = start + 1, left - (len(text) - start)
        else:
            left -= at - start
            yield found
