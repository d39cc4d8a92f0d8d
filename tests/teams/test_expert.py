"""Plan, generate, evaluate: feedback, the ladder, a person's hand, plans to confirm, members that pause."""

import asyncio
import re

import pytest

from glidepath import ConfigurationError, tool
from glidepath.teams import (
    AgentEvaluationStrategy,
    EvaluatorPreference,
    ExpertTeamCoordinator,
    Handoff,
    Member,
    RiskProfile,
    StepAssigned,
    StepState,
    StepSteered,
    TeamStatus,
)
from glidepath.testing import call, hang, no_leftovers, say, virtual

from .kit import AUTO, EXCEEDED, PASS, REVISE, Recorder, Verdicts, agent, plan, request, step, team

S = StepState


def prompts(member):
    return [recorded.messages[0].text for recorded in member.config.model.requests]


async def run(member, coordinator, *steps, **config):
    seen = Recorder()
    async with no_leftovers():
        result = await team(member, recorder=seen).run(
            request(*(steps or (step("a"),)), **config), coordinator=coordinator
        )
    seen.check(result)
    return result, seen


@virtual
async def test_a_step_that_passes_needs_one_attempt():
    result, seen = await run(agent("good"), ExpertTeamCoordinator(evaluator=Verdicts(PASS)))
    assert seen.kinds() == [
        "TEAM_STARTED",
        "PLAN_READY",
        "STEP_ASSIGNED",
        "STEP_ATTEMPTED",
        "EVALUATION_STARTED",
        "EVALUATION_RESULT",
        "STEP_COMPLETED",
        "TEAM_COMPLETED",
    ]
    assert [event.attempt for event in seen.events] == [None, None, 1, 1, 1, 1, 1, None]
    assert [event.step_id for event in seen.events] == [None, None, "a", "a", "a", "a", "a", None]
    outcome = result.outcome("a")
    assert (outcome.state, outcome.attempts, outcome.output, outcome.verdict) == (S.COMPLETED, 1, "good", PASS)


@virtual
async def test_every_verdict_so_far_goes_to_the_next_attempt():
    member = agent(say("one"), say("two"), say("three"))
    evaluator = Verdicts(REVISE, REVISE, PASS)
    result, _ = await run(member, ExpertTeamCoordinator(evaluator=evaluator))
    assert result.status is TeamStatus.COMPLETED
    assert result.final_output == "three"
    assert prompts(member)[0].count("more detail") == 0
    assert prompts(member)[2].count("more detail") == 2
    assert prompts(member)[2].count("add figures") == 2
    assert re.search(r"Your previous attempt:\n\[quote \w+\]\ntwo\n", prompts(member)[2])
    assert [len(context.prior_verdicts) for context in evaluator.contexts] == [0, 1, 2]
    assert [context.attempt for context in evaluator.contexts] == [1, 2, 3]
    assert [context.artifact for context in evaluator.contexts] == ["one", "two", "three"]


@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
@virtual
async def test_the_feedback_loop_is_bounded(rounds):
    member = agent("again")
    evaluator = Verdicts(REVISE)
    result, seen = await run(member, ExpertTeamCoordinator(evaluator=evaluator), max_feedback_rounds=rounds)
    assert result.status is TeamStatus.FAILED
    assert member.config.model.calls == rounds == len(evaluator.contexts)
    assert len(seen.of(StepAssigned)) == rounds


# --- the ladder ---------------------------------------------------------------------------------------------------


@virtual
async def test_the_senior_is_asked_once_and_sees_what_was_said():
    member, senior = agent("junior work"), agent("senior work", name="senior")
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts(REVISE, REVISE, REVISE, PASS), senior=senior)
    result, seen = await run(member, coordinator)
    assert result.status is TeamStatus.COMPLETED
    assert result.final_output == "senior work"
    assert senior.config.model.calls == 1
    assert prompts(senior)[0].count("more detail") == 3
    assert [event.to for event in seen.of(Handoff)] == ["senior"]
    assert [event.senior for event in seen.of(StepAssigned)] == [False, False, False, True]
    assert result.outcome("a").attempts == 4


@virtual
async def test_when_the_senior_fails_too_a_hand_off_is_announced_and_the_risk_decides():
    for risk, state in ((RiskProfile.LOW, S.DEGRADED), (RiskProfile.MEDIUM, S.FAILED), (RiskProfile.HIGH, S.FAILED)):
        senior = agent("senior work", name="senior")
        coordinator = ExpertTeamCoordinator(evaluator=Verdicts(REVISE), senior=senior)
        result, seen = await run(agent("junior work"), coordinator, risk_profile=risk)
        assert senior.config.model.calls == 1
        assert [event.to for event in seen.of(Handoff)] == ["senior", "person"]
        assert result.outcome("a").state is state
        assert result.outcome("a").output == "senior work"
        assert result.status.name == state.name


@pytest.mark.parametrize("risk", RiskProfile)
@pytest.mark.parametrize(
    ("verdict", "states"),
    [
        (PASS, (S.COMPLETED, S.COMPLETED, S.COMPLETED)),
        (REVISE, (S.FAILED, S.FAILED, S.FAILED)),
        (EXCEEDED, (S.DEGRADED, S.FAILED, S.FAILED)),
        (ValueError("boom"), (S.DEGRADED, S.FAILED, S.FAILED)),
        ("hang", (S.DEGRADED, S.FAILED, S.FAILED)),
        (AUTO, (S.DEGRADED, S.FAILED, S.FAILED)),
    ],
    ids=["pass", "revise", "exceeded", "crash", "hang", "auto"],
)
@virtual
async def test_the_arbiter_has_the_last_word_and_without_one_the_risk_decides(verdict, states, risk):
    arbiter = Verdicts(verdict)
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts(REVISE), judge=Verdicts(REVISE), arbiter=arbiter)
    result, seen = await run(agent("work"), coordinator, risk_profile=risk)
    assert result.outcome("a").state is states[list(RiskProfile).index(risk)]
    assert [event.to for event in seen.of(Handoff)] == ["arbiter"]
    assert arbiter.contexts[0].artifact == "work"
    assert len(arbiter.contexts[0].prior_verdicts) == 3
    assert result.outcome("a").output == "work"


@virtual
async def test_the_best_attempt_is_kept_not_the_last():
    better = type(REVISE)(outcome=REVISE.outcome, score=0.9, feedback="nearly")
    evaluator = Verdicts(REVISE, better, REVISE)
    member = agent(say("poor"), say("best"), say("worse"))
    result, _ = await run(member, ExpertTeamCoordinator(evaluator=evaluator), risk_profile=RiskProfile.LOW)
    assert result.status is TeamStatus.DEGRADED
    assert result.final_output == "best"


@virtual
async def test_a_review_that_cannot_be_had_goes_to_the_ladder_at_once():
    member, senior = agent("junior"), agent("senior", name="senior")
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts(ValueError("boom"), PASS), senior=senior)
    result, seen = await run(member, coordinator)
    assert member.config.model.calls == 1
    assert result.final_output == "senior"
    assert "boom" in seen.of(Handoff)[0].reason


@virtual
async def test_a_step_out_of_time_is_review_exceeded_and_never_a_pass():
    for risk, status in ((RiskProfile.LOW, TeamStatus.FAILED), (RiskProfile.HIGH, TeamStatus.FAILED)):
        coordinator = ExpertTeamCoordinator(evaluator=Verdicts(PASS), senior=agent("never", name="senior"))
        result, _ = await run(agent(hang()), coordinator, risk_profile=risk, step_timeout=30)
        assert result.status is status
        assert result.outcome("a").verdict.outcome.name == "REVIEW_EXCEEDED"
        assert result.duration < 33
        assert coordinator.senior.config.model.calls == 0


@virtual
async def test_a_step_out_of_time_keeps_its_text_and_degrades_at_low_risk():
    member = agent(say("so far so good", delay=10.0))
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts(PASS))
    result, _ = await run(member, coordinator, risk_profile=RiskProfile.LOW, step_timeout=25)
    assert result.outcome("a").output.strip()
    assert result.status is TeamStatus.DEGRADED
    assert result.outcome("a").verdict.outcome.name == "REVIEW_EXCEEDED"


@virtual
async def test_a_reviewer_slower_than_the_step_is_review_exceeded():
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts("hang"))
    result, _ = await run(agent("work"), coordinator, step_timeout=5, risk_profile=RiskProfile.LOW)
    assert result.status is TeamStatus.DEGRADED
    assert result.duration == pytest.approx(5, abs=1.5)


@virtual
async def test_auto_pass_completes_with_a_warning_when_asked_for():
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts(AUTO))
    result, _ = await run(agent("work"), coordinator, risk_profile=RiskProfile.LOW, auto_pass=True)
    assert result.status is TeamStatus.COMPLETED
    assert result.warnings == ("step a: passed without a review: unseen",)


@virtual
async def test_the_judge_is_paid_by_the_team_and_its_spend_is_on_the_step():
    judge = agent('{"verdict": "pass", "score": 1}', name="judge")
    coordinator = ExpertTeamCoordinator(judge=judge)
    result, seen = await run(agent("work"), coordinator, risk_profile=RiskProfile.HIGH)
    assert result.status is TeamStatus.COMPLETED
    judged = next(event for event in seen.events if event.kind == "EVALUATION_RESULT")
    assert judged.evaluator == "AgentEvaluationStrategy"
    assert judged.usage.total > 0
    attempted = next(event for event in seen.events if event.kind == "STEP_ATTEMPTED")
    assert result.usage.total == judged.usage.total + attempted.usage.total == result.outcome("a").usage.total


@virtual
async def test_high_risk_without_a_judge_is_warned_about():
    result, _ = await run(agent("work"), ExpertTeamCoordinator(), risk_profile=RiskProfile.HIGH)
    assert result.status is TeamStatus.COMPLETED
    assert "the risk is HIGH and there is no judge: the rubric reviews instead" in result.warnings


@virtual
async def test_preferring_a_judge_that_is_not_there_is_a_configuration_error_before_anything_happens():
    seen = Recorder()
    crew = team(recorder=seen)
    asked = request(step("a"), evaluator_preference=EvaluatorPreference.AGENT)
    for start in (crew.run(asked, coordinator=ExpertTeamCoordinator()), ExpertTeamCoordinator().execute(asked, crew)):
        with pytest.raises(ConfigurationError, match="there is no judge"):
            await start
    assert seen.events == []
    assert crew._in_flight == {}


@pytest.mark.parametrize(
    "wrong",
    [{"planner": "x"}, {"senior": 7}, {"evaluator": object()}, {"judge": "x"}, {"arbiter": Verdicts}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_part_of_an_expert_team_is_named(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ExpertTeamCoordinator(**wrong)


# --- a person's hand ----------------------------------------------------------------------------------------------


@tool
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


def texts(member):
    return [message.text for recorded in member.config.model.requests for message in recorded.messages]


@virtual
async def test_a_note_reaches_the_running_member_after_its_turn():
    member = agent(call("wait", seconds=10), say("with honey"), tools=[wait])
    coordinator, asked, seen = ExpertTeamCoordinator(), request(step("a")), Recorder()
    asyncio.get_running_loop().call_later(5, lambda: coordinator.steer(asked.id, "a", "mention honey"))
    result = await team(member, recorder=seen).run(asked, coordinator=coordinator)
    assert result.status is TeamStatus.COMPLETED
    assert any("person in charge: mention honey" in text for text in texts(member))
    [steered] = seen.of(StepSteered)
    assert (steered.step_id, steered.attempt, steered.action, steered.text) == ("a", 1, "steer", "mention honey")


@virtual
async def test_a_note_during_the_only_turn_keeps_the_run_going():
    member = agent(say("plain", delay=1.0), say("with honey"))
    coordinator, asked = ExpertTeamCoordinator(), request(step("a"))
    asyncio.get_running_loop().call_later(0.5, lambda: coordinator.steer(asked.id, "a", "mention honey"))
    result = await team(member).run(asked, coordinator=coordinator)
    assert result.final_output == "with honey"
    assert result.outcome("a").attempts == 1


@virtual
async def test_a_note_during_the_review_makes_another_attempt():
    class Slow:
        async def evaluate(self, context):
            await asyncio.sleep(10)
            return PASS

    member = agent(say("plain"), say("with honey"))
    coordinator, asked = ExpertTeamCoordinator(evaluator=Slow()), request(step("a"))
    asyncio.get_running_loop().call_later(5, lambda: coordinator.steer(asked.id, "a", "mention honey"))
    result = await team(member).run(asked, coordinator=coordinator)
    assert result.final_output == "with honey"
    assert "mention honey" in prompts(member)[1]


@virtual
async def test_a_note_to_a_step_that_has_not_begun_is_in_its_prompt():
    member = agent("ok", first_chunk_delay=10.0)
    coordinator, asked = ExpertTeamCoordinator(), request(step("a"), step("b", "a"))
    told = []
    asyncio.get_running_loop().call_later(5, lambda: told.append(coordinator.steer(asked.id, "b", "mention honey")))
    await team(member).run(asked, coordinator=coordinator)
    assert told == [True]
    assert "mention honey" not in prompts(member)[0]
    assert "mention honey" in prompts(member)[1]


@virtual
async def test_one_step_is_stopped_and_the_others_go_on():
    async def answer(given):
        if "Your step (a)" in given.messages[0].text:
            return hang()
        await asyncio.sleep(10)
        return say("fine")

    coordinator, asked, seen = ExpertTeamCoordinator(), request(step("a"), step("b"), step("c", "a")), Recorder()
    asyncio.get_running_loop().call_later(5, lambda: coordinator.stop_step(asked.id, "a", "not needed"))
    async with no_leftovers():
        result = await team(agent(answer), recorder=seen).run(asked, coordinator=coordinator)
    seen.check(result)
    assert result.outcome("a").state is S.SKIPPED
    assert result.outcome("a").reason == "stopped: not needed"
    assert result.outcome("a").stopped
    assert result.outcome("c").state is S.SKIPPED
    assert result.outcome("b").state is S.COMPLETED
    assert result.final_output == "fine"
    assert [event.action for event in seen.of(StepSteered)] == ["stop"]


@virtual
async def test_a_step_can_be_stopped_before_it_begins():
    coordinator, asked = ExpertTeamCoordinator(), request(step("a"), step("b", "a"), step("d", "a"))
    asyncio.get_running_loop().call_later(5, lambda: coordinator.stop_step(asked.id, "b"))
    member = agent("ok", first_chunk_delay=10.0)
    result = await team(member).run(asked, coordinator=coordinator)
    assert result.outcome("b").state is S.SKIPPED
    assert result.outcome("b").attempts == 0
    assert result.status is TeamStatus.DEGRADED
    assert member.config.model.calls == 2


@virtual
async def test_what_is_not_in_flight_cannot_be_reached():
    coordinator, asked = ExpertTeamCoordinator(), request(step("a"))
    assert coordinator.steer(asked.id, "a", "hello") is False
    result = await team().run(asked, coordinator=coordinator)
    assert coordinator.stop_step(asked.id, "a") is False
    assert result.status is TeamStatus.COMPLETED
    with pytest.raises(ConfigurationError, match="text"):
        coordinator.steer(asked.id, "a", "")


# --- plans to confirm ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, ["a"], {"a": 1}, 3, ""])
@virtual
async def test_a_step_is_reached_by_its_name_only(wrong):
    coordinator, asked = ExpertTeamCoordinator(), request(step("a"))
    for reach in (coordinator.steer, coordinator.stop_step):
        with pytest.raises(ConfigurationError, match="step_id"):
            reach(asked.id, wrong, "x")


@virtual
async def test_a_plan_can_be_looked_at_before_it_is_carried_out():
    member, coordinator, seen = agent("done"), ExpertTeamCoordinator(), Recorder()
    crew = team(member, recorder=seen)
    paused = await crew.run(request(step("a"), step("b", "a"), plan_only=True), coordinator=coordinator)
    seen.check(paused)
    assert seen.kinds() == ["TEAM_STARTED", "PLAN_READY", "TEAM_PAUSED"]
    assert paused.status is TeamStatus.PAUSED
    assert [outcome.state for outcome in paused.step_outcomes] == [S.PENDING, S.PENDING]
    assert member.config.model.calls == 0
    seen.events.clear()
    result = await coordinator.confirm(paused, crew)
    seen.check(result, after=paused.sequence)
    assert result.status is TeamStatus.COMPLETED
    assert result.request_id == paused.request_id
    assert member.config.model.calls == 2
    assert seen.events[0].resumed


@virtual
async def test_another_plan_can_be_confirmed_in_its_place():
    coordinator, crew = ExpertTeamCoordinator(), team()
    paused = await crew.run(request(step("a"), plan_only=True), coordinator=coordinator)
    result = await coordinator.confirm(paused, crew, plan=plan(step("x"), step("y")))
    assert [outcome.step_id for outcome in result.step_outcomes] == ["x", "y"]
    assert result.status is TeamStatus.COMPLETED
    assert await crew.resume(result, coordinator=coordinator) is result
    unfit = plan(step("z", member="nobody"))
    failed = await coordinator.confirm(paused, crew, plan=unfit)
    assert failed.status is TeamStatus.FAILED
    assert "nobody" in failed.reason


# --- members that pause -------------------------------------------------------------------------------------------


@tool(requires_approval=True)
async def publish(text: str) -> str:
    """Publish."""
    return f"published {text}"


@virtual
async def test_a_paused_member_makes_its_step_wait_while_others_go_on():
    careful = Member(name="careful", agent=agent(call("publish", text="x"), tools=[publish]), capabilities={"publish"})
    other = Member(name="other", agent=agent("fine", first_chunk_delay=5.0))
    seen = Recorder()
    crew = team(careful, other, recorder=seen)
    steps = (step("a", member="careful"), step("b", member="other"), step("c", "b", member="other"), step("d", "a"))
    async with no_leftovers():
        result = await crew.run(request(*steps), coordinator=ExpertTeamCoordinator())
    seen.check(result)
    assert result.status is TeamStatus.PAUSED
    assert [outcome.state for outcome in result.step_outcomes] == [S.WAITING, S.COMPLETED, S.COMPLETED, S.PENDING]
    assert [pending.call.name for pending in result.outcome("a").pending] == ["publish"]
    assert result.outcome("a").paused.outcome.name == "PAUSED"
    assert "waits for a person: a" in result.reason
    calls = other.agent.config.model.calls
    again = await crew.resume(result, coordinator=ExpertTeamCoordinator())
    assert again.status is TeamStatus.PAUSED
    assert other.agent.config.model.calls == calls  # finished steps are not run again
    assert again.outcome("b") == result.outcome("b")


def test_a_judge_agent_becomes_a_strategy():
    assert isinstance(ExpertTeamCoordinator(judge=agent("x")).judge, AgentEvaluationStrategy)


@virtual
@pytest.mark.parametrize("risk", RiskProfile)
async def test_an_agent_reviews_at_every_risk_when_it_is_the_evaluator(risk):
    reviewer = agent('{"verdict": "pass", "score": 1}', name="reviewer")
    result, seen = await run(agent("work"), ExpertTeamCoordinator(evaluator=reviewer), risk_profile=risk)
    assert (result.status, result.warnings) == (TeamStatus.COMPLETED, ())
    judged = next(event for event in seen.events if event.kind == "EVALUATION_RESULT")
    assert judged.evaluator == "AgentEvaluationStrategy"
    assert len(reviewer.config.model.requests) == 1


def test_a_judge_beside_an_agent_that_evaluates_is_kept_and_an_arbiter_may_be_an_agent():
    judge, arbiter = agent("", name="judge"), agent("", name="arbiter")
    coordinator = ExpertTeamCoordinator(evaluator=agent("", name="reviewer"), judge=judge, arbiter=arbiter)
    assert (coordinator.judge.agent, coordinator.arbiter.agent) == (judge, arbiter)
    with pytest.raises(ConfigurationError, match=r"evaluator must be an agent, or have a method evaluate\(context\)"):
        ExpertTeamCoordinator(evaluator="be strict")
