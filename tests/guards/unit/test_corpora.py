"""G11: what gets nowhere is landed soon, and honest work is left alone."""

import pytest

from glidepath.guards import GuardrailsConfig

from .legitimate import LEGITIMATE
from .stuck import STUCK, laps
from .trace import Player


def test_there_are_at_least_sixty_legitimate_traces():
    assert len(LEGITIMATE) >= 60


@pytest.mark.parametrize("name", LEGITIMATE)
def test_g11_honest_work_keeps_its_tools(name):
    trips = Player().play(LEGITIMATE[name])
    assert [trip for trip in trips if trip.action != "nudge"] == []


@pytest.mark.parametrize("name", STUCK)
def test_g11_a_stuck_run_is_landed_within_three_laps_of_the_first_nudge(name):
    trace, lap = laps(STUCK[name])
    player = Player()
    trips = player.play(trace)
    assert player.landed
    assert trips[0].action == "nudge"
    assert trips[-1].step - trips[0].step <= 3 * lap


@pytest.mark.parametrize("name", STUCK)
def test_a_stuck_run_is_landed_without_a_nudge_after_the_wind_down_notice(name):
    trace, _ = laps(STUCK[name])
    player = Player(wound_down=True)
    trips = player.play(trace)
    assert player.landed
    assert "nudge" not in {trip.action for trip in trips}


@pytest.mark.parametrize("name", STUCK)
def test_a_reload_at_any_step_changes_no_verdict(name):
    trace, _ = laps(STUCK[name])
    assert Player(reload_every_step=True).play(trace) == Player().play(trace)


@pytest.mark.parametrize("name", STUCK)
def test_switched_off_guards_never_speak(name):
    trace, _ = laps(STUCK[name])
    assert Player(GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=0)).play(trace) == []


@pytest.mark.parametrize("name", STUCK)
def test_every_nudge_and_withdrawal_is_told_to_the_model_with_its_reason(name):
    player = Player()
    player.play(laps(STUCK[name])[0])
    told = [verdict for verdict in player.verdicts if verdict.action != "land"]
    assert told
    assert all(len(verdict.notice) < 400 and verdict.reason for verdict in told)
    assert {verdict.notice_reason for verdict in told} <= {"repetition", "error_streak"}
    assert all("final answer" in verdict.notice for verdict in told if verdict.action == "withdraw")
    assert all(tool in verdict.notice for verdict in told for tool in verdict.tools)
