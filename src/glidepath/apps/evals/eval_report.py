"""What an evaluation found: one attempt for each case and repeat, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.apps.evals.answer_checks import Score
from glidepath.apps.evals.cases import Unusable
from glidepath.apps.evals.intervals import clustered_interval
from glidepath.values import EXACT, ConfigurationError, StoreError, pluralize

if TYPE_CHECKING:
    from glidepath.spi import SessionStore

FORMAT = 1
NOT_RUN = "not run yet"


class CaseResult(Value, frozen=True, kw_only=True):
    """One run of one case, and what was said about it.

    `passed` is None when it is not covered, and `why` says what is missing: the budget of the evaluation ended, an
    evaluator could not say, a person has to decide about a call.
    """

    case_id: str
    repeat: int
    place: int = 0
    """The place of the case in its dataset: results are told in that order, whichever ended first."""
    passed: bool | None
    why: str = ""
    prompt: str = ""
    expected: str = ""
    text: str = ""
    scores: tuple[Score, ...] = ()
    state: str = ""
    outcome: str = ""
    cause: str = ""
    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost: Decimal | None = None
    seconds: float = 0.0
    session_id: str | None = None
    run_id: str = ""
    open: bool = False
    """True when another part of the evaluation may still continue it: with more budget, or after a decision."""
    earlier_tokens: int = 0
    """What earlier tries of it have used that is in no other figure: judges that could not say, programs, which begin
    again."""
    earlier_cost: Decimal | None = None

    @property
    def ended(self) -> str:
        """How the run ended, in two words."""
        return f"{self.state}/{self.outcome}" if self.state else "not run"

    @property
    def judge_tokens(self) -> int:
        """Tokens of the models that judged it."""
        return sum(score.tokens for score in self.scores)

    @property
    def judge_cost(self) -> Decimal | None:
        """What judging has cost; None when nobody knows a price, or no model was asked."""
        return _add_costs(score.cost for score in self.scores)

    @property
    def all_tokens(self) -> int:
        """What it has used: the run, its judges, and earlier tries."""
        return self.tokens + self.judge_tokens + self.earlier_tokens

    @property
    def all_cost(self) -> Decimal | None:
        """What it has cost: the run, its judges, and earlier tries."""
        return _add_costs((self.cost, self.judge_cost, self.earlier_cost))


class CurvePoint(Value, frozen=True, kw_only=True):
    """One smaller budget for each run: what it is predicted to do, and where it was tried, what it did."""

    limit: str
    passed: int
    covered: int
    tokens: int
    cost: Decimal | None = None
    landed: int = 0
    """How many runs this budget would have landed."""
    real_passed: int | None = None
    real_tokens: int | None = None
    real_cost: Decimal | None = None
    real_landed: int | None = None
    other_landings: int = 0
    """Runs that really ended with another text than predicted, because the limit changed what the model saw: it landed
    them, or shortened a request."""
    wrong: int = 0
    """Runs that the limit did not touch and that yet differ from the prediction, or landed only there or only here."""

    @property
    def is_assumed(self) -> bool:
        """True when this budget lands most runs: their pass rate depends on what landings say, which nobody knows."""
        return 2 * self.landed > self.covered


class Curve(Value, frozen=True, kw_only=True):
    """How pass rate and cost depend on the budget of a run, from the journals of one generous evaluation."""

    by: str
    points: tuple[CurvePoint, ...]
    runs: int
    left_out: Mapping[str, int] = {}
    """Runs that nothing can be predicted for, by reason."""

    def describe(self) -> str:
        """What was predicted, from what, and how well it holds where it was tried."""
        told = f"Predicted for {len(self.points)} values of {self.by} from {pluralize(self.runs, 'run')}."
        tried = [one for one in self.points if one.real_passed is not None]
        if tried:
            landed = sum(one.real_landed or 0 for one in tried)
            wrong = sum(one.wrong for one in tried)
            told += (
                f" Run again with {len(tried)} of them: {pluralize(wrong, 'run')} differed from the prediction; "
                f"{landed} landed; {sum(one.other_landings for one in tried)} that the limit touched have another text."
            )
        assumed = sum(one.is_assumed for one in self.points)
        if assumed:
            told += f" At {pluralize(assumed, 'limit')}, marked ~, most runs land: what they would say is assumed."
        if self.left_out:
            told += " Left out: " + ", ".join(f"{count} x {why}" for why, count in self.left_out.items()) + "."
        return told


class EvalReport(Value, frozen=True, kw_only=True):
    """The results of an evaluation. Its `pass_rate` is of what is covered; `uncovered` says what is not, and why."""

    name: str
    dataset: str
    agent: str
    cases: int
    repeat: int
    results: tuple[CaseResult, ...]
    unusable: tuple[Unusable, ...] = ()
    began: str = ""
    """When it began, in UTC."""
    seconds: float = 0.0
    """How long it has worked, in all its parts."""
    limits: Mapping[str, str] = {}
    """The budget of all cases together, as it was given."""
    curve: Curve | None = None

    @property
    def planned(self) -> int:
        """How many attempts there should be: every case that was given, as often as it repeats."""
        return (self.cases + len(self.unusable)) * self.repeat

    @property
    def covered(self) -> tuple[CaseResult, ...]:
        """The attempts that passed or failed."""
        return tuple([one for one in self.results if one.passed is not None])

    @property
    def passed(self) -> int:
        """How many attempts passed."""
        return sum(one.passed is True for one in self.results)

    @property
    def pass_rate(self) -> float | None:
        """The share of the covered attempts that passed; None when nothing is covered."""
        return self.passed / len(self.covered) if self.covered else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the pass rate (Wilson's; repeats of a case count for less, as far as they agree)."""
        return clustered_interval([[bool(one.passed) for one in ones] for ones in self._cases(self.covered).values()])

    @property
    def always(self) -> int:
        """How many cases passed in every repeat."""
        found = self._cases(self.results).values()
        return sum(len(ones) == self.repeat and all(one.passed for one in ones) for ones in found)

    @property
    def uncovered(self) -> Mapping[str, int]:
        """What the pass rate does not cover: how many attempts, by reason. Empty when it covers everything."""
        counts = Counter(one.why.partition(": ")[0] or "unknown" for one in self.results if one.passed is None)
        if self.unusable:
            counts["the case could not be used"] += len(self.unusable) * self.repeat
        missing = self.planned - len(self.results) - len(self.unusable) * self.repeat
        if missing > 0:
            counts[NOT_RUN] += missing
        return dict(counts.most_common())

    @property
    def complete(self) -> bool:
        """True when the pass rate covers every case and repeat."""
        return not self.uncovered

    @property
    def tokens(self) -> int:
        """All tokens, those of judges included."""
        return sum(one.all_tokens for one in self.results)

    @property
    def cost(self) -> Decimal | None:
        """All money, that of judges included; None when nothing has a price."""
        return _add_costs(one.all_cost for one in self.results)

    @property
    def judge_cost(self) -> Decimal | None:
        """What judging has cost; a part of `cost`."""
        return _add_costs(one.judge_cost for one in self.results)

    @property
    def endings(self) -> Mapping[str, int]:
        """How the runs ended, the most frequent first."""
        return dict(Counter(one.ended for one in self.results).most_common())

    @property
    def failures_first(self) -> tuple[CaseResult, ...]:
        """The attempts in the order in which one reads them: failed, not covered, passed."""
        rank = {False: 0, None: 1, True: 2}
        return tuple(sorted(self.results, key=lambda one: rank[one.passed]))

    def _cases(self, attempts: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
        found: dict[str, list[CaseResult]] = {}
        for one in attempts:
            found.setdefault(one.case_id, []).append(one)
        return found

    def by_case(self) -> Mapping[str, Sequence[CaseResult]]:
        """The attempts of each case."""
        return self._cases(self.results)

    def to_text(self, width: int | None = None) -> str:
        """A table for a terminal; each case on a line of at most `width` columns."""
        from glidepath.apps.evals.report_text import make_table

        return make_table(self, width)

    def to_json(self) -> str:
        """Everything, with the figures that follow from it."""
        figures = {
            "format": FORMAT,
            "pass_rate": self.pass_rate,
            "interval": self.interval,
            "passed": self.passed,
            "covered": len(self.covered),
            "planned": self.planned,
            "uncovered": self.uncovered,
            "cost": self.cost,
            "tokens": self.tokens,
            "endings": self.endings,
        }
        return _wire.format_json({**figures, "report": self}).decode()

    def to_junit(self) -> str:
        """A JUnit file for CI servers."""
        from glidepath.apps.evals.report_junit import make_junit

        return make_junit(self)

    def to_html(self) -> str:
        """One page with plots that needs nothing else."""
        from glidepath.apps.evals.report_page import make_report_page

        return make_report_page(self)

    @staticmethod
    def of_json(text: str | bytes) -> EvalReport:
        """The report in what `to_json` has written; raises `ConfigurationError`."""
        try:
            return _wire.convert(_wire.loads(text)["report"], EvalReport, strict=False)  # type: ignore[no-any-return]
        except (_wire.WireError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"this is not the report of an evaluation: {error}") from None

    @staticmethod
    async def find(name: str, store: SessionStore) -> EvalReport:
        """The report of an evaluation in a store, as far as it has come; raises `ConfigurationError`."""
        from glidepath.apps.evals.eval_journal import read_report

        try:
            return await read_report(store, name)
        except StoreError as error:
            if error.kind != "missing":
                raise
            raise ConfigurationError(f"there is no evaluation {name!r:.80} in {store!r:.80}") from None


def _add_costs(costs: Any) -> Decimal | None:
    known = [one for one in costs if one is not None]
    total = Decimal(0)
    for one in known:
        total = EXACT.add(total, one)
    return total if known else None
