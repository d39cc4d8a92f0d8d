"""G11 with figures: the default guards on recorded runs, on generated circles and on honest specimens."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent.parent / "bench" / "guards"
MORE = "GLIDEPATH_TRAJECTORIES"


def _load():
    spec = importlib.util.spec_from_file_location("bench_guards", HOME / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_guards"] = module
    spec.loader.exec_module(module)
    return module


bench = _load()


@pytest.fixture(scope="module")
def report():
    return bench.measure(bench.SHIPPED)


def test_g11_the_bars_are_met_on_the_shipped_trajectories(report):
    assert report.misses() == []


def test_the_shipped_trajectories_are_enough_to_fail_on(report):
    assert len(report.of("solved")) > 200
    assert len(report.of("stuck")) >= 8
    assert len(report.circles) == 50
    assert report.honest >= 12


def test_a_bar_that_is_not_met_is_named(report):
    solved = [bench.Flown("a", "solved", {"repetition": "withdraw"}), bench.Flown("b", "stuck", {})]
    circle = [bench.Flown("c", "generated", {})]
    misses = bench.Report(solved, circle, ["archives_mail"], 1).misses()
    assert len(misses) == 5
    assert "archives_mail" in misses[0]


def step(call, result, *, error=False):
    return bench.Step((("tool", call),), ((result, len(result), error),))


def test_the_measure_counts_three_equal_pairs_within_ten_steps():
    others = [step(f"other {n}", f"result {n}") for n in range(10)]
    same = step("a", "b")
    assert bench.circles([same, *others[:4], same, *others[4:7], same])
    assert not bench.circles([same, *others[:4], same, *others[4:9], same])
    assert not bench.circles([same, step("a", "c"), same])


def test_the_measure_counts_five_steps_of_errors_in_a_row():
    errors = [step(f"{n}", f"{n}", error=True) for n in range(5)]
    assert bench.circles(errors)
    assert not bench.circles([*errors[:4], step("x", "y"), errors[4]])


def test_the_page_has_a_row_for_every_guard(report):
    page = bench.page(report)
    assert all(f"| {name} |" in page for name in (*bench.GUARDS, "either", "honest specimens"))


@pytest.mark.slow
def test_g11_the_bars_are_met_on_more_trajectories():
    path = os.environ.get(MORE)
    if not path:
        pytest.skip(f"{MORE} names no file of further trajectories")
    assert bench.measure(Path(path)).misses() == []
