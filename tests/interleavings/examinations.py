"""Everything that is tried: in every order, and by seed. The same examinations look for the planted bugs.

Each has two sizes: a small one for the suite, and the whole one for the campaign. It returns how much it tried, and
raises for what it found.
"""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.crash.power import cut_power

from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import Schedules, Turbulence

from .durable import ApprovalWorld, HandoffWorld, dying, dying_family, keeping_their_own_journals
from .flights import TROUBLES, try_flight
from .group_commits import PASSES, cut_groups, try_groups
from .on_wallets import letting_go, on_one_wallet, unequal
from .scenarios import (
    behind_gates,
    hold_gates,
    hold_the_budget,
    parents_with_children,
    sharing_one_budget,
    taking_time,
)

ENOUGH_FOR_TWO = 2_200
EVERYTHING = 10**7


@dataclass(frozen=True)
class Examination:
    """What is tried, with which bound, and the function that tries it; `whole` is for the campaign."""

    name: str
    bound: str
    run: Callable[[bool], dict[str, int]]
    cost: float
    """Seconds of the small one, about: the cheap ones look for planted bugs first."""


EXAMINATIONS: list[Examination] = []


def examines(name, bound, cost=1.0):
    def note(run):
        EXAMINATIONS.append(Examination(name, bound, run, cost))
        return run

    return note


def count(*explored):
    """How much several explorations have tried."""
    assert all(one.complete for one in explored), explored
    return {
        "schedules": sum(one.schedules for one in explored),
        "states": sum(one.states for one in explored),
        "deaths": sum(one.crashes for one in explored),
    }


# --- every order ------------------------------------------------------------------------------------------------------


def share(agents, calls, limit, *, detours=None, answers=False, **more):
    """Agents on one budget, in every order."""
    scenario = sharing_one_budget(agents, calls, limit, **more)
    return Schedules(scenario, detours=detours, most=EVERYTHING).check(
        hold_the_budget(limit, everybody_answers=answers)
    )


@examines("2 agents, 2 calls each, on one budget", "every order", cost=0.4)
def two_agents(whole):
    limits = (1_300, ENOUGH_FOR_TWO, 9_000) if whole else (1_300, ENOUGH_FOR_TWO)
    return count(*[share(2, 2, limit, answers=limit >= ENOUGH_FOR_TWO) for limit in limits])


@examines("2 agents, 2 calls each; one is cancelled", "every order", cost=0.5)
def one_is_cancelled(whole):
    return count(share(2, 2, ENOUGH_FOR_TWO, cancelled=True, detours=None if whole else 3))


@examines("3 agents, 1 call each; one must wait to start", "every order", cost=0.6)
def three_agents(whole):
    return count(*[share(3, 1, limit) for limit in ((3_300, 1_900) if whole else (1_900,))])


@examines("3 agents, 3 calls each", "at most 2 preemptions", cost=0.1)
def three_with_three(whole):
    return count(share(3, 3, 5_000, detours=2 if whole else 1))


@examines("3 agents whose calls take time, on every budget", "in turn; at most 2 preemptions on two of them", cost=0.6)
def tight_budgets(whole):
    limits = range(1_200, 4_200, 60)
    return count(
        *[taking(limit, 0) for limit in limits],
        *[taking(limit, 2 if whole else 1) for limit in limits[10::30]],
    )


def taking(limit, detours, **more):
    schedules = Schedules(taking_time(3, 2, limit, greedy=limit % 120 == 0, **more), detours=detours, most=EVERYTHING)
    return schedules.check(hold_the_budget(limit, everybody_answers=False))


@examines("an agent whose tool starts 2 agents on its budget", "at most 2 preemptions", cost=0.1)
def a_family(whole):
    return count(*[family(limit, 1, 2, detours=2 if whole else 1) for limit in (1_500, 3_000, 6_000)])


@examines(
    "2 agents, each with a tool that starts another, on every budget",
    "in turn; at most 2 preemptions on four of them",
    cost=0.5,
)
def two_families(whole):
    limits = range(900, 5_400, 60)
    return count(
        *[family(limit, 2, 1, detours=0) for limit in limits],
        *[family(limit, 2, 1, detours=2 if whole else 1) for limit in limits[10::20]],
    )


def family(limit, parents, children, *, detours, **more):
    return Schedules(parents_with_children(limit, parents, children, **more), detours=detours, most=EVERYTHING).check()


@examines(
    "agents, families and wallets whose limit is in dollars", "in turn; every order of 2 agents, 2 calls each", cost=0.9
)
def in_dollars(whole):
    limits = range(1_200, 4_200, 120 if whole else 600)
    members = ((None, None), (2, None))
    return count(
        *[share(2, 2, limit, detours=None if whole else 2, in_money=True) for limit in (1_300, ENOUGH_FOR_TWO)],
        *[taking(limit, 0, in_money=True) for limit in limits],
        *[family(limit, parents, 3 - parents, detours=0, in_money=True) for limit in limits for parents in (1, 2)],
        *[run_all(on_one_wallet(limit, who, in_money=True), 0) for who in members for limit in limits],
    )


@examines("agents and programs that share a number of calls", "every order; 2 preemptions behind a gate", cost=0.5)
def sharing_calls(whole):
    turns = (1, 2, 3, 4, 5) if whole else (2, 3)
    detours = 2 if whole else 1
    return count(
        *[share(2, 2, 9_000, turns=most, detours=None if whole else 2) for most in turns],
        *[gates(detours, most_calls=most, limit=9_000, family=family) for most in turns for family in (True, False)],
        *[gates(0, most_calls=most, limit=9_000, family=True, trouble="refused") for most in turns],
    )


@examines("programs behind gates whose limit is in dollars", "in turn; at most 2 preemptions on 2 budgets", cost=0.5)
def gates_in_dollars(whole):
    limits = range(1_000, 4_000, 150 if whole else 600)
    return count(
        *[
            gates(2 if whole else 1, in_money=True, **one)
            for one in ({"shared": 1_500}, {"limit": 2_000, "family": True})
        ],
        *[gates(0, in_money=True, shared=limit, trouble=trouble) for limit in limits for trouble in (None, "refused")],
        *[gates(0, in_money=True, wallet=limit, gates=2) for limit in limits],
    )


@examines("an agent with large calls and two with many small ones, on every budget", "in turn", cost=0.3)
def unequal_calls(whole):
    return count(*[run_all(unequal(limit), 0) for limit in range(1_500, 9_000, 50 if whole else 100)])


@examines(
    "agents and families of several processes on one wallet, whatever is in it",
    "in turn; at most 1 preemption on three of them",
    cost=0.8,
)
def processes_on_a_wallet(whole):
    kinds = ((None, None), (None, None, None), (2, None), (1, 1))
    limits = range(1_000, 9_000, 200 if whole else 400)
    return count(
        *[run_all(on_one_wallet(limit, members), 0) for members, limit in itertools.product(kinds, limits)],
        *[run_all(on_one_wallet(limit, members, greedy="at times"), 0) for members in kinds[2:] for limit in limits],
        *[run_all(on_one_wallet(limit, kinds[2]), 1) for limit in ((2_200, 3_400, 5_000) if whole else (3_400,))],
    )


@examines("a run on a wallet is cancelled while its child is at work", "at most 1 preemption", cost=0.3)
def children_that_go_on(whole):
    limits = range(2_000, 8_000, 500 if whole else 2_000)
    return count(*[run_all(letting_go(limit, after), 1) for limit in limits for after in (1.0, 2.0, 4.5)])


def run_all(scenario, detours):
    return Schedules(scenario, detours=detours, most=EVERYTHING).check()


@examines("1 durable run on a wallet; its process dies in every state", "every order", cost=0.2)
def one_run_dies(whole):
    return count(*[dying(3_000, calls, "a").check() for calls in ((2, 3) if whole else (2,))])


@examines("2 durable runs with journals of their own, 1 call each, on one wallet", "every order, reduced", cost=0.5)
def two_durable_runs(whole):
    schedules = Schedules(
        keeping_their_own_journals(4_000, 1, "ab"), most=EVERYTHING if whole else 60, shared=[MemoryStore]
    )
    explored = schedules.check()
    assert explored.complete is whole
    return {"schedules": explored.schedules, "states": explored.states}


@examines(
    "2 durable runs on a wallet, 2 calls each; the process dies in every state", "at most 2 preemptions", cost=0.3
)
def two_runs_die(whole):
    return count(dying(4_000, 2 if whole else 1, "ab", detours=2 if whole else 1).check())


@examines("3 durable runs on a wallet, 1 call each; the process dies in every state", "at most 2 preemptions", cost=0.3)
def three_runs_die(whole):
    return count(dying(4_000, 1, "abc", detours=2 if whole else 0).check())


@examines("a durable run is handed to another agent; its process dies in every state", "every order", cost=0.1)
def a_handoff_dies(whole):
    return count(dying_family(HandoffWorld, detours=None if whole else 2).check())


@examines(
    "a child waits for a person, and continues; its process dies in every state", "at most 6 preemptions", cost=0.2
)
def an_approval_dies(whole):
    return count(dying_family(ApprovalWorld, detours=6 if whole else 1).check())


@examines("2 programs behind a gate, 2 calls each, on one budget", "every order, where one limit is tight", cost=0.35)
def two_programs(whole):
    tight = [{"shared": 1_500}, {"limit": 2_000, "family": True}, {"limit": 1_200, "family": True}]
    loose = [{"shared": 2_000}, {"limit": 2_000}, {"shared": 5_000, "reply": (600, 600)}]
    explored = [gates(None, **budgets) for budgets in (tight if whole else tight[1:])]
    return count(*explored, *[gates(3 if whole else 1, **budgets) for budgets in loose])


@examines(
    "programs that leave, are stopped, landed or refused", "in turn; at most 2 preemptions on 3 budgets", cost=0.4
)
def troubled_programs(whole):
    troubles = ("leaves", "stopped", "landed", "refused")
    some = ({"shared": 2_000}, {"limit": 2_500, "family": True}, {"shared": 2_500})
    every = [{"shared": limit} for limit in range(1_000, 4_000, 150)]
    every += [{"limit": limit, "family": True} for limit in range(1_000, 4_000, 300)]
    return count(
        *[gates(2 if whole else 1, trouble=trouble, **one) for trouble, one in itertools.product(troubles, some)],
        *[gates(0, trouble=trouble, **one) for trouble, one in itertools.product((None, *troubles), every)],
    )


@examines("2 gates on one wallet", "at most 2 preemptions; in turn where replies grow and wait", cost=0.3)
def two_gates(whole):
    explored = [gates(2 if whole else 1, wallet=wallet, gates=2) for wallet in (2_000, 4_000)]
    growing = [gates(0, wallet=wallet, gates=2, reply=(1_800, 1_800)) for wallet in range(3_000, 9_000, 1_000)]
    moved = [gates(1 if whole else 0, wallet=wallet, trouble="moved") for wallet in (2_000, 3_000, 6_000)]
    return count(*explored, *growing, *moved)


@examines("2 gates, each with a share of one window", "at most 2 preemptions on one window; in turn", cost=0.3)
def shares_of_a_window(whole):
    shares = [(window, share) for window in range(2_000, 6_001, 500) for share in (1_000, 2_000, 3_000)]
    explored = [gates(0, wallet=window, share=share, gates=2) for window, share in shares[:: 1 if whole else 3]]
    return count(*explored, gates(2 if whole else 1, wallet=4_000, share=2_000, gates=2))


def gates(detours, **options):
    scenario = behind_gates(2, 2, **options)
    return Schedules(scenario, detours=detours, most=EVERYTHING).check(hold_gates())


# --- by seed ----------------------------------------------------------------------------------------------------------


def in_memory(clock):
    store = MemoryStore(lease=10.0, clock=clock)
    return lambda _: store


def in_files(folder, clock):
    path = Path(tempfile.mkdtemp(dir=folder)) / "s.db"
    return lambda own: SqliteStore(path, lease=10.0, clock=own)


def weather(world, seeds):
    found = [Turbulence(world, wallets=wallets).check(range(seeds)) for wallets in (False, True)]
    return {"seeds": 2 * seeds, "requests": sum(one.requests for one in found)}


@examines("turbulence: journals and wallets in memory", "3 processes, 60 happenings a seed", cost=0.2)
def turbulence_in_memory(whole):
    return weather(in_memory, 1_000 if whole else 120)


@examines("turbulence: journals and wallets in one SQLite file", "3 processes, 60 happenings a seed", cost=0.7)
def turbulence_in_sqlite(whole):
    with tempfile.TemporaryDirectory() as folder:
        return weather(partial(in_files, folder), 300 if whole else 12)


@examines("3 durable agents whose ways to the store fail; others take over", "12 troubles a seed", cost=0.4)
def flights(whole):
    return try_seeds(try_flight, range(200 if whole else 25), TROUBLES)


def try_seeds(attempt, seeds, troubles):
    """Each seed; of one that fails, what is not needed is left out, and the program that repeats it is said."""
    for seed in seeds:
        try:
            attempt(seed)
        except BaseException as error:
            only, least = leave_out(attempt, seed, range(troubles), error)
            call = f"{attempt.__name__}({seed}, only={[*only]})"
            program = f"from {attempt.__module__} import {attempt.__name__}\n\n{call}"
            raise AssertionError(f"seed {seed}: {type(least).__name__}: {least}\n\n{program}") from error
    return {"seeds": len(seeds)}


def leave_out(attempt, seed, only, error):
    """The troubles without any of which it does not fail, and how it fails with them."""
    for one in only if isinstance(error, Exception) and not isinstance(error, TimeoutError) else ():
        fewer = [other for other in only if other != one]
        try:
            attempt(seed, only=fewer)
        except TimeoutError:  # nobody waits for what may not end
            break
        except Exception as still:
            only, error = fewer, still
    return only, error


@examines("several sessions in one transaction; the disk or the lock fails", "8 passes of the loop a seed", cost=0.3)
def failing_groups(whole):
    return try_seeds(try_groups, range(150 if whole else 12), PASSES)


@examines("power cuts while both durabilities share transactions", "5 ways to lose what was not synced", cost=2.5)
def cut_power_in_groups(whole):
    if shutil.which("strace") is None:
        return {"cuts": 0}
    seeds, cuts = (6, 60) if whole else (2, 40)
    return {"seeds": seeds, "cuts": cut_groups(range(seeds), cuts)}


@examines("power cuts on a simulated disk, durability full", "5 ways to lose what was not synced", cost=3.0)
def power_cuts(whole):
    if shutil.which("strace") is None:
        return {"cuts": 0}
    cuts, seeds = (40, range(2)) if whole else (30, range(1))
    with tempfile.TemporaryDirectory() as folder:
        harms, seen = asyncio.run(cut_power("sqlite", "full", seeds=seeds, cuts=cuts, place=Path(folder) / "disk"))
    assert harms == [], harms[0]
    return {"seeds": len(seeds), "cuts": seen["cuts"]}
