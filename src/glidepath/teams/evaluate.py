"""Reviewers: a rubric, a judge, the choice between them, and a wrapper that no reviewer can break."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from glidepath._wire import Value, replace
from glidepath.agent import Agent
from glidepath.teams.answers import objects_in
from glidepath.teams.money_spent import add_cost
from glidepath.teams.step_run import make_refusal
from glidepath.teams.supervise import call_contained, stop_all
from glidepath.teams.team_prompts import judge_prompt
from glidepath.teams.values import (
    EvaluationContext,
    EvaluationVerdict,
    EvaluatorPreference,
    RiskProfile,
    TeamConfig,
    VerdictOutcome,
    check_fields,
    check_kind,
    check_text,
)
from glidepath.tools import clean
from glidepath.values import (
    ConfigurationError,
    LoopOutcome,
    RunResult,
    Usage,
    check_int,
    check_text as check_any_text,
    describe_error,
    log_raised,
    short_repr,
)

if TYPE_CHECKING:
    from glidepath.teams.spi import EvaluationStrategy

Ask: TypeAlias = Callable[[Agent, str], Awaitable[RunResult]]
PATIENCE = 1.0  # seconds a reviewer has to obey a cancellation


class SimpleEvaluationStrategy(Value, frozen=True, kw_only=True):
    """A rubric without a model: pure, immediate, and the same verdict for the same artifact.

    All criteria count the same; the score is the share that is met, and PASS needs `pass_score`. A blank artifact is
    always REVISE. Without criteria any artifact that is not blank passes.
    """

    required: tuple[str, ...] = ()
    """Texts that must occur, ignoring case."""
    forbidden: tuple[str, ...] = ()
    """Texts that must not occur."""
    min_words: int | None = None
    max_words: int | None = None
    pass_score: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, required=[str], forbidden=[str], min_words=check_int, max_words=check_int)
        for name in ("required", "forbidden"):
            for text in getattr(self, name):
                check_text(f"SimpleEvaluationStrategy.{name}[...]", text)
        score = self.pass_score
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 < score <= 1:
            raise ConfigurationError(
                f"SimpleEvaluationStrategy.pass_score must be a number above 0, at most 1, not {score!r:.80}"
            )

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Apply the rubric."""
        return self.judge(context)

    def judge(self, context: EvaluationContext) -> EvaluationVerdict:
        """The same without waiting."""
        artifact = context.artifact
        if not artifact.strip():
            return EvaluationVerdict(outcome=VerdictOutcome.REVISE, feedback="The result is blank.")
        lower, words = artifact.casefold(), len(artifact.split())
        unmet = [f"Say something about {text!r}." for text in self.required if text.casefold() not in lower]
        unmet += [f"Remove {text!r}." for text in self.forbidden if text.casefold() in lower]
        if self.min_words is not None and words < self.min_words:
            unmet.append(f"Write at least {self.min_words} words; there are {words}.")
        if self.max_words is not None and words > self.max_words:
            unmet.append(f"Write at most {self.max_words} words; there are {words}.")
        criteria = len(self.required) + len(self.forbidden)
        criteria += (self.min_words is not None) + (self.max_words is not None)
        score = 1.0 if not criteria else (criteria - len(unmet)) / criteria
        passed = score >= self.pass_score
        return EvaluationVerdict(
            outcome=VerdictOutcome.PASS if passed else VerdictOutcome.REVISE,
            score=score,
            feedback="" if not unmet else f"{len(unmet)} of {criteria} criteria are not met.",
            suggestions=tuple(unmet),
        )


class Judgement(Value, frozen=True, kw_only=True):
    """The form of a judge's answer, which providers can enforce. Its text is read tolerantly."""

    verdict: str
    score: float | str | None = None
    feedback: str = ""
    suggestions: tuple[str, ...] | str = ()


class AgentEvaluationStrategy:
    """A judge: an agent that answers with a verdict as JSON. The team pays for it.

    The form of the answer is the `output_type` of its runs, unless the agent sets one itself: providers that can
    enforce it do, others are asked once more. The answer is read tolerantly: prose and fences around the JSON, the
    verdict in any case, a score in percent. An unreadable answer raises, which the coordinator treats as
    REVIEW_EXCEEDED.
    """

    def __init__(self, agent: Agent, *, rubric: str = "") -> None:
        check_kind("AgentEvaluationStrategy.agent", agent, Agent)
        check_any_text("AgentEvaluationStrategy.rubric", rubric)
        self.agent = agent
        self.rubric = rubric
        bound = agent.config.output_type is not None
        self._judge = agent if bound else Agent(replace(agent.config, output_type=Judgement))

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Ask the judge."""
        if not context.artifact.strip():
            return EvaluationVerdict(outcome=VerdictOutcome.REVISE, feedback="The result is blank.")
        prompt = judge_prompt(context, self.rubric)
        ask = context.ask
        result = await (self._judge.run(prompt) if ask is None else ask(self._judge, prompt))
        formless = result.cause is not None and result.cause.source == "output_type"  # it may still be readable
        if result.outcome not in (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP) and not formless:
            why = f": {result.cause.reason}" if result.cause is not None else ""
            raise ValueError(f"the judge ended {result.state.name}/{result.outcome.name}{why}")
        return read_verdict(result.text)


_WORDS = {
    **{outcome.value: outcome for outcome in VerdictOutcome},
    **dict.fromkeys(("passed", "accept", "approved"), VerdictOutcome.PASS),
    **dict.fromkeys(("revision", "reject", "rejected", "fail"), VerdictOutcome.REVISE),
}
_FULL_MARKS = 100


def read_verdict(text: str) -> EvaluationVerdict:
    """The verdict in a judge's answer; raises ValueError if it has no verdict, or a score out of range.

    A judge may quote the work, and the work may pretend to be a verdict: when there are several, they must agree.
    """
    objects = list(objects_in(text))
    if not objects:
        raise ValueError("the judge answered without a JSON object")
    found = [each for each in objects if "verdict" in each or "outcome" in each] or objects[:1]
    outcomes = {_outcome(each) for each in found}
    if len(outcomes) > 1:
        raise ValueError(f"the judge gave {len(found)} verdicts that do not agree")
    return _verdict(found[-1], outcomes.pop())


def _outcome(found: dict[str, Any]) -> VerdictOutcome:
    word = str(found.get("verdict", found.get("outcome", ""))).strip().lower().replace(" ", "_").replace("-", "_")
    if word not in _WORDS:
        raise ValueError(f"the judge's verdict is {word!r:.40}, which is neither PASS nor REVISE")
    return _WORDS[word]


def _verdict(found: dict[str, Any], outcome: VerdictOutcome) -> EvaluationVerdict:
    default = 1.0 if outcome is VerdictOutcome.PASS else 0.0
    suggestions = found.get("suggestions") or ()
    if not isinstance(suggestions, list | tuple):
        suggestions = (suggestions,)
    return EvaluationVerdict(
        outcome=outcome,
        score=_score(found.get("score"), default),
        feedback=str(found.get("feedback") or ""),
        suggestions=tuple(str(suggestion) for suggestion in suggestions),
    )


def _score(given: Any, default: float) -> float:
    if given is None:
        return default
    percent = isinstance(given, str) and given.strip().endswith("%")
    number = float(given.strip().rstrip("%")) if isinstance(given, str) else float(given)
    if percent:
        number /= _FULL_MARKS
    if isinstance(given, bool) or not math.isfinite(number) or not 0 <= number <= 1:
        raise ValueError(f"the judge's score {given!r:.40} is not from 0 to 1")
    return number


# --- choosing the reviewer ----------------------------------------------------------------------------------------


def choose_evaluator(
    config: TeamConfig, *, simple: EvaluationStrategy, judge: EvaluationStrategy | None
) -> tuple[EvaluationStrategy, str | None]:
    """The reviewer, and a warning if it is weaker than the risk requires.

    AUTO: LOW and MEDIUM the rubric, HIGH the judge, or the rubric with a warning when there is no judge. AGENT without
    a judge is a `ConfigurationError`.
    """
    preference = config.evaluator_preference
    if preference is EvaluatorPreference.AGENT:
        if judge is None:
            raise ConfigurationError(
                "TeamConfig.evaluator_preference is AGENT, but there is no judge: pass judge=... to the coordinator"
            )
        return judge, None
    if preference is EvaluatorPreference.AUTO and config.risk_profile is RiskProfile.HIGH:
        if judge is not None:
            return judge, None
        return simple, "the risk is HIGH and there is no judge: the rubric reviews instead"
    return simple, None


# --- the wrapper --------------------------------------------------------------------------------------------------


class Review(Value, frozen=True, kw_only=True):
    """A verdict as the coordinator uses it, its cost, and a warning. If `interrupted`, no review took place."""

    verdict: EvaluationVerdict
    warning: str | None = None
    usage: Usage = Usage()
    cost: Decimal | None = None
    interrupted: bool = False


async def review(
    strategy: EvaluationStrategy,
    context: EvaluationContext,
    *,
    seconds: float,
    stop: asyncio.Future[Any] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> Review:
    """Ask a reviewer; whatever it does, the answer is a verdict.

    A crash, silence for `seconds`, None, nonsense and a score out of range become REVIEW_EXCEEDED. `stop` ends it
    early; `on_stop` is called when the reviewer has to stop, so that a judge's run can be cancelled.
    """
    if type(strategy) is SimpleEvaluationStrategy:
        return Review(verdict=strategy.judge(context))
    asked: list[RunResult] = []
    if context.ask is not None:
        context = replace(context, ask=_record_runs(context.ask, asked))
    work = call_contained(lambda: strategy.evaluate(context))
    task = asyncio.get_running_loop().create_task(work, name=f"review {context.step.id}")
    waited = {task} if stop is None else {task, stop}
    try:
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        in_time = task.done()
        await stop_all([task], PATIENCE, on_stop)
        answer = _answer(task)
    # A verdict that came in time counts, even if everything is being stopped by then.
    interrupted = stop is not None and stop.done() and not (in_time and isinstance(answer, EvaluationVerdict))
    if in_time or interrupted:
        verdict, warning = _check_verdict(answer if in_time else None, context.config)
    else:
        verdict, warning = make_refusal(f"the reviewer did not answer within {seconds:g} s", exceeded=True), None
    if not task.done():
        warning = "the reviewer did not stop and was abandoned"
    usage = sum((run.usage for run in asked), Usage())
    cost = reduce(add_cost, [run.cost for run in asked], None)
    return Review(verdict=verdict, warning=warning, usage=usage, cost=cost, interrupted=interrupted)


def _record_runs(ask: Ask, runs: list[RunResult]) -> Ask:
    """The same `ask`, which notes its runs: the team pays for them."""

    async def ask_and_record(agent: Agent, prompt: str) -> RunResult:
        result = await ask(agent, prompt)
        runs.append(result)
        return result

    return ask_and_record


def _answer(task: asyncio.Task[Any]) -> object:
    """What a reviewer answered or raised; asyncio warns about exceptions that nobody has seen."""
    if not task.done():
        return None
    return RuntimeError("the reviewer was cancelled") if task.cancelled() else task.exception() or task.result()


def _check_verdict(answer: object, config: TeamConfig) -> tuple[EvaluationVerdict, str | None]:
    if isinstance(answer, BaseException):
        log_raised("a reviewer", answer, "its review is exceeded")
        return make_refusal(f"the reviewer crashed: {describe_error(answer)}", exceeded=True), None
    if not isinstance(answer, EvaluationVerdict):
        said = "nothing" if answer is None else short_repr(answer, 80)
        return make_refusal(f"the reviewer answered {said}", exceeded=True), None
    try:
        answer = EvaluationVerdict(
            outcome=answer.outcome,
            score=answer.score,
            feedback=clean(answer.feedback),
            suggestions=tuple(map(clean, answer.suggestions)),
        )
    except (ConfigurationError, TypeError, AttributeError) as error:
        return make_refusal(f"the reviewer's verdict is out of range: {error}", exceeded=True), None
    if answer.outcome is VerdictOutcome.AUTO_PASS_WITH_WARNING:
        if config.auto_pass and config.risk_profile is RiskProfile.LOW:
            return answer, f"passed without a review: {answer.feedback}".rstrip(": ")
        return make_refusal(
            "AUTO_PASS_WITH_WARNING counts only with TeamConfig.auto_pass, at LOW risk", exceeded=True
        ), None
    return answer, None
