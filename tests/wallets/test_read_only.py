"""Wallets of a store that cannot be written can be listed and shown; nothing else works, and that is said."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.crash.unprivileged import as_somebody_else

from glidepath import Agent, Budget, Limits
from glidepath.agent import account_of, sweep
from glidepath.errors import StoreError
from glidepath.sessions import SqliteStore
from glidepath.spi import Hold, WalletDraw
from glidepath.testing import ScriptedModel, say


async def spend(store):
    wallet = Budget(Limits(max_cost="5"), name="customer", store=store, per="month")
    model = ScriptedModel(price=("1", "5")).forever(say("hello"))
    await Agent(model=model, limits=Limits(max_iterations=3), store=store).run("hi", session="one", parent=wallet)
    dead = Hold(key="gone:run", leg=1, owner="nobody", session_id=None, line=wallet.line)
    await store.draw(dead, WalletDraw(asked_tokens=100, asked_money=100))
    await store.close()


@pytest.mark.process
def test_wallets_of_a_read_only_store_can_be_read():
    folder = Path(tempfile.mkdtemp(prefix="gp-ro-"))
    asyncio.run(spend(SqliteStore(folder / "s")))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    later = 10**10

    async def look():
        store = SqliteStore(folder / "s")
        store._clock = lambda: later  # what the dead run held is overdue
        swept = await sweep(store)
        names = [wallet.name for wallet in await store.wallets()]
        [one] = await store.wallets("customer")
        found = await account_of(store, Budget(Limits(max_cost="5"), name="customer", store=store, per="month").line[0])
        try:
            await store.close_wallet("customer")
        except StoreError as error:
            return swept, names, one.max_cost == 5, found == one, error.kind
        return "it was written"

    try:
        found = as_somebody_else(look)
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(folder)
    assert found == str((0, ["customer"], True, True, "read_only"))
