"""Calls that wait for budget, and are given up meanwhile: nothing stays reserved, and nobody waits for each other."""

import asyncio

import pytest
from tests.interleavings.gates import Client, GateWorld, leftovers, now

from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore
from glidepath.testing import virtual
from glidepath.values import AgentState, StopCause, Verdict

A_WHILE = 901.0  # seconds after which a program that has not called is presumed gone


class FailingStore(MemoryStore):
    """Fails from some moment on."""

    fails = False

    async def draw(self, hold, want):
        if self.fails:
            raise StoreError("the disk is full", kind="full")
        return await super().draw(hold, want)


def stopped():
    cause = StopCause(source="KillSwitchConstraint", action="cancel", reason="enough")
    return Verdict(state=AgentState.CANCELLED, cause=cause)


@virtual
async def test_a_landing_whose_wallet_fails_leaves_nothing_reserved():
    store = FailingStore(clock=now)
    world = GateWorld(wallet=20_000, store=store)
    client = Client(world, world.open_gate(), "a", 2)
    client.after_call = lambda: start_landing(world, client, store)
    await client.fly()
    assert "could not" in client.text or "status" in client.text
    assert list(leftovers(world.lines[0])) == []


def start_landing(world, client, store=None):
    """Have the next request be the last one, longer than what was kept for it."""
    client.messages.append({"role": "user", "content": "a long document " * 1_000})
    world.lines[0].sessions[client.run].order = "enough"
    if store is not None:
        store.fails = True


@virtual
async def test_a_client_that_leaves_while_its_landing_waits_leaves_nothing_reserved():
    world = GateWorld(shared=7_000)
    gate = world.open_gate()
    other = Client(world, gate, "b", 1, reply=1_200, run="other")
    other.pause = 5.0
    client = Client(world, gate, "a", 2)
    client.after_call = lambda: start_landing(world, client)
    flying = asyncio.ensure_future(other.fly())
    await asyncio.sleep(0.1)
    leaving = asyncio.ensure_future(client.fly())
    await asyncio.sleep(1)
    assert not leaving.done(), "it waits for what the other has in flight"
    leaving.cancel()
    await asyncio.wait([leaving])
    await flying
    assert list(leftovers(world.lines[0])) == []


@pytest.mark.parametrize("wallet", [5_000, 5_500])
@virtual
async def test_two_replies_that_grow_at_two_gates_do_not_wait_for_each_other(wallet):
    world = GateWorld(wallet=wallet)
    clients = [Client(world, world.open_gate(), name, 1, reply=1_800, run=name) for name in "ab"]
    await asyncio.gather(*[client.fly() for client in clients])
    assert now() < 45, "each has what the other waits for"
    await world.close()


@virtual
async def test_a_reply_that_grows_does_not_wait_behind_a_call_that_has_not_begun():
    """The call waits for what another gate has in flight; the reply has what it needs after one look."""
    world = GateWorld(wallet=8_000)
    here, there = world.open_gate(), world.open_gate()
    far = Client(world, there, "far", 1, reply=1_200, run="far")
    growing = Client(world, here, "grows", 1, reply=1_200, run="grows")
    far.pause, growing.pause = 3.0, 0.5  # 60 seconds, and 10
    flying = [asyncio.ensure_future(one.fly()) for one in (far, growing)]
    await asyncio.sleep(0.1)
    waiting = Client(world, here, "waits", 1, run="waits")
    waiting.messages.append({"role": "user", "content": "a long document " * 400})
    flying.append(asyncio.ensure_future(waiting.fly()))
    await asyncio.wait(flying[1:2])
    assert not flying[2].done(), "it waits for what the other gate has in flight"
    assert now() < 20
    await asyncio.gather(*flying)
    await world.close()


@pytest.mark.parametrize("what", ["gate", "line", "run", "agent"])
@virtual
async def test_a_call_that_waits_when_its_run_is_stopped_is_not_made(what):
    world = GateWorld(shared=3_000)
    gate = world.open_gate()
    other = Client(world, gate, "b", 1, reply=1_000, run="other")
    other.pause = 1.0
    flying = asyncio.ensure_future(other.fly())
    await asyncio.sleep(0.1)
    client = Client(world, gate, "a", 1)
    waiting = asyncio.ensure_future(client.fly())
    await asyncio.sleep(1)
    assert not waiting.done(), "it waits for what the other has in flight"
    session = world.lines[0].sessions["run"]
    if what == "gate":
        await gate.stop("enough")
    elif what == "agent":
        session.agents["a"].landed = stopped()
    else:
        (world.lines[0] if what == "line" else session).stopped = "enough"
    await flying
    await waiting
    assert session.agents["a"].calls == 0, client.text
    assert list(leftovers(world.lines[0])) == []


@virtual
async def test_what_is_kept_for_a_program_that_has_gone_is_free_after_a_while():
    world = GateWorld(shared=2_200)
    gate = world.open_gate()
    gone = Client(world, gate, "b", 2, run="gone")
    gone.after_call = lambda: asyncio.current_task().cancel()
    await asyncio.wait([asyncio.ensure_future(gone.fly())])
    first = await Client(world, gate, "a", 1, run="first").fly()
    assert first.is_landed
    await asyncio.sleep(A_WHILE)
    second = await Client(world, gate, "a", 1, run="second").fly()
    assert not second.is_landed


@virtual
async def test_nothing_is_kept_for_an_agent_whose_only_call_was_refused_by_the_provider():
    world = GateWorld(shared=2_200)
    gate = world.open_gate()
    refused = Client(world, gate, "b", 2, run="refused")
    refused.trouble = "refused"
    await refused.fly()
    assert list(leftovers(world.lines[0])) == []
    other = await Client(world, gate, "a", 2, run="other").fly()
    assert now() < 1
    assert not other.is_landed
