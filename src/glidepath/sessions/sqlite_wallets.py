"""Wallets in an SQLite file: tables beside the journals, and the rows in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath import _wire
from glidepath.sessions import wallet_rules as books
from glidepath.sessions.sqlite_file import READ_ONLY, code_of
from glidepath.sessions.sqlite_journals import SqliteJournals
from glidepath.sessions.wallet_rows import BillRow, HoldRow, PeriodRow, WalletRow, WalletTransaction
from glidepath.sessions.wallet_service import Rows, WalletService
from glidepath.values import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from glidepath.sessions.sqlite_file import Connection

T = TypeVar("T")
_PUT_WALLET = "INSERT OR REPLACE INTO wallets VALUES(?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_PERIOD = "INSERT OR REPLACE INTO wallet_periods VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_HOLD = "INSERT OR REPLACE INTO wallet_holds VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_BILL = (
    "INSERT INTO wallet_bills VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET at = excluded.at, "
    "tokens = tokens + excluded.tokens, money = money + excluded.money"
)
_FORGET = (  # as `books.forgotten` says
    "DELETE FROM wallet_holds WHERE ended > 0 AND ended < ? "
    "OR ended = 0 AND expires <= ? AND grant_tokens = tokens AND grant_money = money"
)
R = TypeVar("R")


class SqliteWallets(WalletService, SqliteJournals):
    """Wallets beside the journals, in the same file and the same transactions."""

    _draws: set[str]  # the holds of this process that are drawn on

    async def _keep_open(self, key: str) -> None:
        self._draws.add(key)

    async def _end_hold(self, key: str) -> None:
        self._draws.discard(key)
        self._stop_if_idle()

    async def _ask(self, work: Callable[[Connection], Any]) -> Any:
        self._open_or_require()
        return await self._write_without_lease(work)

    # --- rows ---------------------------------------------------------------------------------------------------

    def _require_file(self) -> None:
        if not self._file.exists():  # reading must not make a file
            raise StoreError(f"there are no wallets at {self.path}", kind="missing")

    async def _transact_rows(self, rows: Rows, work: Callable[[WalletTransaction], T]) -> T:
        makes = bool(rows.line) or rows.makes
        if not makes:
            self._require_file()

        def all_of_it(connection: Connection) -> T:
            book = _read(connection, rows, self._clock())
            done = work(book)
            _write(connection, book)
            return done

        return await self._ask(all_of_it)  # type: ignore[no-any-return]

    async def _live_holds(self) -> tuple[float, Sequence[HoldRow]]:
        def work(connection: Connection) -> tuple[float, Sequence[HoldRow]]:
            now = self._clock()
            try:
                connection.execute(_FORGET, (now - books.KEPT, now))
            except Exception as error:
                if code_of(error) != READ_ONLY:
                    raise
            rows = connection.execute("SELECT * FROM wallet_holds WHERE ended = 0 OR session IS NOT NULL").fetchall()
            return now, [hold_row(row) for row in rows]

        self._require_file()
        return await self._ask(work)  # type: ignore[no-any-return]

    async def _remove_wallet(self, name: str) -> None:
        def work(connection: Connection) -> None:
            book = _read(connection, Rows(wallets=(name,), whole=True), self._clock())
            parent = connection.execute("SELECT 1 FROM wallets WHERE parent = ?", (name,)).fetchone() is not None
            books.check_removable(book, name, parent=parent)
            connection.execute("DELETE FROM wallets WHERE name = ?", (name,))
            connection.execute("DELETE FROM wallet_periods WHERE name = ?", (name,))

        self._require_file()
        await self._ask(work)

    # --- what the store has -------------------------------------------------------------------------------------

    def _open_or_require(self) -> None:
        raise NotImplementedError


def _read(connection: Connection, rows: Rows, now: float) -> WalletTransaction:
    book = WalletTransaction(now)
    execute = connection.execute
    places = set(book.line(rows.line))
    for key in rows.keys:
        row = execute("SELECT * FROM wallet_holds WHERE key = ?", (key,)).fetchone()
        if row is not None:
            hold = book.holds[key] = hold_row(row)
            places.update(hold.line)
    if rows.bill is not None:
        for row in execute("SELECT * FROM wallet_bills WHERE ? IN ('', id)", (rows.bill,)):
            bill = book.bills[row[0]] = bill_row(row)
            places.update(bill.line)
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


def _write(connection: Connection, book: WalletTransaction) -> None:
    for wallet in book.wallets.values():
        if book.is_changed(wallet):
            connection.execute(_PUT_WALLET, wallet_to_row(wallet))
    for account in book.periods.values():
        if book.is_changed(account):
            connection.execute(_PUT_PERIOD, period_to_row(account))
    for key in book.dropped:
        connection.execute("DELETE FROM wallet_holds WHERE key = ?", (key,))
    for hold in book.holds.values():
        if book.is_changed(hold):
            connection.execute(_PUT_HOLD, hold_to_row(hold))
    for bill in book.new_bills:
        connection.execute(_ADD_BILL, bill_to_row(bill))
    for bill_id in book.decided:
        connection.execute("DELETE FROM wallet_bills WHERE id = ?", (bill_id,))


# --- rows of a table, in the order of its columns; PostgreSQL's tables have the same ------------------------------


def _make_row(kind: type[R], **fields: object) -> R:
    """A row with the right types; raises `WireError` for any other, which we never wrote."""
    return _wire.convert(fields, kind)  # type: ignore[no-any-return]


def wallet_row(row: Iterable[Any]) -> WalletRow:
    """From the table."""
    name, per, parent, tokens, money, ruled_tokens, ruled_money, closed = row
    most, ruled = (tokens, money), (ruled_tokens, ruled_money)
    return _make_row(WalletRow, name=name, per=per, parent=parent, most=most, ruled=ruled, closed=bool(closed))


def wallet_to_row(row: WalletRow) -> tuple[Any, ...]:
    """For the table."""
    return row.name, row.per, row.parent, *row.most, *row.ruled, int(row.closed)


def period_row(row: Iterable[Any]) -> PeriodRow:
    """From the table."""
    name, period, tokens, money, held_tokens, held_money, firm_tokens, firm_money, *disputed = row
    return _make_row(
        PeriodRow,
        name=name,
        period=period,
        used=(tokens, money),
        held=(held_tokens, held_money),
        firm=(firm_tokens, firm_money),
        disputed=tuple(disputed),
    )


def period_to_row(row: PeriodRow) -> tuple[Any, ...]:
    """For the table."""
    return row.name, row.period, *row.used, *row.held, *row.firm, *row.disputed


def hold_row(row: Iterable[Any]) -> HoldRow:
    """From the table."""
    key, leg, owner, session_id, expires, line, *amounts = row
    return _make_row(
        HoldRow,
        key=key,
        leg=leg,
        owner=owner,
        session_id=session_id,
        expires=expires,
        line=_read_line(line),
        base=(amounts[0], amounts[1]),
        spent=(amounts[2], amounts[3]),
        grant=(amounts[4], amounts[5]),
        firm=(amounts[6], amounts[7]),
        ended=amounts[8],
        disputed_base=(amounts[9], amounts[10]),
        disputed=tuple(amounts[11:]),
    )


def hold_to_row(row: HoldRow) -> tuple[Any, ...]:
    """For the table."""
    line = _wire.encode(row.line).decode()
    amounts = (*row.base, *row.spent, *row.grant, *row.firm, row.ended, *row.disputed_base, *row.disputed)
    return row.key, row.leg, row.owner, row.session_id, row.expires, line, *amounts


def bill_row(row: Iterable[Any]) -> BillRow:
    """From the table."""
    bill_id, key, line, at, *amount = row
    return _make_row(BillRow, id=bill_id, key=key, line=_read_line(line), at=at, amount=tuple(amount))


def bill_to_row(row: BillRow) -> tuple[Any, ...]:
    """For the table."""
    return row.id, row.key, _wire.encode(row.line).decode(), row.at, *row.amount


def _read_line(line: Any) -> tuple[tuple[Any, Any], ...]:
    return tuple((name, period) for name, period in _wire.loads(line))
