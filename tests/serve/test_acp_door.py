"""An editor, here the protocol's own client, talks to `glidepath acp` in a process of its own."""

import asyncio
import os
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
        async with acp.spawn_agent_process(editor, *command, env=environ, cwd=folder) as (connection, _):
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
    assert kinds.index("tool_call") < kinds.index("tool_call_update") < kinds.index("usage_update")
    (usage,) = [one for one in editor.seen if one.session_update == "usage_update"]
    assert (usage.cost.currency, usage.cost.amount > 0) == ("USD", True)


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
