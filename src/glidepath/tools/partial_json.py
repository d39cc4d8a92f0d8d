"""The beginning of a JSON text, completed: what a value is so far while a model still writes it."""

from __future__ import annotations

from collections.abc import Iterator

_CLOSING = {"{": "}", "[": "]"}
_BLANK = " \t\r\n"
_LONGEST_ESCAPE = 6  # \\u1234


class _Level:
    """An open object or list: how it closes, and how much of the text holds only whole members of it."""

    __slots__ = ("closing", "is_key", "whole")

    def __init__(self, opening: str, place: int) -> None:
        self.closing, self.whole, self.is_key = _CLOSING[opening], place + 1, opening == "{"


def complete(text: str) -> Iterator[str]:
    """JSON texts that the beginning of one may stand for, the fullest first; the text itself when nothing is missing.

    A text that is cut off stays as far as it goes. A number or word that is cut off is left out: it may be another one.
    """
    levels: list[_Level] = []
    place, size, opened = 0, len(text), -1  # `opened`: where a text that is a value, and has no end yet, begins
    while place < size:
        char = text[place]
        if char in "{[":
            levels.append(_Level(char, place))
        elif char in "}]":
            if not levels or levels.pop().closing != char:
                return
            if not levels:
                yield text[: place + 1]
                return
            _end_member(levels[-1], place + 1)
        elif char == '"':
            end = _find_end(text, place + 1)
            if end < 0:
                opened = place
                break
            if levels and not levels[-1].is_key:
                _end_member(levels[-1], end)
            place = end - 1
        elif char == ":" and levels:
            levels[-1].is_key = False
        elif char not in "," + _BLANK:
            end = place
            while end < size and text[end] not in ",]}" + _BLANK:
                end += 1
            if end < size and levels:
                _end_member(levels[-1], end)
            place = end - 1
        place += 1
    if opened >= 0 and levels and not levels[-1].is_key:
        yield _drop_cut_escape(text[opened:], text[:opened]) + '"' + _close(levels)
    while levels:
        yield text[: levels[-1].whole] + _close(levels)
        levels.pop()


def _end_member(level: _Level, place: int) -> None:
    level.whole, level.is_key = place, level.closing == "}"


def _close(levels: list[_Level]) -> str:
    return "".join([level.closing for level in reversed(levels)])


def _find_end(text: str, place: int) -> int:
    """Where a string ends, behind its quote; -1 when it does not."""
    while (quote := text.find('"', place)) >= 0:
        slash = text.find("\\", place, quote)
        if slash < 0:
            return quote + 1
        place = slash + 2
    return -1


def _drop_cut_escape(string: str, before: str) -> str:
    """What is there of a string without the escape at its end that may be cut off."""
    place = len(string) - _LONGEST_ESCAPE
    for start in range(max(1, place), len(string)):
        if string[start] == "\\" and not _is_escaped(string, start):
            width = _LONGEST_ESCAPE if string[start + 1 : start + 2] == "u" else 2
            if start + width > len(string):
                return before + string[:start]
    return before + string


def _is_escaped(string: str, place: int) -> bool:
    """Whether an odd number of backslashes comes before this place."""
    count = 0
    while place - count - 1 >= 0 and string[place - count - 1] == "\\":
        count += 1
    return count % 2 == 1
