"""Wallets in an SQLite file. Its own thread does the work, and everything waiting goes into one transaction."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath import _wire
from glidepath.errors import StoreError
from glidepath.sessions import books
from glidepath.sessions.books import Book, HoldRow, PeriodRow, WalletRow
from glidepath.sessions.sqlite_says import READ_ONLY, code_of
from glidepath.sessions.wallet_desk import Rows, WalletDesk

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

T = TypeVar("T")
TABLES = """
CREATE TABLE IF NOT EXISTS wallets(
  name TEXT PRIMARY KEY, per TEXT, parent TEXT, max_tokens INTEGER, max_money INTEGER,
  ruled_tokens INTEGER, ruled_money INTEGER, closed INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS wallet_periods(
  name TEXT NOT NULL, period TEXT NOT NULL, tokens INTEGER NOT NULL, money INTEGER NOT NULL,
  held_tokens INTEGER NOT NULL, held_money INTEGER NOT NULL, firm_tokens INTEGER NOT NULL, firm_money INTEGER NOT NULL,
  PRIMARY KEY(name, period)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS wallet_holds(
  key TEXT PRIMARY KEY, leg INTEGER NOT NULL, owner TEXT NOT NULL, session TEXT, expires REAL NOT NULL,
  line TEXT NOT NULL, base_tokens INTEGER NOT NULL, base_money INTEGER NOT NULL,
  tokens INTEGER NOT NULL, money INTEGER NOT NULL, grant_tokens INTEGER NOT NULL, grant_money INTEGER NOT NULL,
  firm_tokens INTEGER NOT NULL, firm_money INTEGER NOT NULL, ended REAL NOT NULL) WITHOUT ROWID;
"""
_PUT_WALLET = "INSERT OR REPLACE INTO wallets VALUES(?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_PERIOD = "INSERT OR REPLACE INTO wallet_periods VALUES(?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_HOLD = "INSERT OR REPLACE INTO wallet_holds VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FORGET = (  # as `books.forgotten` says
    "DELETE FROM wallet_holds WHERE ended > 0 AND ended < ? "
    "OR ended = 0 AND expires <= ? AND grant_tokens = tokens AND grant_money = money"
)
MOST = 64  # pieces of work in one transaction

R = TypeVar("R")
Work = Callable[[Any], Any]
Tell = Callable[[Any, BaseException | None], None]


def _identity(path: str) -> tuple[int, int] | None:
    """Which file is at this path."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Clerk:
    """A thread with its own connection that does pieces of work, as many as are waiting in one transaction."""

    def __init__(self, path: str, connect: Callable[[], Any], errors: Callable[[], Any]) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None
        self._jobs: queue.SimpleQueue[tuple[Work, Tell] | None] = queue.SimpleQueue()
        self._connect = connect
        self._errors = errors
        self._connection: Any = None
        self._thread = threading.Thread(target=self._serve, name="glidepath-wallets", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        at_work = True
        while at_work:
            batch = [self._jobs.get()]
            with suppress(queue.Empty):
                while len(batch) < MOST:
                    batch.append(self._jobs.get_nowait())
            at_work = None not in batch
            jobs = [job for job in batch if job is not None]
            if jobs:
                self._do(jobs)
        if self._connection is not None:
            self._connection.close()

    def _do(self, jobs: list[tuple[Work, Tell]]) -> None:
        answers: list[tuple[Any, BaseException | None]] = []
        try:
            with self._errors():
                self._transact(jobs, answers)
        except BaseException as error:
            answers = [(None, error)] * len(jobs)
        for (_, tell), answer in zip(jobs, answers, strict=True):
            tell(*answer)

    def _transact(self, jobs: list[tuple[Work, Tell]], answers: list[tuple[Any, BaseException | None]]) -> None:
        if self._connection is None:
            self._connection = self._connect()
            self._file = _identity(self._path)
        elif self._file != _identity(self._path):
            what = f"the session store {self._path} was removed or replaced while it was in use"
            raise StoreError(what, kind="missing")
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
        except Exception as error:
            if code_of(error) != READ_ONLY:
                raise
            connection.execute("BEGIN")  # reading works, and writing says what is wrong
        try:
            for work, _ in jobs:
                try:
                    answers.append((work(connection), None))
                except StoreError as error:  # it was refused before anything was written
                    answers.append((None, error))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                with suppress(Exception):
                    connection.execute("ROLLBACK")
            raise

    def put(self, work: Work, tell: Tell) -> None:
        """Do it soon, on the thread, and report the result."""
        self._jobs.put((work, tell))

    def stop(self, *, join: bool) -> None:
        """Finish what is queued and end the thread."""
        self._jobs.put(None)
        if join and threading.current_thread() is not self._thread:
            self._thread.join(5.0)


class SqliteWallets(WalletDesk):
    """Wallets beside the journals, in the same file; the tables are made when they are first used."""

    _clock: Callable[[], float]

    def __init__(self, path: str) -> None:
        self._wallet_file = path
        self._tabled = False  # the tables are there
        self._clerk: Clerk | None = None
        self._begin_here()

    def _begin_here(self) -> None:
        """Neither the thread nor the connection survives a fork; the parent's are left alone."""
        self._left_behind = self._clerk
        self._clerk = None
        self._users = 0
        self._open_holds: set[str] = set()
        self._desk_lock = threading.Lock()
        self._desk_pid = os.getpid()

    def _connect_wallets(self) -> Any:
        """Its own connection, for the thread."""
        store: Any = self
        return store._open("NORMAL", int(store._busy * 1000))  # noqa: SLF001 - of a SqliteStore

    def _errors(self) -> Any:
        raise NotImplementedError

    def _connect(self) -> Any:
        self._tabled = False
        return self._connect_wallets()

    def _has_tables(self, connection: sqlite3.Connection, *, make: bool) -> bool:
        """Whether there are wallets in the file; reading never makes the tables."""
        if not self._tabled:
            query = "SELECT count(*) FROM sqlite_master WHERE name = 'wallet_holds'"
            self._tabled = connection.execute(query).fetchone()[0] > 0
            if make and not self._tabled:
                for statement in TABLES.split(";"):
                    connection.execute(statement)
                return True  # once it is committed, the next one will see it
        return self._tabled

    # --- the thread lives while somebody waits for it, or holds something ---------------------------------------

    def _enter(self) -> Clerk:
        if self._desk_pid != os.getpid():
            self._begin_here()
        with self._desk_lock:
            self._users += 1
            if self._clerk is None:
                self._clerk = Clerk(self._wallet_file, self._connect, self._errors)
            return self._clerk

    def _leave(self, *, join: bool) -> None:
        with self._desk_lock:
            self._users = max(0, self._users - 1)
            clerk = None
            if not self._users:
                clerk, self._clerk = self._clerk, None
        if clerk is not None:
            clerk.stop(join=join)

    async def _held_open(self, key: str) -> None:
        if self._desk_pid != os.getpid() or key not in self._open_holds:
            self._enter()
            self._open_holds.add(key)

    async def _let_close(self, key: str) -> None:
        if self._desk_pid == os.getpid() and key in self._open_holds:
            self._open_holds.discard(key)
            self._leave(join=True)

    def _close_desk(self) -> None:
        """Stop the thread and close its connection."""
        if self._desk_pid != os.getpid():
            return
        self._open_holds.clear()
        self._users = 0
        self._leave(join=True)

    async def _ask(self, work: Callable[[Any], T]) -> T:
        """Run it on the thread and wait; raises what it raised."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        busy: set[object] | None = getattr(loop, "workers", None)
        if busy is not None:  # virtual time stands still meanwhile
            busy.add(done)
            done.add_done_callback(busy.discard)

        def finish(answer: object, error: BaseException | None) -> None:
            if done.done():  # nobody waits any more
                self._leave(join=False)
            else:
                done.set_result((answer, error))

        def tell(answer: object, error: BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(finish, answer, error)
            except RuntimeError:  # the loop is closed
                self._leave(join=False)

        self._enter().put(work, tell)
        answer, error = await done
        self._leave(join=True)
        if error is not None:
            raise error
        return answer  # type: ignore[no-any-return]

    # --- rows ---------------------------------------------------------------------------------------------------

    def _must_have_begun(self) -> None:
        if not os.path.exists(self._wallet_file):  # noqa: PTH110 - reading must not make a file
            raise StoreError(f"there are no wallets at {self._wallet_file}", kind="missing")

    async def _lend(self, rows: Rows, work: Callable[[Book], T]) -> T:
        makes = bool(rows.line) or rows.makes
        if not makes:
            self._must_have_begun()

        def all_of_it(connection: sqlite3.Connection) -> T:
            if not self._has_tables(connection, make=makes):
                return work(Book(self._clock()))
            book = _read(connection, rows, self._clock())
            done = work(book)
            _write(connection, book)
            return done

        return await self._ask(all_of_it)

    async def _live_holds(self) -> tuple[float, Sequence[HoldRow]]:
        def work(connection: sqlite3.Connection) -> tuple[float, Sequence[HoldRow]]:
            now = self._clock()
            if not self._has_tables(connection, make=False):
                return now, []
            try:
                connection.execute(_FORGET, (now - books.KEPT, now))
            except Exception as error:
                if code_of(error) != READ_ONLY:
                    raise
            rows = connection.execute("SELECT * FROM wallet_holds WHERE ended = 0 OR session IS NOT NULL").fetchall()
            return now, [hold_row(row) for row in rows]

        self._must_have_begun()
        return await self._ask(work)

    async def _remove_wallet(self, name: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            known = self._has_tables(connection, make=False)
            book = _read(connection, Rows(wallets=(name,), whole=True), self._clock()) if known else Book(0.0)
            if not known:
                books.gone(book, name, parent=False)
            parent = connection.execute("SELECT 1 FROM wallets WHERE parent = ?", (name,)).fetchone() is not None
            books.gone(book, name, parent=parent)
            connection.execute("DELETE FROM wallets WHERE name = ?", (name,))
            connection.execute("DELETE FROM wallet_periods WHERE name = ?", (name,))

        self._must_have_begun()
        await self._ask(work)


def _read(connection: sqlite3.Connection, rows: Rows, now: float) -> Book:
    book = Book(now)
    execute = connection.execute
    places = set(book.line(rows.line))
    for key in rows.keys:
        row = execute("SELECT * FROM wallet_holds WHERE key = ?", (key,)).fetchone()
        if row is not None:
            hold = book.holds[key] = hold_row(row)
            places.update(hold.line)
    if rows.everything:
        found = execute("SELECT * FROM wallets").fetchall()
    else:
        found = [row for name in rows.wallets for row in execute("SELECT * FROM wallets WHERE name = ?", (name,))]
    for row in found:
        book.wallets[row[0]] = wallet_row(row)
    accounts = [
        row for place in places for row in execute("SELECT * FROM wallet_periods WHERE name = ? AND period = ?", place)
    ]
    if rows.everything:
        accounts = execute("SELECT * FROM wallet_periods").fetchall()
    elif rows.whole:
        accounts = [
            row for name in rows.wallets for row in execute("SELECT * FROM wallet_periods WHERE name = ?", (name,))
        ]
    for row in accounts:
        book.periods[row[0], row[1]] = period_row(row)
    return book


def _write(connection: sqlite3.Connection, book: Book) -> None:
    for wallet in book.wallets.values():
        if book.is_changed(wallet):
            connection.execute(_PUT_WALLET, of_wallet(wallet))
    for account in book.periods.values():
        if book.is_changed(account):
            connection.execute(_PUT_PERIOD, of_period(account))
    for key in book.dropped:
        connection.execute("DELETE FROM wallet_holds WHERE key = ?", (key,))
    for hold in book.holds.values():
        if book.is_changed(hold):
            connection.execute(_PUT_HOLD, of_hold(hold))


# --- rows of a table, in the order of its columns; PostgreSQL's tables have the same ------------------------------


def _checked(kind: type[R], **fields: object) -> R:
    """A row with the right types; raises `WireError` for any other, which we never wrote."""
    return _wire.convert(fields, kind)  # type: ignore[no-any-return]


def wallet_row(row: Iterable[Any]) -> WalletRow:
    """From the table."""
    name, per, parent, tokens, money, ruled_tokens, ruled_money, closed = row
    most, ruled = (tokens, money), (ruled_tokens, ruled_money)
    return _checked(WalletRow, name=name, per=per, parent=parent, most=most, ruled=ruled, closed=bool(closed))


def of_wallet(row: WalletRow) -> tuple[Any, ...]:
    """For the table."""
    return row.name, row.per, row.parent, *row.most, *row.ruled, int(row.closed)


def period_row(row: Iterable[Any]) -> PeriodRow:
    """From the table."""
    name, period, tokens, money, held_tokens, held_money, firm_tokens, firm_money = row
    return _checked(
        PeriodRow,
        name=name,
        period=period,
        used=(tokens, money),
        held=(held_tokens, held_money),
        firm=(firm_tokens, firm_money),
    )


def of_period(row: PeriodRow) -> tuple[Any, ...]:
    """For the table."""
    return row.name, row.period, *row.used, *row.held, *row.firm


def hold_row(row: Iterable[Any]) -> HoldRow:
    """From the table."""
    key, leg, owner, session_id, expires, line, *amounts, ended = row
    return _checked(
        HoldRow,
        key=key,
        leg=leg,
        owner=owner,
        session_id=session_id,
        expires=expires,
        line=tuple((name, period) for name, period in _wire.loads(line)),
        base=(amounts[0], amounts[1]),
        spent=(amounts[2], amounts[3]),
        grant=(amounts[4], amounts[5]),
        firm=(amounts[6], amounts[7]),
        ended=ended,
    )


def of_hold(row: HoldRow) -> tuple[Any, ...]:
    """For the table."""
    line = _wire.encode(row.line).decode()
    amounts = (*row.base, *row.spent, *row.grant, *row.firm)
    return row.key, row.leg, row.owner, row.session_id, row.expires, line, *amounts, row.ended
