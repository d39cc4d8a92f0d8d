"""Agents that know nothing of glidepath come down inside their budget, with an answer."""

import asyncio

import pytest

from .foreign import LOOPS, fly_anthropic, fly_behind, fly_chat, in_real_time

DIALECTS = pytest.mark.parametrize("dialect", sorted(LOOPS))
ANSWER = "SCRIPTED-ANSWER"


@DIALECTS
@in_real_time
async def test_an_agent_that_would_go_on_forever_lands_with_an_answer_inside_its_tokens(dialect):
    async with fly_behind("loop", max_tokens=12_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert ANSWER in flight.text
        assert flight.results >= 3
        report = flown.report()
        assert report["landed"] is True
        assert report["reason"] == "the limit of 12,000 tokens is reached"
        flown.assert_within(12_000)
        assert report["tokens"] > 12_000 * 0.7


@DIALECTS
@in_real_time
async def test_a_money_limit_holds_and_is_used(dialect):
    async with fly_behind("loop", max_cost="0.05") as flown:
        flight = await LOOPS[dialect](flown.url, flown.key, most=500)
        report = flown.report()
        assert ANSWER in flight.text
        assert 0.6 * 0.05 < report["cost"] <= 0.05


@DIALECTS
@in_real_time
async def test_a_limit_on_calls_counts_the_last_one_too(dialect):
    async with fly_behind("loop", max_iterations=4) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert ANSWER in flight.text
        assert flight.calls == 4
        assert flown.up.usage.calls == 4


@in_real_time
async def test_with_a_single_call_the_first_is_the_landing():
    async with fly_behind("loop", max_iterations=1) as flown:
        flight = await fly_anthropic(flown.url, flown.key)
        assert ANSWER in flight.text
        assert flown.up.usage.calls == 1


@DIALECTS
@in_real_time
async def test_a_model_that_calls_tools_all_the_same_is_answered_for(dialect):
    async with fly_behind("stubborn", max_tokens=12_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert "[glidepath] The run was ended here: the limit of 12,000 tokens is reached" in flight.text
        flown.assert_within(12_000)


@DIALECTS
@in_real_time
async def test_a_reply_without_end_is_cut_and_its_text_kept(dialect):
    async with fly_behind("endless", max_tokens=12_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert flight.calls == 1
        assert "on it goes" in flight.text
        assert "[glidepath] The reply was cut here: the limit of 12,000 tokens is reached." in flight.text
        flown.assert_within(12_000)
        while flown.up.usage.open:  # noqa: ASYNC110 - it notices by itself
            await asyncio.sleep(0.01)
        assert flown.up.usage.aborted == 1
        flown.assert_within(12_000)


@DIALECTS
@in_real_time
async def test_the_same_call_again_and_again_is_noticed_long_before_the_limit(dialect):
    async with fly_behind("same", max_tokens=500_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert ANSWER in flight.text
        assert flight.calls <= 8
        report = flown.report()
        assert report["landed"] is True
        assert "repeated" in report["reason"]


@in_real_time
async def test_after_a_loop_the_agent_may_be_asked_something_else():
    async with fly_behind("same", max_tokens=500_000) as flown:
        await fly_anthropic(flown.url, flown.key)
        flown.up.behavior = "answer"
        before = flown.up.usage.calls
        await fly_anthropic(flown.url, flown.key, task="Something else.", headers={"x-glidepath-agent": "agent-1"})
        assert flown.up.usage.calls == before + 1


@DIALECTS
@in_real_time
async def test_a_run_that_is_down_costs_nothing_more(dialect):
    async with fly_behind("loop", max_tokens=9_000) as flown:
        headers = {"x-glidepath-agent": "main"}
        await LOOPS[dialect](flown.url, flown.key, headers=headers)
        calls = flown.up.usage.calls
        flight = await LOOPS[dialect](flown.url, flown.key, headers=headers)
        assert flight.text.startswith("[glidepath] The run was ended here")
        assert flown.up.usage.calls == calls


@in_real_time
async def test_honest_work_that_fits_is_left_alone():
    async with fly_behind("honest", max_tokens=60_000) as flown:
        flight = await fly_anthropic(flown.url, flown.key)
        assert ANSWER in flight.text
        assert flown.report()["landed"] is False
        assert not any("[glidepath]" in str(call.body) for call in flown.up.calls)


@in_real_time
async def test_time_that_is_up_cuts_the_reply_that_is_being_written():
    slow = {"rate": 200.0}
    async with fly_behind("endless", timeout=2.0, scripted=slow) as flown:
        started = asyncio.get_running_loop().time()
        flight = await fly_anthropic(flown.url, flown.key)
        assert asyncio.get_running_loop().time() - started < 4
        assert "the time limit of 2 seconds is reached" in flight.text


@in_real_time
async def test_every_agent_of_a_tree_keeps_its_own_way_down():
    async with fly_behind("loop", max_tokens=60_000) as flown:
        names = ["main", *[f"child-{number}" for number in range(5)]]
        flights = await asyncio.gather(
            *[fly_anthropic(flown.url, flown.key, headers={"x-glidepath-agent": name}, most=200) for name in names]
        )
        assert all(ANSWER in flight.text for flight in flights), [flight.text for flight in flights]
        flown.assert_within(60_000)
        assert {agent["id"] for agent in flown.report()["agents"]} == set(names)


@in_real_time
async def test_a_model_without_a_price_is_refused_under_a_money_limit():
    async with fly_behind("answer", max_cost="1.00") as flown:
        with pytest.raises(Exception, match="no price is known for model 'my-own-model'"):
            await fly_chat(flown.url, flown.key, model="my-own-model")
        assert flown.up.usage.calls == 0


@in_real_time
async def test_what_a_provider_refuses_passes_and_costs_nothing():
    async with fly_behind("answer+429", max_tokens=50_000, max_iterations=5) as flown:
        with pytest.raises(Exception, match="429"):
            await fly_chat(flown.url, flown.key)
        report = flown.report()
        assert report["calls"] == 0
        assert report["tokens"] == 0
        session = next(iter(flown.gate.governor._lines.values())).sessions["run-1"]
        assert (session.meter.reserved_tokens, session.meter.turns) == (0, 0)
