"""BFCL's multi-turn conversations: their questions, their classes as tools, judged by BFCL's own checker."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from glidepath._sdk_privates import load_scenario
from glidepath.apps.evals.benchmarks.world import (
    DoneCall,
    WorldCheck,
    WorldPlugin,
    check_choice,
    furnish,
    import_benchmark,
    list_done,
)
from glidepath.apps.evals.cases import Case, Dataset
from glidepath.tools import tool

if TYPE_CHECKING:
    from glidepath.agent import Agent
    from glidepath.values import RunResult

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
PACKAGE = "bfcl-eval"
MORE_TOOLS = "I have added more tools. Please use them."
"""What is asked where BFCL only adds the functions that were missing."""
_CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
_CHECKING = threading.Lock()
"""BFCL's checker keeps its objects in a module."""
_UTILITIES = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils"


def bfcl(categories: Sequence[str] | str | None = None) -> Dataset:
    """The 800 multi-turn conversations of BFCL v4; needs the package `bfcl-eval`.

    A case is a whole conversation: each question is asked when the one before it is answered. The agent under test
    gets the functions of the conversation instead of its own tools.
    """
    chosen = check_choice("categories", categories, CATEGORIES)
    import_benchmark(_CHECKER, PACKAGE)
    return Dataset([_make_case(*one) for one in _read_entries(chosen)], name="bfcl")


def _read_entries(categories: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], list[list[str]]]]:
    data = files("bfcl_eval") / "data"
    for category in categories:
        name = f"BFCL_v4_multi_turn_{category}.json"
        answers = (data / "possible_answer" / name).read_text(encoding="utf-8").splitlines()
        gold = {one["id"]: one["ground_truth"] for one in map(json.loads, answers)}
        for line in (data / name).read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            yield entry, gold[entry["id"]]


class _BfclWorld:
    """BFCL's objects for one conversation, in the state in which it begins."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        config = import_module("bfcl_eval.constants.executable_backend_config")
        self._methods: dict[str, Any] = {}
        for name in entry["involved_classes"]:
            made = getattr(import_module(config.CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in config.STATELESS_CLASSES:
                scenario = copy.deepcopy(entry["initial_config"].get(name, {}))
                load_scenario(made, scenario, long_context="long_context" in entry["id"])
            found = inspect.getmembers(made, predicate=inspect.ismethod)
            self._methods.update({key: method for key, method in found if not key.startswith("_")})

    def act(self, name: str, arguments: Mapping[str, Any]) -> object:
        """Call a method."""
        return self._methods[name](**arguments)

    def make_tools(self) -> list[Any]:
        """The methods as they are."""
        return [tool(method) for method in self._methods.values()]


def _make_case(entry: Mapping[str, Any], gold: list[list[str]]) -> Case:
    questions = ["\n".join([one["content"] for one in turn]) or MORE_TOOLS for turn in entry["question"]]
    withheld = {int(number): frozenset(names) for number, names in entry.get("missed_function", {}).items()}

    def prepare(agent: Agent) -> Agent:
        world = _BfclWorld(entry)
        return furnish(agent, world.make_tools(), WorldPlugin(world.act, questions, withheld))

    def judge(_: Case, result: RunResult[Any]) -> str:
        return _find_fault(entry, gold, list_done(result.messages, questions))

    return Case(
        id=entry["id"],
        prompt=questions[0],
        evaluators=(WorldCheck("bfcl", judge),),
        metadata={"questions": len(questions), "classes": list(entry["involved_classes"])},
        agent=prepare,
    )


def _find_fault(entry: Mapping[str, Any], gold: list[list[str]], done: Sequence[Sequence[DoneCall]]) -> str:
    """What BFCL's checker says of these calls, which it makes again in objects of its own."""
    if len(done) < len(gold):
        return f"the conversation ended after {len(done)} of {len(gold)} questions"
    ran = [[[_write_call(one) for one in turn]] if turn else [] for turn in done]
    category = entry["id"].rsplit("_", 1)[0]
    with _CHECKING:
        try:
            verdict = import_module(_CHECKER).multi_turn_checker(ran, gold, entry, category, "glidepath")
        finally:
            utilities = import_module(_UTILITIES)
            for name in [name for name in vars(utilities) if name.endswith("_instance")]:
                delattr(utilities, name)
    return "" if verdict["valid"] else str(verdict.get("error_type") or "the checker is not content")


def _write_call(call: DoneCall) -> str:
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


@cache
def _read_answers() -> Mapping[str, tuple[Mapping[str, Any], list[list[str]]]]:
    return {entry["id"]: (entry, gold) for entry, gold in _read_entries(CATEGORIES)}


def list_gold(case: Case) -> list[list[DoneCall]]:
    """The calls that solve each question of a case, as BFCL gives them: for a model that always knows."""
    entry, gold = _read_answers()[case.id]
    world = _BfclWorld(entry)
    return [[_read_call(world, text) for text in turn] for turn in gold]


def _read_call(world: _BfclWorld, text: str) -> DoneCall:
    parsed: Any = ast.parse(text, mode="eval").body
    signature = inspect.signature(world._methods[parsed.func.id])  # noqa: SLF001 - the same module
    positional = [ast.literal_eval(one) for one in parsed.args]
    named = {one.arg: ast.literal_eval(one.value) for one in parsed.keywords}
    return DoneCall(name=parsed.func.id, arguments=signature.bind_partial(*positional, **named).arguments)
