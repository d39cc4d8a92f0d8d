"""Cases in which a guard once spoke too early, never finished its ladder, or kept what a store cannot write."""

import pytest
from hypothesis import given

from glidepath import _wire
from glidepath.errors import ConfigurationError
from glidepath.guards import GracefulTurnLimit, GuardrailsConfig, GuardSet, TokenScaling
from glidepath.messages import ImageBlock, ToolCall
from glidepath.spi import Step

from .test_properties import configs, traces
from .test_stop_guards import CUT, EMPTY, SILENT, TRUNCATED, WHOLE, Ends
from .trace import TOOLS, Player, err, ladder, ok

SEARCH, WAIT = ok("search", "a", q="x"), ok("wait", "w")


# --- honest work ------------------------------------------------------------------------------------------------


def test_a_test_tool_that_fails_between_edits_is_kept():
    rounds = [
        step
        for n in range(9)
        for step in (ok("edit", f"line {n}", n=n), err("run_tests", "ToolError", f"{9 - n} failed"))
    ]
    assert ladder(rounds) == []


def test_any_success_in_the_batch_ends_the_streak():
    assert ladder([[err("fail", item=n), ok("search", f"hit {n}", q=n)] for n in range(9)]) == []


def test_a_tool_that_answers_with_new_pictures_makes_progress():
    assert ladder([ok("click", (ImageBlock("image/png", data=bytes([n])),), x=1) for n in range(9)]) == []


def test_a_tool_that_answers_with_the_same_picture_does_not():
    same = ok("click", (ImageBlock("image/png", data=b"1"),), x=1)
    assert ladder([same] * 9) == [(3, "nudge"), (4, "withdraw"), (5, "land")]


def test_polling_is_not_looking_without_doing():
    assert ladder([WAIT] * 20, GuardrailsConfig(read_only_loop_threshold=4)) == []


@pytest.mark.parametrize(("name", "lines"), [("write", 1), ("grep", 0), ("wait", 0)])
def test_a_log_line_suggests_read_only_once_where_it_would_have_helped(name, lines, caplog):
    with caplog.at_level("INFO", logger="glidepath"):
        Player().play([ok(name, "ok", n=n) for n in range(40)])
    assert len([line for line in caplog.messages if "read_only=True" in line]) == lines


# --- ladders that end -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lap", "landed_at"),
    [([[SEARCH, WAIT]], 5), ([[SEARCH, WAIT], [ok("read", "b", path="b"), WAIT]], 9)],
    ids=["one set", "two sets in turn"],
)
def test_a_circle_that_also_polls_is_landed(lap, landed_at):
    assert ladder(lap * 8)[-1] == (landed_at, "land")


@pytest.mark.parametrize("name", ["look up", "look\nup", "\udcff", "x" * 100_000])
def test_a_circle_of_an_impossible_name_goes_from_the_nudge_to_the_landing(name):
    trips = Player(GuardrailsConfig(max_error_streak=0)).play([err(name, "unknown_tool")] * 9)
    assert [(trip.step, trip.action, trip.tools) for trip in trips] == [(3, "nudge", ()), (4, "land", ())]


def test_all_tools_that_fail_together_are_withdrawn_together():
    trips = Player().play([[err("fail", item=n), err("fetch", "timeout", page=n)] for n in range(9)])
    assert [(trip.step, trip.action, trip.tools) for trip in trips] == [
        (3, "nudge", ()),
        (5, "withdraw", ("fail", "fetch")),
        (6, "land", ("fail", "fetch")),
    ]


def test_a_nudge_for_one_tool_does_not_hide_the_withdrawal_of_another():
    trace = [
        *[err("fail", item=n) for n in range(2)],
        *[[err("fetch", "timeout", page=n), err("fail", item=n)] for n in range(3)],
    ]
    assert [(trip.step, trip.action, trip.tools) for trip in Player().play(trace)][-1] == (5, "withdraw", ("fail",))


def test_a_nudge_about_a_circle_does_not_hide_the_withdrawal_for_the_same_answer():
    trace = [ok("grep", "nothing", word=n if n < 9 else n % 3) for n in range(14)]
    assert ladder(trace) == [(10, "nudge"), (12, "withdraw"), (13, "land")]


@pytest.mark.parametrize(
    ("trace", "withdrawn_at"),
    [([ok("grep", "no hits", word=n) for n in range(14)], 11), ([err("fail", item=n) for n in range(9)], 4)],
    ids=["same answer", "same error"],
)
def test_after_the_wind_down_notice_every_ladder_is_one_step_shorter(trace, withdrawn_at):
    assert ladder(trace, wound_down=True) == [(withdrawn_at, "withdraw"), (withdrawn_at + 1, "land")]


def test_the_nudge_about_a_circle_names_all_its_tools():
    player = Player()
    player.play([SEARCH, ok("read", "b", path="b")] * 3)
    assert "read, search" in player.verdicts[0].notice


@given(traces, configs)
def test_every_withdrawal_takes_something_away_and_only_what_exists(trace, config):
    player = Player(config)
    for batch in trace:
        gone = player.withdrawn
        player.one(batch)
        for trip in player.trips:
            if trip.step == player.steps and trip.action == "withdraw":
                assert set(trip.tools) <= TOOLS.keys()
                assert not set(trip.tools) <= gone
                assert trip.guard != "repetition" or not any(TOOLS[tool].polling for tool in trip.tools)
        if player.landed:
            break


# --- state ------------------------------------------------------------------------------------------------------


@given(traces, configs)
def test_whatever_happened_the_state_can_be_stored_and_is_small(trace, config):
    player = Player(config)
    player.play(trace)
    assert len(_wire.encode(player.metadata)) < 6_000


def test_a_name_that_cannot_be_written_is_not_kept():
    player = Player()
    player.play([ok("\udcff", "same", page=n) for n in range(5)])
    assert b"same" in _wire.encode(player.metadata)


def test_large_batches_leave_a_small_state():
    player = Player()
    player.play([[ok("x" * 1000, "y" * 100, page=n) for n in range(500)]] * 3)
    assert len(_wire.encode(player.metadata)) < 2_000


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        {"repetition": []},
        {"repetition": {"calls": ["search {}"]}},
        {"repetition": {"calls": ["search {}"], "results": ["a"], "tools": [["search"]], "runs": [1]}},
        {"repetition": {"calls": ["a"] * 9, "results": ["a"] * 9, "tools": [[]] * 9}},
        {
            "repetition": {"same": []},
            "error_streak": {"streaks": 3},
            "read_only": {"steps": "x"},
            "empty_answer": {"used": None},
        },
    ],
)
def test_state_of_another_version_is_replaced_where_it_does_not_fit(kept):
    player = Player(GuardrailsConfig(read_only_loop_threshold=8))
    player.metadata = {"guardrails": kept}
    player.guards = GuardSet(player.config).make_call_guards(player.metadata, resumed=True)
    assert [(trip.step, trip.action) for trip in player.play([SEARCH] * 9)] == [
        (3, "nudge"),
        (4, "withdraw"),
        (5, "land"),
    ]


def test_a_step_without_calls_is_no_step():
    for guard in Player(GuardrailsConfig(read_only_loop_threshold=1)).guards:
        assert guard.before is None or guard.before(Step((), TOOLS)) is None
        assert guard.after(Step((), TOOLS), ()) is None


def test_arguments_that_json_cannot_hold_are_told_apart():
    [guard, *_] = Player().guards
    seen = set()
    for value in ("\udcff", "\udcfe", {1: 2}, object):
        guard.before(Step((ToolCall("c", "search", {"a": value}),), TOOLS))
        seen.add(guard._signature)
    assert len(seen) == 4


# --- ends and settings ------------------------------------------------------------------------------------------


def test_recoveries_are_counted_for_each_answer():
    assert Ends().all(CUT, CUT, WHOLE, CUT, CUT, CUT) == [TRUNCATED, TRUNCATED, None, TRUNCATED, TRUNCATED, None]


def test_an_answer_of_invisible_characters_is_empty():
    assert Ends().all({"text": "\u200b\ufeff "}, EMPTY) == [SILENT, "FAIL"]


def test_the_settings_can_be_read_from_plain_data():
    config = _wire.convert({"max_error_streak": 4, "reserve_cost_fraction": "0.25"}, GuardrailsConfig)
    assert (config.max_error_streak, str(config.cost_reserve)) == (4, "0.25")


@pytest.mark.parametrize("field", ["max_error_streak", "reserve_cost_fraction"])
def test_a_number_too_long_to_be_shown_is_still_refused_by_name(field):
    with pytest.raises(ConfigurationError, match=field):
        GuardrailsConfig(**{field: -(10**5000)})


def test_a_scaling_is_made_only_in_the_three_ways():
    with pytest.raises(ConfigurationError, match="Double"):
        TokenScaling("tripled")


@pytest.mark.parametrize(("provider", "error"), [(lambda: 1 // 0, ZeroDivisionError), (lambda: "x", TypeError)])
def test_what_went_wrong_with_the_grace_is_kept_until_it_goes_right(provider, error):
    providers = [lambda: 4, provider]

    def grace():
        return providers.pop()()

    limit = GracefulTurnLimit(10, 3, grace_provider=grace)
    assert limit.soft_limit() == 7
    assert isinstance(limit.grace_error, error)
    assert limit.soft_limit() == 6
    assert limit.grace_error is None


def test_without_grace_the_soft_limit_is_the_hard_one():
    assert GracefulTurnLimit(10, 0).soft_limit() == 10
    assert GracefulTurnLimit(10, 0, grace_provider=lambda: 4).soft_limit() == 10
