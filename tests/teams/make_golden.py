"""Write the golden team journals of this release: `python -m tests.teams.make_golden tests/teams/golden/RELEASE`.

Run it once for every release, before it is tagged, and commit the files. A test goes on with all of them in every later
release.
"""

import asyncio
import sys
from pathlib import Path

from glidepath import Agent, Limits, tool
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, export_journal
from glidepath.teams import (
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
from glidepath.testing import ScriptedModel, VirtualClock, call, hang, say

STEPS = [
    TeamStep(id="facts", description="Collect facts", member="writer"),
    TeamStep(id="text", description="Write a text", depends_on=("facts",), member="writer"),
    TeamStep(id="post", description="Publish it", member="editor"),
]


class Mortal(MemoryStore):
    """Takes nothing any more once it is dead."""

    dead = False

    def append(self, *args, **keywords):
        if self.dead:
            raise StoreError("the process is dead")
        return super().append(*args, **keywords)


class Strict:
    """Sends the first text back."""

    async def evaluate(self, context):
        if context.step.id == "text" and context.attempt == 1:
            return EvaluationVerdict(outcome=VerdictOutcome.REVISE, score=0.3, feedback="name a source")
        return EvaluationVerdict(outcome=VerdictOutcome.PASS, score=1.0)


@tool(requires_approval=True)
async def publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


def writes(request):
    prompt = request.messages[0].text
    if "Your step (facts)" in prompt:
        return say("Bees dance.")
    return say("A second text.") if "name a source" in prompt else say("A first text.")


def writes_until_it_is_sent_back(request):
    return hang("A sec") if "name a source" in request.messages[0].text else writes(request)


def posts(request):
    return say("It is out.") if request.messages[-1].role == "tool_result" else call("publish", text="bees")


def crew(store, script=writes):
    """The team of all golden journals."""
    return Team(
        [
            Agent(
                model=ScriptedModel(name=f"{name}-model", price=("1", "5")).forever(turns),
                tools=tools,
                agent_name=name,
                limits=Limits(max_iterations=8),
            )
            for name, turns, tools in (("writer", script, ()), ("editor", posts, (publish,)))
        ],
        name="press office",
        store=store,
    )


def coordinator():
    """Reviews the text once more than it passes."""
    return ExpertTeamCoordinator(evaluator=Strict())


async def killed(store):
    """A step is done, one was sent back and its second attempt is in flight, one waits; then the process dies."""
    asked = request("killed")
    work = asyncio.create_task(crew(store, writes_until_it_is_sent_back).run(asked, coordinator=coordinator()))
    await asyncio.sleep(5)
    store.dead = True
    work.cancel()
    await asyncio.wait({work})


async def paused(store):
    """All that can be done is done, and one step waits for a person."""
    await crew(store).run(request("paused"), coordinator=coordinator())


SCENES = {"killed": killed, "paused": paused}


def request(name):
    limits = TeamResourceConstraint(max_total_tokens=50_000, max_cost="1")
    plan = TeamExecutionPlan(steps=STEPS)
    return TeamExecutionRequest(goal="A note", id=name, plan=plan, config=TeamConfig(resource_constraint=limits))


async def written(name):
    """The journals of a scene: the team's, and one for each run."""
    store = Mortal()
    await SCENES[name](store)
    return await export_journal(store, f"team:{name}")


if __name__ == "__main__":
    for name in SCENES:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath(f"{name}.jsonl").write_bytes(VirtualClock().run(written(name)))
