"""Many teams at once in one process: memory per team, and CPU per step above the bare runs of its members.

200 teams of 5 members carry out a plan of 5 steps each, two in parallel behind the first, on a fake model that says 20
deltas. The same runs without a team (`Agent.run` on one shared `Budget`) are the control. See README.md.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
import tracemalloc
from pathlib import Path

from glidepath import Agent, Budget, Limits, Usage
from glidepath.models import StreamEnd, TextDelta
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    ExpertTeamCoordinator,
    Member,
    Team,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamStatus,
    TeamStep,
)

DELTAS = ["token "] * 20
STEPS = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d",)}
PLAN = TeamExecutionPlan(
    steps=tuple(TeamStep(id=name, description=f"do {name}", depends_on=needed) for name, needed in STEPS.items())
)
LIMITS = Limits(max_iterations=10)
COORDINATORS = {"dispatch": DefaultTaskDispatchCoordinator, "expert": ExpertTeamCoordinator}


class FakeModel:
    name = "fake"
    max_output_tokens = 1_000

    def __init__(self, wait: float = 0.0) -> None:
        self.wait = wait

    async def stream(self, request):
        await asyncio.sleep(self.wait)
        for text in DELTAS:
            yield TextDelta(text=text)
        yield StreamEnd(stop_reason="end_turn", usage=Usage(input=100, output=20))


def make_teams(count: int, wait: float = 0.0) -> list[Team]:
    model = FakeModel(wait)
    agents = [Agent(model=model, limits=LIMITS, agent_name=f"member{number}") for number in range(5)]
    return [Team([Member(name=a.config.agent_name, agent=a) for a in agents], name=f"team{n}") for n in range(count)]


async def run_teams(teams: list[Team], kind: str) -> None:
    coordinator = COORDINATORS[kind]()
    requests = [TeamExecutionRequest(goal="the goal", plan=PLAN) for _ in teams]
    work = [team.run(request, coordinator=coordinator) for team, request in zip(teams, requests, strict=True)]
    for result in await asyncio.gather(*work):
        assert result.status is TeamStatus.COMPLETED, result.reason
        assert all(outcome.output == "token " * 20 for outcome in result.step_outcomes)


async def run_bare(count: int) -> None:
    agent = Agent(model=FakeModel(), limits=LIMITS)

    async def one() -> None:
        budget = Budget(Limits(timeout=600))
        for _ in STEPS:
            assert (await agent.run("Do it.", parent=budget)).text

    await asyncio.gather(*(one() for _ in range(count)))


def cpu(work) -> float:
    gc.collect()
    began = time.process_time()
    asyncio.run(work)
    return time.process_time() - began


async def memory(count: int, kind: str) -> float:
    """KiB per team while all of them wait for the model in their first step."""
    teams = make_teams(count, wait=0.5)
    gc.collect()
    tracemalloc.start()
    work = asyncio.create_task(run_teams(teams, kind))
    await asyncio.sleep(0.4)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await work
    return used / 1024 / count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    steps = options.teams * len(STEPS)
    best: dict[str, float] = {}
    for _ in range(options.rounds):  # interleaved, so that a slow spell of the machine hits all of them
        for name in ("bare", *COORDINATORS):
            work = run_bare(options.teams) if name == "bare" else run_teams(make_teams(options.teams), name)
            best[name] = min(best.get(name, float("inf")), cpu(work) / steps * 1e6)
    figures = {
        "teams": options.teams,
        "steps": steps,
        "cpu_us_per_step": {name: round(value, 1) for name, value in best.items()},
        "kib_per_team": {kind: round(asyncio.run(memory(options.teams, kind)), 1) for kind in COORDINATORS},
    }
    print(json.dumps(figures, indent=2))
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
