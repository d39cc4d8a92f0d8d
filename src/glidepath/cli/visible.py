"""Text from strangers, made safe to print: nothing in it can steer the terminal, and nothing is left out."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["folded", "quoted", "visible"]


def visible(text: str, keep: str = "") -> str:
    """The text with every control character written as an escape, except those in `keep`."""
    return "".join(sign if sign.isprintable() or sign in keep else repr(sign)[1:-1] for sign in text)


def folded(text: str, width: int, indent: str) -> str:
    """The text in rows of at most `width` columns, each behind the indent: none of it can pass for a line of ours."""
    from glidepath.cli.status import width_of

    room = max(width - len(indent), 8)
    rows, row, used = [], "", 0
    for sign in text:
        wide = width_of(sign)
        if used + wide > room:
            rows.append(row)
            row, used = "", 0
        row, used = row + sign, used + wide
    return "\n".join(indent + row for row in [*rows, row])


def quoted(value: Any) -> str:
    """A setting's value on one line, in full: text in quotes, names one by one, a table as JSON."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    if isinstance(value, str):
        return visible(json.dumps(value, ensure_ascii=False))
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(quoted(item) for item in value) or "none"
    from glidepath import _wire

    plain = _wire.plain(value, enc_hook=str)
    return visible(json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else str(plain))
