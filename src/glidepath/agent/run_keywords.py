"""Keywords that a run does not take, and where what was meant belongs."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from glidepath.agent.config import FIELDS
from glidepath.agent.limits import OTHER_LIMIT_NAMES, Limits
from glidepath.errors import ConfigurationError, close_to

F = TypeVar("F", bound=Callable[..., Any])
_MEANT = {
    **dict.fromkeys(("history", "message_history", "messages", "conversation", "thread_id", "session_id"), "session"),
    **dict.fromkeys(("context", "dependencies"), "deps"),
    **dict.fromkeys(("budget", "wallet"), "parent"),
    **dict.fromkeys(("instructions", "system"), "system_prompt"),
    **dict.fromkeys(("cancel_token", "token"), "cancel"),
    "llm": "model",
    "user_id": "user",
}
"""What a keyword of a run is called elsewhere."""


def told_by_name(method: F) -> F:
    """The method, which answers an unknown keyword with a `ConfigurationError` that says what to write instead."""
    known = frozenset(inspect.signature(method).parameters)

    @wraps(method)
    def checked(*args: Any, **keywords: Any) -> Any:
        if not keywords.keys() <= known:
            raise ConfigurationError(_unknown(method.__name__, next(iter(keywords.keys() - known)), known))
        return method(*args, **keywords)

    if inspect.iscoroutinefunction(method):
        _mark(checked)  # it is one still: what it returns is the method's own coroutine, not one around it
    return checked  # type: ignore[return-value] # the same parameters, the same result


def _mark(function: Any) -> None:
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(function)
    else:
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined] # noqa: SLF001 - as Mock does


def _unknown(method: str, name: str, known: frozenset[str]) -> str:
    limit = name if name in Limits.__struct_fields__ else OTHER_LIMIT_NAMES.get(name)
    meant = _MEANT.get(name) or close_to(name, known)
    hint = ""
    if meant in known:
        hint = f"; did you mean {meant!r}?"
    elif limit is not None:
        hint = f"; it is a limit: agent.{method}(..., limits=Limits({limit}=...))"
    elif name in FIELDS:
        hint = f"; it is a setting of the agent: agent.replace({name}=...).{method}(...)"
    return f"{method}() takes no keyword {name!r}{hint}"
