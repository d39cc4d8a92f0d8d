"""Every order in which the callbacks of a few agents can run, and a death of the process in every state between."""

import asyncio
from collections import Counter

import pytest

from glidepath import Budget, CancelToken, Limits, LoopOutcome, Plugin
from glidepath.events import RunEnded
from glidepath.testing import Schedules

from .agents import CALL, World, is_settled

ENOUGH_FOR_TWO = 2_200


class EndCounter(Plugin):
    """Counts how often a run has ended."""

    def __init__(self):
        self.ends = 0

    def event_observer(self, event):
        self.ends += isinstance(event, RunEnded)


def sharing_one_budget(agents, calls, limit, *, cancelled=False):
    """So many agents on one budget; each result, and how many terminal events its run had."""

    async def scenario():
        world, budget, ends, token = World(limit, calls), Budget(Limits(max_tokens=limit)), Counter(), CancelToken()

        async def one(name):
            counter = EndCounter()
            agent = world.agent(name, store=False, plugins=[counter])
            result = await agent.run("go", parent=budget, cancel=token if cancelled and name == "a" else None)
            ends[name] = counter.ends
            return result

        tasks = [asyncio.ensure_future(one(name)) for name in "abc"[:agents]]
        if cancelled:
            await asyncio.sleep(0)
            token.cancel("enough")
        results = [await task for task in tasks]
        assert is_settled(budget)
        assert set(ends.values()) == {1}
        return results, budget.meter.tokens, world.billed

    return scenario


def hold_the_budget(limit, *, everybody_answers):
    def holds(found):
        results, charged, billed = found
        assert charged == sum(result.usage.total for result in results) <= limit
        # A call that was cancelled before it was billed is charged by our estimate; all others as billed.
        assert charged == billed or any(result.outcome is LoopOutcome.CANCELLED for result in results)
        assert charged >= billed
        for result in results:
            # What was paid for is delivered: a run that had its last call has its text.
            assert result.text == "done" or result.iterations == 0 or result.outcome is LoopOutcome.CANCELLED, result
        if everybody_answers:
            assert [result.text for result in results] == ["done"] * len(results)

    return holds


@pytest.mark.parametrize("limit", [1_300, ENOUGH_FOR_TWO, 9_000])
def test_two_agents_with_two_calls_each(limit):
    explored = Schedules(sharing_one_budget(2, 2, limit)).check(
        hold_the_budget(limit, everybody_answers=limit >= ENOUGH_FOR_TWO)
    )
    assert explored.complete
    assert explored.states > 200


def test_one_of_two_agents_is_cancelled_at_any_moment():
    found = Schedules(sharing_one_budget(2, 2, ENOUGH_FOR_TWO, cancelled=True))
    assert found.check(hold_the_budget(ENOUGH_FOR_TWO, everybody_answers=False)).complete


def dying(limit, calls, names, detours=None):
    """A world of durable runs on a wallet, whose process dies; what the next one finds and does."""
    worlds = []

    def scenario():
        worlds[:] = [World(limit, calls)]
        return worlds[0].run_durably(names)

    async def recover():
        world = worlds[0]
        results, held = await world.resume_all()
        return world, results, held

    def holds(found):
        world, results, held = found
        twice = {name: count for name, count in Counter(world.paid).items() if count > calls - 1}
        assert not twice, f"paid more than once: {twice}"
        assert held >= world.billed - CALL * len(names), "the wallet forgot what was spent"
        assert held <= limit
        for name, result in results.items():
            unknown = result.unknown_effects
            assert result.text == "done", (name, result)
            assert world.paid.count(name) + len(unknown) >= calls - 1, f"{name}: a payment was lost: {result}"

    return Schedules(scenario, detours=detours, most=10**7), recover, holds


def test_a_process_dies_in_every_state_of_one_durable_run():
    schedules, recover, holds = dying(3_000, 2, "a")
    explored = schedules.check_crashes(recover, holds)
    assert explored.complete
    assert explored.crashes == explored.states > 100


def report(capsys, name, explored):
    with capsys.disabled():
        print(f"\n{name}: {explored}")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("agents", "calls", "limit"), [(2, 2, ENOUGH_FOR_TWO), (3, 1, 3_300), (3, 1, 1_900)])
def test_campaign_all_schedules(agents, calls, limit, capsys):
    whole = Schedules(sharing_one_budget(agents, calls, limit), most=10**7)
    explored = whole.check(hold_the_budget(limit, everybody_answers=False))
    report(capsys, f"{agents} agents x {calls} calls on {limit} tokens", explored)
    assert explored.complete


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_campaign_three_agents_with_three_calls_and_two_preemptions(capsys):
    explored = Schedules(sharing_one_budget(3, 3, 5_000), detours=2, most=10**7).check(
        hold_the_budget(5_000, everybody_answers=False)
    )
    report(capsys, "3 agents x 3 calls, at most two preemptions", explored)
    assert explored.complete


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("names", "calls", "limit"), [("ab", 2, 4_000), ("abc", 1, 4_000)])
def test_campaign_a_process_dies_in_every_state(names, calls, limit, capsys):
    schedules, recover, holds = dying(limit, calls, names, detours=1)
    explored = schedules.check_crashes(recover, holds)
    report(capsys, f"{len(names)} durable agents x {calls} calls, one preemption, a death in every state", explored)
    assert explored.complete
