"""Show untrusted text safely: complete, with nothing hidden and nothing that could pass for something else.

Every door uses this one rule: the terminal, the flight deck, AG-UI and ACP. Characters that cannot be seen, that would
steer a screen, or that look like other letters are shown as `<U+001B>`. Text is shown behind a
gutter: `|` begins a line of the text, `>` continues a line that is too long for the screen. So no text, whatever it
holds, can look like another argument or like a question of ours, and two different texts never look the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from unicodedata import category, combining, east_asian_width, name as name_of, normalize

from glidepath.values import pluralize

_FIRST, _NEXT = "    | ", "    > "
_NARROWEST = 20
_MARKS = 2  # accents on one letter; more of them would hide the line above
_SELECTORS = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10))
_BLANK = frozenset(  # printable, but invisible
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, 0x13441, 0x13442, 0x16FE4, 0x1D159, *_SELECTORS)
)
_ACCENTS = ((0x0300, 0x0370), (0x1AB0, 0x1B00), (0x1DC0, 0x1E00), (0x20D0, 0x2100), (0xFE20, 0xFE30))
"""Marks that belong on any letter. Those of another script on an ASCII letter mean nothing, and may not be drawn."""
_DOT = "\u0307"  # on a letter that has one, it cannot be seen
_SCRIPTS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU")
"""Scripts with letters that pass for Latin ones."""
_ALIKE = frozenset(  # letters of these scripts that nobody can tell from a Latin one
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u051b\u051d\u04bb\u04cf\u04af"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0405\u0406\u0408\u050c\u04c0"
    "\u03bf\u03bd\u03c1\u03b9\u03c5\u03b1\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4"
    "\u03a5\u03a7\u0578\u057d\u0585\u0570\u0563"
    "\ua4d0\ua4d1\ua4d3\ua4d4\ua4d6\ua4d7\ua4d9\ua4da\ua4dc\ua4dd\ua4df\ua4e0\ua4e1\ua4e2\ua4e3\ua4e6\ua4e7\ua4ea"
    "\ua4eb\ua4ec\ua4ee\ua4f0\ua4f2\ua4f3\ua4f4\u13a0\u13a1\u13a2\u13a5\u13a9\u13aa\u13ab\u13ac\u13b3\u13b7\u13bb\u13bd"
    "\u13c0\u13c2\u13c3\u13cf\u13d2\u13d4\u13d5\u13d9\u13da\u13de\u13df\u13e2\u13e6\u13e7\u13ee\u13f3\u13f4\u2c9f\u2c9e"
)
_LATIN_ALIKE = frozenset("\u0251\u0261\u0269\u1d04\u1d0f\u1d1c\u1d20\u1d21\u1d22\ua731")
"""Latin letters that pass for ASCII ones and are in no alphabet, only in phonetics."""
_FIRST_STRAY = 0x0250  # before it are the letters of Europe
_COMMON = range(0x2000, 0x3100)  # punctuation of all scripts
_SIGNS_ALIKE = frozenset(  # dashes, slashes, colons, dots and quotes that pass for ASCII ones
    "\u2010\u2011\u2012\u2043\u2212\u2044\u2215\u29f8\u2236\ua789\u0589\u05c3\u2024\u02bc\u02b9\u01c3\u01c0\u2223"
    "\u02c8\u02d0\u02d7\u02f8\u1735\u16ec\u204e\u205a\u2216\u2217\u223c\u2571\u27cb\u29f5\u3033\ua4f8\ua4f9\ua4fd\ua4ff\ua78a"
)


def width_of(text: str) -> int:
    """The columns of a text: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def escape_invisible(text: str, keep: str = "") -> str:
    """The text on one line, with whatever cannot be seen or could steer the terminal as `<U+001B>`.

    Signs in `keep` are kept.
    """
    if text.isascii() and text.isprintable() and "<U+" not in text:
        return text
    alike = frozenset() if text.isascii() else _find_lookalikes(text)
    shown: list[str] = []
    marks = _MARKS  # a text must not begin with an accent, which would change what is before it
    letter = ""  # on which accents are put
    for place, sign in enumerate(text):
        is_mark = category(sign)[0] == "M"
        marks = marks + 1 if is_mark else 0
        hidden = not sign.isprintable() or ord(sign) in _BLANK or 0xE0100 <= ord(sign) <= 0xE01EF  # noqa: PLR2004
        forged = (sign == "<" and text.startswith("<U+", place)) or (is_mark and _is_odd_mark(sign, letter))
        odd = (hidden or forged or marks > _MARKS or place in alike) and sign not in keep
        shown.append(f"<U+{ord(sign):04X}>" if odd else sign)
        letter = letter if is_mark else sign
    return "".join(shown)


def _is_odd_mark(sign: str, letter: str) -> bool:
    """True for a mark that cannot be seen on this letter, or does not belong on it."""
    if sign == _DOT:
        return letter in ("i", "j", "\u0131", "\u0237")
    return letter.isascii() and not any(first <= ord(sign) < end for first, end in _ACCENTS)


def mask_controls(text: str) -> str:
    """The text with only what could steer a screen, or cannot be seen, as `<U+001B>`; line breaks and tabs are kept."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"<U+{ord(sign):04X}>" for sign in text)


def _find_lookalikes(text: str) -> frozenset[int]:
    """Where a text has a character that passes for another one.

    Letters of other scripts in a word with Latin letters, words that consist only of letters that look Latin where
    nothing else in the line is written in that script, and signs that are ASCII in another form.
    """
    found: set[int] = set()
    start = 0
    for line in text.split("\n"):
        if not line.isascii():
            found.update(start + place for place in _find_lookalikes_in_line(line))
        start += len(line) + 1
    return frozenset(found)


def _find_lookalikes_in_line(line: str) -> Iterator[int]:
    foreign = {place for place, sign in enumerate(line) if not sign.isascii() and _script(sign)}
    plain = {_script(line[place]) for place in foreign if line[place] not in _ALIKE}
    start = 0
    for word in line.split(" "):
        places = [place for place in range(start, start + len(word)) if place in foreign]
        latin = any(sign.isascii() and sign.isalpha() for sign in word)
        for place in places:
            if latin or (all(line[one] in _ALIKE for one in places) and _script(line[place]) not in plain):
                yield place
        if latin and not word.isascii():
            yield from (start + place for place, sign in enumerate(word) if _is_stray(sign))
        start += len(word) + 1
    yield from (place for place, sign in enumerate(line) if not sign.isascii() and _is_another_form(sign))


def _is_stray(sign: str) -> bool:
    """True for a letter, digit or stop of a script that nobody writes within a word of Latin letters."""
    if ord(sign) < _FIRST_STRAY or east_asian_width(sign) in "WF":
        return False
    kind = category(sign)
    if kind[0] == "L":
        return not name_of(sign, "LATIN ").startswith("LATIN ")
    return kind == "Nd" or (kind == "Po" and ord(sign) not in _COMMON)


def _script(sign: str) -> str:
    """The script of a letter that may pass for a Latin one; empty for every other character."""
    first = name_of(sign, "").partition(" ")[0] if sign.isalpha() else ""
    return first if first in _SCRIPTS else ""


def _is_another_form(sign: str) -> bool:
    """True for a wide, bold, or otherwise dressed-up form of one ASCII character; a raised digit is not one."""
    if sign in _SIGNS_ALIKE or sign in _LATIN_ALIKE:
        return True
    plain = normalize("NFKC", sign)
    return len(plain) == 1 and plain.isascii() and plain != " " and category(sign) != "No"


def argument_rows(arguments: Mapping[str, Any], width: int) -> list[str]:
    """Every argument with its name and its whole value, in rows of at most `width` columns."""
    rows: list[str] = []
    for name, value in arguments.items():
        rows += _format_argument(str(name), value, max(width, _NARROWEST))
    return rows or ["  (no arguments)"]


def size_of(arguments: Mapping[str, Any]) -> int:
    """How many characters the values have."""
    return sum(len(value if isinstance(value, str) else _json(value)) for value in arguments.values())


def _format_argument(name: str, value: object, width: int) -> Iterator[str]:
    label = escape_invisible(name)
    if label != name or width_of(label) > width // 2:
        yield "  an argument named"
        yield from wrap_lines(name, width)
        label = "  with the value"
    else:
        label = f"  {label}"
    text = value if isinstance(value, str) else _json(value)
    inline = f'{label}: "{text}"' if isinstance(value, str) else f"{label}: {text}"
    plain = escape_invisible(text) == text and not (isinstance(value, str) and ('"' in text or "\\" in text))
    if plain and width_of(inline) <= width:
        yield inline
        return
    if not isinstance(value, str):
        text = _json(value, indent=2)
    kind = "text" if isinstance(value, str) else "JSON"
    lines = text.count("\n") + 1
    size = f"{kind}, {pluralize(len(text), 'character', f'{len(text):,}')}" + (
        f", {lines:,} lines" if lines > 1 else ""
    )
    head = f"{label} ({size}):"
    yield head if width_of(head) <= width else f"{label}:"
    yield from wrap_lines(text, width)


def wrap_lines(text: str, width: int) -> Iterator[str]:
    """A text behind its gutter, every line of it begun again, in rows of at most `width` columns."""
    room = max(width - len(_FIRST), 8)
    for line in text.split("\n"):
        gutter = _FIRST
        for row in _split_rows(escape_invisible(line), room):
            yield gutter + row
            gutter = _NEXT


def fold_line(text: str, width: int, indent: str) -> str:
    """One line that is safe to show, in rows of at most `width` columns behind an indent."""
    return "\n".join(indent + row for row in _split_rows(text, max(width - len(indent), 8)))


def _split_rows(text: str, room: int) -> Iterator[str]:
    while True:
        cut = room if text.isascii() else _count_fitting(text, room)
        yield text[:cut]
        text = text[cut:]
        if not text:
            break


def _count_fitting(text: str, room: int) -> int:
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
    said = ", ".join(
        f"{escape_invisible(str(key))}={escape_invisible(_json(value))}" for key, value in arguments.items()
    )
    line = f"{escape_invisible(name)}({said})"
    return line if not most or len(line) <= most else f"{line[:most]}... ({len(line):,} characters)"


def _json(value: object, *, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=repr)
