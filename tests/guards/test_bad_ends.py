"""Silence is never a success: empty answers, premature ends, the empty-outcome budget; and seed 003's turn limit."""

import pytest

from glidepath import AgentState, ConfigurationError, GuardrailsConfig, LoopOutcome, Plugin
from glidepath.events import GuardTripped
from glidepath.guards import DEFAULT_NOTICE, STOP_GUARDS, GracefulTurnLimit
from glidepath.models import StreamEnd, TextDelta
from glidepath.testing import ScriptedModel, call, empty, raw, say, thinking, truncated, virtual

from .loops import fly

FAILED = (AgentState.ERROR, LoopOutcome.FAILED)
SILENT = raw(TextDelta(""), StreamEnd())
BLANK = say(" \n\t ")
THOUGHT = thinking("hm, hm")
INVISIBLE = say("\u200b\u200b")


def ending(result):
    return (result.state, result.outcome)


# --- empty answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silence", [SILENT, BLANK, THOUGHT])
@virtual
async def test_an_empty_answer_is_asked_for_again_once(silence):
    with ScriptedModel([silence, say("here")]) as model:
        result, _ = await fly(model)
    assert (result.outcome, result.text, result.iterations) == (LoopOutcome.DONE, "here", 2)
    asked = [message for message in result.messages if message.role == "user" and message.internal]
    assert [message.reason for message in asked] == ["empty_answer"]


@pytest.mark.parametrize("silence", [SILENT, BLANK, THOUGHT, INVISIBLE])
@virtual
async def test_two_empty_answers_are_a_failure_never_a_silent_success(silence):
    with ScriptedModel([silence, silence]) as model:
        result, _ = await fly(model)
    assert ending(result) == FAILED
    assert result.cause.source == "empty_answer"
    assert "2 model turns" in result.text
    assert result.partial


@pytest.mark.parametrize("recoveries", [0, 1, 3])
@virtual
async def test_the_number_of_questions_after_an_empty_answer_is_what_it_says(recoveries):
    model = ScriptedModel().forever(BLANK)
    result, _ = await fly(model, guardrails=GuardrailsConfig(max_empty_recoveries=recoveries))
    assert (ending(result), model.calls) == (FAILED, recoveries + 1)


@virtual
async def test_an_empty_answer_after_real_work_fails_with_the_best_text():
    with ScriptedModel([call("search", query="q").with_text("so far"), BLANK, BLANK]) as model:
        result, _ = await fly(model)
    assert (ending(result), result.text) == (FAILED, "so far")


@virtual
async def test_a_stream_without_any_delta_is_retried_and_then_an_error_of_the_provider():
    model = ScriptedModel().forever(empty())
    result, _ = await fly(model)
    assert (ending(result), result.cause.source) == (FAILED, "provider")
    assert 1 < model.calls <= 4
    assert "EmptyResponseError" in result.cause.reason


# --- premature ends -----------------------------------------------------------------------------------------------


@virtual
async def test_silence_after_a_failed_tool_is_asked_about():
    with ScriptedModel([call("fail", item=1), BLANK, BLANK, say("it failed")]) as model:
        result, _ = await fly(model)
    asked = [message for message in result.messages if message.role == "user" and message.internal]
    assert [message.reason for message in asked] == ["premature_end"] * 2
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "it failed")


@virtual
async def test_when_the_questions_are_used_up_it_is_an_empty_answer():
    with ScriptedModel([call("fail", item=1), BLANK, BLANK, BLANK, BLANK]) as model:
        result, _ = await fly(model)
    assert (ending(result), result.cause.source) == (FAILED, "empty_answer")


@virtual
async def test_an_error_is_known_by_its_type_and_not_by_its_words():
    from glidepath import tool

    @tool
    async def report() -> str:
        """Report."""
        return "ERROR: exception, failed, traceback"

    with ScriptedModel([call("report"), BLANK, say("fine")]) as model:
        result, _ = await fly(model, tools=[report])
    assert [m.reason for m in result.messages if m.role == "user" and m.internal] == ["empty_answer"]


@virtual
async def test_text_after_a_failed_tool_is_an_answer():
    with ScriptedModel([call("fail", item=1), say("it failed")]) as model:
        result, recorder = await fly(model)
    assert result.outcome is LoopOutcome.DONE
    assert recorder.of(GuardTripped) == []


@virtual
async def test_zero_switches_the_premature_end_guard_off():
    with ScriptedModel([call("fail", item=1), BLANK, say("it failed")]) as model:
        result, _ = await fly(model, guardrails=GuardrailsConfig(max_premature_end_recoveries=0))
    assert [m.reason for m in result.messages if m.role == "user" and m.internal] == ["empty_answer"]


# --- the empty-outcome budget -------------------------------------------------------------------------------------


@virtual
async def test_without_the_budget_recoveries_are_bounded_by_their_guards_only():
    turns = [truncated("a "), BLANK, call("search", query="q"), truncated("b "), say("c")]
    with ScriptedModel(turns) as model:
        result, _ = await fly(model)
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_with_a_budget_of_zero_the_first_stop_without_a_tool_fails():
    with ScriptedModel([call("search", query="q"), say("done")]) as model:
        result, _ = await fly(model, empty_outcome_retry_budget=0)
    assert (ending(result), result.cause.source, result.text) == (FAILED, "empty_outcome", "done")


@virtual
async def test_each_stop_that_a_recovery_answers_uses_one_and_the_next_fails():
    with ScriptedModel([truncated("a "), say("b")]) as model:
        result, _ = await fly(model, empty_outcome_retry_budget=1)
    assert (ending(result), result.cause.source) == (FAILED, "empty_outcome")
    assert result.text == "a b"


@virtual
async def test_a_productive_batch_gives_the_budget_back():
    turns = [BLANK, call("search", query="q"), BLANK, call("search", query="r"), say("done")]
    with ScriptedModel(turns) as model:
        result, _ = await fly(model, empty_outcome_retry_budget=1)
    assert (result.outcome, result.text) == (LoopOutcome.DONE, "done")


@virtual
async def test_follow_ups_use_the_budget_too():
    class More(Plugin):
        def follow_up(self, context):
            return ["and then?"]

    model = ScriptedModel().forever(say("done"))
    result, _ = await fly(model, plugins=[More()], empty_outcome_retry_budget=3)
    assert (ending(result), model.calls) == (FAILED, 4)


# --- the turn limit of seed 003 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "grace", "soft"),
    [
        (50, 5, 45),
        (10, 3, 7),
        (10, 10, 1),  # a grace at or above the cap is brought into range
        (10, 99, 1),
        (6, 5, 1),
        (2, 1, 1),
        (2, 99, 1),
        (50, None, 45),
        (10, None, 8),
        (6, None, 5),
        (3, None, 2),
        (2, None, 1),
        (100, None, 95),
        (1, None, 1),
        (1, 5, 1),
    ],
)
def test_the_soft_limit_is_the_cap_less_the_grace(cap, grace, soft):
    assert GracefulTurnLimit(cap, grace).soft_limit() == soft


def test_no_grace_means_no_notice():
    assert not GracefulTurnLimit(50, 0).enabled
    assert GracefulTurnLimit(50, 1).enabled


@pytest.mark.parametrize(
    ("said", "soft"), [(0, 9), (-5, 9), (999, 1), (4, 6), (None, 7), ("4", 7), (True, 7), (2.5, 7)]
)
def test_a_dynamic_grace_is_brought_into_range_and_nonsense_leaves_the_static_one(said, soft):
    assert GracefulTurnLimit(10, 3, grace_provider=lambda: said).soft_limit() == soft


def test_a_dynamic_grace_is_asked_each_time_and_may_widen_the_window():
    grace = [3]
    limit = GracefulTurnLimit(20, 3, grace_provider=lambda: grace[0])
    assert limit.soft_limit() == 17
    grace[0] = 8
    assert limit.soft_limit() == 12


def test_a_grace_provider_that_raises_leaves_the_static_grace():
    assert GracefulTurnLimit(10, 3, grace_provider=lambda: 1 / 0).soft_limit() == 7


def test_the_words_come_from_the_provider_or_are_the_default():
    assert GracefulTurnLimit(10, 3).notice() == (DEFAULT_NOTICE, None)
    assert GracefulTurnLimit(10, 3, message_provider=lambda: "custom wrap-up").notice() == ("custom wrap-up", None)
    text, error = GracefulTurnLimit(10, 3, message_provider=lambda: 1 / 0).notice()
    assert (text, type(error)) == (DEFAULT_NOTICE, ZeroDivisionError)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_iterations": 0},
        {"max_iterations": True},
        {"max_iterations": 2.5},
        {"max_iterations": 10, "grace": -1},
        {"max_iterations": 10, "grace": True},
        {"max_iterations": 10, "message_provider": "text"},
        {"max_iterations": 10, "grace_provider": 3},
    ],
)
def test_a_turn_limit_that_makes_no_sense_is_a_configuration_error(wrong):
    with pytest.raises(ConfigurationError):
        GracefulTurnLimit(**wrong)


# --- a new guard --------------------------------------------------------------------------------------------------


def test_every_stop_guard_names_its_setting():
    assert [guard.setting for guard in STOP_GUARDS if guard.setting not in GuardrailsConfig.__struct_fields__] == []
