"""Which plugin has which hook, in which order: found out once, when a configuration is assembled."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from glidepath._wire import Value
from glidepath.errors import ConfigurationError
from glidepath.events import Event, HookFailed, StreamChunk
from glidepath.spi.hooks import HOOKS, Plugin

__all__ = ["Hook", "Hooks", "Lineup", "Observer", "PluginNames", "snake_case"]

_OWN = frozenset({"name", "for_run", "for_child", "runs_before", "runs_after", "events", "inheritable_to_child"})
_GUARDING = frozenset({"before_tool_call", "tool_gate"})
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
    observers: tuple[Plugin, ...] = ()


def snake_case(name: str) -> str:
    """CamelCase as snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def name_of(plugin: Plugin) -> str:
    """The plugin's own name, or its class name in snake_case."""
    name = getattr(plugin, "name", None)
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
    for hook in found:
        method = getattr(kind, hook)
        if not callable(method):
            raise ConfigurationError(f"{kind.__name__}.{hook} must be a method, not {method!r}")
        if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
            raise ConfigurationError(f"{kind.__name__}.{hook} must return its decision, not yield it")
    if not found:
        raise ConfigurationError(f"{kind.__name__} overrides no hook; override one of {', '.join(HOOKS)}")
    _check_settings(plugin)
    return found


def _check_settings(plugin: Plugin) -> None:
    kind, wanted = type(plugin).__name__, plugin.events
    events = isinstance(wanted, tuple) and all(isinstance(item, type) and issubclass(item, Event) for item in wanted)
    if wanted is not None and not events:
        raise ConfigurationError(f"{kind}.events must be a tuple of event classes or None, not {wanted!r:.100}")
    for field in ("runs_before", "runs_after"):
        names = getattr(plugin, field)
        if (
            isinstance(names, str)
            or not isinstance(names, Sequence)
            or not all(isinstance(name, str) for name in names)
        ):
            raise ConfigurationError(f"{kind}.{field} must be a tuple of plugin names, not {names!r:.100}")


def _refuse_misspelt(kind: type[Plugin]) -> None:
    from difflib import get_close_matches  # rarely needed, and slow to import

    for owner in kind.__mro__:
        if owner in (Plugin, object):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name in HOOKS or name in _OWN or not callable(value):
                continue
            close = get_close_matches(name, HOOKS, n=1, cutoff=0.8)
            if close:
                raise ConfigurationError(f"{owner.__name__}.{name} is not a hook; did you mean {close[0]!r}?")


class Lineup:
    """The plugins of a configuration, checked and in order."""

    __slots__ = ("_capabilities", "_shared", "plugins")

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        given = tuple(plugins)
        capabilities = {id(plugin): hooks_of(plugin) for plugin in given}
        self.plugins = _arrange(given)
        self._capabilities = [capabilities[id(plugin)] for plugin in self.plugins]
        own_state = any(type(plugin).for_run is not Plugin.for_run for plugin in self.plugins)
        self._shared = None if own_state else self._bind(self.plugins)

    def names(self) -> PluginNames:
        """The names behind each hook, in calling order."""
        return PluginNames(
            **{
                hook: tuple(
                    name_of(p) for p, found in zip(self.plugins, self._capabilities, strict=True) if hook in found
                )
                for hook in HOOKS
            }
        )

    def for_run(self) -> Hooks:
        """The hooks of one run, with per-run state where a plugin asks for it."""
        if self._shared is not None:
            return self._shared
        own = []
        for plugin in self.plugins:
            try:
                mine = plugin.for_run()
            except Exception as error:
                raise ConfigurationError(
                    f"{type(plugin).__name__}.for_run() raised {type(error).__name__}: {error}"
                ) from error
            if not isinstance(mine, Plugin):
                raise ConfigurationError(f"{type(plugin).__name__}.for_run() must return a Plugin, not {mine!r}")
            own.append(mine)
        return self._bind(own)

    def inheritable(self) -> tuple[Plugin, ...]:
        """What a child's run gets."""
        passed = []
        for plugin, found in zip(self.plugins, self._capabilities, strict=True):
            wanted = plugin.inheritable_to_child
            if wanted is None:
                wanted = not _GUARDING.isdisjoint(found)
            heir = plugin.for_child() if wanted else None
            if heir is not None:
                passed.append(heir)
        return tuple(passed)

    def _bind(self, plugins: Sequence[Plugin]) -> Hooks:
        bound: dict[str, list[Any]] = {hook: [] for hook in HOOKS}
        for plugin, found in zip(plugins, self._capabilities, strict=True):
            for hook in found:
                bound[hook].append((name_of(plugin), getattr(plugin, hook)))
        observers = [p for p, found in zip(plugins, self._capabilities, strict=True) if "event_observer" in found]
        del bound["event_observer"]
        return Hooks(observers=tuple(observers), **{hook: tuple(pairs) for hook, pairs in bound.items()})


def _arrange(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Registration order, moved only as far as `runs_before` and `runs_after` ask."""
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
    ordered: list[Plugin] = []
    waiting = list(zip(plugins, names, strict=True))
    placed: set[str] = set()
    while waiting:
        ready = next((pair for pair in waiting if before[pair[1]] <= placed), None)
        if ready is None:
            stuck = ", ".join(name for _, name in waiting)
            raise ConfigurationError(f"runs_before/runs_after form a cycle among: {stuck}")
        waiting.remove(ready)
        ordered.append(ready[0])
        placed.add(ready[1])
    return tuple(ordered)


class Observer:
    """One event observer in one run: isolated, filtered, and never in the run's way."""

    MAX_FAILURES = 3
    QUEUE = 1024
    __slots__ = ("_busy", "_failed", "_method", "_queue", "_report", "_task", "_wanted", "dropped", "name")

    def __init__(self, plugin: Plugin, report: Callable[[str, str, str], None]) -> None:
        self.name = name_of(plugin)
        self._method = plugin.event_observer
        self._wanted = plugin.events
        self._report = report
        self._failed = 0
        self._busy = False
        self._queue: deque[Event] | None = deque() if inspect.iscoroutinefunction(self._method) else None
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    @property
    def wants_chunks(self) -> bool:
        """True when it asks for `StreamChunk` events."""
        return self._wanted is not None and any(issubclass(StreamChunk, kind) for kind in self._wanted)

    def __call__(self, event: Event) -> None:
        """Show it one event."""
        wanted = self._wanted
        if (type(event) is StreamChunk if wanted is None else not isinstance(event, wanted)) or self._busy:
            return
        if self._failed >= self.MAX_FAILURES:
            return
        if self._queue is None:
            self._busy = True  # what it causes itself is not shown to it again
            try:
                self._method(event)
            except (Exception, SystemExit, GeneratorExit, asyncio.CancelledError) as error:
                self._fail(error)
            finally:
                self._busy = False
        elif len(self._queue) >= self.QUEUE:
            self.dropped += 1
        else:
            self._queue.append(event)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._drain())

    def _fail(self, error: BaseException) -> None:
        self._failed += 1
        effect = "removed" if self._failed >= self.MAX_FAILURES else "ignored"
        if not isinstance(self._queue, deque) or not self._is_own_failure():
            self._report(self.name, f"{type(error).__name__}: {error}", effect)

    def _is_own_failure(self) -> bool:
        return bool(self._queue) and isinstance(self._queue[-1], HookFailed)  # type: ignore[index]

    async def _drain(self) -> None:
        queue = self._queue
        while queue:
            event = queue.popleft()
            try:
                await self._method(event)
            except (Exception, SystemExit) as error:
                self._fail(error)

    async def close(self, patience: float) -> None:
        """Let a slow observer finish what is queued, for a while, then stop it."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=patience)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=patience)
