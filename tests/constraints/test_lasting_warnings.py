"""A warning that lasts is noted when it begins and when its words change, not at every checkpoint."""

import logging
from itertools import count

import pytest

from glidepath import AgentState, Limits, LoopOutcome, ResourceAction, ResourceConstraint, ResourceValidation
from glidepath.events import ConstraintViolated, HookFailed
from glidepath.kernel import MOST_WARNINGS
from glidepath.messages import UserMessage
from glidepath.testing import ScriptedModel, call, hang, say, virtual

from .chain import fly, working


class Warns(ResourceConstraint):
    """Warns with what `say` gives for the number of the question; None holds."""

    def __init__(self, say):
        self.say = say
        self.number = count(1)

    def validate(self, context):
        said = self.say(next(self.number))
        return said or ResourceValidation.ok()

    def on_violation(self, validation):
        return ResourceAction.WARN_CONTINUE


def noted(result, recorder, caplog):
    records = [record for record in result.validations if record.validation.violated]
    lines = [line for line in caplog.messages if "WARN_CONTINUE" in line]
    assert len(records) == len(recorder.of(ConstraintViolated)) == len(lines)
    return len(records)


async def warned(say, caplog):
    caplog.set_level(logging.INFO, logger="glidepath")
    result, recorder = await fly(Warns(say), model=working(20), limits=Limits(max_iterations=30))
    assert result.outcome is LoopOutcome.DONE
    return noted(result, recorder, caplog)


@virtual
async def test_a_warning_that_lasts_is_noted_once(caplog):
    assert await warned(lambda number: ResourceValidation.violation("it is late", number=number), caplog) == 1


@virtual
async def test_other_figures_in_the_reason_are_no_news(caplog):
    assert await warned(lambda number: ResourceValidation.violation(f"{number}.5 % are used"), caplog) == 1


@virtual
async def test_other_words_are_news(caplog):
    words = lambda number: ResourceValidation.violation("late" if number < 10 else "very late")  # noqa: E731
    assert await warned(words, caplog) == 2


@virtual
async def test_a_warning_that_ends_and_begins_again_is_noted_again(caplog):
    assert await warned(lambda n: None if 10 <= n < 20 else ResourceValidation.violation("late"), caplog) == 2
    assert len([line for line in caplog.messages if "holds again" in line]) == 1


@virtual
async def test_every_notice_still_reaches_the_model_once():
    def say(number):
        return ResourceValidation(violated=True, reason="late", notice=f"notice {(number - 1) // 10}")

    result, _ = await fly(Warns(say), model=working(6), limits=Limits(max_iterations=30))
    told = [message.text for message in result.messages if type(message) is UserMessage and message.internal]
    assert told == ["notice 0", "notice 1"]


@virtual
async def test_words_that_change_at_every_checkpoint_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr("glidepath.kernel.constraint_checks.MOST_WARNINGS", 10)
    assert MOST_WARNINGS > 10
    assert await warned(lambda n: ResourceValidation.violation("late" + "!" * n), caplog) == 10


# --- a plain `def validate` -----------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [ResourceAction.GRACEFUL_EXIT, ResourceAction.EMERGENCY_STOP])
@virtual
async def test_a_plain_validate_is_asked_like_an_async_one(action):
    class Plain(ResourceConstraint):
        def validate(self, context):
            return ResourceValidation.violation("enough") if context.iteration else ResourceValidation.ok()

        def on_violation(self, validation):
            return action

    result, recorder = await fly(Plain(), model=working(5))
    assert (result.cause.source, result.cause.reason) == ("Plain", "enough")
    assert recorder.of(HookFailed) == []


@pytest.mark.parametrize("answer", [None, True, "no", 5])
@virtual
async def test_g9_a_plain_validate_that_answers_nonsense_lands_the_run_and_says_what_it_was(answer):
    class Plain(ResourceConstraint):
        def validate(self, context):
            return answer

    result, recorder = await fly(Plain())
    assert result.state is AgentState.ERROR
    [failure] = recorder.of(HookFailed)
    assert f"validate returned {type(answer).__name__}, not ResourceValidation" in failure.error


# --- both verdicts of a timeout -------------------------------------------------------------------------------


@virtual
async def test_g2_a_landing_that_hangs_to_the_deadline_leaves_both_validations_on_record():
    model = ScriptedModel([hang(), hang()])
    result, recorder = await fly(model=model, limits=Limits(timeout=40, landing_seconds=10))
    assert (result.state, result.outcome, result.elapsed) == (AgentState.TIMED_OUT, LoopOutcome.CUT_OFF, 40)
    actions = [record.action for record in result.validations if record.validation.violated]
    assert actions == [ResourceAction.GRACEFUL_EXIT, ResourceAction.EMERGENCY_STOP]
    assert {event.constraint for event in recorder.of(ConstraintViolated)} == {"TimeoutConstraint"}


@virtual
async def test_a_landing_that_only_runs_out_of_its_own_time_is_no_timeout():
    model = ScriptedModel([call("work"), hang()])
    result, recorder = await fly(
        model=model, limits=Limits(max_iterations=1, timeout=1_000, landing_seconds=10, grace_iterations=0)
    )
    assert (result.state, result.outcome) == (AgentState.MAX_STEPS, LoopOutcome.CUT_OFF)
    assert {event.constraint for event in recorder.of(ConstraintViolated)} == {"MaxIterationConstraint"}


@virtual
async def test_a_run_that_ends_by_itself_has_no_violation_on_record():
    result, _ = await fly(model=ScriptedModel([say("answer")]), limits=Limits(timeout=40))
    assert not any(record.validation.violated for record in result.validations)
