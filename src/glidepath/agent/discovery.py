"""Plugins, constraints and tools of installed packages: available by name, active only when listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from glidepath.spi import Plugin, ResourceConstraint
from glidepath.tools import Tool, tool
from glidepath.values import ConfigurationError, close_to, describe_error

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def list_entry_points(field: str) -> dict[str, tuple[Any, ...]]:
    """The entry points of installed packages for a field, by name; more than one where packages disagree."""
    found: dict[str, dict[tuple[str, str], Any]] = {}
    for point in _iterate_entry_points(f"glidepath.{field}"):
        found.setdefault(point.name, {}).setdefault((_package_name_of(point), point.value), point)
    return {name: tuple(found[name].values()) for name in sorted(found)}


def load_installed(field: str, name: str) -> Any:
    """The plugin, constraint or tool that an installed package offers under a name.

    Raises `ConfigurationError` when there is none, when two packages offer it, and when it cannot be loaded.
    """
    points = list_entry_points(field)
    if name not in points:
        raise ConfigurationError(_explain_unknown_name(field, name, list(points)))
    if len(points[name]) > 1:
        packages = " and ".join(_package_name_of(point) for point in points[name])
        raise ConfigurationError(f"{field}: {packages} both offer {name!r}; uninstall one, or pass the object itself")
    [point] = points[name]
    where = f"{field}: {name!r} of package {_package_name_of(point)} ({point.value})"
    try:
        loaded = point.load()
        return _MAKERS[field](loaded)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{where} cannot be loaded: {describe_error(error)}") from error


def _iterate_entry_points(group: str) -> Iterator[Any]:
    from importlib.metadata import distributions, entry_points  # slow, and only needed when a name is listed

    try:
        yield from entry_points(group=group)
    except Exception:  # some package in the environment is broken: read the others one by one
        for package in distributions():
            with suppress(Exception):
                yield from package.entry_points.select(group=group)


def _package_name_of(point: EntryPoint) -> str:
    try:
        return (point.dist and point.dist.name) or "unknown"
    except Exception:  # its metadata is missing
        return "unknown"


def _explain_unknown_name(field: str, name: str, names: list[str]) -> str:
    close = close_to(name, names)
    hint = f"; did you mean {close!r}?" if close else ""
    listed = f"installed are: {', '.join(names[:20])}" if names else f"no installed package offers {field}"
    return f"{field}: there is no {name!r}{hint} ({listed})"


def _make_loader(kind: type) -> Callable[[Any], Any]:
    def make(loaded: object) -> Any:
        made = loaded if isinstance(loaded, kind) or not callable(loaded) else loaded()
        if not isinstance(made, kind):
            raise TypeError(f"expected a {kind.__name__}, its class, or a function that makes one; got {made!r:.100}")
        return made

    return make


def _guard(loaded: object) -> Any:
    return loaded() if isinstance(loaded, type) else loaded


def _make_tool(loaded: object) -> Tool:
    if isinstance(loaded, Tool):
        return loaded
    if not callable(loaded) or isinstance(loaded, type):
        raise TypeError(f"expected a Tool or a function; got {loaded!r:.100}")
    made: Tool = tool(loaded)
    return made


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "plugins": _make_loader(Plugin),
    "constraints": _make_loader(ResourceConstraint),
    "guards": _guard,
    "tools": _make_tool,
}
