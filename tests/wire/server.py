"""A loopback HTTP server that answers exactly what a test tells it, byte for byte."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

SSE = "text/event-stream"


class Late(bytes):
    """A chunk that comes this many seconds later."""

    wait = 0.1


class Answer:
    """One scripted answer. `chunks` are sent one by one; `ending` is close, abort, or hang."""

    def __init__(
        self,
        chunks: Sequence[bytes] = (),
        *,
        status: int = 200,
        kind: str = SSE,
        headers: dict[str, str] | None = None,
        ending: str = "close",
        wait: float = 0,
    ):
        self.wait = wait
        self.chunks, self.status, self.kind, self.headers, self.ending = chunks, status, kind, headers or {}, ending


def error(status: int, body: Any, **headers: str) -> Answer:
    """An error answer with a JSON body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer([json.dumps(body).encode()], status=status, kind="application/json", headers=named)


class Request:
    def __init__(self, path: str, headers: dict[str, str], raw: bytes):
        self.path, self.headers, self.raw = path, headers, raw

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Wire:
    """The server: `async with Wire([Answer(...), ...]) as wire`, then `wire.url` and `wire.requests`."""

    def __init__(self, answers: Sequence[Answer | Callable[[Request], Answer]]):
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def left(self) -> None:
        """Wait until every connection is closed by the other side; a test that waits in vain runs out of time."""
        while self.connections:  # noqa: ASYNC110 - real sockets: there is nothing to wait for but time
            await asyncio.sleep(0.005)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer), name="wire-server")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = await _read(reader)
                if request is None:
                    break
                self.requests.append(request)
                self.asked.set()
                scripted = self.answers.pop(0)
                await self._answer(scripted if isinstance(scripted, Answer) else scripted(request), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections -= 1
            self.closed.set()
            writer.close()

    async def _answer(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer.ending == "refuse":
            writer.transport.abort()
            raise ConnectionError
        await asyncio.sleep(answer.wait)
        head = f"HTTP/1.1 {answer.status} Scripted\r\ncontent-type: {answer.kind}\r\ntransfer-encoding: chunked\r\n"
        head += "".join([f"{name}: {value}\r\n" for name, value in answer.headers.items()])
        writer.write(head.encode() + b"\r\n")
        for chunk in answer.chunks:
            await asyncio.sleep(chunk.wait if isinstance(chunk, Late) else 0)
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        if answer.ending == "hang":
            await reader.read()  # until the other side goes away
            raise ConnectionError
        if answer.ending == "abort":
            await asyncio.sleep(0.02)  # let what was written arrive: a reset would take it back
            writer.transport.abort()
            raise ConnectionError
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    line = await reader.readline()
    if not line:
        return None
    headers: dict[str, str] = {}
    while (field := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = field.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(line.split()[1].decode(), headers, raw)


def run(test: Callable[[], Awaitable[Any]], seconds: float = 20) -> Any:
    """Run a test on a loop of its own, with real time and real sockets."""

    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await test()

    return asyncio.run(bounded())
