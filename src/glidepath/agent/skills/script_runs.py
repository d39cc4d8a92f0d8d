"""Runs a script of a skill: in a sandbox, on a read-only copy of the bytes that were read. Never without."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from glidepath._wire import replace
from glidepath.agent.skills.skill import Skill, program_of
from glidepath.tools import Boxed, Sandbox, SandboxError, ThreadWorker
from glidepath.values import ToolError, pluralize

SECONDS = 120.0
_MOST_OUTPUT = 64_000
_TICK, _REAP_SECONDS = 0.05, 2.0
_CLOSED = Sandbox()


def sandbox_for(skill: Skill) -> Sandbox:
    """What the scripts of a skill may reach, without their own folder."""
    return skill.sandbox or _CLOSED


def explain_no_sandbox(skill: Skill) -> str:
    """Why no sandbox for its scripts works here; empty where one does."""
    try:
        sandbox_for(skill).mechanism()
    except SandboxError as error:
        return str(error).partition(". ")[0]
    return ""


async def run_script(skill: Skill, script: str, arguments: Sequence[str], said: str) -> str:
    """What a script of a skill printed, then its exit status when that is not 0.

    Raises `ToolError` when there is no such script, no sandbox, or no end within two minutes.
    """
    if script not in skill.scripts:
        known = ", ".join(skill.scripts[:20]) or "it has none"
        raise ToolError(f"{script!r:.100} is not a script of the skill {skill.name}; its scripts: {known}")
    if any("\0" in part for part in arguments):
        raise ToolError("an argument contains a NUL character")
    run = _ScriptRun(skill, script, tuple(arguments), said)
    worker = ThreadWorker(run.run, f"glidepath-skill-{skill.name}")
    worker.start()
    try:
        await worker.wait_finished()
    except asyncio.CancelledError:
        run.stop()
        while not worker.ended:
            with suppress(asyncio.CancelledError):
                await worker.wait_finished()
        raise
    except BaseException:  # closed with the loop: the thread sees to the rest
        run.stop()
        worker.release()
        raise
    return str(worker.outcome())


class _ScriptRun:
    """One script, from the copy of its folder to its last process. `run` blocks; `stop` may come from any thread."""

    def __init__(self, skill: Skill, script: str, arguments: tuple[str, ...], said: str) -> None:
        self._skill, self._script, self._arguments, self._said = skill, script, arguments, said
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End it soon."""
        self._stopped.set()

    def run(self) -> str:
        """Run it to its end."""
        with tempfile.TemporaryDirectory(prefix="glidepath-skill-") as place:
            folder = Path(place).resolve() / self._skill.name
            write_files(self._skill, folder)
            words = [_find_program(self._script), str(folder / self._script), *self._arguments]
            policy = sandbox_for(self._skill)
            policy = replace(policy, read=(*policy.readable, str(folder)))
            with policy.enter(words, cwd=folder) as boxed, tempfile.TemporaryFile() as said:
                said.write(self._said.encode(errors="replace"))
                said.seek(0)
                return self._watch(boxed, said)

    def _watch(self, boxed: Boxed, said: IO[bytes]) -> str:
        try:
            process = subprocess.Popen(  # noqa: S603 - in its sandbox
                boxed.words,
                stdin=said,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=boxed.env,
                cwd=boxed.cwd,
                pass_fds=boxed.pass_fds,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(f"no process could be started for the script: {error}") from error
        output = _Output(process.stdout)
        output.start()
        late = self._wait(process, time.monotonic() + SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
        with suppress(subprocess.TimeoutExpired):
            process.wait(_REAP_SECONDS)
        output.join(_REAP_SECONDS)
        text = output.text()
        if late:
            raise ToolError(f"{text}\n[stopped: {late}]".lstrip())
        if process.returncode:
            return f"{text}\n[exit status {process.returncode}]".lstrip()
        return text or "(no output)"

    def _wait(self, process: subprocess.Popen[bytes], until: float) -> str:
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
                return ""
            if self._stopped.is_set():
                return "the run is being stopped"
            if time.monotonic() > until:
                return f"it took longer than {SECONDS:g} seconds"


class _Output(threading.Thread):
    """Reads what a script prints, and keeps the beginning and the end of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(name="glidepath-skill-output", daemon=True)
        self._stream = stream
        self._head, self._tail, self._left_out = bytearray(), bytearray(), 0

    def run(self) -> None:
        if self._stream is None:
            return
        with suppress(OSError, ValueError), self._stream as stream:
            while data := os.read(stream.fileno(), 1 << 16):
                room = _MOST_OUTPUT // 2 - len(self._head)
                self._head += data[:room]
                self._tail += data[max(room, 0) :]
                over = max(0, len(self._tail) - _MOST_OUTPUT // 2)
                self._left_out += over
                del self._tail[:over]

    def text(self) -> str:
        middle = f"\n[{pluralize(self._left_out, 'byte')} left out]\n".encode() if self._left_out else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace").rstrip("\n")


def write_files(skill: Skill, folder: Path) -> None:
    """Write the files of a skill, as they were when it was read, into a new folder."""
    for name, data in skill.files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o500 if name in skill.scripts else 0o400)


def _find_program(script: str) -> str:
    name = program_of(script) or ""
    if name == "python3":
        return os.path.realpath(sys.executable)
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        raise ToolError(f"{script} needs {name}, which is not installed here")
    return found
