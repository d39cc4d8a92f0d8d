"""Repair: later commits that verify are kept as evidence, the session is marked, and nobody repeats what was lost."""

import asyncio

import pytest

from glidepath import Agent, Limits, LoopOutcome, approve, tool
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore
from glidepath.sessions.archive import read_journal, repair
from glidepath.sessions.chain import read
from glidepath.spi import Commit
from glidepath.testing import ScriptedModel, call, calls, say

LIMITS = Limits(max_iterations=30)


class Till:
    def __init__(self):
        self.store, self.paid = MemoryStore(), []

        @tool
        async def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return f"paid {to}"

        @tool(requires_approval=True)
        async def sign(to: str) -> str:
            """Sign."""
            self.paid.append(to)
            return f"signed {to}"

        @tool(idempotent=True)
        async def put(to: str) -> str:
            """Put."""
            self.paid.append(to)
            return f"put {to}"

        self.tools = [pay, sign, put]

    def agent(self, model):
        return Agent(model=model, tools=self.tools, store=self.store, limits=LIMITS)

    def scripted(self, *turns):
        return self.agent(ScriptedModel(list(turns)))

    def hurt(self, number, *, drop=False):
        shelf = self.store._shelves["s"]
        commit = shelf.commits[number - 1]
        changed = Commit(commit.number, commit.body.replace(b"a", b"\x00", 1) or b"x", commit.hash)
        shelf.commits[number - 1 : number] = [] if drop else [changed]

    async def four(self):
        agent = self.scripted(
            call("pay", to="ann"),
            calls(call("put", to="bob"), call("pay", to="cyd")),
            call("pay", to="dan"),
            say("all paid"),
        )
        await agent.run("pay them", session="s")
        assert sorted(self.paid) == ["ann", "bob", "cyd", "dan"]


@pytest.mark.parametrize("drop", [False, True], ids=["changed", "missing"])
def test_g13_whatever_commit_is_damaged_nothing_is_repeated(drop):
    async def scene():
        number = 0
        while True:
            till = Till()
            await till.four()
            number += 1
            if number > len(till.store._shelves["s"].commits):
                assert number > 8
                return
            till.hurt(number, drop=drop)
            done = await repair(till.store, "s")
            assert done.kept == number - 1
            journal = await read_journal(till.store, "s")
            marked = journal.folded.repaired
            assert marked is not None
            assert marked.first == number
            till.paid.clear()
            asked = await till.scripted(say("done")).resume("s") if number > 1 else None
            if asked is not None:
                assert (asked.outcome, asked.cause.metrics["kind"]) == (LoopOutcome.FAILED, "repaired")
                assert "accept_repair=True" in asked.cause.reason
                result = await till.scripted(say("done")).resume("s", accept_repair=True)
            else:
                result = await till.scripted(say("done")).run("what happened?", session="s")
            assert (result.text, till.paid) == ("done", [])
            unknown = {one.id for one in result.unknown_effects}
            assert {one.call_id for one in done.effects} <= unknown
            again = await till.scripted().resume("s")  # it was told once
            assert again.outcome is LoopOutcome.DONE

    asyncio.run(scene())


def test_what_is_kept_behind_the_damage_tells_what_was_done():
    async def scene():
        till = Till()
        await till.four()
        commits = list(till.store._shelves["s"].commits)
        at = next(c.number for c in commits if b'"to":"dan"' in c.body)  # the reply, and the intent
        till.hurt(at)
        done = await repair(till.store, "s")
        assert done.quarantined == len(commits) - at
        (effect,) = done.effects
        assert (effect.name, effect.outcome) == ("pay", "done")  # its result is there, what it was called with is not
        marked = (await read_journal(till.store, "s")).folded.repaired
        assert [one.commit for one in marked.kept] == list(range(at + 1, len(commits) + 1))
        assert [bytes(one.records) for one in marked.kept] == [one.body for one in commits[at:]]
        assert marked.lost == (at,)
        model = ScriptedModel([say("done")])
        result = await till.agent(model).resume("s", accept_repair=True)
        assert [one.name for one in result.unknown_effects] == ["pay"]
        assert any("damaged and is lost" in message.text for message in model.requests[0].messages)

    asyncio.run(scene())


def test_a_result_behind_the_damage_is_used():
    async def scene():
        till = Till()
        agent = till.scripted(calls(call("pay", to="ann"), call("pay", to="bob")), say("x"))
        await agent.run("go", session="s")
        commits = list(till.store._shelves["s"].commits)
        kinds = [{record.kind for record in read(commit)} for commit in commits]
        at = next(number for number, kind in enumerate(kinds, 1) if "result" in kind)
        till.hurt(at)
        await repair(till.store, "s")
        result = await till.scripted(say("done")).resume("s", accept_repair=True)
        told = {m.call_id: m.text for m in result.messages if m.role == "tool_result"}
        assert max(told.values()).startswith("paid")
        assert len(result.unknown_effects) == 1

    asyncio.run(scene())


def test_a_decision_that_was_lost_is_not_asked_for_again():
    async def scene():
        till = Till()
        agent = till.scripted(call("sign", to="ann"), say("x"))
        await agent.run("go", session="s")
        paused = len(till.store._shelves["s"].commits)
        await agent.resume("s", decisions={"call_1": approve()})
        till.hurt(paused + 1)
        done = await repair(till.store, "s")
        assert done.kept == paused
        till.paid.clear()
        result = await till.scripted(say("done")).resume("s", accept_repair=True)
        assert (result.outcome, till.paid) == (LoopOutcome.DONE, [])
        (told,) = [m.text for m in result.messages if m.role == "tool_result"]
        assert told == "signed ann"  # known from behind the damage

    asyncio.run(scene())


def test_a_journal_that_is_whole_is_left_alone():
    async def scene():
        till = Till()
        await till.four()
        before = list(till.store._shelves["s"].commits)
        done = await repair(till.store, "s")
        assert (done.dropped, done.reason, done.quarantined) == (0, "", 0)
        assert till.store._shelves["s"].commits == before
        assert (await till.scripted().resume("s", accept_repair=True)).outcome is LoopOutcome.DONE
        with pytest.raises(StoreError, match="no session 'nobody'"):
            await repair(till.store, "nobody")

    asyncio.run(scene())
