"""The stage on which a coordinator is observed: scripted members, and a record of its events and requests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath._wire import Record
from glidepath.agent import Agent, Limits
from glidepath.run import CancelToken
from glidepath.teams import (
    TERMINAL,
    History,
    Member,
    StepAssigned,
    StepCompleted,
    Team,
    TeamConfig,
    TeamCoordinator,
    TeamEvent,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamRun,
    TeamStep,
)
from glidepath.testing import ScriptedModel, say
from glidepath.values import RunResult

if TYPE_CHECKING:
    from collections.abc import Coroutine

E = TypeVar("E", bound=TeamEvent)
GRACE = 30.0  # seconds a coordinator may take past the team's time before it counts as hanging


def artifact(step_id: str) -> str:
    """What the member of a step delivers by default."""
    return f"artifact <{step_id}>"


class Asked(Record):
    """One run of a member: its agent, prompt, times and result."""

    agent: Agent
    prompt: str
    began: float
    ended: float | None = None
    result: RunResult | None = None


class CoordinatorHarness:
    """One request with a plan, one member for each step, and one execution under observation.

    `graph` names the steps and what each depends on. Every step is pinned to the member with its name, so that the
    stage knows who works on what, whatever the prompts say. `turns` scripts the members' models, as for
    `ScriptedModel.forever`. `config` goes to `TeamConfig`.
    """

    def __init__(
        self,
        graph: Mapping[str, Sequence[str]],
        turns: Mapping[str, Any] | None = None,
        *,
        planned: bool = True,
        plan_only: bool = False,
        steps: Sequence[TeamStep] = (),
        tools: Sequence[Any] = (),
        limits: Limits | None = None,
        **config: Any,
    ) -> None:
        turns = turns or {}
        self.models = {
            name: ScriptedModel(name=f"model-of-{name}", price=("1", "1")).forever(turns.get(name, say(artifact(name))))
            for name in graph
        }
        members = [
            Member(
                name=name,
                agent=Agent(
                    model=self.models[name],
                    limits=limits or Limits(max_iterations=6),
                    agent_name=name,
                    tools=tuple(tools),
                    max_retries=0,
                ),
                capabilities=frozenset({f"can-{name}"}),
            )
            for name in graph
        ]
        self.steps = tuple(steps) or tuple(
            TeamStep(id=name, description=f"Write part {name}.", depends_on=tuple(needed), member=name)
            for name, needed in graph.items()
        )
        plan = TeamExecutionPlan(steps=self.steps) if planned else None
        self.request = TeamExecutionRequest(
            goal="Write the report.", plan=plan, plan_only=plan_only, config=TeamConfig(**config)
        )
        self.published: list[TeamEvent] = []
        """The events as observers see them, with their envelope."""
        self.said: list[TeamEvent] = []
        """The events as the coordinator passed them to `team.emit`."""
        self.asked: list[Asked] = []
        """Every call of `team.ask`."""
        self.cancel = CancelToken()
        self.on_event: Callable[[TeamEvent], None] | None = None
        self.team = Team(members, name="stage", event_sink=self.published.append)

    # --- running ------------------------------------------------------------------------------------------------

    async def run_coordinator(self, coordinator: TeamCoordinator, history: History | None = None) -> TeamResult:
        """Let a coordinator execute the request, without the supervision of `Team.run`."""
        team = await self.open_run(history)
        try:
            return await self._await_with_limit(start_coordinator(coordinator, self.request, team))
        finally:
            await team.close()

    async def _await_with_limit(self, work: Coroutine[Any, Any, TeamResult]) -> TeamResult:
        task = asyncio.ensure_future(work)
        seconds = self.request.config.time_limit + GRACE
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=GRACE)
        if task.cancelled():
            raise AssertionError(f"the coordinator did not return within {seconds:g} s")
        return task.result()

    async def open_run(self, history: History | None = None) -> TeamRun:
        """The run of this execution, which records `emit` and `ask`."""
        team = await self.team.open(self.request, cancel=self.cancel, history=history)
        emit, ask = team.emit, team.ask

        def record_event(event: TeamEvent) -> None:
            self.said.append(event)
            emit(event)
            if self.on_event is not None:
                self.on_event(event)

        async def record_run(agent: Agent, prompt: str, **more: Any) -> RunResult:
            loop = asyncio.get_running_loop()
            asked = Asked(agent, prompt, loop.time())
            self.asked.append(asked)
            try:
                asked.result = await ask(agent, prompt, **more)
            finally:
                asked.ended = loop.time()
            return asked.result

        vars(team).update(emit=record_event, ask=record_run)
        return team

    # --- what was recorded --------------------------------------------------------------------------------------

    def of(self, kind: type[E]) -> list[E]:
        """The emitted events of one kind."""
        return [event for event in self.said if isinstance(event, kind)]

    def kinds(self) -> list[str]:
        """The kinds of all emitted events, for error messages."""
        return [f"{event.kind}({event.step_id})" if event.step_id else event.kind for event in self.said]

    def endings(self) -> list[TeamEvent]:
        """The terminal events."""
        return [event for event in self.said if isinstance(event, TERMINAL)]

    def runs_of_step(self, step_id: str) -> list[Asked]:
        """The runs of one step's member."""
        return [asked for asked in self.asked if asked.agent.config.agent_name == step_id]

    def list_assigned_steps(self) -> list[str]:
        """The steps that were assigned, each once, in order."""
        return list(dict.fromkeys(str(event.step_id) for event in self.of(StepAssigned)))

    def count_most_parallel(self) -> int:
        """The most steps that were between their assignment and their end at any time."""
        most, open_steps = 0, set[str | None]()
        for event in self.said:
            if isinstance(event, StepAssigned):
                open_steps.add(event.step_id)
            elif isinstance(event, StepCompleted):
                open_steps.discard(event.step_id)
            most = max(most, len(open_steps))
        return max(most, _count_overlap([(asked.began, asked.ended) for asked in self.asked]))

    @property
    def calls(self) -> int:
        """How often a member's model was called, by anyone."""
        return sum(model.calls for model in self.models.values())


def _count_overlap(spans: Sequence[tuple[float, float | None]]) -> int:
    moments = [(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans if ended is not None]
    most = now = 0
    for _, change in sorted(moments):  # an end before a beginning at the same moment
        now += change
        most = max(most, now)
    return most


def start_coordinator(coordinator: TeamCoordinator, request: TeamExecutionRequest, team: TeamRun) -> Any:
    """The work of a coordinator on a request, to be awaited."""
    work: Any = coordinator.execute(request, team)
    assert inspect.isawaitable(work), f"execute() must be async: it answered {work!r:.80}, which cannot be awaited"
    return work
