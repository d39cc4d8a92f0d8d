"""What a key has open ends with the key: events, the list, OpenAI's streams, AG-UI, MCP, and answers that wait."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from glidepath.apps.server.locks import key_watch
from glidepath.errors import StoreError
from glidepath.serve.locks import MemoryKeys, keys_for, make_key
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import call, say

from .deck import STREAM, Doors, agent, code, flown
from .test_mcp_door import HEAD, INIT, listening

BOUND = 3.0
"""Seconds after which nothing of a revoked key is open; docs/server.md says so."""


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


@asynccontextmanager
async def waiting_server(ring, **options):
    """A server whose agent waits in a tool until it is let go."""
    doors = Doors()
    slow = agent(call("wait"), say("THE-END"), tools=doors.tools())
    async with listening(slow, keys=ring, store=options.pop("store", MemoryStore()), **options) as client:
        client.doors = doors
        try:
            yield client
        finally:
            doors.open.set()


async def opened(client, door, headers):
    """A request that stays open, as an async context of httpx."""
    if door == "events":
        run = (await client.post("/api/runs", json={"agent": "helper", "prompt": "x"}, headers=headers)).json()
        return client.stream("GET", f"/api/runs/{run['run_id']}/events", headers={**headers, **STREAM})
    if door == "feed":
        return client.stream("GET", "/api/feed", headers={**headers, **STREAM})
    kind, _, whole = door.partition(", ")
    if kind in ("responses", "chat"):
        path = {"responses": "/v1/responses", "chat": "/v1/chat/completions"}[kind]
        said = {"input": "x"} if kind == "responses" else {"messages": [{"role": "user", "content": "x"}]}
        return client.stream("POST", path, json={"model": "helper", "stream": not whole, **said}, headers=headers)
    if door == "agui":
        message = {"id": "m", "role": "user", "content": "x"}
        body = {"threadId": "t", "runId": "r", "messages": [message], "state": {}, "tools": [], "context": []}
        return client.stream("POST", "/agui", json={**body, "forwardedProps": {}}, headers=headers)
    headers = {**HEAD, **headers}
    began = await client.post("/mcp", json=INIT, headers=headers)
    headers["mcp-session-id"] = began.headers["mcp-session-id"]
    await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    if door == "mcp, listening":
        return client.stream("GET", "/mcp", headers={**headers, "accept": "text/event-stream"})
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "helper", "arguments": {"task": "x"}}}
    return client.stream("POST", "/mcp", json=ask, headers=headers)


STREAMED = ("events", "feed", "responses", "chat", "agui", "mcp", "mcp, listening")
WHOLE = ("responses, whole", "chat, whole")


@pytest.mark.parametrize("door", [*STREAMED, *WHOLE])
@flown
async def test_what_is_open_ends_when_its_key_is_revoked(door):
    secret, key = make_key("web", "run")
    other, kept = make_key("kept", "run")
    ring = MemoryKeys([key, kept])
    async with waiting_server(ring) as client:
        revoked = {}

        async def revoke():
            if door not in ("feed", "mcp, listening"):
                await client.doors.entered.wait()
            await asyncio.sleep(0.2)
            await ring.revoke("web")
            revoked["at"] = time.monotonic()

        async def read(stream):
            async with stream as response:
                return response.status_code, [part async for part in response.aiter_bytes()]

        revoking = asyncio.create_task(revoke())
        still = asyncio.create_task(read(await opened(client, "feed", bearer(other))))
        status, parts = await read(await opened(client, door, bearer(secret)))
        took = time.monotonic() - revoked["at"]
        assert took < BOUND
        assert status == (401 if door in WHOLE else 200)
        assert b"THE-END" not in b"".join(parts)
        if door in WHOLE:
            assert b"key_void" in b"".join(parts)
        await revoking
        assert not still.done()  # another key's stream goes on
        still.cancel()
        await asyncio.gather(still, return_exceptions=True)
        if door not in ("feed", "mcp, listening"):
            (card,) = (await client.get("/api/runs")).json()["runs"]
            if door != "agui":  # whose runs stop with their reader
                assert card["state"] == "running"  # its run continues: the operator decides about it
        assert code(await client.get("/api/info", headers=bearer(secret))) == (401, "key_void")


@flown
async def test_what_is_open_ends_when_its_key_expires():
    secret, key = make_key("web", "run", expires=time.time() + 1.5)
    async with waiting_server(MemoryKeys([key])) as client:
        began = time.monotonic()
        async with await opened(client, "feed", bearer(secret)) as response:
            assert response.status_code == 200
            async for _ in response.aiter_bytes():
                pass
        assert time.monotonic() - began < 1.5 + BOUND


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@flown
async def test_a_key_that_another_process_revokes_loses_what_it_has_open(kind, tmp_path):
    from tests.engines.kit import fresh_database

    from glidepath.sessions import PostgresStore

    address = fresh_database() if kind == "postgresql" else None

    def store():
        return PostgresStore(address) if address else SqliteStore(tmp_path / "s.db")

    secret, key = make_key("web", "run")
    elsewhere = store()
    ring = keys_for(elsewhere)
    await ring.add(key)
    async with waiting_server(None, store=store()) as client, await opened(client, "feed", bearer(secret)) as response:
        await ring.revoke("web")
        began = time.monotonic()
        async for _ in response.aiter_bytes():
            pass
        assert time.monotonic() - began < BOUND
    await elsewhere.close()


@flown
async def test_streams_end_when_keys_cannot_be_read_for_long(monkeypatch):
    monkeypatch.setattr(key_watch, "PATIENCE", 1.5)

    class Frail(MemoryKeys):
        broken = False

        async def find(self, digest):
            if self.broken:
                raise StoreError("the disk is gone", kind="unavailable")
            return await super().find(digest)

    secret, key = make_key("web", "run")
    ring = Frail([key])
    async with waiting_server(ring) as client, await opened(client, "feed", bearer(secret)) as response:
        ring.broken = True
        began = time.monotonic()
        async for _ in response.aiter_bytes():
            pass
        assert 1.0 < time.monotonic() - began < 1.5 + BOUND


@flown
async def test_a_handler_that_does_not_listen_is_cancelled():
    """A door that forgets to watch for its client cannot keep a stream open either."""
    from glidepath.apps.server.gatekeeper import Gatekeeper, is_private
    from glidepath.serve.locks import Doorkeeper, parse_hosts

    async def deaf(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"secret", "more_body": True})
            await asyncio.sleep(0.1)

    secret, key = make_key("web", "run")
    ring = MemoryKeys([key])
    lock = Doorkeeper(tokens={}, keys=ring, hosts=parse_hosts(), is_private=is_private)
    application = Gatekeeper(deaf, admission=lock, watch=key_watch.KeyWatch(ring))
    sent = []

    async def send(message):
        sent.append((time.monotonic(), message))

    async def receive():
        await asyncio.Event().wait()

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secret}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/api/feed", "headers": headers}
    serving = asyncio.create_task(application(scope, receive, send))
    await asyncio.sleep(0.3)
    await ring.revoke("web")
    await asyncio.wait_for(serving, BOUND)
    assert sent[-1][1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert sum(message.get("body") == b"secret" for _, message in sent) < 30
