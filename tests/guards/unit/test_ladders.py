"""Where on each ladder the nudge, the withdrawal and the landing stand."""

import pytest

from glidepath.guards import GuardrailsConfig, GuardSet

from .trace import Player, err, ladder, malformed, ok

SAME = ok("search", "a", q="x")
OTHER = ok("read", "b", path="b")
THIRD = ok("run", "c", cmd="c")
FOURTH = ok("grep", "d", word="d")


def repeats(limit):
    return GuardrailsConfig(max_repeated_tool_steps=limit, max_error_streak=0)


def streak(limit):
    return GuardrailsConfig(max_repeated_tool_steps=0, max_error_streak=limit)


@pytest.mark.parametrize(
    ("lap", "expected"),
    [
        ([SAME], [(3, "nudge"), (4, "withdraw"), (5, "land")]),
        ([SAME, OTHER], [(5, "nudge"), (8, "withdraw"), (9, "land")]),
        ([SAME, OTHER, THIRD], [(7, "nudge"), (12, "withdraw"), (13, "land")]),
        ([SAME, OTHER, THIRD, FOURTH], [(9, "nudge"), (16, "withdraw"), (17, "land")]),
    ],
    ids=["period 1", "period 2", "period 3", "period 4"],
)
def test_the_ladder_of_a_circle(lap, expected):
    assert ladder(lap * 8, repeats(3)) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, [(2, "withdraw"), (3, "land")]),
        (2, [(2, "nudge"), (3, "withdraw"), (4, "land")]),
        (3, [(3, "nudge"), (4, "withdraw"), (5, "land")]),
        (6, [(6, "nudge"), (7, "withdraw"), (8, "land")]),
    ],
)
def test_the_ladder_of_the_same_call_for_each_limit(limit, expected):
    assert ladder([SAME] * 12, repeats(limit)) == expected


@pytest.mark.parametrize(("limit", "withdrawn_at"), [(1, 2), (2, 2), (3, 3), (4, 4)])
def test_after_the_wind_down_notice_the_tool_is_withdrawn_at_once(limit, withdrawn_at):
    assert ladder([SAME] * 8, repeats(limit), wound_down=True) == [
        (withdrawn_at, "withdraw"),
        (withdrawn_at + 1, "land"),
    ]


def test_the_set_that_completes_the_last_repeat_is_not_executed():
    [_, withdrawal, *_] = Player(repeats(3)).play([SAME] * 5)
    assert (withdrawal.action, withdrawal.when, withdrawal.tools) == ("withdraw", "before", ("search",))


def test_a_circle_loses_all_its_tools_but_the_polling_ones():
    trips = Player(repeats(3)).play([[SAME, ok("wait", "w")], OTHER] * 4)
    assert trips[-1].tools == ("read", "search")


@pytest.mark.parametrize("limit", [2, 3, 4])
def test_the_same_answer_of_a_tool_that_only_reads_is_noticed_before_four_times_the_limit(limit):
    trace = [ok("grep", "no hits", word=n) for n in range(20)]
    expected = [(4 * limit - 2, "nudge"), (4 * limit, "withdraw"), (4 * limit + 1, "land")]
    assert ladder(trace, repeats(limit)) == expected


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_g11_other_arguments_of_a_tool_that_acts_are_progress_whatever_it_answers(batch):
    trace = [[ok("write", "ok", path=f"{n}.{k}") for k in range(batch)] for n in range(40)]
    assert ladder(trace) == []


def test_one_call_and_several_calls_in_a_step_are_counted_alike():
    alone = [ok("grep", "no hits", word=n) for n in range(14)]
    several = [[ok("grep", "no hits", word=n), ok("grep", "no hits", word=-n)] for n in range(1, 15)]
    assert ladder(alone) == ladder(several)


def test_equal_pairs_of_call_and_result_are_noticed_wherever_they_are_within_ten_steps():
    other = [ok("search", f"{n} hits, the first in chapter {n}", q=n) for n in range(20)]
    again = ok("fetch", "the very same page", page=1)
    assert ladder([again, *other[:3], again, *other[3:7], again]) == [(10, "nudge")]
    assert ladder([again, *other[:3], again, *other[3:8], again]) == []
    assert ladder([[again, other[0]], other[1], [again, other[2]], other[3], again]) == [(5, "nudge")]


def test_a_circle_is_told_of_once_however_long_the_model_ignores_it():
    again = ok("fetch", "the very same page", page=1)
    trace = [step for n in range(20) for step in (again, ok("search", f"{n} hits", q=n), ok("run", f"{n} s", cmd=n))]
    assert ladder(trace) == [(7, "nudge")]


@pytest.mark.parametrize("said", ["ok", "", "edited line {}", "Wrote part_{}.py", "(no output)"])
def test_a_check_after_a_change_by_another_tool_counts_from_one(said):
    failed = ok("run_tests", "1 failed: test_x")
    rounds = [step for n in range(9) for step in (ok("edit", said.format(n), line=n), failed)]
    assert ladder(rounds) == []
    assert ladder([step for step in rounds if step.name == "run_tests"])[0] == (3, "nudge")


@pytest.mark.parametrize("said", ["user_{}_found_under_this_long_name", "{}.0", "{} rows"])
def test_an_answer_with_something_new_in_it_is_no_change(said):
    asked = ok("fetch", "the very same page", page=1)
    rounds = [step for n in range(3) for step in (ok("query", said.format(n), line=n), asked)]
    assert ladder(rounds) == [(6, "nudge")]


def test_looking_with_a_tool_that_only_reads_is_no_change():
    asked = ok("fetch", "the very same page", page=1)
    rounds = [step for n in range(3) for step in (ok("grep", "no hits", word=n), asked)]
    assert ladder(rounds) == [(6, "nudge")]


def test_a_call_that_fails_again_is_not_helped_by_what_another_tool_noted():
    rounds = [step for n in range(4) for step in (ok("send", "noted", text=n), err("run", text="no such flight", id=7))]
    assert ladder(rounds)[0] == (6, "nudge")


def test_the_same_answer_of_two_tools_in_turn_is_not_one_tools_answer():
    trace = [ok(("fetch", "search")[n % 2], "Nothing new.", page=n) for n in range(20)]
    assert ladder(trace, repeats(3)) == []


def test_the_same_error_to_other_arguments_is_not_the_repetition_guards_business():
    assert ladder([err("fail", item=n) for n in range(20)], repeats(3)) == []


def test_a_new_result_starts_the_count_again():
    trace = [SAME, SAME, ok("search", "new", q="x"), *[SAME] * 3]
    assert ladder(trace, repeats(3)) == [(6, "nudge")]


def test_progress_after_a_withdrawal_starts_the_ladder_again_but_the_tool_stays_away():
    player = Player(repeats(3))
    player.play([*[SAME] * 4, THIRD, FOURTH, *[OTHER] * 4])
    assert [(trip.step, trip.action) for trip in player.trips] == [
        (3, "nudge"),
        (4, "withdraw"),
        (9, "nudge"),
        (10, "withdraw"),
    ]
    assert player.withdrawn == {"search", "read"}


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, [(1, "withdraw"), (2, "land")]),
        (2, [(1, "nudge"), (2, "withdraw"), (3, "land")]),
        (3, [(1, "nudge"), (3, "withdraw"), (4, "land")]),
        (5, [(3, "nudge"), (5, "withdraw"), (6, "land")]),
    ],
)
def test_the_ladder_of_the_same_error(limit, expected):
    assert ladder([err("fail", item=n) for n in range(12)], streak(limit)) == expected
    assert ladder([malformed("query", "{" * n) for n in range(1, 12)], streak(limit)) == expected


def test_unknown_names_are_one_streak_that_goes_from_the_nudge_to_the_landing():
    trips = Player(streak(5)).play([err(f"lookup_{n}", "unknown_tool") for n in range(12)])
    assert [(trip.step, trip.action) for trip in trips] == [(3, "nudge"), (5, "land")]


def test_five_different_errors_of_one_tool_are_not_one_streak_and_earn_only_a_nudge():
    trace = [err("fail", "error", f"message {n}", item=n) for n in range(12)]
    assert ladder(trace, streak(5)) == [(5, "nudge")]


def test_a_streak_that_was_told_of_is_not_told_of_again_at_its_fifth_step():
    trace = [*[err("fail", item=n) for n in range(3)], *[err("fail", text=f"other {n}", item=n) for n in range(6)]]
    assert ladder(trace, streak(5)) == [(3, "nudge")]


def test_what_a_person_has_denied_is_no_failure_of_the_tool():
    assert ladder([err("send", "denied", "Denied by a person.", to=n) for n in range(12)]) == []


def test_the_window_of_a_resumed_session_counts_on():
    player = Player()
    window = {"calls": ['search {"q":"x"}'] * 3, "results": ["a"] * 3, "tools": ["search"] * 3, "parts": [""] * 3}
    player.metadata = {"guardrails": {"repetition": {**window, "told": []}}}
    player.guards = GuardSet(player.config).make_call_guards(player.metadata, resumed=True)
    assert [(trip.step, trip.action) for trip in player.play([SAME])] == [(1, "withdraw")]


@pytest.mark.parametrize(
    "broken",
    [{"calls": ["a"]}, {"calls": "abc"}, {"calls": [1], "results": ["x"], "tools": ["t"], "parts": [""]}],
    ids=["one list longer", "no list", "no text"],
)
def test_a_window_that_is_none_is_forgotten(broken):
    player = Player()
    player.metadata = {"guardrails": {"repetition": broken}}
    player.guards = GuardSet(player.config).make_call_guards(player.metadata, resumed=True)
    assert player.play([SAME]) == []


def test_another_class_of_error_starts_another_streak():
    kinds = ["OSError"] * 4 + ["ValueError"] * 4
    assert ladder([err("fail", kind, item=n) for n, kind in enumerate(kinds)], streak(5)) == [
        (3, "nudge"),
        (7, "nudge"),
    ]


def test_a_success_of_the_tool_ends_its_streak():
    failures = [err("fail", item=n) for n in range(4)]
    assert ladder([*failures, ok("fail", "at last", item=4), *failures], streak(5)) == [(3, "nudge"), (8, "nudge")]


@pytest.mark.parametrize("kind", ["withdrawn", "skipped", "cancelled", "blocked"])
def test_a_call_that_did_not_run_is_neither_failure_nor_success(kind):
    trace = [*[err("fail", item=n) for n in range(4)], err("fail", kind), err("fail", item=9)]
    assert ladder(trace, streak(5)) == [(3, "nudge"), (6, "withdraw")]


def test_looking_without_doing_is_nudged_once_until_something_is_done():
    config = GuardrailsConfig(read_only_loop_threshold=4)
    looking = [ok("read", f"t{n}", path=n) for n in range(10)]
    player = Player(config)
    player.play([*looking, ok("write", "ok", path="a"), *looking])
    assert [(trip.step, trip.guard, trip.action) for trip in player.trips] == [
        (4, "read_only", "nudge"),
        (15, "read_only", "nudge"),
    ]
    assert {verdict.notice_reason for verdict in player.verdicts} == {"read_only"}


@pytest.mark.parametrize("threshold", [None, 0])
def test_looking_without_doing_is_not_watched_unless_asked(threshold):
    assert (
        ladder([ok("read", f"t{n}", path=n) for n in range(30)], GuardrailsConfig(read_only_loop_threshold=threshold))
        == []
    )


def test_a_new_run_starts_without_the_counts_of_the_last_one():
    player = Player()
    player.play([SAME] * 3)
    player.guards = GuardSet(player.config).make_call_guards(player.metadata)
    player.play([SAME] * 2)
    assert [(trip.step, trip.action) for trip in player.trips] == [(3, "nudge")]


def test_a_resumed_run_goes_on_counting():
    player = Player()
    player.play([SAME] * 3)
    player.guards = GuardSet(player.config).make_call_guards(player.metadata, resumed=True)
    player.play([SAME])
    assert [(trip.step, trip.action) for trip in player.trips] == [(3, "nudge"), (4, "withdraw")]


def test_a_session_of_before_the_guards_is_filled_in():
    metadata = {"title": "mine"}
    GuardSet(GuardrailsConfig()).make_call_guards(metadata, resumed=True)
    assert metadata["title"] == "mine"
    assert {"repetition", "error_streak"} <= metadata["guardrails"].keys()
