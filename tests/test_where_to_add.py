""" "Where do I add ..." is executed: each addition is made in a copy of the repository, used, and its files counted.

It prevents a table in the house tour that was true once. A change that spreads one idea over more files fails here, and
so does a test with a list of its own that every newcomer must find.
"""

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.additions import ADDITIONS

ROOT = Path(__file__).parent.parent
COPIED = (
    "src",
    "scripts",
    "bench",
    "docs",
    "api",
    "tests",
    "examples",
    "config",
    "README.md",
    "pyproject.toml",
    "Makefile",
)


@pytest.fixture
def tree(tmp_path):
    """A copy of what a newcomer edits."""
    for name in COPIED:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(place, tmp_path / name)
    return tmp_path


def insert(tree, insertions):
    """Make the insertions; the files that were edited."""
    edited = set()
    for one in insertions:
        path = tree / Path(inspect.getsourcefile(one.module)).relative_to(ROOT)
        text = path.read_text(encoding="utf-8")
        assert text.count(f"\n{one.before}"), f"{path.name} has no line that begins with {one.before!r}"
        before, line, after = text.partition(f"\n{one.before}")
        path.write_text(f"{before}\n{one.text}{line[1:]}{after}", encoding="utf-8")
        edited.add(path)
    return edited


def python(tree, *arguments):
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-3000:]}{done.stderr[-3000:]}"


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ADDITIONS)
def test_it_takes_as_few_files_as_the_tour_says(what, tree):
    addition = ADDITIONS[what]
    edited = insert(tree, addition.insertions)
    assert len(edited) <= addition.files
    for script in addition.scripts:
        python(tree, f"scripts/{script}.py")
    python(tree, "-c", addition.use)
    python(tree, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *addition.tests)


@pytest.mark.process
@pytest.mark.parametrize("what", ADDITIONS)
def test_without_its_last_part_it_does_not_work(what, tree):
    """The uses can fail: a part that nobody needs would be counted for nothing."""
    addition = ADDITIONS[what]
    insert(tree, addition.insertions[:-1])
    with pytest.raises(AssertionError):
        python(tree, "-c", addition.use)
