"""Breakers and the retry budget in whole runs: shared by all runs of one model, visible, and never in the way."""

import asyncio

import pytest

from glidepath import Agent, AgentState, CancelToken, Limits, LoopOutcome
from glidepath.errors import (
    ContextOverflowError,
    EmptyResponseError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from glidepath.events import BreakerChanged, ModelSwitched, RetryScheduled, StreamStarted
from glidepath.resilience import model_breaker
from glidepath.run import MODEL_FAILURES, BreakerState
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, fail, hang, virtual

LIMITS = Limits(max_iterations=10)
DOWN = fail(TransientError("down"))


def agent_of(model, recorder=None, **more):
    more.setdefault("limits", LIMITS)
    return Agent(model=model, event_sink=recorder, **more)


async def break_it(model, **more):
    """Fail as often as it takes."""
    for _ in range(MODEL_FAILURES):
        result = await agent_of(model, max_retries=0, **more).run("go")
        assert result.outcome is LoopOutcome.FAILED
    assert model_breaker(model).state is BreakerState.OPEN


def states(recorder):
    return [event.state for event in recorder.of(BreakerChanged)]


# --- the breaker of a model ---------------------------------------------------------------------------------------


@virtual
async def test_a_model_that_fails_again_and_again_is_not_asked_any_more():
    model, recorder = ScriptedModel(name="m").forever(DOWN), EventRecorder()
    agent = agent_of(model, recorder, max_retries=1)
    for number in range(1, MODEL_FAILURES + 1):
        result = await agent.run("go")
        assert (result.cause.metrics["error"], model.calls) == ("TransientError", 2 * number)
    assert states(recorder) == ["open"]
    assert recorder.one(BreakerChanged).target == "m"
    asked = model.calls
    result = await agent.run("go")
    assert model.calls == asked
    assert (result.state, result.outcome, result.elapsed) == (AgentState.ERROR, LoopOutcome.FAILED, 0)
    assert result.cause.source == "provider"
    assert result.cause.metrics["error"] == "BreakerOpenError"
    assert "tried again in" in result.cause.reason
    recorder.assert_legal()


@virtual
async def test_an_open_breaker_goes_to_the_fallback_at_once():
    model = ScriptedModel(name="m").forever(DOWN)
    await break_it(model)
    asked, recorder = model.calls, EventRecorder()
    agent = agent_of(model, recorder, fallback_models=[ScriptedModel(["help"], name="other")])
    result = await agent.run("go")
    assert (result.text, result.elapsed, model.calls) == ("help", 0, asked)
    assert [event.model for event in recorder.of(StreamStarted)] == ["other"]
    assert recorder.one(ModelSwitched).reason.startswith("BreakerOpenError")


@virtual
async def test_one_probe_in_thirty_seconds_for_all_runs_together_and_a_good_one_closes_it():
    model = ScriptedModel(name="m").forever(DOWN)
    await break_it(model)
    for wait, calls in ((0, 0), (29, 0), (1, 1), (0, 0), (29, 0), (1, 1)):
        await asyncio.sleep(wait)
        before = model.calls
        await asyncio.gather(*[agent_of(model).run("go") for _ in range(20)])
        assert model.calls - before == calls  # a probe is not retried
    model.forever("well again")
    await asyncio.sleep(30)
    recorder = EventRecorder()
    assert (await agent_of(model, recorder).run("go")).text == "well again"
    assert states(recorder) == ["half_open", "closed"]
    results = await asyncio.gather(*[agent_of(model).run("go") for _ in range(20)])
    assert {result.text for result in results} == {"well again"}


@virtual
async def test_others_are_refused_while_the_probe_is_in_flight():
    model = ScriptedModel(name="m").forever(DOWN)
    await break_it(model)
    await asyncio.sleep(30)
    model.forever(hang())
    token = CancelToken()
    probe = asyncio.create_task(agent_of(model).run("go", cancel=token))
    await asyncio.sleep(1)
    assert model_breaker(model).state is BreakerState.HALF_OPEN
    assert (await agent_of(model).run("go")).cause.metrics["error"] == "BreakerOpenError"
    token.cancel()
    assert (await probe).outcome is LoopOutcome.CANCELLED
    assert model_breaker(model).state is BreakerState.OPEN
    model.forever("well again")
    assert (await agent_of(model).run("go")).text == "well again"  # the cancelled probe has left its place


@pytest.mark.parametrize("error", [TransientError("x"), EmptyResponseError("x"), RateLimitedError("x")])
@virtual
async def test_no_answer_counts(error):
    await break_it(ScriptedModel().forever(fail(error)))


@pytest.mark.parametrize("error", [RejectedError("x"), RefusedError("x"), ContextOverflowError("x")])
@virtual
async def test_an_answer_of_a_provider_that_works_never_opens_it(error):
    model = ScriptedModel().forever(fail(error))
    for _ in range(20):
        await agent_of(model, max_retries=0).run("go")
    assert model_breaker(model).state is BreakerState.CLOSED
    assert model_breaker(model).failures == 0


@virtual
async def test_a_fault_that_a_retry_absorbs_does_not_count():
    model = ScriptedModel([DOWN, "ok"] * 20)
    for _ in range(20):
        await asyncio.sleep(10)
        assert (await agent_of(model).run("go")).text == "ok"
    assert model_breaker(model).failures == 0


@virtual
async def test_a_cancelled_call_does_not_count():
    model = ScriptedModel().forever(hang())
    for _ in range(10):
        result = await agent_of(model, limits=Limits(timeout=8, landing_seconds=1)).run("go")
        assert result.state is AgentState.TIMED_OUT
    assert model_breaker(model).failures == 0


@virtual
async def test_a_breaker_that_opens_during_a_wait_ends_the_wait_for_good():
    model = ScriptedModel(name="m").forever(fail(RateLimitedError("later", retry_after=20)))
    slow = asyncio.create_task(agent_of(model).run("go"))
    await asyncio.sleep(1)
    model.forever(DOWN)
    await break_it(model)
    asked = model.calls
    result = await slow
    assert (result.outcome, model.calls) == (LoopOutcome.FAILED, asked)


@virtual
async def test_the_landing_call_respects_it_and_the_text_is_kept():
    model = ScriptedModel([call("nothing").with_text("so far")], name="m").forever(DOWN)
    agent = agent_of(model, limits=Limits(max_iterations=1), max_retries=0)
    results = [await agent.run("go")]
    while model_breaker(model).state is not BreakerState.OPEN:
        results.append(await agent.run("go"))
    assert (results[0].outcome, results[0].text) == (LoopOutcome.CUT_OFF, "so far")


def test_two_loops_can_share_a_model():
    model = ScriptedModel(name="m").forever(DOWN)
    VirtualClock(start=10_000).run(break_it(model))
    model.forever("well again")

    async def later():
        refused = await agent_of(model).run("go")
        await asyncio.sleep(30)
        return refused.outcome, (await agent_of(model).run("go")).text

    assert VirtualClock().run(later()) == (LoopOutcome.FAILED, "well again")


def test_agents_of_one_model_share_it_and_agents_of_two_models_do_not():
    one, two = ScriptedModel(), ScriptedModel()
    assert agent_of(one)._plan.health is agent_of(one)._plan.health
    assert agent_of(one)._plan.health is not agent_of(two)._plan.health


# --- the retry budget ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [100, 300, 1_000])
@virtual
async def test_under_total_failure_the_load_is_at_most_a_fifth_more(runs):
    model = ScriptedModel(record=False).forever(fail(TransientError("down"), delay=0.2))
    results = await asyncio.gather(*[agent_of(model).run("go") for _ in range(runs)])
    assert {result.outcome for result in results} == {LoopOutcome.FAILED}
    assert runs < model.calls <= 1.2 * runs


@virtual
async def test_under_total_failure_that_lasts_the_load_is_at_most_a_fifth_more():
    model = ScriptedModel(record=False).forever(fail(TransientError("down"), delay=0.05))
    model_breaker(model).limit = 10**9  # the breaker would end it: this is about the budget alone
    recorder = EventRecorder()
    agent = agent_of(model, recorder)
    flights = []
    for _ in range(600):
        flights.append(asyncio.create_task(agent.run("go")))
        await asyncio.sleep(0.5)
    await asyncio.gather(*flights)
    first_tries = model.calls - len(recorder.of(RetryScheduled))
    assert first_tries == 600  # none was blocked
    assert model.calls <= 1.2 * 600 + 10


@virtual
async def test_a_few_faults_among_many_calls_are_all_absorbed():
    """One call in ten fails once: that is half of what the budget gives."""
    count = 0

    def step(_request):
        nonlocal count
        count += 1
        if count % 10 == 0:
            raise TransientError("now and then")
        return "ok"

    model = ScriptedModel(record=False).forever(step)
    flights = []
    for _ in range(900):
        flights.append(asyncio.create_task(agent_of(model).run("go")))
        await asyncio.sleep(0.1)
    assert {(await flight).outcome for flight in flights} == {LoopOutcome.DONE}


@virtual
async def test_a_lone_run_has_all_its_retries():
    model = ScriptedModel([DOWN, DOWN, DOWN, "at last"])
    assert (await agent_of(model).run("go")).text == "at last"


@virtual
async def test_a_short_fault_that_hits_many_runs_at_once_does_not_open_the_breaker():
    model = ScriptedModel([DOWN] * 200, record=False).forever("well again")
    results = await asyncio.gather(*[agent_of(model).run("go") for _ in range(200)])
    saved = [result for result in results if result.outcome is LoopOutcome.DONE]
    assert 30 <= len(saved) <= 40
    assert model_breaker(model).state is BreakerState.CLOSED
    assert (await agent_of(model).run("go")).text == "well again"


@virtual
async def test_a_retry_that_the_budget_denies_goes_to_the_fallback():
    model = ScriptedModel(record=False, name="m").forever(DOWN)
    other = ScriptedModel(record=False, name="other").forever("help")
    agent = agent_of(model, fallback_models=[other])
    results = await asyncio.gather(*[agent.run("go") for _ in range(200)])
    assert {result.text for result in results} == {"help"}
    assert model.calls <= 240


@virtual
async def test_a_probe_that_is_rejected_was_answered_and_closes_the_breaker():
    model = ScriptedModel([*[DOWN] * MODEL_FAILURES, fail(RejectedError("no such tool"))], name="m")
    await break_it(model)
    await asyncio.sleep(30)
    recorder = EventRecorder()
    result = await agent_of(model, recorder).run("go")
    assert result.cause.metrics["error"] == "RejectedError"
    assert states(recorder) == ["half_open", "closed"]


@virtual
async def test_a_probe_that_is_stopped_leaves_a_breaker_closed_that_a_later_one_has_closed():
    model, token, recorder = ScriptedModel([*[DOWN] * MODEL_FAILURES, hang(), "fine"], name="m"), CancelToken(), []
    await break_it(model)
    await asyncio.sleep(30)
    hanging = asyncio.ensure_future(agent_of(model, recorder.append).run("go", cancel=token))
    await asyncio.sleep(31)
    assert (await agent_of(model).run("go")).text == "fine"
    token.cancel()
    assert (await hanging).outcome is LoopOutcome.CANCELLED
    assert model_breaker(model).state is BreakerState.CLOSED
    assert [event.state for event in recorder if isinstance(event, BreakerChanged)] == ["half_open"]
