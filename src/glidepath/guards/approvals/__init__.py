"""Approvals without fatigue: rules about commands and files, what *always* covers, and a model that reviews."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.guards.approvals.rules import Rules

__all__ = ["Rules"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.guards.approvals.always import AlwaysAllowed as AlwaysAllowed, Scope as Scope, scope_of as scope_of
    from glidepath.guards.approvals.call_subjects import subject_of as subject_of, usual_subject as usual_subject
    from glidepath.guards.approvals.commands import simple_words as simple_words
    from glidepath.guards.approvals.rules import (
        ApprovalRule as ApprovalRule,
        Ruling as Ruling,
        check_hosted as check_hosted,
        check_tools as check_tools,
        decide as decide,
        read_rules as read_rules,
    )
    from glidepath.guards.approvals.rules_plugin import ApprovalRules as ApprovalRules

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        always=("AlwaysAllowed", "Scope", "scope_of"),
        commands=("simple_words",),
        rules=("ApprovalRule", "Ruling", "check_hosted", "check_tools", "decide", "read_rules"),
        rules_plugin=("ApprovalRules",),
        call_subjects=("subject_of", "usual_subject"),
    )
