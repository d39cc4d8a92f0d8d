"""Reasoning as a number of tokens, the words that are checked, and the countdown that the model is shown."""

import pytest

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.messages import UserMessage
from glidepath.models import AnthropicModel, GoogleModel, ModelRequest, OpenAIChatModel, OpenAIResponsesModel
from glidepath.testing import ScriptedModel, call

from .dialects import KEY, Anthropic
from .server import Answer, Wire, run

SONNET = AnthropicModel("claude-sonnet-4-5", api_key="key")
OPUS = AnthropicModel("claude-opus-4-8", api_key="key")


def body_of(model, **asked):
    return model._body(ModelRequest(messages=(UserMessage("Hi."),), **asked))


def test_each_vendor_is_sent_its_own_number():
    assert body_of(SONNET, reasoning_tokens=4_000)["thinking"] == {"type": "enabled", "budget_tokens": 4_000}
    assert body_of(SONNET, reasoning_tokens=4_000, max_output_tokens=3_000)["thinking"]["budget_tokens"] == 1_500
    gemini = GoogleModel("gemini-2.5-flash", api_key="key")
    config = body_of(gemini, reasoning_tokens=900)["generationConfig"]["thinkingConfig"]
    assert config == {"includeThoughts": True, "thinkingBudget": 900}
    router = OpenAIChatModel("vendor/model", api_key="key", host="openrouter")
    assert body_of(router, reasoning_tokens=900)["reasoning"] == {"max_tokens": 900}


@pytest.mark.parametrize(("cap", "thoughts"), [(None, 900), (4_000, 900), (1_000, 500), (100, 50)])
def test_a_call_that_was_made_smaller_leaves_half_of_it_for_the_answer(cap, thoughts):
    asked = {"reasoning_tokens": 900, "max_output_tokens": cap}
    flash, pro = (GoogleModel(f"gemini-2.5-{name}", api_key="key") for name in ("flash", "pro"))
    assert body_of(flash, **asked)["generationConfig"]["thinkingConfig"]["thinkingBudget"] == thoughts
    least = body_of(pro, **asked)["generationConfig"]["thinkingConfig"]["thinkingBudget"]
    assert least == max(128, thoughts)  # it takes no less
    router = OpenAIChatModel("vendor/model", api_key="key", host="openrouter")
    assert body_of(router, **asked)["reasoning"] == {"max_tokens": thoughts}


def test_a_level_beside_the_number_is_for_models_that_take_none():
    agent = Agent(model=SONNET, fallback_models=[OPUS], reasoning_tokens=4_000, reasoning="low")
    both = {"reasoning_tokens": agent.config.reasoning_tokens, "reasoning": agent.config.reasoning}
    assert body_of(SONNET, **both)["thinking"] == {"type": "enabled", "budget_tokens": 4_000}
    assert body_of(OPUS, **both)["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"model": OPUS, "reasoning_tokens": 4_000}, "takes a level, not a number of tokens; pass reasoning='low'"),
        ({"model": OpenAIResponsesModel("gpt-5", api_key="k"), "reasoning_tokens": 4_000}, "takes a level"),
        ({"model": GoogleModel("gemini-3-pro", api_key="k"), "reasoning_tokens": 4_000}, "takes a level"),
        ({"model": SONNET, "reasoning_tokens": 500}, "takes at least 1024"),
        ({"model": GoogleModel("gemini-2.5-pro", api_key="k"), "reasoning_tokens": 5}, "takes at least 128"),
        ({"model": SONNET, "reasoning_tokens": 4_000, "reasoning": "none"}, "contradict each other; remove one"),
        ({"model": SONNET, "reasoning_tokens": 4_000, "max_output_tokens": 4_000}, "leaves nothing to answer with"),
        ({"model": SONNET, "fallback_models": [OPUS], "reasoning_tokens": 4_000}, "'claude-opus-4-8' takes a level"),
        ({"model": SONNET, "reasoning_tokens": "many"}, "reasoning_tokens must be a whole number"),
        ({"model": SONNET, "reasoning": "hihg"}, "did you mean 'high'"),
        ({"model": ScriptedModel(), "reasoning": "very high"}, "must be one of none, minimal, low"),
    ],
)
def test_what_a_model_does_not_take_is_refused_before_the_first_call(settings, why):
    with pytest.raises(ConfigurationError, match=why):
        Agent(**settings)


# --- the countdown ------------------------------------------------------------------------------------------------


def test_a_task_budget_goes_out_with_its_beta_where_the_model_takes_it():
    sent = body_of(OPUS, task_budget=(50_000, None), reasoning="low")
    assert sent["output_config"] == {"effort": "low", "task_budget": {"type": "tokens", "total": 50_000}}
    left = body_of(OPUS, task_budget=(50_000, 700))["output_config"]["task_budget"]
    assert left == {"type": "tokens", "total": 50_000, "remaining": 700}
    assert "output_config" not in body_of(OPUS, task_budget=(19_999, None))
    for name in ("claude-sonnet-4-5", "claude-opus-4-6", "claude-haiku-4-5", "claude-sonnet-5"):
        assert "task_budget" not in str(body_of(AnthropicModel(name, api_key="key"), task_budget=(50_000, None)))


def test_the_beta_is_named_in_the_header_beside_those_of_the_client():
    dialect = Anthropic()
    budget = {"output_config": {"task_budget": {"type": "tokens", "total": 50_000}}}

    async def fly():
        async with Wire([Answer([*dialect.text("Hi."), *dialect.end()])]) as wire:
            headers = {"anthropic-beta": "mine"}
            model = AnthropicModel("claude-opus-4-8", api_key=KEY, base_url=wire.url, headers=headers)
            await Agent(model=model, limits=Limits(max_iterations=2), extras=budget).run("Hi.")
            await model.aclose()
            return wire.requests[0].headers["anthropic-beta"]

    assert run(fly) == "mine,task-budgets-2026-03-13"


def test_another_server_is_not_sent_it():
    there = AnthropicModel("claude-opus-4-8", api_key="key", base_url="http://127.0.0.1:1")
    assert "output_config" not in body_of(there, task_budget=(50_000, None))


@tool
def look(n: int) -> str:
    """Look."""
    return "found " * 200


def counted(limits, turns=3, **settings):
    model = ScriptedModel([call("look", n=n) for n in range(turns)], max_output_tokens=500).forever(lambda _: "Done.")
    model.takes_task_budget = True
    Agent(model=model, tools=[look], limits=limits, **settings).run_sync("Go.")
    return [request.task_budget for request in model.requests]


def test_the_model_is_told_what_its_limits_leave_and_the_same_in_every_call():
    told = counted(Limits(max_tokens=60_000))
    assert len(told) == 4
    assert set(told) == {told[0]}
    total, left = told[0]
    assert 50_000 < total < 60_000
    assert left is None


def test_money_counts_in_tokens_of_output():
    (total, _), *_ = counted(Limits(max_cost="1"), prices={"scripted": ("1", "10")})
    assert 80_000 < total < 100_000


def test_without_a_limit_or_where_it_is_off_nothing_is_told():
    assert set(counted(Limits(max_iterations=9))) == {None}
    assert set(counted(Limits(max_tokens=60_000), task_budget=False)) == {None}


def test_after_compaction_what_is_left_is_said_anew():
    told = counted(Limits(max_tokens=60_000), turns=12, context_window=2_000, max_output_tokens=200)
    totals, lefts = {one[0] for one in told}, [one[1] for one in told if one[1] is not None]
    assert len(totals) == 1
    assert lefts
    assert lefts == sorted(lefts, reverse=True)
    assert lefts[0] < told[0][0]
