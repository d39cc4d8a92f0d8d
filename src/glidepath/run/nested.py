"""What is started inside a tool call or a guarding hook: which run it belongs to, and how it is stopped with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from glidepath._wire import Record
from glidepath.run.cancel import CancelToken
from glidepath.run.unsaved import Unsaved
from glidepath.spi import INSIDE
from glidepath.tools.threads import WORKER
from glidepath.values import AbandonedWork, BackgroundCall, RunResult, ToolCall, ToolError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from glidepath.run.state import Run
    from glidepath.run.watch import Watch

PATIENCE = 1.5  # seconds for a child to land after its tool call has ended: it lets go of its own work after one
ANSWERS_WITHIN = 2.0  # seconds for the loop of the run above to begin with a child: one that is blocked never will

BLOCKED: ContextVar[tuple[asyncio.AbstractEventLoop, ...]] = ContextVar("glidepath_blocked", default=())
"""The event loops that `run_sync` blocks until this code is done."""

_log = logging.getLogger("glidepath")
_NOTHING: Final[Any] = MappingProxyType({})  # for all, until there is something to be kept


class _Inherit(Enum):
    """The default of `parent`: inside a tool or a guarding hook a child of that run, anywhere else a root."""

    INHERIT = "INHERIT"

    def __repr__(self) -> str:
        return "INHERIT"


INHERIT = _Inherit.INHERIT
"""The default of `parent`: inside a tool or a guarding hook a child of that run, anywhere else a root."""
Inherit: TypeAlias = Literal[_Inherit.INHERIT]
Post: TypeAlias = Callable[[Callable[[], None]], None]
"""How to do something on the loop of the run, from another one."""


class _Asked:
    """A hook that is being asked: it has no result but its end, which closes its place."""

    __slots__ = ()
    result = None


ASKED = _Asked()
"""The work of a place that is a hook's."""


class LostChild(ToolError):  # noqa: N818 - what happened
    """A child of this call had begun, and its journal is missing or cannot be read: what it did is unknown."""


class CallScope(Record, eq=False):
    """A tool call or a hook of a run. It is open until that has its result."""

    run: Any
    """The run; None when the place was closed: contexts live long, in timers above all, and a run must not."""
    key: str
    """The call's id, or the name of the hook."""
    work: Any
    """What has a `result` in the end: the call, or a hook that was asked."""
    mailbox: Post | None = None
    """Takes what is to be done on the run's own loop once it is free, while that is blocked."""
    warned: bool = False

    def copy(self, mailbox: Post | None = None) -> CallScope:
        """The same place for a caller that needs it alone; `mailbox` when its loop is blocked, or about to be."""
        return CallScope(self.run, self.key, self.work, mailbox, self.warned)

    @property
    def is_open(self) -> bool:
        """True until the call or hook has ended."""
        # Read once, then looked at: between two looks it could become None.
        run, work = self.run, self.work  # another thread may close it meanwhile
        return run is not None and work is not None and run.result is None and work.result is None

    @property
    def is_hook(self) -> bool:
        """True for a hook."""
        return type(self.work) is _Asked

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of its run."""
        return self.run.watch.loop  # type: ignore[no-any-return]

    @property
    def here(self) -> bool:
        """True on the loop of its run, unless that is blocked."""
        run = self.run
        return self.mailbox is None and run is not None and asyncio.get_running_loop() is run.watch.loop

    def close(self) -> None:
        """The call or hook has ended."""
        self.run = None
        if self.work is not ASKED:
            self.work = None

    def warn(self) -> None:
        """Say once that nothing can be started here any more."""
        if not self.warned:
            self.warned = True
            what = "hook" if self.is_hook else "tool call"
            _log.warning(
                "An agent was started by a task or thread that the %s %r left behind. The %s has ended, so the agent "
                "runs on its own, outside the limits of that run. Await it inside the %s, or pass parent=None.",
                what,
                self.key,
                what,
                what,
            )


class SideWork(Record, eq=False):
    """What runs beside the loop, or did: children of calls and hooks, work that was abandoned, unknown effects."""

    SURVIVES: ClassVar[tuple[str, ...]] = ("children", "abandoned", "unknown_effects", "background")

    unsaved: Unsaved
    spawned: Mapping[str, tuple[Any, ...]] = _NOTHING
    """The children of each tool call or hook that is running."""
    named: Mapping[str, int] = _NOTHING
    """How many children of the same name hooks have had, where there is a journal."""
    children: tuple[RunResult, ...] = ()
    abandoned: tuple[AbandonedWork, ...] = ()
    unknown_effects: tuple[ToolCall, ...] = ()
    background: tuple[BackgroundCall, ...] = ()
    """The calls that the model has started in the background."""
    live: Mapping[str, Any] = _NOTHING
    """Those of them that run, by their ids."""
    unchecked: Mapping[str, Any] = _NOTHING
    """Those that have ended, and that the after-hooks have yet to look at."""
    reminded: frozenset[str] = frozenset()
    """Those that the model was told about when it was done without them."""
    ring: Callable[[], None] | None = None
    """Wakes the run when something happened beside it."""
    heard: Mapping[str, tuple[str, ...]] = _NOTHING
    """The untrusted sources that children and programs have read, by call or hook."""
    above: Any = None
    """The run that started this one, while this one runs."""
    raised: frozenset[tuple[str, ...]] = frozenset()
    """Errors of foreign code that are in the log."""

    def set_parent(self, above: Run | None) -> None:
        """The run that has started this one; None when it has ended, so that a child does not keep its parent."""
        self.above = above

    def is_first(self, error: tuple[str, ...]) -> bool:
        """True when this error was not logged yet; from now on it was."""
        known, self.raised = self.raised, self.raised | {error}
        return error not in known

    def note_origins(self, key: str, origins: tuple[str, ...]) -> None:
        """Something inside this call or hook has read from these sources."""
        self.heard = {**self.heard, key: tuple(dict.fromkeys((*self.heard.get(key, ()), *origins)))}

    def add_child(self, key: str, child: tuple[CancelToken, asyncio.Future[Any]]) -> None:
        """A call or hook has started a child."""
        self.spawned = {**self.spawned, key: (*self.spawned.get(key, ()), child)}

    def take_children(self, key: str) -> tuple[Any, ...]:
        """The children of a call or hook that has ended."""
        left = self.spawned.get(key, ())
        self.spawned = {other: children for other, children in self.spawned.items() if other != key}
        return left

    def count_child_name(self, name: str) -> int:
        """How many children of this name there are, with one more."""
        number = self.named.get(name, 0) + 1
        self.named = {**self.named, name: number}
        return number

    def report(self, child: RunResult) -> None:
        """A child has ended, and with it what it leaves behind."""
        before = self.find_child_result(child.run_id)
        self.abandoned += child.abandoned if before is None else child.abandoned[len(before.abandoned) :]
        self.unsaved["abandoned"] = None
        self.add_finished_child(child)

    def add_finished_child(self, child: RunResult) -> None:
        """A child had ended before the process died: what it let go of is gone."""
        before = self.find_child_result(child.run_id)
        if before is None:
            self.children += (child,)
            self.unknown_effects += child.unknown_effects
        else:  # it had paused, and continued: it is still one child, in its place
            self.children = tuple([child if one is before else one for one in self.children])
            self.unknown_effects += child.unknown_effects[len(before.unknown_effects) :]
        self.unsaved["children"] = self.unsaved["unknown_effects"] = None

    def find_child_result(self, run_id: str) -> RunResult | None:
        """How this child had ended before; None for one that is new."""
        return next((child for child in self.children if child.run_id == run_id), None)

    def abandon(self, call_id: str, name: str, kind: str, reason: str) -> None:
        """Work that ignored its cancellation is let go; the result lists it."""
        self.abandoned += (AbandonedWork(call_id=call_id, tool_name=name, kind=kind, reason=reason),)
        self.unsaved["abandoned"] = None

    def mark_unknown(self, calls: Iterable[ToolCall]) -> None:
        """The outcome of these calls is unknown."""
        self.unknown_effects += tuple(calls)
        self.unsaved["unknown_effects"] = None

    def keep_background(self, kept: BackgroundCall) -> None:
        """A call in the background is new, or something about it is."""
        others = {one.id: one for one in self.background}
        self.background = tuple({**others, kept.id: kept}.values())
        self.unsaved["background"] = None

    def drop_background(self, name: str) -> None:
        """A call in the background never came to be."""
        self.background = tuple([one for one in self.background if one.id != name])
        self.unsaved["background"] = None

    def add_live(self, name: str, live: Any) -> None:
        """A call runs in the background from now on."""
        self.live = {**self.live, name: live}

    def drop_live(self, name: str) -> None:
        """It does not any more."""
        self.live = {other: live for other, live in self.live.items() if other != name}

    def add_unchecked(self, name: str, job: Any) -> None:
        """It has ended, and the after-hooks must look at its result before anybody else does."""
        self.unchecked = {**self.unchecked, name: job}

    def drop_unchecked(self, name: str) -> None:
        """They have, or need not."""
        self.unchecked = {other: job for other, job in self.unchecked.items() if other != name}

    def remind(self, names: Iterable[str]) -> None:
        """The model is told that it has not collected these."""
        self.reminded |= frozenset(names)

    def wake_by(self, ring: Callable[[], None] | None) -> None:
        """How to wake the run; None when it is not waiting for side work."""
        self.ring = ring


def _post(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
        loop.call_soon_threadsafe(act)


def current_scope() -> CallScope | None:
    """The place this code runs in; None outside of every run, and where the call or hook has ended."""
    place: CallScope | None = INSIDE.get()
    if place is None or place.is_open:
        return place
    place.warn()
    return None


def leave_scope() -> Any:
    """What runs from now on belongs to no place but those it opens itself; returns what `restore_scope` takes."""
    before = INSIDE.get()
    if before is not None:
        INSIDE.set(None)
    return before


def restore_scope(before: object) -> None:
    """Be in that place again."""
    if before is not None:
        INSIDE.set(before)


# --- children of a place ----------------------------------------------------------------------------------------


def attach_child(place: CallScope, token: CancelToken, child: asyncio.Future[Any]) -> None:
    """A child belongs to a place: it is stopped when that ends before it."""
    place.run.work.add_child(place.key, (token, child))


async def launch(
    place: CallScope,
    fly: Callable[[CancelToken, str], Coroutine[Any, Any, Any]],
    cancel: CancelToken | None = None,
    alone: Callable[[], Coroutine[Any, Any, Any]] | None = None,
) -> Any:
    """Start a child of a place, on the run's own loop, and wait for it; `alone` is for a place that has ended.

    It has its own task: what interrupts the child must not interrupt this run, and the other way round.
    """
    if not place.is_open:
        if alone is None:
            raise RuntimeError(f"{place.key} has ended: nothing can be started in it any more")
        place.warn()
        return await alone()
    token, let_go = link_tokens(cancel)
    name = f"{place.key}.{len(place.run.work.spawned.get(place.key, ())) + 1}"
    child = _start_child_task(place.loop, fly(token, name), "glidepath-child")
    # Before the first wait: a place that ends now must know of the child to stop it.
    attach_child(place, token, child)
    try:
        result, error = await child
    finally:
        let_go()
    if error is not None:
        raise error
    return result


def _start_child_task(
    loop: asyncio.AbstractEventLoop, flight: Coroutine[Any, Any, Any], name: str, context: Context | None = None
) -> asyncio.Task[Any]:
    """A task for a child. One that is cancelled before its first step never takes it, and is closed."""
    task = loop.create_task(_run_sheltered(flight), name=name, context=context)
    # A coroutine that never ran would warn that it was never awaited.
    task.add_done_callback(lambda _: flight.close())
    return task


async def _run_sheltered(flight: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Await a child before it takes off, too: SystemExit or Ctrl-C in a task of ours would end the event loop."""
    try:
        return await flight, None
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        return None, error


def link_tokens(*parents: CancelToken | None) -> tuple[CancelToken, Callable[[], None]]:
    """A token that follows others, and how to let go of them."""
    child = CancelToken()
    followed = [parent for parent in parents if parent is not None]

    def tell(what: str, reason: str) -> None:
        (child.cancel if what == "cancel" else child.wind_down)(reason)

    def let_go() -> None:
        for parent in followed:
            parent.unsubscribe(tell)

    for parent in followed:
        parent.subscribe(tell)
    return child, let_go


async def recall(run: Run, key: str) -> None:
    """A call or hook has ended: stop the children it left behind, and wait for them."""
    left = run.work.take_children(key)
    for token, child in left:
        if not child.done():
            token.cancel("the tool call or hook that started it has ended")
            await run.watch.wait_for_all(PATIENCE, [child])
        if not child.done():
            reason = "the tool call or hook that started it has ended"
            run.work.abandon(key, "", "child", reason)
        elif not child.cancelled():
            child.exception()  # nobody waits for it any more: what it raised is not to be reported as forgotten


# --- from another thread ----------------------------------------------------------------------------------------


class _Errand:
    """Work for the loop of a run, asked for in another thread; either that loop begins with it, or it is called off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        from concurrent.futures import Future  # only threads need it

        self.begun: Future[None] = Future()
        self.outcome: Future[Any] = Future()
        self.loop, self._work = loop, work
        self._worker = WORKER.get()
        self._context = copy_context()
        self._task: asyncio.Task[Any] | None = None

    def begin(self) -> None:
        """On the loop of the run."""
        if not self.begun.set_running_or_notify_cancel():
            return  # nobody waits for it any more
        if self._worker is not None:
            self._worker.mark_waiting()
        self._task = _start_child_task(self.loop, self._work(), "glidepath-errand", self._context)
        self._task.add_done_callback(self._on_done)
        self.begun.set_result(None)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        if self._worker is not None:
            self._worker.wake()
        result, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
        if error is None:
            self.outcome.set_result(result)
        else:
            self.outcome.set_exception(error)

    def stop(self) -> None:
        """On the loop of the run: the caller was cancelled."""
        if self._task is not None:
            self._task.cancel()


async def run_on_parent_loop(
    place: CallScope, work: Callable[[], Coroutine[Any, Any, Any]], otherwise: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Do something on the loop of a place's run, from a loop in another thread; `otherwise` when that is blocked."""
    run = place.run
    if run is None or place.mailbox is not None:
        return await otherwise()
    errand = _Errand(run.watch.loop, work)
    _post(errand.loop, errand.begin)
    begun = asyncio.wrap_future(errand.begun)
    await asyncio.wait({begun}, timeout=ANSWERS_WITHIN)
    if not begun.done() and errand.begun.cancel():
        return await otherwise()
    return await _follow_errand(errand)


async def run_on_own_loop(
    place: CallScope,
    fly: Callable[[CancelToken, Post], Coroutine[Any, Any, Any]],
    cancel: CancelToken | None,
    alone: Callable[[], Coroutine[Any, Any, Any]],
) -> Any:
    """Start a child of a place on this loop, which is not its parent's; `alone` is for a place that has ended."""
    run = place.run
    if run is None or not place.is_open:
        place.warn()
        return await alone()
    loop: asyncio.AbstractEventLoop = run.watch.loop
    post: Post = partial(_post, loop) if place.mailbox is None else place.mailbox
    token, let_go = link_tokens(cancel, run.terms.token)
    enlisted: list[asyncio.Future[None]] = []

    def begin() -> None:
        if place.is_open:
            enlisted.append(loop.create_future())
            attach_child(place, token, enlisted[0])
        else:
            token.cancel("the tool call or hook that started it has ended")

    def end() -> None:
        for future in enlisted:
            if not future.done():
                future.set_result(None)

    if place.mailbox is None:
        post(begin)
    try:
        return await fly(token, post)
    finally:
        let_go()
        post(end)


async def _follow_errand(errand: _Errand) -> Any:
    outcome: Future[Any] = errand.outcome
    waiting = asyncio.wrap_future(outcome)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not outcome.done():  # it is ours: the child lands first
            errand.loop.call_soon_threadsafe(errand.stop)
            await asyncio.wait({waiting})
        if waiting.done() and not waiting.cancelled():
            waiting.exception()
        raise


async def wait_for_budget(watch: Watch, turn: asyncio.Future[None], until: float = inf) -> bool:
    """Wait for a turn that work on other loops may have to give; True when it is time to look again, or `until`.

    False when one of those loops is blocked until this run is done, by `run_sync` in an `async def` above all: what is
    reserved there cannot come back.
    """
    loops = {*BLOCKED.get(), *_loops_above(watch)} - {watch.loop}
    if not loops and until == inf:  # nearly always
        await watch.wait(turn)
        return True
    answers: list[asyncio.AbstractEventLoop] = []
    for loop in loops:
        try:
            loop.call_soon_threadsafe(answers.append, loop)
        except RuntimeError:  # it is closed: nothing waits there
            answers.append(loop)
    watch.set_time_limit(min(ANSWERS_WITHIN if loops else inf, max(0.0, until - watch.time())))
    try:
        await watch.wait(turn)
    except asyncio.CancelledError:
        if watch.interrupt is not None or not watch.scope_hit:
            raise
        return len(answers) == len(loops) or watch.time() >= until
    finally:
        watch.end_wait()
    return True


def _loops_above(watch: Watch) -> set[asyncio.AbstractEventLoop]:
    loops, above = set(), watch.above
    while above is not None:
        loops.add(above.loop)
        above = above.above
    return loops
