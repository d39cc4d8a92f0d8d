"""An editor, here the protocol's own client, talks to `glidepath acp` in a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import acp
import pytest
from acp import schema

pytestmark = pytest.mark.process
HERE = Path(__file__).parent


class Editor:
    """Keeps what it is shown, and answers permission requests as it is told."""

    def __init__(self, answer="allow_once"):
        self.answer = answer
        self.seen = []
        self.asked = []

    async def session_update(self, session_id, update, **_):
        self.seen.append(update)

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append(tool_call)
        if self.answer is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        chosen = next(one.option_id for one in options if one.kind == self.answer)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, conn):
        pass

    def text(self):
        return "".join(one.content.text for one in self.seen if one.session_update == "agent_message_chunk")


def talk(folder, editor, agent, conversation, store="none"):
    """Start `glidepath acp`, shake hands, open a session and have a conversation."""

    async def main():
        command = [sys.executable, "-m", "glidepath", "acp", "--agent", f"editor_agents:{agent}", "--store", store]
        environ = {**os.environ, "PYTHONPATH": str(HERE), "HOME": str(folder)}
        async with acp.spawn_agent_process(editor, *command, env=environ, cwd=folder, use_unstable_protocol=True) as (
            connection,
            _,
        ):
            hello = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
            session = await connection.new_session(cwd=str(folder), mcp_servers=[])
            return await conversation(connection, session.session_id, hello)

    return asyncio.run(asyncio.wait_for(main(), 120))


def test_a_prompt_is_answered_with_tool_calls_usage_and_cost(tmp_path):
    editor = Editor()

    async def conversation(connection, session_id, hello):
        assert hello.agent_info.name == "glidepath"
        return await connection.prompt(session_id=session_id, prompt=[acp.text_block("hi")])

    answer = talk(tmp_path, editor, "searcher", conversation)
    assert (answer.stop_reason, editor.text()) == ("end_turn", "It is done.")
    assert answer.usage.total_tokens > 0
    assert answer.field_meta["glidepath"]["outcome"] == "done"
    kinds = [one.session_update for one in editor.seen]
    assert kinds.index("tool_call") < kinds.index("tool_call_update")
    assert "usage_update" not in kinds, "nobody knows this model's window, and the protocol has no word for that"
    assert float(answer.field_meta["glidepath"]["cost"]) > 0


def test_the_editor_is_told_how_full_the_window_is_and_what_the_session_has_cost(tmp_path):
    store = str(tmp_path / "sessions")
    first, second = Editor(), Editor()

    async def twice(connection, session_id, _):
        for _ in range(2):
            await connection.prompt(session_id=session_id, prompt=[acp.text_block("hi")])
        return session_id

    session_id = talk(tmp_path, first, "wide", twice, store=store)

    async def again(connection, _, __):
        await connection.load_session(cwd=str(tmp_path), session_id=session_id, mcp_servers=[])
        await connection.prompt(session_id=session_id, prompt=[acp.text_block("hi")])

    talk(tmp_path, second, "wide", again, store=store)
    told = [one for one in (*first.seen, *second.seen) if one.session_update == "usage_update"]
    assert {(one.used, one.size, one.cost.currency) for one in told} == {(110, 8_000, "USD")}  # one call's, not a run's
    assert [round(one.cost.amount / told[0].cost.amount) for one in told] == [1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "said"), [("allow_once", "paid 5"), ("reject_once", "denied in the editor"), (None, "denied")]
)
def test_a_call_that_needs_a_decision_asks_the_editor(tmp_path, answer, said):
    editor = Editor(answer)

    async def conversation(connection, session_id, _):
        return await connection.prompt(session_id=session_id, prompt=[acp.text_block("pay")])

    result = talk(tmp_path, editor, "payer", conversation)
    assert [one.content[0].content.text for one in editor.asked] == ["The agent wants to call pay:\n  amount: 5"]
    assert (result.stop_reason, said in editor.text()) == ("end_turn", True)


def test_a_call_that_is_always_allowed_is_confirmed_once_and_not_asked_about_again(tmp_path):
    editor = Editor("allow_always")

    async def conversation(connection, session_id, _):
        for _ in range(2):
            await connection.prompt(session_id=session_id, prompt=[acp.text_block("pay")])

    talk(tmp_path, editor, "payer", conversation)
    assert len(editor.asked) == 2


def test_a_limit_a_failure_and_a_cancel_have_their_words(tmp_path):
    async def limited(connection, session_id, _):
        return await connection.prompt(session_id=session_id, prompt=[acp.text_block("go")])

    assert talk(tmp_path, Editor(), "eager", limited).stop_reason == "max_turn_requests"

    async def failed(connection, session_id, _):
        with pytest.raises(acp.RequestError, match="no such key"):
            await connection.prompt(session_id=session_id, prompt=[acp.text_block("go")])

    talk(tmp_path, Editor(), "broken", failed)

    async def cancelled(connection, session_id, _):
        prompt = asyncio.ensure_future(connection.prompt(session_id=session_id, prompt=[acp.text_block("go")]))
        await asyncio.sleep(0.3)
        await connection.cancel(session_id=session_id)
        return await prompt

    assert talk(tmp_path, Editor(), "slow", cancelled).stop_reason == "cancelled"


def test_a_session_is_listed_and_taken_up_again(tmp_path):
    store = str(tmp_path / "sessions")
    first, second = Editor(), Editor()

    async def begin(connection, session_id, hello):
        assert hello.agent_capabilities.load_session
        await connection.prompt(session_id=session_id, prompt=[acp.text_block("remember the moon")])
        return session_id

    session_id = talk(tmp_path, first, "searcher", begin, store=store)

    async def again(connection, _, __):
        listed = await connection.list_sessions()
        assert session_id in [one.session_id for one in listed.sessions]
        await connection.load_session(cwd=str(tmp_path), session_id=session_id, mcp_servers=[])
        with pytest.raises(acp.RequestError):
            await connection.load_session(cwd=str(tmp_path), session_id="unknown", mcp_servers=[])

    talk(tmp_path, second, "searcher", again, store=store)
    shown = [one.content.text for one in second.seen if one.session_update == "user_message_chunk"]
    assert shown == ["remember the moon"]
    assert second.text() == "It is done."


def test_bad_prompts_are_refused(tmp_path):
    async def conversation(connection, session_id, _):
        with pytest.raises(acp.RequestError):
            await connection.prompt(session_id=session_id, prompt=[acp.text_block("  ")])
        with pytest.raises(acp.RequestError):
            await connection.prompt(session_id="unknown", prompt=[acp.text_block("hi")])
        with pytest.raises(acp.RequestError):
            await connection.prompt(session_id=session_id, prompt=[acp.image_block("not base64!", "image/png")])

    talk(tmp_path, Editor(), "searcher", conversation)


FAKE = str(HERE.parent / "mcp_client" / "fake_server.py")


def stdio(name="files of mine", **setup):
    args = ["-S", FAKE, json.dumps({"era": "legacy", "tools": ["echo", "env"], **setup})]
    env = [schema.EnvVariable(name="COLOR", value="green")]
    return schema.McpServerStdio(name=name, command=sys.executable, args=args, env=env)


def test_the_servers_of_an_editor_bring_their_tools_and_end_with_their_session(tmp_path, capfd):
    editor = Editor()

    async def conversation(connection, _, hello):
        assert hello.agent_capabilities.mcp_capabilities.http
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[stdio()])
        for _ in range(2):
            answer = await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("hi")])
            assert answer.stop_reason == "end_turn"
        assert editor.text() == "from the editor's server" * 2
        await connection.close_session(session_id=session.session_id)
        with pytest.raises(acp.RequestError, match="not found"):
            await connection.close_session(session_id=session.session_id)
        with pytest.raises(acp.RequestError, match="not found"):
            await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("hi")])

    talk(tmp_path, editor, "echoer", conversation)
    assert "Warning" not in capfd.readouterr().err


def test_a_server_of_an_editor_that_does_not_start_is_told_and_costs_no_session(tmp_path):
    editor = Editor()

    async def conversation(connection, _, __):
        broken = schema.McpServerStdio(name="broken", command="/no/such/program", args=[], env=[])
        session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[broken])
        return await connection.prompt(session_id=session.session_id, prompt=[acp.text_block("hi")])

    assert talk(tmp_path, editor, "searcher", conversation).stop_reason == "end_turn"
    thoughts = [one.content.text for one in editor.seen if one.session_update == "agent_thought_chunk"]
    assert any(text.startswith("MCP server broken: unavailable") for text in thoughts)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (
            schema.SseMcpServer(type="sse", name="old", url="http://127.0.0.1:1/sse", headers=[]),
            "'sse' is not supported",
        ),
        (schema.HttpMcpServer(type="http", name="web", url="ftp://x", headers=[]), "server 0, 'web'"),
    ],
    ids=["sse", "address"],
)
def test_a_server_that_cannot_be_used_is_refused_by_its_name(tmp_path, server, said):
    async def conversation(connection, _, __):
        with pytest.raises(acp.RequestError) as caught:
            await connection.new_session(cwd=str(tmp_path), mcp_servers=[server])
        assert said in caught.value.data["mcpServers"]

    talk(tmp_path, Editor(), "searcher", conversation)


def test_a_stored_session_is_resumed_with_the_editors_servers(tmp_path):
    store, editor = str(tmp_path / "sessions"), Editor()

    async def begin(connection, session_id, hello):
        assert hello.agent_capabilities.session_capabilities.resume is not None
        await connection.prompt(session_id=session_id, prompt=[acp.text_block("hi")])
        return session_id

    session_id = talk(tmp_path, Editor(), "searcher", begin, store=store)

    async def again(connection, _, __):
        await connection.resume_session(cwd=str(tmp_path), session_id=session_id, mcp_servers=[stdio()])
        return await connection.prompt(session_id=session_id, prompt=[acp.text_block("hi")])

    assert talk(tmp_path, editor, "echoer", again, store=store).stop_reason == "end_turn"
    assert editor.text() == "from the editor's server"
    assert not [one for one in editor.seen if one.session_update == "user_message_chunk"]


def test_lines_that_are_no_messages_are_refused_and_end_nothing(tmp_path):
    command = [sys.executable, "-m", "glidepath", "acp", "--agent", "editor_agents:echoer", "--store", "none"]
    environ = {**os.environ, "PYTHONPATH": str(HERE), "HOME": str(tmp_path)}
    hello = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    lines = [
        b"null",
        b"5",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 3_000,
        b'{"id":[1],"result":1}',
        b'{"id":1,"error":5}',
        b"",
    ]
    said = b"\n".join([*lines, hello, b'"the end"'])
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    done = subprocess.run(command, input=said, env=environ, cwd=tmp_path, timeout=60, check=False, **pipes)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    codes = [one["error"]["code"] for one in answers if one["id"] is None]
    assert codes == [-32600, -32600, -32600, -32700, -32700, -32700, -32600, -32600, -32600]
    assert [one["result"]["protocolVersion"] for one in answers if one["id"] == 1] == [1]
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_editor_that_is_killed_leaves_no_traceback(tmp_path):
    command = [sys.executable, "-m", "glidepath", "acp", "--agent", "editor_agents:echoer", "--store", "none"]
    environ = {**os.environ, "PYTHONPATH": str(HERE), "HOME": str(tmp_path)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    answering = subprocess.Popen(command, env=environ, cwd=tmp_path, **pipes)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    answering.stdin.write(json.dumps(hello).encode() + b"\n")
    answering.stdin.flush()
    assert json.loads(answering.stdout.readline())["id"] == 1
    answering.stdout.close()
    answering.stdin.close()
    assert answering.wait(30) == 0
    assert answering.stderr.read() == b""
    answering.stderr.close()
