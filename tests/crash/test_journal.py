"""The journal is the truth: it folds to the live state after every commit, and a run goes on from it."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath import (
    Agent,
    AgentState,
    CancelToken,
    GuardrailsConfig,
    Limits,
    LoopOutcome,
    Plugin,
    Session,
    approve,
    tool,
)
from glidepath.errors import ConfigurationError, StoreError, TransientError
from glidepath.events import SessionSaved
from glidepath.messages import CustomMessage, StreamEnd, TextDelta, UnknownMessage, Usage, UserMessage
from glidepath.run import KEPT
from glidepath.run.snapshot import take_snapshot
from glidepath.sessions import (
    MARKED,
    JournalRecorder,
    MemoryStore,
    SqliteStore,
    link,
    read,
    read_journal,
    verify_commits,
)
from glidepath.sessions.fold import fold
from glidepath.sessions.state_changes import StateChanges, strip_result
from glidepath.testing import (
    EventRecorder,
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    empty,
    fail,
    say,
    transcript_errors,
    truncated,
    virtual,
)
from glidepath.values import replace

PRICES = {"scripted": ("3", "15")}


@tool
async def look(n: int = 0) -> str:
    return f"saw {n}"


@tool
async def same() -> str:
    return "always the same"


@tool
async def broken() -> str:
    raise ValueError("no luck")


@tool(requires_approval=True)
async def send(to: str = "x") -> str:
    return f"sent to {to}"


@tool
async def slow(n: int = 0) -> str:
    await asyncio.sleep(1 + n)
    return f"slowly {n}"


TOOLS = [look, same, broken, send, slow]


def plain(snapshot):
    """What can be compared: time goes on, and children are kept without their transcripts."""
    return replace(snapshot, elapsed=0.0, next_event=0, children=tuple(map(strip_result, snapshot.children)))


@pytest.fixture
def watched(monkeypatch):
    """Compare the fold of the journal with the live run after every commit; how many there were."""
    counted = []

    async def checked(self, later):
        if later is not None:
            await later
        run = self._run
        entry, commits = await self.store.load(self.lease.session_id)
        folded = fold(verify_commits(commits, head=entry.head))
        assert folded.messages == run.transcript.messages
        assert plain(folded.snapshot) == plain(take_snapshot(run))
        counted.append(entry.head)

    write = JournalRecorder._write
    monkeypatch.setattr(JournalRecorder, "_write", lambda self, *a, **k: checked(self, write(self, *a, **k)))
    return counted


class Steer(Plugin):
    """Says something after the first turn, and has a last word."""

    def __init__(self):
        self.said = []

    def steering(self, context):
        return "mind the gap" if context.iteration == 1 and not self.said.append(1) else None

    def follow_up(self, context):
        return "and then?" if len(self.said) == 1 and not self.said.append(2) else None


SCENES = {
    "plain": ([call("look", n=1), call("look", n=2), say("done")], {}),
    "batch": ([calls(call("slow", n=2), call("slow", n=1), call("look", n=0)), say("done")], {}),
    "money": ([call("look", n=n) for n in range(4)] + [say("done")], {"prices": PRICES}),
    "turn limit": (
        [call("look", n=n) for n in range(6)] + [say("landed")],
        {"limits": Limits(max_iterations=6, grace_iterations=2)},
    ),
    "loop": ([call("same")] * 4 + [say("stuck")], {}),
    "errors": ([call("broken")] * 5 + [say("gave up")], {}),
    "retries": ([fail(TransientError("503")), call("look"), fail(TransientError("503")), say("done")], {}),
    "truncated": ([truncated("a long"), say(" answer")], {}),
    "cut call": ([truncated(call("look", n=1)), call("look", n=2), say("done")], {}),
    "empty": ([empty(), say("done")], {}),
    "unknown tool": ([call("nothing"), say("done")], {}),
    "steered": ([call("look"), say("one"), say("two")], {"plugins": [Steer()]}),
    "time": (
        [call("slow", n=3), call("slow", n=9), say("landed")],
        {"limits": Limits(timeout=10, landing_seconds=2), "guardrails": GuardrailsConfig()},
    ),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("listening", [False, True])
def test_fold_of_the_journal_is_the_live_state_after_every_commit(scene, listening, watched):
    turns, config = SCENES[scene]
    config = {"limits": Limits(max_iterations=20, max_tokens=200_000), **config}
    recorder = EventRecorder()

    async def fly():
        store = MemoryStore()
        plugins = [*config.get("plugins", ()), *([recorder.as_plugin()] if listening else [])]
        agent = Agent(model=ScriptedModel(turns), tools=TOOLS, store=store, **{**config, "plugins": plugins})
        result = await agent.run("go", session="s")
        journal = await read_journal(store, "s")
        assert journal.folded.result == result
        assert journal.folded.session.totals.usage == result.usage
        if result.outcome is LoopOutcome.DONE:
            assert await agent.resume("s") == result
        return result

    result = VirtualClock().run(fly())
    assert transcript_errors(result.messages) == []
    assert len(watched) >= 2
    if listening:
        recorder.assert_legal()
        saved = [event for event in recorder.events if type(event) is SessionSaved]
        assert len(saved) == len(watched) - 1  # the last one is told by RunEnded
        assert [event.record for event in saved] == sorted({event.record for event in saved})


def test_a_tool_turn_is_two_commits(watched):
    async def fly():
        agent = Agent(
            model=ScriptedModel([call("look", n=n) for n in range(5)] + [say("done")]),
            tools=TOOLS,
            store=MemoryStore(),
            limits=Limits(max_iterations=20),
        )
        await agent.run("go", session="s")

    asyncio.run(fly())
    assert len(watched) == 1 + 5 * 2 + 2  # the beginning, two for each turn, and the last call and the end


def test_a_batch_has_one_more_commit_for_each_result_but_the_last(watched):
    async def fly():
        batch = calls(call("slow", n=2), call("slow", n=1), call("slow", n=0))
        agent = Agent(
            model=ScriptedModel([batch, say("done")]),
            tools=TOOLS,
            store=MemoryStore(),
            limits=Limits(max_iterations=20),
        )
        await agent.run("go", session="s")

    VirtualClock().run(fly())
    assert len(watched) == 1 + (2 + 2) + 2


TURNS = st.one_of(
    st.builds(lambda n: call("look", n=n), st.integers(0, 3)),
    st.just(call("same")),
    st.just(call("broken")),
    st.just(call("nowhere")),
    st.builds(lambda n: calls(call("slow", n=n), call("look", n=n), call("broken")), st.integers(0, 2)),
    st.just(truncated("part")),
    st.just(empty()),
    st.just(fail(TransientError("overloaded"))),
    st.just(say("an answer")),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(TURNS, min_size=1, max_size=12), tokens=st.sampled_from([None, 3_000, 20_000]))
def test_fold_is_the_live_state_whatever_happens(turns, tokens, watched):
    async def fly():
        store = MemoryStore()
        model = ScriptedModel([*turns]).forever(say("the end"))
        limits = Limits(max_iterations=8, max_tokens=tokens)
        agent = Agent(model=model, tools=TOOLS, store=store, limits=limits, max_output_tokens=300, prices=PRICES)
        result = await agent.run("go", session="s")
        assert (await read_journal(store, "s")).folded.result == result

    VirtualClock().run(fly())


# --- sessions -----------------------------------------------------------------------------------------------------


def agent_with(store, turns, **config):
    config = {"limits": Limits(max_iterations=20), **config}
    return Agent(model=ScriptedModel(turns), tools=TOOLS, store=store, **config)


@virtual
async def test_a_session_goes_on_in_another_process(tmp_path):
    first = await agent_with(SqliteStore(tmp_path / "s.db"), [call("look"), say("one")]).run("go", session="s")
    second = await agent_with(SqliteStore(tmp_path / "s.db"), [say("two")]).run("and now?", session="s")
    assert second.messages[: len(first.messages)] == first.messages
    assert [message.text for message in second.new_messages] == ["and now?", "two"]
    folded = (await read_journal(SqliteStore(tmp_path / "s.db"), "s")).folded
    assert folded.session.totals.runs == 2
    assert folded.session.totals.usage == first.usage + second.usage
    assert folded.messages == list(second.messages)


@virtual
async def test_a_session_object_is_filled_from_the_store():
    store = MemoryStore()
    await agent_with(store, [say("one")]).run("go", session="s")
    session = Session("s")
    result = await agent_with(store, [say("two")]).run("again", session=session)
    assert [message.text for message in session.messages] == ["go", "one", "again", "two"]
    assert session.totals.runs == 2
    assert list(result.messages) == session.messages


@virtual
async def test_messages_of_every_kind_come_back():
    store = MemoryStore()
    odd = UnknownMessage(kind="hologram", raw=b'{"role":"hologram","depth":3}')
    session = Session("s", messages=[UserMessage("before"), CustomMessage("note", {"a": [1, None]}), odd])
    result = await agent_with(store, [say("one")]).run("go", session=session)
    folded = (await read_journal(store, "s")).folded
    assert folded.messages == list(result.messages)
    assert odd in folded.messages


@virtual
async def test_a_record_of_an_unknown_kind_is_passed_over():
    store = MemoryStore()
    result = await agent_with(store, [say("one")]).run("go", session="s")
    lease = await store.claim("s", "me")
    journal = await read_journal(store, "s")
    store.append(lease, link(lease.hash, lease.head + 1, 99, 1.0, [("weather", {"rain": True})]))
    await store.release(lease)
    again = await read_journal(store, "s")
    assert again.folded.unread == ["weather"]
    assert again.folded.result == journal.folded.result == result
    assert bytes(read(again.commits[-1])[0].payload) == b'{"rain":true}'


@virtual
async def test_an_approval_survives_the_process(tmp_path):
    path = tmp_path / "s.db"
    paused = await agent_with(SqliteStore(path), [calls(call("send", to="a"), call("look"))]).run("go", session="s")
    assert paused.outcome is LoopOutcome.PAUSED
    (waiting,) = paused.pending
    still = await agent_with(SqliteStore(path), []).resume("s")
    assert still.outcome is LoopOutcome.PAUSED
    done = await agent_with(SqliteStore(path), [say("done")]).resume("s", decisions={waiting.call.id: approve()})
    assert done.outcome is LoopOutcome.DONE
    assert transcript_errors(done.messages) == []
    assert [m.text for m in done.messages if m.role == "tool_result"] == ["sent to a", "saw 0"]


@virtual
async def test_a_limited_run_goes_on_with_higher_limits():
    store = MemoryStore()
    agent = agent_with(store, [call("look", n=1), call("look", n=2), say("landed")], limits=Limits(max_iterations=2))
    limited = await agent.run("go", session="s")
    assert limited.state is AgentState.MAX_STEPS
    again = await agent_with(store, [say("done")]).resume("s", limits=Limits(max_iterations=9))
    assert again.outcome is LoopOutcome.DONE
    assert again.iterations == limited.iterations + 1
    assert again.usage.total > limited.usage.total
    assert (await agent_with(store, []).resume("s")) == again  # nothing is asked any more


@virtual
async def test_what_is_not_there_cannot_be_resumed(tmp_path):
    with pytest.raises(ConfigurationError, match="no session 'nobody'"):
        await agent_with(MemoryStore(), []).resume("nobody")
    with pytest.raises(ConfigurationError, match="no session store"):
        await agent_with(SqliteStore(tmp_path / "none.db"), []).resume("nobody")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(ConfigurationError, match="session id"):
        await agent_with(MemoryStore(), []).resume(7)


def test_only_a_store_can_be_the_store():
    for wrong in ("sessions", "", ":memory:", MemoryStore, object(), 7):
        with pytest.raises(ConfigurationError, match="store must be a session store"):
            agent_with(wrong, [])
    for wrong in ("", " ", 7, b"x", "a\0b", ":memory:"):
        with pytest.raises(ConfigurationError, match="SqliteStore"):
            SqliteStore(wrong)


@virtual
async def test_a_session_that_is_in_flight_is_refused_with_a_result():
    store = MemoryStore()
    lease = await store.claim("s", "somebody else")
    result = await agent_with(store, []).run("go", session="s")
    assert (result.state, result.outcome) == (AgentState.ERROR, LoopOutcome.FAILED)
    assert (result.cause.source, result.cause.metrics["kind"]) == ("store", "busy")
    again = await agent_with(store, []).resume("s") if lease.head else result
    assert again.cause.metrics["kind"] == "busy"


@pytest.mark.parametrize("durability", ["sync", "full"])
def test_every_durability_has_everything_at_the_end(durability, tmp_path):
    async def fly():
        store = SqliteStore(tmp_path / "s.db")
        agent = agent_with(store, [call("look", n=n) for n in range(9)] + [say("done")], durability=durability)
        result = await agent.run("go", session="s")
        assert (await read_journal(SqliteStore(tmp_path / "s.db"), "s")).folded.result == result
        await store.close()

    asyncio.run(fly())


def test_a_store_error_says_what_kind():
    assert StoreError("x").kind == "unavailable"
    assert StoreError("x", kind="full").kind == "full"


@virtual
async def test_fold_is_the_live_state_of_a_resumed_run_too(watched):
    store = MemoryStore()
    limits = Limits(max_iterations=3, grace_iterations=1)
    await agent_with(store, [call("same"), call("same"), say("landed")], limits=limits).run("go", session="s")
    before = len(watched)
    turns = [call("look", n=1), calls(call("slow", n=1), call("slow", n=0)), say("done")]
    result = await agent_with(store, turns).resume("s", limits=Limits(max_iterations=20))
    assert result.outcome is LoopOutcome.DONE
    assert len(watched) > before + 4


@virtual
async def test_a_crash_in_a_session_does_not_stop_the_next_run_in_it(watched):
    store = MemoryStore(lease=0)

    class Dead(BaseException):
        pass

    @tool
    async def die() -> str:
        return "never"

    def kill(*_args, **_keywords):
        raise Dead

    agent = Agent(model=ScriptedModel([call("die")]), tools=[die], store=store, limits=Limits(max_iterations=9))
    append, writes = store.append, []

    def third(*args, **keywords):
        writes.append(1)
        return append(*args, **keywords) if len(writes) <= 3 else kill()

    store.append = third
    died = await agent.run("go", session="s")  # nothing more is written, as if the process had died
    assert (died.outcome, died.cause.source) == (LoopOutcome.FAILED, "store")
    store.append = append
    result = await agent_with(store, [say("never mind")]).run("something else", session="s")
    assert result.outcome is LoopOutcome.DONE
    assert [one.name for one in result.unknown_effects] == ["die"]
    assert [m.kind for m in result.messages if m.role == "tool_result"] == ["unknown_effect"]
    folded = (await read_journal(store, "s")).folded
    assert folded.messages == list(result.messages)
    assert folded.session.totals.runs == 2


def test_event_numbers_stay_unique_when_a_growing_reply_is_written_down():
    """The journal takes a snapshot in mid-stream, after a wind-down has changed the state: the count must go on."""
    token = CancelToken()

    class Long:
        name = "long"
        max_output_tokens = 64

        async def stream(self, request):
            for number in range(400):
                if number == 5:
                    token.wind_down("enough")
                await asyncio.sleep(0)
                yield TextDelta("twelve chars")
            yield StreamEnd("end_turn", Usage(10, 1200))

    async def fly():
        agent = Agent(model=Long(), store=MemoryStore(), limits=Limits(max_tokens=100_000, max_iterations=3))
        async with agent.stream("go", cancel=token) as stream:
            return [event.sequence async for event in stream]

    numbers = VirtualClock().run(fly())
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 400


def test_a_marked_change_in_any_part_that_survives_is_written_once():
    looked = []

    class Prying(ScriptedModel):
        async def stream(self, request):
            run = runs[-1]
            changes = StateChanges(run, take_snapshot(run))
            assert changes.take(run) is None
            for part, names in KEPT.items():
                for name in names:
                    if name in MARKED and name != "children":  # those are written without their transcripts
                        owner = getattr(run, part)
                        kept = getattr(owner, name)
                        setattr(owner, name, "another")
                        assert changes.take(run) is None  # nobody said so
                        run.mark_unsaved([name])
                        looked.append((name, changes.take(run)))
                        assert changes.take(run) is None
                        setattr(owner, name, kept)
            async for one in super().stream(request):
                yield one

    runs, attend = [], JournalRecorder.follow_run

    async def scene(monkeypatch):
        monkeypatch.setattr(
            JournalRecorder, "follow_run", lambda self, run, **k: (runs.append(run), attend(self, run, **k))[1]
        )
        agent = Agent(model=Prying([say("done")]), limits=Limits(max_iterations=3), store=MemoryStore())
        return await agent.run("go", session="s")

    with pytest.MonkeyPatch.context() as monkeypatch:
        assert asyncio.run(scene(monkeypatch)).text == "done"
    assert len(looked) > 25
    assert all(found == {name: ["=", "another"]} for name, found in looked)
