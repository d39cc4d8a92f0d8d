"""Constraints that answer at once are asked together, those that wait one by one: nobody can tell the difference."""

import asyncio
from types import coroutine

import pytest

from glidepath import AgentState, LoopOutcome, ResourceAction, ResourceConstraint, ResourceValidation
from glidepath.testing import virtual

from .chain import fly, named


class Answer:
    """Something that can be awaited and is no coroutine."""

    def __init__(self, seconds=0.0, **answer):
        self.seconds, self.answer = seconds, ResourceValidation(**{"violated": False, **answer})

    def __await__(self):
        yield from asyncio.sleep(self.seconds).__await__()
        return self.answer


class Gives(ResourceConstraint):
    """Answers with what `make` makes."""

    def __init__(self, name, make):
        self.name, self.make, self.asked = name, make, 0

    def validate(self, context):
        self.asked += 1
        return self.make()


async def at_once():
    return ResourceValidation.ok()


async def later():
    await asyncio.sleep(0.4)
    return ResourceValidation.ok()


async def done():
    future = asyncio.get_running_loop().create_future()
    future.set_result(ResourceValidation.ok())
    return await future


def a_future():
    future = asyncio.get_running_loop().create_future()
    future.set_result(ResourceValidation.ok())
    return future


WAYS = {
    "a coroutine": at_once,
    "a plain answer": ResourceValidation.ok,
    "a coroutine that waits": later,
    "a coroutine that need not wait": done,
    "a future": a_future,
    "an awaitable": Answer,
    "an awaitable that waits": lambda: Answer(0.4),
}


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
@virtual
async def test_whatever_way_constraints_answer_all_are_asked_at_every_checkpoint(first, second):
    chain = [Gives("a", WAYS[first]), Gives("b", WAYS[second]), Gives("c", at_once)]
    result, _ = await fly(*chain, turns=2)
    assert result.outcome is LoopOutcome.DONE
    assert {one.asked for one in chain} == {8}  # three checkpoints in two turns, two in the last
    assert [record.constraint for record in result.validations][-3:] == ["a", "b", "c"]


@virtual
async def test_each_constraint_that_waits_has_its_own_time():
    chain = [Gives(name, later) for name in "abc"]
    result, _ = await fly(*chain, turns=1, constraint_timeout=0.5)
    assert result.outcome is LoopOutcome.DONE
    assert result.elapsed == pytest.approx(5 * 3 * 0.4)


@virtual
async def test_a_constraint_that_lasts_too_long_behind_one_that_waits_is_the_one_that_is_named():
    chain = [Gives("patient", later), Gives("slow", lambda: Answer(9.0)), Gives("quick", at_once)]
    result, _ = await fly(*chain, constraint_timeout=0.5)
    assert (result.state, result.cause.source) == (AgentState.ERROR, "slow")
    assert result.cause.reason == "slow did not answer within 0.5 s"
    assert chain[2].asked == 1


@virtual
async def test_constraints_behind_one_that_is_let_go_of_are_asked_once_each():
    async def stubborn():
        while True:
            try:
                await asyncio.sleep(0.3)
            except asyncio.CancelledError:
                await asyncio.sleep(5)
                return ResourceValidation.ok()

    chain = [Gives("stubborn", stubborn), Gives("quick", at_once), named("stop", ResourceAction.EMERGENCY_STOP, turn=0)]
    result, _ = await fly(*chain, constraint_timeout=0.1)
    assert (result.cause.source, chain[1].asked) == ("stop", 1)
    await asyncio.sleep(10)
    assert chain[1].asked == 1


@virtual
async def test_a_violation_after_a_wait_counts_and_the_rest_are_asked():
    quick = Gives("quick", at_once)
    result, _ = await fly(Gives("late", lambda: Answer(0.2, violated=True, reason="too much")), quick)
    assert (result.cause.source, result.cause.reason) == ("late", "too much")
    assert quick.asked == 1


@pytest.mark.parametrize("odd", ["a generator", "a list"])
@virtual
async def test_g9_what_cannot_be_awaited_is_not_taken_for_an_answer(odd):
    @coroutine
    def generator():
        yield
        return ResourceValidation.ok()

    result, _ = await fly(Gives("odd", generator if odd == "a generator" else list))
    assert (result.state, result.cause.source) == (AgentState.ERROR, "odd")
    assert "not ResourceValidation" in result.cause.reason
