"""Proposes guard thresholds by replaying stored runs at several settings. No model is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value
from glidepath.errors import StoreError
from glidepath.guards import GuardrailsConfig
from glidepath.guards.repetition import RepetitionGuard
from glidepath.guards.streaks import ErrorStreakGuard
from glidepath.messages import AssistantMessage, Message, ToolCall, ToolResultMessage
from glidepath.outcome import LoopOutcome
from glidepath.sessions.archive import StoredJournal, list_runs, read_journal
from glidepath.sessions.cards import is_team
from glidepath.sessions.chain import read
from glidepath.sessions.fold import Folded
from glidepath.spi import SessionStore, Step
from glidepath.spi.guards import ToolTraits

if TYPE_CHECKING:
    from glidepath.spi.guards import CallGuard

LIMITS: Mapping[str, tuple[int, ...]] = {
    "max_repeated_tool_steps": (2, 3, 4, 5, 8),
    "max_error_streak": (3, 5, 7, 10),
}
_GUARDS: Mapping[str, Any] = {"max_repeated_tool_steps": RepetitionGuard, "max_error_streak": ErrorStreakGuard}
MOST_NUDGED = 0.005
"""The share of runs that ended DONE which a proposed setting may nudge. It stops none of them."""


class StoredRun(Value, frozen=True, kw_only=True):
    """One run of a journal: how it ended, and its batches of calls with their results."""

    session_id: str
    done: bool
    steps: tuple[tuple[tuple[ToolCall, ...], tuple[ToolResultMessage, ...]], ...]


class TunedSetting(Value, frozen=True, kw_only=True):
    """What one value of one limit would have done. `stopped`: a tool was withdrawn, or the run landed."""

    limit: str
    value: int
    done_nudged: int = 0
    done_stopped: int = 0
    others_nudged: int = 0
    others_stopped: int = 0


class Tuning(Value, frozen=True, kw_only=True):
    """What was replayed, what each setting would have done, and which values are proposed."""

    runs: int
    done: int
    steps: int
    settings: tuple[TunedSetting, ...]
    proposed: Mapping[str, int]
    unreadable: tuple[str, ...] = ()
    """Sessions whose journal could not be read, and why."""

    def snippet(self) -> str:
        """The proposal as a section of a configuration file."""
        return "\n".join(["[guardrails]", *[f"{name} = {value}" for name, value in self.proposed.items()]])


class _Unmarked:
    polling = False
    read_only = False


async def stored_runs(store: SessionStore) -> tuple[list[StoredRun], list[str]]:
    """Every run in a store, including those of children, and the sessions that could not be read."""
    found: list[StoredRun] = []
    unreadable: list[str] = []
    for entry in await list_runs(store, children=True):
        if is_team(entry):
            continue
        try:
            found += _runs(await read_journal(store, entry.session_id))
        except StoreError as error:
            unreadable.append(f"{entry.session_id}: {error}")
    return found, unreadable


def tune(
    runs: Sequence[StoredRun], tools: Mapping[str, ToolTraits] | None = None, unreadable: Iterable[str] = ()
) -> Tuning:
    """Replay the runs at every setting. `tools` says which are polling or read-only; the others count as acting."""
    settings = tuple([_replayed(runs, tools or {}, limit, value) for limit in LIMITS for value in LIMITS[limit]])
    done = sum(run.done for run in runs)
    return Tuning(
        runs=len(runs),
        done=done,
        steps=sum(len(run.steps) for run in runs),
        settings=settings,
        proposed={limit: _proposed(limit, done, settings) for limit in LIMITS},
        unreadable=tuple(unreadable),
    )


def _proposed(limit: str, done: int, settings: Sequence[TunedSetting]) -> int:
    """The default when it leaves finished runs alone, else the lowest value above it that does, else the highest."""
    default: int = getattr(GuardrailsConfig(), limit)
    fitting = [
        one.value
        for one in settings
        if one.limit == limit
        and one.value >= default
        and not one.done_stopped
        and one.done_nudged <= MOST_NUDGED * done
    ]
    return min(fitting, default=max(LIMITS[limit]))


def _runs(journal: StoredJournal) -> list[StoredRun]:
    """The runs of a journal, one after the other; the last may have been interrupted."""
    folded = Folded(journal.entry.session_id)
    found: list[StoredRun] = []
    last = None
    for commit in journal.commits:
        folded.take(read(commit))
        if folded.result is not None and folded.result is not last:
            last = folded.result
            if last.outcome is not LoopOutcome.PAUSED:
                found.append(_run(journal, last.new_messages, done=last.outcome is LoopOutcome.DONE))
    if folded.result is None and folded.fields:
        found.append(_run(journal, folded.messages[folded.fields.get("first_new", 0) :], done=False))
    return [run for run in found if run.steps]


def _run(journal: StoredJournal, messages: Sequence[Message], *, done: bool) -> StoredRun:
    steps = []
    for place, message in enumerate(messages):
        if type(message) is AssistantMessage and (calls := message.tool_calls):
            behind = messages[place + 1 : place + 1 + len(calls)]
            results = tuple([one for one in behind if type(one) is ToolResultMessage])
            if len(results) == len(calls):
                steps.append((calls, results))
    return StoredRun(session_id=journal.entry.session_id, done=done, steps=tuple(steps))


def _replayed(runs: Sequence[StoredRun], tools: Mapping[str, ToolTraits], limit: str, value: int) -> TunedSetting:
    counts = dict.fromkeys(("done_nudged", "done_stopped", "others_nudged", "others_stopped"), 0)
    for run in runs:
        guard = _GUARDS[limit](value, {})
        said = {_asked(guard, step, results) for step, results in _steps(run, tools)}
        whose = "done" if run.done else "others"
        counts[f"{whose}_stopped"] += bool(said & {"withdraw", "land"})
        counts[f"{whose}_nudged"] += said - {None} == {"nudge"}
    return TunedSetting(limit=limit, value=value, **counts)


def _steps(run: StoredRun, tools: Mapping[str, ToolTraits]) -> Iterable[tuple[Step, tuple[ToolResultMessage, ...]]]:
    unmarked = _Unmarked()
    for calls, results in run.steps:
        known = [call.name for call, result in zip(calls, results, strict=True) if result.kind != "unknown_tool"]
        yield Step(calls, {name: tools.get(name, unmarked) for name in known}), results


def _asked(guard: CallGuard, step: Step, results: tuple[ToolResultMessage, ...]) -> str | None:
    before, after = guard.before, guard.after
    verdict = None if before is None else before(step)
    verdict = verdict or (None if after is None else after(step, results))
    return None if verdict is None else str(verdict.action)
