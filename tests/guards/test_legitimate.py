"""No withdrawal and no landing on honest work: a corpus of traces, flown through the whole agent with the defaults."""

import pytest

from glidepath import Agent, Limits, LoopOutcome, Tool, tool
from glidepath.events import GuardTripped, ToolStarted
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, say, transcript_errors, virtual

from .legitimate import TRACES


def make_tools(trace) -> list[Tool]:
    """A tool for each name; its calls are answered as the trace says, in order."""
    answers: dict[str, list] = {}
    for step in trace:
        for name, _, result in step:
            answers.setdefault(name, []).append(result)

    def made(name):
        async def answer(arguments: dict | None = None) -> str:
            result = answers[name].pop(0)
            if isinstance(result, type):
                raise result(f"{name} failed")
            return result

        return tool(answer, name=name, description=name, polling=name.startswith("poll"))

    return [made(name) for name in answers]


def test_the_corpus_is_large_enough_and_no_trace_is_there_twice():
    assert len(TRACES) >= 60
    assert len({repr(trace) for trace in TRACES.values()}) == len(TRACES)
    assert all(trace for trace in TRACES.values())


@pytest.mark.parametrize("name", TRACES)
@virtual
async def test_honest_work_is_left_alone(name):
    trace = TRACES[name]
    turns = [calls(*[call(tool_, arguments=arguments) for tool_, arguments, _ in step]) for step in trace]
    recorder = EventRecorder()
    with ScriptedModel([*turns, say("done")]) as model:
        agent = Agent(
            model=model,
            tools=make_tools(trace),
            limits=Limits(max_iterations=1000, grace_iterations=1),
            event_sink=recorder,
        )
        result = await agent.run("the task")
    assert (result.outcome, result.cause, result.text) == (LoopOutcome.DONE, None, "done")
    assert {event.action for event in recorder.of(GuardTripped)} <= {"nudge"}
    assert len(recorder.of(ToolStarted)) == sum(len(step) for step in trace)
    assert transcript_errors(result.messages) == []
    recorder.assert_legal()
