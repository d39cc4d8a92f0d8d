"""Plugins made from something else: from a function, or from some hooks of another plugin."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

from glidepath.events import Event
from glidepath.plugins.lineup import hooks_of, name_of, snake_case
from glidepath.spi.hooks import HOOKS, Plugin


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


def narrowed(plugin: Plugin, *hooks: str) -> Plugin:
    """A plugin with only these hooks of another one: same name, same order, same state."""
    kept = tuple(hook for hook in HOOKS if hook in hooks)
    if kept == hooks_of(plugin):
        return plugin
    kind = type(plugin)
    body: dict[str, Any] = {
        "__doc__": f"{', '.join(kept)} of {kind.__name__}.",
        "_origin": plugin,
        "name": name_of(plugin),
        "events": plugin.events,
        "runs_before": plugin.runs_before,
        "runs_after": plugin.runs_after,
        "inheritable_to_child": plugin.inheritable_to_child,
        **{hook: staticmethod(getattr(plugin, hook)) for hook in kept},
    }
    for made in ("for_run", "for_child"):
        if getattr(kind, made) is not getattr(Plugin, made):
            body[made] = _made(made, kept)
    part: Plugin = type("NarrowedPlugin", (Plugin,), body)()
    return part


def origin(plugin: object) -> Any:
    """The plugin that this one was narrowed from, or the plugin itself."""
    return getattr(plugin, "_origin", plugin)


def _made(method: str, kept: tuple[str, ...]) -> Any:
    """`for_run` or `for_child` of the whole plugin, narrowed in the same way."""

    def make(self: object) -> Any:
        mine = getattr(origin(self), method)()
        return narrowed(mine, *kept) if isinstance(mine, Plugin) else mine

    return make
