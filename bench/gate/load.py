"""What a call costs the gate: CPU of its process, 8 at once, beside the bare upstream and, with --litellm, LiteLLM.

    python bench/gate/load.py [--governor plain|real] [--requests 4000] [--litellm PYTHON] [--loop uvloop]

Two kinds of streams: `burst` writes deltas as fast as a loop can, as the prototype's and LiteLLM's figures were taken;
`paced` waits 3 ms between two, so that none is read together with another. All figures of one call are one run.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).parent
AT_ONCE = 8
LITELLM_KEY = "sk-0123456789abcdef0123456789abcdef"


class Target:
    """A process with an address, whose CPU is read."""

    dialect = "messages"

    def __init__(self, name, url, key, pid, port=None):
        self.name, self.key, self.pid, self.port = name, key, pid, port
        self.parts = urlsplit(url)

    async def used(self):
        """CPU seconds and bytes of memory."""
        if self.port is None:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            ticks = os.sysconf("SC_CLK_TCK")
            return (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"\n")
        cpu, memory = (await reader.readline()).split()
        writer.close()
        return float(cpu), int(memory)

    def request(self, size, *, stream=False, deltas=4, pause=0.0):
        is_chat = self.dialect == "chat"
        note = f"deltas={deltas};pause={pause};"
        body = json.dumps(
            {
                "model": "gpt-4o" if is_chat else "claude-sonnet-4-5",
                "max_tokens": 1024,
                **({"stream": True} if stream else {}),
                "messages": [{"role": "user", "content": note + "word " * ((size - 150) // 5)}],
            },
            separators=(",", ":"),
        ).encode()
        path = "/v1/chat/completions" if is_chat else "/v1/messages"
        key, bearer = ("authorization", "Bearer ") if is_chat else ("x-api-key", "")
        head = (
            f"POST {self.parts.path}{path} HTTP/1.1\r\nhost: {self.parts.netloc}\r\n{key}: {bearer}{self.key}\r\n"
            "anthropic-version: 2023-06-01\r\nanthropic-beta: a-2025-01-01,b-2026-01-01\r\nuser-agent: load/1\r\n"
            "accept: application/json\r\nx-stainless-lang: js\r\nx-stainless-os: Linux\r\nx-stainless-retry: 0\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def one(reader, writer, request, took):
    began = time.perf_counter()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise SystemExit(f"refused: {head.decode()} {(await reader.read(2000)).decode()}")
    if b"content-length:" in head:
        await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
    else:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    took.append(time.perf_counter() - began)


async def send(target, request, count, at_once=AT_ONCE, every=0.0):
    """`count` requests; with `every`, one begins each so many seconds, whatever the others do."""
    took = []

    async def work(times):
        reader, writer = await asyncio.open_connection(target.parts.hostname, target.parts.port, limit=1 << 22)
        for _ in range(times):
            await one(reader, writer, request, took)
            if every:
                await asyncio.sleep(every * at_once)
        writer.close()

    await asyncio.gather(*[work(count // at_once) for _ in range(at_once)])
    return took


async def measure(target, count):
    """All figures of one target."""
    small, large = target.request(2_000), target.request(80_000)
    await send(target, small, AT_ONCE * 20)
    await send(target, large, AT_ONCE * 4)
    found = {"name": target.name}
    for label, request, share in (("2kB", small, count), ("80kB", large, count // 2)):
        before, began = (await target.used())[0], time.perf_counter()
        times = share - share % AT_ONCE
        await send(target, request, times)
        found[f"ms/request {label}"] = round(((await target.used())[0] - before) / times * 1e3, 4)
        found[f"requests/s {label}"] = round(times / (time.perf_counter() - began))
    for label, deltas, pause, share in (("burst", 400, 0.0, count // 40), ("paced", 200, 0.003, 16)):
        times = max(AT_ONCE, share - share % AT_ONCE)
        short = target.request(2_000, stream=True, deltas=1, pause=pause)
        long = target.request(2_000, stream=True, deltas=deltas + 1, pause=pause)
        cpu = []
        for request in (short, long):
            before = (await target.used())[0]
            await send(target, request, times)
            cpu.append((await target.used())[0] - before)
        found[f"us/delta {label}"] = round((cpu[1] - cpu[0]) / times / deltas * 1e6, 2)
    took = sorted(await send(target, small, 400, at_once=1, every=0.02))
    found["p50 ms at 50/s"], found["p99 ms at 50/s"] = (round(took[int(len(took) * q)] * 1e3, 2) for q in (0.5, 0.99))
    found["MiB"] = round((await target.used())[1] / 2**20, 1)
    return found


def start(*command, env=None):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    return process, process.stdout.readline().split()


def start_litellm(python, url, folder):
    """LiteLLM's proxy with a key without a budget, before the same upstream."""
    config = folder / "config.yaml"
    config.write_text(
        "model_list:\n- model_name: gpt-4o\n  litellm_params:\n    model: openai/gpt-4o\n"
        f"    api_base: {url}/v1\n    api_key: sk-x\n"
        "- model_name: claude-sonnet-4-5\n  litellm_params:\n    model: anthropic/claude-sonnet-4-5\n"
        f"    api_base: {url}\n    api_key: sk-x\ngeneral_settings:\n  master_key: {LITELLM_KEY}\n"
    )
    port = 24_713
    command = [
        str(Path(python).parent / "litellm"),
        "--config",
        str(config),
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
    ]
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    plain["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # without it the price list is fetched
    with (folder / "litellm.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=plain)
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit((folder / "litellm.log").read_text()[-2000:])
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, Target("litellm", f"http://127.0.0.1:{port}", LITELLM_KEY, process.pid)
        except OSError:
            time.sleep(0.2)
    raise SystemExit("litellm did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--governor", choices=("plain", "real"), default="real")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--dialect", choices=("messages", "chat"), default="messages")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--litellm", metavar="PYTHON", help="an interpreter with litellm[proxy] installed")
    parser.add_argument("--out", metavar="FILE")
    options = parser.parse_args()
    Target.dialect = options.dialect
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            upstream, [port] = start(sys.executable, str(HERE / "upstream.py"))
            processes.append(upstream)
            url = f"http://127.0.0.1:{port}"
            gate, [address, key, told] = start(
                sys.executable, str(HERE / "serve_gate.py"), url, options.governor, options.loop
            )
            processes.append(gate)
            targets = [(Target("direct", url, "x", upstream.pid), 1.0)]
            targets.append((Target(f"gate ({options.governor}, {options.loop})", address, key, gate.pid, told), 1.0))
            if options.litellm:
                process, target = start_litellm(options.litellm, url, Path(folder))
                processes.append(process)
                targets.append((target, 0.1))
            found = []
            for target, share in targets:
                found.append(asyncio.run(measure(target, int(options.requests * share))))
                print(json.dumps(found[-1]), flush=True)
        finally:
            for process in processes:
                process.terminate()
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
