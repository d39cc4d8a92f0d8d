"""Many processes on one wallet, kill -9 among them: nothing is overspent, nothing is held for ever (G4, G13)."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.crash.postgres import fresh_schema

from glidepath.agent import sweep

from .flock import LEASE, make_store, make_wallet

HERE = Path(__file__).resolve().parent


def start(address, limit, agents, seed, bill, kind, log):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, str(HERE / "flock.py"), address, str(limit), str(agents), str(seed), str(bill), kind]
    with log.open("ab") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out)


def billed(bill):
    return sum(map(int, bill.read_text().split())) if bill.exists() else 0


def campaign(address, folder, *, processes, agents, limit, kills, kind, seed, reach):
    """Fly until the wallet is used up, killing now and then until `reach` is billed; what was billed, used and held."""
    chance = random.Random(seed)
    bill, log = folder / "bill", folder / "log"
    flock = [start(address, limit, agents, seed * 1_000 + n, bill, kind, log) for n in range(processes)]
    marks = sorted(chance.uniform(0.05, 0.9) * reach for _ in range(kills))
    started, until = processes, time.monotonic() + (3_600 if agents > 8 else 240)
    try:
        while any(one.poll() is None for one in flock):
            assert time.monotonic() < until, log.read_text()[-4_000:]
            if marks and billed(bill) >= marks[0]:
                marks.pop(0)
                victim = chance.choice([one for one in flock if one.poll() is None])
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                flock[flock.index(victim)] = start(address, limit, agents, seed * 1_000 + started, bill, kind, log)
                started += 1
            time.sleep(0.1 if limit > 10**6 else 0.02)
    finally:
        for one in flock:
            one.kill()
            one.wait()
    assert not marks, "the wallet was empty before everybody was killed"
    codes = [one.returncode for one in flock]
    assert codes == [0] * processes, (codes, log.read_text()[-4_000:])
    return asyncio.run(_figures(address)), billed(bill)


async def _figures(address):
    store = make_store(address)
    try:
        until = time.monotonic() + 3 * LEASE
        while time.monotonic() < until:
            await sweep(store)
            if not any(wallet.holds for wallet in await store.wallets()):
                break
            await asyncio.sleep(LEASE / 10)
        return {wallet.name: wallet for wallet in await store.wallets()}
    finally:
        await store.close()


def judge(wallets, spent, limit, dead_weight, least):
    flock, company = wallets["flock"], wallets["company"]
    assert spent <= limit, "more was billed than the wallet has"
    assert flock.tokens <= limit
    assert flock.tokens >= spent, "something was billed and not counted"
    assert flock.tokens - spent <= dead_weight, "the dead were charged more than they could have spent"
    assert spent > least
    for wallet in (flock, company):
        assert (wallet.tokens, wallet.held_tokens, wallet.holds) == (flock.tokens, 0, 0), "something is held for ever"


def address_of(place, folder):
    address = fresh_schema() if place == "postgres" else str(folder / "wallets.db")

    async def make():
        store = make_store(address)
        await store.open_wallets(make_wallet(store, 1).line)
        await store.close()

    asyncio.run(make())
    return address


@pytest.mark.process
@pytest.mark.timeout(280)
@pytest.mark.parametrize(("place", "kind"), [("sqlite", "plain"), ("sqlite", "journal"), ("postgres", "journal")])
def test_g4_g13_processes_on_one_wallet_are_killed_and_nothing_is_overspent_or_leaked(place, kind, tmp_path):
    agents, limit = 6, 40_000
    flown = {"processes": 2, "agents": agents, "limit": limit, "kills": 2, "kind": kind, "seed": 7, "reach": limit}
    done = campaign(address_of(place, tmp_path), tmp_path, **flown)
    most = 2_500 if kind == "plain" else 900  # tokens of one run: all that it may hold, or a call in flight
    judge(*done, limit, dead_weight=2 * agents * most, least=limit / 2)


@pytest.mark.slow
@pytest.mark.timeout(3_700)
@pytest.mark.parametrize("kind", ["journal", "plain", "elsewhere"])
@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_g4_g13_eight_processes_of_64_agents_on_one_wallet(place, kind, tmp_path):
    agents, kills = 64, 12
    dead_weight = kills * agents * (900 if kind == "journal" else 2_500)
    # Where no journal settles what the dead held, all of it is used: the wallet must have room for that, too.
    limit = 1_000_000 if kind == "journal" else 600_000 + dead_weight
    reach = limit if kind == "journal" else limit - dead_weight
    flown = {"processes": 8, "agents": agents, "limit": limit, "kills": kills, "kind": kind, "seed": 11, "reach": reach}
    done = campaign(address_of(place, tmp_path), tmp_path, **flown)
    judge(*done, limit, dead_weight=dead_weight, least=reach / 2)
