"""One execution of a team: its budget, clock, cancel token, events and journal, and the runs of its members."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import TYPE_CHECKING

from glidepath._wire import Record
from glidepath.agent import Agent, Budget, Limits, WalletClient
from glidepath.run import (
    Amount,
    CallScope,
    CancelToken,
    Decision,
    charge_earlier,
    link_tokens,
    pico,
    run_uninterrupted,
)
from glidepath.spi import Plugin
from glidepath.teams.accounts import session_id
from glidepath.teams.event_channel import EventChannel
from glidepath.teams.events import TeamEvent
from glidepath.teams.journal import TeamJournal
from glidepath.teams.money_spent import add_cost, spending_since_pause
from glidepath.teams.team_history import History, decision_key
from glidepath.teams.team_prompts import mark_untrusted
from glidepath.teams.values import TeamExecutionRequest, TeamResult, TeamStatus
from glidepath.tools import clean
from glidepath.values import AgentState, ConfigurationError, LoopOutcome, RunResult, StopCause, Usage, describe_error

if TYPE_CHECKING:
    from glidepath.teams.step_table import StepTable
    from glidepath.teams.team import Team

_LEAST_TIME = 0.001


class TeamRunTerms(Record, kw_only=True):
    """What an execution gets besides its request: cancel token, history, journal, enclosing run, parent budget."""

    cancel: CancelToken | None = None
    history: History | None = None
    journal: TeamJournal | None = None
    place: CallScope | None = None
    above: Budget | None = None


class TeamRun:
    """One execution of a request by a team: what a coordinator works with.

    It has the members, the budget, the cancel token, the clock and the history of this execution. `emit` publishes an
    event, `ask` runs an agent on the team's budget. `Team.run` opens it and closes it.
    """

    def __init__(
        self,
        team: Team,
        request: TeamExecutionRequest,
        terms: TeamRunTerms,
        *,
        observers: Iterable[tuple[str, Plugin]],
        on_close: Callable[[], object],
    ) -> None:
        self.team = team
        self.name, self.members, self.member = team.name, team.members, team.member
        self._on_close = on_close
        self.request = request
        self.journal = terms.journal
        self.history = terms.history
        """What earlier executions of this request did, when this one continues."""
        before = self.before
        self.decisions: Mapping[str, Decision] = before.decisions
        self.usage, self.cost = before.usage, before.cost
        self.origins: dict[str, None] = dict.fromkeys(before.origins)
        """The untrusted sources that members have read; prompts for others may contain text from any of them."""
        self.cancel, self._let_go = link_tokens(terms.cancel)
        self.began = asyncio.get_running_loop().time()
        self._purse: WalletClient | None = None
        self.budget = self._open_budget(terms.place, terms.above)
        """The parent of every member's run."""
        self.deadline = self.budget.deadline(self.began)
        self.closed = False
        self._asked = 0
        self.events = EventChannel(self, observers)
        if self.journal is not None:
            self.journal.on_stop, self.journal.on_lost = self.cancel.cancel, self.events.fail
            self.journal.keep_alive()

    def _open_budget(self, place: CallScope | None, above: Budget | None) -> Budget:
        request, journal, history = self.request, self.journal, self.history
        constraint = request.config.resource_constraint
        limits = Limits(
            max_tokens=constraint.max_total_tokens,
            max_cost=constraint.max_cost,
            timeout=max(_LEAST_TIME, request.config.time_limit - self.before.elapsed),
        )
        if above is not None and above.line:  # what all runs of the team together hold of a wallet
            name = f"team:{request.id}" if journal is not None else f"team:{request.id}:{os.urandom(6).hex()}"
            leg = 1 if journal is None else journal.lease.token or 1  # it grows with every execution
            self._purse = WalletClient(above.store, above.line, above.meter, key=name, leg=leg)
            budget = Budget.below(self._purse.meter, limits)
        else:
            budget = Budget(limits, parent=above) if place is None else Budget.inside(place, limits)
        if history is not None:  # earlier executions have spent this
            money = 0 if history.cost is None else pico(history.cost, field="cost")
            spent = Amount(*(history.account or (history.usage.total, money)))
            charge_earlier(budget.meter, spent, Amount(*history.disputed))
        return budget

    def __repr__(self) -> str:
        return f"<TeamRun {self.name}: {self.request.id}>"

    # --- what a coordinator works with ----------------------------------------------------------------------------

    @property
    def before(self) -> History:
        """The history of this request, empty at the first execution."""
        return self.history or History(request=self.request)

    @property
    def spent(self) -> tuple[Usage, Decimal | None]:
        """What all runs of this request have used so far."""
        return self.usage, self.cost

    @property
    def elapsed(self) -> float:
        """Seconds since the start, including earlier executions."""
        return self.before.elapsed + asyncio.get_running_loop().time() - self.began

    def emit(self, event: TeamEvent) -> None:
        """Publish an event: number it, write it to the journal, notify the observers.

        The envelope (request, team, sequence, time) is filled in here. An event before `TeamStarted` is preceded by
        one; an event after the terminal one is dropped and noted as a warning.
        """
        if not isinstance(event, TeamEvent):
            raise ConfigurationError(f"emit takes a TeamEvent, not {type(event).__name__}")
        self.events.emit(event)

    async def ask(
        self,
        agent: Agent,
        prompt: str,
        *,
        cancel: CancelToken | None = None,
        paused: RunResult | None = None,
        session: str | None = None,
        begun: bool = False,
    ) -> RunResult:
        """Run an agent on the team's budget and time; always returns a result. `cancel` should follow the team's.

        `paused` continues a run that waited for a person, with the decisions about it, instead of a new run. `session`
        names the run in the team's store; with `begun`, the run in it continues.
        """
        token = cancel or self.cancel
        result: RunResult | None = None
        try:
            await self.events.flush()  # earlier events are on record before anything else happens
            keeper = self.team.kept(agent)
            home = None if keeper.config.store is None else session
            if keeper.config.store is not None and not session:  # unique over all executions of the request
                self._asked += 1
                home = session_id(self.request.id, "ask", f"{self.before.sequence}-{self._asked}")
            if begun and home is not None:
                result = await _resume_member(keeper, home, self, token)
            if result is None and paused is not None:
                store, name = self.team.store, paused.session_id
                kept = store is None or any(entry.session_id == name for entry in await store.entries(name))
                result = await _resume_with_decisions(keeper if kept else agent, paused, self, token)
            if result is None:
                result = await keeper.run(
                    mark_untrusted(prompt, self.request, tuple(self.origins)),
                    session=home,
                    parent=self.budget,
                    cancel=token,
                    user=self.request.user,
                    metadata=self.request.metadata,
                )
        # A member can raise anything, even SystemExit; only a cancel or Ctrl-C meant for us may end the team.
        except BaseException as error:
            task = asyncio.current_task()
            cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
            if cancelled or isinstance(error, KeyboardInterrupt):
                raise
            result = _make_crash_result(error)
        # For all members from now on: one member's text may be in the prompt of another.
        self.origins |= dict.fromkeys(result.origins)
        usage, cost = spending_since_pause(result, paused)
        self.usage, self.cost = self.usage + usage, add_cost(self.cost, cost)
        return result

    def concluded(
        self, status: TeamStatus, reason: str, table: StepTable | None, *, warnings: Iterable[str] = ()
    ) -> TeamResult:
        """The result of this execution, with the outcome of every step."""
        return TeamResult(
            request=self.request,
            team=self.name,
            status=status,
            plan=None if table is None else table.plan,
            step_outcomes=() if table is None else table.outcomes_in_order(),
            final_output="" if table is None else table.final_output(),
            reason=reason,
            duration=self.elapsed,
            warnings=tuple(dict.fromkeys(warnings)),
            usage=self.usage,
            cost=self.cost,
            sequence=self.events.sequence + 1,
        )

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the execution: let slow observers finish, and release the journal and the request."""
        if self.closed:  # the request may already run again, in another execution
            return
        self.closed = True
        self._let_go()
        await run_uninterrupted(
            self._close(), name="team closing"
        )  # the journal is released before a cancellation counts

    async def _close(self) -> None:
        async with AsyncExitStack() as at_last:
            at_last.callback(self._on_close)
            if self._purse is not None:
                at_last.push_async_callback(self._purse.close)
            await self.events.close()


async def _resume_member(agent: Agent, session: str, run: TeamRun, cancel: CancelToken) -> RunResult | None:
    """Continue a run that an earlier process began; None if it had not even started."""
    try:
        result = await agent.resume(session, parent=run.budget, cancel=cancel)
    except ConfigurationError:
        return None  # there is no session, or no run in it
    if any(decision_key(result, waiting.call.id) in run.decisions for waiting in result.pending):
        result = await _resume_with_decisions(agent, result, run, cancel)
    return result


async def _resume_with_decisions(agent: Agent, paused: RunResult, run: TeamRun, cancel: CancelToken) -> RunResult:
    """Continue a waiting run with a person's decisions about its calls."""
    pending = {decision_key(paused, waiting.call.id): waiting.call.id for waiting in paused.pending}
    decisions = {pending[key]: said for key, said in run.decisions.items() if key in pending}
    return await agent.resume(paused, decisions=decisions, parent=run.budget, cancel=cancel)


def _make_crash_result(error: BaseException) -> RunResult:
    reason = clean(describe_error(error))
    return RunResult(
        run_id="",
        session_id="",
        state=AgentState.ERROR,
        outcome=LoopOutcome.FAILED,
        cause=StopCause(source="member", action="graceful_exit", reason=reason),
    )
