"""G13 for answers that are read while they are written: killed in the middle, the whole answer comes again."""

import json
import signal
from pathlib import Path

import pytest

from .flights import short_leg
from .partial_life import SAID

ONCE = 230  # tokens of a run that nobody kills
WHOLE = json.loads(SAID)


def fly_killed(server, tmp_path, deaths, seen=True):
    leg = {**short_leg(tmp_path, f"{deaths}"), "life": "partial"}
    died = 0
    for death in deaths:
        ((status, _),) = server.fly({**leg, **death})
        died += status == -signal.SIGKILL
    ((status, report),) = server.fly(leg)
    assert status == 0, report
    assert (report["outcome"], report["output"]) == ("DONE", WHOLE)
    if seen:
        assert report["seen"][-1] == WHOLE
        assert len(report["seen"]) > 3, "the values begin again, from the first"
    assert report["replies"] == ["", SAID], "nothing of a cut answer is left"
    ledger = Path(leg["ledger"])
    looks = ledger.read_text(encoding="utf-8").split() if ledger.exists() else []
    assert len(looks) == 1 or (not looks and report["unknown"] == ["look"]), (deaths, looks)
    return died, report


@pytest.mark.process
@pytest.mark.parametrize("values", [(1,), (4, 2)])
def test_g13_killed_at_a_partial_value(server, tmp_path, values):
    died, report = fly_killed(server, tmp_path, [{"die_in": one} for one in values])
    assert died == len(values)
    assert report["tokens"] > ONCE, "each answer that was cut off is charged"


@pytest.mark.slow
@pytest.mark.process
def test_g13_killed_at_every_partial_value_and_every_write(server, tmp_path):
    _, report = fly_killed(server, tmp_path, [])
    assert report["tokens"] == ONCE
    values = range(1, len(report["seen"]))  # at the last one the answer may be on disk
    died = 0
    for value in values:
        died += fly_killed(server, tmp_path, [{"die_in": value}])[0]
        died += fly_killed(server, tmp_path, [{"die_in": value}, {"die_in": 1}])[0]
    assert died == 3 * len(values) > 10
    died += fly_killed(server, tmp_path, [{"die_in": len(values) + 1}], seen=False)[0]
    for when in ("before", "after"):
        for number in range(1, 10):
            place = tmp_path / f"{when} {number}"
            place.mkdir()
            died += fly_killed(server, place, [{"die_at": number, "when": when}], seen=False)[0]
    assert died > 3 * len(values) + 8
