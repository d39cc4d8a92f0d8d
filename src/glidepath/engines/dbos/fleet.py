"""A fleet as its users see it: submit runs, wait for them, and set what may be spent and how fast."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Self

from glidepath.agent.config import check_sendable
from glidepath.agent.per_run import check_metadata, check_user
from glidepath.engines.dbos.agents import check_name
from glidepath.engines.dbos.contain import APPLICATION, QUEUE, VERSION, WORKFLOW, quiet
from glidepath.engines.dbos.ledger import Account, FleetLedger, Quota, check_tenant
from glidepath.engines.dbos.needs import needed
from glidepath.errors import ConfigurationError, QuotaError, StoreError
from glidepath.outcome import RunResult
from glidepath.sessions import PostgresStore
from glidepath.sessions.archive import read_journal
from glidepath.tools import closest

__all__ = ["Fleet"]

FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
SUBMITTERS = 4  # submits at a time
_LONGEST_ID = 200
_SHOWN = 200


class Fleet:
    """A fleet of workers on one PostgreSQL: `async with Fleet(dsn) as fleet: await fleet.submit("agent", "task")`.

    Needs the extra `glidepath[dbos]`. Every method raises `StoreError` when the database cannot be reached.
    """

    def __init__(self, dsn: str, *, timeout: float = 10.0, ledger: FleetLedger | None = None) -> None:
        self.ledger = ledger or FleetLedger(dsn, timeout=timeout, connections=2)
        self.store = PostgresStore(self.ledger.dsn, timeout=timeout, max_connections=2)
        self._timeout = timeout
        self._client: Any = None
        self._engine: Any = None
        self._lock = asyncio.Lock()
        self._offered: set[str] = set()

    async def __aenter__(self) -> Self:
        await self.ledger.check()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        client, self._client = self._client, None
        if client is not None:
            with quiet():
                await asyncio.to_thread(client.destroy)
                await asyncio.to_thread(self._engine.dispose)
        await self.ledger.close()
        await self.store.close()

    # --- runs -------------------------------------------------------------------------------------------------

    async def submit(
        self,
        agent: str,
        task: str,
        *,
        tenant: str | None = None,
        session: str | None = None,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> str:
        """Queue one run and return its session's id; a second submit of the same id and task is the same run.

        `metadata` and `user` are the run's own, as in `Agent.run`; those of the first submit count.
        Raises `QuotaError` when the fleet or the tenant has used up what it may, and `ConfigurationError` for an agent
        that no worker has ever offered, an unknown tenant, or a session that is somebody else's or has another task.
        """
        check_name(agent)
        if not isinstance(task, str) or not task.strip():
            raise ConfigurationError("task is empty: say what the agent should do")
        check_sendable("task", task)
        if tenant is not None:
            check_tenant(tenant)
        if session is not None:
            _check_id(session)
        about: dict[str, Any] = {} if metadata is None else {"metadata": check_metadata(metadata)}
        if user is not None:
            about["user"] = check_user(user)
        name = session or f"session_{os.urandom(8).hex()}"
        await self.ledger.check()
        await self._in_thread(self._enqueue, name, agent, task, tenant, about)
        return name

    async def outcome(self, session: str) -> str | None:
        """How a run ended, such as "done" or "cut_off"; None while it has not."""
        return (await self.ledger.outcome(session))[0]

    async def wait(self, session: str, timeout: float | None = None) -> str:  # noqa: ASYNC109 - seconds of a person
        """Wait until a run has ended and say how; raises `TimeoutError`."""
        wait = FIRST_WAIT
        async with asyncio.timeout(timeout):
            while True:
                outcome = await self.outcome(session)
                if outcome is not None:
                    return outcome
                await asyncio.sleep(wait)
                wait = min(1.5 * wait, LONGEST_WAIT)

    async def result(self, session: str) -> RunResult | None:
        """The whole result, with its messages, from the journal; None while the run has not ended, or goes on.

        Raises `ConfigurationError` for a run that could not be flown at all, with what was wrong.
        """
        outcome, error = await self.ledger.outcome(session)
        if outcome is None:
            return None
        try:
            result = (await read_journal(self.store, session)).folded.result
        except StoreError as missing:
            if missing.kind != "missing":
                raise
            raise ConfigurationError(f"run {session!r} is {outcome}, and its journal was removed") from None
        if result is None and outcome == "paused":
            return None
        if result is None:
            raise ConfigurationError(f"run {session!r} was not flown: {error or outcome}")
        return result

    async def stop(self, session: str, reason: str = "") -> None:
        """Stop a run, wherever it is: in flight it lands within a second, in a queue it is never started."""
        await self.ledger.outcome(session)
        await self.store.flag(session, reason or "stopped from outside")

    # --- what may be spent, and how fast ----------------------------------------------------------------------

    async def set_budget(
        self, *, tokens: int | None = None, cost: Decimal | str | int | None = None, runs: int | None = None
    ) -> None:
        """What the whole fleet may use, counted from the first time it was set; without any limit it counts no more."""
        quota = Quota(tokens=tokens, cost=cost, runs=runs)
        await self.ledger.set_budget(None if (tokens, cost, runs) == (None, None, None) else quota)

    async def set_tenant(self, name: str, *, day: Quota | None = None, month: Quota | None = None) -> None:
        """A tenant, with what it may use in a day and in a month (UTC)."""
        for field, quota in (("day", day), ("month", month)):
            if quota is not None and not isinstance(quota, Quota):
                raise ConfigurationError(f"{field} must be a Quota, not {type(quota).__name__}")
        await self.ledger.set_tenant(name, day=day or Quota(), month=month or Quota())

    async def set_rate(
        self, model: str, *, requests: int | None = None, tokens: int | None = None, per: float = 60.0, burst: int = 1
    ) -> None:
        """How often the whole fleet may call a model: requests and tokens in `per` seconds, evenly spaced."""
        await self.ledger.set_rate(model, requests=requests, tokens=tokens, per=per, burst=burst)

    async def accounts(self) -> list[Account]:
        """Every budget: the fleet's, and each tenant's days and months."""
        return await self.ledger.accounts()

    async def workers(self) -> list[tuple[str, tuple[str, ...]]]:
        """The workers that are alive, and the agents that each has."""
        return await self.ledger.crew()

    # --- DBOS -------------------------------------------------------------------------------------------------

    async def _in_thread(self, function: Any, *arguments: Any) -> None:
        sqlalchemy = needed("sqlalchemy")
        with quiet():
            try:
                async with self._lock:
                    if self._client is None:
                        await asyncio.to_thread(self._connect)
                await asyncio.to_thread(function, *arguments)
            except sqlalchemy.exc.DBAPIError as error:
                raise StoreError(f"the fleet's database failed: {error.orig}") from error
            except sqlalchemy.exc.TimeoutError as error:
                raise StoreError(f"the fleet's database cannot be reached: {error}") from error

    def _connect(self) -> None:
        sqlalchemy, dbos = needed("sqlalchemy"), needed("dbos")
        url = sqlalchemy.make_url(self.ledger.dsn).set(drivername="postgresql+psycopg")
        self._engine = sqlalchemy.create_engine(
            url,
            pool_size=SUBMITTERS,
            max_overflow=0,
            pool_pre_ping=True,
            connect_args={"connect_timeout": int(self._timeout)},
        )
        self._client = dbos.DBOSClient(
            system_database_engine=self._engine,
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def _enqueue(self, session: str, agent: str, task: str, tenant: str | None, about: dict[str, Any]) -> None:
        """Admit and queue the run: one transaction, so a run is counted exactly when it is queued."""
        sqlalchemy = needed("sqlalchemy")
        if agent not in self._offered:
            self._check_agent(agent)
            self._offered.add(agent)
        serialization = needed("dbos").WorkflowSerializationFormat.PORTABLE  # plain JSON: nothing to unpickle
        options = {
            "workflow_name": WORKFLOW,
            "queue_name": f"{QUEUE}{agent}",
            "workflow_id": session,
            "app_version": VERSION,
            "serialization_type": serialization,
        }
        with self._engine.begin() as connection:
            most = max(1, int(self._timeout * 1000))  # one that stands still in here holds up the whole fleet
            connection.execute(sqlalchemy.text(f"SET LOCAL idle_in_transaction_session_timeout = {most}"))
            moment = self.ledger._now()  # noqa: SLF001
            shown = task[:_SHOWN].replace("\x00", " ")
            query = "SELECT glidepath_admit(:session, :agent, :tenant, :task, :digest, :moment)"
            digest = hashlib.sha256(task.encode()).hexdigest()
            asked = {"session": session, "agent": agent, "tenant": tenant, "task": shown, "digest": digest}
            refused = connection.execute(sqlalchemy.text(query), {**asked, "moment": moment}).scalar()
            if refused == "known":
                return
            if refused:
                raise _refusal(refused, session, tenant)
            given = (session, agent, task, about) if about else (session, agent, task)  # as older workers take it
            self._client.enqueue_in_transaction(connection, options, *given)

    def _check_agent(self, agent: str) -> None:
        sqlalchemy = needed("sqlalchemy")
        try:
            known = self._client.retrieve_queue(f"{QUEUE}{agent}") is not None
            names = [] if known else [queue.name for queue in self._client.list_queues()]
        except sqlalchemy.exc.ProgrammingError as error:
            if getattr(error.orig, "sqlstate", None) not in ("42P01", "3F000"):  # no such table, no such schema
                raise
            known, names = False, []
        if known:
            return
        offered = sorted(name.removeprefix(QUEUE) for name in names if name.startswith(QUEUE))
        if not offered:
            raise ConfigurationError(
                f"no worker has ever offered an agent here, so none is called {agent!r}: start "
                f"`glidepath worker --agent {agent}=module:attribute` first"
            )
        meant = closest(agent, offered)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise ConfigurationError(f"no worker offers an agent {agent!r}{hint} There is: {', '.join(offered)}")


def _check_id(session: Any) -> None:
    if isinstance(session, str) and session.strip() and len(session) <= _LONGEST_ID and session.isprintable():
        return
    raise ConfigurationError(f"session must be an id of 1 to {_LONGEST_ID} printable characters, not {session!r:.100}")


def _refusal(refused: str, session: str, tenant: str | None) -> Exception:
    if refused == "tenant":
        return ConfigurationError(f"there is no tenant {tenant!r}: make it with Fleet.set_tenant")
    if refused == "other":
        return ConfigurationError(
            f"session {session!r} is a run of this fleet with another task, agent or tenant: take another id"
        )
    if refused == "session":
        return ConfigurationError(
            f"session {session!r} is in the store already, and no run of this fleet: take another id"
        )
    budget, _, why = refused.partition(": ")
    return QuotaError(f"the run was refused, the quota of {budget} is used up: {why}", budget=budget)
