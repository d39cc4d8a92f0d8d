"""Calls in the background that never end, or that nobody collects: the run lands, and they do not outlive it."""

from __future__ import annotations

import asyncio

from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen, Tireless
from glidepath.testing.turns import Turn, call, say
from glidepath.tools import Tool, tool


async def watch_forever() -> str:
    """Watch something."""
    await asyncio.Event().wait()
    return "never"


def _make_tools() -> tuple[Tool, ...]:
    return (tool(watch_forever, background=True),)


class NeverEndsInTheBackground(Tireless):
    """Starts a call in the background that never ends, and asks for its result again and again."""

    family = "background"

    def tools(self) -> tuple[Tool, ...]:
        """The tool that never ends."""
        return _make_tools()

    def step(self, moment: Moment) -> Turn:
        """Start it, then wait for it."""
        return call("watch_forever") if moment.number == 1 else call("collect", id="bg-1")


class NeverCollects(Specimen):
    """Starts a call in the background that never ends, and answers, also when it is asked about that call."""

    family = "background"
    succeeds = True

    def tools(self) -> tuple[Tool, ...]:
        """The tool that never ends."""
        return _make_tools()

    def reply(self, moment: Moment) -> Turn:
        """Start it, then answer."""
        return call("watch_forever") if moment.number == 1 and moment.request.tools else say(ANSWER)
