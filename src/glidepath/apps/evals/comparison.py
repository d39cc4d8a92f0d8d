"""Two evaluations of the same cases: what changed, and whether it can be chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from math import gcd
from typing import TYPE_CHECKING

from glidepath._wire import Value
from glidepath.apps.evals.intervals import paired_interval, sign_flip_chance
from glidepath.apps.evals.report_text import format_dollars, format_share
from glidepath.run import mask_controls
from glidepath.values import ConfigurationError, pluralize

if TYPE_CHECKING:
    from glidepath.apps.evals.eval_report import EvalReport

SURE = 0.05
"""Below this chance a difference is called real."""
_SHOWN = 20
_RARE, _NEVER = 0.01, 0.0001


class EvalComparison(Value, frozen=True, kw_only=True):
    """What is different between two evaluations, on the cases that both cover."""

    first: str
    second: str
    cases: int
    first_rate: float
    second_rate: float
    difference: float
    """The pass rate of the second minus that of the first, over the cases that both cover."""
    interval: tuple[float, float]
    chance: float
    """How often two equal agents would differ at least as much (exact, paired)."""
    better: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    only_first: int = 0
    only_second: int = 0
    other_prompts: int = 0
    """Cases of one id whose prompts or expectations differ: they are not compared."""
    first_cost: Decimal | None = None
    second_cost: Decimal | None = None
    first_tokens: int = 0
    second_tokens: int = 0

    @property
    def is_real(self) -> bool:
        """True when chance alone would hardly make such a difference."""
        return self.chance < SURE

    @property
    def is_worse(self) -> bool:
        """True when the second passes less often, and chance does not explain it."""
        return self.is_real and self.difference < 0

    @property
    def sentence(self) -> str:
        """The answer, in plain words."""
        low, high = self.interval
        range_ = f"95 % interval {_points(low)} to {_points(high)} points"
        if not self.difference:
            verdict = f"{self.second} passes as often as {self.first} ({range_})"
            return f"{verdict}: on {pluralize(self.cases, 'case')} there is no difference to explain."
        word = "more" if self.difference > 0 else "less"
        verdict = (
            f"{self.second} passes {abs(100 * self.difference):.1f} points {word} often than {self.first} ({range_})"
        )
        often = _say_chance(self.chance)
        if self.is_real:
            return f"{verdict}. Two equal agents would differ this much in {often}: this is hardly chance."
        return f"{verdict}. But two equal agents would differ this much in {often}: this can be chance."

    def to_text(self) -> str:
        """What changed, then the sentence."""
        return "\n".join(_write_lines(self)) + "\n"


def compare_reports(first: EvalReport, second: EvalReport) -> EvalComparison:
    """Compare two reports case by case; raises `ConfigurationError` when no case is in both."""
    one, two = _sum_cases(first), _sum_cases(second)
    shared = [name for name in one if name in two]
    same = [name for name in shared if one[name].task == two[name].task]
    if not same:
        raise ConfigurationError(
            f"evaluations {first.name!r:.80} and {second.name!r:.80} share no case that both cover: nothing can be "
            "compared"
        )
    shares = [(one[name].passed / one[name].runs, two[name].passed / two[name].runs) for name in same]
    differences = [after - before for before, after in shares]
    # Whole numbers, so that equal differences are equal: in units of the least common multiple of all runs.
    unit = 1
    for name in same:
        for runs in (one[name].runs, two[name].runs):
            unit = unit * runs // gcd(unit, runs)
    whole = [two[name].passed * (unit // two[name].runs) - one[name].passed * (unit // one[name].runs) for name in same]
    return EvalComparison(
        first=first.name,
        second=second.name,
        cases=len(same),
        first_rate=sum(before for before, _ in shares) / len(same),
        second_rate=sum(after for _, after in shares) / len(same),
        difference=sum(whole) / unit / len(same),
        interval=paired_interval(differences),
        chance=sign_flip_chance(whole),
        better=tuple([name for name, one_ in zip(same, whole, strict=True) if one_ > 0]),
        worse=tuple([name for name, one_ in zip(same, whole, strict=True) if one_ < 0]),
        only_first=len(one) - len(shared),
        only_second=len(two) - len(shared),
        other_prompts=len(shared) - len(same),
        first_cost=_sum_costs(one, same),
        second_cost=_sum_costs(two, same),
        first_tokens=sum(one[name].tokens for name in same),
        second_tokens=sum(two[name].tokens for name in same),
    )


class CaseSum(Value, frozen=True, kw_only=True):
    """All covered runs of one case."""

    task: tuple[str, str]
    runs: int
    passed: int
    tokens: int
    cost: Decimal | None


def _sum_cases(report: EvalReport) -> dict[str, CaseSum]:
    found = {}
    for name, results in report.by_case().items():
        covered = [one for one in results if one.passed is not None]
        if covered:
            costs = [one.cost for one in covered if one.cost is not None]
            found[name] = CaseSum(
                task=(covered[0].prompt, covered[0].expected),
                runs=len(covered),
                passed=sum(bool(one.passed) for one in covered),
                tokens=sum(one.tokens for one in covered) // len(covered),
                cost=sum(costs, Decimal(0)) / len(covered) if costs else None,
            )
    return found


def _sum_costs(sums: Mapping[str, CaseSum], names: list[str]) -> Decimal | None:
    costs = [sums[name].cost for name in names]
    return None if None in costs else sum((one for one in costs if one is not None), Decimal(0))


def _write_lines(found: EvalComparison) -> Iterator[str]:
    wide = max(len(found.first), len(found.second))
    for name, rate, cost, tokens in (
        (found.first, found.first_rate, found.first_cost, found.first_tokens),
        (found.second, found.second_rate, found.second_cost, found.second_tokens),
    ):
        money = "" if cost is None else f"  {format_dollars(cost / found.cases)} a case"
        each = pluralize(tokens // found.cases, "token", f"{tokens // found.cases:,}")
        yield f"{name:<{wide}}  {format_share(rate):>7}  {each} a case{money}"
    for word, names in (("now fails", found.worse), ("now passes", found.better)):
        for name in names[:_SHOWN]:
            yield f"{word:<10}  {mask_controls(name)}"
        if len(names) > _SHOWN:
            yield f"{word:<10}  ... and {len(names) - _SHOWN} more"
    left = [
        (found.only_first, f"only {found.first} covers"),
        (found.only_second, f"only {found.second} covers"),
        (found.other_prompts, "with another prompt or expectation"),
    ]
    said = [f"{count} {why}" for count, why in left if count]
    if said:
        yield f"not compared: {', '.join(said)}"
    yield ""
    yield found.sentence


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"


def _say_chance(chance: float) -> str:
    if chance < _NEVER:
        return "fewer than 1 of 10,000 comparisons"
    if chance < _RARE:
        return f"1 of {round(1 / chance):,} comparisons"
    return f"{100 * chance:.0f} of 100 comparisons"
