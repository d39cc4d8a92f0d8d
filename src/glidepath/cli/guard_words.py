"""What a guard did, in words for a person."""

from __future__ import annotations

from glidepath.events import GuardTripped

_ENDS = {
    "max_tokens_recovery": "the reply was cut off by its output limit",
    "premature_end": "the model stopped without a word after an error",
    "empty_answer": "the reply was empty",
}


def guard_line(event: GuardTripped) -> str:
    """One line about a guard that acted."""
    end = _ENDS.get(event.guard)
    if end is None:
        return f"{event.guard}: {event.reason}"
    return f"{end}; the model is asked to continue" if event.action == "recover" else end
