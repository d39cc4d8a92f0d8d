"""What was used and what it cost: sums and differences, where a cost may be unknown."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from glidepath.run import usage_since
from glidepath.values import EXACT, Usage

if TYPE_CHECKING:
    from glidepath.values import RunResult


def add_cost(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    """The sum of two costs; None only when both are unknown."""
    if first is None or second is None:
        return first if second is None else second
    return EXACT.add(first, second)


def subtract_spending(
    after: tuple[Usage, Decimal | None], before: tuple[Usage, Decimal | None]
) -> tuple[Usage, Decimal | None]:
    """What was spent between two moments."""
    cost = None if after[1] is None else EXACT.subtract(after[1], before[1] or 0)
    return usage_since(after[0], before[0]), cost


def spending_since_pause(result: RunResult, paused: RunResult | None) -> tuple[Usage, Decimal | None]:
    """What a run used; for a resumed run, only what it used since the pause."""
    if paused is None or result.run_id != paused.run_id:
        return result.usage, result.cost
    return subtract_spending((result.usage, result.cost), (paused.usage, paused.cost))
