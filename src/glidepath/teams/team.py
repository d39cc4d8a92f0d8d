"""A team: members, one ledger for all of them, one stream of events, and the front door."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, replace, settle_field
from glidepath.agent import Agent, Budget, Limits
from glidepath.agent.prices import find_price
from glidepath.errors import ConfigurationError
from glidepath.events import Event
from glidepath.ledger import Refusal, pico
from glidepath.messages import Usage
from glidepath.outcome import AgentState, LoopOutcome, RunResult, StopCause
from glidepath.plugins import Lineup, Observer
from glidepath.run import CancelToken
from glidepath.spi import Plugin
from glidepath.teams.events import TERMINAL, PlanReady, StepCompleted, TeamEvent, TeamStarted, codec
from glidepath.teams.journal import Past, TeamJournal, add_cost, past_of
from glidepath.teams.mailbox import Mailboxes
from glidepath.teams.values import TeamExecutionPlan, TeamExecutionRequest, TeamResult, TeamStatus, check_name

if TYPE_CHECKING:
    from glidepath.teams.spi import TeamCoordinator

__all__ = ["Member", "Team"]

_OBSERVER_PATIENCE = 5.0
_LEAST_TIME = 0.001


class Member(Value, frozen=True, kw_only=True):
    """An agent in a team: its name there, and what it can do."""

    name: str
    agent: Agent
    capabilities: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_name("Member.name", self.name)
        if not isinstance(self.agent, Agent):
            raise ConfigurationError(f"Member.agent must be an Agent, not {self.agent!r:.80}")
        if isinstance(self.capabilities, str) or not isinstance(self.capabilities, Iterable):
            raise ConfigurationError(f"Member.capabilities must be a set of names, not {self.capabilities!r:.80}")
        settle_field(self, "capabilities", frozenset(self.capabilities))
        for capability in self.capabilities:
            check_name("Member.capabilities: a name", capability)

    def offers(self, capability: str | None) -> bool:
        """True when nothing special is needed, or the member can do it."""
        return capability is None or capability in self.capabilities


class Team:
    """Agents that work on one goal: `await Team([...]).run("goal")`.

    A team is immutable and can carry out many requests at once. `plugins` are observers of its events, `journal` keeps
    them. For one execution a coordinator works with `team.bound(request)`, which has the budget, the cancel token
    and the clock of that execution.
    """

    def __init__(
        self,
        members: Iterable[Member | Agent],
        *,
        name: str = "team",
        coordinator: TeamCoordinator | None = None,
        plugins: Iterable[Plugin] = (),
        event_sink: Callable[[TeamEvent], Any] | None = None,
        journal: TeamJournal | None = None,
    ) -> None:
        check_name("Team.name", name)
        if event_sink is not None and (not callable(event_sink) or asyncio.iscoroutinefunction(event_sink)):
            raise ConfigurationError("Team.event_sink must be a plain function; use a Plugin for an async observer")
        if journal is not None and not isinstance(journal, TeamJournal):
            raise ConfigurationError(f"Team.journal must have append() and read(), not {journal!r:.80}")
        self.name = name
        self.members = _members(members)
        self.coordinator = coordinator
        if coordinator is not None:
            check_coordinator(coordinator)
        self.journal = journal
        self.event_sink = event_sink
        self._lineup = _observing(plugins)
        self._in_flight: dict[str, Channel] = {}
        self._mailboxes = Mailboxes()
        self._bond: Bond | None = None

    def member(self, name: str) -> Member:
        """The member of this name; raises KeyError."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<Team {self.name}: {', '.join(member.name for member in self.members)}>"

    # --- one execution ----------------------------------------------------------------------------------------

    def bound(
        self, request: TeamExecutionRequest, *, cancel: CancelToken | None = None, past: Past | None = None
    ) -> Team:
        """This team for one execution of a request; itself, when it is bound to it already.

        Raises `ConfigurationError` when the request is in flight, or money is limited and a member has no price.
        """
        if not isinstance(request, TeamExecutionRequest):
            raise ConfigurationError(f"request must be a TeamExecutionRequest, not {type(request).__name__}")
        if self._bond is not None:
            if self._bond.request.id != request.id:
                raise ConfigurationError(f"this team is bound to request {self._bond.request.id!r}")
            return self
        if cancel is not None and not isinstance(cancel, CancelToken):
            raise ConfigurationError(f"cancel must be a CancelToken, not {type(cancel).__name__}")
        if request.id in self._in_flight:
            raise ConfigurationError(f"request {request.id!r} is in flight; wait for it or use another id")
        team = Team.__new__(Team)
        team.__dict__.update(self.__dict__)
        bond = Bond(request, cancel, past)
        team._bond = bond  # noqa: SLF001 - its own
        for member in self.members:
            team.check_payable(member.agent)
        bond.channel = Channel(team, request, past)
        self._in_flight[request.id] = bond.channel
        return team

    @property
    def bond(self) -> Bond:
        """What belongs to this execution; `ConfigurationError` on a team that is not bound."""
        if self._bond is None:
            raise ConfigurationError("this team is not bound to a request: use team.run(...), or team.bound(request)")
        return self._bond

    @property
    def request(self) -> TeamExecutionRequest:
        """The request of this execution."""
        return self.bond.request

    @property
    def budget(self) -> Budget:
        """The team's ledger: the parent of every member's run."""
        return self.bond.budget

    @property
    def cancel(self) -> CancelToken:
        """Stops this execution."""
        return self.bond.cancel

    @property
    def past(self) -> Past | None:
        """What earlier executions of this request did, when this one goes on."""
        return self.bond.past

    @property
    def spent(self) -> tuple[Usage, Decimal | None]:
        """What all runs of this request have used so far."""
        return self.bond.usage, self.bond.cost

    @property
    def mailboxes(self) -> Mailboxes:
        """How a person's words reach a running member."""
        return self._mailboxes

    def check_payable(self, agent: Agent) -> None:
        """Raise `ConfigurationError` when money is limited and this agent's model has no known price."""
        if self.request.config.resource_constraint.max_cost is not None:
            find_price(agent.config, needed=True)

    def emit(self, event: TeamEvent) -> None:
        """Publish an event: number it, write it to the journal, show it to the observers.

        The envelope (request, team, sequence, time) is filled in here. An event before `TeamStarted` is preceded by
        one; an event after the terminal one is dropped and noted as a warning.
        """
        if not isinstance(event, TeamEvent):
            raise ConfigurationError(f"Team.emit takes a TeamEvent, not {type(event).__name__}")
        if self._bond is not None:
            self._bond.channel.emit(event)
            return
        channel = self._in_flight.get(event.run_id)
        if channel is None:
            raise ConfigurationError("this team is not bound to a request: begin with team = team.bound(request)")
        channel.emit(event)

    async def ask(self, agent: Agent, prompt: str, *, cancel: CancelToken | None = None) -> RunResult:
        """Run an agent on the team's budget and within its time; always a result. `cancel` should follow the team's."""
        bond = self.bond
        try:
            result = await agent.run(prompt, parent=bond.budget, cancel=cancel or bond.cancel)
        except Exception as error:
            result = _crashed(error)
        bond.usage = bond.usage + result.usage
        bond.cost = add_cost(bond.cost, result.cost)
        return result

    async def close(self) -> None:
        """The execution is over: let slow observers finish, and let go of the request."""
        bond = self.bond
        bond.let_go()
        self._in_flight.pop(bond.request.id, None)
        await bond.channel.close()

    # --- the front door ---------------------------------------------------------------------------------------

    async def run(
        self,
        request: str | TeamExecutionRequest,
        *,
        coordinator: TeamCoordinator | None = None,
        cancel: CancelToken | None = None,
    ) -> TeamResult:
        """Carry out a request and return how it ended; raises only `ConfigurationError`, before the first call.

        Whatever the coordinator does, there is a result, `TeamStarted` came first and exactly one terminal event last.
        When the caller's own task is cancelled, the team lands and then the cancellation goes on.
        """
        if isinstance(request, str):
            request = TeamExecutionRequest(goal=request)
        return await self._supervised(request, coordinator, cancel, None)

    async def resume(
        self,
        what: str | TeamResult,
        *,
        plan: TeamExecutionPlan | None = None,
        coordinator: TeamCoordinator | None = None,
        cancel: CancelToken | None = None,
    ) -> TeamResult:
        """Go on with a request: a paused result, or the id of one in the journal. Finished steps are not run again.

        What has ended is returned as it ended. `plan` replaces the plan of a request that was only planned.
        """
        past = Past.of_result(what) if isinstance(what, TeamResult) else self._recall(what)
        if past.result is not None and past.result.status is not TeamStatus.PAUSED:
            return past.result
        if plan is not None:
            if past.outcomes or past.steps:
                raise ConfigurationError("plan can be replaced only before the first step has run")
            past = replace(past, plan=plan)
        request = replace(past.request, plan_only=past.request.plan_only and past.result is None)
        return await self._supervised(request, coordinator, cancel, past)

    def _recall(self, request_id: Any) -> Past:
        check_name("request id", request_id)
        if self.journal is None:
            raise ConfigurationError("this team has no journal: pass Team(journal=...), or a paused TeamResult")
        past = past_of(self.journal.read(request_id))
        if past is None:
            raise ConfigurationError(f"the journal knows no request {request_id!r}")
        return past

    async def _supervised(
        self,
        request: TeamExecutionRequest,
        coordinator: TeamCoordinator | None,
        cancel: CancelToken | None,
        past: Past | None,
    ) -> TeamResult:
        from glidepath.teams.dispatch import DefaultTaskDispatchCoordinator
        from glidepath.teams.supervise import supervise

        chosen = coordinator or self.coordinator or DefaultTaskDispatchCoordinator()
        check_coordinator(chosen)
        team = self.bound(request, cancel=cancel, past=past)
        try:
            return await supervise(chosen, request, team)
        finally:
            await team.close()


class Bond:
    """What belongs to one execution: its budget, its cancel token, what it spent."""

    def __init__(self, request: TeamExecutionRequest, cancel: CancelToken | None, past: Past | None) -> None:
        self.request = request
        self.past = past
        self.usage = past.usage if past is not None else Usage()
        self.cost = past.cost if past is not None else None
        self.cancel, self.let_go = linked(cancel)
        self.channel: Channel
        constraint, config = request.config.resource_constraint, request.config
        elapsed = past.elapsed if past is not None else 0.0
        limits = Limits(
            max_tokens=constraint.max_total_tokens,
            max_cost=constraint.max_cost,
            timeout=max(_LEAST_TIME, config.time_limit - elapsed),
        )
        self.budget = Budget(limits)
        self.began = asyncio.get_running_loop().time()
        self.deadline = self.budget.deadline(self.began)
        self.elapsed_before = elapsed
        if past is not None:
            self._charge(past)

    def _charge(self, past: Past) -> None:
        """What was spent before is spent."""
        reservation = self.budget.meter.reserve(0, 0, turns=0)
        if not isinstance(reservation, Refusal):
            money = 0 if past.cost is None else pico(past.cost, field="cost")
            reservation.settle(past.usage.total, money)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning, those of earlier executions included."""
        return self.elapsed_before + asyncio.get_running_loop().time() - self.began


class Channel:
    """The events of one execution: numbered, journalled, shown; in the only legal order."""

    def __init__(self, team: Team, request: TeamExecutionRequest, past: Past | None) -> None:
        self._team, self._request = team.name, request
        self._members = tuple(member.name for member in team.members)
        self._journal = team.journal
        self._sink = team.event_sink
        self._encode = codec().encode if team.journal is not None else None
        self._observers = [Observer(plugin, self._report) for plugin in team._lineup.for_run().observers]  # noqa: SLF001
        self._now: Callable[[], float] = getattr(asyncio.get_running_loop(), "epoch", time.time)
        self.sequence = past.sequence if past is not None else 0
        self.resumed = past is not None
        self.started = False
        self.ended: TeamEvent | None = None
        self.failure: str | None = None
        """Why the journal can no longer be written."""
        self.warnings: list[str] = []
        self.plan = past.plan if past is not None else None
        self.outcomes = {outcome.step_id: outcome for outcome in past.outcomes} if past is not None else {}

    def emit(self, event: TeamEvent) -> None:
        """Publish one event, or drop it when it has no legal place."""
        if self.ended is not None:
            self._warn(f"{event.kind} came after the end and was not published")
            return
        if isinstance(event, TeamStarted):
            if self.started:
                self._warn("a second TEAM_STARTED was not published")
                return
        elif not self.started:
            self._publish(TeamStarted(request=self._request, members=self._members, resumed=self.resumed))
        self._publish(event)

    def _publish(self, event: TeamEvent) -> None:
        self.started = True
        event = replace(event, run_id=self._request.id, team=self._team, sequence=self.sequence + 1, time=self._now())
        if self._encode is not None and self._journal is not None and self.failure is None:
            try:
                self._journal.append(self._request.id, self._encode(event))
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                self._warn(f"the journal cannot be written: {self.failure}")
        self.sequence = event.sequence
        if isinstance(event, TERMINAL):
            self.ended = event
        elif isinstance(event, PlanReady):
            self.plan = event.plan
        elif isinstance(event, StepCompleted):
            self.outcomes[event.outcome.step_id] = event.outcome
        self._show(event)

    def _show(self, event: Event) -> None:
        if self._sink is not None:
            try:
                self._sink(event)  # type: ignore[arg-type]
            except Exception as error:
                self._report("event_sink", f"{type(error).__name__}: {error}", "ignored")
        for observer in self._observers:
            observer(event)

    def _report(self, name: str, error: str, effect: str) -> None:
        self._warn(f"observer {name} failed and was {effect}: {error}")

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)

    async def close(self) -> None:
        """Let slow observers finish."""
        for observer in self._observers:
            await observer.close(_OBSERVER_PATIENCE)


def linked(parent: CancelToken | None) -> tuple[CancelToken, Callable[[], None]]:
    """A token that follows another one, and how to let go of that."""
    child = CancelToken()
    if parent is None:
        return child, _nothing

    def tell(what: str, reason: str) -> None:
        (child.cancel if what == "cancel" else child.wind_down)(reason)

    parent.subscribe(tell)
    return child, lambda: parent.unsubscribe(tell)


def _nothing() -> None:
    """There is nothing to let go of."""


def check_coordinator(coordinator: Any) -> None:
    """Raise `ConfigurationError` unless this looks like a coordinator."""
    if isinstance(coordinator, type) or not callable(getattr(coordinator, "execute", None)):
        raise ConfigurationError(f"coordinator must have a method execute(request, team), not {coordinator!r:.80}")


def _members(members: Any) -> tuple[Member, ...]:
    if isinstance(members, str | bytes | Agent | Member) or not isinstance(members, Iterable):
        raise ConfigurationError(f"Team.members must be a list of Member or Agent, not {members!r:.80}")
    found: list[Member] = []
    for member in members:
        if isinstance(member, Agent):
            member = Member(name=member.config.agent_name, agent=member)  # noqa: PLW2901 - the same, properly
        if not isinstance(member, Member):
            raise ConfigurationError(f"Team.members must be Member or Agent objects, not {member!r:.80}")
        if member.name in {other.name for other in found}:
            raise ConfigurationError(f"Team.members: two members are named {member.name!r}")
        found.append(member)
    if not found:
        raise ConfigurationError("Team.members must not be empty: a team has at least one member")
    return tuple(found)


def _observing(plugins: Any) -> Lineup:
    if isinstance(plugins, str | Plugin) or not isinstance(plugins, Iterable):
        raise ConfigurationError(f"Team.plugins must be a list of Plugin, not {plugins!r:.80}")
    lineup = Lineup(plugins)
    names = lineup.names()
    for hook in names.__struct_fields__:
        if hook != "event_observer" and getattr(names, hook):
            raise ConfigurationError(
                f"Team.plugins only observe: {getattr(names, hook)[0]!r} has {hook}; give it to the members' agents"
            )
    return lineup


def _crashed(error: Exception) -> RunResult:
    reason = f"{type(error).__name__}: {error}"
    return RunResult(
        run_id="",
        session_id="",
        state=AgentState.ERROR,
        outcome=LoopOutcome.FAILED,
        cause=StopCause(source="member", action="graceful_exit", reason=reason),
    )
