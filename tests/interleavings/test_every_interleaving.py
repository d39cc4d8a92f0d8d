"""Every order in which the callbacks of a few runs can go, deaths in every state between, and bad weather by seed."""

import logging
import time

import pytest

from glidepath.testing import ScheduleError, Schedules

from .durable import dying
from .examinations import EXAMINATIONS
from .scenarios import behind_gates, hold_gates, hold_the_budget, sharing_one_budget

WITHOUT_DISKS = [one for one in EXAMINATIONS if "power" not in one.name]  # tests/crash has those


@pytest.fixture(autouse=True)
def quiet():
    """Flights whose store fails say so, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "examination", [one for one in EXAMINATIONS if "power" not in one.name], ids=lambda it: it.name
)
def test_nothing_breaks(examination):
    assert max(examination.run(False).values()) > 0


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("examination", EXAMINATIONS, ids=lambda it: it.name)
def test_campaign_nothing_breaks(examination, capsys):
    began = time.process_time()
    found = examination.run(True)
    with capsys.disabled():
        said = ", ".join(f"{count:,} {what}" for what, count in found.items() if count)
        print(f"\n{examination.name} ({examination.bound}): {said} in {time.process_time() - began:.1f} s")
    assert max(found.values()) > 0


def test_a_plan_that_is_too_small_for_two_is_noticed():
    """Checks the check: where the budget pays for less than two answers, one of two agents gets nothing."""
    unfair = hold_the_budget(1_300, everybody_answers=True)
    with pytest.raises(ScheduleError):
        Schedules(sharing_one_budget(2, 2, 600)).check(unfair)


def test_somebody_who_waits_forever_is_noticed():
    """Checks the check: replies that grow behind two gates, each waiting for the other."""

    def holds(found):
        world, programs, _, *rest = found
        hold_gates()((world, programs, 121.0, *rest))

    with pytest.raises(ScheduleError, match="somebody waited"):
        Schedules(behind_gates(2, 1, shared=5_000), most=1).check(holds)


def test_a_death_that_loses_a_payment_is_noticed():
    """Checks the check: a tool that had begun is made again by the next process."""
    dead = dying(3_000, 2, "a")

    async def pay_again():
        found = await dead.recover()
        dead.world.paid += dead.world.paid
        return found

    with pytest.raises(ScheduleError, match="paid more than once"):
        dead.check(pay_again)


@pytest.mark.parametrize("make", [lambda: dying(3_000, 2, "a"), lambda: dying(4_000, 1, "ab", detours=0)])
def test_deaths_that_leave_the_same_come_to_the_same(make):
    """Checks what is left out: nothing that the next process finds, and nothing that comes of it."""
    seen = {True: set(), False: set()}
    for survives, ends in seen.items():
        dead = make()

        async def note(dead=dead, ends=ends):
            results, held = found = await dead.recover()
            unknown = {name: len(result.unknown_effects) for name, result in results.items()}
            ends.add((*sorted(unknown.items()), *dead.world.paid, dead.world.billed, held))
            return found

        explored = dead.check(note, survives=survives)
        assert explored.complete
        assert survives is (explored.crashes < explored.states)
    assert seen[True] == seen[False]
    assert len(seen[True]) > 2
