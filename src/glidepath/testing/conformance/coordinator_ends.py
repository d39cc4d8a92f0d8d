"""The contract of a `TeamCoordinator`: its bounds, how it ends, and what it leaves behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glidepath.agent import Limits
from glidepath.run import approve
from glidepath.teams import (
    History,
    PlanReady,
    RiskProfile,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepOutcome,
    StepState,
    TeamCancelled,
    TeamEvent,
    TeamResourceConstraint,
    TeamResult,
    TeamStarted,
    TeamStatus,
    TeamStep,
)
from glidepath.testing import call, empty, fail, hang, no_leftovers, say
from glidepath.testing.conformance.coordinator_harness import CoordinatorHarness, artifact, start_coordinator
from glidepath.testing.conformance.coordinator_steps import DIAMOND, CoordinatorContract
from glidepath.tools import tool
from glidepath.values import RejectedError

if TYPE_CHECKING:
    from glidepath.spi import ModelRequest

S = StepState


class EndingClauses(CoordinatorContract):
    """The clauses about limits, endings and leftovers."""

    # --- results ------------------------------------------------------------------------------------------------

    async def test_coord_20_one_outcome_for_each_step_in_plan_order(self) -> None:
        """COORD-20: the result has the plan and one outcome for each of its steps, in plan order, on every path."""
        for status, (stage, result) in (await self._paths()).items():
            assert result.status is status, f"{result.status} where {status} was due: {result.reason}"
            assert result.plan == stage.request.plan, status
            assert [item.step_id for item in result.step_outcomes] == list(DIAMOND), status

    async def test_coord_21_degraded_keeps_its_output(self) -> None:
        """COORD-21: a DEGRADED step keeps its text, its dependents get it, and the team delivers its output."""
        landed = Limits(max_iterations=1, grace_iterations=0)

        @tool
        async def look() -> str:
            """Look."""
            return "seen"

        def busy(request: ModelRequest) -> Any:
            return call("look") if request.tools else say("landed <a>")

        stage = CoordinatorHarness(
            {"a": (), "b": ("a",)}, {"a": busy}, tools=[look], limits=landed, risk_profile=RiskProfile.LOW
        )
        result = await self._run_stage(stage)
        assert result.outcome("a").output == "landed <a>"
        assert "landed <a>" in stage.runs_of_step("b")[0].prompt
        assert artifact("b") in result.final_output
        half = fail(RejectedError("no more"), text="half an answer", after=3)
        result = await self._run_stage(CoordinatorHarness({"a": ()}, {"a": half}, risk_profile=RiskProfile.LOW))
        assert "half an answer" in result.outcome("a").output
        assert "half an answer" in result.final_output

    async def test_coord_22_a_team_out_of_time_keeps_what_there_is(self) -> None:
        """COORD-22: when the time is up the result is TIMEOUT, on time, with what was delivered and started."""
        for config in (
            {"team_timeout": 100.0},
            {"resource_constraint": TeamResourceConstraint(max_duration=100.0)},
        ):
            stage = CoordinatorHarness({"a": (), "b": (), "c": ("b",)}, {"b": hang("b has begun")}, **config)
            began = asyncio.get_running_loop().time()
            result = await self._run_stage(stage)
            assert result.status is TeamStatus.TIMEOUT
            assert asyncio.get_running_loop().time() - began <= 105
            _assert_work_kept(result)
            assert not stage.runs_of_step("c")

    async def test_coord_23_a_cancelled_team_keeps_what_there_is(self) -> None:
        """COORD-23: a cancelled team ends CANCELLED, at once, with what was delivered and started."""
        stage = CoordinatorHarness({"a": (), "b": (), "c": ("b",)}, {"b": hang("b has begun")})
        loop = asyncio.get_running_loop()
        loop.call_later(50, stage.cancel.cancel, "enough")
        began = loop.time()
        result = await self._run_stage(stage)
        assert result.status is TeamStatus.CANCELLED
        assert loop.time() - began <= 55
        _assert_work_kept(result)

    async def test_coord_24_nothing_is_begun_after_a_cancel(self) -> None:
        """COORD-24: after a cancel no more members are asked; after a cancel before the start, none at all."""
        stage = CoordinatorHarness({"a": (), "b": ("a",), "c": ("b",)})

        def cancel_after_a(event: TeamEvent) -> None:
            if isinstance(event, StepCompleted) and event.step_id == "a":
                stage.cancel.cancel("enough")

        stage.on_event = cancel_after_a
        result = await self._run_stage(stage)
        assert result.status is TeamStatus.CANCELLED
        assert stage.list_assigned_steps() == ["a"], stage.kinds()
        assert len(stage.asked) == stage.calls == 1
        early = CoordinatorHarness({"a": ()})
        early.cancel.cancel("never mind")
        result = await self._run_stage(early)
        assert (result.status, early.calls) == (TeamStatus.CANCELLED, 0)

    async def test_coord_25_a_cancelled_task_lands_first(self) -> None:
        """COORD-25: when its own task is cancelled it publishes TEAM_CANCELLED, then re-raises the cancellation."""
        stage = CoordinatorHarness({"a": (), "b": ()}, {"b": hang("b has begun")})
        team = await stage.open_run()
        task = asyncio.ensure_future(start_coordinator(self.make_coordinator(), stage.request, team))
        await asyncio.sleep(30)
        task.cancel()
        await asyncio.wait({task}, timeout=30)
        await team.close()
        assert task.done(), "it did not stop"
        assert task.cancelled(), "it must re-raise the cancellation"
        (end,) = stage.endings()
        assert isinstance(end, TeamCancelled)
        assert end.result.outcome("a").output == artifact("a")

    async def test_coord_26_a_step_out_of_time_never_passes(self) -> None:
        """COORD-26: a step that runs out of time ends on time, and is not COMPLETED at any risk."""
        for risk in RiskProfile:
            stage = CoordinatorHarness({"a": ()}, {"a": hang("text")}, step_timeout=40.0, risk_profile=risk)
            began = asyncio.get_running_loop().time()
            result = await self._run_stage(stage)
            assert asyncio.get_running_loop().time() - began <= 45
            assert result.outcome("a").state in (S.FAILED, S.DEGRADED), risk
            assert risk is RiskProfile.LOW or result.outcome("a").state is S.FAILED
            assert result.status is not TeamStatus.COMPLETED

    # --- money --------------------------------------------------------------------------------------------------

    async def test_coord_27_every_model_call_is_paid_by_the_team(self) -> None:
        """COORD-27: every model call goes through `team.ask`, and the result's usage and cost cover all of them."""
        stage = CoordinatorHarness(DIAMOND)
        result = await self._run_stage(stage)
        asked = sum(asked.result.iterations + asked.result.landing_calls for asked in stage.asked if asked.result)
        assert stage.calls == asked, f"the models were called {stage.calls} times, {asked} times by team.ask"
        spent = sum(asked.result.usage.total for asked in stage.asked if asked.result)
        assert result.usage.total == spent
        assert result.cost == sum(asked.result.cost or 0 for asked in stage.asked if asked.result)

    async def test_coord_28_budgets_hold(self) -> None:
        """COORD-28: tokens and money of the whole team stay within the request's limits, and there is a result."""
        names = [f"s{number}" for number in range(6)]
        for limit in (TeamResourceConstraint(max_total_tokens=1_500), TeamResourceConstraint(max_cost="0.0015")):
            spender = _Spender()
            stage = CoordinatorHarness(
                dict.fromkeys(names, ()), dict.fromkeys(names, spender), resource_constraint=limit
            )
            result = await self._run_stage(stage)
            assert spender.tokens <= 1_500, f"{spender.tokens} tokens were used, 1500 allowed"
            assert result.usage.total <= 1_500
            assert result.status in (TeamStatus.FAILED, TeamStatus.DEGRADED)

    # --- people and restarts ------------------------------------------------------------------------------------

    async def test_coord_29_a_member_that_waits_pauses_only_its_step(self) -> None:
        """COORD-29: a member that pauses makes its step WAITING; others continue; then PAUSED, with what is pending."""
        stage = _waiting_stage()
        result = await self._run_stage(stage)
        assert result.status is TeamStatus.PAUSED
        assert result.outcome("a").state is S.WAITING
        assert [pending.call.name for pending in result.outcome("a").pending] == ["send"]
        assert result.outcome("b").output == artifact("b")
        assert not stage.runs_of_step("c")

    async def test_coord_30_a_paused_team_goes_on(self) -> None:
        """COORD-30: a resume with decisions does only what was not finished, by the member that began it."""
        stage = _waiting_stage()
        paused = await self._run_stage(stage)
        before = stage.models["b"].calls
        stage.published.clear()
        result = await self._approve_all(stage, paused)
        assert result.status is TeamStatus.COMPLETED, result.reason
        assert result.outcome("a").output == "sent"
        assert stage.models["b"].calls == before, "b was finished"
        numbers = [event.sequence for event in stage.published]
        assert numbers == list(range(paused.sequence + 1, paused.sequence + 1 + len(numbers)))

        stage = _waiting_stage_for_anybody()
        paused = await self._run_stage(stage)
        [asker] = [event.member for event in stage.of(StepAssigned) if event.step_id == "send"]
        earlier = {name: model.calls for name, model in stage.models.items()}
        result = await self._approve_all(stage, paused)
        assert result.status is TeamStatus.COMPLETED, result.reason
        busy = [name for name, model in stage.models.items() if model.calls > earlier[name]]
        assert busy == [asker], f"the run of {asker} waits, but {busy} continued it"

    async def test_coord_31_finished_steps_are_not_run_again(self) -> None:
        """COORD-31: an execution that continues after a crash takes over the plan and every step that had finished."""
        stage = CoordinatorHarness(DIAMOND)
        done = tuple(
            StepOutcome(step_id=name, state=S.COMPLETED, output=f"old {artifact(name)}", attempts=1)
            for name in ("a", "b")
        )
        history = History(request=stage.request, plan=stage.request.plan, outcomes=done, sequence=7)
        result = await stage.run_coordinator(self.make_coordinator(), history)
        assert result.status is TeamStatus.COMPLETED, result.reason
        assert stage.list_assigned_steps() == ["c", "d"], stage.kinds()
        assert {item.step_id for item in stage.of(StepCompleted)} == {"c", "d"}
        outputs = [item.output for item in result.step_outcomes]
        assert outputs == [f"old {artifact('a')}", f"old {artifact('b')}", artifact("c"), artifact("d")]
        assert f"old {artifact('b')}" in stage.runs_of_step("d")[0].prompt
        assert stage.of(TeamStarted)[0].resumed

    # --- many at once, and leftovers ----------------------------------------------------------------------------

    async def test_coord_32_it_leaves_the_run_open(self) -> None:
        """COORD-32: it leaves the team run open that it was given: the opener closes it."""
        stage = CoordinatorHarness({"a": ()})
        team = await stage.open_run()
        result = await start_coordinator(self.make_coordinator(), stage.request, team)
        assert result.status is TeamStatus.COMPLETED, result.reason
        assert not team.closed, "a coordinator does not close the team run it was given"
        await team.close()

    async def test_coord_33_one_coordinator_serves_many_requests(self) -> None:
        """COORD-33: twenty requests at once on one coordinator do not mix."""
        coordinator = self.make_coordinator()
        stages = []
        for number in range(20):
            turns = {name: say(f"{artifact(name)} of {number}", delay=0.1 * (number % 3)) for name in DIAMOND}
            stages.append(CoordinatorHarness(DIAMOND, turns))
        results = await asyncio.gather(*[stage.run_coordinator(coordinator) for stage in stages])
        for number, (stage, result) in enumerate(zip(stages, results, strict=True)):
            assert result.request_id == stage.request.id
            assert result.outcome("d").output == f"{artifact('d')} of {number}"
            assert f"{artifact('b')} of {number}" in stage.runs_of_step("d")[0].prompt
            assert len(stage.endings()) == 1

    async def test_coord_34_nothing_is_left_running(self) -> None:
        """COORD-34: nothing it started is alive when it returns, however it ends."""
        async with no_leftovers():
            await self._paths()

    # --- events that come once ----------------------------------------------------------------------------------

    async def test_coord_35_every_attempt_is_reported(self) -> None:
        """COORD-35: one STEP_ATTEMPTED for each attempt that ended, before its STEP_COMPLETED, with its run."""
        for stage in (CoordinatorHarness(DIAMOND), CoordinatorHarness({"a": ()}, {"a": empty()})):
            await self._run_stage(stage)
            made = [(event.step_id, event.attempt) for event in stage.of(StepAssigned)]
            told = [(event.step_id, event.attempt) for event in stage.of(StepAttempted)]
            assert sorted(told) == sorted(made), f"attempts {made}, reported {told}: {stage.kinds()}"
            runs = {asked.result.run_id for asked in stage.asked if asked.result is not None}
            assert {event.member_run_id for event in stage.of(StepAttempted)} == runs
            ended: set[str | None] = set()
            for event in stage.said:
                if isinstance(event, StepCompleted):
                    ended.add(event.step_id)
                late = isinstance(event, StepAttempted) and event.step_id in ended
                assert not late, f"{event.step_id} was reported after it had ended: {stage.kinds()}"

    async def test_coord_36_the_plan_is_announced_once(self) -> None:
        """COORD-36: an execution that takes over a plan does not announce it again, after a crash or a pause."""
        stage = CoordinatorHarness(DIAMOND)
        done = StepOutcome(step_id="a", state=S.COMPLETED, output=artifact("a"), attempts=1)
        history = History(request=stage.request, plan=stage.request.plan, outcomes=(done,), sequence=7)
        await stage.run_coordinator(self.make_coordinator(), history)
        assert not stage.of(PlanReady), stage.kinds()

        stage = _waiting_stage()
        paused = await self._run_stage(stage)
        if paused.status is not TeamStatus.PAUSED:
            return  # which COORD-29 is about
        stage.published.clear()
        await self._approve_all(stage, paused)
        assert not [event for event in stage.published if isinstance(event, PlanReady)]

    async def _approve_all(self, stage: CoordinatorHarness, paused: TeamResult) -> TeamResult:
        """The result once a person has approved everything that was pending."""
        decided = {pending.call.id: approve() for outcome in paused.step_outcomes for pending in outcome.pending}
        return await stage.team.resume(paused, decisions=decided, coordinator=self.make_coordinator())


def _assert_work_kept(result: TeamResult) -> None:
    states = {item.step_id: item.state for item in result.step_outcomes}
    assert states == {"a": S.COMPLETED, "b": S.CANCELLED, "c": S.CANCELLED}
    assert result.outcome("a").output == artifact("a")
    assert "b has begun" in result.outcome("b").output, "what was cut short is kept"
    assert artifact("a") in result.final_output


class _Spender:
    """Long answers within the output cap (a budget holds only for providers that obey it), and their cost."""

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, request: ModelRequest) -> Any:
        text = "word " * min(300, (request.max_output_tokens or 300) // 2)
        said = len(request.system_prompt) + sum(len(message.text) for message in request.messages) + len(text)
        self.tokens += said // 4
        return say(text)


@tool(requires_approval=True)
async def send() -> str:
    """Send it."""
    return "ok"


def _waiting_stage_for_anybody() -> CoordinatorHarness:
    """Two steps that either member can do; the member with the second wants to send something."""

    def works(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool_result":
            return say("sent")
        return call("send") if "Send it off." in request.messages[0].text else say("written")

    steps = (TeamStep(id="write", description="Write it."), TeamStep(id="send", description="Send it off."))
    return CoordinatorHarness({"a": (), "b": ()}, {"a": works, "b": works}, steps=steps, tools=[send])


def _waiting_stage() -> CoordinatorHarness:
    def asks(request: ModelRequest) -> Any:
        return say("sent") if request.messages[-1].role == "tool_result" else call("send")

    return CoordinatorHarness(
        {"a": (), "b": (), "c": ("a",)}, {"a": asks, "b": say(artifact("b"), delay=2.0)}, tools=[send]
    )
