"""A llama.cpp server in its own process: started on first use, and gone when this process is.

It listens on loopback, on a port the system chooses, and answers only to a key that is made for each start and
never leaves the two processes. The handle belongs to no event loop: one model serves many loops and threads.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.values import RejectedError, TransientError

_SCRIPT = Path(__file__).with_name("_serve.py")
_FIRST_LOOK, _LAST_LOOK = 0.005, 0.05  # seconds between two checks on a server that is starting
_DYING = 0.5  # seconds a crashed process may take to disappear
_LOGGED = 1500  # characters of its log that an error shows


class ServerSettings(Value, frozen=True, kw_only=True):
    """The settings of a server."""

    model: str
    context_window: int
    parallel: int
    threads: int
    start_timeout: float


class Address(Value, frozen=True):
    """Where a server listens, and the key it requires."""

    port: int
    key: str


class LlamaServer:
    """The server of one model object. A dead one is replaced at the next request."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._process: _Process | None = None

    @property
    def pid(self) -> int | None:
        """The id of the server's process; None while there is none."""
        process = self._process
        return process.pid if process is not None and process.is_alive() else None

    async def address(self) -> Address:
        """Where the server listens; starts it if needed and waits until it is ready."""
        look = _FIRST_LOOK
        process = await self._check_process()
        while True:
            try:
                found = process.address()
            except Exception:
                self._discard(process)
                raise
            if found is not None:
                return found
            if time.monotonic() > process.started_at + self._settings.start_timeout:
                self._discard(process)
                raise TransientError(
                    f"{self._settings.model} was not loaded within {self._settings.start_timeout:g} seconds: "
                    "raise start_timeout"
                )
            await asyncio.sleep(look)
            look = min(_LAST_LOOK, look * 1.5)

    def mark_suspect(self, address: Address) -> None:
        """A connection broke: check the process before using it again."""
        process = self._process
        if process is not None and process.listens_at(address):
            process.doubted_at = time.monotonic()

    async def _check_process(self) -> _Process:
        """The process to use. A crashed one lives on for a moment after its connections have broken."""
        process = self._current()
        while time.monotonic() < process.doubted_at + _DYING:
            await asyncio.sleep(_FIRST_LOOK)
            process = self._current()
        return process

    def close(self) -> None:
        """End the server's process now; the next request would start another."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    def _current(self) -> _Process:
        with self._lock:
            process = self._process
            if process is not None and process.is_ours() and process.is_alive():
                return process
            if process is not None:
                process.end()
            try:
                self._process = process = _Process(self._settings)
            except OSError as error:
                self._process = None
                raise TransientError(f"the model server could not be started: {error}") from error
            return process

    def _discard(self, process: _Process) -> None:
        with self._lock:
            if self._process is process:
                self._process = None
        process.end()


class _Process:
    """One server process, from its start to its end."""

    def __init__(self, settings: ServerSettings) -> None:
        self._owner = os.getpid()
        self._key = secrets.token_urlsafe(24)
        self._model = settings.model
        self._said = b""
        self._found: Address | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self.started_at = time.monotonic()
        self.doubted_at = 0.0
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-P", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C in a terminal is for us alone: a run still needs the model to land
            )
        except BaseException:
            self._log.close()
            raise
        told = {**_wire.to_plain_data(settings), "key": self._key, "parent": self._owner, "path": sys.path}
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None  # noqa: S101 - as asked for above
        assert stdout is not None  # noqa: S101
        self._stdin, self._stdout = stdin, stdout
        os.set_blocking(stdout.fileno(), False)
        with suppress(OSError):  # it is dead already: address() says so
            stdin.write(_wire.encode(told) + b"\n")
            stdin.flush()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def is_ours(self) -> bool:
        """False in a fork of the process that started it."""
        return os.getpid() == self._owner

    def listens_at(self, address: Address) -> bool:
        return self._found == address

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def address(self) -> Address | None:
        """Where it listens; None while it loads. Raises when it has failed."""
        if self._found is not None:
            return self._found
        alive = self.is_alive()  # checked before reading: once it is dead, its output is complete
        with suppress(BlockingIOError, ValueError):
            self._said += os.read(self._stdout.fileno(), 1 << 16)
        if b"\n" in self._said:
            answer: dict[str, Any] = _wire.loads(self._said.partition(b"\n")[0])
            if "error" in answer:
                raise RejectedError(f"llama.cpp cannot load {self._model}: {answer['error']}{self._log_tail()}")
            self._found = Address(answer["port"], self._key)
        elif not alive:
            raise TransientError(f"the model server died while it started{self._log_tail()}")
        return self._found

    def _log_tail(self) -> str:
        try:
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - _LOGGED))
            tail = self._log.read().decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            return ""
        return f"; its log ends:\n{tail}" if tail else ""

    def end(self) -> None:
        """Kill it, wait for it and close its pipes. It has nothing to save."""
        if self.is_ours():
            with suppress(OSError):
                self._popen.kill()
            self._popen.wait()
        else:
            self._popen.returncode = 0  # not our child: we cannot wait for it, and Python must not warn
        for stream in (self._stdin, self._stdout, self._log):
            with suppress(OSError):
                stream.close()
