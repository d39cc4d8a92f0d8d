"""Show untrusted text safely: complete, with nothing hidden and nothing that could pass for something else.

Characters that cannot be seen, or that would steer the terminal, are shown as `<U+001B>`. Text is shown behind a
gutter: `|` begins a line of the text, `>` continues a line that is too long for the screen. So no text, whatever it
holds, can look like another argument or like a question of ours, and two different texts never look the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from unicodedata import category, combining, east_asian_width

from glidepath.plurals import how_many

_FIRST, _NEXT = "    | ", "    > "
_NARROWEST = 20
_MARKS = 2  # accents on one letter; more of them would hide the line above
_BLANK = frozenset(  # printable, but invisible
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)]
)


def width_of(text: str) -> int:
    """The columns of a text: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def revealed(text: str, keep: str = "") -> str:
    """The text on one line, with whatever cannot be seen or could steer the terminal as `<U+001B>`.

    Signs in `keep` are kept.
    """
    if text.isascii() and text.isprintable() and "<U+" not in text:
        return text
    shown: list[str] = []
    marks = _MARKS  # a text must not begin with an accent, which would change what is before it
    for place, sign in enumerate(text):
        marks = marks + 1 if category(sign)[0] == "M" else 0
        hidden = not sign.isprintable() or ord(sign) in _BLANK or 0xE0100 <= ord(sign) <= 0xE01EF  # noqa: PLR2004
        forged = sign == "<" and text.startswith("<U+", place)
        odd = (hidden or forged or marks > _MARKS) and sign not in keep
        shown.append(f"<U+{ord(sign):04X}>" if odd else sign)
    return "".join(shown)


def argument_rows(arguments: Mapping[str, Any], width: int) -> list[str]:
    """Every argument with its name and its whole value, in rows of at most `width` columns."""
    rows: list[str] = []
    for name, value in arguments.items():
        rows += _argument(str(name), value, max(width, _NARROWEST))
    return rows or ["  (no arguments)"]


def size_of(arguments: Mapping[str, Any]) -> int:
    """How many characters the values have."""
    return sum(len(value if isinstance(value, str) else _json(value)) for value in arguments.values())


def _argument(name: str, value: object, width: int) -> Iterator[str]:
    label = revealed(name)
    if label != name or width_of(label) > width // 2:
        yield "  an argument named"
        yield from wrapped(name, width)
        label = "  with the value"
    else:
        label = f"  {label}"
    text = value if isinstance(value, str) else _json(value)
    inline = f'{label}: "{text}"' if isinstance(value, str) else f"{label}: {text}"
    plain = revealed(text) == text and not (isinstance(value, str) and ('"' in text or "\\" in text))
    if plain and width_of(inline) <= width:
        yield inline
        return
    if not isinstance(value, str):
        text = _json(value, indent=2)
    kind = "text" if isinstance(value, str) else "JSON"
    lines = text.count("\n") + 1
    size = f"{kind}, {how_many(len(text), 'character', f'{len(text):,}')}" + (f", {lines:,} lines" if lines > 1 else "")
    head = f"{label} ({size}):"
    yield head if width_of(head) <= width else f"{label}:"
    yield from wrapped(text, width)


def wrapped(text: str, width: int) -> Iterator[str]:
    """A text behind its gutter, every line of it begun again, in rows of at most `width` columns."""
    room = max(width - len(_FIRST), 8)
    for line in text.split("\n"):
        gutter = _FIRST
        for row in _rows(revealed(line), room):
            yield gutter + row
            gutter = _NEXT


def folded(text: str, width: int, indent: str) -> str:
    """One line that is safe to show, in rows of at most `width` columns behind an indent."""
    return "\n".join(indent + row for row in _rows(text, max(width - len(indent), 8)))


def _rows(text: str, room: int) -> Iterator[str]:
    while True:
        cut = room if text.isascii() else _fits(text, room)
        yield text[:cut]
        text = text[cut:]
        if not text:
            break


def _fits(text: str, room: int) -> int:
    """How many characters of the text fit into this many columns; a letter keeps its accents."""
    used = 0
    for place, sign in enumerate(text):
        wide = width_of(sign)
        if used + wide > room:
            return place
        used += wide
    return len(text)


def call_line(name: str, arguments: Mapping[str, Any], most: int = 0) -> str:
    """A call on one line, all arguments named; cut after `most` characters (0: never), and then it says its length."""
    said = ", ".join(f"{revealed(str(key))}={revealed(_json(value))}" for key, value in arguments.items())
    line = f"{revealed(name)}({said})"
    return line if not most or len(line) <= most else f"{line[:most]}... ({len(line):,} characters)"


def quoted(value: object) -> str:
    """A setting's value on one line, in full: text in quotes, names one by one, a table as JSON."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    if isinstance(value, str):
        return revealed(_json(value))
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(quoted(item) for item in value) or "none"
    from glidepath import _wire

    plain = _wire.plain(value, enc_hook=str)
    return revealed(_json(plain) if isinstance(plain, dict | list) else str(plain))


def _json(value: object, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=repr)
