"""Requests as no library sends them: each is answered or refused whole, and no two servers can read it differently."""

import asyncio
import json

import pytest

from .foreign import fly_behind, in_real_time
from .kept import until

BODY = json.dumps(
    {"model": "claude-opus-5-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
).encode()


def head(flown, *lines, method="POST", path="/run-1/v1/messages", version="1.1", host=True):
    """The head of a request with the gate's key."""
    address = flown.gate.address.removeprefix("http://")
    hosts = [f"host: {address}"] if host else []
    own = [f"{method} {path} HTTP/{version}", *hosts, f"x-api-key: {flown.key}", "anthropic-version: 2023-06-01"]
    return "".join(f"{line}\r\n" for line in [*own, *lines, ""]).encode()


def whole(flown, *lines, body=BODY, **options):
    return head(flown, *lines, f"content-length: {len(body)}", **options) + body


def in_chunks(body, size=7):
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n"


async def send(flown, data, *, replies=1):
    """The statuses that come back for these bytes, one for each reply, and all that was said."""
    port = int(flown.gate.address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    statuses, said = [], b""
    for _ in range(replies):
        try:
            top = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        except asyncio.IncompleteReadError:
            break
        statuses.append(int(top.split(b" ", 2)[1]))
        length = next((line for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        said += await reader.readexactly(int(length.partition(b":")[2]))
    writer.close()
    return statuses, said.decode()


def settled(flown):
    """Nothing is in flight or reserved."""
    sessions = [one for line in flown.gate.governor._lines.values() for one in line.sessions.values()]
    return not any(one.meter.reserved_tokens or one.is_flying for one in sessions)


SERVED = {
    "HTTP/1.0": lambda flown: whole(flown, version="1.0"),
    "chunked": lambda flown: head(flown, "transfer-encoding: chunked") + in_chunks(BODY) + b"\r\n",
    "a trailer": lambda flown: head(flown, "transfer-encoding: chunked") + in_chunks(BODY) + b"x-api-key: no\r\n\r\n",
    "a second key": lambda flown: whole(flown, "x-api-key: somebody-else-entirely"),
    "a line by its whole address": lambda flown: whole(flown, path=f"{flown.gate.address}/run-1/v1/messages"),
    "a session named twice": lambda flown: whole(
        flown, "x-claude-code-session-id: first-one", "x-claude-code-session-id: second", path="/v1/messages"
    ),
    "a session with any letters": lambda flown: whole(flown, "x-glidepath-run: пуск-🚀", path="/v1/messages"),
    "a session without end": lambda flown: whole(flown, f"x-glidepath-run: {'r' * 9_000}", path="/v1/messages"),
}
REFUSED = {
    "two lengths": (lambda flown: whole(flown, "content-length: 3"), 400),
    "a length twice": (lambda flown: whole(flown, f"content-length: {len(BODY)}"), 400),
    "a length and chunks": (lambda flown: whole(flown, "transfer-encoding: chunked"), 400),
    "a length below zero": (lambda flown: head(flown, "content-length: -5"), 400),
    "a length beyond counting": (lambda flown: head(flown, f"content-length: {'9' * 40}"), 400),
    "chunks by another name": (lambda flown: head(flown, "transfer-encoding: xchunked"), 400),
    "a folded header": (lambda flown: whole(flown, "x-a: 1\r\n 2"), 400),
    "a blank before the colon": (lambda flown: whole(flown, "x-a : 1"), 400),
    "no host": (lambda flown: whole(flown, host=False), 421),
    "two hosts": (lambda flown: whole(flown, "host: elsewhere"), 421),
    "another host in the address": (
        lambda flown: whole(flown, path="http://elsewhere/run-1/v1/messages", host=False),
        421,
    ),
    "letters in the path": (lambda flown: whole(flown, path="/пуск/v1/messages"), 400),
    "letters in the path, encoded": (lambda flown: whole(flown, path="/%D0%BF/v1/messages"), 404),
    "no text in the path": (lambda flown: whole(flown, path="/%ff%00/v1/messages"), 404),
    "a way up": (lambda flown: whole(flown, path="/../../v1/messages"), 404),
    "a hidden slash": (lambda flown: whole(flown, path="/a%2fb/v1/messages"), 404),
    "HTTP/2": (lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "an upgrade": (lambda flown: whole(flown, "connection: upgrade", "upgrade: h2c"), 426),
    "TLS": (lambda _: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400), 400),
}


@in_real_time
async def test_unusual_requests_that_mean_one_thing_are_served_and_counted_once():
    async with fly_behind("answer", max_tokens=500_000) as flown:
        for number, (name, make) in enumerate(SERVED.items(), 1):
            statuses, said = await send(flown, make(flown))
            assert statuses == [200], (name, said)
            assert "SCRIPTED-ANSWER" in said, name
            assert flown.up.usage.calls == number, name
        assert all(call.body == {**json.loads(BODY), "stream": True} for call in flown.up.calls)
        sessions = {name for line in flown.gate.governor._lines.values() for name in line.sessions}
        assert "first-one" in sessions
        assert "second" not in sessions
        assert max(map(len, sessions)) == 200
        assert settled(flown)
        flown.assert_within(500_000)


@in_real_time
async def test_requests_that_could_be_read_in_two_ways_are_refused_and_nothing_of_them_goes_out():
    async with fly_behind("answer", max_tokens=500_000) as flown:
        for name, (make, status) in REFUSED.items():
            statuses, said = await send(flown, make(flown))
            assert statuses == [status], (name, said)
        assert flown.up.usage.calls == 0
        assert (await send(flown, whole(flown)))[0] == [200], "and the next one is served"


@in_real_time
async def test_requests_behind_one_another_are_answered_in_their_order_and_each_is_paid():
    async with fly_behind("answer", max_tokens=500_000) as flown:
        wrong = whole(flown, body=b"{}")
        statuses, said = await send(flown, whole(flown) * 2 + wrong + whole(flown) * 2, replies=5)
        assert statuses == [200, 200, 400, 200, 200]
        assert said.count("SCRIPTED-ANSWER") == flown.up.usage.calls == 4
        assert flown.report()["calls"] == 4
        assert settled(flown)


@pytest.mark.parametrize("at", [1, 0.5])
@in_real_time
async def test_a_client_that_closes_its_half_leaves_nothing_open_and_what_was_sent_is_paid(at):
    async with fly_behind("answer", max_tokens=500_000) as flown:
        data = whole(flown)
        port = int(flown.gate.address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data[: int(len(data) * at)])
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await until(lambda: settled(flown))
        used = flown.up.usage
        assert (flown.report() or {}).get("tokens", 0) >= used.input + used.output
