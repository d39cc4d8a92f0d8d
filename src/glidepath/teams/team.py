"""A team: members, one ledger for all of them, one stream of events, and the front door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, replace, settle_field
from glidepath.agent import Agent, Budget
from glidepath.agent.prices import find_price
from glidepath.errors import ConfigurationError, StoreError, told
from glidepath.messages import Usage
from glidepath.outcome import AgentState, LoopOutcome, RunResult, StopCause
from glidepath.plugins.lineup import Lineup
from glidepath.run import INHERIT, CancelToken, Decision, Inherit, Place
from glidepath.run.inside import Outbox, Post, apart, around, at_home, launch
from glidepath.spi import Plugin
from glidepath.spi.sessions import SessionStore
from glidepath.teams.accounts import audited
from glidepath.teams.events import TeamEvent
from glidepath.teams.journal import Past, Pen, add_cost
from glidepath.teams.team_prompts import told_to
from glidepath.teams.team_run import Channel, TeamRun, check_decisions, decided_key, newly_spent
from glidepath.teams.values import TeamExecutionPlan, TeamExecutionRequest, TeamResult, TeamStatus, check_name
from glidepath.tools.text import clean

if TYPE_CHECKING:
    from glidepath.teams.spi import TeamCoordinator

__all__ = ["Member", "Team"]

_KEPT = 256  # agents that are remembered


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

    A team is immutable and can carry out many requests at once. `plugins` are observers of its events, and those that
    are `inheritable_to_child` of its members' runs, too. With a `store` a team survives the death of its process. For
    one execution a coordinator works with `team.bound(request)`, which has the budget, the cancel token and the clock
    of that execution.
    """

    def __init__(
        self,
        members: Iterable[Member | Agent],
        *,
        name: str = "team",
        coordinator: TeamCoordinator | None = None,
        plugins: Iterable[Plugin] = (),
        event_sink: Callable[[Any], Any] | None = None,
        store: SessionStore | None = None,
    ) -> None:
        check_name("Team.name", name)
        if event_sink is not None and (not callable(event_sink) or asyncio.iscoroutinefunction(event_sink)):
            raise ConfigurationError("Team.event_sink must be a plain function; use a Plugin for an async observer")
        if store is not None and not isinstance(store, SessionStore):
            raise ConfigurationError(f"Team.store must be a session store, such as SqliteStore, not {store!r:.80}")
        self.name = name
        self.members = _members(members)
        self.coordinator = coordinator
        if coordinator is not None:
            check_coordinator(coordinator)
        self.store = store
        self.event_sink = event_sink
        self._lineup = _checked_plugins(plugins)
        self._in_flight: dict[str, Channel | None] = {}
        self._keepers: dict[int, tuple[Agent, Agent]] = {}
        self._bond: TeamRun | None = None

    def member(self, name: str) -> Member:
        """The member of this name; raises KeyError."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<Team {self.name}: {', '.join(member.name for member in self.members)}>"

    # --- one execution ----------------------------------------------------------------------------------------

    async def bound(
        self,
        request: TeamExecutionRequest,
        *,
        cancel: CancelToken | None = None,
        past: Past | None = None,
        pen: Pen | None = None,
        place: Place | None = None,
        above: Budget | None = None,
    ) -> Team:
        """This team for one execution of a request; itself, when it is bound to it already.

        Raises `ConfigurationError` when the request is in flight, or money is limited and a member has no price, and
        `StoreError` when the journal cannot be opened.
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
        paid = above is not None and above.meter.caps.money is not None
        paid = paid or (above is not None and any(one.max_money is not None for one in above.line))
        if paid or request.config.resource_constraint.max_cost is not None:
            for member in self.members:
                find_price(member.agent.config, member.agent.config.model, needed=True)
        self._in_flight[request.id] = None
        try:
            if pen is None and self.store is not None:
                pen = await self._new_journal(request.id)
            team = Team.__new__(Team)
            team.__dict__.update(self.__dict__)
            bond = team._bond = TeamRun(request, cancel, past, place, above, None if pen is None else pen.leg)  # noqa: SLF001 - its own
            bond.channel = self._in_flight[request.id] = Channel(team, request, past, pen)
        except BaseException:
            del self._in_flight[request.id]
            raise
        if pen is not None:
            pen.keep_alive(bond.cancel.cancel, bond.channel.fail)
        return team

    async def _new_journal(self, request_id: str) -> Pen:
        assert self.store is not None  # noqa: S101 - asked for only then
        pen = await Pen.open(self.store, request_id, create=True)
        if pen.fresh:
            return pen
        await pen.close()
        raise ConfigurationError(f"the store knows request {request_id!r} already: use resume(), or another id")

    @property
    def bond(self) -> TeamRun:
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
        """What earlier executions of this request did, when this one continues."""
        return self.bond.past

    @property
    def spent(self) -> tuple[Usage, Decimal | None]:
        """What all runs of this request have used so far."""
        return self.bond.usage, self.bond.cost

    def check_payable(self, agent: Agent) -> None:
        """Raise `ConfigurationError` when money is limited and this agent's model has no known price."""
        if self.request.config.resource_constraint.max_cost is not None:
            find_price(agent.config, agent.config.model, needed=True)

    def observers(self) -> tuple[tuple[str, Plugin], ...]:
        """The plugins that watch one execution."""
        return self._lineup.for_run().observers

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
        """Run an agent on the team's budget and within its time; always a result. `cancel` should follow the team's.

        `paused` continues with a run that waited for a person, with what was decided about it, instead of a new one.
        `session` names the run in the store of the team; with `begun` the run that is there continues.
        """
        bond = self.bond
        token = cancel or bond.cancel
        result: RunResult | None = None
        try:
            await bond.channel.flush()  # what was said before is on record before anything is done
            keeper = self._keeping(agent)
            home = None if keeper.config.store is None else session or bond.next_session()
            if begun and home is not None:
                result = await _gone_on(keeper, home, bond, token)
            if result is None and paused is not None:
                known = self.store is None or await _knows(self.store, paused.session_id)
                result = await _decided(keeper if known else agent, paused, bond, token)
            if result is None:
                user, about = bond.request.user, bond.request.metadata
                result = await keeper.run(
                    told_to(prompt, bond.request, tuple(bond.origins)),
                    session=home,
                    parent=bond.budget,
                    cancel=token,
                    user=user,
                    metadata=about,
                )
        except BaseException as error:
            if _from_outside(error):
                raise
            result = _crashed(error)
        bond.origins |= dict.fromkeys(result.origins)
        usage, cost = newly_spent(result, paused)
        bond.usage, bond.cost = bond.usage + usage, add_cost(bond.cost, cost)
        return result

    def _keeping(self, agent: Agent) -> Agent:
        """The same agent, whose runs are kept in the team's store and seen by the team's heirs; made once for each."""
        own = agent.config.plugins
        heirs = [heir for heir in self._lineup.inheritable() if not any(heir is plugin for plugin in own)]
        store = self.store or agent.config.store
        if not heirs and store is agent.config.store:
            return agent
        known = self._keepers.get(id(agent))
        if known is None:
            known = (agent, Agent(replace(agent.config, store=store, plugins=(*own, *heirs))))
            if len(self._keepers) >= _KEPT:
                del self._keepers[next(iter(self._keepers))]
            self._keepers[id(agent)] = known
        return known[1]

    async def close(self) -> None:
        """The execution is over: let slow observers finish, and let go of the request."""
        bond = self.bond
        bond.let_go()
        closing = asyncio.get_running_loop().create_task(bond.close(), name="team closing")
        cancelled: asyncio.CancelledError | None = None
        while (
            not closing.done()
        ):  # whoever cancels meanwhile: the journal is let go of, then the cancellation continues
            try:
                await asyncio.wait({closing})
            except asyncio.CancelledError as stop:
                cancelled = stop
        self._in_flight.pop(bond.request.id, None)
        closing.result()
        if cancelled is not None:
            raise cancelled

    # --- the front door ---------------------------------------------------------------------------------------

    async def run(
        self,
        request: str | TeamExecutionRequest,
        *,
        coordinator: TeamCoordinator | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | Inherit | None = INHERIT,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> TeamResult:
        """Carry out a request and return how it ended; raises only `ConfigurationError`, before the first call.

        Whatever the coordinator does, there is a result, `TeamStarted` came first and exactly one terminal event last.
        When the caller's own task is cancelled, the team lands and then the cancellation continues. Inside a tool or a
        guarding hook of a run the team spends from that run, and its members are children of it; `parent=None` leaves
        the run alone. With a `Budget` as `parent` the team spends from that, also when it is a wallet. `metadata` and
        `user` go to every member's run, as the request's own do.
        """
        if isinstance(request, str):
            request = TeamExecutionRequest(goal=request)
        given = {"metadata": metadata, "user": user}
        given = {name: value for name, value in given.items() if value is not None}
        if given and isinstance(request, TeamExecutionRequest):
            request = replace(request, **given)
        if cancel is not None and not isinstance(cancel, CancelToken):
            raise ConfigurationError(f"cancel must be a CancelToken, not {type(cancel).__name__}")
        above = _checked_parent(parent, "run", INHERIT)
        place = around() if parent is INHERIT else None
        if place is None:
            return await self._supervised(request, coordinator, cancel, None, above=above)

        def begin(token: CancelToken, _: str) -> Any:
            return self._supervised(request, coordinator, token, None, place=place)

        def begin_apart(token: CancelToken, post: Post) -> Any:
            return self._supervised(request, coordinator, token, None, place=place.copy(Outbox(post)))

        alone = partial(self._supervised, request, coordinator, cancel, None)
        here = partial(launch, place, begin, cancel, alone)
        away = partial(apart, place, begin_apart, cancel, alone)
        result: TeamResult = await (here() if place.here else at_home(place, here, away))
        return result

    async def resume(
        self,
        what: str | TeamResult,
        *,
        decisions: Mapping[str, Decision] | None = None,
        plan: TeamExecutionPlan | None = None,
        coordinator: TeamCoordinator | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | None = None,
    ) -> TeamResult:
        """Continue with a request: a paused result, or the id of one in the store. Finished steps are not run again.

        What has ended is returned as it ended. `decisions` say what becomes of the calls that wait for a person, by
        call id, or by `STEP/CALL` where two steps wait for calls of the same id.
        `plan` replaces the plan of a request that was only planned. A team that spends from a `parent` budget is given
        it again. Raises also `StoreError`, of kind `busy` while another process has the request.
        """
        if not isinstance(what, str | TeamResult):
            raise ConfigurationError(f"resume takes a TeamResult or a request id, not {type(what).__name__}")
        above = _checked_parent(parent, "resume")
        if plan is not None and not isinstance(plan, TeamExecutionPlan):
            raise ConfigurationError(f"plan must be a TeamExecutionPlan, not {type(plan).__name__}")
        if isinstance(what, TeamResult) and what.status is not TeamStatus.PAUSED:
            return what
        request_id = what if isinstance(what, str) else what.request_id
        check_name("request id", request_id)
        if request_id in self._in_flight:
            raise ConfigurationError(f"request {request_id!r} is in flight; wait for it")
        pen, past = await self._recall(what, request_id)
        try:
            if past.result is not None and past.result.status is not TeamStatus.PAUSED:
                return past.result
            if plan is not None and (past.outcomes or past.steps):
                raise ConfigurationError("plan can be replaced only before the first step has run")
            past = replace(past, plan=plan or past.plan, decisions=check_decisions(decisions, past))
            request = replace(past.request, plan_only=past.request.plan_only and past.result is None)
            written, pen = pen, None
            return await self._supervised(request, coordinator, cancel, past, written, above=above)
        finally:
            if pen is not None:
                await pen.close()

    async def _recall(self, what: str | TeamResult, request_id: str) -> tuple[Pen | None, Past]:
        """Who writes the journal from now on, and what happened before."""
        if self.store is None:
            if isinstance(what, str):
                raise ConfigurationError("this team has no store: pass Team(store=...), or a paused TeamResult")
            return None, Past.of_result(what)
        try:
            pen = await Pen.open(self.store, request_id, create=not isinstance(what, str))
        except StoreError as error:
            if error.kind == "missing":
                raise ConfigurationError(f"the store knows no request {request_id!r}") from None
            raise
        try:
            past = await pen.read()
            if past is None and isinstance(what, str):
                raise ConfigurationError(f"request {request_id!r} had not begun: run it again")
            if past is not None and (past.result is None or past.result.status is TeamStatus.PAUSED):
                past = await audited(past, self.store)
        except BaseException:
            await pen.close()
            raise
        return pen, past or Past.of_result(what)  # type: ignore[arg-type]

    async def _supervised(
        self,
        request: TeamExecutionRequest,
        coordinator: TeamCoordinator | None,
        cancel: CancelToken | None,
        past: Past | None,
        pen: Pen | None = None,
        place: Place | None = None,
        above: Budget | None = None,
    ) -> TeamResult:
        from glidepath.teams.dispatch import DefaultTaskDispatchCoordinator
        from glidepath.teams.supervise import supervise

        chosen = coordinator or self.coordinator or DefaultTaskDispatchCoordinator()
        try:
            check_coordinator(chosen)
            team = await self.bound(request, cancel=cancel, past=past, pen=pen, place=place, above=above)
        except BaseException:
            if pen is not None:
                await pen.close()
            raise
        try:
            result = await supervise(chosen, request, team)
        finally:
            await team.close()
        late = [warning for warning in team.bond.channel.warnings if warning not in result.warnings]
        return replace(result, warnings=(*result.warnings, *late)) if late else result


def _checked_parent(parent: object, method: str, *others: object) -> Budget | None:
    """The budget that a team spends from; None for none, or for what is meant by one of the `others`."""
    if parent is None or any(parent is one for one in others):
        return None
    if not isinstance(parent, Budget):
        named = "".join(f", {one!r}" for one in others)
        raise ConfigurationError(
            f"Team.{method}(parent=...) takes a Budget{named} or None, not {type(parent).__name__}"
        )
    return parent


def check_coordinator(coordinator: object) -> None:
    """Raise `ConfigurationError` unless this looks like a coordinator."""
    if isinstance(coordinator, type) or not callable(getattr(coordinator, "execute", None)):
        raise ConfigurationError(f"coordinator must have a method execute(request, team), not {coordinator!r:.80}")


def _members(members: object) -> tuple[Member, ...]:
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


def _checked_plugins(plugins: object) -> Lineup:
    if isinstance(plugins, str | Plugin) or not isinstance(plugins, Iterable):
        raise ConfigurationError(f"Team.plugins must be a list of Plugin, not {plugins!r:.80}")
    lineup = Lineup(plugins)
    names = lineup.names()
    for hook in names.__struct_fields__:
        if hook not in ("event_observer", "before_tool_call", "tool_gate") and getattr(names, hook):
            raise ConfigurationError(
                f"Team.plugins only observe the team and guard its members: {getattr(names, hook)[0]!r} has {hook}; "
                "give it to the members' agents"
            )
    return lineup


async def _gone_on(agent: Agent, session: str, bond: TeamRun, cancel: CancelToken) -> RunResult | None:
    """How a run ended that an earlier process had begun; None when it had not even begun."""
    try:
        result = await agent.resume(session, parent=bond.budget, cancel=cancel)
    except ConfigurationError:
        return None  # there is no session, or no run in it
    if any(decided_key(result, waiting.call.id) in bond.decisions for waiting in result.pending):
        result = await _decided(agent, result, bond, cancel)
    return result


async def _decided(agent: Agent, paused: RunResult, bond: TeamRun, cancel: CancelToken) -> RunResult:
    """Continue with a run that waits, with what a person has decided about its calls."""
    pending = {decided_key(paused, waiting.call.id): waiting.call.id for waiting in paused.pending}
    decisions = {pending[key]: said for key, said in bond.decisions.items() if key in pending}
    return await agent.resume(paused, decisions=decisions, parent=bond.budget, cancel=cancel)


async def _knows(store: SessionStore, session: str) -> bool:
    return any(entry.session_id == session for entry in await store.entries(session))


def _from_outside(error: BaseException) -> bool:
    """Whether it is not the member's: somebody at the keyboard, or a cancel of this task."""
    task = asyncio.current_task()
    cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    return cancelled or isinstance(error, KeyboardInterrupt)


def _crashed(error: BaseException) -> RunResult:
    reason = clean(told(error))
    return RunResult(
        run_id="",
        session_id="",
        state=AgentState.ERROR,
        outcome=LoopOutcome.FAILED,
        cause=StopCause(source="member", action="graceful_exit", reason=reason),
    )
