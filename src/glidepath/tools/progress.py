"""Tools that report while they work: every value they yield but the last is progress, the last is the result."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Iterable
from contextlib import aclosing, closing, nullcontext
from typing import Any

from glidepath.tools.context import ToolContext

__all__ = ["drain", "settle"]


async def settle(value: Any, context: ToolContext | None) -> Any:
    """The result behind a value: awaits what can be awaited, and follows an async iterator to its end."""
    if inspect.isawaitable(value):
        value = await _awaited(value)
    if not isinstance(value, AsyncIterable):
        return value
    report = _Lookahead(context)
    async with aclosing(value) if hasattr(value, "aclose") else nullcontext():  # type: ignore[type-var]
        async for item in value:
            report.add(item)
    return report.last


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def drain(values: Iterable[Any], context: ToolContext | None) -> Any:
    """The last value of a plain generator; the others are reported."""
    report = _Lookahead(context)
    with closing(values) if hasattr(values, "close") else nullcontext():  # type: ignore[type-var]
        for item in values:
            report.add(item)
    return report.last


class _Lookahead:
    """Holds back one value, because only the end of the stream tells which one was the last."""

    def __init__(self, context: ToolContext | None) -> None:
        self.last: Any = None
        self._context = context
        self._started = False

    def add(self, item: Any) -> None:
        if self._started and self._context is not None:
            self._context.report(self.last)
        self.last = item
        self._started = True
