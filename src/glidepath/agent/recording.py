"""What a journal says about each leg of its runs: who said what, when each result came, what children did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from glidepath import _wire
from glidepath._version import VERSION
from glidepath._wire import Raw, Value, replace
from glidepath.agent.handoffs import find_handoff
from glidepath.kernel.tool_calls.transacting import DONE
from glidepath.run import Fingerprint, find_differences
from glidepath.sessions import Began, Child, Folded, JournalRecord, Opened, Used, decode_leniently, message_of, read
from glidepath.spi import Commit
from glidepath.values import (
    NOT_CARRIED,
    AgentState,
    AssistantMessage,
    LoopOutcome,
    Message,
    PerRun,
    Program,
    RunResult,
    ToolCall,
    ToolResultMessage,
    codec,
)

STOPPED = "the run was stopped"
_NOT_OF_A_RUN = ("imported", "forked", "quarantine")  # written by a tool that copied or repaired the journal
_BY_THE_CLOCK = frozenset({AgentState.CANCELLED, AgentState.TIMED_OUT})


class _Block(Value, frozen=True):
    """What a block of a reply has that reading it would lose: its arguments, byte for byte."""

    arguments: Raw = Raw()


class _Blocks(Value, frozen=True):
    blocks: tuple[_Block, ...] = ()


def _read_replies(records: Iterable[JournalRecord]) -> list[AssistantMessage]:
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


def _read_results(records: Iterable[JournalRecord]) -> Iterator[tuple[str, ToolResultMessage]]:
    """The results of calls among these records, each with the kind of its record."""
    for record in records:
        one = message_of(bytes(record.payload)) if record.kind in ("message", "result") else None
        if type(one) is ToolResultMessage:
            yield record.kind, one


class Leg:
    """One leg: from where a run began, or continued, to its end or to where its process died."""

    def __init__(self, before: Sequence[Commit], folded: Folded) -> None:
        self.before = tuple(before)
        """The journal up to here."""
        self.session_id = folded.session.id
        self.opened: Opened | None = folded.opened
        self.began: Began | None = None
        self.commits: list[Commit] = []
        """Those that can be compared."""
        self.times: list[tuple[float, list[Any]]] = []
        self.attempts: list[AssistantMessage | None] = []
        self.results: dict[str, tuple[int, ToolResultMessage]] = {}
        """By call: after which commit it came, and what it was."""
        self.landed: set[str] = set()
        """Calls whose result was written before it joined the transcript."""
        self.kin: dict[str, list[Child]] = {}
        self.paused: dict[str, tuple[int, RunResult]] = {}
        """By the run of a child that waited for a person: after which commit it did, and how it had ended by then."""
        self.taken: dict[int, dict[str, Any]] = {}
        """By commit: the state to take from the journal, where something else has changed the figures."""
        self.charged: dict[int, dict[str, Used]] = {}
        self.states: dict[int, dict[str, str]] = {}
        """By commit: what the programs in flight continued from; it tells how long they computed, too."""
        self.told: list[Message] = []
        self.ended: RunResult | None = None
        self.per_run: PerRun | None = None
        self.carried = NOT_CARRIED
        self.on_budget = False
        self.until = ""
        """What came next, when not all of it can be compared."""
        self._asked = False
        self._handed_over = any(map(find_handoff, folded.messages))
        for child in folded.children:
            self.kin.setdefault(child.call_id, []).append(child)

    @property
    def start(self) -> int:
        """The number of the commit before it."""
        return len(self.before)

    @property
    def whole(self) -> bool:
        """True when it has an end that can be compared."""
        return not self.until

    @property
    def last(self) -> int:
        """The number of its last commit that can be compared."""
        return self.start + len(self.commits)

    def add(self, commit: Commit, records: Sequence[JournalRecord], folded: Folded) -> None:
        """One more commit, which `folded` has taken."""
        self.ended = folded.result
        if not self.until:
            self.until = self._find_outside_dependency(records, folded)
        if self.until:
            return  # only how it ended is of interest now
        first = self.began is None
        if first:
            self.began, self.opened = folded.began, folded.opened
            self.session_id = folded.session.id
            self.told = list(folded.messages)
            snapshot = folded.snapshot
            self.per_run = None if snapshot is None else snapshot.per_run
            self.carried = NOT_CARRIED if snapshot is None else snapshot.carried
            self.on_budget = snapshot is not None and snapshot.on_budget
        self.commits.append(commit)
        ticks = [_wire.decode(bytes(one.payload), list[Any]) for one in records if one.kind == "tick"]
        self.times.append((records[0].time, ticks[0] if ticks else []))
        self._collect_senders(commit, records, folded, first=first)

    def _collect_senders(
        self, commit: Commit, records: Sequence[JournalRecord], folded: Folded, *, first: bool
    ) -> None:
        """Who said what in this commit."""
        replies = _read_replies(records)
        failed = self._asked and not replies and folded.reserved is not None
        if self._asked and (replies or folded.reserved is not None):
            self.attempts.append(replies[0] if replies else None)
        self._asked = folded.reserved is not None or (self._asked and not replies)
        placed = self._collect_results(commit, records)
        if states := folded.fields.get("program_states"):
            self.states[commit.number] = dict(states)
        for program in (folded.fields.get("programs") or {}).values():
            for one in _wire.convert(program, Program).results:
                self.results.setdefault(one.call_id, (commit.number - 1, one))
        for one in folded.fields.get("children") or ():
            if one["outcome"] == LoopOutcome.PAUSED.value:
                paused = _wire.convert(one, RunResult)
                before = self.paused.get(paused.run_id)
                if before is None or before[1].usage != paused.usage:
                    self.paused[paused.run_id] = commit.number - 1, paused
        for record in records:
            if record.kind == "child":
                child = _wire.decode(bytes(record.payload), Child)
                self.kin.setdefault(child.call_id, []).append(child)
            elif record.kind == "charged":
                self.charged[commit.number] = _wire.decode(bytes(record.payload), dict[str, Used])
        family = commit.number in self.charged or any(call_id in self.kin for call_id in placed)
        if failed or family or (first and self.kin and folded.result is None):
            self.taken[commit.number] = dict(folded.fields)

    def _collect_results(self, commit: Commit, records: Sequence[JournalRecord]) -> list[str]:
        """The results in this commit; returns the ids of their calls."""
        placed: list[str] = []
        for kind, one in _read_results(records):
            placed.append(one.call_id)
            due, known = self.results.setdefault(one.call_id, (commit.number - 1, one))
            if known.content == DONE:  # a transactional call that hooks have looked at
                self.results[one.call_id] = (due, one)
            if kind == "result":
                self.landed.add(one.call_id)
        return placed

    def _find_outside_dependency(self, records: Sequence[JournalRecord], folded: Folded) -> str:
        """What in this commit depends on something outside the journal; empty when nothing does."""
        began = folded.began
        if self.began is None and began is not None and began.version != VERSION:
            return f"glidepath {began.version or 'of an earlier release'} wrote it, and this is {VERSION}"
        hooks = any(record.kind == "child" and _wire.decode(bytes(record.payload), Child).of_hook for record in records)
        self._handed_over = self._handed_over or any(find_handoff(one) for _, one in _read_results(records))
        # Another model may be that of the agent which took over; a fallback only answers where an attempt failed.
        another = folded.fields.get("fallbacks_spent") or (folded.reserved is not None and folded.reserved.model)
        fallback = another and (not self._handed_over or None in self.attempts)
        for holds, what in (
            (any(record.kind == "mail" for record in records), "a note was taken from the inbox"),
            (folded.redacted, "the arguments of a call were redacted"),
            (hooks, "a hook started a child"),
            (fallback, "a fallback model was asked"),
        ):
            if holds:
                return what
        return "" if folded.result is None else _explain_unrepeatable(folded.result)

    def close(self) -> None:
        """No more commits follow in this leg."""
        if not self.until and self.ended is None:
            self.until = STOPPED


def _explain_unrepeatable(result: RunResult) -> str:
    """Why this ending cannot be reproduced; empty when it can."""
    if result.state in _BY_THE_CLOCK or result.outcome is LoopOutcome.CANCELLED:
        return STOPPED
    failed = result.outcome is LoopOutcome.FAILED and result.cause is not None and result.cause.source == "provider"
    return "the model failed" if failed else ""


def legs_of(commits: Sequence[Commit]) -> list[Leg]:
    """The legs of a journal, in order."""
    folded = Folded()
    legs: list[Leg] = []
    current: Leg | None = None
    for place, commit in enumerate(commits):
        records = read(commit)
        kinds = {record.kind for record in records}
        if kinds & {"began", *_NOT_OF_A_RUN}:
            if current is not None:
                current.close()
            current = None
        if "began" in kinds:
            current = Leg(commits[:place], folded)
            legs.append(current)
        folded.take(records)
        if current is not None:
            current.add(commit, records, folded)
    if current is not None:
        current.close()
    return [leg for leg in legs if leg.began is not None or leg.until]


def describe_other_settings(recorded: Commit, made: Commit) -> str:
    """What is different about the agent, if that is why two commits differ; else empty."""
    before, now = [
        [decode_leniently(bytes(record.payload), Fingerprint) for record in read(commit) if record.kind == "config"]
        for commit in (recorded, made)
    ]
    changes = [str(change) for old, new in zip(before, now, strict=False) for change in find_differences(old, new)]
    return f"the run had other settings: {'; '.join(changes)}" if changes else ""
