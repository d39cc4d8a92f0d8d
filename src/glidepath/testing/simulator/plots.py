"""A small plot of shares, as text for a terminal and as SVG for a page, without a library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10
from typing import Any

CHARGED = (
    "<p>Tokens here are what was charged: what the model reports, tool schemas included, or an estimate where that is "
    "missing or not plausible. The tokens above are only the texts that went to the model and came back.</p>"
)
"""Why a burn-down of the simulator has other tokens than its table."""
_WIDE = 40
_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 320, 60, 40


def text_plot(title: str, points: Sequence[tuple[Any, int]], total: int) -> list[str]:
    """One bar per line: a value, a bar for its share of the total, and the figures."""
    if not points or not total:
        return [f"{title}: nothing to plot"]
    width = max(len(_format_value(value)) for value, _ in points)
    lines = [title]
    for value, count in points:
        bar = "#" * round(_WIDE * count / total)
        lines.append(f"  {_format_value(value):>{width}} |{bar:<{_WIDE}}| {100 * count // total:>3} % {count}/{total}")
    return lines


def svg_plot(title: str, points: Sequence[tuple[Any, int]], total: int) -> str:
    """The same as steps over a logarithmic axis."""
    wide, high = _WIDTH - _LEFT - 20, _HEIGHT - _TOP - 50
    places = [log10(max(float(value), 1e-12)) for value, _ in points] or [0.0]
    low, span = min(places), (max(places) - min(places)) or 1.0
    dots = [
        (_LEFT + wide * (place - low) / span, _TOP + high * (1 - (count / total if total else 0)))
        for place, (_, count) in zip(places, points, strict=False)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/><text x="{x:.1f}" y="{_TOP + high + 16}" text-anchor="middle" '
        f'font-size="10">{escape(_format_value(value))}</text>'
        for (x, y), (value, _) in zip(dots, points, strict=False)
    )
    rules = "".join(
        f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{_TOP + high * (1 - share):.1f}" '
        f'y2="{_TOP + high * (1 - share):.1f}" stroke="#ddd"/><text x="{_LEFT - 6}" '
        f'y="{_TOP + high * (1 - share) + 4:.1f}" text-anchor="end" font-size="10">{round(share * 100)} %</text>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">'
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>{rules}'
        f'<polyline points="{line}" fill="none" stroke="#0b6" stroke-width="2"/>{marks}</svg>\n'
    )


def _format_value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else f"${value:f}"
