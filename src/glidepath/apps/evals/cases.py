"""What an agent is tried on: cases, and datasets of them. Nothing that was given is dropped without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, digest, replace
from glidepath.values import ConfigurationError, check_text, short_repr

if TYPE_CHECKING:
    import os

    from glidepath.agent import Agent
    from glidepath.apps.evals.answer_checks import Evaluator

LONGEST_ID = 200


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
                broken.append(Unusable(id=case.id, where=f"case {number}", why=why))
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
        """The same for the same ids, prompts and expectations: an evaluation continues only on what it began with."""
        return digest([[case.id, case.prompt, case.expected] for case in self.cases])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Dataset:
        """Read a file: .py with a `dataset`, .yaml, .jsonl or .csv; raises `ConfigurationError`."""
        from glidepath.apps.evals.dataset_files import read_dataset

        return read_dataset(path)

    def head(self, count: int) -> Dataset:
        """The same dataset with its first cases only."""
        return Dataset(self.cases[:count], name=self.name, evaluators=self.evaluators, unusable=self.unusable)


def _find_problem(case: Case, others: Mapping[str, Case]) -> str:
    """Why a case cannot be tried; empty when it can."""
    if not case.prompt.strip():
        return "its prompt is empty"
    if len(case.id) > LONGEST_ID:
        return f"its id has {len(case.id)} characters; {LONGEST_ID} are allowed"
    return f"another case has the id {case.id!r:.80}" if case.id in others else ""
