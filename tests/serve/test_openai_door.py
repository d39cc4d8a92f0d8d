"""OpenAI's own client talks to agents: models, responses, streams, sessions, chat completions."""

import asyncio
import json

import openai
import pytest

from glidepath import Limits
from glidepath.errors import RejectedError
from glidepath.serve import app
from glidepath.sessions import SqliteStore
from glidepath.testing import call, fail, say

from .deck import TOKEN, VIEW, Doors, agent, pay, serving


def client_of(http, token=TOKEN):
    http.headers.pop("authorization", None)
    return openai.AsyncOpenAI(api_key=token, base_url="http://localhost/v1", http_client=http, max_retries=0)


def talk(*agents, store=None):
    """Run a coroutine function with OpenAI's client on a server of these agents."""

    def decorate(test):
        async def main():
            async with serving(*(agents or (agent(),)), store=store) as http:
                return await test(client_of(http), http)

        return asyncio.run(main())

    return decorate


def test_agents_are_models():
    @talk(agent(), agent(name="other"))
    async def _(client, _http):
        assert [model.id async for model in client.models.list()] == ["helper", "other"]
        assert (await client.models.retrieve("other")).owned_by == "glidepath"
        with pytest.raises(openai.NotFoundError, match="there is no agent 'third'"):
            await client.models.retrieve("third")


def test_a_response_has_text_usage_and_how_the_run_ended():
    @talk()
    async def _(client, _http):
        answer = await client.responses.create(model="helper", input="hi")
        assert (answer.status, answer.output_text) == ("completed", "done")
        assert answer.usage.total_tokens > 0
        told = answer.model_extra["glidepath"]
        assert (told["outcome"], told["state"], told["cause"]) == ("done", "completed", None)
        assert float(told["cost"]) > 0
        assert json.loads(answer.metadata["glidepath"])["run_id"] == told["run_id"]
        again = await client.responses.retrieve(answer.id)
        assert (again.status, again.output_text, again.usage) == ("completed", "done", answer.usage)


def test_a_stream_ends_with_the_whole_response():
    @talk(agent(call("search", query="a").with_text("Let me look."), say("It is done.")))
    async def _(client, _http):
        kinds, text = [], ""
        async with client.responses.stream(model="helper", input="hi") as stream:
            async for event in stream:
                kinds.append(event.type)
                text += event.delta if event.type == "response.output_text.delta" else ""
            final = await stream.get_final_response()
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert text == "Let me look.It is done."
        assert [item.content[0].text for item in final.output] == ["Let me look.", "It is done."]


def test_a_limit_that_landed_is_incomplete_and_has_its_cause():
    eager = agent(call("search", query="a"), limits=Limits(max_iterations=3), times=50)

    @talk(eager)
    async def _(client, _http):
        answer = await client.responses.create(model="helper", input="hi")
        assert answer.status == "incomplete"
        assert answer.incomplete_details.reason == "max_output_tokens"
        assert answer.model_extra["glidepath"]["state"] == "max_steps"


def test_a_failed_run_is_a_failed_response():
    @talk(agent(fail(RejectedError("no such key"))))
    async def _(client, _http):
        answer = await client.responses.create(model="helper", input="hi")
        assert answer.status == "failed"
        assert "no such key" in answer.error.message


@pytest.mark.parametrize("stored", [True, False], ids=["store", "no store"])
def test_a_previous_response_is_a_session(tmp_path, stored):
    def remembers(request):
        return say(" / ".join(message.text for message in request.messages if message.role == "user"))

    one = agent(remembers, remembers)

    @talk(one, store=SqliteStore(tmp_path / "store") if stored else None)
    async def _(client, _http):
        first = await client.responses.create(model="helper", input="one")
        second = await client.responses.create(model="helper", input="two", previous_response_id=first.id)
        assert second.output_text == "one / two"
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="helper", input="x", previous_response_id="resp_unknown")


def test_a_conversation_is_a_session(tmp_path):
    @talk(agent(say("first"), say("second")), store=SqliteStore(tmp_path / "store"))
    async def _(client, http):
        for text in ("first", "second"):
            answer = await client.responses.create(model="helper", input="hi", conversation="talk-1")
            assert answer.output_text == text
        listed = (await http.get("/api/runs/talk-1", headers={"authorization": f"Bearer {TOKEN}"})).json()
        assert (listed["session_id"], listed["text"]) == ("talk-1", "second")


def test_a_run_that_waits_for_a_person_says_so():
    @talk(agent(call("pay", amount=5), say("paid"), tools=[pay]))
    async def _(client, _http):
        answer = await client.responses.create(model="helper", input="hi")
        (waiting,) = answer.model_extra["glidepath"]["pending"]
        assert (answer.status, waiting["tool"], waiting["arguments"]) == ("incomplete", "pay", {"amount": 5})
        assert "The run waits for a decision." in answer.output_text


def test_chat_completions_take_the_whole_conversation_each_time():
    def heard(request):
        return say(f"{request.system_prompt}|" + "|".join(message.text for message in request.messages))

    @talk(agent(heard, heard, system_prompt="Be brief."))
    async def _(client, _http):
        messages = [
            {"role": "system", "content": "Speak French."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "un"},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
        ]
        answer = await client.chat.completions.create(model="helper", messages=messages)
        choice = answer.choices[0]
        assert choice.message.content.endswith("|one|un|two")
        assert "Be brief.\n\nSpeak French." in choice.message.content
        assert (choice.finish_reason, answer.model_extra["glidepath"]["outcome"]) == ("stop", "done")
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_completions_stream():
    @talk(agent(call("search", query="a").with_text("Looking."), say("Done.")))
    async def _(client, _http):
        options = {"include_usage": True}
        stream = await client.chat.completions.create(
            model="helper", messages=[{"role": "user", "content": "hi"}], stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "Looking.\n\nDone."
        assert chunks[-1].usage.total_tokens > 0
        assert chunks[-2].choices[0].finish_reason == "stop"


async def read_into(chunks, stream):
    async for chunk in stream:
        chunks.append(chunk)


def failing():
    return agent(call("search", query="a").with_text("Looking."), fail(RejectedError("no such key")))


def test_a_failed_run_is_an_error_of_chat_completions_and_is_not_flown_again():
    async def main():
        async with serving(failing()) as http:
            client = client_of(http).with_options(max_retries=2)
            with pytest.raises(openai.UnprocessableEntityError, match=r"the run failed: .*no such key") as caught:
                await client.chat.completions.create(model="helper", messages=[{"role": "user", "content": "hi"}])
            assert (caught.value.code, caught.value.type) == ("run_failed", "server_error")
            told = caught.value.response.json()["glidepath"]
            assert (told["outcome"], told["usage"]["total"] > 0) == ("failed", True)
            headers = {"authorization": f"Bearer {TOKEN}"}
            assert len((await http.get("/api/runs", headers=headers)).json()["runs"]) == 1

    asyncio.run(main())


def test_a_stream_of_chat_completions_ends_with_the_error_of_its_run():
    @talk(failing())
    async def _(client, _http):
        ask = [{"role": "user", "content": "hi"}]
        stream = await client.chat.completions.create(model="helper", messages=ask, stream=True)
        chunks = []
        with pytest.raises(openai.APIError, match=r"the run failed: .*no such key") as caught:
            await read_into(chunks, stream)
        assert caught.value.code == "run_failed"
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Looking."
        assert {chunk.choices[0].finish_reason for chunk in chunks} == {None}


def test_a_stream_that_the_server_cuts_off_says_so():
    async def main():
        doors = Doors()
        async with serving(agent(call("wait"), say("ok"), tools=doors.tools())) as http:
            client, ask = client_of(http), [{"role": "user", "content": "hi"}]
            stream = asyncio.ensure_future(client.chat.completions.create(model="helper", messages=ask, stream=True))
            await doors.entered.wait()
            (flight,) = http.hub.flights.values()
            flight.task.cancel()  # as when the process is taken down
            with pytest.raises(openai.APIError, match="the server is shutting down"):
                await read_into([], await stream)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": ""}, "not be empty"),
        ({"input": []}, "non-empty"),
        ({"input": [{"role": "robot", "content": "x"}]}, "role must be"),
        ({"input": [{"role": "assistant", "content": "x"}]}, "last message must be the user's"),
        ({"input": [{"role": "user", "content": [{"type": "audio"}]}]}, "text or an image"),
        ({"input": "hi", "tools": [{"type": "web_search"}]}, r"tools\[0\]: type must be function"),
        ({"input": "hi", "conversation": "a", "previous_response_id": "b"}, "not both"),
    ],
    ids=["empty", "no messages", "role", "no question", "audio", "tools", "two sessions"],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(body, said):
    @talk()
    async def _(client, http):
        with pytest.raises(openai.BadRequestError, match=said):
            await client.responses.create(model="helper", **body)
        assert http.hub.flights == {}


def test_a_token_that_may_only_look_starts_nothing():
    async def main():
        async with serving(agent()) as http:
            with pytest.raises(openai.PermissionDeniedError, match="read-only"):
                await client_of(http, VIEW).responses.create(model="helper", input="hi")
            with pytest.raises(openai.AuthenticationError):
                await client_of(http, "wrong-token-000000000").models.list()

    asyncio.run(main())


def test_a_run_without_a_store_lands_when_the_client_that_waits_for_it_goes_away():
    async def main():
        doors = Doors()
        one = agent(call("wait"), say("ok"), tools=doors.tools())
        application = app(agents=[one], token=TOKEN, disconnect_grace=0.0)
        body = json.dumps({"model": "helper", "messages": [{"role": "user", "content": "hi"}]}).encode()
        told = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]
        headers = {"host": "localhost", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b""}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]

        async def receive():
            if len(told) == 1:
                await doors.entered.wait()
            return told.pop(0)

        async def send(_):
            return None

        async with application.router.lifespan_context(application):
            await asyncio.wait_for(application(scope, receive, send), 30)
            (flight,) = application.state.hub.flights.values()
            assert flight.feed.readers == 0
            while not flight.token.winding_down:  # noqa: ASYNC110 - as soon as the loop comes to it
                await asyncio.sleep(0)
            doors.open.set()
            await flight.task
            assert "its reader has gone" in flight.result.cause.reason

    asyncio.run(main())
