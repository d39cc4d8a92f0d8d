"""Where the text of a run comes from: what its children have read, and the transcripts above it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath.run.hooks import to_read
from glidepath.spi import INSIDE
from glidepath.values import Message, add_origins, origins_of

if TYPE_CHECKING:
    from glidepath.run.state import Run


def place_here() -> str:
    """The call or hook that this code runs in; empty when unknown."""
    place: Any = INSIDE.get()
    return "" if place is None else str(getattr(place, "key", ""))


def note_origins(run: Run, key: str, origins: tuple[str, ...]) -> None:
    """Something inside the call or hook `key`, a child or a program, has read from these sources."""
    if origins:
        run.work.note_origins(key, origins)


def sources_read_by_programs(run: Run) -> tuple[str, ...]:
    """What the programs that are at work have read, which is not in the transcript."""
    return tuple(dict.fromkeys([name for key in run.turn.programs for name in run.work.heard.get(key, ())]))


def sources_of_call(run: Run, call_id: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """The sources of a call's result: its own, its children's, and those of children that belong to no call."""
    found = dict.fromkeys(own)
    for key, origins in run.work.heard.items():
        if key == call_id or key not in run.transcript.call_ids:
            found |= dict.fromkeys(origins)
    return tuple(found)


def mark_tainted(parent: Run, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A child's prompt: a model that has read untrusted text may have written it."""
    heard = [name for origins in parent.work.heard.values() for name in origins]  # by this call, perhaps
    origins = tuple(dict.fromkeys((*origins_of(parent.transcript.messages), *heard)))
    return tuple([add_origins(message, origins) for message in messages]) if origins else messages


def transcripts_above(run: Run) -> tuple[Sequence[Message], ...]:
    """The transcripts of the runs that this one belongs to, the outermost first, for a hook to read."""
    found: list[Sequence[Message]] = []
    above = run.work.above
    while above is not None:
        found.append(to_read(above, above.transcript.messages))
        above = above.work.above
    return tuple(found[::-1])
