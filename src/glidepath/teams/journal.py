"""Where team events are kept, so that a team survives the death of its process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from glidepath._wire import Record, Value, WireError
from glidepath._wire import field as make
from glidepath.errors import ConfigurationError, StoreError
from glidepath.messages import Usage
from glidepath.outcome import AgentState, LoopOutcome, RunResult
from glidepath.run import Decision
from glidepath.sessions.archive import refuse_unfinished
from glidepath.sessions.chain import link, read, verified
from glidepath.sessions.owner import LEASE, this_owner
from glidepath.sessions.redaction import redactor_of
from glidepath.spi.sessions import Commit, Entry, Lease, SessionStore
from glidepath.teams.events import (
    TERMINAL,
    EvaluationResult,
    PlanReady,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepSteered,
    TeamEvent,
    TeamStarted,
    codec,
)
from glidepath.teams.values import (
    EvaluationVerdict,
    StepOutcome,
    StepState,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStatus,
    VerdictOutcome,
)

__all__ = ["Past", "Pen", "StepAccount", "StepPast", "past_of", "story"]

_BEAT = LEASE / 3
_SHOWN = 200  # characters of a goal in a list of sessions


class Pen:
    """One execution's hand on its journal: the lease, kept alive, and the place of the next commit.

    A team's journal is a session of the store, `team:` and the id of the request; every commit is one event.
    """

    def __init__(self, store: SessionStore, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._number, self._hash = lease.head, lease.hash
        self._unwritten: list[Awaitable[None]] = []
        self._heart: asyncio.Task[None] | None = None

    @property
    def fresh(self) -> bool:
        """True when nothing has been written yet."""
        return self._number == 0

    @property
    def leg(self) -> int:
        """Larger with every execution of the request."""
        return self._lease.token

    @classmethod
    async def open(cls, store: SessionStore, request_id: str, *, create: bool) -> Pen:
        """Become the one who writes; raises `StoreError`: `busy` while another process does, `missing`."""
        return cls(store, await store.claim(f"team:{request_id}", this_owner(), create=create))

    async def read(self) -> Past | None:
        """What was written before."""
        entry, commits = await self._store.load(self._lease.session_id)
        return past_of(_payloads(commits, entry))

    def write(self, event: TeamEvent, goal: str) -> None:
        """Add an event; raises `StoreError`. What is not written at once is written by `flush`."""
        ended = event.result.status.value if isinstance(event, TERMINAL) else None  # type: ignore[attr-defined]
        items: list[tuple[str, Any]] = [(type(event).__name__, event)]
        summary: Mapping[str, Any] | None = {
            "kind": "team",
            "team": event.team,
            "status": ended or "running",
            "outcome": ended,
            "task": goal[:_SHOWN],
            "events": event.sequence,
        }
        redactor = redactor_of(self._store)
        if redactor is not None:
            items, summary = redactor.items(items)[:1], redactor.summary(summary)
        commit = link(self._hash, self._number + 1, event.sequence, event.time, items)
        written = self._store.append(self._lease, commit, summary=summary)
        self._number, self._hash = commit.number, commit.hash
        if written is not None:
            self._unwritten.append(written)

    async def flush(self) -> None:
        """Everything is on record when this returns; raises `StoreError`."""
        while self._unwritten:
            await self._unwritten.pop(0)

    def keep_alive(self, stop: Callable[[str], None], lost: Callable[[str], None]) -> None:
        """Renew the lease until `close`; hear of those who ask the team to stop, or have taken it over."""
        self._heart = asyncio.get_running_loop().create_task(self._beat(stop, lost), name="team journal")

    async def _beat(self, stop: Callable[[str], None], lost: Callable[[str], None]) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            try:
                signs = await self._store.beat([self._lease], renew=True)
            except StoreError:
                continue  # the next write will say so
            for sign in signs:
                if sign.lost:
                    lost("another process has taken it over")
                    return
                if sign.stop is not None:
                    stop(sign.stop)

    async def close(self) -> None:
        """Let go of the journal."""
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait({self._heart})
        with suppress(StoreError):
            await self.flush()
        with suppress(StoreError):
            await self._store.release(self._lease)


async def story(store: SessionStore, request_id: str) -> list[TeamEvent]:
    """Every event of a request so far, over all its executions; none when the store knows no such request."""
    try:
        entry, commits = await store.load(f"team:{request_id}")
    except StoreError as error:
        if error.kind == "missing":
            return []
        raise
    return list(_events(_payloads(commits, entry)))


def _payloads(commits: Sequence[Commit], entry: Entry) -> list[bytes]:
    """The events, as they were written; a mere mark of an import does not count."""
    refuse_unfinished(entry)
    whole = verified(commits, head=entry.head, hash_=entry.hash)
    return [bytes(record.payload) for commit in whole for record in read(commit) if record.kind != "imported"]


# --- what a journal says ------------------------------------------------------------------------------------------


class StepPast(Record):
    """What an earlier execution did at a step that it did not finish."""

    attempts: int = 0
    verdicts: list[EvaluationVerdict] = make(default_factory=list)
    artifact: str = ""
    unreviewed: bool = False
    """The last artifact was never judged."""
    senior: bool = False
    notes: list[str] = make(default_factory=list)
    usage: Usage = Usage()
    cost: Decimal | None = None
    paused: RunResult | None = None
    """The run that waits for a person; whose it is, and whether the senior's."""
    paused_by: str = ""
    paused_senior: bool = False
    waited: Usage = Usage()
    """What the run that waits, or did, has used so far."""
    waited_cost: Decimal | None = None
    best: str = ""
    best_score: float = -1.0
    arbiter: bool = False
    """The arbiter has accepted the best attempt."""
    landed: bool = False
    """The last artifact was delivered at a limit."""
    begun: int = 0
    """The attempt that was running when the process died; whose it was, and whether the senior's."""
    begun_by: str = ""
    begun_senior: bool = False
    origins: tuple[str, ...] = ()
    """The untrusted sources that its authors have read."""


class StepAccount(Value, frozen=True, kw_only=True):
    """Tokens and pico-dollars that are gone from the team's budget."""

    tokens: int = 0
    money: int = 0


class Past(Value, frozen=True, kw_only=True):
    """What earlier executions of a request did: taken from the journal, or from a paused result."""

    request: TeamExecutionRequest
    plan: TeamExecutionPlan | None = None
    outcomes: tuple[StepOutcome, ...] = ()
    steps: dict[str, StepPast] = make(default_factory=dict)
    elapsed: float = 0.0
    usage: Usage = Usage()
    cost: Decimal | None = None
    account: StepAccount | None = None
    """What is gone from the budget; None: what `usage` and `cost` say."""
    sequence: int = 0
    decisions: Mapping[str, Decision] = make(default_factory=dict)
    """What a person decided meanwhile about the calls that waited."""
    asked: frozenset[str] = frozenset()
    """Every call that has ever waited, by its id and by `STEP/CALL`."""
    result: TeamResult | None = None
    """The result of the last execution, when it ended."""
    origins: tuple[str, ...] = ()
    """The untrusted sources that members have read."""

    @classmethod
    def of_result(cls, result: TeamResult) -> Past:
        """What a result says about its own past."""
        done = tuple(outcome for outcome in result.step_outcomes if outcome.state.terminal)
        waiting = {
            outcome.step_id: _waiting(outcome) for outcome in result.step_outcomes if outcome.state is StepState.WAITING
        }
        return cls(
            request=result.request,
            plan=result.plan,
            outcomes=done,
            steps=waiting,
            elapsed=result.duration,
            usage=result.usage,
            cost=result.cost,
            sequence=result.sequence,
            result=result,
            origins=tuple(dict.fromkeys(name for outcome in result.step_outcomes for name in outcome.origins)),
        )


def _waiting(outcome: StepOutcome) -> StepPast:
    """What a result says about a step that waits for a person."""
    paused = outcome.paused
    best = outcome.output if paused is None or outcome.output != paused.text else ""
    return StepPast(
        attempts=max(0, outcome.attempts - 1),  # the one that waits does not count
        verdicts=list(outcome.verdicts),
        notes=list(outcome.notes),
        usage=outcome.usage,
        cost=outcome.cost,
        paused=paused,
        paused_by=outcome.member or "",
        paused_senior=outcome.senior,
        best=best,
        best_score=max((verdict.score for verdict in outcome.verdicts), default=-1.0) if best else -1.0,
        origins=outcome.origins,
    )


def past_of(records: list[bytes]) -> Past | None:
    """What a request's records say; None when there are none. Raises `StoreError` for a record that cannot be read."""
    fold = _Fold()
    for event in _events(records):
        fold.add(event)
    return fold.past() if fold.request is not None else None


def _events(records: list[bytes]) -> Iterator[TeamEvent]:
    reader = codec()
    for number, record in enumerate(records):
        try:
            event: Any = reader.decode(record)
        except (WireError, ConfigurationError, ValueError) as error:
            raise StoreError(f"record {number} of the team journal cannot be read: {error}") from error
        if isinstance(event, TeamEvent):
            yield event


class _Fold:
    """Reads events one by one and keeps what still matters."""

    def __init__(self) -> None:
        self.request: TeamExecutionRequest | None = None
        self.plan: TeamExecutionPlan | None = None
        self.result: TeamResult | None = None
        self.outcomes: dict[str, StepOutcome] = {}
        self.steps: dict[str, StepPast] = defaultdict(StepPast)
        self.usage = Usage()
        self.cost: Decimal | None = None
        self.sequence = 0
        self.elapsed = 0.0
        self.began: float | None = None
        self.asked: set[str] = set()
        self.origins: dict[str, None] = {}

    def add(self, event: TeamEvent) -> None:
        """Take in one event."""
        self.sequence = event.sequence
        if isinstance(event, TeamStarted):
            self.request, self.result, self.began = event.request, None, event.time - self.elapsed
        if self.began is not None:
            self.elapsed = max(self.elapsed, event.time - self.began)
        usage = getattr(event, "usage", None)
        if usage is not None:
            self.usage = self.usage + usage
            self.cost = add_cost(self.cost, getattr(event, "cost", None))
        self.origins |= dict.fromkeys(getattr(event, "origins", ()))
        if isinstance(event, PlanReady):
            self.plan = event.plan
        elif isinstance(event, StepCompleted):
            self.outcomes[event.outcome.step_id] = event.outcome
        elif isinstance(event, TERMINAL):
            self.result = result = event.result  # type: ignore[attr-defined]
            for outcome in result.step_outcomes:
                if outcome.state is StepState.WAITING:  # until it continues, whatever dies meanwhile
                    self._waits(self.steps[outcome.step_id], outcome)
        elif event.step_id is not None:
            self._step(self.steps[event.step_id], event)

    def _waits(self, step: StepPast, outcome: StepOutcome) -> None:
        step.begun, step.begun_by, step.begun_senior = 0, "", False
        step.paused, step.paused_by, step.paused_senior = outcome.paused, outcome.member or "", outcome.senior
        step.usage, step.cost = outcome.usage, outcome.cost
        if outcome.paused is not None:
            for waiting in outcome.paused.pending:
                self.asked |= {waiting.call.id, f"{outcome.step_id}/{waiting.call.id}"}
            step.waited, step.waited_cost = outcome.paused.usage, outcome.paused.cost

    def _step(self, step: StepPast, event: TeamEvent) -> None:
        if isinstance(event, StepAssigned):
            step.begun, step.begun_by, step.begun_senior = event.attempt or 0, event.member, event.senior
        elif isinstance(event, StepAttempted):
            attempt, waits = event.attempt or 0, event.outcome == LoopOutcome.PAUSED.name
            step.paused = None
            step.origins = tuple(dict.fromkeys((*step.origins, *event.origins)))
            if waits:  # its run continues, if the process dies before the team has paused
                step.waited, step.waited_cost = step.waited + event.usage, add_cost(step.waited_cost, event.cost)
            else:
                step.begun, step.begun_by, step.begun_senior = 0, "", False
                step.waited, step.waited_cost = Usage(), None
            step.attempts = max(step.attempts, attempt - waits)
            step.senior = step.senior or (event.senior and not waits)
            step.landed = event.state != AgentState.COMPLETED.name
            step.artifact, step.unreviewed = event.artifact or step.artifact, bool(event.artifact.strip())
            step.usage, step.cost = step.usage + event.usage, add_cost(step.cost, event.cost)
            if not (waits or step.unreviewed):  # a coordinator refuses it without a review, and the next one is told
                ended = f"the attempt ended {event.state}/{event.outcome}"
                step.verdicts.append(EvaluationVerdict(outcome=VerdictOutcome.REVISE, feedback=ended))
        elif isinstance(event, EvaluationResult):
            step.verdicts.append(event.verdict)
            if not event.arbiter and event.verdict.score >= step.best_score:
                step.best, step.best_score = step.artifact, event.verdict.score
            step.unreviewed, step.arbiter = False, event.arbiter and event.verdict.passed
            step.usage, step.cost = step.usage + event.usage, add_cost(step.cost, event.cost)
        elif isinstance(event, StepSteered) and event.action == "steer":
            step.notes.append(event.text)

    def past(self) -> Past:
        """All of it."""
        assert self.request is not None  # noqa: S101 - for the type checker
        if self.result is not None and self.result.status is TeamStatus.PAUSED:
            self.usage, self.cost, self.elapsed = self.result.usage, self.result.cost, self.result.duration
        for step in self.steps.values():
            if step.begun and step.paused is None:  # the run that continues will tell it all
                step.usage, step.cost = less((step.usage, step.cost), (step.waited, step.waited_cost))
        for step_id, outcome in list(self.outcomes.items()):
            if outcome.state is StepState.CANCELLED:
                del self.outcomes[step_id]  # it was stopped, not finished
        return Past(
            request=self.request,
            plan=self.plan,
            outcomes=tuple(self.outcomes.values()),
            steps=dict(self.steps),
            elapsed=self.elapsed,
            usage=self.usage,
            cost=self.cost,
            sequence=self.sequence,
            asked=frozenset(self.asked),
            result=self.result,
            origins=tuple(self.origins),
        )


def add_cost(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    """The sum of two costs; None only when both are unknown."""
    if first is None or second is None:
        return first if second is None else second
    return first + second


def less(after: tuple[Usage, Decimal | None], before: tuple[Usage, Decimal | None]) -> tuple[Usage, Decimal | None]:
    """What was spent between two moments."""
    now, then = after[0], before[0]
    usage = Usage(
        now.input - then.input,
        now.output - then.output,
        now.cache_read - then.cache_read,
        now.cache_write - then.cache_write,
        now.reasoning - then.reasoning,
        now.estimated,
    )
    cost = None if after[1] is None else after[1] - (before[1] or 0)
    return usage, cost
