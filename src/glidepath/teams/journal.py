"""Where team events are kept, so that a team survives the death of its process."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from glidepath._wire import Record, Value, WireError
from glidepath._wire import field as make
from glidepath.errors import ConfigurationError, StoreError
from glidepath.messages import Usage
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
)

__all__ = ["FileTeamJournal", "MemoryTeamJournal", "Past", "StepPast", "TeamJournal", "past_of"]


@runtime_checkable
class TeamJournal(Protocol):
    """An append-only record of team events, by request.

    Contract: `append` returns when the record will survive the death of the process; records are read back in the
    order and with the bytes they were written; a record that was half written when the process died is not read.
    `append` and `read` raise only `StoreError`. A crash of `append` fails the team: what is not on record is not done.
    """

    def append(self, request_id: str, record: bytes) -> None:
        """Add one record."""
        ...

    def read(self, request_id: str) -> list[bytes]:
        """All records of a request, oldest first; empty for an unknown one."""
        ...


class MemoryTeamJournal:
    """Keeps records in memory: for tests, and for pausing and going on within one process."""

    def __init__(self) -> None:
        self._records: dict[str, list[bytes]] = defaultdict(list)

    def append(self, request_id: str, record: bytes) -> None:
        """Add one record."""
        self._records[request_id].append(record)

    def read(self, request_id: str) -> list[bytes]:
        """All records of a request."""
        return list(self._records.get(request_id, ()))


class FileTeamJournal:
    """Keeps records in one file of JSON lines per request, in a folder.

    Written straight to the operating system: safe against the death of the process, not against a power cut.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def append(self, request_id: str, record: bytes) -> None:
        """Add one line."""
        path = self._path(request_id)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    os.ftruncate(handle, _whole(handle, size))  # the half line of a writer that died
                line = record + b"\n"
                if os.write(handle, line) != len(line):
                    raise StoreError(f"the team journal {path} could not be written: no space left")
            finally:
                os.close(handle)
        except OSError as error:
            raise StoreError(f"the team journal {path} could not be written: {error}") from error

    def read(self, request_id: str) -> list[bytes]:
        """All whole lines."""
        path = self._path(request_id)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"the team journal {path} could not be read: {error}") from error
        whole, _, _half = data.rpartition(b"\n")
        return [line for line in whole.split(b"\n") if line]

    def _path(self, request_id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", request_id) or request_id.startswith("."):
            raise ConfigurationError(
                f"TeamExecutionRequest.id {request_id!r:.80} cannot be a file name: use letters, digits, _ - and ."
            )
        return self._folder / f"{request_id}.jsonl"


def _whole(handle: int, size: int) -> int:
    data = os.pread(handle, size, 0)
    return data.rfind(b"\n") + 1


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


class Past(Value, frozen=True, kw_only=True):
    """What earlier executions of a request did: taken from the journal, or from a paused result."""

    request: TeamExecutionRequest
    plan: TeamExecutionPlan | None = None
    outcomes: tuple[StepOutcome, ...] = ()
    steps: dict[str, StepPast] = make(default_factory=dict)
    elapsed: float = 0.0
    usage: Usage = Usage()
    cost: Decimal | None = None
    sequence: int = 0
    result: TeamResult | None = None
    """The result of the last execution, when it ended."""

    @classmethod
    def of_result(cls, result: TeamResult) -> Past:
        """What a result says about its own past."""
        done = tuple(outcome for outcome in result.step_outcomes if outcome.state.terminal)
        return cls(
            request=result.request,
            plan=result.plan,
            outcomes=done,
            elapsed=result.duration,
            usage=result.usage,
            cost=result.cost,
            sequence=result.sequence,
            result=result,
        )


def past_of(records: list[bytes]) -> Past | None:
    """What a request's records say; None when there are none. Raises `StoreError` for a record that cannot be read."""
    reader = codec()
    fold = _Fold()
    for number, record in enumerate(records):
        try:
            event: Any = reader.decode(record)
        except (WireError, ConfigurationError, ValueError) as error:
            raise StoreError(f"record {number} of the team journal cannot be read: {error}") from error
        if isinstance(event, TeamEvent):
            fold.add(event)
    return fold.past() if fold.request is not None else None


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
        if isinstance(event, PlanReady):
            self.plan = event.plan
        elif isinstance(event, StepCompleted):
            self.outcomes[event.outcome.step_id] = event.outcome
        elif isinstance(event, TERMINAL):
            self.result = event.result  # type: ignore[attr-defined]
        elif event.step_id is not None:
            self._step(self.steps[event.step_id], event)

    def _step(self, step: StepPast, event: TeamEvent) -> None:
        if isinstance(event, StepAssigned):
            step.senior = step.senior or event.senior
        elif isinstance(event, StepAttempted):
            step.attempts = max(step.attempts, event.attempt or 0)
            step.artifact, step.unreviewed = event.artifact or step.artifact, bool(event.artifact.strip())
            step.usage, step.cost = step.usage + event.usage, add_cost(step.cost, event.cost)
        elif isinstance(event, EvaluationResult):
            step.verdicts.append(event.verdict)
            step.unreviewed = False
            step.usage, step.cost = step.usage + event.usage, add_cost(step.cost, event.cost)
        elif isinstance(event, StepSteered) and event.action == "steer":
            step.notes.append(event.text)

    def past(self) -> Past:
        """All of it."""
        assert self.request is not None  # noqa: S101 - for the type checker
        if self.result is not None and self.result.status is TeamStatus.PAUSED:
            self.usage, self.cost, self.elapsed = self.result.usage, self.result.cost, self.result.duration
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
            result=self.result,
        )


def add_cost(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    """The sum of two costs; None only when both are unknown."""
    if first is None or second is None:
        return first if second is None else second
    return first + second
