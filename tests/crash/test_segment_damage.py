"""What can happen to the files of a segment store: each damage is noticed, nothing else is lost."""

import asyncio
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions import SegmentStore
from glidepath.sessions.archive import list_runs, read_journal, repair
from glidepath.sessions.chain import link
from glidepath.sessions.frames import Frame, Kind, packed, salt_of, scan
from glidepath.sessions.owner import this_owner
from glidepath.spi.session_catalog import SessionQuery
from glidepath.spi.sessions import Note
from glidepath.testing import ScriptedModel, call, say

HOST = this_owner().partition("|")[0]
DEAD = f"{HOST}|{2**22 + 1}|1|cafe"


@tool
async def act(n: int) -> str:
    return f"done {n}"


def agent_on(store, *script):
    return Agent(model=ScriptedModel(list(script)), tools=[act], store=store, limits=Limits(max_iterations=20))


async def fly(store, session="s", turns=4):
    script = [*(call("act", n=n) for n in range(turns)), say("all done")]
    return await agent_on(store, *script).run("go", session=session)


@pytest.fixture(scope="module")
def model_store(tmp_path_factory):
    """A store with two sessions, flown side by side, and one that its process left in the middle."""
    path = tmp_path_factory.mktemp("model") / "sessions"

    async def fill():
        store = SegmentStore(path)
        await asyncio.gather(fly(store, "hurt"), fly(store, "well"))
        await store.close()

    asyncio.run(fill())
    return path


@pytest.fixture
def path(model_store, tmp_path):
    shutil.copytree(model_store, tmp_path / "sessions")
    return tmp_path / "sessions"


def segment(path):
    (found,) = (path / "segments").iterdir()
    return found


def frames_of(path, session="hurt"):
    """The frames of a session, in order."""
    file = segment(path)
    store = store_id(path)
    with closing(sqlite3.connect(path / "index.db")) as index, index:
        (key,) = index.execute("SELECT key FROM sessions WHERE id = ?", (session,)).fetchone()
    index.close()
    found = scan(file.read_bytes(), salt_of(store, int(file.stem))).found
    return [item for item in found if type(item) is Frame and item.key == key]


def store_id(path):
    import json

    return json.loads((path / "STORE").read_text())["store"]


def commit(path, number, session="hurt"):
    return next(item for item in frames_of(path, session) if item.kind == Kind.COMMIT and item.number == number)


def lose_index(path):
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        (path / name).unlink(missing_ok=True)


def change(path, at, flip=0xFF):
    file = segment(path)
    data = bytearray(file.read_bytes())
    data[at] ^= flip
    file.write_bytes(data)


def flip_a_body(path):
    frame = commit(path, 6)
    change(path, frame.end - 5)


def flip_a_header(path):
    change(path, commit(path, 6).at + 20)


def zero_a_page(path):
    frame, file = commit(path, 6), segment(path)
    data = bytearray(file.read_bytes())
    data[frame.at : frame.end] = bytes(frame.end - frame.at)
    file.write_bytes(data)


def lose_the_middle(path):
    frame, file = commit(path, 6), segment(path)
    data = file.read_bytes()
    file.write_bytes(data[: frame.at] + data[frame.end :])


async def commits_of(path, session):
    """The commits of a session, or the kind of error that is told instead."""
    store = SegmentStore(path)
    try:
        await list_runs(store)
        return (await read_journal(store, session)).commits
    except StoreError as error:
        return error.kind
    finally:
        await store.close()


DAMAGES = [flip_a_body, flip_a_header, zero_a_page, lose_the_middle]


@pytest.mark.parametrize("lost", [False, True], ids=["index kept", "index lost"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_broken_commit_is_told_and_repaired_and_the_rest_is_whole(path, damage, lost):
    truth = asyncio.run(commits_of(path, "well"))
    damage(path)
    if lost:
        lose_index(path)

    async def look():
        store = SegmentStore(path)
        with pytest.raises(StoreError, match=r"damaged.*repair") as caught:
            await read_journal(store, "hurt")
        assert caught.value.kind == "damaged"
        result = await fly(store, "hurt")
        assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "damaged")
        if damage is not lose_the_middle or lost:  # else every place behind it has moved
            assert (await read_journal(store, "well")).commits == truth
        assert {entry.session_id for entry in await list_runs(store)} == {"hurt", "well"}
        repaired = await repair(store, "hurt")
        assert (repaired.kept, bool(repaired.dropped), bool(repaired.reason)) == (5, True, True)
        assert (await repair(store, "hurt")).reason == ""
        assert (await agent_on(store, say("found my way")).resume("hurt", accept_repair=True)).text == "found my way"
        await store.close()

    asyncio.run(look())
    before = asyncio.run(commits_of(path, "hurt"))
    assert not isinstance(before, str)
    lose_index(path)
    assert asyncio.run(commits_of(path, "hurt")) == before


def test_places_that_have_moved_are_found_when_the_index_is_made_anew(path):
    truth = asyncio.run(commits_of(path, "well"))
    lose_the_middle(path)
    assert asyncio.run(commits_of(path, "well")) in ("damaged", truth)
    lose_index(path)
    assert asyncio.run(commits_of(path, "well")) == truth


@pytest.mark.parametrize("lost", [False, True], ids=["index kept", "index lost"])
@pytest.mark.parametrize("flip", [0xFF, 0x01])
def test_a_flipped_byte_anywhere_is_told_or_does_no_harm(path, tmp_path, flip, lost):
    truth = {session: asyncio.run(commits_of(path, session)) for session in ("hurt", "well")}
    if lost:
        lose_index(path)
    kept, found = tmp_path / "kept", set()
    shutil.copytree(path, kept)
    size = segment(path).stat().st_size
    chance = random.Random(flip)
    for at in sorted(chance.sample(range(size), 40)):
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        change(path, at, flip)
        for session, commits in truth.items():
            seen = asyncio.run(commits_of(path, session))
            found.add(seen if isinstance(seen, str) else "whole")
            assert isinstance(seen, str) or seen == commits, (at, session)
            if seen == "missing":  # its name is what was hurt: it is kept under another
                assert asyncio.run(commits_of(path, next(iter(unnamed(path))))) == "damaged"
    assert {"whole", "damaged"} <= found <= {"whole", "damaged", *(["missing"] if lost else [])}


def unnamed(path):
    return {name for name in everything(path) if name.startswith("unnamed-")}


def test_a_session_whose_name_was_hurt_is_kept_under_another(path):
    truth = asyncio.run(commits_of(path, "hurt"))
    claim = next(item for item in frames_of(path) if item.kind == Kind.CLAIM)
    change(path, claim.end - 3)
    lose_index(path)
    (name,) = unnamed(path)

    async def look():
        store = SegmentStore(path)
        assert (await repair(store, name)).kept == len(truth)
        assert (await store.load(name))[1][: len(truth)] == truth
        await store.close()

    asyncio.run(look())


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_segment_that_was_cut_short_is_damaged_while_the_index_knows_better(path, part):
    truth = {session: asyncio.run(commits_of(path, session)) for session in ("hurt", "well")}
    file = segment(path)
    os.truncate(file, int(file.stat().st_size * part))
    found = {session: asyncio.run(commits_of(path, session)) for session in truth}
    assert "damaged" in found.values()
    assert all(seen in ("damaged", truth[session]) for session, seen in found.items())


def test_a_segment_that_was_removed_or_replaced_is_damaged(path):
    file = segment(path)
    data = file.read_bytes()
    file.unlink()
    assert asyncio.run(commits_of(path, "hurt")) == "damaged"
    file.write_bytes(os.urandom(len(data)))
    assert asyncio.run(commits_of(path, "hurt")) == "damaged"
    lose_index(path)
    file.write_bytes(data)
    file.rename(file.with_name("00000009.seg"))  # that of another number
    assert asyncio.run(commits_of(path, "hurt")) == "missing"  # nothing in it is ours, and nothing is made up


# --- the index and the table --------------------------------------------------------------------------------------


def everything(path):
    async def look():
        store = SegmentStore(path)
        found = {}
        for entry in await store.entries():
            found[entry.session_id] = (
                *(entry.head, entry.hash, entry.owner, entry.updated, dict(entry.summary)),
                (await store.load(entry.session_id))[1],
            )
        await store.close()
        return found

    return asyncio.run(look())


def garbage(path):
    (path / "index.db").write_bytes(b"not a database at all, but long enough to be looked at" * 100)


def empty(path):
    (path / "index.db").write_bytes(b"")


def of_another_store(path):
    with closing(sqlite3.connect(path / "index.db")) as index, index:
        index.execute("UPDATE meta SET value = 'another' WHERE name = 'store'")
    index.close()


def without_tables(path):
    with closing(sqlite3.connect(path / "index.db")) as index, index:
        index.execute("DROP TABLE parts")
        index.execute("DROP TABLE sessions")
    index.close()


def cut_short(path):
    os.truncate(path / "index.db", (path / "index.db").stat().st_size // 2)


@pytest.mark.parametrize(
    "lose", [lose_index, garbage, empty, of_another_store, without_tables, cut_short], ids=lambda lose: lose.__name__
)
def test_an_index_that_is_lost_is_made_anew(path, lose):
    truth = everything(path)
    assert len(truth) == 2
    lose(path)
    assert everything(path) == truth
    assert asyncio.run(fly(SegmentStore(path), "well")).outcome is LoopOutcome.DONE


def test_a_flipped_byte_in_the_index_changes_no_journal(path, tmp_path):
    truth = everything(path)
    kept = tmp_path / "kept"
    shutil.copytree(path, kept)
    size = (path / "index.db").stat().st_size
    for at in random.Random(7).sample(range(size), 40):
        shutil.rmtree(path)
        shutil.copytree(kept, path)
        data = bytearray((path / "index.db").read_bytes())
        data[at] ^= 0xFF
        (path / "index.db").write_bytes(data)
        for session, found in truth.items():
            seen = asyncio.run(commits_of(path, session))
            assert seen in ("damaged", "missing", "unavailable") or seen == found[-1], (at, session, seen)


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 9000])
def test_a_table_of_leases_that_is_lost_locks_nobody_out(path, content):
    (path / "leases").unlink()
    if content is not None:
        (path / "leases").write_bytes(content)
    assert asyncio.run(fly(SegmentStore(path), "well")).outcome is LoopOutcome.DONE


def test_sessions_that_were_removed_stay_removed_when_the_index_is_made_anew(path):
    async def remove():
        store = SegmentStore(path)
        await store.remove("hurt")
        await fly(store, "hurt", turns=1)
        again = (await store.load("hurt"))[1]
        await store.remove("well")
        await store.close()
        return again

    again = asyncio.run(remove())
    lose_index(path)
    found = everything(path)
    assert set(found) == {"hurt"}
    assert found["hurt"][-1] == again


def test_a_stop_survives_the_loss_of_the_index(path):
    async def ask():
        store = SegmentStore(path)
        await store.flag("well", "enough")
        await store.close()

    async def look():
        store = SegmentStore(path)
        flag = (await store.load("well"))[0].flag
        await store.close()
        return flag

    asyncio.run(ask())
    lose_index(path)
    assert asyncio.run(look()) == "enough"


def test_notes_in_an_inbox_survive_the_loss_of_the_index(path):
    async def post():
        store = SegmentStore(path)
        for place in range(3):
            await store.post("well", Note(id=f"n{place}", kind="message", body=b'{"x":%d}' % place))
        await store.close()

    async def look():
        store = SegmentStore(path)
        found = await store.notes("well"), (await store.claim("well", DEAD)).mail
        await store.close()
        return found

    asyncio.run(post())
    before = asyncio.run(look())
    assert ([note.id for note in before[0]], before[1]) == (["n0", "n1", "n2"], 3)
    lose_index(path)
    assert asyncio.run(look()) == before


def test_titles_tags_and_what_is_searched_survive_the_loss_of_the_index(path):
    async def label():
        store = SegmentStore(path)
        await store.annotate("well", title="First", tags=["a"])
        await store.annotate("well", title="The Last", tags=["b", "c"])
        await store.annotate("hurt", tags=["b"])
        await store.close()

    async def look():
        store = SegmentStore(path)
        (entry,) = (await store.find(SessionQuery(text="last"))).sessions
        assert (entry.session_id, entry.title, entry.tags) == ("well", "The Last", ("b", "c"))
        found = {}
        for name, fields in {
            "tag": {"tag": "b"},
            "old tag": {"tag": "a"},
            "outcome": {"outcome": "done"},
            "id": {"text": "HURT"},
            "prefix": {"prefix": "w"},
        }.items():
            found[name] = sorted(one.session_id for one in (await store.find(SessionQuery(**fields))).sessions)
        await store.close()
        return found

    asyncio.run(label())
    before = asyncio.run(look())
    assert before == {
        "tag": ["hurt", "well"],
        "old tag": [],
        "outcome": ["hurt", "well"],
        "id": ["hurt"],
        "prefix": ["well"],
    }
    lose_index(path)
    assert asyncio.run(look()) == before


# --- what a dying process leaves ----------------------------------------------------------------------------------


def test_a_torn_end_is_dropped_and_the_run_goes_on(path):
    async def leave():
        store = SegmentStore(path)
        lease = await store.claim("torn", DEAD)
        first = link(b"", 1, 1, 1.0, [("note", {})])
        store.append(lease, first)
        own = store._desk.own
        os.write(own.fd, packed(own.salt, Kind.COMMIT, lease.key, lease.token, 2, body=b"x" * 500)[:300])
        return first

    first = asyncio.run(leave())
    for lost in (False, True):
        if lost:
            lose_index(path)
        store = SegmentStore(path)
        entry, commits = asyncio.run(store.load("torn"))
        assert (entry.head, list(commits)) == (1, [first])
        assert not isinstance(asyncio.run(commits_of(path, "well")), str)
        asyncio.run(store.close())


def test_a_session_in_flight_when_something_behind_it_broke_is_told_to_be_damaged(path):
    """Its owner died before the index was told, and nobody can say whose frame that was."""

    async def leave():
        store = SegmentStore(path)
        lease = await store.claim("in flight", DEAD)
        other = await store.claim("finished", DEAD)
        first = link(b"", 1, 1, 1.0, [("note", {})])
        second = link(first.hash, 2, 2, 1.0, [("note", {})])
        store.append(other, first)
        await store.release(other)
        store.append(lease, first)
        place = store._desk.own.end
        store.append(lease, second)  # this one is lost
        end = store._desk.own.end
        last = await store.claim("later", DEAD)
        store.append(last, first)
        return place, end

    place, end = asyncio.run(leave())
    lose_index(path)
    newest = max((path / "segments").iterdir())
    data = bytearray(newest.read_bytes())
    data[place:end] = bytes(end - place)
    newest.write_bytes(data)

    async def look():
        store = SegmentStore(path)
        with pytest.raises(StoreError) as caught:
            await read_journal(store, "in flight")
        assert caught.value.kind == "damaged"
        assert [len((await store.load(name))[1]) for name in ("finished", "later", "well")] == [1, 1, 11]
        lease = await store.claim("in flight", "me", create=False)  # as a run would
        assert lease.head == 2
        await store.release(lease)
        assert (await repair(store, "in flight")).kept == 1
        assert len((await read_journal(store, "in flight")).commits) == 2  # the last one says that it was repaired
        await store.close()

    asyncio.run(look())


# --- what is not ours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "kind"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (b"\xff\xfe", "damaged"),
        (b'{"format":"letters","layout":1,"store":"x"}', "damaged"),
        (b'{"format":"glidepath segments","layout":99,"store":"x"}', "newer"),
        (b'{"format":"glidepath segments","layout":0,"store":"x"}', "schema"),
        (b'{"format":"glidepath segments","layout":"1","store":"x"}', "damaged"),
    ],
)
def test_a_folder_of_another_version_is_refused_and_left_alone(path, marker, kind):
    (path / "STORE").write_bytes(marker)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    result = asyncio.run(fly(SegmentStore(path)))
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", kind)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_the_wallets_of_a_newer_folder_are_left_alone(path):
    (path / "STORE").write_bytes(b'{"format":"glidepath segments","layout":99,"store":"x"}')

    async def look():
        store = SegmentStore(path)
        for ask in (store.wallets(), store.overdue(), store.close_wallet("w"), store.wallet_rows()):
            with pytest.raises(StoreError) as caught:
                await ask
            assert caught.value.kind == "newer"

    asyncio.run(look())


def test_a_marker_that_is_lost_is_written_again(path):
    truth = everything(path)
    (path / "STORE").unlink()
    assert everything(path) == truth


def test_somebody_elses_folder_and_a_file_are_not_touched(tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "letter.txt").write_text("dear")
    result = asyncio.run(fly(SegmentStore(theirs)))
    assert "is not the folder of a store ('letter.txt')" in result.cause.reason
    assert [file.name for file in theirs.iterdir()] == ["letter.txt"]
    result = asyncio.run(fly(SegmentStore(theirs / "letter.txt")))
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "damaged")
    assert (theirs / "letter.txt").read_text() == "dear"
    result = asyncio.run(fly(SegmentStore(tmp_path / "no" / "such" / "folder")))
    assert result.cause.metrics["kind"] == "unavailable"


def test_reading_makes_nothing_and_an_empty_folder_becomes_a_store(tmp_path):
    async def look(where):
        store = SegmentStore(where)
        with pytest.raises(StoreError) as caught:
            await store.load("s")
        assert caught.value.kind == "missing"
        with pytest.raises(StoreError, match="there is no session store"):
            await store.entries()

    asyncio.run(look(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    asyncio.run(look(tmp_path / "empty"))
    assert asyncio.run(fly(SegmentStore(tmp_path / "empty"))).outcome is LoopOutcome.DONE


@pytest.mark.parametrize("wrong", ["", "  ", "a\0b", 7, None.__class__, b"bytes", Path])
def test_a_path_must_be_one(wrong):
    with pytest.raises(ConfigurationError, match="SegmentStore takes the path of a folder"):
        SegmentStore(wrong)


def test_a_session_id_that_is_no_unicode_is_missing(path):
    async def ask(act):
        store = SegmentStore(path)
        try:
            await act(store)
        finally:
            await store.close()

    for act_ in (lambda store: store.load("\udcff"), lambda store: store.claim("\udcff", "me")):
        with pytest.raises(StoreError, match="not valid Unicode") as caught:
            asyncio.run(ask(act_))
        assert caught.value.kind == "missing"
