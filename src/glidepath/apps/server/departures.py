"""What happens to a run when the client that started it, or continues it, has gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath.apps.server.hub import Hub
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_feed import RunFeed

__all__ = ["LAND", "STAY", "STOP", "begin_reading", "leave_run", "read_departure"]

STOP, LAND, STAY = "stop", "land", "continue"
_WORDS = (STOP, LAND, STAY)
_FIELD = "metadata.glidepath.on_disconnect"


def read_departure(given: object, default: str = "", field: str = _FIELD) -> str:
    """What a request asks for in its metadata, nested or flat; raises `HttpError`. "": as the server is set."""
    if not isinstance(given, Mapping):
        return default
    own: Any = given.get("glidepath")
    asked = own.get("on_disconnect") if isinstance(own, Mapping) else given.get("glidepath.on_disconnect")
    if asked is None:
        return default
    if asked not in _WORDS:
        why = f"{field} must be stop, land or continue, not {asked!r:.80}"
        raise HttpError(400, "bad_on_disconnect", why, param=field)
    return str(asked)


def leave_run(hub: Hub, feed: RunFeed, departure: str) -> None:
    """The client has gone, or has read the run to its end. Other readers do not keep the run."""
    flight = hub.flights.get(feed.run_id)
    if flight is None or departure == STAY:
        return
    if departure == STOP:
        flight.token.cancel("its client has gone (on_disconnect=stop)")
    elif departure == LAND:
        flight.token.wind_down("its client has gone (on_disconnect=land)")
    else:
        hub.on_reader_left(feed)


def begin_reading(hub: Hub, feed: RunFeed, departure: str) -> None:
    """A client reads a run: one that is to continue without it is not landed for want of readers."""
    flight = hub.flights.get(feed.run_id)
    if flight is not None:
        flight.stays = departure == STAY
