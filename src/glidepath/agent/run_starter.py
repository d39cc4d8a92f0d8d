"""How an agent starts a run: a new one, one that is resumed, or a child of another run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from glidepath._wire import replace
from glidepath.agent.agent_with_sources import Equipped
from glidepath.agent.assemble import assemble
from glidepath.agent.config import LoopConfig
from glidepath.agent.limits import Budget, Limits, check_limits
from glidepath.agent.per_run import (
    as_messages,
    as_session,
    check_keywords,
    check_run_options,
    inherit_options,
    merge_earlier_options,
    write_system_prompt,
)
from glidepath.agent.prepare import RunRequest, make_id, prepare
from glidepath.agent.run_lifecycle import Begin, announce_child, finish_run, report_child, revive_output
from glidepath.run import (
    CallScope,
    CancelToken,
    Plan,
    Post,
    Resumption,
    Run,
    find_event_loop,
    leave_scope,
    mark_tainted,
    place_here,
    restore_scope,
)
from glidepath.sessions import Session
from glidepath.tools import ToolContext
from glidepath.values import ConfigurationError, RunResult

if TYPE_CHECKING:
    from typing import Self

    from glidepath.agent.durable import Opening
    from glidepath.agent.resuming import Target
    from glidepath.agent.wallet_client import WalletClient
    from glidepath.run import Decision, PausedChild
    from glidepath.sessions import JournalRecorder

_log = logging.getLogger("glidepath")


class RunStarter(Equipped):
    """The runs of an agent, from its settings to `finish_run`: its budget, its session, what it inherits."""

    __slots__ = ()

    def _request(
        self, prompt: object, options: Mapping[str, Any], known: frozenset[str], *, again: bool = False
    ) -> RunRequest:
        """What a run is started with, or `again`; raises `ConfigurationError` for an unknown or wrong option."""
        check_keywords(options, known)
        asked = RunRequest(prompt, options.get("session"), options.get("cancel"))
        if again:  # its limits are not one run's own: those it was started with are kept unless there are others now
            asked.limits, options = options.get("limits"), {**options, "limits": None}
        asked.given = check_run_options(self.config.tools, options, more_tools=self._outfit is not None)
        return asked

    def _run(self, asked: RunRequest) -> Coroutine[Any, Any, RunResult]:
        if not isinstance(self.config.system_prompt, str):
            return self._run_with_written_prompt(asked)
        if self._outfit is None and asked.budget is None and self.config.store is None:  # nearly always
            return finish_run(partial(self._begin, asked), asked, fitted=self._fitted)
        find_event_loop()  # before sources or a store are opened; a run without any looks by itself
        if self._outfit is not None:
            return self._run_with_sources(asked.cancel, lambda agent: agent._run(asked))  # noqa: SLF001 - nearly itself
        return self._run_stored(asked)

    async def _run_with_written_prompt(self, asked: RunRequest) -> RunResult:
        """A root whose system prompt is written now, for it alone."""
        find_event_loop()
        asked.session = self._home_of(asked)
        agent = await self._write_prompt(asked, asked.session.id)
        return await agent._run(asked)  # noqa: SLF001 - nearly itself

    async def _write_prompt(self, asked: RunRequest, session_id: str) -> Self:
        """This agent with the system prompt of one run; itself when that is a text already."""
        if isinstance(self.config.system_prompt, str):
            return self
        _, asked.given = await write_system_prompt(self._plan, asked.given, session_id)
        return self._apply_run_options(asked.given)

    async def _write_child_prompt(
        self, asked: RunRequest, plan: Plan, parent: Plan, home: Session, resumed: Resumption | None
    ) -> Plan:
        """The plan of a child with its system prompt: as it is in its journal, or written now."""
        kept = None if resumed is None else resumed.snapshot.per_run
        if kept is not None and kept.system_prompt is not None:
            text, asked.given = kept.system_prompt, replace(asked.given, per_run=kept)
        else:
            text, asked.given = await write_system_prompt(plan, asked.given, home.id)
        return self._plan_under(parent, replace(plan.config, system_prompt=text))

    def _begin(self, asked: RunRequest, home: Session | None = None) -> tuple[Run, Session]:
        """A root, ready to start, and its session."""
        home = home or self._home_of(asked)
        return prepare(asked, self._plan, home, began=self._began), home

    async def _run_stored(self, asked: RunRequest) -> RunResult:
        """A run that a store keeps, or that spends from a budget."""
        home, purse, opening, scribe = self._home_of(asked), _purse_for(asked), None, None
        before = leave_scope()
        try:
            if self.config.store is not None:
                from glidepath.agent.durable import claim_home_session

                opening = await claim_home_session(self.config, home).enter()
                scribe = opening.scribe
            flight = finish_run(partial(self._begin, asked, home), asked, opening=opening, fitted=self._fitted)
            del opening  # what the journal said would stay until the run ends, in each of a thousand
            return await flight
        finally:
            try:
                if scribe is not None:
                    await scribe.release()
            finally:
                restore_scope(before)
                if purse is not None:
                    await purse.close()

    def _home_of(self, asked: RunRequest) -> Session:
        """The session of a root, once everything about it has been checked."""
        if asked.stream is None:  # a stream has looked at it
            asked.prompt = as_messages(asked.prompt, self.config)
        if asked.cancel is not None or asked.budget is not None or not self._plan.bounded:
            _check_root(asked, self._plan)
        if asked.session is None:
            return Session()
        home = as_session(asked.session)
        if self.config.store is None and isinstance(asked.session, str):
            self._warn_about_missing_store(home.id)
        return home

    def run_detached(self, asked: RunRequest) -> Coroutine[Any, Any, RunResult]:
        """A run that was started, or a stream that was made, inside a tool call that has ended meanwhile."""
        asked.budget = None
        return self._run(asked)

    async def _resume(
        self, asked: RunRequest, target: Target, decisions: Mapping[str, Decision] | None, *, accept_repair: bool
    ) -> RunResult:
        find_event_loop()
        if self._outfit is not None:
            return await self._run_with_sources(
                asked.cancel,
                lambda agent: agent._resume(asked, target, decisions, accept_repair=accept_repair),  # noqa: SLF001
            )
        from glidepath.agent.resuming import check_decisions, find, reject_useless_decisions, run_of

        if self.config.store is None:
            found = find(target)
            if isinstance(found, RunResult):
                reject_useless_decisions(decisions)
                return revive_output(self._plan, found)
            snapshot, asked.given = merge_earlier_options(found[0], asked.given, asked.limits)
            resumed = Resumption(snapshot, check_decisions(decisions, snapshot))
            return await self._apply_run_options(asked.given)._continue_from_snapshot(asked, found[1], resumed)  # noqa: SLF001 - nearly itself
        # The run as the store has it: a result or session that was passed only names it.
        from glidepath.agent.durable import reopen_session, session_of

        wanted = run_of(target)
        reopen = partial(reopen_session, self.config, session_of(target), decisions, self._plan)
        async with reopen(run_id=wanted, accept_repair=accept_repair) as opening:
            home = opening.home
            if isinstance(target, Session):
                home.limits = target.limits
            if opening.result is not None:
                return revive_output(self._plan, opening.result)
            if opening.snapshot is None:
                plan = (await self._write_prompt(asked, home.id))._plan  # noqa: SLF001 - nearly itself
                run = prepare(asked, plan, home, began=self._began)
                return await finish_run(lambda: (run, home), asked, opening=opening, fitted=self._fitted)
            snapshot, asked.given = merge_earlier_options(opening.snapshot, asked.given, asked.limits)
            agent, resumed = self._apply_run_options(asked.given), opening.make_resumption(snapshot)
            return await agent._continue_from_snapshot(asked, home, resumed, opening)  # noqa: SLF001 - nearly itself

    async def _continue_from_snapshot(
        self, asked: RunRequest, home: Session, resumed: Resumption, opening: Opening | None = None
    ) -> RunResult:
        """Continue a run from its snapshot, in a session that has its messages and the state of its guards."""
        if self._outfit is not None:
            return await self._run_with_sources(
                asked.cancel,
                lambda agent: agent._continue_from_snapshot(asked, home, resumed, opening),  # noqa: SLF001
            )
        if not isinstance(self.config.system_prompt, str):
            agent = await self._write_prompt(asked, home.id)
            resumed.snapshot = replace(resumed.snapshot, per_run=asked.given.per_run)
            return await agent._continue_from_snapshot(asked, home, resumed, opening)  # noqa: SLF001 - nearly itself
        plan, limits = self._plan, asked.limits
        if limits is not None:
            check_limits(limits)
            plan = assemble(replace(self.config, limits=limits), told=plan.told, behind=self._behind)
            resumed.snapshot = replace(
                resumed.snapshot, verdict=None, notice=None, final_turn=None, work_withdrawn=False
            )
        _check_root(asked, plan)
        if resumed.snapshot.on_budget and asked.budget is None and limits is None:
            raise ConfigurationError(
                "this run spent from a parent budget; pass it again: resume(..., parent=budget), with --wallet "
                "NAME on the command line, or give the run its own limits: resume(..., limits=Limits(...))"
            )
        purse = _purse_for(asked)
        try:
            run = prepare(asked, plan, home, began=self._began, resumed=resumed)
            return await finish_run(lambda: (run, home), asked, opening=opening, fitted=self._fitted)
        finally:
            if purse is not None:
                await purse.close()

    def _find_child_session(self, place: CallScope, session: object, cancel: object) -> Session | None:
        """The session of a child that is kept by itself; None for one beside its parent's."""
        _check_cancel(cancel)
        above = place.run  # None when another thread has closed the place meanwhile
        if session is None and (self.config.store is None or (above is not None and above.journal is not None)):
            return None
        if self.config.store is None and isinstance(session, str):
            self._warn_about_missing_store(session)
        return as_session(session)

    def run_child(
        self,
        prompt: object,
        *,
        parent: Run,
        cancel: CancelToken,
        limits: Limits | None = None,
        place: str = "",
        paused: PausedChild | None = None,
    ) -> Coroutine[Any, Any, RunResult]:
        """Run as a child of another run: on its budget, within its time, under its guards; or continue one."""
        return self.run_below(RunRequest(prompt, cancel=cancel, limits=limits), parent, place, paused=paused)

    async def run_below(
        self,
        asked: RunRequest,
        parent: Run,
        place: str = "",
        post: Post | None = None,
        *,
        paused: PausedChild | None = None,
    ) -> RunResult:
        """The same for any request. A `budget` in it is a part of the parent's.

        Where the parent has a journal, the child has one beside it; `place` is the call it belongs to, and its number.
        With its own session it is kept where its agent keeps sessions. `post` tells the parent what happened, when that
        lives on another loop.
        """
        if self._outfit is not None:
            return await self._run_with_sources(asked.cancel, lambda agent: agent.run_below(asked, parent, place, post))
        asked.prompt = mark_tainted(parent, as_messages(asked.prompt, self.config))
        if asked.limits is None:
            plan = self._make_child_plan(parent.plan)
        else:
            check_limits(asked.limits)
            plan = self._plan_under(parent.plan, replace(self.config, limits=asked.limits))
        asked.given = inherit_options(parent, plan, asked.given)
        home: Any = asked.session
        fly = partial(self._run_child, asked, plan, parent, post or _call_now)
        journal = parent.journal if post is None else None
        beside, kept = home is None and journal is not None, home is not None and self.config.store is not None
        if not beside and not kept:
            if paused is not None:
                return await _continue_child(fly, parent, place, paused)
            return await fly(home or Session(make_id("session", asyncio.get_running_loop())))
        from glidepath.agent.child_start import open_child_session
        from glidepath.agent.durable import claim_home_session

        if beside:
            async with open_child_session(self.config, parent, place, plan, paused) as opening:
                return opening.result or await fly(opening.home, opening)
        known = journal is not None and journal.store is self.config.store
        if known:
            await journal.record_child(place.rpartition(".")[0], home.id, plan.config.agent_name)  # type: ignore[union-attr]
        async with claim_home_session(self.config, home) as opening:
            opening.above = cast("JournalRecorder", journal) if known else None
            return await fly(opening.home, opening)

    async def _run_child(
        self,
        asked: RunRequest,
        plan: Plan,
        parent: Run,
        post: Post,
        home: Session,
        opening: Opening | None = None,
        resumed: Resumption | None = None,
    ) -> RunResult:
        if opening is not None and opening.snapshot is not None:
            resumed = opening.make_resumption(opening.snapshot)
        asked.prompt = asked.prompt if resumed is None else ()
        if not isinstance(plan.config.system_prompt, str):
            plan = await self._write_child_prompt(asked, plan, parent.plan, home, resumed)
        run = prepare(asked, plan, home, began=self._began, parent=parent, resumed=resumed)
        key = place_here()
        run.work.set_parent(parent)
        refusal = run.meter.count_descendant() if resumed is None else None
        if refusal is None and opening is not None and opening.above is not None:
            opening.above.children.follow(home.id, run.meter)
        post(partial(announce_child, parent, run))
        try:
            begin: Begin = lambda: (run, home)  # noqa: E731
            return await finish_run(begin, asked, refusal=refusal, opening=opening, fitted=self._fitted)
        finally:
            run.work.set_parent(None)  # nobody asks any more, and what is kept of a child does not keep its parent
            if run.result is not None:
                post(partial(report_child, parent, run, key))

    def _make_child_plan(self, parent: Plan) -> Plan:
        """This agent's plan with the parent's constraints and guarding plugins added; made once for each parent."""
        if not parent.custom and not parent.lineup.plugins:
            return self._plan
        known = self._heirs.get(parent.lineup)
        if known is None:
            known = self._heirs[parent.lineup] = self._plan_under(parent, self.config)
        return known

    def _plan_under(self, parent: Plan, config: LoopConfig) -> Plan:
        own = {id(constraint) for constraint in config.constraints}  # whatever they think about being equal
        constraints = [constraint for constraint in parent.custom if id(constraint) not in own]
        config = replace(config, constraints=(*config.constraints, *constraints))
        return assemble(config, parent.lineup.inheritable(), self._plan.told, self._behind)

    def _warn_about_missing_store(self, name: str) -> None:
        """Warn once that a named session without a store is lost when its run ends."""
        if not self._told_of_store:
            self._told_of_store = True
            _log.warning(
                "%s has no store: session=%r is forgotten when the run ends, and the next run does not see it. Pass "
                "Agent(store=...) to keep it, or one Session object to all runs.",
                self.config.agent_name,
                name,
            )


def _check_root(asked: RunRequest, plan: Plan) -> None:
    budget = asked.budget
    _check_cancel(asked.cancel)
    if budget is not None and not isinstance(budget, Budget):
        hint = (
            ": stream() takes a Budget; use run() or ToolContext.spawn() for a child"
            if isinstance(budget, ToolContext)
            else ""
        )
        raise ConfigurationError(f"parent must be a Budget, not {type(budget).__name__}{hint}")
    if not plan.bounded and (budget is None or not budget.bounded):
        raise ConfigurationError(
            "this agent has no limit at all: pass limits=Limits(max_iterations=...) or another limit, "
            "or unbounded=True to run without one"
        )


async def _continue_child(
    fly: Callable[..., Coroutine[Any, Any, RunResult]], parent: Run, place: str, paused: PausedChild
) -> RunResult:
    """Continue a child that no store keeps: its parent's result has it, with all it needs."""
    from glidepath.agent.child_start import mark_child_lost
    from glidepath.agent.resuming import check_decisions, find

    child = parent.work.find_child_result(paused.run_id)
    if child is None or child.snapshot is None:
        raise mark_child_lost(parent, place)
    found = find(child)
    if isinstance(found, RunResult) or not paused.decisions:
        return child
    snapshot, home = found
    return await fly(home, None, Resumption(snapshot, check_decisions(paused.decisions, snapshot)))


def _check_cancel(cancel: object) -> None:
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise ConfigurationError(f"cancel must be a CancelToken, not {type(cancel).__name__}")


def _purse_for(asked: RunRequest) -> WalletClient | None:
    """For a run that spends from a budget in a store: spent from instead of the budget, and closed in the end."""
    budget = asked.budget
    if not isinstance(budget, Budget) or not budget.line:
        return None
    from glidepath.agent.wallet_client import WalletClient

    asked.budget = purse = WalletClient(budget.store, budget.line, budget.meter)
    return purse


def _call_now(act: Callable[[], None]) -> None:
    act()
