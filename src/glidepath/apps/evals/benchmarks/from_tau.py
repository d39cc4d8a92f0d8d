"""Tau's airline and retail tasks, from the package inspect-evals: their tools, and the state that must come out.

The user is not simulated: the prompt has the policy and all that the user wants, so a task is one run.
"""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args, get_origin

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

DOMAINS = ("airline", "retail")
PACKAGE = "inspect-evals"
_ROOT = "inspect_evals.tau2"
_STATELESS = ("calculate", "transfer_to_human_agents")


def tau(domains: Sequence[str] | str | None = None) -> Dataset:
    """The 164 airline and retail tasks of tau2; needs the package `inspect-evals`.

    A task passes when the database is in the state that the right actions lead to, and the answer has what the user
    must be told. The agent under test gets the tools of the domain instead of its own.
    """
    chosen = check_choice("domains", domains, DOMAINS)
    data = import_benchmark(f"{_ROOT}.utils", PACKAGE).TAU2_DATA_DIR / "domains"
    cases = []
    for domain in chosen:
        policy = (data / domain / "policy.txt").read_text(encoding="utf-8")
        tasks = json.loads((data / domain / "tasks.json").read_text(encoding="utf-8"))
        cases.extend([_make_case(domain, policy, one) for one in tasks])
    return Dataset(cases, name="tau")


class _TauWorld:
    """The database of a domain, and the actions on it."""

    def __init__(self, domain: str) -> None:
        self.state = _make_state(domain)
        self.state.initialized, self.state.db = True, pickle.loads(_load_database(domain))  # noqa: S301 - our own copy
        self._module = import_module(f"{_ROOT}.{domain}.tools")

    def act(self, name: str, arguments: Mapping[str, Any]) -> object:
        """Do it; what changes nothing is left out."""
        return None if name in _STATELESS else getattr(self.state, name)(**arguments)

    def make_tools(self) -> list[Any]:
        """Every action, described as in the package."""
        own = [name for name, one in vars(type(self.state)).items() if inspect.isfunction(one) and name[0] != "_"]
        found = [name for name in own if hasattr(self._module, name)]
        return [tool(self._shape(name), name=name) for name in (*found, *_STATELESS)]

    def _shape(self, name: str) -> Callable[..., Any]:
        shown: Any = getattr(self._module, name)()
        if name in _STATELESS:

            async def run(**arguments: Any) -> Any:
                return await shown(**arguments)
        else:

            async def run(**arguments: Any) -> Any:
                return self.act(name, arguments)

        run.__doc__ = inspect.getdoc(shown)
        signature = inspect.signature(shown)
        plain = [one.replace(annotation=_drop_plain(one.annotation)) for one in signature.parameters.values()]
        run.__signature__ = signature.replace(parameters=plain)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in plain}
        return run


def _drop_plain(annotation: object) -> object:
    """`list[X | dict]` as `list[X]`: a class says more, and the action takes both."""
    inner = get_args(annotation)
    if get_origin(annotation) is not list or len(get_args(inner[0])) < 2:  # noqa: PLR2004 - a union
        return annotation
    return list[next(one for one in get_args(inner[0]) if isinstance(one, type))]  # type: ignore[misc]


@cache
def _load_database(domain: str) -> bytes:
    """The database as it begins, pickled: a copy is made ten times as fast as by reading the file."""
    made = _make_state(domain)
    made.initialize()
    return pickle.dumps(made.db)


def _make_state(domain: str) -> Any:
    """The package's object for a domain, in a fresh store: the usual one is shared by all runs of a process."""
    title = f"{domain.capitalize()}AgentTools"
    store: Any = import_module("inspect_ai.util").Store()
    return getattr(import_module(f"{_ROOT}.{domain}.{title}"), title)(store=store)


def _make_case(domain: str, policy: str, task: Mapping[str, Any]) -> Case:
    wanted = task["evaluation_criteria"]
    gold = list_actions(task)
    told = [str(one) for one in wanted.get("communicate_info") or ()]
    reach_gold = cache(lambda: _reach(domain, gold))

    def prepare(agent: Agent) -> Agent:
        world = _TauWorld(domain)
        return furnish(agent, world.make_tools(), WorldPlugin(world.act))

    def judge(_: Case, result: RunResult[Any]) -> str:
        plain = result.text.lower().replace(",", "")
        missing = [one for one in told if one.lower() not in plain]
        if missing:
            return f"the answer does not say {', '.join(missing)}"
        reached = _reach(domain, list_done(result.messages)[0])
        return "" if reached == reach_gold() else "the database is not in the state that the right actions lead to"

    return Case(
        id=f"{domain}/{task['id']}",
        prompt=f"{_describe_user(task['user_scenario'])}\n\n# Policy\n{policy}",
        evaluators=(WorldCheck("tau", judge),),
        metadata={"domain": domain, "actions": [[one.name, dict(one.arguments)] for one in gold], "tell": told},
        agent=prepare,
    )


def list_actions(task: Mapping[str, Any]) -> list[DoneCall]:
    """What the agent should do in a task."""
    actions = task["evaluation_criteria"].get("actions") or ()
    mine = [one for one in actions if one.get("requestor", "assistant") == "assistant"]
    return [DoneCall(name=one["name"], arguments=one["arguments"]) for one in mine]


def _describe_user(scenario: Mapping[str, Any]) -> str:
    said = scenario["instructions"]
    if isinstance(said, str):
        return said
    parts = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    intro = "You help a customer, who cannot be asked anything more. This is what the customer's side knows and wants:"
    return "\n\n".join([intro, *[str(said[one]) for one in parts if said.get(one)]])


def _reach(domain: str, done: Sequence[DoneCall]) -> str:
    """The state after these actions; one that is refused changes nothing, as in the package's own check."""
    failed: Any = import_module("inspect_ai.tool").ToolError
    world = _TauWorld(domain)
    for one in done:
        try:
            world.act(one.name, one.arguments)
        except failed:
            continue
    return str(world.state.db.get_hash())
