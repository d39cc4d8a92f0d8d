"""One rule for what a call costs: a turn, a landing, a checkpoint and a question of a server are settled alike."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, CancelToken, Limits, LoopOutcome, Usage, tool
from glidepath.errors import TransientError
from glidepath.events import BudgetReserved, BudgetSettled
from glidepath.kernel.model_call import is_implausible
from glidepath.kernel.model_call.settlement import Evidence, _is_believable, settle_usage
from glidepath.kernel.model_call.side_call import SideAccount, SideQuestion, SideRefused, side_call
from glidepath.messages import ReplyInfo, StreamEnd, TextDelta, UserMessage
from glidepath.run import MODEL_FAILURES
from glidepath.sessions import MemoryStore
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
    how = {name: settings.pop(name) for name in ("cancel", "session") if name in settings}
    result = await Agent(model=model, event_sink=recorder, call_timeout=20, **settings).run("go", **how)
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


# --- a question of a server: when it is refused ---------------------------------------------------------------------


async def asking(before, **settings):
    """A tool that asks the run's model after `before(run)`; what it was told, and what was reserved and settled."""
    said = []

    async def ask(run):
        await before(run)
        question = SideQuestion(messages=(UserMessage("a question of some length"),), max_output_tokens=100)
        try:
            said.append((await side_call(run, question, SideAccount("mcp:x", 9, 9_000))).text)
        except SideRefused as refused:
            said.append(f"refused: {refused}")

    @tool(timeout=90)
    async def server() -> str:
        """A server that asks the run's model something, in a task of its own."""
        await asyncio.shield(asyncio.create_task(ask(INSIDE.get().run)))
        return said[-1]

    turns = settings.pop("turns", [call("server"), say("answer"), say("done")])
    result, reserved, settled = await flown(turns, tools=[server], **settings)
    await asyncio.sleep(5)  # a server is not stopped with the run
    return said, result, len(reserved), len(settled)


class Slow(MemoryStore):
    """Takes a second for each write, and tells of it."""

    heard = None

    def append(self, lease, commit, **more):
        super().append(lease, commit, **more)
        if self.heard is not None:
            self.heard()
        return asyncio.ensure_future(asyncio.sleep(1))


@virtual
async def test_a_question_is_on_disk_before_it_goes_out_also_where_the_disk_is_slow():
    asked_at = []

    def reply(_request):
        asked_at.append(asyncio.get_running_loop().time())
        return say("answer")

    async def look(run):
        asked_at.append(run.watch.time())

    said, result, reserved, settled = await asking(
        look, store=Slow(), turns=[call("server"), reply, say("done")], session="s"
    )
    assert (said, result.text, reserved, settled) == (["answer"], "done", 3, 3)
    assert asked_at[1] - asked_at[0] >= 1


@pytest.mark.parametrize("window", [None, 4_000], ids=["a turn", "a checkpoint"])
@virtual
async def test_a_checkpoint_waits_for_a_slow_disk_like_a_turn(window):
    turns = iter([call("read", doc=number) for number in range(12)])

    def step(request):
        return say("GIST") if "checkpoint" in request.system_prompt else next(turns, say("done"))

    result, reserved, settled = await flown(
        ScriptedModel().forever(step), tools=[read], context_strategy="summarize", context_window=window,
        max_output_tokens=200, store=Slow(), session="s",
    )  # fmt: skip
    assert result.text == "done"
    assert len(reserved) == len(settled)
    assert (len(reserved) > result.iterations) is (window is not None)
    assert result.elapsed >= len(reserved)  # a second for the record of each call at the least


@virtual
async def test_g7_no_question_is_asked_in_a_run_that_is_being_stopped():
    token = CancelToken()

    async def stop(_run):
        token.cancel("enough")

    said, result, reserved, settled = await asking(stop, cancel=token)
    assert said == ["refused: the run is being stopped"]
    assert (reserved, settled) == (1, 1)
    assert result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_g7_a_stop_while_the_question_is_written_down_keeps_it_from_going_out():
    token = CancelToken()

    store = Slow()

    async def before(_run):
        store.heard = token.cancel

    said, result, reserved, settled = await asking(before, cancel=token, store=store, session="s")
    assert said == ["refused: the run is being stopped"]
    assert (reserved, settled) == (1, 1)
    assert result.outcome is LoopOutcome.CANCELLED


@virtual
async def test_a_model_that_fails_again_and_again_is_not_asked():
    async def break_it(run):
        for _ in range(MODEL_FAILURES):
            run.plan.health.record_failure(run.watch.time(), probe=False)

    said, _, reserved, settled = await asking(break_it, turns=[call("server"), say("done")])
    assert said == ["refused: the model is failing and is left alone for a while"]
    assert reserved == settled


@virtual
async def test_a_model_that_raises_what_it_must_not_is_a_refusal_and_in_the_log(caplog):
    async def nothing(_run):
        pass

    said, result, reserved, settled = await asking(
        nothing, turns=[call("server"), fail(ZeroDivisionError("a bug of the adapter")), say("done")]
    )
    assert said == ["refused: the model failed: ZeroDivisionError: a bug of the adapter"]
    assert result.text == "done"
    assert reserved == settled
    assert "ZeroDivisionError" in caplog.text


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
