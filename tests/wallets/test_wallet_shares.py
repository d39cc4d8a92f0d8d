"""One wallet is spent as well by many processes at once as by one run after the other, and by a team."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.postgres import fresh_schema

from glidepath import Agent, Budget, Limits, Usage
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore
from glidepath.teams import Team, TeamExecutionPlan, TeamExecutionRequest, TeamStep
from glidepath.testing import ScriptedModel, VirtualClock, say

TASKS = 110


def shared(address, processes, at_once):
    program = [sys.executable, str(Path(__file__).with_name("sharers.py")), address]
    flown = [
        subprocess.Popen([*program, str(TASKS // processes), str(at_once)], stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    done = sum(int(one.communicate(timeout=120)[0]) for one in flown)

    async def used():
        store = PostgresStore(address) if address.startswith("postgresql:") else SqliteStore(address)
        (wallet,) = await store.wallets("team")
        await store.close()
        return wallet

    return done, asyncio.run(used())


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_many_processes_get_as_much_done_on_one_wallet_as_one_run_after_the_other(kind, tmp_path):
    def place(name):
        return fresh_schema() if kind == "postgres" else str(tmp_path / name)

    alone, _ = shared(place("alone.db"), 1, 1)
    together, wallet = shared(place("together.db"), 2, 10)
    assert 40 < alone < TASKS
    assert together >= 0.9 * alone
    assert (wallet.held_tokens, wallet.holds) == (0, 0)
    assert wallet.tokens <= 6_000
    assert wallet.tokens >= 5_400 or wallet.money >= 0.9 * 0.04 * 10**12


@pytest.mark.parametrize("in_money", [False, True], ids=["tokens", "money"])
def test_a_team_spends_what_it_has_with_all_its_members_at_once(in_money):
    async def spent(at_once):
        store = MemoryStore()
        limits = Limits(max_cost="0.08") if in_money else Limits(max_tokens=6_000)
        wallet = Budget(limits, name="team", store=store)
        turn = say("ok " * 20, usage=Usage(input=52, output=20))
        models = [
            ScriptedModel(max_output_tokens=200, delay=0.01, record=False, name=f"m{number}", price=("3", "15"))
            for number in range(at_once)
        ]
        members = [
            Agent(model=model.forever(turn), limits=Limits(max_iterations=3), agent_name=f"member {number}")
            for number, model in enumerate(models)
        ]
        steps = tuple(
            TeamStep(id=f"s{number}", description=f"Item {number}") for number in range(200 if in_money else 110)
        )
        request = TeamExecutionRequest(id="r", goal="Items", plan=TeamExecutionPlan(steps=steps))
        result = await Team(members).run(request, parent=wallet)
        account = await wallet.account()
        share = account.money / (0.08 * 10**12) if in_money else account.tokens / 6_000
        return sum(one.state.name == "COMPLETED" for one in result.step_outcomes), share

    alone, _ = VirtualClock().run(spent(1))
    together, used = VirtualClock().run(spent(10))
    assert together >= 0.9 * alone, (together, alone)
    assert 0.9 <= used <= 1
