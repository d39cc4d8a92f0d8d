"""The third-party server: installed once, started once per worker."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent / "aimock"
HOME = HERE.parents[2] / "build" / "aimock"
PROGRAM = HOME / "node_modules" / "@copilotkit" / "aimock"
SECONDS = 30


def _installed() -> None:
    """Bring the pinned version into build/, once; the workers of one test run wait for each other."""
    pinned = json.loads((HERE / "package.json").read_text())["dependencies"]["@copilotkit/aimock"]
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = PROGRAM / "package.json"
        if found.exists() and json.loads(found.read_text())["version"] == pinned:
            return
        npm = shutil.which("npm")
        assert npm, "the wire tests need Node: install nodejs and npm"
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, HOME / name)
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"npm ci failed:\n{done.stderr}"


@pytest.fixture(scope="session")
def aimock(tmp_path_factory):
    """The address of a running server."""
    _installed()
    log = tmp_path_factory.mktemp("aimock") / "log"
    command = ["node", str(PROGRAM / "dist" / "cli.js"), "--port", "0", "--host", "127.0.0.1", "--strict"]
    command += ["--fixtures", str(HERE / "fixtures.json"), "--log-level", "info"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"]})
    try:
        deadline = time.monotonic() + SECONDS
        while (found := re.search(r"listening on (http://\S+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield found[1]
    finally:
        process.kill()
        process.wait()
