"""The board of a team: one line for each step, with its state, attempt, score and cost."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from glidepath import teams
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import width_of
from glidepath.apps.cli.screens import console_on
from glidepath.apps.cli.status import clip_line
from glidepath.values import pluralize

_WIDTH = 79
_PAUSED = "PAUSED"
_LONGEST = 500


class TeamBoard:
    """Tracks each step by its events."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def record_event(self, event: teams.TeamEvent) -> None:
        """Record an event."""
        if isinstance(event, teams.PlanReady):
            self.rows = {step.id: {"state": "pending", "tokens": 0} for step in event.plan.steps}
            return
        row = self.rows.get(event.step_id or "")
        if row is None:
            return
        if event.attempt is not None:
            row["attempt"] = event.attempt
        if isinstance(event, teams.StepAssigned):
            row.update(state="working", member=event.member)
        elif isinstance(event, teams.EvaluationStarted):
            row["state"] = "in review"
        elif isinstance(event, teams.Handoff):
            row["state"] = f"to {event.to}"
        elif isinstance(event, teams.StepCompleted):
            row["state"] = event.outcome.state.value
        elif isinstance(event, teams.StepAttempted) and event.outcome == _PAUSED:
            row["state"] = "waiting"
        if isinstance(event, teams.EvaluationResult):
            row["score"] = event.verdict.score
        if isinstance(event, teams.StepAttempted | teams.EvaluationResult):
            row["tokens"] += event.usage.total
            if event.cost is not None:
                row["cost"] = row.get("cost", Decimal(0)) + event.cost

    def lines(self, width: int = _WIDTH) -> list[str]:
        """One line for each step, under a heading."""
        name = max([4, *(width_of(step) for step in self.rows)])
        name = min(name, max(8, width // 3))
        found = [clip_line(f"{'step':<{name}}  {'state':<10}  try  score   tokens  cost", width)]
        for step, row in self.rows.items():
            score = f"{row['score']:.2f}" if "score" in row else "-"
            cost = f"${row['cost']:.4f}" if "cost" in row else "-"
            shown = clip_line(step, name)
            line = (
                f"{shown}{' ' * (name - width_of(shown))}  {row['state']:<10}  {row.get('attempt', '-'):>3}  {score:>5}"
            )
            found.append(clip_line(f"{line}  {row['tokens']:>7}  {cost}", width))
        return found


def describe_event(event: teams.TeamEvent) -> str | None:
    """One line about an event for a person, or None. Model output is untrusted."""
    attempt = f" (attempt {event.attempt})" if event.attempt is not None else ""
    said: str | None = None
    if isinstance(event, teams.StepAssigned):
        said = f"{event.member} begins{attempt}"
    elif isinstance(event, teams.EvaluationResult):
        said = f"{event.verdict.outcome.name} {event.verdict.score:.2f} {event.verdict.feedback}"
    elif isinstance(event, teams.Handoff):
        said = f"handed to {event.to}: {event.reason}"
    elif isinstance(event, teams.StepSteered):
        said = f"{event.action}: {event.text}"
    elif isinstance(event, teams.StepAttempted) and event.outcome == _PAUSED:
        said = "waits for a person"
    elif isinstance(event, teams.StepCompleted):
        said = f"{event.outcome.state.name} {event.outcome.reason}"
    return None if said is None else clip_line(f"{event.step_id}: {said}".rstrip(), _LONGEST)


class PlainBoard:
    """Prints one line per event on the error stream."""

    def __init__(self, world: CliContext) -> None:
        self._world = world

    def show(self, event: teams.TeamEvent) -> None:
        """Print a line about the event, if it matters."""
        said = describe_event(event)
        if said is not None:
            self._world.note(said)

    def recall(self, events: Sequence[teams.TeamEvent]) -> None:
        """Nothing: it was shown when it happened."""

    def print_line(self, text: str) -> None:
        """Print a line."""
        self._world.note(text)

    def close(self) -> None:
        """Nothing to clean up."""


class LiveBoard:
    """The board, rewritten in place on a terminal."""

    def __init__(self, world: CliContext) -> None:
        from rich.live import Live

        self._console = console_on(world.stderr, world.environ)
        self._board = TeamBoard()
        self._live = Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def show(self, event: teams.TeamEvent) -> None:
        """Record an event and redraw."""
        from rich.text import Text

        self._board.record_event(event)
        if not self._live.is_started:
            self._live.start()
        self._live.update(Text("\n".join(self._board.lines(max(20, self._console.width - 1)))), refresh=True)

    def recall(self, events: Sequence[teams.TeamEvent]) -> None:
        """Restore the board."""
        for event in events:
            self._board.record_event(event)

    def print_line(self, text: str) -> None:
        """Print a line above the board."""
        self._console.print(text)

    def close(self) -> None:
        """Remove the board."""
        if self._live.is_started:
            self._live.stop()


TeamScreen: TypeAlias = PlainBoard | LiveBoard
"""Where a team is shown."""


def report(result: teams.TeamResult, width: int = _WIDTH) -> list[str]:
    """How it ended, step by step, and what it cost."""
    board = TeamBoard()
    board.rows = {
        outcome.step_id: {
            "state": outcome.state.value,
            "attempt": outcome.attempts or "-",
            "tokens": outcome.usage.total,
            **({} if outcome.verdict is None else {"score": outcome.verdict.score}),
            **({} if outcome.cost is None else {"cost": outcome.cost}),
        }
        for outcome in result.step_outcomes
    }
    cost = "" if result.cost is None else f", ${result.cost:.4f}"
    lines = board.lines(width) if board.rows else []
    why = f": {result.reason}" if result.reason and result.status is not teams.TeamStatus.COMPLETED else ""
    lines.append(clip_line(f"{result.status.name.lower()}{why}", width))
    lines.append(f"{result.duration:.1f} s, {pluralize(result.usage.total, 'token')}{cost}")
    notes = [*[f"since the last run, {change}" for change in result.changes], *result.warnings]
    return [*lines, *(clip_line(f"note: {note}", width) for note in notes)]
