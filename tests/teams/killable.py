"""A team in a process of its own, to be killed at any moment: killable.py store request [event side effects limit]."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from glidepath import Agent, Limits, Usage, tool
from glidepath.errors import StoreError
from glidepath.sessions import SqliteStore
from glidepath.teams import (
    EvaluationVerdict,
    ExpertTeamCoordinator,
    Member,
    Team,
    TeamConfig,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResourceConstraint,
    TeamStep,
    VerdictOutcome,
)
from glidepath.testing import ScriptedModel, call, say

STEPS = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d",), "f": ("a",)}


class Mortal(SqliteStore):
    """A store whose process dies just before or just after it writes an event."""

    def __init__(self, path, event=None, side="after"):
        super().__init__(path)
        self.event, self.side, self.written = event, side, 0

    def append(self, lease, commit, **more):
        self.written += 1
        if self.written == self.event and self.side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().append(lease, commit, **more)
        if self.written == self.event:
            os.kill(os.getpid(), signal.SIGKILL)


class SecondTime:
    """Every step but a is sent back once."""

    async def evaluate(self, context):
        if context.attempt == 1 and context.step.id != "a":
            return EvaluationVerdict(outcome=VerdictOutcome.REVISE, score=0.2, feedback="again")
        return EvaluationVerdict(outcome=VerdictOutcome.PASS, score=1.0)


def step_of(prompt):
    return prompt.partition("Your step (")[2].partition(")")[0]


async def answer(request):
    prompt = request.messages[0].text
    await asyncio.sleep(0.002)
    return say(f"{step_of(prompt)} done, reviewed {prompt.count('again')} times")


async def act(request):
    """Has one effect in each attempt, then answers."""
    if request.messages[-1].role == "tool_result":
        return await answer(request)
    prompt = request.messages[0].text
    return call("effect", text=f"{step_of(prompt)}{prompt.count('again')}")


def effect_in(path):
    @tool
    async def effect(text: str) -> str:
        """Do something that must not be done twice."""
        with Path(path).open("a", encoding="utf-8") as file:  # noqa: ASYNC230 - it must be done at once
            file.write(f"{text}\n")
        return "done"

    return effect


def paid_in(path):
    """The same answers; every call is written down with what it costs before it is answered."""

    async def pay(request):
        turn = await act(request)
        with Path(f"{path}.paid").open("a", encoding="utf-8") as file:  # noqa: ASYNC230 - it must be done at once
            file.write("340\n")
        return turn.with_usage(Usage(40, 300))

    return pay


def crew(store, effects=None, limit=None):
    answers = answer if effects is None else act if limit is None else paid_in(effects)
    model = ScriptedModel(name="worker", max_output_tokens=300).forever(answers)
    more = {} if effects is None else {"tools": [effect_in(effects)]}
    agent = Agent(model=model, limits=Limits(max_iterations=5), agent_name="worker", **more)
    coordinator = ExpertTeamCoordinator(evaluator=SecondTime())
    return Team([Member(name="worker", agent=agent)], store=store, coordinator=coordinator)


async def main(path, request_id, event="0", side="after", effects=None, limit=None):
    store = Mortal(path, int(event) or None, side)
    steps = [TeamStep(id=name, description=f"do {name}", depends_on=needed) for name, needed in STEPS.items()]
    plan = TeamExecutionPlan(steps=steps)
    constraint = TeamResourceConstraint(max_total_tokens=None if limit is None else int(limit))
    config = TeamConfig(team_timeout=60, resource_constraint=constraint)
    asked = TeamExecutionRequest(goal="the goal", id=request_id, plan=plan, config=config)
    try:
        known = (await store.load(f"team:{request_id}"))[0].head > 0
    except StoreError:
        known = False
    team = crew(store, effects, limit)
    result = await (team.resume(request_id) if known else team.run(asked))
    print(result.status.name, result.sequence)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
