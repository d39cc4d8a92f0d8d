"""The event recorder: readable lines, clear failures."""

import re

import pytest
from hypothesis import given, strategies as st

from glidepath.messages import AssistantMessage, CustomMessage, TextBlock, ToolCall, ToolResultMessage, UserMessage
from glidepath.outcome import AgentState, LoopOutcome, ResourceAction, RunResult
from glidepath.spi import Plugin
from glidepath.testing import EventRecorder
from glidepath.testing.recorder import _is_match
from glidepath.values import events as ev


def make(kind, **fields):
    return kind(run_id="r-81", parent_id=None, sequence=4, time=123.0, **fields)


def tool_events():
    about = {"call_id": "c-99", "tool_name": "lookup"}
    return [
        make(ev.TurnStarted, iteration=1),
        make(ev.ToolStarted, **about, arguments={"query": "x", "pages": [1, 2]}),
        make(ev.StreamChunk, text="hi"),
        make(ev.ToolEnded, **about, result=ToolResultMessage("c-99", "lookup", "found"), seconds=1.5),
    ]


RESULT = RunResult(run_id="r-81", session_id="s-7", state=AgentState.COMPLETED, outcome=LoopOutcome.DONE)
EXIT = ResourceAction.GRACEFUL_EXIT
CALLS = AssistantMessage((TextBlock("So:"), ToolCall("c", "a", {}), ToolCall("d", "b", {"n": 1})))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (make(ev.RunStarted, session_id="s-7", agent_name="main", model="m"), "RunStarted main"),
        (make(ev.RunStarted, session_id="s-7", agent_name="main", model="m", resumed=True), "RunStarted main resumed"),
        (make(ev.RunPaused, call_ids=("c-99",)), "RunPaused 1"),
        (make(ev.RunEnded, result=RESULT), "RunEnded COMPLETED DONE"),
        (make(ev.TurnEnded, iteration=3, message=CALLS), "TurnEnded 3"),
        (make(ev.MessageAdded, message=UserMessage('say "x"')), r'MessageAdded user "say \"x\""'),
        (make(ev.MessageAdded, message=UserMessage("a", internal=True, reason="w")), 'MessageAdded user (w) "a"'),
        (make(ev.MessageAdded, message=CALLS), 'MessageAdded assistant "So:" a {} b {"n": 1}'),
        (make(ev.MessageAdded, message=AssistantMessage()), 'MessageAdded assistant ""'),
        (make(ev.MessageAdded, message=CustomMessage("note", {})), "MessageAdded custom note"),
        (
            make(ev.MessageAdded, message=ToolResultMessage("c-99", "t", "no", is_error=True, kind="timeout")),
            'MessageAdded tool_result t error:timeout "no"',
        ),
        (make(ev.StreamStarted, model="m", attempt=2, landing=True), "StreamStarted m 2 landing"),
        (make(ev.StreamChunk, text="hm", thinking=True), 'StreamChunk thinking "hm"'),
        (make(ev.StreamChunk, finished=True), "StreamChunk finished"),
        (make(ev.AttemptDiscarded, attempt=1, reason="dropped"), "AttemptDiscarded 1 dropped"),
        (make(ev.ToolProgress, call_id="c-99", tool_name="t", progress=0.5), "ToolProgress t 0.5"),
        (
            make(ev.ApprovalRequested, call_id="c-99", tool_name="t", arguments={}, reason="sure?"),
            'ApprovalRequested t {} "sure?"',
        ),
        (
            make(ev.RetryScheduled, attempt=1, delay=0.731, error="gone", model="m"),
            'RetryScheduled attempt=1 error="gone" model="m"',
        ),
        (
            make(ev.BudgetReserved, tokens=5, picodollars=10**11, max_output_tokens=None),
            "BudgetReserved tokens=5 picodollars=100000000000 max_output_tokens=null",
        ),
        (make(ev.ChildStarted, child_id="r-82", agent_name="kid", depth=1), 'ChildStarted agent_name="kid" depth=1'),
        (
            make(ev.ConstraintViolated, constraint="c", checkpoint="p", action=EXIT, reason="r"),
            'ConstraintViolated constraint="c" checkpoint="p" action=20 reason="r" metrics={} skipped=false',
        ),
    ],
)
def test_compact_lines_say_what_happened_without_ids_and_times(event, line):
    assert EventRecorder([event]).compact() == [line]


def test_a_value_that_is_not_plain_data_is_still_shown():
    [line] = EventRecorder([make(ev.ToolProgress, call_id="c", tool_name="t", progress=len)]).compact()
    assert line == "ToolProgress t <built-in function len>"


def test_long_values_are_cut():
    [line] = EventRecorder([make(ev.MessageAdded, message=UserMessage("x" * 9999))]).compact()
    assert len(line) < 250
    assert line.endswith("x...")


def test_it_collects_what_it_is_called_with():
    recorder = EventRecorder()
    for event in tool_events():
        recorder(event)
    assert recorder.events == tool_events()
    assert list(recorder) == tool_events()
    assert len(recorder) == 4
    assert recorder.kinds() == ["TurnStarted", "ToolStarted", "StreamChunk", "ToolEnded"]
    assert recorder.of(ev.ToolStarted) == tool_events()[1:2]


def test_as_a_plugin_it_sees_every_kind_of_event():
    recorder = EventRecorder()
    plugin = recorder.as_plugin()
    assert isinstance(plugin, Plugin)
    assert issubclass(ev.StreamChunk, plugin.events)
    assert plugin.inheritable_to_child is None
    assert recorder.as_plugin(children=True).inheritable_to_child is True
    plugin.event_observer(tool_events()[0])
    assert recorder.events == tool_events()[:1]


def test_one_gives_the_only_event_or_shows_all():
    recorder = EventRecorder([*tool_events(), make(ev.TurnStarted, iteration=2)])
    assert recorder.one(ev.ToolEnded).result.text == "found"
    with pytest.raises(AssertionError, match=r"expected one TurnStarted, found 2 in:\n  TurnStarted 1\n  ToolStarted"):
        recorder.one(ev.TurnStarted)
    with pytest.raises(AssertionError, match="expected one RunEnded, found 0"):
        recorder.one(ev.RunEnded)


def test_without_leaves_kinds_out_and_the_recorder_as_it_is():
    recorder = EventRecorder(tool_events())
    assert recorder.without(ev.StreamChunk, ev.TurnStarted).kinds() == ["ToolStarted", "ToolEnded"]
    assert len(recorder) == 4


STARTED = 'ToolStarted lookup {"query": "x", "pages": [1, 2]}'


@pytest.mark.parametrize(
    "lines",
    [
        ["TurnStarted 1", STARTED, 'StreamChunk "hi"', 'ToolEnded lookup "found"'],
        ["TurnStarted 1", ..., 'ToolEnded lookup "found"'],
        [..., STARTED, ...],
        [..., "TurnStarted 1", ..., STARTED, ...],
        ["TurnStarted 1", "ToolStarted lookup ...", 'StreamChunk "hi"', "ToolEnded ..."],
        [...],
    ],
)
def test_expect_accepts(lines):
    EventRecorder(tool_events()).expect(lines)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["TurnStarted 1"],
        ["TurnStarted 2", ...],
        [..., "TurnStarted 1"],
        [..., STARTED, STARTED, ...],
        ["TurnStarted 1", STARTED, 'StreamChunk "hi"', 'ToolEnded lookup "found"', "RunEnded ..."],
        ["TurnStarted 1", "ToolStarted search...", ...],
    ],
)
def test_expect_refuses(lines):
    with pytest.raises(AssertionError, match="the events are not as expected"):
        EventRecorder(tool_events()).expect(lines)


def test_expect_shows_a_diff():
    with pytest.raises(AssertionError) as caught:
        EventRecorder(tool_events()[:2]).expect(["TurnStarted 1", 'ToolStarted lookup {"query": "y"}'])
    assert str(caught.value).splitlines() == [
        "the events are not as expected:",
        "  --- expected",
        "  +++ happened",
        "  @@ -1,2 +1,2 @@",
        "   TurnStarted 1",
        '  -ToolStarted lookup {"query": "y"}',
        f"  +{STARTED}",
    ]


LINES = st.lists(st.sampled_from(["a", "b"]), max_size=7)


@given(st.lists(st.sampled_from(["a", "b", ...]), max_size=5), LINES)
def test_gaps_match_as_regular_expressions_do(patterns, lines):
    pattern = "".join(".*" if item is ... else item for item in patterns)
    assert _is_match(patterns, lines) == bool(re.fullmatch(pattern, "".join(lines)))
