"""The plots of an evaluation, as SVG without a library."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from html import escape
from math import log10
from typing import TYPE_CHECKING

from glidepath.values import pluralize

if TYPE_CHECKING:
    from glidepath.apps.evals.eval_report import CaseResult, Curve, EvalReport

_WIDE, _HIGH, _LEFT, _TOP = 760, 240, 56, 16
_MOST_DOTS = 2_000
_LEAST = 1e-12
_PREDICTED = "--bar"


def draw_pass_rate(report: EvalReport) -> str:
    """The pass rate as a mark on a line from 0 to 100 %, with its interval."""
    low, high = report.interval
    rate = report.pass_rate
    if rate is None:
        return ""
    at = {name: _LEFT + (_WIDE - _LEFT - 20) * share for name, share in (("low", low), ("rate", rate), ("high", high))}
    ticks = "".join(
        f'<text x="{_LEFT + (_WIDE - _LEFT - 20) * share:.0f}" y="58" text-anchor="middle">{share:.0%}</text>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return _frame(
        66,
        "pass rate with its 95 % interval",
        f'<line x1="{_LEFT}" x2="{_WIDE - 20}" y1="30" y2="30" stroke="var(--line)" stroke-width="6"/>'
        f'<line x1="{at["low"]:.1f}" x2="{at["high"]:.1f}" y1="30" y2="30" stroke="var(--bar)" stroke-width="10"/>'
        f'<circle cx="{at["rate"]:.1f}" cy="30" r="8" fill="var(--ok)"><title>{rate:.1%}</title></circle>{ticks}',
    )


def draw_costs(results: Sequence[CaseResult]) -> str:
    """A dot for each run: what it cost, on a logarithmic axis, and whether it passed."""
    priced = any(one.cost for one in results)
    amounts = [(one, float(one.cost or 0) if priced else float(one.tokens)) for one in results if one.state]
    shown = [(one, amount) for one, amount in amounts if amount > 0][:_MOST_DOTS]
    if not shown:
        return ""
    low, span = _range([amount for _, amount in shown])
    rows = {True: ("passed", "--ok", 40), False: ("failed", "--bad", 80), None: ("not covered", "--warn", 120)}
    dots = []
    for number, (one, amount) in enumerate(shown):
        word, color, y = rows[one.passed]
        x = _LEFT + 40 + (_WIDE - _LEFT - 70) * (log10(amount) - low) / span
        said = escape(f"{one.case_id}: {_amount(amount, priced=priced)}, {word}")
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y + (number * 7) % 17 - 8}" r="4" fill="var({color})" fill-opacity=".6">'
            f"<title>{said}</title></circle>"
        )
    names = "".join(f'<text x="4" y="{y + 4}">{word}</text>' for word, _, y in rows.values())
    least, most = min(amount for _, amount in shown), max(amount for _, amount in shown)
    axis = (
        f'<text x="{_LEFT + 40}" y="158" text-anchor="middle">{_amount(least, priced=priced)}</text>'
        f'<text x="{_WIDE - 30}" y="158" text-anchor="end">{_amount(most, priced=priced)}</text>'
    )
    return _frame(168, "what each run cost", names + "".join(dots) + (axis if most > least else ""))


def draw_curve(curve: Curve) -> str:
    """Pass rate by the budget of a run: as predicted, and where it was tried, as it was."""
    points = curve.points
    values = [max(_LEAST, float(Decimal(one.limit))) for one in points]
    if not values:
        return ""
    low, span = _range(values)
    wide, bottom = _WIDE - _LEFT - 30, _TOP + _HIGH

    def place(value: float, share: float) -> str:
        return f"{_LEFT + wide * (log10(value) - low) / span:.1f},{bottom - _HIGH * share:.1f}"

    def line(shares: Sequence[float | None], color: str, dash: str) -> str:
        shown = [
            (place(value, share), one.is_assumed and color == _PREDICTED)
            for value, share, one in zip(values, shares, points, strict=True)
            if share is not None
        ]
        known = [at for at, _ in shown]
        size = 5 if color == _PREDICTED else 2.5  # where both are at one place, both are seen
        marks = "".join(
            f'<circle cx="{at.partition(",")[0]}" cy="{at.partition(",")[2]}" r="{size}" stroke="var({color})" '
            f'fill="{"Canvas" if hollow else f"var({color})"}"/>'
            for at, hollow in shown
        )
        return (
            f'<polyline points="{" ".join(known)}" fill="none" stroke="var({color})" stroke-width="2" '
            f'stroke-dasharray="{dash}"/>{marks}'
        )

    predicted: list[float | None] = [one.passed / one.covered if one.covered else 0.0 for one in points]
    real = [
        None if one.real_passed is None else one.real_passed / one.covered if one.covered else 0.0 for one in points
    ]
    rules = "".join(
        f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{bottom - _HIGH * share:.0f}" y2="{bottom - _HIGH * share:.0f}" '
        f'stroke="var(--line)"/><text x="{_LEFT - 6}" y="{bottom - _HIGH * share + 4:.0f}" text-anchor="end">'
        f"{share:.0%}</text>"
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    ends = "".join(
        f'<text x="{place(value, 0).partition(",")[0]}" y="{bottom + 18}" text-anchor="middle">'
        f"{escape(one.limit)}</text>"
        for number, (value, one) in enumerate(zip(values, points, strict=True))
        if number % max(1, len(points) // 5) == 0 or number == len(points) - 1
    )
    drawn = line(predicted, _PREDICTED, "none")
    said = "predicted from one run; hollow: most runs land"
    keys = f'<text x="{_LEFT}" y="{bottom + 42}" style="fill:var(--bar)">{said}</text>'
    if any(share is not None for share in real):
        drawn += line(real, "--bad", "6 4")
        keys += f'<text x="{_LEFT + 330}" y="{bottom + 42}" style="fill:var(--bad)">run again with that budget</text>'
    return _frame(bottom + 52, f"pass rate by {curve.by} of a run", rules + ends + drawn + keys)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Where a logarithmic axis begins, and how long it is."""
    places = [log10(max(_LEAST, one)) for one in values]
    return min(places), (max(places) - min(places)) or 1.0


def _amount(amount: float, *, priced: bool) -> str:
    return f"${amount:.4g}" if priced else pluralize(amount, "token", f"{amount:,.0f}")


def _frame(height: int, label: str, drawn: str) -> str:
    return (
        f'<div class="scroll"><svg viewBox="0 0 {_WIDE} {height}" width="{_WIDE}" role="img" '
        f'aria-label="{escape(label)}">{drawn}</svg></div>'
    )
