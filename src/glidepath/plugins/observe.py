"""Watching runs from outside: an observer that writes events to a log, one record each."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from copy import copy
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Literal

from glidepath import _wire
from glidepath.spi import Plugin
from glidepath.values import (
    EVENTS,
    ApprovalRequested,
    BreakerChanged,
    BudgetReserved,
    BudgetSettled,
    ConfigurationError,
    ConstraintViolated,
    ContextShaped,
    Event,
    GuardTripped,
    HookFailed,
    LandingStarted,
    MessageAdded,
    ModelSwitched,
    NoticeSent,
    ResultKind,
    RetryScheduled,
    RunEnded,
    SessionSaved,
    StreamStarted,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)

__all__ = ["LogObserver"]

_LEVELS: dict[type[Event], int] = {
    **dict.fromkeys((ConstraintViolated, GuardTripped, HookFailed, LandingStarted), logging.WARNING),
    **dict.fromkeys((RetryScheduled, ModelSwitched, BreakerChanged, ApprovalRequested), logging.WARNING),
    **dict.fromkeys((BudgetReserved, BudgetSettled, StreamStarted, TurnStarted, SessionSaved), logging.DEBUG),
    **dict.fromkeys((MessageAdded, ToolProgress, ContextShaped, NoticeSent), logging.DEBUG),
}
_ENVELOPE = ("run_id", "parent_id", "sequence", "time")
_FORMATS = ("json", "text")
UNCHECKED_NAMES = frozenset(kind for kind in ResultKind if kind.early)
"""Kinds of calls that may be refused before their tool is looked up: the name may be anything the model made up."""


class LogObserver(Plugin):
    """Writes every event but `StreamChunk` to a logger, without conversation content unless `content` is True.

    What needs attention (a violated constraint, a guard, a failed hook, a landing, a retry, an open breaker, a
    question) is a WARNING, a step of the run is INFO, its details are DEBUG; `levels` changes that by event class. The
    message is the kind of event and its fields, as one JSON object or, with `format="text"`, as `name=value` pairs; the
    fields are also in the record's `glidepath_event`. Where OpenTelemetry is in use, they name the current trace and
    span.
    """

    name = "log_observer"
    inheritable_to_child: ClassVar[bool | None] = True
    runs_after = ("open_telemetry",)  # so that the span of what has begun is the current one

    def __init__(
        self,
        logger: logging.Logger | str = "glidepath.events",
        *,
        format: Literal["json", "text"] = "json",  # noqa: A002 - what it is called everywhere
        content: bool = False,
        levels: Mapping[type[Event], int] | None = None,
    ) -> None:
        if not isinstance(logger, str | logging.Logger | logging.LoggerAdapter):
            raise ConfigurationError(f"LogObserver: logger must be a logger or its name, not {logger!r:.80}")
        if format not in _FORMATS:
            raise ConfigurationError(f"LogObserver: format must be 'json' or 'text', not {format!r:.80}")
        for kind, level in (levels or {}).items():
            if not (isinstance(kind, type) and issubclass(kind, Event)) or type(level) is not int:
                raise ConfigurationError(
                    f"LogObserver: levels maps event classes to logging levels, not {kind!r:.80} to {level!r:.80}"
                )
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._text = format == "text"
        self._content = content
        self._levels = {**_LEVELS, **(levels or {})}
        self._trace: dict[str, str] = {}

    def for_run(self) -> LogObserver:
        """One that knows the trace of its run: the span is over when the last event comes."""
        mine = copy(self)
        mine._trace = {}  # noqa: SLF001 - itself
        return mine

    def event_observer(self, event: Event) -> None:
        """Write one event."""
        level = self._levels.get(type(event), logging.INFO)
        if not self._logger.isEnabledFor(level):
            return
        fields = self._fields(event)
        here = _trace()
        if here and not self._trace:
            self._trace = {"trace_id": here["trace_id"]}
        fields.update(here or self._trace)
        text = _format_pairs(fields) if self._text else _wire.encode(fields).decode()
        self._logger.log(level, "%s %s", type(event).__name__, text, extra={"glidepath_event": fields})

    def _fields(self, event: Event) -> dict[str, Any]:
        without = _WITHOUT_CONTENT.get(type(event), None if type(event) in EVENTS else _figures)
        if without is None or (self._content and not isinstance(event, RunEnded)):
            return _wire.to_plain_data(event)  # type: ignore[no-any-return]
        shown = {"event": type(event).__name__, **{name: getattr(event, name) for name in _ENVELOPE}}
        return {**shown, **without(event)}


def _message_fields(event: MessageAdded) -> dict[str, Any]:
    message = event.message
    return {"role": message.role, "characters": len(getattr(message, "text", "") or "")}


def _turn_fields(event: TurnEnded) -> dict[str, Any]:
    return {
        "iteration": event.iteration,
        "stop_reason": event.message.stop_reason.value,
        "tool_calls": len(event.tool_results),
        "characters": len(event.message.text),
    }


def _result_fields(event: ToolEnded) -> dict[str, Any]:
    result = event.result
    made_up = result.kind in UNCHECKED_NAMES and not event.seconds  # it has not run: nobody knows its tool, perhaps
    return {
        "call_id": event.call_id,
        "tool_name": None if made_up else event.tool_name,
        "is_error": result.is_error,
        "kind": result.kind,
        "seconds": event.seconds,
        "characters": len(result.text),
    }


def _call(event: ToolStarted | ApprovalRequested) -> dict[str, Any]:
    return {"call_id": event.call_id, "tool_name": event.tool_name, "arguments": sorted(event.arguments)}


def _progress_fields(event: ToolProgress) -> dict[str, Any]:
    return {"call_id": event.call_id, "tool_name": event.tool_name, "dropped": event.dropped}


def _notice_fields(event: NoticeSent) -> dict[str, Any]:
    return {"reason": event.reason, "source": event.source}


_NAMES = frozenset(
    {
        "action",
        "coordinator",
        "evaluator",
        "member",
        "member_run_id",
        "members",
        "outcome",
        "state",
        "step_id",
        "team",
        "to",
    }
)


def _figures(event: Event) -> dict[str, Any]:
    """Numbers, states and names: an event of a team, or of a kind that nobody here knows, may carry anything."""
    found = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, Usage | int | float | Decimal | Enum | None) or (
            name in _NAMES and isinstance(value, str | tuple)
        ):
            found[name] = _wire.to_plain_data(value)
        elif isinstance(value, _wire.Value):
            found[name] = {
                inner: getattr(value, inner).value
                for inner in value.__struct_fields__
                if isinstance(getattr(value, inner), Enum)
            }
    return found


def _ending_fields(event: RunEnded) -> dict[str, Any]:
    """The result without its transcript, which the log has seen message by message."""
    result = event.result
    return {
        "state": result.state.value,
        "outcome": result.outcome.value,
        "cause": None if result.cause is None else _wire.to_plain_data(result.cause),
        "iterations": result.iterations,
        "tool_calls": result.tool_calls,
        "tokens": result.usage.total,
        "cost": None if result.cost is None else str(result.cost),
        "elapsed": result.elapsed,
    }


_WITHOUT_CONTENT: dict[type[Event], Any] = {
    MessageAdded: _message_fields,
    TurnEnded: _turn_fields,
    ToolStarted: _call,
    ToolEnded: _result_fields,
    ToolProgress: _progress_fields,
    ApprovalRequested: _call,
    NoticeSent: _notice_fields,
    RunEnded: _ending_fields,
}
"""What is left of an event that carries what somebody said."""


def _trace() -> dict[str, str]:
    """The current trace, if OpenTelemetry is imported."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    context = trace.get_current_span().get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"} if context.is_valid else {}


def _format_pairs(fields: Mapping[str, Any]) -> str:
    shown = [(name, value) for name, value in fields.items() if name != "event"]
    return " ".join([f"{name}={_format_value(value)}" for name, value in shown if value is not None])


def _format_value(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not any(sign in value for sign in ' ="'):
        return value
    return _wire.encode(value).decode()
