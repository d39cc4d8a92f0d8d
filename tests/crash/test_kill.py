"""G13: kill -9 at any instant loses nothing and repeats nothing."""

import os

import pytest

from .flights import campaign_flight, check_flight, check_programs, program_flight, short_leg
from .postgres import fresh_schema

CI = 30
PROGRAMS = 8
CAMPAIGN = {"sqlite": 1500, "postgresql": 500}
PART = 50  # of them at a time, so that they can be flown side by side
PARTS = [(store, part) for store, seeds in CAMPAIGN.items() for part in range(seeds // PART)]
FIRST = {"sqlite": 1000, "postgresql": 500}


def fly_all(server, address, place, seeds):
    """Fly all seeds; how many processes died, and how many effects are unknown."""
    deaths = unknown = 0
    for seed in seeds:
        happened = campaign_flight(server, seed, address, place)
        deaths += happened["deaths"]
        unknown += happened["unknown"]
    return deaths, unknown


@pytest.mark.process
def test_g13_killed_runs_lose_and_repeat_nothing_on_sqlite(server, tmp_path):
    deaths, unknown = fly_all(server, str(tmp_path / "sessions.db"), tmp_path, range(CI))
    assert deaths > CI  # it really was killed
    assert unknown  # and some of it in the middle of an effect


@pytest.mark.process
def test_g13_killed_runs_lose_and_repeat_nothing_on_postgresql(server, tmp_path):
    deaths, unknown = fly_all(server, fresh_schema(), tmp_path, range(1000, 1000 + CI))
    assert deaths > CI
    assert unknown


@pytest.mark.process
@pytest.mark.parametrize("when", ["before", "after"])
def test_g13_killed_at_every_write_of_a_short_run(server, tmp_path, when):

    for number in range(1, 14):
        leg = short_leg(tmp_path, f"{when} {number}")
        server.fly({**leg, "die_at": number, "when": when})
        ((status, report),) = server.fly(leg)
        assert status == 0, (number, report)
        check_flight(0, leg, report, 0)


@pytest.mark.process
def test_g13_killed_programs_go_on_behind_their_last_call(server, tmp_path):
    pytest.importorskip("pydantic_monty", reason="programs need pydantic-monty: pip install 'glidepath[code]'")
    flown = [program_flight(server, seed, tmp_path) for seed in range(3000, 3000 + PROGRAMS)]
    assert sum(one["deaths"] for one in flown) > PROGRAMS
    assert sum(one["unknown"] for one in flown)


@pytest.mark.process
@pytest.mark.parametrize("style", ["one by one", "together"])
def test_g13_killed_at_every_write_of_a_program(server, tmp_path, style):
    pytest.importorskip("pydantic_monty", reason="programs need pydantic-monty: pip install 'glidepath[code]'")
    for number in range(1, 15 if style == "one by one" else 9):
        leg = {**short_leg(tmp_path, f"{style} {number}"), "width": 3, "steps": 1, "programs": style}
        server.fly({**leg, "die_at": number, "when": "after" if number % 2 else "before"})
        ((status, report),) = server.fly(leg)
        assert status == 0, (number, report)
        check_programs(0, leg, report)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("part", range(10))
def test_g13_the_whole_campaign_of_programs(server, tmp_path, part):
    pytest.importorskip("pydantic_monty", reason="programs need pydantic-monty: pip install 'glidepath[code]'")
    first = int(os.environ.get("GLIDEPATH_SEED", "20000")) + part * PART
    flown = [program_flight(server, seed, tmp_path) for seed in range(first, first + PART)]
    assert sum(one["deaths"] for one in flown) > PART
    assert sum(one["unknown"] for one in flown)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("store", "part"), PARTS, ids=[f"{store}-{part}" for store, part in PARTS])
def test_g13_the_whole_campaign(server, tmp_path, store, part):
    addresses = {"sqlite": str(tmp_path / "sessions.db")}
    address = addresses.get(store) or fresh_schema()
    first = int(os.environ.get("GLIDEPATH_SEED", "10000")) + FIRST[store] + part * PART
    deaths, unknown = fly_all(server, address, tmp_path, range(first, first + PART))
    assert deaths > PART
    assert unknown
