"""What all contracts share: numbered clauses, and the event loop each one runs on."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Generic, Protocol, TypeVar

import pytest

from glidepath._wire import Value
from glidepath.testing import VirtualClock
from glidepath.values import StoreError

T = TypeVar("T")
_NUMBERED = re.compile(r"([A-Z]+)-(\d+): (.+)", re.DOTALL)


class Clause(Value, frozen=True, kw_only=True):
    """One clause of a contract: its number, its text, and the test that checks it."""

    number: str
    text: str
    test: str


class Contract:
    """Derive a test class from a subclass and provide what that subclass asks for; pytest does the rest.

    Every `test_` method is one clause, and its docstring starts with the clause's number. A clause may be `async`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                setattr(cls, name, _on_its_loop(test))

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run one async clause to its end on a fresh event loop; override it to use another kind of loop."""
        return asyncio.run(main)

    async def _perform(self, test: Callable[..., Coroutine[Any, Any, None]], **named: object) -> None:
        await test(self, **named)


class VirtualContract(Contract):
    """A contract whose clauses run in virtual time."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run one clause in virtual time."""
        return VirtualClock().run(main)


def _on_its_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A plain function that pytest can call, whatever async plugins are installed."""

    @wraps(test)
    def clause(self: Contract, **named: object) -> None:
        self.run(self._perform(test, **named))

    return clause


class _Closes(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Closes)


class StoreContract(Contract, Generic[S]):
    """What the contracts of all stores need: an empty store, and a second store object on the same data.

    While a clause runs, they are `self.here` and `self.there`: a test class may have a `store` of its own.
    """

    here: S
    there: S

    def make_store(self, *, lease: float = 10.0) -> S:
        """An empty store whose leases last this many seconds."""
        raise NotImplementedError(missing(self, "make_store"))

    def again(self, store: S) -> S:
        """Another store object on the same data; the same object if the data lives only inside it."""
        return store

    async def _perform(self, test: Callable[..., Coroutine[Any, Any, None]], **named: object) -> None:
        self.here = self.make_store(lease=getattr(test, "lease", 10.0))
        self.there = self.again(self.here)
        try:
            await test(self, **named)
        finally:
            await self.here.close()
            await self.there.close()


def with_lease(seconds: float) -> Callable[[T], T]:
    """The stores of this clause have leases of this many seconds."""

    def note(test: T) -> T:
        test.lease = seconds  # type: ignore[attr-defined]
        return test

    return note


async def assert_refused(kind: str, act: Awaitable[object]) -> None:
    """The store refuses this with an error of this kind."""
    with pytest.raises(StoreError) as caught:
        await act
    assert caught.value.kind == kind


def missing(test: Contract, name: str) -> str:
    """The error text for a test class that lacks a method its contract needs."""
    asked = (inspect.getdoc(getattr(test, name)) or "").partition("\n")[0]
    return f"{type(test).__name__} must have a method {name}: {asked}"


def clauses_of(contract: type[Contract]) -> tuple[Clause, ...]:
    """The clauses of a contract by number, inherited ones first."""
    found: dict[str, Clause] = {}
    for owner in reversed(contract.__mro__):
        for name, test in vars(owner).items():
            if name.startswith("test_") and inspect.isfunction(test):
                match = _NUMBERED.fullmatch(inspect.getdoc(test) or "")
                if match is None:
                    what = f"{owner.__name__}.{name} is not a clause"
                    raise ValueError(f"{what}: its docstring must begin with its number, as in X-1: ")
                found[name] = Clause(number=f"{match[1]}-{match[2]}", text=" ".join(match[3].split()), test=name)
    parted = [(clause.number.partition("-"), clause) for clause in found.values()]
    order = list(dict.fromkeys(letters for (letters, _, _), _ in parted))
    parted.sort(key=lambda pair: (order.index(pair[0][0]), int(pair[0][2])))
    return tuple(clause for _, clause in parted)
