"""A front end and an editor are sent the whole call with nothing hidden, and their answer is for that call alone."""

import asyncio

import acp
import pytest
from acp import schema
from tests.spoofs import IDS, SPOOFS, assert_shown

from glidepath import approve, tool
from glidepath.apps.server import EditorAgent
from glidepath.errors import ConfigurationError
from glidepath.sessions import MemoryStore, decide
from glidepath.testing import call, calls, say

from .deck import agent, pay, serving
from .test_agui_door import ask, given


@tool(requires_approval=True)
async def shell(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


def asking(spoof):
    return agent(call("shell", command=spoof.value), lambda request: say(request.messages[-1].text), tools=[shell])


class Editor:
    """An editor that keeps what it is asked, and picks an option by its kind, or what it is told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.shown = []

    async def session_update(self, **_):
        pass

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.append((tool_call, options))
        self.shown.append("\n".join(one.content.text for one in tool_call.content))
        answer = self.answers.pop(0)
        chosen = next((one.option_id for one in options if one.kind == answer), answer)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)


def edit_with(one, editor, prompts=1):
    async def main():
        door = EditorAgent(one)
        door.on_connect(editor)
        session = await door.new_session(cwd="/")
        return [await door.prompt(session_id=session.session_id, prompt=[acp.text_block("go")]) for _ in range(prompts)]

    return asyncio.run(main())


# --- what is shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoof", SPOOFS, ids=IDS)
def test_an_editor_is_sent_the_whole_call_with_nothing_hidden(spoof):
    editor = Editor("reject_once")
    edit_with(asking(spoof), editor)
    assert_shown(spoof, editor.shown[0])
    update, options = editor.asked[0]
    assert update.raw_input is None, "an editor would draw it as it is"
    assert not [sign for sign in spoof.hidden if any(sign in one.name for one in options)]


@pytest.mark.parametrize("spoof", SPOOFS, ids=IDS)
def test_a_front_end_and_the_deck_are_sent_the_whole_call_with_nothing_hidden(spoof):
    async def main():
        async with serving(asking(spoof)) as client:
            events = await ask(client, given())
            (interrupt,) = events[-1].outcome.interrupts
            assert_shown(spoof, interrupt.message)
            (item,) = (await client.get("/api/approvals")).json()["approvals"]
            assert_shown(spoof, "\n".join(item["shown"]))
            assert_shown(spoof, "\n".join((await detail(client))["pending"][0]["shown"]))
            assert item["digest"] == interrupt.metadata["digest"]
            assert item["arguments"] == {"command": spoof.value}, "programs get the exact bytes"

    asyncio.run(main())


async def detail(client):
    run = (await client.get("/api/runs")).json()["runs"][0]["run_id"]
    return (await client.get(f"/api/runs/{run}")).json()


# --- what an answer is for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "ran"),
    [("allow_once", True), ("allow", False), ("allow_once.", False), (f"allow_once.{'0' * 16}.{'0' * 32}", False)],
)
def test_an_answer_without_the_nonce_of_the_request_allows_nothing(answer, ran):
    editor = Editor(answer)
    paid = []

    @tool(requires_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    edit_with(agent(call("pay", amount=5), say("ok"), tools=[pay]), editor)
    assert paid == ([5] if ran else [])
    assert all(len(one.option_id.split(".")) == 3 for one in editor.asked[0][1])


def test_always_in_an_editor_asks_once_more_and_covers_only_the_same_call():
    def script(request):
        if request.messages[-1].role != "user":
            return say(request.messages[-1].text)
        turn = sum(message.role == "user" for message in request.messages)
        return call("pay", amount=5 if turn < 3 else 6)

    one = agent(*[script] * 8, tools=[pay])
    editor = Editor("allow_always", "allow_always", "reject_once")
    edit_with(one, editor, prompts=3)
    assert len(editor.asked) == 3, "asked twice about the first, not about the second, and about the third"
    assert "From now on, without asking: exactly pay(amount=5)" in editor.shown[1]
    assert "amount: 6" in editor.shown[2]


def test_an_answer_to_a_front_end_s_question_is_for_that_question():
    async def main():
        one = agent(calls(call("pay", amount=5)), lambda request: say(request.messages[-1].text), tools=[pay])
        async with serving(one) as client:
            events = await ask(client, given())
            (interrupt,) = events[-1].outcome.interrupts
            call_id = interrupt.tool_call_id
            assert interrupt.id.startswith(f"{call_id}#")
            digest = interrupt.metadata["digest"]
            forged = [call_id, f"{call_id}#{'0' * 16}.{digest}", interrupt.id.replace(digest, "f" * 32)]
            for wrong in forged:
                entry = {"interruptId": wrong, "status": "resolved", "payload": {"approved": True}}
                refused = await client.post("/agui", json={**given(), "messages": [], "resume": [entry]})
                assert refused.status_code == 409, (wrong, refused.text)
            entry = {"interruptId": interrupt.id, "status": "resolved", "payload": {"approved": True}}
            events = await ask(client, {**given(), "messages": [], "resume": [entry]})
            assert "paid 5" in events[-1].result

    asyncio.run(main())


def test_a_decision_with_the_digest_of_another_call_is_refused_by_the_server():
    async def main():
        one = agent(call("pay", amount=5), lambda request: say(request.messages[-1].text), tools=[pay])
        async with serving(one) as client:
            await ask(client, given())
            (item,) = (await client.get("/api/approvals")).json()["approvals"]
            path, body = f"/api/runs/{item['run_id']}/decide", {"id": item["id"], "decision": "approve", "reason": "r"}
            refused = await client.post(path, json={**body, "digest": "0" * 32})
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "other_call")
            done = await client.post(path, json={**body, "digest": item["digest"]})
            assert done.status_code == 200, done.text

    asyncio.run(main())


def test_a_decision_with_the_digest_of_another_call_is_refused_by_the_run_and_left_in_the_inbox():
    async def main():
        store = MemoryStore()
        one = agent(call("pay", amount=5), say("ok"), tools=[pay], store=store)
        paused = await one.run("go", session="s")
        (waiting,) = paused.pending
        with pytest.raises(ConfigurationError, match="other arguments than those that wait"):
            await one.resume("s", decisions={waiting.call.id: approve(digest="0" * 32)})
        await decide(store, "s", {waiting.call.id: approve(digest="0" * 32)})
        again = await one.resume("s")
        assert [pending.call.id for pending in again.pending] == [waiting.call.id], "it still waits"
        done = await one.resume("s", decisions={waiting.call.id: approve(digest=waiting.digest)})
        assert done.text == "ok"

    asyncio.run(main())
