"""Random acyclic plans, members that pass, revise, crash and hang, and cancels at any moment."""

import asyncio
import os

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import CancelToken
from glidepath.errors import RejectedError
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    DependencyFailure,
    EvaluationVerdict,
    ExpertTeamCoordinator,
    RiskProfile,
    StepAssigned,
    StepCompleted,
    StepState,
    TeamResourceConstraint,
    TeamStatus,
    VerdictOutcome,
)
from glidepath.testing import VirtualClock, fail, hang, no_leftovers, say

from .kit import PASS, Recorder, agent, request, step, team

EXAMPLES = 400 if os.environ.get("GLIDEPATH_CAMPAIGN") else 60


@st.composite
def plans(draw):
    """Steps with dependencies on earlier ones only."""
    size = draw(st.integers(1, 40))
    steps = []
    for number in range(size):
        needed = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ()
        steps.append(step(f"s{number}", *(f"s{other}" for other in sorted(needed))))
    return draw(st.permutations(steps))


BEHAVIOR = st.sampled_from(["pass", "pass", "pass", "slow", "revise1", "revise2", "revise9", "crash", "hang", "judge"])


@st.composite
def worlds(draw):
    steps = draw(plans())
    return {
        "steps": steps,
        "behavior": {item.id: draw(BEHAVIOR) for item in steps},
        "expert": draw(st.booleans()),
        "risk": draw(st.sampled_from(RiskProfile)),
        "policy": draw(st.sampled_from(DependencyFailure)),
        "rounds": draw(st.integers(1, 4)),
        "parallel": draw(st.none() | st.integers(1, 6)),
        "members": draw(st.integers(1, 5)),
        "tokens": draw(st.none() | st.integers(2_000, 60_000)),
        "team_timeout": draw(st.sampled_from([40.0, 200.0, 5_000.0])),
        "senior": draw(st.booleans()),
        "cancel": draw(st.none() | st.floats(0, 120)),
        "how": draw(st.sampled_from(["cancel", "wind_down", "task"])),
    }


class World:
    """The members and the reviewer of one example, and what they saw."""

    def __init__(self, given):
        self.behavior = given["behavior"]
        self.running = 0
        self.most = 0
        self.tries = {}

    def step_of(self, prompt):
        return prompt.partition("Your step (")[2].partition(")")[0]

    async def answer(self, request):
        name = self.step_of(request.messages[0].text)
        behavior = self.behavior[name]
        self.tries[name] = self.tries.get(name, 0) + 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(3 if behavior == "slow" else 0.5)
        finally:
            self.running -= 1
        if behavior == "hang":
            return hang()
        return fail(RejectedError("no")) if behavior == "crash" else say(f"{name} try {self.tries[name]}")

    async def evaluate(self, context):
        behavior = self.behavior[context.step.id]
        if behavior == "judge":
            raise ValueError("boom")
        if behavior.startswith("revise") and context.attempt <= int(behavior[-1]):
            return EvaluationVerdict(outcome=VerdictOutcome.REVISE, score=0.3, feedback="more")
        return PASS


@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(2_000, marks=pytest.mark.slow)], ids=["quick", "campaign"])
def test_g1_every_team_lands_in_order_within_its_bounds(examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(worlds())
    def check(given):
        VirtualClock().run(_one(given))

    check()


async def _one(given):
    world, seen, cancel = World(given), Recorder(), CancelToken()
    names = [f"m{number}" for number in range(given["members"])]
    members = [agent(world.answer, name=name, max_output_tokens=300) for name in names]
    senior = agent(world.answer, name="senior", max_output_tokens=300) if given["senior"] else None
    coordinator = (
        ExpertTeamCoordinator(evaluator=world, senior=senior) if given["expert"] else DefaultTaskDispatchCoordinator()
    )
    limits = TeamResourceConstraint(max_total_tokens=given["tokens"], max_parallel_steps=given["parallel"])
    asked = request(
        *given["steps"],
        risk_profile=given["risk"],
        dependency_failure=given["policy"],
        max_feedback_rounds=given["rounds"],
        team_timeout=given["team_timeout"],
        step_timeout=30,
        resource_constraint=limits,
    )
    async with no_leftovers():
        work = asyncio.create_task(team(*members, recorder=seen).run(asked, coordinator=coordinator, cancel=cancel))
        if given["cancel"] is not None:
            stop = {"cancel": cancel.cancel, "wind_down": cancel.wind_down, "task": work.cancel}[given["how"]]
            asyncio.get_running_loop().call_later(given["cancel"], stop)
        try:
            result = await work
        except asyncio.CancelledError:
            assert given["how"] == "task"
            result = seen.events[-1].result
            assert result.status is TeamStatus.CANCELLED
    _check(given, world, seen, result)


def _check(given, world, seen, result):
    seen.check(result)
    assert result.duration <= given["team_timeout"] + 2
    if given["cancel"] is not None and given["how"] != "wind_down":
        assert result.duration <= given["cancel"] + 2 or result.status is not TeamStatus.CANCELLED
    if given["tokens"] is not None:
        assert result.usage.total <= given["tokens"]
    if given["parallel"] is not None:
        assert world.most <= given["parallel"]
    if not given["expert"]:
        assert world.most <= given["members"]
    _check_order(given, seen)
    for outcome in result.step_outcomes:
        assert outcome.attempts <= given["rounds"] + (given["senior"] and given["expert"])
        assert outcome.state.terminal
        if outcome.state is StepState.COMPLETED:
            assert outcome.output
            assert given["behavior"][outcome.step_id] not in ("crash", "hang")
        if outcome.state is StepState.DEGRADED:
            assert outcome.output
            assert given["risk"] is RiskProfile.LOW or not given["expert"]
    if result.status in (TeamStatus.COMPLETED, TeamStatus.DEGRADED):
        assert result.final_output
    if result.status is TeamStatus.COMPLETED:
        assert all(outcome.state is StepState.COMPLETED for outcome in result.step_outcomes)
    assert sum(outcome.usage.total for outcome in result.step_outcomes) == result.usage.total


def _check_order(given, seen):
    """Whatever a step depends on has ended, as the policy demands, before the step is assigned."""
    needs = {item.id: item.depends_on for item in given["steps"]}
    ended, open_steps = {}, set()
    for event in seen.events:
        if isinstance(event, StepAssigned):
            for needed in needs[event.step_id]:
                assert needed in ended, f"{event.step_id} before {needed}"
                assert ended[needed].delivered or given["policy"] is DependencyFailure.RUN_DEGRADED
            open_steps.add(event.step_id)
        elif isinstance(event, StepCompleted):
            ended[event.step_id] = event.outcome.state
            open_steps.discard(event.step_id)
        if given["parallel"] is not None and given["expert"]:
            assert len(open_steps) <= given["parallel"]
