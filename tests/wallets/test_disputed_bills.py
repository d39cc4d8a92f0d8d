"""A bill that no call explains: the run pays at once, its wallets hold it until a person accepts or rejects it."""

import asyncio
import os
import sqlite3
from decimal import Decimal

import pytest
from tests.crash.postgres import fresh_schema
from tests.wallets.test_wallet_deaths import in_another_process

from glidepath import Agent, Budget, Limits, Usage, approve, tool
from glidepath.messages import ReplyInfo, StreamEnd, TextDelta
from glidepath.outcome import LoopOutcome
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore
from glidepath.teams import Team
from glidepath.testing import ScriptedModel, call, raw, say

LIE = 900_000
PRICES = {"scripted": ("1", "1")}


@tool(requires_approval=True)
async def send(to: str) -> str:
    """Send it."""
    return f"sent to {to}"


@tool(idempotent=True)
async def look(page: int) -> str:
    """Look."""
    return f"page {page}"


def lie(turn=None, tokens=LIE):
    return (turn or say("Four words of text.")).with_usage(Usage(tokens, 10))


def make(turns, **options):
    options.setdefault("limits", Limits(max_iterations=9))
    model = turns if isinstance(turns, ScriptedModel) else ScriptedModel(turns)
    return Agent(model=model, tools=[look, send], prices=PRICES, **options)


def wallet(store, name="team", **more):
    return Budget(Limits(max_tokens=1_000_000, max_cost="5"), name=name, store=store, **more)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.process)])
def store(request, tmp_path):
    makes = {
        "memory": MemoryStore,
        "sqlite": lambda: SqliteStore(tmp_path / "s.db"),
        "postgres": lambda: PostgresStore(fresh_schema(), max_connections=2),
    }
    return makes[request.param]()


async def figures(store, name="team"):
    (found,) = await store.wallets(name)
    return found.tokens, found.disputed_tokens, found.held_tokens


def fly(main, store):
    async def all_of_it():
        try:
            return await main()
        finally:
            await store.close()

    return asyncio.run(all_of_it())


# --- what is charged, and what is held ----------------------------------------------------------------------------


def test_the_run_is_charged_at_once_and_its_wallets_hold_what_nothing_explains(store):
    async def main():
        company = wallet(store, "company", per="month")
        team = wallet(store, parent=company)
        result = await make([lie()]).run("Go.", parent=team)
        assert result.usage.total == LIE + 10
        assert result.cost == Decimal(LIE + 10) / 10**6
        for name in ("company", "team"):
            used, disputed, held = await figures(store, name)
            assert used + disputed == LIE + 10
            assert 0 < used < 1_000
            assert held == 0
        # Blocked: what is left does not pay for a second run that asks for more.
        (found,) = await store.wallets("team")
        assert found.left_tokens == 1_000_000 - LIE - 10
        assert found.disputed_cost > Decimal("0.89")
        more = ScriptedModel([say("x")], max_output_tokens=500_000)
        again = await make(more, landing="off", limits=Limits(max_tokens=10**6), max_output_tokens=500_000).run(
            "Go.", parent=team
        )
        assert again.usage.total < 1_000  # a smaller call, within what is left

    fly(main, store)


@pytest.mark.parametrize("accepted", [True, False])
def test_a_full_wallet_says_why_and_a_person_decides(accepted, store):
    async def main():
        team = wallet(store)
        await make([lie(tokens=2_000_000)]).run("Go.", parent=team)
        again = await make([say("x")]).run("Go.", parent=team)
        assert (again.outcome, again.iterations) == (LoopOutcome.CUT_OFF, 0)
        assert "are bills that no call explains" in again.cause.reason
        assert "glidepath wallets show team" in again.cause.reason
        assert again.cause.metrics["disputed"] > 1_900_000
        (bill,) = await store.bills("team")
        assert await store.decide_bill(bill.id, accepted=accepted)
        used, disputed, _ = await figures(store)
        assert disputed == 0
        assert (used > 1_900_000) is accepted
        last = await make([say("x")]).run("Go.", parent=team)
        assert (last.outcome is LoopOutcome.DONE) is not accepted
        assert ("bills" in (last.cause.reason if last.cause else "")) is False

    fly(main, store)


def test_an_absurd_bill_in_money_with_honest_tokens_is_held_too(store):
    async def main():
        team = wallet(store)
        turn = raw(TextDelta("A few words."), StreamEnd("end_turn", Usage(20, 5), ReplyInfo(billed=3.0)))
        result = await make([turn]).run("Go.", parent=team)
        assert result.cost == 3
        (found,) = await store.wallets("team")
        assert (found.disputed_tokens, found.tokens) == (0, 25)
        assert found.cost + found.disputed_cost == 3
        assert found.disputed_cost > Decimal("2.9")

    fly(main, store)


def test_a_bill_that_a_call_explains_is_used_and_nobody_is_asked(store):
    async def main():
        team = wallet(store)
        await make([say("x").with_usage(Usage(50_000, 10))]).run("Go.", parent=team)
        assert await figures(store) == (50_010, 0, 0)
        assert list(await store.bills()) == []

    fly(main, store)


def test_the_sessions_own_limit_counts_it_at_once(store):
    async def main():
        limits = Limits(max_tokens=500_000, scope="session")
        agent = make([lie(), say("never")], limits=limits, store=store)
        await agent.run("Go.", session="s", parent=wallet(store))
        again = await agent.run("Go on.", session="s", parent=wallet(store))
        assert (again.outcome, again.usage.total) == (LoopOutcome.CUT_OFF, 0)
        assert again.cause.source == "TokenBudgetConstraint"

    fly(main, store)


# --- a life with pauses, deaths, children and teams ---------------------------------------------------------------


def test_a_paused_run_goes_on_and_disputes_nothing_twice(store):
    async def main():
        team = wallet(store)
        agent = make([lie(call("send", to="x"), 300_000), lie(tokens=200_000)], store=store)
        paused = await agent.run("Go.", session="s", parent=team)
        before = await figures(store)
        assert before[1] > 299_000
        (bill,) = await store.bills()
        await store.decide_bill(bill.id, accepted=False)
        done = await agent.resume("s", decisions={paused.pending[0].call.id: approve()}, parent=team)
        assert done.outcome is LoopOutcome.DONE
        used, disputed, held = await figures(store)
        assert 199_000 < disputed <= 200_010
        assert used < 2_000
        assert held == 0

    fly(main, store)


@pytest.mark.process
@pytest.mark.parametrize("how", ["swept", "resumed"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_process_that_dies_before_its_wallet_has_heard_leaves_the_bill_in_its_journal(how, kind, tmp_path):
    address = fresh_schema() if kind == "postgres" else str(tmp_path / "s.db")

    def opened():
        return PostgresStore(address, max_connections=2) if kind == "postgres" else SqliteStore(address)

    @tool(name="look", idempotent=True)
    async def last_look(page: int) -> str:
        """Look."""
        os._exit(7)

    async def flight():
        store = opened()
        # Its wallet hears of what it has spent with the next draw, before the second call.
        agent = Agent(model=ScriptedModel([lie(call("look", page=1))]), tools=[last_look, send], store=store)
        await agent.run("Go.", session="s", parent=Budget(Limits(max_tokens=10**7), name="team", store=store))

    in_another_process(flight)
    store = opened()

    async def main():
        team = Budget(Limits(max_tokens=10**7), name="team", store=store)
        if how == "swept":
            await team.account()
        else:
            done = await make([say("done")], store=store).resume("s", parent=team)
            assert done.outcome is LoopOutcome.DONE
            assert done.usage.total > LIE
        used, disputed, held = await figures(store)
        assert LIE - 1_000 < disputed <= LIE + 10
        assert used < 5_000
        assert held == 0
        assert [one.run.partition(":")[0] for one in await store.bills()] == ["s"]

    fly(main, store)


def test_children_and_teams_dispute_in_the_wallet_of_the_whole(store):
    async def main():
        child = make([lie(tokens=300_000)], agent_name="child")
        parent = Agent(
            model=ScriptedModel([call("child", task="look"), say("done")]),
            tools=[child.as_tool("child", "The child.")],
            prices=PRICES,
            limits=Limits(max_iterations=9),
            store=store,
        )
        result = await parent.run("Go.", session="p", parent=wallet(store))
        assert result.usage.total > 300_000
        assert (await figures(store))[1] > 299_000
        team = Team([make([lie(tokens=150_000)], agent_name="one")])
        await team.run("Go.", parent=wallet(store, "other"))
        assert 149_000 < (await figures(store, "other"))[1] <= 150_010

    fly(main, store)


# --- the store ----------------------------------------------------------------------------------------------------


def test_verify_finds_a_bill_that_its_wallet_does_not_know(tmp_path):
    async def main():
        store = SqliteStore(tmp_path / "a.db")
        await make([lie()]).run("Go.", parent=wallet(store))
        assert await store.wallet_errors() == (1, {})
        await store.close()
        with sqlite3.connect(tmp_path / "a.db") as connection:
            connection.execute("DELETE FROM wallet_bills")
        connection.close()
        count, errors = await store.wallet_errors()
        assert count == 1
        assert "disputed" in errors["team"]
        await store.close()

    asyncio.run(main())


def test_a_file_of_the_layout_before_is_brought_up_to_date(tmp_path):
    path = tmp_path / "a.db"

    async def use(expected):
        store = SqliteStore(path)
        await make([lie()]).run("Go.", parent=wallet(store))
        used, disputed, _ = await figures(store)
        assert used > 0
        assert disputed > LIE * expected - 1_000 * expected
        await store.close()

    asyncio.run(use(1))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE wallet_bills")
        for table, columns in (
            ("wallet_periods", ("disputed_tokens", "disputed_money")),
            ("wallet_holds", ("disputed_base_tokens", "disputed_base_money", "disputed_tokens", "disputed_money")),
        ):
            for column in columns:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    asyncio.run(use(1))


@pytest.mark.process
def test_tables_of_postgresql_from_before_are_brought_up_to_date():
    address = fresh_schema()

    async def main():
        store = PostgresStore(address, max_connections=2)
        await make([say("x")]).run("Go.", parent=wallet(store))
        async with store._transaction() as connection:
            await connection.execute("DROP TABLE glidepath_wallet_bills")
            for table in ("periods", "holds"):
                for column in ("disputed_tokens", "disputed_money"):
                    await connection.execute(f"ALTER TABLE glidepath_wallet_{table} DROP COLUMN {column}")
            for column in ("disputed_base_tokens", "disputed_base_money"):
                await connection.execute(f"ALTER TABLE glidepath_wallet_holds DROP COLUMN {column}")
        await store.close()
        again = PostgresStore(address, max_connections=2)
        await make([lie()]).run("Go.", parent=wallet(again))
        assert (await figures(again))[1] > LIE - 1_000
        await again.close()

    asyncio.run(main())
