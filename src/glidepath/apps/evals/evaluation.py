"""Runs a dataset: every case as often as asked, many at a time, on one budget, and each of them durable.

An evaluation that stopped, by Ctrl-C, by kill -9 or because its budget ended, continues under the same name: what is
finished is not run again, what had begun continues from its journal, and what was spent stays spent.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from math import inf
from time import monotonic
from typing import Any, TypeVar

from glidepath import _wire
from glidepath._wire import Record, Value
from glidepath.agent import Agent, Budget, Limits, find_usage
from glidepath.apps.evals.answer_checks import Score, as_evaluators, list_evaluator_names
from glidepath.apps.evals.cases import Case, Dataset
from glidepath.apps.evals.eval_journal import (
    EvalBegan,
    EvalHistory,
    EvalJournal,
    EvalPart,
    add_to_summary,
    check_eval_name,
    name_case_session,
    name_judge_session,
    now_in_utc,
    run_release,
    split_judge_session,
    sum_report,
)
from glidepath.apps.evals.eval_report import CaseResult, EvalReport
from glidepath.apps.evals.grading import grade
from glidepath.apps.evals.subjects import Answering, Errand, Subject, as_subject
from glidepath.run import Amount, CancelToken, charge_earlier, link_tokens
from glidepath.spi import SessionStore
from glidepath.values import (
    AgentState,
    ConfigurationError,
    LoopOutcome,
    RunResult,
    StoreError,
    check_int,
    check_seconds,
    dollars,
    mend_text,
    pico_of,
    short_repr,
)

T = TypeVar("T")
EVALUATOR_SECONDS = 60.0
CONCURRENCY = 8
_TEXT, _PROMPT = 20_000, 4_000
"""Characters of an answer and of a prompt that a report keeps; the session has all of them."""
_SHOW_SECONDS = 1.0
_MOST_AT_ONCE, _MOST_REPEATS = 10_000, 1_000
BUDGET_ENDED = "the budget of the evaluation ended"
_SHARED_CAUSES = {AgentState.BUDGET_EXCEEDED: ("max_tokens", "max_cost"), AgentState.TIMED_OUT: ("timeout",)}


class EvalProgress(Value, frozen=True, kw_only=True):
    """How far an evaluation has come."""

    done: int
    planned: int
    passed: int
    failed: int
    uncovered: int
    tokens: int
    cost: Decimal | None


async def evaluate(
    dataset: Dataset | Sequence[Case] | str | os.PathLike[str],
    agent: Answering,
    *,
    evaluators: Sequence[Any] | str | Callable[..., object] = (),
    repeat: int = 1,
    concurrency: int = CONCURRENCY,
    budget: Budget | Limits | None = None,
    limits: Limits | None = None,
    deps: object = None,
    store: SessionStore | None = None,
    name: str | None = None,
    evaluator_seconds: float = EVALUATOR_SECONDS,
    progress: Callable[[EvalProgress], object] | None = None,
    cancel: CancelToken | None = None,
    source: Mapping[str, str] | None = None,
) -> EvalReport:
    """Try an agent on every case of a dataset; raises `ConfigurationError` before the first run.

    `agent` is an `Agent`, or a function that is given a case and makes one. All runs and judges together spend from
    `budget`; `limits` are for each run, instead of the agent's own. With a `store` (by default the agent's) every case
    is a durable run, and the same `name` continues an evaluation there. `cancel` stops it: the report says what is
    missing.
    """
    if not isinstance(dataset, Dataset):
        dataset = Dataset.load(dataset) if isinstance(dataset, str | os.PathLike) else Dataset(dataset)
    store = store if store is not None else getattr(getattr(agent, "config", agent), "store", None)
    check_int("evaluate.repeat", repeat, most=_MOST_REPEATS, required=True)
    check_int("evaluate.concurrency", concurrency, most=_MOST_AT_ONCE, required=True)
    check_seconds("evaluate.evaluator_seconds", evaluator_seconds, required=True)
    if budget is not None and not isinstance(budget, Budget | Limits):
        raise ConfigurationError(f"evaluate.budget must be a Budget or Limits, not {short_repr(budget, 80)}")
    named = check_eval_name(make_eval_name(dataset.name) if name is None else name)
    subject = as_subject(agent, store=store, limits=limits, deps=deps)
    shared = (*dataset.evaluators, *as_evaluators("evaluate.evaluators", evaluators or ()))
    token, let_go = link_tokens(cancel)
    terms = EvalTerms(
        name=named,
        repeat=repeat,
        store=store,
        budget=Budget(budget) if isinstance(budget, Limits) else budget,
        is_own_budget=isinstance(budget, Limits),
        evaluator_seconds=float(evaluator_seconds),
        token=token,
    )
    evaluation = Evaluation(dataset, subject, shared, terms)
    try:
        return await evaluation.run(concurrency, progress, dict(source or {}))
    finally:
        let_go()


def make_eval_name(dataset: str) -> str:
    """A name that no other evaluation has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset).strip("-._")[:60] or "evaluation"
    return f"{plain}-{os.urandom(3).hex()}"


async def run_together(
    items: Iterable[T], act: Callable[[T], Awaitable[None]], *, at_once: int, stop: CancelToken
) -> None:
    """Act on every item, so many at a time, in their order; none is begun once the token is cancelled.

    The first error stops what is running and is raised.
    """
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            if stop.cancelled:
                return
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


class EvalTerms(Record, kw_only=True):
    """How one stretch of an evaluation is run."""

    name: str
    repeat: int
    store: SessionStore | None
    budget: Budget | None
    is_own_budget: bool
    """True when it was made for this evaluation: what earlier parts have spent is not in it yet."""
    evaluator_seconds: float
    token: CancelToken


class Evaluation:
    """One stretch of an evaluation in this process."""

    def __init__(self, dataset: Dataset, subject: Subject, evaluators: Sequence[Any], terms: EvalTerms) -> None:
        self.dataset, self.subject, self.evaluators = dataset, subject, evaluators
        self.name, self.repeat, self.store = terms.name, terms.repeat, terms.store
        self.token, self.budget = terms.token, terms.budget
        self._is_own_budget = terms.is_own_budget
        self._evaluator_seconds = terms.evaluator_seconds
        self._places = {case.id: place for place, case in enumerate(dataset.cases)}
        self.history = EvalHistory()
        self.journal: EvalJournal | None = None
        self._begun: frozenset[str] = frozenset()
        self._summary: Mapping[str, Any] = {}
        """What lists show of it."""
        self._shown = -inf

    async def run(
        self, concurrency: int, progress: Callable[[EvalProgress], object] | None, source: Mapping[str, str]
    ) -> EvalReport:
        """Run what is not finished, and report on everything."""
        if self.store is not None:
            self.journal, self.history = await EvalJournal.open(self.store, self.name)
            self.journal.on_stop = self.token.cancel
        before = self.history.seconds
        started = monotonic()
        ended = False
        try:
            await self._begin(source)
            open_ = [
                (case, number)
                for number in range(1, self.repeat + 1)
                for case in self.dataset.cases
                if self._is_open(case, number)
            ]
            count = _Counter(self, progress)

            async def act(item: tuple[Case, int]) -> None:
                attempt = await self._try(*item)
                if attempt is not None:
                    await self._keep(attempt)
                    count.report(attempt)

            await run_together(open_, act, at_once=concurrency, stop=self.token)
            ended = True
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            seconds = monotonic() - started
            self.history.seconds = before + seconds
            await self._end(seconds, ended=ended)
        return self.history.make_report()

    # --- beginning and end ------------------------------------------------------------------------------------

    async def _begin(self, source: Mapping[str, str]) -> None:
        earlier, dataset = self.history.began, self.dataset
        if earlier is not None:
            _refuse_changes(earlier, dataset, self.subject)
            self._refuse_other_evaluators()
            self.repeat = max(self.repeat, earlier.repeat)
            if self.budget is None and earlier.limits:  # what bounded it still bounds it
                self.budget, self._is_own_budget = Budget(_read_limits(earlier.limits)), True
            await self._find_begun()
        limits = {} if self.budget is None else _describe_limits(self.budget.limits)
        began = EvalBegan(
            name=self.name,
            dataset=dataset.name,
            digest=dataset.digest,
            agent=self.subject.name,
            fingerprint=self.subject.fingerprint,
            cases=len(dataset.cases),
            repeat=self.repeat,
            began=now_in_utc().isoformat(timespec="seconds") if earlier is None else earlier.began,
            unusable=dataset.unusable,
            limits=limits,
            source=source or ({} if earlier is None else earlier.source),
        )
        self.history.began = began
        if self.journal is not None:
            self._summary = sum_report(self.history.make_report(), ended=False)
            await self.journal.write("evaluation", began, self._summary)

    def _refuse_other_evaluators(self) -> None:
        """Refuse evaluators that are not those of the results that stand."""
        cases = {case.id: case for case in self.dataset.cases}
        for one in self.history.results.values():
            if one.open or not one.scores:
                continue
            before = [score.name for score in one.scores]
            now = list_evaluator_names(cases[one.case_id], self.evaluators)
            if before != now:
                raise ConfigurationError(
                    f"evaluation {self.name!r:.80} has judged case {one.case_id!r:.60} with {', '.join(before)}, not "
                    f"{', '.join(now)}: mixed results would say nothing; give this one another name"
                )

    async def _find_begun(self) -> None:
        """The sessions that are there already; and charge what they have spent, as far as it was never reported."""
        store = self.store
        assert store is not None  # noqa: S101 - there is no history without one
        results = self.history.results.values()
        finished = {one.session_id for one in results if not one.open}
        tries = {
            name_case_session(self.name, case_id, number): count
            for (case_id, number), count in self.history.tries.items()
        }
        begun, tokens, money, disputed = set(), 0, 0, Amount()
        for one in results:
            tokens, money = tokens + one.all_tokens, money + pico_of(one.all_cost)
            if one.session_id is not None and one.open:  # its session says what the run has used until now
                tokens, money = tokens - one.tokens, money - pico_of(one.cost)
        for entry in await store.entries(f"{self.name}/"):
            if entry.summary.get("parent") or not entry.head:
                continue
            begun.add(entry.session_id)
            judged = split_judge_session(entry.session_id)
            if entry.session_id in finished or (judged is not None and judged[1] <= tries.get(judged[0], 0)):
                continue
            used = await find_usage(store, entry.session_id)
            if used is not None:
                tokens, money = tokens + used.tokens, money + used.picodollars
                disputed = disputed + Amount(*used.disputed)
        self._begun = frozenset(begun)
        if self._is_own_budget and self.budget is not None:
            charge_earlier(self.budget.meter, Amount(tokens, money), disputed)

    async def _end(self, seconds: float, *, ended: bool) -> None:
        """Write that this part is over; when an error has ended it, that error is the one to tell."""
        journal = self.journal
        if journal is None:
            return
        try:
            if self.history.began is not None:
                report = self.history.make_report()
                await journal.write("part", EvalPart(seconds=seconds), sum_report(report, ended=True))
        except StoreError:
            if ended and not journal.broken:
                raise
        finally:
            await run_release(journal)

    # --- one case ---------------------------------------------------------------------------------------------

    def _is_open(self, case: Case, number: int) -> bool:
        known = self.history.results.get((case.id, number))
        return known is None or known.open

    async def _keep(self, attempt: CaseResult) -> None:
        key = attempt.case_id, attempt.repeat
        before = self.history.results.get(key)
        self.history.results[key] = attempt
        if self.journal is not None:
            self._summary = add_to_summary(self._summary, attempt, before)
            await self.journal.write("attempt", attempt, self._summary if self._is_time_to_show() else None)

    def _is_time_to_show(self) -> bool:
        """True once a second: to write the summary with each of many quick cases costs more than it says."""
        now = asyncio.get_running_loop().time()
        if now - self._shown < _SHOW_SECONDS:
            return False
        self._shown = now
        return True

    async def _try(self, case: Case, number: int) -> CaseResult | None:
        """Run a case and judge its answer; None when the evaluation was stopped meanwhile."""
        session = None if self.store is None else name_case_session(self.name, case.id, number)
        errand = Errand(session_id=session, begun=session in self._begun, budget=self.budget, cancel=self.token)
        try:
            result = await self.subject.answer(case, errand)
        except (ConfigurationError, StoreError) as error:
            why = f"the run could not be made: {error}"
            return self._make_attempt(case, number, None, passed=None, why=why, open_=True, session=session)
        if result.outcome is LoopOutcome.CANCELLED and self.token.cancelled:
            return None
        passed, why = None, self._find_gap(case, result)
        scores: tuple[Score, ...] = ()
        if not why:
            desk = _JudgeDesk(self, session, self.history.tries.get((case.id, number), 0))
            scores = await grade(case, result, self.evaluators, desk=desk, seconds=self._evaluator_seconds)
            passed, why = _sum_scores(scores)
            if passed is None and self.token.cancelled:
                return None
        return self._make_attempt(
            case, number, result, passed=passed, why=why, scores=scores, open_=passed is None, session=session
        )

    def _make_attempt(self, case: Case, number: int, *given: Any, **more: Any) -> CaseResult:
        made = _wire.replace(_make_attempt(case, number, *given, **more), place=self._places[case.id])
        before = self.history.results.get((case.id, number))
        return made if before is None else _add_earlier(made, before)

    def _find_gap(self, case: Case, result: RunResult[Any]) -> str:
        """Why the answer says nothing about the agent; empty when it does."""
        if result.outcome is LoopOutcome.PAUSED:
            return "a person has to decide about a call"
        if self.budget is None or result.cause is None or result.state not in _SHARED_CAUSES:
            return ""
        if result.cause.source == "budget":  # the gate's word for what is above a run
            return BUDGET_ENDED
        own = self.subject.limit_of(case)
        for name in _SHARED_CAUSES[result.state]:
            shared = getattr(self.budget.limits, name)
            mine = getattr(own, name)
            if shared is not None and (mine is None or not _is_limit(result, mine)) and _names(result, name):
                return BUDGET_ENDED
        return BUDGET_ENDED if self.budget.line and not _has_own_limit(own, result.state) else ""


class _JudgeDesk:
    """Asks models as judges: on the budget of the evaluation, each in its own session."""

    def __init__(self, evaluation: Evaluation, session: str | None, tries: int) -> None:
        self._evaluation = evaluation
        self._session = session
        self._tries = tries
        self._asked = 0
        self._token = CancelToken()

    async def ask(self, judge: Agent, prompt: str) -> RunResult[Any]:
        """Run the judge; one that had begun when the process died continues."""
        self._asked += 1
        self._token, let_go = link_tokens(self._evaluation.token)
        try:
            return await self._run(judge, prompt)
        finally:
            let_go()

    def stop(self) -> None:
        """End the judge that is running, with a result that says what it has used."""
        self._token.cancel("its time is up")

    async def _run(self, judge: Agent, prompt: str) -> RunResult[Any]:
        evaluation, store = self._evaluation, self._evaluation.store
        options: dict[str, Any] = {"parent": evaluation.budget, "cancel": self._token}
        if store is None or self._session is None:
            return await judge.run(prompt, **options)
        judge = judge if judge.config.store is store else judge.replace(store=store)
        session = name_judge_session(self._session, self._tries + 1, self._asked)
        if session in evaluation._begun:  # noqa: SLF001 - a part of it
            return await judge.resume(session, **options)
        return await judge.run(prompt, session=session, **options)


class _Counter:
    """Counts what is finished, for the line that shows it."""

    def __init__(self, evaluation: Evaluation, progress: Callable[[EvalProgress], object] | None) -> None:
        self._evaluation = evaluation
        self._progress = progress
        known = [one for one in evaluation.history.results.values() if not one.open]
        self._said = {True: 0, False: 0, None: 0}
        self._tokens, self._cost = 0, Decimal(0)
        self._priced = False
        for one in known:
            self._count(one)

    def report(self, attempt: CaseResult) -> None:
        """One more is finished."""
        self._count(attempt)
        if self._progress is None:
            return
        said = self._said
        evaluation = self._evaluation
        self._progress(
            EvalProgress(
                done=sum(said.values()),
                planned=len(evaluation.dataset.cases) * evaluation.repeat,
                passed=said[True],
                failed=said[False],
                uncovered=said[None],
                tokens=self._tokens,
                cost=self._cost if self._priced else None,
            )
        )

    def _count(self, attempt: CaseResult) -> None:
        self._said[attempt.passed] += 1
        self._tokens += attempt.all_tokens
        cost = attempt.all_cost
        if cost is not None:
            self._cost, self._priced = self._cost + cost, True


# --- small things -------------------------------------------------------------------------------------------------


def _refuse_changes(earlier: EvalBegan, dataset: Dataset, subject: Subject) -> None:
    if earlier.digest != dataset.digest:
        raise ConfigurationError(
            f"evaluation {earlier.name!r:.80} began with other cases, or other evaluators of them: its dataset "
            f"{earlier.dataset!r:.80} had {earlier.cases}; give this one another name"
        )
    if (earlier.agent, earlier.fingerprint) != (subject.name, subject.fingerprint):
        raise ConfigurationError(
            f"evaluation {earlier.name!r:.80} began with another agent, or with other settings of it: mixed results "
            "would say nothing; give this one another name and compare the two"
        )


def _describe_limits(limits: Limits) -> dict[str, str]:
    given, usual = _wire.asdict(limits), _wire.asdict(Limits())
    return {name: str(value) for name, value in given.items() if value is not None and value != usual[name]}


def _read_limits(described: Mapping[str, str]) -> Limits:
    """The limits that `_describe_limits` has described."""
    fields: dict[str, Any] = {name: int(value) if value.isdecimal() else value for name, value in described.items()}
    return Limits(**fields)


def _add_earlier(made: CaseResult, before: CaseResult) -> CaseResult:
    """The attempt with what the one before it has used, where its own figures do not have that.

    A run that continues counts on; a run without a session, such as a program, begins again.
    """
    kept = before.session_id is not None
    tokens = before.all_tokens - (before.tokens if kept else 0)
    cost = pico_of(before.all_cost) - (pico_of(before.cost) if kept else 0)
    if not tokens and not cost:
        return made
    return _wire.replace(made, earlier_tokens=tokens, earlier_cost=dollars(cost) if cost else None)


def _sum_scores(scores: Sequence[Score]) -> tuple[bool | None, str]:
    """Whether the case passes: when every evaluator says so. One that fails it is enough, whatever others do."""
    failed = [one for one in scores if one.passed is False]
    silent = [one for one in scores if one.passed is None]
    if failed:
        return False, "; ".join(f"{one.name}: {one.why or f'score {one.value:g}'}" for one in failed)
    if silent:
        return None, f"evaluator {silent[0].name} could not say: {silent[0].why}"
    return True, ""


def _is_limit(result: RunResult[Any], limit: object) -> bool:
    """True when the run's cause names this limit."""
    found = {} if result.cause is None else result.cause.metrics
    return str(found.get("limit")) == str(limit)


def _names(result: RunResult[Any], limit: str) -> bool:
    """True when the cause is about this kind of limit."""
    word = {"max_tokens": "Token", "max_cost": "Cost", "timeout": ""}[limit]
    return result.cause is not None and word in result.cause.source


def _has_own_limit(own: Limits, state: AgentState) -> bool:
    return any(getattr(own, name) is not None for name in _SHARED_CAUSES[state])


def _make_attempt(
    case: Case,
    number: int,
    result: RunResult[Any] | None,
    *,
    passed: bool | None,
    why: str,
    open_: bool,
    session: str | None,
    scores: tuple[Score, ...] = (),
) -> CaseResult:
    expected = case.expected
    shown = "" if expected is None else expected if isinstance(expected, str) else short_repr(expected, _PROMPT)
    attempt = CaseResult(
        case_id=case.id,
        repeat=number,
        passed=passed,
        why=mend_text(why),
        prompt=case.prompt[:_PROMPT],
        expected=mend_text(shown[:_PROMPT]),
        scores=scores,
        session_id=session,
        open=open_,
    )
    if result is None:
        return attempt
    return _wire.replace(
        attempt,
        session_id=session if result.session_id == session else None,  # a program has none
        text=result.text[:_TEXT],
        state=result.state.value,
        outcome=result.outcome.value,
        cause="" if result.cause is None else f"{result.cause.source}: {result.cause.reason}",
        turns=result.all_turns,
        tool_calls=result.all_tool_calls,
        tokens=result.usage.total,
        cost=result.cost,
        seconds=result.elapsed,
        run_id=result.run_id,
    )
