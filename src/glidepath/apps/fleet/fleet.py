"""A fleet as users see it: submit runs, wait for them, and set what they may spend and how fast."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from glidepath._wire import encode
from glidepath.agent import Budget, check_metadata, check_user
from glidepath.apps.fleet.agents import check_name
from glidepath.apps.fleet.contain import APPLICATION, QUEUE, QUEUED, VERSION, WORKFLOW
from glidepath.apps.fleet.fleet_ledger import FleetAccount, FleetLedger, Quota, check_tenant
from glidepath.apps.fleet.fleet_redaction import FleetRedaction
from glidepath.apps.fleet.kill_switches import find_thrown_switch
from glidepath.apps.fleet.standing import FleetStatus, forget_old, status_of
from glidepath.sessions import PostgresStore, decide, prune, read_journal, send
from glidepath.tools import find_closest
from glidepath.values import ConfigurationError, QuotaError, RunResult, StoreError, check_sendable

if TYPE_CHECKING:
    from glidepath.run import Decision
    from glidepath.sessions import Hook, PostgresConnection
    from glidepath.sessions.postgres_pool import PostgresRow
    from glidepath.values import Message

FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
STARTING = 30.0  # seconds that a worker may take to create its queue
BATCH = 1000  # runs that are queued at once
_LONGEST_ID = 200
_SHOWN = 200
_ADMIT = (
    "SELECT session, glidepath_admit(session, $1, $2, task, digest, $3) "
    "FROM unnest($4::text[], $5::text[], $6::text[]) WITH ORDINALITY AS asked(session, task, digest, place) "
    "ORDER BY place"
)
_QUEUE = (
    "SELECT dbos.enqueue_workflow($1, $2, ARRAY(SELECT json_array_elements(given::json)), workflow_id => session, "
    "app_version => $3, application_name => $4) FROM unnest($5::text[], $6::text[]) AS asked(session, given)"
)
# A transaction has one time, and the queue is sorted by it: a millisecond apart, runs stay in the order they came in.
_IN_ORDER = (
    "UPDATE dbos.workflow_status SET created_at = created_at + place - 1 "
    "FROM unnest($1::text[]) WITH ORDINALITY AS asked(session, place) WHERE workflow_uuid = session"
)


class Fleet:
    """A fleet of workers on one PostgreSQL: `async with Fleet(dsn) as fleet: await fleet.submit("agent", "task")`.

    Needs the extra `glidepath[dbos]`. Every method raises `StoreError` when the database cannot be reached. `redact` is
    the hook of a `RedactingStore`: tasks and messages go through it, so the models read what it leaves.
    """

    def __init__(
        self, dsn: str, *, timeout: float = 10.0, ledger: FleetLedger | None = None, redact: Hook | None = None
    ) -> None:
        self.ledger = ledger or FleetLedger(dsn, timeout=timeout, connections=2)
        self._redaction = FleetRedaction(redact)
        self.store = self._redaction.store(PostgresStore(self.ledger.dsn, timeout=timeout, max_connections=2))
        self._offered: set[str] = set()

    async def __aenter__(self) -> Self:
        await self.ledger.check()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
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
        wallet: str | None = None,
    ) -> str:
        """Queue one run and return its session's id; submitting the same id and task again changes nothing.

        `metadata` and `user` are as in `Agent.run`, and `wallet` names a wallet in the fleet's store that the run
        spends from as well; the first submit decides. Raises `QuotaError` when the fleet or the tenant has used up what
        it may or a kill switch holds it, and `ConfigurationError` for an agent that no worker has ever offered, an
        unknown tenant, or a session that belongs to another run or task.
        """
        named = None if session is None else [session]
        about: Any = {"metadata": metadata, "user": user, "wallet": wallet}
        (name,) = await self.submit_many(agent, [task], tenant=tenant, sessions=named, **about)
        return name

    async def submit_many(
        self,
        agent: str,
        tasks: Sequence[str],
        *,
        tenant: str | None = None,
        sessions: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
        wallet: str | None = None,
    ) -> list[str]:
        """Queue many runs at once, up to 1,000: all of them, or none when one is refused. Raises as `submit` does.

        They start in the order of `tasks`. `metadata`, `user` and `wallet` apply to each of them.
        """
        check_name(agent)
        tasks, names = _check_batch(tasks, sessions)
        if tenant is not None:
            check_tenant(tenant)
        await self.ledger.check()
        await self._ready_for(agent)
        about: dict[str, Any] = {} if metadata is None else {"metadata": check_metadata(metadata)}
        if user is not None:
            about["user"] = check_user(user)
        if wallet is not None:
            about["wallet"] = (await Budget.find(wallet, self.store)).line[-1].name
        runs = dict(zip(names, self._redaction.redact_tasks(tasks), strict=True))
        await self._enqueue(agent, tenant, runs, self._redaction.redact_metadata(about))
        return names

    async def _ready_for(self, agent: str) -> None:
        """Wait for a worker that has this agent and is just starting; raises if there is no such worker."""
        until = asyncio.get_running_loop().time() + STARTING
        while agent not in self._offered:
            offered = await self._list_offered_agents()
            if agent in offered:
                self._offered.add(agent)
                return
            starting = [worker for worker, agents in await self.ledger.list_live_workers() if agent in agents]
            if not starting:
                raise _make_no_such_agent_error(agent, offered)
            if asyncio.get_running_loop().time() >= until:
                raise StoreError(
                    f"the worker {starting[0]} offers {agent!r}, but has not created its queue within {STARTING:g} s"
                )
            await asyncio.sleep(FIRST_WAIT)

    async def resume(self, session: str, decisions: Mapping[str, Decision] | None = None) -> None:
        """Let a paused run continue in the fleet, inside its budgets and its tenant; `decisions` are by call id.

        Decisions made earlier with `glidepath.sessions.inbox.decide` count as well. Doing it twice changes nothing.
        Raises `ConfigurationError` for a run that is not paused, and `QuotaError` while a kill switch holds it.
        """
        outcome, _ = await self.ledger.outcome(session)
        if outcome not in (None, "paused"):
            raise ConfigurationError(f"run {session!r} is {outcome}: only a paused run can be resumed")
        why = await find_thrown_switch(self.ledger, session)
        if why is not None:
            raise _make_kill_switch_error(why)
        if decisions:
            await decide(self.store, session, decisions)
        if outcome is not None:
            await self._take_up(session)

    async def _take_up(self, session: str) -> None:
        """Queue a paused run again, once the engine has recorded the pause."""
        until = asyncio.get_running_loop().time() + STARTING
        while not await self._enqueue_again(session):
            if asyncio.get_running_loop().time() >= until:
                raise StoreError(f"the worker that paused run {session!r} has not released it within {STARTING:g} s")
            await asyncio.sleep(FIRST_WAIT)

    async def send(self, session: str, message: str | Message, *, note_id: str | None = None) -> None:
        """Send a message to a run, on any worker; see `glidepath.sessions.inbox.send`."""
        await self.ledger.outcome(session)
        await send(self.store, session, message, note_id=note_id)

    async def status(self) -> FleetStatus:
        """How many runs are queued, running, paused and failed; how old the oldest is; and which worker runs what."""
        return await status_of(self.ledger)

    async def prune(self, *, older_than: float, states: Sequence[str] = ("completed",)) -> list[str]:
        """Remove sessions that ended at least this many seconds ago, with their runs, children and engine records.

        Their ids can be used again. Also forgets what tenants used in days and months before that.
        """
        gone = await prune(self.store, older_than=older_than, states=states)
        await forget_old(self.ledger, float(older_than))
        return gone

    async def outcome(self, session: str) -> str | None:
        """How a run ended, such as "done" or "cut_off"; None until then."""
        return (await self.ledger.outcome(session))[0]

    async def wait(self, session: str, timeout: float | None = None) -> str:  # noqa: ASYNC109 - seconds of a person
        """Wait until a run has ended and return how; raises `TimeoutError`."""
        wait = FIRST_WAIT
        async with asyncio.timeout(timeout):
            while True:
                outcome = await self.outcome(session)
                if outcome is not None:
                    return outcome
                await asyncio.sleep(wait)
                wait = min(1.5 * wait, LONGEST_WAIT)

    async def result(self, session: str) -> RunResult | None:
        """The whole result, with its messages, from the journal; None until the run has ended.

        Raises `ConfigurationError` with the reason if the run could not even start.
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
            raise ConfigurationError(f"run {session!r} never started: {error or outcome}")
        return result

    async def stop(self, session: str, reason: str = "") -> None:
        """Stop a run anywhere: a running one lands within a second, a queued one never starts."""
        outcome, _ = await self.ledger.outcome(session)
        await self.store.flag(session, reason or "stopped from outside")
        if outcome == "paused":
            await self._take_up(session)

    # --- budgets, tenants and rates ---------------------------------------------------------------------------

    async def set_budget(
        self, *, tokens: int | None = None, cost: Decimal | str | int | None = None, runs: int | None = None
    ) -> None:
        """Set what the whole fleet may use, counted from the first time it was set; without limits, stop counting."""
        quota = Quota(tokens=tokens, cost=cost, runs=runs)
        await self.ledger.set_budget(None if (tokens, cost, runs) == (None, None, None) else quota)

    async def set_tenant(self, name: str, *, day: Quota | None = None, month: Quota | None = None) -> None:
        """Set what a tenant may use per day and per month (UTC)."""
        for field, quota in (("day", day), ("month", month)):
            if quota is not None and not isinstance(quota, Quota):
                raise ConfigurationError(f"{field} must be a Quota, not {type(quota).__name__}")
        await self.ledger.set_tenant(name, day=day or Quota(), month=month or Quota())

    async def set_rate(
        self, model: str, *, requests: int | None = None, tokens: int | None = None, per: float = 60.0, burst: int = 1
    ) -> None:
        """Limit how often the fleet may call a model: requests and tokens per `per` seconds, evenly spaced."""
        await self.ledger.set_rate(model, requests=requests, tokens=tokens, per=per, burst=burst)

    async def accounts(self) -> list[FleetAccount]:
        """Every budget: the fleet's, and each tenant's days and months."""
        return await self.ledger.accounts()

    async def workers(self) -> list[tuple[str, tuple[str, ...]]]:
        """The live workers, each with its agents."""
        return await self.ledger.list_live_workers()

    # --- DBOS -------------------------------------------------------------------------------------------------

    async def _enqueue(
        self, agent: str, tenant: str | None, tasks: Mapping[str, str], about: Mapping[str, Any]
    ) -> None:
        """Admit and queue the runs, by session: one transaction, so a run is counted exactly when it is queued."""
        given = {session: [session, agent, task, about] for session, task in tasks.items()}
        shown = [task[:_SHOWN].replace("\x00", " ") for task in tasks.values()]
        digests = [hashlib.sha256(task.encode()).hexdigest() for task in tasks.values()]

        async def work(connection: PostgresConnection) -> None:
            moment = self.ledger._now()  # noqa: SLF001 - of the same house, as below
            answers = await connection.fetch(_ADMIT, agent, tenant, moment, list(tasks), shown, digests)
            for session, refused in answers:
                if refused not in ("", "known"):
                    raise _make_refusal_error(refused, session, tenant)
            await _queue(connection, agent, [given[session] for session, refused in answers if not refused])

        await self.ledger._on_disk(work)  # noqa: SLF001

    async def _enqueue_again(self, session: str) -> bool:
        """Put a paused run back into its queue; False while the engine still has it. Its task is in its journal."""
        known = "SELECT status FROM dbos.workflow_status WHERE workflow_uuid = $1 FOR UPDATE"
        paused = "SELECT agent FROM glidepath_fleet_runs WHERE session = $1 AND outcome = 'paused' FOR UPDATE"
        again = (
            "UPDATE glidepath_fleet_runs SET outcome = NULL, error = NULL, ended = NULL, taken = 0 WHERE session = $1"
        )

        async def work(connection: PostgresConnection) -> bool:
            status = await connection.fetchval(known, session)
            agent = await connection.fetchval(paused, session)
            if agent is None:
                return True  # another process was faster
            if status in ("PENDING", "ENQUEUED"):
                return False
            await connection.execute(again, session)
            await connection.execute("SELECT glidepath_forget($1)", session)
            await _queue(connection, agent, [[session, agent, ""]])
            return True

        return await self.ledger._on_disk(work)  # noqa: SLF001

    async def _list_offered_agents(self) -> list[str]:
        """The agents that workers have ever offered."""

        async def work(connection: PostgresConnection) -> Sequence[PostgresRow]:
            if not await connection.fetchval("SELECT to_regclass('dbos.queues') IS NOT NULL"):
                return []
            return await connection.fetch("SELECT name FROM dbos.queues WHERE starts_with(name, $1)", QUEUE)

        return sorted(name.removeprefix(QUEUE) for (name,) in await self.ledger._run_with_retry(work))  # noqa: SLF001


async def _queue(connection: PostgresConnection, agent: str, runs: Sequence[list[Any]]) -> None:
    """Queue runs by the arguments of their workflow, of which the session is the first, and tell idle workers."""
    written = [encode(given).decode() for given in runs]
    sessions = [given[0] for given in runs]
    await connection.execute(_QUEUE, WORKFLOW, f"{QUEUE}{agent}", VERSION, APPLICATION, sessions, written)
    if len(sessions) > 1:
        await connection.execute(_IN_ORDER, sessions)
    await connection.execute(f"NOTIFY {QUEUED}")


def _make_no_such_agent_error(agent: str, offered: Sequence[str]) -> ConfigurationError:
    if not offered:
        return ConfigurationError(
            f"no worker has offered an agent here yet, so there is no {agent!r}: start "
            f"`glidepath worker --agent {agent}=module:attribute` first"
        )
    meant = find_closest(agent, offered)
    hint = f"; did you mean {meant!r}?" if meant else ""
    return ConfigurationError(f"no worker offers an agent {agent!r}{hint} There are: {', '.join(offered)}")


def _check_batch(tasks: object, sessions: object) -> tuple[list[str], list[str]]:
    """The tasks and the ids of their sessions; raises `ConfigurationError`."""
    if isinstance(tasks, str) or not isinstance(tasks, Sequence) or not 0 < len(tasks) <= BATCH:
        raise ConfigurationError(f"tasks must be 1 to {BATCH} texts in a list, not {tasks!r:.60}")
    for task in tasks:
        if not isinstance(task, str) or not task.strip():
            raise ConfigurationError("task is empty: describe what the agent should do")
        check_sendable("task", task)
    if sessions is None:
        return list(tasks), [f"session_{os.urandom(8).hex()}" for _ in tasks]
    if isinstance(sessions, str) or not isinstance(sessions, Sequence) or len(sessions) != len(tasks):
        raise ConfigurationError(f"sessions must be one id for each of the {len(tasks)} tasks, not {sessions!r:.60}")
    for session in sessions:
        printable = isinstance(session, str) and session.isprintable() and session.strip()
        if not printable or len(session) > _LONGEST_ID:
            raise ConfigurationError(
                f"session must be an id of 1 to {_LONGEST_ID} printable characters, not {session!r:.100}"
            )
    if len(set(sessions)) != len(sessions):
        raise ConfigurationError("sessions has a duplicate id: each run needs its own")
    return list(tasks), list(sessions)


def _make_kill_switch_error(why: str) -> QuotaError:
    return QuotaError(
        f"the run was refused: {why}; it can start when a person releases the switch", budget="kill switch"
    )


def _make_refusal_error(refused: str, session: str, tenant: str | None) -> Exception:
    if refused == "tenant":
        return ConfigurationError(f"there is no tenant {tenant!r}: create it with Fleet.set_tenant")
    if refused == "other":
        return ConfigurationError(
            f"session {session!r} already belongs to a run with another task, agent or tenant: use another id"
        )
    if refused == "session":
        return ConfigurationError(
            f"session {session!r} is already in the store, but is not a run of this fleet: use another id"
        )
    budget, _, why = refused.partition(": ")
    if budget == "held":
        return _make_kill_switch_error(why)
    return QuotaError(f"the run was refused because the quota of {budget} is used up: {why}", budget=budget)
