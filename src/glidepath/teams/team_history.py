"""What earlier executions of a request did, folded from their events, as far as it matters for a resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from glidepath._wire import Record, field as make
from glidepath.run import Decision
from glidepath.teams.events import TERMINAL, PlanReady, StepCompleted, TeamEvent, TeamStarted
from glidepath.teams.money_spent import add_cost
from glidepath.teams.step_run import StepRun
from glidepath.teams.values import (
    StepOutcome,
    StepState,
    TeamExecutionPlan,
    TeamExecutionRequest,
    TeamResult,
    TeamStatus,
)
from glidepath.values import ConfigurationError, RunResult, Usage


class History(Record, kw_only=True):
    """What earlier executions of a request did: taken from the journal, or from a paused result."""

    request: TeamExecutionRequest
    plan: TeamExecutionPlan | None = None
    outcomes: tuple[StepOutcome, ...] = ()
    """The steps that have ended."""
    steps: dict[str, StepRun] = make(default_factory=dict)
    """The steps that have started, by id; a resumed execution continues with these objects."""
    elapsed: float = 0.0
    usage: Usage = Usage()
    cost: Decimal | None = None
    account: tuple[int, int] | None = None
    """Tokens and pico-dollars already taken from the budget; None: the same as `usage` and `cost`."""
    disputed: tuple[int, int] = (0, 0)
    """The part of these that no call explains."""
    sequence: int = 0
    decisions: Mapping[str, Decision] = make(default_factory=dict)
    """What a person has decided about pending calls."""
    asked: frozenset[str] = frozenset()
    """Every call that was ever pending, by its id and by `STEP/CALL`."""
    result: TeamResult | None = None
    """The result of the last execution, if it ended."""
    origins: tuple[str, ...] = ()
    """The untrusted sources that members have read."""
    began: TeamStarted | None = None
    """How the last execution began, with what the team was like then."""

    @property
    def new_plan(self) -> bool:
        """A person has replaced the plan that the last execution made."""
        return self.result is not None and self.result.plan != self.plan

    @classmethod
    def of_result(cls, result: TeamResult) -> History:
        """The history that a paused result carries."""
        outcomes = result.step_outcomes
        return cls(
            request=result.request,
            plan=result.plan,
            outcomes=tuple(outcome for outcome in outcomes if outcome.state.terminal),
            steps={one.step_id: StepRun.waiting(one) for one in outcomes if one.state is StepState.WAITING},
            elapsed=result.duration,
            usage=result.usage,
            cost=result.cost,
            sequence=result.sequence,
            result=result,
            origins=tuple(dict.fromkeys(name for outcome in outcomes for name in outcome.origins)),
        )

    @classmethod
    def of_events(cls, events: Iterable[TeamEvent]) -> History | None:
        """The history that the events of a request tell; None if no execution has started."""
        history: History | None = None
        began = 0.0
        for event in events:
            if isinstance(event, TeamStarted):
                history = history or cls(request=event.request)
                history.request, history.result, began = event.request, None, event.time - history.elapsed
                history.began = event
            if history is not None:
                history.elapsed = max(history.elapsed, event.time - began)
                history.take(event)
        return None if history is None else history.settle()

    def take(self, event: TeamEvent) -> None:
        """Take in one event."""
        self.sequence = event.sequence
        usage = getattr(event, "usage", None)
        if usage is not None:
            self.usage, self.cost = self.usage + usage, add_cost(self.cost, getattr(event, "cost", None))
        self.origins = tuple(dict.fromkeys((*self.origins, *getattr(event, "origins", ()))))
        if isinstance(event, PlanReady):
            self.plan = event.plan
        elif isinstance(event, StepCompleted):
            self.outcomes = (*self.outcomes, event.outcome)
        elif isinstance(event, TERMINAL):
            self.result = event.result
            for outcome in event.result.step_outcomes:
                if outcome.state is StepState.WAITING:  # until it is resumed, even if a process dies in between
                    self._step(outcome.step_id).waits(outcome)
                    for waiting in outcome.paused.pending if outcome.paused is not None else ():
                        self.asked |= {waiting.call.id, f"{outcome.step_id}/{waiting.call.id}"}
        elif event.step_id is not None:
            self._step(event.step_id).replay(event)

    def _step(self, step_id: str) -> StepRun:
        return self.steps.setdefault(step_id, StepRun())

    def settle(self) -> History:
        """The history once all events are taken in."""
        if self.result is not None and self.result.status is TeamStatus.PAUSED:
            # The result has the sums, including runs without events, such as those of a custom coordinator.
            self.usage, self.cost, self.elapsed = self.result.usage, self.result.cost, self.result.duration
        for step in self.steps.values():
            step.replayed()
        # a cancelled step was stopped, not finished; if a step ended twice, the last one counts
        last = {outcome.step_id: outcome for outcome in self.outcomes}
        self.outcomes = tuple(outcome for outcome in last.values() if outcome.state is not StepState.CANCELLED)
        return self


def check_decisions(decisions: object, history: History) -> Mapping[str, Decision]:
    """The decisions by pending call; raises `ConfigurationError` for one that matches none."""
    if decisions is None:
        return {}
    if not isinstance(decisions, Mapping) or not all(isinstance(said, Decision) for said in decisions.values()):
        raise ConfigurationError("decisions must map call ids to approve(), deny(reason) or answer(text)")
    pending = _pending(history)
    found: dict[str, Decision] = {}
    for name, decision in decisions.items():
        exact = [key for key, (step_call, _) in pending.items() if step_call == name]
        places = exact or [key for key, (_, call) in pending.items() if call == name]
        if not places and name in history.asked:
            continue  # it was carried out before the process died
        if not places:
            known = ", ".join(dict.fromkeys(call for _, call in pending.values())) or "none"
            raise ConfigurationError(f"decisions: there is no pending call {name!r:.80}; pending: {known}")
        if len(places) > 1:
            which = ", ".join(pending[key][0] for key in places)
            raise ConfigurationError(
                f"decisions: call {name!r:.80} is pending in more than one step; use one of {which}"
            )
        if places[0] in found:
            raise ConfigurationError(f"decisions: two decisions are about the same call, {name!r:.80}; remove one")
        found[places[0]] = decision
    return found


def _pending(history: History) -> dict[str, tuple[str, str]]:
    """The pending calls by `decision_key`, each as `STEP/CALL` and as its call id alone."""
    finished = {outcome.step_id for outcome in history.outcomes}
    waiting = [(name, step.paused) for name, step in history.steps.items() if step.paused and name not in finished]
    return {
        decision_key(paused, one.call.id): (f"{name}/{one.call.id}", one.call.id)
        for name, paused in waiting
        for one in paused.pending
    }


def decision_key(run: RunResult, call_id: str) -> str:
    """A unique name for a call among all runs of a team: call ids come from models and may repeat."""
    return f"{run.run_id}/{call_id}"
