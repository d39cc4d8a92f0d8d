"""Tools and conversations of others: a slice of BFCL and AgentDojo; `make campaign` flies all of them."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"


def _load(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / name / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(BENCH))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


bfcl, agentdojo = _load("bfcl"), _load("agentdojo")


def flown(campaign, **options):
    try:
        return campaign.fly(**options)
    except campaign.NotInstalledError as error:
        pytest.skip(str(error))


@pytest.mark.process
def test_a_slice_of_bfcls_conversations_ends_as_it_should_in_order_and_not_side_by_side():
    report = flown(bfcl, every=40, modes=("auto", "parallel"))
    assert bfcl.misses(report) == []
    assert report["auto"]["passed"] == report["auto"]["conversations"] == 20
    assert report["parallel"]["passed"] < 20, "or the order does not matter to these, and nothing is shown"


@pytest.mark.process
def test_a_slice_of_agentdojos_tasks_passes():
    report = flown(agentdojo, every=10)
    assert agentdojo.misses(report) == []
    assert report["one_reply"]["tasks"] == 10


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_of_bfcls_conversations():
    report = flown(bfcl)
    assert bfcl.misses(report) == []
    assert report["auto"]["conversations"] == 800
    assert report["auto"]["passed"] >= 796
    assert report["parallel"]["passed"] < 700


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_of_agentdojos_tasks():
    report = flown(agentdojo)
    assert agentdojo.misses(report) == []
    assert report["turn_by_turn"]["tasks"] == 97


def test_a_missed_bar_is_named():
    mode = {"conversations": 800, "passed": 795, "failed": ["multi_turn_base_1"], "lost": 2, "guards": 1}
    assert [line.split(":")[0] for line in bfcl.misses({"auto": mode})] == ["AUTO passes 795 of 800", "auto", "auto"]
    task = {"tasks": 97, "passed": 96, "failed": ["slack user_task_1"], "errors": 1, "guards": 0}
    assert len(agentdojo.misses({"one_reply": task})) == 2
