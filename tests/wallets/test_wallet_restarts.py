"""Wallets in a database that restarts: what was cut is done again, and counts once (G4, G13)."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.crash.postgres import Server, fresh_schema

from glidepath import Agent, Budget, Limits, LoopOutcome, tool
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, PassingError, PostgresStore, SqliteStore, this_owner
from glidepath.spi import Hold, OverdueHold, WalletDraw, WalletTerms
from glidepath.testing import ScriptedModel, call, say

LINE = (WalletTerms(name="c", max_tokens=10_000),)


class CutOff(PostgresStore):
    """Its next transactions are cut, before they are written or after it."""

    cuts = 0
    written = True

    @asynccontextmanager
    async def _transaction(self):
        cut = self.cuts > 0
        self.cuts -= cut
        if cut and not self.written:
            async with super()._transaction() as connection:
                yield connection
                raise PassingError("the line was cut")
        async with super()._transaction() as connection:
            yield connection
        if cut:
            raise PassingError("the line was cut")


def draw(**figures):
    return WalletDraw(**{f"{name}_tokens": figures.get(name, 0) for name in ("spent", "landing", "flight", "asked")})


def held(key, owner=None):
    return Hold(key=key, leg=1, owner=owner or this_owner(), line=LINE)


async def accounts(store):
    (wallet,) = await store.wallets("c")
    return wallet.tokens, wallet.held_tokens, wallet.holds


@pytest.mark.parametrize("written", [True, False], ids=["answer lost", "nothing written"])
def test_g4_a_wallet_transaction_that_was_cut_is_repeated_and_counts_once(written):
    async def go():
        store = CutOff(fresh_schema(), max_connections=2)
        store.written = written
        await store.open_wallets(LINE)
        hold, seen = held("one"), []

        async def cut(work):
            store.cuts = 2
            answer = await work
            assert store.cuts == 0
            seen.append(await accounts(store))
            return answer

        first = await cut(store.draw(hold, draw(landing=200, asked=500)))
        more = await cut(store.draw(hold, draw(spent=300, landing=200, asked=1_000)))
        settled = await cut(store.settle(hold, 900, 0))
        dead = held("two", owner=this_owner().replace("|", "|9", 1))
        await store.draw(dead, draw(asked=400))
        store._lease = 0
        await store.draw(dead, draw(asked=400))
        late = OverdueHold(key="two", leg=1, session_id=None, dead=True, written_off=False)
        lost = await cut(store.write_off(late, None, None))
        await cut(store.set_wallet("c", max_tokens=5_000, max_money=None))
        await cut(store.close_wallet("c"))
        store.cuts = 2
        await store.remove_wallet("c")
        left = await store.wallets()
        await store.close()
        return (first.tokens, more.tokens, settled, lost), seen, left

    answers, seen, left = asyncio.run(go())
    assert answers == (700, 1_500, True, True)
    assert seen == [(0, 700, 1), (300, 1_200, 1), (900, 0, 0), (1_300, 0, 0), (1_300, 0, 0), (1_300, 0, 0)]
    assert left == []


@pytest.mark.parametrize("second", ["draw", "settle"])
def test_g13_a_leg_that_begins_while_the_last_draw_of_a_dead_one_is_written_leaks_nothing(second):
    """A killed process may have sent its first draw; whoever resumes the run does not see that yet."""

    class Slow(PostgresStore):
        @asynccontextmanager
        async def _transaction(self):
            async with super()._transaction() as connection:
                yield connection
                written.set()
                await asyncio.wait_for(go_on.wait(), 30)

    async def go():
        address = fresh_schema()
        dying, heir = Slow(address, max_connections=2), PostgresStore(address, max_connections=2)
        await heir.open_wallets(LINE)
        first = asyncio.create_task(dying.draw(held("run"), draw(landing=200, asked=500)))
        await written.wait()
        hold = Hold(key="run", leg=2, owner=this_owner(), line=LINE)
        if second == "draw":
            then = asyncio.create_task(heir.draw(hold, draw(landing=100, asked=300)))
        else:
            then = asyncio.create_task(heir.settle(hold, 0, 0))
        await asyncio.sleep(0.3)  # real time: it reads what it can see, and waits for the rest
        go_on.set()
        await first
        await then
        figures = [await accounts(heir)]
        if second == "draw":
            await heir.settle(hold, 350, 0)
            figures.append(await accounts(heir))
        await dying.close()
        await heir.close()
        return figures

    written, go_on = asyncio.Event(), asyncio.Event()
    expected = {"draw": [(0, 400, 1), (350, 0, 0)], "settle": [(0, 700, 1)]}
    assert asyncio.run(go()) == expected[second]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("end", ["settled", "written off"])
def test_g13_a_leg_that_begins_in_the_transaction_in_which_the_last_one_ends_leaks_nothing(kind, end, tmp_path):
    """Draws that wait in one process share a transaction: so may the end of one leg and the beginning of the next."""

    async def go():
        store = {
            "memory": MemoryStore,
            "sqlite": lambda: SqliteStore(tmp_path / "w.db"),
            "postgres": lambda: PostgresStore(fresh_schema(), max_connections=2),
        }[kind]()
        await store.open_wallets(LINE)
        dead = this_owner().replace("|", "|9", 1)
        first = Hold(key="run", leg=1, owner=dead, line=LINE)
        next_ = Hold(key="run", leg=2, owner=this_owner(), line=LINE)
        usual, desk = store._lease, getattr(store, "accounts", store)
        desk._lease = 0  # the lease is over at once
        await store.draw(first, draw(asked=500))
        desk._lease = usual
        late = OverdueHold(key="run", leg=1, session_id=None, dead=True, written_off=False)
        over = store.settle(first, 100, 0) if end == "settled" else store.write_off(late, 100, 0)
        blocker = store.draw(held("other"), draw(asked=1))  # the next two wait for it, and then go together
        _, ended, grant = await asyncio.gather(blocker, over, store.draw(next_, draw(spent=100, asked=300)))
        figures = [await accounts(store)]
        await store.settle(held("other"), 0, 0)
        await store.settle(next_, 350, 0)
        figures.append(await accounts(store))
        await store.close()
        return ended, grant.tokens, figures

    ended, granted, figures = asyncio.run(go())
    assert (ended, granted) == (True, 400)
    assert figures == [(100, 301, 2), (350, 0, 0)]


def test_a_refusal_is_not_taken_for_a_cut():
    async def go():
        store = PostgresStore(fresh_schema(), max_connections=2)
        with pytest.raises(StoreError) as missing:
            await store.remove_wallet("nobody's")
        settled = await store.settle(held("never drawn"), 1, 0)
        await store.close()
        return missing.value.kind, settled

    assert asyncio.run(go()) == ("missing", False)


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look at something."""
    await asyncio.sleep(0.05)
    return f"{number} is fine"


def reader(request):
    turns = sum(message.role == "assistant" for message in request.messages)
    return call("look", number=turns) if turns < 12 else say("done")


@pytest.mark.process
def test_g4_g13_runs_on_a_wallet_ride_through_restarts_of_the_database():
    """Twelve runs on one wallet, a clean restart and a crash of the server: all are done, and the wallet is exact."""
    server = Server()

    async def go():
        store = PostgresStore(server.dsn, max_connections=4)
        wallet = Budget(Limits(max_tokens=5_000_000), name="c", store=store, per="month")
        agents = [
            Agent(
                model=ScriptedModel(max_output_tokens=100).forever(reader),
                tools=[look],
                limits=Limits(max_iterations=20),
                store=store if number % 2 else None,
            )
            for number in range(12)
        ]
        runs = [asyncio.create_task(one.run("go", parent=wallet)) for one in agents]
        for mode in ("fast", "immediate"):
            await asyncio.sleep(0.4)  # real time: let them fly
            await asyncio.to_thread(server.restart, mode)
        results = await asyncio.gather(*runs)
        figures = await accounts(store)
        await store.close()
        return results, figures

    try:
        results, figures = asyncio.run(go())
    finally:
        server.close()
    assert {(result.outcome, result.unknown_effects) for result in results} == {(LoopOutcome.DONE, ())}
    assert figures == (sum(result.usage.total for result in results), 0, 0)
