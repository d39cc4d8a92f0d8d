"""Nothing starts after `cancel()` has returned: at every step of the loop and at every event, on every way of a run."""

import asyncio
import threading

import pytest

from glidepath import Agent, CancelToken, Limits, LoopOutcome, Plugin, ToolContext, tool
from glidepath.errors import ContextOverflowError, TransientError
from glidepath.events import RunEnded
from glidepath.sessions import MemoryStore
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    ExpertTeamCoordinator,
    RiskProfile,
    Team,
    TeamConfig,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamStep,
)
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, calls, fail, say, transcript_errors

LIMITS = Limits(max_iterations=6, timeout=500)
STEPS = 120


class Scene:
    """One run, and a log of what has begun in it."""

    def __init__(self):
        self.log = []
        self.token = CancelToken()
        self.recorder = EventRecorder()

    def cancel(self):
        self.token.cancel("enough")
        self.log.append("CANCEL")

    def begins(self, what):
        self.log.append(what)

    def begun_late(self):
        return self.log[self.log.index("CANCEL") + 1 :] if "CANCEL" in self.log else []

    def model(self, *turns):
        scene, script = self, ScriptedModel(turns).forever(say("ANSWER"))

        class Model:
            name = script.name
            context_window = 100_000

            async def stream(self, request):
                scene.begins("model")
                async for delta in script.stream(request):
                    await asyncio.sleep(0)
                    yield delta

        return Model()

    def tools(self):
        @tool
        async def work(n: int = 0) -> str:
            """Work."""
            self.begins("tool")
            await asyncio.sleep(0)
            return f"ok {n}"

        @tool
        def block(n: int = 0) -> str:
            """Work on a thread."""
            self.begins("tool")
            return f"ok {n}"

        return [work, block]

    def agent(self, *turns, **settings):
        settings = {"limits": LIMITS, "tools": self.tools(), "event_sink": self.listen, **settings}
        return Agent(model=self.model(*turns), **settings)

    def listen(self, event):
        self.recorder(event)
        self.heard(event)

    def heard(self, event):
        """For whoever wants to cancel at an event."""

    def run(self, *turns, **settings):
        return self.agent(*turns, **settings).run("go", cancel=self.token)


class Hooks(Plugin):
    async def before_tool_call(self, context):
        await asyncio.sleep(0)

    async def after_tool_call(self, context):
        await asyncio.sleep(0)


def spawning(scene):
    child = scene.agent(call("work", n=9), event_sink=None)

    @tool
    async def spawn(context: ToolContext) -> str:
        """Start a child."""
        results = await asyncio.gather(context.spawn(child, "go"), context.spawn(child, "go"))
        return results[0].text

    return scene.run(call("spawn"), tools=[spawn])


def grandchild(scene):
    leaf = scene.agent(call("work", n=9), event_sink=None)
    middle = scene.agent(call("delegate", task="x"), tools=[leaf.as_tool("delegate", "Delegate.")], event_sink=None)
    return scene.run(call("middle", task="x"), tools=[middle.as_tool("middle", "Delegate.")])


def of_team(coordinator):
    async def fly(scene):
        member = scene.agent(call("work", n=1), event_sink=None, agent_name="a")
        other = scene.agent(event_sink=None, agent_name="b")
        steps = tuple(TeamStep(id=f"s{n}", description="do it") for n in range(3))
        config = TeamConfig(risk_profile=RiskProfile.HIGH)
        request = TeamExecutionRequest(goal="all", plan=TeamExecutionPlan(steps=steps), config=config)
        return await Team((member, other), coordinator=coordinator(scene)).run(request, cancel=scene.token)

    return fly


def judged(scene):
    return ExpertTeamCoordinator(judge=scene.agent(event_sink=None, agent_name="judge"))


SCENES = {
    "one call": lambda s: s.run(call("work", n=1)),
    "one call and hooks": lambda s: s.run(call("work", n=1), plugins=[Hooks()]),
    "a batch": lambda s: s.run(calls(*[call("work", n=n) for n in range(3)])),
    "a batch and hooks": lambda s: s.run(calls(*[call("work", n=n) for n in range(3)]), plugins=[Hooks()]),
    "one after the other": lambda s: s.run(calls(*[call("work", n=n) for n in range(3)]), max_parallel_tools=1),
    "threads": lambda s: s.run(calls(call("block", n=1), call("work", n=2))),
    "a journal": lambda s: s.run(calls(call("work", n=1), call("work", n=2)), store=MemoryStore()),
    "retries": lambda s: s.run(fail(TransientError("x")), fail(TransientError("y")), say("ANSWER")),
    "a fallback": lambda s: s.run(fail(TransientError("x")), max_retries=0, fallback_models=[s.model()]),
    "an overflow": lambda s: s.run(
        call("work", n=1), call("work", n=2), fail(ContextOverflowError("x")), context_strategy="summarize"
    ),
    "a landing": lambda s: s.run(call("work", n=1), call("work", n=2), limits=Limits(max_iterations=2)),
    "children": spawning,
    "grandchildren": grandchild,
    "a team": of_team(lambda scene: DefaultTaskDispatchCoordinator()),
    "a team with a judge": of_team(judged),
}


async def cancelled_at_step(scene, fly, step):
    loop, left = asyncio.get_running_loop(), step
    task = asyncio.ensure_future(fly(scene))

    def tick():
        nonlocal left
        left -= 1
        if task.done():
            return
        if left > 0:
            loop.call_soon(tick)
        else:
            scene.cancel()

    loop.call_soon(tick)
    return await task


@pytest.mark.parametrize("name", SCENES)
def test_g7_no_tool_and_no_model_call_begins_after_a_cancel_at_any_step(name):
    cancelled = 0
    for step in range(1, STEPS):
        scene = Scene()
        result = VirtualClock(seed=1).run(cancelled_at_step(scene, SCENES[name], step))
        assert scene.begun_late() == [], f"step {step}: {scene.log}"
        if "CANCEL" not in scene.log:
            break
        cancelled += 1
        assert getattr(result, "messages", None) is None or transcript_errors(result.messages) == []
    assert cancelled > 3


@pytest.mark.parametrize("name", [name for name in SCENES if "team" not in name])
def test_g7_no_tool_and_no_model_call_begins_after_a_cancel_at_any_event(name):
    cancelled = 0
    for number in range(1, STEPS):
        scene = Scene()
        seen = 0

        def heard(event, scene=scene, number=number):
            nonlocal seen
            seen += 1
            if seen == number and not isinstance(event, RunEnded):
                scene.cancel()

        scene.heard = heard
        result = VirtualClock(seed=1).run(SCENES[name](scene))
        assert scene.begun_late() == [], f"event {number}: {scene.log}"
        scene.recorder.assert_legal()
        assert transcript_errors(result.messages) == []
        if "CANCEL" not in scene.log:
            break
        cancelled += 1
        assert result.outcome in (LoopOutcome.CANCELLED, LoopOutcome.DONE, LoopOutcome.WRAPPED_UP)
    assert cancelled > 3


def test_a_call_that_was_stopped_before_its_first_step_says_so():
    scene = Scene()

    def heard(event):
        if type(event).__name__ == "ToolStarted":
            scene.cancel()

    scene.heard = heard
    result = VirtualClock().run(scene.run(call("work", n=1)))
    assert [message.text for message in result.messages if message.role == "tool_result"] == [
        "Not started: the run is being stopped."
    ]
    assert (result.outcome, result.usage.total > 0) == (LoopOutcome.CANCELLED, True)


def test_g12_a_request_that_was_not_sent_costs_nothing():
    scene = Scene()

    def heard(event):
        if type(event).__name__ == "StreamStarted":
            scene.cancel()

    scene.heard = heard
    result = VirtualClock().run(scene.run(say("never")))
    assert (result.outcome, result.usage.total, scene.log) == (LoopOutcome.CANCELLED, 0, ["CANCEL"])
    scene.recorder.assert_legal()


def test_g7_no_model_call_begins_after_a_cancel_from_another_thread_while_the_loop_is_blocked():
    token = CancelToken()

    @tool
    async def block() -> str:
        """Block the loop until somebody else has cancelled the run."""
        thread = threading.Thread(target=token.cancel)
        thread.start()
        thread.join()
        return "blocked"

    model = ScriptedModel([call("block"), say("too late")])
    result = Agent(model=model, tools=[block], limits=Limits(max_iterations=5)).run_sync("go", cancel=token)
    assert (result.outcome, model.calls) == (LoopOutcome.CANCELLED, 1)
