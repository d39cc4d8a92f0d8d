"""An environment of its own for a package that must not be installed beside ours."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class NotInstalledError(Exception):
    """The package index did not give us the packages."""


def python_with(name, packages):
    """The interpreter of build/campaign/NAME with exactly these packages, and nothing that they would ask for."""
    folder = ROOT / "build" / "campaign" / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    venv.create(folder, clear=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]  # ours: it needs none itself
    install = [*pip, "install", "--quiet", "--no-deps", "--no-compile", *packages]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise NotInstalledError(f"{packages[0]} cannot be installed from the package index: {last}")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def figures(python, program, *options):
    """What a program prints as JSON, run in such an environment on this tree's glidepath."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [python, program, *options], stdout=subprocess.PIPE, text=True, env=environment, timeout=7200, check=False
    )
    if done.returncode:
        sys.exit(f"{program} failed with exit code {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])
