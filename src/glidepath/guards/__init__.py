"""Guardrails: mechanical safety nets against loops, truncation and silence."""

from __future__ import annotations

from typing import Any

from glidepath.guards.config import GuardrailsConfig
from glidepath.guards.loops import ErrorStreakGuard, ReadOnlyGuard, RepetitionGuard
from glidepath.guards.stops import EmptyAnswerGuard, PrematureEndGuard, TruncationGuard
from glidepath.guards.truncation import MaxTokensRecovery, TokenScaling, stitch
from glidepath.guards.turns import DEFAULT_NOTICE, LANDING_NOTICE, GracefulTurnLimit
from glidepath.spi import CallGuard, StopGuard

__all__ = [
    "DEFAULT_NOTICE",
    "LANDING_NOTICE",
    "EmptyAnswerGuard",
    "ErrorStreakGuard",
    "GracefulTurnLimit",
    "GuardrailsConfig",
    "MaxTokensRecovery",
    "PrematureEndGuard",
    "ReadOnlyGuard",
    "RepetitionGuard",
    "TokenScaling",
    "TruncationGuard",
    "make_guards",
    "stitch",
]


def make_guards(
    config: GuardrailsConfig, metadata: dict[str, Any], *, resumed: bool = False
) -> tuple[tuple[CallGuard, ...], tuple[StopGuard, ...]]:
    """The guards of one run, their state in `metadata["guardrails"]`; counters start anew unless the run is resumed."""
    fresh = "guardrails" not in metadata
    home = _dict(metadata, "guardrails")
    call_guards: list[Any] = []
    for kind, limit in (
        (RepetitionGuard, config.max_repeated_tool_steps),
        (ErrorStreakGuard, config.max_error_streak),
        (ReadOnlyGuard, config.read_only_loop_threshold),
    ):
        if limit:
            call_guards.append(kind(limit, _dict(home, kind.name)))
    stop_guards: list[Any] = []
    for stop_kind, limit in (
        (TruncationGuard, config.max_tokens_recoveries),
        (PrematureEndGuard, config.max_premature_end_recoveries),
        (EmptyAnswerGuard, config.max_empty_recoveries),
    ):
        if limit or stop_kind is EmptyAnswerGuard:  # an empty answer is never a success, however it is set
            stop_guards.append(stop_kind(limit or 0, _dict(home, stop_kind.name)))
    if not resumed and not fresh:
        for guard in (*call_guards, *stop_guards):
            guard.new_run()
    return tuple(call_guards), tuple(stop_guards)


def _dict(home: dict[str, Any], key: str) -> dict[str, Any]:
    """The live dict under this key; a new one when there is none, or something else."""
    if type(home.get(key)) is not dict:
        home[key] = {}
    return home[key]  # type: ignore[no-any-return]
