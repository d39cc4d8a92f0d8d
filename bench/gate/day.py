"""A day in production, rehearsed: thousands of runs of six kinds of agents, and everything that goes wrong in a day.

    python bench/gate/day.py [--requests 200000] [--minutes 120] [--at-once 32] [--store postgres:DSN]

`glidepath gate serve` on one port, with limits for each run and a budget for the day. The provider answers some calls
with 429 and 529, cuts streams and takes its time. In the course of the day the gate is restarted, killed and started
again, its store is restarted (PostgreSQL with `--pg-data`; SQLite: another process holds its lock for five seconds),
the provider's key is rotated, the configuration is read again with other limits and the disk is full for a while (a
small file system of memory; needs root). SIGTERM ends the day early.

At the end: nothing over any limit, as the provider counted; nothing lost: the day's wallet has at least what the
provider served; and memory that does not grow.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parent))

from served import KEY, PROVIDER_KEY, ServedProcess

from glidepath.sessions import PostgresStore, SqliteStore
from glidepath.testing import ScriptedUpstream

LIMIT = 9_000
"""Tokens of one run: the longest of them land, the others do not notice."""
FAULTS = "429:rate=0.01,retry_after=0+529:rate=0.005+cut:rate=0.004+slow:rate=0.002,seconds=1"
NEW_KEY = "sk-rotated-0123456789abcdef"
CONFIG = """
[keys.bench]
key = "env:BENCH_KEY"
max_tokens = {day}
per = "day"

[limits]
max_tokens = {limit}
"""
TOOL = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
RESULT = "What the tool has found, in a sentence or two. " * 6


class Kind:
    """One kind of agent: how it names itself, and its loop around one dialect."""

    def __init__(self, name, dialect, *, headers=lambda run: {}, tools=True, stream=True, path=False):
        self.name, self.dialect, self.headers = name, dialect, headers
        self.has_tools, self.stream, self.in_path = tools, stream, path

    def body(self, history):
        match self.dialect:
            case "messages":
                tools = [{"name": "lookup", "input_schema": TOOL}]
                body = {"model": "claude-sonnet-4-5", "max_tokens": 8000, "messages": history}
            case "responses":
                tools = [{"type": "function", "name": "lookup", "parameters": TOOL, "strict": False}]
                body = {"model": "gpt-4.1", "input": history, "store": False}
            case _:
                tools = [{"type": "function", "function": {"name": "lookup", "parameters": TOOL}}]
                body = {"model": "gpt-4o-mini", "messages": history}
        return {**body, **({"tools": tools} if self.has_tools else {}), **({"stream": True} if self.stream else {})}

    def extend(self, history, said):
        """The next history; None when the model has answered."""
        calls = said["calls"]
        if not calls:
            return None
        match self.dialect:
            case "messages":
                uses = [{"type": "tool_use", "id": one, "name": "lookup", "input": {"query": "x"}} for one in calls]
                results = [{"type": "tool_result", "tool_use_id": one, "content": RESULT} for one in calls]
                return [*history, {"role": "assistant", "content": uses}, {"role": "user", "content": results}]
            case "responses":
                arguments = '{"query":"x"}'
                uses = [
                    {"type": "function_call", "call_id": one, "name": "lookup", "arguments": arguments} for one in calls
                ]
                results = [{"type": "function_call_output", "call_id": one, "output": RESULT} for one in calls]
                return [*history, *uses, *results]
            case _:
                function = {"name": "lookup", "arguments": '{"query":"x"}'}
                uses = [{"id": one, "type": "function", "function": function} for one in calls]
                results = [{"role": "tool", "tool_call_id": one, "content": RESULT} for one in calls]
                return [*history, {"role": "assistant", "content": None, "tool_calls": uses}, *results]


PATHS = {"messages": "/v1/messages", "responses": "/v1/responses", "chat": "/v1/chat/completions"}
KINDS = (
    Kind(
        "claude-code", "messages", headers=lambda run: {"x-claude-code-session-id": run, "user-agent": "claude-cli/2"}
    ),
    Kind("codex", "responses", headers=lambda run: {"session-id": run, "thread-id": run, "user-agent": "codex_exec/1"}),
    Kind("opencode", "chat", headers=lambda run: {"x-session-id": run, "x-session-affinity": run}),
    Kind("langgraph", "chat", headers=lambda _: {"user-agent": "OpenAI/Python"}),
    Kind("anthropic-sdk", "messages", stream=False, path=True),
    Kind("aider", "chat", tools=False, path=True, headers=lambda _: {"user-agent": "aider/0.86"}),
)


def read_reply(text):
    """Ids of the calls in a reply, streamed or not: every dialect of the scripted provider marks them so."""
    found = []
    for mark in (b'"toolu_', b'"call_'):
        for part in text.split(mark)[1:]:
            one = (mark[1:] + part.partition(b'"')[0]).decode()
            if one not in found:
                found.append(one)
    return {"calls": found}


class Day:
    """The clients of one day."""

    def __init__(self, options, up, gate):
        self.options, self.up, self.gate = options, up, gate
        self.asked = 0
        self.ends = Counter()
        self.statuses = Counter()
        self.refusals = Counter()
        self.limit = LIMIT
        self.limits = {}  # of each run, as it was when it began
        self.until = time.monotonic() + 60 * options.minutes
        self.names = iter(range(10**9))

    @property
    def is_over(self):
        return self.asked >= self.options.requests or time.monotonic() >= self.until

    async def work(self, session, number):
        chance = random.Random(number)  # noqa: S311 - which agent works next
        while not self.is_over:
            name = f"day{next(self.names)}"
            self.ends[await self.run(session, chance.choice(KINDS), name)] += 1

    async def run(self, session, kind, name):
        """One agent from its task to its answer; what is refused for the moment is tried again, as agents do."""
        self.limits[name] = self.limit
        history, failed = [{"role": "user", "content": f"#run-{name} Work through the list."}], 0
        line = f"/{name}" if kind.in_path else ""
        headers = {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01", **kind.headers(name)}
        while not self.is_over:
            self.asked += 1
            try:
                async with session.post(
                    f"{self.gate.url}{line}{PATHS[kind.dialect]}", json=kind.body(history), headers=headers
                ) as reply:
                    text, status = await reply.read(), reply.status
            except (aiohttp.ClientError, OSError, TimeoutError):
                status, text = 0, b""
            self.statuses[status] += 1
            if status not in (0, 200, 429, 529):
                self.refusals[f"{status} {text[:200].decode(errors='replace')}"] += 1
            broken = status != 200 or b'"error":{' in text[-2000:].replace(b" ", b"")
            if broken:
                failed += 1
                if failed > 60:
                    return f"gave up at {status}"
                await asyncio.sleep(0.5)
                continue
            history = kind.extend(history, read_reply(text))
            if history is None:
                return "landed" if b"glidepath]" in text or "x-glidepath-landed" in reply.headers else "answered"
            if len(history) > 60:
                return "no end"
        return "cut short"


async def fill_disk(folder, seconds=5.0):
    """No room for a while."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65_536)
    await asyncio.sleep(seconds)
    filler.unlink()


async def restart_store(options, gate):
    """Restart PostgreSQL; with SQLite, hold its lock so that nobody can write."""
    if options.pg_data:
        command = ["pg_ctl", "-D", options.pg_data, "-m", "immediate", "-w", "restart", "-l", f"{options.pg_data}/log"]
        user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        await asyncio.to_thread(subprocess.run, [*user, *command], check=True, stdout=subprocess.DEVNULL)
        return "PostgreSQL restarted"
    if options.store:
        return "not tried: pass --pg-data"

    def hold():
        with contextlib.closing(sqlite3.connect(gate.store, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(5)
            connection.execute("ROLLBACK")

    await asyncio.to_thread(hold)
    return "SQLite locked for 5 s"


async def disturb(day, disk, told):
    """What goes wrong, spread over the day."""
    options, gate, up = day.options, day.gate, day.up

    async def stop_and_start():
        code = await asyncio.to_thread(gate.stop)
        await asyncio.to_thread(gate.start)
        return f"exit code {code}"

    async def kill_and_start():
        await asyncio.to_thread(gate.kill)
        await asyncio.to_thread(gate.start)

    async def rotate():
        up._keys = frozenset((PROVIDER_KEY, NEW_KEY))  # noqa: SLF001 - a provider's own business
        gate.put_key(NEW_KEY)
        await asyncio.sleep(2)
        up._keys = frozenset((NEW_KEY,))  # noqa: SLF001

    async def reload():
        # Those that have begun keep their limit: the next ones may use twice as much, and the ones after that half.
        for day.limit in (2 * LIMIT, LIMIT // 2):
            gate.configure(up.url, CONFIG.format(day=options.requests * 2_000, limit=day.limit))
            await asyncio.to_thread(gate.reload)
            await asyncio.sleep(20)
        day.limit = LIMIT
        gate.configure(up.url, CONFIG.format(day=options.requests * 2_000, limit=LIMIT))
        await asyncio.to_thread(gate.reload)

    async def fill():
        if disk is None:
            return "not tried: needs root"
        return await fill_disk(disk)

    plan = [
        (0.2, "gate restarted", stop_and_start),
        (0.35, "key rotated", rotate),
        (0.45, "configuration read again three times", reload),
        (0.5, "store restarted", lambda: restart_store(options, gate)),
        (0.65, "disk full", fill),
        (0.8, "gate killed", kill_and_start),
    ]
    began = time.monotonic()
    for share, name, do in plan:
        while day.asked < share * options.requests and time.monotonic() - began < share * 60 * options.minutes:
            await asyncio.sleep(0.2)
            if day.is_over:
                return
        what = await do()
        told.append(f"{name} at request {day.asked}" + (f": {what}" if what else ""))
        print(told[-1], flush=True)


async def watch_memory(day, found):
    """MiB of the gate, several times a minute; a restart begins a new row."""
    while True:
        await asyncio.sleep(5)
        with contextlib.suppress(OSError, IndexError):
            _, mib = day.gate.usage()
            found.append((day.gate.process.pid, day.asked, round(mib, 1)))


async def check_kept(store, up):
    """What the provider served, and what the day's wallet and the journals say."""
    kept = PostgresStore(store) if store.startswith("postgres") else SqliteStore(store)
    (wallet,) = await kept.wallets("key:bench")
    served = sum(one.tokens for name, one in up.runs.items() if name.startswith("day"))
    entries = sum(1 for one in await kept.entries("gate:") if "/" not in one.session_id)
    await kept.close()
    return {"wallet": wallet.tokens + wallet.held_tokens, "served": served, "sessions": entries}


def judge_memory(rows):
    """Growth of the longest life of the gate, from its second fifth to its end, in MiB and per 10,000 requests."""
    pid, _ = max(Counter(pid for pid, _, _ in rows).items(), key=lambda pair: pair[1], default=(None, 0))
    mine = [(asked, mib) for one, asked, mib in rows if one == pid]
    if len(mine) < 5:
        return {}
    first, last = mine[len(mine) // 5 : 2 * len(mine) // 5 + 1], mine[-max(2, len(mine) // 5) :]
    before, after = (sum(mib for _, mib in part) / len(part) for part in (first, last))
    requests = last[-1][0] - first[0][0]
    steps = mine[:: max(1, len(mine) // 12)]
    return {
        "MiB before": round(before, 1),
        "MiB after": round(after, 1),
        "requests between": requests,
        "MiB at request": dict(steps),
    }


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--store", help="postgres:DSN; default: SQLite in a small file system of memory")
    parser.add_argument("--pg-data", metavar="FOLDER", help="of the PostgreSQL server to restart")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gate-day-"))
    disk = mount_disk(folder, options)
    up = ScriptedUpstream(f"honest:calls=6+{FAULTS}", keep=0, keys=frozenset((PROVIDER_KEY,)))
    day_budget = options.requests * 2_000
    store = options.store or str((disk or folder) / "store")
    gate = ServedProcess("", store=store, folder=folder)
    told, memory = [], []
    try:
        async with up:
            more = CONFIG.format(day=day_budget, limit=LIMIT)
            gate.configure(up.url, more)
            await asyncio.to_thread(gate.start)
            day = Day(options, up, gate)
            began = time.monotonic()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, day, "until", 0.0)
            timeout = aiohttp.ClientTimeout(total=180)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
                others = [asyncio.ensure_future(one) for one in (disturb(day, disk, told), watch_memory(day, memory))]
                await asyncio.gather(*[day.work(session, number) for number in range(options.at_once)])
                await asyncio.wait(others[:1], timeout=60)
                others[1].cancel()
            seconds = time.monotonic() - began
            await asyncio.to_thread(gate.stop)
            kept = await check_kept(store, up)
            over = {name: one.tokens - day.limits[name] for name, one in up.runs.items() if name in day.limits}
            over = {name: tokens for name, tokens in over.items() if tokens > 0}
            found = {
                "requests": day.asked,
                "seconds": round(seconds),
                "runs": dict(day.ends),
                "statuses": dict(day.statuses),
                "other refusals": dict(day.refusals.most_common(10)),
                "provider": {"calls": up.usage.calls, "faults": up.usage.faults, "cut": up.usage.aborted},
                "runs over their limit": len(over),
                "most over": max(over.values(), default=0),
                "over the day's budget": max(0, kept["served"] - day_budget),
                **kept,
                "lost": max(0, kept["served"] - kept["wallet"]),
                **judge_memory(memory),
                "disturbed by": told,
                "errors in the gate": sum(
                    "Traceback" in line for line in (folder / "gate.log").read_text().splitlines()
                ),
            }
            print(json.dumps(found, indent=1))
    finally:
        gate.stop()
        if disk is not None:
            subprocess.run(["umount", str(disk)], check=False)  # noqa: ASYNC221 - at the end
    bad = over or found["lost"] or found["over the day's budget"] or any("gave up" in one for one in found["runs"])
    return 1 if bad else 0


def mount_disk(folder, options):
    """A small file system, so that it can be full; None where this user may not."""
    if options.store or os.geteuid() != 0 or shutil.which("mount") is None:
        return None
    disk = folder / "disk"
    disk.mkdir()
    size = max(64, options.requests // 50)  # MB: what is kept of a request is 8 kB
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(disk)], check=False)
    return disk if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
