"""The kit from the wheel, in somebody else's package: certifies what they wrote, or says why not."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.process


def python(*arguments, **options):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    clean |= options.pop("env", {})
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False, env=clean, **options
    )


def build(source, folder):
    done = python("-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=source)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Both wheels, built without a network and installed side by side; and the tests of the package."""
    home = tmp_path_factory.mktemp("thirdparty")
    source = home / "source"
    shutil.copytree(ROOT / "examples" / "thirdparty_team", source)
    wheels = [build(ROOT, home / "ours"), build(source, home / "theirs")]
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    done = python(*pip, "--target", str(home / "target"), *map(str, wheels))
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.move(source / "tests", home / "tests")
    shutil.rmtree(source)
    return home


def pytest_run(place, *arguments):
    """Their tests, with what is installed and nothing of this repository."""
    options = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-q", "--rootdir", str(place / "tests"))
    return python(*options, *arguments, cwd=place / "tests", env={"PYTHONPATH": str(place / "target")})


def test_their_coordinator_and_evaluator_are_certified(place):
    done = pytest_run(place, "test_contract.py", "-vv")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TestRelayCoordinator::test_coord_3_one_terminal_event_and_it_is_last PASSED" in done.stdout
    assert "TestSourceCounter::test_eval_5_a_blank_artifact_never_passes PASSED" in done.stdout
    assert "51 passed" in done.stdout


BROKEN = """
from glidepath_relay import RelayCoordinator, SourceCounter
from glidepath.teams.events import TeamCompleted
from glidepath.conformance import EvaluationStrategyContract, TeamCoordinatorContract


class Twice(RelayCoordinator):
    async def execute(self, request, team):
        result = await super().execute(request, team)
        if result.status.name == "COMPLETED":
            team.emit(TeamCompleted(result=result))
        return result


class TestTwice(TeamCoordinatorContract):
    def make_coordinator(self):
        return Twice()


class TestYes(EvaluationStrategyContract):
    good, bad = "[1] [2]", ""

    def make_strategy(self):
        return SourceCounter(least=0)
"""


def test_a_failure_names_the_clause_and_shows_what_was_compared(place):
    (place / "tests" / "test_broken.py").write_text(BROKEN, encoding="utf-8")
    done = pytest_run(place, "test_broken.py", "-k", "coord_3_ or eval_5_")
    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout
    assert "COORD-3: exactly one terminal event, and it is last" in said
    assert "EVAL-5: a blank artifact never passes" in said
    assert "COMPLETED: ['TEAM_STARTED', 'PLAN_READY'" in said  # what the coordinator said
    assert re.search(r"assert \[\d+, \d+\] == \[\d+\]", said), said  # rewritten by pytest, from the wheel
    assert "target/glidepath/testing/conformance/coordinator_steps.py" in said


def test_the_kit_is_not_loaded_unless_it_is_asked_for(place):
    with zipfile.ZipFile(next((place / "ours").glob("*.whl"))) as archive:
        names = archive.namelist()
        entries = "".join(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert "glidepath/testing/conformance/coordinators.py" in names
    assert "pytest11" not in entries
    probe = "import sys, glidepath, glidepath.teams, glidepath.sim; print('pytest' in sys.modules, glidepath.__file__)"
    done = python("-c", probe, env={"PYTHONPATH": str(place / "target")}, cwd=place)
    assert done.stdout.split() == ["False", str(place / "target" / "glidepath" / "__init__.py")], done.stderr
    (place / "tests" / "test_plain.py").write_text(
        "import sys\n\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith('glidepath')]\n",
        encoding="utf-8",
    )
    done = pytest_run(place, "test_plain.py")
    assert done.returncode == 0, done.stdout


SIMULATED = """
from glidepath import Agent, Limits
from glidepath.testing import ScriptedModel
from glidepath.conformance.specimen_contract import simulator


def test_mine(simulator):
    simulator(Agent(model=ScriptedModel(name="m"), limits=Limits(max_iterations=5)), only=["huge_reply"])
"""


def test_the_simulator_fixture_works_from_the_wheel_and_explains_a_hole(place):
    (place / "tests" / "test_simulated.py").write_text(SIMULATED, encoding="utf-8")
    done = pytest_run(place, "test_simulated.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 hole in 1 flight" in done.stdout
    assert "unbounded_reply" in done.stdout
    assert "Set max_output_tokens" in done.stdout
