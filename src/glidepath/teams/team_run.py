"""What belongs to one execution of a team: its budget and clock, its cancel token, its events."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Budget, Limits
from glidepath.agent.purse import Purse
from glidepath.errors import ConfigurationError, told
from glidepath.ledger import Refusal, pico
from glidepath.messages import Usage
from glidepath.outcome import RunResult
from glidepath.plugins.observer import FAREWELL, Audience, Observer, dismiss
from glidepath.run import CancelToken, Decision, Place
from glidepath.run.inside import linked
from glidepath.teams.accounts import session_id
from glidepath.teams.events import TERMINAL, PlanReady, StepCompleted, TeamEvent, TeamStarted, ending
from glidepath.teams.journal import Past, Pen, StepAccount, less
from glidepath.teams.values import StepOutcome, TeamExecutionPlan, TeamExecutionRequest, TeamResult

if TYPE_CHECKING:
    from glidepath.teams.team import Team

__all__ = ["Channel", "TeamRun", "check_decisions", "decided_key", "linked", "newly_spent"]

_LEAST_TIME = 0.001


class TeamRun:
    """What belongs to one execution: its budget, its cancel token, what it spent."""

    def __init__(
        self,
        request: TeamExecutionRequest,
        cancel: CancelToken | None,
        past: Past | None,
        place: Place | None = None,
        above: Budget | None = None,
        leg: int | None = None,
    ) -> None:
        self.request = request
        self.past = past
        self.decisions: Mapping[str, Decision] = past.decisions if past is not None else {}
        self.usage = past.usage if past is not None else Usage()
        self.cost = past.cost if past is not None else None
        self.origins: dict[str, None] = dict.fromkeys(past.origins if past is not None else ())
        """The untrusted sources that members have read: what others are told may come from any of them."""
        self.cancel, self.let_go = linked(cancel)
        self.channel: Channel
        constraint, config = request.config.resource_constraint, request.config
        elapsed = past.elapsed if past is not None else 0.0
        limits = Limits(
            max_tokens=constraint.max_total_tokens,
            max_cost=constraint.max_cost,
            timeout=max(_LEAST_TIME, config.time_limit - elapsed),
        )
        self.purse: Purse | None = None
        """What all runs of the team hold together of a wallet."""
        if above is not None and above.line:
            name = f"team:{request.id}" if leg is not None else f"team:{request.id}:{os.urandom(6).hex()}"
            self.purse = Purse(above.store, above.line, above.meter, key=name, leg=leg or 1)
            self.budget = Budget.below(self.purse.meter, limits)
        else:
            self.budget = Budget(limits, parent=above) if place is None else Budget.inside(place, limits)
        self.began = asyncio.get_running_loop().time()
        self.deadline = self.budget.deadline(self.began)
        self.elapsed_before = elapsed
        self._asked = 0
        if past is not None:
            self._charge(past)

    def _charge(self, past: Past) -> None:
        """What was spent before is spent."""
        reservation = self.budget.meter.reserve(0, 0, turns=0)
        if not isinstance(reservation, Refusal):
            account = past.account
            if account is None:
                money = 0 if past.cost is None else pico(past.cost, field="cost")
                account = StepAccount(tokens=past.usage.total, money=money)
            reservation.settle(account.tokens, account.money)

    def next_session(self) -> str:
        """A session for a run that nobody has named: never the same twice, over all executions of the request."""
        self._asked += 1
        before = self.past.sequence if self.past is not None else 0
        return session_id(self.request.id, "ask", f"{before}-{self._asked}")

    async def close(self) -> None:
        """The execution is over: let slow observers finish, let go of the journal, and settle with the wallet."""
        try:
            await self.channel.close()
        finally:
            if self.purse is not None:
                await self.purse.close()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning, those of earlier executions included."""
        return self.elapsed_before + asyncio.get_running_loop().time() - self.began


class Channel:
    """The events of one execution: numbered, journalled, shown; in the only legal order."""

    def __init__(self, team: Team, request: TeamExecutionRequest, past: Past | None, pen: Pen | None) -> None:
        self._team, self._request = team.name, request
        self._members = tuple(member.name for member in team.members)
        self._pen = pen
        observers = [Observer(name, plugin, self._report, last=TERMINAL) for name, plugin in team.observers()]
        self._audience = Audience(team.event_sink, observers, self._report, by_hand=_by_hand(team))
        self._now: Callable[[], float] = getattr(asyncio.get_running_loop(), "epoch", time.time)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.posted = False
        """Events came from another thread, and may be on their way."""
        self.sequence = past.sequence if past is not None else 0
        self.resumed = past is not None
        self.started = False
        self.ended: TeamEvent | None = None
        self.failure: str | None = None
        """Why the journal can no longer be written."""
        self.on_failure: Callable[[str], None] | None = None
        self.warnings: list[str] = []
        self.plan = past.plan if past is not None else None
        self.outcomes = {outcome.step_id: outcome for outcome in past.outcomes} if past is not None else {}

    def emit(self, event: TeamEvent) -> None:
        """Publish one event, or drop it when it has no legal place or says nothing that can be used."""
        if threading.get_ident() != self._thread:
            self.posted = True
            with suppress(RuntimeError):  # the loop is closed: there is nobody left to hear it
                self._loop.call_soon_threadsafe(self.emit, event)
            return
        if self.ended is not None:
            self._warn(f"{event.kind} came after the end and was not published")
            return
        if not self._sound(event):
            self._warn(f"{event.kind} without what it must say was not published")
            return
        if isinstance(event, TERMINAL):
            event = self._true(event)
        if isinstance(event, TeamStarted):
            if self.started:
                self._warn("a second TEAM_STARTED was not published")
                return
        elif not self.started:
            self._publish(TeamStarted(request=self._request, members=self._members, resumed=self.resumed))
        self._publish(event)

    def _sound(self, event: TeamEvent) -> bool:
        """True when what others rely on is there."""
        if isinstance(event, TERMINAL):
            result: Any = getattr(event, "result", None)
            return isinstance(result, TeamResult) and result.request.id == self._request.id
        if isinstance(event, PlanReady):
            return isinstance(event.plan, TeamExecutionPlan)
        return not isinstance(event, StepCompleted) or isinstance(event.outcome, StepOutcome)

    def _true(self, event: Any) -> TeamEvent:
        """The terminal event that goes with its result, and with this team."""
        result = event.result if event.result.team == self._team else replace(event.result, team=self._team)
        right = ending(result)
        if type(right) is not type(event):
            self._warn(f"{event.kind} was published as {right.kind}, which goes with {result.status.name}")
        return right

    def _publish(self, event: TeamEvent) -> None:
        self.started = True
        event = replace(event, run_id=self._request.id, team=self._team, sequence=self.sequence + 1, time=self._now())
        self.sequence = event.sequence
        if isinstance(event, TERMINAL):
            self.ended = event = _numbered(event)
        elif isinstance(event, PlanReady):
            self.plan = event.plan
        elif isinstance(event, StepCompleted):
            self.outcomes[event.outcome.step_id] = event.outcome
        if self._pen is not None and self.failure is None:
            try:
                self._pen.write(event, self._request.goal)
            except Exception as error:
                self.fail(told(error))
        self._audience(event)

    def fail(self, why: str) -> None:
        """The journal can no longer be written: the team has to end."""
        if self.failure is None:
            self.failure = why
            self._warn(f"the journal cannot be written: {why}")
            if self.on_failure is not None:
                self.on_failure(why)

    async def flush(self) -> None:
        """Wait until all that was said is on record."""
        if self._pen is not None and self.failure is None:
            try:
                await self._pen.flush()
            except Exception as error:
                self.fail(told(error))

    def _report(self, name: str, hook: str, error: str, effect: str) -> None:  # noqa: ARG002 - as observers report
        self._warn(f"observer {name} failed and was {effect}: {error}")

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)

    async def close(self) -> None:
        """Let slow observers finish, and let go of the journal."""
        try:
            farewell = await dismiss(self._audience.observers, FAREWELL)
            if farewell.missed:
                self._warn(f"observers were too slow and have missed {farewell.missed} events")
            for name in farewell.stubborn:
                self._warn(f"observer {name} did not stop after the end and was let go")
        finally:
            if self._pen is not None:
                await self.flush()
                await self._pen.close()


def _numbered(event: Any) -> TeamEvent:
    """The terminal event, whose result knows its number: a team that continues counts on from there."""
    result = replace(event.result, sequence=event.sequence)
    numbered: TeamEvent = replace(event, result=result)
    return numbered


def newly_spent(result: RunResult, paused: RunResult | None) -> tuple[Usage, Decimal | None]:
    """What a run used; of one that continued, only what was used since."""
    if paused is None or result.run_id != paused.run_id:
        return result.usage, result.cost
    return less((result.usage, result.cost), (paused.usage, paused.cost))


def check_decisions(decisions: object, past: Past) -> Mapping[str, Decision]:
    """The decisions, each about a call that waits; raises `ConfigurationError` otherwise."""
    if decisions is None:
        return {}
    if not isinstance(decisions, Mapping) or not all(isinstance(said, Decision) for said in decisions.values()):
        raise ConfigurationError("decisions must map call ids to approve(), deny(reason) or answer(text)")
    waiting, plain = _waiting(past)
    found: dict[str, Decision] = {}
    for name, decision in decisions.items():
        places = waiting.get(name, plain.get(name, ()))
        if not places and name in past.asked:
            continue  # it was obeyed before the process died
        if not places:
            raise ConfigurationError(
                f"decisions: there is no pending call {name!r:.80}; pending are {', '.join(plain) or 'none'}"
            )
        if len(places) > 1:
            which = ", ".join(key for key, place in waiting.items() if place[0] in places)
            raise ConfigurationError(f"decisions: call {name!r:.80} waits in more than one step; say which: {which}")
        if places[0] in found:
            raise ConfigurationError(f"decisions: there are two about the same call, {name!r:.80}")
        found[places[0]] = decision
    return found


def _waiting(past: Past) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The calls that wait, each as `decided_key`: by step and call id, and by call id alone."""
    finished = {outcome.step_id for outcome in past.outcomes}
    exact: dict[str, list[str]] = {}
    plain: dict[str, list[str]] = {}
    for step_id, step in past.steps.items():
        if step.paused is not None and step_id not in finished:
            for pending in step.paused.pending:
                key = decided_key(step.paused, pending.call.id)
                exact.setdefault(f"{step_id}/{pending.call.id}", []).append(key)
                plain.setdefault(pending.call.id, []).append(key)
    return exact, plain


def decided_key(run: RunResult, call_id: str) -> str:
    """The name of a call among all runs of a team: call ids are the models', and need not be unique."""
    return f"{run.run_id}/{call_id}"


def _by_hand(team: Team) -> Callable[[], None]:
    return lambda: team.cancel.cancel("interrupted from the keyboard")
