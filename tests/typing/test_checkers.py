"""mypy and pyright on small programs: what they must accept, what they must refuse, and the types they must find."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SECONDS = 840  # without a cache, on a machine that is busy with other things
pytestmark = pytest.mark.timeout(2 * SECONDS)


def mypy(*folders, cwd=HERE):
    """Reads what `make lint` has left in mypy's cache."""
    options = ["--strict", "--no-error-summary", "--explicit-package-bases", "--cache-dir", str(ROOT / ".mypy_cache")]
    options += ["--config-file", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "mypy", *options, *folders]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return [(Path(path).name, int(line), text) for path, line, text in found]


def pyright(*folders):
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *folders]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=SECONDS, check=False)
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
def test_what_is_right_is_accepted_with_its_types_and_what_is_wrong_is_refused_line_by_line(checker):
    wrong = {
        (path.name, number)
        for path in (HERE / "refused").glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }
    assert wrong
    assert {(name, line) for name, line, _ in checker("accepted", "refused")} == wrong


def test_the_programs_of_the_documentation_are_of_the_right_types(tmp_path):
    pages = runpy.run_path(str(ROOT / "tests" / "docs" / "pages.py"))
    folder = tmp_path / "docs_pages"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for path in pages["pages"]():
        program = pages["program"](path)
        if program:
            (folder / re.sub(r"\W", "_", pages["name"](path).removesuffix(".md"))).with_suffix(".py").write_text(
                program
            )
    assert len(list(folder.iterdir())) > 40
    assert mypy("docs_pages", cwd=tmp_path) == []
