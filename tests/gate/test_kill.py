"""The kill switch with the real rules: from the order to the last byte of every stream."""

import asyncio
import time

from glidepath import Limits
from glidepath.gate import Gate
from glidepath.testing.upstream import ScriptedUpstream

from .plain import Talk

BODY = b'{"model":"claude-sonnet-4-5","max_tokens":64000,"stream":true,"messages":[{"role":"user","content":"hi"}]}'
HEADERS = [(b"anthropic-version", b"2023-06-01"), (b"content-type", b"application/json")]


def test_a_kill_ends_endless_replies_in_their_dialect_within_a_tenth_of_a_second():
    async def read(talk, first):
        talk.send("/run-1/v1/messages", BODY, headers=HEADERS, key=talk.key)
        parts = []
        async for part in talk.read_body(await talk.read_head()):
            parts.append(part)
            first.set()
        return time.monotonic(), b"".join(parts)

    async def play():
        async with ScriptedUpstream("endless", rate=200.0) as up, Gate(Limits(max_tokens=10**9), up.url) as gate:
            talks = [await Talk(gate).__aenter__() for _ in range(8)]
            firsts = [asyncio.Event() for _ in talks]
            for talk in talks:
                talk.key = gate.key
            tasks = [asyncio.ensure_future(read(*pair)) for pair in zip(talks, firsts, strict=True)]
            await asyncio.gather(*[first.wait() for first in firsts])
            ordered = time.monotonic()
            await gate.stop("the operator said so")
            ends = await asyncio.gather(*tasks)
            for talk in talks:
                talk.writer.close()
            return [end - ordered for end, _ in ends], [body for _, body in ends], gate.report()

    took, bodies, report = asyncio.run(asyncio.wait_for(play(), 60))
    assert max(took) < 0.1
    assert all(body.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n') for body in bodies)
    assert all(b"the operator said so" in body for body in bodies)
    assert report["calls"] == 8
