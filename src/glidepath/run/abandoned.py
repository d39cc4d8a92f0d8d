"""Work that a run has let go of: it continues in its own task, and can neither run forever nor affect the run."""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any

from glidepath.run.asyncio_privates import GENERATOR_SCOPES, SCOPES

MAX_PATIENCE = 1.0  # seconds that foreign code has to stop


class TaskBound:
    """Something bound to the task that made it, which can be moved to another."""

    __slots__ = ()
    task: asyncio.Task[Any]

    def move(self, old: asyncio.Task[Any], new: asyncio.Task[Any]) -> None:
        """Belong to `new`, if this has belonged to `old`."""
        raise NotImplementedError


def request(cancelled: BaseException) -> None:
    """Mark a cancellation as a run's: it is taken back before foreign code sees it, and another run in there must know.

    Its own class would not do: asyncio's timeouts and task groups know no other than `CancelledError`.
    """
    # An attribute, because the exception object is all that travels to the foreign code and back.
    cancelled.asked_by_a_run = True  # type: ignore[attr-defined]


def is_request(cancelled: BaseException | None) -> bool:
    """True for a cancellation by which a run asks what it waits for to stop."""
    return getattr(cancelled, "asked_by_a_run", False)


def move_scopes(coroutine: object, owner: TaskBound, new: asyncio.Task[Any]) -> None:
    """Give the timeouts, task groups and runs that a coroutine is inside of the task in which it continues.

    They cancel the task in which they were entered: that of the owner, who lets go and stays. It is the task of the
    run's caller, and may do anything by then.
    """
    old = owner.task
    for scope in iterate_held_scopes(coroutine):
        if isinstance(scope, TaskBound) and scope is not owner:
            scope.move(old, new)
        name = SCOPES.get(type(scope))
        if name is not None and getattr(scope, name, None) is old:
            setattr(scope, name, new)


def iterate_held_scopes(coroutine: object) -> Iterator[Any]:
    """What the frames of a waiting coroutine hold: the timeouts, task groups and runs it is inside of, among others."""
    inside: Any = coroutine
    while inside is not None:
        # A frame does not tell what it holds in any other way; this runs once for work that would not stop.
        held = gc.get_referents(inside)
        for one in held:
            scope = getattr(one, "__self__", None) if type(one) is types.MethodType else one
            yield scope
            if isinstance(scope, GENERATOR_SCOPES):
                yield from iterate_held_scopes(scope.gen)
        inside = _next_awaitable(inside, held)


def _next_awaitable(inside: object, held: list[Any]) -> Any:
    """What a coroutine waits for, one step further in; None at the end."""
    for kind, name in _WAITING:
        if isinstance(inside, kind):
            awaited = getattr(inside, name)
            if awaited is not None or kind is not types.GeneratorType:
                return awaited  # a generator may drive a coroutine by hand: `interruptible` does
    return next((one for one in held if isinstance(one, types.AsyncGeneratorType | types.CoroutineType)), None)


_WAITING: tuple[tuple[type, str], ...] = (
    (types.CoroutineType, "cr_await"),
    (types.GeneratorType, "gi_yieldfrom"),
    (types.AsyncGeneratorType, "ag_await"),
)


async def drive_abandoned(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Drive an abandoned coroutine to its end and swallow whatever comes of it."""
    cancelled = asyncio.CancelledError()  # what it waited for was cancelled with us
    request(cancelled)
    try:
        await await_until_cancelled(coroutine, lambda: True, cancelled)
    # Nobody waits for it: the loop would only log the error, long after the result has listed the work as abandoned.
    except BaseException:
        return


@types.coroutine
def await_until_cancelled(
    coroutine: Coroutine[Any, Any, Any], let_go: Callable[[], bool], error: BaseException | None = None
) -> Generator[Any, Any, Any]:
    """Await a coroutine that is sure to end when its task is cancelled, once nothing waits for it.

    `asyncio.run` cancels what is left at the end and waits for it. What was let go is asked once more then; if it keeps
    running it is closed a second later, so that it cannot keep the event loop from closing. A cancellation that
    it takes back was its own (a timeout), and asks for nothing. `error` is raised in it first.
    """
    ends: asyncio.TimerHandle | None = None
    asked = 0
    while True:
        try:
            waiting = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration as stop:
            return stop.value
        # It took the cancellation back: that was its own timeout, and the loop is not closing.
        if ends is not None and asyncio.current_task().cancelling() < asked:  # type: ignore[union-attr]
            ends.cancel()
            ends = None
        error = None
        try:
            yield waiting
        except asyncio.CancelledError as cancelled:
            error = cancelled
            task: Any = asyncio.current_task()
            if task.cancelling() and let_go():
                loop = task.get_loop()
                if ends is None:
                    # Not at once: code that cleans up after a cancellation is given the time for it.
                    asked, ends = task.cancelling(), loop.call_later(MAX_PATIENCE, task.cancel)
                # The timer above has rung: this cancellation is its own. A little slack, since timers may ring early.
                elif loop.time() + 0.01 >= ends.when():
                    coroutine.close()
                    raise
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as failed:
            error = failed
