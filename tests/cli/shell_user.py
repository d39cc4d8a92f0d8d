"""Whoever types `glidepath ...`: in this process with pretended streams, or in a process of its own."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

from glidepath.apps.cli import CliContext
from glidepath.cli import main

HERE = Path(__file__).resolve().parent
DRIVER = HERE / "driver.py"


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "GLIDEPATH", "NO_COLOR"))}
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "LC_ALL": "C.UTF-8", **more}


class Ran:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def glidepath(*argv, folder, environ=None, stdin=None, now=None):
    """Run a command here and now."""
    if str(HERE) not in sys.path:
        sys.path.append(str(HERE))
    out, err = io.StringIO(), io.StringIO()
    world = CliContext(
        environ=environ or {},
        stdin=io.StringIO(stdin or ""),
        stdout=out,
        stderr=err,
        folder=Path(folder),
        **({} if now is None else {"now": now}),
    )
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(argv, world)
        except SystemExit as stop:
            code = stop.code
    return Ran(code, out.getvalue(), err.getvalue())


def process(*argv, folder, stdin="", **environ):
    """Run a command in a process of its own, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "glidepath.cli", *argv],
        cwd=folder,
        env=environment(**environ),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
