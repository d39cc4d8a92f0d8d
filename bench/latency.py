"""How long a piece of a reply takes from the model to a reader, and what an event costs the server.

    python bench/latency.py [--runs 50] [--readers 50] [--seconds 10]

Every run writes fifty pieces a second; the server is a process of its own, the readers are in this one and take the
time at which an event was made from the event itself. CPU is that of the server's process. On a machine that does other
work, compare two versions turn about.
"""

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
PORT = 17449
BAR = 60  # milliseconds in the middle, with fifty readers
AGENT = """
from glidepath import Agent, Limits
from glidepath.testing import ScriptedModel, say

talk = say("word " * 100_000, delay=1 / 50)
model = ScriptedModel(name="bench", record=False, usage="missing").forever(lambda _: talk)
agent = Agent(model=model, limits=Limits(max_iterations=5, timeout=3600), agent_name="bench")
"""
TIME = re.compile(rb'"time":([0-9.]+)')
COUNT = re.compile(r"\nglidepath_serve_events_total (\d\S*)")


def cpu(pid):
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def read(run_id, taken):
    """Read a run and keep how old each event was when it came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT, limit=1 << 20)
    head = f"GET /api/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    writer.write(f"{head}Accept: text/event-stream\r\n\r\n".encode())
    while part := await reader.read(1 << 18):
        now = time.time()
        taken += [now - float(found) for found in TIME.findall(part)]


async def measure(pid, given):
    """Start the runs and their readers, and count for a while."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", headers=HEADERS, timeout=30) as client:
        for _ in range(600):
            try:
                if (await client.get("/readyz")).status_code == 200:
                    break
            except httpx.TransportError:
                await asyncio.sleep(0.05)
        body = {"agent": "bench", "prompt": "talk"}
        ids = [(await client.post("/api/runs", json=body)).json()["run_id"] for _ in range(given.runs)]
        taken = []
        tasks = [asyncio.create_task(read(ids[place % given.runs], taken)) for place in range(given.readers)]
        await asyncio.sleep(2)  # what was there before they came is not what is measured
        taken.clear()

        async def count():
            return float(COUNT.search((await client.get("/metrics")).text).group(1))

        before, used = await count(), cpu(pid)
        await asyncio.sleep(given.seconds)
        found, events, used = sorted(taken), await count() - before, cpu(pid) - used
        for task in tasks:
            task.cancel()
    return {
        "readers": given.readers,
        "events_per_second": round(events / given.seconds),
        "cpu_us_per_event": round(used / events * 1e6, 1),
        "p50_ms": round(statistics.median(found) * 1000) if found else None,
        "p99_ms": round(found[int(len(found) * 0.99)] * 1000) if found else None,
    }


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=50)
    options.add_argument("--readers", type=int, default=50)
    options.add_argument("--seconds", type=float, default=10)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_agent.py").write_text(AGENT)
        command = [sys.executable, "-m", "glidepath", "serve", "--agent", "bench_agent:agent", "--port", str(PORT)]
        command += ["--store", "sqlite:store.db", "--no-browser", "--max-runs", "1000"]
        environ = {**os.environ, "GLIDEPATH_SERVE_TOKEN": TOKEN}
        server = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.DEVNULL)
        try:
            report = asyncio.run(measure(server.pid, given))
        finally:
            server.terminate()
            server.wait(30)
    print(json.dumps(report, indent=2))
    if given.readers > 50 or report["p50_ms"] is None:
        return 0
    print(f"{'PASS' if report['p50_ms'] < BAR else 'FAIL'}  in the middle: {report['p50_ms']} ms (below {BAR} ms)")
    return int(report["p50_ms"] >= BAR)


if __name__ == "__main__":
    sys.exit(main())
