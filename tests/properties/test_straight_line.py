"""Ordinary turns are flown in a straight line; the general way must give the same events, results and journals.

`cruise` is a second form of the rules in `judge`, `ask`, `land` and `execute`. A slice of random flights is flown both
ways here; `make campaign` flies ten thousand.
"""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("random_flights", Path(__file__).parent / "random_flights.py")
_flights = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_flights)
fly = _flights.fly

SLICE = 120
CAMPAIGN = 10_000
PART = 500


def differing(seeds):
    return [seed for seed in seeds if fly(seed) != fly(seed, straight=False)]


def test_random_flights_are_the_same_with_the_straight_line_and_without():
    assert differing(range(SLICE)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(CAMPAIGN // PART))
def test_ten_thousand_flights_are_the_same(part):
    first = SLICE + part * PART
    assert differing(range(first, first + PART)) == []
