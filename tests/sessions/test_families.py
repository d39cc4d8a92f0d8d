"""Export and import take whole families, and the id under which something is imported is its id everywhere."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.errors import StoreError
from glidepath.sessions import (
    MemoryStore,
    SqliteStore,
    annotate,
    export_journal,
    find_sessions,
    import_journal,
    parse_export,
    read,
    read_journal,
)
from glidepath.spi import Commit
from glidepath.testing import ScriptedModel, call, say

LIMITS = Limits(max_iterations=9)


@tool
async def note(session_id: str) -> str:
    """Note an id that is no session of ours."""
    return f"noted {session_id}"


def grandparent(store):
    kid = Agent(model=ScriptedModel().forever(say("kid done")), limits=LIMITS, agent_name="kid")
    son = Agent(
        model=ScriptedModel([call("kid", task="dig"), say("son done")]),
        tools=[kid.as_tool("kid", "Digs.")],
        limits=LIMITS,
        agent_name="son",
    )
    return Agent(
        model=ScriptedModel([call("note", session_id="s"), call("son", task="dig"), say("all done")]),
        tools=[note, son.as_tool("son", "Digs deeper.")],
        limits=LIMITS,
        store=store,
    )


async def exported():
    store = MemoryStore()
    result = await grandparent(store).run("go", session="s")
    await annotate(store, "s", title="Dig", tags=["spade"])
    return result, await export_journal(store, "s")


def ids(data, key):
    """Every value of this key, anywhere in these records."""
    found = []
    if isinstance(data, dict):
        for name, value in data.items():
            found += [value] if name == key else ids(value, key)
    elif isinstance(data, list):
        for value in data:
            found += ids(value, key)
    return found


def test_a_family_is_imported_under_its_own_id_or_under_another(tmp_path):
    from glidepath import _wire

    async def scene():
        result, data = await exported()
        store = SqliteStore(tmp_path / "s.db")
        for name in (None, "copy"):
            new = await import_journal(store, data, session_id=name)
            page = await find_sessions(store, roots=False, prefix=new)
            assert sorted(entry.session_id for entry in page.sessions) == [
                new,
                f"{new}/call_2.1",
                f"{new}/call_2.1/call_1.1",
            ]
            for entry in page.sessions:
                journal = await read_journal(store, entry.session_id)
                parent = entry.session_id.rpartition("/")[0]
                assert (entry.summary["parent"] or {}).get("session_id", "") == parent
                assert journal.folded.session.id == journal.folded.result.session_id == entry.session_id
                records = [_wire.loads(record.payload) for commit in journal.commits for record in read(commit)]
                named = {one for one in ids(records, "session_id") if one != "s" or name is None}
                assert all(one == new or one.startswith(f"{new}/") for one in named), named
            again = await grandparent(store).resume(new)
            assert (again.text, again.session_id) == (result.text, new)
            assert [child.session_id for child in again.children] == [f"{new}/call_2.1"]
            assert [m.text for m in again.messages] == [m.text for m in result.messages]  # "noted s", too
            (root,) = (await find_sessions(store, tag="spade", prefix=new)).sessions
            assert (root.title, root.tags) == ("Dig", ("spade",))
        await store.close()

    asyncio.run(scene())


def test_what_is_exported_again_has_the_same_content():
    async def scene():
        _, data = await exported()
        store = MemoryStore()
        await import_journal(store, data)
        lines = [line for line in (await export_journal(store, "s")).splitlines() if b'"imported"' not in line]
        old = [line for line in data.splitlines() if b'"format"' not in line]
        assert [line for line in lines if b'"format"' not in line] == old

    asyncio.run(scene())


def test_the_damaged_one_of_a_family_is_named():
    async def scene():
        store = MemoryStore()
        await grandparent(store).run("go", session="s")
        (child,) = [entry.session_id for entry in await store.entries() if entry.session_id.count("/") == 2]
        commits = store._shelves[child].commits
        commits[1] = Commit(2, commits[1].body.replace(b"a", b"b", 1), commits[1].hash)
        for ask in (export_journal(store, "s"), store.fork("s")):
            with pytest.raises(StoreError, match=f"session '{child}' is damaged: commit 2 was changed.*`repair`"):
                await ask

    asyncio.run(scene())


def test_a_copy_that_was_cut_short_is_not_exported_as_a_whole_one():
    async def scene():
        _, data = await exported()
        store = MemoryStore()
        lease = await store.claim("s", "somebody")
        ((_, commits), *_) = parse_export(data)
        store.append(lease, commits[0], summary={"importing": True})
        await store.release(lease)
        with pytest.raises(StoreError, match="session 's' is an unfinished copy"):
            await export_journal(store, "s")

    asyncio.run(scene())


def test_a_new_prompt_in_a_copy_is_the_copys():
    async def scene():
        _, data = await exported()
        store = MemoryStore()
        await import_journal(store, data, session_id="copy")
        again = Agent(model=ScriptedModel([say("more")]), limits=LIMITS, store=store)
        result = await again.run("and now?", session="copy")
        assert (result.session_id, result.outcome) == ("copy", LoopOutcome.DONE)
        assert len(result.messages) == 8

    asyncio.run(scene())


def test_an_import_that_meets_a_child_of_the_same_name_changes_nothing():
    async def scene():
        _, data = await exported()
        store = MemoryStore()
        await import_journal(store, data)
        await store.remove("s")
        with pytest.raises(StoreError, match=r"'s/call_2\.1' is already in this store") as caught:
            await import_journal(store, data)
        assert caught.value.kind == "conflict"
        assert [entry.session_id for entry in await store.entries()] == ["s/call_2.1/call_1.1", "s/call_2.1"]

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[: data.rindex(b'{"format"')], "2 journals and says that it has 3"),
        (lambda data: data.replace(b'"session_id":"s/call_2.1/call_1.1","head"', b'"session_id":"x","head"'), "'x'"),
        (lambda data: data + data[data.rindex(b'{"format"') :], "4 journals and says that it has 3"),
        (lambda data: data[:-40], "not an exported journal, or not a whole one: line"),
        (lambda data: data.replace(b"kid done", b"kid d0ne"), "was changed"),
        (lambda data: data.replace(b'"spade"', b'"sp ade"'), "tag 'sp ade' contains ' '"),
        (lambda data: b"", "not an exported journal"),
        (lambda data: b"\xff\xfe\x00", "not an exported journal"),
        (lambda data: b'{"format":"tar","schema":1,"session_id":"s","head":0,"hash":""}', "format in line 1 is 'tar'"),
        (lambda data: data.replace(b'"schema":1', b'"schema":99', 1), "schema version 99"),
    ],
    ids=["cut", "stranger", "twice", "torn", "changed", "odd tag", "empty", "binary", "other format", "newer"],
)
def test_a_file_that_was_spoilt_is_refused_whole(change, said):
    async def scene():
        _, data = await exported()
        store = MemoryStore()
        with pytest.raises((StoreError, ConfigurationError), match=said):
            await import_journal(store, change(data))
        assert list(await store.entries()) == []

    asyncio.run(scene())


def rechained(data, change):
    """An export as whoever can write JSON makes it: `change(number, body)` of every commit of its first journal."""
    from glidepath import _wire
    from glidepath.sessions import hash_commit

    first, *rest = data.splitlines()
    header, before, lines = _wire.loads(first), b"", []
    for line in rest[: header["head"]]:
        told = _wire.loads(line)
        body = change(told["commit"], _wire.encode(told["records"]))
        before = hash_commit(before, told["commit"], body)
        lines.append(b'{"commit":%d,"hash":"%s","records":%s}' % (told["commit"], before.hex().encode(), body))
    header |= {"hash": before.hex(), "family": 1}
    return b"\n".join([_wire.encode(header), *lines]) + b"\n"


DEEP = b"[" * 20_000 + b"]" * 20_000


@pytest.mark.parametrize(
    "payload",
    [
        b'"zzz",' + DEEP,
        b'"opened",' + DEEP,
        b'"base",' + DEEP,
        b'"base",{"count":"x"}',
        b'"charged",[1]',
        b'"child",7',
        b'"forked",{"session_id":7}',
        b'"quarantine",{"first":"x"}',
        b'"redacted","x"',
        b'"ended",{"children":{}}',
    ],
    ids=lambda payload: payload[:24].decode().replace('"', ""),
)
@pytest.mark.parametrize("name", [None, "other"])
def test_a_record_that_cannot_be_read_keeps_the_file_out(payload, name):
    async def scene():
        _, data = await exported()
        forged = rechained(
            data, lambda number, body: body[:-1] + b",[999,1.0," + payload + b"]]" if number == 2 else body
        )
        store = MemoryStore()
        with pytest.raises(StoreError) as caught:
            await import_journal(store, forged, session_id=name)
        assert caught.value.kind == "damaged"
        assert list(await store.entries()) == []

    asyncio.run(scene())
