"""Guardrails: safety nets against loops, truncation and silence."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.guards.guardrails_config import GuardrailsConfig
from glidepath.guards.truncation import MaxTokensRecovery, TokenScaling
from glidepath.guards.turn_notice import GracefulTurnLimit

__all__ = ["GracefulTurnLimit", "GuardrailsConfig", "MaxTokensRecovery", "TokenScaling"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.guards.constraints import LIMIT_KINDS as LIMIT_KINDS
    from glidepath.guards.repetition import RepetitionGuard as RepetitionGuard

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, constraints=("LIMIT_KINDS",), repetition=("RepetitionGuard",))
