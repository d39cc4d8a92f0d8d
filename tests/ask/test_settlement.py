"""One rule for what a call costs: a turn, a landing, a checkpoint and a question of a server are settled alike."""

from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, Limits, Usage, tool
from glidepath.errors import TransientError
from glidepath.events import BudgetReserved, BudgetSettled
from glidepath.kernel.model_call import is_implausible
from glidepath.kernel.model_call.settlement import Evidence, _is_believable, settle_usage
from glidepath.kernel.model_call.side_call import SideAccount, SideQuestion, SideRefused, side_call
from glidepath.messages import ReplyInfo, StreamEnd, TextDelta, UserMessage
from glidepath.spi import INSIDE
from glidepath.testing import EventRecorder, ScriptedModel, call, fail, hang, raw, say, virtual

PRICE = (1, 2, None, None, 10)  # a search of the web costs a cent
SEARCHED = raw(TextDelta("some words"), StreamEnd("end_turn", Usage(40, 4), ReplyInfo(web_searches=3)))


@tool
async def server() -> str:
    """A server that asks the run's model something."""
    question = SideQuestion(messages=(UserMessage("a question of some length"),), max_output_tokens=100)
    try:
        return (await side_call(INSIDE.get().run, question, SideAccount("mcp:x", 9, 9_000))).text
    except SideRefused as refused:
        return f"refused: {refused}"


@tool
async def read(doc: int) -> str:
    """Read a document."""
    return f"document {doc}: " + "lorem ipsum " * 120


async def in_a_turn(reply):
    return await flown([call("server"), reply, say("done")], tools=[])


async def for_a_server(reply):
    return await flown([call("server"), reply, say("done")], tools=[server])


async def for_a_checkpoint(reply):
    turns = iter([call("read", doc=number) for number in range(12)])

    def step(request):
        return reply if "checkpoint" in request.system_prompt else next(turns, say("done"))

    model = ScriptedModel().forever(step)
    return await flown(model, tools=[read], context_strategy="summarize", context_window=4_000, max_output_tokens=200)


async def flown(model, **settings):
    recorder = EventRecorder()
    model = ScriptedModel(model) if isinstance(model, list) else model
    settings = {"limits": Limits(max_iterations=30), "prices": {"scripted": PRICE}, "max_retries": 0, **settings}
    settings.setdefault("system_prompt", "Be brief.")
    result = await Agent(model=model, event_sink=recorder, call_timeout=20, **settings).run("go")
    return result, recorder.of(BudgetReserved), recorder.of(BudgetSettled)


WAYS = pytest.mark.parametrize("way", [in_a_turn, for_a_server, for_a_checkpoint], ids=lambda way: way.__name__)


@WAYS
@virtual
async def test_searches_of_the_web_are_paid_whoever_asked(way):
    result, _, settled = await way(SEARCHED)
    assert Decimal("0.03") < max(event.cost for event in settled) < Decimal("0.04")
    assert result.cost == sum(event.cost for event in settled)


@WAYS
@virtual
async def test_a_call_that_fails_before_its_first_delta_is_free_and_settled(way):
    result, reserved, settled = await way(fail(TransientError("down")))
    assert len(reserved) == len(settled)
    free = [event for event in settled if not event.usage.total]
    assert free
    assert all(event.picodollars == 0 and event.refunded > 0 for event in free)
    assert result.usage == sum([event.usage for event in settled], Usage())


@WAYS
@virtual
async def test_a_call_that_we_stop_before_its_first_delta_is_charged_at_our_estimate(way):
    result, reserved, settled = await way(hang())
    assert len(reserved) == len(settled)
    assert any(event.usage.estimated and event.usage.input for event in settled)
    assert result.usage == sum([event.usage for event in settled], Usage())


@given(
    estimate=st.integers(0, 60),
    size=st.integers(0, 300),
    given_=st.integers(0, 60) | st.sampled_from([-1, True, 2.5, None, 10**6]),
    written=st.integers(0, 40) | st.sampled_from([-1, True, 2.5, None, 10**6]),
    more=st.just((0, 0, 0, False)) | st.tuples(*[st.integers(0, 3)] * 3, st.booleans()),
)
def test_a_report_that_is_taken_at_first_sight_is_what_a_close_look_charges(estimate, size, given_, written, more):
    """The early exit and the whole rule know the same figures: whoever changes one of them sees it here."""
    reported = Usage(given_, written, *more)
    if not _is_believable(reported, estimate, size):
        return
    known = Evidence(estimate, estimate + 10, size, lambda: size // 4 + 1, lambda: 0, lambda given: given)
    assert settle_usage(reported, known) is reported
    assert not is_implausible(reported, estimate, size)
