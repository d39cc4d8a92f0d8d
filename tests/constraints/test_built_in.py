"""Each built-in constraint by itself, and the composite made from `Limits` (SPEC 5.8)."""

import asyncio
from decimal import Decimal

import pytest

from glidepath import (
    AgentState,
    ConfigurationError,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    ResourceAction,
    ResourceConstraint,
    ResourceContext,
    ResourceValidation,
)
from glidepath.constraints import (
    CostLimitConstraint,
    DefaultResourceConstraint,
    MaxIterationConstraint,
    TimeoutConstraint,
    TokenBudgetConstraint,
    ToolCallLimitConstraint,
)
from glidepath.events import ConstraintViolated
from glidepath.guards import LIMIT_KINDS
from glidepath.spi import Remaining
from glidepath.testing import ScriptedModel, call, calls, say, virtual

from .chain import fly

GRACE, STOP = ResourceAction.GRACEFUL_EXIT, ResourceAction.EMERGENCY_STOP


CASES = [
    (MaxIterationConstraint(3), {"iteration": 2}, None),
    (MaxIterationConstraint(3), {"iteration": 3}, GRACE),
    (MaxIterationConstraint(3), {"iteration": 1, "left": Remaining(iterations=0)}, GRACE),
    (MaxIterationConstraint(3), {"iteration": 2, "checkpoint": "after_model", "left": Remaining(iterations=0)}, None),
    (TokenBudgetConstraint(100), {"tokens_used": 99}, None),
    (TokenBudgetConstraint(100), {"tokens_used": 100}, GRACE),
    (TokenBudgetConstraint(100), {"tokens_used": 101}, GRACE),
    (TokenBudgetConstraint(100), {"tokens_used": 80, "left": Remaining(tokens=0)}, GRACE),
    (TokenBudgetConstraint(100), {"tokens_used": 80, "left": Remaining(tokens=1)}, None),
    (CostLimitConstraint("0.10"), {"cost": Decimal("0.0999")}, None),
    (CostLimitConstraint("0.10"), {"cost": Decimal("0.10")}, GRACE),
    (CostLimitConstraint(1), {"cost": Decimal("0.5"), "left": Remaining(cost=Decimal(0))}, GRACE),
    (ToolCallLimitConstraint(2), {"tool_calls": 1}, None),
    (ToolCallLimitConstraint(2), {"tool_calls": 2}, GRACE),
    (ToolCallLimitConstraint(2), {"tool_calls": 5}, GRACE),
    (TimeoutConstraint(10, 2), {"elapsed": 7.9}, None),
    (TimeoutConstraint(10, 2), {"elapsed": 8.0}, GRACE),
    (TimeoutConstraint(10, 2), {"elapsed": 9.99}, GRACE),
    (TimeoutConstraint(10, 2), {"elapsed": 10.0}, STOP),
    (TimeoutConstraint(10), {"elapsed": 9.9}, None),
]


@pytest.mark.parametrize(("constraint", "figures", "action"), CASES)
def test_a_limit_holds_until_it_is_reached(constraint, figures, action):
    validation = asyncio.run(constraint.validate(ResourceContext(**figures)))
    assert validation.violated is (action is not None)
    if action is not None:
        assert constraint.on_violation(validation) is action
        assert validation.reason
        assert validation.metrics


STATES = {
    MaxIterationConstraint: AgentState.MAX_STEPS,
    ToolCallLimitConstraint: AgentState.MAX_STEPS,
    TokenBudgetConstraint: AgentState.BUDGET_EXCEEDED,
    CostLimitConstraint: AgentState.BUDGET_EXCEEDED,
    TimeoutConstraint: AgentState.TIMED_OUT,
}


def test_each_says_in_which_state_a_run_ends_that_it_stopped():
    assert {kind: kind.state for kind in STATES} == STATES


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("value", [0, -1, True, None, "many", float("nan"), float("inf"), [1]])
def test_a_limit_that_is_no_positive_number_is_refused(kind, value):
    with pytest.raises(ConfigurationError):
        kind(value)


def test_a_time_limit_gives_reasons_that_a_user_of_the_limit_understands():
    reasons = [TimeoutConstraint(10, 2).check(ResourceContext(elapsed=elapsed)).reason for elapsed in (8.0, 10.0)]
    assert reasons == ["the time limit is near", "the deadline of 10 s has passed"]


def test_a_cost_limit_takes_what_limits_take():
    assert CostLimitConstraint("0.5").max_cost == CostLimitConstraint(Decimal("0.5")).max_cost == Decimal("0.5")


# --- the composite ------------------------------------------------------------------------------------------------

ALL = Limits(max_iterations=3, max_tokens=100, max_cost="0.10", max_tool_calls=2, timeout=10)


@pytest.mark.parametrize(
    ("figures", "action", "metric"),
    [
        ({}, None, None),
        ({"iteration": 3}, GRACE, "max_iterations"),
        ({"tokens_used": 100}, GRACE, "max_tokens"),
        ({"cost": Decimal("0.1")}, GRACE, "max_cost"),
        ({"tool_calls": 2}, GRACE, "max_tool_calls"),
        ({"elapsed": 9.0}, GRACE, "timeout"),
        ({"elapsed": 10.0}, STOP, "timeout"),
        ({"iteration": 3, "tokens_used": 100}, GRACE, "max_iterations"),
        ({"iteration": 3, "elapsed": 11.0}, STOP, "timeout"),
        ({"tool_calls": 9, "elapsed": 9.0}, GRACE, "max_tool_calls"),
    ],
)
def test_the_composite_is_as_severe_as_its_worst_part_and_the_first_on_ties(figures, action, metric):
    composite = DefaultResourceConstraint(ALL, landing_seconds=2)
    validation = composite.check(ResourceContext(**figures))
    assert validation.violated is (action is not None)
    if action is not None:
        assert composite.on_violation(validation) is action
        assert metric in validation.metrics


def test_the_composite_has_a_part_for_each_limit_that_is_set_and_no_other():
    assert [type(part) for part in DefaultResourceConstraint(ALL).parts] == [
        MaxIterationConstraint,
        TokenBudgetConstraint,
        CostLimitConstraint,
        ToolCallLimitConstraint,
        TimeoutConstraint,
    ]
    assert DefaultResourceConstraint(Limits()).parts == ()


@pytest.mark.parametrize(
    ("limits", "part"),
    [
        (Limits(max_iterations=2, timeout=999), MaxIterationConstraint),
        (Limits(max_tool_calls=2, timeout=999), ToolCallLimitConstraint),
        (Limits(max_tokens=100, timeout=999), TokenBudgetConstraint),
    ],
)
@virtual
async def test_the_composite_alone_bounds_a_run_and_each_of_its_parts_answers_for_itself(limits, part):
    result, _ = await fly(DefaultResourceConstraint(limits), replace_defaults=True, turns=90)
    assert (result.state, result.outcome, result.cause.source) == (part.state, LoopOutcome.WRAPPED_UP, part.__name__)


# --- in a run -----------------------------------------------------------------------------------------------------


def causes(result):
    return (result.state, result.outcome, result.cause.source, result.cause.action)


@virtual
async def test_the_turn_limit_ends_a_run_with_its_figures():
    result, recorder = await fly(limits=Limits(max_iterations=2, grace_iterations=0), turns=90)
    assert causes(result) == (AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP, "MaxIterationConstraint", "graceful_exit")
    assert result.cause.metrics == {"iteration": 2, "max_iterations": 2}
    event = recorder.one(ConstraintViolated)
    assert (event.constraint, event.metrics, event.action) == ("MaxIterationConstraint", result.cause.metrics, GRACE)
    assert [record.constraint for record in result.validations if record.validation.violated] == [event.constraint]


@virtual
async def test_the_tool_call_limit_runs_what_fits_answers_the_rest_and_lands():
    model = ScriptedModel([calls(*[call("work", item=i) for i in range(5)]), say("what I have so far")])
    result, _ = await fly(model=model, limits=Limits(max_iterations=9, max_tool_calls=3))
    assert causes(result) == (AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP, "ToolCallLimitConstraint", "graceful_exit")
    assert [m.is_error for m in result.messages if m.role == "tool_result"] == [False] * 3 + [True] * 2
    assert {m.kind for m in result.messages if m.role == "tool_result" and m.is_error} == {"skipped"}
    assert result.tool_calls == 3


@virtual
async def test_the_tool_call_limit_is_reached_by_the_last_call_it_allows():
    model = ScriptedModel([calls(call("work"), call("work")), say("what I have so far")])
    result, _ = await fly(model=model, limits=Limits(max_iterations=9, max_tool_calls=2))
    assert (result.cause.source, result.landing_calls) == ("ToolCallLimitConstraint", 1)


@virtual
async def test_calls_that_do_not_count_never_reach_the_limit():
    from glidepath import tool

    @tool(counts_toward_limit=False)
    async def free() -> str:
        """Cost nothing."""
        return "free"

    model = ScriptedModel([calls(*[call("free")] * 5), say("done")])
    result, _ = await fly(model=model, tools=[free], limits=Limits(max_iterations=9, max_tool_calls=2))
    assert (result.outcome, result.tool_calls) == (LoopOutcome.DONE, 5)


@virtual
async def test_the_deadline_is_an_emergency_with_no_landing_call():
    from glidepath.testing import hang

    result, _ = await fly(model=ScriptedModel([hang("so far ")]), limits=Limits(timeout=8))
    assert causes(result) == (AgentState.TIMED_OUT, LoopOutcome.CUT_OFF, "TimeoutConstraint", "emergency_stop")
    assert (result.text, result.landing_calls, result.partial) == ("so far ", 0, True)
    assert result.cause.metrics["elapsed"] == pytest.approx(8.0, abs=0.01)


@pytest.mark.parametrize("phase", ["stream", "tool", "window"])
@virtual
async def test_what_the_watchdog_finds_between_checkpoints_is_a_violation_like_any_other(phase):
    """It is emitted with its metrics and returned in the result (SPEC 5.5)."""
    from glidepath import tool
    from glidepath.testing import hang

    @tool
    async def slow() -> str:
        """Be slow."""
        await asyncio.sleep(3600)
        return "never"

    turns = {"stream": [hang("so far ")], "tool": [call("slow"), say("x")], "window": [hang(), say("x")]}[phase]
    result, recorder = await fly(model=ScriptedModel(turns), tools=[slow], limits=Limits(timeout=8))
    assert [event.constraint for event in recorder.of(ConstraintViolated)] == ["TimeoutConstraint"]
    (record,) = [record for record in result.validations if record.validation.violated]
    assert record.constraint == "TimeoutConstraint"
    assert record.validation.metrics["elapsed"] >= 6


@virtual
async def test_a_call_that_does_not_fit_any_more_is_a_violation_of_the_budget():
    guardrails = GuardrailsConfig(reserve_tokens=0)
    result, recorder = await fly(limits=Limits(max_tokens=1500, max_iterations=90), turns=90, guardrails=guardrails)
    assert causes(result)[:3] == (AgentState.BUDGET_EXCEEDED, LoopOutcome.WRAPPED_UP, "TokenBudgetConstraint")
    assert [event.constraint for event in recorder.of(ConstraintViolated)] == ["TokenBudgetConstraint"]


# --- a new kind of limit ------------------------------------------------------------------------------------------


def test_every_kind_of_limit_names_a_field_of_limits():
    assert [kind.limit for kind in LIMIT_KINDS if kind.limit not in Limits.__struct_fields__] == []


@pytest.mark.parametrize("limit", [kind.limit for kind in LIMIT_KINDS])
def test_every_kind_of_limit_bounds_a_run(limit):
    assert Limits(**{limit: 5}).bounded
    assert not Limits().bounded


@virtual
async def test_a_kind_of_limit_that_the_ledger_does_not_count_is_asked_at_every_checkpoint(monkeypatch):
    asked = []

    class Depth(ResourceConstraint):
        limit, metered = "max_depth", False

        def validate(self, context):
            asked.append(context.checkpoint)
            return ResourceValidation.violation("too deep") if len(asked) > 4 else ResourceValidation.ok()

    Depth.made = classmethod(lambda cls, limits, landing_seconds: cls())
    monkeypatch.setattr("glidepath.guards.constraints.LIMIT_KINDS", (*LIMIT_KINDS, Depth))
    result, _ = await fly(limits=Limits(max_iterations=9))
    assert result.cause.source == "Depth"
    assert asked[:5] == ["pre_flight", "after_model", "after_tools", "pre_flight", "after_model"]
