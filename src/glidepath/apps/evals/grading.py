"""Asks the evaluators about one answer. Whatever an evaluator does, the answer is a score that says what happened."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath.apps.evals.answer_checks import (
    Comparison,
    Matches,
    Score,
    choose_evaluators,
    name_evaluator,
    read_opinion,
    search_pattern,
)
from glidepath.teams import (
    EvaluationContext,
    EvaluationStrategy,
    EvaluationVerdict,
    TeamStep,
    VerdictOutcome,
    review,
)
from glidepath.tools import Reference, run_in_process, run_in_thread
from glidepath.values import RunResult, describe_error, short_repr

if TYPE_CHECKING:
    from glidepath.agent import Agent
    from glidepath.apps.evals.cases import Case

Ask = Callable[["Agent", str], Awaitable[RunResult[Any]]]
LONG = 100_000
"""Characters of an answer from which on even a harmless pattern is searched for in its own process."""
_PATTERN = 5.0  # seconds that a search for a pattern may take


async def grade(
    case: Case, result: RunResult[Any], shared: Sequence[Any], *, ask: Ask | None, seconds: float
) -> tuple[Score, ...]:
    """What every evaluator of a case says about the answer; each has this many seconds."""
    return tuple([await _ask_one(one, case, result, ask, seconds) for one in choose_evaluators(case, shared)])


async def grade_without_models(case: Case, result: RunResult[Any], shared: Sequence[Any]) -> bool:
    """Whether every evaluator that compares or is a function passes the answer; False when another one is asked."""
    chosen = choose_evaluators(case, shared)
    if any(isinstance(one, EvaluationStrategy) for one in chosen):
        return False
    scores = [await _ask_one(one, case, result, None, _PATTERN) for one in chosen]
    return all(one.passed for one in scores)


async def _ask_one(evaluator: Any, case: Case, result: RunResult[Any], ask: Ask | None, seconds: float) -> Score:
    name = name_evaluator(evaluator)
    if isinstance(evaluator, Comparison):
        return await _compare(name, evaluator, case, result, seconds)
    reviewer = evaluator if isinstance(evaluator, EvaluationStrategy) else _Function(evaluator, name, case, result)
    wanted = "" if case.expected is None else f"\n\nWhat a good answer says:\n{_as_text(case.expected)}"
    step = TeamStep(id="answer", description=f"{case.prompt}{wanted}")
    context = EvaluationContext(step=step, artifact=result.text, ask=ask)
    told = await review(reviewer, context, seconds=seconds)
    verdict = told.verdict
    judged = verdict.outcome is not VerdictOutcome.REVIEW_EXCEEDED
    why = "; ".join(part for part in (verdict.feedback, told.warning or "", *verdict.suggestions) if part)
    return Score(
        name=name,
        passed=verdict.passed if judged else None,
        value=verdict.score if judged else 0.0,
        why="" if verdict.passed and not told.warning and not verdict.feedback else why,
        tokens=told.usage.total,
        cost=told.cost,
    )


async def _compare(name: str, evaluator: Comparison, case: Case, result: RunResult[Any], seconds: float) -> Score:
    try:
        if isinstance(evaluator, Matches) and (evaluator.may_hang or len(result.text) > LONG):
            fault = await _search_apart(evaluator.pattern_for(case), result.text, min(seconds, _PATTERN))
        else:
            fault = evaluator.find_fault(case, result)
    except Exception as error:
        return Score(name=name, passed=None, why=f"the evaluator crashed: {describe_error(error)}")
    return Score(name=name, passed=not fault, value=0.0 if fault else 1.0, why=fault)


async def _search_apart(pattern: str, text: str, seconds: float) -> str:
    """Search where a pattern that never ends can be killed: Python searches with its one lock held."""
    job = run_in_process(Reference(search_pattern), {"pattern": pattern, "text": text}, None)
    try:
        return str(await asyncio.wait_for(job, seconds))
    except TimeoutError:
        raise ValueError(f"searching for /{pattern:.80}/ took longer than {seconds:g} s") from None


class _Function:
    """A function as a reviewer: a plain one gets a thread, so that it can neither block the others nor the end."""

    def __init__(self, call: Callable[..., Any], name: str, case: Case, result: RunResult[Any]) -> None:
        self._call = call
        self._name = name
        self._case, self._result = case, result

    async def evaluate(self, _: EvaluationContext) -> EvaluationVerdict:
        call = partial(self._call, self._case, self._result)
        if inspect.iscoroutinefunction(self._call) or inspect.iscoroutinefunction(type(self._call).__call__):
            said = await call()
        else:
            said = await run_in_thread(call, f"evaluator-{self._name}", None)
        return read_opinion(self._name, said)


def _as_text(expected: object) -> str:
    from glidepath import _wire

    try:
        return expected if isinstance(expected, str) else _wire.encode(expected).decode()
    except (TypeError, ValueError):
        return short_repr(expected)
