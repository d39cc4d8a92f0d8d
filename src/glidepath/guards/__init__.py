"""Guardrails: safety nets against loops, truncation and silence."""

from typing import TYPE_CHECKING

from glidepath.guards.guardrails_config import GuardrailsConfig
from glidepath.guards.truncation import MaxTokensRecovery, TokenScaling
from glidepath.guards.turn_notice import GracefulTurnLimit
from glidepath.stability import withdrawn

__all__ = ["GracefulTurnLimit", "GuardrailsConfig", "MaxTokensRecovery", "TokenScaling"]

if not TYPE_CHECKING:  # a checker knows only what is public
    __getattr__ = withdrawn(
        __name__,
        repetition=("RepetitionGuard",),
        stops=("EmptyAnswerGuard", "PrematureEndGuard", "TruncationGuard"),
        streaks=("ErrorStreakGuard", "ReadOnlyGuard"),
        truncation=("stitch",),
        turn_notice=("DEFAULT_NOTICE", "LANDING_NOTICE"),
    )
