"""What the dead held: settled by their journal where it knows, else counted as used; nothing is held for ever."""

import asyncio
import os

import pytest

from glidepath import Agent, Budget, Limits, tool
from glidepath.agent import sweep
from glidepath.errors import StoreError
from glidepath.outcome import LoopOutcome
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.spi import Hold, WalletDraw, WalletTerms
from glidepath.testing import ScriptedModel, call, say


@tool(idempotent=True)
async def look(number: int) -> str:
    """Look."""
    return f"{number} is fine"


def make(model, store, **options):
    return Agent(model=model, tools=[look], limits=Limits(max_iterations=9), store=store, **options)


def wallet(store):
    return Budget(Limits(max_tokens=50_000), name="c", store=store)


def figures(store):
    async def main():
        (found,) = await store.wallets("c")
        return found.tokens, found.held_tokens, found.holds

    return asyncio.run(main())


def in_another_process(main):
    """Run it in a fork, which must die by its own hand."""
    child = os.fork()
    if not child:
        try:
            asyncio.run(main())
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def dies(request):
    """Dies in the third call."""
    turns = sum(message.role == "assistant" for message in request.messages)
    if turns == 2:
        os._exit(7)
    return call("look", number=turns)


def again(request):
    turns = sum(message.role == "assistant" for message in request.messages)
    return call("look", number=turns) if turns < 4 else say("done")


@pytest.mark.process
@pytest.mark.parametrize("swept", [True, False], ids=["looked at first", "resumed at once"])
def test_g13_what_a_dead_run_held_is_settled_by_its_journal_and_its_resume_counts_on(swept, tmp_path):
    async def flight():
        store = SqliteStore(tmp_path / "s.db")
        await make(ScriptedModel(max_output_tokens=500).forever(dies), store).run(
            "Go.", session="s", parent=wallet(store)
        )

    in_another_process(flight)
    store = SqliteStore(tmp_path / "s.db")
    used, held, holds = figures(store)
    assert held > 0
    assert holds == 1

    async def main():
        if swept:
            account = await wallet(store).account()
            assert (account.held_tokens, account.holds) == (0, 0)
            assert used < account.tokens < used + held  # the call in flight at its worst case, and nothing else
        agent = make(ScriptedModel(max_output_tokens=500).forever(again), store)
        result = await agent.resume("s", parent=wallet(store))
        account = await wallet(store).account()
        assert result.outcome is LoopOutcome.DONE
        assert (account.tokens, account.held_tokens) == (result.usage.total, 0)
        await store.close()

    asyncio.run(main())


@pytest.mark.process
def test_what_a_dead_run_held_is_used_when_no_journal_can_say(tmp_path):
    async def flight():
        store = SqliteStore(tmp_path / "s.db")
        agent = make(ScriptedModel(max_output_tokens=500).forever(dies), None)
        await agent.run("Go.", parent=wallet(store))

    in_another_process(flight)
    store = SqliteStore(tmp_path / "s.db")
    used, held, _ = figures(store)

    async def main():
        account = await wallet(store).account()
        assert (account.tokens, account.held_tokens, account.holds) == (used + held, 0, 0)
        await store.close()

    asyncio.run(main())


@pytest.mark.process
def test_a_new_prompt_after_a_death_leaves_nothing_held(tmp_path):
    async def flight():
        store = SqliteStore(tmp_path / "s.db")
        await make(ScriptedModel(max_output_tokens=500).forever(dies), store).run(
            "Go.", session="s", parent=wallet(store)
        )

    in_another_process(flight)
    store = SqliteStore(tmp_path / "s.db")
    used, held, _ = figures(store)

    async def main():
        agent = make(ScriptedModel([say("fresh")]), store)
        result = await agent.run("Again.", session="s", parent=wallet(store))
        account = await wallet(store).account()
        assert (account.held_tokens, account.holds) == (0, 0)
        assert used + result.usage.total <= account.tokens <= used + held + result.usage.total
        await store.close()

    asyncio.run(main())


def slow(now, store, asked):
    """A model whose process is stopped for a while, and whose wallet is looked at meanwhile."""

    async def answer(request):
        asked.append(1)
        if len(asked) == 2:
            (before,) = await store.wallets("c")
            now[0] += 20
            assert await sweep(store) == 1
            (after,) = await store.wallets("c")
            assert (after.tokens, after.held_tokens) == (before.tokens + before.held_tokens, 0)
            assert await sweep(store) == 0
            now[0] += 100
            assert await sweep(store) == 1
            (known,) = await store.wallets("c")
            assert before.tokens < known.tokens < after.tokens
            assert await sweep(store) == 0
        return call("look", number=len(asked))

    return ScriptedModel(max_output_tokens=500).forever(answer)


def test_g13_a_stopped_run_whose_journal_was_read_can_make_no_further_call():
    async def main():
        now, asked = [1_800_000_000.0], []
        store = MemoryStore(clock=lambda: now[0])
        result = await make(slow(now, store, asked), store).run("Go.", session="s", parent=wallet(store))
        assert (result.outcome, result.cause.metrics["kind"]) == (LoopOutcome.FAILED, "fenced")
        assert len(asked) == 2
        (account,) = await store.wallets("c")
        assert (account.held_tokens, account.holds) == (0, 0)
        assert account.tokens >= result.usage.total

    asyncio.run(main())


def test_a_stopped_run_with_a_child_in_flight_is_charged_all_that_it_held():
    async def main():
        now, asked = [1_800_000_000.0], []
        store = MemoryStore(clock=lambda: now[0])

        async def answer(request):
            asked.append(1)
            (before,) = await store.wallets("c")
            for _ in range(3):
                now[0] += 100
                await sweep(store)
                (after,) = await store.wallets("c")
                assert after.tokens == before.tokens + before.held_tokens
            return say("42")

        child = make(ScriptedModel(max_output_tokens=500).forever(answer), store)
        above = Agent(
            model=ScriptedModel([call("ask", task="?"), say("done")], max_output_tokens=500),
            tools=[child.as_tool("ask", "Ask.")],
            limits=Limits(max_iterations=9),
            store=store,
        )
        await above.run("Go.", session="s", parent=wallet(store))
        assert asked == [1]
        await sweep(store)
        (account,) = await store.wallets("c")
        assert (account.held_tokens, account.holds) == (0, 0)

    asyncio.run(main())


def test_a_store_without_wallets_is_not_changed_by_looking(tmp_path):
    async def main():
        store = SqliteStore(tmp_path / "s.db")
        await make(ScriptedModel([say("ok")]), store).run("Go.", session="s")
        await store.close()
        before = (tmp_path / "s.db").read_bytes()
        assert list(await store.wallets()) == list(await store.overdue()) == []
        with pytest.raises(StoreError, match="there is no wallet 'c'"):
            await store.remove_wallet("c")
        await store.close()
        assert (tmp_path / "s.db").read_bytes() == before

    asyncio.run(main())


def test_a_store_that_is_removed_in_flight_pays_for_nothing_more(tmp_path):
    place = tmp_path / "s"

    async def gone(request):
        turns = sum(message.role == "assistant" for message in request.messages)
        if turns == 1:
            place.rename(tmp_path / "elsewhere")
        assert turns < 4
        return call("look", number=turns)

    async def main():
        store = SqliteStore(place)
        result = await make(ScriptedModel(max_output_tokens=500).forever(gone), None).run("Go.", parent=wallet(store))
        assert (result.outcome, result.cause.metrics["kind"]) == (LoopOutcome.FAILED, "missing")
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_a_fast_clock_held_is_overdue_although_its_lease_seems_to_last(kind, tmp_path):
    """A machine was an hour ahead when it drew, and died: nobody waits an hour for it."""

    def open_store(now):
        if kind == "memory":
            return MemoryStore(clock=lambda: now[0])
        return SqliteStore(tmp_path / "s.db", clock=lambda: now[0])

    async def main():
        now = [1_800_003_600.0]
        store = open_store(now)
        line = (WalletTerms(name="w", max_tokens=1_000),)
        hold = Hold(key="a", leg=1, owner="a process of another machine", line=line)
        assert (await store.draw(hold, WalletDraw(asked_tokens=100))).verdict == "granted"
        now[0] -= 3_600
        (late,) = await store.overdue()
        assert await store.write_off(late, None, None)
        (wallet,) = await store.wallets("w")
        assert (wallet.tokens, wallet.held_tokens) == (100, 0)
        await store.close()

    asyncio.run(main())
