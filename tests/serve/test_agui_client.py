"""AG-UI by its own client from npm, against a server in a process of its own."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from .deck import TOKEN
from .live import LiveServer

CLIENT = "@ag-ui/client@1.0.0"
HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / "build" / "agui"


def client_folder():
    """Where the client is installed; without npm, or a registry to install from, the test is skipped."""
    if not (INSTALLED / "node_modules" / "@ag-ui" / "client" / "package.json").is_file():
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            pytest.skip("npm and node are not here, so @ag-ui/client cannot be installed")
        INSTALLED.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(INSTALLED), "--no-audit", "--no-fund", "--ignore-scripts", CLIENT]
        done = subprocess.run(command, cwd=INSTALLED, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode:
            pytest.skip(f"npm could not install {CLIENT}: {done.stderr.strip()[-200:]}")
    return INSTALLED


@pytest.mark.process
@pytest.mark.parametrize("store", ["sqlite:store", pytest.param("none", marks=pytest.mark.slow)])
def test_the_protocols_own_client_is_interrupted_and_resumes(tmp_path, store):
    script = client_folder() / "drive.mjs"
    shutil.copyfile(HERE / "agui_client.mjs", script)  # a module finds its packages from where it lies
    with LiveServer(tmp_path, "--store", store, agent="fleet_agents:payer") as server:
        command = ["node", str(script), f"{server.url}/agui", TOKEN]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    first, second, third = seen["interrupted"], seen["resumed"], seen["again"]
    (waiting,) = first["pending"]
    assert (waiting["metadata"]["tool"], waiting["metadata"]["arguments"]) == ("pay", {"amount": 5})
    assert waiting["id"].endswith(f".{waiting['metadata']['digest']}"), "the answer brings back what was shown"
    assert first["kinds"][0] == "RUN_STARTED"
    assert first["kinds"][-1] == second["kinds"][-1] == "RUN_FINISHED"
    assert (second["pending"], second["result"]) == ([], "paid 3")
    assert second["said"][-1] == ["assistant", "paid 3"]
    assert ["tool", "paid 3"] in second["said"]
    assert len(third["pending"]) == 1
    assert "401" in seen["refused"]
