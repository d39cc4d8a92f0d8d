"""One benchmark as an evaluation by a model that always knows, its curve, and the curve of real runs.

Runs in an environment that has the benchmark's package; `bench/eval_curves/run.py` makes it and starts this.
"""

import argparse
import asyncio
import importlib.util
import json
import logging
import sys
import types
from pathlib import Path

from glidepath import Agent, Limits
from glidepath.apps.evals.benchmarks import from_agentdojo, from_bfcl
from glidepath.evals import CurveMaker, Dataset, agentdojo, bfcl, evaluate, tau
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, call, say

PRICE = ("3", "15")
LIMITS = Limits(max_iterations=90)


def load_tau():
    """Tau, where inspect-evals is installed without inspect-ai: the few names that its tools need of it."""
    from pydantic import BaseModel

    class Store:
        """A state lives in its own object here."""

    class StoreModel(BaseModel, arbitrary_types_allowed=True):
        store: Store

    names = {
        "tool": {"ToolError": type("ToolError", (Exception,), {}), "Tool": object, "tool": lambda make: make},
        "util": {"Store": Store, "StoreModel": StoreModel, "store_as": None},
        "model": {"Content": object, "ContentText": object},
    }
    for name, values in names.items():
        sys.modules[f"inspect_ai.{name}"] = module = types.ModuleType(f"inspect_ai.{name}")
        vars(module).update(values)
    sys.modules["inspect_ai"] = types.ModuleType("inspect_ai")
    home = Path(importlib.util.find_spec("inspect_evals").origin).parent / "tau2"
    sys.modules["inspect_evals.tau2"] = package = types.ModuleType("inspect_evals.tau2")
    package.__path__ = [str(home)]
    return tau()


def load_agentdojo():
    """AgentDojo, where it is installed without the SDKs of the models that it brings."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "agentdojo"))
    from fly import without_its_models

    without_its_models()
    return agentdojo()


def script_agentdojo(case):
    done, answer = from_agentdojo.list_gold(case)
    return [*[call(one.name, **one.arguments) for one in done], say(answer)]


def script_bfcl(case):
    script = []
    for turn in from_bfcl.list_gold(case):
        script.extend([call(one.name, **one.arguments) for one in turn])
        script.append(say("Done."))
    return script


def script_tau(case):
    told = " ".join(case.metadata["tell"])
    return [*[call(name, **arguments) for name, arguments in case.metadata["actions"]], say(f"Done. {told}".strip())]


SETS = {
    "agentdojo": (load_agentdojo, script_agentdojo),
    "bfcl": (bfcl, script_bfcl),
    "tau": (load_tau, script_tau),
}


async def fly(name, every, by, points):
    load, script = SETS[name]
    whole = load()
    dataset = Dataset(whole.cases[::every], name=name)
    scripts = {case.id: script(case) for case in dataset}

    def make(case):
        return Agent(model=ScriptedModel(list(scripts[case.id]), price=PRICE, record=False), limits=LIMITS)

    store = MemoryStore()
    report = await evaluate(dataset, make, store=store, name="generous", concurrency=2)
    maker = CurveMaker(dataset, make, store, "generous", by=by)
    curve = (await maker.make(rerun=True, points=points, concurrency=2)).curve
    return {
        "cases": len(dataset),
        "passed": report.passed,
        "not_covered": len(dataset) - len(report.covered),
        "failed": [one.case_id for one in report.failures_first if one.passed is False][:20],
        "by": by,
        "runs": curve.runs,
        "left_out": dict(curve.left_out),
        "points": [
            {
                "limit": one.limit,
                "passed": one.passed,
                "real_passed": one.real_passed,
                "landed": one.landed,
                "other_landings": one.other_landings,
                "wrong": one.wrong,
            }
            for one in curve.points
        ],
    }


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("name", choices=SETS)
    options.add_argument("--every", type=int, default=1, help="take every Nth case")
    options.add_argument("--by", default="max_cost")
    options.add_argument("--points", type=int, default=20)
    chosen = options.parse_args()
    logging.disable(logging.CRITICAL)
    print(json.dumps(asyncio.run(fly(chosen.name, chosen.every, chosen.by, chosen.points))))


if __name__ == "__main__":
    main()
