"""The landing keeps the prefix that the provider has cached when what is left pays for it, and compacts otherwise."""

from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import Agent, ConfigurationError, GuardrailsConfig, Limits, LoopOutcome, Plugin, Usage, tool
from glidepath.events import BudgetReserved
from glidepath.models import StreamEnd, TextDelta, ToolCallDelta
from glidepath.spi import Gate
from glidepath.testing import EventRecorder, ScriptedModel, VirtualClock, call, say
from glidepath.tools import Tool
from glidepath.values import encode

ANSWER = "This is what I found."


def bulky(size):
    """A tool whose definition has so many characters, and which returns so much text."""

    async def work(item: int = 0, size: int = 0) -> str:
        return f"item {item}: " + "fact " * (size // 5)

    properties = {"item": {"type": "integer", "description": "word " * (size // 5)}, "size": {"type": "integer"}}
    return Tool(name="work", description="Work.", parameters={"type": "object", "properties": properties}, fn=work)


def working(**arguments):
    return lambda request: call("work", item=len(request.messages), **arguments) if request.tools else say(ANSWER)


def fly(model, limits, *, tools, **settings):
    settings.setdefault("guardrails", GuardrailsConfig(reserve_tokens=0))
    agent = Agent(model=model, tools=tools, limits=limits, **settings)
    return VirtualClock().run(agent.run("the task"))


def test_a_landing_at_the_turn_limit_sends_all_that_was_sent_before():
    model = ScriptedModel().forever(working(size=400))
    result = fly(model, Limits(max_iterations=8, max_tokens=100_000), tools=[bulky(2_000)])
    before, landing = model.requests[-2:]
    assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, ANSWER)
    assert (landing.tools, landing.defined_tools) == ((), ("work",))
    assert landing.messages[: len(before.messages)] == before.messages


def test_a_landing_writes_less_before_it_gives_the_prefix_up():
    """Its largest reply does not fit what is left; a shorter one does."""
    model = ScriptedModel(max_output_tokens=64_000).forever(working(size=400))
    result = fly(model, Limits(max_iterations=8, max_tokens=30_000), tools=[bulky(400)], landing="steer")
    before, landing = model.requests[-2:]
    assert result.landing_calls == 1
    assert landing.messages[: len(before.messages)] == before.messages
    assert 1_024 / 1.1 <= landing.max_output_tokens < 64_000


def test_g5_a_landing_that_cannot_pay_for_the_prefix_is_compacted_and_keeps_the_definitions():
    model = ScriptedModel().forever(working(size=3_000))
    result = fly(model, Limits(max_tokens=20_000), tools=[bulky(2_000)])
    before, landing = model.requests[-2:]
    assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, ANSWER)
    assert landing.messages[: len(before.messages)] != before.messages
    assert landing.messages[0].text == "the task"
    assert landing.defined_tools == ("work",)


def test_g5_definitions_that_the_reserve_cannot_hold_are_left_out_of_the_landing():
    model = ScriptedModel().forever(working(size=400))
    result = fly(model, Limits(max_tokens=8_000), tools=[bulky(9_000)])
    assert (result.outcome, result.text) == (LoopOutcome.WRAPPED_UP, ANSWER)
    assert model.requests[-1].defined_tools == ()
    assert model.requests[0].defined_tools == ("work",)
    assert result.usage.total <= 8_000


def test_a_reserve_that_counts_the_definitions_never_keeps_a_run_on_the_ground():
    model = ScriptedModel([call("work"), say("done")])
    result = fly(model, Limits(max_tokens=8_500), tools=[bulky(9_000)], max_output_tokens=300)
    assert result.iterations >= 1


class Greedy:
    """Writes as much as it may, calls as long as it can, and counts what it was really sent."""

    name = "greedy"
    price = (Decimal(3), Decimal(15))

    def __init__(self, longest, size):
        self.longest = longest
        self.size = size
        self.max_output_tokens = longest
        self.sent = self.written = 0
        self.calls = []

    async def stream(self, request):
        specs = request.defined_tools or request.tools
        texts = [request.system_prompt, *(message.text for message in request.messages)]
        sent = (sum(map(len, texts)) + (len(encode(specs)) if specs else 0)) // 4
        cap = min(self.longest, request.max_output_tokens or self.longest)
        calls = bool(request.tools) and cap > 60
        said = cap - 40 if calls else cap
        self.sent += sent
        self.calls.append(sent)
        for start in range(0, said, 50):
            size = min(50, said - start)
            self.written += size
            self.calls[-1] += size
            yield TextDelta("abc " * size)
        if calls:
            self.written += 20
            self.calls[-1] += 20
            yield ToolCallDelta(
                index=0, id=f"c{self.sent}", name="work", arguments=f'{{"item":{self.sent},"size":{self.size}}}'
            )
        usage = Usage(input=sent, output=said + 20 * calls)
        yield StreamEnd(stop_reason="tool_use" if calls else "end_turn", usage=usage)

    def cost(self):
        return (self.sent * self.price[0] + self.written * self.price[1]) / 10**6


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(1_200, 40_000),
    bulk=st.integers(0, 20_000),
    size=st.integers(0, 6_000),
    longest=st.sampled_from([100, 500, 4_000]),
    paid=st.booleans(),
    turns=st.sampled_from([1, 3, 40]),
)
def test_g4_a_landing_with_definitions_never_goes_over_a_limit(limit, bulk, size, longest, paid, turns):
    model = Greedy(longest, size)
    money = Decimal(limit) * 5 / 10**6
    limits = Limits(max_cost=money, max_iterations=turns) if paid else Limits(max_tokens=limit, max_iterations=turns)

    recorder = EventRecorder()
    try:
        result = fly(model, limits, tools=[bulky(bulk)], event_sink=recorder)
    except ConfigurationError:
        return  # it can never fit, and is refused before take-off
    assert result.text
    if not paid:  # money buys more input or more output: only the sum of both is reserved
        reserved = [event.tokens for event in recorder.of(BudgetReserved)]
        assert all(used <= set_aside for used, set_aside in zip(model.calls, reserved, strict=True))
    assert model.cost() <= money if paid else model.sent + model.written <= limit


class OnlyOther(Plugin):
    """Allows everything but what the configuration forces."""

    name = "only-other"

    def tool_gate(self, context):
        return Gate(allowed=frozenset({"other"})) if context.iteration == 0 else None


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", ["auto", "auto", "auto"]),
        ("required", ["required", "required", "none"]),
        ("work", ["auto", "work", "none"]),
    ],
)
def test_no_call_is_forced_that_would_be_refused(choice, sent):
    @tool
    async def other() -> str:
        """Something else."""
        return "other"

    model = ScriptedModel().forever(lambda request: call(request.tools[-1].name) if request.tools else say(ANSWER))
    limits = Limits(max_iterations=2, grace_iterations=0)
    fly(model, limits, tools=[other, bulky(0)], plugins=[OnlyOther()], tool_choice=choice)
    assert [request.tool_choice for request in model.requests] == sent
    assert [request.defined_tools for request in model.requests] == [("other", "work")] * 3
