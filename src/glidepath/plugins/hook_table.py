"""Which plugin has which hook, in which order: determined once, when a configuration is assembled."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, TypeAlias

from glidepath._wire import Value
from glidepath.spi import HOOKS, Plugin
from glidepath.values import ConfigurationError, Event, close_to, describe_error, short_repr

_SETTINGS = ("for_run", "for_child", "runs_before", "runs_after", "inheritable_to_child")
_GUARDING = frozenset({"before_tool_call", "tool_gate"})
_SHAPES_TURNS = frozenset({"before_tool_call", "after_tool_call", "context_transform", "tool_gate", "steering"})
Hook: TypeAlias = tuple[str, Callable[..., Any]]


class PluginNames(Value, frozen=True, kw_only=True):
    """The names of the plugins behind each hook, in calling order."""

    before_tool_call: tuple[str, ...] = ()
    after_tool_call: tuple[str, ...] = ()
    context_transform: tuple[str, ...] = ()
    event_observer: tuple[str, ...] = ()
    steering: tuple[str, ...] = ()
    follow_up: tuple[str, ...] = ()
    tool_gate: tuple[str, ...] = ()
    context_overflow_recovery: tuple[str, ...] = ()


class Hooks(Value, frozen=True, kw_only=True):
    """The hooks of one run, by category: pairs of plugin name and bound method."""

    before_tool_call: tuple[Hook, ...] = ()
    after_tool_call: tuple[Hook, ...] = ()
    context_transform: tuple[Hook, ...] = ()
    steering: tuple[Hook, ...] = ()
    follow_up: tuple[Hook, ...] = ()
    tool_gate: tuple[Hook, ...] = ()
    context_overflow_recovery: tuple[Hook, ...] = ()
    observers: tuple[tuple[str, Plugin], ...] = ()


def snake_case(name: str) -> str:
    """CamelCase as snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def name_of(plugin: Plugin) -> str:
    """The plugin's own name, or its class name in snake_case."""
    try:
        name = getattr(plugin, "name", None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigurationError(f"{type(plugin).__name__}.name raised {describe_error(error)}") from error
    if name is None:
        return snake_case(type(plugin).__name__)
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{type(plugin).__name__}.name must be a non-empty str, not {name!r}")
    return name


def hooks_of(plugin: Plugin) -> tuple[str, ...]:
    """The hooks a plugin overrides; raises `ConfigurationError` for anything that looks like a mistake."""
    kind = type(plugin)
    if not isinstance(plugin, Plugin):
        raise ConfigurationError(f"plugins must be instances of glidepath.Plugin, not {plugin!r}")
    _refuse_misspelt(kind)
    for own in ("for_run", "for_child"):
        if inspect.iscoroutinefunction(getattr(kind, own)):
            raise ConfigurationError(f"{kind.__name__}.{own} must be a plain method, not async")
    found = tuple(hook for hook in HOOKS if getattr(kind, hook) is not getattr(Plugin, hook))
    for hook in HOOKS:
        if hook in getattr(plugin, "__dict__", ()):
            raise ConfigurationError(f"{kind.__name__}.{hook} is set on the object; define it as a method of its class")
    for hook in found:
        _check_method(plugin, hook)
    if not found:
        raise ConfigurationError(f"{kind.__name__} overrides no hook; override one of {', '.join(HOOKS)}")
    _check_settings(plugin)
    return found


def _check_method(plugin: Plugin, hook: str) -> None:
    where = f"{type(plugin).__name__}.{hook}"
    method = getattr(plugin, hook)
    if not callable(method):
        raise ConfigurationError(f"{where} must be a method, not {short_repr(method)}")
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        raise ConfigurationError(f"{where} must return its decision, not yield it")
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return  # perhaps written in C: a mistake will show when it is called
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigurationError(f"{where} must take one argument, its context: {error}") from None


def _check_settings(plugin: Plugin) -> None:
    kind, wanted = type(plugin).__name__, plugin.events
    events = isinstance(wanted, tuple) and all(isinstance(item, type) and issubclass(item, Event) for item in wanted)
    if wanted is not None and not events:
        raise ConfigurationError(f"{kind}.events must be a tuple of event classes or None, not {short_repr(wanted)}")
    if plugin.inheritable_to_child not in (True, False, None):
        raise ConfigurationError(
            f"{kind}.inheritable_to_child must be True, False or None, not {plugin.inheritable_to_child!r:.100}"
        )
    for field in ("runs_before", "runs_after"):
        names = getattr(plugin, field)
        if (
            isinstance(names, str)
            or not isinstance(names, Sequence)
            or not all(isinstance(name, str) for name in names)
        ):
            raise ConfigurationError(f"{kind}.{field} must be a tuple of plugin names, not {short_repr(names)}")


def _refuse_misspelt(kind: type[Plugin]) -> None:
    for owner in kind.__mro__:
        if owner in (Plugin, object):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name == "name" or hasattr(Plugin, name):
                continue
            if callable(value) and (close := close_to(name, HOOKS, 0.8)):
                raise ConfigurationError(f"{owner.__name__}.{name} is not a hook; did you mean {close!r}?")
            if close := close_to(name, _SETTINGS, 0.85):
                raise ConfigurationError(f"{owner.__name__}.{name} has no effect; did you mean {close!r}?")


class HookTable:
    """The plugins of a configuration, checked and in order; then those a child inherits from its parent."""

    __slots__ = ("__weakref__", "_capabilities", "_names", "plugins", "shapes_turns", "shared")

    def __init__(self, plugins: Iterable[Plugin], inherited: Iterable[Plugin] = ()) -> None:
        heirs, own = tuple(inherited), tuple(plugins)
        capabilities = {id(plugin): hooks_of(plugin) for plugin in (*own, *heirs)}
        arranged = _order_plugins(own)
        arranged += _name_new_heirs(arranged, heirs)
        self.plugins = tuple(plugin for plugin, _ in arranged)
        self._names = tuple(name for _, name in arranged)
        self._capabilities = tuple(capabilities[id(plugin)] for plugin in self.plugins)
        self.shapes_turns = not _SHAPES_TURNS.isdisjoint([hook for found in self._capabilities for hook in found])
        """True if some plugin takes part in ordinary turns."""
        own_state = any(type(plugin).for_run is not Plugin.for_run for plugin in self.plugins)
        self.shared = None if own_state else self._bind(self.plugins)
        """The hooks of every run; None when some plugin has its own state in each."""

    def names(self) -> PluginNames:
        """The names behind each hook, in calling order."""
        behind: dict[str, tuple[str, ...]] = {}
        for hook in HOOKS:
            pairs = zip(self._names, self._capabilities, strict=True)
            behind[hook] = tuple(name for name, found in pairs if hook in found)
        return PluginNames(**behind)

    def for_run(self) -> Hooks:
        """The hooks of one run, with per-run state where a plugin asks for it."""
        if self.shared is not None:
            return self.shared
        own = []
        for plugin, found in zip(self.plugins, self._capabilities, strict=True):
            mine = _make_plugin(plugin, "for_run", plugin.for_run)
            if mine is None or (type(mine) is not type(plugin) and hooks_of(mine) != found):
                raise ConfigurationError(
                    f"{type(plugin).__name__}.for_run() must return a plugin with the same hooks, not "
                    f"{short_repr(mine)}"
                )
            own.append(mine)
        return self._bind(own)

    def inheritable(self) -> tuple[Plugin, ...]:
        """What a child's run gets: plugins that guard, unless they opt out, and those that opt in."""
        passed = []
        for plugin, found in zip(self.plugins, self._capabilities, strict=True):
            wanted = plugin.inheritable_to_child
            if wanted is None:
                wanted = not _GUARDING.isdisjoint(found)
            heir = _make_plugin(plugin, "for_child", plugin.for_child) if wanted else None
            if heir is not None:
                passed.append(heir)
        return tuple(passed)

    def _bind(self, plugins: Sequence[Plugin]) -> Hooks:
        bound: dict[str, list[Any]] = {hook: [] for hook in HOOKS}
        observers = []
        for plugin, name, found in zip(plugins, self._names, self._capabilities, strict=True):
            for hook in found:
                bound[hook].append((name, getattr(plugin, hook)))
            if "event_observer" in found and plugin.events != ():  # one that wants no events needs no route
                observers.append((name, plugin))
        del bound["event_observer"]
        return Hooks(observers=tuple(observers), **{hook: tuple(pairs) for hook, pairs in bound.items()})


def _make_plugin(plugin: Plugin, method: str, make: Callable[[], Any]) -> Plugin | None:
    """What `for_run` or `for_child` returns; raises `ConfigurationError` unless it is a plugin or None."""
    try:
        made = make()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigurationError(f"{type(plugin).__name__}.{method}() raised {describe_error(error)}") from error
    if made is not None and not isinstance(made, Plugin):
        raise ConfigurationError(f"{type(plugin).__name__}.{method}() must return a Plugin, not {short_repr(made)}")
    return made


def _name_new_heirs(own: Iterable[tuple[Plugin, str]], heirs: Iterable[Plugin]) -> list[tuple[Plugin, str]]:
    """The heirs that are not among these already; one whose name is taken is called `inherited.<name>`."""
    had = list(own)
    found: list[tuple[Plugin, str]] = []
    for heir in heirs:
        known = [*had, *found]
        if any(heir is plugin for plugin, _ in known):
            continue
        name = name_of(heir)
        while name in [taken for _, taken in known]:
            name = f"inherited.{name}"
        found.append((heir, name))
    return found


def find_missing_heirs(own: Iterable[Plugin], heirs: Iterable[Plugin]) -> tuple[Plugin, ...]:
    """The heirs that an agent does not have itself, for a team: each under a name that is free."""
    found = _name_new_heirs([(plugin, name_of(plugin)) for plugin in own], heirs)
    return tuple([heir if name == name_of(heir) else _rename_plugin(heir, name) for heir, name in found])


def _rename_plugin(plugin: Plugin, name: str) -> Plugin:
    """It shares its state with the plugin it stands for."""
    kind: Any = type(plugin)
    body = {"__doc__": kind.__doc__, "__slots__": (), "name": property(lambda _: name)}
    made: Any = copy(plugin)
    made.__class__ = type(kind.__name__, (kind,), body)
    made.__dict__ = plugin.__dict__
    return made  # type: ignore[no-any-return]


def _order_plugins(plugins: Sequence[Plugin]) -> list[tuple[Plugin, str]]:
    """Registration order, moved only as far as `runs_before` and `runs_after` ask; each with its name."""
    names = [name_of(plugin) for plugin in plugins]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two plugins are named {name!r}; give one of them another `name`")
    before: dict[str, set[str]] = {name: set() for name in names}
    for plugin, name in zip(plugins, names, strict=True):
        for other in plugin.runs_after:
            if other in before:
                before[name].add(other)
        for other in plugin.runs_before:
            if other in before:
                before[other].add(name)
    ordered: list[tuple[Plugin, str]] = []
    waiting = list(zip(plugins, names, strict=True))
    placed: set[str] = set()
    while waiting:
        ready = next((pair for pair in waiting if before[pair[1]] <= placed), None)
        if ready is None:
            stuck = ", ".join(name for _, name in waiting)
            raise ConfigurationError(f"runs_before/runs_after form a cycle among {stuck}; remove one of them")
        waiting.remove(ready)
        ordered.append(ready)
        placed.add(ready[1])
    return ordered
