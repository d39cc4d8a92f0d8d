"""An evaluation as a JUnit file: one test case for each attempt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from glidepath.apps.evals.eval_report import NOT_RUN
from glidepath.values import pluralize

if TYPE_CHECKING:
    from glidepath.apps.evals.eval_report import CaseResult, EvalReport

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LONGEST = 5_000


def make_junit(report: EvalReport) -> str:
    """A failure for what failed, an error for what an evaluator could not judge, a skip for what was not run."""
    rows = [_make_row(report, one) for one in report.results]
    for one in report.unusable:
        why = _attribute(f"{one.where}: {one.why}")
        rows.append(f"{_open_row(report, f'{one.id} ({one.where})', 0.0)}><error message={why}/></testcase>")
    missing = report.uncovered.get(NOT_RUN, 0)
    if missing:  # or a server would show an evaluation that was stopped as whole
        row = _open_row(report, pluralize(missing, "more attempt"), 0.0)
        rows.append(f"{row}><skipped message={_attribute(NOT_RUN)}/></testcase>")
    errors = sum("<error " in row for row in rows)
    failures = sum(one.passed is False for one in report.results)
    skipped = sum("<skipped " in row for row in rows)
    head = (
        f"<testsuite name={_attribute(report.dataset)} tests={_attribute(len(rows))} "
        f"failures={_attribute(failures)} errors={_attribute(errors)} skipped={_attribute(skipped)} "
        f"time={_attribute(f'{report.seconds:.3f}')} timestamp={_attribute(report.began.removesuffix('+00:00'))}>"
    )
    return "\n".join(
        ['<?xml version="1.0" encoding="utf-8"?>', "<testsuites>", head, *rows, "</testsuite></testsuites>\n"]
    )


def _open_row(report: EvalReport, name: str, seconds: float) -> str:
    where = f"{report.dataset}.{report.agent}"
    return f"<testcase classname={_attribute(where)} name={_attribute(name)} time={_attribute(f'{seconds:.3f}')}"


def _make_row(report: EvalReport, one: CaseResult) -> str:
    name = f"{one.case_id} #{one.repeat}" if report.repeat > 1 else one.case_id
    start = _open_row(report, name, one.seconds)
    if one.passed:
        return f"{start}/>"
    if one.passed is None:
        return f"{start}><{'error' if one.scores else 'skipped'} message={_attribute(one.why)}/></testcase>"
    text = f"prompt: {one.prompt}\nexpected: {one.expected}\nanswer: {one.text}\nended: {one.ended} {one.cause}"
    return f"{start}><failure message={_attribute(one.why)}>{_text(text)}</failure></testcase>"


def _attribute(value: object) -> str:
    return quoteattr(_clean(str(value)))


def _text(value: str) -> str:
    return escape(_clean(value))


def _clean(value: str) -> str:
    return _NOT_XML.sub("\ufffd", value[:_LONGEST])
