"""What readers cost: 50 live runs on one server, without readers and with 200 of them.

    python bench/serve.py [--runs 50] [--readers 200] [--turns 60] [--pace 0.1]

The server is a process of its own (`glidepath serve` on a SQLite file), its readers are in this one. CPU is that
of the server's process, from /proc, and is divided by the turns its runs made. Every reader must get every event of its
run, in order, and its `RunEnded` last. Both ways are tried several times, turn about, and the medians are compared.
The bars are judged at the end, and the exit code is 1 when one is missed. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

TOKEN = "bench-token-0123456789"  # noqa: S105
HEADERS = {"authorization": f"Bearer {TOKEN}"}
AGENT = '''
import asyncio
from glidepath import Agent, Limits, tool
from glidepath.testing import ScriptedModel, call, say

TURNS, PACE = {turns}, {pace}

@tool
async def look(step: int) -> str:
    """Look."""
    await asyncio.sleep(PACE)
    return f"seen {{step}}"

def turn(request):
    done = sum(message.role == "assistant" for message in request.messages[-2:]) and len(request.messages) // 2
    if done >= TURNS:
        return say("all was seen")
    text = "the next step is one more look at what is there " * 2
    return call("look", step=done).with_text(text).with_id(f"c{{done}}")

agent = Agent(
    model=ScriptedModel(name="bench", record=False, usage="missing", delay=PACE / 10).forever(turn),
    tools=[look], limits=Limits(max_iterations=TURNS + 5, timeout=3600), agent_name="bench",
)
'''


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """`glidepath serve` in a folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        command = [sys.executable, "-m", "glidepath", "serve", "--agent", "bench_agent:agent", "--port", str(port)]
        command += ["--store", "sqlite:store.db", "--no-browser", "--max-runs", "1000"]
        self.url = f"http://127.0.0.1:{port}"
        environ = {**os.environ, "GLIDEPATH_SERVE_TOKEN": TOKEN}
        self.process = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.DEVNULL)

    async def ready(self) -> None:
        async with httpx.AsyncClient() as client:
            for _ in range(600):
                try:
                    if (await client.get(f"{self.url}/readyz")).status_code == 200:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
        raise SystemExit("the server did not come up")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


async def read(port: int, run_id: str) -> list[bytes]:
    """Read a run to its end and keep what came. A plain socket: the reader must not be what is measured."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = f"GET /api/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    writer.write(f"{head}Accept: text/event-stream\r\nConnection: close\r\n\r\n".encode())
    parts = []
    while part := await reader.read(1 << 18):
        parts.append(part)
    writer.close()
    return parts


def judged(parts: list[bytes], wanted: int) -> int:
    """How many events are missing, twice or out of order. Each write of the server holds whole events."""
    body = b"".join(parts)
    numbers = [int(one) for one in re.findall(rb"\nid: (\d+)\nevent: ", body)]
    right = sum(number == place for place, number in enumerate(numbers, 1))
    return abs(wanted - right) + (len(numbers) - right) + (b"\nevent: RunEnded\n" not in body[-200_000:])


async def flown(server: Server, runs: int, readers: int, turns: int) -> dict[str, float]:
    """One round."""
    limits = httpx.Limits(max_connections=readers + runs + 10)
    async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, limits=limits, timeout=60) as client:
        before, began = cpu(server.process.pid), time.perf_counter()
        body = {"agent": "bench", "prompt": "look around"}
        started = await asyncio.gather(*[client.post("/api/runs", json=body) for _ in range(runs)])
        names = [answer.json()["run_id"] for answer in started]
        port = int(server.url.rpartition(":")[2])
        got = await asyncio.gather(*[read(port, names[place % runs]) for place in range(readers)])
        while (await client.get("/api/runs?state=running&limit=1")).json()["runs"]:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        seconds = time.perf_counter() - began
        used = cpu(server.process.pid) - before
        ends = [(await client.get(f"/api/runs/{name}")).json() for name in names]
        made = sum(one["turn"] for one in ends)
        events = [one["sequence"] for one in ends]
    lost = sum(judged(parts, events[place % runs]) for place, parts in enumerate(got))
    return {
        "cpu_us_per_turn": used / made * 1e6,
        "turns": made,
        "seconds": seconds,
        "lost": lost,
        "events": sum(events),
    }


async def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=50)
    options.add_argument("--readers", type=int, default=200)
    options.add_argument("--turns", type=int, default=60)
    options.add_argument("--pace", type=float, default=0.1, help="seconds that each tool call takes")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--port", type=int, default=17447)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bench_agent.py").write_text(AGENT.format(turns=given.turns, pace=given.pace))
        server = Server(Path(folder), given.port)
        try:
            await server.ready()
            await flown(server, 5, 5, given.turns)  # warm
            rounds: dict[int, list[dict[str, float]]] = {0: [], given.readers: []}
            for _ in range(given.rounds):
                for readers, kept in rounds.items():
                    kept.append(await flown(server, given.runs, readers, given.turns))
        finally:
            server.stop()
    middle = {readers: statistics.median([one["cpu_us_per_turn"] for one in kept]) for readers, kept in rounds.items()}
    report = {
        "runs": given.runs,
        "readers": given.readers,
        "turns": rounds[0][0]["turns"],
        "events": rounds[0][0]["events"],
        "cpu_us_per_turn": round(middle[0]),
        "cpu_us_per_turn_with_readers": round(middle[given.readers]),
        "factor": round(middle[given.readers] / middle[0], 3),
        "lost": sum(one["lost"] for one in rounds[given.readers]),
        "seconds": [round(one["seconds"], 1) for kept in rounds.values() for one in kept],
    }
    print(json.dumps(report, indent=2))
    bars = [
        (f"{given.readers} readers cost the runs", report["factor"], 1.2, "x"),
        ("events lost, twice or out of order", report["lost"], 0, ""),
    ]
    for name, value, bar, unit in bars:
        print(f"{'PASS' if value <= bar else 'FAIL'}  {name}: {value}{unit} (at most {bar}{unit})")
    return int(any(value > bar for _, value, bar, _ in bars))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
