"""Many sessions: list, search and prune them. `python -m bench.shelf [COUNT] [STORE]`.

STORE is a SQLite file or a database; a SQLite file in a temporary folder when there is none.
Fills a store with finished sessions, then takes the time of one page of each kind (best and median of 9, in this
process, the store open) and of a prune of everything, with the CPU time and the memory of the whole.
"""

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from glidepath.sessions import PostgresStore, SqliteStore, annotate, find_sessions, link, prune, this_owner

TASKS = ("Refund order", "Translate chapter", "Review change", "Summarize ticket")
PAGES = {
    "first page": {},
    "by outcome (1 in 50)": {"outcome": "failed"},
    "by agent (1 in 7)": {"agent": "agent3"},
    "by tag (1 in 1,000)": {"tag": "vip"},
    "by cost": {"min_cost": 0.9},
    "by text (1 in 1,000)": {"text": "number 777"},
    "by text, nothing found": {"text": "no such text"},
}


async def fill(store, count):
    for number in range(count):
        lease = await store.claim(f"session_{number:08d}", this_owner())
        summary = {
            "state": "error" if number % 50 == 0 else "completed",
            "outcome": "failed" if number % 50 == 0 else "done",
            "run_id": f"run_{number:08d}",
            "agent": f"agent{number % 7}",
            "model": "scripted",
            "task": f"{TASKS[number % 4]} number {number % 1000}",
            "iterations": number % 20,
            "messages": 12,
            "tokens": 1200,
            "cost": str(number % 1000 / 1000),
            "parent": None,
        }
        later = store.append(lease, link(b"", 1, 1, 1.0, [("note", {"number": number})]), summary=summary)
        if later is not None:
            await later
        await store.release(lease)
        if number % 1000 == 0:
            await annotate(store, lease.session_id, tags=["vip"])


async def times(store, fields):
    found = []
    for _ in range(9):
        begin = time.perf_counter()
        page = await find_sessions(store, **fields)
        found.append((time.perf_counter() - begin) * 1000)
    return min(found), statistics.median(found), len(page.sessions)


def opened(where):
    return PostgresStore(where) if "://" in where else SqliteStore(where)


async def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        where = sys.argv[2] if len(sys.argv) > 2 else str(Path(folder) / "sessions.db")
        store = opened(where)
        begin = time.perf_counter()
        await fill(store, count)
        print(f"{count} sessions written: {(time.perf_counter() - begin) / count * 1e6:.0f} us each")
        hold = await store.claim("hold", this_owner())  # keeps connections open
        print(f"{'page of 50':<26}{'best ms':>9}{'median':>9}{'found':>7}")
        for name, fields in PAGES.items():
            best, median, size = await times(store, fields)
            print(f"{name:<26}{best:>9.1f}{median:>9.1f}{size:>7}")
        page = await find_sessions(store)
        for _ in range(20):
            page = await find_sessions(store, cursor=page.cursor)
        best, median, size = await times(store, {"cursor": page.cursor})
        print(f"{'page 22':<26}{best:>9.1f}{median:>9.1f}{size:>7}")
        begin, cpu = time.perf_counter(), time.process_time()
        gone = await prune(store, older_than=-60, states=None)
        spent, cpu = time.perf_counter() - begin, time.process_time() - cpu
        print(f"prune of {len(gone)}: {spent:.1f} s, {spent / len(gone) * 1e6:.0f} us each, {cpu:.1f} s of CPU")
        print(f"memory at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
        await store.release(hold)
        await store.close()


asyncio.run(main())
