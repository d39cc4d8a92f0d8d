"""Asking a hook: plain or async, within its time, and never trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glidepath.errors import GlidepathError
from glidepath.events import HookFailed
from glidepath.run.watch import Stopped, tethered

if TYPE_CHECKING:
    from glidepath.run.state import Run

__all__ = ["HookFault", "consult"]


class HookFault(GlidepathError):  # noqa: N818 - it never leaves the run
    """A hook crashed, hung or answered nonsense; the caller decides what that means."""


async def consult(run: Run, hook: str, name: str, method: Callable[[Any], Any], context: Any) -> Any:
    """The answer of one hook; raises `HookFault` when there is none to trust, `Touchdown` when the run is stopped."""
    try:
        answer = method(context)
        if hasattr(answer, "__await__"):
            answer = await _awaited(run, answer)
    except Stopped as stopped:
        if stopped.why == "interrupt":
            raise run.interrupted() from None
        hung = f"no answer within {run.plan.times.hook} s" if stopped.why == "timeout" else "it was cancelled"
        raise HookFault(f"{hook} of plugin {name!r}: {hung}") from None
    except KeyboardInterrupt:
        raise run.interrupted_by_hand() from None
    except BaseException as error:  # SystemExit, too: a hook must not end the process
        if run.watch.gone:
            raise
        raise HookFault(f"{hook} of plugin {name!r} raised {type(error).__name__}: {error}") from error
    return answer


async def _awaited(run: Run, answer: Any) -> Any:
    if not hasattr(answer, "send"):  # a future, or an object with __await__
        answer = _as_coroutine(answer)
    if run.watch.interrupt is not None:  # the run is being stopped: a hook that has to wait is interrupted at once
        run.watch.wanted = True
    return await tethered(answer, run.watch, run.plan.times.hook)


async def _as_coroutine(awaitable: Any) -> Any:
    return await awaitable


def report(run: Run, hook: str, name: str, fault: HookFault, effect: str) -> None:
    """Tell the observers about a hook that failed."""
    run.emit(HookFailed, name, hook, str(fault), effect)
