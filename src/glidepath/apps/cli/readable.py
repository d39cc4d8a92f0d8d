"""Text of others on a terminal: what it says stays, what could steer the terminal does not."""

from __future__ import annotations

from unicodedata import category

_JOINER = "\u200c"
"""Between two letters of one word, as in Persian: they would be another word without it."""
_TURNS = frozenset(map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]))


def replace_control_characters(text: str, instead: str = "") -> str:
    """The text with `instead` for every control character, and for those that turn the direction of writing.

    Spaces of every kind stay: with one that does not break, `10 000` must not become `10000`. Other marks that cannot
    be seen are left out.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else _replace_sign(sign, instead) for sign in text)


def _replace_sign(sign: str, instead: str) -> str:
    kind = category(sign)
    if kind == "Zs" or sign == _JOINER:
        return sign
    if sign in _TURNS:
        return instead
    return {"Zl": "\n", "Zp": "\n", "Cf": ""}.get(kind, instead)
