"""How probable the tokens of a reply were: asked for by one setting, read from four protocols, kept in the result."""

import json

import pytest

from glidepath import Agent, Limits
from glidepath.errors import RejectedError
from glidepath.events import MessageAdded
from glidepath.messages import AssistantMessage, ReplyInfo, TextBlock, TokenLogprob, UserMessage
from glidepath.models import AnthropicModel, ModelRequest, OpenAIChatModel, content as content_module
from glidepath.values import codec

from .dialects import KEY, Chat, Google, Responses, event
from .server import Answer, Wire, run

HELLO = (
    TokenLogprob("Hel", -0.25, (("Hel", -0.25), ("Go", -1.5))),
    TokenLogprob("lo", -9999.0),
)
OPENAI = [
    {
        "token": "Hel",
        "logprob": -0.25,
        "bytes": [72, 101, 108],
        "top_logprobs": [{"token": "Hel", "logprob": -0.25}, {"token": "Go", "logprob": -1.5}],
    },
    {"token": "lo", "logprob": float("-inf"), "top_logprobs": []},
]


def chat():
    first = {"index": 0, "delta": {"content": "Hel"}, "logprobs": {"content": OPENAI[:1], "refusal": None}}
    second = {"index": 0, "delta": {"content": "lo"}, "logprobs": {"content": OPENAI[1:], "refusal": None}}
    third = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    return Chat(), [*[event({"id": "c", "choices": [one]}) for one in (first, second, third)], event("[DONE]")]


def responses():
    dialect = Responses()
    pieces = [
        dialect.say("response.output_text.delta", output_index=0, delta=one["token"], logprobs=[one]) for one in OPENAI
    ]
    return dialect, [*pieces, *dialect.end()]


def responses_at_once():
    dialect = Responses()
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": OPENAI}
    item = {"type": "message", "role": "assistant", "content": [part]}
    return dialect, [dialect.say("response.output_item.done", output_index=0, item=item), *dialect.end()]


def google():
    def named(token, value):
        return {"token": token, "tokenId": 1, "logProbability": value}

    weights = {
        "chosenCandidates": [named("Hel", -0.25), named("lo", -9999.0)],
        "topCandidates": [{"candidates": [named("Hel", -0.25), named("Go", -1.5)]}],
    }
    dialect = Google()
    return dialect, [dialect.chunk({"text": "Hello"}, logprobsResult=weights), *dialect.end()]


every = pytest.mark.parametrize("make", [chat, responses, responses_at_once, google])


def flown(make, **settings):
    dialect, chunks = make()

    async def fly():
        async with Wire([Answer(chunks)]) as wire:
            model = dialect.model(wire.url)
            heard = []
            agent = Agent(model=model, limits=Limits(max_iterations=2), event_sink=heard.append, **settings)
            result = await agent.run("hi")
            await model.aclose()
            return result, heard, wire.requests[0].body

    return run(fly)


@every
def test_probabilities_that_were_asked_for_are_in_the_result_and_the_event(make):
    result, heard, _ = flown(make, logprobs=2)
    assert result.text == "Hello"
    assert result.messages[-1].info.logprobs == HELLO
    (added,) = [one for one in heard if isinstance(one, MessageAdded) and one.message.role == "assistant"]
    assert added.message.info.logprobs == HELLO


@every
def test_probabilities_that_nobody_asked_for_are_dropped(make):
    result, _, body = flown(make)
    assert result.messages[-1].info is None or result.messages[-1].info.logprobs == ()
    assert "ogprobs" not in json.dumps(body)


def test_each_protocol_is_asked_in_its_own_words():
    body = flown(chat, logprobs=2)[2]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    body = flown(chat, logprobs=0)[2]
    assert (body["logprobs"], "top_logprobs" in body) == (True, False)
    body = flown(responses, logprobs=2, extras={"include": ["file_search_call.results"]})[2]
    assert body["include"] == [
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
        "file_search_call.results",
    ]
    assert body["top_logprobs"] == 2
    body = flown(google, logprobs=2)[2]["generationConfig"]
    assert (body["responseLogprobs"], body["logprobs"]) == (True, 2)
    assert flown(google, logprobs=0)[2]["generationConfig"] == {"responseLogprobs": True}


@pytest.mark.parametrize(
    "model",
    [
        AnthropicModel("claude-sonnet-4-5", api_key=KEY),
        OpenAIChatModel("llama-3.3-70b-versatile", host="groq", api_key=KEY),
        OpenAIChatModel("mistral-large-latest", host="mistral", api_key=KEY),
        OpenAIChatModel("gpt-5-mini", api_key=KEY),
        OpenAIChatModel("deepseek-reasoner", host="deepseek", api_key=KEY),
    ],
    ids=lambda model: f"{model.host}:{model.name}",
)
def test_a_vendor_without_probabilities_is_not_asked(model):
    with pytest.raises(RejectedError, match="has no logprobs"):
        model.stream(ModelRequest(messages=[UserMessage("hi")], logprobs=2))


def test_a_server_that_sends_without_end_fills_no_memory(monkeypatch):
    monkeypatch.setattr(content_module, "MOST_TOKENS", 1)
    result, _, _ = flown(chat, logprobs=2)
    assert (result.text, len(result.messages[-1].info.logprobs)) == ("Hello", 1)


def test_probabilities_survive_the_journal():
    message = AssistantMessage((TextBlock("Hello"),), info=ReplyInfo(response_id="r", logprobs=HELLO))
    assert codec.decode(codec.encode(message)) == message
