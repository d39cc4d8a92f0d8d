"""How constraints compose: severity, ties, short circuit, faults, and who is told what (SPEC 5)."""

import asyncio
from itertools import product

import pytest

from glidepath import (
    Agent,
    AgentState,
    CancelToken,
    ConfigurationError,
    Limits,
    LoopOutcome,
    ResourceAction,
    ResourceConstraint,
    ResourceValidation,
)
from glidepath.constraints import MaxIterationConstraint, TimeoutConstraint
from glidepath.events import ConstraintViolated, HookFailed, NoticeSent
from glidepath.testing import ScriptedModel, call, say, transcript_errors, virtual

from .chain import Says, fly, named

ALLOW, WARN = ResourceAction.ALLOW, ResourceAction.WARN_CONTINUE
GRACE, STOP = ResourceAction.GRACEFUL_EXIT, ResourceAction.EMERGENCY_STOP
PASS = None
ENDS = {
    GRACE: (AgentState.BUDGET_EXCEEDED, LoopOutcome.WRAPPED_UP),
    STOP: (AgentState.BUDGET_EXCEEDED, LoopOutcome.CUT_OFF),
}


def severity(action):
    return -1 if action is None else action.severity


def test_severity_is_a_number_and_not_the_position():
    assert [action.severity for action in (ALLOW, WARN, GRACE, STOP)] == [0, 10, 20, 30]


@pytest.mark.parametrize("actions", list(product([PASS, ALLOW, WARN, GRACE, STOP], repeat=2)))
@virtual
async def test_the_most_severe_action_of_two_wins_and_the_first_on_ties(actions):
    constraints = [named(f"c{i}", action, reason=f"reason {i}", figure=i) for i, action in enumerate(actions)]
    result, _ = await fly(*constraints)
    worst = max(actions, key=severity)  # max keeps the first of equals
    winner = actions.index(worst)
    if worst not in ENDS:
        assert (result.outcome, result.cause) == (LoopOutcome.DONE, None)
        return
    assert (result.state, result.outcome) == ENDS[worst]
    assert (result.cause.source, result.cause.reason, result.cause.metrics) == (
        f"c{winner}",
        f"reason {winner}",
        {"figure": winner},
    )
    assert result.cause.action == worst.name.lower()


@pytest.mark.parametrize("actions", list(product([PASS, WARN, GRACE, STOP], repeat=3)))
@virtual
async def test_every_violation_of_three_is_recorded_and_what_follows_an_emergency_is_skipped(actions):
    constraints = [named(f"c{i}", action) for i, action in enumerate(actions)]
    result, recorder = await fly(*constraints, turns=1)
    asked = actions.index(STOP) + 1 if STOP in actions else 3
    last = [event for event in recorder.of(ConstraintViolated) if event.checkpoint == "pre_flight"]
    skipped = {event.constraint for event in last if event.skipped}
    assert skipped == {f"c{i}" for i in range(asked, 3)}
    violated = {event.constraint for event in last if not event.skipped}
    assert violated == {f"c{i}" for i in range(asked) if actions[i] is not None}
    records = {(record.constraint, record.skipped) for record in result.validations}
    assert {(name, True) for name in skipped} <= records
    assert {(name, False) for name in violated} <= records
    for i in range(asked, 3):  # it was asked at earlier checkpoints, never at that one
        assert [context for context in constraints[i].seen if context.iteration >= 1] == []


@virtual
async def test_on_violation_is_asked_only_when_violated():
    class Strict(Says):
        def on_violation(self, validation):
            raise AssertionError("nobody was violated")

    result, _ = await fly(Strict(None))
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_passing_validations_are_returned_for_the_last_checkpoint_only():
    result, _ = await fly(named("fine"), limits=Limits(max_iterations=50, max_tokens=10**6))
    passing = [record for record in result.validations if not record.validation.violated]
    assert [record.constraint for record in passing] == ["MaxIterationConstraint", "TokenBudgetConstraint", "fine"]
    assert len({(record.checkpoint, record.iteration) for record in passing}) == 1


# --- when they are asked ------------------------------------------------------------------------------------------


@virtual
async def test_a_constraint_is_asked_at_three_checkpoints_of_every_turn_and_sees_completed_turns():
    watcher = Says(None)
    await fly(watcher, turns=2)
    assert [(context.checkpoint, context.iteration) for context in watcher.seen] == [
        ("pre_flight", 0),
        ("after_model", 0),
        ("after_tools", 0),
        ("pre_flight", 1),
        ("after_model", 1),
        ("after_tools", 1),
        ("pre_flight", 2),
        ("after_model", 2),
    ]


@virtual
async def test_a_constraint_sees_the_figures_of_the_run():
    class Watcher(Says):
        left = ()

        async def validate(self, context):
            self.left = (*self.left, context.remaining().iterations)
            return await super().validate(context)

    watcher = Watcher(None)
    scripted = ScriptedModel([call("work").with_delay(1.0), say("done")], price=(1, 1))
    result, _ = await fly(watcher, model=scripted, agent_name="counter")
    first, last = watcher.seen[0], watcher.seen[-1]
    assert (first.tokens_used, first.cost, first.elapsed, first.tool_calls, first.last_stop_reason) == (
        0,
        0,
        0.0,
        0,
        None,
    )
    assert (last.tokens_used, last.cost, last.tool_calls) == (result.usage.total, result.cost, 1)
    assert last.elapsed > 1
    assert (last.agent_name, last.depth, last.agent_state) == ("counter", 0, AgentState.RUNNING)
    assert [str(context.last_stop_reason.value) for context in watcher.seen[1:3]] == ["tool_use", "tool_use"]
    assert (watcher.left[0], watcher.left[-1]) == (50, 48)
    assert not last.near_budget()


@virtual
async def test_a_graceful_verdict_after_the_model_spoke_lets_the_turns_tools_run():
    result, _ = await fly(Says(GRACE, turn=0, checkpoint="after_model"))
    assert (result.tool_calls, result.iterations, result.landing_calls) == (1, 1, 1)
    assert [message.text for message in result.messages if message.role == "tool_result"] == ["item 1 is done"]
    assert result.text == "what I have so far"


@virtual
async def test_an_emergency_after_the_model_spoke_answers_the_open_calls_and_runs_nothing():
    result, _ = await fly(Says(STOP, turn=0, checkpoint="after_model"))
    assert (result.tool_calls, result.landing_calls) == (0, 0)
    assert transcript_errors(result.messages) == []
    assert [message.is_error for message in result.messages if message.role == "tool_result"] == [True]
    assert (result.outcome, result.text, result.partial) == (LoopOutcome.CUT_OFF, "step 1", True)


@virtual
async def test_a_graceful_verdict_on_the_turn_of_the_answer_keeps_the_answer():
    result, _ = await fly(Says(GRACE, turn=0, checkpoint="after_model"), turns=0)
    assert (result.state, result.outcome, result.text) == (AgentState.COMPLETED, LoopOutcome.DONE, "all done")
    assert result.landing_calls == 0


@virtual
async def test_a_graceful_verdict_before_the_first_turn_lands_with_one_call():
    result, _ = await fly(Says(GRACE, turn=0))
    assert (result.iterations, result.landing_calls, result.text) == (0, 1, "what I have so far")


@virtual
async def test_a_graceful_verdict_outlasts_a_constraint_that_changes_its_mind():
    class Once(Says):
        async def validate(self, context):
            if context.checkpoint == "after_model":
                return ResourceValidation.violation("this once")
            return ResourceValidation.ok()

    result, _ = await fly(Once(GRACE))
    assert (result.iterations, result.cause.reason) == (1, "this once")


@virtual
async def test_an_emergency_after_a_graceful_verdict_wins():
    graceful = named("graceful", GRACE, turn=0, checkpoint="after_model")
    result, _ = await fly(graceful, named("emergency", STOP, turn=0, checkpoint="after_tools"))
    assert (result.cause.source, result.landing_calls) == ("emergency", 0)


# --- warnings and notices -----------------------------------------------------------------------------------------


@virtual
async def test_a_warning_reaches_event_and_result_and_the_run_goes_on():
    result, recorder = await fly(named("careful", WARN, turn=1, reason="it gets late", left=5), turns=2)
    events = [event for event in recorder.of(ConstraintViolated) if event.constraint == "careful"]
    assert {(event.action, event.reason, event.metrics["left"]) for event in events} == {(WARN, "it gets late", 5)}
    records = [record for record in result.validations if record.constraint == "careful" and record.validation.violated]
    assert len(records) == len(events) == 2  # at the pre-flight of turns two and three
    assert (result.outcome, result.text, result.cause) == (LoopOutcome.DONE, "all done", None)


@virtual
async def test_a_warning_reaches_the_log(caplog):
    with caplog.at_level("WARNING", logger="glidepath"):
        result, _ = await fly(named("careful", WARN, turn=1, reason="it gets late"), turns=1)
    (record,) = [record for record in caplog.records if record.name.startswith("glidepath")]
    assert record.levelname == "WARNING"
    for word in (result.run_id, "careful", "it gets late", "WARN_CONTINUE"):
        assert word in record.getMessage()


@virtual
async def test_a_notice_is_told_to_the_model_once():
    class Noticing(ResourceConstraint):
        async def validate(self, context):
            return ResourceValidation.violation("half", notice="Half of the budget is gone.")

        def on_violation(self, validation):
            return WARN

    result, recorder = await fly(Noticing(), turns=3)
    told = [message for message in result.messages if message.text == "Half of the budget is gone."]
    assert [(message.role, message.internal, message.reason) for message in told] == [("user", True, "constraint")]
    assert [event.source for event in recorder.of(NoticeSent)] == ["Noticing"]
    assert transcript_errors(result.messages) == []


@virtual
async def test_two_different_notices_are_both_told():
    class Counting(ResourceConstraint):
        async def validate(self, context):
            return ResourceValidation.violation("x", notice=f"{min(context.iteration, 1)} done")

        def on_violation(self, validation):
            return WARN

    result, _ = await fly(Counting(), turns=4)
    assert [m.text for m in result.messages if m.role == "user" and m.internal] == ["0 done", "1 done"]


@virtual
async def test_the_notice_of_a_constraint_that_allows_is_told_too():
    class Kind(ResourceConstraint):
        async def validate(self, context):
            return ResourceValidation(violated=True, reason="x", notice="a word")

        def on_violation(self, validation):
            return ALLOW

    result, _ = await fly(Kind())
    assert "a word" in [message.text for message in result.messages]
    assert result.outcome is LoopOutcome.DONE


# --- faults (G9) --------------------------------------------------------------------------------------------------


class Crashes(ResourceConstraint):
    async def validate(self, context):
        raise ZeroDivisionError("no figures")


class Hangs(ResourceConstraint):
    async def validate(self, context):
        await asyncio.sleep(3600)


class Stubborn(ResourceConstraint):
    async def validate(self, context):
        for _ in range(100):
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                continue


class Nonsense(ResourceConstraint):
    async def validate(self, context):
        return True


class Silent(ResourceConstraint):
    async def validate(self, context):
        return None


class Undecided(ResourceConstraint):
    async def validate(self, context):
        return ResourceValidation.violation("x")

    def on_violation(self, validation):
        return "stop"


class Exits(ResourceConstraint):
    async def validate(self, context):
        raise asyncio.CancelledError


class CrashesLate(ResourceConstraint):
    async def validate(self, context):
        return ResourceValidation.violation("x")

    def on_violation(self, validation):
        raise KeyError("action")


FAULTS = [Crashes, Hangs, Stubborn, Nonsense, Silent, Undecided, CrashesLate, Exits]


@pytest.mark.parametrize("fault", FAULTS)
@virtual
async def test_g9_a_constraint_that_cannot_answer_lands_the_run_and_is_named(fault):
    result, recorder = await fly(fault())
    assert (result.state, result.outcome, result.text) == (
        AgentState.ERROR,
        LoopOutcome.WRAPPED_UP,
        "what I have so far",
    )
    assert result.cause.source == fault.__name__
    assert fault.__name__ in result.cause.reason
    assert result.cause.action == "graceful_exit"
    assert fault.__name__ in {event.plugin for event in recorder.of(HookFailed)}
    assert fault.__name__ in {record.constraint for record in result.validations if record.validation.violated}


@virtual
async def test_a_constraint_that_hangs_is_given_its_timeout_and_no_more():
    result, _ = await fly(Hangs(), constraint_timeout=0.25)
    assert result.elapsed == pytest.approx(0.25, abs=0.05)


@virtual
async def test_a_constraint_that_hangs_does_not_stop_a_cancel():
    token = CancelToken()
    asyncio.get_running_loop().call_later(0.1, token.cancel)
    agent = Agent(model=ScriptedModel([]), limits=Limits(max_iterations=5), constraints=[Hangs()])
    result = await agent.run("go", cancel=token)
    assert result.outcome is LoopOutcome.CANCELLED
    assert result.elapsed == pytest.approx(0.1, abs=0.05)


@virtual
async def test_a_crash_does_not_hide_an_emergency_after_it():
    result, _ = await fly(Crashes(), named("stop", STOP, turn=0))
    assert (result.cause.source, result.landing_calls) == ("stop", 0)


# --- who is in the chain ------------------------------------------------------------------------------------------


@virtual
async def test_g18_custom_constraints_stand_behind_the_built_in_ones_in_the_order_they_were_given():
    limits = Limits(max_iterations=50, max_tokens=10**6, timeout=500, max_tool_calls=40)
    result, _ = await fly(named("b"), named("a"), limits=limits)
    assert [record.constraint for record in result.validations] == [
        "MaxIterationConstraint",
        "TokenBudgetConstraint",
        "ToolCallLimitConstraint",
        "TimeoutConstraint",
        "b",
        "a",
    ]


@virtual
async def test_on_a_tie_with_a_built_in_the_built_in_is_the_cause():
    result, _ = await fly(named("mine", GRACE, turn=2), limits=Limits(max_iterations=2, grace_iterations=0))
    assert (result.cause.source, result.state) == ("MaxIterationConstraint", AgentState.MAX_STEPS)


@virtual
async def test_g18_a_custom_constraint_does_not_replace_what_it_resembles():
    result, _ = await fly(MaxIterationConstraint(40), limits=Limits(max_iterations=2, grace_iterations=0), turns=90)
    assert result.iterations == 2


@virtual
async def test_g18_built_in_constraints_go_only_with_replace_defaults():
    result, _ = await fly(
        MaxIterationConstraint(4),
        limits=Limits(max_iterations=2, max_tool_calls=1, timeout=0.5),
        turns=90,
        replace_defaults=True,
    )
    assert (result.iterations, result.cause.source, result.state) == (4, "MaxIterationConstraint", AgentState.MAX_STEPS)


@virtual
async def test_a_custom_constraint_says_in_which_state_the_run_ends():
    class Compliance(Says):
        state = AgentState.CANCELLED

    result, _ = await fly(Compliance(GRACE))
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.WRAPPED_UP)
    result, _ = await fly(Says(GRACE))
    assert result.state is AgentState.BUDGET_EXCEEDED


@virtual
async def test_a_custom_constraint_goes_by_its_class_name_or_by_the_one_it_gives_itself():
    class CostVelocity(Says):
        pass

    class Named(Says):
        name = "by another name"

    for constraint, name in ((CostVelocity(GRACE), "CostVelocity"), (Named(GRACE), "by another name")):
        result, _ = await fly(constraint)
        assert result.cause.source == name


@virtual
async def test_a_custom_constraint_is_always_asked_through_validate():
    """Its other methods are its own business, whatever they are called."""

    class Own(Says):
        thrown = True

        def check(self, context):
            raise AssertionError("not part of the port")

    result, _ = await fly(Own(None))
    assert result.outcome is LoopOutcome.DONE


@pytest.mark.parametrize(
    "wrong", [Says, "MaxIterationConstraint", None, object()], ids=["class", "name", "none", "object"]
)
def test_what_is_no_constraint_is_a_configuration_error(wrong):
    with pytest.raises(ConfigurationError, match="constraints"):
        Agent(model=ScriptedModel([]), limits=Limits(max_iterations=5), constraints=[wrong])


@virtual
async def test_a_built_in_with_a_validate_of_its_own_is_asked_through_it():
    class Patient(TimeoutConstraint):
        async def validate(self, context):
            return ResourceValidation.violation("asked") if context.iteration else ResourceValidation.ok()

        def on_violation(self, validation):
            return GRACE

    result, _ = await fly(Patient(1000))
    assert (result.cause.source, result.cause.reason) == ("Patient", "asked")
