"""An agent whose tools also come from sources: it runs as an agent that has those tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from glidepath._wire import replace
from glidepath.agent.assemble import assemble
from glidepath.agent.per_run import Given, apply_run_options
from glidepath.values import RunResult

if TYPE_CHECKING:
    from typing import Self

    from glidepath.agent.config import LoopConfig
    from glidepath.agent.tool_sources import Fitted, SourceConnections
    from glidepath.plugins import HookTable
    from glidepath.run import CancelToken, Fingerprint, Plan
    from glidepath.tools import Tool

_log = logging.getLogger("glidepath")


class Equipped:
    """What an agent does about sources of tools: nothing, when it has none."""

    __slots__ = ("_began", "_behind", "_fitted", "_heirs", "_outfit", "_plan", "_told_of_store", "config")

    config: LoopConfig
    _plan: Plan
    _heirs: WeakKeyDictionary[HookTable, Plan]
    _told_of_store: bool
    _outfit: SourceConnections | None
    _fitted: Fitted | None
    _began: float | None
    _behind: tuple[Tool, ...]

    @property
    def fingerprint(self) -> Fingerprint:
        """What this agent is like, without the tools of its sources."""
        from glidepath.run.fingerprint import fingerprint  # hashlib: only a journal needs it

        return fingerprint(self._plan)[0]

    def _prepare_sources(self) -> None:
        sources, tools = self.config.tool_sources, self.config.tools
        self._outfit = None
        if sources:
            from glidepath.agent.many_tools import CALL, FIND
            from glidepath.agent.tool_sources import SourceConnections

            hosted = [one.NAME for one in self.config.hosted_tools]
            self._outfit = SourceConnections(sources, frozenset({FIND, CALL, *hosted, *[one.name for one in tools]}))
        self._fitted = self._began = None
        self._behind = ()

    async def __aenter__(self) -> Self:
        """Keep the servers of its tools open between runs, until the end of the `async with`."""
        if self._outfit is not None:
            self._outfit.enter(keep=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        outfit = self._outfit
        if outfit is not None and (slow := await outfit.exit_kept()):
            _log.warning("%s: %s", ", ".join(work.tool_name for work in slow), slow[0].reason)

    async def _run_with_sources(
        self, cancel: CancelToken | None, fly: Callable[[Self], Coroutine[Any, Any, RunResult]]
    ) -> RunResult:
        """Run as the agent that has the tools of its sources, and let go of the sources afterwards."""
        outfit: Any = self._outfit
        began = asyncio.get_running_loop().time()
        equipment = outfit.enter()
        try:
            timeout = self._plan.timeout
            fitted = await equipment.fit(cancel, None if timeout is None else timeout / 2)
            result = await fly(self._fit_with(outfit, fitted, began))
        except BaseException:
            await outfit.release(equipment)
            raise
        slow = await outfit.release(equipment)
        return replace(result, abandoned=(*result.abandoned, *slow)) if slow else result

    def _fit_with(self, outfit: SourceConnections, fitted: Fitted, began: float | None) -> Self:
        """This agent with the tools that its sources gave."""
        agent = object.__new__(type(self))
        agent.config, agent._plan, agent._heirs, agent._behind = outfit.equip(fitted.tools, self._merge_source_tools)
        agent._told_of_store, agent._outfit, agent._fitted, agent._began = True, None, fitted, began
        return agent

    @asynccontextmanager
    async def listing_its_sources(self) -> AsyncIterator[tuple[Self, Sequence[tuple[str, str]]]]:
        """This agent with the tools of its sources, which are only listed; and which sources gave none, and why."""
        outfit = self._outfit
        if outfit is None:
            yield self, ()
            return
        equipment = outfit.enter()
        try:
            fitted = await equipment.fit(None, None)
            yield self._fit_with(outfit, fitted, None), fitted.missing
        finally:
            await outfit.release(equipment)

    def _merge_source_tools(self, tools: tuple[Tool, ...]) -> tuple[Any, ...]:
        """This agent's configuration with the tools of its sources among its own, or behind two of them; its plan."""
        behind: tuple[Tool, ...] = ()
        from glidepath.agent.many_tools import are_too_many, make_search_tools

        if are_too_many(tools, self._plan.context_window, self._plan.estimator.estimate):
            behind, tools = tools, make_search_tools(tools)
        config = replace(self.config, tools=(*self.config.tools, *tools), tool_sources=())
        return config, assemble(config, told=self._plan.told, behind=behind), WeakKeyDictionary(), behind

    def _apply_run_options(self, given: Given) -> Self:
        """This agent with the limits, the system prompt and the model of one run; on the same open sources."""
        config = apply_run_options(self.config, given)
        if config is self.config:
            return self
        agent = object.__new__(type(self))
        agent.config, agent._plan = config, assemble(config, told=self._plan.told, behind=self._behind)
        agent._heirs, agent._told_of_store = WeakKeyDictionary(), self._told_of_store
        agent._outfit = None if self._outfit is None else self._outfit.share()
        agent._fitted, agent._began, agent._behind = self._fitted, self._began, self._behind
        return agent


def share_sources(agent: Equipped, other: Equipped) -> None:
    """Let an agent use the open sources of another one, of which it is a changed copy."""
    outfit = other._outfit  # noqa: SLF001 - of the same class
    if outfit is not None:
        agent._outfit = outfit.share()  # noqa: SLF001
