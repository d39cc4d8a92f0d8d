"""The harness beside other frameworks stays in working order: the bare loop and glidepath, nothing installed."""

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS, MATRIX = ROOT / "bench" / "peers", ROOT / "bench" / "matrix"
SIZES = {
    "turn": {"turns": 4},
    "checks": {"turns": 4},
    "plugins": {"turns": 4},
    "stream": {"deltas": 30},
    "crowd": {"agents": 5, "turns": 2},
    "long": {"turns": 80},
    "persist": {"turns": 8},
    "cancel": {"agents": 5},
}


def ask(folder: Path, *words: str) -> dict:
    done = subprocess.run(
        [sys.executable, str(folder / "worker.py"), *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def peers(monkeypatch):
    """The modules of bench/peers, forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(PEERS))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(ROOT / "bench")):
            del sys.modules[name]


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    before = set(sys.modules)
    yield importlib.import_module("report")
    for name in {"report", "charts"} - before:
        del sys.modules[name]


def test_a_crowd_is_also_measured_with_nobody_listening(peers):
    workloads, adapter = peers("workloads"), peers("adapters.glidepath_run")
    figures = asyncio.run(workloads.crowd(adapter, **SIZES["crowd"]))  # a script that is not played whole raises
    assert figures["cost_us"] > 0


@pytest.mark.parametrize("framework", ["bare", "glidepath"])
def test_every_workload_measures_something(peers, framework):
    workloads, adapter = peers("workloads"), peers(f"adapters.{framework}")
    for name, options in SIZES.items():
        if name == "plugins" and framework == "bare":
            continue
        figures = asyncio.run(getattr(workloads, name)(adapter, **options))  # a script that is not played whole raises
        assert figures["cost_us"] > 0, name
        if name == "persist":
            assert figures["disk_bytes"] > 0
        if name == "cancel":
            assert figures["tools_cancelled"] == figures["tasks_ended"] == 5


def test_a_framework_that_skips_work_does_not_look_fast(peers):
    workloads = peers("workloads")

    class Lazy:
        @staticmethod
        async def play(script):
            while await script.next_call() is not None:
                script.called += 1  # and shows none of the deltas

    with pytest.raises(AssertionError, match="deltas seen"):
        asyncio.run(workloads.turn(Lazy, 5))


def test_a_worker_prints_its_figures_as_its_last_line():
    assert ask(PEERS, "bare", "turn", "--options", '{"turns": 3}')["cost_us"] > 0
    assert ask(PEERS, "glidepath", "import")["modules"] > 10


@pytest.mark.parametrize("case", ["control", "zero usage", "fork bomb"])
def test_glidepath_holds_a_case_of_the_matrix(case):
    row = ask(MATRIX, "glidepath", case)
    assert row["contained"], row
    assert row["truthful"], row
    assert row["answer"], row


def test_the_judge_sees_overspending_kills_and_empty_success(monkeypatch):
    monkeypatch.syspath_prepend(str(MATRIX))
    cases = importlib.import_module("cases")
    try:
        truth = cases.Truth(cases.CASES["same call"], turns=12)
        assert not cases.verdict(truth, cases.Ending("limit"), 0.1)["contained"]
        truth.turns = 11
        assert cases.verdict(truth, cases.Ending("limit"), 0.1)["contained"]
        assert not cases.verdict(truth, None, 12.0)["contained"]
        assert not cases.verdict(truth, cases.Ending("done", ""), 0.1)["truthful"]
        truth.streams = 1
        assert not cases.verdict(truth, cases.Ending("limit"), 0.1)["contained"]
        unflown = cases.Truth(cases.CASES["same call"])
        assert not cases.verdict(unflown, cases.Ending("failed"), 0.1)["contained"]
    finally:
        del sys.modules["cases"]


def test_every_framework_has_an_adapter_and_pins(peers):
    for name in peers("environments").FRAMEWORKS:
        assert (PEERS / "adapters" / f"{name}.py").is_file()
        pins = (PEERS / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert pins
        assert all("==" in line for line in pins), name


def test_the_page_says_what_the_figures_say(report):
    figures = report.Figures(json.loads((report.RESULTS / "peers.json").read_text(encoding="utf-8")))
    matrix = json.loads((report.RESULTS / "matrix.json").read_text(encoding="utf-8"))
    text = report.page(figures, matrix)
    assert "{{" not in text
    assert report.PAGE.read_text(encoding="utf-8") == text, "run python bench/report.py"


def test_the_wide_cells_are_measured_and_judged(peers, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    wide = peers("wide")
    rows = wide.measure(rounds=1, scale=0.005)
    crowds = {"crowd", "crowd_kib", "crowd_run", "short_runs"}
    assert set(rows) == {"delta", *crowds, "cancel", "cancel_landed", "import", "cold_ratio", "cold_ms"}
    assert all(cell["ratio"] is None or cell["ratio"] > 0 for cell in rows.values())
    bare, ours = [{"cost_us": 1.0}], [{"cost_us": 5.0}, {"cost_us": 4.0}]
    assert wide.row(bare, ours, 4.0)["ok"]  # best against best
    assert wide.row(bare, ours, 3.9)["ok"] is False
    assert wide.row(bare, ours, None)["ok"] is None
    assert wide.row([{"error": "broken"}], ours, 9.0)["ok"] is False
