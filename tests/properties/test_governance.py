"""Whatever a model does, under whatever limits: they hold, the end is told truthfully, something is handed over."""

import asyncio
import os
from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import (
    Agent,
    AgentState,
    Budget,
    CancelToken,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    MaxTokensRecovery,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    Texts,
    ToolContext,
    Usage,
    tool,
)
from glidepath.errors import ContextOverflowError, RateLimitedError, RejectedError, TransientError
from glidepath.events import LandingStarted, NoticeSent, RunEnded
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    empty,
    fail,
    hang,
    no_end,
    refuse,
    say,
    thinking,
    transcript_errors,
    truncated,
)

CAMPAIGN = os.environ.get("GLIDEPATH_CAMPAIGN") == "1"
if CAMPAIGN:
    pytestmark = pytest.mark.slow

words = st.sampled_from(["", "x", "some words", "word " * 50, "word " * 2_000, "字字字 " * 150])
delays = st.sampled_from([None, None, None, 0.0, 0.3, 5.0])
usages = st.sampled_from(
    [None, None, None, "missing", Usage(), Usage(input=-1, output=5), Usage(input=900, output=900)]
)
tool_calls = st.one_of(
    st.builds(lambda n: call("work", item=n), st.integers(0, 3)),
    st.builds(lambda s: call("wait", seconds=s), st.sampled_from([0.0, 2.0, 3600.0])),
    st.just(call("broken", item=1)),
    st.just(call("nothing")),
    st.just(call("deliver", text="delivered")),
    st.just(call("delegate", task="a part")),
    st.just(call("work", wrong="x")),
)
errors = st.sampled_from(
    [
        TransientError("x"),
        RejectedError("x"),
        RateLimitedError("x", retry_after=1),
        ContextOverflowError("x"),
        ValueError("x"),
    ]
)
texts = st.builds(say, words, delay=delays, usage=usages)
turns = st.one_of(
    texts,
    tool_calls,
    st.builds(lambda many, text: calls(*many, text=text), st.lists(tool_calls, min_size=1, max_size=4), words),
    st.builds(lambda turn, usage: turn.with_usage(usage), tool_calls, usages),
    st.builds(truncated, words),
    st.builds(truncated, tool_calls),
    st.builds(fail, errors),
    st.builds(lambda error, text: fail(error, text=text), errors, words),
    st.builds(hang, words),
    st.builds(no_end, texts),
    st.builds(thinking, words, texts),
    st.just(empty()),
    st.just(refuse("no")),
)

LAST_PIECE = 10  # this model obeys no cap: its stream is cut after the piece that goes over


def make_limits(**given):
    if given["max_iterations"] is None:
        del given["grace_iterations"]
    return Limits(**given)


limits = st.builds(
    make_limits,
    max_iterations=st.sampled_from([None, 1, 2, 3, 7]),
    max_tokens=st.sampled_from([None, 1_500, 4_000, 30_000]),
    max_cost=st.sampled_from([None, "0.02", "0.5"]),
    timeout=st.sampled_from([2.0, 30.0]),
    max_tool_calls=st.sampled_from([None, 1, 3]),
    max_descendants=st.sampled_from([1, 3]),
    grace_iterations=st.sampled_from([None, 0, 1, 9]),
    landing_seconds=st.sampled_from([0.5, 20]),
)


class Moody(ResourceConstraint):
    """Asks for something at one checkpoint of one turn."""

    def __init__(self, action, turn, checkpoint):
        self.action, self.turn, self.checkpoint = action, turn, checkpoint

    async def validate(self, context):
        if context.iteration == self.turn and context.checkpoint == self.checkpoint:
            return ResourceValidation.violation("moody", notice="a word from the constraint")
        return ResourceValidation.ok()

    def on_violation(self, validation):
        return self.action


moods = st.builds(
    Moody,
    st.sampled_from(list(ResourceAction)),
    st.integers(0, 3),
    st.sampled_from(["pre_flight", "after_model", "after_tools"]),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "landing": st.sampled_from(["withdraw", "steer", "force", "off"]),
        "constraints": st.lists(moods, max_size=2),
        "context_window": st.sampled_from([1_500, 6_000]),
        "guardrails": st.builds(GuardrailsConfig, reserve_tokens=st.sampled_from([0, 3_000])),
        "max_output_tokens_recovery": st.just(MaxTokensRecovery.doubling()),
        "max_output_tokens": st.sampled_from([50, 400]),
        "empty_outcome_retry_budget": st.sampled_from([0, 2]),
        "tool_timeout": st.just(3.0),
    },
)
hands = st.sampled_from([None, None, ("cancel", 0.0), ("cancel", 1.0), ("wind_down", 0.0), ("wind_down", 1.0)])


def make_tools(child):
    @tool
    async def work(item: int) -> str:
        """Work."""
        return f"item {item} " + "fact " * (300 * item)

    @tool
    async def wait(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "waited"

    @tool
    async def broken(item: int) -> str:
        """Fail."""
        raise OSError("broken")

    @tool(terminal=True)
    async def deliver(text: str) -> str:
        """Deliver."""
        return text

    @tool
    async def delegate(task: str, context: ToolContext) -> str:
        """Delegate."""
        return (await context.spawn(child, task)).text

    return [work, wait, broken, deliver, delegate]


def check(result, given, model, recorder, *, honest):
    recorder.assert_legal()
    assert transcript_errors(result.messages, result.pending) == []
    for request in model.requests:
        assert transcript_errors(request.messages) == []
    ended = [event for event in recorder.of(RunEnded) if event.result.run_id == result.run_id]
    assert [event.result for event in ended] == [result]
    # the limits hold, children included
    if given.max_iterations is not None:
        assert result.iterations + sum(child.iterations for child in result.children) <= given.max_iterations
    if honest and given.max_tokens is not None:
        assert result.usage.total <= given.max_tokens + LAST_PIECE
    if honest and given.max_cost is not None:
        assert result.cost <= Decimal(given.max_cost) + Decimal(LAST_PIECE) * 2 / 10**6
    if given.max_tool_calls is not None:
        assert result.tool_calls <= given.max_tool_calls
    assert result.elapsed <= given.timeout + 1.6
    assert len(result.children) <= 3 + 8
    # the end is told truthfully
    done = result.outcome in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP)
    assert result.partial <= (not done)
    assert (result.cause is None) <= (result.outcome is LoopOutcome.DONE)
    assert result.cause is None or (result.cause.source and result.cause.reason and result.cause.action)
    if result.outcome is LoopOutcome.WRAPPED_UP and result.state is not AgentState.COMPLETED:
        assert result.landing_calls == 1
    assert result.landing_calls == len([e for e in recorder.of(LandingStarted) if e.run_id == result.run_id]) <= 1
    ours = [e for e in recorder.of(NoticeSent) if e.run_id == result.run_id and e.reason == "wind_down"]
    notices = [e for e in ours if e.text != Texts().landing]
    assert len(notices) <= 1
    # something is handed over
    assert result.text


async def fly(script, given, more, hand, *, shared):
    recorder = EventRecorder()
    child = Agent(
        model=ScriptedModel(name="child", price=(1, 2)).forever(
            lambda request: call("work", item=0) if request.tools else say("child")
        ),
        tools=make_tools(None)[:1],
        limits=Limits(max_iterations=2),
    )
    model = ScriptedModel(script, price=(1, 2)).forever(say("the end"))
    agent = Agent(
        model=model,
        tools=make_tools(child),
        limits=given,
        plugins=[recorder.as_plugin(children=True)],
        **more,
    )
    token = CancelToken()
    if hand is not None:
        asyncio.get_running_loop().call_later(hand[1], getattr(token, hand[0]), "by hand")
    budget = Budget(Limits(max_tokens=50_000, max_cost="1")) if shared else None
    task = asyncio.current_task()
    result = await agent.run("the task", cancel=token, parent=budget)
    assert task.cancelling() == 0
    honest = all(turn.usage is None for turn in script)
    check(result, given, model, recorder, honest=honest)
    if budget is not None:
        meter = budget.meter
        assert (meter.reserved_tokens, meter.aside_tokens, meter.pledged_tokens) == (0, 0, 0)
        assert (meter.reserved_money, meter.aside_money, meter.pledged_money) == (0, 0, 0)
        assert meter.tokens == result.usage.total
    left = [other for other in asyncio.all_tasks() if other is not task and "abandoned" not in other.get_name()]
    assert left == []


@given(
    script=st.lists(turns, max_size=7),
    given_=limits,
    more=options,
    hand=hands,
    shared=st.booleans(),
)
@pytest.mark.filterwarnings("ignore:.*has no effect without")  # random settings meet without their partners
@settings(max_examples=20_000 if CAMPAIGN else 300, deadline=None)
def test_whatever_happens_the_limits_hold_and_the_end_is_told_truthfully(script, given_, more, hand, shared):
    VirtualClock().run(fly(script, given_, more, hand, shared=shared))
