"""A shared budget is spent, and shared fairly: who does not fit now waits for what others give back. Nobody hangs."""

import asyncio
import gc
from decimal import Decimal
from threading import Thread

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import (
    Agent,
    AgentState,
    Budget,
    CancelToken,
    Limits,
    LoopOutcome,
    Session,
    ToolContext,
    Usage,
    approve,
    tool,
)
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.sessions import MemoryStore
from glidepath.testing import Schedules, ScriptedModel, VirtualClock, call, calls, say, virtual
from glidepath.values import pico_of


def settled(budget):
    meter = budget.meter
    return (
        meter.reserved_tokens,
        meter.reserved_money,
        meter.aside_tokens,
        meter.aside_money,
        meter.pledged_tokens,
        meter.pledged_money,
        list(meter.tree.queue),
        meter.tree.members or {},
    ) == (0, 0, 0, 0, 0, 0, [], {})


# --- it is spent --------------------------------------------------------------------------------------------------


def small_tasks(turns=1, **more):
    """Each task takes so many turns of 72 tokens, $0.000456 each."""

    def step(request):
        asked = sum(message.role == "assistant" for message in request.messages)
        used = Usage(input=52, output=20)
        return say("ok " * 20, usage=used) if asked + 1 >= turns or not request.tools else call("work").with_usage(used)

    @tool
    async def work() -> str:
        """Work."""
        return "x"

    model = ScriptedModel(price=("3", "15"), delay=0.01, record=False, **more).forever(step)
    return Agent(model=model, tools=[work] if turns > 1 else [], limits=Limits(max_iterations=turns + 2))


async def crowd(at_once, limits, tasks=300, agent=None):
    agent = agent or small_tasks(max_output_tokens=200)
    budget, gate = Budget(limits), asyncio.Semaphore(at_once)

    async def one(number):
        async with gate:
            return await agent.run(f"Item {number}", parent=budget)

    results = await asyncio.gather(*[one(number) for number in range(tasks)])
    assert settled(budget)
    return results


def done(results):
    return sum(result.ok for result in results)


@pytest.mark.parametrize("cap", [200, 4_096, 32_000])
@virtual
async def test_many_at_once_get_as_much_done_for_their_money_as_one_at_a_time(cap):
    limits = Limits(max_cost="0.05")
    alone = await crowd(1, limits, agent=small_tasks(max_output_tokens=cap))
    together = await crowd(20, limits, agent=small_tasks(max_output_tokens=cap))
    assert 80 < done(together) < 300
    assert done(together) >= 0.9 * done(alone)
    for results in (alone, together) if cap == 200 else ():
        assert Decimal("0.045") <= sum(result.cost or 0 for result in results) <= Decimal("0.05")


@pytest.mark.parametrize("cap", [200, 4_096, 32_000])
@virtual
async def test_many_at_once_get_as_much_done_for_their_tokens_as_one_at_a_time(cap):
    limits = Limits(max_tokens=12_000)
    alone = await crowd(1, limits, agent=small_tasks(max_output_tokens=cap))
    together = await crowd(20, limits, agent=small_tasks(max_output_tokens=cap))
    assert done(together) >= 0.9 * done(alone)
    assert 10_800 <= sum(result.usage.total for result in together) <= 12_000


@virtual
async def test_who_has_begun_goes_on_while_others_wait_to_start():
    """A tenth fits at once; nobody is made to wrap up for somebody who only has to wait."""
    results = await crowd(20, Limits(max_tokens=10_000), 20, small_tasks(turns=4, max_output_tokens=300))
    assert {result.outcome for result in results} == {LoopOutcome.DONE}
    assert {result.iterations for result in results} == {4}


IN_TOKENS, IN_MONEY = Limits(max_tokens=12_000), Limits(max_cost="0.05")
either = pytest.mark.parametrize("limits", [IN_TOKENS, IN_MONEY], ids=["tokens", "money"])


def is_spent(results, limits):
    """Nine tenths of the limit at least, and no more than all of it."""
    if limits.max_tokens is not None:
        used, limit = sum(result.usage.total for result in results), limits.max_tokens
    else:
        used, limit = sum(result.cost or 0 for result in results), Decimal(limits.max_cost)
    return limit * 9 <= used * 10 <= limit * 10


@either
@virtual
async def test_a_task_group_is_as_good_as_a_gather(limits):
    budget, agent = Budget(limits), small_tasks(max_output_tokens=200)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(agent.run("Item", parent=budget)) for _ in range(200)]
    assert is_spent([task.result() for task in tasks], limits)
    assert settled(budget)


@either
def test_threads_with_their_own_loops_share_as_well(limits):
    budget, turn = Budget(limits), say("ok", usage=Usage(input=52, output=20))
    model = ScriptedModel(price=("3", "15"), max_output_tokens=200, record=False).forever(turn)
    agent = Agent(model=model, limits=Limits(max_iterations=3))
    results = []

    async def some():
        results.extend(await asyncio.gather(*[agent.run("Item", parent=budget) for _ in range(40)]))

    threads = [Thread(target=asyncio.run, args=[some()]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 200
    assert is_spent(results, limits)
    assert settled(budget)


@pytest.mark.parametrize("limits", [Limits(max_tokens=8_000), Limits(max_cost="0.05")], ids=["tokens", "money"])
@virtual
async def test_runs_on_one_wallet_wait_for_what_others_keep_for_their_landings(limits):
    async def spent(at_once):
        store = MemoryStore()
        agent, gate = small_tasks(max_output_tokens=200), asyncio.Semaphore(at_once)

        async def one():
            async with gate:  # each with its own Budget object, as in its own process
                return await agent.run("Item", parent=Budget(limits, name="team", store=store))

        results = await asyncio.gather(*[one() for _ in range(130)])
        (wallet,) = await store.wallets("team")
        assert (wallet.tokens, wallet.held_tokens) == (sum(result.usage.total for result in results), 0)
        assert (wallet.money, wallet.held_money) == (sum(pico_of(result.cost) for result in results), 0)
        return results

    alone, together = await spent(1), await spent(20)
    assert done(together) >= 0.9 * done(alone)
    assert is_spent(together, limits)


# --- fairly -------------------------------------------------------------------------------------------------------


class Tireless:
    """Calls its tool as long as it has one; each call uses 300 tokens."""

    name, max_output_tokens = "tireless", 300

    async def stream(self, request):
        await asyncio.sleep(0)
        if request.tools:
            yield ToolCallDelta(index=0, id=f"c{len(request.messages)}", name="look", arguments="{}")
            yield StreamEnd("tool_use", Usage(input=200, output=100))
            return
        yield TextDelta("done")
        yield StreamEnd("end_turn", Usage(input=200, output=100))


@tool(isolation="inline")
async def look() -> str:
    """Look."""
    await asyncio.sleep(0)
    return "x"


def tireless(limit):
    prices = {"tireless": ("1", "1")}
    return Agent(model=Tireless(), tools=[look], limits=Limits(max_tokens=limit, max_iterations=50), prices=prices)


@pytest.mark.parametrize("in_money", [False, True], ids=["tokens", "money"])
@pytest.mark.parametrize("limit", [2_200, 2_600])
def test_in_every_schedule_of_two_agents_both_answer(limit, in_money):
    limits = Limits(max_cost=f"{limit / 10**6:f}") if in_money else Limits(max_tokens=limit)

    async def scenario():
        budget = Budget(limits)
        results = await asyncio.gather(*[tireless(limit).run("go", parent=budget) for _ in range(2)])
        assert settled(budget)
        return results

    def both_answer(results):
        assert [result.text for result in results] == ["done", "done"]
        assert all(result.iterations for result in results)
        assert sum(result.usage.total for result in results) <= limit

    explored = Schedules(scenario).check(both_answer)
    assert explored.complete
    assert explored.schedules > 300


def test_in_every_schedule_a_cancelled_waiter_leaves_nothing_behind_and_the_next_one_moves_up():
    async def scenario():
        budget, token = Budget(Limits(max_tokens=1_500)), CancelToken()

        async def stop():
            await asyncio.sleep(0)
            token.cancel("enough")

        runs = [tireless(1_500).run("go", parent=budget, cancel=token), tireless(1_500).run("go", parent=budget)]
        *results, _ = await asyncio.gather(*runs, stop())
        assert settled(budget)
        return results

    def other_answers(results):
        assert results[1].text == "done"

    assert Schedules(scenario, most=3_000).check(other_answers).schedules > 300


def slow(seconds, tokens=500):
    model = ScriptedModel(delay=seconds, max_output_tokens=tokens).forever(say("slow"))
    return Agent(model=model, limits=Limits(max_iterations=3))


@virtual
async def test_starts_are_served_in_order_of_arrival():
    budget, order = Budget(Limits(max_tokens=2_000)), []

    async def one(name):
        assert (await slow(5).run("go", parent=budget)).outcome is LoopOutcome.DONE
        order.append(name)

    waiting = []
    for name in "abcdef":
        waiting.append(asyncio.ensure_future(one(name)))
        await asyncio.sleep(0.1)
    await asyncio.gather(*waiting)
    assert order == list("abcdef")


# --- and nobody waits for nothing ---------------------------------------------------------------------------------


@virtual
async def test_a_start_that_cannot_fit_even_alone_is_refused_at_once():
    budget = Budget(Limits(max_tokens=3_000))
    holding = asyncio.ensure_future(slow(30).run("go", parent=budget))
    await asyncio.sleep(1)
    result = await slow(1).run("word " * 9_000, parent=budget)
    assert (result.outcome, result.iterations, result.elapsed) == (LoopOutcome.CUT_OFF, 0, pytest.approx(0, abs=0.01))
    assert (await holding).ok


@virtual
async def test_a_run_that_a_tool_of_another_awaits_does_not_wait_for_that_one():
    """On the same budget, as roots: the outer run ends only after the inner one."""
    budget, inner_results = Budget(Limits(max_tokens=2_400)), []

    @tool
    async def ask_another() -> str:
        """Ask another."""
        inner_results.append(await slow(1).run("word " * 250, parent=budget))
        return inner_results[-1].text

    model = ScriptedModel([call("ask_another"), say("outer")], max_output_tokens=300)
    outer = Agent(model=model, tools=[ask_another], limits=Limits(max_iterations=5))
    result = await asyncio.wait_for(outer.run("go", parent=budget), 5)
    assert result.text == "outer"
    assert inner_results[0].outcome in (LoopOutcome.CUT_OFF, LoopOutcome.DONE)
    assert inner_results[0].elapsed < 2
    assert settled(budget)


@virtual
async def test_the_same_on_a_wallet():
    store, inner_results = MemoryStore(), []

    def wallet():
        return Budget(Limits(max_tokens=2_400), name="w", store=store)

    @tool
    async def ask_another() -> str:
        """Ask another."""
        inner_results.append(await slow(1).run("word " * 400, parent=wallet()))
        return inner_results[-1].text

    model = ScriptedModel([call("ask_another"), say("outer")], max_output_tokens=300)
    outer = Agent(model=model, tools=[ask_another], limits=Limits(max_iterations=5))
    result = await asyncio.wait_for(outer.run("go", parent=wallet()), 20)
    assert result.text == "outer"
    assert inner_results[0].elapsed < 20  # for what the outer one gives back with its next heartbeat, not for its end


@virtual
async def test_start_timeout_ends_the_wait():
    budget = Budget(Limits(max_tokens=2_000))
    holding = asyncio.ensure_future(slow(60).run("go", parent=budget))
    await asyncio.sleep(1)
    model = ScriptedModel([])
    agent = Agent(model=model, limits=Limits(max_iterations=3), start_timeout=10)
    result = await agent.run("go", parent=budget)
    assert (result.outcome, result.cause.source) == (LoopOutcome.CUT_OFF, "start_timeout")
    assert (result.elapsed, model.calls) == (pytest.approx(10, abs=0.1), 0)
    assert "10 s" in result.cause.reason
    assert (await holding).ok
    assert settled(budget)


@virtual
async def test_start_timeout_ends_the_wait_for_a_wallet_as_well():
    store = MemoryStore()
    budget = Budget(Limits(max_tokens=2_000), name="w", store=store)
    holding = asyncio.ensure_future(slow(60).run("go", parent=budget))
    await asyncio.sleep(1)
    agent = Agent(model=ScriptedModel([]), limits=Limits(max_iterations=3), start_timeout=10)
    result = await agent.run("go", parent=budget)
    assert (result.outcome, result.cause.source) == (LoopOutcome.CUT_OFF, "start_timeout")
    assert result.elapsed == pytest.approx(10, abs=0.1)
    assert (await holding).ok


@virtual
async def test_a_run_that_has_started_is_not_held_to_start_timeout():
    agent = Agent(model=ScriptedModel([say("x", delay=30)]), limits=Limits(max_iterations=3), start_timeout=1)
    assert (await agent.run("go", parent=Budget(Limits(max_tokens=9_000)))).outcome is LoopOutcome.DONE


@virtual
async def test_a_deadline_and_a_cancel_end_the_wait_to_start():
    budget, token = Budget(Limits(max_tokens=2_000)), CancelToken()
    holding = asyncio.ensure_future(slow(60).run("go", parent=budget))
    await asyncio.sleep(1)
    hasty = Agent(model=ScriptedModel([]), limits=Limits(max_iterations=3, timeout=8))
    stopped = Agent(model=ScriptedModel([]), limits=Limits(max_iterations=3))
    waiting = [
        asyncio.ensure_future(hasty.run("go", parent=budget)),
        asyncio.ensure_future(stopped.run("go", parent=budget, cancel=token)),
    ]
    await asyncio.sleep(2)
    token.cancel()
    late, off = await asyncio.gather(*waiting)
    assert (late.state, off.outcome) == (AgentState.TIMED_OUT, LoopOutcome.CANCELLED)
    assert (late.elapsed <= 8, off.elapsed) == (True, pytest.approx(2, abs=0.1))
    assert (await holding).ok
    assert settled(budget)


@virtual
async def test_a_pause_gives_back_what_it_keeps_and_queues_again():
    @tool(requires_approval=True)
    async def send() -> str:
        """Send."""
        return "sent"

    budget, session = Budget(Limits(max_tokens=2_000)), Session()
    model = ScriptedModel([call("send"), say("done")], max_output_tokens=300)
    agent = Agent(model=model, tools=[send], limits=Limits(max_iterations=5))
    paused = await agent.run("go", session=session, parent=budget)
    assert paused.outcome is LoopOutcome.PAUSED
    assert settled(budget)
    holding = asyncio.ensure_future(slow(10).run("go", parent=budget))
    await asyncio.sleep(1)
    decisions = {waiting.call.id: approve() for waiting in paused.pending}
    resumed = await agent.resume(session, decisions=decisions, parent=budget)
    assert (resumed.text, (await holding).ok) == ("done", True)
    assert settled(budget)


def test_a_loop_that_is_closed_with_a_call_in_flight_gives_its_budget_back():
    class Hangs:
        name, max_output_tokens = "hangs", 3_500

        async def stream(self, request):
            await asyncio.sleep(60)
            yield

    budget = Budget(Limits(max_tokens=6_000))
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    agent = Agent(model=Hangs(), limits=Limits(max_iterations=3))
    tasks = [loop.create_task(agent.run("go", parent=budget)) for _ in range(3)]
    loop.run_until_complete(asyncio.sleep(0.05))
    assert budget.meter.reserved_tokens > 3_000
    loop.close()
    for task in tasks:
        task._log_destroy_pending = False
    del tasks, task
    gc.collect()  # the one that was in flight, which wakes the queue
    gc.collect()  # those that waited there
    assert (budget.meter.reserved_tokens, budget.meter.aside_tokens, budget.meter.tree.members) == (0, 0, {})
    other = Agent(model=ScriptedModel([say("ok")], max_output_tokens=4_000), limits=Limits(max_iterations=3))
    assert asyncio.run(asyncio.wait_for(other.run("go", parent=budget), 10)).ok


# --- whatever the tree --------------------------------------------------------------------------------------------

shapes = st.recursive(st.just(()), lambda below: st.lists(below, min_size=1, max_size=3).map(tuple), max_leaves=6)


def grown(shape, limit, results):
    """An agent that spawns one child for each branch, all at once, and answers when it can do no more."""

    @tool
    async def split(context: ToolContext) -> str:
        """Split."""
        found = await asyncio.gather(*[context.spawn(grown(below, limit, results), "part") for below in shape])
        results.extend(found)
        return " ".join(result.text[:5] for result in found)

    def step(request):
        split_up = any(message.role == "tool_result" for message in request.messages)
        return say("done " * 30) if split_up or not shape or not request.tools else call("split")

    model = ScriptedModel(max_output_tokens=400, delay=0.5, record=False).forever(step)
    return Agent(model=model, tools=[split], limits=Limits(max_iterations=9, max_tokens=limit, max_depth=9))


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(shapes, min_size=1, max_size=5), limit=st.integers(1_500, 9_000))
def test_no_tree_of_runs_on_one_budget_ever_hangs_overspends_or_leaks(trees, limit):
    async def main():
        budget, children = Budget(Limits(max_tokens=limit)), []
        runs = [grown(shape, limit, children).run("whole", parent=budget) for shape in trees]
        results = await asyncio.wait_for(asyncio.gather(*runs), 600)
        assert sum(result.usage.total for result in results) == budget.meter.tokens <= limit
        assert settled(budget)
        # Whoever took a turn has an answer: its way down was kept for it.
        assert all(result.text.startswith("done") for result in (*results, *children) if result.iterations)

    VirtualClock().run(main())


@settings(max_examples=40, deadline=None)
@given(shape=shapes, limit=st.integers(1_500, 6_000))
def test_children_of_one_run_never_hang_either(shape, limit):
    async def main():
        children = []
        result = await asyncio.wait_for(grown(shape, limit, children).run("whole"), 600)
        assert result.usage.total <= limit
        assert result.text.startswith("done")

    VirtualClock().run(main())


@virtual
async def test_a_child_that_waits_does_not_keep_its_parents_call_from_being_made():
    """Two parents with two children each on a budget for little more than one of them."""
    budget, children = Budget(Limits(max_tokens=4_000)), []
    runs = [grown(((), ()), 4_000, children).run("whole", parent=budget) for _ in range(2)]
    results = await asyncio.wait_for(asyncio.gather(*runs), 100)
    assert all(result.text.startswith("done") for result in results)
    assert settled(budget)


@virtual
async def test_calls_of_one_batch_that_spawn_share_what_there_is():
    results = []

    @tool
    async def part(context: ToolContext) -> str:
        """Do a part."""
        results.append(await context.spawn(slow(1), "part"))
        return results[-1].text

    model = ScriptedModel([calls(*[call("part")] * 8), say("all")], max_output_tokens=400)
    agent = Agent(model=model, tools=[part], limits=Limits(max_iterations=30, max_tokens=5_000))
    result = await agent.run("go")
    assert result.text == "all"
    assert all(child.ok for child in results)
