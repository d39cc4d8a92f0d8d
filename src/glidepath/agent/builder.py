"""A configuration, call by call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, Self, TypeAlias

from glidepath._wire import replace
from glidepath.agent.config import FIELDS, LoopConfig, make_config
from glidepath.agent.limits import Limits
from glidepath.agent.setters import Setters
from glidepath.guards import GuardrailsConfig
from glidepath.plugins import HookTable, snake_case
from glidepath.plugins.hook_table import hooks_of, name_of
from glidepath.spi import (
    HOOKS,
    GateContext,
    OverflowContext,
    Plugin,
    PollContext,
    ToolCallContext,
    ToolResultContext,
    TransformContext,
)
from glidepath.values import BuilderError, ConfigurationError, Event, Passed, settings_of

_HOW_IT_LANDS = ("grace_iterations", "landing_tokens", "landing_seconds", "max_depth", "max_descendants")
_KINDS: dict[str, Any] = {"limits": Limits, "guardrails": GuardrailsConfig}

Judge: TypeAlias = Plugin | Callable[[ToolCallContext], Any]
Reviser: TypeAlias = Plugin | Callable[[ToolResultContext], Any]
Transform: TypeAlias = Plugin | Callable[[TransformContext], Any]
Watcher: TypeAlias = Plugin | Callable[[Event], Any]
Source: TypeAlias = Plugin | Callable[[PollContext], Any]
GateKeeper: TypeAlias = Plugin | Callable[[GateContext], Any]
Rescuer: TypeAlias = Plugin | Callable[[OverflowContext], Any]


class AgentBuilder(Setters):
    """Builds a `LoopConfig`: one method for every setting, one for every hook, then `build()`.

    Every method changes this builder and returns it. What guards adds up (constraints, plugins, hooks); everything
    else is as it was last said. `copy()` gives a second builder that goes its own way.
    """

    _inherits_grace = False
    """Its grace is for the turn limit that a child may be given; without one it means nothing."""

    def limits(self, value: Limits) -> Self:
        """Set all limits of a run at once. Set single limits afterwards, with their own methods."""
        self._inherits_grace = False
        return super().limits(value)

    # --- plugins ---

    def plugin(self, plugin: Plugin | str) -> Self:
        """One more plugin, with all its hooks: an object, or the name of an installed one."""
        return self._put(plugin, plugin)

    def _put(self, plugin: Plugin | str, made: Plugin | str) -> Self:
        """Register what was made of a plugin, in place of what was made of it before."""
        plugins = self._values.get("plugins", ())
        if any(_find_original_plugin(known) is plugin for known in plugins):
            return self._set(
                "plugins", tuple(made if _find_original_plugin(known) is plugin else known for known in plugins)
            )
        return self._add("plugins", (made,))

    def before_tool_call(self, hook: Judge, *, name: str | None = None) -> Self:
        """Judge every call before it runs: a function of `ToolCallContext`, or this one hook of a plugin."""
        return self._add_hook("before_tool_call", hook, name)

    def after_tool_call(self, hook: Reviser, *, name: str | None = None) -> Self:
        """Look at every result: a function of `ToolResultContext`, or this one hook of a plugin."""
        return self._add_hook("after_tool_call", hook, name)

    def context_transform(self, hook: Transform, *, name: str | None = None) -> Self:
        """Change what the model sees: a function of `TransformContext`, or this one hook of a plugin."""
        return self._add_hook("context_transform", hook, name)

    def event_observer(
        self, hook: Watcher, *, name: str | None = None, events: tuple[type[Event], ...] | None = None
    ) -> Self:
        """See events: a function of an event, or this one hook of a plugin. `events`: which; None is all but chunks."""
        if events is not None and isinstance(hook, Plugin):
            raise BuilderError("event_observer(plugin, events=...): set the events on the plugin itself")
        return self._add_hook("event_observer", hook, name, events)

    def steering(self, hook: Source, *, name: str | None = None) -> Self:
        """Add messages after every turn: a function of `PollContext`, or this one hook of a plugin."""
        return self._add_hook("steering", hook, name)

    def follow_up(self, hook: Source, *, name: str | None = None) -> Self:
        """Keep a finished run going: a function of `PollContext`, or this one hook of a plugin."""
        return self._add_hook("follow_up", hook, name)

    def tool_gate(self, hook: GateKeeper, *, name: str | None = None) -> Self:
        """Narrow the tools of a turn: a function of `GateContext`, or this one hook of a plugin."""
        return self._add_hook("tool_gate", hook, name)

    def context_overflow_recovery(self, hook: Rescuer, *, name: str | None = None) -> Self:
        """Make a smaller view after an overflow: a function of `OverflowContext`, or this one hook of a plugin."""
        return self._add_hook("context_overflow_recovery", hook, name)

    def _add_hook(
        self, hook: str, given: object, name: str | None, events: tuple[type[Event], ...] | None = None
    ) -> Self:
        if isinstance(given, Plugin):
            if name is not None:
                raise BuilderError(f"{hook}(plugin, name=...): a plugin has its own name; set it there")
            if hook not in hooks_of(given):
                raise BuilderError(f"{hook}() takes a plugin with that hook; {type(given).__name__} does not have it")
            before = [
                hooks_of(known) for known in self._values.get("plugins", ()) if _find_original_plugin(known) is given
            ]
            return self._put(given, _keep_only_hooks(given, *[one for found in before for one in found], hook))
        if isinstance(given, type) or not callable(given):
            raise BuilderError(f"{hook}() takes a function or a plugin object, not {given!r:.100}")
        taken = {name_of(known) for known in self._values.get("plugins", ()) if isinstance(known, Plugin)}
        return self.plugin(_plugin_from(hook, given, name=name, taken=taken, events=events))

    # --- the result ---

    def copy(self) -> Self:
        """A copy of this builder; changing one does not change the other."""
        twin = type(self)()
        twin._values = dict(self._values)  # noqa: SLF001 - one of us
        twin._parts = {field: dict(parts) for field, parts in self._parts.items()}  # noqa: SLF001
        twin._inherits_grace = self._inherits_grace  # noqa: SLF001
        return twin

    def build(self) -> LoopConfig:
        """The configuration, frozen and checked. Raises `BuilderError` naming the call that is missing."""
        fields = dict(self._values)
        if "model" not in fields:
            raise BuilderError("there is no model: call model(...) before build()")
        try:
            for field, parts in self._parts.items():
                if parts:
                    fields[field] = self._get_section(field, parts)
            if self._inherits_grace and "grace_iterations" not in self._parts["limits"]:
                limits: Limits = fields["limits"]
                if limits.max_iterations is None:
                    fields["limits"] = replace(limits, grace_iterations=None)
            config = make_config(**fields)
        except ConfigurationError as error:
            raise BuilderError(str(error)) from error
        return config

    def _get_section(self, field: str, parts: dict[str, Any]) -> Any:
        kind = _KINDS[field]
        whole = self._values.get(field, kind())
        if not isinstance(whole, kind):
            raise ConfigurationError(f"{field}() takes a {kind.__name__}, not {whole!r:.100}")
        return replace(whole, **parts)

    def __repr__(self) -> str:
        said = [name for name in FIELDS if name in self._values or self._parts.get(name)]
        return f"<AgentBuilder {', '.join(said) or 'empty'}>"


def child_builder(config: LoopConfig) -> AgentBuilder:
    """A builder that begins with what a child inherits."""
    builder = AgentBuilder()
    for field, setting in settings_of(LoopConfig).items():
        if setting.inherited is Passed.YES:
            builder._values[field] = getattr(config, field)  # noqa: SLF001 - our own
    builder._values["plugins"] = HookTable(config.plugins).inheritable()  # noqa: SLF001
    builder._values["limits"] = Limits(**{name: getattr(config.limits, name) for name in _HOW_IT_LANDS})  # noqa: SLF001
    builder._inherits_grace = True  # noqa: SLF001
    return builder


# --- plugins made from something else: from a function, or from some hooks of another plugin ----------------------


def _plugin_from(
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
    called = name or _function_name(function) or hook
    number = 1
    while name is None and called in taken:
        number += 1
        called = f"{_function_name(function) or hook}_{number}"
    body: dict[str, Any] = {"name": called, "events": events, hook: staticmethod(_wrap_async_callable(function))}
    body["__doc__"] = inspect.getdoc(function) or f"The function {called}."
    made: Plugin = type("FunctionPlugin", (Plugin,), body)()
    return made


def _function_name(function: object) -> str | None:
    name = getattr(function, "__name__", None) or type(function).__name__
    return snake_case(name) if isinstance(name, str) and name.isidentifier() else None


def _wrap_async_callable(function: Callable[[Any], Any]) -> Any:
    """An object with an async `__call__`, wrapped so that it is recognized as async."""
    if inspect.iscoroutinefunction(function) or not inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return function

    async def call(context: object) -> Any:
        return await function(context)

    return call


def _keep_only_hooks(plugin: Plugin, *hooks: str) -> Plugin:
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
            body[made] = _narrow_factory(made, kept)
    part: Plugin = type("NarrowedPlugin", (Plugin,), body)()
    return part


def _find_original_plugin(plugin: object) -> Any:
    """The plugin that this one was narrowed from, or the plugin itself."""
    return getattr(plugin, "_origin", plugin)


def _narrow_factory(method: str, kept: tuple[str, ...]) -> Any:
    """`for_run` or `for_child` of the whole plugin, narrowed in the same way."""

    def make(self: object) -> Any:
        mine = getattr(_find_original_plugin(self), method)()
        return _keep_only_hooks(mine, *kept) if isinstance(mine, Plugin) else mine

    return make
