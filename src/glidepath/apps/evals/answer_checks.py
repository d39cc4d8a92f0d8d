"""What says whether an answer is good: built-in evaluators, functions, and the reviewers of teams.

A built-in evaluator compares and answers at once. A function is called with the case and the result and may wait or
block. An `EvaluationStrategy`, such as `AgentEvaluationStrategy` with a model as judge, sees the task and the answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from glidepath import _wire
from glidepath._wire import Value
from glidepath.teams import EvaluationStrategy, EvaluationVerdict, objects_in
from glidepath.values import ConfigurationError, check_text, close_to, mend_text, short_repr

if TYPE_CHECKING:
    from glidepath.apps.evals.cases import Case
    from glidepath.values import RunResult

PASSES = 0.5
"""A number from a function passes from here on."""
_SHOWN = 120
_UNBOUNDED = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")


class Score(Value, frozen=True, kw_only=True):
    """What one evaluator says about one answer. `passed` is None when it could not say: it raised or hung."""

    name: str
    passed: bool | None
    value: float = 0.0
    why: str = ""
    tokens: int = 0
    """What asking a model as judge has used."""
    cost: Decimal | None = None


@runtime_checkable
class Comparison(Protocol):
    """A built-in evaluator: looks at the answer and says at once, as "" or the reason why it fails."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def find_fault(self, case: Case, result: RunResult[Any]) -> str:
        """Why the answer fails; empty when it passes."""
        ...


Evaluator: TypeAlias = "Comparison | EvaluationStrategy | Callable[[Case, RunResult[Any]], object]"


class Exact(Value, frozen=True, kw_only=True):
    """The answer is the expected text, without the white space around it. `text` replaces the case's `expected`."""

    text: str | None = None
    ignore_case: bool = False

    @property
    def name(self) -> str:
        """What reports call it."""
        return "exact"

    def find_fault(self, case: Case, result: RunResult[Any]) -> str:
        """Why the answer fails."""
        wanted, found = _expected_text(self.text, case).strip(), result.text.strip()
        same = wanted.casefold() == found.casefold() if self.ignore_case else wanted == found
        return "" if same else f"expected {short_repr(wanted, _SHOWN)}, got {short_repr(found, _SHOWN)}"


class Contains(Value, frozen=True, kw_only=True):
    """The expected text is somewhere in the answer; with a list, every one of its texts is."""

    text: str | None = None
    ignore_case: bool = True

    @property
    def name(self) -> str:
        """What reports call it."""
        return "contains"

    def find_fault(self, case: Case, result: RunResult[Any]) -> str:
        """Why the answer fails."""
        several = self.text is None and isinstance(case.expected, list | tuple)
        wanted = [str(one) for one in case.expected] if several else [_expected_text(self.text, case)]
        fold = str.casefold if self.ignore_case else str
        found = fold(result.text)
        missing = [one for one in wanted if fold(one) not in found]
        return f"the answer does not contain {', '.join(short_repr(one, _SHOWN) for one in missing)}" if missing else ""


class SameJson(Value, frozen=True, kw_only=True):
    """The answer is JSON that equals the expected data, or has it in a fence or between prose. 1 equals 1.0."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return "json"

    def find_fault(self, case: Case, result: RunResult[Any]) -> str:
        """Why the answer fails."""
        wanted = case.expected
        if isinstance(wanted, str):
            wanted = _read_json(wanted)
        plain = _wire.loads(_wire.encode(wanted))
        typed = result.output is not None and not isinstance(result.output, str)
        if typed and _wire.loads(_wire.encode(result.output)) == plain:
            return ""
        found: list[Any] = list(objects_in(result.text))
        try:
            found.append(
                _read_json(result.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```"))
            )
        except ValueError:
            if not found:
                return f"the answer is not JSON: {short_repr(result.text, _SHOWN)}"
        if any(one == plain for one in found):
            return ""
        return f"expected {short_repr(plain, _SHOWN)}, got {short_repr(found[0], _SHOWN)}"


class Matches(Value, frozen=True, kw_only=True):
    """A regular expression is found in the answer. Without a `pattern` the case's `expected` is one."""

    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None:
            check_pattern("Matches.pattern", self.pattern)

    @property
    def name(self) -> str:
        """What reports call it."""
        return "regex"

    @property
    def may_hang(self) -> bool:
        """True when the pattern repeats so much that a search may never end: it gets its own process."""
        return self.pattern is None or len(_UNBOUNDED.findall(self.pattern)) > 1

    def pattern_for(self, case: Case) -> str:
        """The pattern that is looked for in this case."""
        return _expected_text(self.pattern, case)

    def find_fault(self, case: Case, result: RunResult[Any]) -> str:
        """Why the answer fails."""
        return search_pattern(self.pattern_for(case), result.text)


class Delivered(Value, frozen=True, kw_only=True):
    """The run has delivered an answer that is not blank. What a case without `expected` is judged by."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return "delivered"

    def find_fault(self, case: Case, result: RunResult[Any]) -> str:  # noqa: ARG002 - it needs nothing of the case
        """Why the answer fails."""
        if result.ok and result.text.strip():
            return ""
        why = "" if result.cause is None else f": {result.cause.reason}"
        return f"no answer was delivered: {result.state.name}/{result.outcome.name}{why}"


def search_pattern(pattern: str, text: str) -> str:
    """Why this pattern is not found in this text; empty when it is."""
    found = re.search(pattern, text)
    return "" if found else f"/{pattern:.80}/ is not found in {short_repr(text, _SHOWN)}"


def check_pattern(field: str, pattern: object) -> None:
    """Refuse what is not a regular expression."""
    check_text(field, pattern)
    try:
        re.compile(str(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(f"{field}={short_repr(pattern, 80)} is not a regular expression: {error}") from None


def _expected_text(own: str | None, case: Case) -> str:
    if own is not None:
        return own
    if case.expected is None:
        raise ValueError(f"case {case.id!r:.80} has no `expected` to compare with")
    return case.expected if isinstance(case.expected, str) else _wire.encode(case.expected).decode()


def _read_json(text: str) -> Any:
    try:
        return _wire.loads(text)
    except _wire.WireError as error:
        raise ValueError(f"not JSON: {error}") from None


# --- by name ------------------------------------------------------------------------------------------------------

NAMED: Mapping[str, Callable[[], Any]] = {
    "exact": Exact,
    "contains": Contains,
    "json": SameJson,
    "regex": Matches,
    "delivered": Delivered,
}
"""What a file may name."""
_WITH_TEXT: Mapping[str, Callable[[str], Any]] = {
    "exact": lambda text: Exact(text=text),
    "contains": lambda text: Contains(text=text),
    "regex": lambda text: Matches(pattern=text),
}


def read_evaluator(said: object, field: str = "evaluators") -> Any:
    """The evaluator that data names: "exact", or {"regex": "[0-9]+"}; raises `ConfigurationError`.

    Data names built-in evaluators only: a file of cases never says which code runs.
    """
    name, text = said, None
    if isinstance(said, dict) and len(said) == 1:
        ((name, text),) = said.items()
    if not isinstance(name, str) or name not in NAMED or (text is not None and name not in _WITH_TEXT):
        meant = close_to(name, NAMED) if isinstance(name, str) else None
        hint = f"; did you mean {meant}?" if meant and meant != name else ""
        raise ConfigurationError(
            f"{field}: {short_repr(said, 60)} is not one of {', '.join(NAMED)}, or such as {{regex: '[0-9]+'}}{hint}"
        )
    if text is None:
        return NAMED[name]()
    if not isinstance(text, str):
        raise ConfigurationError(f"{field}: {name} takes a text, not {short_repr(text, 60)}")
    return _WITH_TEXT[name](text)


def as_evaluators(field: str, given: object) -> tuple[Any, ...]:
    """These evaluators, checked; a text names a built-in one."""
    several = given if isinstance(given, list | tuple) else (given,)
    made = tuple([read_evaluator(one, field) if isinstance(one, str | dict) else one for one in several])
    for one in made:
        if isinstance(one, type) or not (isinstance(one, Comparison | EvaluationStrategy) or callable(one)):
            raise ConfigurationError(
                f"{field}: expected an evaluator such as Exact(), a function or an EvaluationStrategy, not "
                f"{short_repr(one, 80)}"
            )
    return made


def choose_evaluators(case: Case, shared: Sequence[Any]) -> tuple[Any, ...]:
    """Those that judge a case: its own and the shared ones; without any, what suits its `expected`."""
    chosen = (*as_evaluators("evaluators", case.evaluators), *shared)
    if chosen:
        return chosen
    if case.expected is None:
        return (Delivered(),)
    return (Contains(),) if isinstance(case.expected, str | list | tuple) else (SameJson(),)


def list_evaluator_names(case: Case, shared: Sequence[Any]) -> list[str]:
    """The names of those that judge a case, as its scores have them."""
    return [name_evaluator(one) for one in choose_evaluators(case, shared)]


def name_evaluator(evaluator: object) -> str:
    """What reports call an evaluator."""
    name = getattr(evaluator, "name", None) or getattr(evaluator, "__name__", None)
    return mend_text(name[:_SHOWN]) if isinstance(name, str) and name else type(evaluator).__name__


def read_opinion(name: str, said: object) -> EvaluationVerdict:
    """What a function has answered, as a verdict; raises ValueError for anything else."""
    from glidepath.teams import VerdictOutcome

    if isinstance(said, EvaluationVerdict):
        return said
    value, why = said, ""
    if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], str):  # noqa: PLR2004 - with its reason
        value, why = said
    if isinstance(value, bool):
        value = 1.0 if value else 0.0
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} answered {short_repr(said, 80)}; it must be True, False, or a number from 0 to 1")
    outcome = VerdictOutcome.PASS if value >= PASSES else VerdictOutcome.REVISE
    return EvaluationVerdict(outcome=outcome, score=float(value), feedback=why)
