"""Calls of a server's tools are ordinary tool calls."""

import asyncio
import json
import sys

import pytest

from glidepath import Agent, Limits, tool
from glidepath.errors import ConfigurationError
from glidepath.events import ToolProgress
from glidepath.mcp import McpServer
from glidepath.messages import ImageBlock
from glidepath.outcome import LoopOutcome
from glidepath.run import CancelToken
from glidepath.testing import ScriptedModel, call, calls, say

from .servers import ERAS, agent_with, collect, fake, results

pytestmark = pytest.mark.process


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_of_a_server_is_called_like_any_other(era):
    result = await agent_with([call("add", a=2, b=3), say("five")], fake(era=era)).run("go")
    assert (result.outcome, result.text, results(result)[0].text) == (LoopOutcome.DONE, "five", "5")


async def test_a_server_stands_beside_functions():
    @tool
    def here() -> str:
        """Here."""
        return "here"

    agent = agent_with([calls(call("here"), call("echo", text="there")), say("both")], here, fake())
    assert [one.text for one in results(await agent.run("go"))] == ["here", "there"]


async def test_only_narrows_and_prefixed_renames_one_server(tmp_path):
    count = tmp_path / "starts"
    server = fake(setup={"count": str(count)})
    agent = agent_with(
        [call("echo", text="a"), call("t_add", a=1, b=1), say("ok")], server.only("echo"), server.prefixed("t_")
    )
    result = await agent.run("go")
    assert [one.text for one in results(result)] == ["a", "2"]
    assert count.read_bytes() == b"x", "both views share one process"


async def test_a_name_that_is_taken_gets_the_servers_name_in_front():
    @tool
    def echo(text: str) -> str:
        """Echo."""
        return f"mine {text}"

    agent = agent_with([call("echo", text="a"), call("fake_echo", text="b"), say("ok")], echo, fake())
    assert [one.text for one in results(await agent.run("go"))] == ["mine a", "b"]


async def test_a_name_that_only_has_no_such_tool_is_said():
    agent = agent_with([say("ok")], fake().only("ecko"))
    result, events = await collect(agent)
    assert result.text == "ok"
    assert any("has no tool 'ecko'; it offers add, echo" in getattr(event, "reason", "") for event in events)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"items": [{"n": "x"}]}, "Expected `integer`, got `string` - at `$.items[0].n`"),
        ({"items": [{}]}, "missing required field 'n' - at `$.items[0]`"),
    ],
)
async def test_arguments_are_checked_all_the_way_down_before_anything_is_sent(tmp_path, arguments, problem):
    log = tmp_path / "log"
    server = fake(setup={"tools": ["nested"], "log": str(log)})
    result = await agent_with([call("nested", **arguments), say("ok")], server).run("go")
    assert results(result)[0].kind == "invalid_arguments"
    assert problem in results(result)[0].text
    assert not log.exists() or "call nested" not in log.read_text()


async def test_progress_is_reported():
    server = fake(setup={"tools": ["slow"]})
    result, events = await collect(agent_with([call("slow", steps=3, pause=0.01), say("ok")], server))
    said = [event.progress["message"] for event in events if isinstance(event, ToolProgress)]
    assert said == ["step 0", "step 1", "step 2"]
    assert results(result)[0].text == "done"


async def test_progress_renews_the_idle_timeout():
    server = fake(setup={"tools": ["slow"]}, idle_timeout=0.4)
    result = await agent_with([call("slow", steps=6, pause=0.15), say("ok")], server).run("go")
    assert results(result)[0].text == "done"


async def test_a_silent_call_ends_after_the_idle_timeout_and_the_server_is_told(tmp_path):
    log = tmp_path / "log"
    server = fake(setup={"tools": ["silent", "echo"], "log": str(log)}, idle_timeout=0.2)
    result = await agent_with([call("silent"), call("echo", text="still"), say("ok")], server).run("go")
    first, second = results(result)
    assert (first.is_error, second.text) == (True, "still")
    assert "reported no progress for 0.2 s" in first.text
    assert "notifications/cancelled" in log.read_text()


async def test_the_tools_own_time_limits_a_call_too():
    server = fake(setup={"tools": ["slow"]}, call_timeout=0.2)
    result = await agent_with([call("slow", steps=20, pause=0.1), say("ok")], server).run("go")
    assert results(result)[0].kind == "timeout"


async def test_g7_cancel_tells_the_server_and_ends_the_run(tmp_path):
    log = tmp_path / "log"
    server = fake(setup={"tools": ["silent"], "log": str(log)})
    agent = agent_with([call("silent"), say("never")], server)
    token = CancelToken()
    async with agent, agent.stream("go", cancel=token) as stream:
        async for event in stream:
            if type(event).__name__ == "ToolStarted":
                asyncio.get_running_loop().call_later(0.05, token.cancel)
        assert stream.result.outcome is LoopOutcome.CANCELLED
    assert "notifications/cancelled" in log.read_text()


async def test_text_pictures_links_and_resources_are_mapped(tmp_path):
    server = fake(setup={"tools": ["parts"]}, artifacts=tmp_path)
    result = await agent_with([call("parts", structured=True), say("ok")], server).run("go")
    content = results(result)[0].content
    assert isinstance(content, tuple)
    assert any(isinstance(block, ImageBlock) and block.media_type == "image/png" for block in content)
    said = results(result)[0].text
    for part in (
        "hello",
        "[link to file:///a.txt, a.txt, text/plain, 3 bytes]",
        "inside",
        '{"n":1}',
        "kept as an artifact",
    ):
        assert part in said
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"\0\1\2"]


async def test_what_is_over_the_result_budget_is_kept_as_an_artifact(tmp_path):
    server = fake(setup={"tools": ["big"]}, artifacts=tmp_path / "kept")
    result = await agent_with([call("big", size=200_000), say("ok")], server).run("go")
    [path] = (tmp_path / "kept").iterdir()
    assert path.read_text() == "y" * 200_000
    assert str(path) in results(result)[0].text
    assert len(results(result)[0].text) <= 32_000


async def test_an_error_of_the_tool_and_of_the_protocol_are_results():
    server = fake(setup={"tools": ["tool_error", "error"]})
    result = await agent_with([call("tool_error"), call("error"), say("ok")], server).run("go")
    first, second = results(result)
    assert (first.is_error, first.text) == (True, "it failed")
    assert second.is_error
    assert "no such luck" in second.text


async def test_nothing_of_our_environment_reaches_a_server(monkeypatch):
    monkeypatch.setenv("SECRET_API_KEY", "hush")
    server = fake(setup={"tools": ["env"]}, env={"MINE": "1"})
    result = await agent_with([call("env"), say("ok")], server).run("go")
    seen = json.loads(results(result)[0].text)
    assert seen["MINE"] == "1"
    assert "PATH" in seen
    assert "SECRET_API_KEY" not in seen


async def test_hints_count_only_for_trusted_servers():
    for trusted in (False, True):
        supply = fake(trusted=trusted).open()
        tools = {one.name: one for one in await supply.tools()}
        await supply.close()
        add = tools["add"]
        assert (add.read_only, add.idempotent, add.untrusted) == (trusted, trusted, not trusted)


async def test_an_approval_is_asked_with_the_servers_own_tool_name():
    from glidepath import approve
    from glidepath.plugins import ApprovalGate

    agent = agent_with([call("add", a=1, b=2), say("three")], fake(), plugins=[ApprovalGate(["add"])])
    paused = await agent.run("go")
    assert [one.call.name for one in paused.pending] == ["add"]
    done = await agent.resume(paused, decisions={paused.pending[0].call.id: approve()})
    assert (done.outcome, results(done)[0].text) == (LoopOutcome.DONE, "3")


async def test_the_time_a_server_takes_to_start_is_within_the_runs_own():
    server = fake(setup={"never_answers": True})
    agent = Agent(model=ScriptedModel([say("without it")]), tools=[server], limits=Limits(timeout=1.0))
    began = asyncio.get_running_loop().time()
    result = await agent.run("go")
    assert result.text == "without it"
    assert asyncio.get_running_loop().time() - began < 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "pass either command=... or url=..."),
        ({"command": "x", "url": "http://x"}, "not both"),
        ({"url": "ftp://x"}, "must begin with http:// or https://"),
        ({"url": "http://x", "args": ["a"]}, "args is only for a command"),
        ({"command": "x", "headers": {"a": "b"}}, "are only for a url"),
        ({"command": ""}, "command is empty"),
        ({"command": "x", "args": "abc"}, "args must be a list of str"),
        ({"command": "x", "env": {"A": 1}}, "env['A'] must be a str"),
        ({"command": "x", "idle_timeout": 0}, "idle_timeout must be a number of seconds above 0"),
        ({"command": "x", "pins": "maybe"}, "pins must be one of"),
        ({"command": "x", "mode": "2024"}, "mode must be one of"),
        ({"command": "x", "sampling": True}, "sampling must be a Sampling"),
        ({"command": "x", "max_message_bytes": 1}, "max_message_bytes must be between"),
        ({"command": "x\0"}, "contains a NUL"),
    ],
)
def test_settings_that_cannot_be_are_said(settings, said):
    with pytest.raises(ConfigurationError) as caught:
        McpServer("mine", **settings)
    assert said in str(caught.value)
    assert "'mine'" in str(caught.value)


def test_two_servers_of_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="two sources of tools are named 'a'"):
        agent_with([], McpServer("a", command="x"), McpServer("a", command="y"))


def test_a_script_that_cannot_be_started_itself_is_run_by_this_python(tmp_path):
    script = tmp_path / "server.py"
    script.write_text("")
    link = McpServer("s", command=script, args=["--fast"]).link
    assert (link.command, link.args) == (sys.executable, (str(script), "--fast"))
    assert McpServer("s", command="server.py", cwd=tmp_path).link.args == ("server.py",)
    script.chmod(0o755)
    assert McpServer("s", command=script).link.command == str(script)
    assert McpServer("s", command="server.py", cwd=tmp_path).link.command == "server.py"
    assert McpServer("s", command="server.pyz").link.command == "server.pyz"
