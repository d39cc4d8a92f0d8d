"""A budget that is kept elsewhere: the tree of a run holds what was drawn from it, and draws more before a call.

Nothing of this is looked at in a tree without a source but one attribute, and that only when a call does not fit.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from glidepath.run import Amount

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from glidepath.run import Meter, Run
    from glidepath.values import StopCause


class Source(Protocol):
    """Where a tree of meters draws from; it is in `meter.tree.source`.

    Contract: `draw` makes the root's caps larger, by as much as there is, never by more than was taken out of the
    budget elsewhere; it waits while what is in flight elsewhere may come back. `wait_for_pace` returns when a model may
    be called. Both raise `Touchdown` when the place where the budget is kept fails. `refused` says what the last draw
    was refused for; None after one that was not. `nearly_empty` names the budget when little is left of it.
    """

    refused: StopCause | None

    async def draw(
        self,
        run: Run,
        asked: Amount,
        least: Amount,
        *,
        patient: bool = True,
        around: tuple[Meter, ...] | None = None,
    ) -> None:
        """Have room for `asked` more in the root, or at the least for `least`, or for nothing.

        `around` is given for a run that has yet to start: the runs that wait for it. It may wait for others to end.
        """
        ...

    async def pace(self, run: Run, tokens: int) -> None:
        """Return when the model of this run may be called with this many tokens."""
        ...

    def nearly_empty(self) -> str | None:
        """What to call the budget when it is what is nearly used up; None when it is not, or has no name."""
        ...


async def draw(run: Run, asked: Amount, least: Amount) -> None:
    """Draw what a call needs; raises `CancelledError` when the run is interrupted meanwhile."""
    mine = run.spend.first_call  # what was reserved when it was admitted is traded for this call
    if mine is not None:
        asked = Amount(asked.tokens - mine.tokens, asked.money - mine.money)
        least = Amount(least.tokens - mine.tokens, least.money - mine.money)
    await _wait_interruptibly(run, run.meter.tree.source.draw(run, asked, least))


async def draw_start(run: Run, asked: Amount, around: tuple[Meter, ...]) -> None:
    """Draw what a run needs to start; `around` are the runs that wait for it, so that it must not wait for them."""
    await _wait_interruptibly(run, run.meter.tree.source.draw(run, asked, asked, around=around))


async def wait_for_pace(run: Run, tokens: int) -> None:
    """Wait until the model may be called; raises `Touchdown` when the run is interrupted meanwhile."""
    try:
        await _wait_interruptibly(run, run.meter.tree.source.pace(run, tokens))
    except asyncio.CancelledError:
        raise run.make_interrupt() from None


async def _wait_interruptibly(run: Run, work: Coroutine[Any, Any, None]) -> None:
    # Its own task: an interrupt ends the wait at once, and the store's work is cancelled in order.
    task = run.watch.loop.create_task(work, name="glidepath-source")
    try:
        await run.watch.wait(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
