"""Whether an object can serve as a port: it has the methods, on its class or behind a `__getattr__`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeGuard, TypeVar

T = TypeVar("T")


def is_implementing(value: object, port: Callable[..., T]) -> TypeGuard[T]:
    """True for an object, not a class, that has everything `port` names; `port` is a `Protocol`.

    `isinstance` does not do: from Python 3.12 on it overlooks what a wrapper passes on by `__getattr__`.
    """
    return not isinstance(value, type) and all(hasattr(value, name) for name in _names(port))


@cache
def _names(port: Any) -> tuple[str, ...]:
    """What the protocol itself declares, and those it is made of."""
    parts = [part for part in port.__mro__ if Protocol in part.__bases__]
    return tuple({name: None for part in parts for name in vars(part) if not name.startswith("_")})
