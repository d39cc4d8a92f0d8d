"""Commands in a sandbox: no network, the workspace is the only place that can be written, home folders are hidden.

The sandbox is bubblewrap where it is installed and works. A command's whole process group is killed when it takes too
long or the run is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from glidepath._wire import Value
from glidepath.errors import ToolError
from glidepath.workspace.root import Workspace

__all__ = ["Sandbox", "described", "find_sandbox", "run_command"]

MOST_OUTPUT = 64_000
_GRACE = 0.5
_CHUNK = 65_536
_HIDDEN = ("/home", "/root", "/Users", "/run/user", "/var/run/docker.sock", "/run/docker.sock")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Sandbox(Value, frozen=True):
    """A sandbox program that works on this machine."""

    program: str

    def wrap(self, command: str, root: Path) -> list[str]:
        """The command line that runs `command` inside."""
        words = [self.program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
        for place in _HIDDEN:
            if Path(place).is_dir():
                words += ["--tmpfs", place]
            elif Path(place).exists():
                words += ["--ro-bind", "/dev/null", place]
        words += ["--bind", str(root), str(root), "--chdir", str(root)]
        words += ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        return [*words, "--", "/bin/sh", "-c", command]


def find_sandbox() -> Sandbox | None:
    """The sandbox of this machine, tried out; None when there is none or it may not be used here."""
    program = shutil.which("bwrap", path=_PATH)
    if program is None:
        return None
    sandbox = Sandbox(program)
    try:
        done = subprocess.run(  # noqa: S603 - the command is our own
            sandbox.wrap("true", Path("/usr")), capture_output=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return sandbox if done.returncode == 0 else None


async def run_command(workspace: Workspace, sandbox: Sandbox | None, command: str, seconds: float) -> str:
    """Run a shell command in the workspace: its output, then its exit status when that is not 0."""
    if not command.strip() or "\0" in command:
        raise ToolError("the command is empty, or contains a NUL character")
    root = workspace.root
    words = sandbox.wrap(command, root) if sandbox is not None else ["/bin/sh", "-c", command]
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=root,
        env=_environment(root),
        start_new_session=True,
    )
    output = _Output()
    late = False
    try:
        async with asyncio.timeout(seconds):
            await output.drain(process.stdout)
            await process.wait()
    except TimeoutError:
        late = True
        await _end(process, _GRACE)
    finally:
        _kill(process.pid, signal.SIGKILL)  # also what it left behind in its group
        if process.returncode is None:
            await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - a grandchild may hold the pipe
    text = output.text()
    if late:
        raise ToolError(f"{text}\n[stopped: the command took longer than {seconds:g} seconds]".lstrip())
    if process.returncode:
        return f"{text}\n[exit status {process.returncode}]".lstrip()
    return text or "(no output)"


def _environment(root: Path) -> dict[str, str]:
    """Nothing of ours: no keys, no tokens."""
    return {"PATH": _PATH, "HOME": str(root), "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1"}


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    _kill(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), grace)


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Output:
    """The beginning and the end of what a command prints, whatever it prints in between."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    async def drain(self, stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (data := await stream.read(_CHUNK)):
            self._size += len(data)
            room = MOST_OUTPUT // 2 - len(self._head)
            if room > 0:
                self._head += data[:room]
                data = data[room:]
            self._tail += data
            del self._tail[: max(0, len(self._tail) - MOST_OUTPUT // 2)]

    def text(self) -> str:
        left_out = self._size - len(self._head) - len(self._tail)
        middle = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return (self._head + middle + self._tail).decode(errors="replace").rstrip("\n")


def described(sandbox: Sandbox | None) -> str:
    """What the model is told about the shell."""
    if sandbox is None:
        return "Run a shell command in the workspace and return what it prints."
    return (
        "Run a shell command in the workspace and return what it prints. "
        "There is no network, and only the workspace can be written."
    )
