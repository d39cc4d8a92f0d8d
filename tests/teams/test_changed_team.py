"""Every leg of a team records schema, release and configuration, and a resume says what changed since."""

import pytest

from glidepath import Agent, ConfigurationError, Limits, approve, tool
from glidepath._version import VERSION
from glidepath.apps.cli.team_board import report
from glidepath.errors import StoreError
from glidepath.sessions import SCHEMA, MemoryStore, RedactingStore, decide, send
from glidepath.teams import (
    DefaultTaskDispatchCoordinator,
    ExpertTeamCoordinator,
    History,
    Member,
    Team,
    TeamStarted,
    TeamStatus,
    read_story,
)
from glidepath.testing import ScriptedModel, call, say, virtual

from .kit import Recorder, agent, request, step, team


@tool(requires_approval=True)
async def publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


def posts(asked):
    return "done" if asked.messages[-1].role == "tool_result" else call("publish", text="bees")


async def paused(store, *, tools=(publish,), **more):
    """A request whose only step waits for a person."""
    asked = request(step("post"), request_id="r")
    result = await team(agent(posts, tools=tools), store=store, **more).run(
        asked, coordinator=DefaultTaskDispatchCoordinator()
    )
    assert result.status is TeamStatus.PAUSED
    return result


async def legs(store):
    return [event for event in await read_story(store, "r") if isinstance(event, TeamStarted)]


@virtual
async def test_every_leg_of_a_team_has_schema_version_and_fingerprint():
    store = MemoryStore()
    await paused(store)
    await team(agent(posts, tools=(publish,)), store=store).resume("r")
    first, second = await legs(store)
    for leg in (first, second):
        assert leg.schema == SCHEMA
        assert leg.version == VERSION
        assert leg.config.members["member"].model == "member-model"
        assert set(leg.config.members["member"].tools) == {"publish"}
    assert first.config == second.config


@virtual
async def test_an_unchanged_team_reports_no_change():
    store, seen = MemoryStore(), Recorder()
    before = await paused(store)
    after = await team(agent(posts, tools=(publish,)), recorder=seen, store=store).resume("r")
    assert (before.changes, after.changes, seen.events[0].changes) == ((), (), ())


@virtual
async def test_a_resumed_team_reports_what_changed_about_its_members():
    store, seen = MemoryStore(), Recorder()
    await paused(store)
    after = team(agent(posts, limits=Limits(max_iterations=9)), agent("hi", name="guest"), recorder=seen, store=store)
    result = await after.resume("r")
    told = [str(change) for change in result.changes]
    assert "limit member/max_iterations changed: 50 -> 9" in told
    assert "tool member/publish is gone" in told
    assert "member guest is new" in told
    assert seen.events[0].changes == result.changes
    assert (await legs(store))[-1].changes == result.changes


@virtual
async def test_another_coordinator_and_other_capabilities_are_changes():
    store = MemoryStore()
    await paused(store)
    other = Team([Member(name="member", agent=agent(posts, tools=(publish,)), capabilities={"press"})], store=store)
    result = await other.resume("r", coordinator=ExpertTeamCoordinator())
    told = [str(change) for change in result.changes]
    assert any(line.startswith("coordinator changed: ") for line in told)
    assert "capability member/press is new" in told


@virtual
async def test_another_release_is_a_change(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as past:
        past.setattr("glidepath.teams.team_fingerprint.VERSION", "0.0.1")
        await paused(store)
    result = await team(agent(posts, tools=(publish,)), store=store).resume("r")
    assert [str(change) for change in result.changes] == [f"version changed: 0.0.1 -> {VERSION}"]


@virtual
async def test_a_journal_without_a_fingerprint_reports_no_change():
    crew = team(agent(posts), store=MemoryStore())
    asked = request(step("post"), request_id="r")
    run = await crew.open(asked, history=History(request=asked))
    run.emit(TeamStarted(request=asked, coordinator="another"))
    assert run.events.changes == ()
    await run.close()


class Dies(MemoryStore):
    """Takes nothing of the team after its fourth event."""

    written = 0
    dead = True

    def append(self, lease, commit, **more):
        self.written += lease.session_id.startswith("team:")
        if self.dead and self.written >= 4:
            raise StoreError("the disk is full", kind="full")
        super().append(lease, commit, **more)


@virtual
async def test_a_team_that_died_reports_what_changed_since():
    store = Dies()
    asked = request(step("a"), step("b", "a"), request_id="r")
    await team(agent("ok"), store=store).run(asked)
    store.dead = False
    result = await team(agent("ok", limits=Limits(max_iterations=7)), store=store).resume("r")
    assert result.status is TeamStatus.COMPLETED
    assert [str(change) for change in result.changes] == ["limit member/max_iterations changed: 50 -> 7"]
    assert (await team(agent("ok"), store=store).resume("r")).changes == result.changes


@virtual
async def test_the_report_of_a_team_lists_the_changes():
    store = MemoryStore()
    await paused(store)
    result = await team(agent(posts), store=store).resume("r")
    assert "note: since the last run, tool member/publish is gone" in report(result)


@virtual
async def test_a_hook_that_hides_every_text_leaves_a_team_that_can_be_resumed():
    store = RedactingStore(MemoryStore(), lambda _: "[hidden]")
    await paused(store)
    result = await team(agent(posts, tools=(publish,)), store=store).resume("r")
    assert (result.status, result.changes) == (TeamStatus.PAUSED, ())
    [pending] = result.step_outcomes[0].pending
    result = await team(agent(posts, tools=(publish,), limits=Limits(max_iterations=9)), store=store).resume(
        "r", decisions={pending.call.id: approve({"text": "bees"})}
    )
    assert result.status is TeamStatus.COMPLETED
    assert [str(change) for change in result.changes] == ["limit member/max_iterations changed: 50 -> 9"]
    told = b"".join(commit.body for commit in (await store.load("team:r"))[1])
    assert b"the goal" not in told
    assert b"bees" not in told


@pytest.mark.parametrize("act", ["run", "resume"])
@virtual
async def test_a_run_does_not_write_into_the_journal_of_a_team(act):
    store = MemoryStore()
    await paused(store)
    alone = Agent(model=ScriptedModel().forever(say("hi")), limits=Limits(max_iterations=2), store=store)
    with pytest.raises(ConfigurationError, match=r"is the journal of a team: continue it with Team.resume\('r'\)"):
        await (alone.run("hello", session="team:r") if act == "run" else alone.resume("team:r"))
    again = await team(agent(posts, tools=(publish,)), store=store).resume("r")
    assert again.status is TeamStatus.PAUSED


@virtual
async def test_a_message_or_decision_for_a_team_is_refused_because_nobody_would_read_it():
    store = MemoryStore()
    await paused(store)
    for posted in (send(store, "team:r", "hurry"), decide(store, "team:r", {"call_1": approve()})):
        with pytest.raises(ConfigurationError, match="reads no messages"):
            await posted
    assert await send(store, "r/post/1/member", "hurry") == 1
