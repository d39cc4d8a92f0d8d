"""A team survives the death of its process: finished steps are not run again, one terminal event in all."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from glidepath import ConfigurationError, approve, tool
from glidepath._version import VERSION
from glidepath.errors import RejectedError, StoreError
from glidepath.sessions import SCHEMA, MemoryStore, SqliteStore, link, read, this_owner
from glidepath.sessions.chain import OLDEST
from glidepath.teams import (
    TERMINAL,
    AgentEvaluationStrategy,
    DefaultTaskDispatchCoordinator,
    ExpertTeamCoordinator,
    StepAssigned,
    StepAttempted,
    StepCompleted,
    StepState,
    TeamResourceConstraint,
    TeamStarted,
    TeamStatus,
)
from glidepath.teams.events import codec
from glidepath.testing import call, fail, hang, no_leftovers, say, virtual
from glidepath.values import replace

from .killable import crew as killable_crew
from .kit import EXCEEDED, PASS, REVISE, Recorder, Verdicts, agent, request, step, team

SCRIPT = Path(__file__).with_name("killable.py")


async def events_of(store, request_id):
    _, commits = await store.load(f"team:{request_id}")
    reader = codec()
    return [reader.decode(bytes(record.payload)) for commit in commits for record in read(commit)]


class Frail(MemoryStore):
    """A store that stops taking anything at the nth event of the team, as if the process had died there."""

    def __init__(self, dies_at=None):
        super().__init__()
        self.dies_at = dies_at
        self.written = 0

    def append(self, lease, commit, **more):
        self.written += lease.session_id.startswith("team:")
        if self.dies_at is not None and self.written >= self.dies_at:
            raise StoreError("the disk is full", kind="full")
        super().append(lease, commit, **more)

    def revive(self):
        self.dies_at = None
        for shelf in self._shelves.values():
            shelf.entry = type(shelf.entry)(
                session_id=shelf.entry.session_id, head=shelf.entry.head, hash=shelf.entry.hash
            )


@virtual
async def test_every_event_is_on_record_in_order():
    store, seen = MemoryStore(), Recorder()
    asked = request(step("a"), step("b", "a"))
    result = await team(agent("ok"), recorder=seen, store=store).run(asked, coordinator=ExpertTeamCoordinator())
    assert await events_of(store, asked.id) == seen.events
    assert seen.events[-1].result == result
    [entry] = await store.entries("team:")
    assert entry.summary["status"] == "completed"
    assert entry.owner is None


@virtual
async def test_what_another_release_wrote_of_a_team_is_refused_as_such_and_left_alone():
    store, asked = MemoryStore(), request(step("a"))
    whole = team(agent("ok"), recorder=Recorder(), store=store)
    await whole.run(asked, coordinator=ExpertTeamCoordinator())
    shelf = store._shelves[f"team:{asked.id}"]
    summary, before = shelf.entry.summary, list(shelf.commits)
    assert (summary["schema"], summary["version"]) == (SCHEMA, VERSION)
    odd = link(shelf.entry.hash, shelf.entry.head + 1, shelf.entry.head + 1, 1.0, [("TeamCompleted", {"result": 7})])
    for version, schema, head, kind in (
        (VERSION, SCHEMA + 1, before[-1], "newer"),
        (VERSION, OLDEST - 1, before[-1], "schema"),
        ("999.0.0", SCHEMA, odd, "newer"),
        (VERSION, SCHEMA, odd, "damaged"),
    ):
        shelf.commits = [*before, odd] if head is odd else before
        said = {**summary, "version": version, "schema": schema}
        shelf.entry = replace(shelf.entry, head=head.number, hash=head.hash, summary=said)
        with pytest.raises(StoreError) as caught:
            await whole.resume(asked.id, coordinator=ExpertTeamCoordinator())
        assert caught.value.kind == kind
        assert (shelf.entry.head, shelf.entry.summary) == (head.number, said)


@virtual
async def test_a_team_without_a_plan_ends_with_a_result_when_its_end_cannot_be_written():
    planner, seen = agent("no plan", name="planner"), Recorder()
    crew = team(agent("ok"), recorder=seen, store=Frail(dies_at=2))
    result = await crew.run(request(), coordinator=ExpertTeamCoordinator(planner=planner))
    assert (result.status, seen.events[-1].kind) == (TeamStatus.FAILED, "TEAM_FAILED")
    assert "no valid plan" in result.reason
    assert "the journal cannot be written" in result.warnings[0]


@virtual
async def test_a_finished_team_is_returned_as_it_ended():
    store, asked = MemoryStore(), request(step("a"))
    crew = team(agent("ok"), store=store)
    result = await crew.run(asked)
    seen = Recorder()
    assert await team(agent("never"), store=store, recorder=seen).resume(asked.id) == result
    assert seen.events == []
    with pytest.raises(ConfigurationError, match="already"):
        await crew.run(asked)
    with pytest.raises(ConfigurationError, match="has no request"):
        await crew.resume("request_unknown")


@pytest.mark.parametrize("coordinator", [DefaultTaskDispatchCoordinator, ExpertTeamCoordinator])
@virtual
async def test_a_team_whose_journal_fails_is_failed_and_spends_no_more(coordinator):
    store, seen, member = Frail(dies_at=5), Recorder(), agent("ok", first_chunk_delay=1.0)
    async with no_leftovers():
        result = await team(member, recorder=seen, store=store).run(
            request(*(step(name) for name in "abcdef")), coordinator=coordinator()
        )
    seen.check(result)
    assert result.status is TeamStatus.FAILED
    assert "the disk is full" in result.reason
    assert member.config.model.calls <= 6


@virtual
async def test_a_store_that_cannot_be_opened_is_an_error_before_anything_happens():
    store, asked, seen = MemoryStore(), request(step("a")), Recorder()
    await store.claim(f"team:{asked.id}", this_owner())
    crew = team(agent("ok"), store=store, recorder=seen)
    with pytest.raises(StoreError, match=r".") as caught:
        await crew.run(asked)
    assert caught.value.kind == "busy"
    with pytest.raises(StoreError):
        await crew.resume(asked.id)
    assert seen.events == []
    assert crew._in_flight == {}


@virtual
async def test_a_team_can_be_asked_to_stop_through_its_store():
    store, asked = MemoryStore(), request(step("a"))
    work = asyncio.create_task(team(agent(hang()), store=store).run(asked))
    await asyncio.sleep(20)
    await store.flag(f"team:{asked.id}", "enough")
    result = await work
    assert result.status is TeamStatus.CANCELLED
    assert result.reason == "enough"
    assert result.duration < 30


@virtual
async def test_a_team_that_was_taken_over_stops():
    store, asked = MemoryStore(), request(step("a"))
    async with no_leftovers():
        work = asyncio.create_task(team(agent(hang()), store=store).run(asked))
        await asyncio.sleep(20)
        store._shelves[f"team:{asked.id}"].entry = type(store._shelves[f"team:{asked.id}"].entry)(
            session_id=f"team:{asked.id}", head=99, token=99
        )
        result = await work
    assert result.status is TeamStatus.FAILED
    assert "taken it over" in result.reason or "another owner" in result.reason


def dying_at(number):
    """Play a team whose store stops at an event; the team is then resumed with a sound one."""

    @virtual
    async def play():
        store, member = Frail(dies_at=number), agent(say("one"), say("two"), say("three"), say("four"))
        member.config.model.forever("more")
        asked = request(step("a"), step("b", "a"), resource_constraint=TeamResourceConstraint(max_total_tokens=50_000))
        evaluator = Verdicts(REVISE, PASS, PASS)
        await team(member, store=store).run(asked, coordinator=ExpertTeamCoordinator(evaluator=evaluator))
        store.revive()
        before = await events_of(store, asked.id)
        seen = Recorder()
        crew = team(member, store=store, recorder=seen)
        if not before:
            with pytest.raises(ConfigurationError, match="never started"):
                await crew.resume(asked.id)
            return None
        result = await crew.resume(asked.id, coordinator=ExpertTeamCoordinator(evaluator=evaluator))
        after = await events_of(store, asked.id)
        if seen.events:
            seen.check(result, after=before[-1].sequence)
        return result, after

    return play()


@pytest.mark.parametrize("number", range(1, 19))
def test_g1_a_team_goes_on_from_any_event(number):
    played = dying_at(number)
    if number == 1:
        assert played is None
        return
    result, events = played
    assert result.status is TeamStatus.COMPLETED
    check_story(events)
    assert result.outcome("a").attempts <= 3
    assert [outcome.state for outcome in result.step_outcomes] == [StepState.COMPLETED] * 2


def check_story(events):
    """What must hold over all executions of a request together."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert isinstance(events[0], TeamStarted)
    assert isinstance(events[-1], TERMINAL)
    assert sum(isinstance(event, TERMINAL) for event in events) == 1
    finished = set()
    for event in events:
        if isinstance(event, StepAssigned):
            assert event.step_id not in finished, f"{event.step_id} was run again"
        elif isinstance(event, StepCompleted):
            assert event.step_id not in finished
            finished.add(event.step_id)
    [plan] = [event.plan for event in events if hasattr(event, "plan")]
    assert finished == {item.id for item in plan.steps}


@virtual
async def test_what_was_spent_before_the_death_is_not_forgotten():
    store, asked = Frail(dies_at=7), request(step("a"), step("b", "a"))
    member = agent("ok")
    await team(member, store=store).run(asked, coordinator=ExpertTeamCoordinator())
    store.revive()
    spent = sum(event.usage.total for event in await events_of(store, asked.id) if hasattr(event, "usage"))
    assert spent > 0
    result = await team(member, store=store).resume(asked.id, coordinator=ExpertTeamCoordinator())
    assert result.usage.total > spent


@virtual
async def test_an_artifact_that_was_not_reviewed_is_reviewed_and_not_made_again():
    store, asked = Frail(dies_at=5), request(step("a"))
    member = agent("ok")
    coordinator = ExpertTeamCoordinator(evaluator=Verdicts(PASS))
    await team(member, store=store).run(asked, coordinator=coordinator)
    store.revive()
    calls = member.config.model.calls
    assert [event.kind for event in await events_of(store, asked.id)][-1] == "STEP_ATTEMPTED"
    result = await team(member, store=store).resume(asked.id, coordinator=coordinator)
    assert result.status is TeamStatus.COMPLETED
    assert member.config.model.calls == calls


@pytest.mark.parametrize(
    ("coordinator", "dies_at"),
    [(ExpertTeamCoordinator, 7), (DefaultTaskDispatchCoordinator, 5)],
    ids=["expert", "dispatch"],
)
@virtual
async def test_a_step_that_was_accepted_when_the_process_died_is_not_run_again(coordinator, dies_at):
    store, asked = Frail(dies_at=dies_at), request(step("a"), step("b", "a"))
    member = agent("ok")
    await team(member, store=store).run(asked, coordinator=coordinator())
    store.revive()
    before = [event.kind for event in await events_of(store, asked.id)]
    assert before[-1] == ("EVALUATION_RESULT" if coordinator is ExpertTeamCoordinator else "STEP_ATTEMPTED")
    calls = member.config.model.calls
    result = await team(member, store=store).resume(asked.id, coordinator=coordinator())
    assert result.status is TeamStatus.COMPLETED
    assert result.outcome("a").attempts == 1
    assert result.outcome("a").output == "ok"
    assert member.config.model.calls == calls + 1  # b only


async def cut_off(store, asked, crew, coordinator, *, seconds=5.0):
    """Let a team work for a while; then its store holds what it would if the process had died there."""
    work = asyncio.create_task(crew.run(asked, coordinator=coordinator))
    await asyncio.sleep(seconds)
    await store.dies()
    work.cancel()
    await asyncio.wait({work})
    store.revive()


class Sudden(Frail):
    """A store that from some moment on takes nothing more."""

    async def dies(self):
        self.dies_at = 0

    async def release(self, lease):
        if self.dies_at is None:
            await super().release(lease)


def effects(done, name):
    @tool
    async def effect() -> str:
        """Do something that must not be done twice."""
        done.append(name)
        return "done"

    return effect


def act_then_hang(request):
    return hang() if request.messages[-1].role == "tool_result" else call("effect")


@pytest.mark.parametrize("coordinator", [DefaultTaskDispatchCoordinator, ExpertTeamCoordinator])
@virtual
async def test_g13_an_attempt_that_was_cut_off_goes_on_with_its_member_and_repeats_no_effect(coordinator):
    store, asked, done = Sudden(), request(step("a"), step("b")), []
    busy = [agent(act_then_hang, name=name, tools=[effects(done, name)]) for name in ("one", "two")]
    await cut_off(store, asked, team(*busy, store=store), coordinator())
    assert sorted(done) == ["one", "two"]
    begun = {event.step_id: event.member for event in await events_of(store, asked.id) if event.kind == "STEP_ASSIGNED"}
    calm = [agent("ok", name=name, tools=[effects(done, name)]) for name in ("two", "one")]  # in another order
    seen = Recorder()
    result = await team(*calm, store=store, recorder=seen).resume(asked.id, coordinator=coordinator())
    assert result.status is TeamStatus.COMPLETED
    assert {event.step_id: event.member for event in seen.of(StepAssigned)} == begun
    assert sorted(done) == ["one", "two"]
    assert [outcome.attempts for outcome in result.step_outcomes] == [1, 1]


@virtual
async def test_g13_when_the_member_is_gone_it_is_said_that_effects_are_unknown():
    store, asked, done = Sudden(), request(step("a")), []
    await cut_off(store, asked, team(agent(act_then_hang, name="one", tools=[effects(done, "one")]), store=store), None)
    result = await team(agent("ok", name="two"), store=store).resume(asked.id)
    assert result.status is TeamStatus.COMPLETED
    [warning] = result.outcome("a").warnings
    assert "cannot continue it: its effects are unknown" in warning


@virtual
async def test_g13_the_seniors_attempt_that_was_cut_off_is_the_seniors():
    store, asked = Sudden(), request(step("a"))
    member = agent("weak", name="one")
    evaluator = Verdicts(EXCEEDED, PASS)
    coordinator = ExpertTeamCoordinator(evaluator=evaluator, senior=agent(hang(), name="boss"))
    await cut_off(store, asked, team(member, store=store), coordinator)
    coordinator = ExpertTeamCoordinator(evaluator=evaluator, senior=agent("strong", name="boss"))
    result = await team(member, store=store).resume(asked.id, coordinator=coordinator)
    assert (result.status, result.final_output) == (TeamStatus.COMPLETED, "strong")
    assert member.config.model.calls == 1


@virtual
async def test_g12_a_judge_that_was_at_work_when_the_process_died_is_paid():
    store, asked = Sudden(), request(step("a"), resource_constraint=TeamResourceConstraint(max_total_tokens=50_000))
    coordinator = ExpertTeamCoordinator(evaluator=AgentEvaluationStrategy(agent(hang(), name="judge")))
    await cut_off(store, asked, team(agent("ok"), store=store), coordinator)
    known = sum(event.usage.total for event in await events_of(store, asked.id) if hasattr(event, "usage"))
    result = await team(agent("ok"), store=store).resume(asked.id, coordinator=ExpertTeamCoordinator())
    assert result.status is TeamStatus.COMPLETED
    assert result.usage.total > known + 100  # the worst case of the call that was in flight


@virtual
async def test_a_paused_step_whose_team_dies_while_it_goes_on_is_not_billed_twice():
    store, asked = Sudden(), request(step("a"))
    done = []

    @tool(requires_approval=True)
    async def effect() -> str:
        """Do something that must not be done twice."""
        done.append(1)
        return "done"

    paused = await team(agent(act_then_hang, tools=[effect]), store=store).run(asked)
    [waiting] = paused.step_outcomes[0].pending
    crew = team(agent(act_then_hang, tools=[effect]), store=store)
    work = asyncio.create_task(crew.resume(asked.id, decisions={waiting.call.id: approve()}))
    await asyncio.sleep(5)
    await store.dies()
    work.cancel()
    await asyncio.wait({work})
    store.revive()
    member = agent("ok", tools=[effect])
    result = await team(member, store=store).resume(asked.id)
    assert (result.status, done) == (TeamStatus.COMPLETED, [1])
    assert result.usage == result.outcome("a").usage
    assert member.config.model.calls == 1
    [entry] = await store.entries(f"{asked.id}/")
    assert result.usage.total == entry.summary["tokens"]


@pytest.mark.parametrize("dies", [False, True])
@virtual
async def test_a_person_who_decides_only_after_a_death_is_heard(dies):
    store, asked, done = Sudden(), request(step("a")), []

    @tool(requires_approval=True)
    async def effect() -> str:
        """Do something that must not be done twice."""
        done.append(1)
        return "done"

    def answers(request):
        return say("ok") if request.messages[-1].role == "tool_result" else call("effect")

    crew = team(agent(answers, tools=[effect]), store=store)
    paused = await crew.run(asked)
    [waiting] = paused.step_outcomes[0].pending
    if dies:
        store.dies_at = store.written + 3  # TEAM_STARTED and STEP_ASSIGNED are written, no more
        await crew.resume(asked.id)
        store.revive()
    result = await team(agent(answers, tools=[effect]), store=store).resume(
        asked.id, decisions={waiting.call.id: approve()}
    )
    assert (result.status, done) == (TeamStatus.COMPLETED, [1])


@virtual
async def test_a_team_that_paused_without_a_store_goes_on_with_one():
    @tool(requires_approval=True)
    async def effect() -> str:
        """Do something."""
        return "done"

    def answers(request):
        return say("ok") if request.messages[-1].role == "tool_result" else call("effect")

    paused = await team(agent(answers, tools=[effect])).run(request(step("a")))
    [waiting] = paused.step_outcomes[0].pending
    crew = team(agent(answers, tools=[effect]), store=MemoryStore())
    result = await crew.resume(paused, decisions={waiting.call.id: approve()})
    assert (result.status, result.final_output) == (TeamStatus.COMPLETED, "ok")
    assert result.usage == result.outcome("a").usage


@virtual
async def test_g12_a_planner_that_was_at_work_when_the_process_died_is_paid():
    store, asked = Sudden(), request(resource_constraint=TeamResourceConstraint(max_total_tokens=50_000))
    await cut_off(store, asked, team(store=store), ExpertTeamCoordinator(planner=agent(hang(), name="planner")))
    planner = agent('{"steps": [{"id": "a", "description": "do it"}]}', name="planner")
    result = await team(store=store).resume(asked.id, coordinator=ExpertTeamCoordinator(planner=planner))
    assert result.status is TeamStatus.COMPLETED
    new = sum(event.usage.total for event in await events_of(store, asked.id) if hasattr(event, "usage"))
    assert result.usage.total > new + 100  # the worst case of the call that was in flight


@pytest.mark.parametrize("coordinator", [DefaultTaskDispatchCoordinator, ExpertTeamCoordinator])
@pytest.mark.parametrize("dies_at", [5, 6])
@virtual
async def test_the_next_attempt_is_told_how_the_last_one_ended_also_after_a_death(dies_at, coordinator):
    store, asked, calls = Frail(dies_at=dies_at), request(step("a")), []

    def answers(asking):
        calls.append(asking)
        return fail(RejectedError("no such model")) if len(calls) == 1 else say(f"told: {asking.messages[0].text}")

    member = agent(answers)
    await team(member, store=store).run(asked, coordinator=coordinator())
    store.revive()
    assert isinstance((await events_of(store, asked.id))[3], StepAttempted)
    result = await team(member, store=store).resume(asked.id, coordinator=coordinator())
    assert result.status is TeamStatus.COMPLETED
    assert "the attempt ended ERROR/FAILED" in result.final_output
    assert "the attempt ended ERROR/FAILED" in result.outcome("a").verdicts[0].feedback


@virtual
async def test_the_runs_of_a_team_are_in_its_store_whatever_its_members_have():
    own, store = MemoryStore(), MemoryStore()
    member = agent("ok")
    member = type(member)(replace(member.config, store=own))
    await team(member, store=store).run(request(step("a")))
    assert (len(await own.entries()), len(await store.entries())) == (0, 2)
    await team(member).run(request(step("a")))
    assert len(await own.entries()) == 1


@virtual
async def test_the_runs_of_a_request_are_found_whatever_its_name():
    for name in ("a", "a/b", "x" * 199, "\u00fc n\u00ef"):
        store, asked = Sudden(), request(step("s" * 199), request_id=name)
        await cut_off(store, asked, team(agent(hang(), name="m" * 150), store=store), None)
        assert (await team(agent("ok", name="m" * 150), store=store).resume(name)).outcome("s" * 199).attempts == 1
        assert len(await store.entries()) == 2


@virtual
async def test_strange_characters_do_not_break_the_journal():
    store, asked = MemoryStore(), request(step("a"), step("b", "a"))
    result = await team(agent(say("nul \0 and half \ud800 a pair")), store=store).run(asked)
    assert result.status is TeamStatus.COMPLETED
    assert await team(agent("x"), store=store).resume(asked.id) == result


# --- real processes -----------------------------------------------------------------------------------------------


def start(path, *more):
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    command = [sys.executable, str(SCRIPT), str(path), "request_1", *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def story(path):
    async def load():
        store = SqliteStore(path)
        try:
            return await events_of(store, "request_1")
        finally:
            await store.close()

    return asyncio.run(load())


def finish(path, *more):
    done = start(path, *more)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    assert out.startswith("COMPLETED"), out
    events = story(path)
    check_story(events)
    return events


@pytest.mark.process
def test_g13_a_team_killed_at_any_event_is_resumed_without_running_finished_steps_again(tmp_path):
    path = tmp_path / "store.db"
    for event, side in ((3, "before"), (6, "after"), (9, "before"), (8, "after")):
        dead = start(path, event, side)
        dead.communicate(timeout=60)
        assert dead.returncode == -signal.SIGKILL
    events = finish(path)
    assert sum(isinstance(event, TeamStarted) for event in events) >= 4


def check_effects(path):
    """Nothing was done twice, and the last attempts were made."""
    done = path.read_text(encoding="utf-8").splitlines()
    assert len(done) == len(set(done)), done
    return done


@pytest.mark.process
def test_g13_what_a_members_tools_did_is_not_done_again_after_a_kill(tmp_path):
    path, effects = tmp_path / "store.db", tmp_path / "effects"
    for event, side in ((9, "before"), (14, "after"), (21, "before")):
        dead = start(path, event, side, effects)
        dead.communicate(timeout=60)
        assert dead.returncode == -signal.SIGKILL
    finish(path, 0, "after", effects)
    assert len(check_effects(effects)) >= 8


def check_budget_over_deaths(tmp_path, chance, deaths, limit):
    """Kill a team again and again; all its processes together keep the limit of its request."""
    path, effects = tmp_path / "store.db", tmp_path / "effects"
    for _ in range(deaths):
        child = start(path, chance.randint(5, 12), chance.choice(["before", "after"]), effects, limit)
        child.communicate(timeout=60)
    last = start(path, 0, "after", effects, limit)
    out, err = last.communicate(timeout=60)
    assert last.returncode == 0, err
    paid = sum(map(int, Path(f"{effects}.paid").read_text(encoding="utf-8").split()))
    assert paid <= limit, (paid, out)
    events = story(path)
    done = Counter(effects.read_text(encoding="utf-8").split())
    fruitless = Counter(
        event.step_id for event in events if isinstance(event, StepAttempted) and not event.artifact.strip()
    )
    for name, times in done.items():  # the limit may end an attempt before it delivers: then there is another one
        assert times <= 1 + fruitless[name[0]], (done, fruitless)
    assert sum(isinstance(event, TERMINAL) for event in events) == 1
    return paid, events


@pytest.mark.process
def test_g4_g13_a_team_that_is_killed_again_and_again_does_not_exceed_its_budget(tmp_path):
    paid, events = check_budget_over_deaths(tmp_path, random.Random(7), 8, 7000)
    assert paid > 0
    assert events[-1].result.usage.total >= paid


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_g4_g13_the_budget_survives_deaths_at_random_moments(seed, tmp_path):
    check_budget_over_deaths(tmp_path, random.Random(seed), 12, 7000)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_g13_no_effect_is_repeated_wherever_a_team_is_killed(seed, tmp_path):
    path, effects, chance = tmp_path / "store.db", tmp_path / "effects", random.Random(seed)
    for _ in range(4):
        dead = start(path, chance.randint(1, 60), chance.choice(["before", "after"]), effects)
        dead.communicate(timeout=60)
    finish(path, 0, "after", effects)
    check_effects(effects)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_g13_a_team_killed_at_random_moments_is_resumed(seed, tmp_path):
    path, chance = tmp_path / "store.db", random.Random(seed)
    for _ in range(12):
        child = start(path)
        time.sleep(0.2 + chance.random() * 0.4)
        child.kill()
        child.communicate(timeout=60)
    finish(path)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("event", range(1, 48))
def test_g13_a_team_killed_at_each_event_is_resumed(event, side, tmp_path):
    path = tmp_path / "store.db"
    dead = start(path, event, side)
    dead.communicate(timeout=60)
    finish(path)


def test_the_killable_team_can_be_made():
    assert killable_crew(MemoryStore()).members


class Silent(MemoryStore):
    """A store that does not answer the writes of a team any more."""

    def append(self, lease, commit, **more):
        super().append(lease, commit, **more)
        if lease.session_id.startswith("team:") and commit.number > 2:
            return asyncio.get_running_loop().create_future()
        return None


@virtual
async def test_g1_a_team_whose_store_falls_silent_fails_within_the_time_of_one_answer():
    seen, asked = Recorder(), request(step("a"))
    async with no_leftovers():
        result = await team(agent("ok"), store=Silent(), recorder=seen).run(asked)
    seen.check(result)
    assert result.status is TeamStatus.FAILED
    assert "has not answered within 30 s" in result.reason
    assert result.duration < 60
