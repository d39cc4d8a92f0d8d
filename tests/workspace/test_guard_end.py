"""How the guard of names ends: it never outlives its warden, and what the warden says of its end is right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from glidepath import workspace

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no sandbox of this kind"),
]
ALONE = """
import json, os, runpy, signal, socket, sys, time
sys.path.insert(0, sys.argv[1])
import _warden
_warden._PATIENCE = float(sys.argv[2])

class Guard:
    def guard(self, line, report, job):
        exec(sys.argv[3])

_warden.name_guard = Guard
warden = _warden.Warden({"limits": {}, "guard": {}}, os.dup(2))
warden._start_name_guard()
print(json.dumps(warden._read_guard()["guard"]))
print(os.read(warden._guard, 1))  # the end: it runs no more
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("guard", "patience", "failed"),
    [
        ("time.sleep(600)", 0.1, "it did not end with the command"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 30, "it ended before the command, or was killed"),
        ("line.recv(1); os.write(report, json.dumps({'failed': ''}).encode())", 30, ""),
    ],
)
def test_no_guard_outlives_its_warden_even_before_it_has_told_anything(guard, patience, failed):
    folder = Path(workspace.__file__).parent
    words = [sys.executable, "-c", ALONE, folder, str(patience), guard]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=50)
    said, left = done.stdout.splitlines() or [done.stderr, ""]
    assert json.loads(said)["failed"] == failed
    assert left == "b''"
