"""What a run has used over time: a few hundred points, however long it runs, and the sum over its tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import TypeAlias

from glidepath.apps.server.shapes import UsagePoint

__all__ = ["Figures", "Series", "add_series"]

Figures: TypeAlias = tuple[int, int, int, int, int]
"""Turns, input tokens, output tokens, pico-dollars, tool calls."""
_MOST = 512
_NOTHING: Figures = (0, 0, 0, 0, 0)


class Series:
    """Sums of what was added, each with its time. When there are many, every second one is forgotten."""

    __slots__ = ("_skipped", "_stride", "points", "sum", "time")

    def __init__(self) -> None:
        self.points: list[tuple[float, Figures]] = []
        self.sum: Figures = _NOTHING
        self.time = 0.0
        self._stride = 1
        self._skipped = 0

    def add(
        self, time: float, turns: int = 0, input_: int = 0, output: int = 0, picodollars: int = 0, calls: int = 0
    ) -> None:
        """So much more was used."""
        before = self.sum
        self.sum = (
            before[0] + turns,
            before[1] + input_,
            before[2] + output,
            before[3] + picodollars,
            before[4] + calls,
        )
        self.time = time
        self._skipped += 1
        if self._skipped >= self._stride:
            self._skipped = 0
            self.points.append((time, self.sum))
            if len(self.points) > _MOST:
                self.points = self.points[1::2]
                self._stride *= 2

    def steps(self) -> Iterator[tuple[float, Figures]]:
        """Every point that is left, and the last one in any case."""
        yield from self.points
        if self.time and (not self.points or self.points[-1][1] != self.sum):
            yield self.time, self.sum


def add_series(parts: Sequence[Iterable[tuple[float, Figures]]]) -> list[UsagePoint]:
    """The sum of several series, at up to a few hundred of their times."""
    latest: list[Figures] = [_NOTHING] * len(parts)
    total, points = _NOTHING, []
    numbered = [[(time, number, sums) for time, sums in part] for number, part in enumerate(parts)]
    for time, number, sums in merge(*numbered):
        before = latest[number]
        latest[number] = sums
        total = (
            total[0] + sums[0] - before[0],
            total[1] + sums[1] - before[1],
            total[2] + sums[2] - before[2],
            total[3] + sums[3] - before[3],
            total[4] + sums[4] - before[4],
        )
        points.append((time, total))
    stride = max(1, -(-len(points) // _MOST))
    kept = points[stride - 1 :: stride]
    if points and (not kept or kept[-1] is not points[-1]):
        kept.append(points[-1])
    return [_make_point(time, sums) for time, sums in kept]


def _make_point(time: float, sums: Figures) -> UsagePoint:
    turns, given, made, money, calls = sums
    return UsagePoint(
        time=time,
        turns=turns,
        tokens=given + made,
        input_tokens=given,
        output_tokens=made,
        cost=money / 1e12,
        tool_calls=calls,
    )
