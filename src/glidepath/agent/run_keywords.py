"""Keywords that a run does not take, and where what was meant belongs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from glidepath.agent.config import FIELDS
from glidepath.agent.limits import OTHER_LIMIT_NAMES, Limits
from glidepath.errors import ConfigurationError, close_to

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


def check_keywords(keywords: Iterable[str]) -> None:
    """Raise a `ConfigurationError` for a keyword that no run takes; it says what to write instead."""
    from glidepath.agent.agent import Agent  # which imports what asks this

    known = inspect.signature(Agent.stream).parameters.keys() - {"self", "unknown"}
    name = next((one for one in keywords if one not in known), None)
    if name is None:
        return
    limit = name if name in Limits.__struct_fields__ else OTHER_LIMIT_NAMES.get(name)
    meant = _MEANT.get(name) or close_to(name, known)
    hint = ""
    if meant in known:
        hint = f"; did you mean {meant!r}?"
    elif limit is not None:
        hint = f"; it is a limit: agent.run(..., limits=Limits({limit}=...))"
    elif name in FIELDS:
        hint = f"; it is a setting of the agent: agent.replace({name}=...).run(...)"
    raise ConfigurationError(f"a run takes no keyword {name!r}{hint}")
