"""Real servers, installed once into build/mcp: from PyPI and from npm. What cannot be had is named in the skip."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from glidepath.mcp import McpServer

HERE = Path(__file__).resolve().parent / "real"
HOME = HERE.parents[2] / "build" / "mcp"
SECONDS = 300


@contextmanager
def _alone(name):
    """One test worker installs; the others wait for it."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _installed(name, pins, command):
    """Run the command unless it has been run with these pins; skip, and say why, when it fails."""
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()
    mark = HOME / name / ".installed"
    with _alone(name):
        if mark.exists() and mark.read_text() == digest:
            return
        shutil.rmtree(HOME / name, ignore_errors=True)
        (HOME / name).mkdir(parents=True)
        try:
            ran = subprocess.run(command, cwd=HOME / name, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"{pins.name}: cannot be installed: {error}")
        if ran.returncode:
            pytest.skip(f"{pins.name}: cannot be installed: {ran.stderr.strip()[-300:]}")
        mark.write_text(digest)


@cache
def from_pypi():
    """The folder of the servers from PyPI."""
    pins = HERE / "requirements.txt"
    _installed("pypi", pins, [sys.executable, "-m", "pip", "install", "-q", "--target", ".", "-r", str(pins)])
    return HOME / "pypi"


@cache
def from_npm():
    """The folder of the servers from npm."""
    npm, pins = shutil.which("npm"), HERE / "package.json"
    if npm is None or shutil.which("node") is None:
        pytest.skip("servers from npm need Node: install nodejs and npm")
    script = f"cp {pins} . && {npm} install --no-audit --no-fund --loglevel=error"
    _installed("npm", pins, ["sh", "-c", script])
    return HOME / "npm" / "node_modules" / "@modelcontextprotocol"


def python_server(module, *args, **settings):
    """One of PyPI, by its module."""
    home = from_pypi()
    env = {"PYTHONPATH": str(home), **settings.pop("env", {})}
    return McpServer(
        module.removeprefix("mcp_server_"), command=sys.executable, args=["-m", module, *args], env=env, **settings
    )


def node_program(name):
    """The program of one of npm."""
    return [str(from_npm() / f"server-{name}" / "dist" / "index.js")]


def node_server(name, *args, **settings):
    """One of npm, by its name."""
    node = shutil.which("node") or "node"
    return McpServer(name, command=node, args=[*node_program(name), *args], **settings)
