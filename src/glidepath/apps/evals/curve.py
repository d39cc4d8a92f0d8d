"""How much budget buys how much success: pass rate and cost at smaller budgets, from the journals of one evaluation.

Each run of a generous evaluation is repeated under each smaller limit, with its recorded replies and results and
the real kernel (`RecordedRun`). Where it is not landed, it is the run that would have happened: its verdict and its
figures stand. Where it is landed, the answer is assumed and judged by those evaluators that need no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, replace
from glidepath.agent import Limits
from glidepath.apps.evals.answer_checks import as_evaluators, list_evaluator_names
from glidepath.apps.evals.cases import Case, Dataset
from glidepath.apps.evals.eval_journal import add_curve, read_history, split_judge_session
from glidepath.apps.evals.eval_report import CaseResult, Curve, CurvePoint, EvalReport
from glidepath.apps.evals.evaluation import evaluate
from glidepath.apps.evals.grading import grade_without_models
from glidepath.apps.evals.subjects import AgentSubject, Answering, as_subject
from glidepath.run import CancelToken
from glidepath.spi import SessionQuery
from glidepath.testing import RecordedRun, choose_values, flown_runs
from glidepath.values import ConfigurationError, LoopOutcome, RunResult, StoreError, pico_of

if TYPE_CHECKING:
    from glidepath.spi import SessionStore

LIMITS = ("max_cost", "max_tokens", "max_iterations", "max_tool_calls")
POINTS = 20
_MOST_DOUBLINGS = 12


class _Recorded(Record, kw_only=True):
    """One covered result of the generous evaluation, and its run."""

    case: Case
    result: CaseResult
    run: RecordedRun
    limits: Limits


class _Fate(Record, kw_only=True):
    """The result of one run under one limit."""

    passed: bool
    landed: bool
    shortened: bool = False
    text: str
    tokens: int
    money: int | None


class CurveMaker:
    """Predicts what smaller limits for each run would have done to an evaluation, and tries them."""

    def __init__(
        self,
        dataset: Dataset,
        agent: Answering,
        store: SessionStore,
        name: str,
        *,
        by: str = "max_cost",
        evaluators: Sequence[Any] = (),
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        if by not in LIMITS:
            raise ConfigurationError(f"the curve can be made by {', '.join(LIMITS)}, not by {by!r:.40}")
        subject = as_subject(agent, store=store, limits=None, deps=None)
        if not isinstance(subject, AgentSubject):
            raise ConfigurationError("a curve needs an Agent, or a function that makes one: only these can be replayed")
        self._dataset, self._subject, self._store, self._name = dataset, subject, store, name
        self._by = by
        self._given = as_evaluators("evaluators", evaluators or ())
        self._shared = (*dataset.evaluators, *self._given)
        self._progress = progress or (lambda *_: None)

    async def make(
        self, *, rerun: bool = False, values: Sequence[Any] = (), points: int = POINTS, concurrency: int = 8
    ) -> EvalReport:
        """The report with its curve, which is written into the journal.

        Without `values` it goes from a limit below every run's use to one that holds no run back, in about so many
        `points`. `rerun` tries every value with real runs.
        """
        try:
            history = await read_history(self._store, self._name)
        except StoreError as error:
            if error.kind != "missing":
                raise
            raise ConfigurationError(f"there is no evaluation {self._name!r:.80} in {self._store!r:.80}") from None
        if history.began is None or history.began.digest != self._dataset.digest:
            raise ConfigurationError(f"evaluation {self._name!r:.80} began with other cases than this dataset has")
        recorded, left_out = await self._read_runs(history.make_report())
        if not recorded:
            told = ", ".join(f"{count} x {why}" for why, count in left_out.items()) or "nothing is covered"
            raise ConfigurationError(f"nothing in evaluation {self._name!r:.80} can be predicted: {told}")
        values = list(values) or await self._choose_values(recorded, points)
        made, fates = [], {}
        for number, value in enumerate(values):
            self._progress(number, len(values))
            fates[value] = [await self._predict(one, value) for one in recorded]
            made.append(_sum_fates(value, fates[value]))
        if rerun:
            for number, value in enumerate(values):
                self._progress(number, len(values))
                made[number] = await self._try(made[number], value, recorded, fates[value], concurrency)
        curve = Curve(by=self._by, points=tuple(made), runs=len(recorded), left_out=left_out)
        return await add_curve(self._store, self._name, curve)

    async def _read_runs(self, report: EvalReport) -> tuple[list[_Recorded], Mapping[str, int]]:
        cases = {case.id: case for case in self._dataset.cases}
        found, left_out = [], Counter[str]()
        for one in report.results:
            case = cases.get(one.case_id)
            if one.passed is None or one.session_id is None or case is None:
                left_out["it is not covered"] += 1
                continue
            judged = [score.name for score in one.scores]
            if judged != list_evaluator_names(case, self._shared):
                left_out[f"it was judged by {', '.join(judged)}: name the same evaluators"] += 1
                continue
            agent = self._subject.agent_for(case)
            try:
                run = await RecordedRun.read(agent, self._store, one.session_id)
            except (ConfigurationError, StoreError) as error:
                left_out[str(error)] += 1
            else:
                found.append(_Recorded(case=case, result=one, run=run, limits=agent.config.limits))
        return found, dict(left_out.most_common())

    async def _choose_values(self, recorded: Sequence[_Recorded], points: int) -> list[Any]:
        """From half of what the smallest run used to what holds no run back: a landing is kept free above its use."""
        flown, _ = await flown_runs(self._store, SessionQuery(prefix=f"{self._name}/"))
        runs = [one for one in flown if split_judge_session(one.session_id) is None]
        values = choose_values(runs, self._by, steps=points)
        if not values:
            raise ConfigurationError(f"no run of evaluation {self._name!r:.80} says what it needs of {self._by}")
        low, high = values[0], values[-1]
        for _ in range(_MOST_DOUBLINGS):
            if not any([(await self._predict(one, high)).landed for one in recorded]):
                break
            high *= 2
        return values if high == values[-1] else spread_values(low, high, points)

    async def _predict(self, one: _Recorded, value: Any) -> _Fate:
        try:
            result, shortened = await one.run.fly(lower_limit(one.limits, self._by, value))
        except ConfigurationError:  # it could never hold one call: there would be no run
            return _Fate(passed=False, landed=True, text="", tokens=0, money=None)
        recorded = one.result
        if not _is_landed(result) and result.outcome.value == recorded.outcome:
            return _Fate(
                passed=bool(recorded.passed),
                landed=False,
                shortened=shortened,
                text=recorded.text,
                tokens=result.usage.total,
                money=None if result.cost is None else pico_of(result.cost),
            )
        scores = recorded.scores if result.text == one.run.result.text else ()
        passed = await grade_without_models(one.case, result, self._shared, recorded=scores)
        money = None if result.cost is None else pico_of(result.cost)
        return _Fate(passed=passed, landed=True, text=result.text, tokens=result.usage.total, money=money)

    async def _try(
        self, point: CurvePoint, value: Any, recorded: Sequence[_Recorded], fates: Sequence[_Fate], concurrency: int
    ) -> CurvePoint:
        """Run every case again with this limit, and compare each run with its prediction."""
        subject, by = self._subject, self._by

        def make(case: Case) -> Any:
            agent = subject.agent_for(case)
            return agent.replace(limits=lower_limit(agent.config.limits, by, value), store=None)

        repeats = max(one.result.repeat for one in recorded)
        plain = Dataset(
            [replace(case, agent=None) for case in self._dataset.cases],
            name=self._dataset.name,
            evaluators=self._dataset.evaluators,
        )
        again = {case.id: case for case in self._dataset.cases}
        report = await evaluate(
            plain,
            lambda case: make(again[case.id]),
            evaluators=self._given,
            repeat=repeats,
            concurrency=concurrency,
            cancel=CancelToken(),
        )
        real = {(one.case_id, one.repeat): one for one in report.results}
        pairs = [(fate, real[one.result.case_id, one.result.repeat]) for one, fate in zip(recorded, fates, strict=True)]
        touched = [(fate, one) for fate, one in pairs if fate.landed or fate.shortened]
        costs = [one.cost for _, one in pairs if one.cost is not None]
        return replace(
            point,
            real_passed=sum(one.passed is True for _, one in pairs),
            real_tokens=sum(one.tokens for _, one in pairs),
            real_cost=sum(costs, Decimal(0)) if costs else None,
            real_landed=sum(_is_landed_result(one) for _, one in pairs),
            other_landings=sum(fate.text != one.text for fate, one in touched),
            wrong=sum(_is_wrong(fate, one) for fate, one in pairs),
        )


def spread_values(low: Decimal | int, high: Decimal | int, points: int) -> list[Any]:
    """Values from low to high, each larger than the one before by the same factor; whole numbers between whole ones."""
    step = (float(high) / float(low)) ** (1 / max(1, points - 1))
    found = [float(low) * step**number for number in range(points - 1)]
    if isinstance(low, int):
        return sorted({round(one) for one in found} | {high})
    return sorted({Decimal(f"{one:.4g}") for one in found} | {high})


def lower_limit(limits: Limits, by: str, value: Any) -> Limits:
    """These limits with one of them lowered to a value; a limit that is lower already stays."""
    own = getattr(limits, by)
    given = str(value) if by == "max_cost" else value
    lower = own is None or Decimal(str(value)) < Decimal(str(own))
    return replace(limits, **{by: given}) if lower else limits


def _is_landed(result: RunResult[Any]) -> bool:
    """True when a limit had a part in how the run ended: its answer may be another one then."""
    return result.outcome not in (LoopOutcome.DONE, LoopOutcome.FAILED)


def _is_landed_result(one: CaseResult) -> bool:
    return one.outcome not in (LoopOutcome.DONE.value, LoopOutcome.FAILED.value)


def _is_wrong(fate: _Fate, one: CaseResult) -> bool:
    """True when a run does not fit its prediction, and it is not the limit that has changed what the model saw."""
    if fate.landed != _is_landed_result(one):
        return True
    if fate.landed or fate.shortened:
        return False
    money = None if one.cost is None else pico_of(one.cost)
    return (fate.passed, fate.text, fate.tokens, fate.money) != (one.passed, one.text, one.tokens, money)


def _sum_fates(value: object, fates: Sequence[_Fate]) -> CurvePoint:
    from glidepath.values import dollars

    money = [one.money for one in fates if one.money is not None]
    return CurvePoint(
        limit=str(value),
        passed=sum(one.passed for one in fates),
        covered=len(fates),
        tokens=sum(one.tokens for one in fates),
        cost=dollars(sum(money)) if money else None,
        landed=sum(one.landed for one in fates),
    )
