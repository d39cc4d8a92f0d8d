"""Repair: a transcript from anywhere becomes one that any provider accepts."""

import time

from hypothesis import given

from glidepath.context import drop_unsendable, repair
from glidepath.messages import AssistantMessage, CustomMessage, ReasoningBlock, ToolCall, ToolResultMessage

from .grammar import asks, damaged, gives, healthy, is_valid, owners, quick, say, unsent, user

TASK = user("the task")


def interrupted(call_id):
    return (call_id, "search", True, "interrupted")


def brief(message):
    return (message.call_id, message.tool_name, message.is_error, message.kind)


@quick
@given(damaged())
def test_g6_repair_gives_every_call_exactly_one_result_right_behind_it(messages):
    assert is_valid(repair(messages))


@quick
@given(damaged())
def test_repair_is_idempotent_and_the_second_time_returns_the_same_object(messages):
    mended = repair(messages)
    assert repair(mended) is mended


@quick
@given(damaged())
def test_repair_loses_no_message_and_no_result_that_has_a_call(messages):
    mended = repair(messages)
    others = [m for m in messages if not isinstance(m, ToolResultMessage) and not unsent(m)]
    assert [m.text for m in mended if not isinstance(m, ToolResultMessage)] == [m.text for m in others]
    matched = [messages[result].text for result, call in owners(messages).items() if call is not None]
    kept = [m.text for m in mended if isinstance(m, ToolResultMessage) and m.kind != "interrupted"]
    assert sorted(kept) == sorted(matched)


@quick
@given(damaged())
def test_repair_is_deterministic_and_does_not_touch_its_input(messages):
    before = list(messages)
    assert list(repair(messages)) == list(repair(messages))
    assert messages == before


@quick
@given(healthy())
def test_a_healthy_transcript_comes_back_as_the_same_object(messages):
    messages = [m for m in messages if not unsent(m)]
    assert repair(messages) is messages
    assert drop_unsendable(messages) is messages


@quick
@given(damaged())
def test_sendable_leaves_out_custom_and_unknown_messages_only(messages):
    assert list(drop_unsendable(messages)) == [m for m in messages if not unsent(m)]


def test_a_call_without_a_result_is_answered_as_interrupted():
    mended = repair([TASK, asks("a", "b", "c"), gives("b"), user("so?")])
    assert [m.role for m in mended] == ["user", "assistant", "tool_result", "tool_result", "tool_result", "user"]
    assert [brief(m) for m in mended[2:5]] == [interrupted("a"), ("b", "search", False, None), interrupted("c")]
    assert "no result" in mended[2].text


def test_a_result_without_its_call_and_a_second_result_are_dropped():
    messages = [gives("z"), TASK, asks("a"), gives("a", "first"), gives("a", "second"), gives("y")]
    assert repair(messages) == [TASK, asks("a"), gives("a", "first")]


def test_a_result_before_its_call_does_not_count():
    assert [brief(m) for m in repair([gives("a"), asks("a")])[1:]] == [interrupted("a")]


def test_a_result_further_on_moves_up_to_its_call():
    messages = [asks("a", "b"), gives("b"), user("wait"), gives("a"), asks("c"), say("x"), gives("c")]
    assert repair(messages) == [asks("a", "b"), gives("a"), gives("b"), user("wait"), asks("c"), gives("c"), say("x")]


def test_ids_used_again_are_renamed_with_their_results_and_never_into_one_that_exists():
    messages = [asks("a"), gives("a", "1"), asks("a", "a_2"), gives("a", "2"), gives("a_2", "3"), asks("a", "a")]
    mended = repair([*messages, gives("a", "4"), gives("a", "5")])
    calls = [[call.id for call in m.tool_calls] for m in mended if isinstance(m, AssistantMessage)]
    assert calls == [["a"], ["a_3", "a_2"], ["a_4", "a_5"]]
    results = [(m.call_id, m.text) for m in mended if isinstance(m, ToolResultMessage)]
    assert results == [("a", "1"), ("a_3", "2"), ("a_2", "3"), ("a_4", "4"), ("a_5", "5")]


def test_renaming_keeps_the_other_blocks_and_fields():
    twice = AssistantMessage((ReasoningBlock("r", "o", "v"), ToolCall("a", "t", {"q": 1})), model="m")
    mended = repair([asks("a"), gives("a"), twice, ToolResultMessage("a", "t", "x", details={"d": 1})])
    assert mended[2] == AssistantMessage((ReasoningBlock("r", "o", "v"), ToolCall("a_2", "t", {"q": 1})), model="m")
    assert mended[3] == ToolResultMessage("a_2", "t", "x", details={"d": 1})


def test_custom_messages_are_left_out_also_between_a_call_and_its_result():
    assert repair([asks("a"), CustomMessage("log"), gives("a")]) == [asks("a"), gives("a")]


def test_a_thousand_uses_of_one_id_are_renamed_in_linear_time():
    messages = [message for _ in range(20_000) for message in (asks("a"), gives("a"))]
    start = time.process_time()
    mended = repair(messages)
    assert time.process_time() - start < 5
    assert mended[-1].call_id == "a_20000"
