"""The same for many runs at once: each is asked as if it were alone, and answers for itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from glidepath.apps.server.hub import refusal_of
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_actions import RunActions, elapsed_ms
from glidepath.apps.server.shapes import BatchAnswer, BatchBody, BatchItem, DoneAnswer, ReasonBody
from glidepath.values import ConfigurationError, StoreError, pluralize

__all__ = ["MOST_RUNS", "BatchActions"]

MOST_RUNS = 500
_AT_ONCE = 32


class BatchActions:
    """Lands, stops or resumes many runs."""

    def __init__(self, actions: RunActions) -> None:
        self._actions = actions

    async def land(self, body: BatchBody, who: Visitor) -> BatchAnswer:
        """Ask each to deliver what it has."""
        return await self._act_on_each(self._actions.land, "landed, or asked to", body, who)

    async def stop(self, body: BatchBody, who: Visitor) -> BatchAnswer:
        """Stop each without another model call."""
        return await self._act_on_each(self._actions.stop, "stopped, or asked to", body, who)

    async def resume(self, body: BatchBody, who: Visitor) -> BatchAnswer:
        """Continue each that was lost, stopped or limited."""
        return await self._act_on_each(self._actions.resume, "resumed", body, who)

    async def _act_on_each(
        self,
        act: Callable[[str, ReasonBody, Visitor], Awaitable[DoneAnswer]],
        done: str,
        body: BatchBody,
        who: Visitor,
    ) -> BatchAnswer:
        names = list(dict.fromkeys(body.ids))
        if not 1 <= len(names) <= MOST_RUNS:
            raise HttpError(400, "bad_ids", f"ids must name 1 to {MOST_RUNS} runs, not {len(names)}")
        began, room = time.perf_counter(), asyncio.Semaphore(_AT_ONCE)

        async def act_on(name: str) -> BatchItem:
            async with room:
                try:
                    answer = await act(name, ReasonBody(reason=body.reason), who)
                except HttpError as refused:
                    return BatchItem(run_id=name, error=str(refused))
                except (ConfigurationError, StoreError) as error:
                    return BatchItem(run_id=name, error=str(refusal_of(error)))
                return BatchItem(run_id=name, message=answer.message)

        results = await asyncio.gather(*map(act_on, names))
        refused = sum(one.error is not None for one in results)
        message = f"{pluralize(len(results) - refused, 'run')} {done}"
        if refused:
            message = f"{message}; {refused} refused"
        return BatchAnswer(message=message, took_ms=elapsed_ms(began), results=tuple(results))
