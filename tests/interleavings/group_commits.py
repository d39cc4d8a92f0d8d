"""Group commit where the power fails, or the disk, or the lock: what was acknowledged is there, and in order.

As a program it is the life of a store that the power cuts are made of: `group_commits.py FOLDER MARKS SEED`.
"""

import asyncio
import hashlib
import os
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from glidepath.errors import StoreError
from glidepath.sessions import SqliteStore, sqlite_file
from glidepath.spi import Commit, Note
from glidepath.testing import SimulatedDisk

NAMES = ("s0", "s1", "s2", "s3")
SIZES = (10, 500, 90_000)
PASSES = 8  # of the loop, of each of which something may fail
NO_ANSWER = 20.0  # real seconds: a writer that is never told


def make_commit(number, text, size=10):
    body = f"{text} {'x' * size}".encode()
    return Commit(number, body, hashlib.sha256(body).digest()[:16])


async def write(store, lease, commit, durability):
    later = store.append(lease, commit, durability=durability)
    if later is not None:
        await later


# --- the power fails --------------------------------------------------------------------------------------------------


class Life:
    """Sessions of both durabilities in one transaction; every line in `marks` is a promise."""

    def __init__(self, folder, marks, seed):
        self.chance = random.Random(f"life {seed}")
        self.marks = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.store = SqliteStore(f"{folder}/sessions.db")
        self.heads = {}

    def mark(self, *words):
        os.write(self.marks, (" ".join(map(str, words)) + "\n").encode())

    async def commit(self, name, lease):
        durability = self.chance.choice(("sync", "full", "full"))
        self.heads[name] += 1
        commit = make_commit(self.heads[name], self.chance.random(), self.chance.choice(SIZES))
        words = (name, commit.number, commit.hash.hex())
        self.mark("TRY", *words)
        await write(self.store, lease, commit, durability)
        if durability == "full":
            self.mark("COMMIT", *words)

    async def live(self):
        chance = self.chance
        for _ in range(3):
            names = chance.sample(NAMES, chance.choice((1, 3)))
            leases = [await self.store.claim(name, f"owner of {name}") for name in names]
            self.heads = {name: lease.head for name, lease in zip(names, leases, strict=True)}
            for _ in range(chance.randint(2, 5)):
                await asyncio.gather(*[self.commit(*one) for one in zip(names, leases, strict=True)])
                if chance.random() < 0.5:
                    note = f"n{chance.random()}"
                    await self.store.post(names[0], Note(id=note, kind="message", body=b"1"))
                    self.mark("NOTE", names[0], note)
            for lease in leases:
                await self.store.release(lease)
        if chance.random() < 0.7:
            await self.store.close()


async def find_harm(folder, marks):
    """What is missing after a cut, or made up."""
    store, wrong = SqliteStore(f"{folder}/sessions.db"), []
    words = [mark.split() for mark in marks]
    tried = {(name, number, digest) for word, name, number, digest in [one for one in words if one[0] == "TRY"]}
    try:
        for name in NAMES:
            promised = {(one[1], one[2], one[3]) for one in words if one[0] == "COMMIT" and one[1] == name}
            notes = {one[2] for one in words if one[0] == "NOTE" and one[1] == name}
            try:
                _, commits = await store.load(name)
                found = {(name, str(one.number), one.hash.hex()) for one in commits}
                kept = {note.id for note in await store.notes(name)}
            except StoreError as error:
                if error.kind != "missing":
                    raise
                found, kept = set(), set()
            wrong += [f"{name}: commit {number} was acknowledged, and is lost" for _, number, _ in promised - found]
            wrong += [f"{name}: nobody wrote commit {number}" for _, number, _ in found - tried]
            wrong += [f"{name}: a note is lost" for _ in notes - kept]
    except StoreError as error:
        wrong.append(f"the store: {error.kind} {error}")
    finally:
        await store.close()
    return wrong


def cut_groups(seeds, cuts):
    """So many cuts for each seed; raises for the first that did harm."""
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for seed in seeds:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            disk = SimulatedDisk(place / "store", marks=place / "marks")
            command = [sys.executable, __file__, disk.folder, disk.marks_file, seed]
            done = disk.record([str(word) for word in command])
            assert done.returncode == 0, done.stderr
            for cut in disk.cuts(cuts, seed=seed):
                if look_after(disk, place, cut):
                    raise AssertionError(explain_harm(disk, place, seed, cut))
                tried += 1
    return tried


def look_after(disk, place, cut):
    """What is wrong after a cut."""
    return asyncio.run(find_harm(disk.leave(cut, place / "left"), disk.marks(cut)))


def explain_harm(disk, place, seed, cut):
    """The smallest cut that does harm, what it loses, and the program that finds it again."""
    least = disk.shrink(cut, lambda one: look_after(disk, place, one))
    operations = [disk.operations[number] for number in least.loses]
    lost = [f"{one.kind} {one.path or '.'} {one.offset}+{len(one.data)}" for one in operations]
    program = f"from {__name__} import cut_groups\n\ncut_groups([{seed}], 60)"
    said = "; ".join(look_after(disk, place, least)[:3])
    return f"seed {seed}, {least!r}: {said}\nlost: {', '.join(lost)}\n\n{program}"


# --- the disk or the lock fails ---------------------------------------------------------------------------------------

FULL, BROKEN, BUSY = 13, 10, 5  # as SQLite has them
FAULTS = (
    ("COMMIT", FULL, False),
    ("COMMIT", BROKEN, False),
    ("COMMIT", BROKEN, True),  # it is on the disk, and nobody knows
    ("INSERT INTO commits", FULL, False),
    ("INSERT INTO commits", BROKEN, False),
    ("BEGIN IMMEDIATE", BUSY, False),
)


class FailingDisk:
    """What the connections of a store meet: a statement that fails when its turn comes."""

    def __init__(self):
        self.fault = None
        self.has_failed = None

    def arm(self, fault, skip):
        self.fault, self.skip, self.has_failed = fault, skip, None

    def meet(self, statement, execute):
        if self.fault is None or not statement.startswith(self.fault[0]):
            return execute()
        self.skip -= 1
        if self.skip >= 0:
            return execute()
        (_, code, is_done), self.fault = self.fault, None
        self.has_failed = code
        if is_done:
            execute()
        error = sqlite3.OperationalError(f"it fails with {code}")
        error.sqlite_errorcode = code
        raise error

    @contextmanager
    def install(self):
        disk, usual = self, sqlite_file.Connection

        class Failing(usual):
            def execute(self, statement, *rest):
                return disk.meet(statement, partial(super().execute, statement, *rest))

        sqlite_file.Connection = Failing
        try:
            yield
        finally:
            sqlite_file.Connection = usual


class Pass:
    """What is written in one pass of the loop, or behind it while that waits, and what became of it."""

    def __init__(self, trial):
        self.trial = trial
        self.behind = Counter()
        self.waiting = []

    def add(self, name, durability):
        trial, self.behind[name] = self.trial, self.behind[name] + 1
        commit = make_commit(trial.heads[name] + self.behind[name], trial.chance.random())
        trial.tried.add((name, commit.number, commit.hash))
        self.waiting.append((name, commit, asyncio.ensure_future(self._write(trial.leases[name], commit, durability))))

    async def _write(self, lease, commit, durability):
        await write(self.trial.store, lease, commit, durability)

    async def finish(self):
        trial, refused = self.trial, set()
        done, late = await asyncio.wait([task for *_, task in self.waiting], timeout=NO_ANSWER)
        assert not late, f"{len(late)} of {len(done) + len(late)} writers are never told"
        code = trial.disk.has_failed
        for name, commit, task in self.waiting:
            error = task.exception()
            if error is None:
                trial.sure.add((name, commit.number, commit.hash))
                continue
            assert isinstance(error, StoreError), repr(error)
            assert code is not None or name in refused, (
                f"{name}: commit {commit.number} is refused for nothing: {error}"
            )
            follows = name in refused and error.kind == "conflict"
            assert follows or error.kind in ("full", "unavailable", "locked"), f"{name}: it failed with {code}: {error}"
            if error.kind in ("full", "locked"):
                trial.refused.add((name, commit.number, commit.hash))
            refused.add(name)


class Trial:
    """A store on a disk that fails, and its owner, who writes on with what the file says."""

    def __init__(self, seed, path, only):
        self.chance = random.Random(f"trial {seed}")
        self.path = path
        self.only = only
        self.disk = FailingDisk()
        self.tried, self.sure, self.refused = set(), set(), set()

    async def fly(self):
        chance = self.chance
        self.store = SqliteStore(self.path, lease=3600.0)
        names = NAMES[: chance.choice((1, 3))]
        self.leases = {name: await self.store.claim(name, f"owner of {name}") for name in names}
        for number in range(PASSES):
            self.heads = self.look()
            fault, skip = chance.choice(FAULTS) if chance.random() < 0.5 else None, chance.choice((0, 0, 1, 2))
            self.disk.arm(fault if number in self.only else None, skip)
            await self.pass_by(names)
        self.disk.arm(None, 0)
        self.heads = self.look()
        for lease in self.leases.values():
            await self.store.release(lease)
        await self.store.close()
        later = SqliteStore(self.path)
        for name in names:
            entry, commits = await later.load(name)
            assert entry.head == len(commits) == self.heads[name], (entry, len(commits), self.heads)
        await later.close()

    async def pass_by(self, names):
        chance, one = self.chance, Pass(self)
        for name in chance.sample(names, chance.randint(1, len(names))):
            for _ in range(chance.choice((1, 1, 2))):
                one.add(name, chance.choice(("sync", "sync", "full")))
        half = asyncio.ensure_future(self.store.transact(write_half)) if chance.random() < 0.3 else None
        stray = asyncio.ensure_future(self.write_stray(chance.choice(names))) if chance.random() < 0.3 else None
        for _ in range(chance.choice((0, 0, 1))):  # behind what is on its way
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            one.add(chance.choice(names), "sync")
        await one.finish()
        for task, what in ((half, "what was half done"), (stray, "a commit that follows nothing")):
            if task is not None:
                await asyncio.wait([task], timeout=NO_ANSWER)
                assert isinstance(task.exception(), StoreError), f"{what} is said to be written"

    async def write_stray(self, name):
        await write(self.store, self.leases[name], make_commit(self.heads[name] + 7, "stray"), "sync")

    def look(self):
        """How many commits each session has, by a connection of its own; raises for what is not as promised."""
        with closing(sqlite3.connect(self.path)) as file:
            asked = "SELECT s.id, c.number, c.hash FROM commits c JOIN sessions s ON s.key = c.session"
            rows = [(name, number, bytes(digest)) for name, number, digest in file.execute(asked)]
            halves = file.execute("SELECT count(*) FROM meta WHERE name = 'half'").fetchone()[0]
        found, heads = set(rows), Counter(name for name, *_ in rows)
        assert not halves, "what was half done is there"
        assert not self.sure - found, f"acknowledged, and not there: {sorted(self.sure - found)[:2]}"
        assert not found - self.tried, f"there, and never written: {sorted(found - self.tried)[:2]}"
        assert not found & self.refused, f"refused, and there: {sorted(found & self.refused)[:2]}"
        for name, head in heads.items():
            numbers = sorted(number for other, number, _ in rows if other == name)
            assert numbers == list(range(1, head + 1)), f"{name} has the commits {numbers}"
        return heads


def write_half(connection):
    connection.execute("INSERT INTO meta VALUES('half', 'done')")
    raise StoreError("no further", kind="unavailable")


def try_groups(seed, *, only=range(PASSES)):
    """One store on a disk that fails in these passes of the loop only; raises what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(seed, f"{folder}/s.db", only)
        with trial.disk.install():
            asyncio.run(trial.fly())


if __name__ == "__main__":
    asyncio.run(Life(*sys.argv[1:]).live())
    os._exit(0)
