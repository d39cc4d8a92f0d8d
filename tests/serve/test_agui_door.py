"""AG-UI: what the door sends is what the protocol's own models take, and interrupts are decided by resume."""

import asyncio
import json

import pytest
from ag_ui.core import Event, EventType
from pydantic import TypeAdapter

from glidepath import Limits
from glidepath.errors import RejectedError
from glidepath.sessions import SqliteStore
from glidepath.testing import call, calls, fail, say, thinking

from .deck import agent, pay, search, serving

ANY_EVENT = TypeAdapter(Event)


def given(text="hi", **more):
    messages = [{"id": "1", "role": "user", "content": text}]
    return {"threadId": "thread-1", "runId": "run-1", "messages": messages, **more}


async def ask(client, body, path="/agui"):
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = [part for part in answer.text.split("\n\n") if part]
    return [ANY_EVENT.validate_python(json.loads(part.removeprefix("data: "))) for part in parts]


def kinds(events):
    return [event.type.value for event in events]


def test_a_run_is_told_from_start_to_success():
    async def main():
        async with serving(agent(call("search", query="a").with_text("Looking."), say("Done."))) as client:
            events = await ask(client, given())
        assert kinds(events) == [
            "RUN_STARTED",
            "STEP_STARTED",
            *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
            *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
            *("STEP_FINISHED", "STEP_STARTED"),
            *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
            "STEP_FINISHED",
            "RUN_FINISHED",
        ]
        last = events[-1]
        assert (last.thread_id, last.run_id, last.outcome.type, last.result) == (
            "thread-1",
            "run-1",
            "success",
            "Done.",
        )
        assert last.usage[0].total_tokens > 0
        assert last.metadata["glidepath"]["outcome"] == "done"
        assert json.loads(events[6].delta) == {"query": "a"}

    asyncio.run(main())


def test_reasoning_is_not_an_answer():
    async def main():
        async with serving(agent(thinking("Hm.", "Yes."))) as client:
            events = await ask(client, given())
        said = [event.delta for event in events if event.type is EventType.TEXT_MESSAGE_CONTENT]
        thought = [event.delta for event in events if event.type is EventType.REASONING_MESSAGE_CONTENT]
        assert ("".join(said), "".join(thought)) == ("Yes.", "Hm.")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"approved": True}, "paid 5"),
        ({"approved": True, "arguments": {"amount": 3}}, "paid 3"),
        ({"approved": False, "reason": "too much"}, "too much"),
    ],
    ids=["approved", "edited", "denied"],
)
@pytest.mark.parametrize("stored", [True, False], ids=["store", "no store"])
def test_a_paused_run_is_an_interrupt_and_resumes(tmp_path, stored, payload, text):
    def told(request):
        return say(request.messages[-1].text)

    one = agent(call("pay", amount=5), told, tools=[pay])
    store = SqliteStore(tmp_path / "store") if stored else None

    async def main():
        async with serving(one, store=store) as client:
            events = await ask(client, given())
            assert events[-1].outcome.type == "interrupt"
            (interrupt,) = events[-1].outcome.interrupts
            assert interrupt.metadata.items() >= {"tool": "pay", "arguments": {"amount": 5}}.items()
            assert interrupt.message == "The agent wants to call pay:\n  amount: 5"
            assert any(event.type is EventType.TOOL_CALL_START for event in events)
            entry = {"interruptId": interrupt.id, "status": "resolved", "payload": payload}
            events = await ask(client, {**given(), "messages": [], "runId": "run-2", "resume": [entry]})
            assert events[-1].outcome.type == "success"
            assert text in events[-1].result
            assert events[-1].run_id == "run-2"

    asyncio.run(main())


def test_every_stream_finishes_the_steps_that_it_started_and_no_others():
    async def main():
        async with serving(agent(call("pay", amount=5), say("ok"), tools=[pay])) as client:
            first = await ask(client, given())
            entry = {"interruptId": first[-1].outcome.interrupts[0].id, "status": "resolved"}
            second = await ask(
                client, {**given(), "messages": [], "resume": [{**entry, "payload": {"approved": True}}]}
            )
        for events in (first, second):
            steps = [(event.type.value, event.step_name) for event in events if hasattr(event, "step_name")]
            assert steps[::2] == [("STEP_STARTED", name) for _, name in steps[1::2]]
            assert steps[1::2] == [("STEP_FINISHED", name) for _, name in steps[::2]]
        assert "STEP_STARTED" in kinds(first)

    asyncio.run(main())


def test_a_cancelled_interrupt_is_a_denial():
    def told(request):
        return say(request.messages[-1].text)

    async def main():
        async with serving(agent(call("pay", amount=5), told, tools=[pay])) as client:
            events = await ask(client, given())
            entry = {"interruptId": events[-1].outcome.interrupts[0].id, "status": "cancelled"}
            events = await ask(client, {**given(), "messages": [], "resume": [entry]})
            assert "cancelled by the person" in events[-1].result

    asyncio.run(main())


def test_all_interrupts_are_decided_together():
    async def main():
        turns = [calls(call("pay", amount=1), call("pay", amount=2)), say("both")]
        async with serving(agent(*turns, tools=[pay])) as client:
            events = await ask(client, given())
            ids = [one.id for one in events[-1].outcome.interrupts]
            assert len(ids) == 2
            entries = [{"interruptId": one, "status": "resolved", "payload": {"approved": True}} for one in ids]
            answer = await client.post("/agui", json={**given(), "messages": [], "resume": entries[:1]})
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "still_waiting")
            unknown = [*entries, {**entries[0], "interruptId": "nobody"}]
            answer = await client.post("/agui", json={**given(), "messages": [], "resume": unknown})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_call")
            events = await ask(client, {**given(), "messages": [], "resume": entries})  # nothing was decided before
            assert events[-1].result == "both"

    asyncio.run(main())


def test_a_limit_is_a_success_that_says_what_it_is():
    async def main():
        eager = agent(call("search", query="a"), limits=Limits(max_iterations=3), tools=[search], times=50)
        async with serving(eager) as client:
            events = await ask(client, given())
        assert events[-1].outcome.type == "success"
        assert events[-1].metadata["glidepath"]["state"] == "max_steps"
        assert "glidepath.NoticeSent" in [event.name for event in events if event.type is EventType.CUSTOM]

    asyncio.run(main())


def test_a_failed_run_is_an_error():
    async def main():
        async with serving(agent(fail(RejectedError("no such key")))) as client:
            events = await ask(client, given())
        assert events[-1].type is EventType.RUN_ERROR
        assert "no such key" in events[-1].message

    asyncio.run(main())


def test_a_thread_is_a_session(tmp_path):
    def remembers(request):
        return say(" / ".join(message.text for message in request.messages if message.role == "user"))

    async def main():
        async with serving(agent(remembers, remembers), store=SqliteStore(tmp_path / "store")) as client:
            await ask(client, given("one"))
            history = [
                {"id": "1", "role": "user", "content": "one"},
                {"id": "2", "role": "assistant", "content": "one"},
                {"id": "3", "role": "user", "content": "two"},
            ]
            events = await ask(client, {**given(), "messages": history})
            assert events[-1].result == "one / two"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/agui", {"threadId": "t"}, 400),
        ("/agui", given(""), 400),
        ("/agui/nobody", given(), 404),
        ("/agui", given(tools=[{"name": "pay", "description": "d", "parameters": {}}]), 400),
        ("/agui", {**given(), "resume": [{"interruptId": "x", "status": "resolved", "payload": 1}]}, 404),
    ],
    ids=["half", "empty", "unknown agent", "tools", "unknown thread"],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(path, body, status):
    async def main():
        async with serving(agent()) as client:
            answer = await client.post(path, json=body)
            assert answer.status_code == status
            assert answer.json()["error"]["message"]
            assert client.hub.flights == {}

    asyncio.run(main())
