"""Stop means stop, also when eight processes share a SQLite file and somebody else holds its write lock for seconds."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from glidepath.sessions import SqliteStore, read_journal

CREW, RUNS, HANGING = 8, 6, 2
HELD = 2.0  # seconds of the foreign lock
EARLY = 0.5  # seconds of it before the stop
PROMPT = 1.0  # seconds in which work in flight is interrupted: well before the lock is given back
ROOM = 6.0  # seconds after the lock: eight processes write the ends of 48 runs, on two cores


def start(path, number):
    program = Path(__file__).with_name("lock_crew.py")
    return subprocess.Popen(
        [sys.executable, str(program), str(path), f"p{number}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def fly(path):
    """What each process saw, and from when to when the lock was held."""
    asyncio.run(SqliteStore(path).close())
    crew = [start(path, number) for number in range(CREW)]
    try:
        for one in crew:
            assert one.stdout.readline() == "ready\n"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as other:
            other.execute("BEGIN IMMEDIATE")
            held = time.monotonic()
            time.sleep(EARLY)
            for one in crew:
                one.stdin.write("stop\n")
                one.stdin.flush()
            time.sleep(held + HELD - time.monotonic())
            other.execute("ROLLBACK")
            given_back = time.monotonic()
        return [json.loads(one.communicate(timeout=60)[0]) for one in crew], held, given_back
    finally:
        for one in crew:
            one.kill()
            one.wait()


async def outcomes_in(path):
    """How each run ended, as its journal says."""
    store = SqliteStore(path)
    entries = await store.entries()
    found = [(await read_journal(store, entry.session_id)).folded.result for entry in entries]
    await store.close()
    return [None if result is None else result.outcome.name for result in found]


@pytest.mark.process
def test_g7_eight_processes_stop_while_a_foreign_lock_is_held(tmp_path):
    path = tmp_path / "s.db"
    crew, held, given_back = fly(path)
    for seen in crew:
        assert held < seen["stopped"] < given_back
        assert [outcome for outcome, _ in seen["ends"]] == ["CANCELLED"] * RUNS
        # Nothing begins once `cancel()` has returned, although intents were on their way to the disk.
        assert seen["begun_late"] == []
        # Work in flight does not wait for the lock.
        assert len(seen["interrupted"]) == HANGING
        assert max(seen["interrupted"]) - seen["stopped"] < PROMPT
        # Nor does the event loop: it would be late by the rest of the lock.
        assert max(late for at, late in seen["lags"] if held < at < given_back) < PROMPT
        # The end of a run is a commit: it waits for the lock, and for nothing else.
        assert max(at for _, at in seen["ends"]) < given_back + ROOM
    assert asyncio.run(outcomes_in(path)) == ["CANCELLED"] * (CREW * RUNS)
