"""Power cuts on a simulated disk: a store lives through several processes, and is opened as each cut may leave it."""

import random
import shutil
import sys
from collections import Counter
from pathlib import Path

from glidepath.errors import StoreError
from glidepath.sessions import read_journal
from glidepath.testing import SimulatedDisk

from .power_workload import make_store

WORKLOAD = Path(__file__).with_name("power_workload.py")


class Promises:
    """What the store had acknowledged before a cut, and what it had been asked to write."""

    def __init__(self, marks):
        self.commits, self.tried, self.spent, self.notes = {}, set(), Counter(), {}
        for mark in marks:
            word, *rest = mark.split()
            if word == "TRY":
                self.tried.add((rest[0], int(rest[1]), rest[2]))
            elif word == "COMMIT":
                self.commits.setdefault(rest[0], {})[int(rest[1])] = rest[2]
            elif word == "SPENT":
                self.spent[rest[0]] += int(rest[1])
            elif word == "NOTE":
                self.notes.setdefault(rest[0], set()).add(rest[1])


def live(kind, durability, seed, place, *, full_after=None):
    """Record two to five lives of a store; with `full_after`, the disk is full in the last of them."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    disk = SimulatedDisk(place / "store", marks=place / "marks")
    lives = random.Random(f"lives{seed}").randint(2, 5)
    for life in range(lives):
        command = [sys.executable, WORKLOAD, kind, disk.folder, disk.marks_file, seed, life, durability]
        is_full = full_after if life == lives - 1 else None
        done = disk.record([str(word) for word in command], full_after=is_full)
        assert done.returncode in (0, -9) or is_full is not None, done.stdout
    return disk


async def look(kind, folder, promises, durability):
    """What is wrong with a store after a cut, and how many sessions are whole, shorter or gone."""
    store = make_store(kind, folder)
    wrong, seen = [], Counter()
    try:
        listed = {entry.session_id for entry in await found(store.entries(), ())}
        for session in sorted(listed | promises.commits.keys()):
            wrong += await look_at(store, session, promises, durability, seen)
        wallets = {one.name: one.tokens + one.held_tokens for one in await found(store.wallets(), ())}
        for name, tokens in promises.spent.items():
            if durability == "full" and wallets.get(name, 0) < tokens:
                wrong.append(f"{name}: {tokens} tokens were spent, and it shows {wallets.get(name, 0)}")
    except StoreError as error:
        wrong.append(f"the store: {error.kind} {error}")
    finally:
        await store.close()
    return wrong, seen


async def found(asked, nothing):
    """What the store has; a store that is not there yet has nothing."""
    try:
        return await asked
    except StoreError as error:
        if error.kind != "missing":
            raise
        return nothing


async def look_at(store, session, promises, durability, seen):
    """What is wrong with one session."""
    acknowledged = promises.commits.get(session, {})
    try:
        journal = await read_journal(store, session)
        notes = {note.id for note in await store.notes(session)}
    except StoreError as error:
        seen[error.kind] += 1
        is_only_shorter = error.kind == "missing" and (durability != "full" or not acknowledged)
        return [] if is_only_shorter else [f"{session}: {error.kind} {error}"]
    kept = {commit.number: commit.hash.hex() for commit in journal.commits}
    lost = [number for number, digest in acknowledged.items() if kept.get(number) != digest]
    seen["shorter" if lost else "whole"] += 1
    seen["notes lost"] += len(promises.notes.get(session, set()) - notes)
    wrong = [
        f"{session}: commit {n} was never written" for n, it in kept.items() if (session, n, it) not in promises.tried
    ]
    if lost and durability == "full":
        wrong.append(
            f"{session}: {len(lost)} of {len(acknowledged)} acknowledged commits are lost, from {min(lost)} on"
        )
    return wrong


async def cut_power(kind, durability, *, seeds, cuts, place, modes=None, full_after=None):
    """So many cuts for each seed; every harm with the seed and cut that make it again, and what was seen."""
    harms, seen = [], Counter()
    for seed in seeds:
        disk = live(kind, durability, seed, place, full_after=full_after)
        seen["promises"] += len(disk.marks())
        for cut in disk.cuts(cuts, seed=seed, **({} if modes is None else {"modes": modes})):
            folder = disk.leave(cut, place / "left")
            wrong, kinds = await look(kind, folder, Promises(disk.marks(cut)), durability)
            seen.update(kinds)
            seen["cuts"] += 1
            seen[f"harmed {cut.mode}"] += bool(wrong)
            harms += [f"seed {seed}, {cut!r}: {one}" for one in wrong]
    return harms, seen
