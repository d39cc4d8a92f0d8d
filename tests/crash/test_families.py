"""A child whose journal is missing or cannot be read is unknown: it is never begun anew."""

import asyncio
import json

import pytest

from glidepath import Agent, Limits, LoopOutcome, ToolContext, tool
from glidepath.errors import StoreError
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore, read_journal

from .frail import Frail
from .postgres import fresh_schema
from .test_truth import WAYS

LIMITS = Limits(max_iterations=30, max_tokens=200_000)
CHILD = "s/d0.1"
PER_CALL = Usage(1000, 5)


class Kid:
    """Sends three letters, one after the other."""

    name, max_output_tokens = "kid", 100

    async def stream(self, request):
        sent = sum(message.role == "tool_result" for message in request.messages)
        if request.tools and sent < 3:
            yield ToolCallDelta(0, f"k{sent}", "send", json.dumps({"n": sent}))
            yield StreamEnd("tool_use", PER_CALL)
            return
        yield TextDelta("kid done")
        yield StreamEnd("end_turn", PER_CALL)


class Boss:
    """Hands one task over, beside another call where there is one."""

    name, max_output_tokens = "boss", 100

    async def stream(self, request):
        await asyncio.sleep(0)
        if request.messages[-1].text == "hello" or any(m.role == "tool_result" for m in request.messages):
            yield TextDelta("done")
            yield StreamEnd("end_turn", PER_CALL)
            return
        yield ToolCallDelta(0, "d0", "delegate", '{"task": "do it"}')
        if any(one.name == "beside" for one in request.tools):
            yield ToolCallDelta(1, "b0", "beside", "{}")
        yield StreamEnd("tool_use", PER_CALL)


def agent(store, sent, *, deadly=False, how="as_tool", beside=()):
    @tool
    async def send(n: int) -> str:
        """Send a letter."""
        sent.append(n)
        if deadly and n == 1:
            store.die()
        return f"sent {n}"

    kid = Agent(model=Kid(), tools=[send], agent_name="kid")

    @tool(name="delegate", idempotent=how == "idempotent")
    async def delegate(task: str, context: ToolContext) -> str:
        """Hand over."""
        return (await context.spawn(kid, task)).text

    helper = kid.as_tool("delegate", "Hand over.") if how == "as_tool" else delegate
    return Agent(model=Boss(), tools=[helper, *beside], limits=LIMITS, store=store)


async def opened(kind, place):
    if kind == "postgresql":
        return PostgresStore(fresh_schema())
    return MemoryStore() if kind == "memory" else SqliteStore(str(place / "sessions.db"))


def results(result):
    return {message.call_id: message for message in result.messages if message.role == "tool_result"}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
@pytest.mark.parametrize("how", ["as_tool", "idempotent", "once"])
def test_g13_a_child_whose_journal_is_missing_is_unknown(tmp_path, how, kind):
    async def fly():
        sent = []
        store = Frail(await opened(kind, tmp_path))
        await agent(store, sent, deadly=True, how=how).run("go", session="s")
        await store.revive()
        await store.remove(CHILD)
        result = await agent(store, sent, how=how).resume("s")
        assert sent == [0, 1]
        assert result.outcome is LoopOutcome.DONE
        assert results(result)["d0"].kind == "unknown_effect"
        assert [call.id for call in result.unknown_effects] == ["d0"]
        await store.close()

    asyncio.run(fly())


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("parameters changed", "breaker open")])
def test_g13_a_child_is_never_begun_anew_whatever_stops_the_resume(way):
    async def fly(how, missing):
        setting, sent = dict(WAYS[way]), []
        store = Frail(MemoryStore())
        await agent(store, sent, deadly=True, how=how).run("go", session="s")
        await store.revive()
        if missing:
            await store.remove(CHILD)
        go = setting.pop("go", lambda again: again.resume("s"))
        tools = agent(store, sent, how=how).config.tools
        result = await go(Agent(model=Boss(), **{"tools": tools, "limits": LIMITS, "store": store, **setting}))
        own, unknown = results(result)["d0"], [call.id for call in result.unknown_effects]
        assert sorted(set(sent)) == sent, "a letter was sent twice"
        assert own.kind == ("unknown_effect" if "d0" in unknown else None), own
        assert unknown == ["d0"] if missing else "k1" in unknown

    for how in ("as_tool", "idempotent", "once"):
        for missing in (True, False):
            asyncio.run(fly(how, missing))


class Torn(Frail):
    """Fails to read a child's journal, from the `first` time on, so many `times`."""

    def __init__(self, store, first, times, kind="unavailable"):
        super().__init__(store)
        self.first, self.times, self.kind, self.reads = first, times, kind, 0

    async def load(self, session_id, *args, **keywords):
        if "/" in session_id and not self.dead:
            self.reads += 1
            if self.first <= self.reads < self.first + self.times:
                raise StoreError("connection reset", kind=self.kind)
        return await super().load(session_id, *args, **keywords)


async def torn(sent, first, times, kind="unavailable"):
    store = Torn(MemoryStore(), 10**6, 0, kind)
    await agent(store, sent, deadly=True).run("go", session="s")
    await store.revive()
    store.first, store.times, store.reads = first, times, 0
    return store, await agent(store, sent).resume("s")


@pytest.mark.parametrize("first", range(1, 6))
def test_g13_one_failed_read_of_a_childs_journal_begins_nothing_anew(first):
    async def fly():
        sent = []
        _, result = await torn(sent, first, 1)
        assert result.outcome is LoopOutcome.DONE
        assert sorted(sent) == sorted(set(sent)), "a letter was sent twice"
        assert [call.id for call in result.unknown_effects] in (["k1"], ["d0", "k1"])

    asyncio.run(fly())


@pytest.mark.parametrize("kind", ["unavailable", "damaged", "newer"])
@pytest.mark.parametrize("first", range(1, 4))
def test_g13_a_child_that_cannot_be_read_is_unknown(first, kind):
    async def fly():
        sent = []
        _, result = await torn(sent, first, 100, kind)
        assert sent == [0, 1]
        assert [call.id for call in result.unknown_effects] == (["d0"] if first == 1 else ["d0", "k1"])
        assert results(result)["d0"].kind == "unknown_effect"
        assert "Not started" not in results(result)["d0"].text

    asyncio.run(fly())


@pytest.mark.parametrize("way", ["resume", "new prompt"])
def test_g13_what_is_unknown_of_a_child_is_in_its_parents_result(way):
    async def fly():
        sent = []
        store = Frail(MemoryStore())
        await agent(store, sent, deadly=True).run("go", session="s")
        await store.revive()
        again = agent(store, sent)
        result = await (again.resume("s") if way == "resume" else again.run("hello", session="s"))
        unknown = [call.id for call in result.unknown_effects]
        assert unknown == (["k1"] if way == "resume" else ["k1", "d0"])
        if way == "resume":
            assert [call.id for call in result.children[0].unknown_effects] == ["k1"]
            return
        totals = (await read_journal(store, "s")).folded.session.totals
        assert totals.usage.total == 4 * PER_CALL.total, "what the child has spent is lost"

    asyncio.run(fly())


def test_g13_what_is_unknown_of_a_child_is_listed_when_the_resume_is_cancelled():
    from glidepath import CancelToken

    async def fly():
        sent, token = [], CancelToken()
        token.cancel("not now")
        store = Frail(MemoryStore())
        await agent(store, sent, deadly=True).run("go", session="s")
        await store.revive()
        result = await agent(store, sent).resume("s", cancel=token)
        assert result.outcome is LoopOutcome.CANCELLED
        assert [call.id for call in result.unknown_effects] == ["d0", "k1"]
        assert result.usage.total == 3 * PER_CALL.total
        again = await agent(store, sent).resume("s")
        assert [call.id for call in again.unknown_effects] == ["d0", "k1"]
        assert again.usage.total == 4 * PER_CALL.total

    asyncio.run(fly())


def test_g13_what_a_child_spends_before_a_sibling_ends_is_counted_once():
    """The parent commits the sibling's result while the child flies: its figures have some of the child's spend."""

    async def fly(deadly):
        sent, turns = [], asyncio.Event()
        store = Frail(MemoryStore())

        @tool(idempotent=True, parallel_safe=True)
        async def beside() -> str:
            """Wait until the child has made two turns."""
            await turns.wait()
            return "seen"

        class Watching(list):
            def append(self, one):
                super().append(one)
                if one == 0:
                    turns.set()

        watched = Watching()
        flown = await agent(store, watched, deadly=deadly, beside=[beside]).run("go", session="s")
        if deadly:
            await store.revive()
            flown = await agent(store, sent, beside=[beside]).resume("s")
        end = (await read_journal(store, "s")).folded.snapshot
        return (end.tokens, end.turns, end.metered_tool_calls, end.descendants), flown.usage, flown.tool_calls

    assert asyncio.run(fly(True)) == asyncio.run(fly(False))


def test_a_child_that_had_not_begun_when_the_process_died_begins():
    async def fly(number):
        sent = []
        store = Frail(MemoryStore())
        store.die_after(number)
        await agent(store, sent).run("go", session="s")
        await store.revive()
        result = await agent(store, sent).resume("s")
        assert result.outcome is LoopOutcome.DONE
        assert "d0" not in [call.id for call in result.unknown_effects]
        assert sent == [0, 1, 2] or result.unknown_effects

    for number in range(1, 12):
        asyncio.run(fly(number))
