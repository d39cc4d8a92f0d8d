"""Constraints that say what they are told to, and a run to put them on."""

import asyncio

from glidepath import Agent, Limits, ResourceConstraint, ResourceValidation, tool
from glidepath.testing import EventRecorder, ScriptedModel, call, say

__all__ = ["Says", "fly", "named", "work"]


class Says(ResourceConstraint):
    """Violated from turn `turn` on, at `checkpoint` (None: at all of them), asking for `action` (None: it passes)."""

    def __init__(self, action=None, *, turn=1, checkpoint="pre_flight", reason="as told", **metrics):
        self.action = action
        self.turn = turn
        self.checkpoint = checkpoint
        self.reason = reason
        self.metrics = metrics
        self.seen = []

    async def validate(self, context):
        self.seen.append(context)
        due = context.iteration >= self.turn and self.checkpoint in (None, context.checkpoint)
        if self.action is None or not due:
            return ResourceValidation.ok()
        return ResourceValidation.violation(self.reason, **self.metrics)

    def on_violation(self, validation):
        assert validation.violated
        return self.action


def named(name, *args, **more):
    """A `Says` that goes by this name."""
    constraint = Says(*args, **more)
    constraint.name = name
    return constraint


@tool
async def work(item: int = 0) -> str:
    """Work on an item."""
    await asyncio.sleep(0)
    return f"item {item} is done"


def working(turns=3):
    """A model that works for some turns and then answers; without tools it answers at once."""
    count = iter(range(1, 10**6))

    def step(request):
        number = next(count)
        if not request.tools:
            return say("what I have so far")
        return call("work", item=number).with_text(f"step {number}") if number <= turns else say("all done")

    return ScriptedModel().forever(step)


async def fly(*constraints, model=None, limits=None, turns=3, **more):
    """Run; returns the result and the events."""
    recorder = EventRecorder()
    agent = Agent(
        model=model or working(turns),
        tools=more.pop("tools", [work]),
        limits=limits or Limits(max_iterations=50),
        constraints=constraints,
        event_sink=recorder,
        **more,
    )
    cancel = more.pop("cancel", None)
    result = await agent.run("go", cancel=cancel)
    recorder.assert_legal()
    return result, recorder
