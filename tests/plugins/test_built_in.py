"""The plugins that come with glidepath."""

import asyncio
import logging
import threading

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import Agent, AgentState, ConfigurationError, Limits, LoopOutcome, approve, deny, tool
from glidepath.events import HookFailed
from glidepath.messages import AssistantMessage, UserMessage
from glidepath.observe import LogObserver
from glidepath.plugins import ApprovalGate, ChannelSteering, OpeningGate, ToolListGate
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, calls, say, virtual

LIMITS = Limits(max_iterations=9)


@tool
async def plan() -> str:
    return "planned"


@tool
async def mail_send(to: str = "x") -> str:
    return f"sent to {to}"


@tool
async def mail_read() -> str:
    return "read"


TOOLS = [plan, mail_send, mail_read]


async def fly(script, *plugins, **more):
    recorder = EventRecorder()
    with ScriptedModel(script) as model:
        agent = Agent(model=model, tools=TOOLS, limits=LIMITS, plugins=[*plugins, recorder.as_plugin()], **more)
        result = await agent.run("go")
    recorder.assert_legal()
    shown = [list(request.tools) for request in model.requests]
    return result, shown, recorder


def texts(result):
    return [message.text for message in result.messages if message.role == "tool_result"]


# --- gates --------------------------------------------------------------------------------------------------------


@virtual
async def test_an_opening_gate_narrows_the_first_turn_only():
    script = [call("mail_read"), call("mail_read"), "done"]
    result, shown, _ = await fly(script, OpeningGate(["plan"], denial_reason="plan first"))
    assert shown == [["plan"], ["plan", "mail_send", "mail_read"], ["plan", "mail_send", "mail_read"]]
    assert "plan first" in texts(result)[0]
    assert texts(result)[1] == "read"


@virtual
async def test_a_child_has_an_opening_of_its_own():
    child = Agent(model=ScriptedModel([call("mail_read"), "child done"]), tools=[mail_read])
    ask = child.as_tool("ask", "Ask.")
    with ScriptedModel([call("ask", task="x"), "done"]) as model:
        result = await Agent(model=model, tools=[ask], limits=LIMITS, plugins=[OpeningGate(["ask"])]).run("go")
    assert texts(result.children[0]) == ["read"]


@pytest.mark.parametrize(
    ("settings_", "allowed"),
    [
        ({"allow": ["plan"]}, ["plan"]),
        ({"allow": []}, []),
        ({"allow": ["mail_*"], "deny": ["mail_send"]}, ["mail_read"]),
        ({"deny": ["mail_*"]}, ["plan"]),
        ({"deny": ["*"]}, []),
        ({"deny": ["no_such_tool"]}, ["plan", "mail_send", "mail_read"]),
    ],
    ids=str,
)
@virtual
async def test_a_tool_list_allows_and_denies(settings_, allowed):
    script = [calls(call("plan"), call("mail_send"), call("mail_read")), "done"]
    result, shown, _ = await fly(script, ToolListGate(**settings_))
    assert shown == [allowed, allowed]
    ran = [m.tool_name for m in result.messages if m.role == "tool_result" and not m.is_error]
    assert ran == allowed


@virtual
async def test_what_a_list_denies_is_denied_to_children():
    child = Agent(model=ScriptedModel([call("mail_send"), "child done"]), tools=[mail_send])
    with ScriptedModel([call("ask", task="x"), "done"]) as model:
        plugins = [ToolListGate(deny=["mail_send"], denial_reason="no mail today")]
        tools = [child.as_tool("ask", "Ask.")]
        result = await Agent(model=model, tools=tools, limits=LIMITS, plugins=plugins).run("go")
    [text] = texts(result.children[0])
    assert "no mail today" in text


@pytest.mark.parametrize(
    "make",
    [
        ToolListGate,
        lambda: ToolListGate(allow="plan"),
        lambda: ToolListGate(deny=[7]),
        lambda: ToolListGate(allow=[""]),
        lambda: OpeningGate("plan"),
        lambda: OpeningGate(7),
        lambda: OpeningGate([None]),
        lambda: ApprovalGate("mail"),
        lambda: ApprovalGate(["x"], when="always"),
    ],
)
def test_a_wrong_list_is_refused(make):
    with pytest.raises(ConfigurationError, match=r"ToolListGate|OpeningGate|ApprovalGate"):
        make()


@pytest.mark.parametrize(
    "gate",
    [
        ToolListGate(deny=["mail_sned"]),
        ToolListGate(allow=["mail_sned", "plan"]),
        ApprovalGate(["mail_sned"]),
        OpeningGate(["mail_sned"]),
    ],
    ids=["deny", "allow", "approval", "opening"],
)
def test_a_gate_for_a_misspelt_tool_is_warned_about(gate):
    """A list that denies a tool by a wrong name would guard nothing and say nothing."""
    with pytest.warns(UserWarning, match=rf"{gate.name} names 'mail_sned', .* did you mean 'mail_send'\?"):
        Agent(model=ScriptedModel([]), tools=TOOLS, plugins=[gate], limits=LIMITS)


def test_a_gate_may_name_tools_of_other_agents_and_patterns():
    gates = [ToolListGate(deny=["erase_disk", "mail_s??d", "mail_send"]), ApprovalGate(["pay"])]
    Agent(model=ScriptedModel([]), tools=TOOLS, plugins=gates, limits=LIMITS)


# --- approval -----------------------------------------------------------------------------------------------------


@virtual
async def test_an_approval_gate_pauses_and_the_decision_carries_on():
    gate = ApprovalGate(["mail_*"], when=lambda context: context.arguments.get("to") != "me", reason="mail goes out")
    script = [calls(call("mail_send", to="boss"), call("mail_send", to="me"), call("plan")), "done", "done"]
    with ScriptedModel(script[:2]) as model:
        agent = Agent(model=model, tools=TOOLS, limits=LIMITS, plugins=[gate])
        paused = await agent.run("go")
        assert (paused.state, paused.outcome) == (AgentState.WAITING_FOR_INPUT, LoopOutcome.PAUSED)
        [waiting] = paused.pending
        assert (waiting.call.arguments, waiting.reason) == ({"to": "boss"}, "mail goes out")
        assert sorted(texts(paused)) == ["planned", "sent to me"]
        result = await agent.resume(paused, decisions={waiting.call.id: approve()})
    assert result.outcome is LoopOutcome.DONE
    assert "sent to boss" in texts(result)


@virtual
async def test_a_denied_call_never_runs_and_the_model_is_told():
    with ScriptedModel([call("mail_send", to="boss"), "fine"]) as model:
        agent = Agent(model=model, tools=TOOLS, limits=LIMITS, plugins=[ApprovalGate()])
        paused = await agent.run("go")
        result = await agent.resume(paused, decisions={paused.pending[0].call.id: deny("not now")})
    assert texts(result) == ["Denied by a person: not now"]


@pytest.mark.parametrize("when", [lambda context: 1 / 0, lambda context: "yes", lambda context: None])
@virtual
async def test_an_approval_gate_that_cannot_tell_blocks_the_call(when):
    result, _, recorder = await fly([call("mail_send"), "done"], ApprovalGate(when=when))
    assert texts(result) == ["Blocked: a guard of this tool failed."]
    assert recorder.one(HookFailed).effect == "the call is blocked"


# --- the channel --------------------------------------------------------------------------------------------------


@virtual
async def test_a_message_sent_before_and_during_a_run_reaches_it_once():
    channel = ChannelSteering()
    channel.send("first")

    @tool
    async def work() -> str:
        channel.send(UserMessage("second"))
        return "worked"

    with ScriptedModel([call("work"), "done"]) as model:
        result = await Agent(model=model, tools=[work], limits=LIMITS, plugins=[channel]).run("go")
    assert [m.text for m in result.messages if m.role == "user"] == ["go", "first", "second"]
    assert (len(channel), result.undelivered) == (0, ())


@pytest.mark.parametrize(("keeps_going", "iterations", "left"), [(True, 2, 0), (False, 1, 1)])
@virtual
async def test_a_message_during_the_last_answer_keeps_the_run_going_or_stays(keeps_going, iterations, left):
    channel = ChannelSteering(keeps_going=keeps_going)

    def answer(request):
        if len(request.messages) == 1:
            channel.send("one more thing")
        return say("done")

    result = await Agent(model=ScriptedModel().forever(answer), limits=LIMITS, plugins=[channel]).run("go")
    assert (result.iterations, len(channel)) == (iterations, left)
    assert [m.text for m in channel.take_back()] == ["one more thing"] * left
    assert len(channel) == 0


@virtual
async def test_a_message_for_one_run_waits_for_that_run():
    channel = ChannelSteering()
    channel.send("not for you", run_id="run_of_somebody_else")
    channel.send("for anybody")
    with ScriptedModel(["done"]) as model:
        result = await Agent(model=model, limits=LIMITS, plugins=[channel]).run("go")
    assert [m.text for m in result.messages if m.role == "user"] == ["go", "for anybody"]
    assert [m.text for m in channel.take_back()] == ["not for you"]


@virtual
async def test_what_was_taken_and_not_delivered_is_in_the_result():
    channel = ChannelSteering()

    @tool
    async def work() -> str:
        channel.send("too late")
        return "worked"

    with ScriptedModel([call("work")]) as model:
        agent = Agent(model=model, tools=[work], limits=Limits(max_iterations=1), landing="off", plugins=[channel])
        result = await agent.run("go")
    delivered = [m.text for m in result.messages if m.role == "user"]
    everywhere = [*delivered, *(m.text for m in result.undelivered), *(m.text for m in channel.take_back())]
    assert everywhere == ["go", "too late"]


@pytest.mark.parametrize(
    "message", ["", "  ", 7, None, "half \ud800", "nul \0", AssistantMessage(), UserMessage(7), ["a"]]
)
def test_what_no_model_can_be_told_is_refused_where_it_is_sent(message):
    channel = ChannelSteering()
    with pytest.raises(ConfigurationError, match=r"send\(\)"):
        channel.send(message)
    assert len(channel) == 0


def test_a_run_id_is_a_text():
    with pytest.raises(ConfigurationError, match="run_id"):
        ChannelSteering().send("x", run_id=7)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_messages_from_many_threads_reach_many_runs_exactly_once(batches, runs):
    channel = ChannelSteering()
    sent = [f"{number}.{item}" for number, size in enumerate(batches) for item in range(size)]

    def feed(number, size):
        for item in range(size):
            channel.send(f"{number}.{item}")

    def turn(request):
        return call("plan") if len(request.messages) < 4 else say("done")

    async def fleet():
        agent = Agent(model=ScriptedModel().forever(turn), tools=TOOLS, limits=LIMITS, plugins=[channel])
        threads = [threading.Thread(target=feed, args=pair) for pair in enumerate(batches)]
        for thread in threads:
            thread.start()
        results = await asyncio.gather(*(agent.run("go") for _ in range(runs)))
        for thread in threads:
            thread.join()
        return results

    results = VirtualClock().run(fleet())
    heard = [m.text for result in results for m in result.messages if m.role == "user" and m.text != "go"]
    heard += [m.text for result in results for m in result.undelivered] + [m.text for m in channel.take_back()]
    assert sorted(heard) == sorted(sent)


# --- the event logger ---------------------------------------------------------------------------------------------


@virtual
async def test_the_event_logger_is_the_log_observer():
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage().split(" ")[0])

    logger = logging.getLogger("tests.plugins.here")
    logger.setLevel(logging.INFO)
    logger.addHandler(Keep())
    with ScriptedModel(["done"]) as model:
        await Agent(model=model, limits=LIMITS, plugins=[LogObserver(logger)]).run("go")
    assert records[0] == "RunStarted"
    assert records[-1] == "RunEnded"
    assert "StreamChunk" not in records
