"""Wallets in PostgreSQL. Everything that waits on one event loop goes into one transaction.

Rows are locked in one order, holds before accounts and each by name, so that two transactions never wait in a circle.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath._wire import Record
from glidepath.sessions import wallet_rules as books
from glidepath.sessions.postgres_pool import retry_through_restart
from glidepath.sessions.sqlite_wallets import (
    bill_row,
    bill_to_row,
    hold_row,
    hold_to_row,
    period_row,
    period_to_row,
    wallet_row,
    wallet_to_row,
)
from glidepath.sessions.wallet_rows import HoldRow, WalletTransaction
from glidepath.sessions.wallet_service import Rows, WalletService
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.sessions.postgres_pool import PostgresConnection

T = TypeVar("T")
MOST = 64  # pieces of work in one transaction
ADVISORY = 0x676C6977
_NOW = "extract(epoch FROM clock_timestamp())::float8"
TABLES = """
CREATE TABLE IF NOT EXISTS glidepath_wallets(
  name text PRIMARY KEY, per text, parent text, max_tokens bigint, max_money bigint,
  ruled_tokens bigint, ruled_money bigint, closed int NOT NULL);
CREATE TABLE IF NOT EXISTS glidepath_wallet_periods(
  name text NOT NULL, period text NOT NULL, tokens bigint NOT NULL, money bigint NOT NULL,
  held_tokens bigint NOT NULL, held_money bigint NOT NULL, firm_tokens bigint NOT NULL, firm_money bigint NOT NULL,
  PRIMARY KEY(name, period)) WITH (fillfactor = 50);
ALTER TABLE glidepath_wallet_periods ADD COLUMN IF NOT EXISTS disputed_tokens bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS disputed_money bigint NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS glidepath_wallet_holds(
  key text PRIMARY KEY, leg bigint NOT NULL, owner text NOT NULL, session text, expires float8 NOT NULL,
  line text NOT NULL, base_tokens bigint NOT NULL, base_money bigint NOT NULL,
  tokens bigint NOT NULL, money bigint NOT NULL, grant_tokens bigint NOT NULL, grant_money bigint NOT NULL,
  firm_tokens bigint NOT NULL, firm_money bigint NOT NULL, ended float8 NOT NULL) WITH (fillfactor = 50);
ALTER TABLE glidepath_wallet_holds ADD COLUMN IF NOT EXISTS disputed_base_tokens bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS disputed_base_money bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS disputed_tokens bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS disputed_money bigint NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS glidepath_wallet_bills(
  id text PRIMARY KEY, key text NOT NULL, line text NOT NULL, at float8 NOT NULL, tokens bigint NOT NULL,
  money bigint NOT NULL);
"""
_HOLDS = "SELECT * FROM glidepath_wallet_holds WHERE key = ANY($1) ORDER BY key FOR UPDATE"
_NEW_HOLDS = (
    "SELECT pg_advisory_xact_lock($1, one) FROM (SELECT DISTINCT hashtext(key) AS one FROM unnest($2::text[]) AS key "
    "ORDER BY one) AS ordered"
)
_WALLETS = f"SELECT {_NOW}, w.* FROM (SELECT 1) one LEFT JOIN glidepath_wallets w ON w.name = ANY($1)"  # noqa: S608
_PERIODS = (
    "SELECT * FROM glidepath_wallet_periods WHERE (name, period) IN (SELECT * FROM unnest($1::text[], $2::text[])) "
    "ORDER BY name, period FOR UPDATE"
)
_NEW_PERIODS = (
    "INSERT INTO glidepath_wallet_periods SELECT n, p, 0, 0, 0, 0, 0, 0, 0, 0 "
    "FROM unnest($1::text[], $2::text[]) AS l(n, p) ORDER BY n, p ON CONFLICT DO NOTHING"
)
_PUT_WALLET = (
    "INSERT INTO glidepath_wallets VALUES($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO UPDATE SET "
    "max_tokens = $4, max_money = $5, ruled_tokens = $6, ruled_money = $7, closed = $8"
)
_PUT_PERIOD = (
    "INSERT INTO glidepath_wallet_periods VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) "
    "ON CONFLICT (name, period) DO UPDATE SET tokens = $3, money = $4, held_tokens = $5, held_money = $6, "
    "firm_tokens = $7, firm_money = $8, disputed_tokens = $9, disputed_money = $10"
)
_PUT_HOLD = (
    "INSERT INTO glidepath_wallet_holds VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, "
    "$16, $17, $18, $19) "
    "ON CONFLICT (key) DO UPDATE SET leg = $2, owner = $3, session = $4, expires = $5, line = $6, base_tokens = $7, "
    "base_money = $8, tokens = $9, money = $10, grant_tokens = $11, grant_money = $12, firm_tokens = $13, "
    "firm_money = $14, ended = $15, disputed_base_tokens = $16, disputed_base_money = $17, disputed_tokens = $18, "
    "disputed_money = $19"
)
_BILLS = "SELECT * FROM glidepath_wallet_bills WHERE $1 IN ('', id)"
_ADD_BILL = (
    "INSERT INTO glidepath_wallet_bills AS b VALUES($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET at = $4, "
    "tokens = b.tokens + $5, money = b.money + $6"
)


_FORGET = (  # as `books.forgotten` says; what somebody else has locked is not forgotten now
    "DELETE FROM glidepath_wallet_holds WHERE key IN (SELECT key FROM glidepath_wallet_holds WHERE "
    "ended > 0 AND ended < $1 OR ended = 0 AND expires <= $2 AND grant_tokens = tokens AND grant_money = money "
    "FOR UPDATE SKIP LOCKED)"
)


_MAY_FORGET = (  # else the database, or this role, may only read
    "SELECT current_setting('transaction_read_only') = 'off' "
    "AND has_table_privilege('glidepath_wallet_holds', 'UPDATE') "
    "AND has_table_privilege('glidepath_wallet_holds', 'DELETE')"
)


class _Job(Record):
    """A piece of work that waits for a transaction."""

    rows: Rows
    work: Callable[[WalletTransaction], Any]
    done: asyncio.Future[Any]

    def fail(self, error: Exception) -> None:
        """Tell those who wait."""
        if not self.done.done():
            self.done.set_exception(error)


def _merge_rows(jobs: Sequence[_Job]) -> Rows:
    """The rows that all of these need."""
    return Rows(
        keys=tuple(dict.fromkeys(key for job in jobs for key in job.rows.keys)),
        wallets=tuple(dict.fromkeys(name for job in jobs for name in job.rows.wallets)),
        line=tuple(dict.fromkeys(terms for job in jobs for terms in job.rows.line)),
        whole=jobs[0].rows.whole,
        everything=jobs[0].rows.everything,
        bill=jobs[0].rows.bill,
    )


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # the waiters have seen it


class PostgresWallets(WalletService):
    """Wallets beside the journals, in the same database; the tables are made when they are first used."""

    def __init__(self) -> None:
        self._wallets_ready = False
        self._waiting: dict[tuple[int, int], list[_Job]] = {}
        self._open_holds: dict[tuple[int, int, str], Any] = {}

    _ready: bool

    def _transaction(self) -> Any:
        raise NotImplementedError

    async def _open_line(self) -> Any:
        raise NotImplementedError

    async def _release_line(self, line: Any) -> None:
        raise NotImplementedError

    async def _keep_open(self, key: str) -> None:
        """Keep connections of this loop open while the hold is."""
        here = (os.getpid(), id(asyncio.get_running_loop()), key)
        if here not in self._open_holds:
            self._open_holds[here] = None
            try:
                self._open_holds[here] = await self._open_line()
            except BaseException:
                del self._open_holds[here]
                raise

    async def _end_hold(self, key: str) -> None:
        line = self._open_holds.pop((os.getpid(), id(asyncio.get_running_loop()), key), None)
        if line is not None:
            await self._release_line(line)

    async def _prepare_wallets(self, connection: PostgresConnection) -> None:
        if self._wallets_ready:
            return
        if not await connection.fetchval("SELECT to_regclass('glidepath_wallet_bills') IS NOT NULL"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", ADVISORY)
            await connection.execute(TABLES)

    async def _transact_rows(self, rows: Rows, work: Callable[[WalletTransaction], T]) -> T:
        """Wait with the others of this loop for the next transaction."""
        loop = asyncio.get_running_loop()
        here = (os.getpid(), id(loop))
        done: asyncio.Future[Any] = loop.create_future()
        if rows.whole or rows.bill is not None:  # it only looks, and locks nothing; or decides, which is rare
            await self._transact([_Job(rows, work, done)])
            return await done  # type: ignore[no-any-return]
        waiting = self._waiting.get(here)
        if waiting is not None:
            waiting.append(_Job(rows, work, done))
        else:
            self._waiting[here] = [_Job(rows, work, done)]
            loop.create_task(self._serve(here), name="glidepath-wallets").add_done_callback(_retrieve_exception)
        return await done  # type: ignore[no-any-return]

    async def _serve(self, here: tuple[int, int]) -> None:
        """One transaction after the other, until the queue is empty."""
        waiting = self._waiting[here]
        jobs: list[_Job] = []
        try:
            while waiting:
                jobs, waiting[:] = waiting[:MOST], waiting[MOST:]
                await self._transact(jobs)
        finally:
            del self._waiting[here]
            for job in (*jobs, *waiting):  # when it was cancelled
                job.fail(StoreError("the wallets' store was interrupted"))

    async def _transact(self, jobs: list[_Job]) -> None:
        """One transaction, which is repeated while the database restarts: everything in it can be done twice."""
        try:
            answers = await self._transact_with_retry(
                lambda connection, again: _run_jobs(connection, jobs, again=again)
            )
        except Exception as error:  # a StoreError, or a defect: the waiters see it
            for job in jobs:
                job.fail(error)
            return
        for job, answer, refused in answers:
            if refused is not None:
                job.fail(refused)
            elif not job.done.done():
                job.done.set_result(answer)

    async def _transact_with_retry(self, work: Callable[[Any, bool], Awaitable[T]]) -> T:
        """Do it in a transaction; the second argument of `work` says that it may have been done before."""
        again = False

        async def once() -> T:
            nonlocal again
            async with self._transaction() as connection:
                await self._prepare_wallets(connection)
                repeated, again = again, True
                return await work(connection, repeated)

        done = await retry_through_restart(once, known=lambda: self._ready)
        self._wallets_ready = True
        return done

    async def _live_holds(self) -> tuple[float, Sequence[HoldRow]]:
        async def work(connection: PostgresConnection, _: bool) -> tuple[float, Sequence[HoldRow]]:
            now = await connection.fetchval(f"SELECT {_NOW}")
            if await connection.fetchval(_MAY_FORGET):
                await connection.execute(_FORGET, now - books.KEPT, now)
            rows = await connection.fetch("SELECT * FROM glidepath_wallet_holds WHERE ended = 0 OR session IS NOT NULL")
            return now, [hold_row(row) for row in rows]

        return await self._transact_with_retry(work)

    async def _remove_wallet(self, name: str) -> None:
        async def work(connection: PostgresConnection, again: bool) -> None:
            await connection.execute("SELECT 1 FROM glidepath_wallet_periods WHERE name = $1 FOR UPDATE", name)
            book = await _read(connection, Rows(wallets=(name,), whole=True))
            if again and name not in book.wallets:
                return
            parent = await connection.fetchval("SELECT EXISTS(SELECT 1 FROM glidepath_wallets WHERE parent = $1)", name)
            books.check_removable(book, name, parent=parent)
            await connection.execute("DELETE FROM glidepath_wallets WHERE name = $1", name)
            await connection.execute("DELETE FROM glidepath_wallet_periods WHERE name = $1", name)

        await self._transact_with_retry(work)


async def _run_jobs(
    connection: PostgresConnection, jobs: list[_Job], *, again: bool
) -> list[tuple[_Job, Any, StoreError | None]]:
    """The result of each job: its answer, or why it was refused."""
    book = await _read(connection, _merge_rows(jobs))
    book.again = again
    answers: list[tuple[_Job, Any, StoreError | None]] = []
    for job in jobs:
        try:
            answers.append((job, job.work(book), None))
        except StoreError as error:  # it was refused before anything was changed
            answers.append((job, None, error))
    await _write(connection, book)
    return answers


async def _read(connection: PostgresConnection, rows: Rows) -> WalletTransaction:
    """The rows, locked: holds first, then accounts by name, always in this order."""
    book = WalletTransaction(0.0)
    if rows.keys:
        found = await connection.fetch(_HOLDS, list(rows.keys))
        new = [*{*rows.keys}.difference([row["key"] for row in found])]
        if new:  # what is not there cannot be locked: the last draw of a dead leg may be about to be written
            await connection.execute(_NEW_HOLDS, ADVISORY, new)
            found = [*found, *await connection.fetch(_HOLDS, new)]
        for row in found:
            book.holds[row["key"]] = hold_row(row)
    if rows.everything:
        found = await connection.fetch(f"SELECT {_NOW}, w.* FROM (SELECT 1) one LEFT JOIN glidepath_wallets w ON true")  # noqa: S608
    else:
        found = await connection.fetch(_WALLETS, list(rows.wallets))
    book.now = found[0][0]
    for row in found:
        if row["name"] is not None:
            book.wallets[row["name"]] = wallet_row(tuple(row)[1:])
    if rows.whole:
        query = "SELECT * FROM glidepath_wallet_periods WHERE $2 OR name = ANY($1)"
        accounts = await connection.fetch(query, list(rows.wallets), rows.everything)
    else:
        accounts = await _accounts(connection, rows, book)
    for row in accounts:
        book.periods[row["name"], row["period"]] = period_row(row)
    if rows.bill is not None:
        # Read again: anyone who changes a bill has its accounts locked, and now we have.
        book.bills = {row["id"]: bill_row(row) for row in await connection.fetch(_BILLS, rows.bill)}
    return book


async def _accounts(connection: PostgresConnection, rows: Rows, book: WalletTransaction) -> Any:
    places = {*book.line(rows.line)}.union(*[hold.line for hold in book.holds.values()])
    if rows.bill is not None:
        places = places.union(*[bill_row(row).line for row in await connection.fetch(_BILLS, rows.bill)])
    if not places:
        return ()
    names, periods = [place[0] for place in places], [place[1] for place in places]
    found = await connection.fetch(_PERIODS, names, periods)
    if len(found) < len(places):
        await connection.execute(_NEW_PERIODS, names, periods)
        found = await connection.fetch(_PERIODS, names, periods)
    return found


async def _write(connection: PostgresConnection, book: WalletTransaction) -> None:
    for wallet in book.wallets.values():
        if book.is_changed(wallet):
            await connection.execute(_PUT_WALLET, *wallet_to_row(wallet))
    accounts = [period_to_row(account) for account in book.periods.values() if book.is_changed(account)]
    if accounts:
        await connection.executemany(_PUT_PERIOD, accounts)
    if book.dropped:
        await connection.execute("DELETE FROM glidepath_wallet_holds WHERE key = ANY($1)", book.dropped)
    holds = [hold_to_row(row) for row in book.holds.values() if book.is_changed(row)]
    if holds:
        await connection.executemany(_PUT_HOLD, holds)
    if book.new_bills:  # in one order: two transactions may add to the same bills
        await connection.executemany(_ADD_BILL, sorted(bill_to_row(row) for row in book.new_bills))
    if book.decided:
        await connection.execute("DELETE FROM glidepath_wallet_bills WHERE id = ANY($1)", book.decided)
