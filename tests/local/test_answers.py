"""A real model answers: text, usage, truncation, tool calls and structured output, through the model port."""

import asyncio
import json

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.errors import ContextOverflowError, RejectedError
from glidepath.messages import (
    AssistantMessage,
    ImageBlock,
    StreamEnd,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.models import LocalModel, Model, ToolSpec

from .talk import ALONE, ENDLESS, WEATHER, call, collect, deltas, request, text

pytestmark = pytest.mark.process


def test_it_is_a_model(model):
    assert isinstance(model, Model)
    assert model.name == "local:SmolLM2-135M-Instruct.Q4_1"
    assert model.price == (0, 0)


def test_it_answers_in_pieces(model):
    found = deltas(model, "Say hello.")
    assert "hello" in text(found).lower()
    assert sum(isinstance(delta, TextDelta) for delta in found) > 3


def test_usage_is_what_the_model_counted(model):
    asked = request("What is a glider?", max_output_tokens=7)
    end = asyncio.run(collect(model, asked))[-1]
    assert end.usage.input == asyncio.run(model.count_tokens(asked)) > 20
    assert end.usage.output == 7
    assert not end.usage.estimated


def test_a_reply_that_reaches_its_cap_is_truncated(model):
    found = deltas(model, "Tell me a long story.", max_output_tokens=5)
    assert found[-1].stop_reason == "max_tokens"
    assert text(found)


def test_no_reply_is_longer_than_the_model_may_write(weights):
    with LocalModel(weights, threads=1, context_window=512, max_output_tokens=6) as short:
        found = deltas(short, "Tell me a long story.", max_output_tokens=None)
    assert (found[-1].stop_reason, found[-1].usage.output) == ("max_tokens", 6)


def test_a_prompt_that_does_not_fit_overflows(model):
    with pytest.raises(ContextOverflowError, match="2048"):
        deltas(model, "word " * 3000)


def test_it_calls_a_tool(model):
    found = deltas(model, "What is the weather in Paris?", tools=(WEATHER,))
    name, arguments = call(found)
    assert (name, json.loads(arguments)) == ("weather", {"city": "Paris"})
    assert found[-1].stop_reason == "tool_use"
    assert text(found) == ""


def test_it_answers_from_a_result(model):
    history = (
        UserMessage("What is the weather in Paris?"),
        AssistantMessage((ToolCall("c1", "weather", {"city": "Paris"}),)),
        ToolResultMessage("c1", "weather", "18 degrees and sunny"),
    )
    found = deltas(model, messages=history, tools=(WEATHER,))
    assert "18 degrees" in text(found)
    assert found[-1].stop_reason == "end_turn"
    assert "{" not in text(found)


@pytest.mark.parametrize("choice", ["required", "weather"])
def test_a_call_can_be_demanded(model, choice):
    found = deltas(model, "Say hello.", tools=(WEATHER,), tool_choice=choice)
    assert call(found)[0] == "weather"


def test_a_call_can_be_forbidden(model):
    found = deltas(model, "What is the weather in Paris?", tools=(WEATHER,), tool_choice="none", max_output_tokens=8)
    assert text(found)
    assert "{" not in text(found)


def test_one_tool_can_be_demanded_of_many(model):
    other = ToolSpec("add", "Add two numbers.", {"type": "object", "properties": {"a": {"type": "integer"}}})
    found = deltas(model, "What is the weather in Paris?", tools=(WEATHER, other), tool_choice="add")
    assert call(found)[0] == "add"


def test_a_demand_for_an_unknown_tool_is_rejected(model):
    with pytest.raises(RejectedError, match="'nothing'"):
        deltas(model, tools=(WEATHER,), tool_choice="nothing")


def test_a_cut_call_is_a_truncation(model):
    found = deltas(
        model, "What is the weather in Paris?", tools=(WEATHER,), tool_choice="required", max_output_tokens=14
    )
    assert found[-1].stop_reason == "max_tokens"
    assert call(found)[0] == "weather"


def test_a_reply_cut_before_anything_can_be_shown_is_a_truncation_too(model):
    found = deltas(model, tools=(WEATHER,), max_output_tokens=1)
    assert (text(found), found[-1].stop_reason) == ("", "max_tokens")
    assert len(found) == 2  # not silence, which would be tried again


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_a_reply_can_be_held_to_a_schema(model):
    person = json.loads(text(deltas(model, "Give me a person.", output_schema=PERSON)))
    assert set(person) == {"name", "age"}
    assert 1 <= person["age"] <= 99


def test_with_tools_the_answer_is_held_to_the_schema(model):
    history = (
        UserMessage("How warm is it in Paris?"),
        AssistantMessage((ToolCall("c1", "weather", {"city": "Paris"}),)),
        ToolResultMessage("c1", "weather", "18 degrees and sunny"),
    )
    number = {"$defs": {"Degrees": {"type": "integer", "minimum": 1, "maximum": 60}}, "$ref": "#/$defs/Degrees"}
    found = deltas(model, messages=history, tools=(WEATHER,), output_schema=number)
    assert 1 <= json.loads(text(found)) <= 60


def test_references_inside_a_tool_schema_are_followed(model):
    city = {"enum": ["Lisbon", "Oslo"]}
    parameters = {"type": "object", "properties": {"city": {"$ref": "#/$defs/City"}}, "required": ["city"]}
    spec = ToolSpec("weather", "Weather.", {**parameters, "$defs": {"City": city}})
    found = deltas(model, "What is the weather in Paris?", tools=(spec,), tool_choice="required")
    assert json.loads(call(found)[1])["city"] in ("Lisbon", "Oslo")


def test_a_schema_that_is_no_grammar_costs_the_constraint_not_the_call(model):
    odd = ToolSpec("odd", "Something odd.", {"type": "object", "properties": {"a": {"$ref": "other.json"}}})
    name, arguments = call(deltas(model, "Use the tool.", tools=(odd,), tool_choice="required", max_output_tokens=60))
    assert name == "odd"
    assert arguments.startswith("{")


def test_a_schema_of_the_answer_that_is_no_grammar_is_rejected(model):
    with pytest.raises(RejectedError, match="nonsense"):
        deltas(model, output_schema={"type": "nonsense"})


def test_it_cannot_be_shown_an_image(model):
    seen = UserMessage((TextBlock("What is this?"), ImageBlock("image/png", b"...")))
    with pytest.raises(RejectedError, match="image"):
        deltas(model, messages=(seen,))


def test_extras_reach_the_server_but_not_what_is_ours(model):
    biased = deltas(model, "Say hello.", max_output_tokens=3, extras={"n_predict": 3, "logit_bias": [["Hello", False]]})
    assert not text(biased).startswith("Hello")
    with pytest.raises(RejectedError, match="messages"):
        deltas(model, extras={"messages": []})


@pytest.mark.parametrize("bad", [{"prompt": "half a pair: \ud800"}, {"extras": {"top_k": object()}}])
def test_what_cannot_be_sent_is_rejected(model, bad):
    with pytest.raises(RejectedError, match="JSON"):
        deltas(model, **bad)


def test_an_agent_uses_a_tool_under_a_budget(model):
    asked = []

    @tool
    async def weather(city: str) -> str:
        """Current weather of a city."""
        asked.append(city)
        return "18 degrees and sunny"

    limits = Limits(max_iterations=4, max_tokens=4000, max_cost="0.01", timeout=120)
    free = {model.name: (0, 0)}
    agent = Agent(model=model, tools=[weather], temperature=0.0, limits=limits, prices=free, extras=ALONE)
    result = agent.run_sync("What is the weather in Paris?")
    assert asked == ["Paris"]
    assert result.outcome is LoopOutcome.DONE
    assert "18 degrees" in result.text
    assert result.cost == 0
    assert (result.iterations, result.usage.estimated) == (2, False)


def test_two_runs_at_once_share_one_server(model):
    order = []

    async def listen(name):
        asked = request(f"Say hello to {name}.", max_output_tokens=12, extras=ENDLESS)
        async for delta in model.stream(asked):
            order.append((name, type(delta)))  # noqa: PERF401 - as they come, not at the end

    async def both():
        await asyncio.gather(listen("Anna"), listen("Bert"))

    asyncio.run(collect(model, request(max_output_tokens=1)))
    before = model.pid
    asyncio.run(both())
    assert model.pid == before
    ended = [name for name, kind in order if kind is StreamEnd]
    first_words = [next(at for at, (name, _) in enumerate(order) if name == who) for who in ("Anna", "Bert")]
    assert sorted(ended) == ["Anna", "Bert"]
    assert max(first_words) < order.index((ended[0], StreamEnd)), "one waited for the other"


def test_the_landing_reads_only_what_is_new(model):
    """Tools that were withdrawn stay in the prompt, so llama.cpp keeps what it has read."""
    facts = "The rule changed in spring; see the handbook for who decides and by when. " * 8
    history = [UserMessage("What changed?")]
    calls = [AssistantMessage((ToolCall(f"c{n}", "weather", {"city": f"Town {n}"}),)) for n in range(3)]
    for n, reply in enumerate(calls):
        history += [reply, ToolResultMessage(f"c{n}", "weather", facts)]
    common = {"defined_tools": (WEATHER,), "max_output_tokens": 8, "extras": {"cache_prompt": True}}
    first = deltas(model, messages=history, tools=(WEATHER,), **common)[-1].usage
    landing = deltas(model, messages=[*history, UserMessage("Wrap up now.")], tools=(), **common)[-1].usage
    assert landing.cache_read >= 0.95 * first.input


def test_probabilities_that_were_asked_for_are_told(model):
    end = deltas(model, "Say hello.", logprobs=2, max_output_tokens=4)[-1]
    assert 1 <= len(end.info.logprobs) <= 4
    assert all(one.logprob <= 0 and len(one.top) == 2 for one in end.info.logprobs)
    assert deltas(model, "Say hello.", max_output_tokens=4)[-1].info is None
