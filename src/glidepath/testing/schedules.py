"""Every interleaving: tries each order in which the ready callbacks of a small asyncio program can run."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

from glidepath._wire import Value
from glidepath.testing.choosing_loop import ChoosingLoop, Names, ScheduleError
from glidepath.testing.failure_program import name_in_program, write_program
from glidepath.testing.schedule_driver import CrashHere, Driver, Follower, Pruned, Search
from glidepath.testing.sharing import Sharing
from glidepath.values import ConfigurationError

T = TypeVar("T")
R = TypeVar("R")

_DEAD_FOR = 3600.0  # virtual seconds between a crash and the next process: every lease is over


class Schedule(Value, Generic[T], frozen=True, kw_only=True):
    """One order of events: what was chosen where more than one callback was ready, and what the scenario returned."""

    choices: tuple[int, ...]
    result: T


class Explored(Value, frozen=True, kw_only=True):
    """How far an exploration went."""

    schedules: int
    deepest: int
    """The most choices that one schedule had."""
    complete: bool
    """True when every schedule was tried, but for those that differ from one that was tried only in the order of
    callbacks that touch nothing in common."""
    states: int = 0
    """Different moments: which callbacks had run, in an order that matters."""
    pruned: int = 0
    """Schedules that were given up on the way, as equal to one that was tried."""
    crashes: int = 0
    """Moments at which the process was made to die; with `survives`, those that leave different things behind."""


class Schedules(Generic[T]):
    """All schedules of a small asyncio program, one after the other: `for schedule in Schedules(scenario): ...`.

    `scenario` is called again for each schedule and returns the coroutine to run. Whenever more than one callback is
    ready, the loop branches; depth first, by running the scenario again with other choices. Time is virtual: it moves
    to the next timer when nothing is ready. So the scenario must be deterministic but for that order: no threads, no
    files or sockets, no clock but the loop's. `asyncio.to_thread` is a callback like any other here.

    `most` bounds how many schedules are tried, and `detours` how many choices of one schedule may differ from the
    order in which callbacks became ready; None tries all. `shared` are the classes of whatever the tasks that the
    scenario starts have in common, apart from futures, tasks and the primitives of asyncio: then one schedule is tried
    of all that differ only in the order of callbacks that touch nothing in common. A class that is missing there can
    hide a race; without `shared` everything counts.

    A schedule that raises, or that gets stuck, raises `ScheduleError`, which says how to `replay` it.
    """

    def __init__(
        self,
        scenario: Callable[[], Coroutine[Any, Any, T]],
        *,
        most: int = 100_000,
        detours: int | None = None,
        shared: Sequence[type] | None = None,
    ) -> None:
        if shared is not None and detours is not None:
            raise ConfigurationError("give shared=... or detours=..., not both: a bound would make the reduction wrong")
        self._scenario = scenario
        self._most = most
        self._detours = detours
        self._shared = shared

    def __iter__(self) -> Iterator[Schedule[T]]:
        yield from self._explore(Search(self._detours, reduces=self._shared is not None))

    def check(self, holds: Callable[[T], object] | None = None) -> Explored:
        """Run all schedules. `holds` looks at what the scenario returned: it raises, or returns False, if that is bad.

        Returns how many there were; raises `ScheduleError` at the first that is bad.
        """
        search = Search(self._detours, reduces=self._shared is not None)
        tried = deepest = 0
        for schedule in self._explore(search):
            tried, deepest = tried + 1, max(deepest, len(schedule.choices))
            search.take_new_states()
            self._require(holds, schedule.result, schedule.choices)
        return Explored(
            schedules=tried, deepest=deepest, complete=search.is_over, states=search.states, pruned=search.pruned
        )

    def check_crashes(
        self,
        recover: Callable[[], Coroutine[Any, Any, R]],
        holds: Callable[[R], object] | None = None,
        *,
        survives: Callable[[], Hashable] | None = None,
    ) -> Explored:
        """Let the process die in every state of every schedule, and look at what the next process makes of it.

        `recover` is called after each death, in place of what would have followed, and returns the coroutine that the
        next process runs, an hour later, on another loop; `holds` looks at its result. Nothing of the dead process
        runs before that: no `finally`, no timer. What the scenario shares with `recover`, a store for example, is
        what outlives the process.

        `survives` tells what outlives it, as something hashable: of the deaths at one virtual time that leave the same
        behind, one is tried. It has to tell everything that `recover` and `holds` look at.
        """
        left: set[Hashable] = set()

        def is_new(now: float | None = None) -> bool:
            if survives is None:
                return True
            before = len(left)
            left.add((asyncio.get_running_loop().time() if now is None else now, survives()))
            return len(left) > before

        reduces = self._shared is not None
        search = Search(self._detours, reduces=reduces, keeps=is_new)
        tried = deepest = crashes = 0
        for schedule in self._explore(search):
            tried, deepest = tried + 1, max(deepest, len(schedule.choices))
            for steps in search.take_new_states():
                crashes += self._crash(search.names, steps, recover, holds, is_new if reduces else None)
        return Explored(
            schedules=tried,
            deepest=deepest,
            complete=search.is_over,
            states=search.states,
            pruned=search.pruned,
            crashes=crashes,
        )

    def replay(self, choices: Sequence[int] = (), holds: Callable[[T], object] | None = None) -> T:
        """Run the scenario once with these choices; where they end, callbacks run in the order they became ready.

        With `holds`, what is bad raises `ScheduleError`, as in `check`.
        """
        result = self._run(Follower(choices), Names())
        self._require(holds, result, tuple(choices))
        return result

    def replay_crash(
        self,
        choices: Sequence[int],
        steps: int,
        recover: Callable[[], Coroutine[Any, Any, R]],
        holds: Callable[[R], object] | None = None,
    ) -> R:
        """Run the scenario with these choices until so many callbacks have run, then `recover`; returns its result.

        With `holds`, what is bad raises `ScheduleError`, as in `check_crashes`.
        """
        if steps < 1:
            raise ConfigurationError(f"steps={steps} is not a number of callbacks; a process can die after the first")
        result = self._die_and_recover(Follower(choices, crash_after=steps), Names(), recover)
        self._require(holds, result, tuple(choices), _Death(steps, recover))
        return result

    def _explore(self, search: Search) -> Iterator[Schedule[T]]:
        """Each schedule that is not equal to one before it."""
        tried = 0
        while tried < self._most and search.begin():
            try:
                result = self._run(search, search.names)
            except Pruned:
                search.pruned += 1
            else:
                tried += 1
                yield Schedule(choices=search.choices(), result=result)

    def _run(self, driver: Driver, names: Names) -> T:
        with ExitStack() as stack:
            loop = self._open_loop(driver, names, stack)
            runner = stack.enter_context(asyncio.Runner(loop_factory=lambda: loop))
            try:
                result = runner.run(self._scenario())
                driver.check_end()
            except Pruned:
                raise
            except (Exception, asyncio.CancelledError) as error:
                raise self._make_error(driver.choices(), error) from error
            finally:
                loop.driver = None  # what is left over is cancelled in one order
        return result

    def _open_loop(self, driver: Driver, names: Names, stack: ExitStack) -> ChoosingLoop:
        sharing = None
        if self._shared is not None and driver.needs_touches:
            sharing = Sharing(self._shared)
            stack.enter_context(sharing.install())
        return ChoosingLoop(driver, names, sharing)  # type: ignore[abstract] # files and sockets have no place in a schedule

    def _require(
        self,
        holds: Callable[[Any], object] | None,
        result: object,
        choices: tuple[int, ...],
        death: _Death | None = None,
    ) -> None:
        if holds is None:
            return
        try:
            held = holds(result)
        except Exception as error:
            raise self._make_error(choices, error, death, holds) from error
        if held is False:
            raise self._make_error(choices, f"it returned {result!r:.500}", death, holds)

    def _make_error(
        self,
        choices: tuple[int, ...],
        why: object,
        death: _Death | None = None,
        holds: Callable[[Any], object] | None = None,
    ) -> ScheduleError:
        """The error of a schedule that fails, with the program that runs it again."""
        kept = list(choices)
        while kept and not kept[-1]:  # the first one is what is taken anyway
            kept.pop()
        said = "".join(traceback.format_exception_only(why)).strip() if isinstance(why, BaseException) else str(why)
        scenario, rule = name_in_program(self._scenario, "scenario"), name_in_program(holds, "holds")
        names = [scenario, *([] if death is None else [name_in_program(death.recover, "recover")])]
        names += [rule] if rule.line else []
        given = ", ".join([f"{kept}", *([] if death is None else [f"{death.steps}"]), *[one.name for one in names[1:]]])
        how = f".{'replay' if death is None else 'replay_crash'}({given})"
        call = f"Schedules({scenario.name}){how}"
        if holds is not None and not rule.line:  # nobody can import it: what it did not like is shown
            call = f"print({call})"
        program = write_program("from glidepath.testing import Schedules", names, call)
        return ScheduleError(
            f"this schedule fails; run it again with Schedules(...){how}:\n{said}\n\n{program}", tuple(kept)
        )

    def _crash(
        self,
        names: Names,
        steps: Sequence[int],
        recover: Callable[[], Coroutine[Any, Any, R]],
        holds: Callable[[R], object] | None,
        is_new: Callable[[float], bool] | None,
    ) -> bool:
        """One death; False when it leaves what another one has left."""
        driver = Follower(numbers=steps)
        death = _Death(len(steps), recover)
        try:
            result = self._die_and_recover(driver, names, recover, is_new)
        except Pruned:
            return False
        except (Exception, asyncio.CancelledError) as error:
            raise self._make_error(driver.choices(), error, death) from error
        self._require(holds, result, driver.choices(), death)
        return True

    def _die_and_recover(
        self,
        driver: Follower,
        names: Names,
        recover: Callable[[], Coroutine[Any, Any, R]],
        is_new: Callable[[float], bool] | None = None,
    ) -> R:
        with ExitStack() as stack:
            loop = self._open_loop(driver, names, stack)
            # The dead are buried last: what they would do in a `finally` must find nothing that is still looked at.
            runner = stack.enter_context(asyncio.Runner(loop_factory=lambda: loop))
            try:
                runner.run(self._scenario())
                driver.check_end()
            except CrashHere:
                pass
            finally:
                loop.driver = None
            if is_new is not None and not is_new(loop.time()):
                raise Pruned
            later = loop.time() + _DEAD_FOR
            following = ChoosingLoop(None, Names(), now=later)  # type: ignore[abstract] # as above
            with asyncio.Runner(loop_factory=lambda: following) as next_process:
                return next_process.run(recover())


class _Death(Value, frozen=True):
    """After how many callbacks the process dies, and what the next one does."""

    steps: int
    recover: Callable[[], Coroutine[Any, Any, Any]]
