"""Turbulence: processes share a store, while clocks, the network and the processes themselves fail, by seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Protocol

from glidepath._wire import Value
from glidepath.testing.clock import VirtualClock
from glidepath.testing.failure_program import name_in_program, write_program
from glidepath.testing.simulated_link import SimulatedClock
from glidepath.testing.turbulence_record import TurbulenceRecord, Violation
from glidepath.testing.turbulent_process import LIMIT, SESSIONS, TurbulentProcess
from glidepath.values import ConfigurationError

_EPOCH = 1_800_000_000.0
_AFTER = 60.0  # seconds after the last trouble: every lease is over
_CALM = 0.2  # of the seeds: without trouble, for the rules that have no excuse then
_WITHOUT = 0.5  # of the other seeds lack any one kind of trouble: all of them at once hide what a few would show
_CROWDED = 0.5  # of the seeds have one session, or one run in each process, for all that happens
_JOURNALS: tuple[tuple[str, int], ...] = (("claim", 5), ("write", 12), ("beat", 3), ("release", 2), ("read", 2))
_WALLETS: tuple[tuple[str, int], ...] = (
    ("draw", 10),
    ("spend", 8),
    ("settle", 3),
    ("resume", 2),
    ("sweep", 2),
    ("look", 3),
)
_ALWAYS = ("claim", "write", "draw", "spend", "wait")
_TROUBLE = (
    ("wait", 4),
    ("lose_request", 1),
    ("lose_reply", 2),
    ("late", 2),
    ("repeat", 1),
    ("part", 1),
    ("step_clock", 1),
    ("drift", 1),
    ("suspend", 1),
    ("die", 1),
)
_SECONDS = {
    "wait": (0.1, 0.5, 3.0, 11.0),
    "late": (0.5, 2.0, 12.0),
    "part": (0.5, 4.0, 15.0),
    "step_clock": (-3600.0, -5.0, 5.0, 3600.0),
    "drift": (0.5, 0.99, 1.01, 2.0),
    "suspend": (1.0, 12.0, 40.0),
}


class Happening(Value, frozen=True):
    """One thing that happens: `process` does it, or it happens to that one. Its repr is how to say it in a program.

    `name` is a session for `claim`, `write` and `release`, and a run for `draw`, `spend`, `settle` and `resume`;
    `amount` is tokens for those, and seconds (a rate, for `drift`) for trouble.
    """

    kind: str
    process: int = 0
    name: str = ""
    amount: float = 0.0


class TurbulenceError(AssertionError):
    """A store broke a promise. `happenings` is the shortest way there that was found; the message is a program."""

    def __init__(self, message: str, seed: int | None, happenings: Sequence[Happening], rules: Sequence[str]) -> None:
        super().__init__(message)
        self.seed = seed
        self.happenings = tuple(happenings)
        self.rules = tuple(rules)


class Weathered(Value, frozen=True, kw_only=True):
    """How much was tried."""

    seeds: int
    happenings: int
    """All that happened, in all seeds."""
    requests: int
    """How many of them reached the store."""


class StoreMaker(Protocol):
    """Makes the store of one process; see `Turbulence`."""

    def __call__(self, clock: Callable[[], float], /) -> Any:
        """A store object on the data of this world, by the clock of the process that uses it."""
        ...


class Turbulence:
    """Tries a store with a lease of 10 seconds from several processes at once, in virtual time.

    `world` is called once for each seed, with the clock of the machine that the data is on, and returns a function that
    is called for each process, also for one that takes the place of a dead one, with that process's clock: it returns a
    store object on the same data. Names of owners are of no process on this host, so that a dead one is only silent.
    `wallets=True` tries a `WalletStore`, else it is a `SessionStore`.

    Requests are lost, late, repeated or without a reply; clocks step and drift; processes are parted from the store,
    suspended, and die. Whatever happens, the rules in `turbulence_record` hold.
    """

    def __init__(
        self, world: Callable[[Callable[[], float]], StoreMaker], *, wallets: bool = False, processes: int = 3
    ) -> None:
        if processes < 1:
            raise ConfigurationError(f"processes={processes} is not a number of processes; use at least 1")
        self._world = world
        self._wallets = wallets
        self._processes = processes

    def happenings(self, seed: int, count: int = 60) -> tuple[Happening, ...]:
        """What happens with this seed: of some of the kinds only, so that each seed is another kind of weather."""
        chance = Random(seed)  # noqa: S311 - chosen by seed, not secret
        # Some seeds are calm, so that rules without an excuse are tried as well.
        is_calm = chance.random() < _CALM
        kinds = [*(_WALLETS if self._wallets else _JOURNALS), *(_TROUBLE[:1] if is_calm else _TROUBLE)]
        kinds = [one for one in kinds if one[0] in _ALWAYS or is_calm or chance.random() >= _WITHOUT]
        if is_calm:  # nobody writes off a run that is only silent
            kinds = [one for one in kinds if one[0] != "sweep"]
        names, weights = [name for name, _ in kinds], [weight for _, weight in kinds]
        places = 1 if chance.random() < _CROWDED else 2
        return tuple([self._make(chance, chance.choices(names, weights)[0], places) for _ in range(count)])

    def _make(self, chance: Random, kind: str, places: int) -> Happening:
        process = chance.randrange(self._processes)
        if kind in _SECONDS:
            return Happening(kind, process, "", chance.choice(_SECONDS[kind]))
        if kind in ("claim", "write", "release"):
            return Happening(kind, process, SESSIONS[chance.randrange(places)])
        if kind in ("draw", "spend", "settle", "resume"):
            return Happening(kind, process, f"r{chance.randrange(places)}", chance.randint(1, LIMIT // 2))
        return Happening(kind, process)

    def check(self, seeds: Iterable[int], *, rules: Sequence[str] | None = None) -> Weathered:
        """Try these seeds; raises `TurbulenceError` for the first that breaks one of these rules, or any, minimized."""
        tried = happened = requests = 0
        for seed in seeds:
            happenings = self.happenings(seed)
            record, found = self._run(happenings, seed, rules)
            if found:
                shortest = self._minimize(happenings, seed, [one.rule for one in found])
                raise self._make_error(shortest, seed, rules)
            tried, happened, requests = tried + 1, happened + len(happenings), requests + record.requests
        return Weathered(seeds=tried, happenings=happened, requests=requests)

    def replay(self, happenings: Sequence[Happening], *, seed: int = 0) -> None:
        """Have exactly this happen; raises `TurbulenceError` if it breaks a rule. `seed` is of the network's delays."""
        if self._run(happenings, seed, None)[1]:
            raise self._make_error(happenings, seed, None)

    def _minimize(self, happenings: Sequence[Happening], seed: int, rules: Sequence[str]) -> Sequence[Happening]:
        """Leave out whatever is not needed to break one of these rules: halves first, then smaller parts."""
        left, size = list(happenings), max(1, len(happenings) // 2)
        while size:
            at = 0
            while at < len(left):
                fewer = left[:at] + left[at + size :]
                if self._run(fewer, seed, rules)[1]:
                    left = fewer
                else:
                    at += size
            size //= 2
        return left

    def _make_error(self, happenings: Sequence[Happening], seed: int, rules: Sequence[str] | None) -> TurbulenceError:
        found = self._run(happenings, seed, rules)[1]
        broken = "\n".join(f"  {one.rule}: {one.text}" for one in found)
        names = [one.rule for one in found]
        steps = "".join(f"    {one!r},\n" for one in happenings)
        options = ", wallets=True" if self._wallets else ""
        options += f", processes={self._processes}" if self._processes != 3 else ""  # noqa: PLR2004 - the default
        world = name_in_program(self._world, "world")
        program = write_program(
            "from glidepath.testing import Happening, Turbulence",
            [world],
            f"Turbulence({world.name}{options}).replay([\n{steps}], seed={seed})",
        )
        return TurbulenceError(f"seed {seed} breaks\n{broken}\n\n{program}", seed, happenings, names)

    def _run(
        self, happenings: Sequence[Happening], seed: int, rules: Sequence[str] | None
    ) -> tuple[TurbulenceRecord, list[Violation]]:
        record = TurbulenceRecord()
        VirtualClock(seed=seed).run(self._live(happenings, seed, record))
        return record, [one for one in record.violations if rules is None or one.rule in rules]

    async def _live(self, happenings: Sequence[Happening], seed: int, record: TurbulenceRecord) -> None:
        truth = SimulatedClock(_EPOCH)
        make = self._world(truth)
        record.may_trust_clocks = not any(one.kind in ("step_clock", "drift") for one in happenings)
        members = [
            TurbulentProcess(number, make, SimulatedClock(_EPOCH), record, Random(f"{seed}/{number}"))  # noqa: S311
            for number in range(self._processes)
        ]
        for one in happenings:
            if one.kind == "wait":
                await asyncio.sleep(one.amount)
            elif one.process < len(members):
                members[one.process].take(one)
                await asyncio.sleep(0)
        for member in members:
            await member.finish(in_peace=self._wallets)
        await asyncio.sleep(_AFTER)
        later = TurbulentProcess(len(members), make, SimulatedClock(_EPOCH), record, Random(seed))  # noqa: S311
        await (later.inspect_wallets() if self._wallets else later.inspect_journals())
        for member in (*members, later):
            await member.close()
