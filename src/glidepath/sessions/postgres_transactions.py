"""Transactions of a PostgreSQL store for transactional tools: the tool's effect and its result are one commit.

The tool runs on a thread. Its connection is an asyncpg connection of the run's own loop, and every statement is handed
to that loop: one driver, one connection, and the loop can append the result to the journal and commit where the tool
has left off. See docs/adr/0010-transactional-tools.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.sessions.postgres_pool import ConnectionPool, PostgresConnection, translate_errors
from glidepath.spi import Commit, Lease
from glidepath.tools import StoreConnection
from glidepath.values import StoreError, ToolError

if TYPE_CHECKING:
    from glidepath.sessions.postgres import PostgresStore

_LONGEST = 3600.0  # seconds, for a tool without a time limit
_POLITE = 1.0  # seconds for a ROLLBACK, before the line is cut
_GRACE = 5.0  # seconds after which the server gives up a transaction that nobody ends
_OVER = "the transaction is over: use the connection only until the tool returns"
_OURS = "glidepath_"
_HIDDEN = re.compile(  # what is not SQL's own words: strings, comments, and quoted text of functions
    r"""'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/""", re.DOTALL
)
_ENDING = ("begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release", "prepare")
_SESSION = ("deallocate", "set", "reset", "discard", "listen", "notify", "unlisten", "lock", "copy")
_CONTROL = frozenset({*_ENDING, *_SESSION})
_TOUCHED = (  # rows of ours that this transaction has changed; counted by the server, so functions are seen, too
    "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_xact_user_tables "
    "WHERE relname LIKE 'glidepath\\_%'"
)


def check_statement(query: object) -> str:
    """The statement of a tool; raises `ToolError` if it would end its transaction or names a table of the store."""
    if not isinstance(query, str):
        raise ToolError(f"a query is a str, not {type(query).__name__}")
    bare = _HIDDEN.sub(" '' ", query).lower()
    if _OURS in bare or 'u&"' in bare:
        raise ToolError(f"the tables of the session store ({_OURS}*) are closed to tools: {query:.80}")
    for statement in bare.split(";"):
        word = next(iter(re.findall(r"[a-z]+", statement)), "")
        if word in _CONTROL:
            raise ToolError(
                f"{word.upper()} is not for a transactional tool: its transaction is committed with its result, "
                "and rolled back when it raises"
            )
    return query


class ToolConnection(StoreConnection):
    """What the tool is given: a connection whose statements run on the loop of the run."""

    def __init__(self, connection: PostgresConnection, seconds: float) -> None:
        self._connection: Any = connection
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[Any] | None = None

    def execute(self, query: str, *values: object) -> str:
        """Do it."""
        return self._ask("execute", query, values)  # type: ignore[no-any-return]

    def fetch(self, query: str, *values: object) -> Sequence[Any]:
        """Every row."""
        return self._ask("fetch", query, values)  # type: ignore[no-any-return]

    def fetchrow(self, query: str, *values: object) -> Any:
        """The first row."""
        return self._ask("fetchrow", query, values)

    def fetchval(self, query: str, *values: object) -> Any:
        """The first column of the first row."""
        return self._ask("fetchval", query, values)

    def _ask(self, method: str, query: str, values: Sequence[object]) -> Any:
        check_statement(query)
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - it would wait for itself
            raise ToolError("use the connection on the thread of the tool, not on the event loop")

        async def work() -> Any:
            if self._connection is None:
                raise ToolError(_OVER)
            self._running = asyncio.current_task()
            return await getattr(self._connection, method)(query, *values, timeout=self._seconds)

        asked = work()
        try:
            return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        except RuntimeError as error:  # the loop is closed, and the transaction with it
            asked.close()
            raise ToolError(_OVER) from error
        except CancelledError:
            raise ToolError(_OVER) from None

    async def close(self) -> None:
        """From now on nothing can be done with it; a statement that is running is cancelled, in the server, too."""
        self._connection = None
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait([self._running], timeout=_POLITE)


class PostgresTransaction:
    """The transaction of one call: begun, used by the tool, sealed, and committed with the result or rolled back."""

    def __init__(self, store: PostgresStore, lease: Lease, seconds: float | None) -> None:
        self._store = store
        self._lease = lease
        self._seconds = min(seconds or _LONGEST, _LONGEST)
        self._stack = AsyncExitStack()
        self._line: Any = None
        self._touched = 0
        self.connection: Any = None
        """What the tool is given."""
        self.is_unknown = False
        """True when the database could not say whether it was committed."""

    async def begin(self) -> PostgresTransaction:
        """Connect and begin; raises `ToolError` when the database cannot be reached: nothing has happened."""
        store, seconds = self._store, self._seconds
        # Its own connection: a slow tool must not take one from those that write journals and renew leases.
        pool = ConnectionPool(store.dsn, size=1, timeout=store._timeout, prepare=store._prepare)  # noqa: SLF001
        self._stack.push_async_callback(pool.close)
        try:
            with translate_errors("the session store", store._timeout):  # noqa: SLF001
                self._line = await self._stack.enter_async_context(pool.connection(known=lambda: True))
                await self._line.execute("BEGIN")
                most = int((seconds + _GRACE) * 1000)
                await self._line.execute(
                    f"SET LOCAL statement_timeout = {most}; SET LOCAL idle_in_transaction_session_timeout = {most}"
                )
                self._touched = await self._line.fetchval(_TOUCHED)
        except BaseException as error:
            await self.roll_back()
            if isinstance(error, StoreError):
                raise ToolError(f"no transaction could be begun ({error}); nothing was changed") from error
            raise
        self.connection = ToolConnection(self._line, seconds)
        return self

    async def seal(self) -> None:
        """The tool has returned: it can do no more. Raises `ToolError` when what it did must not be committed."""
        await self.connection.close()
        with translate_errors("the session store", self._store._timeout):  # noqa: SLF001
            try:
                touched = await self._line.fetchval(_TOUCHED)
            except Exception as error:
                if getattr(error, "sqlstate", None) != "25P02":
                    raise
                what = "a statement failed and the transaction with it: let the exception out of the tool"
                raise ToolError(f"{what}. Nothing was changed") from None
        if touched != self._touched or not self._line.is_in_transaction():
            raise ToolError("the tool changed tables of the session store, which are closed to tools; rolled back")

    async def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> None:
        """Write the result's commit, as `SessionStore.append` does, and commit both. Raises `StoreError`."""
        del durability  # PostgreSQL has confirmed it when it is on the disk
        store, line = self._store, self._line
        try:
            with translate_errors("the session store", store._timeout):  # noqa: SLF001
                body = None if summary is None else _wire.encode(summary)
                if not await store._write_commit(line, lease, commit, body):  # noqa: SLF001
                    raise await store._explain_refusal(line, lease, commit.number)  # noqa: SLF001
        except BaseException:
            await self.roll_back()
            raise
        try:
            with translate_errors("the session store", store._timeout):  # noqa: SLF001
                await line.execute("COMMIT")
        except BaseException as error:
            line.terminate()
            await self._find_out(lease, commit, error)
        finally:
            await self._leave()

    async def _find_out(self, lease: Lease, commit: Commit, error: BaseException) -> None:
        """The connection broke while it was being committed: ask the database whether it was."""

        async def look(connection: PostgresConnection) -> Any:
            # The row is locked until the server has ended the other transaction, one way or the other.
            async with connection.transaction():
                await connection.execute("SELECT 1 FROM glidepath_sessions WHERE key = $1 FOR UPDATE", lease.key)
                query = "SELECT hash FROM glidepath_commits WHERE session = $1 AND number = $2"
                return await connection.fetchval(query, lease.key, commit.number)

        self.is_unknown = True
        found = await self._store._run_with_retry(look)  # noqa: SLF001
        self.is_unknown = False
        if found != commit.hash:
            raise error

    async def roll_back(self) -> None:
        """Undo everything, at once and whatever the tool is doing. Never fails."""
        if self.connection is not None:
            await self.connection.close()
        if self._line is not None:
            try:
                await self._line.execute("ROLLBACK", timeout=_POLITE)
            except BaseException:  # a statement of the tool is running: the server rolls back what nobody will commit
                self._line.terminate()
        await self._leave()

    async def _leave(self) -> None:
        with suppress(Exception):
            await self._stack.aclose()
