"""Asks the evaluators about one answer. Whatever an evaluator does, the answer is a score that says what happened."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

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
from glidepath.values import LoopOutcome, RunResult, describe_error, mend_text, short_repr

if TYPE_CHECKING:
    from glidepath.agent import Agent
    from glidepath.apps.evals.cases import Case

LONG = 100_000
"""Characters of an answer from which on even a harmless pattern is searched for in its own process."""
_WHY = 4_000  # characters of a reason that are kept
_PATTERN = 5.0  # seconds that a search for a pattern may take
_AGAIN = 60.0  # seconds that an evaluator has for a run that is predicted: on a busy machine checkers need them


class JudgeDesk(Protocol):
    """Where reviewers have models asked.

    Contract: `ask` runs the judge and returns how that ended. `stop` ends the one that is running: its `ask` returns
    then, so that what it has used is known.
    """

    async def ask(self, judge: Agent, prompt: str) -> RunResult[Any]:
        """Run a judge."""
        ...

    def stop(self) -> None:
        """End the one that is running."""
        ...


async def grade(
    case: Case, result: RunResult[Any], shared: Sequence[Any], *, desk: JudgeDesk | None, seconds: float
) -> tuple[Score, ...]:
    """What every evaluator of a case says about the answer; each has this many seconds."""
    return tuple([await _ask_one(one, case, result, desk, seconds) for one in choose_evaluators(case, shared)])


async def grade_without_models(
    case: Case, result: RunResult[Any], shared: Sequence[Any], *, recorded: Sequence[Score] = ()
) -> bool:
    """Whether every evaluator passes a run that is predicted.

    What compares or is a function is asked: it may look at the calls as well. Other reviewers see the text only: they
    say what they said of the `recorded` one, and without it, nothing.
    """
    chosen = choose_evaluators(case, shared)
    if any(isinstance(one, EvaluationStrategy) for one in chosen) and len(recorded) != len(chosen):
        return False
    for place, one in enumerate(chosen):
        known = recorded[place] if isinstance(one, EvaluationStrategy) else None
        score = known or await _ask_one(one, case, result, None, _AGAIN)
        if not score.passed:
            return False
    return True


async def _ask_one(evaluator: Any, case: Case, result: RunResult[Any], desk: JudgeDesk | None, seconds: float) -> Score:
    name = name_evaluator(evaluator)
    if isinstance(evaluator, Comparison):
        return await _compare(name, evaluator, case, result, seconds)
    reviewer = evaluator if isinstance(evaluator, EvaluationStrategy) else _Function(evaluator, name, case, result)
    wanted = "" if case.expected is None else f"\n\nWhat a good answer says:\n{_as_text(case.expected)}"
    step = TeamStep(id="answer", description=f"{case.prompt}{wanted}")
    context = EvaluationContext(step=step, artifact=result.text, ask=None if desk is None else desk.ask)
    stop = None if desk is None or reviewer is not evaluator else desk.stop
    told = await review(reviewer, context, seconds=seconds, on_stop=stop)
    verdict = told.verdict
    judged = verdict.outcome is not VerdictOutcome.REVIEW_EXCEEDED
    why = "; ".join(part for part in (verdict.feedback, told.warning or "", *verdict.suggestions) if part)[:_WHY]
    return Score(
        name=name,
        passed=verdict.passed if judged else None,
        value=verdict.score if judged else 0.0,
        why="" if verdict.passed and not told.warning and not verdict.feedback else mend_text(why),
        tokens=told.usage.total,
        cost=told.cost,
    )


async def _compare(name: str, evaluator: Comparison, case: Case, result: RunResult[Any], seconds: float) -> Score:
    if result.outcome is LoopOutcome.FAILED:  # what it has said until then is not an answer
        why = "" if result.cause is None else f": {result.cause.reason}"
        return Score(name=name, passed=False, why=f"the run failed{why}")
    try:
        if isinstance(evaluator, Matches) and (evaluator.may_hang or len(result.text) > LONG):
            fault = await _search_apart(evaluator.pattern_for(case), result.text, min(seconds, _PATTERN))
        else:
            fault = evaluator.find_fault(case, result)
    except Exception as error:
        return Score(name=name, passed=None, why=f"the evaluator crashed: {describe_error(error)}")
    return Score(name=name, passed=not fault, value=0.0 if fault else 1.0, why=mend_text(fault[:_WHY]))


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
