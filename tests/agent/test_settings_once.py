"""A setting is declared once: it is checked at construction, copied, and answered with the right name when misspelt."""

from typing import get_type_hints

import pytest

from glidepath import Agent, GuardrailsConfig, Limits, LoopConfig
from glidepath.errors import ConfigurationError
from glidepath.run import Plan
from glidepath.testing import ScriptedModel
from glidepath.values import Passed, settings_of

OWNERS = (LoopConfig, Limits, GuardrailsConfig)
EVERY = [(owner, name, one) for owner in OWNERS for name, one in settings_of(owner).items()]
WRONG = {  # for each kind, a value that is not of it
    "int": "three",
    "count": -1,
    "seconds": float("nan"),
    "number": "hot",
    "bool": 1,
    "choice": "sideways",
    "text": 7,
    "table": [1],
    "callable": 7,
    "names": 7,
    "money": "many",
    "fraction": 2,
    "part": "lots",
    "recovery": 3,
    "prices": 3,
}


def make(owner, **fields):
    return (
        owner(model=ScriptedModel([]), **fields) if owner is LoopConfig and "model" not in fields else owner(**fields)
    )


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: owner.__name__)
def test_a_class_of_settings_has_plain_types_that_anybody_can_read(owner):
    assert tuple(get_type_hints(owner)) == owner.__struct_fields__


def test_a_class_derived_from_one_with_settings_checks_them_too():
    class Mine(Limits, frozen=True, kw_only=True):
        team: str = "ours"

    assert Mine(max_iterations=3).team == "ours"
    with pytest.raises(ConfigurationError, match=r"Limits\.max_iterations"):
        Mine(max_iterations=0)


def test_an_error_offers_none_only_where_none_is_taken():
    lies, offers = [], 0
    for owner, name, one in EVERY:
        if one.kind.removesuffix("?") not in ("int", "count", "seconds") or not one.checked:
            continue
        with pytest.raises(ConfigurationError) as caught:
            make(owner, **{name: -1})
        if "None" in str(caught.value):
            offers += 1
            if one.kind[-1] != "?":
                lies.append(str(caught.value))
    assert lies == []
    assert offers > 3, "limits that may be off say so"


def test_every_field_is_declared_with_a_sentence():
    for owner in OWNERS:
        assert tuple(settings_of(owner)) == owner.__struct_fields__
    assert [name for _, name, one in EVERY if len(one.help.split()) < 2] == []


@pytest.mark.parametrize(
    ("owner", "name", "kind"),
    [(owner, name, one.kind.rstrip("?")) for owner, name, one in EVERY if one.kind.rstrip("?") in WRONG],
    ids=[one.python for _, _, one in EVERY if one.kind.rstrip("?") in WRONG],
)
def test_a_value_of_another_kind_is_refused_at_construction_by_name(owner, name, kind):
    with pytest.raises(ConfigurationError, match=name):
        make(owner, **{name: WRONG[kind]})


def test_the_configuration_itself_refuses():
    with pytest.raises(ConfigurationError, match="temperature must be a finite number of at least 0, not 'hot'"):
        LoopConfig(model=ScriptedModel([]), temperature="hot")


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("cost_limit", r"Limits\(max_cost=...\)"),
        ("token_budget", r"Limits\(max_tokens=...\)"),
        ("max_steps", r"Limits\(max_iterations=...\)"),
        ("stream", "pass it as model="),
        ("provider_extras", "'extras'"),
        ("temprature", "'temperature'"),
        ("read_only_loop_threshold", r"GuardrailsConfig\(read_only_loop_threshold=...\)"),
    ],
)
def test_an_older_or_misspelt_name_is_answered_with_the_right_one(name, right):
    with pytest.raises(ConfigurationError, match=right):
        LoopConfig(model=ScriptedModel([]), **{name: 1})


@pytest.mark.parametrize("name", ["cost_limit", "token_budget", "max_steps"])
def test_limits_answer_older_names_too(name):
    with pytest.raises(ConfigurationError, match="did you mean 'max_"):
        Limits(**{name: 1})


def test_what_contradicts_itself_is_refused():
    with pytest.raises(ConfigurationError, match="tool_choice='required' needs tools"):
        LoopConfig(model=ScriptedModel([]), tool_choice="required")
    with pytest.raises(ConfigurationError, match="plain_text_terminal_fallback_tool='x'"):
        LoopConfig(model=ScriptedModel([]), plain_text_terminal_fallback_tool="x")


def test_what_a_caller_passes_is_copied():
    extras, stops, prices = {"a": {"b": [1]}}, ["END"], {"scripted": ["1", "2"]}
    config = LoopConfig(model=ScriptedModel([]), extras=extras, stop_sequences=stops, prices=prices)
    extras["a"]["b"].append(2)
    stops.append("MORE")
    prices["scripted"][0] = "9"
    assert config.extras == {"a": {"b": [1]}}
    assert config.stop_sequences == ("END",)
    assert config.prices["scripted"][0] == "1"


def test_only_a_few_settings_stay_with_the_parent():
    kept = {name for owner, name, one in EVERY if owner is LoopConfig and one.inherited is Passed.NO}
    assert kept == {
        "event_sink",
        "empty_outcome_retry_budget",
        "conversation_id",
        "system_prompt",
        "handoffs",
        "skills",
        "agents",
    }


# What a plan works out and the configuration only names: for each model of the route, or from several settings.
COMPUTED = {"constraints", "context_window", "extras", "max_output_tokens", "model", "model_id", "timeout", "tools"}


def test_a_plan_holds_the_configuration_and_copies_none_of_its_settings():
    agent = Agent(model=ScriptedModel([]), limits=Limits(max_iterations=3))
    assert agent._plan.config is agent.config
    fields = {*LoopConfig.__struct_fields__, *Limits.__struct_fields__, *GuardrailsConfig.__struct_fields__}
    assert fields.intersection(Plan.__struct_fields__) == {*COMPUTED, "system_prompt"}
