"""Fakes, virtual time and checks for testing an agent, a plugin or the runtime itself."""

from glidepath.testing.clock import VirtualClock, VirtualLoop, VirtualTimeError, virtual
from glidepath.testing.leftovers import Work, live_work, no_leftovers, work
from glidepath.testing.model import RecordedRequest, ScriptedModel, ScriptError
from glidepath.testing.plain_transcript import transcript_errors
from glidepath.testing.recorder import EventRecorder
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

__all__ = [
    "EventRecorder",
    "RecordedRequest",
    "ScriptError",
    "ScriptedModel",
    "Turn",
    "VirtualClock",
    "VirtualLoop",
    "VirtualTimeError",
    "Work",
    "call",
    "calls",
    "empty",
    "fail",
    "hang",
    "live_work",
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
