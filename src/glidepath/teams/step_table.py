"""The task board: every step's state machine, what may start next, and the team's status derived from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from glidepath._wire import replace
from glidepath.teams.values import (
    DependencyFailure,
    StepOutcome,
    StepState,
    TeamExecutionPlan,
    TeamStatus,
    TeamStep,
)

_S = StepState
_BLAMED = 5  # steps that a reason names
_ALWAYS = frozenset({_S.SKIPPED, _S.FAILED, _S.CANCELLED})

STEP_TRANSITIONS: Mapping[StepState, frozenset[StepState]] = MappingProxyType(
    {
        _S.PENDING: frozenset({_S.IN_FLIGHT}) | _ALWAYS,
        _S.IN_FLIGHT: frozenset({_S.PENDING, _S.EVALUATING, _S.ESCALATED, _S.WAITING, _S.COMPLETED, _S.DEGRADED})
        | _ALWAYS,
        _S.EVALUATING: frozenset({_S.IN_FLIGHT, _S.ESCALATED, _S.COMPLETED, _S.DEGRADED}) | _ALWAYS,
        _S.ESCALATED: frozenset({_S.IN_FLIGHT, _S.EVALUATING, _S.COMPLETED, _S.DEGRADED}) | _ALWAYS,
        _S.WAITING: frozenset({_S.PENDING, _S.IN_FLIGHT}) | _ALWAYS,
        _S.COMPLETED: frozenset(),
        _S.DEGRADED: frozenset(),
        _S.SKIPPED: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)
"""Every state of a step with the states that may follow it. Skip, failure and cancel may follow any live one."""


class IllegalMove(RuntimeError):  # noqa: N818 - what it is
    """A coordinator tried a move that `STEP_TRANSITIONS` does not allow."""


class StepTable:
    """The steps of one plan, and the state of each."""

    def __init__(self, plan: TeamExecutionPlan, policy: DependencyFailure = DependencyFailure.BLOCK) -> None:
        self.plan = plan
        self.policy = policy
        self.states: dict[str, StepState] = {step.id: _S.PENDING for step in plan.steps}
        self.outcomes: dict[str, StepOutcome] = {}
        needed = {name for step in plan.steps for name in step.depends_on}
        self.sinks = tuple(step.id for step in plan.steps if step.id not in needed)
        """The steps nothing depends on: what the team delivers."""

    def move(self, step_id: str, state: StepState) -> None:
        """Move a step; raises `IllegalMove` if the table does not allow it."""
        current = self.states[step_id]
        if state not in STEP_TRANSITIONS[current]:
            raise IllegalMove(f"step {step_id!r} cannot go from {current.name} to {state.name}")
        self.states[step_id] = state

    def close(self, outcome: StepOutcome) -> None:
        """End a step: move it to the outcome's state and keep the outcome."""
        self.move(outcome.step_id, outcome.state)
        self.outcomes[outcome.step_id] = outcome

    def restore(self, outcomes: Iterable[StepOutcome]) -> None:
        """Take over steps that ended in earlier executions, leaving out those of another plan."""
        for outcome in outcomes:
            if outcome.step_id in self.states:
                self.states[outcome.step_id] = outcome.state
                self.outcomes[outcome.step_id] = outcome

    def is_open(self, step_id: str) -> bool:
        """True for a step of the plan that has not ended."""
        return step_id in self.states and not self.states[step_id].terminal

    def cut_short(self, reason: str) -> bool:
        """Cancel the steps that are still open; True if any step was cut short."""
        for step in self.plan.steps:
            if not self.states[step.id].terminal:
                known = self.outcomes.get(step.id) or StepOutcome(step_id=step.id, state=_S.CANCELLED)
                self.close(replace(known, state=_S.CANCELLED, reason=reason, pending=(), paused=None))
        return _S.CANCELLED in self.states.values()

    def blocked(self) -> list[tuple[TeamStep, str]]:
        """The pending steps that can never start, each with the dependency that is to blame."""
        if self.policy is DependencyFailure.RUN_DEGRADED:
            return []
        lost = {name for name, state in self.states.items() if state.terminal and not state.delivered}
        found = []
        for step in self.in_state(_S.PENDING):
            to_blame = next((name for name in step.depends_on if name in lost), None)
            if to_blame is not None:
                found.append((step, to_blame))
        return found

    def ready(self) -> list[TeamStep]:
        """The pending steps whose dependencies have all ended in a way the policy accepts, in plan order."""
        any_end = self.policy is DependencyFailure.RUN_DEGRADED
        settled = {name for name, state in self.states.items() if state.delivered or (any_end and state.terminal)}
        return [step for step in self.in_state(_S.PENDING) if settled.issuperset(step.depends_on)]

    def in_state(self, *states: StepState) -> list[TeamStep]:
        """The steps in that state, in plan order."""
        return [step for step in self.plan.steps if self.states[step.id] in states]

    def outcomes_in_order(self) -> tuple[StepOutcome, ...]:
        """One outcome for each step, in plan order; a step without an outcome gets one with its state only."""
        return tuple(
            self.outcomes.get(step.id) or StepOutcome(step_id=step.id, state=self.states[step.id])
            for step in self.plan.steps
        )

    def status(self) -> TeamStatus:
        """The team's status derived from its steps, unless it was stopped from outside.

        PAUSED while a step waits. FAILED when a step that nothing depends on did not deliver; steps that a person
        stopped do not count, as long as another one delivered. DEGRADED when those delivered, but some step is not
        COMPLETED. Otherwise COMPLETED.
        """
        if _S.WAITING in self.states.values():
            return TeamStatus.PAUSED
        stopped = {name for name, outcome in self.outcomes.items() if outcome.stopped}
        wanted = [name for name in self.sinks if name not in stopped]
        if not wanted or not all(self.states[name].delivered for name in wanted):
            return TeamStatus.FAILED
        if all(state is _S.COMPLETED for state in self.states.values()):
            return TeamStatus.COMPLETED
        return TeamStatus.DEGRADED

    def reason(self) -> str:
        """Why the status is what it is; empty when every step was accepted."""
        waiting = self.in_state(_S.WAITING)
        if waiting:
            return f"waits for a person: {', '.join(step.id for step in waiting)}"
        lost = [one for one in self.outcomes_in_order() if one.state is not _S.COMPLETED]
        return "; ".join(
            f"step {one.step_id} {one.state.value}: {one.reason or 'nobody did it'}" for one in lost[:_BLAMED]
        )

    def final_output(self) -> str:
        """The team's output: delivered outputs that no other delivered step builds on, in plan order.

        When nothing was delivered: the texts of the steps that were cut short.
        """
        used = self._ancestors(step for step in self.plan.steps if self.states[step.id].delivered)
        texts = [
            self.outcomes[step.id].output
            for step in self.plan.steps
            if self.states[step.id].delivered and step.id not in used
        ]
        if not texts:
            cut = (_S.CANCELLED, _S.WAITING)
            texts = [self.outcomes[step.id].output for step in self.in_state(*cut) if step.id in self.outcomes]
        return "\n\n".join(text for text in texts if text.strip())

    def _ancestors(self, steps: Iterable[TeamStep]) -> set[str]:
        """Everything that these steps depend on, directly or not."""
        needs = {step.id: step.depends_on for step in self.plan.steps}
        found: set[str] = set()
        waiting = [name for step in steps for name in step.depends_on]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(needs[name])
        return found
