"""The report as one HTML page: self-contained, with everything escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from glidepath.testing.simulator.plots import CHARGED
from glidepath.values import Burn, pluralize, svg_burndown

if TYPE_CHECKING:
    from glidepath.testing.simulator import Flight, Report

_LIMITS = ("turns", "tokens", "dollars", "tool calls", "seconds")
_CHARTS = 6
_HEADS = ("scenario", "contained", "end", "answer", "overshoot", "calls", "tokens", "time", "cause", "problems")


def page(report: Report, *, title: str = "Flight report") -> str:
    """The whole page."""
    flown = [flight for flight in report.flights if not flight.refused]
    first = min((flight.seed for flight in flown), default=0)
    rows = [flight for flight in flown if flight.seed == first or flight.problems]
    specimens = len({flight.specimen for flight in report.flights})
    outcomes = Counter(flight.outcome or "no result" for flight in flown).most_common()
    tried = pluralize(specimens, "scenario")
    if len(report.flights) != specimens:
        tried += f", {pluralize(len(report.flights), 'flight')}"
    sub = f"{tried}, {report.cpu_seconds:g} s of CPU time."
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{sub} The same seed gives the same flight.</p>',
        _tiles(report, flown),
        _findings(report),
        "<h2>How the flights ended</h2>",
        draw_bars([(outcome, count, "--bar") for outcome, count in outcomes]),
        "<h2>Contained, by family</h2>",
        draw_bars([(family, share, "--ok" if share == 100 else "--bad") for family, share in _shares(flown)], unit="%"),  # noqa: PLR2004 - percent
        "<h2>Tokens sent and written</h2>",
        draw_bars([(f.specimen, f.tokens, "--bar") for f in sorted(rows, key=lambda f: -f.tokens)[:20]]),
        _burndowns(report, rows),
        "<h2>Every scenario</h2>",
        _table(rows),
    ]
    if report.skipped:
        names = escape(", ".join(report.skipped))
        parts.append(f"<p>Not run, because this configuration has no tools: {names}.</p>")
    return frame_page(title, parts)


def frame_page(title: str, parts: Iterable[str], *, more_style: str = "") -> str:
    """A page of these parts that needs nothing else: no script, no other file, no other host."""
    body = "\n".join(parts)
    style = (files("glidepath.testing.simulator") / "page.css").read_text(encoding="utf-8") + more_style
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    meta = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    )
    head = f"<head>{meta}<title>{escape(title)}</title><style>{style}</style></head>"
    return f'<!doctype html>\n<html lang="en">{head}\n<body>\n{body}\n</body></html>\n'


def _tiles(report: Report, flown: list[Flight]) -> str:
    contained = sum(flight.contained for flight in flown)
    answered = sum(flight.answer in ("model", "partial") for flight in flown)
    holes = sum(finding.severity == "hole" for finding in report.findings)
    warnings = len(report.findings) - holes
    tiles = (
        (f"{contained} of {len(report.flights)}", "contained", "ok" if contained == len(report.flights) else "bad"),
        (f"{answered} of {len(report.flights)}", "with an answer from the model", ""),
        (str(holes), "hole" if holes == 1 else "holes", "bad" if holes else "ok"),
        (str(warnings), "warning" if warnings == 1 else "warnings", "warn" if warnings else "ok"),
    )
    return draw_tiles(tiles)


def draw_tiles(tiles: Iterable[tuple[str, str, str]]) -> str:
    """Figures that one reads first: the figure, what it is, and whether it is good."""
    cells = [
        f'<div class="tile"><b class="{kind}">{escape(value)}</b>{escape(name)}</div>' for value, name, kind in tiles
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def _findings(report: Report) -> str:
    if not report.findings:
        return '<p class="ok">No holes found.</p>'
    blocks = [
        f'<div class="finding {escape(finding.severity)}"><code>{escape(finding.code)}</code> '
        f"{escape(finding.what)}.<br>{escape(finding.advice)}</div>"
        for finding in report.findings
    ]
    return "<h2>Findings</h2>" + "".join(blocks)


def _burndowns(report: Report, rows: list[Flight]) -> str:
    """Charts of the limits left after each model call, for the flights that used up most of one."""
    charts = []
    for flight in rows:
        burns = [
            Burn(name, [float(point[place]) for point in flight.burn], report.limits.get(name))
            for place, name in enumerate(_LIMITS)
        ]
        charts.append((max((burn.share for burn in burns), default=0.0), flight, burns))
    charts.sort(key=lambda chart: -chart[0])
    shown = [
        f"<h3>{escape(flight.specimen)}: {escape(flight.outcome or 'no result')}</h3>{svg_burndown(burns)}"
        for _, flight, burns in charts[:_CHARTS]
        if flight.burn
    ]
    return "".join(["<h2>How the limits were used up</h2>", CHARGED, *shown]) if shown and report.limits else ""


def _shares(flown: list[Flight]) -> list[tuple[str, int]]:
    families: dict[str, list[bool]] = {}
    for flight in flown:
        families.setdefault(flight.family, []).append(flight.contained)
    return [(family, 100 * sum(all_) // len(all_)) for family, all_ in sorted(families.items())]


def draw_bars(rows: Sequence[tuple[str, int, str]], *, unit: str = "") -> str:
    """A bar for each row, the longest as wide as the page."""
    most = max((value for _, value, _ in rows), default=0) or 1
    height = 22
    drawn = [
        f'<text x="190" y="{at * height + 15}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="200" y="{at * height + 3}" width="{max(1, 560 * value // most)}" height="{height - 6}" '
        f'fill="var({color})" rx="3"/>'
        f'<text x="{206 + max(1, 560 * value // most)}" y="{at * height + 15}">{value:,}{unit}</text>'
        for at, (name, value, color) in enumerate(rows)
    ]
    tall = height * len(rows) + 4
    return f'<div class="scroll"><svg viewBox="0 0 860 {tall}" width="860" role="img">{"".join(drawn)}</svg></div>'


def _table(flights: list[Flight]) -> str:
    head = "".join([f"<th>{name}</th>" for name in _HEADS])
    body = []
    for flight in flights:
        mark = '<span class="ok">yes</span>' if flight.contained else '<span class="bad">no</span>'
        body.append(
            f"<tr><td>{escape(flight.specimen)}</td><td>{mark}</td><td>{flight.state}/{flight.outcome}</td>"
            f'<td>{flight.answer}</td><td class="n">{flight.overshoot:.0%}</td><td class="n">{flight.calls}</td>'
            f'<td class="n">{flight.tokens:,}</td><td class="n">{flight.seconds:,.1f} s</td>'
            f"<td>{escape(flight.cause)}</td><td>{escape(', '.join(flight.problems))}</td></tr>"
        )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
