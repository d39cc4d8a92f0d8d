"""An expert team on a real model: generated, reviewed by the rubric, handed on, within one budget."""

import asyncio

import pytest

from glidepath import Agent, Limits
from glidepath.teams import (
    ExpertTeamCoordinator,
    Member,
    RiskProfile,
    SimpleEvaluationStrategy,
    StepState,
    Team,
    TeamConfig,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResourceConstraint,
    TeamStatus,
    TeamStep,
)

pytestmark = pytest.mark.process

PLAN = TeamExecutionPlan(
    steps=(
        TeamStep(id="greet", description="Say hello."),
        TeamStep(id="number", description="Say one number."),
        TeamStep(id="end", description="Say goodbye.", depends_on=("greet", "number")),
    )
)


def test_an_expert_team_delivers_on_the_embedded_model(model):
    member = Agent(
        model=model,
        agent_name="small",
        system_prompt="Answer with one short sentence.",
        limits=Limits(max_iterations=4),
        temperature=0.0,
        max_output_tokens=80,
        extras={"stop": [".", "!", "\n"]},  # so small a model rarely stops by itself
    )
    events = []
    request = TeamExecutionRequest(
        goal="Talk to a visitor",
        plan=PLAN,
        config=TeamConfig(
            risk_profile=RiskProfile.LOW,
            max_feedback_rounds=2,
            resource_constraint=TeamResourceConstraint(max_total_tokens=20_000, max_parallel_steps=1),
        ),
    )
    team = Team([Member(name="small", agent=member)], event_sink=events.append)
    coordinator = ExpertTeamCoordinator(evaluator=SimpleEvaluationStrategy(min_words=1, max_words=400))
    result = asyncio.run(team.run(request, coordinator=coordinator))
    assert result.status in (TeamStatus.COMPLETED, TeamStatus.DEGRADED), result.reason
    assert all(outcome.state.delivered and outcome.output.strip() for outcome in result.step_outcomes)
    assert result.outcome("greet").state is StepState.COMPLETED
    assert result.final_output == result.outcome("end").output
    assert 0 < result.usage.total <= 20_000
    assert result.cost == 0
    kinds = [event.kind for event in events]
    assert kinds[0] == "TEAM_STARTED"
    assert kinds[-1] == "TEAM_COMPLETED"
    assert kinds.count("EVALUATION_RESULT") >= 1
    assigned = [event.step_id for event in events if event.kind == "STEP_ASSIGNED"]
    assert set(assigned[: assigned.index("end")]) == {"greet", "number"}
