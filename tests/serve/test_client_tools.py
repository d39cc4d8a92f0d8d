"""Tools of a page or a program: their calls wait for the client, and its next request continues the same run."""

import asyncio
import json

import openai
import pytest

from glidepath import Limits
from glidepath.sessions import SqliteStore
from glidepath.testing import call, calls, say

from .deck import HEADERS, TOKEN, agent, pay, serving
from .test_agui_door import ask as ask_agui, given, kinds
from .test_openai_door import client_of

SHOW = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOLS = [{"type": "function", "function": {"name": "show_map", "description": "Show a map.", "parameters": SHOW}}]
ITEM_TOOLS = [{"type": "function", "name": "show_map", "description": "Show a map.", "parameters": SHOW}]
PAGE_TOOLS = [{"name": "show_map", "description": "Show a map.", "parameters": SHOW}]
HI = [{"role": "user", "content": "Where is Oslo?"}]


def tell(request):
    """Say what the last result was, so that a test sees what the model read."""
    return say(f"It says: {request.messages[-1].text}")


def mapper(*turns, **fields):
    return agent(*(turns or (call("show_map", city="Oslo").with_text("Look."), tell)), **fields)


def fly(test, *agents, store=None, **options):
    async def main():
        async with serving(*(agents or (mapper(),)), store=store, **options) as http:
            return await test(client_of(http), http)

    return asyncio.run(main())


async def list_runs(http):
    return (await http.get("/api/runs", headers=HEADERS)).json()["runs"]


def result_of(message, text="a map of Oslo"):
    """The messages of the next request: what was said, the calls, and what they have returned."""
    results = [{"role": "tool", "tool_call_id": one.id, "content": text} for one in message.tool_calls]
    return [*HI, message.model_dump(exclude_none=True), *results]


@pytest.fixture(params=["store", "no store"])
def store(request, tmp_path):
    return SqliteStore(tmp_path / "store") if request.param == "store" else None


def test_a_chat_completion_asks_its_client_and_continues_the_same_run(store):
    async def test(client, http):
        first = await client.chat.completions.create(model="helper", messages=HI, tools=CHAT_TOOLS)
        (choice,) = first.choices
        (asked,) = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Look.")
        assert (asked.type, asked.function.name, json.loads(asked.function.arguments)) == (
            "function",
            "show_map",
            {"city": "Oslo"},
        )
        more = result_of(choice.message)
        second = await client.chat.completions.create(model="helper", messages=more, tools=CHAT_TOOLS)
        assert second.choices[0].message.content == "It says: a map of Oslo"
        assert second.choices[0].finish_reason == "stop"
        one, two = first.model_extra["glidepath"], second.model_extra["glidepath"]
        assert (one["run_id"], one["outcome"], two["outcome"]) == (two["run_id"], "paused", "done")
        assert first.id != second.id
        assert two["usage"]["total"] == first.usage.total_tokens + second.usage.total_tokens
        assert len(await list_runs(http)) == 1

    fly(test, store=store)


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_a_stream_has_the_calls_and_the_next_one_the_answer(name):
    async def chat(client):
        message, text = None, ""
        more = HI
        for _ in range(2):
            manager = client.chat.completions.stream(model="helper", messages=more, tools=CHAT_TOOLS)
            async with manager as stream:
                message = (await stream.get_final_completion()).choices[0].message
            text += message.content or ""
            if message.tool_calls:
                more = result_of(message)
        return text

    async def responses(client):
        text, more, before = "", HI, None
        for _ in range(2):
            manager = client.responses.stream(
                model="helper", input=more, tools=ITEM_TOOLS, previous_response_id=before or openai.omit
            )
            async with manager as stream:
                kinds = [event.type async for event in stream]
                final = await stream.get_final_response()
            assert (kinds[-1], final.status) == ("response.completed", "completed")
            text, before = text + final.output_text, final.id
            made = [item for item in final.output if item.type == "function_call"]
            more = [{"type": "function_call_output", "call_id": one.call_id, "output": "a map"} for one in made]
        again = await client.responses.retrieve(before)
        assert (again.output_text, again.usage) == (final.output_text, final.usage)
        return text

    async def test(client, http):
        assert (await {"chat": chat, "responses": responses}[name](client)).startswith("Look.It says: a map")
        assert len(await list_runs(http)) == 1

    fly(test)


def test_a_response_continues_with_the_whole_list_of_items_as_well():
    async def test(client, http):
        first = await client.responses.create(model="helper", input=HI, tools=ITEM_TOOLS)
        made = [item.model_dump() for item in first.output]
        outputs = [
            {"type": "function_call_output", "call_id": one["call_id"], "output": "a map"}
            for one in made
            if one["type"] == "function_call"
        ]
        second = await client.responses.create(model="helper", input=[*HI, *made, *outputs], tools=ITEM_TOOLS)
        assert second.output_text == "It says: a map"
        third = [*HI, *made, *outputs, *[item.model_dump() for item in second.output], *HI]
        again = await client.responses.create(model="helper", input=third, tools=ITEM_TOOLS)
        assert [item.type for item in again.output] == ["message", "function_call"]
        assert len(await list_runs(http)) == 2, "a new question is a new run, with the calls of the first as history"

    fly(test)


def test_a_page_runs_its_tool_and_the_next_request_continues_the_same_run(store):
    async def test(_client, http):
        http.headers.update(HEADERS)
        first = await ask_agui(http, given(tools=PAGE_TOOLS))
        assert kinds(first)[-6:] == [
            "TEXT_MESSAGE_END",
            *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
            "STEP_FINISHED",
            "RUN_FINISHED",
        ]
        assert (first[-1].outcome.type, first[-1].result) == ("success", "")
        asked = next(event for event in first if event.type.value == "TOOL_CALL_START")
        function = {"name": "show_map", "arguments": '{"city":"Oslo"}'}
        said = {"id": "2", "role": "assistant", "toolCalls": [{"id": asked.tool_call_id, "type": "function"}]}
        said["toolCalls"][0]["function"] = function
        answer = {"id": "3", "role": "tool", "toolCallId": asked.tool_call_id, "content": "a map"}
        more = [*given()["messages"], said, answer]
        second = await ask_agui(http, {**given(tools=PAGE_TOOLS), "runId": "run-2", "messages": more})
        assert second[-1].result == "It says: a map"
        assert not any(kind.startswith("TOOL_CALL") for kind in kinds(second)), "the page has shown it already"
        (run,) = await list_runs(http)
        assert (run["run_id"], run["session_id"]) == (second[-1].metadata["glidepath"]["run_id"], "thread-1")
        again = [*more, {"id": "4", "role": "user", "content": "And now?"}]
        third = await ask_agui(http, {**given(tools=PAGE_TOOLS), "runId": "run-3", "messages": again})
        assert third[-1].outcome.type == "success"

    fly(test, store=store)


def test_a_tool_that_failed_in_the_page_is_an_error_for_the_model():
    def said(request):
        return say(f"{request.messages[-1].is_error} {request.messages[-1].text}")

    async def test(_client, http):
        http.headers.update(HEADERS)
        first = await ask_agui(http, given(tools=PAGE_TOOLS))
        asked = next(event for event in first if event.type.value == "TOOL_CALL_START").tool_call_id
        failed = {"id": "3", "role": "tool", "toolCallId": asked, "content": "", "error": "no such city"}
        second = await ask_agui(http, {**given(tools=PAGE_TOOLS), "messages": [failed]})
        assert second[-1].result == "True no such city"

    fly(test, mapper(call("show_map", city="Oslo"), said))


def test_the_limits_of_the_run_hold_over_the_pause():
    eager = mapper(call("show_map", city="Oslo"), limits=Limits(max_iterations=3, grace_iterations=0), times=50)

    async def test(client, http):
        reasons, more = [], HI
        while reasons[-1:] != ["length"]:
            answer = (await client.chat.completions.create(model="helper", messages=more, tools=CHAT_TOOLS)).choices[0]
            reasons.append(answer.finish_reason)
            more = result_of(answer.message) if answer.message.tool_calls else []
        assert reasons == ["tool_calls"] * 3 + ["length"]
        (run,) = await list_runs(http)
        assert run["cause"]["reason"] == "the limit of 3 model turns is reached"

    fly(test, eager)


def test_two_calls_are_answered_together_and_an_approval_apart(tmp_path):
    both = calls(call("show_map", city="Oslo"), call("show_map", city="Rome"), call("pay", amount=5))

    def said(request):
        return say(" / ".join(message.text for message in request.messages if message.role == "tool_result"))

    async def test(client, http):
        first = await client.chat.completions.create(model="helper", messages=HI, tools=CHAT_TOOLS)
        message = first.choices[0].message
        assert [json.loads(one.function.arguments)["city"] for one in message.tool_calls] == ["Oslo", "Rome"]
        half = result_of(message)[:-1]
        with pytest.raises(openai.BadRequestError, match="send the results of all calls at once"):
            await client.chat.completions.create(model="helper", messages=half, tools=CHAT_TOOLS)
        second = await client.chat.completions.create(model="helper", messages=result_of(message), tools=CHAT_TOOLS)
        assert second.choices[0].finish_reason == "stop", "what is left is a person's"
        told = second.model_extra["glidepath"]
        assert [(one["tool"], one["arguments"]) for one in told["pending"]] == [("pay", {"amount": 5})]
        decided = {"id": told["pending"][0]["id"], "decision": "approve"}
        answer = await http.post(f"/api/runs/{told['run_id']}/decide", json=decided, headers=HEADERS)
        assert answer.status_code == 200, answer.text
        feed = http.hub.feeds[told["run_id"]]
        while not feed.finished:
            await asyncio.wait({feed.wait_for_news()}, timeout=5)
        assert feed.card.result.text == "a map of Oslo / a map of Oslo / paid 5"

    fly(test, mapper(both, said, tools=[pay]), store=SqliteStore(tmp_path / "store"))


def test_a_key_that_only_runs_answers_its_own_calls_and_nobody_elses():
    tokens = {TOKEN: "control:ada", "run-token-of-web-0123": "run:web", "run-token-of-spy-0123": "run:spy"}

    async def test(_client, http):
        web, spy = [
            openai.AsyncOpenAI(api_key=name, base_url="http://localhost/v1", http_client=http, max_retries=0)
            for name in list(tokens)[1:]
        ]
        message = (await web.chat.completions.create(model="helper", messages=HI, tools=CHAT_TOOLS)).choices[0].message
        with pytest.raises(openai.UnprocessableEntityError, match="is not here"):
            await spy.chat.completions.create(model="helper", messages=result_of(message), tools=CHAT_TOOLS)
        done = await web.chat.completions.create(model="helper", messages=result_of(message), tools=CHAT_TOOLS)
        assert done.choices[0].message.content == "It says: a map of Oslo"

    fly(test, token=tokens)


def test_a_client_cannot_approve_what_waits_for_a_person():
    async def test(client, _http):
        first = await client.chat.completions.create(model="helper", messages=HI, tools=CHAT_TOOLS)
        (waiting,) = first.model_extra["glidepath"]["pending"]
        name = f"{first.model_extra['glidepath']['run_id']}.{waiting['id']}"
        answer = {"role": "tool", "tool_call_id": name, "content": "paid"}
        with pytest.raises(openai.UnprocessableEntityError, match="waits for its client"):
            await client.chat.completions.create(model="helper", messages=[*HI, answer], tools=CHAT_TOOLS)

    fly(test, mapper(call("pay", amount=5), say("ok"), tools=[pay]))


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([{"type": "function", "function": {"name": "pay"}}], "two tools are named 'pay'"),
        ([{"type": "function", "function": {"name": "a b"}}], r"tools\[0\]: .*name"),
        ([{"type": "function"}], r"tools\[0\]: type must be function"),
        ([{"type": "function", "function": {"name": "f", "parameters": 5}}], r"tools\[0\]: parameters"),
        ([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}], r"tools\[0\]: .*object"),
        ([*CHAT_TOOLS, *CHAT_TOOLS], r"tools\[1\]: there are two tools named 'show_map'"),
        (CHAT_TOOLS * 129, "at most 128 tools"),
    ],
    ids=["ours", "name", "no function", "schema", "array", "twice", "many"],
)
def test_a_tool_that_cannot_be_used_is_refused_before_a_run_starts(tools, said):
    async def test(client, http):
        with pytest.raises(openai.BadRequestError, match=said):
            await client.chat.completions.create(model="helper", messages=HI, tools=tools)
        assert await list_runs(http) == []

    fly(test)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ([{"role": "tool", "tool_call_id": "call_1", "content": "x"}], "must have the id of its call"),
        ([{"role": "tool", "tool_call_id": "run_0.call_1", "content": "x"}], "is not here"),
        ([{"role": "tool", "content": "x"}], "needs the id of its call"),
        ([{"role": "tool", "tool_call_id": "run_0.call_1", "content": "x\0"}], "NUL"),
    ],
    ids=["not ours", "unknown", "no id", "NUL"],
)
def test_a_result_that_nobody_waits_for_is_refused_before_a_run_starts(last, said):
    async def test(client, http):
        with pytest.raises((openai.UnprocessableEntityError, openai.BadRequestError), match=said):
            await client.chat.completions.create(model="helper", messages=[*HI, *last], tools=CHAT_TOOLS)
        assert await list_runs(http) == []

    fly(test)


def test_a_result_that_is_sent_twice_continues_once():
    async def test(client, http):
        message = (
            (await client.chat.completions.create(model="helper", messages=HI, tools=CHAT_TOOLS)).choices[0].message
        )
        more = result_of(message)
        asking = [client.chat.completions.create(model="helper", messages=more, tools=CHAT_TOOLS) for _ in range(2)]
        done = await asyncio.gather(*asking, return_exceptions=True)
        assert sorted(type(one).__name__ for one in done) == ["ChatCompletion", "UnprocessableEntityError"]
        assert len(await list_runs(http)) == 1
        with pytest.raises(openai.UnprocessableEntityError, match="does not wait"):
            await client.chat.completions.create(model="helper", messages=more, tools=CHAT_TOOLS)

    fly(test)
