"""Mistakes are planted in copies of the source, one at a time; the examinations find all of them."""

import re

import pytest

from .examinations import EXAMINATIONS
from .planted import BUGS, MISSED
from .planting import PROGRAM, Bug, hunt

QUICK = [bug for bug in BUGS if bug.what in (
    "a call is not reserved at the root",
    "who has been served stays in the queue",
    "the pledge of a first call that is not made stays",
)]  # fmt: skip


def test_there_are_forty():
    assert len(BUGS) >= 40
    assert len({bug.what for bug in (*BUGS, *MISSED)}) == len(BUGS) + len(MISSED)


@pytest.mark.parametrize("bug", [*BUGS, *MISSED], ids=lambda bug: bug.what)
def test_it_still_applies_to_the_source(bug):
    """Fails when the code around a bug has changed: say in `planted.py` what the same mistake would be now."""
    assert bug.plant()


def test_a_bug_whose_place_is_gone_is_noticed():
    with pytest.raises(LookupError, match="0 of 'no such code'"):
        Bug("area", "what", "run/ledger.py", "Meter.reserve", "no such code", "").plant()
    with pytest.raises(LookupError, match=r"there is no Meter\.gone"):
        Bug("area", "what", "run/ledger.py", "Meter.gone", "", "").plant()


@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.parametrize("bug", QUICK, ids=lambda bug: bug.what)
def test_it_is_found(bug, tmp_path):
    found = hunt(bug, tmp_path)
    assert found is not None
    assert found["by"] in {one.name for one in EXAMINATIONS}
    assert re.search(PROGRAM, found["said"])


def test_each_quick_one_is_there():
    assert len(QUICK) == 3


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_campaign_it_is_found(bug, tmp_path, capsys):
    found = hunt(bug, tmp_path) or hunt(bug, tmp_path / "whole", whole=True)
    assert found is not None
    with capsys.disabled():
        print(f"\n{bug.area}: {bug.what}: found by {found['by']!r} after {found['seconds']} s: {found['said'][:60]}")
