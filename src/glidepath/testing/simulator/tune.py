"""Proposes guard thresholds by replaying stored runs at several settings. No model is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from glidepath._wire import Value
from glidepath.guards import GuardrailsConfig
from glidepath.spi import SessionQuery, SessionStore, ToolTraits
from glidepath.testing.simulator.whatif import Flown, flown_runs, guard_verdicts
from glidepath.values import LoopOutcome

LIMITS: Mapping[str, tuple[int, ...]] = {
    "max_repeated_tool_steps": (2, 3, 4, 5, 8),
    "max_error_streak": (3, 5, 7, 10),
}
MOST_NUDGED = 0.005
"""The share of runs that ended DONE which a proposed setting may nudge. It stops none of them."""


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


async def read_runs(store: SessionStore) -> tuple[list[Flown], list[str]]:
    """Every run with tool calls in a store, including those of children; and the sessions that could not be read."""
    found, unreadable = await flown_runs(store, SessionQuery(roots=False))
    return [run for run in found if run.steps and run.outcome != LoopOutcome.PAUSED.value], unreadable


def tune(
    runs: Sequence[Flown], tools: Mapping[str, ToolTraits] | None = None, unreadable: Iterable[str] = ()
) -> Tuning:
    """Replay the runs at every setting. `tools` says which are polling or read-only; the others count as acting."""
    settings = tuple([_replay_guards(runs, tools or {}, limit, value) for limit in LIMITS for value in LIMITS[limit]])
    done = sum(run.outcome == LoopOutcome.DONE.value for run in runs)
    return Tuning(
        runs=len(runs),
        done=done,
        steps=sum(len(run.steps) for run in runs),
        settings=settings,
        proposed={limit: _propose_value(limit, done, settings) for limit in LIMITS},
        unreadable=tuple(unreadable),
    )


def _propose_value(limit: str, done: int, settings: Sequence[TunedSetting]) -> int:
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


def _replay_guards(runs: Sequence[Flown], tools: Mapping[str, ToolTraits], limit: str, value: int) -> TunedSetting:
    counts = dict.fromkeys(("done_nudged", "done_stopped", "others_nudged", "others_stopped"), 0)
    for run in runs:
        said = {action for _, action in guard_verdicts(run, limit, value, tools)}
        whose = "done" if run.outcome == LoopOutcome.DONE.value else "others"
        counts[f"{whose}_stopped"] += bool(said & {"withdraw", "land"})
        counts[f"{whose}_nudged"] += said == {"nudge"}
    return TunedSetting(limit=limit, value=value, **counts)
