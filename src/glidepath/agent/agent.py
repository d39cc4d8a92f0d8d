"""The agent: a frozen configuration that can run any number of tasks at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Generic, Unpack, overload
from weakref import WeakKeyDictionary

from glidepath._wire import replace
from glidepath.agent.adopting import DELEGATES, adopted
from glidepath.agent.assemble import assemble
from glidepath.agent.config import FIELDS, LoopConfig, make_config
from glidepath.agent.conversation import begun, bounded_conversation, is_conversation
from glidepath.agent.durable import Opening, claimed, reopened, session_of
from glidepath.agent.equipped import Equipped, supplied
from glidepath.agent.flight import (
    announce_child,
    finish_run,
    new_id,
    open_run,
    partial_line,
    paused_line,
    priced_under,
    report_child,
    revived,
    watch_over,
)
from glidepath.agent.forks import ForkingAgent
from glidepath.agent.inside import call_of, place_of, run_inside, stream_inside
from glidepath.agent.keywords import AgentChanges, AgentKeywords, ResumeKeywords, RunKeywords
from glidepath.agent.limits import Budget, Limits
from glidepath.agent.partners import warn_about_lonely
from glidepath.agent.per_run import inherited, replaced
from glidepath.agent.prompts import as_messages, as_session
from glidepath.agent.purse import Purse
from glidepath.agent.resuming import Target, check_decisions, find, nothing_to_decide, run_of
from glidepath.agent.sync_stream import SyncStream
from glidepath.agent.threads import can_be_interrupted, in_its_own_loop
from glidepath.errors import ConfigurationError
from glidepath.ledger import Meter
from glidepath.messages import Message
from glidepath.outcome import NOT_CARRIED, LoopOutcome, OutputT, PerRun, RunResult, Snapshot
from glidepath.plugins.lineup import Lineup
from glidepath.run import (
    INHERIT,
    CancelToken,
    Decision,
    Inherit,
    Place,
    Plan,
    Resumption,
    Run,
    RunStream,
    restore_meter,
)
from glidepath.run.inside import outside
from glidepath.sessions import Session
from glidepath.tools import Tool, ToolContext, ToolResult, tool

__all__ = ["Agent"]

_log = logging.getLogger("glidepath")


class Agent(ForkingAgent, Equipped, Generic[OutputT]):
    """An agent: `Agent(model=..., tools=[...], limits=Limits(...))`, or `Agent(config)`.

    The keywords are the fields of `LoopConfig`. An agent is immutable and keeps nothing between runs: use one for as
    many runs at a time as you like.
    """

    __slots__ = ()

    @overload
    def __init__(self: Agent[Any], config: LoopConfig, /) -> None: ...
    @overload
    def __init__(self: Agent[None], /, **fields: Unpack[AgentKeywords]) -> None: ...
    @overload
    def __init__(self, /, *, output_type: type[OutputT], **fields: Unpack[AgentKeywords]) -> None: ...
    def __init__(self, config: LoopConfig | None = None, /, **fields: Any) -> None:
        if config is not None and fields:
            raise ConfigurationError("pass a LoopConfig or keywords, not both")
        if config is not None and not isinstance(config, LoopConfig):
            raise ConfigurationError(f"Agent takes a LoopConfig or keywords such as model=..., not {config!r:.100}")
        self.config = make_config(**fields) if config is None else config
        self._plan = assemble(self.config)
        warn_about_lonely(self.config)
        self._heirs: WeakKeyDictionary[Lineup, Plan] = WeakKeyDictionary()
        self._told_of_store = False
        self._prepare_sources()

    def replace(self, **changes: Unpack[AgentChanges]) -> Agent[OutputT]:
        """The same agent with other settings: `agent.replace(limits=Limits(max_cost="1"))`. This one stays as it is."""
        if "output_type" in changes:
            raise ConfigurationError("replace cannot change output_type: make another Agent for another result")
        for name in changes:
            if name not in FIELDS:
                raise LoopConfig.no_such_setting(name)
        return Agent(replace(self.config, **changes))

    # --- running ----------------------------------------------------------------------------------------------

    async def run(
        self,
        prompt: str | Sequence[Message] | Message,
        *,
        session: str | Session | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | ToolContext | Inherit | None = INHERIT,
        extras: Mapping[str, Any] | None = None,
        tool_choice: str | None = None,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> RunResult[OutputT]:
        """Run to the end and return how it ended; raises only `ConfigurationError`, before the first call.

        Inside a tool or a guarding hook of another run this is a child of that run, within its limits; `parent=None`
        makes a root. When the caller's own task is cancelled, the run lands and then the cancellation goes on.

        For this run alone: `extras` on top of the agent's (None takes one out), `tool_choice` instead of the agent's,
        `metadata` and `user` for hooks, events and providers that have a field for them. Children have the last two.
        """
        per_run = self._per_run(extras, tool_choice, metadata, user)
        if isinstance(parent, ToolContext):
            if session is not None or cancel is not None:
                raise ConfigurationError("a child run has its parent's cancel and a session of its own: leave both out")
            if per_run is None:
                return await parent.spawn(self, prompt)
            return await run_inside(self, call_of(parent), as_messages(prompt, self.config), None, None, per_run)
        place = place_of(parent)
        if place is None:
            return await self._fly(prompt, session, cancel, None if parent is INHERIT else parent, per_run, None)
        home = self._home_inside(place, session, cancel)
        budget = parent if parent is not INHERIT else None
        return await run_inside(self, place, as_messages(prompt, self.config), home, cancel, per_run, budget)

    async def resume(
        self,
        target: Target,
        *,
        decisions: Mapping[str, Decision] | None = None,
        limits: Limits | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | None = None,
        extras: Mapping[str, Any] | None = None,
        tool_choice: str | None = None,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
        accept_repair: bool = False,
    ) -> RunResult[OutputT]:
        """Go on with a run that was paused, cancelled, limited or failed; one that is DONE is returned as it is.

        `target` is its `RunResult`, or its `Session`. `decisions` say what becomes of the calls that wait for a
        person; those without one wait on, and the run pauses again. The meters go on where they stood; `limits`
        replaces the limits. A run that spent from a `Budget` needs one again as `parent`. `extras` to `user` are
        those that the run was started with, unless they are given here. A session whose journal was repaired goes on
        only with `accept_repair`: what was lost may have had effects.
        """
        per_run = self._per_run(extras, tool_choice, metadata, user)
        return await self._fly_on(target, decisions, limits, cancel, parent, per_run, None, accept_repair=accept_repair)

    def run_sync(
        self, prompt: str | Sequence[Message] | Message, **keywords: Unpack[RunKeywords]
    ) -> RunResult[OutputT]:
        """The same for code without an event loop; inside a running loop it uses a thread and a loop of its own.

        It blocks that loop: in an `async def`, await `run()`. Ctrl-C lands the run and raises `RunInterrupted`, a
        KeyboardInterrupt that has the result.
        """
        token = keywords.get("cancel")
        if token is None and "parent" not in keywords:  # a child has its parent's
            token = keywords["cancel"] = CancelToken() if can_be_interrupted() else None
        return in_its_own_loop(partial(self.run, prompt, **keywords), token)

    def stream_sync(
        self, prompt: str | Sequence[Message] | Message, **keywords: Unpack[RunKeywords]
    ) -> SyncStream[OutputT]:
        """`stream` for code without an event loop: `with agent.stream_sync("...") as s: for event in s: ...`."""
        token = keywords.get("cancel") or CancelToken()
        keywords["cancel"] = token
        return SyncStream(partial(self.stream, prompt, **keywords), token)

    def resume_sync(self, target: Target, **keywords: Unpack[ResumeKeywords]) -> RunResult[OutputT]:
        """`resume` for code without an event loop, as `run_sync` is `run`."""
        return in_its_own_loop(partial(self.resume, target, **keywords))

    def stream(
        self,
        prompt: str | Sequence[Message] | Message | None = None,
        *,
        session: str | Session | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | ToolContext | Inherit | None = INHERIT,
        resume: Target | None = None,
        decisions: Mapping[str, Decision] | None = None,
        limits: Limits | None = None,
        extras: Mapping[str, Any] | None = None,
        tool_choice: str | None = None,
        metadata: Mapping[str, str] | None = None,
        user: str | None = None,
        accept_repair: bool = False,
    ) -> RunStream[OutputT]:
        """The same run with its events: `async with agent.stream(...) as stream: async for event in stream: ...`.

        Inside a tool or a guarding hook it is a child, as with `run()`. `resume=` instead of a prompt, with `decisions`
        and `limits`, is `resume()` with its events. `extras` to `user` are as with `run()` and `resume()`.
        """
        per_run = self._per_run(extras, tool_choice, metadata, user)
        if resume is None:
            if decisions is not None or limits is not None:
                raise ConfigurationError("decisions and limits belong to resume=...; a new run has those of its agent")
            messages = as_messages(prompt, self.config)
            place = place_of(parent)
            if place is None:
                above: Any = None if parent is INHERIT else parent
                return RunStream(partial(self._fly, messages, session, cancel, above, per_run))
            home = self._home_inside(place, session, cancel)
            return RunStream(partial(stream_inside, self, place, messages, home, cancel, per_run))
        if prompt is not None or session is not None:
            raise ConfigurationError("stream(resume=...) goes on without a new prompt and in its own session")
        if self.config.store is None:  # what is wrong is said here, not when the first event is asked for
            found = find(resume)
            if isinstance(found, RunResult):
                nothing_to_decide(decisions)
            else:
                check_decisions(decisions, found[0])
        above = None if parent is INHERIT else parent
        fly = partial(self._fly_on, accept_repair=accept_repair)
        return RunStream(partial(fly, resume, decisions, limits, cancel, above, per_run))

    def as_tool(self, name: str, description: str, limits: Limits | None = None) -> Tool:
        """A tool that hands its `task` to this agent, as a child of the run that calls it."""

        async def delegate(task: str, context: ToolContext) -> str | ToolResult:
            result = await context.spawn(self, task, limits)
            if result.outcome is LoopOutcome.DONE:
                return result.text
            if result.outcome is LoopOutcome.PAUSED:
                return ToolResult(paused_line(result, self.config.texts), is_error=True, kind="paused")
            return f"[{partial_line(result, self.config.texts)}]\n{result.text}"

        DELEGATES[delegate] = self, limits
        made = tool(delegate, name=name, description=description, idempotent=True)  # its journal knows what was done
        return made.overlapping()

    # --- one flight -------------------------------------------------------------------------------------------

    @supplied
    async def _fly(
        self,
        prompt: Any,
        session: str | Session | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        per_run: PerRun | None,
        stream: RunStream | None,
    ) -> RunResult:
        messages = prompt if stream is not None else as_messages(prompt, self.config)  # a stream has looked at it
        self._check_root(cancel, parent)
        home = as_session(session)
        if self.config.store is None and isinstance(session, str):
            self._tell_of_store(home.id)
        if parent is None or not parent.line:
            if self.config.store is not None:
                return await self._flown(messages, home, parent, cancel, per_run, stream)
            with outside():  # as `_flown`, with one coroutine less to wake in each of a thousand runs
                run = self._open(messages, home, parent, cancel, per_run, stream)
                return await finish_run(run, home, messages, cancel, fitted=self._fitted)
        purse = Purse(parent.store, parent.line, parent.meter)
        try:
            return await self._flown(messages, home, purse, cancel, per_run, stream)
        finally:
            await purse.close()

    async def _flown(
        self,
        messages: tuple[Message, ...],
        home: Session,
        parent: Budget | Purse | None,
        cancel: CancelToken | None,
        per_run: PerRun | None,
        stream: RunStream | None,
    ) -> RunResult:
        with outside():
            if self.config.store is None:
                run = self._open(messages, home, parent, cancel, per_run, stream)
                return await finish_run(run, home, messages, cancel, fitted=self._fitted)
            async with claimed(self.config, home) as opening:
                run = self._open(messages, home, parent, cancel, per_run, stream)
                return await finish_run(run, home, messages, cancel, opening=opening, fitted=self._fitted)

    async def fly_alone(
        self,
        messages: tuple[Message, ...],
        home: Session | None,
        cancel: CancelToken | None,
        per_run: PerRun | None,
        stream: RunStream | None,
    ) -> RunResult:
        """A run that was started, or a stream that was made, inside a tool call that has ended meanwhile."""
        return await self._fly(messages, home, cancel, None, per_run, stream)

    def _open(
        self,
        messages: tuple[Message, ...],
        home: Session,
        parent: Budget | Purse | None,
        cancel: CancelToken | None,
        per_run: PerRun | None,
        stream: RunStream | None,
    ) -> Run:
        """A run that is ready to fly, in the task that will fly it."""
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
        run = open_run(plan, home, messages, meter, watch, None, stream, per_run=per_run)
        run.carried = carried
        run.token = cancel
        return run

    @supplied
    async def _fly_on(
        self,
        target: Target,
        decisions: Mapping[str, Decision] | None,
        limits: Limits | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        per_run: PerRun | None,
        stream: RunStream | None,
        *,
        accept_repair: bool,
    ) -> RunResult:
        if self.config.store is not None:
            fly = partial(self._fly_on_durably, accept_repair=accept_repair)
            return await fly(target, decisions, limits, cancel, parent, per_run, stream)
        found = find(target)
        if isinstance(found, RunResult):
            nothing_to_decide(decisions)
            return found
        snapshot, home = found
        snapshot = replace(snapshot, per_run=replaced(snapshot.per_run, per_run))
        return await self.carry_on(
            snapshot, home, check_decisions(decisions, snapshot), limits, cancel=cancel, parent=parent, stream=stream
        )

    async def _fly_on_durably(
        self,
        target: Target,
        decisions: Mapping[str, Decision] | None,
        limits: Limits | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        per_run: PerRun | None,
        stream: RunStream | None,
        *,
        accept_repair: bool,
    ) -> RunResult:
        """The run as the store has it: a result or a session that was passed only says which."""
        wanted = run_of(target)
        reopen = partial(reopened, self.config, session_of(target), decisions, self._plan.tools)
        async with reopen(run_id=wanted, accept_repair=accept_repair) as opening:
            if isinstance(target, Session):
                opening.home.limits = target.limits
            if opening.result is not None:
                return revived(self._plan, opening.result)
            if opening.snapshot is None:
                run = self._open((), opening.home, parent, cancel, per_run, stream)
                with outside():
                    return await finish_run(run, opening.home, (), cancel, opening=opening, fitted=self._fitted)
            return await self.carry_on(
                replace(opening.snapshot, per_run=replaced(opening.snapshot.per_run, per_run)),
                opening.home,
                opening.decisions,
                limits,
                cancel=cancel,
                parent=parent,
                stream=stream,
                opening=opening,
            )

    @supplied
    async def carry_on(
        self,
        snapshot: Snapshot,
        home: Session,
        decisions: Mapping[str, Decision],
        limits: Limits | None = None,
        *,
        cancel: CancelToken | None = None,
        parent: Budget | None = None,
        stream: RunStream | None = None,
        opening: Opening | None = None,
    ) -> RunResult:
        """Go on with a run from its snapshot, in a session that has its messages and the state of its guards."""
        config, plan = self.config, self._plan
        if limits is not None:
            if not isinstance(limits, Limits):
                raise ConfigurationError(f"limits must be a Limits, not {type(limits).__name__}")
            config = replace(config, limits=limits)
            plan = assemble(config, told=plan.told, behind=self._behind)
            snapshot = replace(snapshot, verdict=None, notice=None, final_turn=None, work_withdrawn=False)
        self._check_root(cancel, parent, config.limits)
        if snapshot.on_budget and parent is None and limits is None:
            raise ConfigurationError(
                "this run spent from a budget above its own; pass it again: resume(..., parent=budget), with --wallet "
                "NAME on the command line, or give the run limits of its own: resume(..., limits=Limits(...))"
            )
        purse = Purse(parent.store, parent.line, parent.meter) if parent is not None and parent.line else None
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
        run = open_run(plan, home, (), meter, watch, None, stream, resumed=resumed)
        run.carried = carried
        run.token = cancel
        try:
            with outside():
                return await finish_run(run, home, (), cancel, opening=opening, fitted=self._fitted)
        finally:
            if purse is not None:
                await purse.close()

    def _home_inside(self, place: Place, session: Any, cancel: Any) -> Session | None:
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
        prompt: Any,
        *,
        parent: Run,
        cancel: CancelToken,
        limits: Limits | None = None,
        place: str = "",
        home: Session | None = None,
        stream: RunStream | None = None,
        budget: Budget | None = None,
        per_run: PerRun | None = None,
        post: Callable[[Callable[[], None]], None] | None = None,
    ) -> RunResult:
        """Run as a child of another run: on its budget, within its time, under its guards.

        Where the parent has a journal, the child has one beside it; `place` is the call it belongs to, and its number.
        With a session of its own (`home`) it is kept where its agent keeps sessions. `budget`: a part of the parent's.
        `post` tells the parent what happened, when that lives on another loop.
        """
        messages = as_messages(prompt, self.config)
        if limits is None:
            plan = self._heir(parent.plan)
        else:
            if not isinstance(limits, Limits):
                raise ConfigurationError(f"limits must be a Limits, not {type(limits).__name__}")
            plan = self._plan_under(parent.plan, replace(self.config, limits=limits))
        above = parent.meter if budget is None else budget.meter
        plan = priced_under(plan, self.config, above)
        given = inherited(parent.per_run, per_run)
        fly = partial(self._fly_below, messages, plan, parent, cancel, budget=budget, stream=stream, per_run=given)
        fly = partial(fly, post=post or _at_once)
        if home is None and post is None and parent.journal is not None:
            async with adopted(self.config, parent, place, plan) as opening:
                return opening.result or await fly(opening=opening)
        if home is None or self.config.store is None:
            return await fly(home=home)
        if post is None and parent.journal is not None and parent.journal.store is self.config.store:
            await parent.journal.spawned(place.rpartition(".")[0], home.id, plan.agent_name)
            async with claimed(self.config, home) as opening:
                opening.above = parent.journal
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
        per_run: PerRun | None,
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
            until += now - parent.time()
        if budget is not None:
            until = min(until, budget.deadline(now))
        watch = watch_over(plan, now, until, elapsed)
        watch.above = parent.watch
        messages = messages if resumed is None else ()
        run = open_run(plan, home, messages, meter, watch, parent.run_id, stream, resumed=resumed, per_run=per_run)
        run.carried = carried
        run.token = cancel
        refusal = meter.adopt() if resumed is None else None
        if refusal is None and opening is not None and opening.above is not None:
            opening.above.follow(home.id, meter)
        post(partial(announce_child, parent, run))
        try:
            with outside():
                return await finish_run(
                    run, home, messages, cancel, refusal=refusal, opening=opening, fitted=self._fitted
                )
        finally:
            if run.result is not None:
                post(partial(report_child, parent, run))

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
        """A session that has a name and no store is forgotten with its run: say so, once for this agent."""
        if not self._told_of_store:
            self._told_of_store = True
            _log.warning(
                "%s has no store: session=%r is forgotten when the run ends, and the next run does not see it. Pass "
                "Agent(store=...) to keep it, or one Session object to all runs.",
                self.config.agent_name,
                name,
            )

    def _check_root(self, cancel: Any, parent: Any, limits: Limits | None = None) -> None:
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
                "or unbounded=True if that is what you want"
            )

    def __repr__(self) -> str:
        return f"<Agent {self.config.agent_name} on {self._plan.model_name}>"


def _at_once(act: Callable[[], None]) -> None:
    act()
