"""More tools than the window has room for stand behind two; everybody else sees the real ones."""

import json
from dataclasses import dataclass

import pytest

from glidepath import Agent, Limits, Texts, approve, tool
from glidepath.events import ToolEnded, ToolStarted
from glidepath.outcome import LoopOutcome
from glidepath.plugins import ApprovalGate, ToolListGate
from glidepath.sessions import MemoryStore
from glidepath.spi import ProtocolPolicy
from glidepath.testing import ScriptedModel, call, say

from .servers import collect, fake, results

pytestmark = pytest.mark.process
MANY = [
    {"name": f"tool_{n}", "description": f"Does thing number {n}. " + "x" * 300, "inputSchema": {"type": "object"}}
    for n in range(60)
]


def crowded(turns, *tools, **settings):
    server = fake(setup={"tools": [*MANY, "echo", "add"]})
    settings.setdefault("limits", Limits(max_iterations=9))
    return Agent(model=ScriptedModel(turns), tools=[server, *tools], context_window=20_000, **settings)


def real(**arguments):
    return call("call_found_tool", name="echo", arguments=arguments)


async def test_the_model_sees_two_tools_and_its_own():
    @tool
    def mine() -> str:
        """Mine."""
        return "mine"

    def looked(request):
        assert [spec.name for spec in request.tools] == ["mine", "find_tools", "call_found_tool"]
        return say("ok")

    assert (await crowded([looked], mine).run("go")).text == "ok"


async def test_few_tools_are_shown_as_they_are():
    def looked(request):
        assert [spec.name for spec in request.tools] == ["echo", "add"]
        return say("ok")

    agent = Agent(model=ScriptedModel([looked]), tools=[fake()], context_window=20_000, limits=Limits(max_iterations=3))
    assert (await agent.run("go")).text == "ok"


async def test_a_tool_is_found_and_called():
    result, events = await collect(
        crowded([call("find_tools", query="say something back"), real(text="hi"), say("ok")])
    )
    found, echoed = results(result)
    assert json.loads(found.text.splitlines()[0])["name"] == "echo"
    assert json.loads(found.text.splitlines()[0])["parameters"]["required"] == ["text"]
    assert echoed.text == "hi"
    assert [event.tool_name for event in events if isinstance(event, (ToolStarted, ToolEnded))][2:] == ["echo", "echo"]


async def test_g10_the_arguments_are_those_of_the_real_tool():
    result = await crowded([real(txt="hi"), say("ok")]).run("go")
    assert results(result)[0].kind == "invalid_arguments"
    assert "unknown field 'txt' (did you mean 'text'?)" in results(result)[0].text


async def test_arguments_that_were_written_as_text_are_read():
    result = await crowded([call("call_found_tool", name="echo", arguments='{"text": "hi"}'), say("ok")]).run("go")
    assert results(result)[0].text == "hi"


async def test_the_words_of_the_settings_hold_where_tools_stand_behind_two():
    @tool(terminal=True)
    def deliver(text: str) -> str:
        """Deliver."""
        return text

    def nudged(request):
        assert request.messages[-1].text == "Call deliver, please."
        return call("deliver", text="42")

    agent = crowded(
        [say("42"), nudged],
        deliver,
        texts=Texts(plain_text="Call {tool}, please."),
        plain_text_terminal_fallback_tool="deliver",
        plain_text_terminal_fallback_eager=True,
        plain_text_terminal_fallback_eager_nudge=True,
    )
    assert (await agent.run("go")).outcome is LoopOutcome.DONE


async def test_a_policy_with_state_keeps_it_where_tools_stand_behind_two():
    class Counting(ProtocolPolicy):
        def __init__(self):
            self.seen = 0

        def normalize_tool_calls(self, calls, tool_names):
            self.seen += 1
            return super().normalize_tool_calls(calls, tool_names)

    policy = Counting()
    agent = crowded([real(text="hi"), say("done")], protocol_policy=policy)
    async with agent:
        result = await agent.run("go")
    assert [one.text for one in results(result)] == ["hi"]
    assert policy.seen == 1


async def test_a_frozen_policy_holds_where_tools_stand_behind_two():
    @dataclass(frozen=True)
    class Strict(ProtocolPolicy):
        words: str = "not today"

        def hidden_tool_error(self, name, available):
            return f"{name}: {self.words}"

    gate = ToolListGate(deny=["echo"])
    agent = crowded([real(text="hi"), say("done")], protocol_policy=Strict(), plugins=[gate])
    async with agent:
        result = await agent.run("go")
    assert [one.text for one in results(result)] == ["echo: not today"]


async def test_a_name_that_is_not_there_gets_the_closest():
    result = await crowded([call("call_found_tool", name="ecko", arguments={}), say("ok")]).run("go")
    assert "did you mean 'echo'?" in results(result)[0].text


async def test_approvals_and_gates_know_the_real_name():
    agent = crowded([real(text="hi"), say("ok")], plugins=[ApprovalGate(["echo"]), ToolListGate(allow=["echo"])])
    paused = await agent.run("go")
    assert [(one.call.name, one.call.arguments) for one in paused.pending] == [("echo", {"text": "hi"})]
    done = await agent.resume(paused, decisions={paused.pending[0].call.id: approve()})
    assert (done.outcome, results(done)[0].text) == (LoopOutcome.DONE, "hi")


async def test_g9_a_gate_that_does_not_allow_the_real_tool_holds():
    agent = crowded([real(text="hi"), say("ok")], plugins=[ToolListGate(allow=["add"])])
    assert results(await agent.run("go"))[0].kind == "hidden_tool"


async def test_the_prefix_of_the_requests_does_not_change():
    seen = []

    def look(turn):
        def looked(request):
            seen.append(request.defined_tools or request.tools)
            return turn

        return looked

    turns = [look(call("find_tools", query="number 7")), look(call("call_found_tool", name="tool_7")), look(say("ok"))]
    await crowded(turns).run("go")
    assert seen[0] == seen[1] == seen[2]


async def test_g13_the_journal_has_the_real_call():
    store = MemoryStore()
    result = await crowded([real(text="hi"), say("ok")], store=store).run("go")
    from glidepath.sessions import read_journal

    intents = [record for record in (await read_journal(store, result.session_id)).records() if record.kind == "intent"]
    assert json.loads(bytes(intents[0].payload)) | {"key": ""} == {"call_id": "call_1", "key": "", "tool": "echo"}
