"""Names of a package that are imported when somebody asks for them: what a program does not use, it does not load.

What ends or rescues a run is never among them: a process that has run out of file descriptors must still land.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

Finder: TypeAlias = Callable[[str], Any]


def lazy_attributes(package: str, /, otherwise: Finder | None = None, **homes: tuple[str, ...]) -> Finder:
    """The `__getattr__` of a package: `homes` are the modules below it, with the names that each of them has.

    A home that begins with `glidepath.` is a module elsewhere. `otherwise` is asked for all other names.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        home = home_of.get(name)
        if home is not None:
            module = import_module(package)
            value = getattr(import_module(home if home.startswith("glidepath.") else f"{package}.{home}"), name)
            setattr(module, name, value)  # from now on it is found at once
            return value
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
