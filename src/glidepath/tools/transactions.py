"""Transactional tools: a function whose effect in the store's own database is kept together with its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from glidepath.tools.context import ToolContext
from glidepath.tools.threads import run_in_thread
from glidepath.values import ToolError


class StoreConnection:
    """A connection to the database of the run's store, inside the transaction of one call.

    A `@tool(transactional=True)` has one parameter of this type. The transaction begins before the function and is
    committed after it, together with the call's result; an exception rolls it back. So the function has no way to
    commit, and the tables of the store are closed to it. Use it only on the function's own thread, and only until the
    function returns.
    """

    def execute(self, query: str, *values: object) -> str:
        """Do it; returns what was done, such as `UPDATE 1`. Values are `$1`, `$2`, ... in the query."""
        raise NotImplementedError

    def fetch(self, query: str, *values: object) -> Sequence[Any]:
        """Every row of the answer: columns by name or by place."""
        raise NotImplementedError

    def fetchrow(self, query: str, *values: object) -> Any:
        """The first row; None when there is none."""
        raise NotImplementedError

    def fetchval(self, query: str, *values: object) -> Any:
        """The first column of the first row; None when there is none."""
        raise NotImplementedError


async def run_transactional(
    fn: Callable[..., Any], name: str, parameter: str, values: dict[str, Any], context: ToolContext | None
) -> Any:
    """Run the function on a thread, in a transaction of the run's store that ends with its result."""
    if context is None:
        raise ToolError(f"{name} is transactional: it runs only inside a run")

    def start(connection: StoreConnection) -> Any:
        return run_in_thread(partial(fn, **values, **{parameter: connection}), name, context)

    return await context.transact(start)
