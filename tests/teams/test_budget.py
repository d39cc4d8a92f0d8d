"""The team's ledger is the parent of every run: tokens, money and time are enforced, judges and planners included."""

import asyncio

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import ConfigurationError
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    ExpertTeamCoordinator,
    RiskProfile,
    StepState,
    TeamResourceConstraint,
    TeamStatus,
)
from glidepath.testing import VirtualClock, no_leftovers, say, truncated, virtual

from .kit import REVISE, Recorder, Verdicts, agent, request, step, team

WORDY = "word " * 400  # 500 tokens by the model's own count


def obedient(text):
    """A provider that keeps to the output cap it is given, as G4 asks of one."""

    def answer(request):
        most = len(text) if request.max_output_tokens is None else request.max_output_tokens * 4
        return say(text) if len(text) <= most else truncated(text[:most])

    return answer


def limited(**limits):
    return {"resource_constraint": TeamResourceConstraint(**limits)}


@pytest.mark.parametrize("coordinator", [DefaultTaskDispatchCoordinator(), ExpertTeamCoordinator()])
@virtual
async def test_g4_tokens_of_all_members_together_stay_within_the_limit(coordinator):
    members = [agent(obedient(WORDY), name=f"m{number}", max_output_tokens=600) for number in range(4)]
    seen = Recorder()
    steps = [step(f"s{number}") for number in range(20)]
    async with no_leftovers():
        result = await team(*members, recorder=seen).run(
            request(*steps, **limited(max_total_tokens=5_000)), coordinator=coordinator
        )
    seen.check(result)
    assert 2_000 < result.usage.total <= 5_000
    states = [outcome.state for outcome in result.step_outcomes]
    assert states.count(StepState.COMPLETED) >= 3
    assert result.status is TeamStatus.FAILED
    assert result.final_output


@virtual
async def test_g4_money_of_all_members_together_stays_within_the_limit():
    members = [agent(obedient(WORDY), name=f"m{number}", max_output_tokens=600, price=(10, 10)) for number in range(4)]
    steps = [step(f"s{number}") for number in range(20)]
    result = await team(*members).run(request(*steps, **limited(max_cost="0.05")))
    assert 0.02 < result.cost <= 0.05
    assert result.status is TeamStatus.FAILED


@virtual
async def test_g4_feedback_loops_and_judges_are_paid_from_the_same_budget():
    judge = agent('{"verdict": "revise", "feedback": "more"}', name="judge", max_output_tokens=600)
    member = agent(obedient(WORDY), max_output_tokens=600)
    result = await team(member).run(
        request(*(step(name) for name in "abc"), risk_profile=RiskProfile.HIGH, **limited(max_total_tokens=6_000)),
        coordinator=ExpertTeamCoordinator(judge=judge),
    )
    assert result.usage.total <= 6_000
    assert result.status is TeamStatus.FAILED
    assert judge.config.model.calls >= 1


@virtual
async def test_an_attempt_that_the_budget_refuses_is_the_last():
    """No third and fourth try, and no senior, when there is nothing left to pay them with."""
    member = agent(obedient(WORDY), max_output_tokens=600)
    senior = agent(obedient(WORDY), name="senior", max_output_tokens=600)
    result = await team(member).run(
        request(step("a"), max_feedback_rounds=50, **limited(max_total_tokens=3_000)),
        coordinator=ExpertTeamCoordinator(evaluator=Verdicts(REVISE), senior=senior),
    )
    assert result.status is TeamStatus.FAILED
    assert result.outcome("a").attempts < 10
    assert result.usage.total <= 3_000


@virtual
async def test_the_duration_of_a_team_is_a_limit_too():
    member = agent("ok", first_chunk_delay=19.0)
    result = await team(member).run(request(*(step(name) for name in "abcdef"), **limited(max_duration=100)))
    assert result.status is TeamStatus.TIMEOUT
    assert result.duration <= 100
    assert sum(outcome.state is StepState.COMPLETED for outcome in result.step_outcomes) == 4


@virtual
async def test_money_without_a_known_price_is_refused_before_anything_happens():
    seen = Recorder()
    with pytest.raises(ConfigurationError, match="price"):
        await team(agent("ok"), recorder=seen).run(request(step("a"), **limited(max_cost=1)))
    for part in ("planner", "senior", "judge"):
        coordinator = ExpertTeamCoordinator(**{part: agent("ok", name=part)})
        asked = request(step("a"), risk_profile=RiskProfile.HIGH, **limited(max_cost=1))
        with pytest.raises(ConfigurationError, match=f"{part}-model"):
            await team(agent("ok", price=(1, 1)), recorder=seen).run(asked, coordinator=coordinator)
    assert seen.events == []


@virtual
async def test_what_a_confirmed_plan_had_cost_is_not_forgotten():
    planner = agent('{"steps": [{"id": "a", "description": "do a"}]}', name="planner", max_output_tokens=600)
    coordinator, crew = ExpertTeamCoordinator(planner=planner), team(agent("ok"))
    asked = request(plan_only=True, **limited(max_total_tokens=100_000))
    paused = await crew.run(asked, coordinator=coordinator)
    assert paused.usage.total > 0
    await asyncio.sleep(1_000)  # paused time does not count
    result = await coordinator.confirm(paused, crew)
    assert result.status is TeamStatus.COMPLETED
    assert result.usage.total > paused.usage.total
    assert result.duration < 100


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(600, 8_000),
    width=st.integers(1, 12),
    words=st.lists(st.integers(1, 400), min_size=1, max_size=4),
    expert=st.booleans(),
)
def test_g4_no_team_overshoots(limit, width, words, expert):
    async def main():
        members = [
            agent(obedient("word " * size), name=f"m{size}-{at}", max_output_tokens=600)
            for at, size in enumerate(words)
        ]
        coordinator = ExpertTeamCoordinator(evaluator=Verdicts(REVISE)) if expert else DefaultTaskDispatchCoordinator()
        steps = [step(f"s{number}") for number in range(width)]
        return await team(*members).run(request(*steps, **limited(max_total_tokens=limit)), coordinator=coordinator)

    result = VirtualClock().run(main())
    assert result.usage.total <= limit
