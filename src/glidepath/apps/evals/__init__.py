"""Evaluations: what share of a dataset an agent passes, what that costs, and what a smaller budget would buy."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

if TYPE_CHECKING:
    from glidepath.apps.evals.answer_checks import Contains, Delivered, Exact, Matches, SameJson, Score
    from glidepath.apps.evals.benchmarks import agentdojo, bfcl, tau
    from glidepath.apps.evals.cases import Case, Dataset, Unusable
    from glidepath.apps.evals.comparison import EvalComparison, compare_reports
    from glidepath.apps.evals.curve import CurveMaker
    from glidepath.apps.evals.eval_report import CaseResult, Curve, CurvePoint, EvalReport
    from glidepath.apps.evals.evaluation import EvalProgress, evaluate

__all__ = [
    "Case",
    "CaseResult",
    "Contains",
    "Curve",
    "CurveMaker",
    "CurvePoint",
    "Dataset",
    "Delivered",
    "EvalComparison",
    "EvalProgress",
    "EvalReport",
    "Exact",
    "Matches",
    "SameJson",
    "Score",
    "Unusable",
    "agentdojo",
    "bfcl",
    "compare_reports",
    "evaluate",
    "tau",
]

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.evals.answer_checks import NAMED as NAMED
    from glidepath.apps.evals.curve import LIMITS as LIMITS
    from glidepath.apps.evals.eval_journal import (
        list_evaluations as list_evaluations,
        read_history as read_history,
        read_report as read_report,
        sum_report as sum_report,
    )
    from glidepath.apps.evals.evaluation import make_eval_name as make_eval_name
    from glidepath.apps.evals.report_text import format_dollars as format_dollars, format_share as format_share
    from glidepath.apps.evals.subjects import Errand as Errand

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(
        __name__,
        benchmarks=("agentdojo", "bfcl", "tau"),
        cases=("Case", "Dataset", "Unusable"),
        comparison=("EvalComparison", "compare_reports"),
        curve=("LIMITS", "CurveMaker"),
        eval_journal=("list_evaluations", "read_history", "read_report", "sum_report"),
        eval_report=("CaseResult", "Curve", "CurvePoint", "EvalReport"),
        evaluation=("EvalProgress", "evaluate", "make_eval_name"),
        answer_checks=("NAMED", "Contains", "Delivered", "Exact", "Matches", "SameJson", "Score"),
        subjects=("Errand",),
        report_text=("format_dollars", "format_share"),
    )
