"""A call that failed keeps nothing alive: the garbage collector does not look at calls, so nothing may lead back."""

import gc

import pytest

from glidepath import Agent, Limits
from glidepath.errors import (
    ContextOverflowError,
    EmptyResponseError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    TransientError,
)
from glidepath.messages import StreamEnd, TextDelta, Usage
from glidepath.run import Run
from glidepath.testing import VirtualClock

ERRORS = [
    TransientError,
    RateLimitedError,
    RejectedError,
    ContextOverflowError,
    RefusedError,
    EmptyResponseError,
    ValueError,
    SystemExit,
    KeyboardInterrupt,
]


class Remembers:
    """A model that keeps its last error, as many clients do."""

    name = "remembers"
    max_output_tokens = 100

    def __init__(self, error, times):
        self.error, self.times = error, times
        self.last = None

    async def stream(self, request):
        yield TextDelta("some")
        if self.times:
            self.times -= 1
            self.last = self.error("broken")
            raise self.last
        yield StreamEnd("end_turn", Usage(1, 1))


def flying():
    gc.collect()
    return sum(type(one) is Run for one in gc.get_objects())


def left_by(make):
    """How many runs are still there after three agents have flown and are gone."""
    before = flying()

    async def program():
        for _ in range(3):
            await Agent(limits=Limits(max_iterations=3), **make()).run("go")

    VirtualClock().run(program())
    return flying() - before


@pytest.mark.parametrize("times", [1, 9], ids=["once", "every time"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_a_model_that_keeps_its_error_does_not_keep_its_run(error, times):
    assert left_by(lambda: {"model": Remembers(error, times)}) == 0


def test_models_that_fall_back_on_one_another_do_not_keep_their_run():
    def make():
        return {"model": Remembers(RejectedError, 9), "fallback_models": [Remembers(TransientError, 1)]}

    assert left_by(make) == 0
