"""Every setting as a method of a builder, made from the declarations.

`setters.pyi` has the same as static text, for editors and type checkers; `scripts/make_keywords.py` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from glidepath.agent.config import LoopConfig
from glidepath.agent.limits import Limits
from glidepath.agent.said import Said
from glidepath.guards import GuardrailsConfig
from glidepath.setting import Setting, declared, sentence

_DOC = "One method for every setting. Each takes effect on this object and returns it."
_PARTS: dict[type[Any], str] = {LoopConfig: "", Limits: "limits", GuardrailsConfig: "guardrails"}


def _method(name: str, one: Setting, part: str) -> Callable[..., Any]:
    """What a method of the builder does with the value of this setting."""
    if part:
        return lambda self, value: self._part(part, name, value)
    how = "_set_all" if one.kind == "part" else "_set"
    if one.kind == "names":
        how = "_add" if one.adds_up else "_list"
    return lambda self, value: getattr(self, how)(name, value)


def _methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for owner, part in _PARTS.items():
        for name, one in declared(owner).items():
            made = _method(name, one, part)
            made.__name__, made.__qualname__, made.__doc__ = name, f"Setters.{name}", sentence(one)
            kind = Decimal | str | float if one.kind == "fraction" else owner.__annotations__[name]
            made.__annotations__ = {"value": one.wider or kind, "return": "Self"}
            if one.kind == "bool":  # all of them are off by default
                made.__defaults__ = (True,)
            yield name, made


Setters: type[Said] = type("Setters", (Said,), {"__doc__": _DOC, **dict(_methods())})
