"""What a recording consists of: a head, the calls in the order in which they ended, and an end.

A recording is a journal beside the session's, as a child of it: whatever deletes, exports or backs up the session does
the same with it. One without the record of its end is torn: its gate was killed, or its disk was full.
"""

from __future__ import annotations

from glidepath._wire import Value

FOLDER = "recording"
"""What follows the session's name in its own."""

WHOLE, LEFT, BROKEN = "whole", "left", "broken"
"""How a reply ended: the client has all of it, the client left, or the gate itself ended in the middle of it."""


class TapeHead(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What was recorded, and where."""

    started: float
    program: str = ""
    """The name of the agent in the table of known agents."""
    folder: str = ""
    """The working folder of the command."""
    home: str = ""
    redacted: bool = False
    """It was copied into a store that redacts: what it said is gone."""


class TapedCall(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One request as the client sent it, and its reply as the client got it.

    The body is the first `prefix` bytes of the body of the call `base`, then `middle` (compressed), then its last
    `suffix` bytes. `began` and `ended` are places in the order of everything that began or ended in this recording.
    """

    number: int
    agent: str = ""
    """What named the agent in the headers; empty when nothing did."""
    dialect: str
    operation: str = "generate"
    method: str = "POST"
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    base: int = 0
    """0 for a body that stands alone."""
    prefix: int = 0
    suffix: int = 0
    middle: bytes = b""
    status: int = 0
    reply_headers: tuple[tuple[str, str], ...] = ()
    reply: bytes = b""
    """Compressed."""
    chunks: tuple[tuple[int, int], ...] = ()
    """For each piece the client got: milliseconds since the request, and its size."""
    end: str = WHOLE
    began: int
    ended: int
    at: float = 0.0
    """Seconds since the recording began."""


class TapeEnd(Value, frozen=True, kw_only=True, omit_defaults=True):
    """The recording ended as it should, or stopped at a limit."""

    calls: int
    reason: str = ""
    """Why it stopped before the run did; empty when it did not."""
