"""Verifying a whole store: its file, every journal, the leases, and that wallets and what runs hold of them agree."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from glidepath._wire import Value
from glidepath.sessions.archive import verify_journal
from glidepath.sessions.owner import LEASE, is_claimable
from glidepath.sessions.sqlite import SqliteStore
from glidepath.sessions.summaries import is_half_copy
from glidepath.sessions.upkeep import store_inside, store_time
from glidepath.sessions.wallet_service import WalletService
from glidepath.spi import Entry, SessionStore
from glidepath.values import StoreError

_HARMLESS = ("unfinished", "lease")
_MOST_LINES = 20  # of what SQLite finds wrong with its file


class Problem(Value, frozen=True, kw_only=True):
    """Something that is not as it should be: with which session or part of the store, what kind, and in words.

    `kind` is `damaged`, `newer`, `schema`, another kind of `StoreError`, or `wallet`; `unfinished` (a copy that nobody
    can run) and `lease` (one that ends later than it could) do no harm.
    """

    where: str
    kind: str
    what: str


class Verified(Value, frozen=True, kw_only=True):
    """What was looked at, and what is wrong."""

    sessions: int
    commits: int
    wallets: int
    problems: tuple[Problem, ...] = ()

    @property
    def is_whole(self) -> bool:
        """True when nothing is damaged."""
        return all(one.kind in _HARMLESS for one in self.problems)


async def verify(store: SessionStore) -> Verified:
    """Read everything in a store, while runs are in flight or not; what is wrong is in the answer, never raised.

    Only a store that is not there, or does not answer, raises `StoreError` (`missing`, `unavailable`, `locked`).
    """
    inner = store_inside(store)
    problems = await asyncio.to_thread(_check_file, inner.path) if isinstance(inner, SqliteStore) else []
    commits = wallets = 0
    entries: Sequence[Entry] = ()
    try:
        entries = await inner.entries()
    except StoreError as error:
        if error.kind != "damaged":
            raise
        problems.append(Problem(where="(sessions)", kind=error.kind, what=str(error)))
    for entry in sorted(entries, key=lambda one: one.session_id):
        found, count = await _check_session(inner, entry)
        problems += found
        commits += count
    if isinstance(inner, WalletService):
        wallets, found = await _check_wallets(inner)
        problems += found
    return Verified(sessions=len(entries), commits=commits, wallets=wallets, problems=tuple(problems))


def _check_file(path: str) -> list[Problem]:
    """What SQLite itself finds wrong with its file."""
    if not Path(path).exists():
        raise StoreError(f"there is no session store at {path}", kind="missing")
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as connection:
            found = [row[0] for row in connection.execute(f"PRAGMA integrity_check({_MOST_LINES})")]
    except sqlite3.Error as error:
        found = [str(error)]
    return [Problem(where="(file)", kind="damaged", what=line) for line in found if line != "ok"]


async def _check_session(store: SessionStore, listed: Entry) -> tuple[list[Problem], int]:
    name, now = listed.session_id, store_time(store)
    try:
        entry, commits = await store.load(name)
        if is_half_copy(entry):
            if not is_claimable(entry.owner, entry.expires, now):
                return [], len(commits)  # somebody is making it
            what = "a copy that was never finished; `glidepath sessions compact` removes it"
            return [Problem(where=name, kind="unfinished", what=what)], len(commits)
        if entry.summary.get("rewinding"):
            what = "its rewind was not finished: rewind it again"
            return [Problem(where=name, kind="unfinished", what=what)], len(commits)
        verify_journal(entry, commits)
    except StoreError as error:
        if error.kind == "missing":  # it was deleted meanwhile
            return [], 0
        if error.kind in ("unavailable", "locked"):
            raise
        return [Problem(where=name, kind=error.kind, what=str(error))], 0
    return _lease_problem(store, entry, now), len(commits)


def _lease_problem(store: SessionStore, entry: Entry, now: float) -> list[Problem]:
    longest = float(getattr(store, "_lease", LEASE))
    if entry.owner is None or entry.expires <= now + 2 * longest:
        return []
    when = datetime.fromtimestamp(min(entry.expires, 4e9), tz=UTC).isoformat(timespec="seconds")
    what = f"its lease ends at {when}, later than a lease can: the clock of its owner was fast"
    return [Problem(where=entry.session_id, kind="lease", what=what)]


async def _check_wallets(desk: WalletService) -> tuple[int, list[Problem]]:
    """What does not add up, twice: a run that draws between two readings is not a mistake."""
    try:
        count, first = await desk.wallet_errors()
        again = (await desk.wallet_errors())[1] if first else {}
    except StoreError as error:
        if error.kind == "missing":
            return 0, []
        if error.kind in ("unavailable", "locked"):
            raise
        return 0, [Problem(where="(wallets)", kind=error.kind, what=str(error))]
    stay: list[tuple[Any, str]] = [(name, what) for name, what in first.items() if again.get(name) == what]
    return count, [Problem(where=f"wallet {name}", kind="wallet", what=what) for name, what in stay]
