"""A team: its members, and the methods that run and resume requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, replace, settle_field
from glidepath.agent import Agent, Budget, find_price
from glidepath.plugins import HookTable
from glidepath.plugins.hook_table import find_missing_heirs
from glidepath.run import (
    INHERIT,
    CancelToken,
    Decision,
    Inherit,
    Post,
    current_scope,
    launch,
    run_on_own_loop,
    run_on_parent_loop,
)
from glidepath.sessions import as_store
from glidepath.spi import Plugin, SessionStore
from glidepath.teams.accounts import audit_history
from glidepath.teams.events import TeamEvent
from glidepath.teams.journal import TeamJournal
from glidepath.teams.mailbox import KEPT_VARIANTS
from glidepath.teams.team_history import History, check_decisions
from glidepath.teams.team_run import TeamRun, TeamRunTerms
from glidepath.teams.values import (
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStatus,
    check_fields,
    check_kind,
    check_name,
)
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.teams.spi import TeamCoordinator


class Member(Value, frozen=True, kw_only=True):
    """An agent in a team: its name there, and what it can do."""

    name: str
    agent: Agent
    capabilities: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_fields(self, name=check_name, agent=Agent)
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

    A team is immutable and can carry out many requests at once, each in its own `TeamRun`. `plugins` observe its
    events, and those that are `inheritable_to_child` also the runs of its members. With a `store`, a team survives the
    death of its process.
    """

    def __init__(
        self,
        members: Iterable[Member | Agent],
        *,
        name: str = "team",
        coordinator: TeamCoordinator | None = None,
        plugins: Iterable[Plugin] = (),
        event_sink: Callable[[Any], Any] | None = None,
        store: SessionStore | str | PathLike[str] | None = None,
    ) -> None:
        check_name("Team.name", name)
        if event_sink is not None and (not callable(event_sink) or asyncio.iscoroutinefunction(event_sink)):
            raise ConfigurationError("Team.event_sink must be a plain function; use a Plugin for an async observer")
        self.name = name
        self.members = _members(members)
        self.coordinator = coordinator
        if coordinator is not None:
            check_coordinator(coordinator)
        self.store: SessionStore | None = None if store is None else as_store("Team.store", store)
        self.event_sink = event_sink
        self._lineup = _check_plugins(plugins)
        self.kept: Callable[[Agent], Agent] = lru_cache(KEPT_VARIANTS)(self._prepare_member)
        """The agent as it runs in this team: kept in the team's store, and seen by plugins that members inherit."""
        self._in_flight: dict[str, TeamRun | None] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if "_in_flight" in self.__dict__:  # which is set last
            raise AttributeError(f"a Team is immutable: make another one with another {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Team is immutable: make another one without its {name}")

    def member(self, name: str) -> Member:
        """The member with this name; raises KeyError."""
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<Team {self.name}: {', '.join(member.name for member in self.members)}>"

    # --- one execution ----------------------------------------------------------------------------------------

    async def open(
        self,
        request: TeamExecutionRequest,
        *,
        cancel: CancelToken | None = None,
        history: History | None = None,
        parent: Budget | None = None,
    ) -> TeamRun:
        """Begin an execution of a request without a coordinator; `await run.close()` ends it.

        `run` does this for you. Raises `ConfigurationError` when the request is in flight, or money is limited and a
        member has no price, and `StoreError` when the journal cannot be opened.
        """
        above = _check_parent(parent, "open")
        return await self._open(request, TeamRunTerms(cancel=cancel, history=history, above=above))

    async def _open(self, request: TeamExecutionRequest, terms: TeamRunTerms) -> TeamRun:
        check_kind("request", request, TeamExecutionRequest)
        if terms.cancel is not None:
            check_kind("cancel", terms.cancel, CancelToken)
        if request.id in self._in_flight:
            raise ConfigurationError(f"request {request.id!r} is in flight; wait for it or use another id")
        above = terms.above
        paid = above is not None and above.meter.caps.money is not None
        paid = paid or (above is not None and any(one.max_money is not None for one in above.line))
        if paid or request.config.resource_constraint.max_cost is not None:
            for member in self.members:
                find_price(member.agent.config, member.agent.config.model, needed=True)
        observers = self._lineup.for_run().observers  # first: a plugin that fails must not leave a lease behind
        self._in_flight[request.id] = None
        try:
            if terms.journal is None and self.store is not None:
                terms = replace(terms, journal=await TeamJournal.new(self.store, request.id))
            run = self._in_flight[request.id] = TeamRun(
                self,
                request,
                terms,
                observers=observers,
                on_close=partial(self._in_flight.pop, request.id, None),
            )
        except BaseException:
            del self._in_flight[request.id]
            raise
        return run

    def emit(self, event: TeamEvent) -> None:
        """Publish an event of the request in flight that its `run_id` names; coordinators use `TeamRun.emit`."""
        run = self._in_flight.get(event.run_id) if isinstance(event, TeamEvent) else None
        if run is None:
            raise ConfigurationError("emit takes a TeamEvent whose run_id is the id of a request in flight")
        run.emit(event)

    def _prepare_member(self, agent: Agent) -> Agent:
        config = agent.config
        heirs = find_missing_heirs(config.plugins, self._lineup.inheritable())
        store = self.store or config.store
        if not heirs and store is config.store:
            return agent
        return Agent(replace(config, store=store, plugins=(*config.plugins, *heirs)))

    # --- run and resume ---------------------------------------------------------------------------------------

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
        the run alone. With a `Budget` as `parent`, such as a wallet, the team spends from that. `metadata` and `user`
        go to every member's run, as the request's own do.
        """
        if isinstance(request, str):
            request = TeamExecutionRequest(goal=request)
        given = {"metadata": metadata, "user": user}
        given = {name: value for name, value in given.items() if value is not None}
        if given and isinstance(request, TeamExecutionRequest):
            request = replace(request, **given)
        if cancel is not None:
            check_kind("cancel", cancel, CancelToken)
        above = _check_parent(parent, "run", INHERIT)
        place = current_scope() if parent is INHERIT else None
        fly = partial(self._supervise_run, request, coordinator)
        if place is None:
            return await fly(TeamRunTerms(cancel=cancel, above=above))

        def begin(token: CancelToken, _: str) -> Any:
            return fly(TeamRunTerms(cancel=token, place=place))

        def begin_apart(token: CancelToken, post: Post) -> Any:
            return fly(TeamRunTerms(cancel=token, place=place.copy(post)))

        alone = partial(fly, TeamRunTerms(cancel=cancel))
        here = partial(launch, place, begin, cancel, alone)
        away = partial(run_on_own_loop, place, begin_apart, cancel, alone)
        result: TeamResult = await (here() if place.here else run_on_parent_loop(place, here, away))
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
        """Continue a request: a paused result, or the id of a request in the store. Finished steps are not run again.

        A request that has ended returns its result. `decisions` decide the calls that wait for a person, by call id, or
        by `STEP/CALL` where two steps wait for calls with the same id. `plan` replaces the plan of a request that was
        only planned. If the team spends from a `parent` budget, pass it again. Also raises `StoreError`, of kind `busy`
        while another process has the request.
        """
        if not isinstance(what, str | TeamResult):
            raise ConfigurationError(f"resume takes a TeamResult or a request id, not {type(what).__name__}")
        above = _check_parent(parent, "resume")
        if plan is not None:
            check_kind("plan", plan, TeamExecutionPlan)
        if isinstance(what, TeamResult) and what.status is not TeamStatus.PAUSED:
            return what
        request_id = what if isinstance(what, str) else what.request_id
        check_name("request id", request_id)
        if request_id in self._in_flight:
            raise ConfigurationError(f"request {request_id!r} is in flight; wait for it")
        journal, history = await self._recall(what, request_id)
        try:
            if history.result is not None and history.result.status is not TeamStatus.PAUSED:
                return history.result
            if plan is not None and (history.outcomes or history.steps):
                raise ConfigurationError("plan can be replaced only before the first step has run")
            history = replace(history, plan=plan or history.plan, decisions=check_decisions(decisions, history))
            request = replace(history.request, plan_only=history.request.plan_only and history.result is None)
            terms = TeamRunTerms(cancel=cancel, history=history, journal=journal, above=above)
            journal = None
            return await self._supervise_run(request, coordinator, terms)
        finally:
            if journal is not None:
                await journal.close()

    async def _recall(self, what: str | TeamResult, request_id: str) -> tuple[TeamJournal | None, History]:
        """The journal, now owned by this process, and the history so far."""
        if self.store is None:
            if isinstance(what, str):
                raise ConfigurationError("this team has no store: pass Team(store=...), or a paused TeamResult")
            return None, History.of_result(what)
        try:
            journal = await TeamJournal.open(self.store, request_id, create=not isinstance(what, str))
        except StoreError as error:
            if error.kind == "missing":
                raise ConfigurationError(f"the store has no request {request_id!r}") from None
            raise
        try:
            history = await journal.read()
            if history is None and isinstance(what, str):
                raise ConfigurationError(f"request {request_id!r} never started: run it again")
            if history is not None and (history.result is None or history.result.status is TeamStatus.PAUSED):
                history = await audit_history(history, self.store)
        except BaseException:
            await journal.close()
            raise
        return journal, history or History.of_result(what)  # type: ignore[arg-type]

    async def _supervise_run(
        self, request: TeamExecutionRequest, coordinator: TeamCoordinator | None, terms: TeamRunTerms
    ) -> TeamResult:
        from glidepath.teams.dispatch import DefaultTaskDispatchCoordinator
        from glidepath.teams.supervise import supervise

        chosen = coordinator or self.coordinator or DefaultTaskDispatchCoordinator()
        try:
            check_coordinator(chosen)
            run = await self._open(request, terms)
        except BaseException:
            if terms.journal is not None:
                await terms.journal.close()
            raise
        try:
            result = await supervise(chosen, run)
        finally:
            await run.close()
        late = [warning for warning in run.events.warnings if warning not in result.warnings]
        return replace(result, warnings=(*result.warnings, *late)) if late else result


def _check_parent(parent: object, method: str, *others: object) -> Budget | None:
    """The budget that a team spends from; None if `parent` is None or one of the `others`."""
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
            member = Member(name=member.config.agent_name, agent=member)  # noqa: PLW2901 - the member of a bare agent
        if not isinstance(member, Member):
            raise ConfigurationError(f"Team.members must be Member or Agent objects, not {member!r:.80}")
        if member.name in {other.name for other in found}:
            raise ConfigurationError(f"Team.members: two members are named {member.name!r}")
        found.append(member)
    if not found:
        raise ConfigurationError("Team.members must not be empty: a team has at least one member")
    return tuple(found)


def _check_plugins(plugins: object) -> HookTable:
    if isinstance(plugins, str | Plugin) or not isinstance(plugins, Iterable):
        raise ConfigurationError(f"Team.plugins must be a list of Plugin, not {plugins!r:.80}")
    lineup = HookTable(plugins)
    names = lineup.names()
    for hook in names.__struct_fields__:
        if hook not in ("event_observer", "before_tool_call", "tool_gate") and getattr(names, hook):
            raise ConfigurationError(
                f"Team.plugins only observe the team and guard its members: {getattr(names, hook)[0]!r} has {hook}; "
                "give it to the members' agents"
            )
    return lineup
