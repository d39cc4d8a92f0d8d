"""Parses and checks one value of a setting, from a file or from text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from functools import partial
from typing import Any

from glidepath.values import MOST, ConfigurationError, Setting, parse_int, parse_seconds

OFF = ("off", "none")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_EXAMPLES = {"prices": '{"MODEL": ["3", "15"]}', "recovery": '{"max_attempts": 3}'}
_RECOVERY = ("max_attempts", "scaling", "ceiling")


def read_text(setting: Setting, text: str, where: str) -> Any:
    """A value given as text: by a flag, a variable, or `--set`."""
    kind = setting.kind.rstrip("?")
    if kind in ("table", "prices", "recovery"):
        try:
            return read_value(setting, json.loads(text, parse_float=Decimal), where)
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"{where}: expected JSON such as {_EXAMPLES.get(kind, '{...}')}, got {text!r:.80} ({error.msg})"
            ) from None
    if kind == "names":
        names = [name.strip() for name in text.split(",")]
        return () if text.strip().lower() in ("", *OFF) else read_value(setting, names, where)
    if kind == "bool":
        word = text.strip().lower()
        if word not in (*_TRUE, *_FALSE):
            raise _make_error(where, "true or false", text)
        return word in _TRUE
    return read_value(setting, text, where)


def read_value(setting: Setting, value: object, where: str) -> Any:
    """A value from a file; raises `ConfigurationError` naming its place and what was expected."""
    kind = setting.kind.rstrip("?")
    off = value is None or (isinstance(value, str) and value.strip().lower() in OFF)
    if off and setting.kind.endswith("?"):
        return None
    if setting.zero_is_off and value in (0, "0") and not isinstance(value, bool):
        return None
    if kind == "choice":
        return _choice(setting, value, where)
    if kind in _TABLES:
        return _TABLES[kind](value, where)
    return _read(kind, value, where)


def _make_error(where: str, expected: str, value: object) -> ConfigurationError:
    shown = str(value) if isinstance(value, Decimal | date | time) else repr(value)
    return ConfigurationError(f"{where}: expected {expected}, got {shown:.80}")


def _read(kind: str, value: object, where: str, expected: str = "") -> Any:
    usual, convert = _KINDS[kind]
    try:
        return convert(value)
    except (ArithmeticError, TypeError, ValueError):
        raise _make_error(where, expected or usual, value) from None


# --- conversions: whatever they raise means that the value does not fit -------------------------------------------


def _must(fits: bool) -> None:
    if not fits:
        raise ValueError


def _integer(value: object, least: int = 1) -> int:
    value = parse_int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError
    _must(least <= value < MOST)
    return value


def _decimal(value: object, *, below: int = MOST, zero: bool = True) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise TypeError
    number = Decimal(str(value).strip().removeprefix("$"))
    _must((number >= 0 if zero else number > 0) and number < below)
    return number


def _seconds(value: object) -> float:
    value = parse_seconds(value)
    _must(not isinstance(value, str))
    return float(_decimal(value, zero=False))


def _require_type(kind: type, value: object) -> Any:
    _must(isinstance(value, kind))
    return value


_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int": ("a whole number of at least 1", _integer),
    "count": ("a whole number of at least 0", partial(_integer, least=0)),
    "money": ("dollars greater than 0 such as 0.50", partial(_decimal, zero=False)),
    "price": ("dollars per million tokens, at least 0", _decimal),
    "fraction": ("a number from 0 to below 1 such as 0.1", lambda value: str(_decimal(value, below=1))),
    "number": ("a number of at least 0", lambda value: float(_decimal(value))),
    "seconds": ("a time greater than 0: seconds, or 90s, 30m, 1h30m", _seconds),
    "text": ("text", partial(_require_type, str)),
    "bool": ("true or false", partial(_require_type, bool)),
    "table": ("a table", lambda value: _plain(_require_type(Mapping, value))),
}
"""What to expect of a value of each kind, and how to convert it."""


# --- values of several parts ----------------------------------------------------------------------------------------


def _choice(setting: Setting, value: object, where: str) -> str:
    if value not in setting.choices:
        from glidepath.tools import find_closest

        meant = find_closest(value, setting.choices) if isinstance(value, str) else None
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise ConfigurationError(f"{where}: expected one of {', '.join(setting.choices)}, got {value!r:.80}{hint}")
    return str(value)


def _names(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name.strip() for name in value):
        raise _make_error(where, "a list of names", value)
    names = tuple(name.strip() for name in value)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigurationError(f"{where}: {name!r:.80} is listed twice")
        seen.add(name)
    return names


def _plain(value: object) -> Any:
    """Floats for a provider's SDK: Decimal was only needed for exact parsing."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def _prices(value: object, where: str) -> dict[str, tuple[Decimal, ...]]:
    if not isinstance(value, Mapping):
        raise _make_error(where, "a table of model name = [input, output] in dollars per million tokens", value)
    prices = {}
    for name, pair in value.items():
        if not isinstance(pair, list | tuple) or not 2 <= len(pair) <= 4:  # noqa: PLR2004 - also cache read and write
            raise _make_error(f"{where}.{name}", "[input, output] in dollars per million tokens", pair)
        prices[str(name)] = tuple(_read("price", figure, f"{where}.{name}") for figure in pair)
    return prices


def _recovery(value: object, where: str) -> Any:
    """`{max_attempts = 3, scaling = "double", ceiling = 16000}`; scaling also "linear:STEP" or "fixed:CAP,CAP"."""
    if not isinstance(value, Mapping):
        raise _make_error(where, f"a table of {', '.join(_RECOVERY)}", value)
    unknown = [key for key in value if key not in _RECOVERY]
    if unknown:
        raise ConfigurationError(
            f"{where}: there is no setting {unknown[0]!r}; the settings are {', '.join(_RECOVERY)}"
        )
    from glidepath.guards import MaxTokensRecovery, TokenScaling

    kind, _sign, figures = str(value.get("scaling", "double")).partition(":")
    scaling: Any = TokenScaling.Double()
    if kind == "linear":
        scaling = TokenScaling.Linear(_read("int", figures, f"{where}.scaling", "linear:STEP"))
    elif kind == "fixed":
        caps = [_read("int", cap, f"{where}.scaling", "fixed:CAP,CAP") for cap in figures.split(",")]
        scaling = TokenScaling.Fixed(caps)
    elif kind != "double" or figures:
        raise _make_error(f"{where}.scaling", "double, linear:STEP or fixed:CAP,CAP", value["scaling"])
    ceiling = value.get("ceiling")
    return MaxTokensRecovery(
        max_attempts=_read("int", value.get("max_attempts", 3), f"{where}.max_attempts"),
        scaling=scaling,
        ceiling=None if ceiling is None else _read("int", ceiling, f"{where}.ceiling"),
    )


_TABLES: dict[str, Callable[[object, str], Any]] = {"names": _names, "prices": _prices, "recovery": _recovery}
