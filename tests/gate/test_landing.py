"""Agents that know nothing of glidepath come down inside their budget, with an answer."""

import asyncio
import contextlib
import json

import anthropic
import httpx
import openai
import pytest

from glidepath import Limits
from glidepath.apps.gate import find_known, finishing_call, remove_noise
from glidepath.gate import Gate, Upstream
from glidepath.messages import ToolResultMessage

from .foreign import KEY, LOOPS, fly_anthropic, fly_behind, fly_chat, in_real_time

DIALECTS = pytest.mark.parametrize("dialect", sorted(LOOPS))
ANSWER = "SCRIPTED-ANSWER"


@DIALECTS
@in_real_time
async def test_an_agent_that_would_go_on_forever_lands_with_an_answer_inside_its_tokens(dialect):
    async with fly_behind("loop", max_tokens=12_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert ANSWER in flight.text
        assert flight.results >= 3
        report = flown.report()
        assert report["landed"] is True
        assert report["reason"] == "the limit of 12,000 tokens is reached"
        flown.assert_within(12_000)
        assert report["tokens"] > 12_000 * 0.7


@DIALECTS
@in_real_time
async def test_a_money_limit_holds_and_is_used(dialect):
    async with fly_behind("loop", max_cost="0.05") as flown:
        flight = await LOOPS[dialect](flown.url, flown.key, most=500)
        report = flown.report()
        assert ANSWER in flight.text
        assert 0.6 * 0.05 < report["cost"] <= 0.05


@DIALECTS
@in_real_time
async def test_a_limit_on_calls_counts_the_last_one_too(dialect):
    async with fly_behind("loop", max_iterations=4) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert ANSWER in flight.text
        assert flight.calls == 4
        assert flown.up.usage.calls == 4


@in_real_time
async def test_with_a_single_call_the_first_is_the_landing():
    async with fly_behind("loop", max_iterations=1) as flown:
        flight = await fly_anthropic(flown.url, flown.key)
        assert ANSWER in flight.text
        assert flown.up.usage.calls == 1


@DIALECTS
@in_real_time
async def test_a_model_that_calls_tools_all_the_same_is_answered_for(dialect):
    async with fly_behind("stubborn", max_tokens=12_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert "[glidepath] The run was ended here: the limit of 12,000 tokens is reached" in flight.text
        flown.assert_within(12_000)


@DIALECTS
@in_real_time
async def test_a_reply_without_end_is_cut_and_its_text_kept(dialect):
    async with fly_behind("endless", max_tokens=12_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert flight.calls == 1
        assert "on it goes" in flight.text
        assert "[glidepath] The reply was cut here: the limit of 12,000 tokens is reached." in flight.text
        flown.assert_within(12_000)
        while flown.up.usage.open:  # noqa: ASYNC110 - it notices by itself
            await asyncio.sleep(0.01)
        assert flown.up.usage.aborted == 1
        flown.assert_within(12_000)


@DIALECTS
@in_real_time
async def test_the_same_call_again_and_again_is_noticed_long_before_the_limit(dialect):
    async with fly_behind("same", max_tokens=500_000) as flown:
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert ANSWER in flight.text
        assert flight.calls <= 8
        report = flown.report()
        assert report["landed"] is True
        assert "repeated" in report["reason"]


@in_real_time
async def test_after_a_loop_the_agent_may_be_asked_something_else():
    async with fly_behind("same", max_tokens=500_000) as flown:
        await fly_anthropic(flown.url, flown.key)
        flown.up.behavior = "answer"
        before = flown.up.usage.calls
        await fly_anthropic(flown.url, flown.key, task="Something else.", headers={"x-glidepath-agent": "agent-1"})
        assert flown.up.usage.calls == before + 1


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        (
            "codex",
            '{"chunk_id":"f","wall_time_seconds":0.1,"o":"x"}',
            '{"chunk_id":"a","wall_time_seconds":2,"o":"x"}',
        ),
        ("codex", "Chunk ID: f1\nWall time: 0.1 seconds\nx", "Chunk ID: b2\nWall time: 1.5 seconds\nx"),
        ("gemini-cli", "Output: x\nProcess Group PGID: 12", "Output: x\nProcess Group PGID: 1234"),
    ],
)
def test_what_a_program_adds_to_the_result_of_a_command_hides_no_loop(name, one, other):
    def read(text, name=name):
        (found,) = remove_noise(find_known(name), (ToolResultMessage("call_1", "exec", text),))
        return found.text

    assert read(one) == read(other)
    assert read(one) != read(other.replace("x", "y"))
    assert read(one, "claude-code") == one


@pytest.mark.parametrize(
    "text",
    [
        "Chunk ID: f1\nWall time: 10.0 seconds\nProcess running with session ID 42\nOutput:\n",
        '{"chunk_id":"f1","wall_time_seconds":10.0,"session_id":42,"output":""}',
        "Script running with cell ID 7\nWall time 10.0 seconds\nOutput:\n",
    ],
)
def test_waiting_for_a_command_that_still_runs_is_no_loop(text):
    results = (ToolResultMessage("call_1", "exec", text),)
    assert remove_noise(find_known("codex"), results) is results


@DIALECTS
@in_real_time
async def test_a_run_that_is_down_costs_nothing_more_and_its_last_answer_is_told_again(dialect):
    async with fly_behind("loop", max_tokens=9_000) as flown:
        headers = {"x-glidepath-agent": "main"}
        first = await LOOPS[dialect](flown.url, flown.key, headers=headers)
        calls = flown.up.usage.calls
        flight = await LOOPS[dialect](flown.url, flown.key, headers=headers)
        assert flight.text.startswith("[glidepath] The run was ended here")
        assert flight.text.endswith(f"Its last answer was:\n\n{first.text}")
        assert flown.up.usage.calls == calls


@in_real_time
async def test_an_answer_that_is_told_again_is_told_once():
    async with fly_behind("loop", max_tokens=9_000) as flown:
        headers = {"x-glidepath-agent": "main"}
        for _ in range(3):
            flight = await fly_chat(flown.url, flown.key, headers=headers)
        assert flight.text.count(ANSWER) == 1


@in_real_time
async def test_after_a_reply_that_broke_off_reasoning_that_led_to_nothing_is_not_sent_again():
    asked = {"model": "gpt-4.1", "stream": True, "store": False, "input": [{"role": "user", "content": "hi"}]}
    again = {**asked, "input": [*asked["input"], {"type": "reasoning", "summary": []}]}
    async with fly_behind("answer + cut:at=2,after=3", max_tokens=40_000) as flown:
        headers = {**say_who(flown.key), "x-glidepath-agent": "main"}
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            replies = [
                await client.post(f"{flown.url}/v1/responses", json=body, headers=headers)
                for body in (again, asked, again)
            ]
        # Before anything broke off, the provider's refusal is for the client.
        assert [reply.status_code for reply in replies] == [400, 200, 200]
        assert "required following item" in replies[0].text
        assert "upstream_failed" in replies[1].text
        assert ANSWER in replies[2].text


@DIALECTS
@pytest.mark.parametrize("after", range(7))
@in_real_time
async def test_wherever_something_that_is_no_json_strikes_the_agent_answers_or_may_ask_again(dialect, after):
    async with fly_behind(f"honest + garbage:at=2,after={after}", max_tokens=40_000) as flown:
        with contextlib.suppress(openai.APIError, anthropic.APIError):  # it came in the middle of a call
            await LOOPS[dialect](flown.url, flown.key)
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert flight.text == f"{ANSWER} after 3 tool calls"


@in_real_time
async def test_honest_work_that_fits_is_left_alone():
    async with fly_behind("honest", max_tokens=60_000) as flown:
        flight = await fly_anthropic(flown.url, flown.key)
        assert ANSWER in flight.text
        assert flown.report()["landed"] is False
        assert not any("[glidepath]" in str(call.body) for call in flown.up.calls)


@in_real_time
async def test_time_that_is_up_cuts_the_reply_that_is_being_written():
    slow = {"rate": 200.0}
    async with fly_behind("endless", timeout=2.0, scripted=slow) as flown:
        started = asyncio.get_running_loop().time()
        flight = await fly_anthropic(flown.url, flown.key)
        assert asyncio.get_running_loop().time() - started < 4
        assert "the time limit of 2 seconds is reached" in flight.text


@in_real_time
async def test_every_agent_of_a_tree_keeps_its_own_way_down():
    async with fly_behind("loop", max_tokens=60_000) as flown:
        names = ["main", *[f"child-{number}" for number in range(5)]]
        flights = await asyncio.gather(
            *[fly_anthropic(flown.url, flown.key, headers={"x-glidepath-agent": name}, most=200) for name in names]
        )
        assert all(ANSWER in flight.text for flight in flights), [flight.text for flight in flights]
        flown.assert_within(60_000)
        assert {agent["id"] for agent in flown.report()["agents"]} == set(names)


@in_real_time
async def test_a_model_without_a_price_is_refused_under_a_money_limit():
    async with fly_behind("answer", max_cost="1.00") as flown:
        with pytest.raises(Exception, match="no price is known for model 'my-own-model'"):
            await fly_chat(flown.url, flown.key, model="my-own-model")
        assert flown.up.usage.calls == 0


@in_real_time
async def test_what_a_provider_refuses_passes_and_costs_nothing():
    async with fly_behind("answer+429", max_tokens=50_000, max_iterations=5) as flown:
        with pytest.raises(Exception, match="429"):
            await fly_chat(flown.url, flown.key)
        report = flown.report()
        assert report["calls"] == 0
        assert report["tokens"] == 0
        session = next(iter(flown.gate.governor._lines.values())).sessions["run-1"]
        assert (session.meter.reserved_tokens, session.meter.turns) == (0, 0)


def say_who(key):
    return {"x-api-key": key, "anthropic-version": "2023-06-01"}


@pytest.mark.parametrize("stream", [True, False])
@in_real_time
async def test_a_call_that_waits_for_its_first_byte_when_the_time_is_up_ends_with_our_words(stream):
    async with fly_behind("loop + slow:seconds=30", timeout=0.4) as flown:
        body = {"model": "m", "max_tokens": 100, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            reply = await client.post(f"{flown.url}/v1/messages", json=body, headers=say_who(flown.key))
        assert reply.status_code == 200
        assert "[glidepath]" in reply.text
        assert "the time limit of 0.4 seconds is reached" in reply.headers["x-glidepath-landed"]
        assert flown.report()["landed"]


SILENT = "stall:at=2,after=3,seconds=3600"


@DIALECTS
@in_real_time
async def test_a_reply_that_goes_silent_near_the_end_of_the_time_becomes_the_landing(dialect):
    async with fly_behind(f"honest + {SILENT}", timeout=2.0) as flown:
        began = asyncio.get_running_loop().time()
        flight = await LOOPS[dialect](flown.url, flown.key)
        assert asyncio.get_running_loop().time() - began < 2.0
        assert ANSWER in flight.text, "the model's own last words"
        report = flown.report()
        assert report["reason"] == "the time limit of 2 seconds is reached"
        assert [len(flown.up.calls), report["calls"], flight.calls] == [3, 3, 2]
        assert flown.session().meter.reserved_tokens == 0


@in_real_time
async def test_wherever_a_stream_goes_silent_the_model_has_the_last_word():
    async def fly(after):
        async with fly_behind(f"honest + stall:at=2,after={after},seconds=3600", timeout=4.0) as flown:
            flight = await fly_anthropic(flown.url, flown.key)
            assert ANSWER in flight.text, after
            assert "[glidepath]" not in flight.text, after
            assert flown.report()["landed"], after
            return flight.calls

    calls = await asyncio.gather(*[fly(after) for after in range(1, 10)])
    assert set(calls) == {2, 3}, "behind text it ends that reply; behind a call, it answers the next request"


def frame_chunk(**part):
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], **part}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


WHOLE = b"".join(
    [
        frame_chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": "All of it."}}]),
        frame_chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        frame_chunk(usage={"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}),
        b"data: [DONE]\n\n",
    ]
)


@pytest.mark.parametrize("stream", [True, False])
@in_real_time
async def test_a_whole_reply_whose_connection_stays_open_is_the_reply(stream):
    asked = []

    async def hold_on(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + WHOLE)
        await writer.drain()
        await reader.read()  # until the gate hangs up
        writer.close()

    server = await asyncio.start_server(hold_on, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    upstream = Upstream("openai", "openai", url, "swap", "env:UPSTREAM_KEY")
    async with Gate(Limits(timeout=1.0), [upstream], environ={"UPSTREAM_KEY": KEY}) as gate:
        body = {"model": "gpt-4o-mini", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            headers = {"authorization": f"Bearer {gate.key}"}
            reply = await client.post(f"{gate.url}/v1/chat/completions", json=body, headers=headers)
        assert reply.text.count("All of it.") == 1
        assert "[glidepath]" not in reply.text
        assert len(asked) == 1, "there is nothing to ask for"
        assert gate.report()["tokens"] == 13
        assert not gate.report()["landed"]
    server.close()


@pytest.mark.parametrize("stream", [True, False])
@in_real_time
async def test_the_landing_of_a_silent_reply_is_of_the_same_run_without_any_name(stream):
    async with fly_behind("answer + stall:at=1,after=1,seconds=3600", line="", timeout=1.0) as flown:
        body = {"model": "gpt-4o-mini", "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            headers = {"authorization": f"Bearer {flown.key}"}
            reply = await client.post(f"{flown.url}/v1/chat/completions", json=body, headers=headers)
        assert "[glidepath]" not in reply.text
        report = flown.report()
        assert (report["calls"], report["landed"], len(report.get("runs", [report]))) == (2, True, 1)


def stream_chat(flown):
    return openai.AsyncOpenAI(base_url=f"{flown.url}/v1", api_key=flown.key, max_retries=0)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("", "SCRIPTED-ANSWER"),
        ("+ 429:at=2", "[glidepath]"),
        ("+ stall:at=2,after=1,seconds=3600", "[glidepath]"),
        ("+ cut:at=2,after=1", "[glidepath]"),
        ("+ web_page:at=2", "[glidepath]"),
        ("+ empty:at=2", "[glidepath]"),
    ],
)
@in_real_time
async def test_a_stream_that_has_begun_ends_with_the_landing_or_with_our_words(then, words):
    async with (
        fly_behind(f"answer + stall:at=1,after=3,seconds=3600 {then}", timeout=1.0) as flown,
        stream_chat(flown) as client,
    ):
        stream = await client.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        chunks = [chunk.choices[0] async for chunk in stream if chunk.choices]
        text = "".join(one.delta.content or "" for one in chunks)
        assert words in text
        assert len(flown.up.calls) == 2
        assert chunks[-1].finish_reason == "stop"
        assert len({one.index for one in chunks}) == 1
        assert flown.report()["landed"]
        again = await client.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": text}]
        )
        assert "[glidepath]" in again.choices[0].message.content, "nothing is asked after the landing"
        assert len(flown.up.calls) == 2


@in_real_time
async def test_a_kill_switch_ends_a_landing_that_the_gate_asked_for():
    async with (
        fly_behind("answer + stall:at=1,after=3,seconds=3600 + stall:at=2,after=1,seconds=3600", timeout=4.0) as flown,
        stream_chat(flown) as client,
    ):
        stream = await client.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        chunks = []
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == 1:
                asyncio.get_running_loop().call_later(3.4, asyncio.ensure_future, flown.gate.governor.stop("enough"))
        assert flown.up.usage.calls == 2
        assert "enough" in "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)


@in_real_time
async def test_a_reply_that_goes_silent_while_there_is_time_is_waited_for():
    async with fly_behind("honest + stall:at=2,after=3,seconds=0.5", timeout=20.0) as flown:
        flight = await fly_anthropic(flown.url, flown.key)
        assert ANSWER in flight.text
        assert not flown.report()["landed"]


@pytest.mark.parametrize("stream", [True, False])
@in_real_time
async def test_a_web_page_instead_of_a_reply_is_an_error_before_anything_has_left(stream):
    async with fly_behind("answer + web_page:at=1", max_tokens=10_000) as flown:
        body = {"model": "m", "max_tokens": 100, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            replies = [
                await client.post(f"{flown.url}/v1/messages", json=body, headers=say_who(flown.key)) for _ in range(2)
            ]
        assert [reply.status_code for reply in replies] == [502, 200]
        assert "web page (text/html)" in replies[0].json()["error"]["message"]
        flown.assert_within(10_000)


COMPLETE = {
    "name": "complete_task",
    "parametersJsonSchema": {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]},
}
LOOK_UP = {"name": "lookup", "parametersJsonSchema": {"type": "object", "properties": {"query": {"type": "string"}}}}


async def fly_gemini(url, key, most=9):
    """A loop as Gemini CLI's sub-agents have it: without a call of `complete_task` they fail. The calls it got."""
    contents, calls = [{"role": "user", "parts": [{"text": "Do the work."}]}], []
    async with httpx.AsyncClient(headers={"x-goog-api-key": key}) as client:
        for _ in range(most):
            body = {"contents": contents, "tools": [{"functionDeclarations": [LOOK_UP, COMPLETE]}]}
            reply = await client.post(f"{url}/v1beta/models/gemini-2.5-pro:generateContent", json=body)
            content = reply.json()["candidates"][0]["content"]
            call = next((part["functionCall"] for part in content["parts"] if "functionCall" in part), None)
            calls.append(call)
            if call is None or call["name"] == "complete_task":
                return calls
            result = {"name": call["name"], "response": {"output": "found"}}
            contents = [*contents, content, {"role": "user", "parts": [{"functionResponse": result}]}]
    return calls


@in_real_time
async def test_a_sub_agent_that_must_report_by_a_tool_lands_with_that_tool():
    async with fly_behind("loop", max_iterations=3) as flown:
        *_, last = await fly_gemini(flown.url, flown.key)
        assert last["name"] == "complete_task"
        assert last["args"]["result"].startswith(ANSWER)
        assert flown.up.usage.calls == 3
        (again,) = await fly_gemini(flown.url, flown.key)
        assert again["name"] == "complete_task"
        assert again["args"]["result"].startswith("[glidepath] The run was ended here: the limit of 3 calls")


@pytest.mark.parametrize(
    ("name", "tools", "arguments"),
    [
        ("complete_task", [{"functionDeclarations": [LOOK_UP, COMPLETE]}], {"result": "x"}),
        ("final_answer", [{"type": "function", "function": {"name": "final_answer"}}], {"answer": "x"}),
        ("final_answer", None, {"answer": "x"}),
        ("complete_task", [{"name": "complete_task", "input_schema": {"required": ["report"]}}], None),
        ("final_result", [], None),
        ("complete_task", [5, {"functionDeclarations": [None]}, {"name": ["complete_task"]}], {"result": "x"}),
    ],
)
def test_our_words_are_put_into_a_finishing_tool_only_where_they_are_all_it_takes(name, tools, arguments):
    assert finishing_call(name, tools, "x") == (None if arguments is None else (name, arguments))
