"""mypy and pyright on small programs: what they must accept, what they must refuse, and the types they must find."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def mypy(folder):
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-incremental", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return [(Path(path).name, int(line), text) for path, line, text in found]


def pyright(folder):
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    try:
        report = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        pytest.skip(f"pyright cannot be run here (it needs Node and npm's registry): {done.stderr[-300:]}")
    assert report["summary"]["filesAnalyzed"] > 0
    return [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"])
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]


CHECKERS = pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])


@CHECKERS
def test_what_is_right_is_accepted_with_its_types(checker):
    assert checker(HERE / "accepted") == []


@CHECKERS
def test_what_is_wrong_is_refused_line_by_line(checker):
    wrong = {
        (path.name, number)
        for path in (HERE / "refused").glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }
    assert {(name, line) for name, line, _ in checker(HERE / "refused")} == wrong
