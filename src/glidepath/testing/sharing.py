"""What the callbacks of a schedule touch: of two that touch nothing in common, the order does not matter."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from glidepath._wire import is_frozen
from glidepath.values import ConfigurationError

PRIMITIVES = (asyncio.Event, asyncio.Lock, asyncio.Semaphore, asyncio.Condition, asyncio.Queue)
"""What tasks share whatever the scenario is."""
_PLAIN = (int, float, str, bytes, tuple, frozenset, Enum, type(None))
_LOCKS = (type(threading.Lock()), type(threading.RLock()))  # held within one callback only
_CODE = (FunctionType, MethodType, BuiltinFunctionType, type)

_NOTHING, _READ, _WRITE = range(3)


class Touches:
    """What one callback read and wrote, and for which family it ran."""

    __slots__ = ("family", "reads", "writes")

    def __init__(self, family: int) -> None:
        self.family = family
        self.reads: set[Hashable] = set()
        self.writes: set[Hashable] = set()

    def depends_on(self, other: Touches) -> bool:
        """True when the order of the two may matter: one family, or one wrote what the other touched."""
        if self.family == other.family:
            return True
        if ("family", other.family) in self.writes or ("family", self.family) in other.writes:
            return True
        return not (
            self.writes.isdisjoint(other.writes)
            and self.writes.isdisjoint(other.reads)
            and self.reads.isdisjoint(other.writes)
        )


class Sharing:
    """Notes which objects of some classes each callback reads and writes, while it is installed.

    An object is named after the callback that made it, so that it has the same name in every schedule in which that
    callback does the same. One that was there before the schedule began has its class's name.
    """

    def __init__(self, classes: Sequence[type]) -> None:
        self._classes = tuple(dict.fromkeys((*classes, *PRIMITIVES)))
        self._effects: dict[type, int] = {}
        self._touches: Touches | None = None
        self._step = 0
        self._made = 0
        self._names: dict[int, tuple[object, Hashable]] = {}

    @contextmanager
    def install(self) -> Iterator[None]:
        """Watch the classes; whatever happens, they are put back as they were."""
        undo: list[Callable[[], None]] = []
        self._names.clear()
        try:
            for cls in self._classes:
                try:
                    undo += self._watch_class(cls)
                except TypeError as error:
                    raise ConfigurationError(
                        f"shared={cls.__name__}: the reads and writes of its objects cannot be seen ({error}); "
                        "use a class that is written in Python"
                    ) from error
            yield
        finally:
            for one in reversed(undo):
                one()
            self._names.clear()  # it keeps objects alive, so that no other gets their place in memory

    @contextmanager
    def watch(self, step: int, family: int) -> Iterator[Touches]:
        """What is touched inside."""
        touches = self._touches = Touches(family)
        self._step, self._made = step, 0
        try:
            yield touches
        finally:
            self._touches = None

    def touch(self, name: Hashable) -> None:
        """Something is changed that is not an object of a watched class."""
        if self._touches is not None:
            self._touches.writes.add(name)

    def make_future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """A future whose uses are noted."""
        future = _Future(loop=loop)
        self._made += 1
        future.touched, future.sharing = ("future", self._step, self._made), self
        return future

    def make_task(
        self, coro: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop, family: int, options: dict[str, Any]
    ) -> asyncio.Task[Any]:
        """A task whose uses by other families are noted."""
        task = _Task(coro, loop=loop, **options)
        task.touched, task.sharing = ("family", family), self
        return task

    # --- objects of the classes -------------------------------------------------------------------------------

    def _watch_class(self, cls: Any) -> list[Callable[[], None]]:
        look_up, assign, remove = cls.__getattribute__, cls.__setattr__, cls.__delattr__

        def get(owner: object, name: str) -> Any:
            value = look_up(owner, name)
            if self._touches is not None:
                self._note_read(owner, name, value)
            return value

        def put(owner: object, name: str, value: object) -> None:
            if self._touches is not None:
                self._touches.writes.add((self._name(owner, is_new=True), name))
            assign(owner, name, value)

        def drop(owner: object, name: str) -> None:
            if self._touches is not None:
                self._touches.writes.add((self._name(owner, is_new=True), name))
            remove(owner, name)

        undo: list[Callable[[], None]] = []
        for attribute, function in (("__getattribute__", get), ("__setattr__", put), ("__delattr__", drop)):
            before = cls.__dict__.get(attribute)
            setattr(cls, attribute, function)
            undo.append(_restorer(cls, attribute, before))
        return undo

    def _note_read(self, owner: object, name: str, value: object) -> None:
        kind = type(value)
        effect = self._effects.get(kind)
        if effect is None:
            effect = self._effects[kind] = self._effect_of(kind, value)
        touches = self._touches
        if touches is None or effect == _NOTHING or name[:2] == "__":
            return
        (touches.reads if effect == _READ else touches.writes).add((self._name(owner), name))

    def _effect_of(self, kind: type, value: object) -> int:
        """What it is to look at a value of this kind; the reader of a list may change it, and that is not seen."""
        if issubclass(kind, (*_LOCKS, *_CODE)):
            return _NOTHING
        if issubclass(kind, (*_PLAIN, *self._classes, asyncio.Future)) or is_frozen(value):
            return _READ
        return _WRITE

    def _name(self, owner: object, *, is_new: bool = False) -> Hashable:
        known = self._names.get(id(owner))
        if known is None:
            self._made += 1
            name = (type(owner).__name__, self._step, self._made) if is_new else (type(owner).__name__,)
            known = self._names[id(owner)] = (owner, name)
        return known[1]


def _restorer(cls: type, attribute: str, before: object) -> Callable[[], None]:
    def restore() -> None:
        if before is None:
            delattr(cls, attribute)
        else:
            setattr(cls, attribute, before)

    return restore


class _Noted(asyncio.Future[Any]):
    """Something to wait for that tells who looks at it. `touched` is what they touch with that."""

    touched: Hashable = None
    sharing: Sharing | None = None

    def _touch(self) -> None:
        if self.sharing is not None:
            self.sharing.touch(self.touched)

    def __await__(self) -> Any:
        self._touch()
        return super().__await__()

    __iter__ = __await__

    def done(self) -> bool:
        self._touch()
        return super().done()

    def cancelled(self) -> bool:
        self._touch()
        return super().cancelled()

    def result(self) -> Any:
        self._touch()
        return super().result()

    def exception(self) -> BaseException | None:
        self._touch()
        return super().exception()

    def cancel(self, msg: object = None) -> bool:
        self._touch()
        return super().cancel(msg)

    def add_done_callback(self, fn: Callable[..., object], /, *, context: Context | None = None) -> None:
        self._touch()
        super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[..., object], /) -> int:
        self._touch()
        return super().remove_done_callback(fn)


class _Future(_Noted):
    def set_result(self, result: object, /) -> None:
        self._touch()
        super().set_result(result)

    def set_exception(self, exception: type | BaseException, /) -> None:
        self._touch()
        super().set_exception(exception)


class _Task(_Noted, asyncio.Task[Any]):
    """What its own family does with it is in order anyway; another family that looks at it waits for all of them."""

    def uncancel(self) -> int:
        self._touch()
        return super().uncancel()
