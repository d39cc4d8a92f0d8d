"""The agent: a frozen configuration that can run any number of tasks at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

from glidepath._wire import WireError, encode, replace
from glidepath.agent.assemble import assemble
from glidepath.agent.config import FIELDS, LoopConfig, check_sendable, make_config
from glidepath.agent.durable import Opening, adopted, claimed, reopened, session_of
from glidepath.agent.limits import Budget, Limits
from glidepath.agent.partners import warn_about_lonely
from glidepath.agent.resuming import Target, check_decisions, find
from glidepath.agent.route import landing_money, priced
from glidepath.agent.threads import in_its_own_loop
from glidepath.ask.booking import LEAST_LANDING
from glidepath.ask.summary import recall
from glidepath.constraints import KillSwitchConstraint
from glidepath.context import repair
from glidepath.errors import ConfigurationError
from glidepath.events import ChildEnded, ChildStarted, RunEnded
from glidepath.judge import last_validations
from glidepath.land import failure
from glidepath.ledger import Amount, Meter, Refusal
from glidepath.loop import fly
from glidepath.messages import Message, UserMessage, codec
from glidepath.outcome import AgentState, LoopOutcome, RunResult, Snapshot, StopCause
from glidepath.plugins.lineup import Lineup
from glidepath.run import CancelToken, Decision, Ending, Plan, Resumption, Run, RunStream, Signal, Watch, restore_meter
from glidepath.sessions import Session
from glidepath.tools import OutputError, Tool, ToolContext, ToolResult, tool

__all__ = ["Agent"]

_ROLES = frozenset({"system", "user", "assistant", "tool_result", "custom", "unknown"})


class Agent:
    """An agent: `Agent(model=..., tools=[...], limits=Limits(...))`, or `Agent(config)`.

    The keywords are the fields of `LoopConfig`. An agent is immutable and keeps nothing between runs: use one for as
    many runs at a time as you like.
    """

    __slots__ = ("_heirs", "_plan", "config")

    def __init__(self, config: LoopConfig | None = None, /, **fields: Any) -> None:
        if config is not None and fields:
            raise ConfigurationError("pass a LoopConfig or keywords, not both")
        if config is not None and not isinstance(config, LoopConfig):
            raise ConfigurationError(f"Agent takes a LoopConfig or keywords such as model=..., not {config!r:.100}")
        if config is not None:
            fields = {name: getattr(config, name) for name in FIELDS}
        self.config = make_config(**fields)
        self._plan = assemble(self.config)
        warn_about_lonely(self.config)
        self._heirs: WeakKeyDictionary[Lineup, Plan] = WeakKeyDictionary()

    # --- running ----------------------------------------------------------------------------------------------

    async def run(
        self,
        prompt: str | Sequence[Message] | Message,
        *,
        session: str | Session | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | ToolContext | None = None,
    ) -> RunResult:
        """Run to the end and return how it ended; raises only `ConfigurationError`, before the first call.

        When the caller's own task is cancelled, the run lands and then the cancellation goes on.
        """
        if isinstance(parent, ToolContext):
            if session is not None or cancel is not None:
                raise ConfigurationError("a child run has its parent's cancel and a session of its own: leave both out")
            return await parent.spawn(self, prompt)
        return await self._fly(prompt, session, cancel, parent, None)

    async def resume(
        self,
        target: Target,
        *,
        decisions: Mapping[str, Decision] | None = None,
        limits: Limits | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | None = None,
    ) -> RunResult:
        """Go on with a run that was paused, cancelled, limited or failed; one that is DONE is returned as it is.

        `target` is its `RunResult`, or its `Session`. `decisions` say what becomes of the calls that wait for a
        person; those without one wait on, and the run pauses again. The meters go on where they stood; `limits`
        replaces the limits. A run that spent from a `Budget` needs one again as `parent`.
        """
        return await self._fly_on(target, decisions, limits, cancel, parent, None)

    def run_sync(self, prompt: str | Sequence[Message] | Message, **keywords: Any) -> RunResult:
        """The same for code without an event loop; inside a running loop it uses a thread and a loop of its own."""
        return in_its_own_loop(partial(self.run, prompt, **keywords))

    def resume_sync(self, target: Target, **keywords: Any) -> RunResult:
        """`resume` for code without an event loop, as `run_sync` is `run`."""
        return in_its_own_loop(partial(self.resume, target, **keywords))

    def stream(
        self,
        prompt: str | Sequence[Message] | Message | None = None,
        *,
        session: str | Session | None = None,
        cancel: CancelToken | None = None,
        parent: Budget | None = None,
        resume: Target | None = None,
        decisions: Mapping[str, Decision] | None = None,
        limits: Limits | None = None,
    ) -> RunStream:
        """The same run with its events: `async with agent.stream(...) as stream: async for event in stream: ...`.

        `resume=` instead of a prompt, with `decisions` and `limits`, is `resume()` with its events.
        """
        if resume is None:
            if decisions is not None or limits is not None:
                raise ConfigurationError("decisions and limits belong to resume=...; a new run has those of its agent")
            messages = _as_messages(prompt)
            return RunStream(partial(self._fly, messages, session, cancel, parent))
        if prompt is not None or session is not None:
            raise ConfigurationError("stream(resume=...) goes on without a new prompt and in its own session")
        if self.config.store is None:  # what is wrong is said here, not when the first event is asked for
            found = find(resume)
            if not isinstance(found, RunResult):
                check_decisions(decisions, found[0])
        return RunStream(partial(self._fly_on, resume, decisions, limits, cancel, parent))

    def as_tool(self, name: str, description: str, limits: Limits | None = None) -> Tool:
        """A tool that hands its `task` to this agent, as a child of the run that calls it."""

        async def delegate(task: str, context: ToolContext) -> str | ToolResult:
            result = await context.spawn(self, task, limits)
            if result.outcome is LoopOutcome.DONE:
                return result.text
            if result.outcome is LoopOutcome.PAUSED:
                return ToolResult(_paused_line(result), is_error=True, kind="paused")
            return f"[{_partial_line(result)}]\n{result.text}"

        return tool(delegate, name=name, description=description, idempotent=True)  # its journal knows what was done

    # --- one flight -------------------------------------------------------------------------------------------

    async def _fly(
        self,
        prompt: Any,
        session: str | Session | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        stream: RunStream | None,
    ) -> RunResult:
        messages = prompt if stream is not None else _as_messages(prompt)  # a stream has looked at it already
        self._check_root(cancel, parent)
        home = _as_session(session)
        if self.config.store is None:
            return await self._take_off(messages, home, None, cancel, parent, stream)
        async with claimed(self.config, home) as opening:
            return await self._take_off(messages, home, opening, cancel, parent, stream)

    async def _take_off(
        self,
        messages: tuple[Message, ...],
        home: Session,
        opening: Opening | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        stream: RunStream | None,
    ) -> RunResult:
        plan = self._plan if parent is None else _priced(self._plan, self.config, parent.meter)
        now = asyncio.get_running_loop().time()
        shared = parent.deadline(now) if parent is not None else inf
        meter = Meter(plan.caps, parent.meter if parent is not None else None)
        watch = _watch(plan, now, shared)
        run = _open(plan, home, messages, meter, watch, None, stream)
        return await _finish(run, home, messages, cancel, opening=opening)

    async def _fly_on(
        self,
        target: Target,
        decisions: Mapping[str, Decision] | None,
        limits: Limits | None,
        cancel: CancelToken | None,
        parent: Budget | None,
        stream: RunStream | None,
    ) -> RunResult:
        if self.config.store is not None:
            return await self._fly_on_durably(target, decisions, limits, cancel, parent, stream)
        found = find(target)
        if isinstance(found, RunResult):
            return found
        snapshot, home = found
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
        stream: RunStream | None,
    ) -> RunResult:
        """The run as the store has it: a result or a session that was passed only says which."""
        async with reopened(self.config, session_of(target), decisions, self._plan.tools) as opening:
            if opening.result is not None:
                return _revived(self._plan, opening.result)
            if opening.snapshot is None:
                return await self._take_off((), opening.home, opening, cancel, parent, stream)
            return await self.carry_on(
                opening.snapshot,
                opening.home,
                opening.decisions,
                limits,
                cancel=cancel,
                parent=parent,
                stream=stream,
                opening=opening,
            )

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
            plan = assemble(config)
            snapshot = replace(snapshot, verdict=None, notice=None, final_turn=None, work_withdrawn=False)
        self._check_root(cancel, parent, config.limits)
        if snapshot.on_budget and parent is None and limits is None:
            raise ConfigurationError(
                "this run spent from a budget above its own; pass it again: resume(..., parent=budget), or give the "
                "run limits of its own: resume(..., limits=Limits(...))"
            )
        if parent is not None:
            plan = _priced(plan, config, parent.meter)
        now = asyncio.get_running_loop().time()
        meter = Meter(plan.caps, parent.meter if parent is not None else None)
        restore_meter(meter, snapshot)
        watch = _watch(plan, now, parent.deadline(now) if parent is not None else inf, snapshot.elapsed)
        run = _open(plan, home, (), meter, watch, None, stream, resumed=Resumption(snapshot, decisions))
        return await _finish(run, home, (), cancel, opening=opening)

    async def fly_child(
        self, prompt: Any, *, parent: Run, limits: Limits | None, cancel: CancelToken, place: str = ""
    ) -> RunResult:
        """Run as a child of another run: on its budget, within its time, under its guards.

        Where the parent has a journal, the child has one beside it; `place` is the call it belongs to, and its number.
        """
        messages = _as_messages(prompt)
        if limits is None:
            plan = self._heir(parent.plan)
        else:
            if not isinstance(limits, Limits):
                raise ConfigurationError(f"limits must be a Limits, not {type(limits).__name__}")
            plan = self._plan_under(parent.plan, replace(self.config, limits=limits))
        plan = _priced(plan, self.config, parent.meter)
        if parent.journal is None:
            return await self._fly_below(messages, plan, parent, cancel, None)
        async with adopted(self.config, parent, place, plan) as opening:
            return opening.result or await self._fly_below(messages, plan, parent, cancel, opening)

    async def _fly_below(
        self, messages: tuple[Message, ...], plan: Plan, parent: Run, cancel: CancelToken, opening: Opening | None
    ) -> RunResult:
        meter = Meter(plan.caps, parent.meter, depth=parent.meter.depth + 1)
        resumed = None if opening is None else opening.resumption(meter)
        elapsed = 0.0 if resumed is None else resumed.snapshot.elapsed
        watch = _watch(plan, parent.time(), min(parent.watch.window_at, parent.watch.deadline_at), elapsed)
        home = Session(_new_id("session", watch.loop)) if opening is None else opening.home
        messages = messages if resumed is None else ()
        run = _open(plan, home, messages, meter, watch, parent.run_id, None, resumed=resumed)
        refusal = meter.adopt() if resumed is None else None
        parent.emit(ChildStarted, run.run_id, plan.agent_name, meter.depth)
        try:
            return await _finish(run, home, messages, cancel, refusal=refusal, opening=opening)
        finally:
            if run.result is not None:
                _report_child(parent, run)

    def _heir(self, parent: Plan) -> Plan:
        """This agent's plan with the parent's constraints and guarding plugins added; made once for each parent."""
        if not parent.custom and not parent.lineup.plugins:
            return self._plan
        known = self._heirs.get(parent.lineup)
        if known is None:
            known = self._heirs[parent.lineup] = self._plan_under(parent, self.config)
        return known

    def _plan_under(self, parent: Plan, config: LoopConfig) -> Plan:
        constraints = [constraint for constraint in parent.custom if constraint not in config.constraints]
        config = replace(config, constraints=(*config.constraints, *constraints))
        return assemble(config, parent.lineup.inheritable())

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
        if not bounded and (parent is None or not parent.limits.bounded):
            raise ConfigurationError(
                "this agent has no limit at all: pass limits=Limits(max_iterations=...) or another limit, "
                "or unbounded=True if that is what you want"
            )

    def __repr__(self) -> str:
        return f"<Agent {self.config.agent_name} on {self._plan.model_name}>"


# --- opening and closing a run ------------------------------------------------------------------------------------


def _priced(plan: Plan, config: LoopConfig, budget: Meter) -> Plan:
    """The plan with a price, when it spends from a budget that limits money; `ConfigurationError` if none is known."""
    if all(node.caps.money is None for node in budget.lineage):
        return plan
    return priced(plan, config)


def _watch(plan: Plan, now: float, shared: float, elapsed: float = 0.0) -> Watch:
    own = inf if plan.timeout is None else now - elapsed + plan.timeout
    deadline = min(own, shared)
    landing = plan.times.landing if deadline == own else min(plan.times.landing, max(0.0, deadline - now) / 4)
    switches = tuple(switch.thrown for switch in plan.constraints if isinstance(switch, KillSwitchConstraint))
    return Watch(window_at=deadline - landing if deadline < inf else inf, deadline_at=deadline, switches=switches)


def _open(
    plan: Plan,
    home: Session,
    messages: Sequence[Message],
    meter: Meter,
    watch: Watch,
    parent_id: str | None,
    stream: RunStream | None,
    *,
    resumed: Resumption | None = None,
) -> Run:
    try:
        return _opened(plan, home, messages, meter, watch, parent_id, stream, resumed=resumed)
    except BaseException:
        watch.disarm()  # or its timer would interrupt the caller long after
        raise


def _opened(
    plan: Plan,
    home: Session,
    messages: Sequence[Message],
    meter: Meter,
    watch: Watch,
    parent_id: str | None,
    stream: RunStream | None,
    *,
    resumed: Resumption | None,
) -> Run:
    if home.in_flight:
        raise ConfigurationError(f"session {home.id!r} has a run in flight; wait for it or use another session")
    if resumed is None:
        not_decided = home.state is AgentState.WAITING_FOR_INPUT
        repaired = plan.repair(home.messages, keep_custom=True, not_decided=not_decided)
        if repaired is not home.messages:
            home.messages[:] = repaired
        reserve = _landing_reserve(plan, messages, meter)
    else:
        task = [home.messages[place] for place in resumed.snapshot.pinned]
        reserve = _what_is_left(_landing_reserve(plan, task, meter), meter)
        resumed.landing_paid = _enough_to_land(plan, reserve, meter)
    meter.near_tokens, meter.near_money = plan.near_tokens, plan.near_money
    meter.hold_landing(reserve)
    run = Run.open(
        plan,
        run_id=_new_id("run", watch.loop) if resumed is None else resumed.snapshot.run_id,
        parent_id=parent_id,
        session_id=home.id,
        messages=home.messages,
        metadata=home.metadata,
        meter=meter,
        watch=watch,
        landing_reserve=reserve,
        stream=stream,
        resumed=resumed,
    )
    if plan.strategy.name == "summarize":
        recall(run)
    home.in_flight = True
    if stream is not None:
        stream.run = run
        watch.ring = stream.ring
    return run


def _new_id(what: str, loop: asyncio.AbstractEventLoop) -> str:
    """An id nobody else has; a loop of the simulator has its own, so that the same flight can be flown again."""
    seeded = getattr(loop, "new_id", None)
    return f"{what}_{os.urandom(8).hex() if seeded is None else seeded()}"


def _landing_reserve(plan: Plan, messages: Sequence[Message], meter: Meter) -> Amount:
    """What the landing call will need: held back at this run's node, set aside with its ancestors."""
    if not meter.limited or plan.landing == "off":
        return Amount()
    task = sum(plan.size_of(message) for message in messages)
    notice = plan.landing_notice_tokens
    least = int(plan.min_output_tokens * 1.1) + 1
    tokens = max(plan.landing_tokens, plan.landing_fixed_tokens + task + notice + least)
    if plan.caps.tokens is not None:
        tokens = min(tokens, plan.caps.tokens // 4)
    money = 0
    if plan.price is not None:
        output = min(tokens, max(least, tokens // 2))
        money = landing_money(plan, tokens - output, output, meter.room_money())
        if plan.caps.money is not None:
            money = min(money, plan.caps.money // 4)
    return Amount(tokens, money)


def _what_is_left(reserve: Amount, meter: Meter) -> Amount:
    """The landing reserve of a run that goes on: no more than its own limits leave."""
    caps = meter.caps
    tokens = reserve.tokens if caps.tokens is None else min(reserve.tokens, caps.tokens - meter.tokens)
    money = reserve.money if caps.money is None else min(reserve.money, caps.money - meter.money)
    return Amount(max(0, tokens), max(0, money))


def _enough_to_land(plan: Plan, reserve: Amount, meter: Meter) -> bool:
    """Whether a landing call from this reserve could say anything."""
    least = plan.landing_fixed_tokens + LEAST_LANDING
    price = plan.price
    poor = meter.caps.tokens is not None and reserve.tokens < least
    if meter.caps.money is not None and price is not None:
        poor = poor or reserve.money < least * max(price.worst_input, price.output)
    return not poor


async def _finish(
    run: Run,
    home: Session,
    messages: Sequence[Message],
    cancel: CancelToken | None,
    *,
    refusal: Refusal | None = None,
    opening: Opening | None = None,
) -> RunResult:
    """Fly, conclude, clean up. Nothing of the run is alive afterwards but what its result lists as abandoned."""
    try:
        refused = None if refusal is None else _refused(refusal)
        if opening is not None:
            refused = opening.attend(run) or refused
        run.start()
        if cancel is not None:
            cancel.subscribe(run.hear)
        try:
            ending = await fly(run, messages) if refused is None else refused
        except Exception as defect:
            ending = failure(run, "internal", f"{type(defect).__name__}: {defect}")
        run.settle_up()
        run.passed = last_validations(run)
        result = run.conclude(ending)
        if run.journal is not None:
            result = await run.journal.end(result)
        run.emit(RunEnded, result)
        home.close_run(result)
        for observer in run.audience.observers if run.audience is not None else ():
            await observer.close(run.plan.times.hook)
    finally:
        if cancel is not None:
            cancel.unsubscribe(run.hear)
        home.in_flight = False
        await run.watch.close()
    if run.watch.interrupt is not None and run.watch.interrupt.signal is Signal.TASK:
        raise asyncio.CancelledError(run.watch.interrupt.reason)
    return result


def _refused(refusal: Refusal) -> Ending:
    cause = StopCause(
        source=f"max_{refusal.resource}",
        action="graceful_exit",
        reason=f"the child was not started: the limit on {refusal.resource} is reached",
        metrics={"limit": refusal.limit, "used": refusal.used},
    )
    text = f"Not started: the limit on {refusal.resource} is reached."
    return Ending(state=AgentState.BUDGET_EXCEEDED, outcome=LoopOutcome.CUT_OFF, cause=cause, text=text, partial=True)


def _report_child(parent: Run, child: Run) -> None:
    result: Any = child.result
    parent.children += (result,)
    parent.abandoned += result.abandoned
    parent.charge_child(child.plan.agent_name, child.usage, child.money)
    parent.emit(
        ChildEnded,
        child.run_id,
        child.plan.agent_name,
        result.state.name,
        result.outcome.name,
        result.usage,
        result.cost,
    )


def _revived(plan: Plan, result: RunResult) -> RunResult:
    """A result that was read from a store: its output is a value of its type again."""
    if plan.output is None or result.output is None:
        return result
    with suppress(OutputError):  # the type has changed since: what was written stands
        return replace(result, output=plan.output.read(encode(result.output).decode()))
    return result


def _paused_line(result: RunResult) -> str:
    waiting = ", ".join(f"{waiting.call.name} ({waiting.reason})" for waiting in result.pending)
    return (
        f"The agent stopped before this was done: {waiting}. A person has to decide, and cannot do so inside a "
        "delegated task. Nothing of it was executed. Do without it, or say in your answer what has to be decided."
    )


def _partial_line(result: RunResult) -> str:
    why = f"{result.cause.source}: {result.cause.reason}" if result.cause is not None else "it was paused"
    return f"This answer is partial. The agent ended {result.state.name}/{result.outcome.name} ({why})."


# --- input --------------------------------------------------------------------------------------------------------


def _as_messages(prompt: Any) -> tuple[Message, ...]:
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigurationError("prompt is empty: say what the agent should do")
        check_sendable("prompt", prompt)
        return (UserMessage(prompt),)
    if getattr(prompt, "role", None) in _ROLES:
        prompt = (prompt,)
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes) or not prompt:
        raise ConfigurationError(
            f"prompt must be a str or a non-empty sequence of messages, not {type(prompt).__name__}"
        )
    for message in prompt:
        if not isinstance(message, Message):
            raise ConfigurationError(f"prompt must hold messages of glidepath.messages, not {type(message).__name__}")
        _check_message(message)
    return tuple(repair(prompt, keep_custom=True))


def _check_message(message: Message) -> None:
    """Messages are built unchecked, for speed: those from outside are read once as they would be from a file."""
    try:
        codec.decode(codec.encode(message))
    except (WireError, TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"prompt: this {message.role} message cannot be sent: {error}") from None
    check_sendable("prompt", message.text)


def _as_session(session: Any) -> Session:
    if isinstance(session, Session):
        return session
    if session is None or isinstance(session, str):
        return Session(session)
    raise ConfigurationError(f"session must be an id or a Session, not {type(session).__name__}")
