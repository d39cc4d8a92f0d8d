"""Keeps replies in the order in which they were recorded: agents that run beside each other meet as they did then."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidepath.apps.gate.recordings.taped_values import TapedCall

PATIENCE = 3.0
"""Seconds in which nothing happens after which a reply is sent although something before it has not come."""
LONGEST_GAP = 0.25
"""Seconds at most between the replies to two agents: as far apart as they were, so that what they cause comes so."""


class RecordedOrder:
    """What began and what ended, in order."""

    def __init__(self, calls: Iterable[TapedCall], patience: float = PATIENCE) -> None:
        known = sorted(calls, key=lambda call: call.ended)
        self._left = sorted({place for call in known for place in (call.began, call.ended)})
        self._gaps = {
            call.number: min(LONGEST_GAP, max(0.0, _end_of(call) - _end_of(before)))
            for before, call in itertools.pairwise(known)
            if before.agent != call.agent
        }
        self._patience = patience
        self._moved = asyncio.Event()

    def pass_by(self, place: int) -> None:
        """This has happened."""
        if place in self._left:
            self._left.remove(place)
            self._moved.set()
            self._moved = asyncio.Event()

    async def wait_for(self, call: TapedCall) -> None:
        """Wait until everything before the end of this call has happened, or nothing happens any more."""
        while self._left and self._left[0] < call.ended:
            try:
                await asyncio.wait_for(self._moved.wait(), self._patience)
            except TimeoutError:  # it will not come: the client is not in the same order, which need not matter
                self._left = [one for one in self._left if one >= call.ended]
        gap = self._gaps.get(call.number)
        if gap:
            await asyncio.sleep(gap)


def _end_of(call: TapedCall) -> float:
    """When the last of its reply came, in seconds since the recording began."""
    return call.at + (call.chunks[-1][0] / 1000 if call.chunks else 0.0)
