"""The events of one execution: numbered, journaled, shown; in the only legal order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from glidepath._wire import replace
from glidepath.plugins import FAREWELL, Observer, audience_of, finish_observers
from glidepath.spi import Plugin
from glidepath.teams.events import TERMINAL, PlanReady, StepCompleted, TeamEnding, TeamEvent, TeamStarted, make_ending
from glidepath.teams.team_fingerprint import add_fingerprint
from glidepath.teams.values import StepOutcome, TeamExecutionPlan, TeamResult
from glidepath.values import ConfigurationChange, describe_error, log_raised, pluralize

if TYPE_CHECKING:
    from glidepath.teams.team_run import TeamRun


class EventChannel:
    """The events of one execution: numbered, journaled, shown; in the only legal order."""

    def __init__(self, run: TeamRun, plugins: Iterable[tuple[str, Plugin]]) -> None:
        team, before = run.team, run.before
        self._team, self._request, self._journal = team.name, run.request, run.journal
        self._members = tuple(member.name for member in team.members)
        observers = [Observer(name, plugin, self._report, last=TERMINAL) for name, plugin in plugins]
        by_hand = partial(run.cancel.cancel, "interrupted from the keyboard")
        self._audience = audience_of(team.event_sink, observers, self._report, by_hand=by_hand)
        self._now: Callable[[], float] = getattr(asyncio.get_running_loop(), "epoch", time.time)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.posted = False
        """Events were emitted in another thread and may not have arrived yet."""
        self.sequence = before.sequence
        self.resumed = run.history is not None
        self.started = False
        self.ended: TeamEnding | None = None
        self.failure: str | None = None
        """Why the journal can no longer be written."""
        self.on_failure: Callable[[str], None] | None = None
        self.warnings: list[str] = []
        self.changes: tuple[ConfigurationChange, ...] = ()
        """What had changed about the team since the last leg."""
        self._describe = partial(add_fingerprint, team, before.began)
        self.plan = before.plan
        self.outcomes = {outcome.step_id: outcome for outcome in before.outcomes}

    def emit(self, event: TeamEvent) -> None:
        """Publish one event, or drop it with a warning if it comes at the wrong time or lacks its content."""
        if threading.get_ident() != self._thread:
            self.posted = True
            with suppress(RuntimeError):  # the loop is closed: nobody is listening anymore
                self._loop.call_soon_threadsafe(self.emit, event)
            return
        # Observers close their books at the terminal event: nothing may follow it.
        if self.ended is not None:
            self._warn(f"{event.kind} came after the end and was not published")
            return
        if not self._is_sound(event):
            self._warn(f"{event.kind} has no valid content and was not published")
            return
        if isinstance(event, TERMINAL):
            result = event.result if event.result.team == self._team else replace(event.result, team=self._team)
            right = make_ending(result)
            if type(right) is not type(event):
                self._warn(f"{event.kind} was published as {right.kind}, which matches {result.status.name}")
            event = right
        if isinstance(event, TeamStarted):
            if self.started:
                self._warn("a second TEAM_STARTED was not published")
                return
        elif not self.started:
            self._publish(TeamStarted(request=self._request, members=self._members, resumed=self.resumed))
        self._publish(event)

    def _is_sound(self, event: TeamEvent) -> bool:
        """True when the content that others rely on is valid."""
        if isinstance(event, TERMINAL):
            return isinstance(event.result, TeamResult) and event.result.request.id == self._request.id
        if isinstance(event, PlanReady):
            return isinstance(event.plan, TeamExecutionPlan)
        return not isinstance(event, StepCompleted) or isinstance(event.outcome, StepOutcome)

    def _publish(self, event: TeamEvent) -> None:
        if isinstance(event, TeamStarted) and self._journal is not None:
            event = self._describe(event)
            self.changes = event.changes
        self.started = True
        event = replace(event, run_id=self._request.id, team=self._team, sequence=self.sequence + 1, time=self._now())
        self.sequence = event.sequence
        if isinstance(event, TERMINAL):
            # A resumed team continues counting from the number in its result.
            result = replace(event.result, sequence=event.sequence, changes=self.changes)
            self.ended = event = replace(event, result=result)
        elif isinstance(event, PlanReady):
            self.plan = event.plan
        elif isinstance(event, StepCompleted):
            self.outcomes[event.outcome.step_id] = event.outcome
        # First the journal, then the observers: an event that was seen must still exist after a crash.
        if self._journal is not None and self.failure is None:
            try:
                self._journal.write(event, self._request.goal)
            except Exception as error:
                self.fail(describe_error(error))
        self._audience(event)

    def fail(self, why: str) -> None:
        """Record that the journal can no longer be written; the team has to end."""
        if self.failure is None:
            self.failure = why
            self._warn(f"the journal cannot be written: {why}")
            if self.on_failure is not None:
                self.on_failure(why)

    async def flush(self) -> None:
        """Wait until every event is on record."""
        if self._journal is not None and self.failure is None:
            try:
                await self._journal.flush()
            except Exception as error:
                self.fail(describe_error(error))

    def _report(self, name: str, hook: str, error: BaseException | str, effect: str) -> None:
        if not isinstance(error, str):
            log_raised(f"{self._request.id}: {hook} of {name!r}", error, effect)
            error = describe_error(error)
        self._warn(f"observer {name} failed and was {effect}: {error}")

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)

    async def close(self) -> None:
        """Let slow observers finish, and release the journal."""
        try:
            farewell = await finish_observers(self._audience.observers, FAREWELL)
            if farewell.missed:
                self._warn(f"observers were too slow and have missed {pluralize(farewell.missed, 'event')}")
            for name in farewell.stubborn:
                self._warn(f"observer {name} did not stop after the end and was abandoned")
        finally:
            if self._journal is not None:
                await self.flush()
                await self._journal.close()
