"""An evaluation as one HTML page: self-contained, everything escaped, failures first."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from glidepath.apps.evals.report_plots import draw_costs, draw_curve, draw_pass_rate
from glidepath.apps.evals.report_text import format_dollars, format_share
from glidepath.testing import draw_bars, draw_tiles, frame_page
from glidepath.values import pluralize

if TYPE_CHECKING:
    from glidepath.apps.evals.eval_report import CaseResult, Curve, EvalReport

_STYLE = """
details > summary { cursor: pointer; list-style: none; display: grid; gap: 0 .8rem; padding: .35rem 0;
  grid-template-columns: minmax(8rem, 14rem) 6.5rem 4rem 6rem 6rem 5rem 1fr; border-bottom: 1px solid var(--line); }
details > summary::-webkit-details-marker { display: none; }
details[open] > summary { font-weight: 600; }
details pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--line); padding: .5rem; }
.cells { font-size: 13px; } .cells .n { text-align: right; font-variant-numeric: tabular-nums; }
.cells span { overflow-wrap: anywhere; } .head { font-weight: 600; opacity: .75; }
"""
_MOST_SHOWN = 2_000
_KINDS = {True: ("passed", "ok"), False: ("failed", "bad"), None: ("not covered", "warn")}


def make_report_page(report: EvalReport) -> str:
    """The whole page."""
    title = f"{report.agent} on {report.dataset}"
    return frame_page(title, list(_write_parts(report, title)), more_style=_STYLE)


def _write_parts(report: EvalReport, title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    runs = pluralize(report.cases, "case")
    repeats = f", {report.repeat} times each" if report.repeat > 1 else ""
    budget = ", ".join(f"{name} {value}" for name, value in report.limits.items())
    yield (
        f'<p class="sub">Evaluation {escape(report.name)}: {runs}{repeats}, began {escape(report.began)}'
        f"{escape(f'; all together {budget}' if budget else '')}.</p>"
    )
    yield _make_tiles(report)
    if report.pass_rate is not None:
        low, high = report.interval
        yield f"<h2>Pass rate</h2><p>95 % interval {format_share(low)} to {format_share(high)}.</p>"
        yield draw_pass_rate(report)
    if not report.complete:
        yield _describe_gaps(report)
    if report.curve is not None:
        yield from _describe_curve(report.curve)
    yield "<h2>What each run cost</h2>"
    yield draw_costs(report.results)
    yield "<h2>How the runs ended</h2>"
    yield draw_bars([(words, count, "--bar") for words, count in report.endings.items()])
    yield "<h2>Every case, failures first</h2>"
    heads = ("case", "result", "turns", "tokens", "cost", "time", "why")
    yield (
        '<div class="cells head"><details><summary>'
        + "".join(f"<span>{one}</span>" for one in heads)
        + "</summary></details></div>"
    )
    yield '<div class="cells">' + "".join(map(_describe_case, report.failures_first[:_MOST_SHOWN])) + "</div>"
    if len(report.results) > _MOST_SHOWN:
        yield f"<p>{len(report.results) - _MOST_SHOWN:,} more are in the JSON report.</p>"


def _make_tiles(report: EvalReport) -> str:
    rate = report.pass_rate
    every = len(report.covered)
    cost = "no price" if report.cost is None else format_dollars(report.cost)
    tiles = [
        ("-" if rate is None else format_share(rate), f"{report.passed} of {every} passed", ""),
        (cost, pluralize(report.tokens, "token", f"{report.tokens:,}"), ""),
        (
            f"{every} of {report.planned}",
            "covered" if report.complete else "covered, see below",
            "ok" if report.complete else "bad",
        ),
    ]
    if report.repeat > 1:
        tiles.append((f"{report.always} of {report.cases}", f"cases passed all {report.repeat} times", ""))
    if report.judge_cost is not None:
        tiles.append((format_dollars(report.judge_cost), "of it for judges", ""))
    return draw_tiles(tiles)


def _describe_gaps(report: EvalReport) -> str:
    rows = [f"<li>{count} x {escape(why)}</li>" for why, count in report.uncovered.items()]
    rows += [
        f"<li>case {escape(one.id)} ({escape(one.where)}): {escape(one.why)}</li>"
        for one in report.unusable[:_MOST_SHOWN]
    ]
    return (
        '<div class="finding warning"><b>Not covered</b>: the pass rate says nothing about these.<ul>'
        f"{''.join(rows)}</ul></div>"
    )


def _describe_curve(curve: Curve) -> Iterator[str]:
    yield f"<h2>What a smaller {escape(curve.by)} for each run would buy</h2>"
    yield draw_curve(curve)
    yield f"<p>{escape(curve.describe())}</p>"
    tried = any(one.real_passed is not None for one in curve.points)
    heads = [curve.by, "passed", "landed", "cost", *(("really passed", "landed", "cost") if tried else ())]
    rows = []
    for one in curve.points:
        mark = "~" if one.is_assumed else ""
        cells = [one.limit, f"{mark}{one.passed} of {one.covered}", str(one.landed), _cost(one.cost, one.tokens)]
        if one.real_passed is not None:
            cells += [f"{one.real_passed} of {one.covered}", str(one.real_landed)]
            cells += [_cost(one.real_cost, one.real_tokens or 0)]
        rows.append("<tr>" + "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells) + "</tr>")
    head = "".join(f'<th class="n">{escape(one)}</th>' for one in heads)
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _cost(cost: object, tokens: int) -> str:
    return pluralize(tokens, "token", f"{tokens:,}") if cost is None else f"${cost:.6g}"


def _describe_case(one: CaseResult) -> str:
    word, kind = _KINDS[one.passed]
    cost = "-" if one.cost is None else format_dollars(one.cost)
    name = f"{one.case_id} #{one.repeat}" if one.repeat > 1 else one.case_id
    cells = (
        f"<span>{escape(name)}</span>",
        f'<span class="{kind}">{word}</span>',
        f'<span class="n">{one.turns}</span>',
        f'<span class="n">{one.tokens:,}</span>',
        f'<span class="n">{cost}</span>',
        f'<span class="n">{one.seconds:.1f} s</span>',
        f"<span>{escape(one.why)}</span>",
    )
    said = {True: "passed", False: "failed", None: "could not say"}
    scores = "".join(
        f"<li>{escape(score.name)}: {said[score.passed]} ({score.value:g}) {escape(score.why)}</li>"
        for score in one.scores
    )
    inside = [("Prompt", one.prompt), ("Expected", one.expected), ("Answer", one.text)]
    shown = "".join(f"<p>{head}</p><pre>{escape(text)}</pre>" for head, text in inside if text)
    where = f"<p>{escape(one.ended)} {escape(one.cause)}; session {escape(one.session_id or 'not kept')}</p>"
    return f"<details><summary>{''.join(cells)}</summary>{shown}<ul>{scores}</ul>{where}</details>"
