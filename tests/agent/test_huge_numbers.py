"""Numbers that no clock and no meter can hold are refused where they are given, by name."""

from math import inf, nan

import pytest

from glidepath import Agent, ConfigurationError, GuardrailsConfig, Limits, tool
from glidepath.constraints import CostLimitConstraint, TimeoutConstraint, TokenBudgetConstraint
from glidepath.testing import ScriptedModel

HUGE = {"10**400": 10**400, "10**5000": 10**5000, "-10**5000": -(10**5000), "inf": inf, "nan": nan}
SECONDS = (
    "tool_timeout",
    "connect_timeout",
    "stall_timeout",
    "hook_timeout",
    "constraint_timeout",
    "kill_switch_grace",
)
COUNTS = ("max_output_tokens", "context_window", "max_parallel_tools", "max_retries", "min_output_tokens")


def agent(**settings):
    return Agent(model=ScriptedModel([]), **{"limits": Limits(max_iterations=1), **settings})


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("field", [*SECONDS, *COUNTS, "temperature"])
def test_a_setting_names_itself(field, value):
    with pytest.raises(ConfigurationError, match=field):
        agent(**{field: HUGE[value]})


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("field", [name for name in Limits.__struct_fields__ if name != "max_cost"])
def test_a_limit_names_itself(field, value):
    with pytest.raises(ConfigurationError, match=f"Limits.{field}"):
        Limits(**{field: HUGE[value]})


@pytest.mark.parametrize("value", ["1e400", "nan", "inf", 10**400, 10**5000], ids=["1e400", "nan", "inf", "a", "b"])
def test_an_amount_names_itself(value):
    with pytest.raises(ConfigurationError, match=r"Limits\.max_cost"):
        Limits(max_cost=value)


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("option", ["timeout", "max_result_chars"])
def test_an_option_of_a_tool_names_itself(option, value):
    with pytest.raises(ConfigurationError, match=option):
        tool(lambda: "x", name="x", **{option: HUGE[value]})


@pytest.mark.parametrize("value", HUGE)
def test_a_reserve_names_itself(value):
    with pytest.raises(ConfigurationError, match="reserve_tokens"):
        GuardrailsConfig(reserve_tokens=HUGE[value])


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("kind", [TimeoutConstraint, TokenBudgetConstraint, CostLimitConstraint])
def test_a_constraint_refuses_it(kind, value):
    with pytest.raises(ConfigurationError, match="must be"):
        kind(HUGE[value])


def test_what_is_large_and_can_be_counted_is_accepted():
    made = agent(limits=Limits(max_iterations=10**9, max_tokens=10**12, timeout=10**9), tool_timeout=10**9)
    assert (made.config.limits.max_tokens, made.config.tool_timeout) == (10**12, 10**9)
