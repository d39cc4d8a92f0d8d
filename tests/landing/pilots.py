"""Models that take notice of a landing in different ways, and the runs they fly."""

from glidepath import Agent, Limits, tool
from glidepath.testing import EventRecorder, ScriptedModel, call, say, transcript_errors

__all__ = ["ANSWER", "deaf", "fly", "obedient", "slow_to_notice", "told", "work"]

ANSWER = "the final answer"


@tool
async def work(item: int) -> str:
    """Work on an item."""
    return f"item {item} is done"


def told(request):
    """True when the model has been told to stop, or has no tool left to work with."""
    return not request.tools or any(getattr(m, "reason", None) == "wind_down" for m in request.messages[-3:])


def _worker(decide, **options):
    count = iter(range(1, 10**6))

    def step(request):
        number = next(count)
        if decide(request):
            return say(ANSWER)
        return call("work", item=number).with_text(f"step {number}")

    return ScriptedModel(**options).forever(step)


def obedient(**options):
    """Works until it is told to stop, then answers."""
    return _worker(told, **options)


def slow_to_notice(**options):
    """Needs to be told twice: works on in the first turn in which it is told to stop, and answers in the next."""
    times = iter(range(1, 10**6))
    return _worker(lambda request: told(request) and next(times) > 1, **options)


def deaf(**options):
    """Works on, whatever it is told."""
    return _worker(lambda _: False, **options)


async def fly(model, limits=None, **more):
    """Run and check what holds for every run; returns the result and the events."""
    recorder = EventRecorder()
    cancel = more.pop("cancel", None)
    agent = Agent(
        model=model,
        tools=more.pop("tools", [work]),
        limits=limits or Limits(max_iterations=10),
        event_sink=recorder,
        **more,
    )
    result = await agent.run("the task", cancel=cancel)
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    for request in model.requests:
        assert transcript_errors(request.messages) == []
        assert request.messages[0].text == "the task"
    if limits is not None and limits.max_iterations is not None:
        assert result.iterations <= limits.max_iterations
    assert result.text
    return result, recorder
