"""What a gate tells when it is over: calls, tokens, cost, limits, who landed and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SUMS = ("calls", "tokens")


def add_reports(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One report of several runs; that of a single one is its own."""
    if len(sessions) == 1:
        return {**sessions[0], "runs": list(sessions)}
    costs = [one["cost"] for one in sessions]
    return {
        **{name: sum(one[name] for one in sessions) for name in _SUMS},
        "cost": None if None in costs else sum(costs),
        "limit": sessions[0]["limit"] if sessions else {},
        "landed": any(one["landed"] for one in sessions),
        "reason": next((one["reason"] for one in sessions if one["reason"]), None),
        "cause": next((one["cause"] for one in sessions if one["cause"]), None),
        "estimated": any(one["estimated"] for one in sessions),
        "models": sorted({model for one in sessions for model in one["models"]}),
        "agents": [agent for one in sessions for agent in one["agents"]],
        "runs": list(sessions),
    }
