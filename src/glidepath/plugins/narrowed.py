"""A plugin reduced to some of its hooks, for the hook methods of `AgentBuilder`."""

from __future__ import annotations

from typing import Any

from glidepath.plugins.lineup import hooks_of, name_of
from glidepath.spi.hooks import HOOKS, Plugin

__all__ = ["narrowed", "origin"]


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
