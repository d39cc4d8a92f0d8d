"""Looking after a store: a backup keeps everything, verifying finds what is wrong, compacting gives the room back."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time

import pytest

from glidepath import Agent, Budget, Limits, Usage, tool
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions import (
    MemoryStore,
    PostgresStore,
    RedactingStore,
    SqliteStore,
    export_journal,
    find_sessions,
    fork,
    import_journal,
    prune,
    read_journal,
    remove_sessions,
    this_owner,
)
from glidepath.sessions.finding import remove_unfinished
from glidepath.sessions.summaries import IMPORTING
from glidepath.sessions.upkeep import backup, compact
from glidepath.sessions.verifying import verify
from glidepath.testing import ScriptedModel, call, say

from .postgres import fresh_schema
from .power import WORKLOAD

LIMITS = Limits(max_iterations=9)


def wallet(store):
    return Budget(Limits(max_tokens=100_000), name="month", store=store)


async def talk(store, session, text="hello", **options):
    model = ScriptedModel([say("noted")], usage=Usage(700, 50))
    return await Agent(model=model, store=store, limits=LIMITS).run(text, session=session, **options)


def change(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
    connection.close()


def places_with(word, folder):
    return [file.name for file in sorted(folder.iterdir()) if file.is_file() and word in file.read_bytes()]


# --- backup --------------------------------------------------------------------------------------------------------


def test_a_backup_keeps_sessions_and_what_was_spent(tmp_path):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        for name in ("one", "two"):
            await talk(store, name, parent=wallet(store))
        spent = (await wallet(store).account()).tokens
        done = await backup(store, tmp_path / "copy.db")
        copy = SqliteStore(tmp_path / "copy.db")
        assert (done.sessions, done.wallets, done.size) == (2, 1, (tmp_path / "copy.db").stat().st_size)
        assert [(await read_journal(copy, name)).commits for name in ("one", "two")] == [
            (await read_journal(store, name)).commits for name in ("one", "two")
        ]
        assert (await wallet(copy).account()).tokens == spent > 0
        assert (await verify(copy)).problems == ()
        assert (await talk(copy, "one", "and?")).ok
        await store.close()
        await copy.close()

    asyncio.run(go())
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", "s.db"]


def test_a_copy_is_another_store_and_leases_of_the_original_are_void_in_it(tmp_path):
    """A run in flight holds its session in the original; in the copy anybody may continue it."""

    async def go():
        store = SqliteStore(tmp_path / "s.db")

        @tool
        async def hold() -> str:
            done = await backup(store, tmp_path / "copy.db")
            again = await backup(store, tmp_path / "again.db")
            assert done.identity != again.identity
            copy = SqliteStore(tmp_path / "copy.db")
            mine, (here,) = await copy.claim("s", this_owner()), await store.entries()
            assert mine.token > here.token
            with pytest.raises(StoreError, match="has a run in flight"):
                await store.claim("s", this_owner())
            await copy.release(mine)
            await copy.close()
            return "held"

        model = ScriptedModel([call("hold"), say("done")])
        result = await Agent(model=model, tools=[hold], store=store, limits=LIMITS).run("go", session="s")
        await store.close()
        return [message.text for message in result.messages if message.role == "tool_result"]

    assert asyncio.run(go()) == ["held"]


@pytest.mark.process
def test_backups_while_other_processes_write_are_whole(tmp_path):
    folder = tmp_path / "store"
    loop = f"for seed in range(40): subprocess.run([sys.executable, {str(WORKLOAD)!r}, 'sqlite', {str(folder)!r}, "
    loop += f"{str(tmp_path / 'marks')!r}, str(seed), '0', 'sync', 'alone'])"
    writers = [subprocess.Popen([sys.executable, "-c", f"import subprocess, sys\n{loop}"]) for _ in range(2)]

    async def go():
        store, found = SqliteStore(folder / "sessions.db"), []
        for number in range(8):
            spent = sum(
                int(line.split()[2]) for line in (tmp_path / "marks").read_text().splitlines() if "SPENT" in line
            )
            await backup(store, tmp_path / f"{number}.db")
            copy = SqliteStore(tmp_path / f"{number}.db")
            looked = await verify(copy)
            assert looked.problems == ()
            shown = sum(one.tokens + one.held_tokens for one in await copy.wallets())
            assert shown >= spent  # what was spent before the backup began
            found.append(looked.commits)
            await copy.close()
        await store.close()
        return found

    try:
        while not (tmp_path / "marks").exists() or "SPENT" not in (tmp_path / "marks").read_text():
            time.sleep(0.02)
        found = asyncio.run(go())
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert found == sorted(found)
    assert found[-1] > found[0]  # they did write meanwhile


def test_a_backup_that_was_killed_leaves_no_half_file_under_its_name(tmp_path):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        await talk(store, "one")
        (tmp_path / "copy.db.partial").write_bytes(b"half")
        assert (await backup(store, tmp_path / "copy.db")).sessions == 1
        with pytest.raises(ConfigurationError, match=r"copy\.db exists: name a new file"):
            await backup(store, tmp_path / "copy.db")
        with pytest.raises(ConfigurationError, match="there is no folder"):
            await backup(store, tmp_path / "no" / "copy.db")
        await store.close()
        (tmp_path / "s.db").write_bytes(b"this is not a database, by any means")
        with pytest.raises(StoreError) as caught:
            await backup(store, tmp_path / "other.db")
        assert caught.value.kind == "damaged"
        with pytest.raises(StoreError, match="there is no session store"):
            await backup(SqliteStore(tmp_path / "nothing.db"), tmp_path / "other.db")

    asyncio.run(go())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", "s.db"]


@pytest.mark.parametrize("work", [lambda store: backup(store, "x.db"), compact], ids=["backup", "compact"])
def test_other_stores_are_told_what_to_use(work):
    with pytest.raises(ConfigurationError, match=r"pg_dump|VACUUM"):
        asyncio.run(work(PostgresStore("postgresql://user:secret@localhost/db")))
    with pytest.raises(ConfigurationError, match="this is MemoryStore"):
        asyncio.run(work(MemoryStore()))


# --- verify --------------------------------------------------------------------------------------------------------


async def filled(path):
    store = SqliteStore(path)
    for name in ("one", "two", "three"):
        await talk(store, name, f"hello from {name}", parent=wallet(store))
    await store.close()
    return store


def problems_of(path):
    async def go():
        store = SqliteStore(path)
        try:
            found = await verify(store)
        finally:
            await store.close()
        return found.is_whole, [(one.where, one.kind) for one in found.problems]

    return asyncio.run(go())


def test_a_store_that_is_whole_has_no_problems(tmp_path):
    async def go():
        store = RedactingStore(await filled(tmp_path / "s.db"), lambda text: text)
        found = await verify(store)
        await store.close()
        return found

    found = asyncio.run(go())
    assert (found.is_whole, found.sessions, found.wallets, found.problems) == (True, 3, 1, ())
    assert found.commits > 8


def test_a_changed_commit_is_found_and_named(tmp_path):
    asyncio.run(filled(tmp_path / "s.db"))
    changed = "CAST(replace(CAST(body AS TEXT), 'from two', 'from 222') AS BLOB)"
    change(tmp_path / "s.db", f"UPDATE commits SET body = {changed} WHERE instr(CAST(body AS TEXT), 'from two')")
    assert problems_of(tmp_path / "s.db") == (False, [("two", "damaged")])


def test_a_missing_commit_is_found_and_named(tmp_path):
    asyncio.run(filled(tmp_path / "s.db"))
    change(tmp_path / "s.db", "DELETE FROM commits WHERE instr(CAST(body AS TEXT), 'hello from three')")
    assert problems_of(tmp_path / "s.db") == (False, [("three", "damaged")])


def test_wallets_that_do_not_add_up_are_found(tmp_path):
    asyncio.run(filled(tmp_path / "s.db"))
    change(tmp_path / "s.db", "UPDATE wallet_periods SET held_tokens = 5000")
    assert problems_of(tmp_path / "s.db") == (False, [("wallet month", "wallet")])


def test_a_wallet_that_a_run_draws_from_adds_up(tmp_path):
    async def go():
        store, seen = SqliteStore(tmp_path / "s.db"), []

        @tool
        async def look() -> str:
            seen.append((await verify(store)).problems)
            return "looked"

        model = ScriptedModel([call("look"), say("done")])
        agent = Agent(model=model, tools=[look], store=store, limits=LIMITS)
        await agent.run("go", session="s", parent=wallet(store))
        await store.close()
        return seen

    assert asyncio.run(go()) == [()]


def test_a_damaged_page_of_the_file_is_found(tmp_path):
    asyncio.run(filled(tmp_path / "s.db"))
    with (tmp_path / "s.db").open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\xff" * 4096)
    whole, found = problems_of(tmp_path / "s.db")
    assert not whole
    assert ("(file)", "damaged") in found


def test_a_lease_from_a_fast_clock_is_listed_and_does_no_harm(tmp_path):
    asyncio.run(filled(tmp_path / "s.db"))
    change(tmp_path / "s.db", "UPDATE sessions SET owner = 'somebody', expires = 99999999999 WHERE id = 'one'")
    whole, found = problems_of(tmp_path / "s.db")
    assert (whole, found) == (True, [("one", "lease")])


@pytest.mark.process
def test_a_store_in_postgresql_is_verified_too():
    async def go():
        store = PostgresStore(fresh_schema())
        for name in ("one", "two"):
            await talk(store, name, parent=wallet(store))
        found = await verify(store)
        await store.close()
        return found

    found = asyncio.run(go())
    assert (found.is_whole, found.sessions, found.wallets, found.problems) == (True, 2, 1, ())


# --- compact -------------------------------------------------------------------------------------------------------


def test_compacting_gives_room_back_and_leaves_no_deleted_text(tmp_path):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        for number in range(20):
            await talk(store, f"s{number}", f"SECRET-{number} " + "x" * 20_000)
        await talk(store, "kept", "hello")
        full = sum(file.stat().st_size for file in tmp_path.iterdir() if file.suffix != ".db-shm")
        await remove_sessions(store, [f"s{number}" for number in range(20)])
        done = await compact(store)
        assert done.after <= done.before
        assert done.after < full / 2
        assert done.is_log_empty
        assert places_with(b"SECRET-", tmp_path) == []
        assert (await read_journal(store, "kept")).folded.result is not None
        assert (await talk(store, "kept", "again")).ok
        await store.close()

    asyncio.run(go())


def test_compacting_does_not_disturb_a_run_in_flight(tmp_path):
    """A file that can shrink a slice at a time is compacted; another has to wait, and says so."""

    async def go():
        store, seen = SqliteStore(tmp_path / "s.db"), []

        @tool
        async def shrink() -> str:
            other = SqliteStore(tmp_path / "s.db")
            try:
                seen.append((await compact(other)).after > 0)
            except StoreError as error:
                seen.append(str(error).partition(": ")[2])
            await other.close()
            return "tried"

        for _ in range(2):
            model = ScriptedModel([call("shrink"), say("done")])
            result = await Agent(model=model, tools=[shrink], store=store, limits=LIMITS).run("go", session="s")
            assert result.ok
            await compact(store)  # nobody is in it now: from here on a slice at a time will do
        await store.close()
        return seen

    assert asyncio.run(go()) in (["compact it when they have ended", True], [True, True])


class Cut(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("after", [2, 3])
def test_copies_that_died_half_way_are_removed_by_compacting(tmp_path, after):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        await talk(store, "one")
        append, left = store.append, [after]

        def dying(lease, commit, **options):
            left[0] -= 1
            if not left[0]:
                raise Cut
            return append(lease, commit, **options)

        store.append = dying
        store.remove_many = store.remove = None  # the dead clean nothing up
        with pytest.raises((Cut, TypeError)):
            await fork(store, "one", name="half")
        await store.close()
        store = SqliteStore(tmp_path / "s.db")
        found = await verify(store)
        half = [entry.session_id for entry in await store.entries() if entry.session_id != "one"]
        assert [(one.where, one.kind) for one in found.problems] == [(name, "unfinished") for name in half]
        assert found.is_whole
        done = await compact(store)
        assert list(done.removed) == half
        assert [entry.session_id for entry in await store.entries()] == ["one"]
        await store.close()

    asyncio.run(go())


def test_an_import_removes_what_a_killed_import_left_under_another_name(tmp_path):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        await talk(store, "one")
        whole = await export_journal(store, "one")
        lease = await store.claim("half", this_owner())
        later = store.append(lease, (await store.load("one"))[1][0], summary={IMPORTING: True})
        if later is not None:
            await later
        await store.release(lease)
        assert await import_journal(store, whole, session_id="two") == "two"
        assert sorted(entry.session_id for entry in await store.entries()) == ["one", "two"]
        await store.close()

    asyncio.run(go())


def test_a_copy_that_somebody_is_making_stays(tmp_path):
    async def go():
        store = SqliteStore(tmp_path / "s.db")
        await talk(store, "one")
        _, commits = await store.load("one")
        lease = await store.claim("half", this_owner())
        later = store.append(lease, commits[0], summary={IMPORTING: True})
        if later is not None:
            await later
        assert await remove_unfinished(store) == await prune(store, older_than=0.0, states=["error"]) == []
        assert (await verify(store)).problems == ()
        await store.release(lease)
        assert await prune(store, older_than=60.0, states=["error"]) == []  # not yet
        assert await prune(store, older_than=0.0, states=["error"]) == ["half"]
        assert [one.session_id for one in (await find_sessions(store)).sessions] == ["one"]
        await store.close()

    asyncio.run(go())
