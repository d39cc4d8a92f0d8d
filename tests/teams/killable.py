"""A team in a process of its own, which can be killed at any moment: python killable.py store request [event side]."""

import asyncio
import os
import signal
import sys

from glidepath import Agent, Limits
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
    TeamStep,
    VerdictOutcome,
)
from glidepath.testing import ScriptedModel, say

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


def crew(store):
    async def answer(request):
        prompt = request.messages[0].text
        name = prompt.partition("Your step (")[2].partition(")")[0]
        await asyncio.sleep(0.002)
        return say(f"{name} done, reviewed {prompt.count('again')} times")

    model = ScriptedModel(name="worker", max_output_tokens=200).forever(answer)
    agent = Agent(model=model, limits=Limits(max_iterations=3), agent_name="worker")
    return Team(
        [Member(name="worker", agent=agent)], store=store, coordinator=ExpertTeamCoordinator(evaluator=SecondTime())
    )


async def main(path, request_id, event=None, side="after"):
    store = Mortal(path, None if event is None else int(event), side)
    plan = TeamExecutionPlan(
        steps=[TeamStep(id=name, description=f"do {name}", depends_on=n) for name, n in STEPS.items()]
    )
    asked = TeamExecutionRequest(goal="the goal", id=request_id, plan=plan, config=TeamConfig(team_timeout=60))
    try:
        known = (await store.load(f"team:{request_id}"))[0].head > 0
    except StoreError:
        known = False
    team = crew(store)
    result = await (team.resume(request_id) if known else team.run(asked))
    print(result.status.name, result.sequence)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
