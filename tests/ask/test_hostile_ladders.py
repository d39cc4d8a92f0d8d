"""Ladders of output caps that somebody else wrote: they say a larger cap, or the truncated reply is accepted."""

import pytest

from glidepath import Agent, Limits, LoopOutcome
from glidepath.events import HookFailed
from glidepath.testing import EventRecorder, ScriptedModel, say, truncated, virtual


class Ladder:
    max_attempts = 10**9

    def __init__(self, answer):
        self.answer = answer

    def next_cap(self, prev_cap, attempt):
        return self.answer(prev_cap)


def raising(_):
    raise ZeroDivisionError("no cap")


def leaving(_):
    raise SystemExit(1)


WRONG = {
    "raises": raising,
    "exits": leaving,
    "the same": lambda cap: cap,
    "less": lambda cap: cap - 1,
    "nothing": lambda _: 0,
    "negative": lambda _: -5,
    "text": lambda _: "2000",
    "a float": lambda cap: cap * 1.5,
    "infinite": lambda _: float("inf"),
    "true": lambda _: True,
}


@pytest.mark.parametrize("kind", WRONG)
@virtual
async def test_a_cap_that_is_none_or_no_larger_ends_the_ladder(kind):
    recorder = EventRecorder()
    model = ScriptedModel([truncated("half of it")]).forever(say(" and the rest"))
    agent = Agent(
        model=model,
        limits=Limits(max_iterations=5),
        max_output_tokens=100,
        max_output_tokens_recovery=Ladder(WRONG[kind]),
        event_sink=recorder,
    )
    result = await agent.run("go")
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "half of it and the rest")
    assert len(model.requests) == 2
    failed = [event.plugin for event in recorder.of(HookFailed)]
    assert failed == ([] if kind in ("the same", "less", "nothing", "negative") else ["Ladder"])
