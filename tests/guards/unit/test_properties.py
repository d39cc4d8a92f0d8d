"""Whatever the calls and results: guards do not raise, their state stays small, and progress is left alone."""

import copy
import json

from hypothesis import given, strategies as st

from glidepath.guards import GuardrailsConfig
from glidepath.sessions.changes import apply

from .trace import TOOLS, Call, Player

# Lone surrogates included: a model can write them and a tool can read them.
text = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(["", "x" * 200, "\udcff"])
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from([*TOOLS, "lookup", "look up", "a\nb"]) | text
kinds = st.none() | st.sampled_from(
    ["RuntimeError", "unknown_tool", "invalid_arguments", "withdrawn", "blocked", "skipped", ""]
)
calls = st.builds(Call, names, text, kinds, st.dictionaries(text, data, max_size=2), st.none() | text)
few = st.sampled_from(
    [
        Call(n, r, k, {"a": a})
        for n in ("search", "read", "wait", "x y")
        for r in "ab"
        for k in (None, "E")
        for a in (1, 2)
    ]
)
traces = st.lists(st.lists(calls, min_size=1, max_size=4), max_size=12) | st.lists(
    st.lists(few, min_size=1, max_size=3), max_size=40
)
configs = st.builds(
    GuardrailsConfig,
    max_repeated_tool_steps=st.integers(0, 5),
    max_error_streak=st.integers(0, 6),
    read_only_loop_threshold=st.none() | st.integers(0, 5),
)


@given(traces, configs, st.booleans())
def test_guards_never_raise(trace, config, wound_down):
    player = Player(config, wound_down=wound_down)
    player.play(trace)
    assert player.steps <= len(trace)


@given(st.lists(st.lists(few, min_size=1, max_size=3), max_size=40), configs)
def test_a_reload_changes_no_verdict(trace, config):
    assert Player(config, reload_every_step=True).play(trace) == Player(config).play(trace)


@given(st.lists(st.lists(few, min_size=1, max_size=3), max_size=30), st.integers(1, 5))
def test_new_results_never_trip_the_repetition_guard(trace, limit):
    fresh = [
        [call._replace(result=f"{call.result} {at} {n}") for n, call in enumerate(step)]
        for at, step in enumerate(trace)
    ]
    config = GuardrailsConfig(
        max_repeated_tool_steps=limit + 1, max_error_streak=0
    )  # 1 judges before there is a result
    assert Player(config).play(fresh) == []


@given(st.lists(st.lists(few, min_size=1, max_size=3), max_size=40))
def test_the_state_stays_small(trace):
    player = Player(GuardrailsConfig(read_only_loop_threshold=3))
    player.play(trace)
    assert len(json.dumps(player.metadata)) < 4_000


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["write", "run", "send"]), st.sampled_from(["ok", ""])), min_size=1),
        max_size=40,
    ),
    st.integers(2, 5),
)
def test_g11_new_arguments_of_acting_tools_never_trip_a_guard_whatever_they_answer(trace, limit):
    numbers = iter(range(10_000))
    steps = [[Call(name, said, None, {"n": next(numbers)}) for name, said in step[:5]] for step in trace]
    assert Player(GuardrailsConfig(max_repeated_tool_steps=limit)).play(steps) == []


def _circles(trace):
    """Three equal pairs of call and result within ten steps."""
    for end in range(len(trace)):
        seen = [
            {(call.name, json.dumps(call.arguments), call.result, call.kind) for call in step}
            for step in trace[max(0, end - 9) : end + 1]
        ]
        pairs = [pair for step in seen for pair in step]
        if any(pairs.count(pair) >= 3 for pair in pairs):
            return True
    return False


acting = st.sampled_from(
    [Call(n, r, None, {"a": a}) for n in ("search", "run", "send") for r in "ab" for a in (1, 2, 3)]
)


@given(st.lists(st.lists(acting, min_size=1, max_size=2), max_size=20))
def test_acting_tools_are_touched_only_where_equal_pairs_come_three_times_within_ten_steps(trace):
    if Player(GuardrailsConfig(max_error_streak=0)).play(trace):
        assert _circles(trace)


ordinary = st.integers(0, 25).map(lambda n: [Call("search", f"found {n % 7}", None, {"q": n})])
looks = st.lists(st.tuples(ordinary | st.lists(few, min_size=1, max_size=2), st.booleans()), max_size=40)


@given(looks)
def test_the_patches_of_a_journal_lead_from_any_commit_to_the_next(trace):
    player = Player(GuardrailsConfig(max_error_streak=0))
    guard, live = player.guards[0], player.metadata["guardrails"]["repetition"]
    known, compared = copy.deepcopy(live), guard.take_changes() is None
    for batch, look in trace:
        player.one(batch)
        if not look:
            continue
        news = guard.take_changes()
        if compared or news is None:  # a journal compares, then
            known = copy.deepcopy(live)
        else:
            known = apply(known, json.loads(json.dumps(["{", news, []])))
        assert known == live
        assert guard.take_changes() in (None, {})
        compared = news is None


def test_a_guard_tells_one_ordinary_step_without_a_comparison():
    player = Player()
    guard, told = player.guards[0], []
    for n in range(15):
        player.one([Call("search", f"found {n}", None, {"q": n})])
        told.append(guard.take_changes().keys())
    assert told == [{"calls", "results", "tools", "parts"}] * 15
