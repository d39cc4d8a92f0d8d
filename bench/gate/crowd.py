"""Many calls at once over several gates that share one wallet, some of them killed: nothing over, nearly all served.

    python bench/gate/crowd.py --store sqlite:FILE|postgres:DSN [--calls 1000] [--gates 8] [--kill 3] [--worst 4]

Every gate is a process of its own. The upstream counts what it served; that is the truth. `--worst 4` asks for four
times the output that is written, `--worst 0` sends no max_tokens at all.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from glidepath.testing.upstream import ScriptedUpstream

GATE = """
import asyncio, os, signal, sys
from glidepath.agent import Limits
from glidepath.gate import Gate, Upstream
from glidepath.apps.gate.governor import GateGovernor, choose_upstreams
from glidepath.apps.gate.lines import LineBook
from glidepath.apps.gate.gate_prices import PriceList
from glidepath.apps.gate.tree import GateLimits
from glidepath.serve.locks import AccessKey, Visitor
from glidepath.sessions import PostgresStore, SqliteStore

async def main(upstream, store, key, limit):
    kind, _, where = store.partition(":")
    kept = SqliteStore(where) if kind == "sqlite" else PostgresStore(where)
    upstreams = [Upstream(name, name, upstream, "swap", "env:UP") for name in ("anthropic", "openai")]
    book = LineBook(GateLimits(), store=kept)
    holder = Visitor("crowd", "run", None, AccessKey(name="crowd", digest="", role="run", max_tokens=limit))
    def line_of(request):
        request.key = holder
        return book.find(request)
    governor = GateGovernor(line_of=line_of, upstreams=choose_upstreams(upstreams), prices=PriceList())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Gate(None, upstreams, governor=governor, key=key, environ={"UP": "k" * 20}) as gate:
        print(gate.url, flush=True)
        await stop.wait()
    await book.close()
    await kept.close()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""
KEY = "gate-crowd-0123456789abcdef"
TASK = "Tell me what you know about the number {}."


async def ask(session, url, number, worst, real):
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": TASK.format(number)}], "stream": True}
    if worst:
        body["max_tokens"] = worst * real
    try:
        async with session.post(
            f"{url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"}
        ) as reply:
            text = await reply.text()
    except (aiohttp.ClientError, OSError):
        return "lost"
    if "[glidepath]" in text:
        return "landed"
    return (
        "served" if reply.status == 200 and "[DONE]" in text and "SCRIPTED-ANSWER" in text else f"status {reply.status}"
    )


def start_gate(options, url):
    """One gate as a process of its own; its address is the first line that it prints."""
    command = [sys.executable, "-c", GATE, url, options.store, KEY, str(options.limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def fly(options):
    async with ScriptedUpstream(f"answer:tokens={options.real}", rate=2_000.0, pace=0.002, keep=5_000) as up:
        gates = [start_gate(options, up.url) for _ in range(options.gates)]
        urls = [gate.stdout.readline().strip() for gate in gates]
        started = time.monotonic()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=options.seconds)
        ) as session:
            calls = [
                asyncio.ensure_future(ask(session, urls[number % len(urls)], number, options.worst, options.real))
                for number in range(options.calls)
            ]
            await asyncio.sleep(options.after)
            for gate in gates[: options.kill]:
                gate.send_signal(signal.SIGKILL)
            outcomes = [str(one) for one in await asyncio.gather(*calls, return_exceptions=True)]
        seconds = time.monotonic() - started
        for gate in gates[options.kill :]:
            gate.terminate()
        for gate in gates:
            gate.wait(30)
        used = up.usage
    counts = {word: outcomes.count(word) for word in sorted(set(outcomes))}
    spent = used.input + used.output
    return {
        "limit": options.limit,
        "spent": spent,
        "over": max(0, spent - options.limit),
        "counts": counts,
        "upstream_calls": used.calls,
        "seconds": round(seconds, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="")
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--gates", type=int, default=8)
    parser.add_argument("--kill", type=int, default=3)
    parser.add_argument("--after", type=float, default=1.5)
    parser.add_argument("--worst", type=int, default=4)
    parser.add_argument("--real", type=int, default=100)
    parser.add_argument("--limit", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=240.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.store = options.store or f"sqlite:{Path(folder) / 'gate.db'}"
        print(json.dumps(asyncio.run(fly(options)), indent=1))
    os._exit(0)


if __name__ == "__main__":
    main()
