"""Where the current code belongs: the enclosing tool call or guarding hook of a run, if any."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

INSIDE: ContextVar[Any] = ContextVar("glidepath_inside", default=None)
"""A `glidepath.run.nested.CallScope`, or None. A tool call or a hook sets it; a run and an observer begin with None."""
