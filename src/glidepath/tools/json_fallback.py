"""Results that are not JSON: the nearest JSON, with text where there is none, and a marker that says so.

A tool that has run must not seem to have failed because of what it returned: the model would run it again.
"""

from __future__ import annotations

import math
import re
from collections import abc
from itertools import islice
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.tools.text import clean, trim
from glidepath.values import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_ITEMS = 100_000  # items read of a collection: a custom one may be endless
DEEPEST = 60
LONGEST = 100_000  # characters of a value shown as text
MOST_ELEMENTS = 10_000  # items of an array that are written out; a larger one abbreviates itself
CONTAINED = (Exception, SystemExit, GeneratorExit)
_ADDRESS = r" at 0x[0-9a-fA-F]+"
_NAMED_KINDS = 4


def type_name_of(value: object) -> str:
    """The name of a value's type, with its module unless it is built in."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def best_text(value: object) -> str:
    """The value as JSON, with text for parts that have no JSON form, and a line that names those parts."""
    reader = _Reader()
    try:
        plain = reader.plain(value, 0)
        text = plain if reader.whole and isinstance(plain, str) else _wire.encode(plain).decode()
    except CONTAINED:  # whatever a result raises, its tool did not fail
        text = reader.as_text(value)
    kinds = ", ".join([*reader.kinds][:_NAMED_KINDS]) + (", ..." if len(reader.kinds) > _NAMED_KINDS else "")
    return f"{clean(text)}\n[shown as text: {kinds}]" if kinds else clean(text)


def is_finite(value: object) -> bool:
    """Whether JSON can express every number in plain data; infinity and NaN would silently become null."""
    waiting, seen = [value], 0
    while waiting and seen < MOST_ITEMS:
        seen += 1
        one = waiting.pop()
        if isinstance(one, float):
            if not math.isfinite(one):
                return False
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
        elif hasattr(type(one), "__dataclass_fields__"):
            from dataclasses import fields

            waiting += [getattr(one, field.name, None) for field in fields(one)]  # type: ignore[arg-type]
        elif hasattr(type(one), "__struct_fields__"):
            waiting += [getattr(one, name, None) for name in one.__struct_fields__]  # type: ignore[attr-defined]
    return True


def has_dump(value: object) -> bool:
    """Whether it is a pydantic model, by duck typing. Its class is asked: a mock itself has every attribute."""
    return callable(getattr(type(value), "model_dump", None))


class _Reader:
    """Turns any value into plain data, and remembers what it had to show as text."""

    def __init__(self) -> None:
        self.kinds: dict[str, None] = {}
        self.whole = False
        """The value as a whole is text."""
        self._inside: set[int] = set()
        self._left = MOST_ITEMS

    def plain(self, value: object, depth: int) -> Any:
        if value is None or isinstance(value, str | float) or type(value) in (bool, int):
            return self._scalar(value)
        if id(value) in self._inside:
            return self._mark_kind(
                f"a {type_name_of(value)} that refers to itself", f"[this {type_name_of(value)} again]"
            )
        if depth > DEEPEST:
            return self._mark_kind("what is nested too deeply", f"[a {type_name_of(value)}]")
        self._inside.add(id(value))
        try:
            return self._open_value(value, depth)
        except CONTAINED:  # a custom class may raise anything
            return self.as_text(value, depth)
        finally:
            self._inside.discard(id(value))

    def _scalar(self, value: object) -> Any:
        if isinstance(value, str):
            return clean(value)
        if not isinstance(value, float):
            return value
        if math.isfinite(value):
            return float(value)
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return self._mark_kind(text.removeprefix("-"), text)

    def _open_value(self, value: object, depth: int) -> Any:
        below = depth + 1
        if hasattr(type(value), "dtype"):  # an array or a scalar of numpy
            return self._array(value, depth)
        if isinstance(value, abc.Mapping):
            return {self._key(key): self.plain(value[key], below) for key in self._take_some(value)}
        if isinstance(value, abc.Collection) and not isinstance(value, bytes | bytearray | memoryview):
            return [self.plain(item, below) for item in self._take_some(value)]
        if has_dump(value):
            return self.plain(value.model_dump(), below)  # type: ignore[attr-defined]
        if hasattr(type(value), "__dataclass_fields__"):
            from dataclasses import fields

            return {one.name: self.plain(getattr(value, one.name), below) for one in fields(value)}  # type: ignore[arg-type]
        return _wire.loads(_wire.encode(value))  # a date, a Decimal, an enum: anything with a JSON form

    def _array(self, value: Any, depth: int) -> Any:
        if getattr(value, "size", 0) > MOST_ELEMENTS:
            return self.as_text(value, depth)
        made = value.tolist() if callable(getattr(value, "tolist", None)) else value.item()
        return self.as_text(value, depth) if made is value else self.plain(made, depth + 1)

    def _take_some(self, items: Iterable[Any]) -> list[Any]:
        some = list(islice(items, self._left + 1))
        if len(some) > self._left:
            self.kinds[f"only the first {pluralize(self._left, 'item')}"] = None
            some = some[: self._left]
        self._left -= len(some)
        return some

    def _key(self, key: object) -> str:
        if isinstance(key, str):
            return clean(key)
        if type(key) is int:
            return str(key)
        return str(self._mark_kind(f"keys of type {type_name_of(key)}", self._describe_value(key)))

    def as_text(self, value: object, depth: int = 0) -> str:
        """The value's own text."""
        self.whole = self.whole or not depth
        return str(self._mark_kind(type_name_of(value), self._describe_value(value)))

    @staticmethod
    def _describe_value(value: object) -> str:
        for say in (_to_own_text, repr):
            try:
                return trim(re.sub(_ADDRESS, "", say(value)), LONGEST)
            except CONTAINED:
                continue
        return f"<an object of type {type_name_of(value)} that cannot be shown>"

    def _mark_kind(self, kind: str, text: str) -> str:
        self.kinds[kind] = None
        return text


def _to_own_text(value: object) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
