"""A store with a bit of everything in it, and somebody who breaks it, in ways that follow from a seed."""

import asyncio
import contextlib
import os
import random
import resource
import shutil
import sqlite3

from glidepath import Agent, Budget, Limits, approve, tool
from glidepath.errors import ConfigurationError, StoreError
from glidepath.sessions import (
    SqliteStore,
    export_journal,
    find_sessions,
    fork,
    import_journal,
    prune,
    read_journal,
    repair,
    rewind,
)
from glidepath.spi import SessionQuery
from glidepath.testing import ScriptedModel, call, calls, say

LIMITS = Limits(max_iterations=9)
NAMES = ("done", "paused", "crashed", "parent", "forked", "copy", "tagged")
WHOLE = []
"""What the journal of `crashed` was before its end was cut off; who loses the cut and the index finds that."""
TYPED = (StoreError, ConfigurationError)


@tool
async def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


@tool(requires_approval=True)
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def agent(store, *turns, **fields):
    return Agent(model=ScriptedModel(list(turns)), tools=[look, pay], limits=LIMITS, store=store, **fields)


async def fill(store):
    """Sessions that are done, paused, crashed in a call, with a child, forked, imported and tagged; a wallet."""
    await agent(store, call("look", n=1), calls(call("look", n=2), call("look", n=3)), say("x")).run(
        "a", session="done"
    )
    await agent(store, call("look", n=1), call("pay", to="ann")).run("b", session="paused")
    child = agent(None, call("look", n=7), say("inner"), agent_name="helper")
    inside = child.as_tool("helper", "Helps.")
    parent = Agent(
        model=ScriptedModel([call("helper", prompt="dig"), say("outer")]), tools=[inside], limits=LIMITS, store=store
    )
    await parent.run("c", session="parent")
    await _crash(store)
    await fork(store, "done", at=2, name="forked")
    await import_journal(store, await export_journal(store, "parent"), session_id="copy")
    await agent(store, say("y")).run("d", session="tagged")
    await store.annotate("tagged", title="a title", tags=["june", "vip"])
    budget = Budget(Limits(max_tokens=100_000), name="customer:1", store=store)
    await agent(store, call("look", n=1), say("z")).run("e", session="done", parent=budget)


async def _crash(store):
    """A run whose process died in its second call: the journal ends there, and nobody has the lease."""

    flown = agent(store, call("look", n=1), call("look", n=2), call("look", n=3), say("x"))
    await flown.run("f", session="crashed")
    _, commits = await store.load("crashed")
    WHOLE[:] = [one.hash for one in commits]
    lease = await store.claim("crashed", "vandal")
    kept = commits[-4]
    await store.cut(lease, kept.number, kept.hash)
    await store.release(lease)


def opened(kind, folder):
    return SqliteStore(folder / "s.db")


def make(kind, folder):
    """Make the store; what is in every journal, by session."""

    async def scene():
        store = opened(kind, folder)
        await fill(store)
        known = {}
        for entry in await store.entries():
            known[entry.session_id] = [one.hash for one in (await store.load(entry.session_id))[1]]
        shutil.copytree(folder, f"{folder}-killed")  # as a process that dies here leaves it
        await store.close()
        return known

    folder.mkdir(parents=True)
    return asyncio.run(scene())


# --- breaking things -----------------------------------------------------------------------------------------------


def files_of(kind, folder):
    if kind == "sqlite":
        return [one for one in sorted(folder.iterdir()) if one.name.startswith("s.db") and one.is_file()]
    return [one for one in sorted((folder / "s").rglob("*")) if one.is_file()]


def _flip(rng, path):
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 8])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _smear(rng, path):
    data = bytearray(path.read_bytes())
    begin, length = rng.randrange(len(data) + 1), rng.choice([1, 16, 512, 5_000])
    fill = rng.choice([bytes, rng.randbytes, lambda n: b"\xff" * n])
    data[begin : begin + length] = fill(len(data[begin : begin + length]))
    path.write_bytes(data)


def _cut(rng, path):
    os.truncate(path, rng.randrange(path.stat().st_size + 1))


def _grow(rng, path):
    with path.open("ab") as file:
        file.write(rng.choice([b"\0" * 100, rng.randbytes(300), path.read_bytes()[:400]]))


def _remove(_, path):
    path.unlink()


def _replace(rng, path):
    path.write_bytes(rng.choice([b"", b"hello", rng.randbytes(5_000), b"SQLite format 3\0" + rng.randbytes(4_080)]))


def _folder(_, path):
    path.unlink()
    path.mkdir()


def _dangle(_, path):
    path.unlink()
    path.symlink_to("/nowhere/at/all")


def _shuffle(rng, path):
    """Pages of a database, or pieces of a file, in another order."""
    data, size = path.read_bytes(), rng.choice([64, 512, 4_096])
    pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
    if len(pieces) > 1:
        a, b = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        pieces[a], pieces[b] = pieces[b], pieces[a]
    path.write_bytes(b"".join(pieces))


def _edit(rng, path):
    """What a person does who knows SQL."""
    statements = (
        "UPDATE sessions SET head = head + 3",
        "UPDATE sessions SET hash = x'00'",
        "UPDATE sessions SET id = id || 'x'",
        "UPDATE sessions SET summary = '{'",
        "UPDATE sessions SET summary = '[1]'",
        "UPDATE sessions SET token = 'many'",
        "UPDATE sessions SET expires = 1e300, owner = 'somebody:1:else'",
        "UPDATE commits SET body = 'text'",
        "DELETE FROM commits WHERE rowid % 3 = 0",
        "DELETE FROM places",
        "UPDATE indexed SET seq = 1",
        "DROP TABLE commits",
        "PRAGMA user_version = 99",
        "DELETE FROM sessions",
    )
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(rng.choice(statements))
        connection.commit()


DAMAGES = (_flip, _flip, _smear, _cut, _grow, _remove, _replace, _folder, _dangle, _shuffle, _edit)


def damage(rng, kind, folder):
    """Break one to three things; what was done, for whoever reads a failure."""
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        files = [one for one in files_of(kind, folder) if not one.is_symlink()]
        if not files:
            break
        path, how = rng.choice(files), rng.choice(DAMAGES)
        if how is _edit and path.suffix != ".db" and path.name != "index.db":
            how = _flip
        how(rng, path)
        done.append(f"{how.__name__} {path.name}")
    return done


def largest(kind, folder):
    """The size of the largest file."""
    return max([one.stat().st_size for one in files_of(kind, folder) if not one.is_symlink()], default=0)


@contextlib.contextmanager
def little_room(size, room):
    """No file of this process grows beyond so many bytes more than the largest has; None: all it wants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- using it all the same -----------------------------------------------------------------------------------------


async def _show(store, name):
    await read_journal(store, name)


async def _search(store, name):
    await find_sessions(store, SessionQuery(text=name[:3], roots=False, limit=3))


async def _list(store, _):
    await store.entries()


async def _prompt(store, name):
    await agent(store, call("look", n=5), say("ok")).run("go on", session=name)


async def _resume(store, name):
    await agent(store, call("look", n=5), say("ok")).resume(name)


async def _decide(store, name):
    await agent(store, say("ok")).resume(name, decisions={"call_2": approve()})


async def _fork(store, name):
    await fork(store, name, at=1)


async def _rewind(store, name):
    await rewind(store, name, at=1)


async def _export(store, name):
    await export_journal(store, name)


async def _repair(store, name):
    await repair(store, name)


async def _delete(store, name):
    await store.remove_many([name])


async def _prune(store, _):
    await prune(store, older_than=0)


async def _annotate(store, name):
    await store.annotate(name, tags=["new"])


async def _stop(store, name):
    await store.flag(name, "enough")


async def _spend(store, _):
    budget = Budget(Limits(max_tokens=100_000), name="customer:1", store=store)
    await agent(store, say("z")).run("more", session="spender", parent=budget)


ON_ONE = (_show, _search, _prompt, _resume, _decide, _fork, _rewind, _export, _repair, _annotate, _stop, _delete)
ACTS = (*ON_ONE, _list, _prune, _spend)
COMMANDS = (
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("sessions", "search", "a"),
    ("sessions", "show", "{}"),
    ("sessions", "tag", "{}", "--add", "x"),
    ("sessions", "fork", "{}", "--at", "1"),
    ("sessions", "export", "{}"),
    ("sessions", "delete", "{}"),
    ("sessions", "delete", "--older-than", "1d", "--state", "any"),
    ("runs", "list", "--children"),
    ("runs", "show", "{}"),
    ("runs", "show", "{}", "--json"),
    ("runs", "show", "{}", "--plot"),
    ("runs", "repair", "{}"),
    ("runs", "stop", "{}"),
    ("runs", "prune", "--days", "0"),
    ("runs", "replay", "{}", "--model", "python:flights:hello"),
    ("fork", "{}"),
    ("resume", "{}", "--model", "python:flights:hello", "--accept-repair"),
    ("resume", "--last", "--model", "python:flights:hello"),
    ("run", "more", "--resume", "{}", "--model", "python:flights:hello"),
    ("wallets", "list"),
)


def pristine(folder):
    """Copies of one store, so that it is made only once."""
    made = {}

    def copied(kind, target, *, killed):
        if kind not in made:
            made[kind] = make(kind, folder / kind)
        shutil.copytree(folder / (f"{kind}-killed" if killed else kind), target)
        return made[kind]

    return copied


def chooser(seed):
    return random.Random(f"vandal {seed}")
