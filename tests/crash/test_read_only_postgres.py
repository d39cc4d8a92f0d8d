"""A PostgreSQL database that may only be read: sessions and wallets are shown, and writing is refused as such."""

import asyncio
import os

import asyncpg
import pytest

from glidepath import Agent, Budget, Limits
from glidepath.agent import sweep
from glidepath.errors import StoreError
from glidepath.sessions import PostgresStore, annotate, export_journal, find_sessions, list_runs, read_journal
from glidepath.testing import ScriptedModel, say

from .postgres import fresh_schema

pytestmark = pytest.mark.process


async def by_transaction(address):
    return f"{address}&default_transaction_read_only=on"


async def by_role(address):
    """The address for a role that may only select."""
    schema, role = address.rpartition("%3D")[2], f"reader_{os.urandom(4).hex()}"
    connection = await asyncpg.connect(address)
    await connection.execute(f"CREATE ROLE {role} LOGIN")
    await connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    await connection.close()
    return address.replace("postgres@", f"{role}@")


@pytest.mark.parametrize("limited", [by_transaction, by_role])
def test_a_database_that_may_only_be_read_is_read(limited):
    address = fresh_schema()

    async def fill():
        store = PostgresStore(address)
        wallet = Budget(Limits(max_cost="5"), name="customer", store=store, per="month")
        model = ScriptedModel(price=("1", "5")).forever(say("hello"))
        agent = Agent(model=model, limits=Limits(max_iterations=3), store=store)
        await agent.run("a task", session="one", parent=wallet)
        await store.close()

    async def look():
        store = PostgresStore(await limited(address))
        assert await sweep(store) == 0
        assert [wallet.name for wallet in await store.wallets()] == ["customer"]
        assert [wallet.name for wallet in await store.wallets("customer")] == ["customer"]
        assert [run.session_id for run in await list_runs(store)] == ["one"]
        assert len((await find_sessions(store, text="task")).sessions) == 1
        assert (await read_journal(store, "one")).folded.result is not None
        assert await export_journal(store, "one")
        kinds = []
        for act in (
            lambda: store.close_wallet("customer"),
            lambda: annotate(store, "one", title="x"),
            lambda: store.claim("one", "me"),
            lambda: store.remove("one"),
            lambda: store.flag("one", "stop"),
        ):
            with pytest.raises(StoreError) as refused:
                await act()
            kinds.append(refused.value.kind)
        await store.close()
        return kinds

    asyncio.run(fill())
    assert asyncio.run(look()) == ["read_only"] * 5
