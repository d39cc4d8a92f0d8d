"""Connections to PostgreSQL: a fixed number from the first moment, and errors that say whether to try again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol, TypeVar

from glidepath.values import ConfigurationError, GlidepathError, StoreError, describe_error, install_line

T = TypeVar("T")
RIDE = 25.0  # seconds in which a database may restart: shorter than a run waits for its store
FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
_KINDS = {
    "53100": "full",
    "25006": "read_only",
    "42501": "read_only",
    "55P03": "locked",
    "57014": "locked",
    "XX001": "damaged",
}
_FULL_HOUSE = "53300"  # too many connections
_PASSING = ("08", "57P0", _FULL_HOUSE, "40001", "40P01")  # what begins so is over soon: the server comes, or goes


class PostgresRow(Protocol):
    """A row of an answer: its columns by name, by place, or all in order. asyncpg has no types of its own."""

    def __getitem__(self, column: str | int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class PostgresConnection(Protocol):
    """What the stores and the ledger of a fleet ask of a connection."""

    async def execute(self, query: str, *values: object) -> str:
        """Do it; answers with what was done, such as `UPDATE 1`."""
        ...

    async def executemany(self, query: str, rows: Iterable[Sequence[object]]) -> None:
        """Do it once for each row of values."""
        ...

    async def fetch(self, query: str, *values: object) -> Sequence[PostgresRow]:
        """Every row of the answer."""
        ...

    async def fetchrow(self, query: str, *values: object) -> PostgresRow | None:
        """The first row; None when there is none."""
        ...

    async def fetchval(self, query: str, *values: object) -> Any:
        """The first column of the first row."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """All that is done inside, or nothing."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def is_closed(self) -> bool:
        """Whether it is of no use any more."""
        ...

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 - as asyncpg has it
        """Say goodbye to the server, within this many seconds."""
        ...

    def terminate(self) -> None:
        """Cut the line."""
        ...


class PassingError(StoreError):
    """The database was briefly unavailable: the statement may be retried."""


def driver() -> Any:
    """asyncpg; raises `ConfigurationError` naming the extra when it is missing."""
    try:
        import asyncpg
    except ImportError:
        raise ConfigurationError(f"PostgresStore needs asyncpg: {install_line('postgres')}") from None
    return asyncpg


@contextmanager
def translate_errors(what: str, seconds: float) -> Iterator[None]:
    """Whatever the driver raises inside is a `StoreError` outside."""
    asyncpg = driver()
    try:
        yield
    except GlidepathError:
        raise
    except asyncpg.PostgresError as error:
        state = error.sqlstate or ""
        if state.startswith(_PASSING):
            raise PassingError(f"{what} failed: {describe_error(error)}") from error
        raise StoreError(f"{what} failed: {describe_error(error)}", kind=_KINDS.get(state, "unavailable")) from error
    except asyncpg.DataError as error:
        raise StoreError(f"{what} cannot keep this: {describe_error(error)}") from error
    except (TimeoutError, OSError, asyncpg.InterfaceError) as error:
        said = str(error) or f"no answer within {seconds:g} s"
        raise PassingError(f"{what} cannot be reached: {said}") from error
    except asyncpg.InternalClientError as error:  # what a line that is cut in the middle may bring
        raise PassingError(f"{what} failed: {describe_error(error)}") from error
    except Exception as error:
        raise StoreError(f"{what} failed: {describe_error(error)}") from error


async def retry_through_restart(
    work: Callable[[], Awaitable[T]], *, known: Callable[[], bool], seconds: float = RIDE
) -> T:
    """Do it, and retry while the database restarts; it must be safe to repeat.

    A database that was never reached is not waited for, unless it only has too many visitors.
    """
    loop = asyncio.get_running_loop()
    until, wait = loop.time() + seconds, FIRST_WAIT
    while True:
        try:
            async with asyncio.timeout_at(until):
                return await work()
        except PassingError as error:
            crowded = getattr(error.__cause__, "sqlstate", None) == _FULL_HOUSE
            if loop.time() + wait >= until or not (crowded or known()):
                raise
        except TimeoutError as error:
            raise StoreError(f"the database cannot be reached: no answer within {seconds:g} s") from error
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


class ConnectionPool:
    """At most `size` connections of one event loop. Each is made when it is needed and kept for the next.

    Nothing is sent to the server between two uses. A connection in which something failed is not used again.
    """

    def __init__(
        self,
        dsn: str,
        *,
        size: int,
        timeout: float,
        prepare: Callable[[Any], Awaitable[None]] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._dsn = dsn
        self._timeout = timeout
        self._prepare = prepare
        self._settings = dict(settings or {})
        self._places = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self, *, known: Callable[[], bool] | None = None) -> AsyncIterator[Any]:
        """A connection for one caller, for a while; raises `TimeoutError` when all are taken for too long.

        With `known`, a database that is known and restarts is waited for.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._places.acquire()
        except TimeoutError:
            raise TimeoutError(f"all connections were in use for {self._timeout:g} s") from None
        try:
            connection = self._waiting() or await self._connect_patiently(known)
            try:
                yield connection
            except GlidepathError:  # ours: nothing is wrong with the connection
                await self._give_back(connection)
                raise
            except BaseException:
                connection.terminate()
                raise
            await self._give_back(connection)
        finally:
            self._places.release()

    def _waiting(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def _connect_patiently(self, known: Callable[[], bool] | None) -> Any:
        if known is None:
            return await self._connect()

        async def once() -> Any:
            with translate_errors("the session store", self._timeout):
                return await self._connect()

        return await retry_through_restart(once, known=known)

    async def _connect(self) -> Any:
        try:
            connection = await driver().connect(
                self._dsn,
                timeout=self._timeout,
                command_timeout=self._timeout,
                server_settings=self._settings or None,
            )
        except ValueError:  # what it says may hold the password
            raise StoreError(
                "malformed address of the session store: expected something like postgresql://user@host:5432/db"
            ) from None
        if self._prepare is not None:
            try:
                await self._prepare(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection

    async def _give_back(self, connection: PostgresConnection) -> None:
        # What comes next would become part of a transaction that is still open, and be lost with it.
        if self._closed or connection.is_in_transaction():
            await _close(connection, self._timeout)
        elif not connection.is_closed():
            self._idle.append(connection)

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*[_close(connection, self._timeout) for connection in idle])


async def _close(connection: PostgresConnection, seconds: float) -> None:
    with suppress(Exception):
        await connection.close(timeout=seconds)
    if not connection.is_closed():
        connection.terminate()
