"""A cheaper way to notify built-in observers. Not for third-party plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from glidepath._wire import Value
from glidepath.spi.models import ToolSpec
from glidepath.values import Event

_UNREAL: ContextVar[bool] = ContextVar("glidepath_unreal", default=False)


@contextmanager
def mark_unreal() -> Iterator[None]:
    """Runs that begin in here are replayed or simulated: they spend nothing, and nobody outside is told of them."""
    token = _UNREAL.set(True)
    try:
        yield
    finally:
        _UNREAL.reset(token)


def is_unreal() -> bool:
    """Whether a run that begins now is replayed or simulated."""
    return _UNREAL.get()


class RunIntroduction(Value, frozen=True):
    """What a run sends with every request; no event has it, as it would be in every journal."""

    system_prompt: str = ""
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None


class DirectObserver:
    """An observer with one handler per kind of event, from which a run needs no protection."""

    def _observer_of(self, kind: type[Event]) -> Callable[[Any], object] | None:  # noqa: ARG002 - for others to use
        """The handler for this kind of event; it never causes an event or starts a run. None: use `event_observer`."""
        return None

    def _introduce(self, introduction: RunIntroduction) -> None:
        """What its run sends with every request, told before the first event."""

    def _has_nothing_to_flush(self) -> bool:
        """Whether `flush` would find nothing to wait for."""
        return False
