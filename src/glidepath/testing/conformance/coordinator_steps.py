"""The contract of a `TeamCoordinator`: its events, and what it does with the steps of a plan."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from glidepath.teams import (
    STEP_TRANSITIONS,
    TERMINAL,
    DependencyFailure,
    EvaluationStarted,
    PlanReady,
    RiskProfile,
    RoleDefinition,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepState,
    TeamCoordinator,
    TeamEvent,
    TeamExecutionPlan,
    TeamResourceConstraint,
    TeamResult,
    TeamStarted,
    TeamStatus,
    TeamStep,
)
from glidepath.teams.events import make_ending
from glidepath.testing import empty, fail, hang, say
from glidepath.testing.conformance.contract import VirtualContract, missing
from glidepath.testing.conformance.coordinator_harness import CoordinatorHarness, artifact
from glidepath.values import RejectedError

S = StepState
DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


class CoordinatorContract(VirtualContract):
    """What every contract of a coordinator needs."""

    def make_coordinator(self) -> TeamCoordinator:
        """A coordinator as a user would create it."""
        raise NotImplementedError(missing(self, "make_coordinator"))

    async def _run_stage(self, stage: CoordinatorHarness) -> TeamResult:
        result = await stage.run_coordinator(self.make_coordinator())
        assert isinstance(result, TeamResult), f"execute() must return a TeamResult, not {result!r:.100}"
        return result

    async def _paths(self) -> Mapping[TeamStatus, tuple[CoordinatorHarness, TeamResult]]:
        """One execution for each way to end."""
        found = {}
        for status, stage in (
            (TeamStatus.COMPLETED, CoordinatorHarness(DIAMOND)),
            (TeamStatus.FAILED, CoordinatorHarness(DIAMOND, {"b": empty()})),
            (TeamStatus.TIMEOUT, CoordinatorHarness(DIAMOND, {"b": hang("began")}, team_timeout=100)),
            (TeamStatus.CANCELLED, CoordinatorHarness(DIAMOND, {"b": hang("began")})),
            (TeamStatus.PAUSED, CoordinatorHarness(DIAMOND, plan_only=True)),
        ):
            if status is TeamStatus.CANCELLED:
                asyncio.get_running_loop().call_later(30, stage.cancel.cancel, "enough")
            found[status] = (stage, await self._run_stage(stage))
        return found


class StepClauses(CoordinatorContract):
    """The clauses about events and the order of steps."""

    # --- events -------------------------------------------------------------------------------------------------

    async def test_coord_1_what_members_deliver_is_the_result(self) -> None:
        """COORD-1: when every step delivers, the result of this request is COMPLETED, with every output."""
        stage = CoordinatorHarness(DIAMOND)
        result = await self._run_stage(stage)
        assert result.status is TeamStatus.COMPLETED, result.reason
        assert (result.request_id, result.team) == (stage.request.id, "stage")
        assert {item.step_id: item.output for item in result.step_outcomes} == {n: artifact(n) for n in DIAMOND}
        assert {item.state for item in result.step_outcomes} == {S.COMPLETED}
        assert artifact("d") in result.final_output

    async def test_coord_2_team_started_is_first(self) -> None:
        """COORD-2: the first event is TEAM_STARTED, and there is only one, however the execution ends."""
        for status, (stage, _) in (await self._paths()).items():
            started = [number for number, event in enumerate(stage.said) if isinstance(event, TeamStarted)]
            assert started == [0], f"{status.name}: {stage.kinds()}"

    async def test_coord_3_one_terminal_event_and_it_is_last(self) -> None:
        """COORD-3: exactly one terminal event, and it is last, however the execution ends."""
        for status, (stage, _) in (await self._paths()).items():
            ends = [number for number, event in enumerate(stage.said) if isinstance(event, TERMINAL)]
            assert ends == [len(stage.said) - 1], f"{status.name}: {stage.kinds()}"

    async def test_coord_4_the_terminal_event_tells_what_is_returned(self) -> None:
        """COORD-4: the terminal event matches the status, and carries the result that is returned."""
        for stage, result in (await self._paths()).values():
            for event in stage.endings():
                told: TeamResult = event.result  # type: ignore[attr-defined]
                assert type(event) is type(make_ending(result)), (event.kind, result.status)
                assert (told.status, told.final_output) == (result.status, result.final_output)
                assert told.step_outcomes == result.step_outcomes

    async def test_coord_5_events_say_what_they_are_about(self) -> None:
        """COORD-5: events of a step carry its id, those of an attempt its number; attempts count up from 1."""
        for stage in (CoordinatorHarness(DIAMOND), CoordinatorHarness({"a": ()}, {"a": empty()})):
            await self._run_stage(stage)
            attempts: dict[str | None, int] = {}
            for event in stage.said:
                if isinstance(event, StepAssigned | StepAttempted | StepCompleted | EvaluationStarted):
                    assert event.step_id in {step.id for step in stage.steps}, event
                if isinstance(event, StepAssigned):
                    attempts[event.step_id] = attempts.get(event.step_id, 0) + 1
                if isinstance(event, StepAssigned | StepAttempted):
                    assert event.attempt == attempts.get(event.step_id, 0), event
            assert sum(attempts.values()) == len(stage.asked), "every attempt is announced by STEP_ASSIGNED"

    async def test_coord_6_events_go_through_the_team(self) -> None:
        """COORD-6: every emitted event is published: none is missing or late, and the numbers have no gaps."""
        for stage, result in (await self._paths()).values():
            assert result.sequence == stage.published[-1].sequence, "the result has the number of the last event"
            assert [type(event) for event in stage.published] == [type(event) for event in stage.said]
            assert [event.sequence for event in stage.published] == list(range(1, len(stage.said) + 1))
            assert {event.request_id for event in stage.published} == {stage.request.id}
            assert {event.team for event in stage.published} == {"stage"}

    async def test_coord_7_the_plan_is_ready_before_the_first_step(self) -> None:
        """COORD-7: PLAN_READY comes once, before the first STEP_ASSIGNED; a plan in the request is used unchanged."""
        stage = CoordinatorHarness(DIAMOND)
        result = await self._run_stage(stage)
        (ready,) = stage.of(PlanReady)
        first = next(number for number, event in enumerate(stage.said) if isinstance(event, StepAssigned))
        assert stage.said.index(ready) < first, stage.kinds()
        assert ready.plan == stage.request.plan
        assert result.plan == stage.request.plan

    # --- the steps ----------------------------------------------------------------------------------------------

    async def test_coord_8_dependencies_come_first(self) -> None:
        """COORD-8: a step is assigned only after everything it depends on has been delivered."""
        graph = {"e": ("d", "a"), "d": ("c",), "c": (), "b": ("e",), "a": ()}
        stage = CoordinatorHarness(graph, {"c": say(artifact("c"), delay=5.0), "a": say(artifact("a"), delay=1.0)})
        await self._run_stage(stage)
        delivered: set[str | None] = set()
        for event in stage.said:
            if isinstance(event, StepAssigned):
                assert event.step_id in graph, f"there is no step {event.step_id!r} in the plan: {stage.kinds()}"
                early = set(graph[event.step_id]) - delivered
                assert not early, f"{event.step_id} began before {early} had ended: {stage.kinds()}"
            elif isinstance(event, StepCompleted):
                delivered.add(event.step_id)
        done = {asked.agent.config.agent_name: asked for asked in stage.asked}
        assert set(done) == set(graph), "each step is pinned to the member with its name: all of them must be asked"
        for name, needed in graph.items():
            for before in needed:
                assert (done[before].ended or 0) <= done[name].began, f"{name} was asked before {before} was done"

    async def test_coord_9_artifacts_are_handed_on(self) -> None:
        """COORD-9: the member doing a step is told its task, the goal, and what the steps it depends on delivered."""
        stage = CoordinatorHarness(DIAMOND)
        await self._run_stage(stage)
        for step in stage.steps:
            (asked,) = stage.runs_of_step(step.id)
            assert step.description in asked.prompt
            assert stage.request.goal in asked.prompt
            for needed in step.depends_on:
                assert artifact(needed) in asked.prompt, f"{step.id} was not told what {needed} delivered"

    async def test_coord_10_a_lost_dependency_blocks(self) -> None:
        """COORD-10: with BLOCK, the dependents of a step that did not deliver are SKIPPED, and all others are done."""
        stage = CoordinatorHarness({"a": (), "b": ("a",), "c": ("b",), "x": ()}, {"a": empty()})
        result = await self._run_stage(stage)
        states = {item.step_id: item.state for item in result.step_outcomes}
        assert states == {"a": S.FAILED, "b": S.SKIPPED, "c": S.SKIPPED, "x": S.COMPLETED}
        assert result.status is TeamStatus.FAILED
        assert not stage.runs_of_step("b") + stage.runs_of_step("c")

    async def test_coord_11_run_degraded_goes_on_without_it(self) -> None:
        """COORD-11: with RUN_DEGRADED the dependents run once the lost step has ended, and the team ends DEGRADED."""
        policy = DependencyFailure.RUN_DEGRADED
        stage = CoordinatorHarness({"a": (), "b": ("a",)}, {"a": empty(delay=5.0)}, dependency_failure=policy)
        result = await self._run_stage(stage)
        assert result.outcome("a").state is S.FAILED
        assert result.outcome("b").state is S.COMPLETED
        assert result.status is TeamStatus.DEGRADED
        assert stage.runs_of_step("b")[0].began >= max(asked.ended or 0 for asked in stage.runs_of_step("a"))

    async def test_coord_12_every_step_that_ended_is_announced_once(self) -> None:
        """COORD-12: STEP_COMPLETED once for each step that ended or was skipped, with the outcome of the result."""
        skipping = CoordinatorHarness({"a": (), "b": ("a",)}, {"a": empty()})
        for stage in (CoordinatorHarness(DIAMOND), skipping):
            result = await self._run_stage(stage)
            ended = [event.step_id for event in stage.of(StepCompleted)]
            assert sorted(map(str, ended)) == sorted(step.id for step in stage.steps), stage.kinds()
            for event in stage.of(StepCompleted):
                assert event.outcome == result.outcome(str(event.step_id))
        for status, (stage, result) in (await self._paths()).items():
            told = [str(event.step_id) for event in stage.of(StepCompleted)]
            ended = [name for name in stage.list_assigned_steps() if result.outcome(name).state.terminal]
            assert len(told) == len(set(told)), f"{status.name}: {stage.kinds()}"
            assert set(ended) <= set(told), f"{status.name}: {stage.kinds()}"

    async def test_coord_13_steps_move_along_the_table(self) -> None:
        """COORD-13: steps move along `STEP_TRANSITIONS` only: no event follows for a step that has ended."""
        for stage in (CoordinatorHarness(DIAMOND), CoordinatorHarness(DIAMOND, {"a": empty()})):
            await self._run_stage(stage)
            states = {step.id: S.PENDING for step in stage.steps}
            for event in stage.said:
                state = _state_in_event(event)
                if state is None or event.step_id is None:
                    continue
                assert event.step_id in states, f"there is no step {event.step_id!r} in the plan: {stage.kinds()}"
                before = states[event.step_id]
                again = state is before and not state.terminal  # another attempt
                assert again or state in STEP_TRANSITIONS[before], f"{event.step_id}: {before} -> {state}"
                states[event.step_id] = state

    async def test_coord_14_no_more_at_once_than_allowed(self) -> None:
        """COORD-14: at most `max_parallel_steps` steps run at any time, and all of them get done."""
        names = [f"s{number}" for number in range(6)]
        for most in (1, 2):
            turns = {name: say(artifact(name), delay=1.0) for name in names}
            limit = TeamResourceConstraint(max_parallel_steps=most)
            stage = CoordinatorHarness(dict.fromkeys(names, ()), turns, resource_constraint=limit)
            result = await self._run_stage(stage)
            assert result.status is TeamStatus.COMPLETED
            assert stage.count_most_parallel() <= most, f"{stage.count_most_parallel()} at once, {most} allowed"

    async def test_coord_15_attempts_are_bounded(self) -> None:
        """COORD-15: a member that never delivers is asked at least once and at most `max_feedback_rounds` times.

        One more attempt is for a senior.
        """
        for rounds in (1, 2, 4):
            stage = CoordinatorHarness({"a": ()}, {"a": empty()}, max_feedback_rounds=rounds)
            result = await self._run_stage(stage)
            tries = [event for event in stage.of(StepAssigned) if not event.senior]
            assert 1 <= len(tries) <= rounds, f"{len(tries)} attempts with max_feedback_rounds={rounds}"
            assert len(stage.asked) <= rounds + 1
            assert result.outcome("a").attempts == len(stage.of(StepAssigned))
            assert result.outcome("a").state is S.FAILED

    async def test_coord_16_the_pinned_and_the_able_do_it(self) -> None:
        """COORD-16: a step is done by the member it is pinned to, or by one who offers what its role requires."""
        poet = RoleDefinition(name="poet", required_capability="can-c")
        clerk = RoleDefinition(name="clerk", required_capability="can-a")
        steps = (
            TeamStep(id="able", description="x", role=poet),
            TeamStep(id="pinned", description="y", member="b"),
            TeamStep(id="also", description="z", role=clerk),
            TeamStep(id="again", description="z", role=poet),
        )
        stage = CoordinatorHarness({"a": (), "b": (), "c": ()}, steps=steps)
        result = await self._run_stage(stage)
        assert result.status is TeamStatus.COMPLETED
        members = {event.step_id: event.member for event in stage.of(StepAssigned)}
        assert members == {"able": "c", "pinned": "b", "also": "a", "again": "c"}
        assert [item.output for item in result.step_outcomes] == [artifact(name) for name in "cbac"]

    async def test_coord_17_a_plan_nobody_can_carry_out_fails_before_any_step(self) -> None:
        """COORD-17: a plan with a step that nobody can do ends FAILED before any member is asked."""
        role = RoleDefinition(name="pilot", required_capability="flying")
        steps = (TeamStep(id="a", description="x"), TeamStep(id="b", description="y", role=role))
        for wrong in (steps, (steps[0], TeamStep(id="b", description="y", member="nobody"))):
            stage = CoordinatorHarness({"m": ()}, steps=wrong)
            result = await self._run_stage(stage)
            assert result.status is TeamStatus.FAILED
            assert result.reason, "the result says why"
            assert stage.calls == 0

    async def test_coord_18_plan_only_asks_nobody(self) -> None:
        """COORD-18: with `plan_only` it only plans, and the result is PAUSED, with the plan."""
        stage = CoordinatorHarness(DIAMOND, plan_only=True)
        result = await self._run_stage(stage)
        assert result.status is TeamStatus.PAUSED
        assert isinstance(result.plan, TeamExecutionPlan)
        assert (len(stage.of(PlanReady)), stage.list_assigned_steps(), stage.calls) == (1, [], 0)

    # --- risk ---------------------------------------------------------------------------------------------------

    async def test_coord_19_risk_decides_about_work_that_was_not_accepted(self) -> None:
        """COORD-19: a step that never delivers whole work fails at MEDIUM and HIGH, and is DEGRADED at LOW."""
        for risk in RiskProfile:
            broken_off = fail(RejectedError("no more"), text="half an answer", after=3)
            stage = CoordinatorHarness({"a": ()}, {"a": broken_off}, risk_profile=risk)
            result = await self._run_stage(stage)
            low = risk is RiskProfile.LOW
            assert result.outcome("a").state is (S.DEGRADED if low else S.FAILED), risk
            assert result.status is (TeamStatus.DEGRADED if low else TeamStatus.FAILED), risk


def _state_in_event(event: TeamEvent) -> StepState | None:
    """The state of a step that an event reports."""
    if isinstance(event, StepCompleted):
        return event.outcome.state
    if isinstance(event, EvaluationStarted):
        return S.EVALUATING
    return S.IN_FLIGHT if isinstance(event, StepAssigned | StepAttempted) else None
