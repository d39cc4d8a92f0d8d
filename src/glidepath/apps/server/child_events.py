"""What a hub hears of the runs that its own runs start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from glidepath.apps.server.event_log import LogHead
from glidepath.spi import Plugin
from glidepath.values import BreakerChanged, Event, StreamStarted

if TYPE_CHECKING:
    from glidepath.apps.server.hub import Hub, HubFlight

__all__ = ["ChildEvents"]


class ChildEvents(Plugin):
    """Shows the hub the events of children; those of a run itself come by its stream.

    A run wakes its stream when it waits. What happens beside it meanwhile, in a tool that reports or has children,
    would be read only when that tool has ended: so that every event wakes the stream.
    """

    name = "servechild_events"
    events: ClassVar[tuple[type[Event], ...] | None] = (Event,)
    inheritable_to_child: ClassVar[bool | None] = True

    def __init__(self, hub: Hub) -> None:
        self._tell = hub.child_event
        self._flights = hub.flights
        self._breakers = hub.breakers
        self._requests = hub.requests
        self._starting = hub.starting

    def event_observer(self, event: Event) -> None:
        """Pass it on when it is a child's; wake its readers when it is not."""
        if event.parent_id is not None:
            self._tell(event)
            return
        flight = self._flights.get(event.run_id)
        if flight is not None and flight.stream is not None:
            flight.stream.wake_consumer()
        if type(event) is StreamStarted:
            self._note_call(event, flight)
        if type(event) is BreakerChanged:
            self._breakers[event.target, event.kind] = (event.state, event.time)

    def _note_call(self, event: StreamStarted, flight: HubFlight | None) -> None:
        """Keep what the model is asked; the first call may come before the hub has heard that the run began."""
        for one in list(self._starting) if flight is None else (flight,):
            run: Any = None if one.stream is None else one.stream.run
            if run is not None and run.run_id == event.run_id:
                head = LogHead(run_id=event.run_id, session_id=run.session_id or "", agent=one.name, who=one.who)
                self._requests.note_call(head if one.feed is None else one.feed.head, event, run)
