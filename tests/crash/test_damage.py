"""What can happen to a file: each damage is said clearly, nothing else is lost, and a repair keeps what is whole."""

import asyncio
import contextlib
import json
import random
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.unprivileged import as_somebody_else

from glidepath import Agent, AgentState, Limits, LoopOutcome, tool
from glidepath._version import VERSION
from glidepath.errors import ConfigurationError, StoreError
from glidepath.messages import IMPORTED
from glidepath.sessions import (
    SCHEMA,
    MemoryStore,
    Opened,
    SqliteStore,
    export_journal,
    import_journal,
    link,
    list_runs,
    prune,
    read_journal,
    repair,
)
from glidepath.sessions.chain import OLDEST
from glidepath.testing import ScriptedModel, call, say
from glidepath.values import replace

GOLDEN = Path(__file__).parent / "golden"


@tool
async def act(n: int) -> str:
    return f"done {n}"


async def fly(store, session="s", turns=4):
    agent = Agent(
        model=ScriptedModel([call("act", n=n) for n in range(turns)] + [say("all done")]),
        tools=[act],
        store=store,
        limits=Limits(max_iterations=20),
    )
    return await agent.run("go", session=session)


@pytest.fixture
def path(tmp_path):
    """A file with two sessions."""

    async def fill():
        store = SqliteStore(tmp_path / "s.db")
        await fly(store, "hurt")
        await fly(store, "well")
        await store.close()

    asyncio.run(fill())
    return tmp_path / "s.db"


def change(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)
    connection.close()


def key_of(path, session="hurt"):
    with closing(sqlite3.connect(path)) as connection, connection:
        (key,) = connection.execute("SELECT key FROM sessions WHERE id = ?", (session,)).fetchone()
    connection.close()
    return key


def flip_a_bit(path):
    place = (key_of(path), 6)
    with closing(sqlite3.connect(path)) as connection, connection:
        (body,) = connection.execute("SELECT body FROM commits WHERE session = ? AND number = ?", place).fetchone()
        changed = bytearray(body)
        changed[len(changed) // 2] ^= 1
        connection.execute("UPDATE commits SET body = ? WHERE session = ? AND number = ?", (bytes(changed), *place))
    connection.close()


def lose_the_tail(path):
    change(path, "DELETE FROM commits WHERE session = ? AND number > 5", key_of(path))


def lose_the_middle(path):
    change(path, "DELETE FROM commits WHERE session = ? AND number = 6", key_of(path))


def tear_the_last(path):
    statement = "UPDATE commits SET body = substr(body, 1, 20) WHERE session = ? AND number = 11"
    change(path, statement, key_of(path))


DAMAGES = {flip_a_bit: 5, lose_the_tail: 5, lose_the_middle: 5, tear_the_last: 10}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_said_and_repaired_and_the_rest_is_whole(damage, path):
    damage(path)

    async def look():
        store = SqliteStore(path)
        with pytest.raises(StoreError, match=r"damaged.*repair") as caught:
            await read_journal(store, "hurt")
        assert caught.value.kind == "damaged"
        result = await fly(store, "hurt")
        assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "damaged")
        assert (await read_journal(store, "well")).folded.result.outcome is LoopOutcome.DONE
        assert {entry.session_id for entry in await list_runs(store)} == {"hurt", "well"}
        repaired = await repair(store, "hurt")
        assert repaired.kept == DAMAGES[damage]
        assert repaired.dropped >= 1
        assert repaired.reason
        folded = (await read_journal(store, "hurt")).folded
        assert folded.result is None
        again = await repair(store, "hurt")  # one more commit says what was done
        assert (again.kept, again.dropped, again.reason) == (DAMAGES[damage] + 1, 0, "")
        agent = Agent(
            model=ScriptedModel([say("found my way")]), tools=[act], store=store, limits=Limits(max_iterations=20)
        )
        asked = await agent.resume("hurt")
        assert (asked.outcome, asked.cause.metrics["kind"]) == (LoopOutcome.FAILED, "repaired")
        assert (await agent.resume("hurt", accept_repair=True)).text == "found my way"
        await store.close()

    asyncio.run(look())


async def look(path, session):
    """The commits of a session, or the kind of error that is said instead."""
    store = SqliteStore(path)
    with contextlib.suppress(StoreError):
        await list_runs(store)
    try:
        return (await read_journal(store, session)).commits
    except StoreError as error:
        return error.kind
    finally:
        await store.close()


@pytest.mark.parametrize("flip", [0xFF, 0x01])
def test_a_flipped_byte_anywhere_is_said_or_does_no_harm(path, tmp_path, flip):
    truth = {session: asyncio.run(look(path, session)) for session in ("hurt", "well")}
    whole = path.read_bytes()
    chance = random.Random(flip)
    pages = range(0, len(whole), 4096)
    used = [at for at, byte in enumerate(whole) if byte or at % 4096 < 64]
    places = sorted({*chance.sample(used, 150), *(page + at for page in pages for at in range(0, 40, 3))})
    hurt = tmp_path / "flipped.db"
    found = set()
    for at in places:
        for name in ("flipped.db-wal", "flipped.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        hurt.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
        for session, commits in truth.items():
            seen = asyncio.run(look(hurt, session))
            found.add(seen if isinstance(seen, str) else "whole")
            assert isinstance(seen, str) or seen == commits, (at, session)
    assert found >= {"whole", "damaged"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE commits SET body = NULL",
        "UPDATE commits SET body = 'text'",
        "UPDATE commits SET hash = 1e300",
        "UPDATE sessions SET head = 'many'",
        "UPDATE sessions SET head = NULL",
        "UPDATE sessions SET hash = 12",
        "UPDATE sessions SET summary = 12",
        "UPDATE sessions SET expires = 'never'",
        "UPDATE sessions SET updated = x'ff'",
        "UPDATE sessions SET owner = x'ff'",
        "UPDATE sessions SET token = 'mine'",
    ],
)
def test_values_of_another_type_are_store_errors(path, statement):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    connection.close()
    change(path, f"{statement} WHERE 1")
    truth = asyncio.run(look(path, "well"))
    assert truth in ("damaged", "unavailable") or len(truth) > 3

    async def on():
        store = SqliteStore(path)
        result = await fly(store, "well")
        await store.close()
        return result

    result = asyncio.run(on())
    assert result.outcome is LoopOutcome.DONE or result.cause.source == "store"


@pytest.mark.parametrize("value", ["NULL", "'text'", "12", "1e300", "x''"])
@pytest.mark.parametrize("column", ["body", "hash"])
def test_a_commit_of_another_type_is_repaired_away(path, column, value):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    connection.close()
    change(path, f"UPDATE commits SET {column} = {value} WHERE session = 1 AND number = 6")

    async def look():
        store = SqliteStore(path)
        with pytest.raises(StoreError, match="commit 6 was changed") as caught:
            await read_journal(store, "hurt")
        assert caught.value.kind == "damaged"
        assert (await repair(store, "hurt")).kept == 5
        assert len((await read_journal(store, "hurt")).commits) == 6
        await store.close()

    asyncio.run(look())
    assert asyncio.run(whole(path))


def test_a_session_id_that_is_no_unicode_is_missing(path):
    async def ask():
        store = SqliteStore(path)
        try:
            await store.load("\udcff")
        finally:
            await store.close()

    with pytest.raises(StoreError, match="not valid Unicode") as found:
        asyncio.run(ask())
    assert found.value.kind == "missing"
    with pytest.raises(ConfigurationError, match="lone surrogates"):
        asyncio.run(fly(MemoryStore(), "\udcff"))


def test_an_import_takes_only_ids_that_can_be_resumed(path):
    async def take():
        store = SqliteStore(path)
        data = await export_journal(store, "well")
        try:
            await import_journal(store, data, session_id="x" * 201)
        finally:
            await store.close()

    with pytest.raises(ConfigurationError, match="session id"):
        asyncio.run(take())


def test_a_truncated_file_is_damaged(path):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 // 4096 * 4096 + 100])

    async def look():
        store = SqliteStore(path)
        found = []
        for session in ("hurt", "well"):
            try:
                await read_journal(store, session)
            except StoreError as error:
                found.append(error.kind)
        assert found
        assert set(found) == {"damaged"}
        await store.close()

    asyncio.run(look())


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be looked at" * 100, b"\0" * 9000])
def test_what_is_no_database_is_not_touched(tmp_path, content):
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    result = asyncio.run(fly(SqliteStore(path)))
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "damaged")
    assert path.read_bytes() == content


def test_somebody_elses_database_is_not_touched(tmp_path):
    path = tmp_path / "theirs.db"
    change(path, "CREATE TABLE customers(name)")
    result = asyncio.run(fly(SqliteStore(path)))
    assert "another program's database" in result.cause.reason


def test_a_newer_layout_is_refused(path):
    change(path, "PRAGMA user_version = 99")
    result = asyncio.run(fly(SqliteStore(path)))
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "newer")


def test_a_newer_schema_is_refused():
    async def look():
        store = MemoryStore()
        data = (GOLDEN / VERSION / "done.jsonl").read_bytes()
        for version in (0, 2, 99):
            with pytest.raises(StoreError) as caught:
                await import_journal(store, data.replace(b'"schema":1', b'"schema":%d' % version, 1))
            assert caught.value.kind == ("newer" if version else "schema")
        assert list(await store.entries()) == []

    asyncio.run(look())


def test_every_schema_that_this_version_reads_has_golden_journals():
    found = {json.loads(path.read_bytes().splitlines()[0])["schema"] for path in GOLDEN.glob("*/*.jsonl")}
    assert found == set(range(OLDEST, SCHEMA + 1))
    assert OLDEST in (SCHEMA, SCHEMA - 1)


@pytest.mark.parametrize("version", [OLDEST - 1, SCHEMA + 1])
def test_a_journal_of_another_schema_in_the_store_is_refused_and_left_alone(version):
    kind = "newer" if version > SCHEMA else "schema"

    async def look():
        store = MemoryStore()
        lease = await store.claim("s", "me")
        store.append(lease, link(b"", 1, 1, 1.0, [("opened", Opened(schema=version, session_id="s"))]))
        await store.release(lease)
        before = await store.load("s")
        for ask in (read_journal, repair):
            with pytest.raises(StoreError, match=f"schema version {version}") as caught:
                await ask(store, "s")
            assert caught.value.kind == kind
        run = await fly(store)
        resumed = await Agent(model=ScriptedModel([]), store=store, unbounded=True).resume("s")
        for result in (run, resumed):
            assert (result.outcome, result.cause.metrics["kind"]) == (LoopOutcome.FAILED, kind)
        assert (await store.load("s"))[1] == before[1]

    asyncio.run(look())


def test_a_missing_folder_and_a_read_only_file_are_said(path, tmp_path):
    result = asyncio.run(fly(SqliteStore(tmp_path / "no" / "such" / "s.db")))
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "unavailable")

    async def read_only():
        store = SqliteStore(path)
        store._group.connection().execute("PRAGMA query_only = ON")
        result = await fly(store, "another")
        await store.close()
        return result

    result = asyncio.run(read_only())
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "read_only")
    assert asyncio.run(whole(path))


@pytest.mark.process
@pytest.mark.parametrize("left", [False, True])
def test_a_read_only_folder_can_be_read_and_nothing_else(path, left):
    folder = Path(tempfile.mkdtemp(prefix="gp-ro-"))
    there = folder / "s ?#%.db"
    shutil.copy(path, there)
    if left:
        (folder / f"{there.name}-wal").write_bytes(b"something")
    there.chmod(0o644)
    folder.chmod(0o555)

    async def look():
        store = SqliteStore(there)
        try:
            listed = len(await list_runs(store))
            commits = len((await read_journal(store, "well")).commits)
        except StoreError as error:
            listed, commits = 0, error.kind
        result = await fly(store, "well")
        new = await fly(SqliteStore(folder / "new.db"))
        return listed, commits, result.cause.metrics["kind"], new.cause.metrics["kind"]

    try:
        found = as_somebody_else(look)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    assert found == str((0, "read_only", "read_only", "read_only") if left else (2, 11, "read_only", "read_only"))


async def whole(path):
    store = SqliteStore(path)
    for session in ("hurt", "well"):
        await read_journal(store, session)
    await store.close()
    return True


def test_a_full_disk_ends_the_run_and_leaves_the_file_whole(path):
    async def fill():
        store = SqliteStore(path)
        connection = store._group.connection()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        result = await fly(store, "big", turns=18)
        await store.close()
        return result

    result = asyncio.run(fill())
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "full")
    assert result.text
    assert asyncio.run(whole(path))

    async def go_on():
        store = SqliteStore(path)
        agent = Agent(model=ScriptedModel([say("there is room again")]), tools=[act], store=store, unbounded=True)
        result = await agent.resume("big")
        await store.close()
        return result

    assert asyncio.run(go_on()).text == "there is room again"


@pytest.mark.parametrize("released", [True, False])
def test_a_locked_database_is_waited_for_without_stopping_the_loop(path, released):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1
            if released and ticks == 4:
                other.execute("ROLLBACK")

    async def scene():
        ticking = asyncio.create_task(tick())
        store = SqliteStore(path, busy=60.0 if released else 1.0)
        result = await fly(store, "patient")
        ticking.cancel()
        await store.close()
        return result

    result = asyncio.run(scene())
    other.close()
    if released:
        assert result.outcome is LoopOutcome.DONE
    else:
        assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "locked")
    assert ticks >= 4  # others had their turn meanwhile


# --- files --------------------------------------------------------------------------------------------------------


def test_an_export_is_readable_and_comes_back_whole(path):
    async def look():
        store, other = SqliteStore(path), MemoryStore()
        data = await export_journal(store, "well")
        assert data.count(b"\n") == 1 + (await store.load("well"))[0].head
        assert b"all done" in data
        assert await import_journal(other, data) == "well"
        kept, came = [(await read_journal(one, "well")).folded.result for one in (store, other)]
        assert all(message.origins == (IMPORTED,) for message in came.messages if message.role != "assistant")
        assert replace(came, messages=(), new_messages=()) == replace(kept, messages=(), new_messages=())
        assert [message.text for message in came.messages] == [message.text for message in kept.messages]
        again = await export_journal(other, "well")
        assert again.splitlines()[1:-1] == data.splitlines()[1:]  # all of it, and then that it was imported
        with pytest.raises(StoreError) as caught:
            await import_journal(other, data)
        assert caught.value.kind == "conflict"
        assert await import_journal(other, data, session_id="copy") == "copy"
        await store.close()
        return data

    data = asyncio.run(look())
    lines = data.splitlines(keepends=True)
    gone = data.replace(b"all done", b"all gone")
    for wrong in (b"", b"{}", b"\xff\xfe", lines[0], b"".join(lines[:-1]), gone, data[:-9]):
        with pytest.raises(StoreError) as caught:
            asyncio.run(import_journal(MemoryStore(), wrong))
        assert caught.value.kind in ("damaged", "schema")


def test_prune_removes_what_is_old_and_done(path):
    async def look():
        store = SqliteStore(path)
        lease = await store.claim("held", "somebody|1|2|3")
        assert await prune(store, older_than=3600) == []
        gone = await prune(store, older_than=-1)
        assert sorted(gone) == ["hurt", "well"]
        assert [entry.session_id for entry in await store.entries()] == ["held"]
        await store.release(lease)
        await store.close()

    asyncio.run(look())
