"""G19 in whole runs: what a turn measures and looks at does not grow with the history, whatever the strategy."""

from itertools import pairwise

import pytest

from glidepath import Agent, GuardrailsConfig, Limits, LoopOutcome, Session, tool
from glidepath.events import ContextShaped, TurnStarted
from glidepath.messages import AssistantMessage, TextBlock, ToolCall, ToolResultMessage, Usage, UserMessage
from glidepath.testing import EventRecorder, ScriptedModel, call, say, virtual


class Counting:
    """An estimator that counts how much it is asked."""

    def __init__(self):
        self.calls = self.characters = 0

    def estimate(self, text):
        self.calls += 1
        self.characters += len(text)
        return (len(text) + 2) // 3


@tool
async def read(doc: int) -> str:
    """Read a document."""
    return f"document {doc}: " + "lorem ipsum " * 20


def history(messages):
    """A session of calls and results."""
    found = [UserMessage("the task")]
    while len(found) < messages:
        number = len(found)
        found.append(AssistantMessage((TextBlock("so"), ToolCall(f"h{number}", "read", {"doc": number}))))
        found.append(ToolResultMessage(f"h{number}", "read", "lorem ipsum " * 20))
        found.append(AssistantMessage((TextBlock("going on " * 5),)))
        found.append(UserMessage("and then?"))
    return found[:messages]


async def measured(strategy, turns, *, session=None, window=6_000):
    """Run so many turns; what the estimator was asked in each of them."""
    numbers = iter(range(10**6))

    def step(request):
        if not request.tools:
            return say("a checkpoint")
        number = next(numbers)
        return call("read", doc=number) if number < turns else say("done")

    estimator, marks, recorder = Counting(), [], EventRecorder()

    def sink(event):
        if isinstance(event, TurnStarted):
            marks.append((estimator.calls, estimator.characters))
        elif isinstance(event, ContextShaped):
            recorder(event)

    model = ScriptedModel(record=False, usage=Usage(2_000, 20)).forever(step)
    agent = Agent(
        model=model,
        tools=[read],
        limits=Limits(max_iterations=10**6),
        guardrails=GuardrailsConfig(max_repeated_tool_steps=0),
        token_estimator=estimator,
        context_strategy=strategy,
        context_window=window,
        max_output_tokens=200,
        event_sink=sink,
    )
    result = await agent.run("go on", session=session)
    assert result.outcome is LoopOutcome.DONE
    marks.append((estimator.calls, estimator.characters))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(marks)], recorder


def average(turns):
    return [sum(turn[k] for turn in turns) / len(turns) for k in (0, 1)]


@pytest.mark.parametrize("strategy", ["sliding_window", "compact", "summarize"])
@virtual
async def test_g19_ten_thousand_messages_cost_no_more_per_turn_than_two_hundred(strategy):
    """The view is full in both cases, so that it is shaped again and again."""
    short, _ = await measured(strategy, 400, session=Session(messages=history(200)))
    long, recorder = await measured(strategy, 400, session=Session(messages=history(10_000)))
    assert 10 < len(recorder.of(ContextShaped)) < 200
    for few, many in zip(average(short[5:]), average(long[5:]), strict=True):
        assert many <= 1.1 * few + 1


@pytest.mark.parametrize("strategy", ["sliding_window", "compact", "summarize"])
@virtual
async def test_g19_turn_four_thousand_costs_what_turn_four_hundred_costs(strategy):
    """A history that grows to more than eight thousand messages."""
    turns, _ = await measured(strategy, 4_200)
    early, late = average(turns[400:800]), average(turns[3_800:4_200])
    for before, after in zip(early, late, strict=True):
        assert after <= 1.1 * before + 1


@virtual
async def test_g19_a_history_is_measured_once_when_a_run_begins():
    turns, _ = await measured("compact", 3, session=Session(messages=history(10_000)), window=10**9)
    assert max(calls for calls, _ in turns) < 30
