"""One value of a setting: read from a file or from text, checked, and what is wrong with it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal, InvalidOperation
from typing import Any

from glidepath.cli.settings import Setting
from glidepath.errors import ConfigurationError

__all__ = ["OFF", "read_text", "read_value"]

OFF = ("off", "none")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_SCALE = {"k": 1_000, "m": 1_000_000}
_MOST = 10**15
_RECOVERY = ("max_attempts", "scaling", "ceiling")


def read_text(setting: Setting, text: str, where: str) -> Any:
    """A value given as text: by a flag, a variable, or `--set`."""
    kind = setting.kind.rstrip("?")
    if kind in ("table", "prices", "recovery"):
        import json

        try:
            return read_value(setting, json.loads(text, parse_float=Decimal), where)
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f"{where}: expected JSON such as {{...}}, got {text!r:.80} ({error.msg})"
            ) from None
    if kind == "names":
        names = [name.strip() for name in text.split(",")]
        return () if text.strip().lower() in ("", *OFF) else read_value(setting, names, where)
    if kind == "bool":
        word = text.strip().lower()
        if word not in (*_TRUE, *_FALSE):
            raise _wrong(where, "true or false", text)
        return word in _TRUE
    return read_value(setting, text, where)


def read_value(setting: Setting, value: object, where: str) -> Any:
    """A value as a file has it; raises `ConfigurationError` naming its place and what was expected."""
    kind = setting.kind.rstrip("?")
    if _is_off(value):
        if setting.kind.endswith("?"):
            return None
        if value is None:
            raise _wrong(where, _EXPECTED[kind], value)
    if setting.zero_is_off and value in (0, "0") and not isinstance(value, bool):
        return None
    return _READERS[kind](setting, value, where)


def _is_off(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in OFF)


def _wrong(where: str, expected: str, value: object) -> ConfigurationError:
    shown = str(value) if isinstance(value, Decimal | date | time) else repr(value)
    return ConfigurationError(f"{where}: expected {expected}, got {shown:.80}")


def _whole(value: object, where: str, least: int, expected: str) -> int:
    if isinstance(value, str):
        text = value.strip().lower().replace("_", "").replace(",", "")
        scale = _SCALE.get(text[-1:], 1)
        try:
            number = Decimal(text[:-1] if scale > 1 else text) * scale
        except InvalidOperation:
            raise _wrong(where, expected, value) from None
        value = int(number) if number.is_finite() and abs(number) < _MOST and number == int(number) else None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _MOST:
        raise _wrong(where, expected, value)
    return value


def _int(_: Setting, value: object, where: str) -> int:
    return _whole(value, where, 1, _EXPECTED["int"])


def _count(_: Setting, value: object, where: str) -> int:
    return _whole(value, where, 0, _EXPECTED["count"])


def _decimal(value: object, where: str, expected: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise _wrong(where, expected, value)
    text = str(value).strip()
    try:
        number = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        raise _wrong(where, expected, value) from None
    if not number.is_finite() or abs(number) >= _MOST:
        raise _wrong(where, expected, value)
    return number


def _money(_: Setting, value: object, where: str) -> Decimal:
    number = _decimal(value, where, _EXPECTED["money"])
    if number <= 0:
        raise _wrong(where, _EXPECTED["money"], value)
    return number


def _fraction(_: Setting, value: object, where: str) -> str:
    number = _decimal(value, where, _EXPECTED["fraction"])
    if not 0 <= number < 1:
        raise _wrong(where, _EXPECTED["fraction"], value)
    return str(number)


def _number(_: Setting, value: object, where: str) -> float:
    number = float(_decimal(value, where, _EXPECTED["number"]))
    if number < 0:
        raise _wrong(where, _EXPECTED["number"], value)
    return number


def _seconds(_: Setting, value: object, where: str) -> float:
    expected = _EXPECTED["seconds"]
    if isinstance(value, str):
        match = _TIME.fullmatch(value.strip().lower())
        if match is None or not any(match.groups()):
            raise _wrong(where, expected, value)
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        value = hours * 3600 + minutes * 60 + seconds
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(where, expected, value)
    number = float(value)
    if not math.isfinite(number) or not 0 < number < _MOST:
        raise _wrong(where, expected, value)
    return number


def _text(_: Setting, value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "text", value)
    return value


def _bool(_: Setting, value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return value


def _choice(setting: Setting, value: object, where: str) -> str:
    if value not in setting.choices:
        from glidepath.tools.advice import closest

        meant = closest(value, setting.choices) if isinstance(value, str) else None
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise ConfigurationError(f"{where}: expected one of {', '.join(setting.choices)}, got {value!r:.80}{hint}")
    return str(value)


def _names(_: Setting, value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name.strip() for name in value):
        raise _wrong(where, "a list of names", value)
    names = tuple(name.strip() for name in value)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigurationError(f"{where}: {name!r:.80} is listed twice")
        seen.add(name)
    return names


def _table(_: Setting, value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(where, "a table", value)
    return {str(key): _plain(item) for key, item in value.items()}


def _plain(value: object) -> Any:
    """Numbers as a provider's SDK takes them: a Decimal was only for exactness."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value


def _prices(_: Setting, value: object, where: str) -> dict[str, tuple[Decimal, ...]]:
    expected = "a table of model name = [input, output] in dollars per million tokens"
    if not isinstance(value, Mapping):
        raise _wrong(where, expected, value)
    prices = {}
    for name, pair in value.items():
        if not isinstance(pair, list | tuple) or not 2 <= len(pair) <= 4:  # noqa: PLR2004 - also cache read and write
            raise _wrong(f"{where}.{name}", "[input, output] in dollars per million tokens", pair)
        figures = tuple(_decimal(figure, f"{where}.{name}", "dollars per million tokens") for figure in pair)
        if any(figure < 0 for figure in figures):
            raise _wrong(f"{where}.{name}", "dollars of at least 0", pair)
        prices[str(name)] = figures
    return prices


def _recovery(_: Setting, value: object, where: str) -> Any:
    """`{max_attempts = 3, scaling = "double", ceiling = 16000}`; scaling also "linear:STEP" or "fixed:CAP,CAP"."""
    if not isinstance(value, Mapping):
        raise _wrong(where, f"a table of {', '.join(_RECOVERY)}", value)
    unknown = [key for key in value if key not in _RECOVERY]
    if unknown:
        raise ConfigurationError(
            f"{where}: there is no setting {unknown[0]!r}; the settings are {', '.join(_RECOVERY)}"
        )
    from glidepath.guards import MaxTokensRecovery, TokenScaling

    kind, _sign, figures = str(value.get("scaling", "double")).partition(":")
    scaling: Any = TokenScaling.Double()
    if kind == "linear":
        scaling = TokenScaling.Linear(_whole(figures, f"{where}.scaling", 1, "linear:STEP"))
    elif kind == "fixed":
        scaling = TokenScaling.Fixed(
            [_whole(cap, f"{where}.scaling", 1, "fixed:CAP,CAP") for cap in figures.split(",")]
        )
    elif kind != "double" or figures:
        raise _wrong(f"{where}.scaling", "double, linear:STEP or fixed:CAP,CAP", value["scaling"])
    ceiling = value.get("ceiling")
    return MaxTokensRecovery(
        max_attempts=_whole(value.get("max_attempts", 3), f"{where}.max_attempts", 1, _EXPECTED["int"]),
        scaling=scaling,
        ceiling=None if ceiling is None else _whole(ceiling, f"{where}.ceiling", 1, _EXPECTED["int"]),
    )


_EXPECTED = {
    "int": "a whole number of at least 1",
    "count": "a whole number of at least 0",
    "money": "dollars greater than 0 such as 0.50",
    "fraction": "a number from 0 to below 1 such as 0.1",
    "number": "a number of at least 0",
    "seconds": "a time greater than 0: seconds, or 90s, 30m, 1h30m",
    "text": "text",
    "bool": "true or false",
    "choice": "one of its words",
    "names": "a list of names",
    "table": "a table",
    "prices": "a table of prices",
    "recovery": "a table",
}
_READERS = {
    "int": _int,
    "count": _count,
    "money": _money,
    "fraction": _fraction,
    "number": _number,
    "seconds": _seconds,
    "text": _text,
    "bool": _bool,
    "choice": _choice,
    "names": _names,
    "table": _table,
    "prices": _prices,
    "recovery": _recovery,
}
