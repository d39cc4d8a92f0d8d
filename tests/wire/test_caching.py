"""What the adapters say about the prompt cache: lifetimes, breakpoints, keys; and what writing to it costs."""

import json

import pytest

from glidepath import Agent, ConfigurationError, Limits
from glidepath.messages import AssistantMessage, TextBlock, UserMessage
from glidepath.models import AnthropicModel, ModelRequest, OpenAIChatModel, OpenAIResponsesModel, ToolSpec

KEY = "sk-planted-0123456789abcdef"
SPEC = ToolSpec("search", "Search.", {"type": "object", "properties": {}})
TALK = [m for n in range(4) for m in (UserMessage(f"q{n}"), AssistantMessage((TextBlock(f"a{n}"),)))][:-1]
openai = pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])


def claude(**options):
    return AnthropicModel("claude-sonnet-4-5", api_key=KEY, **options)


def marks(model, system="Be brief."):
    """Where a prompt is marked, and how."""
    body = model._body(ModelRequest(system_prompt=system, messages=TALK, tools=(SPEC,), defined_tools=(SPEC,)))
    found = {"tools": body["tools"][-1].get("cache_control")}
    found["system"] = body["system"][-1].get("cache_control") if system else None
    found |= {block["text"]: block.get("cache_control") for turn in body["messages"] for block in turn["content"]}
    return {where: mark for where, mark in found.items() if mark is not None}


@pytest.mark.parametrize(
    ("cache", "mark"),
    [("5m", {"type": "ephemeral"}), (True, {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})],
)
def test_a_lifetime_is_in_every_mark(cache, mark):
    assert marks(claude(cache=cache)) == {"system": mark, "q2": mark, "q3": mark}


def test_without_a_cache_nothing_is_marked():
    assert marks(claude(cache=False)) == {}


@pytest.mark.parametrize(
    ("most", "places"),
    [(1, ["q3"]), (2, ["system", "q3"]), (3, ["system", "q2", "q3"]), (4, ["system", "q1", "q2", "q3"])],
)
def test_as_many_places_are_marked_as_there_are_breakpoints(most, places):
    assert list(marks(claude(cache_breakpoints=most))) == places


def test_without_a_system_prompt_the_last_tool_is_marked():
    assert list(marks(claude(), system="")) == ["tools", "q2", "q3"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache": "2h"}, "cache='2h' is not a lifetime: use '5m' or '1h', or False"),
        ({"cache": 5}, "cache=5 is not a lifetime"),
        ({"cache": None}, "cache=None is not a lifetime"),
        ({"cache": ["5m"]}, "is not a lifetime"),
        ({"cache_breakpoints": 0}, "cache_breakpoints=0 must be a whole number from 1 to 4"),
        ({"cache_breakpoints": 5}, "cache_breakpoints=5"),
        ({"cache_breakpoints": True}, "cache_breakpoints=True"),
        ({"cache_breakpoints": "3"}, "cache_breakpoints='3'"),
    ],
)
def test_a_cache_that_anthropic_does_not_have_is_refused(options, words):
    with pytest.raises(ConfigurationError) as caught:
        claude(**options)
    assert words in str(caught.value)


@pytest.mark.parametrize(("cache", "write"), [("5m", 3_750_000), ("1h", 6_000_000)])
@pytest.mark.parametrize("prices", [None, {"claude-sonnet-4-5": (3, 15)}], ids=["looked up", "given"])
def test_g4_an_hour_in_the_cache_is_paid_for_as_such(cache, write, prices):
    """A money limit holds in the worst case: everything is written."""
    agent = Agent(model=claude(cache=cache), limits=Limits(max_cost="1"), prices=prices)
    assert (agent._plan.price.cache_write, agent._plan.price.worst_input) == (write, write)


def test_a_price_of_four_figures_is_taken_as_it_is():
    prices = {"claude-sonnet-4-5": (3, 15, "0.3", 4)}
    agent = Agent(model=claude(cache="1h"), limits=Limits(max_cost="1"), prices=prices)
    assert agent._plan.price.cache_write == 4_000_000


@openai
def test_openais_cache_settings_are_sent_where_they_are_set(kind):
    request = ModelRequest(messages=[UserMessage("hi")])
    body = kind("gpt-5", api_key=KEY, prompt_cache_key="team-7", prompt_cache_retention="24h")._body(request)
    assert (body["prompt_cache_key"], body["prompt_cache_retention"]) == ("team-7", "24h")
    assert "cache" not in json.dumps(kind("gpt-5", api_key=KEY)._body(request))


@openai
def test_extras_overrule_the_cache_settings(kind):
    request = ModelRequest(messages=[UserMessage("hi")], extras={"prompt_cache_key": "mine"})
    assert kind("gpt-5", api_key=KEY, prompt_cache_key="team-7")._body(request)["prompt_cache_key"] == "mine"


@openai
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt_cache_key": ""}, "prompt_cache_key='' must be a non-empty str"),
        ({"prompt_cache_key": 7}, "prompt_cache_key=7"),
        ({"prompt_cache_retention": "1h"}, "prompt_cache_retention='1h' is not known: use 'in_memory' or '24h'"),
    ],
)
def test_cache_settings_that_openai_does_not_have_are_refused(kind, options, words):
    with pytest.raises(ConfigurationError) as caught:
        kind("gpt-5", api_key=KEY, **options)
    assert words in str(caught.value)
