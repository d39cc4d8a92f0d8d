"""Forks: a new session from any turn, the old one untouched, and nothing done twice without a word."""

import asyncio

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, Session, ToolContext, _wire, approve, tool
from glidepath.errors import StoreError
from glidepath.sessions import (
    MemoryStore,
    SqliteStore,
    annotate,
    export_journal,
    find_sessions,
    fork,
    import_journal,
    open_calls,
    read,
    read_journal,
    rewind,
    this_owner,
)
from glidepath.teams import Member, Team, TeamExecutionRequest
from glidepath.testing import ScriptedModel, call, calls, say

LIMITS = Limits(max_iterations=30)


class Bench:
    """A store, tools that count what they did and under which key, and agents that use them."""

    def __init__(self, store=None):
        self.store = store or MemoryStore()
        self.done = []

        @tool
        async def pay(to: str, context: ToolContext) -> str:
            """Pay."""
            self.done.append((to, context.idempotency_key))
            return f"paid {to}"

        @tool(read_only=True)
        async def look(at: str) -> str:
            """Look."""
            return f"saw {at}"

        @tool(requires_approval=True)
        async def sign(what: str) -> str:
            """Sign."""
            self.done.append((what, "signed"))
            return f"signed {what}"

        self.tools = [pay, look, sign]

    def agent(self, *turns, **fields):
        return Agent(model=ScriptedModel(list(turns)), tools=self.tools, store=self.store, limits=LIMITS, **fields)

    async def four_turns(self):
        agent = self.agent(call("pay", to="ann"), call("look", at="bob"), call("pay", to="bob"), say("all paid"))
        return agent, await agent.run("pay them", session="s")


def texts(result):
    return [message.text for message in result.messages]


def test_a_fork_begins_after_its_turn_and_the_original_stays_as_it_is():
    async def scene():
        bench = Bench()
        agent, first = await bench.four_turns()
        before = await export_journal(bench.store, "s")
        made = await agent.fork("s", at=2)
        assert (made.origin, made.at, made.pending) == ("s", 2, ())
        assert [(one.name, one.arguments, one.turn, one.outcome) for one in made.effects] == [
            ("pay", {"to": "bob"}, 3, "done")
        ]
        model = ScriptedModel([say("I ask bob first")])
        again = Agent(model=model, tools=bench.tools, store=bench.store, limits=LIMITS)
        result = await again.run("ask bob first", session=made.session_id)
        assert (result.outcome, result.session_id) == (LoopOutcome.DONE, made.session_id)
        assert texts(result)[:5] == texts(first)[:5]
        told = [m.text for m in model.requests[0].messages if m.role == "user"]
        assert any("pay(" in text and "after turn 2" in text and "bob" in text for text in told), told
        assert await export_journal(bench.store, "s") == before
        assert len(bench.done) == 2

    asyncio.run(scene())


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_a_fork_at_any_turn_is_resumed_or_given_a_new_prompt(at, tmp_path):
    async def scene():
        bench = Bench(SqliteStore(tmp_path / "s.db"))
        agent, first = await bench.four_turns()
        for name in ("resumed", "asked"):
            made = await agent.fork("s", at=at, name=name)
            assert len(made.effects) == [2, 1, 1, 0, 0][at]
            after = bench.agent(say("another end"))
            if name == "asked":
                result = await after.run("and now?", session=name)
            else:
                result = await after.resume(name)
            wanted = first.text if at == 4 and name == "resumed" else "another end"
            assert (result.outcome, result.text, result.session_id) == (LoopOutcome.DONE, wanted, name)
            assert (await read_journal(bench.store, name)).folded.result == (await after.resume(name))
        assert len(bench.done) == 2
        await bench.store.close()

    asyncio.run(scene())


def test_g13_the_same_call_in_a_fork_has_another_idempotency_key():
    async def scene():
        bench = Bench()
        agent, first = await bench.four_turns()
        made = await agent.fork("s", at=2)
        after = bench.agent(call("pay", to="bob"), say("paid again"))
        result = await after.resume(made.session_id)
        assert result.run_id != first.run_id
        assert len({key for _, key in bench.done}) == len(bench.done) == 3

    asyncio.run(scene())


def test_a_fork_is_forked_again():
    async def scene():
        bench = Bench()
        agent, _ = await bench.four_turns()
        await annotate(bench.store, "s", title="Payments", tags=["june"])
        one = await agent.fork("s", at=3, name="one")
        two = await agent.fork(one.session_id, at=1, name="two")
        three = await agent.fork("two", name="three")
        assert (two.origin, two.at, three.at) == ("one", 1, 1)
        assert [one.arguments for one in two.effects] == [{"to": "bob"}]
        assert three.effects == two.effects, "what lies behind the fork that was forked is not undone either"
        result = await bench.agent(say("end")).run("go on", session="three")
        assert texts(result)[:3] == ["pay them", "", "paid ann"]
        assert sum("They may have taken effect" in text for text in texts(result)) == 1, "the model was told before"

    asyncio.run(scene())


@pytest.mark.parametrize("at", range(4))
def test_a_fork_has_the_turns_of_the_limit_that_the_original_had_left(at):
    """The next call is counted when it is reserved, with the results of the turn before: it is not the fork's."""

    async def scene():
        bench = Bench()
        turns = [call("pay", to="ann"), call("pay", to="bob"), say("all paid")]
        limits = Limits(max_iterations=4)  # the last one is kept for the landing
        first = await Agent(_wire.replace(bench.agent(*turns).config, limits=limits)).run("pay them", session="s")
        for made in (await bench.store.fork("s", at=at), await bench.store.rewind("s", at=at)):
            again = await Agent(_wire.replace(bench.agent(*turns[at:]).config, limits=limits)).resume(made.session_id)
            assert (again.outcome, again.iterations) == (first.outcome, first.iterations) == (LoopOutcome.DONE, 3)

    asyncio.run(scene())


def test_a_copy_has_the_tags_and_the_original_keeps_its_title():
    """A title is a name on the command line: it still means one session, after a rewind the one that went back."""

    async def scene():
        bench = Bench()
        agent, _ = await bench.four_turns()
        await annotate(bench.store, "s", title="Payments", tags=["june"])
        await agent.fork("s", at=3, name="one")
        back = await agent.rewind("s", at=1)
        page = await find_sessions(bench.store, tag="june")
        titles = {entry.session_id: entry.title for entry in page.sessions}
        assert titles == {"s": "Payments", "one": "", back.origin: ""}

    asyncio.run(scene())


def test_a_copy_has_the_tags_however_many_sessions_begin_with_the_same_name():
    async def scene():
        bench = Bench()
        await bench.agent(say("ok")).run("go", session="june")
        await annotate(bench.store, "june", tags=["keep"])
        for number in range(101):
            await bench.store.release(await bench.store.claim(f"june-{number}", this_owner()))
        await bench.store.fork("june", name="copy")
        assert [one.session_id for one in (await find_sessions(bench.store, tag="keep")).sessions] == ["copy", "june"]

    asyncio.run(scene())


def test_what_children_did_behind_the_fork_is_listed_with_their_names():
    async def scene():
        bench = Bench()
        inner = ScriptedModel([call("look", at="cyd"), call("pay", to="cyd"), say("paid")])
        kid = Agent(model=inner, tools=bench.tools, limits=LIMITS, agent_name="kid")
        outer = ScriptedModel([call("pay", to="ann"), call("kid", task="x"), call("pay", to="bob"), say("end")])
        tools = [*bench.tools, kid.as_tool("kid", "Delegate.")]
        agent = Agent(model=outer, tools=tools, store=bench.store, limits=LIMITS)
        await agent.run("go", session="s")
        made = await agent.fork("s", at=1, name="f")
        told = [(one.turn, one.name, one.arguments, one.by, one.outcome) for one in made.effects]
        assert told == [
            (2, "kid", {"task": "x"}, "", "done"),
            (2, "pay", {"to": "cyd"}, " by kid", "done"),
            (3, "pay", {"to": "bob"}, "", "done"),
        ]
        text = (await read_journal(bench.store, "f")).folded.messages[-1].text
        assert 'pay({"to":"cyd"}) by kid, turn 2: done' in text
        assert [one.name for one in (await agent.fork("f", name="g")).effects] == ["kid", "pay", "pay"]
        assert "look" in [one.name for one in (await bench.store.fork("s", at=1)).effects], "a store knows no tools"
        await agent.fork("s", name="h")
        assert [one.turn for one in (await agent.rewind("h", at=1)).effects] == [2, 2, 3]
        bench.store._shelves["s/call_2.1"].commits.pop()
        assert [one.name for one in (await agent.fork("s", at=1)).effects] == ["kid", "pay"], "its journal is damaged"

    asyncio.run(scene())


def test_calls_behind_an_earlier_fork_are_listed_beside_those_with_the_same_ids():
    async def scene():
        bench = Bench()
        await bench.agent(call("pay", to="ann"), call("pay", to="bob"), say("end")).run("go", session="s")
        await bench.store.fork("s", at=1, name="f")
        await bench.agent(call("pay", to="cyd"), call("pay", to="dan"), say("end")).resume("f")
        for at, wanted in ((0, ["ann", "bob", "cyd", "dan"]), (1, ["bob", "cyd", "dan"]), (2, ["bob", "dan"])):
            found = [one.arguments["to"] for one in (await bench.store.fork("f", at=at)).effects]
            assert sorted(found) == wanted
        await bench.store.rewind("f", at=2)
        assert len((await bench.store.fork("f", at=1)).effects) == 3, "none is listed twice"

    asyncio.run(scene())


def test_a_fork_takes_the_children_of_its_turns_and_no_others():
    async def scene():
        store = MemoryStore()
        kid = Agent(model=ScriptedModel().forever(say("kid done")), limits=LIMITS, agent_name="kid")
        model = ScriptedModel([call("kid", task="one"), call("kid", task="two"), say("done")])
        agent = Agent(model=model, tools=[kid.as_tool("kid", "Digs.")], limits=LIMITS, store=store)
        await agent.run("go", session="s")
        made = await agent.fork("s", at=1, name="f")
        names = [entry.session_id for entry in await store.entries("f")]
        assert sorted(names) == ["f", "f/call_1.1"]
        child = await read_journal(store, "f/call_1.1")
        assert (child.folded.session.id, child.folded.opened.parent["session_id"]) == ("f/call_1.1", "f")
        assert [one.name for one in made.effects] == ["kid"]
        root = await agent.fork("s/call_2.1", name="grown")
        assert (await read_journal(store, root.session_id)).folded.opened.parent is None
        assert "grown" in [entry.session_id for entry in (await find_sessions(store)).sessions]

    asyncio.run(scene())


def test_a_paused_turn_is_decided_in_each_fork_by_itself():
    async def scene():
        bench = Bench()
        agent = bench.agent(call("sign", what="lease"), say("signed"))
        paused = await agent.run("sign it", session="s")
        made = await agent.fork("s", at=1, name="f")
        assert [one.call.arguments for one in made.pending] == [{"what": "lease"}]
        waits = await bench.agent().resume("f")
        assert (waits.outcome, bench.done) == (LoopOutcome.PAUSED, [])
        ended = await bench.agent(say("in the fork")).resume("f", decisions={"call_1": approve()})
        assert (ended.text, len(bench.done), ended.session_id) == ("in the fork", 1, "f")
        assert ended.run_id != paused.run_id
        still = await agent.resume("s")
        assert still.outcome is LoopOutcome.PAUSED
        await agent.resume("s", decisions={"call_1": approve()})
        later = await agent.fork("s", at=1)  # the turn is over now, with its result
        assert (later.pending, len(bench.done)) == ((), 2)

    asyncio.run(scene())


def test_what_had_begun_in_a_crashed_original_is_unknown_in_its_fork():
    async def scene():
        bench = Bench()

        @tool(idempotent=True)
        async def put(to: str) -> str:
            """Put."""
            bench.done.append(to)
            return "put"

        bench.tools.append(put)
        agent = bench.agent(calls(call("put", to="a"), call("look", at="b")), say("x"))
        await agent.run("go", session="s")
        _, commits = await bench.store.load("s")
        lease = await bench.store.claim("s", "gone")
        await bench.store.cut(lease, 3, commits[2].hash)  # intents, and no results
        made = await agent.fork("s")
        assert (made.at, made.effects) == (1, ())
        bench.done.clear()
        result = await bench.agent(say("checked")).resume(made.session_id)
        assert ([one.name for one in result.unknown_effects], bench.done) == (["put"], [])
        assert [one.call.name for one in result.pending] == ["look"]  # it had not begun: a person is asked

    asyncio.run(scene())


def test_a_session_is_forked_while_a_run_is_in_flight_in_it():
    async def scene():
        bench = Bench()
        made = []

        @tool
        async def split(context: ToolContext) -> str:
            """Fork the session of this very run."""
            made.append(await fork(bench.store, "s"))
            return "split"

        bench.tools.append(split)
        agent = bench.agent(call("pay", to="ann"), call("split"), say("end"))
        result = await agent.run("go", session="s")
        assert (result.text, made[0].at, made[0].effects[0].name) == ("end", 1, "split")
        other = await bench.agent(say("other end")).resume(made[0].session_id)
        assert texts(other)[:3] == texts(result)[:3]

    asyncio.run(scene())


def test_rewinding_takes_the_name_and_keeps_what_was():
    async def scene():
        bench = Bench()
        kid = Agent(model=ScriptedModel().forever(say("kid done")), limits=LIMITS, agent_name="kid")
        bench.tools.append(kid.as_tool("kid", "Digs."))
        agent = bench.agent(call("kid", task="a"), call("pay", to="bob"), call("kid", task="b"), say("end"))
        first = await agent.run("go", session="s")
        made = await agent.rewind("s", at=1)
        assert (made.session_id, made.at) == ("s", 1)
        assert [one.name for one in made.effects] == ["pay", "kid"]
        old = await agent.resume(made.origin)
        assert (old.text, texts(old)) == (first.text, texts(first))
        assert sorted(entry.session_id for entry in await bench.store.entries("s/")) == ["s/call_1.1"]
        result = await bench.agent(call("pay", to="eve"), say("new end")).resume("s")
        assert (result.text, result.session_id) == ("new end", "s")
        assert len({key for _, key in bench.done}) == 2

    asyncio.run(scene())


class Dying(MemoryStore):
    """Its process dies, so to speak, at this step of what changes it."""

    left = 99

    def _step(self):
        if self.left == 0:
            raise asyncio.CancelledError
        self.left -= 1

    def append(self, lease, commit, **more):
        self._step()
        return super().append(lease, commit, **more)

    async def cut(self, lease, head, hash_):
        self._step()
        await super().cut(lease, head, hash_)

    async def remove_many(self, session_ids):
        self._step()
        return await super().remove_many(session_ids)


def test_a_rewind_that_was_cut_short_is_finished_by_the_next():
    async def scene():
        for left in range(40):
            bench = Bench(Dying())
            _, first = await bench.four_turns()
            bench.store.left = left
            try:
                await rewind(bench.store, "s", at=1)
            except asyncio.CancelledError:
                bench.store.left = 99
            else:
                assert left > 10
                return
            again = await bench.agent(say("as it was")).resume("s")
            if again.outcome is LoopOutcome.DONE:
                assert texts(again) == texts(first)
            else:
                assert "the rewind of session 's' was not finished: rewind it again" in again.text
            made = await rewind(bench.store, "s", at=1)
            assert (made.at, [one.name for one in made.effects]) == (1, ["look", "pay"])
            ended = await bench.agent(say("new end")).resume("s")
            assert (ended.text, texts(ended)[:3]) == ("new end", texts(first)[:3])
            kept = await bench.agent().resume(made.origin)
            assert texts(kept) == texts(first)
        raise AssertionError("it never came to its end")

    asyncio.run(scene())


class Full(MemoryStore):
    """Has room for so many more commits."""

    room = 99

    def append(self, lease, commit, **more):
        self.room -= 1
        if self.room < 0:
            raise StoreError("no room", kind="full")
        return super().append(lease, commit, **more)


def test_a_fork_that_fails_leaves_nothing_behind_unless_its_name_is_known():
    async def scene():
        for left in range(3, 9):
            bench = Bench(Full())
            await bench.four_turns()
            for name in (None, "mine"):
                bench.store.room = left
                with pytest.raises(StoreError, match="no room"):
                    await fork(bench.store, "s", name=name)
            bench.store.room = 99
            assert sorted(entry.session_id for entry in await bench.store.entries()) == ["mine", "s"]
            refused = await bench.agent(say("x")).resume("mine")
            assert "session 'mine' is an unfinished copy: import or fork it again" in refused.text
            made = await fork(bench.store, "s", name="mine")
            assert texts(await bench.agent().resume(made.session_id)) == texts(await bench.agent().resume("s"))

    asyncio.run(scene())


def test_what_cannot_be_forked_is_named():
    async def scene():
        bench = Bench()
        agent, _ = await bench.four_turns()
        for at in (5, -1, "2", 1.0, True):
            with pytest.raises(
                ConfigurationError, match=r"there is no such turn in session 's'; it has 4 turns: choose 0"
            ):
                await agent.fork("s", at=at)
        with pytest.raises(StoreError, match="there is no session 'nobody'"):
            await agent.fork("nobody", at=1)
        await agent.fork("s", at=1, name="t")
        with pytest.raises(StoreError, match="'t' is already in this store"):
            await agent.fork("s", at=1, name="t")
        with pytest.raises(ConfigurationError, match="the session's own"):
            await agent.fork("s", at=1, name="s")
        with pytest.raises(ConfigurationError, match="session id must be"):
            await agent.fork("s", at=1, name="")
        with pytest.raises(ConfigurationError, match="needs the store"):
            await Agent(model=ScriptedModel(), limits=LIMITS).fork("s", at=1)
        await bench.store.release(await bench.store.claim("empty", "me"))
        with pytest.raises(ConfigurationError, match="'empty' has no run yet"):
            await agent.fork("empty", at=0)
        lease = await bench.store.claim("s", this_owner())
        with pytest.raises(StoreError, match="has a run in flight"):
            await agent.rewind("s", at=1)
        await bench.store.release(lease)

    asyncio.run(scene())


def test_what_lies_behind_an_earlier_fork_lies_behind_the_next():
    async def scene():
        bench = Bench()
        agent, _ = await bench.four_turns()
        await agent.fork("s", at=2, name="one")
        two = await agent.fork("one", at=1, name="two")
        assert [one.arguments for one in two.effects] == [{"to": "bob"}]
        back = await agent.rewind("two", at=0)
        assert [one.arguments for one in back.effects] == [{"to": "ann"}, {"to": "bob"}]

    asyncio.run(scene())


def test_a_fork_of_a_strangers_session_is_a_strangers():
    async def scene():
        bench, ours = Bench(), Bench()
        await bench.four_turns()
        await import_journal(ours.store, await export_journal(bench.store, "s"))
        for made in (await ours.store.fork("s", at=1), await ours.store.rewind("s", at=1)):
            folded = (await read_journal(ours.store, made.session_id)).folded
            assert folded.imported
            assert (await ours.agent(say("end")).resume(made.session_id)).session_id == made.session_id

    asyncio.run(scene())


def test_the_journal_of_a_team_is_not_forked():
    async def scene():
        store = MemoryStore()
        worker = Agent(model=ScriptedModel().forever(say("done")), limits=LIMITS)
        await Team(members=[Member(name="bee", agent=worker)], store=store).run(TeamExecutionRequest(goal="g", id="r"))
        with pytest.raises(ConfigurationError, match="'team:r' is the journal of a team"):
            await store.fork("team:r", at=1)

    asyncio.run(scene())


@pytest.mark.parametrize("session", [None, "", 7, b"s", Session("s")], ids=["None", "empty", "int", "bytes", "object"])
def test_what_no_session_can_be_called_is_not_forked(session, tmp_path):
    async def scene():
        store = SqliteStore(tmp_path / "s.db")
        with pytest.raises(ConfigurationError, match="session id must be"):
            await store.fork(session)
        with pytest.raises(ConfigurationError, match="session id must be"):
            await store.rewind(session, at=1)
        await store.close()

    asyncio.run(scene())


def test_a_session_that_is_only_called_like_a_team_is_one_like_any_other():
    async def scene():
        bench = Bench()
        await bench.four_turns()
        made = await bench.store.fork("s", at=2, name="team:s")
        again = await bench.store.fork(made.session_id, at=1)
        assert (again.origin, again.at) == ("team:s", 1)

    asyncio.run(scene())


def test_the_copy_that_a_rewind_keeps_has_the_turn_that_a_crash_cut_short():
    async def scene():
        bench, store = Bench(), MemoryStore()
        await bench.four_turns()
        lease, begun = await store.claim("s", this_owner()), 0
        for commit in (await bench.store.load("s"))[1]:
            store.append(lease, commit, summary={})
            begun += sum(record.kind == "intent" for record in read(commit))
            if begun == 2:  # the process died in the middle of the second call
                break
        await store.release(lease)
        made = await rewind(store, "s", at=1)
        return [call.name for call in open_calls((await read_journal(store, made.origin)).folded)]

    assert asyncio.run(scene()) == ["look"]
