"""What the model is told that its run has left, where its provider shows it a countdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glidepath.run import Run


def find_task_budget(run: Run) -> tuple[int, int | None] | None:
    """Tokens for the run, and how many of them are left where its beginning is no longer sent; None without a limit.

    The provider subtracts what it sees by itself. The figure stays the same from call to call, because another one
    would lose the cache of the prompt. Where the view was cut, that is lost already, and the model is told again what
    is left.
    """
    transcript = run.transcript
    before = run.terms.countdown
    if before is not None and before[0] is transcript.view:
        return before[1]  # type: ignore[no-any-return]
    left = _find_tokens_left(run)
    if left is None:
        budget = None
    elif before is not None and before[1] is not None:
        budget = (before[1][0], min(left, before[1][0]))
    else:  # of a run that continues, what it has written and read since it began counts on the provider's side, too
        budget = (left + sum(transcript.sizes[transcript.first_new + 1 :]), None)
    run.terms.count_down(transcript.view, budget)
    return budget


def _find_tokens_left(run: Run) -> int | None:
    """Tokens that the run may still use; what money is left is counted in output."""
    tokens, money = run.meter.room_for(None, now=False)
    price = run.plan.price
    if money is not None and price is not None and price.output:
        written = money // price.output
        tokens = written if tokens is None else min(tokens, written)
    return None if tokens is None else max(0, tokens)
