"""One owner at a time; one that was replaced cannot write; a stop reaches a run in another process."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glidepath import Agent, AgentState, Limits, LoopOutcome, tool
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore, is_alive, read_journal, stop, this_owner
from glidepath.testing import ScriptedModel, call, hang, no_leftovers, say, virtual

from .flights import STEPS, check_flight, effects
from .postgres import fresh_schema

RACES = 20
MANY_RACES = 200


def leg_of(place, address, name, **more):
    return {
        "store": address,
        "session": name,
        "ledger": str(place / f"{name}.effects"),
        "report": str(place / f"{name}.report"),
        "width": 2,
        **more,
    }


@pytest.mark.process
def test_a_short_lease_lasts_for_a_long_call(tmp_path):
    @tool
    async def slow() -> str:
        await asyncio.sleep(2)  # real time: the server's clock is real
        return "done"

    async def look(store, other):
        agent = Agent(
            model=ScriptedModel([call("slow"), say("ok")]), tools=[slow], store=store, limits=Limits(max_iterations=3)
        )
        flying = asyncio.create_task(agent.run("go", session="s"))
        await asyncio.sleep(1.7)
        with pytest.raises(StoreError) as refused:
            await other.claim("s", this_owner())
        return refused.value.kind, (await flying).outcome

    async def go():
        address, path = fresh_schema(), tmp_path / "short.db"
        pairs = [
            (PostgresStore(address, lease=1.0), PostgresStore(address)),
            (SqliteStore(path, lease=1.0), SqliteStore(path)),
        ]
        return await asyncio.gather(*[look(*pair) for pair in pairs])

    assert asyncio.run(go()) == [("busy", LoopOutcome.DONE)] * 2


def race(server, place, address, number, racers):
    """Kill a run, then let several processes resume it at the same moment: one owns it, the others are told so."""
    leg = leg_of(place, address, f"race {number}")
    server.fly({**leg, "die_at": 20 + number % 40, "when": "before"})
    start = time.time() + 0.05
    found = server.fly(*[{**leg, "start_at": start}] * racers)
    reports = [report for _, report in found]
    assert all("error" not in report for report in reports), reports
    kinds = sorted(report["outcome"] for report in reports)
    assert kinds.count("DONE") >= 1, reports
    for report in reports:
        if report["outcome"] == "DONE":  # the owner, or one that came when it was done and got its result
            check_flight(number, leg, report, 0)
        else:
            assert report["cause"][0] == "store", report
    finished = [report for report in reports if report["outcome"] == "DONE"]
    assert len({str(sorted(report.items())) for report in finished}) == 1, "two outcomes"
    sent = [n for n, _ in effects(leg["ledger"])["send"]]
    assert len(sent) == len(set(sent)) <= STEPS * 2


@pytest.mark.process
@pytest.mark.parametrize("racers", [2, 5, 8])
def test_g13_of_processes_that_resume_at_once_one_owns_the_run(server, tmp_path, racers):
    for number in range(RACES // 4):
        race(server, tmp_path, str(tmp_path / "s.db"), number, racers)


@pytest.mark.process
@pytest.mark.parametrize("racers", [2, 5])
def test_g13_races_on_postgresql(server, tmp_path, racers):
    address = fresh_schema()
    for number in range(RACES // 4):
        race(server, tmp_path, address, number, racers)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("racers", [2, 5])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_g13_many_races(server, tmp_path, racers, store):
    addresses = {"sqlite": str(tmp_path / "s.db")}
    address = addresses.get(store) or fresh_schema()
    for number in range(MANY_RACES // 4):
        race(server, tmp_path, address, number, racers)


@tool
async def act() -> str:
    return "done"


@virtual
async def test_a_stalled_owner_that_wakes_up_cannot_write():
    store = MemoryStore()

    @tool
    async def stall() -> str:
        store._clock = lambda: time.time() + 60  # the process slept for a minute
        thief = await store.claim("s", "another")
        await store.release(thief)
        return "awake again"

    agent = Agent(model=ScriptedModel([call("stall")]), tools=[stall], store=store, limits=Limits(max_iterations=5))
    result = await agent.run("go", session="s")
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "fenced")
    folded = (await read_journal(store, "s")).folded
    assert folded.result is None
    assert list(folded.intents) == ["call_1"]  # what the owner before it had intended is still known


@virtual
async def test_an_owner_that_lost_its_lease_stops_by_itself():
    store = MemoryStore(lease=5)
    agent = Agent(model=ScriptedModel([hang()]), store=store, limits=Limits(timeout=3600))

    async def steal():
        await asyncio.sleep(3)
        store._clock = lambda: time.time() + 60
        return await store.claim("s", "another")

    thief = asyncio.create_task(steal())
    async with no_leftovers():
        result = await agent.run("go", session="s")
    assert result.cause.source == "store"
    assert result.outcome is LoopOutcome.FAILED
    assert result.elapsed < 10
    await thief


@virtual
async def test_a_lease_is_renewed_while_the_run_waits():
    now = [1000.0]
    store = MemoryStore(lease=10, clock=lambda: now[0] + asyncio.get_running_loop().time())

    @tool
    async def patience() -> str:
        for _ in range(30):
            await asyncio.sleep(2)
            assert (await store.load("s"))[0].expires > store._clock()
        return "a minute later"

    agent = Agent(
        model=ScriptedModel([call("patience"), say("done")]),
        tools=[patience],
        store=store,
        limits=Limits(timeout=3600),
    )
    assert (await agent.run("go", session="s")).outcome is LoopOutcome.DONE


@virtual
async def test_a_stop_in_the_store_ends_the_run_within_a_second():
    store = MemoryStore()
    agent = Agent(model=ScriptedModel([hang()]), store=store, limits=Limits(timeout=3600))

    async def throw():
        await asyncio.sleep(10)
        await stop(store, "s", "enough is enough")

    thrower = asyncio.create_task(throw())
    result = await agent.run("go", session="s")
    await thrower
    assert (result.state, result.outcome) == (AgentState.CANCELLED, LoopOutcome.CANCELLED)
    assert (result.cause.source, result.cause.reason) == ("KillSwitchConstraint", "enough is enough")
    assert 10 <= result.elapsed <= 11
    agent = Agent(model=ScriptedModel([say("done")]), store=store, limits=Limits(timeout=3600))
    assert (await agent.resume("s")).outcome is LoopOutcome.DONE  # the stop was for the run before


@pytest.mark.process
def test_a_stop_reaches_another_process(tmp_path):
    path = tmp_path / "s.db"
    code = f"""
import asyncio
from glidepath import Agent, Limits
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, hang
agent = Agent(model=ScriptedModel([hang()]), store=SqliteStore({str(path)!r}), limits=Limits(timeout=60))
result = agent.run_sync("go", session="s")
print(result.outcome.name, result.cause.reason, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    store = SqliteStore(path)
    try:
        until = time.monotonic() + 30
        while not asyncio.run(begun(store)) and time.monotonic() < until:
            time.sleep(0.05)
        began = time.monotonic()
        asyncio.run(stop(store, "s", "from outside"))
        out, _ = process.communicate(timeout=20)
        assert out.strip() == "CANCELLED from outside"
        assert time.monotonic() - began < 3  # a second, and what a busy machine needs to leave Python
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        asyncio.run(store.close())


async def begun(store) -> bool:
    try:
        entries = await store.entries()
    except StoreError:  # not even the file is there
        return False
    return bool(entries and entries[0].head >= 2)


@pytest.mark.process
def test_a_dead_process_is_known_to_be_dead():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    host, _, _, nonce = this_owner().split("|")
    birth = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    owner = "|".join((host, str(child.pid), birth, nonce))
    assert is_alive(owner)
    child.send_signal(signal.SIGKILL)
    until = time.monotonic() + 10
    while is_alive(owner) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_alive(owner)  # dead, and not even buried
    child.wait()
    assert not is_alive(owner)
    assert not is_alive("|".join((host, str(os.getpid()), "1", nonce)))  # the number of a living process, born later
    assert is_alive(f"elsewhere|{child.pid}|{birth}|{nonce}")  # nobody here can know
    assert is_alive("garbage")
    assert is_alive(None)


def test_a_hundred_durable_agents_share_one_file(tmp_path):
    store = SqliteStore(tmp_path / "s.db")

    async def one(number: int):
        agent = Agent(
            model=ScriptedModel([call("act"), call("act"), call("act"), say("done")]),
            tools=[act],
            store=store,
            limits=Limits(max_iterations=9),
        )
        return await agent.run("go", session=f"s{number}")

    async def all_of_them():
        results = await asyncio.gather(*[one(number) for number in range(100)])
        for number in range(100):
            await read_journal(store, f"s{number}")
        await store.close()
        return results

    results = asyncio.run(all_of_them())
    assert [result.cause for result in results if result.outcome is LoopOutcome.FAILED] == []
    assert len(results) == 100
