"""Evaluations: what share of a dataset an agent passes, what that costs, and what a smaller budget would buy."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

if TYPE_CHECKING:
    from glidepath.apps.evals import (
        Case,
        CaseResult,
        Contains,
        Curve,
        CurveMaker,
        CurvePoint,
        Dataset,
        Delivered,
        EvalComparison,
        EvalProgress,
        EvalReport,
        Exact,
        Matches,
        SameJson,
        Score,
        Unusable,
        agentdojo,
        bfcl,
        compare_reports,
        evaluate,
        tau,
    )

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

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, **{"glidepath.apps.evals": tuple(__all__)})
