"""A cancel token stops a run wherever it is: before, in the stream, in tools, in hooks, between retries (G7)."""

import asyncio
import threading
import time

import pytest

from glidepath import (
    Agent,
    AgentState,
    CancelToken,
    ExecutionMode,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    Plugin,
    ToolContext,
    tool,
)
from glidepath.errors import TransientError
from glidepath.events import RunEnded, StreamStarted, ToolStarted
from glidepath.spi import AfterDecision
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    calls,
    fail,
    hang,
    no_leftovers,
    say,
    transcript_errors,
    virtual,
)

LIMITS = Limits(max_iterations=5)
NO_GUARDS = GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0)


@tool
async def forever() -> str:
    await asyncio.sleep(10_000)
    return "never"


@tool
async def quick() -> str:
    return "quick"


def later(seconds, action, *args):
    asyncio.get_running_loop().call_later(seconds, action, *args)


def assert_cancelled(result, reason, *, text=None):
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert (result.cause.source, result.cause.action, result.cause.reason) == ("cancel", "cancel", reason)
    assert result.partial
    if text is not None:
        assert result.text == text
    assert transcript_errors(result.messages) == []


@virtual
async def test_a_token_that_is_cancelled_already_stops_the_run_before_the_first_call():
    token = CancelToken()
    token.cancel("changed my mind")
    with ScriptedModel([]) as model:
        result = await Agent(model=model, limits=LIMITS).run("go", cancel=token)
    assert_cancelled(result, "changed my mind")
    assert (model.calls, result.iterations) == (0, 0)


@virtual
async def test_a_cancel_in_the_stream_keeps_the_text_that_has_come():
    token = CancelToken()
    later(5, token.cancel, "enough")
    with ScriptedModel([hang("so far so good")]) as model:
        result = await Agent(model=model, limits=LIMITS).run("go", cancel=token)
    assert_cancelled(result, "enough", text="so far so good")
    assert result.elapsed == 5
    assert model.open_streams == 0
    assert [message.role for message in result.messages] == ["user"]


@virtual
async def test_a_cancel_between_deltas_keeps_the_longest_text_of_the_call_so_far():
    token = CancelToken()
    later(3.5, token.cancel)
    script = [fail(TransientError("dropped"), text="a long first try", delay=0.1), say("one two three", delay=1)]
    result = await Agent(model=ScriptedModel(script), limits=LIMITS).run("go", cancel=token)
    assert_cancelled(result, "cancelled by the caller", text="a long first try")


@virtual
async def test_a_cancel_in_a_tool_cancels_it_and_answers_its_call():
    token = CancelToken()
    stopped = []

    @tool
    async def tidy() -> str:
        try:
            await asyncio.sleep(10_000)
        finally:
            stopped.append(asyncio.get_running_loop().time())
        return "never"

    later(2, token.cancel)
    async with no_leftovers():
        result = await Agent(model=ScriptedModel([call("tidy")]), tools=[tidy], limits=LIMITS).run("go", cancel=token)
    assert_cancelled(result, "cancelled by the caller")
    assert stopped == [2.0]
    assert result.abandoned == ()
    assert [(m.kind, m.text) for m in result.messages if m.role == "tool_result"] == [
        ("cancelled", "The tool was stopped: the run is being stopped.")
    ]


@virtual
async def test_a_cancel_in_a_batch_cancels_all_of_it_and_starts_nothing_more():
    token, recorder = CancelToken(), EventRecorder()
    later(2, token.cancel)
    turn = calls(call("quick"), call("forever"), call("forever"), call("forever"))
    agent = Agent(
        model=ScriptedModel([turn]),
        tools=[quick, forever],
        limits=LIMITS,
        max_parallel_tools=2,
        default_execution_mode=ExecutionMode.PARALLEL,
        plugins=[recorder.as_plugin()],
    )
    async with no_leftovers():
        result = await agent.run("go", cancel=token)
    kinds = [message.kind for message in result.messages if message.role == "tool_result"]
    assert kinds == [None, "cancelled", "cancelled", "cancelled"]
    assert len(recorder.of(ToolStarted)) == 3
    assert result.messages[-1].text == "Not started: the run is being stopped."
    recorder.assert_legal()


@virtual
async def test_a_cancel_in_the_back_off_is_not_slept_through():
    token = CancelToken()
    later(0.2, token.cancel)
    model = ScriptedModel([fail(TransientError("overloaded"))])
    result = await Agent(model=model, limits=LIMITS).run("go", cancel=token)
    assert_cancelled(result, "cancelled by the caller")
    assert (result.elapsed, model.calls) == (0.2, 1)


class SlowSteering(Plugin):
    async def steering(self, context):
        await asyncio.sleep(4)


class SlowFollowUp(Plugin):
    async def follow_up(self, context):
        await asyncio.sleep(4)


class SlowGate(Plugin):
    async def tool_gate(self, context):
        await asyncio.sleep(4)


class SlowTransform(Plugin):
    async def context_transform(self, context):
        await asyncio.sleep(4)


class SlowBefore(Plugin):
    async def before_tool_call(self, context):
        await asyncio.sleep(4)


@pytest.mark.parametrize("plugin", [SlowSteering, SlowFollowUp, SlowGate, SlowTransform, SlowBefore])
@virtual
async def test_a_cancel_interrupts_a_hook(plugin):
    token, recorder = CancelToken(), EventRecorder()
    later(1, token.cancel)
    turn = call("quick") if plugin is SlowBefore else say("hello")
    agent = Agent(model=ScriptedModel([turn]), tools=[quick], limits=LIMITS, plugins=[plugin(), recorder.as_plugin()])
    async with no_leftovers():
        result = await agent.run("go", cancel=token)
    assert_cancelled(result, "cancelled by the caller")
    assert result.elapsed == 1
    recorder.assert_legal()


class SlowAfter(Plugin):
    async def after_tool_call(self, context):
        await asyncio.sleep(4)


@virtual
async def test_a_cancel_in_an_after_hook_keeps_what_the_tools_have_answered():
    token = CancelToken()
    later(1, token.cancel)
    turn = calls(call("quick"), call("quick"))
    agent = Agent(model=ScriptedModel([turn]), tools=[quick], limits=LIMITS, plugins=[SlowAfter()])
    result = await agent.run("go", cancel=token)
    assert_cancelled(result, "cancelled by the caller")
    assert result.elapsed == 1
    assert [message.text for message in result.messages if message.role == "tool_result"] == ["quick", "quick"]


@virtual
async def test_an_after_hook_that_has_to_wait_is_not_waited_for_once_the_run_is_cancelled():
    token = CancelToken()
    later(1, token.cancel)
    agent = Agent(
        model=ScriptedModel([calls(call("forever"), call("forever"))]),
        tools=[forever],
        limits=LIMITS,
        plugins=[SlowAfter()],
    )
    result = await agent.run("go", cancel=token)
    assert result.elapsed == 1
    assert [m.kind for m in result.messages if m.role == "tool_result"] == ["cancelled", "cancelled"]


class Redact(Plugin):
    def after_tool_call(self, context):
        return AfterDecision(content="redacted")


@virtual
async def test_an_after_hook_that_answers_at_once_still_has_its_say_after_a_cancel():
    token = CancelToken()

    @tool
    async def secret() -> str:
        token.cancel()
        return "the password"

    agent = Agent(model=ScriptedModel([call("secret")]), tools=[secret], limits=LIMITS, plugins=[Redact()])
    result = await agent.run("go", cancel=token)
    assert_cancelled(result, "cancelled by the caller")
    assert result.messages[-1].text == "redacted"


@virtual
async def test_a_tool_can_cancel_the_run_it_works_for_and_its_result_is_kept():
    token = CancelToken()

    @tool
    async def stop_everything() -> str:
        token.cancel("from inside")
        return "stopped it"

    with ScriptedModel([call("stop_everything")]) as model:
        result = await Agent(model=model, tools=[stop_everything], limits=LIMITS).run("go", cancel=token)
    assert_cancelled(result, "from inside")
    assert result.messages[-1].text == "stopped it"


@pytest.mark.parametrize("counts", [True, False])
@virtual
async def test_a_call_that_was_called_off_before_it_began_gives_back_what_it_had_counted_and_no_more(counts):
    token, left = CancelToken(), []

    @tool
    async def stop_everything(context: ToolContext) -> str:
        token.cancel("from inside")
        left.append(context)
        return "stopped it"

    @tool(counts_toward_limit=counts)
    async def look() -> str:
        raise AssertionError("it must not begin")

    limits = Limits(max_iterations=3, max_tool_calls=9)
    with ScriptedModel([calls(call("stop_everything"), call("look"), call("look"))]) as model:
        agent = Agent(
            model=model, tools=[stop_everything, look], limits=limits, default_execution_mode=ExecutionMode.SEQUENTIAL
        )
        result = await agent.run("go", cancel=token)
    assert_cancelled(result, "from inside")
    assert result.tool_calls == 1
    assert left[0].remaining().tool_calls == 8


@virtual
async def test_a_tool_that_cancels_its_run_and_waits_is_cancelled_at_that_wait():
    token = CancelToken()

    @tool
    async def stop_and_wait() -> str:
        token.cancel("from inside")
        await asyncio.sleep(10_000)
        return "never"

    result = await Agent(model=ScriptedModel([call("stop_and_wait")]), tools=[stop_and_wait], limits=LIMITS).run(
        "go", cancel=token
    )
    assert_cancelled(result, "from inside")
    assert result.elapsed == 0


@pytest.mark.parametrize("kind", [StreamStarted, ToolStarted])
@virtual
async def test_an_observer_can_cancel_the_run_it_watches(kind):
    token = CancelToken()

    class Stopper(Plugin):
        events = (kind,)

        def event_observer(self, event):
            token.cancel(f"saw {type(event).__name__}")

    agent = Agent(model=ScriptedModel([call("forever")]), tools=[forever], limits=LIMITS, plugins=[Stopper()])
    result = await agent.run("go", cancel=token)
    assert_cancelled(result, f"saw {kind.__name__}")
    assert result.elapsed == 0


def test_a_token_works_from_another_thread():
    token, started = CancelToken(), threading.Event()

    @tool
    async def wait_for_it() -> str:
        started.set()
        await asyncio.sleep(60)
        return "never"

    def cancel():
        started.wait(10)
        token.cancel("from a thread")

    thread = threading.Thread(target=cancel)
    thread.start()
    begun = time.monotonic()
    result = Agent(model=ScriptedModel([call("wait_for_it")]), tools=[wait_for_it], limits=LIMITS).run_sync(
        "go", cancel=token
    )
    thread.join()
    assert_cancelled(result, "from a thread")
    assert time.monotonic() - begun < 5


def test_a_token_can_be_used_after_the_loop_of_its_run_is_closed():
    token = CancelToken()
    result = Agent(model=ScriptedModel(["hi"]), limits=LIMITS).run_sync("go", cancel=token)
    token.cancel()
    assert result.outcome is LoopOutcome.DONE
    assert token.cancelled


@virtual
async def test_one_token_stops_all_the_runs_that_hold_it():
    token = CancelToken()
    agent = Agent(model=ScriptedModel().forever(hang("x")), limits=LIMITS)
    later(1, token.cancel)
    async with no_leftovers():
        results = await asyncio.gather(*[agent.run("go", cancel=token) for _ in range(50)])
    assert {result.outcome for result in results} == {LoopOutcome.CANCELLED}
    assert {result.elapsed for result in results} == {1.0}


@virtual
async def test_only_the_first_reason_counts():
    token = CancelToken()
    token.cancel("first")
    token.cancel("second")
    result = await Agent(model=ScriptedModel([]), limits=LIMITS).run("go", cancel=token)
    assert result.cause.reason == "first"


@virtual
async def test_only_the_first_reason_to_wind_down_counts():
    token, asked = CancelToken(), []
    token.subscribe(lambda what, reason: asked.append((what, reason)))
    token.wind_down("first")
    token.wind_down("second")
    assert asked == [("wind_down", "first")]


@virtual
async def test_a_cancel_beats_a_wind_down_that_came_before_it():
    token = CancelToken()
    later(1, token.wind_down)
    later(2, token.cancel, "now")
    model = ScriptedModel([call("forever")])
    result = await Agent(model=model, tools=[forever], limits=LIMITS).run("go", cancel=token)
    assert_cancelled(result, "now")
    assert model.calls == 1
    assert token.winding_down


@virtual
async def test_a_cancel_while_landing_ends_the_landing():
    token = CancelToken()
    later(5, token.cancel)
    model = ScriptedModel([call("quick"), hang("the landing so far")])
    agent = Agent(model=model, tools=[quick], limits=Limits(max_iterations=1))
    result = await agent.run("go", cancel=token)
    assert_cancelled(result, "cancelled by the caller", text="the landing so far")
    assert result.landing_calls == 1


@virtual
async def test_a_cancelled_context_tells_its_tool():
    token = CancelToken()
    seen = []

    @tool
    async def curious(context: ToolContext) -> str:
        seen.append(context.cancelled)
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            seen.append(context.cancelled)
            raise
        return "never"

    later(1, token.cancel)
    await Agent(model=ScriptedModel([call("curious")]), tools=[curious], limits=LIMITS).run("go", cancel=token)
    assert seen == [False, True]


@virtual
async def test_nothing_starts_after_a_cancel_among_64_agents():
    """G7: in virtual time no model call and no tool starts later than the cancel, and all are over at once."""
    token, recorder = CancelToken(), EventRecorder()

    @tool
    async def work() -> str:
        await asyncio.sleep(0.3)
        return "more"

    agent = Agent(
        model=ScriptedModel(delay=0.07).forever(calls(call("work"), call("work"), text="on it")),
        tools=[work],
        limits=Limits(max_iterations=1000),
        guardrails=NO_GUARDS,
        event_sink=recorder,
    )
    later(7.77, token.cancel)
    results = await asyncio.gather(*[agent.run("go", cancel=token) for _ in range(64)])
    cancelled_at = recorder.of(RunEnded)[0].time
    late = [event for event in recorder if isinstance(event, StreamStarted | ToolStarted) and event.time > cancelled_at]
    assert late == []
    assert {round(result.elapsed, 6) for result in results} == {7.77}
    recorder.assert_legal()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_token_tells_every_run_once_and_none_that_has_left(count):
    token, told = CancelToken(), []
    listeners = [lambda what, reason, number=number: told.append((number, what, reason)) for number in range(count + 1)]
    for listener in listeners:
        token.subscribe(listener)
        token.subscribe(listener)
    token.unsubscribe(listeners[-1])
    token.unsubscribe(listeners[-1])
    token.cancel("enough")
    assert sorted(told) == [(number, "cancel", "enough") for number in range(count)]


def test_a_token_that_one_run_has_left_serves_the_next():
    token, told = CancelToken(), []
    first, second = (lambda *said: told.append(("first", *said))), (lambda *said: told.append(("second", *said)))
    token.subscribe(first)
    token.unsubscribe(second)  # it never came
    token.unsubscribe(first)
    token.subscribe(second)
    token.wind_down("soon")
    assert told == [("second", "wind_down", "soon")]


def test_a_token_that_thousands_of_runs_share_does_not_look_through_all_of_them_for_each():
    token, compared = CancelToken(), []

    class Listener:
        def __call__(self, what, reason): ...

        def __eq__(self, other):
            compared.append(other)
            return self is other

        __hash__ = object.__hash__

    listeners = [Listener() for _ in range(2_000)]
    for listener in listeners:
        token.subscribe(listener)
    for listener in listeners:
        token.unsubscribe(listener)
    assert len(compared) < len(listeners)


def test_g7_a_signal_handler_that_cancels_while_a_run_takes_the_token_does_not_hang():
    token, heard = CancelToken(), []

    class Listener:
        """Where it is put among others a handler may run, as anywhere; this one does."""

        def __call__(self, what, reason):
            heard.append((what, reason))

        def __hash__(self):
            token.cancel("Ctrl-C")
            return 1

    token.subscribe(lambda *_: None)
    subscribing = threading.Thread(target=token.subscribe, args=(Listener(),), daemon=True)
    subscribing.start()
    subscribing.join(20)
    assert not subscribing.is_alive()
    assert heard == [("cancel", "Ctrl-C")]
