"""G13: a child that waits for a person, its parents, and the decision survive a death at any commit, and kill -9."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glidepath import Agent, Limits, LoopOutcome, approve, tool
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, calls, say, transcript_errors

from .frail import Frail
from .postgres import fresh_schema

LIMITS = Limits(max_iterations=60, max_tokens=500_000)


def once(asks, answer):
    """A model that asks first and answers once the results are there, in whatever process."""
    return ScriptedModel().forever(
        lambda request: say(answer) if any(m.role == "tool_result" for m in request.messages) else asks
    )


def family(store, effects):
    """A boss with two clerks, one of them below a head clerk; every letter needs a person. `effects` hears of each."""

    @tool(requires_approval=True)
    async def send(to: str) -> str:
        """Send a letter."""
        effects(to)
        return f"sent to {to}"

    def clerk(name, to):
        return Agent(model=once(call("send", to=to), f"{name} sent it"), tools=[send], limits=LIMITS, agent_name=name)

    ann, bob = clerk("ann", "Ann"), clerk("bob", "Bob")
    head = Agent(
        model=once(call("bob", task="send"), "head is done"),
        tools=[bob.as_tool("bob", "Bob.")],
        limits=LIMITS,
        agent_name="head",
    )
    asks = calls(call("ann", task="send"), call("head", task="send"))
    tools = [ann.as_tool("ann", "Ann."), head.as_tool("head", "Head.")]
    return Agent(model=once(asks, "all done"), tools=tools, limits=LIMITS, store=store, agent_name="boss")


async def undisturbed():
    agent = family(None, [].append)
    paused = await agent.run("go")
    return await agent.resume(paused, decisions={one.call.id: approve() for one in paused.pending})


@pytest.mark.parametrize("commits", range(24))
def test_g13_a_death_at_any_commit_before_the_pause(commits):
    async def fly():
        store, sent = Frail(MemoryStore()), []
        store.die_after(commits)
        await family(store, sent.append).run("go", session="s")
        await store.revive()
        try:
            paused = await family(store, sent.append).resume("s")
        except Exception:  # it had not even begun
            assert commits == 0
            return
        assert paused.outcome is LoopOutcome.PAUSED, paused.cause
        assert ([one.call.arguments["to"] for one in paused.pending], sent) == (["Ann", "Bob"], [])
        decisions = {one.call.id: approve() for one in paused.pending}
        result = await family(store, sent.append).resume("s", decisions=decisions)
        assert (result.outcome, sorted(sent)) == (LoopOutcome.DONE, ["Ann", "Bob"]), result.cause
        assert transcript_errors(result.messages) == []

    asyncio.run(fly())


@pytest.mark.parametrize("commits", range(40))
def test_g13_a_death_at_any_commit_after_the_decision(commits):
    async def fly():
        store, sent = Frail(MemoryStore()), []
        paused = await family(store, sent.append).run("go", session="s")
        decisions = {one.call.id: approve() for one in paused.pending}
        store.die_after(commits)
        await family(store, sent.append).resume("s", decisions=decisions)
        await store.revive()
        result = await family(store, sent.append).resume("s", decisions=decisions)
        assert result.outcome is LoopOutcome.DONE, result.cause
        unknown = [one.arguments["to"] for one in result.unknown_effects if one.name == "send"]
        assert len(sent) == len(set(sent)), "a letter was sent twice"
        assert {*sent, *unknown} == {"Ann", "Bob"}
        assert transcript_errors(result.messages) == []
        charged = sum(one.usage.total for one in result.breakdown if one.kind == "child")
        assert charged == sum(child.usage.total for child in result.children)
        assert result.usage.total >= (await undisturbed()).usage.total

    asyncio.run(fly())


LEG = """
import asyncio, os, signal, sys
from pathlib import Path
from glidepath import approve
from glidepath.sessions import PostgresStore, SqliteStore
from tests.crash.test_delegated_decisions import family
address, ledger, die = sys.argv[1:]
def effect(to):
    with open(ledger, "a") as file:
        file.write(to + "\\n")
        file.flush()
        os.fsync(file.fileno())
async def fly():
    store = SqliteStore(address) if address.endswith(".db") else PostgresStore(address)
    agent = family(store, effect)
    if die == "paused":
        result = await agent.run("go", session="s")
        print(*[one.call.id for one in result.pending], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    ids = sys.stdin.read().split()
    result = await agent.resume("s", decisions={one: approve() for one in ids})
    print(result.outcome.name, result.text)
asyncio.run(fly())
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_g13_kill_9_between_the_pause_and_the_decision(tmp_path, kind):
    address = str(tmp_path / "runs.db") if kind == "sqlite" else fresh_schema()
    ledger = tmp_path / "ledger"
    root = Path(__file__).parents[2]

    def leg(die, said=""):
        command = [sys.executable, "-c", LEG, address, str(ledger), die]
        env = {**os.environ, "PYTHONPATH": str(root)}
        keywords = {"capture_output": True, "text": True, "cwd": root, "env": env, "timeout": 60}
        return subprocess.run(command, input=said, check=False, **keywords)

    first = leg("paused")
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert len(first.stdout.split()) == 2
    assert not ledger.exists()
    second = leg("never", first.stdout)
    assert (second.stdout.strip(), second.returncode) == ("DONE all done", 0), second.stderr
    assert sorted(ledger.read_text().split()) == ["Ann", "Bob"]
