"""How a run can end: every row of SPEC 4 that needs neither a store nor a person (G1, G2, G3)."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from glidepath import (
    Agent,
    AgentState,
    CancelToken,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
    Usage,
    tool,
)
from glidepath.constraints import KillSwitchConstraint
from glidepath.errors import FatalToolError, RefusedError, TransientError
from glidepath.messages import StopReason
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    call,
    calls,
    empty,
    fail,
    hang,
    refuse,
    say,
    transcript_errors,
    truncated,
    virtual,
)
from glidepath.values import ENDINGS

S, O = AgentState, LoopOutcome  # noqa: E741 - the two columns of the table
LIMITS = Limits(max_iterations=10)
PRICES = {"scripted": ("1", "1")}  # a dollar per million tokens, in and out


@tool
async def work(n: int = 0) -> str:
    return f"worked {n}"


@tool
async def slow_work() -> str:
    await asyncio.sleep(1000)
    return "never"


@tool(terminal=True)
async def deliver(answer: str) -> str:
    return answer


@tool
async def explode() -> str:
    raise FatalToolError("the disk is gone")


class Stop(ResourceConstraint):
    state = AgentState.BUDGET_EXCEEDED

    def __init__(self, action, *, when="pre_flight", iteration=1):
        self.action, self.when, self.iteration = action, when, iteration

    async def validate(self, context):
        due = context.checkpoint == self.when and context.iteration >= self.iteration
        return ResourceValidation.violation("house rule", seen=context.iteration) if due else ResourceValidation.ok()

    def on_violation(self, validation):
        return self.action


class Crashing(ResourceConstraint):
    async def validate(self, context):
        if context.iteration:
            raise ValueError("broken constraint")
        return ResourceValidation.ok()


@dataclass
class Row:
    """A script and settings, and exactly how the run must end."""

    state: AgentState
    outcome: LoopOutcome
    source: str | None
    script: list
    text: str
    iterations: int
    calls: int
    partial: bool = False
    landing_calls: int = 0
    stop_reason: StopReason = StopReason.END_TURN
    settings: dict = field(default_factory=dict)
    cancel: str = ""  # "cancel" or "wind_down", after half a second


def spend(turn, total):
    return turn.with_usage(Usage(total - 10, 10))


T, X = StopReason.TOOL_USE, StopReason.MAX_TOKENS
ROWS = {
    "completed done, by text": Row(S.COMPLETED, O.DONE, None, ["hello"], "hello", 1, 1),
    "completed done, by a terminal tool": Row(
        S.COMPLETED, O.DONE, None, [call("deliver", answer="42")], "42", 1, 1, stop_reason=T
    ),
    "completed done, by a terminal tool with words": Row(
        S.COMPLETED, O.DONE, None, [call("deliver", answer="42").with_text("here:")], "here:", 1, 1, stop_reason=T
    ),
    "completed done, refused by the model": Row(
        S.COMPLETED, O.DONE, "provider", [refuse("I won't")], "I won't", 1, 1, stop_reason=StopReason.REFUSAL
    ),
    "completed wrapped up, after the notice": Row(
        S.COMPLETED,
        O.WRAPPED_UP,
        "GracefulTurnLimit",
        [call("work"), "wrapped"],
        "wrapped",
        2,
        2,
        settings={"limits": Limits(max_iterations=2)},
    ),
    "completed wrapped up, under a withdrawal": Row(
        S.COMPLETED, O.WRAPPED_UP, "repetition", [*[call("work", n=1)] * 4, "fine, then"], "fine, then", 5, 5
    ),
    "completed wrapped up, asked from outside": Row(
        S.COMPLETED,
        O.WRAPPED_UP,
        "person",
        [call("slow_work"), "wrapped"],
        "wrapped",
        2,
        2,
        settings={"tool_timeout": 1},
        cancel="wind_down",
    ),
    "completed cut off": Row(
        S.COMPLETED,
        O.CUT_OFF,
        "truncation",
        [truncated("one "), truncated("two "), truncated("three")],
        "one two three",
        3,
        3,
        partial=True,
        stop_reason=X,
    ),
    "completed cut off, in its calls": Row(
        S.COMPLETED,
        O.CUT_OFF,
        "truncation",
        [truncated(call("work", n=1).with_text("so ")), truncated(call("work", n=2).with_text("so far"))],
        "so far",
        2,
        2,
        partial=True,
        stop_reason=X,
    ),
    "max steps wrapped up, turns": Row(
        S.MAX_STEPS,
        O.WRAPPED_UP,
        "MaxIterationConstraint",
        [call("work", n=1), call("work", n=2), "landed"],
        "landed",
        2,
        3,
        landing_calls=1,
        settings={"limits": Limits(max_iterations=2, grace_iterations=0)},
    ),
    "max steps wrapped up, at the soft limit": Row(
        S.MAX_STEPS,
        O.WRAPPED_UP,
        "GracefulTurnLimit",
        [call("work", n=1), "landed"],
        "landed",
        1,
        2,
        landing_calls=1,
        settings={"limits": Limits(max_iterations=2), "landing": "force"},
    ),
    "max steps wrapped up, tool calls": Row(
        S.MAX_STEPS,
        O.WRAPPED_UP,
        "ToolCallLimitConstraint",
        [call("work", n=1), call("work", n=2), "landed"],
        "landed",
        2,
        3,
        landing_calls=1,
        settings={"limits": Limits(max_tool_calls=2)},
    ),
    "max steps cut off, no landing": Row(
        S.MAX_STEPS,
        O.CUT_OFF,
        "MaxIterationConstraint",
        [call("work", n=1).with_text("step one")],
        "step one",
        1,
        1,
        partial=True,
        stop_reason=T,
        settings={"limits": Limits(max_iterations=1), "landing": "off"},
    ),
    "max steps cut off, the landing call failed": Row(
        S.MAX_STEPS,
        O.CUT_OFF,
        "MaxIterationConstraint",
        [call("work", n=1).with_text("step one"), fail(TransientError("down"))],
        "step one",
        1,
        2,
        partial=True,
        landing_calls=1,
        stop_reason=T,
        settings={"limits": Limits(max_iterations=1), "max_retries": 0},
    ),
    "budget exceeded wrapped up, tokens": Row(
        S.BUDGET_EXCEEDED,
        O.WRAPPED_UP,
        "TokenBudgetConstraint",
        [spend(call("work", n=1), 19_000), say("landed", usage=Usage(500, 20))],
        "landed",
        1,
        2,
        landing_calls=1,
        settings={"limits": Limits(max_tokens=20_000)},
    ),
    "budget exceeded wrapped up, money": Row(
        S.BUDGET_EXCEEDED,
        O.WRAPPED_UP,
        "CostLimitConstraint",
        [spend(call("work", n=1), 19_000), say("landed", usage=Usage(500, 20))],
        "landed",
        1,
        2,
        landing_calls=1,
        settings={"limits": Limits(max_cost="0.02"), "prices": PRICES},
    ),
    "budget exceeded wrapped up, a custom constraint": Row(
        S.BUDGET_EXCEEDED,
        O.WRAPPED_UP,
        "Stop",
        [call("work"), "landed"],
        "landed",
        1,
        2,
        landing_calls=1,
        settings={"constraints": [Stop(ResourceAction.GRACEFUL_EXIT)]},
    ),
    "budget exceeded cut off, an emergency stop": Row(
        S.BUDGET_EXCEEDED,
        O.CUT_OFF,
        "Stop",
        [call("work").with_text("so far")],
        "so far",
        1,
        1,
        partial=True,
        stop_reason=T,
        settings={"constraints": [Stop(ResourceAction.EMERGENCY_STOP)]},
    ),
    "timed out wrapped up": Row(
        S.TIMED_OUT,
        O.WRAPPED_UP,
        "TimeoutConstraint",
        [call("slow_work"), "landed"],
        "landed",
        1,
        2,
        landing_calls=1,
        settings={"limits": Limits(timeout=60)},
    ),
    "timed out cut off": Row(
        S.TIMED_OUT,
        O.CUT_OFF,
        "TimeoutConstraint",
        [call("slow_work").with_text("so far"), hang()],
        "so far",
        1,
        2,
        partial=True,
        landing_calls=1,
        stop_reason=T,
        settings={"limits": Limits(timeout=60)},
    ),
    "cancelled wrapped up, a wind-down nobody obeyed": Row(
        S.CANCELLED,
        O.WRAPPED_UP,
        "person",
        [call("slow_work"), call("work"), "landed"],
        "landed",
        2,
        3,
        landing_calls=1,
        settings={"tool_timeout": 1},
        cancel="wind_down",
    ),
    "cancelled cut off, a wind-down without a landing": Row(
        S.CANCELLED,
        O.CUT_OFF,
        "person",
        [call("slow_work").with_text("so far"), call("work")],
        "so far",
        2,
        2,
        partial=True,
        stop_reason=T,
        settings={"tool_timeout": 1, "landing": "off"},
        cancel="wind_down",
    ),
    "error wrapped up, a stuck loop": Row(
        S.ERROR,
        O.WRAPPED_UP,
        "repetition",
        [*[call("work", n=1)] * 5, "landed"],
        "landed",
        5,
        6,
        landing_calls=1,
    ),
    "error wrapped up, a crashed constraint": Row(
        S.ERROR,
        O.WRAPPED_UP,
        "Crashing",
        [call("work"), "landed"],
        "landed",
        1,
        2,
        landing_calls=1,
        settings={"constraints": [Crashing()]},
    ),
    "error cut off, a crashed constraint": Row(
        S.ERROR,
        O.CUT_OFF,
        "Crashing",
        [call("work").with_text("so far")],
        "so far",
        1,
        1,
        partial=True,
        stop_reason=T,
        settings={"constraints": [Crashing()], "landing": "off"},
    ),
    "error failed, the provider": Row(
        S.ERROR,
        O.FAILED,
        "provider",
        [fail(TransientError("down"), text="half a")],
        "half a",
        0,
        1,
        partial=True,
        stop_reason=StopReason.ERROR,
        settings={"max_retries": 0},
    ),
    "error failed, refused by policy": Row(
        S.ERROR,
        O.FAILED,
        "provider",
        [call("work").with_text("so far"), fail(RefusedError("policy"))],
        "so far",
        1,
        2,
        partial=True,
        stop_reason=StopReason.REFUSAL,
    ),
    "error failed, a fatal tool": Row(
        S.ERROR,
        O.FAILED,
        "tool",
        [calls(call("explode"), call("work"), text="so far")],
        "so far",
        1,
        1,
        partial=True,
        stop_reason=T,
    ),
    "error failed, empty answers": Row(
        S.ERROR,
        O.FAILED,
        "empty_answer",
        [call("work").with_text("so far"), say(" "), say(" ")],
        "so far",
        3,
        3,
        partial=True,
    ),
    "error failed, the empty-outcome budget": Row(
        S.ERROR,
        O.FAILED,
        "empty_outcome",
        ["a plain text"],
        "a plain text",
        1,
        1,
        partial=True,
        settings={"empty_outcome_retry_budget": 0},
    ),
    "cancelled cancelled": Row(
        S.CANCELLED,
        O.CANCELLED,
        "cancel",
        [call("slow_work").with_text("so far")],
        "so far",
        1,
        1,
        partial=True,
        stop_reason=T,
        cancel="cancel",
    ),
}


@pytest.mark.parametrize("name", ROWS)
@virtual
async def test_g2_the_result_tells_the_truth_about_the_end(name):
    row = ROWS[name]
    recorder, token = EventRecorder(), CancelToken()
    if row.cancel:
        asyncio.get_running_loop().call_later(0.5, getattr(token, row.cancel))
    settings = {"limits": LIMITS} | row.settings
    with ScriptedModel(row.script) as model:
        agent = Agent(
            model=model, tools=[work, slow_work, deliver, explode], plugins=[recorder.as_plugin()], **settings
        )
        result = await agent.run("go", cancel=token)
    recorder.assert_legal()
    assert (result.state, result.outcome) == (row.state, row.outcome)
    assert (result.cause and result.cause.source) == row.source
    assert (result.text, result.partial) == (row.text, row.partial)
    assert (result.iterations, model.calls, result.landing_calls) == (row.iterations, row.calls, row.landing_calls)
    assert result.stop_reason is row.stop_reason
    assert transcript_errors(result.messages) == []
    assert recorder.events[-1].result is result


def test_every_row_of_the_table_that_needs_no_person_is_shown():
    shown = {(row.state, row.outcome) for row in ROWS.values()}
    assert shown == ENDINGS - {(S.WAITING_FOR_INPUT, O.PAUSED)}


@virtual
async def test_a_kill_switch_cancels():
    switch = threading.Event()
    asyncio.get_running_loop().call_later(1, switch.set)
    agent = Agent(model=ScriptedModel([hang("so far")]), limits=LIMITS, constraints=[KillSwitchConstraint(switch)])
    result = await agent.run("go")
    assert (result.state, result.outcome, result.text) == (S.CANCELLED, O.CANCELLED, "so far")
    assert result.cause.source == "KillSwitchConstraint"
    assert result.elapsed < 1.1


# --- finishing on the last allowed turn -----------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2, 3, 8])
@virtual
async def test_g2_finishing_on_the_last_allowed_turn_is_never_a_cut(turns):
    script = [call("work", n=n) for n in range(turns - 1)]
    with ScriptedModel([*script, "in time"]) as model:
        result = await Agent(model=model, tools=[work], limits=Limits(max_iterations=turns)).run("go")
    assert result.state is S.COMPLETED
    assert result.outcome is (O.DONE if turns == 1 else O.WRAPPED_UP)
    assert (result.text, result.iterations, result.landing_calls, result.partial) == ("in time", turns, 0, False)


@pytest.mark.parametrize("turns", [1, 2, 5])
@virtual
async def test_g2_finishing_on_the_last_allowed_turn_without_a_notice_is_done(turns):
    script = [call("work", n=n) for n in range(turns - 1)]
    limits = Limits(max_iterations=turns, grace_iterations=0)
    with ScriptedModel([*script, "in time"]) as model:
        result = await Agent(model=model, tools=[work], limits=limits).run("go")
    assert (result.state, result.outcome, result.cause) == (S.COMPLETED, O.DONE, None)


@virtual
async def test_g2_a_terminal_tool_on_the_last_allowed_turn_is_done():
    limits = Limits(max_iterations=1, max_tool_calls=1)
    with ScriptedModel([call("deliver", answer="42")]) as model:
        result = await Agent(model=model, tools=[deliver], limits=limits).run("go")
    assert (result.state, result.outcome, result.text) == (S.COMPLETED, O.DONE, "42")


@virtual
async def test_g3_a_reply_that_crosses_the_budget_is_delivered():
    with ScriptedModel([say("dear but good", usage=Usage(9_000, 9_000))]) as model:
        result = await Agent(model=model, limits=Limits(max_tokens=10_000)).run("go")
    assert (result.outcome, result.text, result.partial) == (O.DONE, "dear but good", False)


# --- what a result without words says -------------------------------------------------------------------------


@virtual
async def test_with_no_text_at_all_the_result_says_what_ran():
    limits = Limits(max_iterations=2, grace_iterations=0)
    with ScriptedModel([call("work", n=1), call("work", n=2)]) as model:
        result = await Agent(model=model, tools=[work], limits=limits, landing="off").run("go")
    assert result.partial
    assert "2 model turns and 2 tool calls" in result.text
    assert "- work returned: worked 2" in result.text


@virtual
async def test_an_empty_stream_is_retried_and_an_empty_answer_is_asked_for_again():
    with ScriptedModel([empty(), say(" "), "here I am"]) as model:
        result = await Agent(model=model, limits=LIMITS).run("go")
    assert (result.text, result.iterations, model.calls) == ("here I am", 2, 3)


@virtual
async def test_an_empty_answer_is_never_a_success_however_the_guards_are_set():
    guardrails = GuardrailsConfig(max_empty_recoveries=0, max_premature_end_recoveries=0)
    with ScriptedModel([say(" ")]) as model:
        result = await Agent(model=model, limits=LIMITS, guardrails=guardrails).run("go")
    assert (result.state, result.outcome, result.cause.source) == (S.ERROR, O.FAILED, "empty_answer")


@virtual
async def test_silence_after_a_failed_tool_is_asked_about():
    @tool
    async def broken() -> str:
        raise ValueError("no luck")

    with ScriptedModel([call("broken"), say(" "), "it broke"]) as model:
        result = await Agent(model=model, tools=[broken], limits=LIMITS).run("go")
    assert (result.outcome, result.text) == (O.DONE, "it broke")
    assert model.requests[2].messages[-1].reason == "premature_end"


@virtual
async def test_a_continued_answer_is_stitched():
    with ScriptedModel([truncated("one two "), truncated("three "), "four"]) as model:
        result = await Agent(model=model, limits=LIMITS).run("go")
    assert (result.outcome, result.text, result.iterations) == (O.DONE, "one two three four", 3)
    assert [m.reason for m in result.messages if m.role == "user"] == [None, *["max_tokens_recovery"] * 2]


@virtual
async def test_the_empty_outcome_budget_is_renewed_by_a_productive_batch():
    from glidepath import Plugin

    class Nag(Plugin):
        def follow_up(self, context):
            return "go on" if context.iteration < 4 else None

    script = ["one", call("work"), "two", "three"]
    with ScriptedModel(script) as model:
        agent = Agent(model=model, tools=[work], limits=LIMITS, plugins=[Nag()], empty_outcome_retry_budget=1)
        result = await agent.run("go")
    assert (result.state, result.outcome, result.cause.source) == (S.ERROR, O.FAILED, "empty_outcome")
    assert result.iterations == 4
