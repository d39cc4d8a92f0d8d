"""The caller's own task: its cancellation goes on after the landing, and none of ours is ever left in it."""

import asyncio

import pytest

from glidepath import (
    Agent,
    AgentState,
    CancelToken,
    ConfigurationError,
    ExecutionMode,
    Limits,
    LoopOutcome,
    Plugin,
    tool,
)
from glidepath.errors import TransientError
from glidepath.events import RunEnded
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


@tool
async def forever() -> str:
    await asyncio.sleep(10_000)
    return "never"


@tool
async def two_seconds() -> str:
    await asyncio.sleep(2)
    return "slowly"


class SlowSteering(Plugin):
    async def steering(self, context):
        await asyncio.sleep(4)


SCENES = {
    "in the stream": [hang("so far")],
    "in a tool": [call("forever")],
    "in a batch": [calls(call("forever"), call("forever"), text="so far")],
    "in the back-off": [fail(TransientError("busy")), fail(TransientError("busy")), fail(TransientError("busy"))],
}


@pytest.mark.parametrize("scene", SCENES)
@virtual
async def test_a_cancelled_task_lands_its_run_and_is_cancelled(scene):
    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel(SCENES[scene]).forever(hang()),
        tools=[forever],
        limits=LIMITS,
        plugins=[recorder.as_plugin()],
    )
    async with no_leftovers():
        task = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(0.6)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()
    result = recorder.one(RunEnded).result
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert (result.cause.source, result.cause.reason) == ("cancel", "the task was cancelled")
    assert result.elapsed == 0.6
    assert transcript_errors(result.messages) == []
    recorder.assert_legal()


@virtual
async def test_a_task_cancelled_in_a_hook_lands_its_run_and_is_cancelled():
    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel([]), limits=LIMITS, plugins=[SlowSteering(), recorder.as_plugin()])
    task = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorder.one(RunEnded).result.elapsed == 1
    recorder.assert_legal()


@virtual
async def test_a_task_cancelled_before_its_first_step_never_starts_its_run():
    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel([]), limits=LIMITS, plugins=[recorder.as_plugin()])
    task = asyncio.create_task(agent.run("go"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recorder.events == []


@virtual
async def test_a_timeout_around_a_run_ends_it_as_a_timeout():
    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel([hang("x")]), limits=LIMITS, plugins=[recorder.as_plugin()])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await agent.run("go")
    assert recorder.one(RunEnded).result.outcome is LoopOutcome.CANCELLED
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(1)


@virtual
async def test_a_task_group_that_breaks_takes_its_runs_down():
    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel().forever(hang("x")), limits=LIMITS, event_sink=recorder)

    async def break_down():
        await asyncio.sleep(2)
        raise ValueError("broken")

    async def all_together():
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(agent.run("go"))
            group.create_task(break_down())

    with pytest.raises(ExceptionGroup):
        await all_together()
    assert [event.result.outcome for event in recorder.of(RunEnded)] == [LoopOutcome.CANCELLED] * 3
    recorder.assert_legal()


@virtual
async def test_a_task_cancelled_twice_lands_once():
    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel([call("forever")]), tools=[forever], limits=LIMITS, plugins=[recorder.as_plugin()]
    )
    task = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    recorder.assert_legal()


@virtual
async def test_a_tool_that_swallows_the_callers_cancellation_does_not_save_the_run():
    recorder = EventRecorder()

    @tool
    async def swallow() -> str:
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            return "fine anyway"
        return "never"

    agent = Agent(
        model=ScriptedModel([call("swallow")]), tools=[swallow], limits=LIMITS, plugins=[recorder.as_plugin()]
    )
    task = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = recorder.one(RunEnded).result
    assert result.outcome is LoopOutcome.CANCELLED
    assert result.messages[-1].text == "fine anyway"


@virtual
async def test_a_tool_that_ignores_the_callers_cancellation_is_abandoned_after_a_second():
    recorder, release = EventRecorder(), asyncio.Event()

    @tool
    async def ignore() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    agent = Agent(model=ScriptedModel([call("ignore")]), tools=[ignore], limits=LIMITS, plugins=[recorder.as_plugin()])
    task = asyncio.create_task(agent.run("go"))
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    result = recorder.one(RunEnded).result
    assert result.elapsed == 6
    assert [work.tool_name for work in result.abandoned] == ["ignore"]
    release.set()


# --- none of ours is left -------------------------------------------------------------------------------------

ENDS = {"a cancel token": AgentState.CANCELLED, "a deadline": AgentState.TIMED_OUT}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("scene", SCENES)
@virtual
async def test_no_cancellation_of_ours_stays_in_the_callers_task(end, scene):
    token = CancelToken()
    if end == "a cancel token":
        asyncio.get_running_loop().call_later(0.6, token.cancel)
    limits = Limits(max_iterations=5, timeout=3)
    agent = Agent(model=ScriptedModel(SCENES[scene]).forever(hang()), tools=[forever], limits=limits, max_retries=50)
    result = await agent.run("go", cancel=token)
    if (end, scene) == ("a deadline", "in the back-off"):  # a back-off that would end past the deadline is not begun
        assert result.state in (AgentState.ERROR, AgentState.TIMED_OUT)
    else:
        assert result.state is ENDS[end]
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(100)  # would raise if one were on its way


@virtual
async def test_a_run_that_ends_in_the_round_in_which_it_is_cancelled_leaves_nothing_behind():
    for rounds in range(40):
        token = CancelToken()

        async def cancel_after(count, token=token):
            for _ in range(count):
                await asyncio.sleep(0)
            token.cancel()

        canceller = asyncio.create_task(cancel_after(rounds))
        result = await Agent(model=ScriptedModel(["a b c"]), limits=LIMITS).run("go", cancel=token)
        assert result.outcome in (LoopOutcome.DONE, LoopOutcome.CANCELLED)
        assert asyncio.current_task().cancelling() == 0
        await canceller


@virtual
async def test_a_run_that_could_not_begin_never_interrupts_its_caller_later():
    """The timer of a refused run must not go off in the task of whoever asked for it."""

    class Broken(Plugin):
        def for_run(self):
            raise ValueError("no state today")

        def steering(self, context):
            return None

    agent = Agent(model=ScriptedModel([]), limits=Limits(timeout=10), plugins=[Broken()])
    with pytest.raises(ConfigurationError, match="for_run"):
        await agent.run("go")
    await asyncio.sleep(100)


# --- cancellation inside foreign code is its own business -----------------------------------------------------


@tool
async def with_timeout() -> str:
    try:
        async with asyncio.timeout(1):
            await asyncio.sleep(10_000)
    except TimeoutError:
        await asyncio.sleep(1)
        return "timed out inside"
    return "never"


@tool
async def with_group() -> str:
    async def break_down():
        await asyncio.sleep(1)
        raise ValueError("one of them")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(break_down())
            await asyncio.sleep(10_000)
    except* ValueError:
        await asyncio.sleep(1)
    return "broke inside"


@tool
async def with_both() -> str:
    try:
        async with asyncio.timeout(2), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(10_000))
            async with asyncio.timeout(5):
                await asyncio.sleep(10_000)
    except TimeoutError:
        return "timed out outside"
    return "never"


INSIDE = {"with_timeout": "timed out inside", "with_group": "broke inside", "with_both": "timed out outside"}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("more", [0, 1])
@virtual
async def test_a_tool_may_use_timeouts_and_task_groups_of_its_own(name, more):
    turn = calls(call(name), *[call("two_seconds")] * more)
    with ScriptedModel([turn, "done"]) as model:
        tools = [with_timeout, with_group, with_both, two_seconds]
        agent = Agent(model=model, tools=tools, limits=LIMITS, default_execution_mode=ExecutionMode.PARALLEL)
        result = await agent.run("go")
    assert result.outcome is LoopOutcome.DONE
    assert next(message for message in result.messages if message.role == "tool_result").text == INSIDE[name]
    assert asyncio.current_task().cancelling() == 0
    assert result.elapsed == 2


@pytest.mark.parametrize("name", INSIDE)
@virtual
async def test_a_tool_with_timeouts_and_task_groups_can_be_interrupted(name):
    token = CancelToken()
    asyncio.get_running_loop().call_later(0.5, token.cancel)
    agent = Agent(model=ScriptedModel([call(name)]), tools=[with_timeout, with_group, with_both], limits=LIMITS)
    async with no_leftovers():
        result = await agent.run("go", cancel=token)
    assert (result.outcome, result.elapsed, result.abandoned) == (LoopOutcome.CANCELLED, 0.5, ())
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(100)


@pytest.mark.parametrize("name", INSIDE)
@virtual
async def test_the_caller_can_be_cancelled_while_a_tool_uses_timeouts_and_task_groups(name):
    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel([call(name)]),
        tools=[with_timeout, with_group, with_both],
        limits=LIMITS,
        plugins=[recorder.as_plugin()],
    )
    async with no_leftovers():
        task = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert recorder.one(RunEnded).result.elapsed == 0.5


@pytest.mark.parametrize("more", [0, 1])
@virtual
async def test_a_tool_can_catch_what_it_waits_for(more):
    """The exception of a future is thrown in where the tool waits, and not around it."""

    @tool
    async def careful() -> str:
        async def break_down():
            await asyncio.sleep(1)
            raise ValueError("no luck")

        try:
            await asyncio.create_task(break_down())
        except ValueError:
            await asyncio.sleep(1)
            return "caught"
        return "never"

    with ScriptedModel([calls(call("careful"), *[call("two_seconds")] * more), "done"]) as model:
        result = await Agent(model=model, tools=[careful, two_seconds], limits=LIMITS).run("go")
    assert result.messages[2].text == "caught"
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_a_tool_timeout_that_hits_a_timeout_of_the_tools_own_is_told_apart():
    @tool(timeout=1)
    async def impatient() -> str:
        try:
            async with asyncio.timeout(30):
                await asyncio.sleep(10_000)
        except TimeoutError:
            return "wrong"
        return "never"

    with ScriptedModel([call("impatient"), "done"]) as model:
        result = await Agent(model=model, tools=[impatient], limits=LIMITS).run("go")
    assert (result.outcome, result.elapsed) == (LoopOutcome.DONE, 1)
    assert result.messages[2].text == "The tool was stopped: no result within 1 s."


@virtual
async def test_a_model_may_use_timeouts_of_its_own():
    class Impatient:
        name = "impatient"
        tries = 0

        async def stream(self, request):
            self.tries += 1
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(0 if self.tries > 1 else 10_000)
            except TimeoutError as error:
                raise TransientError("the connection timed out") from error
            async for delta in ScriptedModel(["hello"]).stream(request):
                yield delta

    result = await Agent(model=Impatient(), limits=LIMITS).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "hello")
    assert asyncio.current_task().cancelling() == 0


@virtual
async def test_a_hook_may_use_timeouts_of_its_own():
    class Careful(Plugin):
        async def steering(self, context):
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(10_000)
            except TimeoutError:
                return "be quick" if context.iteration == 0 else None

    with ScriptedModel([say("hello")]) as model:
        result = await Agent(model=model, limits=LIMITS, plugins=[Careful()]).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert [message.text for message in model.requests[0].messages] == ["go", "be quick"]
