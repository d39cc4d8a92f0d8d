"""Shell commands: in a sandbox if there is one, within limits, with nothing left running.

A command is started by a warden (`_warden.py`), a process of ours that adopts whatever the command leaves behind and
kills it when the command ends, takes too long, or the run is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glidepath._wire import Value
from glidepath.run import close_pipes, run_uninterrupted
from glidepath.tools import Boxed, Sandbox, ThreadWorker
from glidepath.values import ToolError, check_int, pluralize
from glidepath.workspace import _warden
from glidepath.workspace.file_survey import MOST_ENTRIES, FileSurvey, find_protected_entries, set_forbidden_aside
from glidepath.workspace.plant_watch import PlantWatch
from glidepath.workspace.root import Workspace
from glidepath.workspace.sandbox import Bubblewrap, guard_fault, refuse_whole_system, search_path
from glidepath.workspace.seccomp import filter_program

NO_SANDBOX = "no sandbox: the command runs as you"
"""What a person is told about a command without a sandbox."""
SANDBOXED = "sandboxed: no network, writes only in the workspace"
"""What a person is told about a command in one."""

MOST_OUTPUT = 64_000
_MOST_COMMAND = 100_000
_MOST_SAID = 10
_GRACE = 0.5
_WARDEN_SECONDS = 4.0
_CHUNK = 65_536


class ShellLimits(Value, frozen=True, kw_only=True):
    """What one shell command may use; all in bytes but `processes`.

    `memory` holds for each process and for all of them together, `file_size` for each file, `disk` is how much less
    free space there may be while it runs. On systems other than Linux only `memory` of a process and `file_size` hold.
    """

    processes: int = 512
    memory: int = 4 << 30
    file_size: int = 2 << 30
    disk: int = 8 << 30

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            check_int(f"ShellLimits.{name}", getattr(self, name), required=True)


async def run_command(
    workspace: Workspace,
    sandbox: Bubblewrap | Sandbox | None,
    command: str,
    seconds: float,
    *,
    home: Path | None = None,
    limits: ShellLimits | None = None,
) -> str:
    """Run a shell command in the workspace: its output, then its exit status when that is not 0.

    Raises `ToolError` when it was stopped, or when it made protected files in the sandbox.
    """
    if not command.strip() or "\0" in command:
        raise ToolError("the command is empty, or contains a NUL character")
    if len(command.encode(errors="replace")) > _MOST_COMMAND:
        raise ToolError(f"the command is longer than {_MOST_COMMAND} bytes: write a file and run that")
    if sandbox is not None:
        refuse_whole_system(workspace.root)  # before the survey, which would take minutes
    limits = ShellLimits() if limits is None else limits
    before = None if sandbox is None else await _run_on_thread(lambda: find_protected_entries(workspace))
    boxed = None
    if isinstance(sandbox, Sandbox) and before is not None:
        boxed = _enter_sandbox(workspace, sandbox, command, before)
    closed = boxed if isinstance(sandbox, Sandbox) else sandbox
    job = _job(workspace, closed, command, home, limits, before)
    if before is not None:
        job["guard"] = await _run_on_thread(lambda: _guard_for(workspace, closed, before))
    flight = _Flight(job, () if boxed is None else boxed.pass_fds)
    planted: list[str] = []
    plants = None
    if before is not None and job["guard"] is None:
        plants = await _run_on_thread(lambda: PlantWatch(workspace, before))
    try:
        stopped = await flight.run_and_watch(seconds)
    finally:
        if boxed is not None:
            boxed.close()
        if plants is not None:
            planted = await _run_on_thread(plants.stop)
        # Also when the run is cancelled: what the command planted must not wait for the person's next `git status`.
        said, checked = (
            ([], True) if before is None else await _run_on_thread(lambda: set_forbidden_aside(workspace, before))
        )
    said = [*planted, *flight.guarded, *said]
    text = flight.output.text()
    if not checked:
        text += f"\n[only {MOST_ENTRIES} entries of the workspace were checked for new protected files]"
    if stopped:
        said.insert(0, f"stopped: {stopped}")
    if flight.left:
        said.append(f"{flight.left} processes that it started could not be killed")
    if said:
        if len(said) > _MOST_SAID:
            said[_MOST_SAID:] = [f"and {len(said) - _MOST_SAID} more like that"]
        raise ToolError("\n".join([text, *(f"[{line}]" for line in said)]).lstrip())
    if flight.status:
        return f"{text}\n[exit status {flight.status}]".lstrip()
    return text or "(no output)"


def _guard_for(
    workspace: Workspace, sandbox: Bubblewrap | Boxed | None, before: FileSurvey
) -> dict[str, object] | None:
    """What keeps protected names from appearing while the command runs; None where only a watch can be kept."""
    if isinstance(sandbox, Boxed):
        program = sandbox.words[0] if sandbox.mechanism == "bubblewrap" else ""
    else:
        program = "" if sandbox is None else sandbox.program
    if not program or workspace.protection.closed is not None or guard_fault(program):
        return None
    return before.describe_guard(program, platform.machine())


def _enter_sandbox(workspace: Workspace, sandbox: Sandbox, command: str, before: FileSurvey) -> Boxed:
    """The command in its sandbox, where protected files of the workspace cannot be changed either."""
    binds: list[str] = []
    protected = (("--bind-try", before.fixed), ("--ro-bind-try", before.readonly), ("--bind-try", before.writable))
    for option, paths in protected:
        for path in paths:
            binds += [option, path, path]
    return sandbox.enter(["/bin/sh", "-c", command], cwd=workspace.root, binds=binds, env={"NO_COLOR": "1"})


def _job(
    workspace: Workspace,
    sandbox: Bubblewrap | Boxed | None,
    command: str,
    home: Path | None,
    limits: ShellLimits,
    before: FileSurvey | None,
) -> dict[str, Any]:
    """The job for the warden."""
    # Nothing of our environment: no keys, no tokens.
    environment = {"PATH": search_path, "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1"}
    if home is not None:
        environment["HOME"] = str(home)
    job: dict[str, Any] = {
        "words": ["/bin/sh", "-c", command],
        "cwd": str(workspace.root),
        "env": environment,
        "home": None,
        "filter": None,
        "guard": None,
        "grace": _GRACE,
        "limits": {name: getattr(limits, name) for name in limits.__struct_fields__},
    }
    if isinstance(sandbox, Boxed):
        job.update(words=sandbox.words, cwd="/", env=dict(sandbox.env))
    elif sandbox is not None and before is not None:
        program = filter_program(platform.machine())
        if program is None:
            raise ToolError(f"there is no filter for system calls on {platform.machine()}: no sandbox can be used here")
        job["filter"] = program.hex()
        job["words"] = sandbox.wrap(
            command,
            workspace.root,
            fixed=before.fixed,
            readonly=before.readonly,
            writable=before.writable,
            home=None if home is None else str(home),
            processes=limits.processes * 4,  # it also counts threads: it stops fork bombs, the warden keeps the limit
        )
    elif home is None:
        job["home"] = f"{tempfile.gettempdir()}/glidepath-home-{secrets.token_hex(8)}"
    job["env"][_warden.MARK] = secrets.token_hex(16)
    return job


async def _run_on_thread(work: Callable[[], Any]) -> Any:
    """Do the work on a thread and wait for its end, even if cancelled."""
    worker = ThreadWorker(work, "glidepath-survey")
    worker.start()
    await run_uninterrupted(worker.wait_finished())
    return worker.outcome()


class _Flight:
    """One command: its warden, its output, its end."""

    def __init__(self, job: dict[str, Any], pass_fds: tuple[int, ...] = ()) -> None:
        self._job = job
        self._pass_fds = pass_fds
        self.output = _Output()
        self.status: int | None = None
        self.left = 0
        self.guarded: list[str] = []
        """What the guard of names reports."""

    async def run_and_watch(self, seconds: float) -> str:
        """Run it; returns why it was stopped, if it was."""
        if not sys.executable:
            raise ToolError("no process could be started: the path of the Python interpreter is unknown")
        read, write = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                _warden.__file__,
                str(write),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd="/",
                env={},
                start_new_session=True,
                pass_fds=(write, *self._pass_fds),
            )
        except BaseException as error:
            os.close(read)
            if isinstance(error, OSError):
                raise ToolError(f"no process could be started for the command: {error}") from error
            raise
        finally:
            os.close(write)
        report = _Report(read)
        draining = asyncio.ensure_future(self.output.drain(process.stdout))
        late = False
        try:
            assert process.stdin is not None  # noqa: S101 - for the type checker
            process.stdin.write(json.dumps(self._job).encode())
            process.stdin.close()
            # The report ends with the warden; the output may not, if a process that survived holds it open.
            if not await report.wait_within(seconds):
                late = True
                _send(process, signal.SIGTERM)
                await report.wait_within(_GRACE + _WARDEN_SECONDS)
        finally:
            await run_uninterrupted(self._land(process, report, draining))
        said = report.read()
        self.status = said.get("status", -1)
        self.left = said.get("left", 0)
        guard = said.get("guard", {})
        self.guarded = list(guard.get("planted", ()))
        if guard.get("failed"):
            self.guarded.append(
                f"the guard of protected names failed ({guard['failed']}): the command made nothing since"
            )
        if late:
            return f"the command took longer than {seconds:g} seconds"
        if not said:
            return "the process that watches over the command was killed"
        return said.get("stopped") or ""

    async def _land(self, process: asyncio.subprocess.Process, report: _Report, draining: asyncio.Future[None]) -> None:
        """Clean up, so that nothing of the command is left, as far as possible."""
        if not report.ended:
            _send(process, signal.SIGUSR1)
            await report.wait_within(_WARDEN_SECONDS)
            report.give_up()
        if not report.read():  # its warden was killed: look for processes with the command's mark
            _send(process, signal.SIGKILL)
            _warden.sweep(self._job["env"][_warden.MARK])
            if self._job["home"] is not None:
                _warden.remove(self._job["home"])
        await asyncio.wait([draining], timeout=_GRACE)
        draining.cancel()
        if process.returncode is None:
            await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=_GRACE)
        close_pipes(process)


class _Report:
    """The warden's last report; the pipe ends when the warden does."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._data = b""
        self._over = asyncio.Event()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._on_readable)

    def _on_readable(self) -> None:
        data = os.read(self._descriptor, _CHUNK)
        self._data += data
        if not data:
            self.give_up()

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    async def wait_within(self, seconds: float) -> bool:
        """Wait for the end; False if it did not come in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self.ended

    def give_up(self) -> None:
        if not self.ended:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._over.set()

    def read(self) -> dict[str, Any]:
        try:
            return json.loads(self._data or b"{}")  # type: ignore[no-any-return]
        except ValueError:
            return {}


def _send(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


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
        middle = f"\n[{pluralize(left_out, 'byte')} left out]\n".encode() if left_out else b""
        return (self._head + middle + self._tail).decode(errors="replace").rstrip("\n")


def describe_sandbox(sandbox: Bubblewrap | Sandbox | None) -> str:
    """What the model is told about the shell."""
    if sandbox is None:
        return "Run a shell command in the workspace and return what it prints."
    network = "There is no network"
    if isinstance(sandbox, Sandbox) and sandbox.network != "none":
        reached = f"only {', '.join(sandbox.hosts)} through the proxy in HTTPS_PROXY" if sandbox.hosts else "any host"
        network = f"The network reaches {reached}"
    return (
        f"Run a shell command in the workspace and return what it prints. {network}, only the workspace can "
        "be written, and HOME is empty. git works, but its configuration and hooks, start files of shells and tasks of "
        "editors are read-only."
    )
