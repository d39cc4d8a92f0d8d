"""Names of a package that are imported when somebody asks for them: what a program does not use, it does not load.

What ends or rescues a run is never among them: a process that has run out of file descriptors must still land.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

Finder: TypeAlias = Callable[[str], Any]


def lazy_attributes(package: str, /, **homes: tuple[str, ...]) -> Finder:
    """The `__getattr__` of a package: `homes` are the modules below it, with the names that each of them has."""

    def find(name: str) -> Any:
        for home, names in homes.items():
            if name in names:
                module = import_module(package)
                value = getattr(import_module(f"{package}.{home}"), name)
                setattr(module, name, value)  # from now on it is found at once
                return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
