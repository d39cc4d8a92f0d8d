"""What an agent is tried on: cases, and datasets of them. Nothing that was given is dropped without a word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, digest, replace
from glidepath.values import ConfigurationError, check_int, check_text, short_repr

if TYPE_CHECKING:
    import os

    from glidepath.agent import Agent
    from glidepath.apps.evals.answer_checks import Evaluator

LONGEST_ID = 200
_MOST_PARTS = 100_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Case(Value, frozen=True, kw_only=True):
    """One task and what a good answer to it is.

    `id` names the case in every report; without one it gets its number. `evaluators` are asked as well as those of the
    dataset. `agent` replaces the agent under test for this case: a function that is given the agent and returns the
    one that runs, with tools of its own for example. It is called again for every repeat.
    """

    prompt: str
    expected: Any = None
    id: str = ""
    evaluators: tuple[Evaluator, ...] = ()
    metadata: Mapping[str, Any] = {}
    agent: Callable[[Agent], Agent] | None = None

    def __post_init__(self) -> None:
        check_text("Case.prompt", self.prompt)
        check_text("Case.id", self.id)


class Unusable(Value, frozen=True, kw_only=True):
    """A case that cannot be tried, where it is written, and why: it is reported and not run."""

    id: str
    where: str
    why: str


class Dataset:
    """Cases, and the evaluators that all of them share.

    `Dataset.load("cases.yaml")` reads a file. What is wrong with a single case, such as a missing prompt or an id that
    another one has, is kept in `unusable`: the others run, and every report names it.
    """

    def __init__(
        self,
        cases: Iterable[Case],
        *,
        name: str = "dataset",
        evaluators: Sequence[Evaluator] | Evaluator = (),
        unusable: Iterable[Unusable] = (),
    ) -> None:
        from glidepath.apps.evals.answer_checks import as_evaluators

        check_text("Dataset.name", name)
        self.name = name
        self.evaluators = as_evaluators("Dataset.evaluators", evaluators)
        kept: dict[str, Case] = {}
        broken = list(unusable)
        for number, case in enumerate(cases, 1):
            if not isinstance(case, Case):
                raise ConfigurationError(f"Dataset.cases[{number}] must be a Case, not {short_repr(case, 80)}")
            as_evaluators(f"Dataset.cases[{number}].evaluators", case.evaluators)
            case = case if case.id else replace(case, id=str(number))  # noqa: PLW2901 - the same case, with its name
            why = _find_problem(case, kept)
            if why:
                broken.append(Unusable(id=case.id[:LONGEST_ID], where=f"case {number}", why=why))
            else:
                kept[case.id] = case
        if not kept and not broken:
            raise ConfigurationError(f"dataset {name!r:.80} has no case")
        self.cases: tuple[Case, ...] = tuple(kept.values())
        self.unusable: tuple[Unusable, ...] = tuple(broken)

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __repr__(self) -> str:
        return f"<Dataset {self.name!r}: {len(self.cases)} cases, {len(self.unusable)} unusable>"

    @property
    def digest(self) -> str:
        """The same for the same ids, prompts, expectations and built-in evaluators, in every process.

        An evaluation continues only on what it began with.
        """
        shared = [repr(one) for one in self.evaluators if isinstance(one, Value)]
        rows = []
        for case in self.cases:
            asked = shared + [repr(one) for one in case.evaluators if isinstance(one, Value)]
            rows.append([case.id, case.prompt, _simplify(case.expected), *asked])
        return digest(rows)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Dataset:
        """Read a file: .py with a `dataset`, .yaml, .jsonl or .csv; raises `ConfigurationError`."""
        from glidepath.apps.evals.dataset_files import read_dataset

        return read_dataset(path)

    def head(self, count: int) -> Dataset:
        """The same dataset with its first cases only."""
        check_int("Dataset.head", count, required=True)
        return Dataset(self.cases[:count], name=self.name, evaluators=self.evaluators, unusable=self.unusable)


def _find_problem(case: Case, others: Mapping[str, Case]) -> str:
    """Why a case cannot be tried; empty when it can."""
    if not case.prompt.strip():
        return "its prompt is empty"
    if len(case.id) > LONGEST_ID:
        return f"its id has {len(case.id)} characters; {LONGEST_ID} are allowed"
    try:
        _simplify(case.expected)
    except ValueError as error:
        return str(error)
    return f"another case has the id {case.id!r:.80}" if case.id in others else ""


def _simplify(value: object) -> object:
    """What is expected as plain data that is the same in every process; raises ValueError for what has no end."""
    left = [_MOST_PARTS]

    def visit(part: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError(f"what it expects has more than {_MOST_PARTS:,} parts, or contains itself")
        if isinstance(part, Mapping):
            return {str(name): visit(inner) for name, inner in part.items()}
        if isinstance(part, list | tuple):
            return [visit(inner) for inner in part]
        if isinstance(part, set | frozenset):
            return sorted([repr(visit(inner)) for inner in part])
        return part if part is None or isinstance(part, str | int | float) else _ADDRESS.sub("", repr(part))

    try:
        return visit(value)
    except RecursionError:
        raise ValueError("what it expects is nested too deeply, or contains itself") from None
