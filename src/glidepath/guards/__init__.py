"""Guardrails: safety nets against loops, truncation and silence."""

from glidepath.guards.guardrails_config import GuardrailsConfig
from glidepath.guards.truncation import MaxTokensRecovery, TokenScaling
from glidepath.guards.turn_notice import GracefulTurnLimit

__all__ = ["GracefulTurnLimit", "GuardrailsConfig", "MaxTokensRecovery", "TokenScaling"]
