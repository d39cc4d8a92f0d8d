"""Random teams whose members wait for a person, and die at random: one call, one decision, one effect."""

import random

import pytest

from glidepath import Agent, ConfigurationError, GuardrailsConfig, Limits, approve, deny, tool
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    DependencyFailure,
    ExpertTeamCoordinator,
    RiskProfile,
    SimpleEvaluationStrategy,
    TeamResourceConstraint,
    TeamStatus,
)
from glidepath.testing import ScriptedModel, call, calls, say, virtual

from .kit import request, step, team
from .test_journal import Frail


def member(name, chance, done):
    """Acts, with approval, as often as it likes, and delivers something good or bad."""

    @tool(requires_approval=True)
    async def act(key: str) -> str:
        """Act."""
        done.append((name, key))
        return "acted"

    def turn(request):
        if chance.random() < (0.15 if request.messages[-1].role == "tool_result" else 0.5):
            return calls(*[call("act", key=f"{name} {chance.random()}") for _ in range(chance.choice([1, 2]))])
        return say(chance.choice(["good", "bad"]))

    model = ScriptedModel(name=name).forever(turn)
    quiet = GuardrailsConfig(max_repeated_tool_steps=0)
    return Agent(model=model, tools=[act], limits=Limits(max_iterations=30), agent_name=name, guardrails=quiet)


class Case:
    """One team, one request, one store that dies now and then."""

    def __init__(self, seed):
        self.chance = chance = random.Random(seed)
        self.done, self.approved = [], set()
        names = [f"m{number}" for number in range(chance.choice([1, 2, 3]))]
        self.members = [member(name, random.Random(chance.random()), self.done) for name in names]
        self.senior = member("boss", random.Random(chance.random()), self.done) if chance.random() < 0.5 else None
        self.expert = chance.random() < 0.5
        steps = [
            step(
                f"s{number}",
                *[f"s{before}" for before in range(number) if chance.random() < 0.3],
                member=chance.choice([None, *names]),
            )
            for number in range(chance.randint(1, 6))
        ]
        self.request = request(
            *steps,
            max_feedback_rounds=chance.choice([1, 2, 3]),
            risk_profile=chance.choice(list(RiskProfile)),
            dependency_failure=chance.choice(list(DependencyFailure)),
            resource_constraint=TeamResourceConstraint(max_parallel_steps=chance.choice([None, 1, 2])),
        )
        self.store = Frail(dies_at=chance.randint(1, 12))

    async def go_on(self, decisions):
        """One more execution, of the request or of what is in the store."""
        crew = team(*self.members, store=self.store)
        strict = SimpleEvaluationStrategy(required=["good"])
        expert = ExpertTeamCoordinator(evaluator=strict, senior=self.senior)
        coordinator = expert if self.expert else DefaultTaskDispatchCoordinator()
        try:
            return await crew.resume(self.request.id, decisions=decisions, coordinator=coordinator)
        except ConfigurationError as error:
            if "has no request" not in str(error) and "never started" not in str(error):
                raise
            return await crew.run(self.request, coordinator=coordinator)

    def decide(self, result):
        """Something about some of the calls that wait."""
        decisions = {}
        for outcome in result.step_outcomes:
            who = "boss" if outcome.senior else outcome.member
            for waiting in outcome.pending:
                key, name = waiting.call.arguments["key"], f"{outcome.step_id}/{waiting.call.id}"
                assert key.startswith(f"{who} "), "what waits is shown with whoever asked"
                self.approved.discard((who, key))  # a decision that the dead had not heard
                if self.chance.random() < 0.6:
                    decisions[name] = approve()
                    self.approved.add((who, key))
                elif self.chance.random() < 0.5:
                    decisions[name] = deny("no")
        return decisions


@pytest.mark.parametrize("seed", range(40))
@virtual
async def test_g13_what_was_approved_is_done_once_by_whoever_asked(seed):
    case, decisions = Case(seed), {}
    store = case.store
    for _ in range(200):
        result = await case.go_on(decisions)
        died = store.dies_at is not None and store.written >= store.dies_at
        if died:
            store.revive()
        elif result.status is not TeamStatus.PAUSED:
            break
        decisions = {} if died else case.decide(result)
        store.dies_at = store.written + case.chance.randint(1, 10) if case.chance.random() < 0.4 else None
    assert all(outcome.state.terminal for outcome in result.step_outcomes)
    assert sorted(case.done) == sorted(case.approved)
    assert result.usage.total >= sum(outcome.usage.total for outcome in result.step_outcomes)
