"""Calls in the middle of which other calls are made, or wait for a person."""

from __future__ import annotations

from glidepath._wire import Value
from glidepath.values.messages import ToolCall, ToolResultMessage


class Program(Value, frozen=True, kw_only=True):
    """A call in the middle of which its tool has asked for other calls, and waits for their results."""

    call: ToolCall
    """With the arguments it was made with."""
    calls: tuple[ToolCall, ...] = ()
    """The calls it waits for."""
    results: tuple[ToolResultMessage, ...] = ()
    """Those of their results that are known, in any order."""
    made: int = 0
    """How many calls it has asked for so far."""
    clock: float = 0.0
    """When it began, in seconds since the epoch."""
    origins: tuple[str, ...] = ()
    """The untrusted sources that its calls have read so far."""


class CallFrame(Value, frozen=True, kw_only=True):
    """A call in the middle of which another one waits: an agent that was made a tool, or a program."""

    call_id: str
    """Its id in its own run."""
    tool: str
    agent: str = ""
    """The agent that has its task; empty for a program."""
    run_id: str = ""
    """The run of that agent."""
