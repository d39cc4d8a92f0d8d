"""What is started inside a tool or a guarding hook of a run is that run's child, however it is started."""

import asyncio
import contextvars
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import glidepath
from glidepath import (
    Agent,
    Budget,
    CancelToken,
    ConfigurationError,
    Limits,
    LoopOutcome,
    Plugin,
    ResourceConstraint,
    ResourceValidation,
    Session,
    ToolContext,
    tool,
)
from glidepath.events import ChildEnded, ChildStarted, ToolStarted
from glidepath.spi import Block
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, calls, say, virtual

from .family import ROOMY

INHERIT = glidepath.INHERIT


def inner_agent(text="inner", **more):
    return Agent(model=ScriptedModel(name="inner-model").forever(say(text)), agent_name="inner", **more)


def outer_agent(*tools, limits=ROOMY, turns=None, **more):
    turns = turns or [call(tools[0].name), say("the outer answer")]
    return Agent(model=ScriptedModel(turns, name="outer-model"), tools=tools, limits=limits, agent_name="outer", **more)


def rest_first(request):
    return call("rest") if request.tools and request.messages[-1].role == "user" else say("inner")


def one_tool(body):
    """A tool `act` whose body is `body()`."""

    @tool
    async def act() -> str:
        """Act."""
        return await body()

    return act


# --- every way to start -------------------------------------------------------------------------------------------


async def by_run(agent):
    return await agent.run("go")


async def by_run_inherit(agent):
    return await agent.run("go", parent=INHERIT)


async def by_stream(agent):
    async with agent.stream("go") as stream:
        async for _ in stream:
            pass
    return stream.result


async def by_task(agent):
    return await asyncio.create_task(agent.run("go"))


async def by_group(agent):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.run("go"))
    return task.result()


async def by_gather(agent):
    return (await asyncio.gather(agent.run("go")))[0]


async def by_sync(agent):
    return agent.run_sync("go")


async def by_thread(agent):
    return await asyncio.to_thread(agent.run_sync, "go")


WAYS = [by_run, by_run_inherit, by_stream, by_task, by_group, by_gather, by_sync, by_thread]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@virtual
async def test_g12_an_agent_started_in_a_tool_is_a_child(way):
    inner, seen = inner_agent(), []

    async def body():
        seen.append(await way(inner))
        return seen[0].text

    recorder = EventRecorder()
    outer = outer_agent(one_tool(body), plugins=[recorder.as_plugin()])
    result = await outer.run("go")
    assert seen[0].text == "inner"
    assert [child.run_id for child in result.children] == [seen[0].run_id]
    assert result.usage.total == seen[0].usage.total + sum(
        spend.usage.total for spend in result.breakdown if spend.kind == "model"
    )
    assert ("child", "inner", 1) in [(spend.kind, spend.name, spend.calls) for spend in result.breakdown]
    kinds = [type(event) for event in recorder.events]
    assert kinds.count(ChildStarted) == kinds.count(ChildEnded) == 1


@virtual
async def test_g12_two_calls_side_by_side_have_their_own_children():
    inner = inner_agent()

    @tool
    async def act(n: int) -> str:
        """Act."""
        return (await inner.run(f"go {n}")).text

    outer = outer_agent(act, turns=[calls(call("act", n=1), call("act", n=2)), say("done")])
    assert len((await outer.run("go")).children) == 2


def test_g12_run_sync_in_a_blocking_tool_is_a_child():
    inner = inner_agent()

    @tool
    def act() -> str:
        """Act."""
        return inner.run_sync("go").text

    result = outer_agent(act).run_sync("go")
    assert result.outcome is LoopOutcome.DONE
    assert [child.text for child in result.children] == ["inner"]


@virtual
async def test_g12_run_sync_in_a_blocking_tool_lives_by_the_clock_of_its_parent():
    @tool
    async def rest() -> str:
        """Rest."""
        await asyncio.sleep(100)
        return "rested"

    inner = Agent(model=ScriptedModel().forever(rest_first), tools=[rest])

    @tool
    def act() -> str:
        """Act."""
        return inner.run_sync("go").text

    result = await outer_agent(act).run("go")
    assert [child.outcome for child in result.children] == [LoopOutcome.DONE]
    assert asyncio.get_running_loop().time() >= 100


def test_g12_a_stream_in_the_loop_of_a_blocking_tool_is_a_child():
    inner = inner_agent()

    @tool
    def act() -> str:
        """Act."""
        return asyncio.run(by_stream(inner)).text

    result = outer_agent(act).run_sync("go")
    assert [child.text for child in result.children] == ["inner"]


# --- every place --------------------------------------------------------------------------------------------------


def hooked(hook, agent, way):
    async def act(self, context):
        if not self.ran:
            self.ran.append(None)
            self.ran[0] = await way(agent)

    return type("Hooked", (Plugin,), {hook: act, "ran": [], "name": "hooked"})()


GUARDING = ["before_tool_call", "after_tool_call", "context_transform", "tool_gate", "steering", "follow_up"]


@pytest.mark.parametrize("way", [by_run, by_stream, by_sync, by_thread], ids=lambda way: way.__name__)
@pytest.mark.parametrize("hook", GUARDING)
@virtual
async def test_g12_an_agent_started_in_a_guarding_hook_is_a_child(hook, way):
    @tool
    async def act() -> str:
        """Act."""
        return "done"

    plugin = hooked(hook, inner_agent(), way)
    result = await outer_agent(act, plugins=[plugin]).run("go")
    assert plugin.ran[0].outcome is LoopOutcome.DONE
    assert [child.run_id for child in result.children] == [plugin.ran[0].run_id]


class Asking:
    """A constraint that asks an agent."""

    name = "asking"
    priority = 0

    def __init__(self, agent):
        self.agent, self.ran = agent, []

    async def validate(self, context):
        if not self.ran:  # a child has this constraint, too
            self.ran.append(None)
            self.ran[0] = await self.agent.run("may it?")
        return ResourceValidation.ok()


@virtual
async def test_g12_an_agent_started_in_a_constraint_is_a_child():
    from glidepath import AgentState, ResourceAction, ResourceConstraint

    class Constraint(Asking, ResourceConstraint):
        state = AgentState.BUDGET_EXCEEDED

        def on_violation(self, validation):
            return ResourceAction.GRACEFUL_EXIT

    asking = Constraint(inner_agent())
    outer = Agent(model=ScriptedModel([say("done")]), limits=ROOMY, constraints=[asking])
    result = await outer.run("go")
    assert [child.run_id for child in result.children] == [asking.ran[0].run_id]


@virtual
async def test_an_agent_started_by_an_observer_is_a_root():
    inner, tasks = inner_agent(limits=ROOMY), []

    class Watcher(Plugin):
        name = "watcher"

        def event_observer(self, event):
            if type(event) in (ToolStarted, ChildStarted):
                tasks.append(asyncio.create_task(inner.run("go")))

    results = []

    class Slow(Plugin):
        name = "slow"

        async def event_observer(self, event):
            if type(event) in (ToolStarted, ChildStarted):
                results.append(await inner.run("go"))

    async def body():
        return (await inner.run("a child")).text

    result = await outer_agent(one_tool(body), plugins=[Watcher(), Slow()]).run("go")
    roots = [*await asyncio.gather(*tasks), *results]
    assert [root.outcome for root in roots] == [LoopOutcome.DONE] * 4
    assert len(result.children) == 1


@virtual
async def test_an_agent_started_by_the_event_sink_is_a_root():
    inner, tasks = inner_agent(limits=ROOMY), []

    def sink(event):
        if type(event) is ChildStarted:
            tasks.append(asyncio.create_task(inner.run("go")))

    async def body():
        return (await inner.run("a child")).text

    result = await outer_agent(one_tool(body), event_sink=sink).run("go")
    assert (await tasks[0]).outcome is LoopOutcome.DONE
    assert len(result.children) == 1


# --- the ways out -------------------------------------------------------------------------------------------------


@virtual
async def test_parent_none_makes_a_root():
    inner = inner_agent(limits=ROOMY)

    async def body():
        async with inner.stream("go", parent=None) as stream:
            async for _ in stream:
                pass
        inner.run_sync("go", parent=None)
        return (await inner.run("go", parent=None)).text

    result = await outer_agent(one_tool(body)).run("go")
    assert result.children == ()


@virtual
async def test_a_root_inside_a_tool_must_be_bounded_and_a_child_need_not():
    inner, seen = inner_agent(), []

    async def body():
        with pytest.raises(ConfigurationError, match="no limit"):
            await inner.run("go", parent=None)
        seen.append(await inner.run("go"))
        return "fine"

    await outer_agent(one_tool(body)).run("go")
    assert seen[0].outcome is LoopOutcome.DONE


@virtual
async def test_a_budget_is_used_as_it_is_given():
    inner, budget = inner_agent(), Budget(Limits(max_tokens=50_000))

    async def body():
        return (await inner.run("go", parent=budget)).text

    result = await outer_agent(one_tool(body)).run("go")
    assert result.children == ()
    assert budget.remaining().tokens < 50_000


@virtual
async def test_a_stream_takes_the_context_of_a_tool_as_its_parent():
    inner = inner_agent()

    @tool
    async def act(context: ToolContext) -> str:
        """Act."""
        async with inner.stream("go", parent=context) as stream:
            async for _ in stream:
                pass
        return stream.result.text

    assert [child.text for child in (await outer_agent(act).run("go")).children] == ["inner"]


# --- afterwards ---------------------------------------------------------------------------------------------------


@virtual
async def test_after_the_call_a_task_it_left_behind_starts_a_root_with_one_warning(caplog):
    inner, gate, left = inner_agent(limits=ROOMY), asyncio.Event(), []

    async def later():
        await gate.wait()
        return [await inner.run("one"), await inner.run("two")]

    async def body():
        left.append(asyncio.create_task(later()))
        return "left"

    with caplog.at_level(logging.WARNING, "glidepath"):
        result = await outer_agent(one_tool(body)).run("go")
        gate.set()
        roots = await left[0]
    assert [root.outcome for root in roots] == [LoopOutcome.DONE] * 2
    assert result.children == ()
    said = [record.getMessage() for record in caplog.records if "has ended" in record.getMessage()]
    assert len(said) == 1
    assert "parent=None" in said[0]


@virtual
async def test_after_a_hook_what_it_left_behind_starts_a_root():
    inner, left = inner_agent(limits=ROOMY), []

    async def later():
        await asyncio.sleep(1)
        return await inner.run("go")

    class Leaving(Plugin):
        name = "leaving"

        def steering(self, context):
            left.append(asyncio.create_task(later()))

    async def body():
        await asyncio.sleep(5)
        return "slept"

    result = await outer_agent(one_tool(body), plugins=[Leaving()]).run("go")
    assert (await left[0]).outcome is LoopOutcome.DONE
    assert result.children == ()


@virtual
async def test_after_the_run_the_caller_starts_roots():
    inner = inner_agent(limits=ROOMY)

    async def body():
        return (await inner.run("go")).text

    outer = outer_agent(one_tool(body))
    first = await outer.run("go")
    again = await inner.run("go")
    assert len(first.children) == 1
    assert again.outcome is LoopOutcome.DONE


@virtual
async def test_g7_children_still_running_when_their_call_ends_are_cancelled_and_awaited():
    @tool
    async def rest() -> str:
        """Rest."""
        await asyncio.sleep(1000)
        return "rested"

    inner, left = Agent(model=ScriptedModel().forever(rest_first), tools=[rest]), []

    async def body():
        left.append(asyncio.create_task(inner.run("go")))
        left.append(asyncio.create_task(by_stream(inner)))
        await asyncio.sleep(1)
        return "left"

    result = await outer_agent(one_tool(body)).run("go")
    assert [child.outcome for child in result.children] == [LoopOutcome.CANCELLED] * 2
    assert all(child.done() for child in left[:1])
    assert asyncio.get_running_loop().time() < 10


@virtual
async def test_g7_cancel_reaches_what_runs_inside():
    started, token = asyncio.Event(), CancelToken()

    @tool
    async def rest() -> str:
        """Rest."""
        started.set()
        await asyncio.sleep(1000)
        return "rested"

    inner = Agent(model=ScriptedModel().forever(rest_first), tools=[rest])
    for way in (by_run, by_stream):
        started.clear()
        token = CancelToken()
        outer = outer_agent(one_tool(lambda way=way: way(inner)))
        flight = asyncio.create_task(outer.run("go", cancel=token))
        await started.wait()
        token.cancel("enough")
        result = await flight
        assert result.outcome is LoopOutcome.CANCELLED
        assert [child.outcome for child in result.children] == [LoopOutcome.CANCELLED]
    assert asyncio.get_running_loop().time() < 10


def test_g7_cancel_reaches_run_sync_that_blocks_the_loop():
    started, token = threading.Event(), CancelToken()

    @tool
    async def rest() -> str:
        """Rest."""
        started.set()
        await asyncio.sleep(60)
        return "rested"

    inner = Agent(model=ScriptedModel().forever(rest_first), tools=[rest])

    def stop():
        started.wait(10)
        token.cancel("enough")

    thread = threading.Thread(target=stop)
    thread.start()
    result = outer_agent(one_tool(lambda: by_sync(inner))).run_sync("go", cancel=token)
    thread.join()
    assert result.outcome is LoopOutcome.CANCELLED
    assert [child.outcome for child in result.children] == [LoopOutcome.CANCELLED]


def test_g7_the_deadline_reaches_run_sync_that_blocks_the_loop():
    @tool
    async def rest() -> str:
        """Rest."""
        await asyncio.sleep(60)
        return "rested"

    inner = Agent(model=ScriptedModel().forever(rest_first), tools=[rest])
    limits = Limits(max_iterations=20, timeout=1.0)
    result = outer_agent(one_tool(lambda: by_sync(inner)), limits=limits).run_sync("go")
    assert result.children[0].elapsed < 10


@virtual
async def test_a_cancel_token_of_its_own_stops_a_child():
    @tool
    async def rest() -> str:
        """Rest."""
        await asyncio.sleep(1000)
        return "rested"

    inner, own = Agent(model=ScriptedModel().forever(rest_first), tools=[rest]), CancelToken()

    async def body():
        asyncio.get_running_loop().call_later(1, own.cancel, "enough")
        return (await inner.run("go", cancel=own)).outcome.name

    result = await outer_agent(one_tool(body)).run("go")
    assert result.outcome is LoopOutcome.DONE
    assert [child.outcome for child in result.children] == [LoopOutcome.CANCELLED]


@virtual
async def test_a_child_may_have_a_session_of_its_callers():
    inner, session = inner_agent(), Session("chat")

    async def body():
        await inner.run("one", session=session)
        return (await inner.run("two", session=session)).text

    result = await outer_agent(one_tool(body)).run("go")
    assert [child.session_id for child in result.children] == ["chat", "chat"]
    assert [message.role for message in session.messages] == ["user", "assistant"] * 2


# --- limits reach it ----------------------------------------------------------------------------------------------


def looping(calls_made, way=by_run):
    """An agent whose tool runs the agent itself, twice."""

    def script(request):
        calls_made.append(1)
        if len(calls_made) > 400:
            raise AssertionError("it does not end")
        return calls(call("again", n=len(calls_made)), call("again", n=-len(calls_made))) if request.tools else say("x")

    agents = []

    @tool
    async def again(n: int) -> str:
        """Again."""
        return (await way(agents[0])).text

    def make(limits):
        agents.append(Agent(model=ScriptedModel().forever(script), tools=[again], limits=limits))
        return agents[0]

    return make


@pytest.mark.parametrize("way", [by_run, by_stream, by_sync], ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(max_iterations=3), 3 + 3),
        (Limits(max_iterations=3, max_tokens=20_000), 3 + 3),
        (Limits(max_iterations=60, max_descendants=4), 60 + 5),
        (Limits(max_iterations=60, max_depth=1), 60 + 33),
        (Limits(max_tokens=8_000), 200),
    ],
    ids=["turns", "turns and tokens", "descendants", "depth", "tokens"],
)
def test_g12_an_agent_that_runs_itself_is_held_by_its_limits(way, limits, most):
    made = []
    result = VirtualClock().run(looping(made, way)(limits).run("go"))
    assert len(made) <= most
    if limits.max_tokens:
        assert result.usage.total <= limits.max_tokens

    def deep(result):
        return 1 + max((deep(child) for child in result.children if child.iterations), default=0)

    def count(result):
        return sum(1 + count(child) for child in result.children if child.iterations)

    assert deep(result) <= limits.max_depth + 1
    assert count(result) <= limits.max_descendants


@virtual
async def test_g12_what_cannot_be_started_is_a_result():
    inner, seen = inner_agent(), []

    async def body():
        seen.extend([await inner.run("one"), await inner.run("two"), await by_stream(inner), inner.run_sync("four")])
        return "fine"

    await outer_agent(one_tool(body), limits=Limits(max_iterations=20, max_descendants=1)).run("go")
    assert [child.outcome for child in seen] == [LoopOutcome.DONE, *[LoopOutcome.CUT_OFF] * 3]
    assert {child.cause.source for child in seen[1:]} == {"max_descendants"}
    assert [child.iterations for child in seen[1:]] == [0, 0, 0]


@virtual
async def test_g12_guards_of_the_parent_hold_for_what_runs_inside():
    @tool
    async def harm() -> str:
        """Harm."""
        return "harmed"

    inner = Agent(model=ScriptedModel([call("harm"), say("inner")]), tools=[harm])

    class Guard(Plugin):
        name = "guard"

        def before_tool_call(self, context):
            return Block("never") if context.call.name == "harm" else None

    result = await outer_agent(one_tool(lambda: by_run_text(inner)), plugins=[Guard()]).run("go")
    assert result.children[0].messages[2].text == "Blocked: never"


async def by_run_text(agent):
    return (await agent.run("go")).text


@virtual
async def test_g12_it_holds_for_whatever_runs_inside_of_what_runs_inside():
    leaf = inner_agent("leaf")
    middle = Agent(
        model=ScriptedModel([call("act"), say("middle")]), tools=[one_tool(lambda: by_run_text(leaf))], agent_name="mid"
    )
    result = await outer_agent(middle.as_tool("ask", "Ask."), turns=[call("ask", task="x"), say("top")]).run("go")
    assert result.children[0].children[0].text == "leaf"


def test_inherit_is_named_in_the_package():
    assert repr(glidepath.INHERIT) == "INHERIT"


def test_g7_a_thread_that_a_tool_waits_for_without_giving_way_does_not_hang(monkeypatch):
    """The loop of the run is blocked by the tool itself: the child flies in the thread, on the same ledger."""
    monkeypatch.setattr("glidepath.run.nested.ANSWERS_WITHIN", 0.05)
    inner, seen = inner_agent(), []

    async def body():
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: seen.append(context.run(inner.run_sync, "go")))
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        return seen[0].text

    result = outer_agent(one_tool(body)).run_sync("go")
    assert [child.run_id for child in result.children] == [seen[0].run_id]
    assert result.usage.total > seen[0].usage.total > 0


@virtual
async def test_a_stream_that_is_read_after_its_call_has_ended_is_a_root(caplog):
    inner, made = inner_agent(limits=ROOMY), []

    async def body():
        made.append(inner.stream("go"))
        return "made"

    result = await outer_agent(one_tool(body)).run("go")
    async with made[0] as stream:
        async for _ in stream:
            pass
    assert stream.result.outcome is LoopOutcome.DONE
    assert result.children == ()
    assert "has ended" in caplog.text


@virtual
async def test_the_context_of_the_caller_is_left_as_it_was():
    from glidepath.spi import INSIDE

    async def body():
        place = INSIDE.get()
        await inner_agent().run("go")
        await inner_agent(limits=ROOMY).run("go", parent=None)
        assert INSIDE.get() is place
        return "fine"

    result = await outer_agent(one_tool(body)).run("go")
    assert result.messages[2].text == "fine"
    assert INSIDE.get() is None


# --- a loop that is blocked ---------------------------------------------------------------------------------------


def slow_agent(delay):
    model = ScriptedModel(name="slow-model").forever(say("slow").with_delay(delay))
    return Agent(model=model, max_output_tokens=4000, limits=ROOMY)


def blocking_pair(start):
    """A run whose first tool call holds most of its tokens, while the second blocks the loop by `start(inner)`."""
    slow, inner, seen = slow_agent(0.2), inner_agent(max_output_tokens=4000), []

    @tool(parallel_safe=True)
    async def holder() -> str:
        """Hold tokens."""
        return (await slow.run("go")).text

    @tool(parallel_safe=True)
    async def blocker() -> str:
        """Block the loop."""
        await asyncio.sleep(0.05)
        seen.append(start(inner))
        return seen[0].text

    both = [calls(call("holder"), call("blocker")), say("the outer answer")]
    limits = Limits(max_tokens=9000, max_iterations=9)
    return outer_agent(holder, blocker, limits=limits, turns=both), seen


def run_in_a_pool(agent):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, agent.run_sync, "go").result()


@pytest.mark.parametrize("start", [lambda agent: agent.run_sync("go"), run_in_a_pool], ids=["run_sync", "pool"])
def test_g1_a_child_that_blocks_the_loop_its_tokens_are_reserved_on_is_refused(start, monkeypatch):
    monkeypatch.setattr("glidepath.run.nested.ANSWERS_WITHIN", 0.1)
    outer, seen = blocking_pair(start)
    result = outer.run_sync("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "the outer answer")
    assert seen[0].outcome is LoopOutcome.CUT_OFF
    assert seen[0].cause.source == "TokenBudgetConstraint"
    assert "await run()" in seen[0].cause.reason


def test_g1_a_run_on_a_shared_budget_that_blocks_its_other_runs_is_refused(monkeypatch):
    monkeypatch.setattr("glidepath.run.nested.ANSWERS_WITHIN", 0.1)
    agent, budget = slow_agent(0.2), Budget(Limits(max_tokens=7000))

    async def main():
        other = asyncio.create_task(agent.run("go", parent=budget))
        await asyncio.sleep(0.05)
        return agent.run_sync("go", parent=budget), await other

    refused, other = asyncio.run(main())
    assert (refused.outcome, other.outcome) == (LoopOutcome.CUT_OFF, LoopOutcome.DONE)
    assert budget.remaining().tokens == 7000 - other.usage.total


def test_g12_a_stream_in_a_thread_waits_for_tokens_as_long_as_the_loop_above_answers(monkeypatch):
    monkeypatch.setattr("glidepath.run.nested.ANSWERS_WITHIN", 0.05)
    slow, inner, seen = slow_agent(0.4), inner_agent(max_output_tokens=4000), []

    @tool
    async def holder() -> str:
        """Hold tokens."""
        return (await slow.run("go")).text

    @tool
    def reader() -> str:
        """Read a stream in a thread."""
        time.sleep(0.1)
        seen.append(asyncio.run(by_stream(inner)))
        return seen[0].text

    both = [calls(call("holder"), call("reader")), say("the outer answer")]
    outer = outer_agent(holder, reader, limits=Limits(max_tokens=9000, max_iterations=9), turns=both)
    assert outer.run_sync("go").outcome is LoopOutcome.DONE
    assert (seen[0].outcome, seen[0].text) == (LoopOutcome.DONE, "inner")


def test_g3_a_child_left_behind_in_a_blocked_thread_says_nothing_after_its_parents_end():
    free, ended = threading.Event(), threading.Event()

    @tool
    async def block() -> str:
        """Block the loop of the thread."""
        free.wait(20)
        return "blocked"

    child = Agent(model=ScriptedModel([call("block"), say("late")]), tools=[block], limits=ROOMY)

    @tool(timeout=0.2)
    def act() -> str:
        """Read a stream in a thread."""
        try:
            return asyncio.run(by_stream(child)).text
        finally:
            ended.set()

    async def main():
        result = await outer.run("go")
        free.set()
        await asyncio.to_thread(ended.wait, 20)
        await asyncio.sleep(0)
        return result

    recorder = EventRecorder()
    outer = outer_agent(act, plugins=[recorder.as_plugin()])
    result = asyncio.run(main())
    assert [work.kind for work in result.abandoned] == ["thread", "child"]
    assert (len(recorder.of(ChildStarted)), len(recorder.of(ChildEnded))) == (1, 0)
    recorder.assert_legal()
    assert child.config.model.calls == 1


@virtual
async def test_what_a_constraint_starts_on_a_clock_is_a_root_and_waits_for_nothing_the_run_has_reserved():
    inner, seen = inner_agent(limits=ROOMY), []

    class OnAClock(ResourceConstraint):
        check_every = 0.1

        async def validate(self, context):
            if context.checkpoint == "in_flight":
                seen.append(await inner.run("Is all well?"))
            return ResourceValidation.ok()

    model = ScriptedModel([say("done").with_delay(1)])
    limits = Limits(max_tokens=2000)  # all of it is reserved while the model writes
    result = await Agent(model=model, limits=limits, constraints=[OnAClock()]).run("go")
    assert (result.outcome, result.children) == (LoopOutcome.DONE, ())
    assert seen
    assert {child.outcome for child in seen} == {LoopOutcome.DONE}


def test_g1_a_thread_that_starts_an_agent_in_the_moment_its_call_ends_gets_a_result(caplog):
    inner, left = inner_agent(limits=ROOMY), []

    @tool
    async def act() -> str:
        """Leave a thread behind, and end while it asks the loop for a child."""
        asked = threading.Event()
        loop = asyncio.get_running_loop()
        ask = loop.call_soon_threadsafe

        def heard(*work, **more):
            loop.call_soon_threadsafe = ask
            asked.set()
            return ask(*work, **more)

        loop.call_soon_threadsafe = heard
        left.append(asyncio.create_task(asyncio.to_thread(inner.run_sync, "go")))
        await asyncio.sleep(0)
        asked.wait(20)
        return "left"

    async def main():
        return await outer_agent(act).run("go"), await left[0]

    with caplog.at_level(logging.WARNING, "glidepath"):
        result, alone = asyncio.run(main())
    assert (result.outcome, result.children) == (LoopOutcome.DONE, ())
    assert (alone.outcome, alone.text) == (LoopOutcome.DONE, "inner")
    assert "runs on its own" in caplog.text
