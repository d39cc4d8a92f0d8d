"""One run in a worker, leg after leg, until it has ended or another worker has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from glidepath.agent import Budget, WalletClient
from glidepath.apps.fleet.budget import FleetBudget
from glidepath.run import Amount, CancelToken
from glidepath.sessions import PostgresStore, read_journal
from glidepath.values import ConfigurationError, LoopOutcome, RunResult, StoreError, describe_error

if TYPE_CHECKING:
    from glidepath.apps.fleet.fleet_ledger import Look
    from glidepath.apps.fleet.worker import Worker
    from glidepath.sessions import Folded

_log = logging.getLogger("glidepath")
HANDED_OVER = "handed over to another worker"
LEFT = "a later release wrote its journal: left to a worker that can read it"
LASTING = frozenset({"conflict", "missing", "damaged", "schema"})
"""Failures of the store that a retry cannot fix. A run that another worker has now may still come back."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
MOST_WORKERS = 20  # a run that crashed this many workers is not tried again


SEEN: ContextVar[tuple[str, int] | None] = ContextVar("glidepath_seen", default=None)
"""The session about to be claimed, and its token when it was read: the claim is valid only for that token."""


class FleetStore(PostgresStore):
    """A `PostgresStore` that claims a session only if it has not changed since it was read."""

    def _find_expected_head(self, session_id: str) -> int | None:
        seen = SEEN.get()
        return seen[1] if seen is not None and seen[0] == session_id else None


class WorkerFlight:
    """A run that this worker took. Everything about it comes from the journal and the ledger."""

    def __init__(
        self, worker: Worker, session: str, agent: str, task: str, about: Mapping[str, Any] | None = None
    ) -> None:
        self.worker = worker
        self.session = session
        self.agent = agent
        self.task = task
        self.about = dict(about or {})
        """The run's own metadata and user; once it has begun, they are in its journal."""
        self.wallet: str | None = self.about.pop("wallet", None)
        """The wallet that the run spends from, in addition to the fleet's budgets."""
        self.token = CancelToken()
        self.done = asyncio.Event()
        self.legs = 0
        self.doomed: str | None = None  # why it can never continue

    def hand_over(self) -> None:
        """Stop here, so that another worker can continue."""
        self.token.cancel(HANDED_OVER)

    async def run_to_end(self) -> str:
        """Run to the end, and return the outcome. Raises `CancelledError` when the run is handed over.

        DBOS records nothing for a cancelled workflow: it stays pending, and the worker that takes over continues. So
        nothing else gives up here: while another worker has the run, this one waits until the run has ended or is free.
        """
        wait = FIRST_WAIT
        try:
            while True:
                try:
                    outcome = await self._run_leg()
                    if outcome is not None:
                        return outcome
                except StoreError as error:
                    if error.kind == "newer":  # put back once the next check finds that it is not running here
                        _log.warning("run %s: %s; left to other workers", self.session, error)
                        with suppress(StoreError):  # do not count this worker's attempt
                            await self.worker.ledger.uncount_attempt(self.session)
                        raise asyncio.CancelledError(LEFT) from error
                    if error.kind in LASTING:
                        self.doomed = str(error)
                    _log.warning("run %s: %s; trying again", self.session, error)
                except Exception as error:  # our own defect must not leave the run without an outcome
                    _log.exception("run %s failed", self.session)
                    self.doomed = describe_error(error)
                if self.token.cancelled:
                    raise asyncio.CancelledError(HANDED_OVER)
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
        finally:
            self.done.set()

    async def _run_leg(self) -> str | None:
        """One leg. The outcome when the run has ended; None when it must be tried again."""
        look = await self.worker.ledger.read_state(self.session, taken=not self.legs)
        if look is None or look.outcome is not None:  # removed, or ended without DBOS having recorded it
            return "unknown" if look is None else look.outcome
        if self.doomed is not None:
            await self.worker.ledger.fail(self.session, self.worker.redaction.reason(self.doomed) or "")
            return "failed"
        if self.token.cancelled:
            return None
        self.legs += 1
        folded, stop = await self._journal()
        stop = stop or look.held
        last = None if folded is None else folded.snapshot
        spent = Amount() if last is None else Amount(last.tokens, last.picodollars)
        if folded is not None and folded.result is not None and not await self._to_resume(folded, stop):
            return await self._settle_run(
                self._budget(look), folded.result.outcome.value, _error_of(folded.result), spent
            )
        if look.taken > MOST_WORKERS:
            why = f"{look.taken - 1} workers took this run and none of them finished it"
            return await self._settle_run(self._budget(look), "failed", why, spent)
        return await self._run_agent(look, folded, spent, self.token if stop is None else _make_cancelled_token(stop))

    async def _run_agent(self, look: Look, folded: Folded | None, spent: Amount, token: CancelToken) -> str | None:
        agent: Any = self.worker.agents.get(self.agent)
        budget = self._budget(look)
        try:
            if self.wallet is not None:
                wallet = await Budget.find(self.wallet, self.worker.store)
                budget = self._budget(look, WalletClient(wallet.store, wallet.line, wallet.meter))
            if agent is None:
                raise ConfigurationError(f"this worker has no agent {self.agent!r}")
            if folded is None:
                result = await agent.run(self.task, session=self.session, cancel=token, parent=budget, **self.about)
            else:
                result = await agent.resume(self.session, cancel=token, parent=budget)
        except ConfigurationError as error:
            return await self._settle_run(budget, "failed", describe_error(error), spent)
        finally:
            if budget.purse is not None:
                await budget.purse.close()
        if _is_to_be_continued(result):
            kind = result.cause.metrics.get("kind")
            if kind == "newer":
                raise StoreError(result.cause.reason, kind="newer")
            if kind not in LASTING:
                return None
        return await self._settle_run(budget, result.outcome.value, _error_of(result), spent)

    async def _journal(self) -> tuple[Folded | None, str | None]:
        """The journal, or None if the run has not started; and why it must stop, if a stop was requested."""
        journal = await read_journal(self.worker.store, self.session)
        SEEN.set((self.session, journal.entry.token))
        begun = journal.entry.head > 0 and journal.folded.snapshot is not None
        return (journal.folded if begun else None), journal.entry.flag

    async def _to_resume(self, folded: Folded, stop: str | None) -> bool:
        """True if an ended run should continue: its worker or the database ended it, or a person decided."""
        result: Any = folded.result
        if result.outcome is not LoopOutcome.PAUSED:
            return _is_to_be_continued(result)
        return stop is not None or bool(await self.worker.store.notes(self.session, folded.taken))

    def _budget(self, look: Look, purse: WalletClient | None = None) -> FleetBudget:
        return FleetBudget(self.worker.ledger, self.session, self.worker.id, look, lambda: self.worker.rated, purse)

    async def _settle_run(self, budget: FleetBudget, outcome: str, error: str | None, spent: Amount) -> str | None:
        """The outcome, or None if another worker owns it or has already recorded it."""
        why = self.worker.redaction.reason(error)
        settled = await budget.settle(outcome, why, spent=None if budget.leg is not None else spent)
        return outcome if settled else None


def _make_cancelled_token(reason: str) -> CancelToken:
    """A cancelled token, for a stop that was requested while no worker ran it: it lands at once."""
    token = CancelToken()
    token.cancel(reason)
    return token


def _is_to_be_continued(result: RunResult) -> bool:
    """True if it ended only because a worker or the database failed."""
    cause = result.cause
    if cause is None:
        return False
    handed_over = result.outcome is LoopOutcome.CANCELLED and cause.reason == HANDED_OVER
    return handed_over or (cause.source == "store" and result.outcome is LoopOutcome.FAILED)


def _error_of(result: RunResult) -> str | None:
    done = result.outcome is LoopOutcome.DONE or result.cause is None
    return None if done or result.cause is None else f"{result.cause.source}: {result.cause.reason}"
