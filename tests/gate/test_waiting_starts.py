"""Sub-agents on a budget that is little more than their work costs: some wait to start, and all of them finish."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from glidepath import Limits
from glidepath.agent import Budget
from glidepath.apps.gate import GateLimits, give_back_landing, make_governor
from glidepath.gate import Gate, Upstream
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import KEY, VENDORS, fly_anthropic, fly_behind, in_real_time
from .kept import until

CHILDREN, WORK = 6, 12
SYSTEM = "You are an agent with many instructions. " * 400


async def fly_family(flown, children=CHILDREN):
    """A main agent that has begun, and its children, all at once; what each said, and how many calls it made."""

    def named(name):
        return {"x-glidepath-agent": name}

    system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
    await fly_anthropic(flown.url, flown.key, headers=named("main"), most=1, task="Delegate.", system=system)
    flights = [
        fly_anthropic(flown.url, flown.key, headers=named(f"child-{n}"), task=f"Part {n} of the work.", system=system)
        for n in range(children)
    ]
    return await asyncio.gather(*flights)


async def cost_of_work():
    async with fly_behind(f"honest:calls={WORK}", max_cost="1000") as flown:
        flights = await fly_family(flown)
        assert {flight.calls for flight in flights} == {WORK + 1}
        return flown.report()["cost"]


@pytest.mark.parametrize("times", [1.2, 2.0])
@in_real_time
async def test_honest_sub_agents_all_finish_on_little_more_than_their_work_costs(times):
    limit = times * await cost_of_work()
    async with fly_behind(f"honest:calls={WORK}", max_cost=f"{limit:.6f}") as flown:
        flights = await fly_family(flown)
        assert {flight.calls for flight in flights} == {WORK + 1}
        assert all("SCRIPTED-ANSWER" in flight.text for flight in flights)
        report = flown.report()
        assert not report["landed"]
        assert report["cost"] <= limit


@in_real_time
async def test_endless_sub_agents_all_come_down_inside_the_budget_and_the_last_to_start_does_not_bring_others_down():
    async with fly_behind("loop", max_tokens=80_000) as flown:
        flights = await fly_family(flown)
        flown.assert_within(80_000)
        assert all(flight.text for flight in flights)
        assert max(flight.calls for flight in flights) > 3, "somebody has worked"


@in_real_time
async def test_those_that_waited_to_start_leave_the_last_call_to_the_agent_that_has_the_answer():
    async with fly_behind("loop", max_tokens=80_000, max_iterations=10, scripted={"pace": 0.004}) as flown:
        flights = await fly_family(flown)
        assert all(flight.text for flight in flights)
        main = await fly_anthropic(flown.url, flown.key, headers={"x-glidepath-agent": "main"}, task="Delegate.")
        assert "SCRIPTED-ANSWER" in main.text
        assert flown.report()["calls"] <= 10


@pytest.mark.parametrize(("limit", "waits"), [(50_000, True), (300_000, False)])
@in_real_time
async def test_one_that_finishes_is_better_than_two_that_land_half_way(limit, waits):
    async with fly_behind("honest:calls=4", max_tokens=limit, scripted={"pace": 0.004}) as flown:
        flights = await fly_family(flown, children=2)
        assert all(flight.text for flight in flights)
        assert max(flight.calls for flight in flights) == 5
        order = [json.dumps(call.body["messages"]).count("Part 1") for call in [*flown.up.calls]]
        assert (len(set(order[1:6])) == 1) is waits, "the second began when the first had ended"
        flown.assert_within(limit)


@in_real_time
async def test_other_runs_on_the_same_budget_do_not_wait_for_a_family_that_is_crowded():
    system = [{"type": "text", "text": SYSTEM}]
    async with ScriptedUpstream(f"honest:calls={WORK}", bodies=True, pace=0.01) as up:
        upstreams = [Upstream(name, name, up.url, "swap", "env:UPSTREAM_KEY") for name in VENDORS]
        shared = Budget(Limits(max_tokens=50_000_000))
        governor = make_governor(limits=Limits(max_tokens=100_000), upstreams=upstreams, budget=shared)
        async with Gate(None, upstreams, environ={"UPSTREAM_KEY": KEY}, governor=governor) as gate:

            def fly(run, agent, most):
                named = {"x-glidepath-run": run, "x-glidepath-agent": agent}
                return fly_anthropic(gate.url, gate.key, headers=named, task=agent, system=system, most=most)

            await fly("crowded", "main", 1)
            family = [asyncio.ensure_future(fly("crowded", f"child-{n}", WORK + 1)) for n in range(6)]
            session = next(iter(governor._lines.values())).sessions["crowded"]
            while session.asking < 3 or not any(agent.calls for agent in session.agents.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            stands = {id(waiting.meter) for waiting in session.meter.tree.queue}
            waits = [one.id for one in session.agents.values() if id(one.meter) in stands and not one.started]
            assert not waits, "nobody who waits for a family stands before the other runs"
            await fly("other", "main", 1)
            flights = await asyncio.gather(*family)
            assert all(flight.text for flight in flights)


@asynccontextmanager
async def two_that_work_on_a_budget_that_is_used_up():
    """A main agent and two sub-agents between two calls; there is no room for another one beside their landings."""
    async with fly_behind("loop", max_tokens=16_000) as flown:
        for name in ("main", "child-1", "child-2"):
            await fly_anthropic(flown.url, flown.key, headers={"x-glidepath-agent": name}, task=f"I am {name}.", most=1)
        session = flown.session()
        meter = session.meter
        session.set_limits(GateLimits(tokens=meter.tokens + meter.aside_tokens + 50))
        yield flown, session


async def fly_on(flown, name, most=1):
    return await fly_anthropic(
        flown.url, flown.key, headers={"x-glidepath-agent": name}, task=f"I am {name}.", most=most
    )


@in_real_time
async def test_an_agent_does_not_land_while_one_beside_it_may_finish_and_give_back_what_it_keeps():
    async with two_that_work_on_a_budget_that_is_used_up() as (flown, session):
        flying = asyncio.ensure_future(fly_on(flown, "child-2"))
        await until(lambda: session.agents["child-2"].waits)
        assert not flying.done()
        give_back_landing(session.agents["child-1"])
        await flying
        assert not flown.report()["landed"]
        assert not session.agents["child-2"].waits


@in_real_time
async def test_of_two_that_could_wait_for_each_other_the_last_one_lands_and_the_first_goes_on():
    async with two_that_work_on_a_budget_that_is_used_up() as (flown, session):
        first = asyncio.ensure_future(fly_on(flown, "child-2", most=5))
        await until(lambda: session.agents["child-2"].waits)
        second = await fly_on(flown, "child-1", most=5)
        assert second.text.startswith("SCRIPTED-ANSWER")
        assert (await first).text
        flown.assert_within(session.limits.tokens)


@in_real_time
async def test_an_agent_that_waits_lands_when_a_person_says_so():
    async with two_that_work_on_a_budget_that_is_used_up() as (flown, session):
        flying = asyncio.ensure_future(fly_on(flown, "child-2", most=5))
        await until(lambda: session.agents["child-2"].waits)
        session.order = "enough"
        assert (await flying).text.startswith("SCRIPTED-ANSWER")
        assert session.agents["child-2"].landing.cause.reason != ""
