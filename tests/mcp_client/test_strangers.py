"""What servers and their authors get wrong, or try: each is contained, and said with its fix."""

import asyncio
import os
import signal

import pytest

from glidepath import Limits, LoopOutcome, answer
from glidepath.events import ToolsChanged
from glidepath.mcp import McpServer, make_legal_schema, schema_problems
from glidepath.mcp.pins import Lock, write_lock
from glidepath.testing import call, say

from .servers import agent_with, collect, fake, results


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\\udcff"}]}}',
        '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\xff"}]}}',
        '{"jsonrpc": "2.0", "id": ID, "result": {"content": [',
        '{"id":ID,"jsonrpc":"2.0","result":',
    ],
    ids=["half a surrogate pair", "not UTF-8", "cut off", "cut off, id first"],
)
async def test_an_answer_that_is_not_json_ends_its_call_at_once(line):
    server = fake(setup={"tools": ["broken_json"]}, idle_timeout=60)
    result = await asyncio.wait_for(agent_with([call("broken_json", line=line), say("ok")], server).run("go"), 30)
    assert "the server's answer is not valid JSON in UTF-8" in results(result)[0].text


async def test_a_flood_of_requests_ends_the_connection():
    server = fake(setup={"tools": ["ask_to_ping"]}, idle_timeout=60)
    result = await asyncio.wait_for(agent_with([call("ask_to_ping"), say("ok")], server).run("go"), 30)
    assert "more than 1000 messages in a second" in results(result)[0].text


@pytest.mark.parametrize("data", ["", "AAAA"], ids=["empty", "no picture"])
async def test_a_picture_that_is_none_does_not_reach_the_model(data):
    server = fake(setup={"tools": ["image"]})
    result = await agent_with([call("image", data=data), say("ok")], server).run("go")
    assert "not the image/png" in results(result)[0].text


async def test_a_message_that_asks_for_a_secret_is_declined():
    server = fake(setup={"tools": ["ask"]}, era="modern", elicitation=True)
    result = await agent_with([call("ask", message="Enter your GitHub password"), say("ok")], server).run("go")
    assert (result.outcome, results(result)[0].text.split()[0]) == (LoopOutcome.DONE, "decline")


async def test_a_question_of_a_server_that_died_does_not_hold_up_the_next_call(caplog):
    server = fake(setup={"tools": ["pid", "ask", "echo"]}, elicitation=True)
    agent = agent_with([call("pid"), call("ask"), call("echo", text="x"), say("a"), say("b")], server)
    async with agent:
        paused = await agent.run("one")
        assert paused.outcome is LoopOutcome.PAUSED
        os.kill(int(results(paused)[0].text), signal.SIGKILL)
        while "it closed its output" not in caplog.text:
            await asyncio.sleep(0.01)
        other = await agent.run("two")
        done = await agent.resume(paused, decisions={paused.pending[0].call.id: answer({"city": "Oslo"})})
    assert results(other)[0].text == "x"
    assert results(done)[-1].kind == "unknown_effect"


async def test_what_the_pins_keep_back_leaves_the_rest_of_only(tmp_path):
    server = fake(setup={"tools": ["echo", "add"]}, lock=tmp_path / "glidepath.mcp.lock")
    supply = server.configured(pins="off").open()
    await supply.tools()
    lock = Lock()
    lock.pin("fake", {**supply.definitions(), "add": {"name": "add"}})
    await supply.close()
    write_lock(tmp_path / "glidepath.mcp.lock", lock)
    result, events = await collect(agent_with([call("echo", text="x"), say("ok")], server.only("echo", "add")))
    assert results(result)[0].text == "x"
    assert [event.effect for event in events if isinstance(event, ToolsChanged)] == ["blocked"]
    _, events = await collect(agent_with([say("ok")], server.only("add")))
    assert "add has changed since it was pinned" in next(
        event.reason for event in events if isinstance(event, ToolsChanged)
    )


async def test_arguments_and_addresses_may_hold_secrets_and_are_not_said():
    said = [
        McpServer("a", command="no-such-program", args=["--key", "s3cret"]),
        McpServer("b", url="http://me:s3cret@127.0.0.1:9/mcp?key=s3cret"),
    ]
    _, events = await collect(agent_with([say("ok")], *said))
    reasons = [event.reason for event in events if isinstance(event, ToolsChanged)]
    assert len(reasons) == len(said)
    assert not [reason for reason in reasons if "s3cret" in reason]


async def test_a_command_line_in_one_text_is_explained():
    _, events = await collect(agent_with([say("ok")], McpServer("a", command="no-such-program --flag")))
    [reason] = [event.reason for event in events if isinstance(event, ToolsChanged)]
    assert "write command='no-such-program' and put the rest in args=[...]" in reason


async def test_what_a_server_prints_cannot_steer_a_terminal():
    server = McpServer("a", command="sh", args=["-c", "printf '\\033[2Jboom' >&2"])
    _, events = await collect(agent_with([say("ok")], server))
    [reason] = [event.reason for event in events if isinstance(event, ToolsChanged)]
    assert "boom" in reason
    assert "\x1b" not in reason


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "str"}, "has the type 'str'"),
        ({"type": [{"x": 1}]}, "has the type"),
        ({"type": "object", "properties": [1]}, "$.a.properties is"),
        ({"enum": 5}, "$.a.enum is"),
        ({"anyOf": []}, "$.a.anyOf is"),
        ({"items": 3}, "$.a.items is"),
        ({"$ref": "#/$defs/Nope"}, "which is not in it"),
    ],
    ids=["name of a type", "type", "properties", "enum", "anyOf", "items", "reference"],
)
def test_a_part_that_is_no_schema_makes_the_tool_unusable(part, said):
    _, wrong = make_legal_schema({"type": "object", "properties": {"a": part}})
    assert said in (wrong or "")


def test_flags_of_older_drafts_are_left_out():
    part = {"type": "integer", "required": True, "minimum": 0, "exclusiveMinimum": True}
    shown, wrong = make_legal_schema({"type": "object", "properties": {"a": part}})
    assert (wrong, shown["properties"]["a"]) == (None, {"type": "integer", "minimum": 0})


def test_a_reference_to_a_reference_is_followed_to_an_object():
    ends = {"type": "object", "properties": {"n": {"type": "integer"}}, "anyOf": [{"required": ["n"]}]}
    shown, wrong = make_legal_schema({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": ends}})
    assert wrong is None
    assert (shown["properties"], "$ref" in shown, "anyOf" in shown) == ({"n": {"type": "integer"}}, False, False)


def test_a_type_that_is_no_name_does_not_raise():
    assert schema_problems({"type": [{"x": 1}]}, 1) == []


async def test_a_server_that_says_nothing_is_named_with_what_to_try():
    _, events = await collect(
        agent_with([say("ok")], McpServer("mute", command="sleep", args=["9"], connect_timeout=0.2))
    )
    [reason] = [event.reason for event in events if isinstance(event, ToolsChanged)]
    assert "'mute'" in reason
    assert "try mode='legacy'" in reason


async def test_a_server_that_is_late_for_the_run_is_named():
    server = McpServer("mute", command="sleep", args=["9"], required=True)
    limits = Limits(max_iterations=3, timeout=0.5)
    result = await agent_with([say("ok")], server, limits=limits).run("go")
    assert (result.outcome, "'mute' did not answer in the run's time" in result.text) == (LoopOutcome.FAILED, True)
