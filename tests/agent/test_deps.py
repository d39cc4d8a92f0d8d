"""What an application hands to its tools and hooks: `run(deps=...)`, typed, checked, inherited and never written."""

from typing import Any, Protocol

import pytest

from glidepath import Agent, Limits, Plugin, ToolContext, approve, tool
from glidepath.errors import ConfigurationError
from glidepath.messages import ToolResultMessage
from glidepath.sessions import MemoryStore
from glidepath.spi import PollContext, RunInfo, ToolCallContext
from glidepath.testing import ScriptedModel, call, say, virtual

FEW = Limits(max_iterations=5)


class Shop:
    secret = "not-for-a-journal"

    def __init__(self, stock: int = 3) -> None:
        self.stock = stock


class Named(Protocol):
    name: str


@tool
async def stock(context: ToolContext[Shop]) -> str:
    """How many are left."""
    return f"{context.deps.stock} left"


def using(*turns: Any, **settings: Any) -> Agent:
    return Agent(model=ScriptedModel([*turns]), limits=FEW, **{"tools": [stock], **settings})


def result_of(result: Any) -> str:
    return next(message.text for message in result.messages if isinstance(message, ToolResultMessage))


@virtual
async def test_a_tool_gets_the_deps_of_its_run():
    agent = using(call("stock"), say("done"), call("stock"), say("done"))
    assert result_of(await agent.run("Count.", deps=Shop(7))) == "7 left"
    assert result_of(await agent.run("Count.", deps=Shop(1))) == "1 left"


def test_a_thread_and_run_sync_have_them_too():
    @tool
    def peek(context: ToolContext[Shop]) -> int:
        """Look."""
        return context.deps.stock

    assert result_of(using(call("peek"), say("ok"), tools=[peek]).run_sync("Look.", deps=Shop(4))) == "4"


@virtual
async def test_a_stream_has_them_too():
    async with using(call("stock"), say("ok")).stream("Count.", deps=Shop(5)) as stream:
        async for _ in stream:
            pass
    assert result_of(stream.result) == "5 left"


@pytest.mark.parametrize(
    ("deps", "said"),
    [(None, "tool 'stock' needs deps of type Shop, and no deps were passed"), ("shop", "deps is a str")],
    ids=["none", "wrong"],
)
@virtual
async def test_a_run_without_the_deps_its_tools_name_is_refused(deps, said):
    with pytest.raises(ConfigurationError, match=said):
        await using(say("hi")).run("Count.", deps=deps)


@virtual
async def test_a_declared_type_is_checked_without_any_tool():
    agent = using(say("hi"), tools=[], deps_type=Shop)
    with pytest.raises(ConfigurationError, match="agent 'agent' needs deps of type Shop"):
        await agent.run("Hi.")
    assert (await agent.run("Hi.", deps=Shop())).ok


@virtual
async def test_a_type_that_cannot_be_looked_at_needs_something():
    agent = using(say("hi"), tools=[], deps_type=Named)
    with pytest.raises(ConfigurationError, match="no deps were passed"):
        await agent.run("Hi.")
    assert (await agent.run("Hi.", deps=Shop())).ok


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"deps_type": Shop()}, "deps_type must be a type"),
        ({"deps_factory": 3}, "deps_factory must be callable"),
    ],
    ids=["type", "factory"],
)
def test_settings_about_deps_are_checked(settings, said):
    with pytest.raises(ConfigurationError, match=said):
        using(say("hi"), **settings)


def test_an_async_factory_is_refused():
    async def make(run: RunInfo) -> Shop:
        return Shop()

    with pytest.raises(ConfigurationError, match="plain function"):
        using(say("hi"), deps_factory=make)


@virtual
async def test_hooks_see_them_in_their_contexts():
    seen: list[Any] = []

    class Watching(Plugin):
        def before_tool_call(self, context: ToolCallContext[Shop]) -> None:
            seen.append(context.deps.stock)

        def steering(self, context: PollContext[Shop]) -> None:
            seen.append(context.deps.stock)

    await using(call("stock"), say("done"), plugins=[Watching()]).run("Count.", deps=Shop(9))
    assert set(seen) == {9}
    assert len(seen) >= 3


@virtual
async def test_a_child_has_its_parents():
    inner = using(call("stock"), say("inner"), agent_name="inner")
    outer = using(call("ask", task="Count."), say("outer"), tools=[inner.as_tool("ask", "Ask.")])
    result = await outer.run("Go.", deps=Shop(6))
    assert result_of(result.children[0]) == "6 left"


@virtual
async def test_a_child_with_a_factory_makes_its_own_when_the_parents_are_of_another_type():
    inner = using(call("stock"), say("inner"), deps_factory=lambda run: Shop(2))
    outer = using(call("ask", task="Count."), say("outer"), tools=[inner.as_tool("ask", "Ask.")])
    result = await outer.run("Go.", deps="mine")
    assert result_of(result.children[0]) == "2 left"


@virtual
async def test_a_factory_makes_them_for_whom_the_run_is():
    asked: list[RunInfo] = []

    def make(run: RunInfo) -> Shop:
        asked.append(run)
        return Shop(8)

    agent = using(call("stock"), say("done"), deps_factory=make)
    assert result_of(await agent.run("Count.", session="s1", user="ann", metadata={"tenant": "t"})) == "8 left"
    assert [(one.session_id, one.user, one.metadata) for one in asked] == [("s1", "ann", {"tenant": "t"})]


@virtual
async def test_a_factory_that_fails_is_named_before_the_first_call():
    agent = using(say("hi"), deps_factory=lambda run: 1 / 0)
    with pytest.raises(ConfigurationError, match=r"deps_factory failed for session 's': .*ZeroDivision"):
        await agent.run("Hi.", session="s")


@virtual
async def test_they_are_never_written_and_needed_again():
    store = MemoryStore()

    @tool(requires_approval=True)
    async def sell(context: ToolContext[Shop]) -> str:
        """Sell one."""
        return f"{context.deps.stock - 1} left"

    agent = using(call("sell"), say("sold"), tools=[sell], store=store)
    paused = await agent.run("Sell.", session="s", deps=Shop(3))
    written = repr((await store.load("s"))[1])
    assert "sell" in written
    assert Shop.secret not in written
    assert "Shop" not in written
    with pytest.raises(ConfigurationError, match="needs deps of type Shop"):
        await agent.resume("s")
    decisions = {paused.pending[0].call.id: approve()}
    assert result_of(await agent.resume("s", deps=Shop(3), decisions=decisions)) == "2 left"


def test_a_context_for_tests_has_them():
    assert ToolContext.for_testing(deps=Shop(2)).deps.stock == 2
