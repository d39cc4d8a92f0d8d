"""How a setting's value is shown; texts of others are shown by the one rule in `glidepath.run.revealing`."""

from __future__ import annotations

import json

from glidepath.run import argument_rows, call_line, escape_invisible, fold_line, size_of, width_of, wrap_lines

__all__ = [
    "argument_rows",
    "call_line",
    "escape_invisible",
    "fold_line",
    "quote_value",
    "size_of",
    "width_of",
    "wrap_lines",
]


def quote_value(value: object) -> str:
    """A setting's value on one line, in full: text in quotes, names one by one, a table as JSON."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    if isinstance(value, str):
        return escape_invisible(json.dumps(value, ensure_ascii=False))
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(quote_value(item) for item in value) or "none"
    from glidepath import _wire

    plain = _wire.to_plain_data(value, enc_hook=str)
    text = json.dumps(plain, ensure_ascii=False, default=repr) if isinstance(plain, dict | list) else str(plain)
    return escape_invisible(text)
