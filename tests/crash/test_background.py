"""G13 for calls in the background: killed at any write, nothing is repeated that must not be, and nothing is lost."""

import signal
from pathlib import Path

import pytest

from .flights import short_leg

WRITES = 16


def fly_killed(server, tmp_path, number, when, deaths=1):
    leg = {**short_leg(tmp_path, f"{when} {number} {deaths}"), "life": "background"}
    died = 0
    for again in range(deaths):
        ((status, _),) = server.fly({**leg, "die_at": number + again, "when": when})
        died += status == -signal.SIGKILL
    ((status, report),) = server.fly(leg)
    assert status == 0, report
    check(leg, report)
    return died, report


def check(leg, report):
    ledger = Path(leg["ledger"]).read_text(encoding="utf-8").split()
    assert report["outcome"] == "DONE", report
    assert [one for one, *_ in report["results"]] == report["calls"]  # G6
    assert ledger.count("pay") <= 1
    texts = [text for *_, text in report["results"]]
    if "pay" in ledger and "paid" not in texts:
        assert "pay" in report["unknown"], report
    if "pay" not in report["unknown"]:
        assert "paid" in texts
        assert ledger.count("paid") == 1
    assert "indexed" in texts  # it may run again, and does


@pytest.mark.process
@pytest.mark.parametrize("when", ["before", "after"])
def test_g13_killed_at_every_write_with_calls_in_the_background(server, tmp_path, when):
    flown = [fly_killed(server, tmp_path, number, when) for number in range(2 if when == "after" else 3, WRITES, 3)]
    assert sum(died for died, _ in flown) > WRITES // 6
    assert any("pay" in report["unknown"] for _, report in flown)
    assert any("pay" not in report["unknown"] for _, report in flown)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("when", ["before", "after"])
def test_g13_killed_twice_with_calls_in_the_background(server, tmp_path, when):
    for number in range(1, WRITES):
        for again in range(4):
            place = tmp_path / f"{number} {again}"
            place.mkdir()
            fly_killed(server, place, number, when, deaths=2)
