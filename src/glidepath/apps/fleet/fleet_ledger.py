"""The fleet's ledger in PostgreSQL: who may spend what, which workers are alive, and when each model may be called."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath._wire import Value
from glidepath.apps.fleet.bell import Bell
from glidepath.apps.fleet.contain import FLEET, FREED, LAYOUT, NOW, PARTS, QUEUED, WORKFLOW, require_extra
from glidepath.run import Amount, pico
from glidepath.sessions import (
    ConnectionPool,
    is_keepable,
    make_layout_error,
    make_tables,
    retry_through_restart,
    translate_errors,
)
from glidepath.sessions.session_ids import check_storable_id
from glidepath.spi import Grant
from glidepath.values import ConfigurationError, StoreError, check_int, check_seconds, dollars

if TYPE_CHECKING:
    from glidepath.sessions import PostgresConnection

T = TypeVar("T")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_MOST = 2**63 - 1
_TELL = "SELECT glidepath_tell()"
_ON_DISK = "SET LOCAL synchronous_commit = on"
_ADVISORY = 0x676C6966


class Quota(Value, frozen=True, kw_only=True):
    """What may be used in total, per day or per month: tokens, dollars, runs. None means unlimited."""

    tokens: int | None = None
    cost: Decimal | str | int | None = None
    runs: int | None = None

    def row(self, field: str) -> tuple[int | None, int | None, int | None]:
        """The figures of a budget row, checked; raises `ConfigurationError` naming the field."""
        check_int(f"{field}.tokens", self.tokens)
        check_int(f"{field}.runs", self.runs, least=0)
        money = None if self.cost is None else pico(self.cost, field=f"{field}.cost")
        if max(self.tokens or 0, money or 0, self.runs or 0) > _MOST:
            raise ConfigurationError(f"{field} is larger than a budget row can hold ($9 million): leave it out")
        return self.tokens, money, self.runs


class FleetAccount(Value, frozen=True, kw_only=True):
    """A budget row: its limits, and what was granted to runs, whether spent or not."""

    name: str
    max_tokens: int | None
    max_cost: Decimal | None
    max_runs: int | None
    tokens: int
    cost: Decimal
    runs: int


class Look(Value, frozen=True, kw_only=True):
    """What a worker must know before it runs a leg of a run."""

    tenant: str | None
    outcome: str | None
    taken: int
    limits_tokens: bool
    limits_money: bool
    held: str | None = None
    """Why it must not run now: a kill switch is thrown."""


class FleetLedger:
    """Every method is one statement, or one transaction; each raises `StoreError` when the database cannot be reached.

    `now` is for tests: the moment whose day and month quotas apply; None uses the database's clock.
    """

    def __init__(
        self, dsn: str, *, timeout: float = 10.0, connections: int = 4, now: Callable[[], datetime | None] | None = None
    ) -> None:
        if not isinstance(dsn, str) or not dsn.startswith(("postgresql://", "postgres://")):
            shown = dsn if isinstance(dsn, str) and "@" not in dsn else type(dsn).__name__
            raise ConfigurationError(f"a fleet lives in PostgreSQL: pass 'postgresql://host/db', not {shown!r:.60}")
        self.dsn = dsn
        self._timeout = timeout
        self._connections = connections
        self._now = now or (lambda: None)
        self._pool: ConnectionPool | None = None
        self._ready = False
        self.bell = Bell(dsn, timeout)

    # --- connections ------------------------------------------------------------------------------------------

    async def _run_with_retry(self, work: Callable[[Any], Awaitable[T]], *, patient: bool = True) -> T:
        """Do `work` on a connection, and repeat it while the database restarts: every operation may be repeated.

        These connections do not wait for the disk. A draw enters the database's log before the journal commit that
        precedes the call, and that commit does wait for the disk, so the draw is on disk with it. A draw that is lost
        in a crash was never spent.
        """

        async def once() -> T:
            require_extra("asyncpg")
            pool = self._pool
            if pool is None or pool.loop is not asyncio.get_running_loop():
                settings = {"synchronous_commit": "off"}
                pool = self._pool = ConnectionPool(
                    self.dsn,
                    size=self._connections,
                    timeout=self._timeout,
                    prepare=self._prepare,
                    settings=settings,
                )
            with translate_errors("the fleet's database", self._timeout):
                async with pool.connection() as connection:
                    return await work(connection)

        return await (retry_through_restart(once, known=lambda: self._ready) if patient else once())

    async def _fetch(self, query: str, *arguments: object) -> list[Any]:
        return await self._run_with_retry(lambda connection: connection.fetch(query, *arguments))

    async def _fetchrow(self, query: str, *arguments: object) -> Any:
        return await self._run_with_retry(lambda connection: connection.fetchrow(query, *arguments))

    async def _fetchval(self, query: str, *arguments: object) -> Any:
        return await self._run_with_retry(lambda connection: connection.fetchval(query, *arguments))

    async def _execute(self, query: str, *arguments: object) -> None:
        await self._run_with_retry(lambda connection: connection.execute(query, *arguments))

    async def _on_disk(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do `work` in one transaction, which is on disk when this returns."""
        most = max(1, int(self._timeout * 1000))  # a stuck transaction would hold up the whole fleet

        async def whole(connection: PostgresConnection) -> T:
            async with connection.transaction():
                await connection.execute(f"{_ON_DISK}; SET LOCAL idle_in_transaction_session_timeout = {most}")
                return await work(connection)

        return await self._run_with_retry(whole)

    async def _execute_durably(self, *statements: tuple[Any, ...]) -> None:
        """Execute statements of an operator, which are on disk when this returns."""

        async def work(connection: PostgresConnection) -> None:
            for query, *arguments in statements:
                await connection.execute(query, *arguments)

        await self._on_disk(work)

    async def _prepare(self, connection: PostgresConnection) -> None:
        if self._ready:
            return
        layout, parts = await self._versions(connection)
        if layout is None or (layout == LAYOUT and parts < PARTS):
            async with connection.transaction():
                await connection.execute(_ON_DISK)
                await connection.execute("SELECT pg_advisory_xact_lock($1)", _ADVISORY)
                await make_tables(connection)
                if (await self._versions(connection))[1] < PARTS:
                    await connection.execute(_schema())
            layout = layout or LAYOUT
        if layout != LAYOUT:
            raise make_layout_error("the fleet's tables have", layout, LAYOUT)
        self._ready = True

    async def _versions(self, connection: PostgresConnection) -> tuple[int | None, int]:
        """The layout of the tables, None if there are none, and the version of the functions."""
        layout, parts = None, 0
        if await connection.fetchval("SELECT to_regclass('glidepath_workers') IS NOT NULL"):
            layout = await connection.fetchval("SELECT version FROM glidepath_fleet_layout")
        if await connection.fetchval("SELECT to_regclass('glidepath_fleet_parts') IS NOT NULL"):
            parts = await connection.fetchval("SELECT coalesce(max(version), 0) FROM glidepath_fleet_parts")
        return layout, parts

    async def close(self) -> None:
        """Close the connections; they reopen when needed."""
        pool, self._pool = self._pool, None
        await self.bell.close()
        if pool is not None:
            await pool.close()

    async def check(self) -> None:
        """Make sure that the database can be reached and has its tables."""
        if not self._ready or self._pool is None:
            await self._fetchval("SELECT 1")

    # --- budgets, tenants, rates ------------------------------------------------------------------------------

    async def set_budget(self, quota: Quota | None) -> None:
        """Set what the whole fleet may use in total; None removes the limit and its count."""
        if quota is None:
            await self._execute_durably(("DELETE FROM glidepath_budgets WHERE name = $1", FLEET), (_TELL,))
            return
        query = (
            "INSERT INTO glidepath_budgets(name, max_tokens, max_money, max_runs) VALUES($1, $2, $3, $4) "
            "ON CONFLICT (name) DO UPDATE SET max_tokens = $2, max_money = $3, max_runs = $4"
        )
        await self._execute_durably((query, FLEET, *quota.row("budget")), (_TELL,))

    async def set_tenant(self, name: str, *, day: Quota, month: Quota) -> None:
        """Set the quotas of a tenant, including the current day and month."""
        check_tenant(name)
        days, months = day.row("day"), month.row("month")
        made = (
            "INSERT INTO glidepath_tenants VALUES($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO UPDATE SET "
            "day_tokens = $2, day_money = $3, day_runs = $4, month_tokens = $5, month_money = $6, month_runs = $7"
        )
        now = "UPDATE glidepath_budgets SET max_tokens = $2, max_money = $3, max_runs = $4 WHERE name = $1"

        async def work(connection: PostgresConnection) -> None:
            await connection.execute(made, name, *days, *months)
            line = await connection.fetchval("SELECT glidepath_line($1, $2)", name, self._now())
            for row, quota in zip(line[-2:], (months, days), strict=True):
                await connection.execute(now, row, *quota)
            await connection.execute(_TELL)

        await self._on_disk(work)

    async def set_rate(
        self, model: str, *, requests: int | None, tokens: int | None, per: float = 60.0, burst: int = 1
    ) -> None:
        """Set how often the whole fleet may call a model; both None removes the limit."""
        if not isinstance(model, str) or not model.strip() or not is_keepable(model):
            raise ConfigurationError(f"model must be the name of a model, not {model!r:.100}")
        check_int("requests", requests)
        check_int("tokens", tokens)
        check_seconds("per", per)
        check_int("burst", burst)
        if requests is None and tokens is None:
            await self._execute_durably(("DELETE FROM glidepath_rates WHERE model = $1", model))
            return
        query = (
            "INSERT INTO glidepath_rates(model, requests, tokens, per, burst) VALUES($1, $2, $3, $4, $5) "
            "ON CONFLICT (model) DO UPDATE SET requests = $2, tokens = $3, per = $4, burst = $5, "
            f"next_request = least(glidepath_rates.next_request, {NOW} + $4 / $2::float8), "
            f"next_tokens = least(glidepath_rates.next_tokens, {NOW} + $4)"
        )
        await self._execute_durably((query, model, requests, tokens, float(per), burst))

    async def accounts(self) -> list[FleetAccount]:
        """Every budget row, starting with the fleet's."""
        rows = await self._fetch("SELECT * FROM glidepath_budgets ORDER BY name <> $1, name", FLEET)
        return [
            FleetAccount(
                name=row["name"],
                max_tokens=row["max_tokens"],
                max_cost=None if row["max_money"] is None else dollars(row["max_money"]),
                max_runs=row["max_runs"],
                tokens=row["tokens"],
                cost=dollars(row["money"]),
                runs=row["runs"],
            )
            for row in rows
        ]

    # --- one run ----------------------------------------------------------------------------------------------

    async def read_state(self, session: str, *, taken: bool = False) -> Look | None:
        """The state of a run, and whether any of its budgets is limited; None if it was never submitted.

        `taken` counts that a worker was given the run, so that a run that crashes every worker is not tried forever.
        """
        row = await self._fetchrow(
            "WITH r AS (UPDATE glidepath_fleet_runs SET taken = taken + $3 WHERE session = $1 RETURNING *) "
            "SELECT r.tenant, r.outcome, r.taken, glidepath_held(r.tenant) AS held, l.* FROM r CROSS JOIN LATERAL ("
            "SELECT coalesce(bool_or(max_tokens IS NOT NULL), false) AS limits_tokens, "
            "coalesce(bool_or(max_money IS NOT NULL), false) AS limits_money FROM glidepath_budgets "
            "WHERE name = ANY(glidepath_line(r.tenant, $2))) l",
            session,
            self._now(),
            int(taken),
        )
        return None if row is None else Look(**dict(row))

    async def uncount_attempt(self, session: str) -> None:
        """Do not count the attempt of a worker that cannot read the run."""
        await self._execute("UPDATE glidepath_fleet_runs SET taken = taken - 1 WHERE session = $1", session)

    async def outcome(self, session: str) -> tuple[str | None, str | None]:
        """How a run ended, and its error, if any; (None, None) until then.

        A paused run may also continue outside the fleet; then its session says how it ended.
        """
        row = await self._fetchrow(
            "SELECT CASE WHEN f.outcome = 'paused' THEN coalesce((SELECT convert_from(s.summary, 'UTF8')::json "
            "->> 'outcome' FROM glidepath_sessions s WHERE s.id = f.session), f.outcome) ELSE f.outcome END "
            "AS outcome, f.error FROM glidepath_fleet_runs f WHERE f.session = $1",
            check_storable_id(session),
        )
        if row is None:
            raise StoreError(f"run {session!r:.80} was never submitted to this fleet", kind="missing")
        return row["outcome"], row["error"]

    async def open(self, session: str, leg: int, worker: str) -> None:
        """Begin a leg of a run: from here on, draws of earlier legs are refused.

        `leg` is the fencing token of the session, so that the ledger and the journal have the same owner.
        """
        if not await self._fetchval("SELECT glidepath_open($1, $2, $3)", session, leg, worker):
            raise StoreError(f"run {session!r} was taken over by another worker", kind="fenced")

    async def draw(
        self,
        session: str,
        leg: int,
        *,
        spent: Amount,
        landing: Amount,
        flight: Amount,
        asked: Amount,
        least: Amount,
        spare: Amount,
        starting: bool = False,
    ) -> Grant:
        """Take out what a call may cost, in every budget above the run or in none.

        `starting`: the run has yet to start, so it may wait for what others keep for their landings.
        """
        parts = [part for one in (spent, landing, flight, asked, least, spare) for part in (one.tokens, one.money)]
        query = "SELECT * FROM glidepath_draw_as($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"

        async def work(connection: PostgresConnection) -> Any:
            return await connection.fetchrow(query, session, leg, self._now(), *parts, starting)

        row = await self._run_with_retry(work)
        return Grant(**{name: value for name, value in row.items() if value is not None})

    async def settle(
        self, session: str, leg: int | None, spent: Amount, outcome: str | None, error: str | None
    ) -> bool:
        """End a leg (None: the last one): unspent money goes back. False if another leg has started since."""
        return bool(
            await self._fetchval(
                "SELECT glidepath_close($1, $2, $3, $4, $5, $6)",
                session,
                leg,
                spent.tokens,
                spent.money,
                outcome,
                error,
            )
        )

    async def fail(self, session: str, error: str) -> None:
        """End a run that can never continue; it keeps what it has drawn, because what it spent is unknown."""
        await self._fetchval("SELECT glidepath_firm($1, NULL, $2)", session, error)

    async def announce(self) -> None:
        """Notify idle workers that runs were queued."""
        await self._execute(f"NOTIFY {QUEUED}")

    async def write_off(self, silent: float) -> None:
        """Count what runs hold that no worker has touched for `silent` seconds as spent, until one does."""
        while await self._fetchval("SELECT glidepath_firm(NULL, $1, NULL)", float(silent)):
            pass

    async def take_slot(self, model: str, tokens: int) -> float:
        """Take the next slot of a model; returns the seconds until then."""
        return float(await self._fetchval("SELECT glidepath_slot($1, $2)", model, tokens))

    # --- workers ----------------------------------------------------------------------------------------------

    async def register_worker(self, worker: str, lease: float, agents: Sequence[str]) -> None:
        """Register a worker, which must renew its lease from here on."""
        await self._execute(
            f"INSERT INTO glidepath_workers VALUES($1, {NOW} + $2, {NOW}, $3)",
            worker,
            lease,
            list(agents),
        )

    async def renew_worker_lease(self, worker: str, lease: float) -> tuple[bool, list[str], list[str], frozenset[str]]:
        """Renew a worker's lease; returns whether it is known, expired workers, live workers, rated models."""
        query = (
            f"WITH mine AS (UPDATE glidepath_workers SET expires = {NOW} + $2 WHERE id = $1) "  # noqa: S608
            f"SELECT id, expires < {NOW} AND id <> $1 AS late, true AS worker FROM glidepath_workers "
            "UNION ALL SELECT model, false, false FROM glidepath_rates"
        )
        rows = await self._run_with_retry(lambda connection: connection.fetch(query, worker, lease), patient=False)
        workers = [row for row in rows if row["worker"]]
        late = [row["id"] for row in workers if row["late"]]
        others = [row["id"] for row in workers if not row["late"] and row["id"] != worker]
        rated = frozenset(row["id"] for row in rows if not row["worker"])
        return any(row["id"] == worker for row in workers), late, others, rated

    async def find_orphaned_runs(self, worker: str, flown: Sequence[str]) -> list[tuple[str, str]]:
        """Runs taken from a queue that no known worker is running, and who took them.

        `flown` lists those that this worker runs.
        """
        rows = await self._fetch(
            "SELECT workflow_uuid, executor_id FROM dbos.workflow_status WHERE status = 'PENDING' AND name = $1 "
            "AND CASE WHEN executor_id = $2 THEN workflow_uuid <> ALL($3::text[]) "
            "ELSE NOT EXISTS (SELECT 1 FROM glidepath_workers WHERE id = executor_id) END",
            WORKFLOW,
            worker,
            list(flown),
        )
        return [(row["workflow_uuid"], row["executor_id"] or "") for row in rows]

    async def put_back(self, workers: Sequence[str], sessions: Sequence[str] | None = None) -> None:
        """Put the runs of these workers back into their queues, as DBOS does when one of its executors starts again.

        With `sessions`, only those.
        """
        await self._execute(
            "UPDATE dbos.workflow_status SET status = 'ENQUEUED', owner_xid = NULL, started_at_epoch_ms = NULL "
            "WHERE status = 'PENDING' AND name = $1 AND executor_id = ANY($2) "
            "AND ($3::text[] IS NULL OR workflow_uuid = ANY($3))",
            WORKFLOW,
            list(workers),
            sessions,
        )

    async def forget_workers(self, workers: Sequence[str], *, late: bool) -> None:
        """Forget workers whose runs were given to others; with `late`, only if their lease is still expired."""
        await self._execute(
            f"DELETE FROM glidepath_workers WHERE id = ANY($1) AND (NOT $2 OR expires < {NOW})",  # noqa: S608
            list(workers),
            late,
        )

    async def list_live_workers(self) -> list[tuple[str, tuple[str, ...]]]:
        """The workers with a valid lease, and their agents."""
        rows = await self._fetch(
            f"SELECT id, agents FROM glidepath_workers WHERE expires >= {NOW} ORDER BY started"  # noqa: S608
        )
        return [(row["id"], tuple(row["agents"])) for row in rows]

    def __repr__(self) -> str:
        return "<FleetLedger>"


def _schema() -> str:
    """The statements that make the tables and functions, or bring those of an older release up to date."""
    text = (files(__package__) / "fleet.sql").read_text(encoding="utf-8")
    for name, value in (("@LAYOUT", LAYOUT), ("@PARTS", PARTS), ("@FREED", FREED)):
        text = text.replace(name, str(value))
    return text


def check_tenant(name: object) -> None:
    """Raise `ConfigurationError` unless this can be the name of a tenant."""
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        raise ConfigurationError(
            "tenant must be 1 to 64 letters, digits or any of _ . @ - and begin with a letter or digit; "
            f"got {name!r:.100}"
        )
