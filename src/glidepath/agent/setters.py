"""Every setting as a method of a builder, made from the declarations.

`setters.pyi` has the same as static text, for editors and type checkers; `scripts/make_keywords.py` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Self

from glidepath.agent.config import LoopConfig
from glidepath.agent.limits import Limits
from glidepath.guards import GuardrailsConfig
from glidepath.values import BuilderError, Setting, describe_setting, settings_of

_PARTS: dict[type[Any], str] = {LoopConfig: "", Limits: "limits", GuardrailsConfig: "guardrails"}


class Setters:
    """One method for every setting. Each takes effect on this object and returns it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        # Single limits and guardrails, apart from whole ones.
        self._parts: dict[str, dict[str, Any]] = {"limits": {}, "guardrails": {}}

    def _set(self, field: str, value: object) -> Self:
        self._values[field] = value
        return self

    def _set_all(self, field: str, value: object) -> Self:
        said = self._parts[field]
        if said:
            first = next(iter(said))
            raise BuilderError(
                f"{field}(...) would overwrite {first}({said[first]!r}): call {field}() before {first}()"
            )
        return self._set(field, value)

    def _list(self, field: str, value: object, before: tuple[Any, ...] = ()) -> Self:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise BuilderError(f"{field} must be a list or tuple, not {value!r:.100}")
        return self._set(field, (*before, *value))

    def _add(self, field: str, value: object) -> Self:
        return self._list(field, value, self._values.get(field, ()))


def _make_method(name: str, one: Setting, part: str) -> Callable[..., Any]:
    """What a method of the builder does with the value of this setting."""

    def set_part(self: Setters, value: object) -> Setters:
        self._parts[part][name] = value
        return self

    how = "_set_all" if one.kind == "part" else "_set"
    if one.kind == "names":
        how = "_add" if one.adds_up else "_list"
    return set_part if part else lambda self, value: getattr(self, how)(name, value)


def _iterate_methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for owner, part in _PARTS.items():
        for name, one in settings_of(owner).items():
            made = _make_method(name, one, part)
            made.__name__, made.__qualname__, made.__doc__ = name, f"Setters.{name}", describe_setting(one)
            kind = Decimal | str | float if one.kind == "fraction" else owner.__annotations__[name]
            made.__annotations__ = {"value": one.wider or kind, "return": "Self"}
            if one.kind == "bool":  # all of them are off by default
                made.__defaults__ = (True,)
            yield name, made


for _name, _made in _iterate_methods():
    setattr(Setters, _name, _made)
