"""The script that runs the suite forgives a test that fails beside others and passes alone, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "run_tests.py"
ONCE = """
import pathlib
def test_once():
    tried = pathlib.Path("tried")
    before, _ = tried.exists(), tried.write_text("yes")
    assert before
"""
NEVER = "def test_never():\n    assert 0\n"


def suite(folder, text):
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(text)
    bare = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take seconds to load
    given = [sys.executable, SCRIPT, "-q"]
    done = subprocess.run(given, cwd=folder, env=bare, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


@pytest.mark.process
def test_a_test_that_passes_alone_is_named_and_forgiven(tmp_path):
    code, said = suite(tmp_path, ONCE + "def test_other():\n    pass\n")
    assert (code, said.count("test_some.py::test_once")) == (0, 3)
    assert "passed only on their second try" in said
    assert "test_other" not in said


@pytest.mark.process
@pytest.mark.parametrize("text", [NEVER, ONCE + NEVER], ids=["never", "once and never"])
def test_a_test_that_fails_twice_fails(tmp_path, text):
    code, said = suite(tmp_path, text)
    assert (code, "Once more, alone:" in said, "second try" in said) == (1, True, False)


@pytest.mark.process
def test_many_failures_are_not_tried_again(tmp_path):
    text = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_never(n):\n    assert 0\n"
    code, said = suite(tmp_path, text)
    assert (code, "Once more" in said) == (1, False)


@pytest.mark.process
def test_a_suite_that_cannot_be_collected_is_not_tried_again(tmp_path):
    code, said = suite(tmp_path, "import nothing_of_this_name\n")
    assert (code, "Once more" in said) == (2, False)
