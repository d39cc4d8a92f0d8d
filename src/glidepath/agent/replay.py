"""Flying a journal again: the same loop, the recorded replies and results, the recorded clock and ids.

No model and no tool is called. Every commit is made anew and its hash compared with the one that is recorded: where
they differ, the runtime or the configuration has changed what a run does. A journal is replayed up to its first crash,
pause, cancel or resumption, its first child, or its first attempt that failed in mid-stream: what comes after depends
on something this journal does not hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Raw, Value, replace
from glidepath.agent.durable import Opening
from glidepath.errors import ConfigurationError, RejectedError, StoreError, TransientError
from glidepath.ledger import Meter
from glidepath.messages import (
    AssistantMessage,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    StreamEnd,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolResultMessage,
    codec,
)
from glidepath.outcome import NOT_CARRIED, Carried, LoopOutcome, PerRun, RunResult, Snapshot
from glidepath.sessions import Session
from glidepath.sessions.archive import read_journal
from glidepath.sessions.capture import TICK, tick
from glidepath.sessions.chain import Record, read
from glidepath.sessions.fold import Began, Folded
from glidepath.sessions.memory import MemoryStore
from glidepath.sessions.owner import this_owner
from glidepath.sessions.scribe import Scribe
from glidepath.spi.sessions import Commit
from glidepath.tools import Tool, ToolResult

if TYPE_CHECKING:
    from glidepath.agent.agent import Agent
    from glidepath.spi import ModelRequest, SessionStore

__all__ = ["Replayed", "replay"]


class Replayed(Value, frozen=True, kw_only=True):
    """What a replay found: whether every commit has the hash that was recorded, and where the first one differs.

    `whole` is False when only the beginning could be compared, and `until` says what came next: the run was stopped
    from outside by a crash or a cancel, or started a child, or lost an attempt in mid-stream. `result` is the recorded
    one then, where there is one.
    """

    same: bool
    commits: int
    result: RunResult
    difference: str = ""
    whole: bool = True
    until: str = ""


class _Tape:
    """A model that says what it said then; an attempt that failed then fails again."""

    def __init__(self, model: Any, attempts: Sequence[AssistantMessage | None]) -> None:
        self.name = model.name
        for known in ("price", "max_output_tokens", "context_window"):
            if hasattr(model, known):
                setattr(self, known, getattr(model, known))
        self._attempts = list(attempts)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:  # noqa: ARG002 - it does not listen
        await asyncio.sleep(0)
        if not self._attempts:
            raise RejectedError("the recording ends here")
        reply = self._attempts.pop(0)
        if reply is None:
            raise TransientError("this attempt failed when it was recorded")
        for index, block in enumerate(reply.blocks):
            if type(block) is TextBlock:
                yield TextDelta(block.text)
            elif type(block) is ThinkingBlock:
                yield ThinkingDelta(block.text)
            elif type(block) is ReasoningBlock:
                yield ReasoningDelta(block.text, block.opaque, block.vendor)
            elif type(block) is ToolCall:
                arguments = _wire.encode(block.stored).decode() if block.malformed is None else block.malformed
                yield ToolCallDelta(index, block.id, block.name, arguments)
        yield StreamEnd(reply.stop_reason.value, reply.usage, reply.info)


class _Checking(MemoryStore):
    """Compares every commit with the recorded one."""

    def __init__(self, commits: Sequence[Commit], *, whole: bool) -> None:
        super().__init__()
        self.recorded = commits
        self.whole = whole
        self.head = 0
        self.difference = ""

    def append(self, lease: Any, commit: Commit, **keywords: Any) -> None:
        """Write it down, and look."""
        if commit.number > len(self.recorded) and not self.whole:
            raise StoreError("the recording ends here")
        super().append(lease, commit, **keywords)
        self.head = commit.number
        if self.difference:
            return
        if commit.number > len(self.recorded):
            self.difference = f"commit {commit.number} was never recorded"
        elif self.recorded[commit.number - 1].hash != commit.hash:
            self.difference = _first_difference(self.recorded[commit.number - 1], commit)


def _first_difference(recorded: Commit, made: Commit) -> str:
    for before, now in zip(read(recorded), read(made), strict=False):
        if before != now:
            old, new = bytes(before.payload)[:200].decode(), bytes(now.payload)[:200].decode()
            return f"record {before.sequence}: recorded {before.kind} {old}, replayed {now.kind} {new}"
    return f"commit {recorded.number} has another number of records"


class _Block(Value, frozen=True):
    """What a block of a reply has that reading it would lose: its arguments, byte for byte."""

    arguments: Raw = Raw()


class _Blocks(Value, frozen=True):
    blocks: tuple[_Block, ...] = ()


def _as_written(records: Iterable[Record]) -> list[AssistantMessage]:
    """The replies among these records, with the arguments of their calls as the model wrote them."""
    found = []
    for record in records:
        reply = codec.decode(bytes(record.payload)) if record.kind == "message" else None
        if type(reply) is not AssistantMessage:
            continue
        written = _wire.decode(bytes(record.payload), _Blocks).blocks
        blocks = [
            replace(block, arguments=Raw(bytes(one.arguments))) if type(block) is ToolCall else block
            for block, one in zip(reply.blocks, written, strict=True)
        ]
        found.append(replace(reply, blocks=tuple(blocks)))
    return found


class _Recorded:
    """What a journal says about the first flight in it: the transcript, the attempts, and when each result came."""

    def __init__(self, commits: Sequence[Commit]) -> None:
        self.commits: list[Commit] = []
        self.began: Began | None = None
        self.ticks: list[tuple[float, list[Any]]] = []
        self.attempts: list[AssistantMessage | None] = []
        self.results: dict[str, tuple[int, ToolResultMessage]] = {}
        self.first: list[Any] = []
        self.ended: RunResult | None = None
        self.per_run: PerRun | None = None
        self.carried = NOT_CARRIED
        self.until = ""
        folded, seen, asked, spent = Folded(), 0, False, 0
        for commit in commits:
            records = read(commit)
            if self.began is not None and any(one.kind in ("began", "imported") for one in records):
                break  # another leg, or another run
            folded.take(records)
            if not self.until:
                self.until = _out_of_reach(records, folded, spent, asked=asked)
            if self.until:
                self.ended = folded.result
                continue  # only how it ended is of interest now
            spent = folded.fields.get("tokens", 0)
            self.commits.append(commit)
            self.began = self.began or folded.began
            if self.per_run is None and folded.snapshot is not None:
                self.per_run, self.carried = folded.snapshot.per_run, folded.snapshot.carried
            fresh, seen = folded.messages[seen:], len(folded.messages)
            if commit.number == 1:
                self.first = list(fresh)
            replies = [one for one in _as_written(records) if one in fresh]
            if asked and (replies or folded.reserved is not None):
                self.attempts.append(replies[0] if replies else None)
            asked = folded.reserved is not None or (asked and not replies)
            for one in (*folded.results.values(), *fresh):
                if type(one) is ToolResultMessage:
                    self.results.setdefault(one.call_id, (commit.number - 1, one))
            self.ended = folded.result
            ticks = [_wire.decode(bytes(one.payload), list[Any]) for one in records if one.kind == "tick"]
            self.ticks.append((records[0].time, ticks[0] if ticks else []))
        self.whole = not self.until and self.ended is not None and self.ended.outcome is not LoopOutcome.CANCELLED
        if self.whole or self.until:
            return
        self.until = "the run was stopped"
        if self.ended is not None:
            del self.commits[-1]  # how it was stopped, which nothing in the journal brings about

    def silenced(self, tool: Tool, checking: _Checking) -> Tool:
        """The tool with a body that answers what was answered then, in the order in which it was."""

        async def answer(_values: Any, context: Any) -> ToolResult:
            due, known = self.results.get(context.call_id, (len(self.commits), _NEVER))
            head, idle = checking.head, 0
            while checking.head < due and not checking.difference:  # other calls of its batch were answered first
                await asyncio.sleep(0)
                idle = idle + 1 if checking.head == head else 0
                head = checking.head
                if idle > _PATIENCE:  # nobody is left who could make that commit
                    checking.difference = f"commit {head + 1} was recorded before {context.call_id} was answered"
            return ToolResult(
                known.content,
                is_error=known.is_error,
                details=known.details,
                narration=known.narration,
                kind=known.kind,
            )

        return tool.answering(answer)


_NEVER = ToolResultMessage("", "", "there was no result", is_error=True)
_PATIENCE = 10_000  # turns of the event loop without a commit: every other call has long had its say


def _out_of_reach(records: Iterable[Record], folded: Folded, spent: int, *, asked: bool) -> str:
    """What in this commit came about by something that the journal of this run does not hold; empty when nothing."""
    kinds = {record.kind for record in records}
    if "child" in kinds:
        return "a call started a child"
    if "mail" in kinds:
        return "a note was taken from the inbox"
    if "redacted" in kinds:
        return "the arguments of a call were redacted"
    replied = kinds & {"message", "ended"}
    if asked and not replied and folded.reserved is not None and folded.fields.get("tokens", 0) > spent:
        return "an attempt failed after it had begun to stream"
    return ""


class _Copyist(Scribe):
    """A scribe by whose clock it is then."""

    recorded: _Recorded

    def _now(self) -> float:
        return self._then()[0]

    def _tick(self) -> tuple[Any, ...]:
        figures, recorded = list(tick(self._run)), self._then()[1]
        for name in ("elapsed", "next_event"):
            place = TICK.index(name)
            figures[place : place + 1] = recorded[place : place + 1]
        return tuple(figures)

    async def end(self, result: RunResult) -> RunResult:
        """The end, at the time at which it was."""
        then = self.recorded.ended
        if then is not None:
            snapshot, before = result.snapshot, then.snapshot
            if snapshot is not None and before is not None:
                snapshot = replace(snapshot, elapsed=before.elapsed, next_event=before.next_event)
            result = replace(result, elapsed=then.elapsed, snapshot=snapshot)
        return await super().end(result)

    def _then(self) -> tuple[float, list[Any]]:
        ticks = self.recorded.ticks
        return ticks[min(self.number, len(ticks) - 1)]


async def replay(agent: Agent, store: SessionStore, session_id: str) -> Replayed:
    """Fly the first run of a session again under this agent's configuration, and compare every commit.

    Raises `StoreError` when the journal cannot be read. Hooks of plugins are asked again.
    """
    from glidepath.agent.agent import Agent

    journal = await read_journal(store, session_id)
    recorded = _Recorded(journal.commits)
    began = recorded.began
    if began is None:
        raise ConfigurationError(f"session {session_id!r} has no run to replay")
    checking = _Checking(recorded.commits, whole=recorded.whole)
    config = replace(
        agent.config,
        model=_Tape(agent.config.model, recorded.attempts),
        tools=tuple(recorded.silenced(tool, checking) for tool in agent.config.tools),
        store=checking,
        event_sink=None,
        fallback_models=(),
    )
    silent = Agent(config)
    opened = journal.folded.opened
    name = session_id if opened is None else opened.session_id  # it may have been imported under another one
    home = Session(name, messages=recorded.first[: began.first_new])
    lease = await checking.claim(name, this_owner())
    copyist = _Copyist(checking, lease)
    copyist.recorded = recorded
    try:
        result = await _fly(
            silent,
            home,
            tuple(recorded.first[began.first_new :]),
            began.run_id,
            copyist,
            recorded.per_run,
            recorded.carried,
        )
    finally:
        await copyist.release()
    if not checking.difference and checking.head != len(recorded.commits):
        checking.difference = f"the replay ended after {checking.head} commits of {len(recorded.commits)}"
    return Replayed(
        same=not checking.difference,
        commits=checking.head,
        result=result if recorded.whole else recorded.ended or result,
        difference=checking.difference,
        whole=recorded.whole,
        until=recorded.until,
    )


async def _fly(
    agent: Agent,
    home: Session,
    prompt: tuple[Message, ...],
    run_id: str,
    scribe: Scribe,
    per_run: PerRun | None,
    carried: Carried,
) -> RunResult:
    """One flight under the id of the recorded run, with a scribe of our own."""
    from glidepath.agent.conversation import bounded_conversation
    from glidepath.agent.flight import finish_run, open_run, watch_over

    plan = agent._plan  # noqa: SLF001 - the agent's own module would be too long for this
    watch = watch_over(plan, asyncio.get_running_loop().time(), inf)
    meter = Meter(plan.caps)
    if carried.session is not None:
        begun = Snapshot(run_id=run_id, carried=carried)
        plan, meter, _ = bounded_conversation(plan, agent.config, home, None, begun)
    run = open_run(plan, home, prompt, meter, watch, None, None, per_run=per_run)
    run.carried = carried
    run.run_id = run_id
    return await finish_run(run, home, prompt, None, opening=Opening(home=home, scribe=scribe))
