"""HTTP servers for the tests: one of the SDK under uvicorn, and one that answers bytes as it is told."""

import asyncio
import socket
from contextlib import asynccontextmanager

import uvicorn


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@asynccontextmanager
async def sdk_server(server, **options):
    """A server of the SDK, on a port of its own; gives its address."""
    port = free_port()
    app = server.streamable_http_app(**options)
    running = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", ws="none"))
    task = asyncio.create_task(running.serve())
    while not running.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        running.should_exit = True
        await task


@asynccontextmanager
async def raw_server(answer):
    """A server of ours: `answer(method, headers, body)` gives the whole response as bytes, or parts of it."""

    async def serve(reader, writer):
        try:
            while line := await reader.readline():
                headers = {}
                while (head := await reader.readline()).strip():
                    name, _, value = head.decode().partition(":")
                    headers[name.strip().lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                said = answer(line.split()[0].decode(), headers, body)
                for part in [said] if isinstance(said, bytes) else said:
                    writer.write(part)
                    await writer.drain()
                break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


def response(status, body, kind="application/json", **more):
    """One HTTP response; the connection ends with it."""
    data = body if isinstance(body, bytes) else body.encode()
    heads = {"content-type": kind, "content-length": str(len(data)), "connection": "close", **more}
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + data
