"""The same plugin under another name: for a team whose member has a plugin of that name already."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

from glidepath.plugins.lineup import free_name, name_of
from glidepath.spi.hooks import Plugin


def heirs_beside(own: Iterable[Plugin], heirs: Iterable[Plugin]) -> tuple[Plugin, ...]:
    """The heirs that an agent does not have itself; one whose name is taken is called `inherited.<name>`."""
    had = tuple(own)
    taken = [name_of(plugin) for plugin in had]
    found = []
    for heir in heirs:
        if any(heir is plugin for plugin in had):
            continue
        name = free_name(heir, taken)
        taken.append(name)
        found.append(heir if name == name_of(heir) else _renamed(heir, name))
    return tuple(found)


def _renamed(plugin: Plugin, name: str) -> Plugin:
    """It shares its state with the plugin it stands for."""
    kind: Any = type(plugin)
    body = {"__doc__": kind.__doc__, "__slots__": (), "name": property(lambda _: name)}
    made: Any = copy(plugin)
    made.__class__ = type(kind.__name__, (kind,), body)
    made.__dict__ = plugin.__dict__
    return made  # type: ignore[no-any-return]
