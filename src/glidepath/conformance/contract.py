"""What all contracts have in common: numbered clauses, and the loop they run on."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

from glidepath._wire import Value

__all__ = ["Clause", "Contract", "clauses_of", "missing"]

T = TypeVar("T")
_NUMBERED = re.compile(r"([A-Z]+)-(\d+): (.+)", re.DOTALL)


class Clause(Value, frozen=True, kw_only=True):
    """One clause of a contract: its number, its text, and the test that checks it."""

    number: str
    text: str
    test: str


class Contract:
    """Derive a test class from one of its subclasses and give what that one asks for; pytest does the rest.

    Every `test_` method is one clause, and its docstring begins with the clause's number.
    """

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run one clause to its end, each on an event loop of its own; override it for another kind of loop."""
        return asyncio.run(main)


def missing(test: Contract, name: str) -> str:
    """What to say where a contract asks for something that the test class does not give."""
    asked = (inspect.getdoc(getattr(test, name)) or "").partition("\n")[0]
    return f"{type(test).__name__} must have a method {name}: {asked}"


def clauses_of(contract: type[Contract]) -> tuple[Clause, ...]:
    """The clauses of a contract by number, those it inherits first."""
    found: dict[str, Clause] = {}
    for owner in reversed(contract.__mro__):
        for name, test in vars(owner).items():
            if name.startswith("test_") and inspect.isfunction(test):
                found[name] = _clause(owner, name, inspect.getdoc(test) or "")
    order = list(dict.fromkeys(clause.number.partition("-")[0] for clause in found.values()))
    return tuple(sorted(found.values(), key=lambda clause: _rank(clause, order)))


def _rank(clause: Clause, order: list[str]) -> tuple[int, int]:
    letters, _, number = clause.number.partition("-")
    return order.index(letters), int(number)


def _clause(owner: type, name: str, text: str) -> Clause:
    match = _NUMBERED.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{owner.__name__}.{name} is not a clause: its docstring must begin with its number, as in X-1: "
        )
    return Clause(number=f"{match[1]}-{match[2]}", text=" ".join(match[3].split()), test=name)
