"""What it costs that a view does not begin as the one before it: the provider's cache has nothing of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.kernel.model_call.replanning import notice_replanning
from glidepath.values import ContextShaped, Message

if TYPE_CHECKING:
    from glidepath.run import Run


def report_shaped(run: Run, name: str, old: Sequence[Message], before: int, after: int, dropped: int) -> None:
    """Say that the view was made smaller, how much of it is as it was, and what the rest costs once more."""
    size_of, kept = run.plan.size_of, run.plan.fixed_tokens
    for was, now in zip(old, run.transcript.view, strict=False):
        if was is not now and was != now:
            break
        kept += size_of(now)
    again = max(0, run.plan.fixed_tokens + after - kept)
    price, cost = run.plan.price, None
    if price is not None and price.cache_read is not None and run.turn.request is not None:
        cost = again * max(0, (price.cache_write or price.input) - price.cache_read)
    notice_replanning(run)
    run.emit(ContextShaped, name, before, after, dropped, kept, again, cost)
