"""Intervals and tests against values from textbooks, and against simulated agents."""

import random
from math import comb

import pytest
from hypothesis import given, strategies as st

from glidepath.apps.evals.intervals import clustered_interval, paired_interval, sign_flip_chance, wilson


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_newcombe_prints_it(passed, total, low, high):
    assert wilson(passed, total) == pytest.approx((low, high), abs=0.0001)


@given(st.integers(0, 500), st.integers(1, 500))
def test_wilson_holds_the_share_and_stays_a_share(passed, more):
    total = passed + more
    low, high = wilson(passed, total)
    assert 0 <= low <= passed / total <= high <= 1


def test_without_repeats_the_interval_is_wilsons():
    groups = [[True]] * 30 + [[False]] * 10
    assert clustered_interval(groups) == wilson(30, 40)
    assert clustered_interval([]) == (0.0, 1.0)


def test_repeats_that_always_agree_count_as_one_case():
    groups = [[True] * 5] * 30 + [[False] * 5] * 10
    assert clustered_interval(groups) == pytest.approx(wilson(30, 40), abs=0.005)


@pytest.mark.parametrize("spread", [0.0, 0.2, 0.4])
def test_the_interval_of_repeats_holds_the_truth_about_95_times_of_100(spread):
    chance = random.Random(7)
    held, trials = 0, 400
    for _ in range(trials):
        shares = [0.6 + chance.choice((-spread, spread)) for _ in range(40)]
        low, high = clustered_interval([[chance.random() < share for _ in range(4)] for share in shares])
        held += low <= 0.6 <= high
    assert held / trials >= 0.92


@pytest.mark.parametrize(("wins", "losses"), [(9, 1), (5, 5), (6, 0), (1, 0), (30, 15)])
def test_the_test_of_pairs_is_mcnemars(wins, losses):
    both = wins + losses
    tail = sum(comb(both, k) for k in range(both + 1) if abs(2 * k - both) >= abs(wins - losses)) / 2**both
    assert sign_flip_chance([1] * wins + [-1] * losses + [0] * 20) == pytest.approx(tail)


def test_no_difference_is_chance():
    assert sign_flip_chance([]) == sign_flip_chance([0, 0]) == 1.0


@given(st.lists(st.integers(-5, 5), max_size=9))
def test_the_test_counts_every_way_to_flip_signs(differences):
    sums = [0]
    for one in differences:
        sums = [before + sign * one for before in sums for sign in (1, -1)]
    expected = sum(abs(one) >= abs(sum(differences)) for one in sums) / len(sums)
    assert sign_flip_chance(differences) == pytest.approx(expected)


def test_many_pairs_are_quick_and_finite():
    assert sign_flip_chance([1] * 1200 + [-1] * 1000) == pytest.approx(2.2e-5, rel=0.2)


def test_equal_agents_are_told_apart_at_most_5_times_of_100():
    chance = random.Random(3)
    found = sum(
        sign_flip_chance([chance.randint(0, 1) - chance.randint(0, 1) for _ in range(60)]) < 0.05 for _ in range(400)
    )
    assert found / 400 <= 0.06


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=50))
def test_the_interval_of_a_difference_holds_it(differences):
    low, high = paired_interval(differences)
    middle = sum(differences) / len(differences) if differences else 0.0
    assert -1 <= low <= middle <= high <= 1


def test_the_interval_of_a_difference_as_bonett_and_price_print_it():
    # 2x2 table of 101 pairs, 1 and 14 of them discordant: their adjusted Wald interval.
    differences = [1.0] * 14 + [-1.0] + [0.0] * 86
    n = 101 + 2
    a, b = 15 / n, 2 / n
    half = 1.959964 * ((a + b - (a - b) ** 2) / n) ** 0.5
    assert paired_interval(differences) == pytest.approx(((a - b) - half, (a - b) + half), abs=1e-6)
