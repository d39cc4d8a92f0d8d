"""What a run carries over is plain JSON, complete, and the same on the other side."""

import json

from hypothesis import given, settings, strategies as st

from glidepath import AgentState, LoopOutcome, RunResult, StopCause, Usage, approve, deny
from glidepath.messages import CustomMessage, StopReason, ToolCall, UserMessage
from glidepath.outcome import (
    AbandonedWork,
    Charge,
    PendingCall,
    ResourceAction,
    ResourceValidation,
    Snapshot,
    ValidationRecord,
)
from glidepath.testing import call, calls, virtual
from glidepath.values import BackgroundCall, Carried, PerRun, Program, SessionStand, Verdict, decode, encode, replace

from .desk import Desk, ids, mixed, results

text = st.text(st.characters(codec="utf-8"), max_size=8)
count = st.integers(0, 2**53)
causes = st.builds(StopCause, source=text, action=text, reason=text, metrics=st.dictionaries(text, st.integers(0, 9)))
verdicts = st.builds(Verdict, state=st.sampled_from(AgentState), cause=causes, gentle=st.booleans())
usages = st.builds(Usage, count, count, count, count, count, st.booleans())
charges = st.builds(Charge, calls=count, usage=usages, picodollars=count)
made_calls = st.builds(ToolCall, text, text, st.dictionaries(text, st.none() | st.booleans() | text))
records = st.builds(
    ValidationRecord,
    constraint=text,
    checkpoint=text,
    iteration=count,
    action=st.sampled_from(ResourceAction),
    validation=st.builds(ResourceValidation, st.booleans(), text),
    skipped=st.booleans(),
)
CHILD = RunResult(run_id="c", session_id="s", state=AgentState.COMPLETED, outcome=LoopOutcome.DONE)
FIELDS = {
    "run_id": text,
    "iterations": count,
    "tool_calls": count,
    "landing_calls": count,
    "empty_outcomes": count,
    "cut_calls_refused": st.booleans(),
    "last_error": st.booleans(),
    "rescued": st.booleans(),
    "plain_text": st.tuples(count, text),
    "output_repairs": count,
    "elapsed": st.floats(0, 1e9),
    "next_event": count,
    "spent": charges,
    "fallbacks_spent": st.dictionaries(text, charges, max_size=2),
    "children_spent": st.dictionaries(text, charges, max_size=2),
    "turns": count,
    "metered_tool_calls": count,
    "descendants": count,
    "tokens": count,
    "picodollars": count,
    "disputed": st.tuples(count, count),
    "carried": st.builds(Carried, tokens=count, money=count, session=st.none() | st.builds(SessionStand, tokens=count)),
    "on_budget": st.booleans(),
    "verdict": st.none() | verdicts,
    "notice": st.none() | causes,
    "wind_down": st.none() | causes,
    "final_turn": st.none() | verdicts,
    "work_withdrawn": st.booleans(),
    "withdrawal": st.none() | causes,
    "withdrawn": st.tuples(text),
    "allowed": st.none() | st.tuples(text),
    "notices_told": st.tuples(st.tuples(text, text)),
    "later": st.tuples(st.tuples(text, text, text)),
    "waiting": st.tuples(st.builds(UserMessage, text), st.builds(CustomMessage, text)),
    "text": text,
    "parts": st.tuples(text, text),
    "stop_reason": st.none() | st.sampled_from(StopReason),
    "first_new": count,
    "pinned": st.tuples(count),
    "votes": st.none() | st.tuples(st.booleans(), st.booleans(), st.booleans()),
    "programs": st.dictionaries(text, st.builds(Program, call=made_calls, calls=st.tuples(made_calls)), max_size=2),
    "program_states": st.dictionaries(text, text, max_size=2),
    "guards": st.dictionaries(text, st.dictionaries(text, st.lists(text | st.integers(0, 9)))),
    "violations": st.tuples(records),
    "children": st.just((CHILD,)),
    "pending": st.tuples(st.builds(PendingCall, call=made_calls, reason=text)),
    "abandoned": st.tuples(st.builds(AbandonedWork, call_id=text, tool_name=text, kind=text, reason=text)),
    "unknown_effects": st.tuples(made_calls),
    "background": st.tuples(st.builds(BackgroundCall, id=text, call=made_calls, collected=st.booleans())),
    "per_run": st.none()
    | st.builds(
        PerRun,
        extras=st.none() | st.dictionaries(text, text | st.none()),
        tool_choice=st.none() | text,
        metadata=st.none() | st.dictionaries(text, text),
        user=st.none() | text,
    ),
    "state": st.none() | st.sampled_from(AgentState),
    "outcome": st.none() | st.sampled_from(LoopOutcome),
    "cause": st.none() | causes,
    "partial": st.booleans(),
}


def test_every_field_is_tried():
    assert set(FIELDS) == set(Snapshot.__struct_fields__)


@settings(max_examples=60, deadline=None)
@given(st.builds(Snapshot, **FIELDS))
def test_a_snapshot_survives_json(snapshot):
    assert decode(encode(snapshot), Snapshot) == snapshot
    assert json.loads(encode(snapshot))["run_id"] == snapshot.run_id


@virtual
async def test_a_paused_result_can_be_resumed_from_json_as_well_as_from_memory():
    desk = Desk([mixed(), "done"])
    paused = await desk.run()
    read = decode(encode(paused), RunResult)
    assert read == paused
    result = await desk.resume(read, decisions={ids(read)[0]: approve(), ids(read)[1]: deny("no")})
    assert result.outcome is LoopOutcome.DONE
    assert len(results(result)) == 5


@virtual
async def test_a_restored_run_takes_the_snapshot_it_was_restored_from():
    desk = Desk([call("look", n=7), calls(call("send", to="a"), call("look"))])
    paused = await desk.run()
    again = await desk.resume(paused)
    volatile = {"elapsed": 0.0, "next_event": 0}
    assert replace(again.snapshot, **volatile) == replace(paused.snapshot, **volatile)
    assert again.messages == paused.messages


@virtual
async def test_a_snapshot_of_a_result_is_small_in_print_and_says_nothing_twice():
    desk = Desk([call("send", to="a"), "ok"])
    paused = await desk.run()
    assert repr(paused.snapshot) == f"<Snapshot of {paused.run_id}: 1 turn, 0 pending, PAUSED>"
    assert (paused.snapshot.pending, paused.snapshot.children, paused.snapshot.violations) == ((), (), ())
    done = await desk.resume(paused, decisions={ids(paused)[0]: approve()})
    assert done.snapshot is None
