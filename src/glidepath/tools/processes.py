"""Runs one call in its own process, which can be killed whatever it does.

A fresh interpreter runs `_child.py` by path, and one socket carries the pickled call out and the pickled reply back.
Not `multiprocessing`: its spawn imports the main module again, which starts the agent a second time when the script has
no `__main__` guard, and its fork copies threads' locks in whatever state they are. Not asyncio's subprocesses: they
need a child watcher and time from the loop, and the loop may be virtual. A thread of ours looks after the child, in
real time; the loop is never blocked.

By itself this is isolation from crashes, leaks and hangs, not a sandbox: the function runs with the caller's rights,
and its reply is unpickled by the caller. With a `Sandbox` it is one, and only plain data comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from glidepath.tools import _child
from glidepath.tools.context import ToolContext
from glidepath.tools.sandbox.policy import Boxed, Sandbox
from glidepath.tools.threads import ThreadWorker
from glidepath.values import ChildError, ConfigurationError, FatalToolError, ToolError

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL."""

_TICK = 0.05
_REAP_SECONDS = 1.0
_SCRIPT = str(Path(_child.__file__))


class ChildTraceback(Exception):  # noqa: N818 - not its own error: what `raise ... from` shows
    """The traceback of an error in another process, as text."""


class Reference:
    """A module-level function, by name: what another process needs to find it."""

    def __init__(self, fn: object) -> None:
        if not inspect.isfunction(fn):
            raise ConfigurationError(f"isolation='process' needs a plain function, got {type(fn).__name__}")
        if fn.__qualname__ != fn.__name__ or not fn.__name__.isidentifier():
            raise ConfigurationError(
                f"isolation='process' needs a function at module level, which another process can import; "
                f"{fn.__qualname__!r} is not: move it out, or use isolation='thread'"
            )
        self.name = fn.__name__
        self.module = fn.__module__
        module = sys.modules.get(self.module)
        if module is None:
            raise ConfigurationError(f"isolation='process': the module {self.module!r} cannot be imported")
        file = getattr(module, "__file__", None)
        self.file = os.path.abspath(file) if file else None  # noqa: PTH100 - resolve() would follow links
        self.main: tuple[str, str | None] | None = None
        if self.module == "__main__":
            if self.file is None or not os.path.isfile(self.file):  # noqa: PTH113 - a str all the way
                raise ConfigurationError(
                    f"isolation='process': {self.name!r} was typed into a session without a file; "
                    "put it into a module, or use isolation='thread'"
                )
            self.main = (self.file, getattr(module, "__package__", None))

    def job(self, values: dict[str, Any]) -> bytes:
        """The job for the child: where the function is, and its arguments."""
        try:
            packed = pickle.dumps(values)
        except Exception as error:
            raise ToolError(f"the arguments cannot be sent to another process: {error}") from error
        path = [entry for entry in sys.path if isinstance(entry, str)]
        return pickle.dumps(
            {
                "path": path,
                "main": self.main,
                "module": self.module,
                "file": self.file,
                "name": self.name,
                "values": packed,
            }
        )


async def run_in_process(
    reference: Reference,
    values: dict[str, Any],
    context: ToolContext | None,
    grace: float = GRACE,
    sandbox: Sandbox | None = None,
) -> Any:
    """Run the function in a fresh process and await its result.

    When the await is cancelled the child's whole process group gets SIGTERM, after `grace` seconds SIGKILL, and is
    reaped before the cancellation continues; a second cancellation ends the grace. Nothing of it is left running.
    """
    child = ProcessChild(reference.job(values), grace, sandbox, reference.file)
    worker = ThreadWorker(child.run, f"glidepath-process-{reference.name}")
    worker.start()
    try:
        await worker.wait_finished()
    except asyncio.CancelledError:
        await _stop_child(child, worker)
        if child.survived and context is not None:
            context.abandoned = "process"
        raise
    except BaseException:  # closed with the loop: no awaiting any more, the thread sees to the rest
        child.stop()
        child.stop()
        worker.release()
        raise
    return child.result(worker.outcome())


async def _stop_child(child: ProcessChild, worker: ThreadWorker) -> None:
    while True:
        child.stop()
        try:
            await worker.wait_finished()
        except asyncio.CancelledError:
            continue
        return


class ProcessChild:
    """One process, from its start to its reaping. `run` blocks and belongs on a thread; `stop` may come from any."""

    def __init__(self, job: bytes, grace: float, sandbox: Sandbox | None = None, script: str | None = None) -> None:
        self._outgoing = memoryview(len(job).to_bytes(_child.HEADER, "big") + job)
        self._grace = grace
        self._sandbox, self._script = sandbox, script
        self._boxed: Boxed | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at: float | None = None
        self._over = False  # from here on its id may belong to somebody else: no more signals
        self.survived = False
        """True when even SIGKILL did not end it in time."""

    def stop(self) -> None:
        """Ask it to end: SIGTERM and a grace the first time, SIGKILL the second."""
        with self._lock:
            again = self._kill_at is not None
            self._kill_at = time.monotonic() + (0 if again else self._grace)
            self._signal(signal.SIGKILL if again else signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._process is not None and not self._over:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says EPERM for a zombie's group
                os.killpg(self._process.pid, number)

    def run(self) -> bytes | None:
        """Start it, send the job, read the reply, end it. None when it ended without a reply."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise ToolError(f"no process could be started for the tool: {error}") from error
        with ours:
            with theirs:
                self._start(theirs.fileno())
            try:
                return self._exchange_messages(ours)
            finally:
                self._end()
                if self._boxed is not None:
                    self._boxed.close()

    def _start(self, descriptor: int) -> None:
        if not sys.executable:
            raise ToolError("no process could be started for the tool: the path of the Python interpreter is unknown")
        words = [sys.executable, "-P", _SCRIPT, str(descriptor)]
        if self._sandbox is not None:
            self._boxed = self._sandbox.enter(words, read=self._readable_paths(), pass_fds=(descriptor,))
        boxed = self._boxed
        try:
            # -P: the script's folder must not shadow modules of the same names. Its own session: its group can be
            # signaled as a whole, and a Ctrl-C in the terminal is ours to handle, not its.
            process = subprocess.Popen(  # noqa: S603 - our own script
                words if boxed is None else boxed.words,
                stdin=subprocess.DEVNULL,
                pass_fds=(descriptor,) if boxed is None else boxed.pass_fds,
                start_new_session=True,
                env=None if boxed is None else boxed.env,
                cwd=None if boxed is None else boxed.cwd,
            )
        except OSError as error:
            raise ToolError(f"no process could be started for the tool: {error}") from error
        with self._lock:
            self._process = process
            if self._kill_at is not None:  # stopped while it started
                self._signal(signal.SIGTERM)

    def _readable_paths(self) -> list[str]:
        """What the interpreter must be able to read to find the function: its library, and what is imported from."""
        places = [sys.prefix, sys.exec_prefix, _SCRIPT, *([] if self._script is None else [self._script])]
        places += [entry for entry in sys.path if isinstance(entry, str) and entry not in ("", "/")]
        return [place for place in places if os.path.exists(place)]  # noqa: PTH110 - a str all the way

    def _exchange_messages(self, connection: socket.socket) -> bytes | None:
        connection.settimeout(_TICK)
        received = bytearray()
        while True:
            try:
                if self._outgoing:  # the child answers when it has all of it
                    self._outgoing = self._outgoing[connection.send(self._outgoing[: 1 << 20]) :]
                elif chunk := connection.recv(1 << 20):
                    received += chunk
                else:
                    return None
            except TimeoutError:
                if self._has_exited():  # without end-of-file: something it started holds the socket
                    return None
            except OSError:  # it died
                return None
            if len(received) >= _child.HEADER:
                end = _child.HEADER + int.from_bytes(received[: _child.HEADER], "big")
                if len(received) >= end:
                    return bytes(received[_child.HEADER : end])
            with self._lock:
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    self._signal(signal.SIGKILL)

    def _has_exited(self) -> bool:
        assert self._process is not None  # noqa: S101 - for the type checker
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        # Not reaped yet: its id stays ours until `_end` has signaled the group.
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._process.pid, look) is not None
        except ChildProcessError:  # somebody reaped it for us
            return True

    def _end(self) -> None:
        process = self._process
        assert process is not None  # noqa: S101 - for the type checker
        # A child that has replied flushes and leaves by itself, and one that is dying finishes: its status is true.
        deadline = time.monotonic() + self._grace
        while self._kill_at is None and time.monotonic() < deadline and not self._has_exited():
            time.sleep(0.001)
        with self._lock:
            self._signal(signal.SIGKILL)  # the group: also what the function started and left behind
            self._over = True
        try:
            process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self.survived = True

    def result(self, reply: bytes | None) -> Any:
        """What the function returned; raises what it raised, or a `ToolError` saying how its process died."""
        if reply is None:
            raise ToolError(f"the tool's process {self._describe_death()} before it returned a result")
        try:
            reader = _Reply if self._sandbox is None else _PlainReply
            kind, *rest = reader(io.BytesIO(reply)).load()
        except Exception as error:
            raise ToolError(f"the result cannot be read back from its process ({error}): return plain data") from error
        if kind == "ok":
            return rest[0]
        error_type, message, trace, family, place = rest
        cause = ChildTraceback("\n" + trace)
        if family == "fatal":
            raise FatalToolError(message) from cause
        if family == "tool":
            raise ToolError(message) from cause
        raise ChildError(error_type, message, place) from cause

    def _describe_death(self) -> str:
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return "did not end"
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"


class _Reply(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # What the child knows under another name is our own main script.
        return super().find_class("__main__" if module == _child.MAIN else module, name)


class _PlainReply(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # What comes out of a sandbox may have been written by anybody: nothing in it may name code of ours.
        raise pickle.UnpicklingError(f"a sandboxed tool returns plain data only, not {module}.{name}")
