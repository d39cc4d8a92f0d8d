"""Who chooses the next callback of a schedule: a search through all of them, or one that repeats.

The search is depth first. Two orders of the same callbacks that differ only where neighbors touch nothing in common
lead to the same state, so one of them is enough. Two things find it:

- Source sets (Abdulla, Aronis, Jonsson, Sagonas): in a state only one callback is tried at first. When a schedule is
  over, its races are looked at: two callbacks that depend on each other, with nothing between them that orders them.
  Where the first of the two was chosen, what leads to the other order is wanted, too.
- Sleep sets (Godefroid): once a callback has been tried in a state, it sleeps in what is tried there next, and wakes
  when something runs on which it depends. A state in which all that is ready sleeps has been seen; the schedule is
  given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from glidepath.testing.choosing_loop import Chooser, Names, ScheduledStep, ScheduleError
from glidepath.testing.sharing import Touches

_NOT_THE_SAME = (
    "the scenario is not the same each time; look for a thread, a real clock, or something kept from the last schedule"
)


class Pruned(BaseException):
    """This schedule is equal to one that was tried."""


class CrashHere(BaseException):
    """The process dies now."""


class Driver(Chooser, Protocol):
    """Who chooses, and knows what was chosen."""

    needs_touches: bool

    def check_end(self) -> None:
        """The scenario is over: raises `ScheduleError` when not everything that was to come has come."""

    def choices(self) -> tuple[int, ...]:
        """What was chosen so far, where there was a choice."""


class Follower:
    """Repeats a schedule: by its choices, or by the numbers of its callbacks; then callbacks run in order."""

    needs_touches = False

    def __init__(
        self, choices: Sequence[int] = (), *, numbers: Sequence[int] | None = None, crash_after: int | None = None
    ) -> None:
        self.crash_after = len(numbers) if numbers is not None else crash_after
        self._given = choices
        self._numbers = numbers
        self._taken: list[int] = []
        self._steps = 0

    def choose(self, ready: Sequence[ScheduledStep]) -> int:
        """As it was."""
        choice = self._find(ready)
        if len(ready) > 1:
            self._taken.append(choice)
        return choice

    def _find(self, ready: Sequence[ScheduledStep]) -> int:
        if self._numbers is not None:
            wanted = self._numbers[self._steps]
            found = [place for place, step in enumerate(ready) if step.number == wanted]
            if not found:
                raise ScheduleError(f"callback {self._steps} is not ready this time: {_NOT_THE_SAME}")
            return found[0]
        place = len(self._taken)
        choice = self._given[place] if place < len(self._given) and len(ready) > 1 else 0
        if choice >= len(ready):
            raise ScheduleError(
                f"choice {place} is {choice}, and only {len(ready)} callbacks are ready there: {_NOT_THE_SAME}"
            )
        return choice

    def finish(self, _step: ScheduledStep, /) -> None:
        """Count it; die if it was the last."""
        self._steps += 1
        if self._steps == self.crash_after:
            raise CrashHere

    def check_end(self) -> None:
        """All choices were there."""
        if len(self._taken) < len(self._given):
            raise ScheduleError(f"only {len(self._taken)} of {len(self._given)} choices were there: {_NOT_THE_SAME}")
        if self.crash_after is not None and self._steps < self.crash_after:
            raise ScheduleError(f"the scenario ends after {self._steps} callbacks, before {self.crash_after}")

    def choices(self) -> tuple[int, ...]:
        """What was chosen, where there was a choice."""
        return tuple(self._taken)


class _Fork:
    """A state in which more than one callback was ready: what sleeps there, what was tried, what is tried now."""

    __slots__ = ("choice", "ready", "sleeping", "touches", "tried", "wanted")

    def __init__(self, ready: tuple[int, ...], sleeping: dict[int, Touches | None], choice: int) -> None:
        self.ready = ready
        self.sleeping = sleeping
        self.choice = choice
        self.wanted = {ready[choice]}  # what has to be tried here, with the reduction
        self.tried: dict[int, Touches | None] = {}
        self.touches: Touches | None = None


class Search:
    """Depth first through all schedules; one object for a whole exploration, begun again for each schedule.

    `reduces`: callbacks tell what they touch. `keeps`: the states are wanted themselves, and not only their number;
    without reduction it is asked in each of them whether this one is.
    """

    needs_touches = True

    def __init__(self, detours: int | None, *, reduces: bool, keeps: Callable[[], bool] | None = None) -> None:
        self.names = Names()
        self.pruned = 0
        self.states = 0
        self.is_over = False
        self._reduces = reduces
        self._keeps = keeps
        self._known: set[frozenset[int]] = set()  # states by their last events
        self._new: list[tuple[int, ...]] = []
        self._events: dict[tuple[int, frozenset[int]], int] = {}
        self._detours = detours
        self._path: list[_Fork] = []
        self._has_begun = False
        self._start()

    def _start(self) -> None:
        self._depth = 0
        self._new_from = len(self._path)
        self._at: _Fork | None = None
        self._sleeping: dict[int, Touches | None] = {}
        self._ran: list[int] = []
        self._ran_at: list[float] = []
        self._makers: list[int] = []
        self._forks: dict[int, _Fork] = {}  # by how many callbacks had run
        self._trace: list[tuple[int, frozenset[int], Touches | None]] = []  # event, its causes, what it touched

    def begin(self) -> bool:
        """Turn to the next schedule; False when there is none."""
        if self._has_begun:
            if self._reduces:
                self._note_races()
            if not self._turn_back():
                self.is_over = True
                return False
        self._has_begun = True
        self._start()
        return True

    def _turn_back(self) -> bool:
        """Take the next branch of the deepest fork that has one."""
        while self._path:
            fork = self._path[-1]
            fork.tried[fork.ready[fork.choice]] = fork.touches
            spent = sum(1 for one in self._path[:-1] if one.choice)
            if self._detours is None or spent < self._detours:
                for place, number in enumerate(fork.ready):
                    is_wanted = not self._reduces or number in fork.wanted
                    if is_wanted and number not in fork.tried and number not in fork.sleeping:
                        fork.choice = place
                        return True
            self._path.pop()
        return False

    def choose(self, ready: Sequence[ScheduledStep]) -> int:
        """As the path says; past its end, the first that does not sleep."""
        self._at = None
        if len(ready) == 1:
            if ready[0].number in self._sleeping:
                raise Pruned
            return 0
        numbers = tuple(step.number for step in ready)
        if self._depth == len(self._path):
            awake = [place for place, number in enumerate(numbers) if number not in self._sleeping]
            if not awake:
                raise Pruned
            self._path.append(_Fork(numbers, dict(self._sleeping), awake[0]))
        fork = self._at = self._forks[len(self._ran)] = self._path[self._depth]
        self._depth += 1
        if fork.ready != numbers:
            raise ScheduleError(f"other callbacks are ready at choice {self._depth - 1}: {_NOT_THE_SAME}")
        return fork.choice

    def finish(self, step: ScheduledStep, /) -> None:
        """Wake what depends on it, and note the state that is reached."""
        self._ran.append(step.number)
        if self._reduces:
            self._ran_at.append(asyncio.get_running_loop().time())
            self._makers.append(step.maker)
            self._wake(step)
        elif self._depth >= self._new_from:  # each order leads to another state
            self.states += 1
            if self._keeps is not None and self._keeps():
                self._new.append(tuple(self._ran))

    def _wake(self, step: ScheduledStep) -> None:
        touches: Touches = step.touches
        sleeping = self._sleeping
        if self._at is not None:
            self._at.touches = touches
            sleeping = {**self._at.sleeping, **self._at.tried}
        self._sleeping = {
            number: one for number, one in sleeping.items() if number != step.number and not _depends(one, touches)
        }
        now = self._ran_at[-1]
        ran = zip(self._ran, self._ran_at, self._trace, strict=False)  # it is the last that ran: not yet in the trace
        causes = frozenset(
            event
            for number, at, (event, _, one) in ran
            # Time moves only when nothing is ready: whatever ran earlier has to run before.
            if number == step.maker or at < now or _depends(one, touches)
        )
        event = self._events.setdefault((step.number, causes), len(self._events))
        self._trace.append((event, causes, touches))

    def _note_races(self) -> None:
        """Where two callbacks of the last schedule could have run in the other order, have that order tried, too."""
        places = {number: place for place, number in enumerate(self._ran)}
        before: list[int] = []  # for each callback, all that have to run before it, as bits
        for place, (_, _, touches) in enumerate(self._trace):
            made_by = places.get(self._makers[place])
            made = 0 if made_by is None else before[made_by] | 1 << made_by
            depends = [one for one in range(place) if _depends(self._trace[one][2], touches)]
            everything = made
            for one in depends:
                everything |= before[one] | 1 << one
            before.append(everything)
            for one in depends:
                fork = self._forks.get(one)
                # In the same moment of time, and not made by it, nor by anything that comes of it.
                is_free = not made >> one & 1 and self._ran_at[one] == self._ran_at[place]
                if fork is not None and is_free and not any(before[other] >> one & 1 for other in depends):
                    self._want_other_order(fork, before, one, place)

    def _want_other_order(self, fork: _Fork, before: Sequence[int], first: int, second: int) -> None:
        """Of what does not come of the first and leads to the second, something that can run in its place is wanted."""
        free = [place for place in range(first + 1, second) if not before[place] >> first & 1]
        free.append(second)
        among = sum(1 << place for place in free)
        starts = [self._ran[place] for place in free if not before[place] & among]
        ready = [number for number in fork.ready if number in starts]
        if not ready:
            fork.wanted.update(fork.ready)
        elif fork.wanted.isdisjoint(ready):
            fork.wanted.add(ready[0])

    def take_new_states(self) -> Sequence[tuple[int, ...]]:
        """The states that the last schedule added, each as the numbers of the callbacks that lead to it, in order."""
        self._add_states()
        new, self._new = self._new, []
        return new

    def _add_states(self) -> None:
        """Every state that some order of this schedule's callbacks passes through: all that have their causes."""
        trace = self._trace
        before: list[frozenset[int]] = [frozenset()] if self._reduces else []
        seen = set(before)
        while before:
            reached = before.pop()
            for event, causes, _ in trace:
                state = reached | {event}
                if event in reached or state in seen or not causes <= reached:
                    continue
                seen.add(state)
                before.append(state)
                # An event stands for all its causes, so the last ones say it all.
                last = state.difference(*[one for event, one, _ in trace if event in state])
                if last not in self._known:
                    self._known.add(last)
                    self.states += 1
                    if self._keeps is not None:
                        ran = zip(self._ran, trace, strict=True)
                        self._new.append(tuple(number for number, (event, _, _) in ran if event in state))

    def check_end(self) -> None:
        """Every choice of the path was there."""
        if self._depth < len(self._path):
            raise ScheduleError(f"only {self._depth} of {len(self._path)} choices were there: {_NOT_THE_SAME}")

    def choices(self) -> tuple[int, ...]:
        """What was chosen, where there was a choice."""
        return tuple(fork.choice for fork in self._path[: self._depth])


def _depends(one: Touches | None, other: Touches | None) -> bool:
    return one is None or other is None or one.depends_on(other)
