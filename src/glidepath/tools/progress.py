"""Tools that report while they work: every value they yield but the last is progress, the last is the result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Generator
from contextlib import aclosing, closing, nullcontext
from typing import Any

from glidepath.tools.context import ToolContext

BREATH = 4  # values between two turns of the event loop, for a tool that never waits by itself


async def settle(value: object, context: ToolContext | None) -> Any:
    """The result behind a value: awaits what can be awaited, and follows an async iterator to its end."""
    if inspect.isawaitable(value):
        value = await value
    if not isinstance(value, AsyncIterable):
        return value
    report = _Lookahead(context)
    async with aclosing(value) if hasattr(value, "aclose") else nullcontext():  # type: ignore[type-var]
        async for item in value:
            report.add(item)
            if not report.count % BREATH:
                await asyncio.sleep(0)
                if report.is_abandoned():
                    break
    return report.last


async def step_generator(values: Generator[Any, Any, Any]) -> AsyncIterator[Any]:
    """A plain generator that runs on the event loop, for `settle`."""
    with closing(values):
        for item in values:
            yield item


def drain(values: Generator[Any, Any, Any], context: ToolContext | None) -> Any:
    """The last value of a plain generator on a thread; the others are reported. Ends early once it was abandoned."""
    report = _Lookahead(context)
    with closing(values):
        for item in values:
            report.add(item)
            if report.is_abandoned():
                break
    return report.last


class _Lookahead:
    """Holds back one value, because only the end of the stream tells which one was the last."""

    __slots__ = ("_context", "count", "last")

    def __init__(self, context: ToolContext | None) -> None:
        self.last: Any = None
        self.count = 0
        self._context = context

    def is_abandoned(self) -> bool:
        """True once the call was abandoned."""
        return self._context is not None and self._context.abandoned is not None

    def add(self, item: object) -> None:
        if self.count and self._context is not None:
            self._context.report(self.last)
        self.last = item
        self.count += 1
