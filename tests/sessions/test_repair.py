"""Repair: later commits that verify are kept as evidence, the session is marked, and nobody repeats what was lost."""

import asyncio

import pytest
from tests.crash.postgres import fresh_schema

from glidepath import Agent, Limits, LoopOutcome, approve, tool
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore, read, read_journal, repair, this_owner
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


STORES = {
    "sqlite": lambda place: SqliteStore(place / "s.db"),
    "postgresql": lambda place: PostgresStore(fresh_schema()),
}


class Failing:
    """A store whose disk is full from this call on, before the call or after it; None: it works."""

    def __init__(self, store, number, when):
        self.store, self.number, self.when, self.calls = store, number, when, []

    def __getattr__(self, name):
        found = getattr(self.store, name)
        if name not in ("cut", "append", "replace_end"):
            return found

        async def tried(*values, **keywords):
            self.calls.append(name)
            last = len(self.calls) == self.number
            if len(self.calls) > self.number or (last and self.when == "before"):
                raise StoreError("the disk is full", kind="full")
            done = found(*values, **keywords)
            done = await done if done is not None else None
            if last:
                raise StoreError("the disk is full", kind="full")
            return done

        return tried


async def damaged(store, name):
    """A session whose sixth commit is not what it was; returns how many come after it."""
    till = Till()
    await till.four()
    entry, commits = await till.store.load("s")
    lease = await store.claim(name, this_owner())
    for commit in commits:
        hurt = commit.body.replace(b"a", b"\x00", 1) if commit.number == 6 else commit.body
        later = store.append(lease, Commit(commit.number, hurt, commit.hash), summary=entry.summary)
        if later is not None:
            await later
    await store.release(lease)
    return len(commits) - 6


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", STORES)
def test_g13_a_repair_that_is_cut_short_keeps_the_damage_or_all_of_the_evidence(kind, when, tmp_path):
    async def scene():
        store = STORES[kind](tmp_path)
        number = failed = 0
        while number == failed:  # until all of its writes have failed once
            number += 1
            behind = await damaged(store, name := f"s{number}")
            try:
                await repair(Failing(store, number, when), name)
            except StoreError:
                failed += 1
            if (again := await repair(store, name)).reason:
                assert again.quarantined == behind
            marked = (await read_journal(store, name)).folded.repaired
            assert [len(marked.kept), marked.lost] == [behind, (6,)]
            assert (await store.load(name))[0].summary["repaired"] is True
            assert (await repair(store, name)).reason == ""
        assert failed
        await store.close()

    asyncio.run(scene())


def test_a_repair_looks_again_when_it_has_the_session():
    """Another process repaired it, and a run continued, between the look and the claim."""

    async def scene():
        till = Till()
        await damaged(till.store, "s")

        class Late:
            def __getattr__(self, name):
                return getattr(till.store, name)

            async def claim(self, *values, **keywords):
                self.claim = till.store.claim
                await repair(till.store, "s")
                await till.scripted(say("done")).resume("s", accept_repair=True)
                return await till.store.claim(*values, **keywords)

        assert (await repair(Late(), "s")).reason == ""
        assert (await till.scripted().resume("s")).text == "done"

    asyncio.run(scene())
