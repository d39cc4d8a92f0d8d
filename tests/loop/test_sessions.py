"""Several runs in one session, and many runs of one agent (SPEC 0, G14)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from glidepath import Agent, AgentState, ConfigurationError, Limits, LoopOutcome, Plugin, Session, Usage, tool
from glidepath.messages import AssistantMessage, CustomMessage, TextBlock, ToolCall, UserMessage
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, hang, no_leftovers, say, transcript_errors, virtual

LIMITS = Limits(max_iterations=5)


@tool
async def add(a: int, b: int) -> int:
    return a + b


@virtual
async def test_a_second_run_goes_on_where_the_first_one_ended():
    session = Session("chat")
    with ScriptedModel(["hello", "I said hello"]) as model:
        agent = Agent(model=model, limits=LIMITS)
        first = await agent.run("hi", session=session)
        second = await agent.run("what did you say?", session=session)
    assert [message.text for message in model.requests[1].messages] == ["hi", "hello", "what did you say?"]
    assert [message.text for message in second.new_messages] == ["what did you say?", "I said hello"]
    assert len(first.messages) == 2
    assert len(second.messages) == len(session.messages) == 4
    assert (first.session_id, second.session_id) == ("chat", "chat")
    assert first.run_id != second.run_id


@virtual
async def test_totals_accumulate_over_runs_and_limits_start_afresh():
    session = Session()
    script = [call("add", a=1, b=1).with_usage(Usage(100, 10)), say("2", usage=Usage(200, 20))]
    agent = Agent(
        model=ScriptedModel(script * 3),
        tools=[add],
        limits=Limits(max_iterations=2, grace_iterations=0),
        prices={"scripted": (1, 1)},
    )
    for _ in range(3):
        result = await agent.run("go", session=session)
        assert (result.outcome, result.iterations, result.usage) == (LoopOutcome.DONE, 2, Usage(300, 30))
    totals = session.totals
    assert (totals.runs, totals.iterations, totals.tool_calls, totals.usage) == (3, 6, 3, Usage(900, 90))
    assert totals.cost == 3 * result.cost == Decimal("0.00099")
    assert (session.state, session.version) == (AgentState.COMPLETED, 3)


@virtual
async def test_a_session_goes_on_after_every_kind_of_end():
    session = Session()
    from glidepath import CancelToken

    token = CancelToken()
    asyncio.get_running_loop().call_later(1, token.cancel)

    @tool
    async def forever() -> str:
        await asyncio.sleep(1000)
        return "never"

    agent = Agent(model=ScriptedModel([call("forever"), "back again"]), tools=[forever], limits=LIMITS)
    cancelled = await agent.run("go", session=session, cancel=token)
    result = await agent.run("still there?", session=session)
    assert (cancelled.outcome, result.outcome) == (LoopOutcome.CANCELLED, LoopOutcome.DONE)
    assert transcript_errors(session.messages) == []


@virtual
async def test_a_session_with_a_run_in_flight_refuses_a_second_one_and_stays_usable():
    session = Session()
    agent = Agent(model=ScriptedModel([hang("x"), "free again"]), limits=Limits(timeout=30), landing="off")
    running = asyncio.create_task(agent.run("go", session=session))
    await asyncio.sleep(1)
    with pytest.raises(ConfigurationError, match="in flight"):
        await agent.run("me too", session=session)
    await asyncio.sleep(100)  # the timer of the refused run must not interrupt us
    assert (await running).state is AgentState.TIMED_OUT
    assert (await agent.run("now?", session=session)).text == "free again"


@virtual
async def test_a_broken_transcript_is_mended_before_it_is_sent():
    broken = AssistantMessage((TextBlock("let me see"), ToolCall("x", "add", {"a": 1})))
    session = Session(messages=[UserMessage("task"), broken])
    with ScriptedModel(["fine"]) as model:
        result = await Agent(model=model, tools=[add], limits=LIMITS).run("go on", session=session)
    assert transcript_errors(result.messages) == []
    assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "tool_result", "user"]


@virtual
async def test_a_prompt_of_messages_is_mended_too():
    broken = AssistantMessage((ToolCall("x", "add", {"a": 1}),))
    with ScriptedModel(["fine"]) as model:
        result = await Agent(model=model, tools=[add], limits=LIMITS).run([UserMessage("task"), broken])
    assert transcript_errors(result.messages) == []
    assert result.messages[2].is_error


@virtual
async def test_custom_messages_stay_in_the_transcript_and_are_never_sent():
    note = CustomMessage("note", {"n": 1})
    session = Session(messages=[UserMessage("task"), note, AssistantMessage((TextBlock("yes"),))])
    with ScriptedModel(["one", "two"]) as model:
        agent = Agent(model=model, limits=LIMITS)
        await agent.run([UserMessage("go"), CustomMessage("mine")], session=session)
        await agent.run("again", session=session)
    assert [message.role for request in model.requests for message in request.messages].count("custom") == 0
    kinds = [message.kind for message in session.messages if message.role == "custom"]
    assert kinds == ["note", "mine"]
    assert session.messages[1] is note


@virtual
async def test_a_run_in_a_session_given_by_id_has_that_id():
    result = await Agent(model=ScriptedModel(["hi"]), limits=LIMITS).run("go", session="my chat")
    assert result.session_id == "my chat"


# --- one agent, many runs -------------------------------------------------------------------------------------


class Counter(Plugin):
    """Counts the calls of one run, in state of its own."""

    def __init__(self):
        self.seen = 0

    def for_run(self):
        return Counter()

    def before_tool_call(self, context):
        self.seen += 1

    def steering(self, context):
        return f"seen {self.seen}" if self.seen else None


@virtual
async def test_g14_one_agent_runs_200_tasks_at_once_and_they_never_mix():
    def answer(request):
        task = int(request.messages[0].text)
        told = [message.text for message in request.messages if message.text.startswith("seen")]
        done = len([message for message in request.messages if message.role == "tool_result"])
        if done < 3:
            return call("wait", seconds=task % 7, n=task * 10 + done)
        return say(f"{task}: {', '.join(told)}")

    @tool
    async def wait(seconds: int, n: int) -> str:
        await asyncio.sleep(seconds)
        return f"waited {n}"

    shared = Counter()
    model = ScriptedModel(record=False).forever(answer)
    agent = Agent(model=model, tools=[wait], limits=Limits(max_iterations=9), plugins=[shared])
    async with no_leftovers():
        results = await asyncio.gather(*[agent.run(str(task)) for task in range(200)])
    for task, result in enumerate(results):
        assert result.outcome is LoopOutcome.DONE
        assert result.text == f"{task}: seen 1, seen 2, seen 3"
        answers = [message.text for message in result.messages if message.role == "tool_result"]
        assert answers == [f"waited {task * 10 + n}" for n in range(3)]
        assert result.elapsed == 3 * (task % 7)
    assert shared.seen == 0
    assert len({result.run_id for result in results}) == 200


def test_g14_an_agent_is_immutable():
    agent = Agent(model=ScriptedModel([]), limits=LIMITS)
    with pytest.raises(AttributeError):
        agent.config.limits = Limits()
    with pytest.raises(AttributeError):
        agent.extra = 1


def test_one_agent_serves_several_loops_one_after_the_other():
    agent = Agent(model=ScriptedModel().forever("hi"), limits=LIMITS)
    assert [asyncio.run(agent.run("go")).text for _ in range(3)] == ["hi"] * 3


def test_g14_one_agent_serves_many_threads_at_once():
    def answer(request):
        told = request.messages[-1]
        return call("add", a=int(told.text), b=1) if told.role == "user" else say(f"it is {told.text}")

    agent = Agent(model=ScriptedModel(record=False).forever(answer), tools=[add], limits=LIMITS)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: agent.run_sync(str(number)), range(80)))
    assert [result.text for result in results] == [f"it is {number + 1}" for number in range(80)]


# --- a name without a store ---------------------------------------------------------------------------------------


@virtual
async def test_a_named_session_without_a_store_is_said_to_be_forgotten_once(caplog):
    agent = Agent(model=ScriptedModel().forever(say("fine")), limits=Limits(max_iterations=3))
    with caplog.at_level("WARNING", "glidepath"):
        await agent.run("one", session="chat")
        await agent.run("two", session="chat")
        async with agent.stream("three", session="chat") as stream:
            async for _ in stream:
                pass
    said = [record.getMessage() for record in caplog.records if "no store" in record.getMessage()]
    assert len(said) == 1
    assert "session='chat'" in said[0]
    assert "Agent(store=...)" in said[0]


@virtual
async def test_a_session_that_is_kept_is_not_said_to_be_forgotten(caplog):
    agent = Agent(model=ScriptedModel().forever(say("fine")), limits=Limits(max_iterations=3))
    keeping = Agent(model=ScriptedModel().forever(say("fine")), limits=Limits(max_iterations=3), store=MemoryStore())
    with caplog.at_level("WARNING", "glidepath"):
        await agent.run("one", session=Session("chat"))
        await agent.run("two")
        await keeping.run("three", session="chat")
    assert caplog.records == []
