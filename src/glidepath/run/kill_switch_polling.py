"""Kill switches: looked at twenty times a second and before every spend, without ever blocking the event loop.

A switch that can block (a file on a share that has gone away) is looked at on a thread. While a switch cannot be read
nothing new is spent; when that lasts longer than the grace, the switch counts as thrown.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from glidepath.run.interrupts import Interrupt, Signal, wake_waiter
from glidepath.tools import workers_of
from glidepath.values import describe_error

if TYPE_CHECKING:
    from glidepath.run.state import Run
    from glidepath.run.watch import Watch

POLL = 0.05  # seconds between two looks
PROBE = 0.25  # seconds a look may take; one that takes longer counts as a switch that cannot be read
JOIN = 0.1  # seconds for a thread that has answered to be gone


class Switch(Protocol):
    """What a kill switch is for a run."""

    name: str
    may_block: bool
    """Looking may take long: it is done on a thread."""

    def read(self) -> bool:
        """True when it is thrown; raises when that is unknown."""
        ...

    def lookout(self) -> KillSwitchPoller:
        """How the running event loop sees it; one for all runs of the loop."""
        ...


class KillSwitchPollers:
    """The lookouts of one switch, one for each event loop that uses it."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[asyncio.AbstractEventLoop, KillSwitchPoller] = WeakKeyDictionary()

    def for_running_loop(self, switch: Switch) -> KillSwitchPoller:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        known = self._known.get(loop)
        if known is None:
            known = self._known[loop] = KillSwitchPoller(switch)
        return known


class KillSwitchPoller:
    """One switch as one event loop sees it: what was read last, and since when it cannot be read."""

    def __init__(self, switch: Switch) -> None:
        self.name = switch.name
        self.thrown = False
        self.blind_since: float | None = None
        self.why = ""
        """Why it cannot be read."""
        self.told: set[Callable[[], None]] = set()
        """Who wants to know when there is something new."""
        self._switch = switch
        self._read_at = -POLL
        self._began: float | None = None
        self._thread: threading.Thread | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def poll(self) -> None:
        """Look now; a switch that may block is being looked at from now on, and `told` is called with the result."""
        now = _now()
        if not self._switch.may_block:
            self._read_at = now
            try:
                self._note(bool(self._switch.read()), None, now)
            except BaseException as error:  # asked by a timer: SystemExit would end the event loop
                self._note(False, error, now)
        elif self._began is None:
            self._send(now)
        elif now - self._began >= PROBE and self.blind_since is None:
            self._note(False, TimeoutError(f"no answer within {PROBE} s"), self._began)

    def is_recent(self) -> bool:
        """True when it was read a moment ago, or is being read."""
        return self._began is not None or _now() - self._read_at < POLL / 2

    def answer(self) -> asyncio.Future[None] | None:
        """Look; returns what to wait for until there is a result, within a time limit. None: there is one."""
        self.poll()
        if self._began is None:
            return None
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(self._began + PROBE, self._on_late, answered)
        answered.add_done_callback(lambda _: timer.cancel())
        self._waiting.append(answered)
        return answered

    def _on_late(self, answered: asyncio.Future[None]) -> None:
        self.poll()  # which finds that it takes too long
        wake_waiter(answered)

    def is_hanging(self) -> bool:
        """True while a look is still pending."""
        return self._began is not None

    # --- on a thread ------------------------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        loop = asyncio.get_running_loop()
        busy = workers_of(loop)
        self._thread = threading.Thread(
            target=self._read_in_thread, args=(loop, busy), name="glidepath-kill-switch", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no thread left
            self._note(False, error, now)
            return
        self._began = now
        if busy is not None:
            busy.add(self)

    def _read_in_thread(self, loop: asyncio.AbstractEventLoop, busy: set[object] | None) -> None:
        thrown, error = False, None
        try:
            thrown = bool(self._switch.read())
        except BaseException as failed:
            error = failed
        try:
            loop.call_soon_threadsafe(self._came_back, busy, thrown, error)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            return

    def _came_back(self, busy: set[object] | None, thrown: bool, error: BaseException | None) -> None:
        if self._thread is not None:
            self._thread.join(JOIN)
        if busy is not None:
            busy.discard(self)
        self._began = self._thread = None
        self._read_at = now = _now()
        waiting, self._waiting = self._waiting, []
        for answered in waiting:
            wake_waiter(answered)
        # Wake the waiters first: a checkpoint then reports by itself what it has found.
        asyncio.get_running_loop().call_soon(self._note, thrown, error, now)
        self._take_reading(thrown, error, now)

    def _note(self, thrown: bool, error: BaseException | None, at: float) -> None:
        self._take_reading(thrown, error, at)
        for tell in tuple(self.told):
            tell()

    def _take_reading(self, thrown: bool, error: BaseException | None, at: float) -> None:
        self.thrown = thrown
        if error is None:
            self.blind_since = None
        else:
            self.why = describe_error(error)
            if self.blind_since is None:
                self.blind_since = at


class SpendGate:
    """Looks at the switches of one run, as long as it lasts."""

    __slots__ = ("_grace", "_handle", "_lookouts", "_waiting", "_watch")

    def __init__(self, watch: Watch, switches: tuple[Switch, ...], grace: float) -> None:
        self._watch = watch
        self._grace = grace
        self._lookouts = tuple([switch.lookout() for switch in switches])
        self._waiting: asyncio.Future[None] | None = None
        for lookout in self._lookouts:
            lookout.told.add(self._judge)
        self._handle: asyncio.TimerHandle | None = watch.loop.call_later(POLL, self._poll_all)

    @property
    def blind(self) -> bool:
        """True while a switch cannot be read: nothing new may be spent."""
        return any(lookout.blind_since is not None for lookout in self._lookouts)

    def _poll_all(self) -> None:
        self._handle = self._watch.loop.call_later(POLL, self._poll_all)
        for lookout in self._lookouts:
            if lookout.is_hanging() or not lookout.is_recent():
                lookout.poll()
        self._judge()

    def _judge(self) -> None:
        """Stop the run when a switch is thrown, or could not be read for too long; else let it wait or continue."""
        watch = self._watch
        now = watch.time() + 1e-9
        for lookout in self._lookouts:
            if lookout.thrown:
                self._stop(lookout.name, "the kill switch was thrown")
            elif lookout.blind_since is not None and now - lookout.blind_since >= self._grace:
                reason = f"the kill switch could not be read for {self._grace:g} s and counts as thrown: {lookout.why}"
                self._stop(lookout.name, reason)
        if self._waiting is not None and (watch.interrupt is not None or not self.blind):
            wake_waiter(self._waiting)

    def _stop(self, name: str, reason: str) -> None:
        self._watch.raise_interrupt(Interrupt(Signal.CANCEL, name, reason))

    async def wait_until_clear(self, run: Run) -> None:
        """Return when something new may be spent; raises `Touchdown` when the run is being stopped."""
        watch = self._watch
        with suppress(asyncio.CancelledError):  # which is known to the watch by then
            for lookout in self._lookouts:
                answer = lookout.answer()
                if answer is not None:
                    await watch.wait(answer)
            self._judge()
            while self.blind and watch.interrupt is None:
                self._waiting = watch.loop.create_future()
                try:
                    await watch.wait(self._waiting)
                finally:
                    self._waiting = None
        if watch.is_halted():
            raise run.make_interrupt()

    async def close(self, run: Run) -> None:
        """The run is over. A pending look gets a moment, and is then listed as abandoned."""
        self.stop()
        for lookout in self._lookouts:
            if lookout.is_hanging() and not lookout.told:  # else another run still waits for it
                answer = lookout.answer()
                with suppress(asyncio.CancelledError):  # which is known to the watch by then
                    if answer is not None:
                        await self._watch.wait(answer)
            if lookout.is_hanging() and not lookout.told:
                reason = f"checking the kill switch hung: {lookout.why}"
                run.work.abandon("", lookout.name, "thread", reason)

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        for lookout in self._lookouts:
            lookout.told.discard(self._judge)


def _now() -> float:
    return asyncio.get_running_loop().time()  # not kept: a reference would keep the loop alive
