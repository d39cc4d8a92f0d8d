"""Runs that are killed. A fork server starts each leg of a run in a process of its own, which dies where it is told.

The task has fifty steps. Every tool call leaves a line in a ledger of effects outside the journal: the ledger is the
truth about what really happened.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from glidepath import Agent, ExecutionMode, Limits, tool
from glidepath.errors import ConfigurationError
from glidepath.messages import AssistantMessage, StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import PostgresStore, SqliteStore

STEPS = 50
PER_CALL = Usage(100, 10)
SPARE = 20  # turns: a model call that was in flight when the process died counts as one, and near the limit a run lands
LIMITS = Limits(max_iterations=STEPS + SPARE, max_tokens=10_000_000, timeout=3600)


class Pilot:
    """A model that knows from the transcript alone what comes next: `width` calls for each of fifty steps."""

    name = "pilot"
    max_output_tokens = 1000

    def __init__(self, width: int, steps: int = STEPS, programs: str = "") -> None:
        self.width = width
        self.steps = steps
        self.programs = programs

    async def stream(self, request):
        step = sum(type(message) is AssistantMessage for message in request.messages)
        await asyncio.sleep(0)
        if step >= self.steps:
            yield TextDelta("all steps are done")
            yield StreamEnd("end_turn", PER_CALL)
            return
        if self.programs:
            numbers = range(step * self.width, (step + 1) * self.width)
            yield ToolCallDelta(0, f"c{step}", "run_code", json.dumps({"code": program(numbers, self.programs)}))
            yield StreamEnd("tool_use", PER_CALL)
            return
        for place in range(self.width):
            number = step * self.width + place
            name = ("send", "send", "put")[number % 3]
            yield ToolCallDelta(place, f"c{number}", name, json.dumps({"number": number}))
        yield StreamEnd("tool_use", PER_CALL)


TRIED = """
async def tried(one):
    try:
        return await one
    except RuntimeError as error:
        return str(error)
"""


def program(numbers, style: str) -> str:
    """A program that makes a call for each number, one after the other or all at once, and says what came of each."""
    names = [(number, ("send", "send", "put")[number % 3]) for number in numbers]
    if style == "together":
        asked = ", ".join(f"tried({name}(number={number}))" for number, name in names)
        return f"import asyncio, random\n{TRIED}chance = random.random()\n[chance, await asyncio.gather({asked})]"
    made = "".join(
        f"try:\n    found.append({name}(number={number}))\nexcept RuntimeError as why:\n    found.append(str(why))\n"
        for number, name in names
    )
    return f"import random\nchance = random.random()\nfound = []\n{made}[chance, found]"


def make_tools(ledger: str):
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def effect(kind: str, number: int, key: str) -> None:
        os.write(handle, f"{kind} {number} {key}\n".encode())

    from glidepath import ToolContext

    async def send(number: int, context: ToolContext) -> str:
        """Something that must not happen twice."""
        await asyncio.sleep(0)
        effect("send", number, context.idempotency_key)
        await asyncio.sleep(0)
        return f"sent {number}"

    async def put(number: int, context: ToolContext) -> str:
        """Something that may happen twice."""
        effect("put", number, context.idempotency_key)
        await asyncio.sleep(0)
        return f"put {number}"

    return [tool(send), tool(put, idempotent=True)]


def make_store(address: str):
    if address.startswith("postgresql:"):
        return PostgresStore(address, lease=5)
    return SqliteStore(address)


class Mortal:
    """A store that kills its process before or after its n-th write."""

    def __init__(self, store, number: int, when: str) -> None:
        self.store = store
        self.left = number
        self.when = when

    def __getattr__(self, name):
        return getattr(self.store, name)

    def append(self, *args, **keywords):
        self.left -= 1
        if self.left == 0 and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        later = self.store.append(*args, **keywords)
        if later is not None:
            return self._later(later)
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return None

    async def _later(self, later):
        await later
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async def claim(self, *args, **keywords):
        return await self.store.claim(*args, **keywords)

    async def beat(self, *args, **keywords):
        return await self.store.beat(*args, **keywords)

    async def release(self, lease):
        await self.store.release(lease)

    async def load(self, session_id):
        return await self.store.load(session_id)

    async def entries(self, prefix=""):
        return await self.store.entries(prefix)

    async def flag(self, session_id, reason):
        await self.store.flag(session_id, reason)

    async def cut(self, lease, head, hash_):
        await self.store.cut(lease, head, hash_)

    async def remove(self, session_id):
        await self.store.remove(session_id)

    async def close(self):
        await self.store.close()


def programs_for(leg: dict) -> list:
    if not leg.get("programs"):
        return []
    from glidepath.code import CodeMode

    return [CodeMode()]


def make_agent(leg: dict, store=None) -> Agent:
    return Agent(
        model=Pilot(leg["width"], leg.get("steps", STEPS), leg.get("programs", "")),
        tools=[*make_tools(leg["ledger"]), *programs_for(leg)],
        limits=LIMITS,
        store=store or make_store(leg["store"]),
        default_execution_mode=ExecutionMode.SEQUENTIAL if leg.get("sequential") else ExecutionMode.PARALLEL,
        durability=leg.get("durability", "sync"),
    )


async def fly(leg: dict) -> dict:
    """One leg: start the run, or go on with it."""
    store = make_store(leg["store"])
    if leg.get("die_at"):
        store = Mortal(store, leg["die_at"], leg["when"])
    if leg.get("life") == "background":
        from background_life import fly as fly_in_background

        return await fly_in_background(leg, store)
    if leg.get("life") == "partial":
        from partial_life import fly as fly_in_parts

        return await fly_in_parts(leg, store)
    agent = make_agent(leg, store)
    try:
        result = await agent.resume(leg["session"])
    except ConfigurationError:
        result = await agent.run("Do all the steps.", session=leg["session"])
    await store.close()
    calls = [call for message in result.messages if type(message) is AssistantMessage for call in message.tool_calls]
    results = [message for message in result.messages if message.role == "tool_result"]
    return {
        "outcome": result.outcome.name,
        "cause": None if result.cause is None else [result.cause.source, result.cause.reason],
        "text": result.text,
        "first": result.messages[0].text if result.messages else "",
        "calls": [call.id for call in calls],
        "results": [[message.call_id, message.kind, message.text] for message in results],
        "unknown": [call.id for call in result.unknown_effects],
        "tokens": result.usage.total,
        "iterations": result.iterations,
        "tool_calls": result.tool_calls,
        "elapsed": result.elapsed,
    }


# --- the fork server ----------------------------------------------------------------------------------------------


def serve() -> None:
    """Read legs from standard input, one JSON line each; fork for each, and say how it ended."""
    import sqlite3

    import asyncpg

    assert sqlite3, asyncpg  # imported before the fork
    for line in sys.stdin:
        legs = json.loads(line)
        children = {}
        for place, leg in enumerate(legs):
            pid = os.fork()
            if not pid:
                live(leg, place)
            children[pid] = place
        statuses = [None] * len(legs)
        for pid, place in children.items():
            _, status = os.waitpid(pid, 0)
            statuses[place] = os.waitstatus_to_exitcode(status)
        sys.stdout.write(json.dumps(statuses) + "\n")
        sys.stdout.flush()


def live(leg: dict, place: int) -> None:
    """In the child: fly, write down what came of it, and leave without any goodbye."""
    try:
        if leg.get("die_after"):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # kills at once, as SIGKILL would
            signal.setitimer(signal.ITIMER_REAL, leg["die_after"])
        if leg.get("start_at"):
            time.sleep(max(0.0, leg["start_at"] - time.time()))
        report = asyncio.run(fly(leg))
        Path(f"{leg['report']}.{place}").write_text(json.dumps(report))
        os._exit(0)
    except BaseException as error:
        Path(f"{leg['report']}.{place}").write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        os._exit(3)


class Server:
    """The fork server, as a test sees it."""

    def __init__(self) -> None:
        # The code under test, wherever this process has it from.
        path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "default"}
        for name in list(environment):
            if name.startswith("COV"):
                del environment[name]
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def fly(self, *legs: dict) -> list[tuple[int, dict | None]]:
        """Fly these legs at the same time; the exit status and the report of each."""
        for place, leg in enumerate(legs):
            Path(f"{leg['report']}.{place}").unlink(missing_ok=True)
        self.process.stdin.write(json.dumps(legs) + "\n")
        self.process.stdin.flush()
        statuses = json.loads(self.process.stdout.readline())
        found = []
        for place, (leg, status) in enumerate(zip(legs, statuses, strict=True)):
            path = Path(f"{leg['report']}.{place}")
            told = status >= 0 and path.exists()  # else it may have died while it wrote its report
            found.append((status, json.loads(path.read_text()) if told else None))
        return found

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


# --- one campaign flight ------------------------------------------------------------------------------------------


def effects(ledger: str) -> dict[str, list[tuple[str, int, str]]]:
    found: dict[str, list] = {"send": [], "put": []}
    if Path(ledger).exists():
        for line in Path(ledger).read_text().splitlines():
            kind, number, key = line.split()
            found[kind].append((int(number), key))
    return found


def campaign_flight(server: Server, seed: int, address: str, place: Path) -> dict:
    """Fly one run through several deaths, and check what it promises. Returns what happened, for the totals."""
    chance = random.Random(seed)
    width = chance.choice((1, 1, 3, 4))
    leg = {
        "store": address,
        "session": f"flight {seed}",
        "ledger": str(place / f"{seed}.effects"),
        "report": str(place / f"{seed}.report"),
        "width": width,
        "sequential": chance.random() < 0.3,
        "durability": chance.choice(("sync", "sync", "sync", "full")),
    }
    deaths, tokens, elapsed = 0, 0, 0.0
    for _ in range(chance.randint(2, 6)):
        way = chance.random()
        if way < 0.7:
            fatal = {"die_at": chance.randint(1, 60), "when": chance.choice(("before", "after"))}
        else:
            fatal = {"die_after": chance.uniform(0.001, 0.12)}
        ((status, report),) = server.fly({**leg, **fatal})
        assert status in (0, -signal.SIGKILL, -signal.SIGALRM), (seed, status, report)
        deaths += status != 0
        tokens, elapsed = check_meters(leg, tokens, elapsed)
        if status == 0:
            break
    ((status, report),) = server.fly(leg)
    assert status == 0, (seed, status, report)
    check_flight(seed, leg, report, tokens)
    return {"deaths": deaths, "unknown": len(report["unknown"])}


def check_meters(leg: dict, tokens: int, elapsed: float) -> tuple[int, float]:
    """What was spent and how long it took never goes back."""
    from glidepath.errors import StoreError
    from glidepath.sessions import read_journal

    async def look():
        store = make_store(leg["store"])
        try:
            return (await read_journal(store, leg["session"])).folded.snapshot
        except StoreError as error:
            if error.kind != "missing":
                raise
            return None
        finally:
            await store.close()

    snapshot = asyncio.run(look())
    if snapshot is None:
        return tokens, elapsed
    assert snapshot.tokens >= tokens
    assert snapshot.elapsed >= elapsed
    assert snapshot.tokens >= snapshot.iterations * PER_CALL.total
    return snapshot.tokens, snapshot.elapsed


def check_flight(seed: int, leg: dict, report: dict, tokens: int) -> None:
    """Nothing lost, nothing twice, every unknown said."""
    what = (seed, leg, report["outcome"], report["cause"])
    assert report["outcome"] == "DONE", what
    assert report["text"] == "all steps are done", what
    assert report["first"] == "Do all the steps.", what
    steps = leg.get("steps", STEPS)
    wanted = [f"c{number}" for number in range(steps * leg["width"])]
    assert report["calls"] == wanted, what
    assert [call_id for call_id, _, _ in report["results"]] == wanted, what
    done = effects(leg["ledger"])
    sent = [number for number, _ in done["send"]]
    assert len(sent) == len(set(sent)), ("a message was sent twice", what)
    keys = dict(done["put"])
    assert all(keys[number] == key for number, key in done["put"]), ("another key", what)
    unknown = set(report["unknown"])
    for call_id, kind, text in report["results"]:
        number = int(call_id[1:])
        if kind == "unknown_effect":
            assert call_id in unknown, ("an unknown effect was not reported", what)
        elif number % 3 == 2:
            assert text == f"put {number}", what
            assert number in keys, what
        else:
            assert text == f"sent {number}", (call_id, kind, text, what)
            assert number in sent, ("a result without its effect", what)
    assert len(unknown) == sum(kind == "unknown_effect" for _, kind, _ in report["results"]), what
    assert report["iterations"] == steps + 1, what
    assert report["tokens"] >= max(tokens, (steps + 1) * PER_CALL.total), ("the budget was reset", what)


def program_flight(server: Server, seed: int, place: Path) -> dict:
    """Fly one run of programs through several deaths, and check what it promises."""
    chance = random.Random(seed)
    leg = {
        "store": str(place / "sessions.db"),
        "session": f"programs {seed}",
        "ledger": str(place / f"{seed}.effects"),
        "report": str(place / f"{seed}.report"),
        "width": chance.choice((3, 5)),
        "steps": 4,
        "programs": chance.choice(("one by one", "together")),
    }
    deaths = 0
    for _ in range(chance.randint(2, 4)):
        if chance.random() < 0.7:
            fatal = {"die_at": chance.randint(1, 25), "when": chance.choice(("before", "after"))}
        else:
            fatal = {"die_after": chance.uniform(0.002, 0.08)}
        ((status, report),) = server.fly({**leg, **fatal})
        assert status in (0, -signal.SIGKILL, -signal.SIGALRM), (seed, status, report)
        deaths += status != 0
        if status == 0:
            break
    ((status, report),) = server.fly(leg)
    assert status == 0, (seed, status, report)
    check_programs(seed, leg, report)
    return {"deaths": deaths, "unknown": len(report["unknown"])}


def check_programs(seed: int, leg: dict, report: dict) -> None:
    """Every program ended, no call in it was made twice, and every one that nobody knows is listed."""
    what = (seed, leg, report)
    assert report["outcome"] == "DONE", what
    assert report["calls"] == [f"c{step}" for step in range(leg["steps"])], what
    done = effects(leg["ledger"])
    sent = [number for number, _ in done["send"]]
    assert len(sent) == len(set(sent)), ("a message was sent twice", what)
    keys = dict(done["put"])
    assert all(keys[number] == key for number, key in done["put"]), ("another key", what)
    unknown = set(report["unknown"])
    for step, (call_id, kind, text) in enumerate(report["results"]):
        assert (call_id, kind) == (f"c{step}", None), what
        _, found = json.loads(text)
        assert len(found) == leg["width"], what
        for place, said in enumerate(found):
            number = step * leg["width"] + place
            if said in (f"sent {number}", f"put {number}"):
                assert number in (*sent, *keys), ("a result without its effect", what)
            else:
                assert f"{call_id}.{place + 1}" in unknown, ("an unknown effect was not reported", what)


def short_leg(place: Path, name: str) -> dict:
    """A run of three steps with two calls each."""
    return {
        "store": str(place / "sessions.db"),
        "session": name,
        "ledger": str(place / f"{name}.effects"),
        "report": str(place / f"{name}.report"),
        "width": 2,
        "steps": 3,
    }


if __name__ == "__main__":
    serve()
