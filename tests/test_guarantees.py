"""Each guarantee once, through the public API. The long proofs stand next to the parts they are about."""

import asyncio
import threading
import time
from decimal import Decimal

import pytest

from glidepath import (
    Agent,
    AgentState,
    Budget,
    CancelToken,
    ConfigurationError,
    Limits,
    LoopOutcome,
    MaxTokensRecovery,
    Plugin,
    ResourceConstraint,
    ResourceValidation,
    Session,
    Tool,
    Usage,
    tool,
)
from glidepath.errors import ContextOverflowError, FatalToolError, RejectedError, TransientError
from glidepath.events import (
    AttemptDiscarded,
    GuardTripped,
    HookFailed,
    RunEnded,
    StreamChunk,
    StreamStarted,
    ToolStarted,
)
from glidepath.spi import Block, Gate, Replace
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    calls,
    empty,
    fail,
    hang,
    no_end,
    no_leftovers,
    refuse,
    say,
    transcript_errors,
    truncated,
    virtual,
)
from glidepath.values import ENDINGS

PRICES = {"scripted": ("3", "15")}


@tool
async def look(topic: str = "x") -> str:
    """Look something up."""
    return f"all about {topic}"


@tool
async def sleep(seconds: float = 3600) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "slept"


@tool
async def explode() -> str:
    """Fail."""
    raise ValueError("boom")


@tool
async def ruin() -> str:
    """Fail for good."""
    raise FatalToolError("the disk is gone")


@tool(requires_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


TOOLS = (look, sleep, explode, ruin, pay)


def forever(turn) -> ScriptedModel:
    return ScriptedModel().forever(turn)


def eager(request):
    """Works for as long as it has tools, never the same call twice."""
    return call("look", topic=str(len(request.messages))) if request.tools else say("the last word")


def stubborn(request):
    """Never answers."""
    return call("look", topic=str(len(request.messages)))


def make(turns, tools=TOOLS, **settings) -> Agent:
    settings.setdefault("limits", Limits(max_iterations=6, timeout=600))
    model = turns if hasattr(turns, "stream") else ScriptedModel(turns)
    return Agent(model=model, tools=tools, **settings)


SCRIPTS = {
    "an answer": [say("done")],
    "a tool": [call("look"), say("done")],
    "a failing tool": [call("explode"), say("done")],
    "a fatal tool": [call("ruin")],
    "an unknown tool": [call("lok"), say("done")],
    "a paused call": [calls(call("look"), call("pay"))],
    "a refusal": [refuse("no")],
    "a rejection": [fail(RejectedError("no"))],
    "faults": [fail(TransientError("x"), text="half of "), no_end("more"), say("done")],
    "faults to the end": forever(fail(TransientError("x"))),
    "an overflow": forever(fail(ContextOverflowError("too long"))),
    "silence": forever(empty()),
    "truncation": forever(truncated("cut ")),
    "truncated calls": forever(truncated(call("look", topic="long"))),
    "a hanging stream": [hang("I was about to")],
    "a hanging tool": [call("sleep")],
    "an eager model": forever(eager),
    "a stubborn model": forever(stubborn),
    "a circling model": forever(call("look")),
    "a lying model": forever(say("x " * 50, usage=Usage(input=-1, output=0))),
    "a broken model": forever(fail(RuntimeError("adapter bug"))),
}


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
@virtual
async def test_g1_every_run_ends_with_a_result_and_one_terminal_event(script):
    recorder = EventRecorder()
    turns = SCRIPTS[script] if isinstance(SCRIPTS[script], list) else forever(SCRIPTS[script]._then)
    agent = make(turns, limits=Limits(max_iterations=6, max_tokens=50_000, timeout=60), event_sink=recorder)
    async with no_leftovers():
        result = await agent.run("go")
    assert (result.state, result.outcome) in ENDINGS
    assert recorder.one(RunEnded).result is result
    recorder.assert_legal()
    assert transcript_errors(result.messages, result.pending) == []


def test_g1_a_wrong_configuration_is_said_before_the_first_call():
    model = ScriptedModel([])
    with pytest.raises(ConfigurationError, match="no limit at all"):
        Agent(model=model).run_sync("go")
    with pytest.raises(ConfigurationError, match="max_iterations"):
        Agent(model=model, limits=Limits(max_iterations=0))
    assert model.calls == 0


@virtual
async def test_g1_the_callers_own_cancellation_goes_on_after_the_landing():
    recorder = EventRecorder()
    task = asyncio.create_task(make([call("sleep")], event_sink=recorder).run("go"))
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = recorder.one(RunEnded).result
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    recorder.assert_legal()


@virtual
async def test_g2_finishing_on_the_last_allowed_turn_is_no_cut():
    limits = Limits(max_iterations=2, grace_iterations=0)
    result = await make([call("look"), say("done")], limits=limits).run("go")
    assert (result.state, result.outcome, result.cause) == (AgentState.COMPLETED, LoopOutcome.DONE, None)
    told = await make([call("look"), say("done")], limits=Limits(max_iterations=2)).run("go")
    assert (told.state, told.outcome) == (AgentState.COMPLETED, LoopOutcome.WRAPPED_UP)
    assert told.cause.source == "GracefulTurnLimit"


@virtual
async def test_g2_the_cause_names_who_stopped_the_run_and_its_figures():
    result = await make(forever(eager), limits=Limits(max_tool_calls=2)).run("go")
    assert (result.state, result.outcome) == (AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP)
    assert result.cause.source == "ToolCallLimitConstraint"
    assert result.cause.metrics == {"tool_calls": 2, "max_tool_calls": 2}


@virtual
async def test_g3_an_answer_that_crosses_a_budget_is_delivered():
    answer = "word " * 400
    result = await make([say(answer)], limits=Limits(max_tokens=1_000)).run("go")
    assert result.text
    assert answer.startswith(result.text.rstrip())


@virtual
async def test_g3_the_best_text_survives_a_provider_that_fails():
    broken = fail(TransientError("dropped"), text="The answer is probably 42")
    result = await make(forever(broken)).run("go")
    assert (result.state, result.outcome, result.partial) == (AgentState.ERROR, LoopOutcome.FAILED, True)
    assert result.text == "The answer is probably 42"


@pytest.mark.parametrize("agents", [1, 8, 32])
@virtual
async def test_g4_agents_that_share_a_budget_do_not_exceed_it(agents):
    budget = Budget(Limits(max_tokens=40_000, max_cost="0.30"))
    agent = make(forever(eager), limits=Limits(max_iterations=40), prices=PRICES, max_output_tokens=400)
    results = await asyncio.gather(*[agent.run("go", parent=budget) for _ in range(agents)])
    assert sum(result.usage.total for result in results) <= 40_000
    assert sum((result.cost or 0) for result in results) <= Decimal("0.30")


@pytest.mark.parametrize("tokens", [2_500, 3_000, 4_000, 6_000])
@virtual
async def test_g4_two_agents_on_a_tight_budget_never_wait_for_each_other(tokens):
    budget = Budget(Limits(max_tokens=tokens))
    agent = make(forever(eager), limits=Limits(max_iterations=40))
    results = await asyncio.gather(*[agent.run("go", parent=budget) for _ in range(2)])
    assert sum(result.usage.total for result in results) <= tokens
    assert any(result.text == "the last word" for result in results)


@virtual
async def test_g4_a_call_that_does_not_fit_is_lowered_before_it_is_refused():
    model = ScriptedModel([say("short")], max_output_tokens=8_000)
    result = await make(model, limits=Limits(max_tokens=4_000)).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert model.requests[0].max_output_tokens < 4_000


@virtual
async def test_g5_the_landing_call_is_paid_from_its_reserve():
    model = forever(eager)
    result = await make(model, limits=Limits(max_tokens=6_000)).run("go")
    assert result.outcome is LoopOutcome.WRAPPED_UP
    assert result.text == "the last word"
    assert result.usage.total <= 6_000


@virtual
async def test_g6_every_call_has_one_result_in_source_order():
    batch = calls(call("sleep", seconds=5), call("nothing"), call("explode"), call("look"), call("look", topic=7))
    result = await make([batch, say("done")]).run("go")
    assert transcript_errors(result.messages) == []
    kinds = [(message.tool_name, message.is_error) for message in result.messages if message.role == "tool_result"]
    assert kinds == [("sleep", False), ("nothing", True), ("explode", True), ("look", False), ("look", True)]


@pytest.mark.parametrize("turn", [call("sleep"), hang(), fail(TransientError("x"))], ids=["tool", "stream", "back-off"])
@virtual
async def test_g7_a_cancel_interrupts_whatever_the_run_waits_for(turn):
    token, loop = CancelToken(), asyncio.get_running_loop()
    model = forever(turn)
    loop.call_later(0.3, token.cancel, "enough")
    async with no_leftovers():
        result = await make(model).run("go", cancel=token)
    assert (result.state, result.outcome, result.cause.reason) == (
        AgentState.CANCELLED,
        LoopOutcome.CANCELLED,
        "enough",
    )
    assert result.elapsed == pytest.approx(0.3, abs=0.01)
    made = model.calls
    await asyncio.sleep(60)
    assert model.calls == made


@virtual
async def test_g7_the_deadline_interrupts_a_hook():
    class Slow(Plugin):
        async def before_tool_call(self, context):
            await asyncio.sleep(3600)

    agent = make([call("look"), say("late")], plugins=[Slow()], limits=Limits(timeout=8), hook_timeout=100)
    result = await agent.run("go")
    assert (result.state, result.outcome) == (AgentState.TIMED_OUT, LoopOutcome.WRAPPED_UP)
    assert result.elapsed <= 8


def test_g7_a_token_can_be_used_from_any_thread():
    token = CancelToken()
    threading.Timer(0.05, token.cancel).start()
    before = time.monotonic()
    result = make([call("sleep")]).run_sync("go", cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert time.monotonic() - before < 5


@virtual
async def test_g8_a_call_that_was_cut_off_never_runs_even_if_it_parses():
    ran = []

    @tool
    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return "gone"

    whole = truncated(call("delete", path="/all"), cut=1_000)
    result = await make(forever(whole), [delete]).run("go")
    assert ran == []
    assert (result.state, result.outcome) == (AgentState.COMPLETED, LoopOutcome.CUT_OFF)
    assert result.cause.source == "truncation"


@pytest.mark.parametrize("how", ["raises", "hangs", "nonsense"])
@virtual
async def test_g9_a_before_hook_that_fails_blocks_the_call(how):
    class Broken(Plugin):
        async def before_tool_call(self, context):
            return await misbehave(how)

    result = await make([call("look"), say("done")], plugins=[Broken()]).run("go")
    refused = next(message for message in result.messages if message.role == "tool_result")
    assert refused.is_error
    assert refused.kind == "blocked"


@pytest.mark.parametrize("how", ["raises", "hangs", "nonsense"])
@virtual
async def test_g9_a_gate_that_fails_allows_nothing(how):
    class Broken(Plugin):
        async def tool_gate(self, context):
            return await misbehave(how)

    model = ScriptedModel([say("done")])
    await make(model, plugins=[Broken()]).run("go")
    assert model.requests[0].tools == ()


@pytest.mark.parametrize("how", ["raises", "hangs", "nonsense"])
@virtual
async def test_g9_a_constraint_that_fails_lands_the_run(how):
    class Broken(ResourceConstraint):
        async def validate(self, context):
            return await misbehave(how)

    result = await make([say("landed")], constraints=[Broken()]).run("go")
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.WRAPPED_UP, "Broken")


@virtual
async def test_g9_an_empty_allow_list_is_no_tools_and_none_is_no_opinion():
    class Nothing(Plugin):
        def tool_gate(self, context):
            return Gate(allowed=frozenset())

    class Silent(Plugin):
        def tool_gate(self, context):
            return None

    for plugin, offered in ((Nothing(), ()), (Silent(), ("look",))):
        model = ScriptedModel([say("done")])
        await make(model, [look], plugins=[plugin]).run("go")
        assert model.requests[0].tools == offered


@virtual
async def test_g9_an_observer_that_crashes_cannot_hurt_a_run():
    class Nosy(Plugin):
        def event_observer(self, event):
            raise RuntimeError("boom")

    recorder = EventRecorder()
    result = await make([call("look"), say("done")], plugins=[Nosy()], event_sink=recorder).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert recorder.of(HookFailed)[-1].effect == "removed"


async def misbehave(how):
    if how == "raises":
        raise RuntimeError("boom")
    if how == "hangs":
        await asyncio.sleep(3600)
    return "nonsense"


@virtual
async def test_g10_hooks_events_and_the_tool_see_the_same_final_arguments():
    seen, ran = [], []

    class Rewriter(Plugin):
        def before_tool_call(self, context):
            return Replace({"topic": "safe"}) if context.arguments["topic"] == "rude" else None

    class Witness(Plugin):
        def before_tool_call(self, context):
            seen.append(dict(context.arguments))

        def after_tool_call(self, context):
            seen.append(dict(context.arguments))

    @tool
    async def note(topic: str) -> str:
        """Note something."""
        ran.append(topic)
        return "noted"

    recorder = EventRecorder()
    agent = make(
        [call("note", topic="rude"), say("done")],
        [note],
        plugins=[Rewriter(), Witness()],
        event_sink=recorder,
    )
    await agent.run("go")
    assert ran == ["safe"]
    assert seen[-2:] == [{"topic": "safe"}, {"topic": "safe"}]
    assert dict(recorder.one(ToolStarted).arguments) == {"topic": "safe"}


@virtual
async def test_g10_replaced_arguments_are_validated_again():
    ran = []

    class Careless(Plugin):
        def before_tool_call(self, context):
            return Replace({"topic": ["not", "a", "text"]})

    @tool
    async def note(topic: str) -> str:
        """Note something."""
        ran.append(topic)
        return "noted"

    result = await make([call("note", topic="x"), say("done")], [note], plugins=[Careless()]).run("go")
    assert ran == []
    assert next(message for message in result.messages if message.role == "tool_result").is_error


@pytest.mark.parametrize("period", [1, 2, 3, 4])
@virtual
async def test_g11_circling_is_nudged_then_withdrawn_then_landed(period):
    recorder = EventRecorder()
    turn = iter(range(1_000))
    model = forever(lambda request: call("look", topic=str(next(turn) % period)))
    result = await make(model, limits=Limits(max_iterations=60), event_sink=recorder).run("go")
    assert result.state is AgentState.ERROR
    actions = [event.action for event in recorder.of(GuardTripped)]
    assert [action for action, before in zip(actions, [None, *actions], strict=False) if action != before] == [
        "nudge",
        "withdraw",
        "land",
    ]


@virtual
async def test_g11_progress_is_forgiven_and_polling_is_allowed():
    fresh = iter(range(1_000))

    @tool
    async def page() -> str:
        """Read the next page."""
        return f"page {next(fresh)}"

    @tool(polling=True)
    async def ready() -> str:
        """Ask whether it is ready."""
        return "not yet"

    for name in ("page", "ready"):
        recorder = EventRecorder()
        model = ScriptedModel([call(name)] * 12 + [say("done")])
        result = await make(model, [page, ready], limits=Limits(max_iterations=40), event_sink=recorder).run("go")
        assert result.outcome is LoopOutcome.DONE
        assert recorder.of(GuardTripped) == []


@virtual
async def test_g12_retries_discarded_attempts_and_children_are_charged():
    escalated = make(
        [truncated("half", usage=Usage(input=10, output=50)), say("whole", usage=Usage(input=10, output=60))],
        max_output_tokens=50,
        max_output_tokens_recovery=MaxTokensRecovery.doubling(),
    )
    assert (await escalated.run("go")).usage == Usage(input=20, output=110)
    retried = await make([fail(TransientError("x"), text="some words were paid for"), say("done")]).run("go")
    assert retried.usage.total > (await make([say("done")]).run("go")).usage.total
    child = make([say("child", usage=Usage(input=100, output=10))], agent_name="child")
    parent = make(
        [call("ask", task="t").with_usage(Usage(input=30, output=3)), say("done", usage=Usage(input=40, output=4))],
        [child.as_tool("ask", "Ask.")],
    )
    result = await parent.run("go")
    assert result.usage == Usage(input=170, output=17)
    assert {(spend.kind, spend.name): spend.usage.total for spend in result.breakdown} == {
        ("model", "scripted"): 77,
        ("child", "child"): 110,
        ("tool", "ask"): 0,
    }


@virtual
async def test_g12_missing_usage_is_estimated_and_flagged():
    result = await make([say("a few words", usage="missing")]).run("go")
    assert result.usage.estimated
    assert result.usage.output > 0


def test_g12_a_money_limit_without_a_price_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="price"):
        Agent(model=ScriptedModel([]), limits=Limits(max_cost="1"))


@virtual
async def test_g14_one_agent_runs_many_tasks_at_once():
    def echo(request):
        asked = request.messages[0].text
        return say(f"answer to {asked}") if request.messages[-1].role == "tool_result" else call("look", topic=asked)

    agent = make(forever(echo))
    results = await asyncio.gather(*[agent.run(f"task {number}") for number in range(200)])
    assert [result.text for result in results] == [f"answer to task {number}" for number in range(200)]
    assert {result.iterations for result in results} == {2}


def test_g14_configuration_is_immutable():
    agent = make([])
    with pytest.raises(AttributeError):
        agent.config.limits.max_iterations = 99
    with pytest.raises(AttributeError):
        agent.config.max_retries = 99
    assert isinstance(agent.config.tools, tuple)
    assert all(isinstance(item, Tool) for item in agent.config.tools)


@virtual
async def test_g14_two_runs_do_not_share_a_session_unless_asked():
    agent = make(forever(say("yes")))
    first, second = await agent.run("one"), await agent.run("two")
    assert first.session_id != second.session_id
    assert len(second.messages) == 2
    session = Session()
    await agent.run("one", session=session)
    assert len((await agent.run("two", session=session)).messages) == 4


@virtual
async def test_g15_a_trimmed_view_keeps_the_task_and_whole_groups():
    @tool
    async def read(page: int) -> str:
        """Read."""
        return f"page {page}: " + "text " * 300

    turn = iter(range(1, 100))
    model = ScriptedModel(context_window=4_000, max_output_tokens=500).forever(
        lambda request: call("read", page=next(turn)) if request.tools else say("done")
    )
    await make(model, [read], limits=Limits(max_iterations=20), system_prompt="Be brief.").run("the task")
    last = model.requests[-1]
    assert len(last.messages) < 30
    assert last.system_prompt == "Be brief."
    assert last.messages[0].text == "the task"
    for request in model.requests:
        assert transcript_errors(request.messages) == []


@virtual
async def test_g16_every_attempt_finishes_once_and_a_discarded_one_is_announced():
    recorder = EventRecorder()
    agent = make(
        [fail(TransientError("x"), text="half an ans"), no_end("half"), say("the answer")], event_sink=recorder
    )
    await agent.run("go")
    assert [event.attempt for event in recorder.of(StreamStarted)] == [1, 2, 3]
    assert [event.attempt for event in recorder.of(AttemptDiscarded)] == [1, 2]
    assert sum(event.finished for event in recorder.of(StreamChunk)) == 3
    shown = ""
    for event in recorder:  # what a consumer shows that believes the announcements
        shown = "" if isinstance(event, AttemptDiscarded) else shown + getattr(event, "text", "")
    assert shown == "the answer"


@virtual
async def test_g17_nothing_outlives_a_run_but_what_it_lists():
    @tool
    async def deaf() -> str:
        """Ignore everything."""
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    token = CancelToken()
    asyncio.get_running_loop().call_later(5, token.cancel)
    async with no_leftovers(abandoned=["glidepath-abandoned*"]):
        result = await make([call("deaf")], [deaf]).run("go", cancel=token)
    assert [work.tool_name for work in result.abandoned] == ["deaf"]
    assert result.elapsed <= 6.1
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@virtual
async def test_g17_a_stream_that_is_left_early_leaves_nothing():
    async with no_leftovers(), make([call("sleep")]).stream("go") as stream:
        async for event in stream:
            if isinstance(event, ToolStarted):
                break
    assert stream.result.outcome is LoopOutcome.CANCELLED


class Picky(ResourceConstraint):
    """Stops after one turn."""

    async def validate(self, context):
        return ResourceValidation.violation("one is enough") if context.iteration else ResourceValidation.ok()


@virtual
async def test_g18_a_custom_constraint_adds_to_the_built_in_ones():
    strict = await make(forever(eager), constraints=[Picky()]).run("go")
    assert strict.cause.source == "Picky"
    capped = await make(forever(stubborn), constraints=[Picky()], limits=Limits(max_iterations=1)).run("go")
    assert capped.cause.source == "MaxIterationConstraint"


@virtual
async def test_g18_built_in_constraints_go_only_when_asked_to():
    class Generous(ResourceConstraint):
        async def validate(self, context):
            return ResourceValidation.violation("enough") if context.iteration >= 9 else ResourceValidation.ok()

    limits = Limits(max_iterations=3)
    result = await make(forever(eager), constraints=[Generous()], replace_defaults=True, limits=limits).run("go")
    assert result.cause.source == "Generous"
    assert result.iterations == 9


@virtual(max_iterations=50_000_000)
async def test_g19_a_turn_reads_no_more_of_the_history_when_it_is_long():
    """Counts what a turn does instead of measuring time: `bench/` measures."""
    counts: list[int] = []

    class Counting:
        def estimate(self, text):
            counts[-1] += len(text)
            return len(text) // 3 + 1

    def turn(request):
        counts.append(0)
        return call("look", topic=f"{len(counts):06}") if len(counts) < 1_500 else say("done")

    model = ScriptedModel(usage=Usage(input=100, output=10), record=False).forever(turn)
    counts.append(0)
    limits = Limits(max_iterations=2_000, max_tokens=10**9)
    result = await make(model, limits=limits, token_estimator=Counting()).run("go")
    assert result.iterations == len(counts) - 1
    assert max(counts[1_400:1_490]) <= 2 * max(counts[20:110])


@virtual
async def test_g9_a_block_reaches_the_model_as_a_reason():
    class Guard(Plugin):
        def before_tool_call(self, context):
            return Block("not on a Sunday")

    result = await make([call("look"), say("done")], plugins=[Guard()]).run("go")
    assert "not on a Sunday" in result.messages[2].text
