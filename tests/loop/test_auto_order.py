"""ExecutionMode.AUTO: calls of one reply run together when all of them may overlap, else in the order of the reply."""

import asyncio
import logging
from random import Random

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, CancelToken, ExecutionMode, Limits, LoopConfig, Plugin, tool
from glidepath.errors import ConfigurationError, ToolError
from glidepath.events import ToolEnded, ToolStarted
from glidepath.spi import Block
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, say, transcript_errors, virtual
from glidepath.testing.specimens import Moment, PacksBoxesInOneReply

LIMITS = Limits(max_iterations=6)
MARKS = {
    "look": {"read_only": True},
    "safe": {"parallel_safe": True},
    "plain": {},
    "act": {"consequential": True},
    "alone": {"exclusive": True, "read_only": True},
}


class Bench:
    """Tools that take a second each and write down when they begin and end."""

    def __init__(self, seconds=1):
        self.log, self.seconds, self.busy, self.most = [], seconds, 0, 0
        self.tools = [self.tool(name, **marks) for name, marks in MARKS.items()]

    def tool(self, name, **marks):
        @tool(name=name, **marks)
        async def made(n: int = 0) -> str:
            self.log.append(f"{name} {n} begins")
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(self.seconds)
            self.busy -= 1
            self.log.append(f"{name} {n} ends")
            return name

        return made


async def fly(batch, tools, **settings):
    recorder = EventRecorder()
    plugins = [*settings.pop("plugins", []), recorder.as_plugin()]
    with ScriptedModel([batch, "done"]) as model:
        agent = Agent(model=model, tools=tools, plugins=plugins, **{"limits": LIMITS} | settings)
        result = await agent.run("go")
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    return result, recorder


def kinds(result):
    return [message.kind for message in result.messages if message.role == "tool_result"]


def test_auto_is_the_default_and_the_other_modes_stay():
    assert LoopConfig(model=ScriptedModel(["x"]), limits=LIMITS).default_execution_mode is ExecutionMode.AUTO
    assert [mode.value for mode in ExecutionMode] == ["parallel", "sequential", "auto"]


@pytest.mark.parametrize(
    ("names", "together"),
    [
        (["look", "look"], True),
        (["look", "safe"], True),
        (["safe", "safe", "look"], True),
        (["plain", "plain"], False),
        (["look", "look", "plain"], False),
        (["act", "look"], False),
        (["alone", "look"], False),
    ],
)
@virtual
async def test_calls_run_together_only_when_every_one_may_overlap(names, together):
    bench = Bench()
    result, _ = await fly(calls(*[call(name, n=n) for n, name in enumerate(names)]), bench.tools)
    assert result.elapsed == (1 if together else len(names))
    if not together:
        in_order = [f"{name} {n} {what}" for n, name in enumerate(names) for what in ("begins", "ends")]
        assert bench.log == in_order


@given(names=st.lists(st.sampled_from(list(MARKS)), min_size=2, max_size=6))
def test_unless_all_overlap_nothing_begins_before_what_stands_before_it_has_ended(names):
    @virtual
    async def flight():
        bench = Bench()
        await fly(calls(*[call(name, n=n) for n, name in enumerate(names)]), bench.tools)
        together = all(name in ("look", "safe") for name in names)
        assert bench.most == (len(names) if together else 1)
        begun = [line for line in bench.log if line.endswith("begins")]
        assert begun == [f"{name} {n} begins" for n, name in enumerate(names)]

    flight()


@virtual
async def test_parallel_still_runs_everything_together():
    bench = Bench()
    batch = calls(call("plain"), call("act"), call("look"))
    result, _ = await fly(batch, bench.tools, default_execution_mode=ExecutionMode.PARALLEL)
    assert (result.elapsed, bench.most) == (1, 3)


@virtual
async def test_calls_that_do_not_run_do_not_change_the_order():
    class NoActing(Plugin):
        def before_tool_call(self, context):
            return Block("not now") if context.tool.consequential else None

    bench = Bench()
    batch = calls(call("look"), call("nobody"), call("act"), call("plain", wrong=1), call("look", n=1))
    result, _ = await fly(batch, bench.tools, plugins=[NoActing()])
    assert (result.elapsed, bench.most) == (1, 2)
    assert kinds(result) == [None, "unknown_tool", "blocked", "invalid_arguments", None]


@virtual
async def test_agents_as_tools_overlap_and_still_use_a_slot_of_the_cap():
    bench = Bench()
    child = Agent(model=ScriptedModel([]).forever(call("plain")), tools=bench.tools, limits=Limits(max_iterations=2))
    helper = child.as_tool("helper", "Helps.")
    batch = calls(*[call("helper", task=f"task {n}") for n in range(3)])
    result, _ = await fly(batch, [helper], max_tool_calls_per_turn=2)
    assert kinds(result)[2] == "skipped"
    assert bench.most == 2, "both children worked at the same time"


@virtual
async def test_a_failure_that_aborts_its_siblings_leaves_typed_results_for_the_later_calls():
    @tool(aborts_siblings_on_error=True)
    async def fragile() -> str:
        raise ToolError("it broke")

    bench = Bench()
    batch = calls(call("plain"), call("fragile"), call("plain", n=1), call("act"))
    result, recorder = await fly(batch, [*bench.tools, fragile])
    assert kinds(result) == [None, "ToolError", "aborted", "aborted"]
    texts = [message.text for message in result.messages if message.role == "tool_result"]
    assert texts[2] == texts[3] == "Not started: fragile failed and aborts its siblings."
    assert len(recorder.of(ToolStarted)) == 2


@virtual
async def test_a_calls_seconds_are_its_own_and_not_those_of_the_calls_behind_it():
    bench = Bench(seconds=2)
    _, recorder = await fly(calls(call("plain"), call("plain", n=1), call("plain", n=2)), bench.tools)
    assert [event.seconds for event in recorder.of(ToolEnded)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("mode", "packed"),
    [(ExecutionMode.AUTO, [1, 2, 3, 4]), (ExecutionMode.SEQUENTIAL, [1, 2, 3, 4]), (ExecutionMode.PARALLEL, [])],
)
@virtual
async def test_a_model_that_writes_dependent_calls_gets_its_work_done_in_order_only(mode, packed):
    specimen = PacksBoxesInOneReply()
    model = ScriptedModel([]).forever(
        lambda request: specimen.reply(Moment(number=1, request=request, tools=(), chance=Random(1)))
    )
    agent = Agent(model=model, tools=specimen.tools(), limits=LIMITS, default_execution_mode=mode)
    await agent.run("go")
    assert specimen.packed == packed


# --- the hint ---------------------------------------------------------------------------------------------------


def hints(caplog):
    return [record.getMessage() for record in caplog.records if "one after the other" in record.getMessage()]


def twice(bench, names, **settings):
    script = [calls(*[call(name, n=n) for n, name in enumerate(names)]), say("done")]
    return Agent(model=ScriptedModel(script * 2), tools=bench.tools, limits=LIMITS, **settings)


@virtual
async def test_a_hint_names_the_tools_to_mark_once_for_an_agent(caplog):
    caplog.set_level(logging.INFO, "glidepath")
    agent = twice(Bench(), ["plain", "look", "plain"])
    await agent.run("go")
    await agent.run("go")
    (hint,) = hints(caplog)
    assert hint == (
        "agent: 3 calls of one reply ran one after the other and took 3.00 s; together they would have taken about "
        "1.00 s. If plain only looks, mark it read_only=True; if its calls may overlap, parallel_safe=True. "
        "ExecutionMode.PARALLEL runs all calls together."
    )


@pytest.mark.parametrize(
    ("names", "seconds", "mode"),
    [
        (["plain", "plain"], 0.001, ExecutionMode.AUTO),
        (["plain"], 1, ExecutionMode.AUTO),
        (["look", "look"], 1, ExecutionMode.AUTO),
        (["plain", "act"], 1, ExecutionMode.AUTO),
        (["plain", "alone"], 1, ExecutionMode.AUTO),
        (["plain", "plain"], 1, ExecutionMode.SEQUENTIAL),
    ],
    ids=["quick calls", "one call", "they ran together", "one acts", "one is exclusive", "asked for"],
)
@virtual
async def test_no_hint_where_a_mark_would_not_save_time(caplog, names, seconds, mode):
    caplog.set_level(logging.INFO, "glidepath")
    await twice(Bench(seconds), names, default_execution_mode=mode).run("go")
    assert hints(caplog) == []


# --- the marks --------------------------------------------------------------------------------------------------


def test_read_only_and_consequential_together_are_refused_by_name():
    with pytest.raises(ConfigurationError, match="read_only=True and consequential=True contradict each other"):
        tool(read_only=True, consequential=True)


@pytest.mark.parametrize("mark", ["read_only", "consequential", "untrusted", "parallel_safe"])
def test_a_mark_is_on_the_tool_and_never_in_what_is_sent(mark):
    def look() -> str:
        """Look."""

    marked, plain = tool(look, **{mark: True}), tool(look)
    assert (getattr(marked, mark), getattr(plain, mark)) == (True, False)
    assert marked.spec == plain.spec


def test_a_mark_must_be_true_or_false():
    with pytest.raises(ConfigurationError, match="untrusted: expected True or False, got 'yes'"):
        tool(untrusted="yes")


# --- what counts as a call ------------------------------------------------------------------------------------


@virtual
async def test_a_call_that_a_cancel_keeps_from_starting_is_not_counted():
    bench, token = Bench(), CancelToken()
    asyncio.get_running_loop().call_later(1.5, token.cancel, "enough")
    batch = calls(call("plain", n=1), call("plain", n=2), call("plain", n=3))
    with ScriptedModel([batch]) as model:
        agent = Agent(model=model, tools=bench.tools, limits=Limits(max_iterations=6, max_tool_calls=5))
        result = await agent.run("go", cancel=token)
    assert bench.log == ["plain 1 begins", "plain 1 ends", "plain 2 begins"]
    assert result.tool_calls == 2


@virtual
async def test_a_call_that_its_sibling_aborts_leaves_its_place_under_the_limit():
    bench, tried = Bench(), []

    @tool(aborts_siblings_on_error=True)
    async def shaky() -> str:
        """Fail, and take the rest of the batch along."""
        tried.append(1)
        raise ToolError("no")

    first = calls(call("shaky"), call("plain", n=1), call("plain", n=2))
    with ScriptedModel([first, calls(call("plain", n=3), call("plain", n=4)), "done"]) as model:
        limits = Limits(max_iterations=6, max_tool_calls=3)
        result = await Agent(model=model, tools=[*bench.tools, shaky], limits=limits).run("go")
    assert [line for line in bench.log if "begins" in line] == ["plain 3 begins", "plain 4 begins"]
    assert result.tool_calls == 3
