"""Our coordinators and evaluators keep their contracts."""

from glidepath import Agent, Limits
from glidepath.conformance import (
    EvaluationStrategyContract,
    PlanningCoordinatorContract,
    ReviewingCoordinatorContract,
    TeamCoordinatorContract,
)
from glidepath.teams import (
    AgentEvaluationStrategy,
    DefaultTaskDispatchCoordinator,
    ExpertTeamCoordinator,
    SimpleEvaluationStrategy,
)
from glidepath.testing import ScriptedModel


class TestDefaultTaskDispatchCoordinator(TeamCoordinatorContract):
    subject = DefaultTaskDispatchCoordinator

    def make_coordinator(self):
        return DefaultTaskDispatchCoordinator()


class TestExpertTeamCoordinator(TeamCoordinatorContract, ReviewingCoordinatorContract, PlanningCoordinatorContract):
    subject = ExpertTeamCoordinator

    def make_coordinator(self):
        return ExpertTeamCoordinator()

    def make_reviewing(self, evaluator):
        return ExpertTeamCoordinator(evaluator=evaluator, judge=evaluator)

    def make_planning(self, planner):
        return ExpertTeamCoordinator(planner=planner)


class TestSimpleEvaluationStrategy(EvaluationStrategyContract):
    subject = SimpleEvaluationStrategy
    good = "All the figures, and their sources."
    bad = "I would rather not say."

    def make_strategy(self):
        return SimpleEvaluationStrategy(required=["figures", "sources"])


def judge():
    """An agent that passes whatever names its sources."""

    def verdict(request):
        artifact = request.messages[-1].text
        if "their sources." in artifact:
            return '{"verdict": "PASS", "score": 0.9, "feedback": "good"}'
        return '{"verdict": "REVISE", "score": 0.2, "feedback": "name the figures"}'

    return Agent(model=ScriptedModel(price=("1", "1")).forever(verdict), limits=Limits(max_iterations=2))


class TestAgentEvaluationStrategy(EvaluationStrategyContract):
    subject = AgentEvaluationStrategy
    good = "All the figures, and their sources."
    bad = "I would rather not say."

    def make_strategy(self):
        return AgentEvaluationStrategy(judge())
