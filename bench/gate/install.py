"""Installs the agents from the package registries, each in its own folder, and keeps them until their pins change."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from table import PINS

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
POSTINSTALL = {  # where npm does not run scripts of packages by itself
    "claude-code": ("node_modules/@anthropic-ai/claude-code", "install.cjs"),
    "opencode": ("node_modules/opencode-ai", "postinstall.mjs"),
}


class CannotInstallError(Exception):
    """A program that cannot be installed here, with the reason."""


def find_cache() -> Path:
    """Where the agents are: GLIDEPATH_AGENTS, else build/agents."""
    return Path(os.environ.get("GLIDEPATH_AGENTS") or REPOSITORY / "build" / "agents").absolute()


def is_installed(name: str, pins: tuple[str, ...] | None = None) -> bool:
    """Whether an agent is there with these pins."""
    stamp = find_cache() / name / "pins.sha256"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == digest(pins or PINS[name][1])


def digest(pins: tuple[str, ...]) -> str:
    """What the stamp holds."""
    return hashlib.sha256("\n".join(pins).encode()).hexdigest()


def install(name: str, *, newest: bool = False) -> Path:
    """Install one agent unless it is there; `newest` ignores the pins and installs beside the pinned one."""
    if name not in PINS:
        raise CannotInstallError(f"{name!r} is not an agent of the table; use one of {', '.join(PINS)}")
    kind, pins = PINS[name]
    folder = find_cache() / (f"{name}@newest" if newest else name)
    if newest:
        pins = tuple(unpin(pin) for pin in pins)
    elif is_installed(name):
        return folder
    tool = "npm" if kind == "npm" else sys.executable
    if shutil.which(tool) is None:
        raise CannotInstallError(f"{name}: {tool} is missing; install Node.js 20 or later")
    print(f"{name}: installing {' '.join(pins)}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (install_npm if kind == "npm" else install_pypi)(name, folder, pins)
    (folder / "pins.sha256").write_text(digest(pins), encoding="utf-8")
    return folder


def unpin(pin: str) -> str:
    """A requirement without its version."""
    if "==" in pin:
        return pin.partition("==")[0]
    name, _, _ = pin.rpartition("@")
    return f"{name}@latest"


def install_npm(name: str, folder: Path, pins: tuple[str, ...]) -> None:
    """npm, into a private folder; then the package's own script, which npm may have left out."""
    (folder / "package.json").write_text(json.dumps({"private": True, "name": f"zoo-{name}"}), encoding="utf-8")
    run(["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", *pins], folder)
    if name in POSTINSTALL:
        where, script = POSTINSTALL[name]
        if (folder / where / script).is_file():
            run(["node", script], folder / where)


def install_pypi(name: str, folder: Path, pins: tuple[str, ...]) -> None:
    """A virtual environment; this interpreter's, unless GLIDEPATH_AGENTS_PYTHON names another."""
    python = os.environ.get("GLIDEPATH_AGENTS_PYTHON", sys.executable)
    run([python, "-m", "venv", str(folder / "venv")], folder)
    run(
        [str(folder / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *pins],
        folder,
    )


def run(command: list[str], folder: Path) -> None:
    """One step of an installation, gently."""
    nice = ["nice"] if shutil.which("nice") else []
    done = subprocess.run([*nice, *command], cwd=folder, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise CannotInstallError(f"{' '.join(command[:4])} ...: {(done.stderr or done.stdout).strip()[-800:]}")


def installed_version(name: str, *, newest: bool = False) -> str:
    """The version of the agent's own package, as its installer recorded it."""
    folder = find_cache() / (f"{name}@newest" if newest else name)
    kind, pins = PINS[name]
    if kind == "npm":
        package = pins[0].rpartition("@")[0]
        return json.loads((folder / "node_modules" / package / "package.json").read_text(encoding="utf-8"))["version"]
    package = pins[0].partition("==")[0].partition("[")[0].replace("-", "_")
    found = sorted(folder.glob(f"venv/lib/python3*/site-packages/{package}-*.dist-info"))
    return found[0].name.removesuffix(".dist-info").partition("-")[2] if found else "?"
