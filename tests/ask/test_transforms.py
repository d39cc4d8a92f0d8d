"""What plugins add to the view is paid for before it is sent, or left out."""

import pytest

from glidepath import Agent, Budget, Limits, LoopOutcome, Plugin, Usage, tool
from glidepath.events import HookFailed
from glidepath.messages import ReasoningDelta, StreamEnd, TextDelta, ToolCallDelta, UserMessage
from glidepath.testing import EventRecorder, ScriptedModel, say, virtual

PRICE = ("3", "15")


class Library(Plugin):
    """Adds documents to every view, as retrieval does."""

    def __init__(self, characters):
        self.document = UserMessage("some facts " * (characters // 11), internal=True, reason="retrieved")

    def context_transform(self, context):
        return [self.document, *context.messages]


class Reader:
    """Calls a tool until it has none, and counts what it was really sent and has written."""

    name = "reader"
    max_output_tokens = 1_000
    price = PRICE

    def __init__(self, *, reports=True):
        self.reports = reports
        self.sent, self.calls = [], 0

    async def stream(self, request):
        self.calls += 1
        sent = sum(len(message.text) for message in request.messages) // 4
        self.sent.append(sent)
        if request.tools:
            yield ToolCallDelta(0, f"c{self.calls}", "read", f'{{"page": {self.calls}}}')
        else:
            yield TextDelta("That is what I know.")
        usage = Usage(sent, 20) if self.reports else None
        yield StreamEnd("tool_use" if request.tools else "end_turn", usage)

    @property
    def tokens(self):
        return sum(self.sent) + 20 * self.calls


@tool
def read(page: int) -> str:
    """Read a page."""
    return f"page {page} " + "of the book " * 100


@pytest.mark.parametrize("reports", [True, False], ids=["usage", "no usage"])
@pytest.mark.parametrize("characters", [4_000, 40_000, 400_000])
@pytest.mark.parametrize("limits", [{"max_tokens": 20_000}, {"max_cost": "0.06"}], ids=["tokens", "money"])
@virtual
async def test_g4_what_plugins_add_never_exceeds_a_budget(limits, characters, reports):
    model, recorder = Reader(reports=reports), EventRecorder()
    agent = Agent(
        model=model,
        tools=[read],
        limits=Limits(max_iterations=100, **limits),
        plugins=[Library(characters)],
        event_sink=recorder,
    )
    result = await agent.run("Read it all.")
    assert result.outcome in {LoopOutcome.WRAPPED_UP, LoopOutcome.CUT_OFF}
    assert result.text
    if "max_tokens" in limits:
        assert model.tokens <= 20_000
        assert result.usage.total <= 20_000
    assert (sum(model.sent) * 3 + model.calls * 20 * 15) / 10**6 <= 0.06
    if characters == 400_000:
        faults = [event for event in recorder.events if isinstance(event, HookFailed)]
        assert "more than the budget allows" in faults[0].error
        assert max(model.sent) < 20_000


@virtual
async def test_g4_what_plugins_add_is_charged_when_the_model_reports_nothing():
    model = Reader(reports=False)
    agent = Agent(model=model, tools=[read], limits=Limits(max_iterations=3), plugins=[Library(40_000)])
    result = await agent.run("Read it all.")
    assert result.usage.total >= model.tokens


@virtual
async def test_g4_agents_with_retrieval_share_a_budget():
    import asyncio

    model = Reader()
    agent = Agent(model=model, tools=[read], limits=Limits(max_iterations=50), plugins=[Library(8_000)])
    budget = Budget(Limits(max_tokens=100_000))
    await asyncio.gather(*[agent.run("Read it all.", parent=budget) for _ in range(8)])
    assert model.tokens <= 100_000


@virtual
async def test_a_view_with_half_a_character_is_skipped_and_the_run_goes_on():
    class Broken(Plugin):
        def context_transform(self, context):
            return [UserMessage("half \ud800 a pair"), *context.messages]

    recorder = EventRecorder()
    model = ScriptedModel([say("done")])
    agent = Agent(model=model, limits=Limits(max_iterations=2), plugins=[Broken()], event_sink=recorder)
    assert (await agent.run("go")).outcome is LoopOutcome.DONE
    assert "surrogates not allowed" in recorder.one(HookFailed).error
    assert len(model.requests[0].messages) == 1


class Thinker:
    """An honest model with native reasoning, which is sent back and paid for."""

    name = "thinker"
    vendor = "v"
    max_output_tokens = 4_000

    def __init__(self, opaque):
        self.opaque = opaque
        self.true = 0

    async def stream(self, request):
        sent = sum(len(message.text) // 4 + 1 for message in request.messages)
        for message in request.messages:
            for block in getattr(message, "blocks", ()):
                sent += 10 if not hasattr(block, "opaque") else len(block.opaque) // 4
        written = 5
        if request.tools and (request.max_output_tokens or 4_000) >= self.opaque // 4 + 20:
            yield ReasoningDelta(opaque="o" * self.opaque, vendor="v")
            yield ToolCallDelta(0, f"c{self.true}", "read", '{"page": 1}')
            written += self.opaque // 4 + 10
        else:
            yield TextDelta("That is what I know.")
        self.true += sent + written
        yield StreamEnd("tool_use" if written > 5 else "end_turn", Usage(sent, written))


@pytest.mark.parametrize("opaque", [400, 4_000, 12_000])
@pytest.mark.parametrize("limit", [20_000, 60_000])
@virtual
async def test_g4_native_reasoning_that_is_sent_back_is_in_the_estimate(limit, opaque):
    model = Thinker(opaque)
    result = await Agent(model=model, tools=[read], limits=Limits(max_tokens=limit, max_iterations=200)).run("go")
    assert model.true <= limit
    assert result.usage.total <= limit
    assert not result.usage.estimated
