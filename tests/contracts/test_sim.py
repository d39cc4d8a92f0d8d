"""The simulator in somebody's own suite: holes fail the test, and say how to close them."""

import pytest

from glidepath import Agent, ConfigurationError, GuardrailsConfig, Limits, tool
from glidepath.conformance.specimen_contract import assert_contained, simulator  # noqa: F401 - a fixture
from glidepath.testing import ScriptedModel


@tool(timeout=30)
async def search(query: str) -> str:
    """Search the handbook."""
    raise AssertionError("the real tool must never run")


def agent(**changes):
    limits = Limits(max_iterations=20, max_tokens=50_000, timeout=600)
    return Agent(
        **{"model": ScriptedModel(name="mine", price=("3", "15")), "tools": [search], "limits": limits} | changes
    )


def test_a_sound_configuration_passes_and_the_report_is_there(simulator):  # noqa: F811
    report = simulator(agent(), only=["loops", "huge_reply"])
    assert report.ok
    assert len(report.flights) > 3


def test_a_hole_fails_the_test_and_says_what_to_change():
    unguarded = GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0)
    with pytest.raises(AssertionError) as failed:
        assert_contained(agent(guardrails=unguarded), only=["loops"])
    text = str(failed.value)
    assert "unnoticed_loop" in text
    assert "Turn the guards on" in text
    assert "specimens: " in text


def test_what_was_accepted_passes_and_what_no_longer_occurs_must_go():
    open_ended = agent(limits=Limits(max_iterations=20, timeout=600))
    assert_contained(open_ended, only=["huge_reply"], accept=["unbounded_reply"])
    with pytest.raises(AssertionError, match="accepted, but not found"):
        assert_contained(agent(), only=["huge_reply"], accept=["unbounded_reply"])


@pytest.mark.parametrize("wrong", [{"accept": "unbounded_reply"}, {"accept": [7]}, {"only": ["no such"]}, {"seeds": 0}])
def test_wrong_settings_are_explained(wrong):
    with pytest.raises(ConfigurationError):
        assert_contained(agent(), **wrong)
    with pytest.raises(ConfigurationError):
        assert_contained(None)


def test_seeds_are_flown():
    report = assert_contained(agent(), only=["huge_reply"], seeds=[3, 4])
    assert sorted(flight.seed for flight in report.flights) == [3, 4]
