"""Fakes, virtual time and checks for testing an agent, a plugin or the runtime itself."""

from typing import TYPE_CHECKING, Any

from glidepath.stability import withdrawn
from glidepath.testing.model import ScriptedModel, ScriptError
from glidepath.testing.turns import (
    Turn,
    call,
    calls,
    empty,
    fail,
    hang,
    no_end,
    raw,
    refuse,
    say,
    thinking,
    truncated,
)

if TYPE_CHECKING:
    from glidepath.testing.clock import VirtualClock, VirtualTimeError, virtual
    from glidepath.testing.leftovers import Work, no_leftovers, work
    from glidepath.testing.plain_transcript import transcript_errors
    from glidepath.testing.recorder import EventRecorder

__all__ = [
    "EventRecorder",
    "ScriptError",
    "ScriptedModel",
    "Turn",
    "VirtualClock",
    "VirtualTimeError",
    "Work",
    "call",
    "calls",
    "empty",
    "fail",
    "hang",
    "no_end",
    "no_leftovers",
    "raw",
    "refuse",
    "say",
    "thinking",
    "transcript_errors",
    "truncated",
    "virtual",
    "work",
]

_HOMES = {
    "VirtualClock": "clock",
    "VirtualTimeError": "clock",
    "virtual": "clock",
    "Work": "leftovers",
    "no_leftovers": "leftovers",
    "work": "leftovers",
    "transcript_errors": "plain_transcript",
    "EventRecorder": "recorder",
}
_withdrawn = withdrawn(__name__, clock=("VirtualLoop",), leftovers=("live_work",), model=("RecordedRequest",))

if not TYPE_CHECKING:  # type checkers see only public names

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES:
            return _withdrawn(name)
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
