"""However a team ends: a result, TEAM_STARTED first, exactly one terminal event last, nothing left running."""

import asyncio
import sys
import threading

import pytest

from glidepath import CancelToken, ConfigurationError, Plugin, approve, deny, tool
from glidepath.sessions import MemoryStore
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    ExpertTeamCoordinator,
    Member,
    PlanReady,
    StepAssigned,
    StepCompleted,
    StepOutcome,
    StepState,
    StepSteered,
    TeamCompleted,
    TeamFailed,
    TeamPaused,
    TeamResult,
    TeamStarted,
    TeamStatus,
)
from glidepath.testing import EventRecorder, VirtualClock, call, hang, no_leftovers, say, virtual
from glidepath.values import replace

from .kit import PASS, Recorder, Verdicts, agent, plan, request, step, team

S = StepState
BOTH = [DefaultTaskDispatchCoordinator, ExpertTeamCoordinator]
both = pytest.mark.parametrize("coordinator", BOTH, ids=["dispatch", "expert"])


async def by_step(given):
    """a is quick; b says a little and then hangs."""
    prompt = given.messages[0].text
    if "Your step (a)" in prompt:
        return say("A")
    return say("b began and went on for ever", delay=40.0)


async def run(coordinator, *steps, member=None, cancel=None, **config):
    seen = Recorder()
    members = [agent(member or by_step, name="x"), agent(member or by_step, name="y")]
    asked = request(*(steps or (step("a"), step("b"), step("c", "a", "b"))), **config)
    async with no_leftovers():
        result = await team(*members, recorder=seen).run(asked, coordinator=coordinator(), cancel=cancel)
    seen.check(result)
    return result, seen


@both
@virtual
async def test_g1_a_team_out_of_time_keeps_what_was_delivered_and_what_was_cut_short(coordinator):
    result, seen = await run(coordinator, team_timeout=100)
    assert result.status is TeamStatus.TIMEOUT
    assert seen.kinds()[-1] == "TEAM_TIMEOUT"
    assert [outcome.state for outcome in result.step_outcomes] == [S.COMPLETED, S.CANCELLED, S.CANCELLED]
    assert result.outcome("a").output == "A"
    assert result.outcome("b").output.startswith("b began")
    assert result.final_output == "A"
    assert result.duration <= 101


@both
@virtual
async def test_g1_a_cancelled_team_keeps_what_was_delivered_and_what_was_cut_short(coordinator):
    cancel = CancelToken()
    asyncio.get_running_loop().call_later(100, cancel.cancel, "enough")
    result, seen = await run(coordinator, cancel=cancel)
    assert result.status is TeamStatus.CANCELLED
    assert result.reason == "enough"
    assert seen.kinds()[-1] == "TEAM_CANCELLED"
    assert [outcome.state for outcome in result.step_outcomes] == [S.COMPLETED, S.CANCELLED, S.CANCELLED]
    assert result.outcome("b").output.startswith("b began")
    assert result.duration < 102


@both
@virtual
async def test_a_team_cancelled_before_it_starts_makes_no_call(coordinator):
    cancel = CancelToken()
    cancel.cancel("never mind")
    result, seen = await run(coordinator, cancel=cancel)
    assert result.status is TeamStatus.CANCELLED
    assert seen.of(StepAssigned) == []
    assert result.usage.total == 0


@both
@virtual
async def test_a_team_can_be_cancelled_from_another_thread(coordinator):
    cancel = CancelToken()
    thread = threading.Thread(target=cancel.cancel)
    asyncio.get_running_loop().call_later(50, lambda: (thread.start(), thread.join()))
    result, _ = await run(coordinator, cancel=cancel)
    assert result.status is TeamStatus.CANCELLED


@both
@virtual
async def test_g1_the_callers_own_cancellation_goes_on_after_the_team_has_landed(coordinator):
    seen = Recorder()
    crew = team(agent(by_step, name="x"), agent(by_step, name="y"), recorder=seen)
    async with no_leftovers():
        work = asyncio.create_task(crew.run(request(step("a"), step("b")), coordinator=coordinator()))
        await asyncio.sleep(50)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    seen.check(seen.events[-1].result)
    assert seen.kinds()[-1] == "TEAM_CANCELLED"
    assert seen.events[-1].result.outcome("a").output == "A"


@both
@virtual
async def test_g1_a_caller_that_cancels_again_and_again_still_gets_one_ending(coordinator):
    seen = Recorder()
    crew = team(agent(by_step, name="x"), recorder=seen)
    async with no_leftovers():
        work = asyncio.create_task(crew.run(request(step("a"), step("b")), coordinator=coordinator()))
        await asyncio.sleep(50)
        for _ in range(5):
            work.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await work
    assert seen.kinds().count("TEAM_CANCELLED") == 1


@both
@virtual
async def test_winding_down_lets_members_deliver_and_begins_nothing_new(coordinator):
    cancel = CancelToken()
    asyncio.get_running_loop().call_later(5, cancel.wind_down, "time for tea")
    script = say("two words", delay=5.0)
    result, _ = await run(coordinator, step("a"), step("b", "a"), member=script, cancel=cancel)
    assert result.status is TeamStatus.CANCELLED
    assert result.reason == "time for tea"
    assert result.outcome("a").state.delivered or result.outcome("a").output
    assert result.outcome("b").attempts == 0


# --- a coordinator that misbehaves --------------------------------------------------------------------------------


class Odd:
    """A coordinator that does whatever it is told."""

    def __init__(self, act):
        self.act = act

    async def execute(self, request, team):
        return await self.act(request, team)


async def contained(act, **config):
    seen = Recorder()
    asked = request(step("a"), step("b"), **config)
    result = await team(recorder=seen).run(asked, coordinator=Odd(act))
    seen.check(result)
    return result, seen


def done(asked, status=TeamStatus.COMPLETED):
    outcomes = tuple(StepOutcome(step_id=item.id, state=S.COMPLETED) for item in asked.plan.steps)
    return TeamResult(request=asked, team="team", status=status, plan=asked.plan, step_outcomes=outcomes)


async def raises(asked, team):
    raise ValueError("boom")


async def raises_exit(asked, team):
    raise SystemExit(3)


async def raises_uninvited(asked, team):
    raise asyncio.CancelledError


async def raises_later(asked, team):
    team.emit(TeamStarted(request=asked))
    team.emit(PlanReady(plan=asked.plan))
    team.emit(StepCompleted(step_id="a", outcome=StepOutcome(step_id="a", state=S.COMPLETED, output="A")))
    raise ConfigurationError("too late for that")


async def answers_nothing(asked, team):
    team.emit(TeamStarted(request=asked))


async def answers_for_another(asked, team):
    return done(request(step("a"), step("b")))


CRASHES = [raises, raises_exit, raises_uninvited, raises_later, answers_nothing, answers_for_another]


@pytest.mark.parametrize("act", CRASHES, ids=lambda act: act.__name__)
@virtual
async def test_g1_a_coordinator_that_breaks_fails_the_team(act):
    result, _ = await contained(act)
    assert result.status is TeamStatus.FAILED
    assert result.reason


@virtual
async def test_what_a_broken_coordinator_had_published_is_kept():
    result, _ = await contained(raises_later)
    assert [outcome.state for outcome in result.step_outcomes] == [S.COMPLETED, S.CANCELLED]
    assert result.final_output == "A"


@virtual
async def test_g1_a_coordinator_that_forgets_its_events_gets_them():
    async def silent(asked, team):
        return done(asked)

    result, seen = await contained(silent)
    assert seen.kinds() == ["TEAM_STARTED", "TEAM_COMPLETED"]
    assert result.status is TeamStatus.COMPLETED


@virtual
async def test_the_result_knows_the_number_of_the_last_event_whatever_its_coordinator_wrote():
    class Uncounted:
        async def execute(self, request, team):
            team.emit(TeamStarted(request=request))
            result = TeamResult(request=request, team=team.name, status=TeamStatus.PAUSED)
            team.emit(TeamPaused(result=result))
            return result

    seen = Recorder()
    crew = team(recorder=seen)
    paused = await crew.run(request(), coordinator=Uncounted())
    assert (paused.sequence, seen.events[-1].result.sequence) == (2, 2)
    seen.events.clear()
    seen.check(await crew.resume(paused, coordinator=Uncounted()), after=2)


@virtual
async def test_a_coordinator_that_says_too_much_is_cut_short():
    async def talkative(asked, team):
        team.emit(TeamStarted(request=asked))
        team.emit(TeamStarted(request=asked))
        team.emit(TeamCompleted(result=done(asked)))
        team.emit(TeamCompleted(result=done(asked)))
        team.emit(StepAssigned(step_id="a", attempt=1, member="x"))
        return done(asked)

    result, seen = await contained(talkative)
    assert seen.kinds() == ["TEAM_STARTED", "TEAM_COMPLETED"]
    assert any("STEP_ASSIGNED came after the end" in warning for warning in result.warnings)


@virtual
async def test_what_was_published_is_the_truth():
    async def liar(asked, team):
        team.emit(TeamCompleted(result=done(asked)))
        return done(asked, TeamStatus.FAILED)

    result, _ = await contained(liar)
    assert result.status is TeamStatus.COMPLETED


UNSOUND = [
    lambda asked: TeamCompleted(result=None),
    lambda asked: TeamFailed(result="it failed"),
    lambda asked: TeamCompleted(result=done(request(step("a"), step("b")))),  # of another request
    lambda asked: PlanReady(plan=None),
    lambda asked: StepCompleted(step_id="a", outcome=None),
]


@pytest.mark.parametrize("event", UNSOUND, ids=range(len(UNSOUND)))
@pytest.mark.parametrize("store", [None, MemoryStore])
@virtual
async def test_g1_an_event_that_does_not_say_what_it_must_is_not_published(event, store):
    async def careless(asked, team):
        team.emit(event(asked))

    seen, asked = Recorder(), request(step("a"), step("b"))
    crew = team(recorder=seen, store=None if store is None else store())
    result = await crew.run(asked, coordinator=Odd(careless))
    seen.check(result)
    assert seen.kinds() == ["TEAM_STARTED", "TEAM_FAILED"]
    assert any("has no valid content and was not published" in warning for warning in result.warnings)


@virtual
async def test_g2_the_terminal_event_goes_with_its_result():
    async def mistaken(asked, team):
        team.emit(TeamFailed(result=replace(done(asked), team="another")))
        return done(asked)

    result, seen = await contained(mistaken)
    assert seen.kinds() == ["TEAM_STARTED", "TEAM_COMPLETED"]
    assert (result.status, result.team) == (TeamStatus.COMPLETED, "team")
    assert any("TEAM_FAILED was published as TEAM_COMPLETED" in warning for warning in result.warnings)


@virtual
async def test_events_from_other_threads_are_published_by_the_teams_own_thread():
    heard = set()

    async def threaded(asked, team):
        def speak():
            for number in range(100):
                team.emit(StepSteered(step_id="a", action="steer", text=str(number)))

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=speak) for _ in range(4)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        return done(asked)

    class Listener(Recorder):
        def __call__(self, event):
            heard.add(threading.get_ident())
            super().__call__(event)

    seen = Listener()
    result = await team(recorder=seen).run(request(step("a"), step("b")), coordinator=Odd(threaded))
    seen.check(result)
    assert result.status is TeamStatus.COMPLETED
    assert len(seen.of(StepSteered)) == 400
    assert heard == {threading.get_ident()}


@virtual
async def test_strange_characters_in_a_reason_do_not_break_the_journal():
    async def crashes(asked, team):
        raise ValueError("half \ud800 a pair")

    for coordinator, cancel in ((Odd(crashes), None), (ExpertTeamCoordinator(), "half \ud800 a pair")):
        store, seen, token = MemoryStore(), Recorder(), CancelToken()
        if cancel is not None:
            token.cancel(cancel)
        asked = request(step("a"))
        result = await team(recorder=seen, store=store).run(asked, coordinator=coordinator, cancel=token)
        seen.check(result)
        assert "half \ufffd a pair" in result.reason
        assert result.warnings == ()
        assert await team(store=store).resume(asked.id) == result


@virtual
async def test_g1_a_coordinator_that_hangs_is_stopped_after_the_teams_time():
    async def forever(asked, team):
        await asyncio.get_running_loop().create_future()

    async with no_leftovers():
        result, seen = await contained(forever, team_timeout=10)
    assert result.status is TeamStatus.TIMEOUT
    assert seen.kinds()[-1] == "TEAM_TIMEOUT"
    assert result.duration < 20


@virtual
async def test_g1_a_coordinator_that_ignores_its_cancellation_is_let_go():
    async def stubborn(asked, team):
        until = asyncio.get_running_loop().time() + 60
        while asyncio.get_running_loop().time() < until:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        return done(asked)

    result, _ = await contained(stubborn, team_timeout=10)
    assert result.status is TeamStatus.TIMEOUT
    assert "the coordinator did not stop and was abandoned" in result.warnings
    await asyncio.sleep(100)


@virtual
async def test_runs_of_a_coordinator_that_crashed_are_stopped():
    tasks = []

    async def careless(asked, team):
        tasks.append(asyncio.create_task(team.ask(agent(hang()), "go")))
        await asyncio.sleep(5)
        raise ValueError("boom")

    result, _ = await contained(careless)
    assert result.status is TeamStatus.FAILED
    [run] = await asyncio.gather(*tasks)
    assert run.outcome.name == "CANCELLED"


@virtual
async def test_a_wrong_configuration_is_raised_before_anything_happened():
    async def refuses(asked, team):
        raise ConfigurationError("not with me")

    seen = Recorder()
    crew = team(recorder=seen)
    with pytest.raises(ConfigurationError, match="not with me"):
        await crew.run(request(step("a")), coordinator=Odd(refuses))
    assert seen.events == []
    for wrong in (7, None, ["goal"]):
        with pytest.raises(ConfigurationError, match="request"):
            await crew.run(wrong)
    with pytest.raises(ConfigurationError, match="goal"):
        await crew.run(" ")
    with pytest.raises(ConfigurationError, match="cancel"):
        await crew.run("go", cancel="now")
    with pytest.raises(ConfigurationError, match="coordinator"):
        await crew.run("go", coordinator="expert")
    for wrong in (7, None):
        with pytest.raises(ConfigurationError, match="resume"):
            await crew.resume(wrong)
    with pytest.raises(ConfigurationError, match="no store"):
        await crew.resume("request_1")
    assert crew._in_flight == {}


@virtual
async def test_one_request_is_carried_out_once_at_a_time():
    crew, asked = team(agent("ok", first_chunk_delay=5.0)), request(step("a"))
    first = asyncio.create_task(crew.run(asked))
    await asyncio.sleep(1)
    with pytest.raises(ConfigurationError, match="in flight"):
        await crew.run(asked)
    assert (await first).status is TeamStatus.COMPLETED


@virtual
async def test_events_of_a_request_that_is_not_in_flight_are_refused():
    crew, asked = team(), request(step("a"))
    for event in (TeamStarted(request=asked), TeamStarted(request=asked, run_id=asked.id), "TEAM_STARTED"):
        with pytest.raises(ConfigurationError, match="a request in flight"):
            crew.emit(event)
    run = await crew.open(asked)
    with pytest.raises(ConfigurationError, match="emit takes a TeamEvent"):
        run.emit("TEAM_STARTED")
    crew.emit(TeamStarted(request=asked, run_id=asked.id))
    assert run.events.started
    await run.close()


@virtual
async def test_an_execution_that_is_closed_twice_does_not_end_the_next_one():
    crew, asked = team(), request(step("a"))
    first = await crew.open(asked)
    await first.close()
    second = await crew.open(asked)
    await first.close()
    with pytest.raises(ConfigurationError, match="in flight"):
        await crew.open(asked)
    await second.close()


@virtual
async def test_g14_a_team_is_immutable():
    crew = team()
    for name in ("members", "name", "store", "coordinator", "new"):
        with pytest.raises(AttributeError, match=f"a Team is immutable: make another one with another {name}"):
            setattr(crew, name, None)
        with pytest.raises(AttributeError, match="a Team is immutable"):
            delattr(crew, name)


# --- observers ----------------------------------------------------------------------------------------------------


class Crashing(Plugin):
    def event_observer(self, event):
        raise ValueError("boom")


class Slow(Plugin):
    def __init__(self):
        self.seen = []

    async def event_observer(self, event):
        await asyncio.sleep(0.05)
        self.seen.append(event)


class Changing(Plugin):
    def after_tool_call(self, context):
        return None


@virtual
async def test_observers_see_every_event_and_can_never_hurt_a_team():
    slow, recorder = Slow(), EventRecorder()
    crew = team(agent("ok"), plugins=[Crashing(), slow, recorder.as_plugin()])
    async with no_leftovers():
        result = await crew.run(request(step("a")), coordinator=ExpertTeamCoordinator())
    assert result.status is TeamStatus.COMPLETED
    assert any("observer crashing failed" in warning for warning in result.warnings)
    assert [event.sequence for event in slow.seen] == list(range(1, 9))
    assert recorder.kinds() == [type(event).__name__ for event in slow.seen]


@virtual
async def test_a_crashing_sink_does_not_hurt_a_team():
    def sink(event):
        raise ValueError("boom")

    result = await team(agent("ok"), recorder=sink).run(request(step("a")))
    assert result.status is TeamStatus.COMPLETED


def test_a_plugin_that_changes_runs_belongs_to_the_agents():
    with pytest.raises(ConfigurationError, match="only observe"):
        team(agent("ok"), plugins=[Changing()])


# --- decisions ----------------------------------------------------------------------------------------------------

published = []


@tool(requires_approval=True)
async def publish(text: str) -> str:
    """Publish."""
    published.append(text)
    return f"published {text}"


@both
@pytest.mark.parametrize("decision", [approve(), deny("not today")], ids=["approve", "deny"])
@virtual
async def test_a_step_that_waits_goes_on_with_what_was_decided(coordinator, decision):
    published.clear()
    careful = Member(name="careful", agent=agent(call("publish", text="x"), say("all done"), tools=[publish]))
    seen = Recorder()
    crew = team(careful, recorder=seen)
    paused = await crew.run(request(step("a"), step("b", "a")), coordinator=coordinator())
    assert paused.status is TeamStatus.PAUSED
    [waiting] = paused.outcome("a").pending
    seen.check(paused)
    seen.events.clear()
    careful.agent.config.model.forever("B")
    decisions = {waiting.call.id: decision}
    async with no_leftovers():
        result = await crew.resume(paused, decisions=decisions, coordinator=coordinator())
    seen.check(result, after=paused.sequence)
    assert result.status is TeamStatus.COMPLETED
    assert result.outcome("a").output == "all done"
    assert result.outcome("a").attempts == 1
    assert result.final_output == "B"
    assert published == (["x"] if decision.kind == "approve" else [])
    calls = careful.agent.config.model.requests
    assert len(calls) == 3
    assert result.usage.total == sum(outcome.usage.total for outcome in result.step_outcomes)


@virtual
async def test_a_wrong_decision_is_named():
    careful = Member(name="careful", agent=agent(call("publish", text="x"), tools=[publish]))
    crew = team(careful)
    paused = await crew.run(request(step("a")))
    for wrong in ({"nobody": approve()}, {"nobody": "yes"}, "yes"):
        with pytest.raises(ConfigurationError, match="decisions"):
            await crew.resume(paused, decisions=wrong)
    with pytest.raises(ConfigurationError, match="plan can be replaced only"):
        await crew.resume(paused, plan=plan(step("x")))
    assert crew._in_flight == {}


@virtual
async def test_an_evaluator_that_hangs_does_not_outlive_a_cancelled_team():
    cancel = CancelToken()
    asyncio.get_running_loop().call_later(5, cancel.cancel)
    async with no_leftovers():
        result = await team(agent("ok")).run(
            request(step("a")), coordinator=ExpertTeamCoordinator(evaluator=Verdicts("hang", PASS)), cancel=cancel
        )
    assert result.status is TeamStatus.CANCELLED
    assert result.outcome("a").output == "ok"
    assert result.duration < 7.1


@pytest.mark.parametrize("how", ["cancel", "wind_down", "task"])
@pytest.mark.parametrize("stored", [False, True], ids=["", "stored"])
@pytest.mark.parametrize("coordinator", BOTH, ids=["dispatch", "expert"])
def test_g1_a_team_stopped_at_any_await_lands_and_lets_go(coordinator, stored, how):
    async def stopped_after(turns):
        store, seen, cancel = MemoryStore() if stored else None, Recorder(), CancelToken()
        crew = team(agent("ok"), recorder=seen, store=store)
        async with no_leftovers():
            work = asyncio.create_task(crew.run(request(step("a")), coordinator=coordinator(), cancel=cancel))
            for _ in range(turns):
                await asyncio.sleep(0)
            {"cancel": cancel.cancel, "wind_down": cancel.wind_down, "task": work.cancel}[how]()
            try:
                result = await work
            except asyncio.CancelledError:
                assert how == "task"
                result = seen.events[-1].result if seen.events else None
        if result is not None:
            seen.check(result)
        assert crew._in_flight == {}
        if store is not None:
            assert all(entry.owner is None for entry in await store.entries("team:"))

    for turns in range(25):
        VirtualClock().run(stopped_after(turns))
