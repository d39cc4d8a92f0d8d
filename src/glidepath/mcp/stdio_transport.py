"""The pipes of a server we start, read within bounds: a long line, a flood or noise never hold the event loop.

The SDK's own reader splits its whole buffer again with every chunk and has no limit: a line of 32 MiB costs it eight
seconds of the loop. Here a line is searched once, a line over the limit ends the connection, and a large message is
parsed on a thread.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter

from glidepath.mcp.definitions import clean_text
from glidepath.mcp.large_messages import OFF_THE_LOOP, is_large, slim_message
from glidepath.mcp.mcp_server import ServerLink
from glidepath.mcp.thread_calls import run_in_thread
from glidepath.tools import Boxed, SandboxError
from glidepath.values import pluralize, short_repr

__all__ = ["StdioTransport", "make_environment"]

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
READ = 32 << 10
MOST_WAITING = 256  # messages that are parsed and not taken yet
MOST_UNWRITTEN = 8 << 20  # bytes that the server has not read
STDERR_KEPT = 4_096
MESSAGES_A_SECOND = 1_000  # that are let through; beyond it notifications are dropped
REST = 0.01  # seconds between two reads while a flood is dropped
AT_ONCE = 64  # lines taken before others have their turn
LAST_WORDS = 0.02
POLITE = 0.6  # seconds a server has to end after its stdin was closed
FIRM = 0.3  # and after SIGTERM
LOOK = 0.5  # seconds between two looks at the process, where the system does not tell of its end
HEIRS = 0.2  # seconds for what it wrote last, when others hold its pipes


_ANSWER = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,\s*"(?:result|error|jsonrpc)"'
)


def _is_missing_folder(path: str | None) -> bool:
    return path is not None and not Path(path).is_dir()


def _explain_missing(link: ServerLink) -> str:
    """What is not there, and what to do about it."""
    if _is_missing_folder(link.cwd):
        return f"there is no folder {link.cwd!r}; correct cwd"
    first, _, rest = (link.command or "").strip().partition(" ")
    if rest and not link.args:
        return f"there is no command {link.command!r}; write command={first!r} and put the rest in args=[...]"
    return f"there is no command {link.command!r}; install it, or correct the path"


def make_environment() -> dict[str, str]:
    """The few variables a server gets besides its own: where programs and the home folder are, and no keys."""
    return {name: os.environ[name] for name in INHERITED if not os.environ.get(name, "()").startswith("()")}


def _enter_sandbox(link: ServerLink) -> Boxed | None:
    """The server's command in its sandbox, where it has one; raises `OSError` with what is missing."""
    sandbox = link.sandbox
    if sandbox is None:
        return None
    path = {**make_environment(), **link.env}.get("PATH")
    program = shutil.which(cast("str", link.command), path=path)
    if program is None:
        raise OSError(_explain_missing(link))
    try:
        return sandbox.enter([program, *link.args], cwd=link.cwd, env=link.env)
    except SandboxError as error:
        raise OSError(str(error)) from None


class Noise:
    """What a server wrote that was not a message."""

    def __init__(self) -> None:
        self.lines = 0
        self.first = ""
        self.dropped = 0
        self.stderr = b""

    def describe(self) -> str:
        """The same in words; empty when there was nothing."""
        said = []
        if self.lines:
            said.append(
                f"it printed {pluralize(self.lines, 'line')} on stdout that are not JSON-RPC "
                f"(the first: {short_repr(self.first, 80)}); a server must print text on stderr"
            )
        if self.stderr:
            tail = clean_text(self.stderr.decode(errors="replace"), STDERR_KEPT)
            said.append(f"its stderr ends with: {tail[-400:]}")
        return "; ".join(said)


class StdioTransport:
    """Starts the program on entering, ends it on leaving; gives the SDK a stream to read and one to write."""

    def __init__(self, link: ServerLink, lost: Callable[[str], None]) -> None:
        self._link = link
        self._lost = lost
        self.noise = Noise()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._pipes: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport | None = None
        self._drain: _Drain | None = None
        self._inbox: _Inbox | None = None
        self._leaving = False
        self._boxed: Boxed | None = None
        self._pidfd: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> tuple[Any, Any]:
        link = self._link
        self._boxed = boxed = _enter_sandbox(link)
        try:
            process = subprocess.Popen(  # noqa: S603, ASYNC220 - starting it is the point, and takes a moment
                [cast("str", link.command), *link.args] if boxed is None else boxed.words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**make_environment(), **link.env} if boxed is None else boxed.env,
                cwd=link.cwd if boxed is None else boxed.cwd,
                pass_fds=() if boxed is None else boxed.pass_fds,
                start_new_session=True,
                bufsize=0,
            )
            if boxed is not None:
                boxed.close_start_files()
        except FileNotFoundError:
            raise OSError(_explain_missing(link)) from None
        except (OSError, ValueError) as error:
            raise OSError(f"{link.command!r} cannot be started: {error}") from None
        self._process = process
        try:
            return await self._connect(process)
        except BaseException:
            self._kill(signal.SIGKILL)
            process.wait()
            raise

    async def _connect(self, process: subprocess.Popen[bytes]) -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        stdout = asyncio.StreamReader(limit=READ, loop=loop)
        self._drain = drain = _Drain(loop)
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout, loop=loop), process.stdout)
        self._pipes.append(pipe)
        pipe, _ = await loop.connect_read_pipe(lambda: _Tail(self.noise), process.stderr)
        self._pipes.append(pipe)
        self._stdin, _ = await loop.connect_write_pipe(lambda: drain, process.stdin)
        self._stdin.set_write_buffer_limits(high=256 << 10)
        self._inbox = inbox = _Inbox(loop)
        self._reader = loop.create_task(self._read(stdout, inbox), name=f"glidepath-mcp-read-{self._link.name}")
        self._watch_process(loop, process)
        return inbox, _Outbox(self._stdin, drain)

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._leaving = True
        try:
            if self._stdin is not None:
                self._stdin.close()
            if not await self._wait_for_exit(POLITE):
                self._kill(signal.SIGTERM)
                if not await self._wait_for_exit(FIRM):
                    self._kill(signal.SIGKILL)
                    await self._wait_for_exit(FIRM)
        finally:  # also when the loop itself is closing
            self._kill(signal.SIGKILL)  # whatever it has left behind in its group
            await self._release()

    # --- its death: a process that it started may hold its pipes, so that they never end -------------------------

    def _watch_process(self, loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes]) -> None:
        try:
            self._pidfd = os.pidfd_open(process.pid)
            loop.add_reader(self._pidfd, self._on_exit, loop)
        except (AttributeError, OSError, NotImplementedError):  # not on this system: look now and then
            self._close_pidfd()
            self._timer = loop.call_later(LOOK, self._check_process, loop, process)

    def _check_process(self, loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            self._timer = loop.call_later(LOOK, self._check_process, loop, process)
        else:
            self._on_exit(loop)

    def _on_exit(self, loop: asyncio.AbstractEventLoop) -> None:
        """It has died: what it wrote last is read, and then nothing more: another process may hold the pipe."""
        self._stop_watching(loop)
        if not self._leaving:
            self._timer = loop.call_later(HEIRS, self._pipes[0].close)

    def _stop_watching(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._pidfd is not None:
            loop.remove_reader(self._pidfd)
        self._close_pidfd()

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    async def _wait_for_exit(self, seconds: float) -> bool:
        process = cast("subprocess.Popen[bytes]", self._process)
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + seconds, 0.001
        while process.poll() is None:
            if loop.time() >= until:
                return False
            await asyncio.sleep(pause)
            pause = min(0.02, pause * 2)
        return True

    def _kill(self, number: signal.Signals) -> None:
        process = cast("subprocess.Popen[bytes]", self._process)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                process.send_signal(number)

    async def _release(self) -> None:
        self._stop_watching(asyncio.get_running_loop())
        for pipe in self._pipes:
            pipe.close()
        if self._stdin is not None and self._drain is not None and not self._drain.closed:
            self._stdin.abort()
        reader = self._reader
        if reader is not None:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        process = cast("subprocess.Popen[bytes]", self._process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)  # it was killed: this collects it
        if self._boxed is not None:
            self._boxed.close()

    # --- reading ----------------------------------------------------------------------------------------------

    async def _read(self, stdout: asyncio.StreamReader, inbox: _Inbox) -> None:
        """Every line of the server, until it ends or sends too much."""
        try:
            why = await self._read_lines(stdout, inbox)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever happens to a pipe ends the connection
            why = f"its output could not be read: {error}"
        if not self._leaving:
            await asyncio.sleep(LAST_WORDS)  # what it says on stderr may come a moment later
            self._lost(why)  # first, so that the error at the end can say why
        inbox.end()

    async def _read_lines(self, stdout: asyncio.StreamReader, inbox: _Inbox) -> str:
        limit = self._link.max_message_bytes
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        allowance, since, taken = float(MESSAGES_A_SECOND), loop.time(), 0
        while data := await stdout.read(READ):
            start, flood = 0, False
            now = loop.time()
            allowance = min(float(MESSAGES_A_SECOND), max(0.0, allowance) + (now - since) * MESSAGES_A_SECOND)
            since = now
            while (end := data.find(b"\n", start)) >= 0:
                buffer += data[start:end]
                start = end + 1
                line, buffer = buffer, bytearray()
                if len(line) > limit:
                    return self._kill_for_length(limit)
                allowance -= 1
                if allowance < 0:
                    flood = True
                    if b'"id"' not in line:  # a notification: nobody waits for it
                        self.noise.dropped += 1
                        continue
                if not await self._take(line, inbox, flood=flood):
                    return self._kill_for_flood()
                taken += 1
                if taken % AT_ONCE == 0:
                    await asyncio.sleep(0)
            buffer += data[start:]
            if len(buffer) > limit:
                return self._kill_for_length(limit)
            await asyncio.sleep(REST if flood else 0)  # others have their turn, and a flood has to wait
        return "it closed its output"

    def _kill_for_length(self, limit: int) -> str:
        self._kill(signal.SIGKILL)
        return (
            f"it sent a message of more than {limit} bytes; raise max_message_bytes to allow it, or have it send less"
        )

    def _kill_for_flood(self) -> str:
        self._kill(signal.SIGKILL)
        return (
            f"it sent more than {MESSAGES_A_SECOND} messages in a second, and requests among them; have it send fewer"
        )

    async def _take(self, line: bytearray, inbox: _Inbox, *, flood: bool) -> bool:
        """One line, parsed and handed over; False for a request in a flood: each would be a task that waits."""
        if not line.strip():
            return True
        try:
            if is_large(line):
                data = await run_in_thread(lambda: slim_message(bytes(line)))
                message = jsonrpc_message_adapter.validate_python(data, by_name=False)
            else:
                message = jsonrpc_message_adapter.validate_json(bytes(line), by_name=False)
        except ValueError:
            message = _bad_answer(line)
            if message is None:
                self.noise.lines += 1
                if self.noise.lines == 1:
                    self.noise.first = line[:200].decode(errors="replace")
                return True
        if flood and isinstance(message, JSONRPCRequest):
            return False
        await inbox.put(SessionMessage(message))
        return True


def _bad_answer(line: bytearray) -> Any:
    """An error for the call that a malformed answer belongs to; None when that cannot be told."""
    if not line.lstrip().startswith(b"{"):
        return None
    from glidepath import _wire

    number, wrong = None, "JSON-RPC 2.0"
    try:
        data = _wire.loads(bytes(line)) if len(line) <= OFF_THE_LOOP else None
    except Exception:  # cut off, not UTF-8, half a surrogate pair: its beginning says which call it was for
        found = _ANSWER.match(line)
        number, wrong = None if found is None else int(found.group(1)), "JSON in UTF-8"
    else:
        number = data.get("id") if isinstance(data, dict) and "method" not in data else None
    if type(number) not in (int, str):
        return None
    error = ErrorData(code=-32603, message=f"the server's answer is not valid {wrong}")
    return JSONRPCError(jsonrpc="2.0", id=cast("Any", number), error=error)


class _Tail(asyncio.Protocol):
    """Keeps the end of what the server prints on stderr, for error messages."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def data_received(self, data: bytes) -> None:
        self._noise.stderr = (self._noise.stderr + data[-STDERR_KEPT:])[-STDERR_KEPT:]


class _Drain(asyncio.BaseProtocol):
    """Tracks whether the server reads what it is sent."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[None]] = []
        self.full = self.closed = False

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._wake()

    def connection_lost(self, _error: Exception | None) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait_for_room(self) -> None:
        while self.full and not self.closed:
            future = self._loop.create_future()
            self._waiting.append(future)
            await future


class _Stream:
    """What the SDK asks of a stream besides its one verb."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Inbox(_Stream):
    """Messages of the server, in order; the reader waits while too many have not been taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._messages: deque[SessionMessage] = deque()
        self._taker: asyncio.Future[None] | None = None
        self._giver: asyncio.Future[None] | None = None
        self._ended = False

    async def put(self, message: SessionMessage) -> None:
        self._messages.append(message)
        self._wake_waiter(self._taker)
        while len(self._messages) >= MOST_WAITING and not self._ended:
            self._giver = self._loop.create_future()
            await self._giver

    def end(self) -> None:
        self._ended = True
        self._wake_waiter(self._taker)
        self._wake_waiter(self._giver)

    @staticmethod
    def _wake_waiter(future: asyncio.Future[None] | None) -> None:
        if future is not None and not future.done():
            future.set_result(None)

    async def receive(self) -> SessionMessage:
        while not self._messages:
            if self._ended:
                raise anyio.EndOfStream
            self._taker = self._loop.create_future()
            await self._taker
        self._wake_waiter(self._giver)
        return self._messages.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self.end()


class _Outbox(_Stream):
    """Messages for the server, written at once; who writes waits while the server does not read."""

    def __init__(self, pipe: asyncio.WriteTransport, drain: _Drain) -> None:
        self._pipe = pipe
        self._drain = drain
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        if self._closed or self._drain.closed or self._pipe.is_closing():
            raise anyio.BrokenResourceError
        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if self._pipe.get_write_buffer_size() + len(data) > MOST_UNWRITTEN:
            await self._drain.wait_for_room()
        self._pipe.write(data)
        if self._drain.full:
            await self._drain.wait_for_room()
            if self._drain.closed:
                raise anyio.BrokenResourceError

    async def aclose(self) -> None:
        self._closed = True
