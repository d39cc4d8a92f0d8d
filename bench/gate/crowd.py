"""Many calls at once over several gates that share one wallet, some of them killed: nothing over, nearly all served.

    python bench/gate/crowd.py [--store sqlite:FILE|postgres:DSN] [--calls 1000] [--gates 8] [--kill 3]
                               [--worst 4 0] [--litellm PYTHON]

Every gate is a process of its own. The upstream counts what it served; that is the truth. `--worst 4` asks for four
times the output that is written, `--worst 0` sends no max_tokens at all. `share` is what living gates served of what
the budget could pay them: what a killed gate held stays held, because nobody knows what its calls cost.

With `--litellm` the same crowd, budget and upstream for one process of LiteLLM's proxy, whose price is a dollar for a
million tokens. Nothing of it is killed.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from glidepath.sessions import PostgresStore, SqliteStore
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
TASK = "#run-{} Tell me what you know about the number {}."


async def ask(session, url, number, gate, worst, real):
    task = TASK.format(f"gate{gate}", number)
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": task}], "stream": True}
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


def start_gate(options, store, url):
    """One gate as a process of its own; its address is the first line that it prints."""
    command = [sys.executable, "-c", GATE, url, store, KEY, str(options.limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


async def crowd(options, urls, worst, *, kill=None):
    """All calls at once; how each ended, in the order of the calls. `kill` is awaited meanwhile."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=options.seconds)
    ) as session:
        calls = [
            asyncio.ensure_future(
                ask(session, urls[number % len(urls)], number, number % len(urls), worst, options.real)
            )
            for number in range(options.calls)
        ]
        if kill is not None:
            await kill(asyncio.gather(*calls, return_exceptions=True))
        return [str(one) for one in await asyncio.gather(*calls, return_exceptions=True)]


def describe(name, options, worst, outcomes, used, seconds):
    spent = used.input + used.output
    return {
        "who": name,
        "worst case": f"{worst} x" if worst else "no max_tokens",
        "limit": options.limit,
        "spent": spent,
        "over": max(0, spent - options.limit),
        "counts": {word: outcomes.count(word) for word in sorted(set(outcomes))},
        "upstream_calls": used.calls,
        "seconds": round(seconds, 1),
    }


async def fly(options, store, worst):
    async with ScriptedUpstream(f"answer:tokens={options.real}", rate=2_000.0, pace=0.002, keep=5_000) as up:
        gates = [start_gate(options, store, up.url) for _ in range(options.gates)]
        urls = [gate.stdout.readline().strip() for gate in gates]
        started = time.monotonic()

        async def kill(calls):
            while up.usage.calls < options.after and not calls.done():  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.01)
            for gate in gates[: options.kill]:
                gate.send_signal(signal.SIGKILL)

        outcomes = await crowd(options, urls, worst, kill=kill)
        seconds = time.monotonic() - started
        for gate in gates[options.kill :]:
            gate.terminate()
        for gate in gates:
            gate.wait(30)
        used, runs = up.usage, up.runs
    found = describe(f"{options.gates} gates, {options.kill} killed", options, worst, outcomes, used, seconds)
    mine = [number for number in range(options.calls) if number % options.gates >= options.kill]
    # What the living could spend is what they spent and what nobody holds: the rest was drawn by killed gates.
    living = [f"gate{one}" for one in range(options.kill, options.gates)]
    calls = sum(runs[name].calls for name in living if name in runs)
    spent = sum(runs[name].tokens for name in living if name in runs)
    could = spent + await read_free(store)
    payable = min(len(mine), int(could / (spent / max(1, calls))))
    served = sum(outcomes[number] == "served" for number in mine)
    found |= {"held by killed gates": options.limit - could, "payable": payable, "served by living": served}
    found["share"] = round(served / max(1, payable), 4)
    return found


async def read_free(store):
    """What is neither used nor held in the wallet of the crowd."""
    kind, _, where = store.partition(":")
    kept = SqliteStore(where) if kind == "sqlite" else PostgresStore(where)
    (wallet,) = await kept.wallets("key:crowd")
    await kept.close()
    return wallet.max_tokens - wallet.tokens - wallet.held_tokens


async def fly_litellm(options, worst, folder):
    async with ScriptedUpstream(f"answer:tokens={options.real}", rate=2_000.0, pace=0.002, keep=5_000) as up:
        process, url = start_litellm(options, up.url, folder)
        try:
            started = time.monotonic()
            outcomes = await crowd(options, [url], worst)
            used, seconds = up.usage, time.monotonic() - started
        finally:
            process.terminate()
            process.wait(30)
    found = describe("LiteLLM, 1 process", options, worst, outcomes, used, seconds)
    payable = min(options.calls, int(options.limit / ((used.input + used.output) / max(1, used.calls))))
    found["payable"], found["share"] = payable, round(found["counts"].get("served", 0) / max(1, payable), 4)
    return found


def start_litellm(options, upstream, folder):
    """LiteLLM's proxy with one key, a budget and its reservations; a token costs a millionth of a dollar."""
    (folder / "litellm_auth.py").write_text((Path(__file__).parent / "litellm_auth.py").read_text())
    (folder / "config.yaml").write_text(
        "model_list:\n- model_name: gpt-4o-mini\n  litellm_params:\n    model: openai/gpt-4o-mini\n"
        f"    api_base: {upstream}/v1\n    api_key: sk-x\n    input_cost_per_token: 0.000001\n"
        "    output_cost_per_token: 0.000001\n"
        "litellm_settings:\n  num_retries: 0\n"
        f"general_settings:\n  master_key: sk-{os.urandom(24).hex()}\n"
        "  custom_auth: litellm_auth.user_api_key_auth\n  custom_auth_run_common_checks: true\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(options.litellm).parent / "litellm"), "--config", str(folder / "config.yaml")]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "CROWD_BUDGET": str(options.limit / 1e6)}
    with (folder / "litellm.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--host", "127.0.0.1"], stdout=log, stderr=log, env=env, cwd=folder
        )
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit((folder / "litellm.log").read_text()[-2000:])
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, f"http://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.2)
    raise SystemExit("litellm did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="")
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--gates", type=int, default=8)
    parser.add_argument("--kill", type=int, default=3)
    parser.add_argument("--after", type=int, default=100, help="calls at the provider before some gates are killed")
    parser.add_argument("--worst", type=int, nargs="+", default=[4, 0])
    parser.add_argument("--real", type=int, default=100)
    parser.add_argument("--limit", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--litellm", metavar="PYTHON", help="an interpreter with litellm[proxy] installed")
    options = parser.parse_args()
    over = 0
    for worst in options.worst:
        with tempfile.TemporaryDirectory() as folder:
            store = options.store or f"sqlite:{Path(folder) / 'gate.db'}"
            found = asyncio.run(fly(options, store, worst))
            over += found["over"]
            print(json.dumps(found), flush=True)
            if options.litellm:
                print(json.dumps(asyncio.run(fly_litellm(options, worst, Path(folder)))), flush=True)
    sys.stdout.flush()
    os._exit(1 if over else 0)


if __name__ == "__main__":
    main()
