"""How an agent starts a run: a new one, one that is resumed, or a child of another run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, cast

from glidepath._wire import replace
from glidepath.agent.assemble import assemble
from glidepath.agent.config import LoopConfig
from glidepath.agent.conversation import begun, bounded_conversation, is_conversation
from glidepath.agent.equipped import Equipped, supplied
from glidepath.agent.limits import Budget, Limits
from glidepath.agent.per_run import NOTHING, Given, continued, inherited
from glidepath.agent.prompts import as_messages, as_session
from glidepath.agent.run_lifecycle import (
    announce_child,
    finish_run,
    new_id,
    open_run,
    priced_under,
    report_child,
    revived,
    watch_over,
)
from glidepath.errors import ConfigurationError
from glidepath.ledger import Meter
from glidepath.messages import Message
from glidepath.outcome import NOT_CARRIED, RunResult, Snapshot
from glidepath.run import CancelToken, Place, Plan, Resumption, Run, RunStream, restore_meter
from glidepath.run.inside import come_back, go_outside
from glidepath.run.origins import place_here, tainted
from glidepath.sessions import Session
from glidepath.tools import ToolContext

if TYPE_CHECKING:
    from glidepath.agent.durable import Opening
    from glidepath.agent.purse import Purse
    from glidepath.agent.resuming import Target
    from glidepath.run import Decision
    from glidepath.sessions.scribe import Scribe

__all__ = ["RunStarter"]

_log = logging.getLogger("glidepath")


class RunStarter(Equipped):
    """The runs of an agent, from its settings to `finish_run`: its budget, its session, what it inherits."""

    __slots__ = ()

    @supplied
    def _fly(
        self,
        prompt: Any,
        session: str | Session | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        given: Given,
        stream: RunStream | None,
    ) -> Coroutine[Any, Any, RunResult]:
        if parent is None and self.config.store is None:  # nearly always
            return finish_run(partial(self._begin, prompt, session, cancel, given, stream), cancel, fitted=self._fitted)
        return self._fly_kept(prompt, session, cancel, parent, given, stream)

    def _begin(
        self,
        prompt: Any,
        session: str | Session | None,
        cancel: CancelToken | None,
        given: Given,
        stream: RunStream | None,
    ) -> tuple[Run, Session, tuple[Message, ...]]:
        """A run on its own limits that nobody keeps, ready to start."""
        messages = prompt if stream is not None else as_messages(prompt, self.config)  # a stream has looked at it
        self._check_root(cancel, None)
        home = as_session(session)
        if isinstance(session, str):
            self._tell_of_store(home.id)
        return self._open(messages, home, None, cancel, given, stream), home, messages

    async def _fly_kept(
        self,
        prompt: Any,
        session: str | Session | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        given: Given,
        stream: RunStream | None,
    ) -> RunResult:
        """A run that a store keeps, or that spends from a budget."""
        messages = prompt if stream is not None else as_messages(prompt, self.config)
        self._check_root(cancel, parent)
        home = as_session(session)
        if self.config.store is None and isinstance(session, str):
            self._tell_of_store(home.id)
        if parent is None or not parent.line:
            return await self._flown(messages, home, parent, cancel, given, stream)
        purse = _purse_of(parent)
        try:
            return await self._flown(messages, home, purse, cancel, given, stream)
        finally:
            await purse.close()

    async def _flown(
        self,
        messages: tuple[Message, ...],
        home: Session,
        parent: Budget | Purse | None,
        cancel: CancelToken | None,
        given: Given,
        stream: RunStream | None,
    ) -> RunResult:
        # No closure: it would stay for as long as the run flies, in each of a thousand.
        how = (messages, home, parent, cancel, given, stream)
        if self.config.store is None:
            return await finish_run(partial(self._ready, *how), cancel, fitted=self._fitted)
        from glidepath.agent.durable import claimed

        before = go_outside()
        try:
            async with claimed(self.config, home) as opening:
                return await finish_run(partial(self._ready, *how), cancel, opening=opening, fitted=self._fitted)
        finally:
            come_back(before)

    def _ready(
        self, messages: tuple[Message, ...], home: Session, *how: Any
    ) -> tuple[Run, Session, tuple[Message, ...]]:
        """A run that is ready to start, with where it lives and what it is asked."""
        return self._open(messages, home, *how), home, messages

    async def fly_alone(
        self,
        messages: tuple[Message, ...],
        home: Session | None,
        cancel: CancelToken | None,
        given: Given,
        stream: RunStream | None,
    ) -> RunResult:
        """A run that was started, or a stream that was made, inside a tool call that has ended meanwhile."""
        return await self._fly(messages, home, cancel, None, given, stream)

    def _open(
        self,
        messages: tuple[Message, ...],
        home: Session,
        parent: Budget | Purse | None,
        cancel: CancelToken | None,
        given: Given,
        stream: RunStream | None,
    ) -> Run:
        """A run that is ready to start, in the task that will run it."""
        plan = self._plan if parent is None else priced_under(self._plan, self.config, parent.meter)
        now = self._began or asyncio.get_running_loop().time()
        shared = parent.deadline(now) if parent is not None else inf
        above = parent.meter if parent is not None else None
        carried = NOT_CARRIED
        if is_conversation(self.config.limits, home):
            plan, meter, carried = bounded_conversation(plan, self.config, home, above)
            begun(meter, carried)
        else:
            meter = Meter(plan.caps, above)
        watch = watch_over(plan, now, shared)
        run = open_run(plan, home, messages, meter, watch, None, stream, given=given)
        run.terms.accept(carried, cancel)
        return run

    @supplied
    async def _fly_on(
        self,
        target: Target,
        decisions: Mapping[str, Decision] | None,
        limits: Limits | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        given: Given,
        stream: RunStream | None,
        *,
        accept_repair: bool,
    ) -> RunResult:
        from glidepath.agent.resuming import check_decisions, find, nothing_to_decide, run_of

        if self.config.store is None:
            found = find(target)
            if isinstance(found, RunResult):
                nothing_to_decide(decisions)
                return found
            snapshot, home = found
            snapshot, given = continued(snapshot, given, limits)
            decided = check_decisions(decisions, snapshot)
            fly = partial(self._as_given(given).carry_on, given=given, cancel=cancel, parent=parent, stream=stream)
            return await fly(snapshot, home, decided, limits)
        # The run as the store has it: a result or session that was passed only names it.
        from glidepath.agent.durable import reopened, session_of

        wanted = run_of(target)
        reopen = partial(reopened, self.config, session_of(target), decisions, self._plan.tools)
        async with reopen(run_id=wanted, accept_repair=accept_repair) as opening:
            if isinstance(target, Session):
                opening.home.limits = target.limits
            if opening.result is not None:
                return revived(self._plan, opening.result)
            if opening.snapshot is None:
                run = self._open((), opening.home, parent, cancel, given, stream)
                begin = partial(_opened, run, opening.home)
                return await finish_run(begin, cancel, opening=opening, fitted=self._fitted)
            snapshot, given = continued(opening.snapshot, given, limits)
            fly = partial(self._as_given(given).carry_on, given=given, cancel=cancel, parent=parent, stream=stream)
            return await fly(snapshot, opening.home, opening.decisions, limits, opening=opening)

    @supplied
    async def carry_on(
        self,
        snapshot: Snapshot,
        home: Session,
        decisions: Mapping[str, Decision],
        limits: Limits | None = None,
        *,
        given: Given = NOTHING,
        cancel: CancelToken | None = None,
        parent: Budget | None = None,
        stream: RunStream | None = None,
        opening: Opening | None = None,
    ) -> RunResult:
        """Continue a run from its snapshot, in a session that has its messages and the state of its guards."""
        config, plan = self.config, self._plan
        if limits is not None:
            if not isinstance(limits, Limits):
                raise ConfigurationError(
                    f"limits must be a Limits such as Limits(max_iterations=10), not {type(limits).__name__}"
                )
            config = replace(config, limits=limits)
            plan = assemble(config, told=plan.told, behind=self._behind)
            snapshot = replace(snapshot, verdict=None, notice=None, final_turn=None, work_withdrawn=False)
        self._check_root(cancel, parent, config.limits)
        if snapshot.on_budget and parent is None and limits is None:
            raise ConfigurationError(
                "this run spent from a parent budget; pass it again: resume(..., parent=budget), with --wallet "
                "NAME on the command line, or give the run its own limits: resume(..., limits=Limits(...))"
            )
        purse = _purse_of(parent) if parent is not None and parent.line else None
        above = purse or parent
        if above is not None:
            plan = priced_under(plan, config, above.meter)
        now = self._began or asyncio.get_running_loop().time()
        meter, carried = Meter(plan.caps, above.meter if above is not None else None), NOT_CARRIED
        if is_conversation(config.limits, home) or snapshot.carried != NOT_CARRIED:
            plan, meter, carried = bounded_conversation(plan, config, home, meter.parent, snapshot)
        restore_meter(meter, snapshot)
        if carried != snapshot.carried:
            begun(meter, carried, snapshot.carried)
        watch = watch_over(plan, now, above.deadline(now) if above is not None else inf, max(0.0, snapshot.elapsed))
        resumed = Resumption(snapshot, decisions) if opening is None else opening.resuming(snapshot)
        run = open_run(plan, home, (), meter, watch, None, stream, resumed=resumed, given=given)
        run.terms.accept(carried, cancel)
        try:
            return await finish_run(partial(_opened, run, home), cancel, opening=opening, fitted=self._fitted)
        finally:
            if purse is not None:
                await purse.close()

    def _home_inside(self, place: Place, session: object, cancel: object) -> Session | None:
        """The session of a child that is kept by itself; None for one beside its parent's."""
        if cancel is not None and not isinstance(cancel, CancelToken):
            raise ConfigurationError(f"cancel must be a CancelToken, not {type(cancel).__name__}")
        above = place.run  # None when another thread has closed the place meanwhile
        if session is None and (self.config.store is None or (above is not None and above.journal is not None)):
            return None
        if self.config.store is None and isinstance(session, str):
            self._tell_of_store(session)
        return as_session(session)

    @supplied
    async def fly_child(
        self,
        prompt: object,
        *,
        parent: Run,
        cancel: CancelToken,
        limits: Limits | None = None,
        place: str = "",
        home: Session | None = None,
        stream: RunStream | None = None,
        budget: Budget | None = None,
        given: Given = NOTHING,
        post: Callable[[Callable[[], None]], None] | None = None,
    ) -> RunResult:
        """Run as a child of another run: on its budget, within its time, under its guards.

        Where the parent has a journal, the child has one beside it; `place` is the call it belongs to, and its number.
        With its own session (`home`) it is kept where its agent keeps sessions. `budget`: a part of the parent's.
        `post` tells the parent what happened, when that lives on another loop.
        """
        messages = tainted(parent, as_messages(prompt, self.config))
        if limits is None:
            plan = self._heir(parent.plan)
        else:
            if not isinstance(limits, Limits):
                raise ConfigurationError(
                    f"limits must be a Limits such as Limits(max_iterations=10), not {type(limits).__name__}"
                )
            plan = self._plan_under(parent.plan, replace(self.config, limits=limits))
        above = parent.meter if budget is None else budget.meter
        plan = priced_under(plan, self.config, above)
        given = inherited(parent, plan, given)
        fly = partial(self._fly_below, messages, plan, parent, cancel, budget=budget, stream=stream, given=given)
        fly = partial(fly, post=post or _at_once)
        if (home is None or self.config.store is None) and (post is not None or parent.journal is None):
            return await fly(home=home)
        from glidepath.agent.adopting import adopted
        from glidepath.agent.durable import claimed

        if home is None and post is None and parent.journal is not None:
            async with adopted(self.config, parent, place, plan) as opening:
                return opening.result or await fly(opening=opening)
        if home is None or self.config.store is None:
            return await fly(home=home)
        if post is None and parent.journal is not None and parent.journal.store is self.config.store:
            await parent.journal.spawned(place.rpartition(".")[0], home.id, plan.config.agent_name)
            async with claimed(self.config, home) as opening:
                opening.above = cast("Scribe", parent.journal)
                return await fly(opening=opening)
        async with claimed(self.config, home) as opening:
            return await fly(opening=opening)

    async def _fly_below(
        self,
        messages: tuple[Message, ...],
        plan: Plan,
        parent: Run,
        cancel: CancelToken,
        *,
        budget: Budget | None,
        stream: RunStream | None,
        given: Given,
        post: Callable[[Callable[[], None]], None],
        home: Session | None = None,
        opening: Opening | None = None,
    ) -> RunResult:
        loop = asyncio.get_running_loop()
        home = opening.home if opening is not None else home or Session(new_id("session", loop))
        meter = Meter(plan.caps, parent.meter if budget is None else budget.meter, depth=parent.meter.depth + 1)
        then = None if opening is None else opening.snapshot
        carried = NOT_CARRIED
        if is_conversation(self.config.limits, home):
            plan, meter, carried = bounded_conversation(plan, self.config, home, meter.parent, then, meter.depth)
        resumed = None if opening is None else opening.resumption(meter)
        begun(meter, carried, NOT_CARRIED if then is None else then.carried)
        elapsed = 0.0 if resumed is None else resumed.snapshot.elapsed
        now, until = self._began or loop.time(), min(parent.watch.window_at, parent.watch.deadline_at)
        if loop is not parent.watch.loop:
            until += now - parent.watch.time()
        if budget is not None:
            until = min(until, budget.deadline(now))
        watch = watch_over(plan, now, until, elapsed, parent.watch)
        messages = messages if resumed is None else ()
        run = open_run(plan, home, messages, meter, watch, parent.run_id, stream, resumed=resumed, given=given)
        key = place_here()
        run.terms.accept(carried, cancel)
        run.work.belong_to(parent)
        refusal = meter.adopt() if resumed is None else None
        if refusal is None and opening is not None and opening.above is not None:
            opening.above.follow(home.id, meter)
        post(partial(announce_child, parent, run))
        try:
            begin = partial(_opened, run, home, messages)
            return await finish_run(begin, cancel, refusal=refusal, opening=opening, fitted=self._fitted)
        finally:
            run.work.belong_to(None)  # nobody asks any more, and what is kept of a child does not keep its parent
            if run.result is not None:
                post(partial(report_child, parent, run, key))

    def _heir(self, parent: Plan) -> Plan:
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

    def _tell_of_store(self, name: str) -> None:
        """Warn once that a named session without a store is lost when its run ends."""
        if not self._told_of_store:
            self._told_of_store = True
            _log.warning(
                "%s has no store: session=%r is forgotten when the run ends, and the next run does not see it. Pass "
                "Agent(store=...) to keep it, or one Session object to all runs.",
                self.config.agent_name,
                name,
            )

    def _check_root(self, cancel: object, parent: object, limits: Limits | None = None) -> None:
        config = self.config
        if cancel is not None and not isinstance(cancel, CancelToken):
            raise ConfigurationError(f"cancel must be a CancelToken, not {type(cancel).__name__}")
        if parent is not None and not isinstance(parent, Budget):
            hint = (
                ": stream() takes a Budget; use run() or ToolContext.spawn() for a child"
                if isinstance(parent, ToolContext)
                else ""
            )
            raise ConfigurationError(f"parent must be a Budget, not {type(parent).__name__}{hint}")
        own = bool(config.constraints) if config.replace_defaults else (limits or config.limits).bounded
        bounded = own or config.unbounded
        if not bounded and (parent is None or not parent.bounded):
            raise ConfigurationError(
                "this agent has no limit at all: pass limits=Limits(max_iterations=...) or another limit, "
                "or unbounded=True to run without one"
            )


def _purse_of(budget: Budget) -> Purse:
    """What a run spends from a budget that a store keeps."""
    from glidepath.agent.purse import Purse

    return Purse(budget.store, budget.line, budget.meter)


def _opened(run: Run, home: Session, messages: tuple[Message, ...] = ()) -> tuple[Run, Session, tuple[Message, ...]]:
    """For a run that is open already."""
    return run, home, messages


def _at_once(act: Callable[[], None]) -> None:
    act()
