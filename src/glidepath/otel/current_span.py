"""Making a span the current one, four times a turn: the API's `attach` without its two calls on the way."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as contexts

__all__ = ["enter"]


def _quickest() -> Callable[[contexts.Context], Any]:
    """The variable's own `set` where the API keeps contexts in a variable, as it does by default; else `attach`."""
    runtime = getattr(contexts, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    if type(runtime).__name__ != "ContextVarsRuntimeContext" or not isinstance(variable, ContextVar):
        return contexts.attach
    tried = contexts.Context({"glidepath": None})
    token = variable.set(tried)
    try:
        return variable.set if contexts.get_current() is tried else contexts.attach
    finally:
        variable.reset(token)


enter = _quickest()
