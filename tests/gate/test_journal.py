"""A foreign run is a session in the store: what it said, what it may spend and has spent, how it came down."""

import asyncio
import json

import anthropic
import httpx
import pytest

from glidepath.errors import StoreError
from glidepath.messages import AssistantMessage, ToolResultMessage, UserMessage
from glidepath.outcome import AgentState, LoopOutcome, TextOrigin
from glidepath.sessions import MemoryStore, RedactingStore, SqliteStore, export_journal, list_runs, read_journal
from glidepath.testing import transcript_errors

from .foreign import KEY, LOOPS, RESULT, fly_anthropic, fly_chat, in_real_time
from .kept import GATE_KEY, folded_of, keep_at, keep_behind, kinds_of, names_in, until
from .plain import RawUpstream, events

DIALECTS = pytest.mark.parametrize("dialect", sorted(LOOPS))
ANSWER = "SCRIPTED-ANSWER"
VERSION = {"anthropic-version": "2023-06-01"}


@DIALECTS
@in_real_time
async def test_a_run_is_a_session_with_its_conversation_its_spend_and_its_landing(dialect, tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        used = flown.up.usage
    (entry,) = await list_runs(store)
    assert entry.session_id == "gate:run-1"
    summary = entry.summary
    assert (summary["outcome"], summary["state"], summary["kind"]) == ("wrapped_up", "budget_exceeded", "gate")
    assert (summary["iterations"], summary["task"]) == (flight.calls, "Do the work.")
    assert summary["tokens"] == used.input + used.output
    folded = await folded_of(store)
    result = folded.result
    assert (result.cause.source, result.cause.reason) == (
        "TokenBudgetConstraint",
        "the limit of 12,000 tokens is reached",
    )
    assert result.text == flight.text
    assert (result.usage.input, result.usage.output) == (used.input, used.output)
    assert result.cost is not None
    said = [message for message in folded.messages if not getattr(message, "internal", False)]
    assert [type(one) for one in said[1:3]] == [AssistantMessage, ToolResultMessage]
    assert len(said) == 2 + 2 * flight.results
    assert said[2].text == RESULT
    assert not transcript_errors(folded.messages)
    assert folded.unread == []


@pytest.mark.parametrize(
    ("limits", "source", "state"),
    [
        ({"max_iterations": 1}, "MaxIterationConstraint", AgentState.MAX_STEPS),
        ({"max_iterations": 2}, "MaxIterationConstraint", AgentState.MAX_STEPS),
        ({"max_tokens": 1}, "TokenBudgetConstraint", AgentState.BUDGET_EXCEEDED),
        ({"max_tokens": 4_000}, "TokenBudgetConstraint", AgentState.BUDGET_EXCEEDED),
        ({"max_cost": "0.05"}, "CostLimitConstraint", AgentState.BUDGET_EXCEEDED),
    ],
)
@in_real_time
async def test_the_cause_is_the_limit_that_landed_it_even_a_limit_of_one(limits, source, state):
    store = MemoryStore()
    async with keep_behind("loop", store, limits=limits) as flown:
        await fly_anthropic(flown.url, flown.key)
    result = (await folded_of(store)).result
    assert (result.state, result.cause.source) == (state, source), result.cause


@in_real_time
async def test_what_every_request_tells_again_is_written_once(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store, limits={"max_iterations": 30}) as flown:
        await fly_anthropic(flown.url, flown.key)
    kinds = [kind for commit in await kinds_of(store) for kind in commit]
    assert "transcript" not in kinds
    assert kinds.count("message") == len((await folded_of(store)).messages)


@in_real_time
async def test_the_worst_case_of_a_call_is_written_before_it_goes_out(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("answer + slow:seconds=30", store) as flown:
        body = {"model": "claude-opus-5-5", "max_tokens": 2000, "messages": [{"role": "user", "content": "Hello?"}]}
        async with httpx.AsyncClient() as client:
            asking = asyncio.ensure_future(
                client.post(f"{flown.url}/v1/messages", json=body, headers={"x-api-key": flown.key, **VERSION})
            )
            await until(lambda: flown.keeper.open_runs and flown.keeper.open_runs[0].passages)
            reserved = (await folded_of(store)).reserved
            asking.cancel()
    assert reserved.input > 5
    assert 1024 <= reserved.output <= 2000
    assert reserved.tokens == reserved.input + reserved.output
    assert reserved.money > 0


@in_real_time
async def test_notices_and_words_of_ours_are_marked_as_ours(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("stubborn", store) as flown:
        flight = await fly_anthropic(flown.url, flown.key)
        again = await fly_anthropic(flown.url, flown.key)
    assert "[glidepath]" in flight.text
    folded = await folded_of(store)
    ours = [one for one in folded.messages if isinstance(one, UserMessage) and one.internal]
    assert {one.reason for one in ours} == {"wind_down", "landing"}
    assert all(one.text.startswith("[glidepath]") for one in ours)
    replies = [one for one in folded.messages if isinstance(one, AssistantMessage) and not one.tool_calls]
    assert [block.origins for block in replies[0].blocks] == [("gate",)]
    assert replies[-1].text == again.text
    assert replies[-1].origins == ("gate",)
    assert (folded.result.outcome, folded.result.text_origin) == (LoopOutcome.CUT_OFF, TextOrigin.RUNTIME)


@in_real_time
async def test_sub_agents_are_child_sessions_of_the_call_that_started_them(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store, limits={"max_tokens": 60_000}) as flown:
        tool = [{"name": "Task", "description": "Start an agent.", "input_schema": {"type": "object"}}]
        prompt = "Look at the first file and say what is in it."
        client = anthropic.AsyncAnthropic(base_url=flown.url, api_key=flown.key, max_retries=0)
        asked = {"type": "tool_use", "id": "toolu_parent1", "name": "Task", "input": {"prompt": prompt}}
        messages = [{"role": "user", "content": "Use two agents."}, {"role": "assistant", "content": [asked]}]
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_other", "content": "x"}]}
        )
        main = {"x-claude-code-session-id": "s-1"}
        ask = {"model": "claude-opus-5-5", "max_tokens": 500, "tools": tool}
        await client.messages.create(messages=messages[:1], extra_headers=main, **ask)
        child = {**main, "x-claude-code-agent-id": "a-1"}
        await fly_anthropic(flown.url, flown.key, headers=child, task=prompt, most=3)
        await fly_anthropic(flown.url, flown.key, headers={**main, "x-claude-code-agent-id": "a-2"}, task="Hm", most=2)
        await client.close()
        report = flown.report()
    names = await names_in(store)
    assert names[0] == "gate:run-1"
    assert len(names) == 3
    assert all(name.startswith("gate:run-1/") for name in names[1:])
    root = await folded_of(store)
    assert sorted(child.session_id for child in root.children) == names[1:]
    assert root.snapshot.tokens == report["tokens"]
    assert root.result.usage.total == report["tokens"]
    first = await folded_of(store, names[1])
    assert first.opened.parent["session_id"] == "gate:run-1"
    assert first.opened.parent["run_id"] == root.began.run_id
    assert [one.agent for one in root.children] == ["claude-code/a-1", "claude-code/a-2"]
    assert len(await export_journal(store, "gate:run-1")) > 1000
    assert {one.outcome for one in root.result.children} == {LoopOutcome.CANCELLED}


@in_real_time
async def test_the_call_that_started_a_sub_agent_is_known_where_its_prompt_says_so(tmp_path):
    store = MemoryStore()
    async with keep_behind("spawn:children=2,child=answer,then=answer", store, limits={"max_tokens": 90_000}) as flown:
        tool = {
            "name": "Agent",
            "description": "Start an agent.",
            "input_schema": {
                "type": "object",
                "properties": {"description": {"type": "string"}, "prompt": {"type": "string"}},
                "required": ["prompt"],
            },
        }
        main = {"x-claude-code-session-id": "s-1"}
        async with anthropic.AsyncAnthropic(base_url=flown.url, api_key=flown.key, max_retries=0) as client:
            reply = await client.messages.create(
                model="claude-opus-5-5",
                max_tokens=900,
                tools=[tool],
                messages=[{"role": "user", "content": "Start your helpers."}],
                extra_headers=main,
            )
            calls = [block for block in reply.content if block.type == "tool_use"]
            assert calls
            for number, call in enumerate(calls):
                await client.messages.create(
                    model="claude-opus-5-5",
                    max_tokens=900,
                    messages=[{"role": "user", "content": call.input["prompt"]}],
                    extra_headers={**main, "x-claude-code-agent-id": f"a-{number}"},
                )
    root = await folded_of(store)
    assert [one.call_id for one in root.children] == [call.id for call in calls]
    assert [one.session_id for one in root.children] == [
        f"gate:run-1/{call.id}.{number}" for number, call in enumerate(calls, 1)
    ]


@in_real_time
async def test_no_key_and_no_header_is_ever_written(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store) as flown:
        await fly_anthropic(flown.url, flown.key, headers={"x-secret-thing": "sk-header-secret", "cookie": "c00kie"})
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    exported = await export_journal(store, "gate:run-1")
    for secret in (KEY, GATE_KEY, "sk-header-secret", "c00kie"):
        assert secret.encode() not in written + exported


@in_real_time
async def test_a_redaction_hook_sees_everything_that_was_said(tmp_path):
    inner = SqliteStore(tmp_path / "store")
    store = RedactingStore(inner, lambda text: text.replace("lookup", "######").replace("Do the", "D. ..."))
    async with keep_behind("loop", store) as flown:
        await fly_anthropic(flown.url, flown.key)
    exported = (await export_journal(inner, "gate:run-1")).decode()
    assert "Result of the lookup" not in exported
    assert "Do the work" not in exported
    assert (await list_runs(inner))[0].summary["task"] == "D. ... work."
    assert (await folded_of(inner)).messages[0].text == "D. ... work."


@in_real_time
async def test_long_texts_and_pictures_are_bounded_and_the_rest_is_kept(tmp_path):
    store = SqliteStore(tmp_path / "store")
    huge = "word " * 150_000
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 40_000}}
    content = [{"type": "text", "text": huge}, picture, {"type": "text", "text": "What is it?"}]
    async with keep_behind("answer", store, limits={"max_tokens": 3_000_000}) as flown:
        body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": content}]}
        async with httpx.AsyncClient(timeout=30) as client:
            for _ in range(2):
                reply = await client.post(
                    f"{flown.url}/v1/messages", json=body, headers={"x-api-key": flown.key, **VERSION}
                )
                assert reply.status_code == 200
    text, image, question = (await folded_of(store)).messages[0].content
    assert 190_000 < len(text.text) < 210_000
    assert "characters are not kept" in text.text
    assert image.text == "[image/png, 120000 bytes, not kept]"
    assert question.text == "What is it?"


@in_real_time
async def test_what_no_reader_understands_is_kept_as_it_came(tmp_path):
    store = SqliteStore(tmp_path / "store")
    odd = {"role": "user", "content": [{"type": "hologram", "beam": [1, 2, {"x": "\ud800"}]}]}
    async with keep_behind("answer", store) as flown:
        plain = {"role": "user", "content": "And this?"}
        body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [odd, plain]}
        async with httpx.AsyncClient() as client:
            headers = {"x-api-key": flown.key, "content-type": "application/json", **VERSION}
            await client.post(f"{flown.url}/v1/messages", content=json.dumps(body), headers=headers)
        runs = flown.keeper.open_runs
        assert len(runs) == 1
        first, second = runs[0].conversation.messages[:2]
    assert first.role == "custom"
    assert second.text == "And this?"


# --- ends ------------------------------------------------------------------------------------------------------------


@in_real_time
async def test_a_run_ends_when_it_has_answered_and_nothing_more_comes_and_a_later_call_reopens_it(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("answer", store, idle=0.05) as flown:
        await fly_anthropic(flown.url, flown.key)
        await until(lambda: not flown.keeper.open_runs)
        ended = await folded_of(store)
        assert (ended.result.state, ended.result.outcome) == (AgentState.COMPLETED, LoopOutcome.DONE)
        await fly_anthropic(flown.url, flown.key, task="Something else, please.")
        running = await folded_of(store)
        assert running.result is None
        assert (running.began.resumed, running.began.run_id) == (True, ended.began.run_id)
        await until(lambda: not flown.keeper.open_runs)
    whole = await folded_of(store)
    assert whole.session.totals.runs == 1
    assert whole.result.iterations == 2
    assert whole.result.usage.total == flown.up.usage.input + flown.up.usage.output


@in_real_time
async def test_a_program_that_leaves_without_an_answer_is_told_as_that(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store) as flown:
        await fly_anthropic(flown.url, flown.key, most=2)
    result = (await folded_of(store)).result
    assert (result.outcome, result.cause.source, result.cause.reason) == (
        LoopOutcome.CANCELLED,
        "client",
        "the gate was closed",
    )


@in_real_time
async def test_a_call_that_the_upstream_refuses_costs_nothing_and_is_told(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("529", store) as flown:
        with pytest.raises(anthropic.APIStatusError):
            await fly_anthropic(flown.url, flown.key)
    folded = await folded_of(store)
    assert folded.reserved is None
    assert (folded.snapshot.tokens, folded.snapshot.turns, folded.result.iterations) == (0, 0, 0)
    assert (folded.result.state, folded.result.cause.reason) == (AgentState.ERROR, "the upstream answered 529")


# --- a store that fails ----------------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store that can be broken."""

    broken = False

    def append(self, lease, commit, *, summary=None, durability="sync"):
        if self.broken:
            raise StoreError("the disk is full", kind="full")
        return super().append(lease, commit, summary=summary, durability=durability)

    async def claim(self, session_id, owner, *, create=True):
        if self.broken:
            raise StoreError("the disk is full", kind="full")
        return await super().claim(session_id, owner, create=create)


@DIALECTS
@in_real_time
async def test_a_store_that_fails_stops_the_run_with_an_error_in_its_dialect(dialect):
    store = Failing()
    async with keep_behind("loop", store) as flown:
        await LOOPS[dialect](flown.url, flown.key, most=2)
        store.broken = True
        before = flown.up.usage.calls
        with pytest.raises(Exception, match="the disk is full") as caught:
            await LOOPS[dialect](flown.url, flown.key)
        assert caught.value.status_code == 402
        assert flown.up.usage.calls == before
        meter = flown.session().meter
        assert (meter.reserved_tokens, meter.reserved_money) == (0, 0)
        spent, turns = meter.tokens, meter.turns
        store.broken = False
        flight = await LOOPS[dialect](flown.url, flown.key, most=2)
        assert flight.calls == 2
        assert (flown.session().meter.turns, turns) == (4, 2)
        assert flown.session().meter.tokens > spent
        total = flown.up.usage.input + flown.up.usage.output
    folded = await folded_of(store)
    assert folded.result.usage.total == total
    assert folded.snapshot.tokens == total


# --- two gates, and a restart -----------------------------------------------------------------------------------------


@DIALECTS
@in_real_time
async def test_a_gate_that_starts_again_counts_what_was_spent_before(dialect, tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store) as flown:
        await LOOPS[dialect](flown.url, flown.key, most=6)
        spent = flown.report()["tokens"]
        async with keep_at(flown.up.url, store) as other:  # the first one lives: it writes beside it, and counts
            flight = await LOOPS[dialect](other.url, other.key)
            assert ANSWER in flight.text
            assert other.report()["tokens"] > spent
            assert flown.up.usage.input + flown.up.usage.output <= 12_000
    assert len([name for name in await names_in(store) if name.startswith("gate:run-1!")]) == 1
    async with keep_behind("loop", store) as last:
        flight = await LOOPS[dialect](last.url, last.key)
        assert last.up.usage.calls == 0
        assert "[glidepath]" in flight.text


@in_real_time
async def test_an_open_run_without_a_name_is_recognized_by_its_calls_after_a_restart(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store, line="") as flown:
        messages = []
        tools = [{"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}]
        messages.append({"role": "user", "content": "Do it."})
        async with httpx.AsyncClient() as client:

            async def ask(gate):
                body = {"model": "gpt-4o-mini", "messages": messages, "tools": tools}
                headers = {"authorization": f"Bearer {GATE_KEY}"}
                reply = await client.post(f"{gate.url}/v1/chat/completions", json=body, headers=headers)
                said = reply.json()["choices"][0]["message"]
                messages.append(said)
                messages.extend(
                    {"role": "tool", "tool_call_id": call["id"], "content": "x"}
                    for call in said.get("tool_calls") or ()
                )

            await ask(flown.gate)
            await ask(flown.gate)
            await flown.gate.close()
            async with keep_at(flown.up.url, store, line="") as other:
                await ask(other)
                (session,) = next(iter(other.governor._lines.values())).sessions.values()
                assert session.meter.turns == 3
    assert len(await names_in(store)) == 1


@in_real_time
async def test_a_stop_through_the_store_reaches_the_run(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("loop", store) as flown:
        await fly_anthropic(flown.url, flown.key, most=2)
        await SqliteStore(tmp_path / "store").flag("gate:run-1", "enough (by ada)")
        await until(lambda: flown.session().stopped is not None)
        with pytest.raises(anthropic.PermissionDeniedError, match="enough"):
            await fly_anthropic(flown.url, flown.key)
    result = (await folded_of(store)).result
    assert (result.outcome, result.cause.reason) == (LoopOutcome.CANCELLED, "enough (by ada)")


@in_real_time
async def test_many_calls_of_one_agent_at_once_are_all_reserved_and_all_written(tmp_path):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("answer", store, limits={"max_tokens": 300_000}, scripted={"pace": 0.01}) as flown:
        tasks = [fly_chat(flown.url, flown.key, task=f"Question {number}") for number in range(12)]
        await asyncio.gather(*tasks)
        total = flown.up.usage.input + flown.up.usage.output
    assert sum([(await folded_of(store, name)).session.totals.usage.total for name in ["gate:run-1"]]) == total
    for name in await names_in(store):
        assert (await read_journal(store, name)).folded.reserved is None


HALF = "\ud83c"  # of an emoji: what JavaScript leaves when it cuts a text
ODD = [
    ("anthropic", {"messages": [{"role": "user", "content": f"cut {HALF}"}]}),
    ("anthropic", {"system": f"cut {HALF}", "tools": [{"name": "look", "description": HALF, "input_schema": {}}]}),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]}),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": ["text"], "text": "hi"}]}]}),
    ("openai-chat", {"model": f"gpt-4o{HALF}"}),
    ("openai-chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}),
    ("openai-chat", {"messages": [{"role": "tool", "tool_call_id": HALF, "content": HALF}]}),
    ("openai-responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": None}]}]}),
    (
        "openai-responses",
        {
            "input": [
                {"type": "function_call", "call_id": "call_1", "name": HALF, "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
            ]
        },
    ),
    ("gemini", {"contents": [{"role": "user", "parts": [{"text": False}]}]}),
]
PLACES = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
}
SAID = [{"role": "user", "content": "hi"}]
PLAIN = {
    "anthropic": {"model": "claude-opus-5-5", "max_tokens": 90, "messages": SAID},
    "openai-chat": {"model": "gpt-4o", "messages": SAID},
    "openai-responses": {"model": "gpt-4.1", "input": SAID},
    "gemini": {},
}


@pytest.mark.parametrize(("dialect", "odd"), ODD)
@in_real_time
async def test_an_odd_request_is_the_providers_to_judge_and_is_kept_as_far_as_it_can_be(tmp_path, dialect, odd):
    store = SqliteStore(tmp_path / "store")
    async with keep_behind("answer", store) as flown, httpx.AsyncClient() as client:
        body = json.dumps({**PLAIN[dialect], **odd})
        headers = {"authorization": f"Bearer {flown.key}", **VERSION, "content-type": "application/json"}
        for _ in range(2):  # the second tells the first again
            reply = await client.post(f"{flown.url}{PLACES[dialect]}", content=body, headers=headers)
            assert "gate_error" not in reply.text
            assert "cannot be kept" not in reply.text
    assert (await list_runs(store))[0].summary["outcome"]


@in_real_time
async def test_a_client_that_has_nothing_to_say_any_more_is_answered_again(tmp_path):
    async with keep_behind("loop", SqliteStore(tmp_path / "store"), limits={"max_iterations": 1}) as flown:
        url = f"{flown.url}/v1beta/models/gemini-2.5-pro:generateContent"
        tools = [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]}]
        async with httpx.AsyncClient(headers={"x-goog-api-key": flown.key}) as client:
            for contents in ([{"role": "user", "parts": [{"text": "hi"}]}], [], []):
                reply = await client.post(url, json={"contents": contents, "tools": tools})
                assert reply.status_code == 200, reply.text


@in_real_time
async def test_half_a_character_in_a_reply_does_not_end_a_run(tmp_path):
    store = SqliteStore(tmp_path / "store")
    event = {"id": HALF, "model": HALF, "choices": [{"index": 0, "delta": {"content": f"cut {HALF}"}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    frames = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in (event, end)]
    up = RawUpstream(events(*frames, b"data: [DONE]\n\n"))
    async with up, httpx.AsyncClient() as client, keep_at(up.url, store) as gate:
        headers = {"authorization": f"Bearer {gate.key}"}
        for _ in range(2):
            reply = await client.post(f"{gate.url}/v1/chat/completions", json=PLAIN["openai-chat"], headers=headers)
            assert reply.status_code == 200, reply.text
    assert (await folded_of(store)).messages[-1].text.startswith("cut ")
