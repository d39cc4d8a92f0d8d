"""Fly AgentDojo's 97 user tasks along their ground truth, with AgentDojo's own functions as tools.

Runs in an environment that has agentdojo; `bench/agentdojo/run.py` makes it and starts this.
"""

import argparse
import asyncio
import functools
import importlib.util
import inspect
import json
import logging
import sys
import types
from pathlib import Path

from glidepath import Agent, ExecutionMode, Limits, tool
from glidepath.events import GuardTripped, ToolEnded
from glidepath.testing import ScriptedModel, call, calls, say

VERSION = "v1.2.2"


def without_its_models():
    """Make AgentDojo's package importable without the SDKs of the models that it brings."""
    home = Path(importlib.util.find_spec("agentdojo").origin).parent
    package = types.ModuleType("agentdojo.agent_pipeline")
    package.__path__ = [str(home / "agent_pipeline")]
    sys.modules["agentdojo.agent_pipeline"] = package
    google = types.ModuleType("agentdojo.agent_pipeline.llms.google_llm")
    google.EMPTY_FUNCTION_NAME = "<empty-function>"  # all that the ground truth needs of it
    sys.modules[google.__name__] = google


def tools_of(suite, environment, marks=lambda name: {}, answer=lambda result: result):
    """The suite's functions as they are, but for the parameters that AgentDojo itself fills in.

    `answer` may add to a result.
    """
    return [made(function, environment, marks(function.name), answer) for function in suite.tools]


def made(function, environment, marks, answer=lambda result: result):
    given = {name: dependency.extract_dep_from_env(environment) for name, dependency in function.dependencies.items()}
    signature = inspect.signature(function.run)
    shown = [parameter for name, parameter in signature.parameters.items() if name not in given]

    @functools.wraps(function.run)
    def run(**arguments):
        return answer(function.run(**arguments, **given))

    run.__signature__ = signature.replace(parameters=shown)
    run.__annotations__ = {
        name: kind for name, kind in inspect.get_annotations(function.run).items() if name not in given
    }
    del run.__wrapped__
    return tool(run, name=function.name, **marks)


class Flight:
    """One user task: the calls of its ground truth, each in a reply of its own or all in one."""

    def __init__(self, suite, task):
        self.suite, self.task = suite, task
        self.counts = {"calls": 0, "errors": 0, "guards": 0}

    def hear(self, event):
        if isinstance(event, ToolEnded):
            self.counts["calls"] += 1
            self.counts["errors"] += event.result.is_error
        elif isinstance(event, GuardTripped):
            self.counts["guards"] += 1

    async def fly(self, at_once):
        """True when AgentDojo's own `utility` is content."""
        from agentdojo.functions_runtime import FunctionCall

        environment = self.task.init_environment(self.suite.load_and_inject_default_environment({}))
        before = environment.model_copy(deep=True)
        gold = self.task.ground_truth(environment)
        made = [call(one.function, **one.args) for one in gold]
        script = [calls(*made)] if at_once and made else made
        answer = self.task.GROUND_TRUTH_OUTPUT or "Done."
        agent = Agent(
            model=ScriptedModel([*script, say(answer)]),
            tools=tools_of(self.suite, environment),
            limits=Limits(max_iterations=60),
            default_execution_mode=ExecutionMode.AUTO,
            event_sink=self.hear,
        )
        result = await agent.run(self.task.PROMPT)
        ran = [FunctionCall(function=one.function, args=one.args) for one in gold]
        verdict = self.task.utility_from_traces(result.text, before, environment, ran)
        return self.task.utility(result.text, before, environment) if verdict is None else verdict


async def campaign(every, at_once):
    from agentdojo.task_suite.load_suites import get_suites

    report = {"tasks": 0, "passed": 0, "failed": [], "calls": 0, "errors": 0, "guards": 0}
    tasks = [(suite, task) for suite in get_suites(VERSION).values() for task in suite.user_tasks.values()]
    for suite, task in tasks[::every]:
        flight = Flight(suite, task)
        passed = await flight.fly(at_once)
        report["tasks"] += 1
        report["passed"] += bool(passed)
        if not passed:
            report["failed"].append(f"{suite.name} {task.ID}")
        for name, count in flight.counts.items():
            report[name] += count
    return report


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--every", type=int, default=1, help="fly every Nth task")
    chosen = options.parse_args()
    logging.disable(logging.CRITICAL)
    without_its_models()
    report = {name: asyncio.run(campaign(chosen.every, name == "one_reply")) for name in ("turn_by_turn", "one_reply")}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
