"""A call that had begun is its result or unknown, whatever stops the resume. "Not executed" is said of no other."""

import asyncio

import pytest

from glidepath import Agent, Budget, CancelToken, ExecutionMode, Limits, tool
from glidepath.constraints import KillSwitchConstraint
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, Usage
from glidepath.run import tool_breaker
from glidepath.sessions import MemoryStore, PostgresStore, SqliteStore, read_journal, stop
from glidepath.spi import Block, Plugin
from glidepath.testing import transcript_errors

from .frail import Frail
from .postgres import fresh_schema

LIMITS = Limits(max_iterations=9, timeout=60)
STORES = ["memory", "sqlite", "postgresql"]


class Payer:
    """Asks for three payments at once, and then says that it is done."""

    name, max_output_tokens = "payer", 100

    def __init__(self, tool_name="pay"):
        self.tool_name = tool_name

    async def stream(self, request):
        if any(message.role == "tool_result" for message in request.messages) or not request.tools:
            yield TextDelta("done")
            yield StreamEnd("end_turn", Usage(10, 5))
            return
        for number in range(3):
            yield ToolCallDelta(number, f"c{number}", self.tool_name, f'{{"amount": {number}}}')
        yield StreamEnd("tool_use", Usage(10, 5))


def paying(store, paid, *, idempotent, deadly):
    """The first payment is made and known, the second is made and the process dies, the third never begins."""

    @tool(idempotent=idempotent)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(f"c{amount}")
        await asyncio.sleep(0)
        if deadly and amount == 1:
            store.die()
        return f"paid {amount}"

    return pay


def with_other_parameters(paid, *, idempotent):
    @tool(idempotent=idempotent)
    async def pay(amount: int, currency: str) -> str:
        """Pay."""
        paid.append(f"c{amount}")
        return f"paid {amount} {currency}"

    return pay


class Blocker(Plugin):
    name = "blocker"

    def before_tool_call(self, context):
        return Block("not at this hour")


class Crasher(Plugin):
    name = "crasher"

    def before_tool_call(self, context):
        raise RuntimeError("boom")


def cancelled(agent):
    token = CancelToken()
    token.cancel("stopped meanwhile")
    return agent.resume("s", cancel=token)


def over_budget(agent):
    budget = Budget(Limits(max_iterations=9, max_tool_calls=9, max_tokens=100_000))
    budget.meter.tokens = 99_990
    return agent.resume("s", parent=budget)


def out_of_money(agent):
    return agent.resume("s", parent=Budget(Limits(max_tokens=200), name="w", store=MemoryStore()))


async def stopped(agent):
    await stop(agent.config.store, "s", "stopped meanwhile")
    return await agent.resume("s")


def open_breaker(pay):
    breaker = tool_breaker(pay)
    for _ in range(12):
        breaker.record_failure(asyncio.get_running_loop().time(), probe=False)


WAYS = {
    "nothing": {},
    "cancelled": {"go": cancelled},
    "kill switch": {"constraints": [KillSwitchConstraint(lambda: True)]},
    "stopped": {"go": stopped},
    "budget used up": {"go": over_budget},
    "wallet used up": {"go": out_of_money},
    "turns used up": {"limits": Limits(max_iterations=1)},
    "time used up": {"limits": Limits(timeout=1e-9)},
    "tool gone": {"tools": []},
    "parameters changed": {"changed": True},
    "hook blocks": {"plugins": [Blocker()]},
    "hook crashes": {"plugins": [Crasher()]},
    "breaker open": {"breaker": True},
    "no calls left": {"limits": Limits(max_iterations=9, max_tool_calls=1)},
    "new prompt": {"go": lambda agent: agent.run("hello", session="s")},
}


async def opened(kind, place):
    if kind == "postgresql":
        return PostgresStore(fresh_schema())
    return MemoryStore() if kind == "memory" else SqliteStore(str(place / "sessions.db"))


def check(result, paid, begun):
    """Every call has one result; one that had begun has its own or is unknown, and only such a one is unknown."""
    assert transcript_errors(result.messages) == []
    answered = {message.call_id: message for message in result.messages if message.role == "tool_result"}
    unknown = [call.id for call in result.unknown_effects]
    assert len(unknown) == len(set(unknown))
    for call_id, message in answered.items():
        if message.kind == "unknown_effect":
            assert call_id in begun, "a call that had not begun is called unknown"
            assert call_id in unknown
        elif call_id in begun:
            assert message.kind is None, message
            assert message.text.startswith("paid"), message
        else:
            assert (message.kind is None) == (call_id in paid), message
    assert set(unknown) <= set(begun)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
@pytest.mark.parametrize("way", WAYS)
def test_g13_a_call_that_had_begun_is_its_result_or_unknown(tmp_path, way, idempotent, kind):
    setting = dict(WAYS[way])
    paid = []

    async def fly():
        store = Frail(await opened(kind, tmp_path))
        common = {"store": store, "default_execution_mode": ExecutionMode.SEQUENTIAL}
        first = paying(store, paid, idempotent=idempotent, deadly=True)
        await Agent(model=Payer(), tools=[first], limits=LIMITS, **common).run("go", session="s")
        begun = list(paid)
        assert begun == ["c0", "c1"]
        await store.revive()
        pay = paying(store, paid, idempotent=idempotent, deadly=False)
        if setting.pop("changed", False):
            pay = with_other_parameters(paid, idempotent=idempotent)
        if setting.pop("breaker", False):
            open_breaker(pay)
        go = setting.pop("go", lambda agent: agent.resume("s"))
        agent = Agent(model=Payer(), **{"tools": [pay], "limits": LIMITS, **common, **setting})
        result = await go(agent)
        check(result, paid, begun)
        assert paid.count("c1") <= (2 if idempotent else 1)
        journal = await read_journal(store, "s")
        assert tuple(journal.folded.messages) == result.messages, "what the next prompt reads is something else"
        if result.outcome.name not in ("DONE", "WRAPPED_UP"):
            again = Agent(model=Payer(), tools=[pay], limits=LIMITS, **common)
            check(await again.resume("s", limits=LIMITS), paid, begun)
        await store.close()

    asyncio.run(fly())


@pytest.mark.parametrize("way", ["nothing", "cancelled", "hook blocks", "tool gone"])
def test_what_never_began_is_not_counted_and_what_had_begun_is(way):
    """The first call is known, the second had begun, the third was queued behind it and counted with them."""
    setting, paid = dict(WAYS[way]), []

    async def fly():
        store = Frail(MemoryStore())
        common = {"store": store, "default_execution_mode": ExecutionMode.SEQUENTIAL}
        first = paying(store, paid, idempotent=True, deadly=True)
        await Agent(model=Payer(), tools=[first], limits=LIMITS, **common).run("go", session="s")
        await store.revive()
        pay = paying(store, paid, idempotent=True, deadly=False)
        go = setting.pop("go", lambda agent: agent.resume("s"))
        result = await go(Agent(model=Payer(), **{"tools": [pay], "limits": LIMITS, **common, **setting}))
        assert result.tool_calls == (3 if way == "nothing" else 2)
        assert (await read_journal(store, "s")).folded.snapshot.metered_tool_calls == result.tool_calls

    asyncio.run(fly())


def test_a_plain_resume_repeats_what_may_be_repeated_and_counts_it_once(tmp_path):
    paid = []

    async def fly():
        store = Frail(MemoryStore())
        common = {"store": store, "default_execution_mode": ExecutionMode.SEQUENTIAL, "limits": LIMITS}
        first = paying(store, paid, idempotent=True, deadly=True)
        await Agent(model=Payer(), tools=[first], **common).run("go", session="s")
        await store.revive()
        again = paying(store, paid, idempotent=True, deadly=False)
        result = await Agent(model=Payer(), tools=[again], **common).resume("s")
        assert paid == ["c0", "c1", "c1", "c2"]
        assert result.tool_calls == 3
        assert result.unknown_effects == ()

    asyncio.run(fly())


@pytest.mark.parametrize("before", [True, False], ids=["was idempotent", "is idempotent now"])
def test_g13_a_call_is_repeated_only_if_its_tool_was_idempotent_then_and_is_now(before):
    paid = []

    async def fly():
        store = Frail(MemoryStore())
        common = {"store": store, "default_execution_mode": ExecutionMode.SEQUENTIAL, "limits": LIMITS}
        first = paying(store, paid, idempotent=before, deadly=True)
        await Agent(model=Payer(), tools=[first], **common).run("go", session="s")
        await store.revive()
        again = paying(store, paid, idempotent=not before, deadly=False)
        result = await Agent(model=Payer(), tools=[again], **common).resume("s")
        assert paid == ["c0", "c1", "c2"]
        assert [call.id for call in result.unknown_effects] == ["c1"]

    asyncio.run(fly())
