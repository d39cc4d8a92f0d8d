"""The order of events: legal stories pass, and each broken rule is named."""

import pytest
from hypothesis import given, strategies as st

from glidepath import _wire
from glidepath.messages import AssistantMessage, StopReason, TextBlock, ToolCall, ToolResultMessage, UserMessage
from glidepath.outcome import AgentState, LoopOutcome, PendingCall, RunResult, StopCause
from glidepath.testing import EventRecorder
from glidepath.testing.grammar import RULES
from glidepath.values import events as ev

CAUSE = StopCause(source="max_iterations", action="graceful_exit", reason="no more turns")


def tell(parts, run_id="r", first=0):
    """Events from (kind, fields) pairs, numbered."""
    return EventRecorder(
        kind(run_id=run_id, parent_id=None, sequence=first + number, time=0.0, **fields)
        for number, (kind, fields) in enumerate(parts)
    )


def broken(parts, **options):
    """The names of the rules that a story breaks."""
    return {error.split(": ")[1] for error in tell(parts, **options).grammar_errors()}


def started(**fields):
    return ev.RunStarted, {"session_id": "s", "agent_name": "a", "model": "m", **fields}


def ended(state=AgentState.COMPLETED, outcome=LoopOutcome.DONE, **fields):
    result = RunResult(run_id=fields.pop("run_id", "r"), session_id="s", state=state, outcome=outcome, **fields)
    return ev.RunEnded, {"result": result}


def added(message):
    return ev.MessageAdded, {"message": message}


def chunk(text="", **fields):
    return ev.StreamChunk, {"text": text, **fields}


def reply(*ids, stop_reason=StopReason.END_TURN):
    return AssistantMessage((TextBlock("now"), *(ToolCall(call_id, "t", {}) for call_id in ids)), stop_reason)


def result(call_id):
    return ToolResultMessage(call_id, "t", "fine")


def attempt(number=1, **fields):
    return [(ev.StreamStarted, {"model": "m", "attempt": number, **fields}), chunk("now"), chunk(finished=True)]


def discarded(number):
    return ev.AttemptDiscarded, {"attempt": number, "reason": "dropped"}


def tool(call_id):
    about = {"call_id": call_id, "tool_name": "t"}
    return [
        (ev.ToolStarted, {**about, "arguments": {}}),
        (ev.ToolProgress, {**about, "progress": 1}),
        (ev.ToolEnded, {**about, "result": result(call_id)}),
    ]


def begin(iteration):
    return ev.TurnStarted, {"iteration": iteration}


def finish(iteration, *ids):
    return ev.TurnEnded, {"iteration": iteration, "message": reply(*ids), "tool_results": tuple(map(result, ids))}


def turn(iteration, *ids, retries=0):
    parts = [begin(iteration)]
    for number in range(1, retries + 1):
        parts += [*attempt(number), discarded(number)]
    parts += [*attempt(retries + 1), added(reply(*ids))]
    parts += [part for call_id in ids for part in tool(call_id)]
    return [*parts, *(added(result(call_id)) for call_id in ids), finish(iteration, *ids)]


HELLO = [started(), added(UserMessage("hello"))]
PAUSED = {"state": AgentState.WAITING_FOR_INPUT, "outcome": LoopOutcome.PAUSED}
LIMITED = ended(AgentState.MAX_STEPS, LoopOutcome.WRAPPED_UP, cause=CAUSE)
CANCELLED = ended(AgentState.CANCELLED, LoopOutcome.CANCELLED, cause=CAUSE)


def pending(*ids):
    return tuple(PendingCall(call=ToolCall(call_id, "t", {})) for call_id in ids)


def paused(*ids):
    return [(ev.RunPaused, {"call_ids": ids}), ended(**PAUSED, pending=pending(*ids))]


LEGAL = {
    "an answer": [*HELLO, *turn(1), ended()],
    "tools": [*HELLO, *turn(1, "a", "b"), *turn(2, "c"), *turn(3), ended()],
    "retries": [*HELLO, *turn(1, "a", retries=2), *turn(2), ended()],
    "a call that never started": [
        *HELLO,
        begin(1),
        *attempt(),
        added(reply("a")),
        tool("a")[-1],
        added(result("a")),
        finish(1, "a"),
        *turn(2),
        ended(),
    ],
    "cancelled in the stream": [*HELLO, begin(1), *attempt(), CANCELLED],
    "cancelled in the stream, fragment kept": [
        *HELLO,
        begin(1),
        *attempt(),
        added(reply(stop_reason=StopReason.ABORTED)),
        CANCELLED,
    ],
    "failed": [*HELLO, begin(1), *attempt(), discarded(1), ended(AgentState.ERROR, LoopOutcome.FAILED, cause=CAUSE)],
    "landed": [*HELLO, *turn(1, "a"), *attempt(landing=True), added(reply()), LIMITED],
    "landed out of a turn": [*HELLO, begin(1), *attempt(), *attempt(landing=True), added(reply()), LIMITED],
    "paused": [*HELLO, begin(1), *attempt(), added(reply("a", "b")), *tool("b"), added(result("b")), *paused("a")],
    "paused inside a tool, as a child agent is": [
        *HELLO,
        begin(1),
        *attempt(),
        added(reply("a")),
        *tool("a")[:1],
        *paused("a"),
    ],
    "the same id in two turns": [*HELLO, *turn(1, "a"), *turn(2, "a"), ended()],
    "refused": [*HELLO, *turn(1), ended(stop_reason=StopReason.REFUSAL, cause=CAUSE)],
    "resumed in the middle of a turn": [
        started(resumed=True),
        *tool("a"),
        added(result("a")),
        finish(4, "a"),
        *turn(5),
        ended(),
    ],
}


@pytest.mark.parametrize("story", LEGAL.values(), ids=LEGAL.keys())
@pytest.mark.parametrize("first", [0, 1])
def test_legal_stories_pass(story, first):
    tell(story, first=first).assert_legal()


def without(story, kind):
    """A story without the first event of a kind."""
    at = next(index for index, part in enumerate(story) if part[0] is kind)
    return story[:at] + story[at + 1 :]


def without_results(part):
    kind, said = part
    return kind, {**said, "tool_results": ()}


TOOLS = LEGAL["tools"]
ONE_CALL = [*HELLO, begin(1), *attempt(), added(reply("a"))]

ILLEGAL = [
    ("start", without(TOOLS, ev.RunStarted)),
    ("start", [*HELLO, started(), *turn(1), ended()]),
    ("end", TOOLS[:-1]),
    ("end", [*TOOLS, ended()]),
    ("end", [*TOOLS, chunk("late")]),
    ("ending", [*HELLO, *turn(1), ended(AgentState.MAX_STEPS, LoopOutcome.DONE)]),
    ("ending", [*HELLO, *turn(1), ended(AgentState.MAX_STEPS, LoopOutcome.CUT_OFF)]),
    ("ending", [*HELLO, *turn(1), ended(stop_reason=StopReason.REFUSAL)]),
    ("ending", [*HELLO, *turn(1), ended(run_id="another")]),
    ("pause", [*ONE_CALL, ended(**PAUSED, pending=pending("a"))]),
    ("pause", [*ONE_CALL, *paused("a")[:1], chunk(), *paused("a")[1:]]),
    ("pause", [*ONE_CALL, (ev.RunPaused, {"call_ids": ("b",)}), paused("a")[1]]),
    ("pause", [*HELLO, *turn(1), (ev.RunPaused, {"call_ids": ()}), ended()]),
    ("turns", [*HELLO, *turn(2), ended()]),
    ("turns", [*HELLO, *turn(1), *turn(3), ended()]),
    ("turns", [*HELLO, *turn(1), *turn(1), ended()]),
    ("turns", [*HELLO, begin(1), *turn(2), ended()]),
    ("turns", [*HELLO, begin(1), *attempt(), added(reply()), finish(2), ended()]),
    ("turns", [*HELLO, *turn(1), finish(1), ended()]),
    ("turns", without(TOOLS, ev.TurnStarted)),
    ("finished turns", [*HELLO, begin(1), *attempt(), added(reply()), ended()]),
    ("turn results", [*ONE_CALL, *tool("a"), added(result("a")), finish(1), ended()]),
    ("turn results", [*ONE_CALL, *tool("a"), added(result("a")), without_results(finish(1, "a")), ended()]),
    ("streams", [*HELLO, begin(1), *attempt()[:-1], CANCELLED]),
    ("streams", [*HELLO, begin(1), *attempt(), chunk(finished=True), CANCELLED]),
    ("streams", [*HELLO, begin(1), *attempt(), chunk("late"), CANCELLED]),
    ("streams", [*HELLO, begin(1), chunk("early"), *attempt(), CANCELLED]),
    ("streams", [*HELLO, begin(1), *attempt()[:-1], chunk("text", finished=True), CANCELLED]),
    ("streams", [*HELLO, begin(1), *attempt()[:-1], discarded(1), *attempt(2), CANCELLED]),
    ("discards", [*HELLO, begin(1), *attempt(), *attempt(2), CANCELLED]),
    ("discards", [*HELLO, begin(1), *attempt(), discarded(1), discarded(1), CANCELLED]),
    ("discards", [*HELLO, begin(1), *attempt(), discarded(2), CANCELLED]),
    ("discards", [*HELLO, begin(1), discarded(1), CANCELLED]),
    ("tools", [*ONE_CALL, *tool("a")[:1], added(result("a")), finish(1, "a"), CANCELLED]),
    ("tools", [*ONE_CALL, *tool("a")[:1], *tool("a"), added(result("a")), finish(1, "a"), CANCELLED]),
    ("tools", [*ONE_CALL, *tool("a"), tool("a")[1], added(result("a")), finish(1, "a"), CANCELLED]),
    ("tool ends", [*ONE_CALL, *tool("a"), tool("a")[-1], added(result("a")), finish(1, "a"), CANCELLED]),
    ("tool ends", [*HELLO, tool("x")[-1], *turn(1), ended()]),
    ("tool ends", [*ONE_CALL, (ev.ToolEnded, {"call_id": "a", "tool_name": "t", "result": result("b")}),
                   added(result("a")), finish(1, "a"), CANCELLED]),
    ("results", [*ONE_CALL, *tool("a"), finish(1, "a"), CANCELLED]),
    ("results", [*ONE_CALL, added(result("a")), added(result("a")), finish(1, "a"), CANCELLED]),
    ("results", [*HELLO, begin(1), *attempt(), added(reply("a", "b")), *paused("a")]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "story"), ILLEGAL)
def test_each_broken_rule_is_named(rule, story):
    assert rule in broken(story)
    with pytest.raises(AssertionError, match=f"illegal events:\n  run r: .*{rule}: "):
        tell(story).assert_legal()


def test_every_rule_has_a_story_that_breaks_it():
    assert {rule for rule, _ in ILLEGAL} | {"sequence"} == set(RULES)


@pytest.mark.parametrize("numbers", [(2, 3, 4), (0, 2, 3), (0, 1, 1), (1, 0, 2)])
def test_sequence_numbers_have_no_gaps(numbers):
    told = tell([*HELLO, ended()]).events
    renumbered = [_wire.replace(event, sequence=number) for event, number in zip(told, numbers, strict=True)]
    assert {error.split(": ")[1] for error in EventRecorder(renumbered).grammar_errors()} == {"sequence"}


def test_children_are_judged_apart():
    parent = tell([*HELLO, *turn(1, "a"), *turn(2), ended()]).events
    child = tell([*HELLO, *turn(1), ended(run_id="c")], run_id="c").events
    EventRecorder([*parent[:7], *child, *parent[7:]]).assert_legal()
    errors = EventRecorder([*parent[:7], *child[:-1], *parent[7:]]).grammar_errors()
    assert errors == ["run c: end: the last event is TurnEnded"]


@pytest.mark.parametrize("first", [0, 1, "on"])
def test_a_paused_run_and_its_resumption_are_two_legs(first):
    before = tell([*ONE_CALL, *paused("a")]).events
    rest = [started(resumed=True), *tool("a"), added(result("a")), finish(1, "a"), *turn(2), ended()]
    after = tell(rest, first=len(before) if first == "on" else first).events
    EventRecorder([*before, *after]).assert_legal()
    [error] = EventRecorder([*before, *tell(rest, first=3).events]).grammar_errors()
    assert error == f"run r: legs: a resumed leg begins at 3 after {len(before) - 1}"


SIZES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=4)
NEEDED = (ev.RunStarted, ev.RunEnded, ev.TurnStarted, ev.TurnEnded, ev.StreamStarted, ev.ToolEnded)


def story(sizes):
    turns = [
        turn(number, *(f"{number}.{index}" for index in range(size)), retries=retries)
        for number, (size, retries) in enumerate(sizes, 1)
    ]
    return [*HELLO, *(part for parts in turns for part in parts), ended()]


@given(SIZES, st.data())
def test_any_story_is_legal_and_none_is_without_an_event_it_needs(sizes, data):
    told = story(sizes)
    assert tell(told).grammar_errors() == []
    needed = [index for index, (kind, said) in enumerate(told) if kind in NEEDED or said.get("finished")]
    at = data.draw(st.sampled_from(needed))
    assert tell(told[:at] + told[at + 1 :]).grammar_errors() != []
