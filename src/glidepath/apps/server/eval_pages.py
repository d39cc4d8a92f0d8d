"""The evaluations in the server's store: a list, and the report of one, failures first."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from glidepath.apps.evals import EvalReport, list_evaluations, read_report
from glidepath.apps.server.hub import refusal_of
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.shapes import EvalCard, EvalDetail
from glidepath.sessions import EVALUATION, is_claimable
from glidepath.values import StoreError

if TYPE_CHECKING:
    from glidepath.apps.server.hub import Hub
    from glidepath.apps.server.locks import Visitor
    from glidepath.spi import Entry

__all__ = ["EvalPages"]

_KEPT = 8  # reports that are kept while their journal does not change
_NAMES = ("text", "prompt", "expected")
_SHOWN = 4_000  # characters of each of these


class EvalPages:
    """Answers questions about evaluations. They are of the whole server: a key that is bound to a part sees none."""

    def __init__(self, hub: Hub) -> None:
        self._store = hub.store
        self._reports: OrderedDict[str, tuple[int, EvalReport]] = OrderedDict()

    async def list_cards(self, who: Visitor) -> list[EvalCard]:
        """Every evaluation, the last written first."""
        now = time.time()
        return [_make_card(entry, now) for entry in await self._entries(who)]

    async def _entries(self, who: Visitor) -> list[Entry]:
        if self._store is None or who.scope is not None:
            return []
        try:
            return await list_evaluations(self._store)
        except StoreError as error:
            if error.kind == "missing":
                return []
            raise refusal_of(error) from None

    async def detail(self, name: str, who: Visitor, after: int, limit: int) -> EvalDetail:
        """The report of one, with a page of its results; raises `HttpError`."""
        entry = next((one for one in await self._entries(who) if one.session_id == f"{EVALUATION}{name}"), None)
        if entry is None:
            raise HttpError(404, "unknown_evaluation", f"there is no evaluation {name!r:.80}: see /api/evals")
        report = await self._read(name, entry.head)
        results = report.failures_first
        curve = report.curve
        return EvalDetail(
            card=_make_card(entry, time.time()),
            repeat=report.repeat,
            cases=report.cases,
            seconds=report.seconds,
            limits=report.limits,
            pass_rate=report.pass_rate,
            interval=report.interval,
            always=report.always,
            uncovered=report.uncovered,
            endings=report.endings,
            cost=None if report.cost is None else f"{report.cost:f}",
            judge_cost=None if report.judge_cost is None else f"{report.judge_cost:f}",
            tokens=report.tokens,
            curve=None if curve is None else {"by": curve.by, "points": curve.points, "says": curve.describe()},
            results=tuple(_describe_result(one) for one in results[after : after + limit]),
            total=len(results),
        )

    async def _read(self, name: str, head: int) -> EvalReport:
        known = self._reports.get(name)
        if known is not None and known[0] == head:
            return known[1]
        try:
            report = await read_report(self._store, name)
        except StoreError as error:
            raise refusal_of(error) from None
        self._reports[name] = head, report
        while len(self._reports) > _KEPT:
            self._reports.popitem(last=False)
        return report


def _make_card(entry: Entry, now: float) -> EvalCard:
    summary = entry.summary
    status = str(summary.get("status") or "")
    if status == "running" and is_claimable(entry.owner, entry.expires, now):
        status = "stopped"  # its process is gone: the same command continues it
    rate, cost = summary.get("pass_rate"), summary.get("cost")
    return EvalCard(
        name=entry.session_id.removeprefix(EVALUATION),
        dataset=str(summary.get("dataset") or ""),
        agent=str(summary.get("agent") or ""),
        status=status,
        passed=_count(summary.get("passed")),
        covered=_count(summary.get("covered")),
        planned=_count(summary.get("planned")),
        pass_rate=float(rate) if isinstance(rate, int | float) else None,
        cost=cost if isinstance(cost, str) else None,
        tokens=_count(summary.get("tokens")),
        began=str(summary.get("began") or ""),
        updated=entry.updated,
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _describe_result(one: Any) -> dict[str, Any]:
    """One attempt as the page shows it."""
    said = {name: str(getattr(one, name))[:_SHOWN] for name in _NAMES}
    return {
        **said,
        "case_id": one.case_id,
        "repeat": one.repeat,
        "passed": one.passed,
        "why": one.why,
        "ended": one.ended,
        "cause": one.cause,
        "turns": one.turns,
        "tokens": one.tokens,
        "cost": None if one.cost is None else f"{one.cost:f}",
        "seconds": one.seconds,
        "session_id": one.session_id,
        "scores": [
            {"name": score.name, "passed": score.passed, "value": score.value, "why": score.why} for score in one.scores
        ],
    }
