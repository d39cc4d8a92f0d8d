"""The report of a run in one or two lines, for the person who started it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glidepath.values import pluralize


def describe_report(report: Mapping[str, Any], name: str) -> str:
    """How a run behind the gate ended and what it used."""
    if not report.get("calls") and not report.get("landed"):
        asked = "got no answer through the gate" if report.get("agents") else "made no call through the gate"
        return f"glidepath gate: {name} {asked}. Nothing was spent."
    limit = report.get("limit") or {}
    parts = [
        _count(report.get("calls", 0), limit.get("calls"), "call"),
        _count(report.get("tokens", 0), limit.get("tokens"), "token"),
        _cost(report.get("cost"), limit.get("usd")),
    ]
    agents = [one for one in report.get("agents", ()) if one.get("calls")]
    if len(agents) > 1:
        parts.append(pluralize(len(agents), "agent"))
    used = ", ".join([part for part in parts if part])
    if report.get("estimated"):
        used += " (partly estimated: an upstream did not report what it used)"
    if report.get("landed"):
        return f"glidepath gate: {name} was landed: {report.get('reason') or 'a limit is reached'}. {used}."
    return f"glidepath gate: {name} ended by itself. {used}."


def _count(used: int, limit: int | None, noun: str) -> str:
    return f"{used:,} {noun}{'' if used == 1 else 's'}" if limit is None else f"{used:,} of {limit:,} {noun}s"


def _cost(cost: float | None, limit: float | None) -> str:
    if cost is None:
        return "cost unknown: a model without a price"
    return f"${cost:.4f}" + ("" if limit is None else f" of ${limit:.2f}")
