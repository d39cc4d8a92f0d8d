"""Whatever is done to the files of a store: a typed error or a result, in bounded time, and nothing is made up."""

import asyncio
import contextlib
import os
import time

import asyncpg
import pytest
from tests.cli.shell_user import glidepath

from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, PostgresStore, export_journal, import_journal, read_journal

from . import vandal
from .postgres import fresh_schema

CI, CAMPAIGN, PART = 40, 1_000, 50
MOST_SECONDS = 10  # of CPU, for everything that is tried on one store


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    return vandal.pristine(tmp_path_factory.mktemp("pristine"))


async def use(rng, kind, folder, known, said):
    """Read what is there, then do some things with it."""
    store = vandal.opened(kind, folder)
    try:
        for name in known:
            try:
                journal = await read_journal(store, name)
            except vandal.TYPED:
                continue
            found = [one.hash for one in journal.commits]
            was = [known[name], vandal.WHOLE] if name == "crashed" else [known[name]]
            assert found in [one[: len(found)] for one in was], (said, name, "a journal that reads well is another one")
        room = rng.choice([None, None, None, rng.randrange(6_000)])
        with vandal.little_room(vandal.largest(kind, folder), room):
            said.append(f"room for {room}")
            await acts(store, rng, said)
    finally:
        with contextlib.suppress(StoreError):
            await store.close()


async def acts(store, rng, said):
    for _ in range(4):
        act, name = rng.choice(vandal.ACTS), rng.choice([*vandal.NAMES, "nobody"])
        said.append(f"{act.__name__} {name}")
        with contextlib.suppress(*vandal.TYPED):
            await act(store, name)


def vandalize(seed, kind, folder, copied):
    rng = vandal.chooser(seed)
    known = copied(kind, folder, killed=rng.random() < 0.5)
    said = vandal.damage(rng, kind, folder)
    began = time.process_time()
    try:
        asyncio.run(use(rng, kind, folder, known, said))
        for _ in range(2):
            words = rng.choice(vandal.COMMANDS)
            name = rng.choice([*vandal.NAMES, "nobody"])
            words = [word.replace("{}", name) for word in words]
            said.append(" ".join(words))
            where = "sqlite:s.db"
            environ = {"XDG_DATA_HOME": str(folder / "data"), "HOME": str(folder)}
            ran = glidepath(*words, "--store", where, folder=folder, environ=environ)
            assert ran.code in (0, 1, 2, 3, 4, 5, 6), (said, ran)
            assert "Traceback" not in ran.err + ran.out, (said, ran)
    except AssertionError:
        raise
    except BaseException as error:
        raise AssertionError((seed, said)) from error
    assert time.process_time() - began < MOST_SECONDS, said


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_damaged_store_is_typed_errors_or_results(kind, tmp_path, copied):
    for seed in range(CI // 2):
        vandalize(seed, kind, tmp_path / str(seed), copied)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(CAMPAIGN // PART))
@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_damaged_store_is_typed_errors_or_results_in_a_campaign(kind, part, tmp_path, copied):
    first = int(os.environ.get("GLIDEPATH_FIRST_SEED", "1000")) + part * PART
    for seed in range(first, first + PART):
        vandalize(seed, kind, tmp_path / str(seed), copied)


def break_file(rng, data):
    """An exported file, as somebody else has changed it."""
    lines = data.splitlines(keepends=True)
    how = rng.randrange(7)
    if how == 0:
        return data[: rng.randrange(len(data))]
    if how == 1:
        place = rng.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]
    if how == 2:
        del lines[rng.randrange(len(lines))]
    elif how == 3:
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
    elif how == 4:
        added = rng.choice([b"\n", b"[]\n", b"{}\n", b"[" * 5_000 + b"\n", b"null\n"])
        lines.insert(rng.randrange(len(lines)), added)
    elif how == 5:
        lines *= 2
    else:
        return rng.choice([b"", b"\xff\xfe", b"PK\x03\x04", rng.randbytes(2_000)])
    return b"".join(lines)


def test_a_file_that_somebody_changed_is_refused_or_imported_whole(tmp_path, copied):
    """What is taken in can be read, resumed and given a prompt; what is refused leaves nothing behind."""

    copied("sqlite", tmp_path / "s", killed=False)

    async def scene():
        source = vandal.opened("sqlite", tmp_path / "s")
        files = [await export_journal(source, name) for name in ("parent", "paused", "crashed", "forked")]
        await source.close()
        taken = 0
        for seed in range(150):
            rng, store = vandal.chooser(seed), MemoryStore()
            data = break_file(rng, rng.choice(files))
            try:
                name = await import_journal(store, data)
            except vandal.TYPED:
                assert not await store.entries(), (seed, "half of it was left")
                continue
            taken += 1
            await read_journal(store, name)
            with contextlib.suppress(*vandal.TYPED):
                await vandal._resume(store, name)
            await vandal._prompt(store, name)
        assert taken < 75

    asyncio.run(scene())


ITS = "session = (SELECT key FROM glidepath_sessions WHERE id = '{}')"
EDITS = (
    "UPDATE glidepath_sessions SET head = head + 3 WHERE id = '{}'",
    "UPDATE glidepath_sessions SET head = 1 WHERE id = '{}'",
    "UPDATE glidepath_sessions SET hash = '\\x00' WHERE id = '{}'",
    "UPDATE glidepath_sessions SET summary = '[1]' WHERE id = '{}'",
    "UPDATE glidepath_sessions SET summary = '\\xff' WHERE id = '{}'",
    "UPDATE glidepath_commits SET body = '[[1]]' WHERE {ITS}",
    "UPDATE glidepath_commits SET hash = '' WHERE number = 2 AND {ITS}",
    "DELETE FROM glidepath_commits WHERE number = 3 AND {ITS}",
    "DELETE FROM glidepath_commits WHERE {ITS}",
    "DELETE FROM glidepath_catalog WHERE id = '{}'",
    "DELETE FROM glidepath_sessions WHERE id = '{}'",
)


def test_rows_that_somebody_changed_in_postgresql_are_typed_errors_or_results():
    async def scene():
        dsn = fresh_schema()
        store = PostgresStore(dsn)
        line = await asyncpg.connect(dsn)
        try:
            for number, edit in enumerate(EDITS):
                name = f"s{number}"
                await vandal.agent(store, vandal.call("look", n=1), vandal.say("x")).run("a", session=name)
                known = [one.hash for one in (await store.load(name))[1]]
                await line.execute(edit.replace("{ITS}", ITS).format(name))
                with contextlib.suppress(*vandal.TYPED):
                    journal = await read_journal(store, name)
                    assert [one.hash for one in journal.commits] == known[: len(journal.commits)], edit
                for act in vandal.ON_ONE:
                    with contextlib.suppress(*vandal.TYPED):
                        await act(store, name)
        finally:
            await line.close()
            await store.close()

    asyncio.run(scene())
