"""A real server in a process of its own, and readers that come back."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from .deck import STREAM, TOKEN

HERE = Path(__file__).parent


class LiveServer:
    """`glidepath serve` on a port of its own, killed and started again as often as wanted."""

    def __init__(self, folder, *flags, agent="fleet_agents:worker"):
        self.folder = Path(folder)
        self.port = free_port()
        self.flags = flags
        self.agent = agent
        self.process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [sys.executable, "-m", "glidepath", "serve", "--agent", self.agent, "--port", str(self.port)]
        command += ["--no-browser", *self.flags]
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {**os.environ, "PYTHONPATH": path, "GLIDEPATH_SERVE_TOKEN": TOKEN}
        log = (self.folder / "server.log").open("ab")
        self.process = subprocess.Popen(command, cwd=self.folder, env=environ, stdout=log, stderr=log)
        log.close()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return self
            except httpx.TransportError:
                time.sleep(0.05)
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
        raise AssertionError("the server did not come up")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Reader:
    """Reads one run to its end, however often the connection breaks; keeps what it got, in order."""

    def __init__(self, client, run_id):
        self.client = client
        self.run_id = run_id
        self.got = []
        self.connections = 0

    async def read(self):
        while not (self.got and self.got[-1][1] == "RunEnded"):
            headers = {**STREAM, **({"last-event-id": str(self.got[-1][0])} if self.got else {})}
            try:
                self.connections += 1
                async with self.client.stream("GET", f"/api/runs/{self.run_id}/events", headers=headers) as answer:
                    assert answer.status_code == 200, answer.status_code
                    await self._take(answer)
            except httpx.TransportError:
                await asyncio.sleep(0.05)
        return self.got

    async def _take(self, answer):
        fields = {}
        async for line in answer.aiter_lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif not line and "event" in fields:
                self.got.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
                fields = {}
