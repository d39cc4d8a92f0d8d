"""Sandboxes for programs: which files they see, what they can write, whom they can reach, what they may use."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes
from glidepath.tools.sandbox.policy import Boxed, Sandbox, SandboxError

__all__ = ["Boxed", "Sandbox", "SandboxError"]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.tools.sandbox.policy import explain_unusable as explain_unusable, list_mechanisms as list_mechanisms

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, policy=("explain_unusable", "list_mechanisms"))
