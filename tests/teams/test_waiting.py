"""A team that waits for a person goes on where it stood: with the same member, the same attempt, the right call."""

import asyncio

import pytest

from glidepath import Agent, CancelToken, ConfigurationError, Limits, approve, deny, tool
from glidepath.sessions import MemoryStore
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    EvaluationResult,
    EvaluationVerdict,
    ExpertTeamCoordinator,
    RiskProfile,
    SimpleEvaluationStrategy,
    StepState,
    TeamStatus,
    VerdictOutcome,
)
from glidepath.testing import ScriptedModel, call, hang, say, virtual

from .kit import PASS, REVISE, ROOMY, Recorder, Verdicts, agent, request, step, team
from .test_journal import Sudden, cut_off

both = pytest.mark.parametrize("coordinator", [DefaultTaskDispatchCoordinator, ExpertTeamCoordinator])
stored = pytest.mark.parametrize("store", [lambda: None, MemoryStore], ids=["result", "store"])


def careful(name, *turns):
    """A member with a tool of its own that needs approval, and what that tool did."""
    done = []

    @tool(name=f"act_{name}", requires_approval=True)
    async def act(x: int) -> str:
        """Act."""
        done.append(x)
        return f"{name} acted"

    model = ScriptedModel((*turns, *[say(f"done by {name}")] * 5), name=name)
    return Agent(model=model, tools=[act], limits=ROOMY, agent_name=name), done


@both
@stored
@virtual
async def test_an_approved_call_is_carried_out_by_the_member_who_asked(coordinator, store):
    idle, idled = careful("idle")
    busy, acted = careful("busy", call("act_busy", x=1))
    crew = team(idle, busy, store=store())
    paused = await crew.run(request(step("a"), step("b")), coordinator=coordinator())
    [waiting] = paused.outcome("b").pending
    result = await crew.resume(paused, decisions={waiting.call.id: approve()}, coordinator=coordinator())
    assert (acted, idled) == ([1], [])
    assert (result.outcome("b").member, result.outcome("b").output) == ("busy", "done by busy")
    assert result.status is TeamStatus.COMPLETED


@stored
@virtual
async def test_the_seniors_call_is_carried_out_by_the_senior_in_the_same_attempt(store):
    senior, acted = careful("senior", call("act_senior", x=1))
    coordinator = ExpertTeamCoordinator(evaluator=SimpleEvaluationStrategy(required=["senior"]), senior=senior)
    crew = team(agent("weak"), store=store())
    paused = await crew.run(request(step("a"), max_feedback_rounds=1), coordinator=coordinator)
    [waiting] = paused.outcome("a").pending
    assert paused.outcome("a").senior
    result = await crew.resume(paused, decisions={waiting.call.id: approve()}, coordinator=coordinator)
    assert (result.status, result.final_output, acted) == (TeamStatus.COMPLETED, "done by senior", [1])
    assert result.outcome("a").attempts == 2
    assert "accepted only from the senior" in result.outcome("a").warnings


@virtual
async def test_without_the_senior_who_waits_the_ladder_goes_on_and_says_so():
    senior, acted = careful("senior", call("act_senior", x=1))
    evaluator, crew = SimpleEvaluationStrategy(required=["senior"]), team(agent("weak"))
    paused = await crew.run(
        request(step("a"), max_feedback_rounds=1),
        coordinator=ExpertTeamCoordinator(evaluator=evaluator, senior=senior),
    )
    result = await crew.resume(paused, coordinator=ExpertTeamCoordinator(evaluator=evaluator))
    assert (result.status, acted) == (TeamStatus.FAILED, [])
    assert any("there is no senior to continue it" in warning for warning in result.warnings)


@both
@stored
@virtual
async def test_a_decision_about_one_step_decides_nothing_for_another(coordinator, store):
    one, first = careful("one", call("act_one", x=1))
    two, second = careful("two", call("act_two", x=2))
    crew = team(one, two, store=store())
    paused = await crew.run(request(step("a", member="one"), step("b", member="two")), coordinator=coordinator())
    names = [outcome.pending[0].call.id for outcome in paused.step_outcomes]
    assert names[0] == names[1]  # the models' own names for their calls
    with pytest.raises(ConfigurationError, match=f"more than one step; use one of a/{names[0]}, b/{names[0]}"):
        await crew.resume(paused, decisions={names[0]: approve()}, coordinator=coordinator())
    with pytest.raises(ConfigurationError, match="no pending call"):
        await crew.resume(paused, decisions={f"c/{names[0]}": approve()}, coordinator=coordinator())
    assert (first, second) == ([], [])
    decisions = {f"a/{names[0]}": approve(), f"b/{names[0]}": deny("not that")}
    result = await crew.resume(paused, decisions=decisions, coordinator=coordinator())
    assert (first, second, result.status) == ([1], [], TeamStatus.COMPLETED)


@virtual
async def test_one_call_is_decided_once():
    member, acted = careful("one", call("act_one", x=1))
    crew = team(member)
    paused = await crew.run(request(step("a")))
    [waiting] = paused.outcome("a").pending
    with pytest.raises(ConfigurationError, match="two decisions are about the same call"):
        await crew.resume(paused, decisions={waiting.call.id: approve(), f"a/{waiting.call.id}": deny("no")})
    assert acted == []


@stored
@virtual
async def test_the_best_text_before_the_pause_is_not_lost(store):
    member, _ = careful("one", say("good"), call("act_one", x=1), say("bad"))
    verdicts = [EvaluationVerdict(outcome=VerdictOutcome.REVISE, score=score) for score in (0.9, 0.1)]
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts(*verdicts))
    crew = team(member, store=store())
    asked = request(step("a"), max_feedback_rounds=2, risk_profile=RiskProfile.LOW)
    paused = await crew.run(asked, coordinator=coordinator)
    assert paused.final_output == "good"
    [waiting] = paused.outcome("a").pending
    result = await crew.resume(paused, decisions={waiting.call.id: deny("no")}, coordinator=coordinator)
    assert (result.status, result.final_output) == (TeamStatus.DEGRADED, "good")


@both
@virtual
async def test_a_team_without_the_member_that_waits_is_refused_and_nothing_is_lost(coordinator):
    store, asked = MemoryStore(), request(step("a"))
    member, acted = careful("one", call("act_one", x=1))
    paused = await team(member, store=store).run(asked, coordinator=coordinator())
    with pytest.raises(
        ConfigurationError, match="'a' cannot continue: its run waits for a person, and its member 'one'"
    ):
        await team(agent("ok", name="two"), store=store).resume(asked.id, coordinator=coordinator())
    [waiting] = paused.outcome("a").pending
    result = await team(member, store=store).resume(
        asked.id, decisions={waiting.call.id: approve()}, coordinator=coordinator()
    )
    assert (result.status, acted) == (TeamStatus.COMPLETED, [1])


@both
@virtual
async def test_a_team_in_which_nobody_can_do_what_is_left_is_refused_and_nothing_is_lost(coordinator):
    store, asked = MemoryStore(), request(step("a"), step("b", "a", member="two"), plan_only=True)
    await team(agent("x"), agent("y", name="two"), store=store).run(asked, coordinator=ExpertTeamCoordinator())
    with pytest.raises(ConfigurationError, match="'b' cannot continue: there is no member 'two'"):
        await team(agent("x"), store=store).resume(asked.id, coordinator=coordinator())
    result = await team(agent("x"), agent("y", name="two"), store=store).resume(asked.id, coordinator=coordinator())
    assert result.status is TeamStatus.COMPLETED


# --- verdicts that count, also after a death ----------------------------------------------------------------------


class Slow:
    """Passes everything, after ten seconds."""

    async def evaluate(self, context):
        await asyncio.sleep(10)
        return PASS


@virtual
async def test_the_event_has_the_verdict_as_it_was_taken():
    seen, coordinator, asked = Recorder(), ExpertTeamCoordinator(evaluator=Slow()), request(step("a"))
    asyncio.get_running_loop().call_later(5, lambda: coordinator.steer(asked.id, "a", "mention honey"))
    result = await team(agent(say("plain"), say("with honey")), recorder=seen).run(asked, coordinator=coordinator)
    taken = [event.verdict for event in seen.of(EvaluationResult)]
    assert [verdict.outcome for verdict in taken] == [VerdictOutcome.REVISE, VerdictOutcome.PASS]
    assert tuple(taken) == result.outcome("a").verdicts


@virtual
async def test_a_note_during_the_review_is_heard_also_after_a_death():
    store, asked = Sudden(), request(step("a"))
    coordinator = ExpertTeamCoordinator(evaluator=Slow())
    asyncio.get_running_loop().call_later(5, lambda: coordinator.steer(asked.id, "a", "mention honey"))
    member = agent(say("plain"), say("with honey").with_delay(60))
    await cut_off(store, asked, team(member, store=store), coordinator, seconds=30)
    result = await team(agent("with honey"), store=store).resume(asked.id, coordinator=coordinator)
    assert result.final_output == "with honey"
    assert result.outcome("a").attempts == 2


@virtual
async def test_what_the_arbiter_accepted_is_what_counts_after_a_death():
    asked = request(step("a"), max_feedback_rounds=2)
    better = EvaluationVerdict(outcome=VerdictOutcome.REVISE, score=0.9)

    def crew(store):
        return team(agent(say("better"), say("worse")), store=store)

    def coordinator():
        return ExpertTeamCoordinator(evaluator=Verdicts(better, REVISE), arbiter=Verdicts(PASS))

    whole = await crew(None).run(asked, coordinator=coordinator())
    store = Sudden(dies_at=14)  # the end of the step is not written any more
    await crew(store).run(asked, coordinator=coordinator())
    store.revive()
    result = await crew(store).resume(asked.id, coordinator=coordinator())
    assert (whole.final_output, result.final_output) == ("better", "better")
    assert result.outcome("a").state is StepState.COMPLETED
    assert result.outcome("a").warnings == whole.outcome("a").warnings == ("accepted by the arbiter",)


# --- notes --------------------------------------------------------------------------------------------------------


@stored
@virtual
async def test_a_note_to_a_step_that_waits_is_heard_when_it_goes_on(store):
    member, _ = careful("one", call("act_one", x=1))
    coordinator, asked = ExpertTeamCoordinator(), request(step("a", member="one"), step("b", member="slow"))
    crew = team(member, agent(say("ok").with_delay(10), name="slow"), store=store())
    told = []
    asyncio.get_running_loop().call_later(5, lambda: told.append(coordinator.steer(asked.id, "a", "mention honey")))
    paused = await crew.run(asked, coordinator=coordinator)
    assert (told, paused.outcome("a").notes) == ([True], ("mention honey",))
    [waiting] = paused.outcome("a").pending
    await crew.resume(paused, decisions={waiting.call.id: approve()}, coordinator=coordinator)
    last = member.config.model.requests[-1]
    assert [message.text for message in last.messages if "mention honey" in message.text] == [
        "A note from the person in charge: mention honey"
    ]


@stored
@virtual
async def test_a_note_that_was_heard_before_the_pause_is_not_said_again(store):
    member, _ = careful("one", say("plain").with_delay(10), call("act_one", x=1))
    coordinator, asked = ExpertTeamCoordinator(), request(step("a"))
    crew = team(member, store=store())
    asyncio.get_running_loop().call_later(5, lambda: coordinator.steer(asked.id, "a", "mention honey"))
    paused = await crew.run(asked, coordinator=coordinator)
    [waiting] = paused.outcome("a").pending
    await crew.resume(paused, decisions={waiting.call.id: approve()}, coordinator=coordinator)
    last = member.config.model.requests[-1]
    assert len([message for message in last.messages if "mention honey" in message.text]) == 1


@virtual
async def test_a_note_that_the_last_turn_could_not_hear_makes_another_attempt():
    member = agent(say("plain").with_delay(10), say("with honey"), limits=Limits(max_iterations=1))
    coordinator, asked = ExpertTeamCoordinator(), request(step("a"))
    asyncio.get_running_loop().call_later(5, lambda: coordinator.steer(asked.id, "a", "mention honey"))
    result = await team(member).run(asked, coordinator=coordinator)
    assert result.final_output == "with honey", result


# --- a death while somebody waits ---------------------------------------------------------------------------------


def charging(done):
    """A member that does something that must not be done twice, and then wants to send."""

    @tool
    async def charge() -> str:
        """Charge the card."""
        done.append("charged")
        return "charged"

    @tool(requires_approval=True)
    async def send() -> str:
        """Send the parcel."""
        done.append("sent")
        return "sent"

    def works(request):
        assert sum(message.role == "user" for message in request.messages) == 1, "it must not be asked anew"
        results = [message.text for message in request.messages if message.role == "tool_result"]
        return say("delivered") if "sent" in results else call("send") if "charged" in results else call("charge")

    return agent(works, name="clerk", tools=[charge, send])


@both
@pytest.mark.parametrize("deaths", [1, 2])
@virtual
async def test_g13_a_step_that_waits_when_the_process_dies_waits_on(coordinator, deaths):
    store, done = Sudden(), []
    asked = request(step("a", member="clerk"), step("b", member="slow"))

    def crew(*turns):
        return team(charging(done), agent(*turns, name="slow"), store=store)

    await cut_off(store, asked, crew(hang()), coordinator())
    for _ in range(deaths - 1):
        work = asyncio.create_task(crew(hang()).resume(asked.id, coordinator=coordinator()))
        await asyncio.sleep(5)
        await store.dies()
        work.cancel()
        await asyncio.wait({work})
        store.revive()
    assert done == ["charged"]
    paused = await crew("b").resume(asked.id, coordinator=coordinator())
    assert (paused.status, done) == (TeamStatus.PAUSED, ["charged"])
    [waiting] = paused.outcome("a").pending
    result = await crew("b").resume(asked.id, decisions={waiting.call.id: approve()}, coordinator=coordinator())
    assert (result.status, done) == (TeamStatus.COMPLETED, ["charged", "sent"])
    assert (result.outcome("a").attempts, result.outcome("a").output) == (1, "delivered")
    assert result.usage.total >= sum(outcome.usage.total for outcome in result.step_outcomes)
    [entry] = [entry for entry in await store.entries(f"{asked.id}/") if "/a/" in entry.session_id]
    assert result.outcome("a").usage.total == entry.summary["tokens"]


@virtual
async def test_g13_the_seniors_run_that_waits_when_the_process_dies_waits_on():
    store, done = Sudden(), []
    asked = request(step("a"), step("b", member="slow"), max_feedback_rounds=1)
    coordinator = ExpertTeamCoordinator(evaluator=SimpleEvaluationStrategy(forbidden=["weak"]), senior=charging(done))
    members = [agent("weak", name="one"), agent(hang(), name="slow")]
    await cut_off(store, asked, team(*members, store=store), coordinator)
    members[1] = agent("b", name="slow")
    paused = await team(*members, store=store).resume(asked.id, coordinator=coordinator)
    [waiting] = paused.outcome("a").pending
    result = await team(*members, store=store).resume(
        asked.id, decisions={waiting.call.id: approve()}, coordinator=coordinator
    )
    assert (result.outcome("a").output, done) == ("delivered", ["charged", "sent"])
    assert result.outcome("a").attempts == 2


@both
@virtual
async def test_g13_a_decision_that_was_obeyed_before_the_process_died_can_be_passed_again(coordinator):
    store, done = Sudden(), []
    asked = request(step("a", member="clerk"), step("b", "a", member="slow"))

    def crew(*turns):
        return team(charging(done), agent(*turns, name="slow"), store=store)

    paused = await crew("b").run(asked, coordinator=coordinator())
    [waiting] = paused.outcome("a").pending
    decisions = {waiting.call.id: approve()}
    work = asyncio.create_task(crew(hang()).resume(asked.id, decisions=decisions, coordinator=coordinator()))
    await asyncio.sleep(5)  # `a` is done, `b` is under way
    await store.dies()
    work.cancel()
    await asyncio.wait({work})
    store.revive()
    result = await crew("b").resume(asked.id, decisions=decisions, coordinator=coordinator())
    assert (result.status, done) == (TeamStatus.COMPLETED, ["charged", "sent"])


@both
@stored
@virtual
async def test_g2_a_team_that_is_stopped_before_it_goes_on_keeps_its_plan_and_what_was_done(coordinator, store):
    token = CancelToken()
    token.cancel("never mind")
    idle, busy = careful("idle")[0], careful("busy", call("act_busy", x=1))[0]
    crew = team(idle, busy, store=store())
    paused = await crew.run(request(step("a"), step("b")), coordinator=coordinator())
    result = await crew.resume(paused, coordinator=coordinator(), cancel=token)
    assert (result.status, result.plan) == (TeamStatus.CANCELLED, paused.plan)
    assert [outcome.state for outcome in result.step_outcomes] == [StepState.COMPLETED, StepState.CANCELLED]
    assert result.outcome("a").output == "done by idle"


@both
@stored
@virtual
async def test_the_team_names_every_call_with_its_path_down_to_the_agents_of_its_members(coordinator, store):
    clerk, acted = careful("clerk", call("act_clerk", x=7))
    models = ScriptedModel((call("clerk", task="act"), *[say("done by boss")] * 5), name="boss")
    boss = Agent(model=models, tools=[clerk.as_tool("clerk", "The clerk.")], limits=ROOMY, agent_name="boss")
    busy, done = careful("busy", call("act_busy", x=1))
    crew = team(boss, busy, store=store())
    asked = request(step("a", member="boss"), step("b", member="busy"))
    paused = await crew.run(asked, coordinator=coordinator())
    assert paused.status is TeamStatus.PAUSED
    paths = [[(frame.call_id, frame.agent) for frame in one.path] for one in paused.pending]
    inner = paused.outcome("a").pending[0].inside
    assert paths == [[("a", "boss"), (inner, "clerk")], [("b", "busy")]]
    assert [one.call.arguments for one in paused.pending] == [{"x": 7}, {"x": 1}]
    decisions = {one.call.id: approve() for one in paused.pending}
    result = await crew.resume(paused, decisions=decisions, coordinator=coordinator())
    assert (result.status, acted, done, result.pending) == (TeamStatus.COMPLETED, [7], [1], ())
