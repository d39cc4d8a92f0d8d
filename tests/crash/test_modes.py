"""What is in a store is nobody else's business: the modes of its files."""

import asyncio
import os
import sqlite3
import stat
from contextlib import closing

import pytest

from glidepath import Agent, Limits
from glidepath.errors import StoreError
from glidepath.sessions import SqliteStore, list_runs
from glidepath.testing import ScriptedModel, say


def modes(folder):
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def used(path, look):
    async def run():
        store = SqliteStore(path)
        await Agent(model=ScriptedModel([say("x")]), store=store, limits=Limits(max_iterations=2)).run("secret")
        found = look()
        await store.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277])
def test_a_new_store_and_its_log_are_its_owners_alone_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        found = used(tmp_path / "s.db", lambda: modes(tmp_path))
    finally:
        os.umask(before)
    assert set(found) == {"s.db", "s.db-wal", "s.db-shm"}
    assert set(found.values()) == {0o600}


@pytest.mark.parametrize(
    ("old", "new"), [(0o644, 0o600), (0o666, 0o660), (0o600, 0o600), (0o660, 0o660), (0o640, 0o640), (0o664, 0o660)]
)
def test_a_store_that_everybody_could_read_is_closed_to_others_and_one_that_a_group_shares_stays(tmp_path, old, new):
    path = tmp_path / "s.db"
    used(path, lambda: None)
    path.chmod(old)
    assert used(path, lambda: modes(tmp_path))["s.db"] == new


@pytest.mark.parametrize(("old", "new"), [(0o444, 0o400), (0o400, 0o400), (0o464, 0o460)])
def test_a_store_that_its_owner_has_made_read_only_stays_so(tmp_path, old, new):
    path = tmp_path / "s.db"
    used(path, lambda: None)
    path.chmod(old)

    async def look():
        store = SqliteStore(path)
        await list_runs(store)
        await store.close()

    asyncio.run(look())
    assert modes(tmp_path)["s.db"] == new


def a_text(path):
    path.write_text("something else\n" * 100)


def another_database(path):
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE theirs(x)")
        made.commit()


@pytest.mark.parametrize("make", [a_text, another_database])
def test_a_file_that_is_no_store_is_left_alone(tmp_path, make):
    path = tmp_path / "theirs"
    make(path)
    path.chmod(0o644)
    before = path.read_bytes()

    async def look():
        store = SqliteStore(path)
        for act in (lambda: list_runs(store), lambda: store.claim("s", "me"), store.wallets):
            with pytest.raises(StoreError) as refused:
                await act()
            assert refused.value.kind == "damaged"
        await store.close()

    asyncio.run(look())
    assert modes(tmp_path) == {"theirs": 0o644}
    assert path.read_bytes() == before
