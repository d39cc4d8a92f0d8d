"""Fly BFCL's multi-turn conversations: the gold calls of a turn in one reply, BFCL's own methods as tools.

Runs in an environment that has bfcl-eval; `bench/bfcl/run.py` makes it and starts this.
"""

import argparse
import ast
import asyncio
import copy
import functools
import importlib
import inspect
import json
import logging
import random
import threading
import time
from collections import Counter
from importlib.resources import files

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

from glidepath import Agent, ExecutionMode, Limits, tool
from glidepath.events import GuardTripped, ToolEnded
from glidepath.sessions import Session
from glidepath.testing import ScriptedModel, call, calls, say

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
SLOWEST = 0.003  # seconds a tool takes at most


def entries():
    """The 800 conversations with their gold calls, one list of calls for each turn."""
    data = files("bfcl_eval") / "data"
    for category in CATEGORIES:
        name = f"BFCL_v4_multi_turn_{category}.json"
        questions = (data / name).read_text(encoding="utf-8").splitlines()
        answers = (data / "possible_answer" / name).read_text(encoding="utf-8").splitlines()
        gold = {answer["id"]: answer["ground_truth"] for answer in map(json.loads, answers)}
        for question in map(json.loads, questions):
            yield question, gold[question["id"]]


def instances(entry):
    """BFCL's objects for one conversation, in the state in which it begins."""
    made = {}
    for name in entry["involved_classes"]:
        made[name] = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
        if name not in STATELESS_CLASSES:
            scenario = copy.deepcopy(entry["initial_config"].get(name, {}))
            made[name]._load_scenario(scenario, long_context="long_context" in entry["id"])  # noqa: SLF001 - as BFCL does
    return made


class Flight:
    """One conversation: its tools, and which of their calls really ran, in which order."""

    def __init__(self, entry, gold, seed):
        self.entry, self.gold = entry, gold
        self.chance = random.Random(f"{seed} {entry['id']}")  # noqa: S311 - the same latencies every time
        self.lock = threading.Lock()
        self.ran, self.counts = [], Counter()
        self.instances = instances(entry)
        self.methods = {
            name: method
            for instance in self.instances.values()
            for name, method in inspect.getmembers(instance, predicate=inspect.ismethod)
            if not name.startswith("_")
        }

    def slow(self, name, method):
        """The method as it is, behind 0 to 3 ms of latency."""

        @functools.wraps(method)
        def late(*args, **kwargs):
            time.sleep(self.chance.random() * SLOWEST)
            with self.lock:
                given = inspect.signature(method).bind(*args, **kwargs).arguments
                self.ran[-1].append(f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})")
                result = method(*args, **kwargs)
                self.counts["returned"] += 1
                return result

        return tool(late)

    def reply(self, gold):
        """The gold calls of a turn as one reply of a model."""
        made = []
        for text in gold:
            parsed = ast.parse(text, mode="eval").body
            signature = inspect.signature(self.methods[parsed.func.id])
            args = [ast.literal_eval(arg) for arg in parsed.args]
            kwargs = {keyword.arg: ast.literal_eval(keyword.value) for keyword in parsed.keywords}
            made.append(call(parsed.func.id, **signature.bind_partial(*args, **kwargs).arguments))
        return calls(*made)

    def hear(self, event):
        if isinstance(event, ToolEnded):
            self.counts["calls"] += 1
            self.counts["errors"] += event.result.is_error
        elif isinstance(event, GuardTripped):
            self.counts["guards"] += 1

    async def fly(self, mode):
        """True when BFCL's checker is content with what ran, in the order in which it ran."""
        tools = [self.slow(name, method) for name, method in self.methods.items()]
        session = Session(self.entry["id"])
        for question, gold in zip(self.entry["question"], self.gold, strict=True):
            self.ran.append([])
            script = [self.reply(gold), say("Done.")] if gold else [say("I cannot do that.")]
            agent = Agent(
                model=ScriptedModel(script),
                tools=tools,
                limits=Limits(max_iterations=10),
                default_execution_mode=mode,
                event_sink=self.hear,
            )
            prompt = question[0]["content"] if question else "Here are more tools."
            await agent.run(prompt, session=session)
        return self.judged(mode)

    def judged(self, mode):
        ran = [[turn] if turn else [] for turn in self.ran]
        verdict = multi_turn_checker(ran, self.gold, self.entry, self.entry["id"].rsplit("_", 1)[0], mode.value)
        for name in [name for name in vars(multi_turn_utils) if name.endswith("_instance")]:
            delattr(multi_turn_utils, name)
        return verdict["valid"]


async def campaign(mode, every, seed):
    total, passed, failed, counts = 0, 0, [], Counter()
    for number, (entry, gold) in enumerate(entries()):
        if number % every:
            continue
        flight = Flight(entry, gold, seed)
        total += 1
        if await flight.fly(mode):
            passed += 1
        else:
            failed.append(entry["id"])
        counts.update(flight.counts)
    found = {name: counts[name] for name in ("calls", "errors", "returned", "guards")}
    found["lost"] = found["returned"] - (found["calls"] - found["errors"])  # the tool ran, and its result is an error
    return {"conversations": total, "passed": passed, "failed": failed[:20], **found}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--modes", default="auto,parallel,sequential")
    options.add_argument("--every", type=int, default=1, help="fly every Nth conversation")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    logging.disable(logging.CRITICAL)
    report = {}
    for mode in chosen.modes.split(","):
        report[mode] = asyncio.run(campaign(ExecutionMode(mode), chosen.every, chosen.seed))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
