"""Replaying a journal: the same loop, the recorded replies and results, the recorded clock and ids.

No model and no tool is called. Every commit is made again and its hash compared with the one that is recorded: where
they differ, the runtime or the configuration has changed what a run does. A journal is replayed leg by leg, each from
the recorded commits before it, so that a crash, a pause or a cancel ends one leg and not the replay. What the children
of a call did is taken from their journals, which are replayed by themselves where their agents are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Value, replace
from glidepath.agent.child_records import journal_of
from glidepath.agent.durable import claim_home_session, reopen_session
from glidepath.agent.handoffs import find_handoff
from glidepath.agent.nested_runs import delegate_of
from glidepath.agent.per_run import Given
from glidepath.agent.recording import STOPPED, Leg, describe_other_settings, legs_of
from glidepath.agent.roster import change_speakers
from glidepath.run import CancelToken, Caps, Meter, Plan, Run, note_origins, restore_disputed, restore_meter
from glidepath.sessions import Child, Counters, JournalRecorder, MemoryStore, Session, StoredJournal, read, read_journal
from glidepath.sessions.state_changes import count
from glidepath.spi import Commit, Entry, mark_unreal
from glidepath.tools import NeedsDecisions, RecordedResult, ToolResult
from glidepath.values import (
    AssistantMessage,
    Charge,
    ConfigurationError,
    ReasoningBlock,
    ReasoningDelta,
    RejectedError,
    RunResult,
    Snapshot,
    StoreError,
    StreamEnd,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolResultMessage,
    TransientError,
    pico_of,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.agent.agent import Agent
    from glidepath.agent.config import LoopConfig
    from glidepath.spi import Lease, ModelRequest, SessionStore
    from glidepath.tools import Tool, ToolContext
    from glidepath.tools.definition import Runner
    from glidepath.values import AssistantBlock, Delta

__all__ = ["Replayed", "replay"]

ENDS_HERE = "the recording ends here"
PATIENCE = 30.0  # seconds without a commit until a replay that waits for one has come to another end
TOGETHER = 12  # turns of the event loop within which calls are answered at the same moment
_FACTS = (
    *("price", "provider", "host", "vendor", "cache_write_rate", "usage_is_billed"),
    *("max_output_tokens", "context_window", "compaction"),
    *("explain_no_hosted", "least_reasoning_tokens", "takes_task_budget"),
)
"""What the runtime asks of a model beside its replies: what a call is booked and charged with."""


class Replayed(Value, frozen=True, kw_only=True):
    """What a replay found: whether every commit has the hash that was recorded, and where the first one differs.

    `whole` is False when not every commit could be compared, and `until` says what the first of the others came from:
    the run was stopped from outside, asked a fallback model, or was written by another release. `result` is the
    recorded one then, where there is one. `children` are the replays of the sessions of its children.
    """

    same: bool
    commits: int
    result: RunResult
    difference: str = ""
    whole: bool = True
    until: str = ""
    children: Mapping[str, Replayed] = {}


class Tape:
    """A model that repeats its recorded replies; a failed attempt fails again."""

    def __init__(self, model: Any, attempts: list[AssistantMessage | None]) -> None:
        self.name = model.name
        for fact in _FACTS:
            if hasattr(model, fact):
                setattr(self, fact, getattr(model, fact))
        self.attempts = attempts

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        """The next recorded reply, whatever was asked."""
        await asyncio.sleep(0)
        reply = self.next_reply(request)
        if reply is None:
            raise TransientError("this attempt failed when it was recorded", retry_after=1e-6)
        for index, block in enumerate(reply.blocks):
            for delta in self.cut(_make_delta(index, block)):
                yield delta
        yield StreamEnd(reply.stop_reason.value, reply.usage, reply.info)

    def cut(self, delta: Delta) -> Iterable[Delta]:
        """The pieces in which a part of a reply comes: all of it at once."""
        return (delta,)

    def next_reply(self, _: ModelRequest) -> AssistantMessage | None:
        """The recorded reply; None for an attempt that failed."""
        if not self.attempts:
            raise RejectedError(ENDS_HERE)
        return self.attempts.pop(0)


def _make_delta(index: int, block: AssistantBlock) -> Delta:
    """A part of a reply, whole."""
    if type(block) is TextBlock:
        return TextDelta(block.text)
    if type(block) is ThinkingBlock:
        return ThinkingDelta(block.text)
    if type(block) is ReasoningBlock:
        return ReasoningDelta(block.text, block.opaque, block.vendor)
    assert type(block) is ToolCall  # noqa: S101 - the only other kind
    arguments = _wire.encode(block.stored).decode() if block.malformed is None else block.malformed
    return ToolCallDelta(index, block.id, block.name, arguments)


class _Checking(MemoryStore):
    """Has the journal up to one leg, and compares every commit of that leg with the recorded one."""

    def __init__(self, leg: Leg, source: SessionStore) -> None:
        super().__init__()
        self.leg = leg
        self.source = source
        self.head = leg.start
        self.difference = ""
        self.token = CancelToken()
        """Ends the replay once everything that can be compared has been."""
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    async def prepare(self) -> None:
        """Write down what came before the leg."""
        if self.leg.before:
            lease = await self.claim(self.leg.session_id, "the recording")
            for commit in self.leg.before:
                super().append(lease, commit)
            await self.release(lease)

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The journal so far; other sessions are read from the store."""
        if session_id == self.leg.session_id:
            return await super().load(session_id, since=since)
        return await self.source.load(session_id)

    def append(self, lease: Lease, commit: Commit, **keywords: Any) -> None:
        """Record it, and compare."""
        leg = self.leg
        if commit.number > leg.last and not leg.whole:
            raise StoreError(ENDS_HERE)
        super().append(lease, commit, **keywords)
        self.head = commit.number
        if not self.difference and commit.number > leg.last:
            self.difference = f"commit {commit.number} was never recorded"
        elif not self.difference:
            recorded = leg.commits[commit.number - leg.start - 1]
            if recorded.hash != commit.hash:
                self.difference = describe_other_settings(recorded, commit) or _find_first_difference(recorded, commit)
        self._wake_due_waiters()
        if self.difference or (commit.number >= leg.last and not leg.whole):
            self.token.cancel(ENDS_HERE)

    async def begin_transaction(self, _lease: Lease, _seconds: float | None) -> _Landing:
        """A transaction of a transactional tool: it has no effect here, and its result is compared."""
        return _Landing(self)

    async def reach(self, number: int) -> None:
        """Wait until this many commits are made, or never will be. Waiters for the same one continue together."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(number, []).append(turn)
        self._wake_due_waiters()
        await turn

    def _wake_due_waiters(self) -> None:
        """Something happened: wake the waiters whose time has come."""
        for number in self._waiting:
            if self.head >= number or self.difference:
                self._loop.call_soon(self._release, number, TOGETHER)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(PATIENCE, self._give_up) if self._waiting else None

    def _release(self, number: int, turns: int) -> None:
        """Wait a moment: others of the same batch may reach the same point."""
        if turns:
            self._loop.call_soon(self._release, number, turns - 1)
            return
        for turn in self._waiting.pop(number, ()):
            if not turn.done():
                turn.set_result(None)

    def _give_up(self) -> None:
        self.difference = self.difference or f"commit {self.head + 1} was recorded, but the replay does not produce it"
        self._wake_due_waiters()
        self.token.cancel(ENDS_HERE)

    def wake_waiters(self) -> None:
        """Wake all waiters."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()


class _Landing:
    """Stands for the transaction of a recorded call."""

    connection = None
    is_unknown = False

    def __init__(self, checking: _Checking) -> None:
        self.append = checking.append

    async def seal(self) -> None:
        """Nothing was changed."""

    async def roll_back(self) -> None:
        """Nothing was changed."""


def _find_first_difference(recorded: Commit, made: Commit) -> str:
    for before, now in zip(read(recorded), read(made), strict=False):
        if before != now:
            old, new = bytes(before.payload)[:200].decode(), bytes(now.payload)[:200].decode()
            return f"record {before.sequence}: recorded {before.kind} {old}, replayed {now.kind} {new}"
    return f"commit {recorded.number} has a different number of records"


_NEVER = ToolResultMessage("", "", "there was no result", is_error=True)


class _Copyist(JournalRecorder):
    """A scribe that uses the recorded clock."""

    leg: Leg
    checking: _Checking

    def _count(self, run: Run) -> tuple[float, Counters]:
        now, recorded = self._recorded_moment()
        then = dict(zip(Counters.__struct_fields__, recorded, strict=False))
        clock = {name: then[name] for name in ("elapsed", "next_event") if name in then}
        return now, replace(count(run)[1], **clock)

    def _write(self, *args: Any, **keywords: Any) -> Awaitable[None] | None:
        number = self.number + 1
        taken = self.leg.taken.get(number)
        if taken is not None:
            _take_over(self._run, taken)
        states = self.leg.states.get(number)
        if states is not None:
            self._run.turn.correct_states(states)
        if number in self.leg.charged:
            self.children.spending = dict(self.leg.charged[number])
        return super()._write(*args, **keywords)

    async def end(self, result: RunResult) -> RunResult:
        """The end, at its recorded time."""
        then = self.leg.ended
        if then is not None:
            snapshot, before = result.snapshot, then.snapshot
            if snapshot is not None and before is not None:
                states = before.program_states
                snapshot = replace(
                    snapshot,
                    elapsed=before.elapsed,
                    next_event=before.next_event,
                    program_states={key: states.get(key, state) for key, state in snapshot.program_states.items()},
                )
            result = replace(result, elapsed=then.elapsed, snapshot=snapshot)
        return await super().end(result)

    def _recorded_moment(self) -> tuple[float, list[Any]]:
        times = self.leg.times
        return times[min(self.number - self.leg.start, len(times) - 1)] if times else (0.0, [])

    async def replay_result(self, call_id: str) -> ToolResult:
        """The recorded result of a call, at its recorded time."""
        leg = self.leg
        due, known = leg.results.get(call_id, (leg.last + 1, _NEVER))
        children = leg.kin.get(call_id, [])
        for child in children:
            if child.session_id not in self.children.ids:
                await self.record_child(child.call_id, child.session_id, child.agent)
        told = [await self._find_child_result(child) for child in children]
        if call_id not in leg.results:
            await self._wait_for_person(children, told)
        await self.checking.reach(due)
        for child, result in zip(children, told, strict=True):
            self._report_child(child.agent, result)
        note_origins(self._run, call_id, known.origins)  # what the call, or its child, had read
        return RecordedResult(
            known.content,
            is_error=known.is_error,
            details=known.details,
            narration=known.narration,
            kind=known.kind,
            raised_at=known.raised_at,
        )

    async def _wait_for_person(self, children: Sequence[Child], told: Sequence[RunResult | None]) -> None:
        """Raise `NeedsDecisions` if the call waited for a person who had to decide about a call of its child."""
        for child, result in zip(children, told, strict=True):
            paused = None if result is None else self.leg.paused.get(result.run_id)
            if paused is not None:
                await self.checking.reach(paused[0])
                taken = self.leg.taken.get(paused[0] + 1)
                if taken is not None:  # now, not with that commit: it may be the last, and the result has the figures
                    _take_over(self._run, taken)
                self._report_child(child.agent, paused[1])
                raise NeedsDecisions("", paused[1], child.agent)

    async def _find_child_result(self, child: Child) -> RunResult | None:
        """How a child ended, as its journal has it; None when it did not, or that is unknown."""
        with suppress(StoreError):
            return (await journal_of(self.checking.source, child.session_id)).result
        return None

    def _report_child(self, agent: str, result: RunResult | None) -> None:
        run = self._run
        if result is not None:
            before = run.work.find_child_result(result.run_id)
            run.work.report(result)
            run.spend.charge_child(agent, result.usage, pico_of(result.cost), before)


def _take_over(run: Run, fields: Mapping[str, Any]) -> None:
    """Take over figures that something outside this run changed: a child, or an attempt that was cut off."""
    run.meter.count_from(
        fields["tokens"],
        fields["picodollars"],
        turns=fields["turns"],
        tool_calls=fields["metered_tool_calls"],
        descendants=fields.get("descendants", 0),
    )
    restore_disputed(run.meter, _wire.convert(fields.get("disputed", (0, 0)), tuple[int, int]))
    run.answer.replace_text(fields.get("text", run.answer.text))
    run.spend.correct(_wire.convert(fields["spent"], Charge))


async def replay(
    agent: Agent, store: SessionStore, session_id: str, *, agents: Mapping[str, Agent] | None = None
) -> Replayed:
    """Replay every leg of a session under this agent's configuration, and compare every commit.

    The children of its calls are replayed, too, if they are agents made tools by `as_tool` or are in `agents`, by the
    name of the agent. Raises `StoreError` when the journal cannot be read. Hooks of plugins are asked again. Servers of
    tools are asked what they offer, since nothing can be compared without that; none of the tools is called.
    """
    return await _replay_session(agent, store, session_id, dict(agents or {}), None)


async def _replay_session(
    agent: Agent, store: SessionStore, session_id: str, agents: dict[str, Agent], above: tuple[Plan, Any] | None
) -> Replayed:
    journal = await read_journal(store, session_id)
    legs = legs_of(journal.commits)
    if not legs:
        raise ConfigurationError(f"session {session_id!r} has no run to replay")
    async with agent.listing_its_sources() as (equipped, missing):
        if missing and journal.folded.result is not None:
            name, why = missing[0]
            until = f"the tools of {name!r} could not be listed: {why}"
            return Replayed(same=True, commits=0, result=journal.folded.result, whole=False, until=until)
        return await _replay_legs(equipped, store, journal, legs, agents, above)


async def _replay_legs(
    agent: Agent,
    store: SessionStore,
    journal: StoredJournal,
    legs: Sequence[Leg],
    agents: dict[str, Agent],
    above: tuple[Plan, Any] | None,
) -> Replayed:
    difference, until, commits, result = "", "", 0, journal.folded.result
    for number, leg in enumerate(legs):
        if leg.began is None:
            until = until or leg.until
            continue
        flown, checking = await _replay_leg(agent, store, leg, above)
        commits += checking.head - leg.start
        if number == len(legs) - 1 and leg.whole:
            result = flown
        elif result is None:
            result = leg.ended or flown
        if not checking.difference and checking.head < leg.last:
            checking.difference = f"the replay ended after {pluralize(checking.head, 'commit')} of {leg.last}"
        if checking.difference:
            difference = checking.difference
            break
        if leg.until and (leg.until != STOPPED or leg.ended is not None or leg is legs[-1]):
            until = until or leg.until
    children = await _replay_children(agent, store, legs, agents)
    for child_id, child in children.items():
        if child.difference:
            difference = difference or f"{child_id}: {child.difference}"
    return Replayed(
        same=not difference,
        commits=commits,
        result=result,  # type: ignore[arg-type]
        difference=difference,
        whole=not until and not difference and all(child.whole for child in children.values()),
        until=until or next((f"{name}: {child.until}" for name, child in children.items() if child.until), ""),
        children=children,
    )


async def _replay_children(
    agent: Agent, store: SessionStore, legs: Sequence[Leg], agents: dict[str, Agent]
) -> dict[str, Replayed]:
    """The replays of the children whose agents are known."""
    known: dict[str, tuple[Agent, Any]] = {name: (one, None) for name, one in agents.items()}
    for tool in agent.config.tools:
        one, limits = delegate_of(tool)
        if one is not None:
            known.setdefault(one.config.agent_name, (one, limits))
    sessions = {child.session_id: child.agent for leg in legs for kin in leg.kin.values() for child in kin}
    found = {}
    for session_id, name in sessions.items():
        if name in known:
            with suppress(StoreError, ConfigurationError):  # lost, or never begun
                one, limits = known[name]
                found[session_id] = await _replay_session(one, store, session_id, agents, (agent._plan, limits))  # noqa: SLF001
    return found


async def _replay_leg(
    agent: Agent, store: SessionStore, leg: Leg, above: tuple[Plan, Any] | None
) -> tuple[RunResult, _Checking]:
    """One leg, from the journal before it."""
    checking = _Checking(leg, store)
    await checking.prepare()
    try:
        with mark_unreal():
            return await _run_leg(agent, leg, checking, above), checking
    finally:
        checking.wake_waiters()


async def _run_leg(agent: Agent, leg: Leg, checking: _Checking, above: tuple[Plan, Any] | None) -> RunResult:
    from glidepath.agent.agent import Agent
    from glidepath.agent.assemble import assemble
    from glidepath.agent.conversation import carry_into_meter, prepare_conversation
    from glidepath.agent.prepare import RunRequest, open_run, watch_over
    from glidepath.agent.run_lifecycle import finish_run

    began: Any = leg.began
    holder: list[_Copyist] = []

    def make(*args: Any, **keywords: Any) -> _Copyist:
        copyist = _Copyist(*args, **keywords)
        copyist.leg, copyist.checking, copyist.pins = leg, checking, dict(began.pins)
        holder.append(copyist)
        return copyist

    async def answer(_values: Mapping[str, Any], context: ToolContext | None) -> ToolResult:
        return await holder[0].replay_result("" if context is None else context.call_id)

    config = _make_replay_config(agent.config, leg, checking, answer)
    flier = Agent(config)
    if agent._behind:  # noqa: SLF001 - an agent's
        flier._behind = tuple(_make_answering_tool(tool, answer, leg) for tool in agent._behind)  # noqa: SLF001
        flier._plan = assemble(config, told=flier._plan.told, behind=flier._behind)  # noqa: SLF001
    plan = flier._plan  # noqa: SLF001
    if above is not None:
        plan_above, limits = above
        plan = flier._plan_under(plan_above, config if limits is None else replace(config, limits=limits))  # noqa: SLF001
    loop = asyncio.get_running_loop()
    meter = Meter(plan.caps, Meter(Caps()) if leg.on_budget else None)
    now = loop.time()
    if began.resumed:
        decided = began.decisions or None  # and a repair was accepted then
        opened: Any = reopen_session(config, leg.session_id, decided, plan, scribe=make, accept_repair=True)
    else:
        parent = None if leg.opened is None else leg.opened.parent
        home = Session(leg.session_id, messages=[] if leg.before else leg.told[: began.first_new])
        opened = claim_home_session(config, home, parent=parent, scribe=make)
    async with opened as opening:
        home = opening.home
        if leg.carried.session is not None:
            then = Snapshot(run_id=began.run_id, carried=leg.carried)
            plan, meter, _ = prepare_conversation(plan, home, meter.parent, then)
        if began.resumed and opening.snapshot is not None:
            restore_meter(meter, opening.snapshot)
            resumed = opening.make_resumption(opening.snapshot)
            asked = RunRequest((), cancel=checking.token)
            run = open_run(
                asked, plan, home, meter, watch_over(plan, meter, now, inf), resumed=resumed, carried=leg.carried
            )
        else:
            carry_into_meter(meter, leg.carried)
            asked = RunRequest(tuple(leg.told[began.first_new :]), cancel=checking.token, given=Given(leg.per_run))
            watch = watch_over(plan, meter, now, inf)
            run = open_run(asked, plan, home, meter, watch, carried=leg.carried)
        if leg.per_run is not None and leg.per_run.notes:  # what observers said then: now they are not asked
            run.terms.take_notes(leg.per_run.notes)
        run.take_id(began.run_id)
        return await finish_run(lambda: (run, home), asked, opening=opening)


def _make_replay_config(config: LoopConfig, leg: Leg, checking: _Checking, answer: Runner) -> LoopConfig:
    """The configuration with the recorded replies and results in place of models and tools."""

    def repeat(speaker: LoopConfig) -> LoopConfig:
        return replace(
            speaker,
            model=Tape(speaker.model, leg.attempts),
            fallback_models=tuple(Tape(model, leg.attempts) for model in speaker.fallback_models),
            tools=tuple(_make_answering_tool(tool, answer, leg) for tool in _list_tools(speaker)),
            tool_sources=(),  # nothing outside is asked again
            system_prompt=repeat_prompt(speaker, leg),
            store=checking,  # transactional tools are only legal with one
            durability="sync",
            event_sink=None,
            deps_type=None,  # what tools did with theirs is recorded
            deps_factory=None,
        )

    return change_speakers(config, repeat)


def repeat_prompt(speaker: LoopConfig, leg: Leg) -> Any:
    """The system prompt of an agent; what a function wrote for it, at first or when it took over, is in the journal."""
    prompt = speaker.system_prompt
    if isinstance(prompt, str):
        return prompt
    handoffs = [find_handoff(result) or {} for _, result in leg.results.values()]
    written = [one["prompt"] for one in handoffs if one.get("to") == speaker.agent_name and "prompt" in one]
    if written:
        return lambda _: written.pop(0)
    first = None if leg.per_run is None else leg.per_run.system_prompt
    return prompt if first is None else first


def _list_tools(config: LoopConfig) -> tuple[Tool, ...]:
    """The tools of a run that can be replayed; raises `ConfigurationError` for one that runs in the background."""
    name = next((one.name for one in config.tools if one.background), None)
    if name is not None:
        raise ConfigurationError(f"tool {name!r} works in the background: its run cannot be replayed turn by turn")
    return config.tools


def _make_answering_tool(tool: Tool, answer: Runner, leg: Leg) -> Any:
    """The tool with the recorded answers. A program is run again: only the calls it makes had an effect."""

    async def land(values: dict[str, Any], context: ToolContext | None) -> Any:
        # The result of a transactional call is a commit by itself, unless it was rolled back.
        if context is None or context.call_id not in leg.landed:
            return await answer(values, context)
        return await context.transact(lambda _: answer(values, context))

    if tool.makes_calls:
        return tool.making_calls([hand.answering(land if hand.transactional else answer) for hand in tool.hands])
    return tool.answering(land if tool.transactional else answer)
