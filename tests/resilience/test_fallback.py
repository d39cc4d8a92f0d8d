"""Fallback models: in order, by cause, with the prices, window and caps of the model in use (13.4)."""

import asyncio
from decimal import Decimal

import pytest

from glidepath import (
    Agent,
    AgentState,
    Budget,
    CancelToken,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    Session,
    tool,
)
from glidepath.errors import (
    ContextOverflowError,
    EmptyResponseError,
    InconsistentHistoryError,
    ModelError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from glidepath.events import AttemptDiscarded, ModelSwitched, RetryScheduled, StreamStarted
from glidepath.messages import (
    AssistantMessage,
    ReasoningBlock,
    ReasoningDelta,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
    Usage,
    UserMessage,
)
from glidepath.run import MODEL_FAILURES
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    empty,
    fail,
    hang,
    no_leftovers,
    raw,
    say,
    transcript_errors,
    virtual,
)

LIMITS = Limits(max_iterations=10)


def first(*turns, **more):
    return ScriptedModel(turns, name="first", **more)


def second(*turns, **more):
    return ScriptedModel(turns, name="second", **more)


def third(*turns, **more):
    return ScriptedModel(turns, name="third", **more)


async def fly(model, *fallbacks, limits=LIMITS, prompt="go", session=None, cancel=None, parent=None, **more):
    recorder = EventRecorder()
    agent = Agent(model=model, fallback_models=fallbacks, limits=limits, event_sink=recorder, **more)
    result = await agent.run(prompt, session=session, cancel=cancel, parent=parent)
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    return result, recorder


def used(recorder):
    return [event.model for event in recorder.of(StreamStarted)]


# --- by cause -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "tries"),
    [
        (fail(TransientError("down")), 4),
        (fail(EmptyResponseError("nothing")), 4),
        (empty(), 4),
        (fail(RateLimitedError("slow down")), 4),
        (fail(ConnectionResetError("raw")), 4),
        (fail(RejectedError("no such model")), 1),
        (fail(ModelError("something else")), 1),
    ],
    ids=lambda value: value.describe()[:30] if hasattr(value, "describe") else None,
)
@virtual
async def test_a_cause_that_another_model_may_not_have_goes_to_the_next(turn, tries):
    with first(*[turn] * tries) as one, second("from the second") as two:
        result, recorder = await fly(one, two)
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "from the second", 1)
    assert used(recorder) == ["first"] * tries + ["second"]
    assert [event.attempt for event in recorder.of(StreamStarted)] == list(range(1, tries + 2))
    assert len(recorder.of(AttemptDiscarded)) == tries
    switched = recorder.one(ModelSwitched)
    assert (switched.previous, switched.model) == ("first", "second")
    assert switched.reason
    assert result.messages[-1].model == "second"


@pytest.mark.parametrize("error", [RefusedError("no"), InconsistentHistoryError("bad")], ids=lambda e: type(e).__name__)
@virtual
async def test_a_refusal_and_a_malformed_transcript_stand(error):
    with first(fail(error)) as one, second() as two:
        result, recorder = await fly(one, two)
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "provider")
    assert recorder.of(ModelSwitched) == []


@virtual
async def test_a_retry_after_beyond_the_deadline_goes_to_the_fallback_at_once():
    with first(fail(RateLimitedError("tomorrow", retry_after=86_400))) as one, second("now") as two:
        result, recorder = await fly(one, two, limits=Limits(timeout=60))
    assert (result.text, result.elapsed) == ("now", 0)
    assert recorder.of(RetryScheduled) == []


@virtual
async def test_a_retry_after_beyond_the_deadline_without_a_fallback_fails_at_once():
    with first(fail(RateLimitedError("tomorrow", retry_after=86_400))) as one:
        result, _ = await fly(one, limits=Limits(timeout=60))
    assert (result.outcome, result.elapsed) == (LoopOutcome.FAILED, 0)
    assert result.cause.metrics["error"] == "RateLimitedError"


@virtual
async def test_they_are_used_in_order_and_the_last_error_stands_when_all_fail():
    down = fail(TransientError("down"))
    with first(down) as one, second(fail(RejectedError("key"))) as two, third(down) as three:
        result, recorder = await fly(one, two, three, max_retries=0)
    assert used(recorder) == ["first", "second", "third"]
    assert (result.outcome, result.cause.metrics["error"]) == (LoopOutcome.FAILED, "TransientError")
    with first(down) as one, second(fail(RejectedError("key"))) as two, third("ok") as three:
        result, recorder = await fly(one, two, three, max_retries=0)
    assert result.text == "ok"


@virtual
async def test_every_model_has_its_own_retries():
    down = fail(TransientError("down"))
    with first(down, down) as one, second(down, "ok") as two:
        result, recorder = await fly(one, two, max_retries=1)
    assert result.text == "ok"
    assert [event.model for event in recorder.of(RetryScheduled)] == ["first", "second"]


@virtual
async def test_an_overflow_goes_only_to_a_model_whose_window_holds_the_prompt():
    long = "x" * 9_000
    over = fail(ContextOverflowError("too long"))
    with first(over) as one, second(context_window=2_000) as two, third("read it", context_window=90_000) as three:
        result, recorder = await fly(one, two, three, prompt=long)
    assert (result.text, used(recorder)) == ("read it", ["first", "third"])
    with first(over) as one, second() as two:
        result, _ = await fly(one, two, prompt=long)
    assert result.cause.metrics["error"] == "ContextOverflowError"


# --- the model in use ---------------------------------------------------------------------------------------------


@tool
async def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@virtual
async def test_the_run_stays_with_the_fallback_and_tries_the_first_again_after_thirty_seconds():
    one = first(fail(TransientError("down")), "back again")
    two = second(call("look", n=1), call("look", n=2), call("wait", seconds=31))
    with one, two:
        result, recorder = await fly(one, two, tools=[look, wait], max_retries=0)
    assert (result.text, result.iterations) == ("back again", 4)
    assert used(recorder) == ["first", "second", "second", "second", "first"]
    assert [event.model for event in recorder.of(ModelSwitched)] == ["second", "first"]


@virtual
async def test_the_run_stays_with_the_fallback_while_the_first_is_known_to_be_down():
    down = fail(TransientError("down"))
    one = first(down).forever(down)
    two = second(call("wait", seconds=20), call("wait", seconds=11), call("look", n=1), "done")

    async def break_it():
        await asyncio.sleep(19)
        for _ in range(MODEL_FAILURES):
            await Agent(model=one, limits=LIMITS, max_retries=0).run("go")

    breaking = asyncio.ensure_future(break_it())
    result, recorder = await fly(one, two, tools=[look, wait], max_retries=0)
    await breaking
    assert (result.text, used(recorder)) == ("done", ["first", "second", "second", "second", "second"])
    assert [event.model for event in recorder.of(ModelSwitched)] == ["second"]


@virtual
async def test_another_run_begins_with_the_first_model_again():
    with first(fail(TransientError("down")), "mine") as one, second("theirs") as two:
        agent = Agent(model=one, fallback_models=[two], limits=LIMITS, max_retries=0)
        assert [(await agent.run("go")).text, (await agent.run("go")).text] == ["theirs", "mine"]


@virtual
async def test_g12_each_model_is_charged_at_its_own_price_and_stands_in_the_breakdown():
    turn = fail(TransientError("down"), text="half an answer")
    with (
        first(turn, price=(1, 10)) as one,
        second(call("look", n=1), "done", price=(100, 1000), usage=Usage(50, 10)) as two,
    ):
        result, _ = await fly(one, two, tools=[look], max_retries=0)
    spend = {item.name: item for item in result.breakdown if item.kind == "model"}
    assert list(spend) == ["first", "second"]
    assert [spend[name].calls for name in spend] == [1, 2]
    assert spend["second"].cost == Decimal("0.030000")  # 2 x (50 x 100 + 10 x 1000) / 1e6
    assert 0 < spend["first"].cost < Decimal("0.001")
    assert result.cost == spend["first"].cost + spend["second"].cost
    assert result.usage.total == sum(item.usage.total for item in spend.values())


@virtual
async def test_g12_a_run_that_goes_on_keeps_the_account_of_every_model():
    down = fail(TransientError("down"))
    one, two = first(down, "back", price=(1, 10)), second(call("look", n=1), down, price=(2, 20))
    agent = Agent(model=one, fallback_models=[two], tools=[look], max_retries=0, limits=LIMITS)
    failed = await agent.run("go")
    assert failed.outcome is LoopOutcome.FAILED
    await asyncio.sleep(60)
    with one, two:
        result = await agent.resume(failed)
    before = {item.name: item for item in failed.breakdown if item.kind == "model"}
    after = {item.name: item for item in result.breakdown if item.kind == "model"}
    assert after["second"] == before["second"]
    assert result.cost == sum(item.cost for item in after.values())
    assert (result.text, after["first"].calls) == ("back", 1)


@pytest.mark.parametrize("counting", [0, 1], ids=["the first", "the fallback"])
@virtual
async def test_only_a_model_that_counts_down_is_told_what_is_left(counting):
    models = first(fail(TransientError("down"))), second(call("look", n=1), "done")
    models[counting].takes_task_budget = True
    limits = Limits(max_iterations=10, max_tokens=50_000)
    await fly(*models, limits=limits, tools=[look], max_retries=0, task_budget=True)
    told = [[request.task_budget is not None for request in model.requests] for model in models]
    assert told == ([[True], [False, False]] if counting == 0 else [[False], [True, True]])


@virtual
async def test_g4_the_call_of_a_dear_fallback_is_reserved_at_its_own_price():
    with (
        first(fail(TransientError("down")), price=(1, 1), max_output_tokens=1_000) as one,
        second("x" * 400, price=(1_000, 1_000), max_output_tokens=1_000) as two,
    ):
        result, _ = await fly(one, two, max_retries=0, limits=Limits(max_cost="0.9"), min_output_tokens=50)
    assert result.cost <= Decimal("0.9")
    assert two.requests[0].max_output_tokens < 1_000  # lowered to what its price leaves


@virtual
async def test_g5_the_landing_is_affordable_whichever_model_makes_it():
    down = fail(TransientError("down"))
    with (
        first(call("look", n=1), down, price=(1, 1), max_output_tokens=500) as one,
        second("landed", price=(100, 100), max_output_tokens=500) as two,
    ):
        limits = Limits(max_iterations=1, max_cost="1")
        result, recorder = await fly(one, two, tools=[look], max_retries=0, limits=limits)
    assert (result.state, result.outcome, result.text) == (AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP, "landed")
    assert result.cost <= 1
    assert used(recorder) == ["first", "first", "second"]


@virtual
async def test_the_view_is_made_to_fit_the_window_of_the_fallback():
    session = Session()
    for number in range(40):
        session.messages.append(UserMessage(f"note {number} " + "y" * 300))
    with first(fail(TransientError("down"))) as one, second("ok", context_window=3_000, max_output_tokens=200) as two:
        result, _ = await fly(one, two, session=session, max_retries=0, prompt="the task")
    assert result.text == "ok"
    assert len(one.requests[0].messages) == 41
    sent = two.requests[0].messages
    assert sum(len(message.text) for message in sent) // 3 < 3_000
    assert sent[-1].text == "the task"
    assert sent[0].text.startswith("note 0")


@virtual
async def test_an_output_cap_is_never_more_than_the_fallback_can_write():
    with first(fail(TransientError("down"))) as one, second("ok", max_output_tokens=100) as two:
        await fly(one, two, max_retries=0, max_output_tokens=5_000)
    assert (one.requests[0].max_output_tokens, two.requests[0].max_output_tokens) == (5_000, 100)


# --- reasoning items ----------------------------------------------------------------------------------------------


def thoughtful(vendor, then):
    delta = ReasoningDelta("why", f"opaque of {vendor}", vendor)
    return raw(delta, *then, StreamEnd("tool_use" if len(then) > 1 else "end_turn", Usage(100, 20)))


def reasoning(request):
    blocks = [b for m in request.messages if isinstance(m, AssistantMessage) for b in m.blocks]
    return [block.vendor for block in blocks if isinstance(block, ReasoningBlock)]


async def _think(vendors):
    calls = (TextDelta("so"), ToolCallDelta(index=0, id="c1", name="look", arguments='{"n": 1}'))
    one = first(thoughtful("acme", calls), fail(TransientError("down")))
    again = (TextDelta("so"), ToolCallDelta(index=0, id="c2", name="look", arguments='{"n": 2}'))
    two = second(thoughtful("other", again), "done")
    for model, vendor in zip((one, two), vendors, strict=True):
        if vendor is not None:
            model.vendor = vendor
    with one, two:
        result, _ = await fly(one, two, tools=[look], max_retries=0)
    return result, one, two


@pytest.mark.parametrize("vendors", [("acme", "other"), (None, None), (None, "other")])
@virtual
async def test_falling_back_to_another_vendor_drops_opaque_reasoning_items(vendors):
    result, one, two = await _think(vendors)
    assert reasoning(one.requests[1]) == ["acme"]
    assert reasoning(two.requests[0]) == []
    assert reasoning(two.requests[1]) == ["other"]  # its own are kept
    kept = [b for m in result.messages if isinstance(m, AssistantMessage) for b in m.blocks]
    assert [b.vendor for b in kept if isinstance(b, ReasoningBlock)] == ["acme", "other"]  # the transcript has them


@virtual
async def test_a_reply_that_was_nothing_but_such_an_item_is_left_out():
    paused = raw(ReasoningDelta("why", "opaque of acme", "acme"), StreamEnd("pause_turn", Usage(100, 20)))
    one, two = first(paused, fail(TransientError("down"))), second("done")
    one.vendor, two.vendor = "acme", "other"
    with one, two:
        result, _ = await fly(one, two, max_retries=0)
    assert result.text == "done"
    assert [message.role for message in one.requests[1].messages] == ["user", "assistant"]
    assert [message.role for message in two.requests[0].messages] == ["user"]


@virtual
async def test_falling_back_within_a_vendor_keeps_them():
    _, _, two = await _think(("acme", "acme"))
    assert reasoning(two.requests[0]) == ["acme"]


@virtual
async def test_shaping_after_a_switch_does_not_bring_them_back():
    def turn(n):
        return thoughtful(
            "acme", (TextDelta("x" * 900), ToolCallDelta(index=0, id=f"c{n}", name="look", arguments='{"n": 1}'))
        )

    one = first(*[turn(n) for n in range(6)], fail(TransientError("down")))
    two = second(
        *[call("look", n=n).with_text("y" * 900) for n in range(8)], "done", context_window=2_500, max_output_tokens=100
    )
    one.vendor, two.vendor = "acme", "other"
    with one, two:
        result, _ = await fly(
            one,
            two,
            tools=[look],
            max_retries=0,
            limits=Limits(max_iterations=30),
            guardrails=GuardrailsConfig(max_repeated_tool_steps=0),
        )
    assert result.text == "done"
    assert [reasoning(request) for request in two.requests] == [[]] * 9


# --- stopping -----------------------------------------------------------------------------------------------------


@virtual
async def test_g7_a_cancel_while_the_fallback_streams_stops_it():
    token = CancelToken()
    asyncio.get_running_loop().call_later(5, token.cancel)
    one, two = first(fail(TransientError("down"))), second(hang("so far"))
    async with no_leftovers():
        result, _ = await fly(one, two, max_retries=0, cancel=token)
    assert (result.outcome, result.text, result.elapsed) == (LoopOutcome.CANCELLED, "so far", 5)
    assert two.open_streams == 0


@virtual
async def test_g7_no_fallback_is_asked_after_a_cancel():
    token = CancelToken()

    def cancels(_request):
        token.cancel()
        raise TransientError("down")

    with first(cancels) as one, second() as two:
        result, _ = await fly(one, two, max_retries=0, cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_g7_no_model_with_a_larger_window_is_asked_after_a_cancel():
    token = CancelToken()

    def cancels(_request):
        token.cancel()
        raise ContextOverflowError("too long")

    with first(cancels) as one, second(context_window=1_000_000) as two:
        result, recorder = await fly(one, two, max_retries=0, cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert recorder.of(ModelSwitched) == []


@virtual
async def test_the_deadline_ends_it_all_the_same():
    one, two = first().forever(hang()), second().forever(hang())
    result, _ = await fly(one, two, limits=Limits(timeout=100), first_chunk_timeout=20, max_retries=0)
    assert result.state is AgentState.TIMED_OUT or result.outcome is LoopOutcome.FAILED
    assert result.elapsed <= 100


def test_a_fallback_is_planned_as_if_it_were_the_configured_model():
    """Every field of the plan that depends on the model is the fallback's own."""
    window, price = 9_000, (3, 4)
    two = second(context_window=window, price=price, max_output_tokens=77, count_tokens=len)
    two.vendor, two.usage_is_billed = "acme", True
    plan = Agent(model=first(), fallback_models=[two], limits=LIMITS)._plan.route.plans[1]
    alone = Agent(model=two, limits=LIMITS)._plan
    made_anew = {
        "route",
        "position",
        "strategy",
        "constraints",
        "lineup",
        "make_guards",
        "make_stop_guards",
        "known_stop_guards",
        "notice",
        "repair",
    }
    made_anew |= {"soft_limit", "estimator", "size_of", "policy", "metered"}
    assert plan.config is Agent(plan.config)._plan.config  # the settings are the agent's, whatever the model
    made_anew.add("config")
    for field in type(plan).__struct_fields__:
        if field not in made_anew:
            assert getattr(plan, field) == getattr(alone, field), field


# --- configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(max_cost="1"), Limits(max_cost=5, max_iterations=3)])
def test_a_money_limit_needs_a_price_for_every_fallback(limits):
    with pytest.raises(ConfigurationError, match="none is known for model 'second'"):
        Agent(model=first(price=(1, 1)), fallback_models=[second()], limits=limits)
    Agent(model=first(price=(1, 1)), fallback_models=[second(price=(1, 1))], limits=limits)
    Agent(model=first(price=(1, 1)), fallback_models=[second()], limits=limits, prices={"second": (1, 2)})


@virtual
async def test_a_shared_money_budget_needs_a_price_for_every_fallback():
    agent = Agent(model=first("hi", price=(1, 1)), fallback_models=[second()], limits=LIMITS)
    with pytest.raises(ConfigurationError, match="none is known for model 'second'"):
        await agent.run("go", parent=Budget(Limits(max_cost=1)))


@virtual
async def test_a_shared_money_budget_charges_the_fallback():
    budget = Budget(Limits(max_cost=1))
    with first(fail(TransientError("down")), price=(1, 1)) as one, second("hi", usage=Usage(100, 10)) as two:
        result, _ = await fly(one, two, max_retries=0, parent=budget, prices={"second": (1_000, 1_000)})
    assert result.cost == Decimal("0.11")


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("second", "fallback_models must be a list or tuple"),
        ([object()], r"fallback_models\[0\] must have a method stream"),
        ([None], r"fallback_models\[0\] must have a method stream"),
        ([ScriptedModel], r"fallback_models\[0\] must have a method stream"),
        ([ScriptedModel([], name="")], r"fallback_models\[0\].name must be a non-empty str"),
        ([ScriptedModel([]), ScriptedModel([], context_window=0)], r"fallback_models\[1\].context_window"),
    ],
)
def test_a_wrong_fallback_is_a_configuration_error_that_names_it(models, words):
    with pytest.raises(ConfigurationError, match=words):
        Agent(model=first(), fallback_models=models, limits=LIMITS)


def test_a_model_cannot_stand_in_for_itself():
    one, two = first(), second()
    for models in ([one], [two, two]):
        with pytest.raises(ConfigurationError, match="cannot be its own fallback"):
            Agent(model=one, fallback_models=models, limits=LIMITS)


@virtual
async def test_children_fall_back_too():
    with first(fail(TransientError("down"))) as one, second("from below") as two:
        child = Agent(model=one, fallback_models=[two], limits=LIMITS, max_retries=0)
        boss = Agent(
            model=ScriptedModel([call("ask", task="x"), say("done")]),
            tools=[child.as_tool("ask", "Ask.")],
            limits=LIMITS,
        )
        result = await boss.run("go")
    assert result.children[0].text == "from below"
