"""One line about a run, whatever the width."""

from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st

from glidepath import AgentState, Limits, LoopOutcome, RunResult, Usage
from glidepath.apps.cli.display_text import width_of
from glidepath.apps.cli.status import (
    Status,
    arguments_line,
    clip_line,
    closing_line,
    format_count,
    format_duration,
    format_money,
    status_line,
)
from glidepath.events import RunEnded, RunStarted


def status(limits, **known):
    made = Status(limits, lambda: 0.0)
    for name, value in known.items():
        setattr(made, name, value)
    return made


FULL = Limits(max_iterations=50, max_tokens=200_000, max_cost="0.50", timeout=1800)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (100, "writing | turn 3/50 | 12.4k/200k tokens | $0.021/$0.50 | 30:00 left"),
        (62, "writing | turn 3/50 | 12.4k/200k tok | $0.021/$0.50 | 30:00"),
        (40, "writing 3/50 12.4k tok $0.021 30:00"),
        (30, "writing 3/50 $0.021 30:00"),
        (20, "writing 3/50 30:00"),
        (12, "writing 3/50"),
        (9, "writing"),
        (4, "writ"),
    ],
)
def test_the_wider_the_terminal_the_more_is_said(width, line):
    made = status(FULL, phase="writing", turn=3, tokens=12_400, cost=Decimal("0.021"))
    assert status_line(made, width) == line


def test_what_has_no_limit_shows_none():
    made = status(Limits(max_iterations=5), phase="thinking", turn=1, tokens=900)
    assert status_line(made, 100) == "thinking | turn 1/5 | 900 tokens"


@settings(deadline=None)
@given(
    phase=st.text(max_size=60),
    tokens=st.integers(0, 10**12),
    cost=st.none() | st.decimals(0, 10**6, allow_nan=False),
    turn=st.integers(0, 10**6),
    width=st.integers(1, 200),
)
def test_the_line_is_never_wider_than_the_terminal(phase, tokens, cost, turn, width):
    line = status_line(status(FULL, phase=clip_line(phase, 60), turn=turn, tokens=tokens, cost=cost), width)
    assert width_of(line) <= width


@settings(deadline=None)
@given(st.text(), st.integers(0, 100))
def test_clipped_text_fits_and_steers_no_terminal(text, width):
    shown = clip_line(text, width)
    assert width_of(shown) <= width
    assert all(sign.isprintable() for sign in shown)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1234, "1.2k"),
        (99_949, "99.9k"),
        (200_000, "200k"),
        (999_600, "1M"),
        (1_500_000, "1.5M"),
    ],
)
def test_figures(number, text):
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0"),
        ("0.5", "$0.50"),
        ("0.021", "$0.021"),
        ("0.0004", "$0.0004"),
        ("0.00001", "<$0.0001"),
        ("12.346", "$12.35"),
    ],
)
def test_money(amount, text):
    assert format_money(Decimal(amount)) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3661, "1:01:01")])
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_arguments_are_short():
    assert arguments_line({"path": "a.py", "pattern": None, "deep": False, "lines": 3}) == "a.py lines=3"
    assert arguments_line({}) == ""


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        (Usage(input=9_000, output=500), "4 turns | 1 tool call | 9.5k tokens | 0:02"),
        (
            Usage(input=9_000, output=500, cache_read=6_000),
            "4 turns | 1 tool call | 9.5k tokens (67% of the input cached) | 0:02",
        ),
    ],
)
def test_the_last_line_shows_what_came_from_the_prompt_cache(usage, line):
    ended = {"state": AgentState.COMPLETED, "outcome": LoopOutcome.DONE}
    result = RunResult(run_id="r", session_id="s", usage=usage, iterations=4, tool_calls=1, elapsed=2.0, **ended)
    assert closing_line(result) == line


def test_a_first_turn_that_was_interrupted_is_not_called_0_turns():
    ended = {"state": AgentState.CANCELLED, "outcome": LoopOutcome.CANCELLED}
    result = RunResult(run_id="r", session_id="s", usage=Usage(input=700, output=8), elapsed=5.0, **ended)
    assert closing_line(result) == "708 tokens | 0:05"


def test_the_time_does_not_run_while_a_person_decides():
    clock = [0.0]
    made = Status(Limits(timeout=100), lambda: clock[0])
    head = {"run_id": "r", "parent_id": None, "sequence": 1, "time": 0.0}
    start = {**head, "session_id": "s", "agent_name": "a", "model": "m"}
    made.record_event(RunStarted(**start))
    clock[0] = 10.0
    paused = RunResult(
        run_id="r",
        session_id="s",
        state=AgentState.WAITING_FOR_INPUT,
        outcome=LoopOutcome.PAUSED,
        text="",
        usage=Usage(),
        iterations=1,
        tool_calls=0,
        elapsed=2.0,
    )
    made.record_event(RunEnded(**head, result=paused))
    clock[0] = 70.0
    assert made.seconds_left() == 90
    made.record_event(RunStarted(**start, resumed=True))
    clock[0] = 75.0
    assert made.seconds_left() == 85


def test_the_money_of_a_conversation_is_shown_against_its_limit():
    made = status(FULL, phase="writing", turn=1, tokens=100)
    made.restart(Decimal("0.08"))
    assert "| $0.08/$0.50 |" in status_line(made, 100)
    made.cost = Decimal("0.02")
    assert "| $0.10/$0.50 |" in status_line(made, 100)
