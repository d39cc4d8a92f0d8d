"""A cheaper way to notify built-in observers. Not for third-party plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glidepath.events import Event

__all__ = ["DirectObserver"]


class DirectObserver:
    """An observer with one handler per kind of event, from which a run needs no protection."""

    def _observer_of(self, kind: type[Event]) -> Callable[[Any], object] | None:  # noqa: ARG002 - for others to use
        """The handler for this kind of event; it never causes an event or starts a run. None: use `event_observer`."""
        return None

    def _flushed(self) -> bool:
        """Whether `flush` would find nothing to wait for."""
        return False
