"""G11: no guard touches an honest specimen, and each would be touched without the rule that spares it."""

import pytest

from glidepath import AgentState, GuardrailsConfig, LoopOutcome
from glidepath.events import GuardTripped
from glidepath.guards import repetition, streaks
from glidepath.sim import fly, simulate
from glidepath.testing import SPECIMENS
from glidepath.testing.simulator import Trail, default_config

HONEST = [kind for kind in SPECIMENS if kind.family == "honest"]
every = pytest.mark.parametrize("kind", HONEST, ids=lambda kind: kind.name)


def touched(kind) -> bool:
    """Whether a guard said or did anything in a flight of this specimen."""
    return "honest_work_stopped" in fly(default_config(), kind, 0).problems


@every
def test_g11_an_honest_specimen_is_neither_nudged_nor_narrowed_nor_landed(kind, monkeypatch):
    trips = []
    heard = Trail.__call__

    def listen(self, event):
        trips.extend([event] if type(event) is GuardTripped else [])
        heard(self, event)

    monkeypatch.setattr(Trail, "__call__", listen)
    flight = fly(default_config(), kind, 0)
    assert trips == []
    assert (flight.state, flight.outcome) == (AgentState.COMPLETED.name, LoopOutcome.DONE.name)
    assert flight.problems == ()


def same_answers_count_for_every_tool(monkeypatch):
    """The rule as it was: any tool that answers the same six times."""
    read = repetition.RepetitionGuard._read

    def all_read(self, step):
        found = read(self, step)
        self._reads = True
        return found

    monkeypatch.setattr(repetition.RepetitionGuard, "_read", all_read)
    monkeypatch.setattr(repetition, "_READS", 2)


def arguments_do_not_count(monkeypatch):
    monkeypatch.setattr(repetition, "call_signature", lambda call: call.name)


def results_do_not_count(monkeypatch):
    monkeypatch.setattr(repetition, "result_signature", lambda result: "")


def polling_counts(monkeypatch):
    read = repetition.RepetitionGuard._read

    def unmarked(self, step):
        return read(self, type(step)(step.calls, {}, step.withdrawn, step.wound_down))

    monkeypatch.setattr(repetition.RepetitionGuard, "_read", unmarked)


def changes_do_not_count(monkeypatch):
    monkeypatch.setattr(repetition.RepetitionGuard, "_has_changed_something", lambda *_: False)


def the_window_is_wide(monkeypatch):
    monkeypatch.setattr(repetition, "WINDOW", 20)


def every_error_is_the_same(monkeypatch):
    monkeypatch.setattr(streaks, "_identify_error", lambda *_: ("error", "error"))


def searches_are_given_six_attempts(monkeypatch):
    monkeypatch.setattr(repetition, "_READS", 2)


def two_errors_are_a_streak(monkeypatch):
    monkeypatch.setattr(streaks.ErrorStreakGuard, "_judge", lambda self, step, counts: _nudge_at_two(self, counts))


def _nudge_at_two(guard, counts):
    from glidepath.spi import GuardVerdict

    return GuardVerdict(action="nudge", reason="two", notice="two") if max(counts.values()) == 2 else None


WITHOUT = {
    "archives_mail": same_answers_count_for_every_tool,
    "writes_files": same_answers_count_for_every_tool,
    "writes_files_in_batches": same_answers_count_for_every_tool,
    "runs_silent_commands": same_answers_count_for_every_tool,
    "edits_and_tests": changes_do_not_count,
    "edits_and_tests_in_a_shell": the_window_is_wide,
    "tries_different_fixes": every_error_is_the_same,
    "retries_until_it_works": two_errors_are_a_streak,
    "polls_a_job": polling_counts,
    "presses_keys": results_do_not_count,
    "reads_pages": arguments_do_not_count,
    "finds_nothing_at_first": searches_are_given_six_attempts,
}


@every
def test_an_honest_specimen_is_touched_as_soon_as_the_rule_that_spares_it_is_gone(kind, monkeypatch):
    WITHOUT[kind.name](monkeypatch)
    assert touched(kind)


def test_the_control_group_flies_with_the_simulator_and_raises_no_finding():
    report = simulate(only=["honest"])
    assert len(report.flights) == len(HONEST) >= 12
    assert [finding.code for finding in report.findings] == []


def test_a_configuration_that_stops_honest_work_is_told_so():
    from glidepath import Agent, Limits
    from glidepath.testing import ScriptedModel

    agent = Agent(
        model=ScriptedModel(name="m", price=("1", "1")),
        guardrails=GuardrailsConfig(max_error_streak=2),
        limits=Limits(max_iterations=50, max_cost="1"),
    )
    assert [finding.code for finding in simulate(agent, only=["honest"]).findings] == ["honest_work_stopped"]


def test_a_signature_holds_all_of_a_call():
    assert repetition.pair_signature("a", "b") != repetition.pair_signature("b", "a")
