"""What an observer of the house may promise, so that telling it costs less. Not for plugins of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from glidepath.events import Event

__all__ = ["DirectObserver"]


class DirectObserver:
    """An observer with a handler for each kind of event, which can be called without protection from it."""

    def _observer_of(self, kind: type[Event]) -> Callable[[Any], object] | None:  # noqa: ARG002 - for others to use
        """What to call for events of this kind: it never causes an event or starts a run. None: `event_observer`."""
        return None

    def _flushed(self) -> bool:
        """Whether `flush` would find nothing to wait for."""
        return False
