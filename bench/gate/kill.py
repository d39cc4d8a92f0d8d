"""From the kill switch to the last byte: `glidepath gate serve` with streams in flight, POST /api/kill, every stream.

    python bench/gate/kill.py [--streams 20] [--times 5]

The bar is 100 ms for the slowest of all streams, each ended properly in its dialect.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parent))

from served import KEY, TOKEN, ServedProcess

from glidepath.testing import ScriptedUpstream

BODY = {"max_tokens": 64_000, "stream": True, "messages": [{"role": "user", "content": "Write."}]}
DIALECTS = (
    ("/v1/messages", {**BODY, "model": "claude-sonnet-4-5"}, b"message_stop"),
    ("/v1/chat/completions", {**BODY, "model": "gpt-4o"}, b"[DONE]"),
)
BAR = 0.1


async def read(session, url, number, begun):
    path, body, end = DIALECTS[number % len(DIALECTS)]
    headers = {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
    async with session.post(f"{url}/run-{number}{path}", json=body, headers=headers) as reply:
        text = b""
        async for part in reply.content.iter_any():
            text += part
            begun.set()
        return time.monotonic(), end in text and b"fire" in text


async def kill_once(session, url, streams):
    begun = [asyncio.Event() for _ in range(streams)]
    tasks = [asyncio.ensure_future(read(session, url, number, begun[number])) for number in range(streams)]
    await asyncio.gather(*[one.wait() for one in begun])
    order = {"scope": "fleet", "active": True, "reason": "fire"}
    headers = {"authorization": f"Bearer {TOKEN}"}
    began = time.monotonic()
    async with session.post(f"{url}/api/kill", json=order, headers=headers) as reply:
        reply.raise_for_status()
    ends = await asyncio.gather(*tasks)
    async with session.post(f"{url}/api/kill", json={**order, "active": False}, headers=headers) as reply:
        reply.raise_for_status()
    return [end - began for end, _ in ends], all(good for _, good in ends)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    worst, proper = 0.0, True
    async with ScriptedUpstream("endless", rate=500.0, keep=0) as up, aiohttp.ClientSession() as session:
        with ServedProcess(up.url) as gate:
            for _ in range(options.times):
                took, good = await kill_once(session, gate.url, options.streams)
                worst, proper = max(worst, *took), proper and good
    found = {"streams": options.streams, "times": options.times, "worst ms": round(worst * 1e3, 1), "proper": proper}
    print(json.dumps(found))
    return 0 if worst < BAR and proper else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
