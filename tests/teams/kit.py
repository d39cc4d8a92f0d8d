"""Teams, evaluators and checks for the tests of this folder."""

import asyncio

from glidepath import Agent, Limits
from glidepath.teams import (
    TERMINAL,
    EvaluationVerdict,
    StepAssigned,
    StepCompleted,
    Team,
    TeamConfig,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamStarted,
    TeamStep,
    VerdictOutcome,
    make_ending,
)
from glidepath.testing import ScriptedModel

ROOMY = Limits(max_iterations=50)
PASS = EvaluationVerdict(outcome=VerdictOutcome.PASS, score=1.0)
REVISE = EvaluationVerdict(
    outcome=VerdictOutcome.REVISE, score=0.4, feedback="more detail", suggestions=("add figures",)
)
EXCEEDED = EvaluationVerdict(outcome=VerdictOutcome.REVIEW_EXCEEDED, feedback="beyond me")
AUTO = EvaluationVerdict(outcome=VerdictOutcome.AUTO_PASS_WITH_WARNING, score=0.5, feedback="unseen")


def model(*turns, **more):
    return ScriptedModel(turns, **more)


def agent(*turns, name="member", limits=ROOMY, tools=(), **more):
    """An agent whose model follows a script; one turn that is a function or a str is repeated for ever."""
    scripted = (
        ScriptedModel(name=f"{name}-model", **more).forever(turns[0])
        if len(turns) == 1
        else ScriptedModel(turns, name=f"{name}-model", **more)
    )
    return Agent(model=scripted, limits=limits, agent_name=name, tools=tools)


def step(name, *depends_on, **more):
    return TeamStep(id=name, description=f"do {name}", depends_on=depends_on, **more)


def plan(*steps):
    return TeamExecutionPlan(steps=steps)


def request(*steps, goal="the goal", request_id=None, plan_only=False, roles=(), context=None, **config):
    more = {} if request_id is None else {"id": request_id}
    return TeamExecutionRequest(
        goal=goal,
        plan=plan(*steps) if steps else None,
        plan_only=plan_only,
        roles=roles,
        context=context or {},
        config=TeamConfig(**config),
        **more,
    )


class Recorder:
    """Remembers team events and checks their grammar."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    def kinds(self):
        return [event.kind for event in self.events]

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def check(self, result, *, after=0):
        """The rules that hold for every execution."""
        events = self.events
        assert isinstance(events[0], TeamStarted)
        assert sum(isinstance(event, TeamStarted) for event in events) == 1
        assert isinstance(events[-1], TERMINAL), self.kinds()
        assert sum(isinstance(event, TERMINAL) for event in events) == 1, self.kinds()
        assert [event.sequence for event in events] == list(range(after + 1, after + len(events) + 1))
        assert {event.request_id for event in events} == {result.request_id}
        assert {event.team for event in events} == {result.team}
        assert events[-1].result.status is result.status
        assert type(events[-1]) is type(make_ending(result))
        ended = [event.step_id for event in self.of(StepCompleted)]
        assert len(ended) == len(set(ended)), ended
        for event in self.of(StepAssigned):
            assert event.step_id is not None
            assert event.attempt >= 1
        if result.plan is not None:
            assert [outcome.step_id for outcome in result.step_outcomes] == [item.id for item in result.plan.steps]


def team(*members, recorder=None, **more):
    return Team(members or (agent("done"),), event_sink=recorder, **more)


class Verdicts:
    """An evaluator that answers with these, one after the other, the last for ever; exceptions are raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.contexts = []

    async def evaluate(self, context):
        self.contexts.append(context)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == "hang":
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, BaseException):
            raise answer
        return answer
