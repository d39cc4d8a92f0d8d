"""Plants a bug in a copy of the source, and lets the examinations look for it, in a process of their own."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "glidepath"
PROGRAM = r"replay(_crash)?\(\[|try_(flight|groups)\(\d|PowerCut\(|it does not end"
"""What everything that is found says: how to see it again."""
PATIENCE = {"small": 15, "whole": 90}  # seconds of computing in one examination: a bug may also make it never end


@dataclass(frozen=True)
class Bug:
    """A mistake that somebody could make: in this function, `old` becomes `new`. Both may be parts of a line."""

    area: str
    what: str
    file: str
    function: str
    old: str
    new: str
    why_missed: str = ""

    def plant(self):
        """The source of the file with the bug in it; raises `LookupError` when it does not apply any more."""
        text = (SOURCE / self.file).read_text(encoding="utf-8")
        start, end = find_function(text, self.function)
        body = text[start:end]
        if body.count(self.old) != 1:
            raise LookupError(f"{self.what}: {self.function} in {self.file} has {body.count(self.old)} of {self.old!r}")
        planted = text[:start] + body.replace(self.old, self.new) + text[end:]
        compile(planted, self.file, "exec")
        return planted


def find_function(text, path):
    """Where a function or a method of this path begins and ends in a text."""
    node = ast.parse(text)
    for name in path.split("."):
        inside = [one for one in node.body if getattr(one, "name", None) == name]
        if not inside:
            raise LookupError(f"there is no {path}")
        node = inside[-1]
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: node.lineno - 1])), sum(map(len, lines[: node.end_lineno]))


def copy_with(bug, place):
    """A copy of the package with this bug; files that are equal are links to the same file."""
    copy = Path(place) / "glidepath"
    shutil.copytree(SOURCE, copy, copy_function=os.link, ignore=shutil.ignore_patterns("static", "__pycache__"))
    planted = bug.plant()
    (copy / bug.file).unlink()
    (copy / bug.file).write_text(planted, encoding="utf-8")


def hunt(bug, place, *, whole=False):
    """Run the examinations on a copy with this bug, until one finds it.

    Returns which one did, after how many seconds of computing, and what it said; None when none did.
    """
    copy_with(bug, place)
    paths = [str(place), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONPYCACHEPREFIX": str(Path(place) / "pyc")}
    command = [sys.executable, "-m", "tests.interleavings.planting", "whole" if whole else "small"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{bug.what}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def look(size):
    """Examine this process's glidepath; what the first examination that fails has found."""
    from .examinations import EXAMINATIONS

    def end(*_):
        raise TimeoutError("it does not end")

    signal.signal(signal.SIGPROF, end)
    began = time.process_time()
    for one in sorted(EXAMINATIONS, key=lambda one: one.cost):
        signal.setitimer(signal.ITIMER_PROF, PATIENCE[size])
        try:
            one.run(size == "whole")
        except BaseException as error:
            seconds = time.process_time() - began
            said = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            return {"by": one.name, "seconds": round(seconds, 1), "said": said[:3000]}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return None


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w") if "-v" not in sys.argv else sys.stderr  # noqa: PTH123, SIM115
    found = look(sys.argv[1])
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)
