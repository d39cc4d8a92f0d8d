"""A team with a reviewer: work that names no source is sent back, and the whole team has one budget.

The rule is plain code. Ask a model to judge (`AgentEvaluationStrategy`) where code cannot, and only there: it costs
money and can be talked into things.
"""

import asyncio

from glidepath import Agent, Limits
from glidepath.models import ModelRequest
from glidepath.teams import (
    EvaluationContext,
    EvaluationVerdict,
    ExpertTeamCoordinator,
    Team,
    TeamConfig,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResourceConstraint,
    TeamStep,
    VerdictOutcome,
)
from glidepath.testing import ScriptedModel, Turn, say


class NamesItsSource:
    """Passes a text that names a source, and says what is missing in one that does not."""

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        if "[source:" in context.artifact:
            return EvaluationVerdict(outcome=VerdictOutcome.PASS, score=1.0)
        return EvaluationVerdict(
            outcome=VerdictOutcome.REVISE, score=0.3, feedback="no source", suggestions=["Add [source: ...]."]
        )


def member(name: str, text: str) -> Agent:
    def work(request: ModelRequest) -> Turn:
        told = "Add [source" in request.messages[0].text  # earlier verdicts are in the prompt
        return say(f"{text} [source: the almanac]" if told else text)

    return Agent(model=ScriptedModel(name=name).forever(work), limits=Limits(max_iterations=5), agent_name=name)


async def main() -> None:
    plan = TeamExecutionPlan(
        steps=[
            TeamStep(id="bees", description="What do bees do in winter?"),
            TeamStep(id="wasps", description="What do wasps do in winter?"),  # beside the first
            TeamStep(id="note", description="One note from both", depends_on=["bees", "wasps"]),
        ]
    )
    budget = TeamResourceConstraint(max_total_tokens=50_000, max_duration=120, max_parallel_steps=2)
    request = TeamExecutionRequest(
        goal="Insects in winter", plan=plan, config=TeamConfig(max_feedback_rounds=3, resource_constraint=budget)
    )
    team = Team(
        [member("ann", "They stay warm together."), member("bob", "Only the queens live on.")], name="nature desk"
    )
    result = await team.run(request, coordinator=ExpertTeamCoordinator(evaluator=NamesItsSource()))
    for outcome in result.step_outcomes:
        reviews = ", ".join(verdict.outcome.name for verdict in outcome.verdicts)
        print(f"{outcome.step_id:<6} {outcome.state.name:<10} {outcome.attempts} attempts ({reviews})")
    print(f"{result.status.name}, {result.usage.total} tokens: {result.final_output}")


if __name__ == "__main__":
    asyncio.run(main())
