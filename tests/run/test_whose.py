"""Whose cancellation it is: foreign code that cancels its own task has failed, the caller who is cancelled is heard."""

import asyncio
import contextlib
import os
import signal

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import (
    Agent,
    AgentState,
    CancelToken,
    Limits,
    LoopOutcome,
    Plugin,
    ResourceConstraint,
    ResourceValidation,
    tool,
)
from glidepath.events import RunEnded
from glidepath.models import StreamEnd, TextDelta
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    no_leftovers,
    say,
    transcript_errors,
    virtual,
)

LIMITS = Limits(max_iterations=5)


async def broken():
    await asyncio.sleep(1)
    raise ValueError("one of them")


async def group_fails():
    """Before Python 3.13 a group that waits for its tasks leaves its cancellation behind when one fails."""
    async with asyncio.TaskGroup() as group:
        group.create_task(broken())
        group.create_task(asyncio.sleep(100))
    return "never"


async def group_caught():
    try:
        await group_fails()
    except* ValueError:
        pass
    return "caught"


async def groups_nested():
    async with asyncio.TaskGroup() as group:
        group.create_task(group_caught())
        await group_caught()
    return "caught"


async def cancels_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(1)
    return "never"


async def cancels_itself_later():
    await asyncio.sleep(1)
    asyncio.current_task().cancel()
    await asyncio.sleep(1)
    return "never"


async def cancels_itself_and_returns():
    asyncio.current_task().cancel()
    return "caught"


async def cancels_itself_and_swallows():
    await asyncio.sleep(1)
    asyncio.current_task().cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(1)
    await asyncio.sleep(1)
    return "caught"


async def leaky_timer():
    """As timers of some HTTP clients did: the cancellation becomes a TimeoutError and is never taken back."""
    timer = asyncio.get_running_loop().call_later(1, asyncio.current_task().cancel)
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        raise TimeoutError("no answer") from None
    finally:
        timer.cancel()


async def cancelled_by_its_task():
    me = asyncio.current_task()

    async def child():
        await asyncio.sleep(1)
        me.cancel()

    helper = asyncio.create_task(child())
    try:
        await asyncio.sleep(100)
    finally:
        await helper
    return "never"


@contextlib.asynccontextmanager
async def in_time():
    async with asyncio.timeout(0.5):
        yield


async def group_then_timeout():
    """The group leaves one behind; the timeout takes back its own, which is another one."""
    await group_caught()
    with contextlib.suppress(TimeoutError):
        async with in_time():
            await asyncio.sleep(100)
    return "caught"


async def twice():
    for _ in range(2):
        await group_caught()
    return "caught"


FOREIGN = {
    "group_fails": (group_fails, "ExceptionGroup"),
    "group_caught": (group_caught, None),
    "groups_nested": (groups_nested, None),
    "cancels_itself": (cancels_itself, "CancelledError"),
    "cancels_itself_later": (cancels_itself_later, "CancelledError"),
    "cancels_itself_and_returns": (cancels_itself_and_returns, None),
    "cancels_itself_and_swallows": (cancels_itself_and_swallows, None),
    "leaky_timer": (leaky_timer, "TimeoutError"),
    "cancelled_by_its_task": (cancelled_by_its_task, "CancelledError"),
    "group_then_timeout": (group_then_timeout, None),
    "twice": (twice, None),
}
every_kind = pytest.mark.parametrize("kind", FOREIGN)


def tool_of(kind):
    body, _ = FOREIGN[kind]

    async def work() -> str:
        return await body()

    return tool(work)


@tool
async def nap() -> str:
    await asyncio.sleep(1)
    return "rested"


@pytest.mark.parametrize("more", [0, 1], ids=["alone", "in a batch"])
@every_kind
@virtual
async def test_g1_a_tool_that_cancels_its_own_task_fails_or_succeeds_and_the_run_goes_on(kind, more):
    recorder = EventRecorder()
    model = ScriptedModel([calls(call("work"), *[call("nap")] * more), call("nap"), say("done")], delay=0.1)
    agent = Agent(model=model, tools=[tool_of(kind), nap], limits=LIMITS, plugins=[recorder.as_plugin()])
    async with no_leftovers():
        result = await agent.run("go")
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(10)  # would raise if one were on its way
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    answer, *others = [message for message in result.messages if message.role == "tool_result"]
    assert answer.kind == FOREIGN[kind][1]
    assert [message.text for message in others] == ["rested"] * (more + 1)
    recorder.assert_legal()


@every_kind
@virtual
async def test_g1_the_callers_cancellation_is_honored_once_while_foreign_code_cancels_itself(kind):
    """At every moment of the tool, in the very round of its own cancellation too."""
    for tenths in range(26):
        recorder = EventRecorder()
        model = ScriptedModel([call("work"), call("nap"), call("nap"), call("nap"), say("done")])
        agent = Agent(model=model, tools=[tool_of(kind), nap], limits=LIMITS, plugins=[recorder.as_plugin()])

        async def caller(agent=agent):
            try:
                await agent.run("go")
            except asyncio.CancelledError:
                return "cancelled", asyncio.current_task().cancelling()
            return "done", asyncio.current_task().cancelling()

        task = asyncio.create_task(caller())
        await asyncio.sleep(tenths / 10)
        task.cancel()
        assert await task == ("cancelled", 1)
        result = recorder.one(RunEnded).result
        assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED) or not tenths
        assert transcript_errors(result.messages) == []


@every_kind
@virtual
async def test_g1_a_timeout_around_the_run_still_ends_it(kind):
    model = ScriptedModel([call("work"), call("nap"), call("nap"), call("nap"), say("done")])
    agent = Agent(model=model, tools=[tool_of(kind), nap], limits=LIMITS)
    for seconds in (0.5, 1, 1.5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await agent.run("go")
        assert asyncio.current_task().cancelling() == 0
        model = ScriptedModel([call("work"), call("nap"), call("nap"), call("nap"), say("done")])
        agent = Agent(model=model, tools=[tool_of(kind), nap], limits=LIMITS)


@virtual
async def test_g1_a_timeout_of_the_caller_that_a_tool_has_moved_is_still_the_callers():
    @tool
    async def extend() -> str:
        deadline.reschedule(asyncio.get_running_loop().time() + 2)
        await asyncio.sleep(100)
        return "never"

    agent = Agent(model=ScriptedModel([call("extend"), say("done")]), tools=[extend], limits=LIMITS)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1) as deadline:
            await agent.run("go")
    assert asyncio.current_task().cancelling() == 0


@virtual
async def test_g1_a_task_group_of_the_caller_that_a_tool_adds_to_is_still_the_callers():
    @tool
    async def add() -> str:
        group.create_task(broken())
        await asyncio.sleep(100)
        return "never"

    recorder = EventRecorder()
    agent = Agent(model=ScriptedModel([call("add"), say("done")]), tools=[add], limits=LIMITS, event_sink=recorder)
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            await agent.run("go")
    assert recorder.one(RunEnded).result.outcome is LoopOutcome.CANCELLED


@pytest.mark.parametrize("when", [0.5, 1, 1.5])
@every_kind
@virtual
async def test_g1_a_cancel_token_works_while_foreign_code_cancels_itself(kind, when):
    token = CancelToken()
    asyncio.get_running_loop().call_later(when, token.cancel)
    model = ScriptedModel([call("work"), call("nap"), call("nap"), call("nap"), say("done")])
    result = await Agent(model=model, tools=[tool_of(kind), nap], limits=LIMITS).run("go", cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(10)


@every_kind
@virtual
async def test_g1_a_run_inside_a_tool_may_have_tools_that_cancel_themselves(kind):
    inside = Agent(model=ScriptedModel([call("work"), say("inner")]), tools=[tool_of(kind)], limits=LIMITS)

    @tool
    async def ask_another() -> str:
        result = await inside.run("go")
        await asyncio.sleep(1)
        return result.text

    model = ScriptedModel([call("ask_another"), say("done")])
    result = await Agent(model=model, tools=[ask_another], limits=LIMITS).run("go")
    assert (result.outcome, result.messages[2].text) == (LoopOutcome.DONE, "inner")
    assert asyncio.current_task().cancelling() == 0


@virtual
async def test_g1_a_tool_may_cancel_the_run_inside_it():
    recorder = EventRecorder()
    inside = Agent(model=ScriptedModel([call("nap"), say("inner")]), tools=[nap], limits=LIMITS, event_sink=recorder)

    @tool
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.5):
                return (await inside.run("go")).text
        except TimeoutError:
            return "too slow"

    model = ScriptedModel([call("impatient"), say("done")])
    result = await Agent(model=model, tools=[impatient], limits=LIMITS).run("go")
    assert (result.outcome, result.messages[2].text) == (LoopOutcome.DONE, "too slow")
    assert recorder.one(RunEnded).result.outcome is LoopOutcome.CANCELLED


HOOKS = ["before_tool_call", "after_tool_call", "context_transform", "steering", "follow_up", "tool_gate"]


@pytest.mark.parametrize("hook", HOOKS)
@every_kind
@virtual
async def test_g1_a_hook_that_cancels_its_own_task_ends_no_run(kind, hook):
    body, _ = FOREIGN[kind]
    done = []

    async def odd(self, context):
        if not done:
            done.append(hook)
            await body()

    plugin = type("Odd", (Plugin,), {hook: odd})()
    model = ScriptedModel([call("nap"), say("done")], delay=0.1)
    result = await Agent(model=model, tools=[nap], limits=LIMITS, plugins=[plugin]).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(10)


@pytest.mark.parametrize("hook", [*HOOKS, "event_observer"])
@virtual
async def test_g1_a_plain_hook_that_cancels_the_task_ends_no_run(hook):
    done = []

    def odd(self, context):
        if not done:
            done.append(hook)
            asyncio.current_task().cancel()

    plugin = type("Odd", (Plugin,), {hook: odd})()
    model = ScriptedModel([call("nap"), say("done")], delay=0.1)
    result = await Agent(model=model, tools=[nap], limits=LIMITS, plugins=[plugin]).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(10)


@virtual
async def test_g1_an_observer_that_cancels_the_task_at_the_last_event_loses_no_result():
    def last(event):
        if type(event) is RunEnded:
            asyncio.current_task().cancel()

    result = await Agent(model=ScriptedModel([say("done")]), limits=LIMITS, event_sink=last).run("go")
    assert result.text == "done"
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(10)


@every_kind
@virtual
async def test_g9_a_constraint_that_cancels_its_own_task_lands_the_run_or_passes(kind):
    body, failed = FOREIGN[kind]

    class Odd(ResourceConstraint):
        async def validate(self, context):
            await body()
            return ResourceValidation.ok()

    model = ScriptedModel().forever(say("done"))
    result = await Agent(model=model, limits=LIMITS, constraints=[Odd()], constraint_timeout=10).run("go")
    assert result.outcome is (LoopOutcome.DONE if failed is None else LoopOutcome.WRAPPED_UP)
    assert result.text == "done"
    assert asyncio.current_task().cancelling() == 0


@every_kind
@virtual
async def test_g1_a_model_that_cancels_its_own_task_is_tried_again(kind):
    body, failed = FOREIGN[kind]
    tries = []

    class Odd:
        name = "odd"

        async def stream(self, request):
            tries.append(request)
            if len(tries) == 1:
                await body()
            yield TextDelta("done")
            yield StreamEnd("end_turn", None)

    result = await Agent(model=Odd(), limits=LIMITS).run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")
    assert len(tries) == (1 if failed is None else 2)
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.process
def test_g1_a_real_ctrl_c_in_the_middle_of_a_tool_still_stops_the_program():
    """asyncio turns it into a cancellation of the main task, while the tool is running: it is not the tool's own."""
    recorder = EventRecorder()

    @tool
    async def busy() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(5)
        return "never"

    agent = Agent(model=ScriptedModel([call("busy"), say("done")]), tools=[busy], limits=LIMITS, event_sink=recorder)
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("go")
    assert recorder.one(RunEnded).result.outcome is LoopOutcome.CANCELLED


async def take(step, timers):
    """One thing that a tool may do to its own task."""
    task = asyncio.current_task()
    if step == "own":
        task.cancel()
    elif step == "own later":
        timers.append(asyncio.get_running_loop().call_later(0.47, task.cancel))  # never at the end of a wait
    elif step == "group":
        try:
            await group_fails()
        except* ValueError:
            pass
    elif step == "timeout":
        async with asyncio.timeout(0.3):
            await asyncio.sleep(1)
    else:
        await asyncio.sleep(0.4)


STEPS = st.lists(st.sampled_from(["own", "own later", "group", "caught", "timeout", "rest"]), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, stop=st.one_of(st.none(), st.integers(0, 60)))
def test_g1_the_caller_is_cancelled_exactly_when_somebody_outside_cancelled_it(steps, stop):
    """Whatever a tool does to its own task, in whatever order, and whenever the caller is cancelled."""

    @tool
    async def work() -> str:
        timers = []
        try:
            for step in steps:
                with contextlib.suppress(ValueError, TimeoutError):
                    await take(step, timers)
            await asyncio.sleep(0.6)
        finally:
            for timer in timers:  # one that is left behind looks like anybody's
                timer.cancel()
        return "worked"

    async def program():
        recorder = EventRecorder()
        model = ScriptedModel([call("work"), *[call("nap")] * 4, say("done")], delay=0.1)
        limits = Limits(max_iterations=10)
        agent = Agent(model=model, tools=[work, nap], limits=limits, plugins=[recorder.as_plugin()])
        task = asyncio.create_task(agent.run("go"))
        if stop is not None:
            await asyncio.sleep(stop / 10)
            asked = task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() is (stop is not None and asked)
        if recorder.events:
            recorder.assert_legal()

    VirtualClock().run(program())
