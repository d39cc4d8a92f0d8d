"""Calls of one reply that depend on each other: run side by side they fail, run in order they work."""

from __future__ import annotations

import asyncio

from glidepath.testing.specimens.specimen import ANSWER, Moment, Specimen
from glidepath.testing.turns import Turn, call, calls, say
from glidepath.tools import Tool, tool
from glidepath.values import ToolError

BOXES = 4


class PacksBoxesInOneReply(Specimen):
    """Opens, fills and closes a box in one reply, until four are packed; opening takes longest."""

    family = "order"
    succeeds = True

    def __init__(self) -> None:
        self.packed: list[int] = []
        self._box: tuple[int, str] = (0, "closed")
        self._number = 0

    def reply(self, moment: Moment) -> Turn:
        """The next box, in three calls; the answer when all are packed or it is told to finish."""
        offered = {one.name for one in moment.request.tools}
        if moment.told or len(self.packed) >= BOXES or "open_box" not in offered:
            return say(ANSWER)
        self._number += 1
        return calls(*[call(name, box=self._number) for name in ("open_box", "fill_box", "close_box")])

    def tools(self) -> tuple[Tool, ...]:
        """Three steps, each of which needs the one before it."""

        async def step(box: int, seconds: float, before: str, after: str) -> str:
            await asyncio.sleep(seconds)
            if before != "closed" and self._box != (box, before):
                raise ToolError(f"box {box} is not {before}")
            self._box = (box, after)
            if after == "packed":
                self.packed.append(box)
            return f"box {box} is {after}"

        async def open_box(box: int) -> str:
            return await step(box, 0.003, "closed", "open")

        async def fill_box(box: int) -> str:
            return await step(box, 0.002, "open", "full")

        async def close_box(box: int) -> str:
            return await step(box, 0.001, "full", "packed")

        return (
            tool(open_box, description="Open a box."),
            tool(fill_box, description="Fill an open box."),
            tool(close_box, description="Close a full box."),
        )
