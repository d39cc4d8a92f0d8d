"""AgentDojo's user tasks: four suites of tools, judged by the tasks' own `utility`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

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

SUITES = ("workspace", "travel", "banking", "slack")
VERSION = "v1.2.2"


class _Function(Protocol):
    """What AgentDojo calls a tool."""

    name: str
    run: Callable[..., object]
    dependencies: Mapping[str, Any]


class _Suite(Protocol):
    """What the dataset needs of a suite."""

    tools: Sequence[_Function]
    user_tasks: Mapping[str, _Task]

    def load_and_inject_default_environment(self, injections: Mapping[str, str]) -> object: ...


class _Task(Protocol):
    """What the dataset needs of a user task."""

    ID: str
    PROMPT: str
    GROUND_TRUTH_OUTPUT: str
    DIFFICULTY: object

    def init_environment(self, environment: object) -> Any: ...
    def ground_truth(self, environment: object) -> Sequence[Any]: ...
    def utility(self, text: str, before: object, after: object) -> bool: ...
    def utility_from_traces(
        self, text: str, before: object, after: object, traces: Sequence[object]
    ) -> bool | None: ...


def agentdojo(suites: Sequence[str] | str | None = None, *, version: str = VERSION) -> Dataset:
    """The 97 user tasks of AgentDojo, without attacks; needs the package `agentdojo`.

    The agent under test gets the tools of the task's suite instead of its own.
    """
    chosen = check_choice("suites", suites, SUITES)
    loaded = import_benchmark("agentdojo.task_suite.load_suites", "agentdojo").get_suites(version)
    cases = [_make_case(loaded[name], name, task) for name in chosen for task in loaded[name].user_tasks.values()]
    return Dataset(cases, name="agentdojo")


class _DojoWorld:
    """The environment of one task, and the suite's functions in it."""

    def __init__(self, suite: _Suite, task: _Task) -> None:
        self.environment = task.init_environment(suite.load_and_inject_default_environment({}))
        self._functions = {one.name: one for one in suite.tools}

    def act(self, name: str, arguments: Mapping[str, Any]) -> object:
        """Call a function of the suite."""
        return self._bind(self._functions[name])(**arguments)

    def make_tools(self) -> list[Any]:
        """The functions, but for the parameters that AgentDojo itself fills in."""
        return [tool(self._bind(one), name=one.name) for one in self._functions.values()]

    def _bind(self, function: _Function) -> Callable[..., Any]:
        given = {
            name: dependency.extract_dep_from_env(self.environment)
            for name, dependency in function.dependencies.items()
        }
        signature = inspect.signature(function.run)

        @functools.wraps(function.run)
        def run(**arguments: Any) -> Any:
            return function.run(**arguments, **given)

        shown = [one for name, one in signature.parameters.items() if name not in given]
        run.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        run.__annotations__ = {
            name: kind for name, kind in inspect.get_annotations(function.run).items() if name not in given
        }
        del run.__wrapped__
        return run


def _make_case(suite: _Suite, suite_name: str, task: _Task) -> Case:
    def prepare(agent: Agent) -> Agent:
        world = _DojoWorld(suite, task)
        return furnish(agent, world.make_tools(), WorldPlugin(world.act))

    def judge(_: Case, result: RunResult[Any]) -> str:
        done = list_done(result.messages)[0]
        return "" if _is_useful(suite, task, result.text, done) else "the task's own check is not content"

    return Case(
        id=f"{suite_name}/{task.ID}",
        prompt=task.PROMPT,
        evaluators=(WorldCheck("agentdojo", judge),),
        metadata={"suite": suite_name, "difficulty": str(getattr(task.DIFFICULTY, "name", ""))},
        agent=prepare,
    )


def _is_useful(suite: _Suite, task: _Task, text: str, done: Sequence[DoneCall]) -> bool:
    """What the task says of a world in which this was done."""
    make_call = import_benchmark("agentdojo.functions_runtime", "agentdojo").FunctionCall
    world = _DojoWorld(suite, task)
    before = world.environment.model_copy(deep=True)
    for one in done:
        world.act(one.name, one.arguments)
    traces = [make_call(function=one.name, args=dict(one.arguments)) for one in done]
    verdict = task.utility_from_traces(text, before, world.environment, traces)
    return bool(task.utility(text, before, world.environment) if verdict is None else verdict)


def list_gold(case: Case, *, version: str = VERSION) -> tuple[list[DoneCall], str]:
    """The calls and the answer that solve a case, as AgentDojo gives them: for a model that always knows."""
    suites = import_benchmark("agentdojo.task_suite.load_suites", "agentdojo").get_suites(version)
    suite_name, _, task_id = case.id.partition("/")
    suite = suites[suite_name]
    task = suite.user_tasks[task_id]
    gold = task.ground_truth(_DojoWorld(suite, task).environment)
    return [DoneCall(name=one.function, arguments=dict(one.args)) for one in gold], task.GROUND_TRUTH_OUTPUT or "Done."
