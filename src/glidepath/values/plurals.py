"""Counts as people read them."""

from __future__ import annotations


def pluralize(number: float, one: str, shown: str = "") -> str:
    """`1 turn`, `3 turns`; `shown` is how the number is written where that is not its digits, such as `1.2k`."""
    return f"{shown or number} {one}{'' if number == 1 else 's'}"
