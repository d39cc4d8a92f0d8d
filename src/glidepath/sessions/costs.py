"""What the sessions of a store have cost, added up by user, agent or model."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from glidepath._wire import Record, Value
from glidepath.sessions.finding import each_session
from glidepath.sessions.summaries import read_figures
from glidepath.spi import Entry, SessionStore
from glidepath.values import ConfigurationError, short_repr

BY: Final = ("user", "agent", "model")
_PAGE = 500
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


class CostRow(Value, frozen=True, kw_only=True):
    """What the sessions of one user, agent or model have used, in one month or in all of them.

    `name` is None where the sessions do not say; `month` is None where months are not told apart. `unpriced` is how
    many sessions have no known cost: `cost` is that of the others.
    """

    name: str | None
    month: str | None
    sessions: int
    runs: int
    tokens: int
    cost: Decimal
    unpriced: int


class _Sum(Record):
    sessions: int = 0
    runs: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0


async def report_costs(
    store: SessionStore, *, by: str = "user", month: str | None = None, monthly: bool = False
) -> list[CostRow]:
    """What the sessions of a store have used, a row for each user, agent or model; the dearest of a month first.

    `month="2026-11"` adds up that month only, `monthly=True` gives each month rows of its own. A session counts as a
    whole, children included, in the month in which its last run began or ended, in UTC. Raises `ConfigurationError` for
    a wrong argument, and `StoreError`.
    """
    if by not in BY:
        raise ConfigurationError(f"by={short_repr(by, 40)} must be one of {', '.join(map(repr, BY))}")
    if month is not None and not (isinstance(month, str) and _MONTH.fullmatch(month)):
        raise ConfigurationError(f"month={short_repr(month, 40)} must be a month such as '2026-11'")
    sums: dict[tuple[str | None, str | None], _Sum] = {}
    async for entry in each_session(store, limit=_PAGE):
        when = None
        if monthly or month is not None:
            when = datetime.fromtimestamp(entry.updated, UTC).strftime("%Y-%m")
        if month is None or when == month:
            name = entry.summary.get(by)
            _add(sums.setdefault((when, name if isinstance(name, str) and name else None), _Sum()), entry)
    rows = [_make_row(when, name, one) for (when, name), one in sums.items()]
    return sorted(rows, key=lambda row: (row.month or "", -row.cost, row.name or ""))


def _make_row(when: str | None, name: str | None, one: _Sum) -> CostRow:
    return CostRow(
        name=name,
        month=when,
        sessions=one.sessions,
        runs=one.runs,
        tokens=one.tokens,
        cost=one.cost,
        unpriced=one.unpriced,
    )


def _add(row: _Sum, entry: Entry) -> None:
    used = read_figures(entry.summary)
    row.sessions += 1
    row.runs += _read_count(used.get("runs", 1))
    row.tokens += _read_count(used.get("tokens"))
    cost = _read_dollars(used.get("cost"))
    if cost is None:
        row.unpriced += 1
    else:
        row.cost += cost


def _read_count(figure: object) -> int:
    return figure if type(figure) is int and figure > 0 else 0


def _read_dollars(figure: object) -> Decimal | None:
    """An imported summary may hold anything."""
    try:
        found = Decimal(figure) if isinstance(figure, str | int) and not isinstance(figure, bool) else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() and found >= 0 else None
