"""Where the text of a run comes from: what its children have read, and the transcripts above it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath.messages import Message, coming_from, origins_of
from glidepath.run.hooks import to_read
from glidepath.spi.inside import INSIDE

if TYPE_CHECKING:
    from glidepath.outcome import RunResult
    from glidepath.run.state import Run

__all__ = ["hear_child", "heard_in", "place_here", "tainted", "transcripts_above"]


def place_here() -> str:
    """The call or hook that this code runs in; empty when nobody knows."""
    place: Any = INSIDE.get()
    return "" if place is None else str(getattr(place, "key", ""))


def hear_child(parent: Run, key: str, result: RunResult) -> None:
    """A child of the call or hook `key` has ended: whatever it has read may be in what comes of that call."""
    origins = result.origins
    if origins:
        parent.heard = {**parent.heard, key: tuple(dict.fromkeys((*parent.heard.get(key, ()), *origins)))}


def heard_in(run: Run, call_id: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """The sources of a call's result: its own, its children's, and those of children that no call can be blamed for."""
    found = dict.fromkeys(own)
    for key, origins in run.heard.items():
        if key == call_id or key not in run.call_ids:
            found |= dict.fromkeys(origins)
    return tuple(found)


def tainted(parent: Run, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A child's prompt: a model that has read untrusted text may have written it."""
    origins = origins_of(parent.messages)
    return tuple([coming_from(message, origins) for message in messages]) if origins else messages


def transcripts_above(run: Run) -> tuple[Sequence[Message], ...]:
    """The transcripts of the runs that this one belongs to, the outermost first, for a hook to read."""
    found: list[Sequence[Message]] = []
    above = run.above
    while above is not None:
        found.append(to_read(above, above.messages))
        above = above.above
    return tuple(found[::-1])
