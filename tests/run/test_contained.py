"""What plugins raise stays inside: a hook is skipped, a guard blocks, an observer is removed, Ctrl-C cancels."""

import asyncio
import gc

import pytest

from glidepath import Agent, AgentState, Limits, LoopOutcome, Plugin, ResourceConstraint, tool
from glidepath.events import HookFailed, RunEnded
from glidepath.testing import EventRecorder, ScriptedModel, call, no_leftovers, virtual

LIMITS = Limits(max_iterations=5)


class Outlandish(BaseException):
    """What greenlets, test runners and other event loops raise."""


ODD = [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError, Outlandish]


@tool
async def quick() -> str:
    return "quick"


def plugin_with(hook, error, *, is_async):
    def plain(self, context):
        raise error("odd")

    async def waiting(self, context):
        await asyncio.sleep(0)
        raise error("odd")

    return type("Odd", (Plugin,), {hook: waiting if is_async else plain})()


@pytest.mark.parametrize("error", ODD)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("hook", "effect"),
    [
        ("steering", "skipped"),
        ("follow_up", "skipped"),
        ("context_transform", "skipped"),
        ("after_tool_call", "skipped"),
        ("before_tool_call", "the call is blocked"),
        ("tool_gate", "no tool is allowed"),
    ],
)
@virtual
async def test_whatever_a_hook_raises_is_reported_and_the_run_goes_on(hook, effect, is_async, error):
    recorder = EventRecorder()
    plugins = [plugin_with(hook, error, is_async=is_async), recorder.as_plugin()]
    with ScriptedModel([call("quick"), "done"]) as model:
        result = await Agent(model=model, tools=[quick], limits=LIMITS, plugins=plugins).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert {event.effect for event in recorder.of(HookFailed)} == {effect}
    kind = {"before_tool_call": "blocked", "tool_gate": "hidden_tool"}.get(hook)
    assert result.messages[2].kind == kind
    recorder.assert_legal()


@pytest.mark.parametrize("is_async", [False, True])
@virtual
async def test_a_keyboard_interrupt_in_a_hook_cancels_the_run(is_async):
    recorder = EventRecorder()
    plugins = [plugin_with("steering", KeyboardInterrupt, is_async=is_async), recorder.as_plugin()]
    result = await Agent(model=ScriptedModel([]), limits=LIMITS, plugins=plugins).run("go")
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert result.cause.reason == "interrupted from the keyboard"
    recorder.assert_legal()


@virtual
async def test_a_hook_that_hangs_is_given_up_after_its_time():
    class Hanging(Plugin):
        async def steering(self, context):
            await asyncio.sleep(10_000)

    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel(["hi"]), limits=LIMITS, hook_timeout=2, plugins=[Hanging(), recorder.as_plugin()])
    result = await agent.run("go")
    assert (result.outcome, result.elapsed) == (LoopOutcome.DONE, 2)
    assert "no answer within 2 s" in recorder.one(HookFailed).error


@virtual
async def test_a_hook_may_answer_with_any_awaitable():
    class Later(Plugin):
        def steering(self, context):
            future = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(1, future.set_result, "look left" if not context.iteration else None)
            return future

    with ScriptedModel(["hi"]) as model:
        await Agent(model=model, limits=LIMITS, plugins=[Later()]).run("go")
    assert [message.text for message in model.requests[0].messages] == ["go", "look left"]


@pytest.mark.parametrize("error", [*ODD, KeyboardInterrupt])
@virtual
async def test_a_constraint_that_raises_lands_the_run(error):
    class Odd(ResourceConstraint):
        async def validate(self, context):
            raise error("odd")

    model = ScriptedModel(["landed"])
    result = await Agent(model=model, limits=LIMITS, constraints=[Odd()]).run("go")
    if error is KeyboardInterrupt:
        assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    else:
        assert (result.state, result.outcome, result.text) == (AgentState.ERROR, LoopOutcome.WRAPPED_UP, "landed")
        assert result.cause.source == "Odd"


@virtual
async def test_a_check_that_raises_lands_the_run_and_does_not_break_its_end():
    class Odd(ResourceConstraint):
        def check(self, context):
            raise ValueError("odd")

    result = await Agent(model=ScriptedModel(["landed"]), limits=LIMITS, constraints=[Odd()]).run("go")
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.WRAPPED_UP)
    assert "Odd" not in [record.constraint for record in result.validations if not record.validation.violated]


@pytest.mark.parametrize("error", ODD)
@virtual
async def test_an_observer_can_never_hurt_a_run(error):
    recorder = EventRecorder()
    observer = plugin_with("event_observer", error, is_async=False)
    agent = Agent(model=ScriptedModel(["hi"]), limits=LIMITS, plugins=[observer], event_sink=recorder)
    result = await agent.run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "hi")
    assert [event.effect for event in recorder.of(HookFailed)] == ["ignored", "ignored", "removed"]
    recorder.assert_legal()


@pytest.mark.parametrize("error", ODD)
@virtual
async def test_an_async_observer_can_never_hurt_a_run(error):
    observer = plugin_with("event_observer", error, is_async=True)
    async with no_leftovers():
        result = await Agent(model=ScriptedModel(["hi"]), limits=LIMITS, plugins=[observer]).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "hi")


@virtual
async def test_a_slow_async_observer_sees_everything_and_never_holds_the_run_up():
    seen = []

    class Slow(Plugin):
        async def event_observer(self, event):
            await asyncio.sleep(0.01)
            seen.append((type(event), asyncio.get_running_loop().time()))

    async with no_leftovers():
        result = await Agent(model=ScriptedModel(["hi"]), limits=LIMITS, plugins=[Slow()]).run("go")
    assert result.elapsed == 0
    assert seen[-1][0] is RunEnded


@virtual
async def test_an_async_observer_that_hangs_is_stopped_when_the_run_is_over():
    class Hanging(Plugin):
        async def event_observer(self, event):
            await asyncio.sleep(10_000)

    async with no_leftovers():
        agent = Agent(model=ScriptedModel(["hi"]), limits=LIMITS, plugins=[Hanging()])
        result = await agent.run("go")
    assert result.elapsed == 0
    assert asyncio.get_running_loop().time() == 1


class Silent:
    """A stream that never says anything; no generator, which Python itself does not close without noise."""

    name = "silent"

    def stream(self, request):
        return self

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(10_000)


def test_a_loop_that_is_closed_in_the_middle_of_a_run_leaves_no_noise(recwarn):
    """Whoever tears a loop down closes the coroutines in it: nothing may be awaited or swallowed then."""
    noise = []

    @tool
    async def forever() -> str:
        await asyncio.sleep(10_000)
        return "never"

    class Hanging(Plugin):
        async def follow_up(self, context):
            await asyncio.sleep(10_000)

    for script, plugins in (([call("forever")], []), (["hi"], [Hanging()]), ([], [])):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: noise.append(context))
        model = ScriptedModel(script) if script else Silent()
        agent = Agent(model=model, tools=[forever], limits=LIMITS, plugins=plugins, hook_timeout=1000)
        coroutine = agent.run("go")
        task = loop.create_task(coroutine)
        for _ in range(20):
            loop.call_soon(loop.stop)
            loop.run_forever()
        assert not task.done()
        coroutine.close()
        task.cancel()
        with pytest.raises(RuntimeError):  # the task now drives a coroutine that is closed
            loop.run_until_complete(task)
        loop.close()
        del task, coroutine
    gc.collect()
    assert noise == []
    assert [str(warning.message) for warning in recwarn] == []


class Unspeakable(Exception):  # noqa: N818
    def __str__(self):
        raise OSError("no words")


class Speechless(ResourceConstraint):
    name = "speechless"

    def validate(self, context):
        raise Unspeakable


class Mute:
    name = "mute"
    max_output_tokens = 100

    async def stream(self, request):
        raise Unspeakable
        yield


@tool
async def mumble() -> str:
    raise Unspeakable


@tool
def whisper() -> str:
    raise Unspeakable


@virtual
async def test_a_constraint_whose_error_cannot_be_shown_stops_the_run():
    agent = Agent(model=ScriptedModel(["done"]), limits=LIMITS, constraints=[Speechless()])
    result = await agent.run("go")
    assert result.outcome is not LoopOutcome.DONE
    assert "speechless failed: Unspeakable" in result.cause.reason


@virtual
async def test_a_model_whose_error_cannot_be_shown_fails_the_run():
    result = await Agent(model=Mute(), limits=LIMITS, max_retries=0).run("go")
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert "Unspeakable" in result.cause.reason


@pytest.mark.parametrize("odd", [mumble, whisper], ids=["async", "in a thread"])
@virtual
async def test_a_tool_whose_error_cannot_be_shown_is_an_error_like_any_other(odd):
    with ScriptedModel([call(odd.name), "done"]) as model:
        result = await Agent(model=model, tools=[odd], limits=LIMITS).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert (result.messages[2].is_error, result.messages[2].content) == (True, "Unspeakable")
