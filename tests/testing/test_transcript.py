"""Every tool call has exactly one result, in source order (G6)."""

import pytest
from hypothesis import given, strategies as st

from glidepath.messages import (
    AssistantMessage,
    CustomMessage,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.outcome import PendingCall
from glidepath.testing import transcript_errors


def reply(*ids):
    return AssistantMessage((TextBlock("now"), *(ToolCall(call_id, "t", {}) for call_id in ids)))


def result(call_id):
    return ToolResultMessage(call_id, "t", "fine")


USER = UserMessage("go")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER, reply()],
        [USER, reply("a", "b"), result("a"), result("b"), reply()],
        [USER, reply("a"), CustomMessage("note"), result("a"), USER, reply()],
        [USER, reply("a"), result("a"), reply("a"), result("a")],
        [reply("a", "a"), result("a"), result("a")],
        [SystemMessage("s"), USER, reply("a"), result("a"), UserMessage("wind down", internal=True)],
    ],
)
def test_g6_lawful_transcripts(messages):
    assert transcript_errors(messages) == []


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([reply("a")], "call a (t) has no result"),
        ([reply("a", "b"), result("a"), reply()], "call b (t) has no result"),
        ([reply("a", "b"), result("b"), result("a")], "message 1: the result of b comes before the result of a"),
        ([reply("a"), result("a"), result("a")], "message 2: a second result for a"),
        ([USER, result("x")], "message 1: a result for x, which the last reply did not call"),
        ([reply("a"), result("a"), reply("b"), result("b"), result("a")], "message 4: a result for a, which"),
        ([reply("a"), USER, result("a")], "message 1: a user message comes before the results of a"),
    ],
)
def test_g6_each_violation_is_named_once(messages, error):
    [found] = transcript_errors(messages)
    assert found.startswith(error)


@pytest.mark.parametrize(
    "pending", [["b"], [ToolCall("b", "t", {})], [PendingCall(call=ToolCall("b", "t", {}), reason="sure?")]]
)
def test_g6_pending_calls_may_lack_their_result(pending):
    messages = [reply("a", "b", "c"), result("a"), result("c")]
    assert transcript_errors(messages, pending) == []
    assert transcript_errors(messages) != []


def test_g6_a_pending_call_of_an_earlier_reply_is_no_excuse():
    assert transcript_errors([reply("a"), reply()], pending=["a"]) == ["call a (t) has no result"]


def test_g6_a_continued_transcript_may_begin_with_results_of_calls_not_shown():
    messages = [result("a"), result("b"), USER, reply()]
    assert transcript_errors(messages, continued=True) == []
    assert len(transcript_errors(messages)) == 2
    assert transcript_errors([result("a"), result("a")], continued=True) == ["message 1: a second result for a"]
    assert len(transcript_errors([reply(), result("a")], continued=True)) == 1


BATCHES = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def conversation(batches):
    messages = [USER]
    for turn, size in enumerate(batches):
        ids = [f"{turn}.{index}" for index in range(size)]
        messages += [reply(*ids), *map(result, ids)]
    return messages


@given(BATCHES, st.data())
def test_g6_a_lost_or_doubled_result_is_always_noticed(batches, data):
    messages = conversation(batches)
    assert transcript_errors(messages) == []
    results = [index for index, message in enumerate(messages) if isinstance(message, ToolResultMessage)]
    if results:
        at = data.draw(st.sampled_from(results))
        assert transcript_errors(messages[:at] + messages[at + 1 :]) != []
        assert transcript_errors(messages[: at + 1] + messages[at:]) != []
