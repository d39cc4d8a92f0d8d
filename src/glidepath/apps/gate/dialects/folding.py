"""Shared by the readers: adds deltas up to the whole that they build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from glidepath import _wire

UNREADABLE = (
    _wire.WireError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RecursionError,
    OverflowError,
)
"""What reading an event of any shape may raise."""


class ReplyFolder(Protocol):
    """Builds a whole reply from its events."""

    def add(self, event: dict[str, Any]) -> None:
        """One more event."""
        ...

    def whole(self) -> dict[str, Any]:
        """The reply so far."""
        ...


def fold(folder: ReplyFolder, events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The reply that these events build; an event that cannot be read adds nothing."""
    for event in events:
        try:
            folder.add(event)
        except UNREADABLE:
            continue
    return folder.whole()


def grow_fields(whole: dict[str, Any], delta: Mapping[str, Any], *skip: str) -> None:
    """Add a delta: texts and lists grow, a null changes nothing, anything else replaces what was there."""
    for name, value in delta.items():
        if name in skip:
            continue
        before: Any = whole.get(name)
        if type(before) is type(value) and type(value) in (str, list):
            whole[name] = before + value
        elif value is not None or name not in whole:
            whole[name] = value
