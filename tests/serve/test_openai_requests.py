"""What a request of an OpenAI client asks for is honored, or refused in that API's own words before a run starts."""

import asyncio
import json

import openai
import pytest

from glidepath.errors import RejectedError
from glidepath.messages import Usage
from glidepath.sessions import SqliteStore
from glidepath.testing import call, fail, say, truncated

from .deck import HEADERS, TOKEN, Doors, agent, serving
from .test_client_tools import HI, fly, list_runs

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}


def ask_for(properties):
    """A request for an answer with these properties."""
    schema = {"type": "object", "properties": properties}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def write(request):
    """As many words as the request allows."""
    most = request.max_output_tokens or 500
    usage = Usage(100, min(most, 500))
    return truncated("word " * most, usage=usage) if most < 500 else say("word " * 500, usage=usage)


def test_the_answer_is_the_json_that_was_asked_for_streamed_or_not():
    one = agent(call("search", query="a").with_text("Let me look."), say('```json\n{"city": "Oslo"}\n```'))

    async def test(client, _http):
        whole = await client.chat.completions.create(model="helper", messages=HI, response_format=FORMAT)
        assert json.loads(whole.choices[0].message.content) == {"city": "Oslo"}
        async with client.chat.completions.stream(model="helper", messages=HI, response_format=FORMAT) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.content == whole.choices[0].message.content
        wanted = {"format": {"type": "json_schema", "name": "city", "schema": CITY}}
        answer = await client.responses.create(model="helper", input="hi", text=wanted)
        assert json.loads(answer.output_text) == {"city": "Oslo"}

    fly(test, one)


def test_an_answer_that_never_fits_fails_the_run_and_not_the_client():
    async def test(client, _http):
        with pytest.raises(openai.UnprocessableEntityError, match="output_type"):
            await client.chat.completions.create(model="helper", messages=HI, response_format=FORMAT)

    fly(test, agent(say("no JSON"), times=50))


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_callers_limit_on_the_output_holds(field):
    async def test(client, http):
        asked = {"model": "helper", "messages": HI, field: 16}
        answer = await client.chat.completions.create(**asked)
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.completion_tokens <= 16
        assert len(await list_runs(http)) == 1

    fly(test, agent(write))


def test_a_model_that_ignores_a_callers_limit_is_not_said_to_have_kept_it():
    async def test(client, _http):
        answer = await client.chat.completions.create(model="helper", messages=HI, max_tokens=16)
        assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 400)
        said = await client.responses.create(model="helper", input="hi", max_output_tokens=16)
        assert (said.status, said.incomplete_details.reason) == ("incomplete", "max_output_tokens")

    fly(test, agent(say("word " * 400, usage=Usage(100, 400)), times=2))


def test_a_response_that_was_cut_at_the_callers_limit_is_incomplete():
    async def test(client, _http):
        answer = await client.responses.create(model="helper", input="hi", max_output_tokens=16)
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert 0 < answer.usage.output_tokens <= 16

    fly(test, agent(write))


def test_many_turns_write_no_more_than_the_callers_limit_and_the_landing():
    eager = agent(call("search", query="a").with_text("word " * 30), times=50)

    async def test(client, _http):
        answer = await client.chat.completions.create(model="helper", messages=HI, max_tokens=100)
        assert answer.choices[0].finish_reason == "length"
        assert "limit of 100 output tokens" in answer.model_extra["glidepath"]["cause"]["reason"]
        assert answer.usage.completion_tokens <= 300

    fly(test, eager)


def test_a_chat_completion_has_the_same_text_streamed_or_not():
    async def test(client, _http):
        whole = await client.chat.completions.create(model="helper", messages=HI)
        streamed = ""
        async for chunk in await client.chat.completions.create(model="helper", messages=HI, stream=True):
            streamed += chunk.choices[0].delta.content or ""
        assert whole.choices[0].message.content == streamed == "I look it up.\n\nOslo."
        answer = await client.responses.create(model="helper", input="hi")
        assert [item.content[0].text for item in answer.output] == ["I look it up.", "Oslo."]

    fly(test, agent(call("search", query="a").with_text("I look it up."), say("Oslo.")))


def test_a_response_in_the_background_is_polled_and_cancelled(tmp_path):
    doors = Doors()

    async def test(client, http):
        begun = await client.responses.create(model="helper", input="hi", background=True)
        assert (begun.status, begun.output, begun.background) == ("in_progress", [], True)
        await doors.entered.wait()
        assert (await client.responses.retrieve(begun.id)).status == "in_progress"
        doors.open.set()
        feed = http.hub.feeds[begun.id.removeprefix("resp_")]
        while not feed.finished:
            await asyncio.wait({feed.wait_for_news()}, timeout=5)
        done = await client.responses.retrieve(begun.id)
        assert (done.status, done.output_text) == ("completed", "ok")
        doors.open.clear()
        again = await client.responses.create(model="helper", input="hi", background=True)
        assert (await client.responses.cancel(again.id)).status == "cancelled"

    fly(test, agent(call("wait"), say("ok"), tools=doors.tools()), store=SqliteStore(tmp_path / "store"))


def test_a_conversation_is_made_and_used(tmp_path):
    async def test(client, _http):
        made = await client.conversations.create(metadata={"topic": "demo"})
        assert (made.object, made.metadata) == ("conversation", {"topic": "demo"})
        for _ in range(2):
            answer = await client.responses.create(model="helper", input="hi", conversation=made.id)
            assert answer.conversation.id == made.id
        with pytest.raises(openai.BadRequestError, match="items is not offered"):
            await client.conversations.create(items=[{"type": "message", "role": "user", "content": "hi"}])

    fly(test, agent(say("a")), store=SqliteStore(tmp_path / "store"))


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"stop": ["END"]}, "stop", "is not offered"),
        ({"n": 2}, "n", "must be 1"),
        ({"max_tokens": 0}, "max_tokens", "whole number"),
        ({"max_tokens": "many"}, "max_tokens", "whole number"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens", "whole number"),
        ({"response_format": {"type": "xml"}}, "response_format", "json_schema, not 'xml'"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must describe an object"),
        ({"response_format": {"type": "json_schema", "json_schema": 5}}, "response_format", "must describe an object"),
        (ask_for({"a": {"$ref": "#/$defs/gone"}}), "response_format", "no '#/$defs/gone'"),
        (ask_for({"a": {"anyOf": [{"$ref": "http://127.0.0.1:1/x"}]}}), "response_format", "nothing is fetched"),
        ({"tool_choice": "required"}, "tool_choice", "auto or none"),
        ({"functions": [{"name": "f"}]}, "functions", "send tools"),
        ({"audio": {"voice": "a"}}, "audio", "answers with text"),
        ({"tools": [{"type": "custom"}]}, "tools[0]", "type must be function"),
        (
            {"metadata": {"glidepath": {"on_disconnect": "explode"}}},
            "metadata.glidepath.on_disconnect",
            "stop, land or",
        ),
        ({"messages": []}, "messages", "non-empty"),
        ({"messages": [{"role": "robot"}]}, "messages[0]", "role must be"),
        ({"messages": [{"role": "user", "content": [{"type": "input_file"}]}]}, None, "text or an image"),
    ],
)
def test_what_a_chat_completion_cannot_have_is_refused_before_a_run_starts(body, param, said):
    async def test(_client, http):
        sent = {"model": "helper", "messages": HI, **body}
        answer = await http.post("/v1/chat/completions", json=sent, headers=HEADERS)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
        assert said in error["message"]
        assert await list_runs(http) == []

    fly(test)


def nest(depth):
    schema = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_a_schema_that_is_nested_too_deeply_is_refused_before_a_run_starts():
    async def test(client, http):
        tool = {"name": "show", "parameters": nest(180)}
        with pytest.raises(openai.BadRequestError, match=r"tools\[0\].* deep at most"):
            await client.responses.create(model="helper", input="hi", tools=[{"type": "function", **tool}])
        asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": nest(180)}}
        for more in ({"tools": [{"type": "function", "function": tool}]}, {"response_format": asked}):
            with pytest.raises(openai.BadRequestError, match="deep at most"):
                await client.chat.completions.create(model="helper", messages=HI, **more)
        assert await list_runs(http) == []

    fly(test)


@pytest.mark.parametrize("title", ["a\0b", "\0", "a" * 100_000, ["a"]])
def test_any_title_of_a_schema_is_taken(title):
    async def test(client, _http):
        asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "title": title}}}
        answer = await client.chat.completions.create(model="helper", messages=HI, response_format=asked)
        assert json.loads(answer.choices[0].message.content) == {"a": 1}

    fly(test, agent(say('{"a": 1}')))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": {"id": "pmpt_1"}}, "not stored here"),
        ({"text": {"format": {"type": "grammar"}}}, "must be text"),
        ({"max_output_tokens": -1}, "whole number"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}, *HI]}, "item_reference is not taken"),
        ({"input": [{"type": "computer_call"}]}, "type must be"),
        ({"tools": [{"type": "file_search"}]}, "type must be function"),
    ],
)
def test_what_a_response_cannot_have_is_refused_before_a_run_starts(body, said):
    async def test(client, http):
        with pytest.raises(openai.BadRequestError, match=said) as caught:
            await client.responses.create(**{"model": "helper", "input": "hi", **body})
        assert caught.value.type == "invalid_request_error"
        assert await list_runs(http) == []

    fly(test)


@pytest.mark.parametrize(
    ("path", "headers", "status", "kind"),
    [
        ("/v1/embeddings", HEADERS, 404, "invalid_request_error"),
        ("/v1/conversations/conv_1/items", HEADERS, 404, "invalid_request_error"),
        ("/v1/chat/completions", {}, 401, "authentication_error"),
        ("/v1/chat/completions", {"authorization": "Bearer viewer-0123456789"}, 403, "permission_error"),
        ("/v1/chat/completions", {**HEADERS, "content-type": "text/plain"}, 415, "invalid_request_error"),
    ],
)
def test_every_refusal_has_the_form_of_that_api(path, headers, status, kind):
    async def test(_client, http):
        http.headers.pop("authorization", None)
        sent = {"content-type": "application/json", **headers}
        answer = await http.post(path, content=json.dumps({"model": "helper", "messages": HI}), headers=sent)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
        assert answer.json()["error"]["type"] == kind
        assert (await http.get("/api/runs", headers=headers)).json().keys() != {"error"} or status in (401, 403)

    fly(test, token={TOKEN: "control:ada", "viewer-0123456789": "view"})


def test_one_call_of_a_client_that_retries_is_one_run():
    async def test(client, http):
        with pytest.raises(openai.UnprocessableEntityError):
            await client.with_options(max_retries=3).chat.completions.create(model="helper", messages=HI)
        assert len(await list_runs(http)) == 1

    fly(test, agent(fail(RejectedError("no such key"))))


# --- a client that goes away --------------------------------------------------------------------------------------

AGUI = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "hi"}]}
CHAT = {"model": "helper", "messages": HI}


def asking(body, wish, place):
    return body if wish is None else {**body, place: {"glidepath": {"on_disconnect": wish}}}


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("/agui", AGUI, "stopped"),
        ("/agui", asking(AGUI, "continue", "forwardedProps"), "continues"),
        ("/agui", asking(AGUI, "land", "forwardedProps"), "lands"),
        ("/v1/chat/completions", {**CHAT, "stream": True}, "continues"),
        ("/v1/chat/completions", asking({**CHAT, "stream": True}, "stop", "metadata"), "stopped"),
        ("/v1/chat/completions", asking(CHAT, "stop", "metadata"), "stopped"),
        ("/v1/chat/completions", {**CHAT, "metadata": {"glidepath.on_disconnect": "stop"}}, "stopped"),
        ("/v1/responses", asking({"model": "helper", "input": "hi", "stream": True}, "land", "metadata"), "lands"),
        ("/v1/responses", {"model": "helper", "input": "hi", "background": True, "stream": True}, "continues"),
    ],
)
@pytest.mark.parametrize("stored", [True, False], ids=["store", "no store"])
def test_a_client_that_goes_away_stops_its_run_where_it_or_its_door_says_so(tmp_path, path, body, word, stored):
    doors = Doors()
    one = agent(call("wait"), say("ok"), tools=doors.tools())

    async def main():
        store = SqliteStore(tmp_path / "store") if stored else None
        async with serving(one, store=store, disconnect_grace=30.0) as http:
            told = [{"type": "http.request", "body": json.dumps(body).encode()}, {"type": "http.disconnect"}]
            headers = {**HEADERS, "host": "localhost", "content-type": "application/json"}
            scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
            scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]

            async def receive():
                if len(told) == 1:
                    await doors.entered.wait()
                return told.pop(0)

            async def send(_):
                return None

            await asyncio.wait_for(http._transport.app(scope, receive, send), 30)
            flights = [*http.hub.flights.values()]
            if word == "stopped":
                assert all(flight.token.cancelled for flight in flights)
                return
            (flight,) = flights
            assert (flight.token.cancelled, flight.token.winding_down) == (False, word == "lands")
            doors.open.set()

    asyncio.run(main())
