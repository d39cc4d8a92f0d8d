"""Everything that is written can be read back, also by a reader that is older than the writer (SPEC 1, 15)."""

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from types import NoneType, UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import AgentState, LoopOutcome, RunResult, StopCause, Usage
from glidepath.events import UnknownEvent
from glidepath.messages import (
    AssistantMessage,
    CustomMessage,
    Delta,
    ImageBlock,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    StopReason,
    StreamEnd,
    SystemMessage,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolResultMessage,
    UnknownMessage,
    UserMessage,
)
from glidepath.outcome import (
    AbandonedWork,
    ConfigurationChange,
    PendingCall,
    ResourceAction,
    ResourceValidation,
    Spend,
    ValidationRecord,
)
from glidepath.values import EVENTS, WireError, decode, encode, events as all_events, messages as all_messages

USAGE = Usage(10, 5, 3, 2, 1, estimated=True)
CALL = ToolCall("c1", "search", {"query": "x", "n": [1, 2.5, None, True]})
REPLY = AssistantMessage(
    (ReasoningBlock("r", "\x00opaque==", "v"), ThinkingBlock("t"), TextBlock("hello ü"), CALL),
    StopReason.TOOL_USE,
    USAGE,
    None,
    "model",
)
RESULT = ToolResultMessage("c1", "search", "found", False, None, {"rows": 3}, "found 3 rows")
MESSAGES = [
    SystemMessage("be kind"),
    UserMessage("plain"),
    UserMessage((TextBlock("see"), ImageBlock("image/png", b"\x89PNG\x00"), ImageBlock("image/png", url="http://x"))),
    UserMessage("told", internal=True, reason="wind_down"),
    REPLY,
    AssistantMessage((), StopReason.ERROR, None, "it broke"),
    AssistantMessage((ToolCall("c2", "search", {}, '{"query": '),)),
    RESULT,
    ToolResultMessage("c1", "search", (TextBlock("a"), ImageBlock("image/gif", b"GIF89a")), True, "ValueError"),
    CustomMessage("note", {"any": ["thing"]}),
]
DELTAS = [
    TextDelta("x"),
    ThinkingDelta("x"),
    ReasoningDelta("a", "b", "c"),
    ToolCallDelta(3, "id", "name", '{"a"'),
    StreamEnd("max_tokens", USAGE),
    StreamEnd(),
]
ENDED = RunResult(
    run_id="r1",
    session_id="s1",
    state=AgentState.BUDGET_EXCEEDED,
    outcome=LoopOutcome.WRAPPED_UP,
    cause=StopCause(source="x", action="y", reason="z", metrics={"limit": 3}),
    stop_reason=StopReason.END_TURN,
    text="text",
    output={"a": 1},
    messages=(UserMessage("go"), REPLY, RESULT),
    new_messages=(REPLY,),
    usage=USAGE,
    cost=Decimal("0.4987"),
    breakdown=(Spend(kind="model", name="m", calls=2, usage=USAGE, cost=Decimal("0.1")),),
    iterations=3,
    tool_calls=2,
    landing_calls=1,
    elapsed=1.5,
    validations=(
        ValidationRecord(
            constraint="c",
            checkpoint="pre_flight",
            iteration=1,
            action=ResourceAction.WARN_CONTINUE,
            validation=ResourceValidation.violation("why", n=1),
        ),
    ),
    children=(RunResult(run_id="r2", session_id="s2", state=AgentState.COMPLETED, outcome=LoopOutcome.DONE),),
    pending=(PendingCall(call=CALL, reason="ask"),),
    abandoned=(AbandonedWork(call_id="c1", tool_name="t", kind="thread", reason="stuck"),),
    unknown_effects=(CALL,),
    undelivered=(UserMessage("late"),),
    metadata={"k": "v"},
)
FIELDS = {  # a telling value for every field that events have beside their envelope
    "session_id": "s1",
    "agent_name": "agent",
    "model": "m",
    "previous": "m0",
    "depth": 2,
    "conversation_id": "c",
    "user": "u1",
    "metadata": {"order": "A-17"},
    "resumed": True,
    "call_ids": ("c1", "c2"),
    "changes": (ConfigurationChange(what="tool", name="pay", before="a1"),),
    "result": None,
    "iteration": 4,
    "message": REPLY,
    "tool_results": (RESULT,),
    "attempt": 2,
    "landing": True,
    "text": "text",
    "finished": True,
    "thinking": True,
    "reason": "because",
    "call_id": "c1",
    "tool_name": "search",
    "arguments": {"query": "x"},
    "progress": {"done": 0.5},
    "seconds": 1.25,
    "traceback": "Traceback ...",
    "constraint": "c",
    "checkpoint": "after_model",
    "action": "nudge",
    "metrics": {"n": 1},
    "skipped": True,
    "tokens": 100,
    "cost": Decimal("0.25"),
    "picodollars": 250_000_000_000,
    "max_output_tokens": 50,
    "usage": USAGE,
    "refunded": 7,
    "implausible": True,
    "source": "s",
    "guard": "g",
    "tools": ("a", "b"),
    "period": 2,
    "allowed": ("a",),
    "gates": ("g",),
    "winner": "w",
    "overruled": ("o",),
    "strategy": "compact",
    "before_tokens": 100,
    "after_tokens": 50,
    "dropped": 3,
    "previous_cap": 10,
    "next_cap": 20,
    "delay": 0.5,
    "error": "it broke",
    "target": "t",
    "state": "open",
    "kind": "tool",
    "plugin": "p",
    "hook": "steering",
    "effect": "skipped",
    "child_id": "r2",
    "outcome": "done",
    "record": 9,
    "provider": "vendor",
    "limits": {"tokens": 9.0},
    "notes": {"open_telemetry": "00-1-2-01"},
    "origins": ("mail",),
    "form": {"properties": {"name": {"type": "string"}}},
    "server": "docs",
    "changed": ("a",),
    "added": ("b",),
    "removed": ("c",),
}
SPECIAL = {
    ("RunEnded", "result"): ENDED,
    ("ToolEnded", "result"): RESULT,
    ("ConstraintViolated", "action"): ResourceAction.GRACEFUL_EXIT,
}


def sample_of(hint):
    """A value of this type, where it is a plain one: a new event needs nothing here."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = next(one for one in kinds if one is not NoneType)
    plain = {str: "text", int: 3, float: 0.5, bool: True, bytes: b"x", Decimal: Decimal("0.1")}
    if kind in plain:
        return plain[kind]
    inner = [sample_of(one) for one in get_args(kind) if one is not ...]
    return dict([inner]) if issubclass(get_origin(kind), Mapping) else get_origin(kind)(inner)


def event_of(kind):
    names, hints = kind.__struct_fields__[4:], get_type_hints(kind)
    known = {name: value for (event, name), value in SPECIAL.items() if event == kind.__name__}
    given = {**FIELDS, **known}
    return kind("r1", "r0", 7, 1.5, *[given[name] if name in given else sample_of(hints[name]) for name in names])


def test_a_new_event_of_plain_fields_needs_no_sample_here():
    assert sample_of(str | None) == "text"
    assert sample_of(tuple[str, ...]) == ("text",)
    assert sample_of(Mapping[str, int] | None) == {"text": 3}


# --- messages and deltas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.role)
def test_a_message_is_read_back_as_it_was_written(message):
    written = all_messages.codec.encode(message)
    assert all_messages.codec.decode(written) == message
    assert json.loads(written)["role"] == message.role


def test_every_kind_of_message_is_tried():
    kinds = set(Message.__args__)
    assert {type(message) for message in MESSAGES} == kinds - {UnknownMessage}


@pytest.mark.parametrize("delta", DELTAS, ids=lambda delta: type(delta).__name__)
def test_a_delta_is_read_back_as_it_was_written(delta):
    assert decode(encode(delta), Delta) == delta


def test_every_kind_of_delta_is_tried():
    assert {type(delta) for delta in DELTAS} == set(Delta.__args__)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.role)
def test_a_field_nobody_knows_is_ignored(message):
    data = json.loads(all_messages.codec.encode(message)) | {"from_the_future": {"x": 1}}
    assert all_messages.codec.decode(json.dumps(data).encode()) == message


def test_a_message_of_an_unknown_kind_survives_byte_for_byte():
    raw = b'{"role":"hologram", "beam":[1,2,3] }'
    message = all_messages.codec.decode(raw)
    assert isinstance(message, UnknownMessage)
    assert (message.kind, message.text) == ("hologram", "")
    assert all_messages.codec.encode(message) == raw


@pytest.mark.parametrize("raw", [b'{"role":"user"}', b'{"role":"user","content":5}', b'{"role":7}', b"{}", b"[]", b"{"])
def test_a_known_kind_that_is_malformed_is_an_error(raw):
    with pytest.raises(WireError):
        all_messages.codec.decode(raw)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (MESSAGES[0], "be kind"),
        (MESSAGES[1], "plain"),
        (MESSAGES[2], "see"),
        (REPLY, "hello ü"),
        (RESULT, "found"),
        (CustomMessage("note", "x"), ""),
    ],
    ids=lambda value: getattr(value, "role", ""),
)
def test_every_message_has_a_text(message, text):
    assert message.text == text


def test_the_calls_of_a_reply_stand_in_source_order():
    calls = tuple(ToolCall(str(n), "t", {}) for n in range(5))
    assert AssistantMessage((TextBlock("a"), *calls[:3], TextBlock("b"), *calls[3:])).tool_calls == calls


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, st.dictionaries(texts, json_values, max_size=3), texts)
@settings(deadline=None, derandomize=True, database=None)
def test_any_reply_is_read_back_as_it_was_written(text, arguments, opaque):
    reply = AssistantMessage((TextBlock(text), ReasoningBlock(opaque=opaque), ToolCall("i", text, arguments)))
    written = all_messages.codec.encode(reply)
    again = all_messages.codec.decode(written)
    assert all_messages.codec.encode(again) == written
    assert again.text == text
    assert again.blocks[1].opaque == opaque


# --- events ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_is_read_back_as_it_was_written(kind):
    codec = all_events.codec()
    event = event_of(kind)
    written = codec.encode(event)
    again = codec.decode(written)
    assert type(again) is kind
    assert codec.encode(again) == written
    assert (again.run_id, again.parent_id, again.sequence, again.time) == ("r1", "r0", 7, 1.5)
    for name in kind.__struct_fields__:
        assert getattr(again, name) == getattr(event, name), name


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_an_event_ignores_fields_it_does_not_know_and_cannot_be_changed(kind):
    codec = all_events.codec()
    event = event_of(kind)
    data = json.loads(codec.encode(event)) | {"from_the_future": 1}
    assert codec.decode(json.dumps(data).encode()) == event
    with pytest.raises(AttributeError):
        event.sequence = 8


def test_an_event_of_an_unknown_kind_survives_byte_for_byte():
    codec = all_events.codec()
    raw = b'{"event":"MoonLanded","run_id":"r1", "crew":[]}'
    event = codec.decode(raw)
    assert event == UnknownEvent("MoonLanded", raw)
    assert codec.encode(event) == raw


def test_all_events_of_the_specification_exist():
    named = [
        "RunStarted",
        "RunPaused",
        "RunEnded",
        "TurnStarted",
        "TurnEnded",
        "MessageAdded",
        "StreamStarted",
        "StreamChunk",
        "AttemptDiscarded",
        "ToolStarted",
        "ToolProgress",
        "ToolEnded",
        "ApprovalRequested",
        "ConstraintViolated",
        "BudgetReserved",
        "BudgetSettled",
        "NoticeSent",
        "LandingStarted",
        "GuardTripped",
        "GateApplied",
        "GateConflictResolved",
        "ContextShaped",
        "OutputTokensEscalated",
        "RetryScheduled",
        "BreakerChanged",
        "HookFailed",
        "ChildStarted",
        "ChildEnded",
        "SessionSaved",
    ]
    assert {kind.__name__ for kind in EVENTS} >= set(named)
    assert set(all_events.__all__) >= {kind.__name__ for kind in EVENTS}


# --- usage and results ----------------------------------------------------------------------------------------


def test_usage_adds_up_and_stays_flagged():
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)
    assert (Usage() + Usage(estimated=True)).estimated
    assert Usage(7, 3).total == 10


def test_a_result_is_read_back_as_it_was_written():
    again = decode(encode(ENDED), RunResult)
    assert encode(again) == encode(ENDED)
    assert again.cost == Decimal("0.4987")
    assert again.children[0].outcome is LoopOutcome.DONE
    assert again.messages == ENDED.messages


def test_stop_reasons_are_parsed_and_unknown_words_are_other():
    assert [StopReason.parse(reason.value) for reason in StopReason] == list(StopReason)
    for word in ("content_filter", "", None, [], 7, math.nan):
        assert StopReason.parse(word) is StopReason.OTHER
