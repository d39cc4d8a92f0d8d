"""Amounts as people write them, the same in Python, files, variables and flags: `200k`, `1h30m`, `$0.50`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow

__all__ = [
    "EXACT",
    "MEANT",
    "MOST",
    "PERIODS",
    "format_seconds",
    "name_limit",
    "parse_int",
    "parse_seconds",
    "share_of",
]

MOST = 10**15
PERIODS = ("5h", "day", "week", "month")
"""After these a stored budget can start again, by UTC. Five hours and a week are windows of subscriptions."""
EXACT = Context(prec=80, Emin=-(10**6), Emax=10**6, traps=[InvalidOperation, DivisionByZero, Overflow])
"""Reckons with money. A program's own decimal context may round to four digits, or raise where a digit is lost."""
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_LIMITS = {"tokens": "token", "money": "cost", "turns": "turn", "tool_calls": "tool call"}
_SCALE = {"k": 1_000, "m": 1_000_000}


def parse_int(value: object) -> object:
    """The number that a text such as `10k`, `1.5m` or `10_000` means; anything else as it is."""
    if not isinstance(value, str):
        return value
    text = value.strip().lower().replace("_", "").replace(",", "")
    scale = _SCALE.get(text[-1:], 1)
    try:
        number = EXACT.multiply(Decimal(text[:-1] if scale > 1 else text), scale)
        return int(number) if -MOST < number < MOST and number == int(number) else value
    except (InvalidOperation, ValueError, OverflowError):
        return value


def parse_seconds(value: object) -> object:
    """The seconds that a text such as `90s`, `30m` or `1h30m`, or a timedelta, means; anything else as it is."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    found = _TIME.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if found is None or not any(found.groups()):
        return value
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def format_seconds(seconds: float) -> str:
    """Seconds as people write them: `30m`, `1h30m`, `1m30s`, `0.5s`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(f"{hours}h", hours), (f"{minutes}m", minutes), (f"{rest:g}s", rest)]
    return "".join([text for text, amount in parts if amount]) or "0s"


def _parse_dollars(value: object) -> object:
    """The dollars that `$0.50` means, or a float as it is written: 0.1 is ten cents. Anything else as it is."""
    if isinstance(value, float):
        return Decimal(repr(value))
    return value[1:] if isinstance(value, str) and value.startswith("$") else value


def share_of(amount: int, fraction: Decimal) -> int:
    """This share of an amount, rounded down."""
    return int(EXACT.multiply(Decimal(amount), fraction))


def name_limit(resource: str) -> str:
    """What the limit of a resource of the ledger is called in a sentence: `token limit`."""
    return f"{_LIMITS.get(resource, resource.replace('_', ' '))} limit"


MEANT: Mapping[str, Callable[[object], object]] = {
    "int": parse_int,
    "count": parse_int,
    "seconds": parse_seconds,
    "money": _parse_dollars,
}
"""How the values of each kind of setting are read."""
