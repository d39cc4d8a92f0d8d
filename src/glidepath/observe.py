"""Watching runs from outside: an observer that writes events to a log, one structured record each."""

from __future__ import annotations

import logging
from typing import ClassVar

from glidepath import _wire
from glidepath.events import ConstraintViolated, Event, GuardTripped, HookFailed, LandingStarted, RunEnded
from glidepath.spi import Plugin

__all__ = ["LogObserver"]

_WARNINGS = (ConstraintViolated, GuardTripped, HookFailed, LandingStarted)


class LogObserver(Plugin):
    """Writes every event but `StreamChunk` to a logger: the kind as message, the fields as JSON and in `extra`.

    What asks for attention (a violated constraint, a guard, a failed hook, a landing) is a WARNING, the rest is INFO.
    """

    name = "log_observer"
    inheritable_to_child: ClassVar[bool | None] = True

    def __init__(self, logger: logging.Logger | str = "glidepath.events") -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger

    def event_observer(self, event: Event) -> None:
        """Write one event."""
        level = logging.WARNING if isinstance(event, _WARNINGS) else logging.INFO
        if self._logger.isEnabledFor(level):
            fields = _wire.plain(event) if not isinstance(event, RunEnded) else _ending(event)
            text = _wire.encode(fields).decode()
            self._logger.log(level, "%s %s", type(event).__name__, text, extra={"glidepath_event": fields})


def _ending(event: RunEnded) -> dict[str, object]:
    """The result without its transcript, which the log has seen message by message."""
    result = event.result
    return {
        "event": "RunEnded",
        "run_id": event.run_id,
        "parent_id": event.parent_id,
        "sequence": event.sequence,
        "time": event.time,
        "state": result.state.value,
        "outcome": result.outcome.value,
        "cause": None if result.cause is None else _wire.plain(result.cause),
        "iterations": result.iterations,
        "tool_calls": result.tool_calls,
        "tokens": result.usage.total,
        "cost": None if result.cost is None else str(result.cost),
        "elapsed": result.elapsed,
    }
