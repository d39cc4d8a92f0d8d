"""Text that is safe to send: short enough, and without lone surrogates."""

from __future__ import annotations

import re
from typing import Any

_CHUNK = 1 << 16
_CUT = re.compile(r"\n\[\.\.\. cut: ([0-9]{1,9}) characters, ([0-9]{1,9}) kept \.\.\.\]\n")
_MOST_FILLED = 10_000_000  # characters: a marker may also be a tool's own words


def clean(text: str) -> str:
    """The text without lone surrogates, which no JSON writer accepts; the same object when it has none."""
    if text.__class__ is not str:
        text = str.__str__(text)  # a subclass may override __str__
    if text.isascii():  # a flag on the string: free, however long it is
        return text
    try:
        # In pieces, so that checking a huge text does not double it in memory.
        for start in range(0, len(text), _CHUNK):
            text[start : start + _CHUNK].encode()
    except UnicodeEncodeError:
        # UTF-16 joins matching surrogates into the character they encode.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def split_half(text: str) -> tuple[str, str]:
    """A text, cleaned, without the first half of a character at its end, and that half."""
    if "\ud800" <= text[-1:] <= "\udbff":
        return clean(text[:-1]), text[-1]
    return clean(text), ""


def clean_data(data: object) -> Any:
    """Plain data with every text in it cleaned."""
    if isinstance(data, str):
        return clean(data)
    if isinstance(data, dict):
        return {clean_data(key): clean_data(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [clean_data(item) for item in data]
    return data


def shorten(text: str, limit: int) -> str:
    """The text for use inside a message: cleaned, at most `limit` characters, the cut shown by an ellipsis."""
    return clean(text) if len(text) <= limit else clean(text[: limit - 1]) + "…"


def split(total: int, limit: int) -> tuple[int, str, int]:
    """How `total` characters fit into `limit`: how many of the head, the marker, how many of the tail.

    Three parts head to one part tail. An empty marker means that there is no room for one.
    """
    # Measured with `limit` instead of the kept size, which never has more digits.
    room = limit - len(_make_cut_marker(total, limit))
    if room <= 0:
        return max(limit, 0), "", 0
    tail = room // 4
    return room - tail, _make_cut_marker(total, room), tail


def trim(text: str, limit: int) -> str:
    """At most `limit` characters: head and tail around a marker that states the original and the kept size.

    Costs O(limit), however long the text. A limit with no room for the marker keeps the head alone.
    """
    if len(text) <= limit:
        return text
    head, marker, tail = split(len(text), limit)
    return f"{text[:head]}{marker}{text[len(text) - tail :]}"


def fill_cut(text: str) -> str:
    """A text as long as the one that `trim` has cut; what was left out is filled with what is there. Else as it is."""
    for found in _CUT.finditer(text):
        total, kept = int(found[1]), int(found[2])
        if kept == len(text) - len(found[0]) and 0 < kept < total <= _MOST_FILLED:
            head, tail = text[: found.start()], text[found.end() :]
            missing, shown = total - kept, head or tail
            return head + (shown * (missing // len(shown) + 1))[:missing] + tail
    return text


def _make_cut_marker(total: int, kept: int) -> str:
    return f"\n[... cut: {total} characters, {kept} kept ...]\n"
