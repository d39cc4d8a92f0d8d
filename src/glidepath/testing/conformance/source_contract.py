"""The contract of a `ToolSource` and its supply, clause by clause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from glidepath.agent import Agent, Limits
from glidepath.run import CancelToken
from glidepath.testing import ScriptedModel, call, no_leftovers, say
from glidepath.testing.conformance.contract import Contract, missing
from glidepath.tools import SourceError, Tool, ToolSource, ToolSupply
from glidepath.values import LoopOutcome, RunResult

if TYPE_CHECKING:
    from glidepath.testing.turns import Step

SOON = 2.0  # seconds for what should take a moment


class ToolSourceContract(Contract):
    """Subclass this and provide `make_source`, `unreachable`, and the two calls.

    `answered` is a tool's name, its arguments, and a part of what it answers; `slow` is the name and the arguments of a
    call that takes at least five seconds.
    """

    answered: tuple[str, Mapping[str, Any], str]
    slow: tuple[str, Mapping[str, Any]]

    def make_source(self) -> ToolSource:
        """A working source, as a user would create it."""
        raise NotImplementedError(missing(self, "make_source"))

    def unreachable(self) -> ToolSource:
        """A source that points at something that does not exist."""
        raise NotImplementedError(missing(self, "unreachable"))

    # --- clauses ----------------------------------------------------------------------------------------------

    async def test_src_1_opening_starts_nothing(self) -> None:
        """SRC-1: a source has a name, and opening it starts nothing: no task, no thread, no process."""
        source = self.make_source()
        assert isinstance(source.name, str)
        assert source.name
        async with no_leftovers():
            source.open()

    async def test_src_2_the_same_tools_again(self) -> None:
        """SRC-2: it offers tools, each under its own name, and the same objects as long as nothing changed."""
        async with self._open() as supply:
            tools = list(await supply.tools())
            assert tools, "it offers nothing"
            assert all(isinstance(tool, Tool) for tool in tools)
            assert len({tool.name for tool in tools}) == len(tools)
            again = list(await supply.tools())
            assert [id(tool) for tool in again] == [id(tool) for tool in tools], "other objects, and nothing changed"

    async def test_src_3_many_may_ask_at_once(self) -> None:
        """SRC-3: runs that ask at the same time get the same tools."""
        async with self._open() as supply:
            asked = await asyncio.gather(*[supply.tools() for _ in range(8)])
            assert {tuple(id(tool) for tool in tools) for tools in asked} == {tuple(map(id, asked[0]))}

    async def test_src_4_an_ordinary_call(self) -> None:
        """SRC-4: a run calls its tools like any other, and nothing is left when the run has ended."""
        name, arguments, _ = self.answered
        agent = self._agent(self.make_source(), call(name, **arguments))
        async with no_leftovers():
            result = await agent.run("go")
        assert result.outcome is LoopOutcome.DONE, result
        assert self.answered[2] in _results(result)[0].text

    async def test_src_5_what_cannot_be_had_is_said(self) -> None:
        """SRC-5: an unreachable source raises `SourceError` with its name in it; a run continues without it."""
        source = self.unreachable()
        supply = source.open()
        for _ in range(2):
            with pytest.raises(SourceError) as caught:
                await supply.tools()
            assert source.name in str(caught.value), f"{caught.value} does not name {source.name!r}"
        await supply.close()
        result = await self._agent(source).run("go")
        assert result.outcome is LoopOutcome.DONE

    async def test_src_6_closing_ends_everything(self) -> None:
        """SRC-6: `close` ends everything it started, in any state and as often as it is called."""
        async with no_leftovers(grace=SOON):
            for asked in (False, True):
                supply = self.make_source().open()
                if asked:
                    await supply.tools()
                await supply.close()
                await supply.close()

    async def test_src_7_asking_may_be_cancelled(self) -> None:
        """SRC-7: a request for the tools may be cancelled; the supply stays usable."""
        async with self._open() as supply:
            asking = asyncio.ensure_future(supply.tools())
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            assert await asyncio.wait_for(supply.tools(), 60)

    async def test_src_8_a_call_can_be_cancelled(self) -> None:
        """SRC-8: a run that is cancelled in a slow call ends at once, and the next run can call again."""
        name, arguments = self.slow
        first = self._agent(source := self.make_source(), call(name, **arguments))
        loop, token = asyncio.get_running_loop(), CancelToken()
        async with first, first.stream("go", cancel=token) as stream:
            began = loop.time()
            async for event in stream:
                if type(event).__name__ == "ToolStarted":
                    began = loop.time()
                    loop.call_later(0.05, token.cancel)
            took = loop.time() - began
        name, arguments, _ = self.answered
        stopped, after = stream.result, await self._agent(source, call(name, **arguments)).run("go")
        assert stopped.outcome is LoopOutcome.CANCELLED
        assert took < SOON, f"it took {took:.1f} s to stop"
        assert stopped.abandoned == (), "the call ignored its cancellation"
        assert self.answered[2] in _results(after)[0].text

    async def test_src_9_wrong_arguments_are_refused(self) -> None:
        """SRC-9: arguments that do not fit a tool's schema are refused before the tool runs."""
        name, arguments, _ = self.answered
        wrong = {key: {"not": ["this"]} for key in arguments}
        result = await self._agent(self.make_source(), call(name, **wrong, surely_unknown=1)).run("go")
        [refused] = _results(result)
        assert refused.kind == "invalid_arguments", refused

    # --- helpers ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[ToolSupply]:
        supply = self.make_source().open()
        try:
            yield supply
        finally:
            await supply.close()

    def _agent(self, source: ToolSource, *turns: Step) -> Agent:
        return Agent(model=ScriptedModel([*turns, say("done")]), tools=[source], limits=Limits(max_iterations=5))


def _results(result: RunResult) -> list[Any]:
    return [message for message in result.messages if message.role == "tool_result"]
