"""An evaluation as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from glidepath.run import mask_controls
from glidepath.values import pluralize

if TYPE_CHECKING:
    from glidepath.apps.evals.eval_report import CaseResult, EvalReport

_SHOWN = 30
"""Cases in the table: of more than that, those that did not pass."""
_WHY, _ID, _EXAMPLE = 60, 24, 200
_UNUSABLE = 5
_WORDS = {True: "passed", False: "FAILED", None: "not covered"}


def make_table(report: EvalReport, width: int | None = None) -> str:
    """The cases that matter, each on a line of this many columns at most, then the figures of all of them."""
    cases = [one if width is None else _cut(one, width) for one in _list_cases(report)]
    return "\n".join([*cases, *summarize(report)]) + "\n"


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."


def summarize(report: EvalReport) -> Iterator[str]:
    """The figures, a line each."""
    covered = len(report.covered)
    if report.pass_rate is None:
        yield "pass rate   nothing is covered"
    else:
        low, high = report.interval
        yield (
            f"pass rate   {format_share(report.pass_rate)} ({report.passed} of {covered}), "
            f"95 % interval {format_share(low)} to {format_share(high)}"
        )
    if report.repeat > 1:
        yield f"every time  {report.always} of {pluralize(report.cases, 'case')} passed in all {report.repeat} repeats"
    judged = "" if report.judge_cost is None else f", {format_dollars(report.judge_cost)} of it for judges"
    cost = "no price is known" if report.cost is None else f"{format_dollars(report.cost)}{judged}"
    yield f"cost        {cost}; {pluralize(report.tokens, 'token', f'{report.tokens:,}')}"
    ran = [one for one in report.results if one.state]
    if ran:
        turns, seconds = sum(one.turns for one in ran) / len(ran), sum(one.seconds for one in ran) / len(ran)
        tokens = round(report.tokens / len(ran))
        each = f"{pluralize(turns, 'turn', f'{turns:.1f}')}, {pluralize(tokens, 'token', f'{tokens:,}')}"
        yield f"a run       {each}, {seconds:.1f} s on average"
    yield f"ended       {', '.join(f'{count} {words}' for words, count in report.endings.items()) or 'nothing yet'}"
    if report.complete:
        yield f"covers      all {pluralize(report.planned, 'attempt')}"
        return
    missing = report.planned - covered
    yield f"NOT COVERED {missing} of {pluralize(report.planned, 'attempt')}, which the pass rate says nothing about:"
    for why, count in report.uncovered.items():
        yield f"            {count} x {_flatten(why)[:160]}{_find_example(report, why)}"
    for one in report.unusable[:_UNUSABLE]:
        yield f"            case {_flatten(one.id)[:_ID]} ({one.where}): {_flatten(one.why)[:120]}"
    if len(report.unusable) > _UNUSABLE:
        yield f"            ... and {len(report.unusable) - _UNUSABLE} more cases"


def _find_example(report: EvalReport, reason: str) -> str:
    """What was wrong with the first case that is not covered for this reason, where more is known."""
    for one in report.results:
        why, _, more = one.why.partition(": ")
        if one.passed is None and why == reason and more:
            return f", such as {_name(one, report.repeat)}: {_flatten(more)[:_EXAMPLE]}"
    return ""


def _list_cases(report: EvalReport) -> Iterator[str]:
    shown: Sequence[CaseResult] = report.failures_first
    if len(shown) > _SHOWN:
        shown = [one for one in shown if one.passed is not True][:_SHOWN]
    if not shown:
        return
    named = [_name(one, report.repeat) for one in shown]
    wide = max(4, *[len(name) for name in named])
    yield f"{'CASE':<{wide}}  {'RESULT':<11}  {'TURNS':>5}  {'TOKENS':>8}  {'COST':>9}  {'TIME':>7}  ENDED / WHY"
    for name, one in zip(named, shown, strict=True):
        cost = "-" if one.cost is None else format_dollars(one.cost)
        why = f"  {_flatten(one.why)[:_WHY]}" if one.why else ""
        yield (
            f"{name:<{wide}}  {_WORDS[one.passed]:<11}  {one.turns:>5}  {one.tokens:>8,}  {cost:>9}  "
            f"{one.seconds:>5.1f} s  {one.ended}{why}"
        )
    left = len(report.results) - len(shown)
    if left:
        yield f"... and {left} more"
    yield ""


def _name(attempt: CaseResult, repeats: int) -> str:
    name = _flatten(attempt.case_id)
    name = name if len(name) <= _ID else f"{name[: _ID - 3]}..."
    return f"{name} #{attempt.repeat}" if repeats > 1 else name


def _flatten(text: str) -> str:
    """A text as a part of a line."""
    return mask_controls(" ".join(text.split()))


def format_share(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def format_dollars(amount: Decimal) -> str:
    """Money: cents where that says enough, else what is there."""
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4f}" if amount >= Decimal("0.01") else f"${amount:.6f}"
