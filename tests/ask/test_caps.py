"""An output cap holds even when the model does not obey it, and a reply is paid for as it grows."""

import pytest

from glidepath import Agent, AgentState, GuardrailsConfig, Limits, LoopOutcome
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta
from glidepath.models import StreamEnd as End
from glidepath.testing import ScriptedModel, raw, virtual

NO_RECOVERY = GuardrailsConfig(max_tokens_recoveries=0)


class Endless:
    """Writes on and on, and counts how much of it was taken."""

    name = "endless"

    def __init__(self, piece, *, price=None):
        self.piece = piece
        self.price = price
        self.taken = 0

    async def stream(self, request):
        while True:
            self.taken += len(self.piece)
            yield TextDelta(self.piece)


@pytest.mark.parametrize("limits", [{"max_iterations": 3}, {"max_iterations": 3, "max_tokens": 10**6}])
@virtual
async def test_a_reply_far_beyond_its_output_cap_is_cut(limits):
    model = Endless("word " * 10)
    agent = Agent(model=model, limits=Limits(**limits), max_output_tokens=100, guardrails=NO_RECOVERY)
    result = await agent.run("go")
    assert (result.state, result.outcome) == (AgentState.COMPLETED, LoopOutcome.CUT_OFF)
    assert 100 * 16 < model.taken < 100 * 16 + 4096
    assert result.text.startswith("word word")


@virtual
async def test_a_reply_within_its_output_cap_is_whole_however_long_its_tokens_are():
    text = "antidisestablishmentarianism " * 50
    agent = Agent(model=ScriptedModel([text]), limits=Limits(max_iterations=3), max_output_tokens=100)
    result = await agent.run("go")
    assert result.outcome is LoopOutcome.DONE
    assert result.text == text


@virtual
async def test_a_reply_in_large_pieces_is_paid_for_piece_by_piece():
    """A piece of 5,000 tokens is more than a slice: what was streamed is reserved before more is taken."""
    model = Endless("x" * 20_000)
    agent = Agent(model=model, limits=Limits(max_tokens=20_000), guardrails=NO_RECOVERY)
    result = await agent.run("go")
    assert result.state is AgentState.BUDGET_EXCEEDED
    assert model.taken <= 5 * 20_000  # four fit; the fifth is cut where it came


@virtual
async def test_a_call_in_large_fragments_that_outgrows_the_budget_never_runs():
    fragments = [ToolCallDelta(index=0, arguments="x" * 100_000)] * 20
    first = ToolCallDelta(index=0, id="c1", name="work", arguments='{"blob":"')
    model = ScriptedModel([raw(first, *fragments, ToolCallDelta(index=0, arguments='"}'), StreamEnd("tool_use"))])
    ran = []

    def work(blob: str) -> str:
        """Work."""
        ran.append(blob)
        return "done"

    agent = Agent(model=model.forever(raw(TextDelta("ANSWER"), End())), tools=[work], limits=Limits(max_tokens=50_000))
    result = await agent.run("go")
    assert result.state is AgentState.BUDGET_EXCEEDED
    assert ran == []
    assert all(message.is_error for message in result.messages if message.role == "tool_result")


@virtual
async def test_something_that_is_no_delta_is_a_defect_of_the_model_and_is_not_tried_again():
    with ScriptedModel([raw("no delta at all")]) as model:
        result = await Agent(model=model, limits=Limits(max_iterations=3)).run("go")
    assert (result.state, result.outcome, result.cause.source) == (AgentState.ERROR, LoopOutcome.FAILED, "provider")
    assert "streamed a str, which is not a delta" in result.cause.reason


@virtual
async def test_a_reply_that_outgrows_its_reservation_uses_all_that_is_left_and_no_more():
    """Less than a whole slice is left: the reply goes on, and whatever size its pieces are, what it cost still fits."""
    model = Endless("word ")
    limits = Limits(max_tokens=9_000, max_iterations=5)
    result = await Agent(model=model, limits=limits, guardrails=NO_RECOVERY, landing="off").run("go")
    assert result.state is AgentState.BUDGET_EXCEEDED
    assert 7_700 <= result.usage.total <= 9_000
    assert result.usage.estimated


@pytest.mark.parametrize("maximum", [None, 1000], ids=["unknown", "known"])
@virtual
async def test_g1_an_endless_reply_under_a_turn_limit_alone_is_cut_at_the_ceiling_of_a_reply(maximum):
    model = Endless("word " * 10)
    model.max_output_tokens = maximum
    result = await Agent(model=model, limits=Limits(max_iterations=3), guardrails=NO_RECOVERY).run("go")
    ceiling = 32_768 * 4 if maximum is None else maximum * 8
    assert (result.state, result.outcome) == (AgentState.COMPLETED, LoopOutcome.CUT_OFF)
    assert ceiling < model.taken <= ceiling + 4096
    assert result.text.startswith("word word")


@virtual
async def test_an_endless_reply_that_is_cut_at_its_ceiling_ends_the_run_after_its_recoveries():
    model = Endless("word " * 10)
    result = await Agent(model=model, limits=Limits(max_iterations=10)).run("go")
    assert result.outcome is LoopOutcome.CUT_OFF
    assert model.taken <= 3 * (32_768 * 4 + 4096)  # the reply and two continuations
