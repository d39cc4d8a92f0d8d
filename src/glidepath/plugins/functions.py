"""Turns a function into a plugin with one hook."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

from glidepath.events import Event
from glidepath.plugins.lineup import snake_case
from glidepath.spi.hooks import Plugin

__all__ = ["plugin_from"]


def plugin_from(
    hook: str,
    function: Callable[[Any], Any],
    *,
    name: str | None = None,
    taken: Collection[str] = (),
    events: tuple[type[Event], ...] | None = None,
) -> Plugin:
    """A plugin whose only hook is this function, plain or async.

    Its name is `name`, else the function's, else the hook's, with a number added if that is taken.
    """
    called = name or _name(function) or hook
    number = 1
    while name is None and called in taken:
        number += 1
        called = f"{_name(function) or hook}_{number}"
    body: dict[str, Any] = {"name": called, "events": events, hook: staticmethod(_awaited(function))}
    body["__doc__"] = inspect.getdoc(function) or f"The function {called}."
    made: Plugin = type("FunctionPlugin", (Plugin,), body)()
    return made


def _name(function: object) -> str | None:
    name = getattr(function, "__name__", None) or type(function).__name__
    return snake_case(name) if isinstance(name, str) and name.isidentifier() else None


def _awaited(function: Callable[[Any], Any]) -> Any:
    """An object with an async `__call__`, wrapped so that it is recognized as async."""
    if inspect.iscoroutinefunction(function) or not inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return function

    async def call(context: object) -> Any:
        return await function(context)

    return call
