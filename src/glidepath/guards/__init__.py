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
    from glidepath.guards.guard_set import GuardSet as GuardSet
    from glidepath.guards.repetition import (
        RepetitionGuard as RepetitionGuard,
        call_signature as call_signature,
        pair_signature as pair_signature,
        result_signature as result_signature,
    )
    from glidepath.guards.stops import STOP_GUARDS as STOP_GUARDS
    from glidepath.guards.truncation import join_parts as join_parts
    from glidepath.guards.turn_notice import DEFAULT_NOTICE as DEFAULT_NOTICE, LANDING_NOTICE as LANDING_NOTICE

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        turn_notice=("DEFAULT_NOTICE", "LANDING_NOTICE"),
        truncation=("join_parts",),
        stops=("STOP_GUARDS",),
        guard_set=("GuardSet",),
        constraints=("LIMIT_KINDS",),
        repetition=("call_signature", "pair_signature", "result_signature", "RepetitionGuard"),
    )
