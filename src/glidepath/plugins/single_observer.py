"""The audience of a run that has a single listener: what a built-in observer handles safely takes the shortest way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from glidepath.plugins.observer import Audience, Observer, Report
from glidepath.values import Event


class SoleListener(Audience):
    """One observer. For some kinds of event it may have a handler that needs no protection."""

    __slots__ = ("_direct",)

    def __init__(self, observer: Observer, report: Report, by_hand: Callable[[], Any]) -> None:
        self._direct: dict[type[Event], Callable[[Event], Any]] = {}
        super().__init__(None, (observer,), report, by_hand=by_hand)

    @property
    def harmless(self) -> bool:
        """True if it cannot stop a run: it is a built-in plugin with safe handlers."""
        return len(self._direct) > 0

    def deliver(self, event: Event) -> None:
        """Deliver an event, if it is wanted."""
        direct = self._direct.get(event.__class__)
        if direct is None or self._free is None:
            Audience.deliver(self, event)
            return
        outbox = self.outbox
        if outbox is not None:
            outbox.append(event)
        try:
            direct(event)
        except BaseException as error:  # whatever it is: an observer can never hurt a run
            self._on_failure(self.observers[0], error)

    __call__ = deliver

    def _route(self, kind: type[Event]) -> tuple[Any, ...]:
        route = super()._route(kind)
        direct = self.observers[0].find_direct_handler(kind) if route else None
        if direct is not None:
            self._direct[kind] = direct
        return route

    def _on_failure(self, listener: Any, error: BaseException) -> None:
        super()._on_failure(listener, error)
        if listener.removed:
            self._direct.clear()


def audience_of(
    sink: Callable[[Event], Any] | None, observers: Sequence[Observer], report: Report, *, by_hand: Callable[[], Any]
) -> Audience:
    """All listeners of a run: the sink of its configuration, and its observers."""
    if sink is None and len(observers) == 1 and observers[0].is_direct:
        return SoleListener(observers[0], report, by_hand)
    return Audience(sink, observers, report, by_hand=by_hand)
