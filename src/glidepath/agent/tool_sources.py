"""The sources of an agent's tools in one event loop: opened for the first run, closed after the last."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import operator
from collections import Counter
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from glidepath.agent.added_tools import join_tools
from glidepath.run import CancelToken, Ending, wake_waiter
from glidepath.tools import SourceError, Tool, ToolSource, ToolSupply
from glidepath.values import AbandonedWork, AgentState, LoopOutcome, StopCause, ToolsChanged, describe_error, message_of

if TYPE_CHECKING:
    from glidepath.run import Run

_log = logging.getLogger("glidepath")
PATIENCE = 1.0  # seconds a source has to close before it is listed as abandoned


class Fitted:
    """What the sources gave to one run: tools, and why some gave none."""

    __slots__ = ("_equipment", "_known", "_supplies", "agent_name", "failed", "missing", "run", "tools")

    def __init__(self, supplies: Sequence[tuple[str, ToolSupply]], equipment: Equipment) -> None:
        self._supplies = tuple(supplies)
        self._equipment = equipment
        self._known: set[tuple[str, str]] = set()
        self.run: Run | None = None
        self.agent_name = ""
        self.tools: list[Tool] = []
        self.missing: list[tuple[str, str]] = []
        self.failed: tuple[str, str] | None = None
        """The required source that offered no tools, and why."""

    def take(self, chosen: Sequence[tuple[str, Tool]]) -> list[tuple[str, Tool]]:
        """Those of the tools, each with its source, that the run was not given before."""
        more = [(source, tool) for source, tool in chosen if (source, tool.name) not in self._known]
        self._known |= {(source, tool.name) for source, tool in more}
        return more

    def begin_run(self, run: Run) -> Ending | None:
        """The run begins: report missing sources; returns how it ends if one was required."""
        self.run, self.agent_name = run, run.plan.config.agent_name
        self._equipment.flying.append(self)
        if run.journal is not None:
            run.journal.pins = {name: pins for name, supply in self._supplies if (pins := supply.pins())}
        for name, why in self.missing:
            run.emit(ToolsChanged, name, (), (), (), "unavailable", why)
        for _, supply in self._supplies:
            with suppress(Exception):  # a source's failure here must not fail the run
                supply.attach(run)
        if self.failed is None:
            return None
        name, why = self.failed
        cause = StopCause(source=f"tools:{name}", action="fail", reason=why)
        return Ending(
            state=AgentState.ERROR, outcome=LoopOutcome.FAILED, cause=cause, text=f"Not started: {why}", partial=True
        )

    def end_run(self, run: Run) -> None:
        """The run has ended."""
        self.run = None
        self._equipment.flying = [other for other in self._equipment.flying if other is not self]
        for _, supply in self._supplies:
            with suppress(Exception):
                supply.detach(run)


def _prefix_with_source(source: str, tool: Tool) -> str:
    return f"{source}_{tool.name}"[:_LONGEST]


def _suffix_with_digest(source: str, tool: Tool) -> str:
    """A name that no other tool can have, the same in every run."""
    from hashlib import sha256

    mark = sha256(f"{source}\0{tool.name}".encode()).hexdigest()[:8]
    return f"{_prefix_with_source(source, tool)[: _LONGEST - 9]}_{mark}"


_LONGEST = 128
_WAYS = (_prefix_with_source, _suffix_with_digest)
"""How a tool whose name is taken is called, one after the other."""


class Equipment:
    """The open sources of one agent in one loop, and who uses them."""

    def __init__(self, sources: Sequence[ToolSource], taken: frozenset[str]) -> None:
        self._sources = tuple(sources)
        self._names = {source.origin: source.name for source in sources}
        self._taken = taken
        self._supplies: dict[object, ToolSupply] = {}
        self._renamed: dict[tuple[int, str], tuple[Tool, Tool]] = {}
        self._growing: set[asyncio.Task[None]] = set()
        self.flying: list[Fitted] = []
        """What the runs in flight were given."""
        self.users = 0
        self.keepers = 0

    def keep(self, *, more: int) -> None:
        """Count holders that keep it open between runs."""
        self.keepers += more
        for supply in self._supplies.values():
            supply.kept = self.keepers > 0

    async def fit(self, cancel: CancelToken | None, seconds: float | None) -> Fitted:
        """The tools of all sources that are available; raced against the caller's cancellation."""
        for source in self._sources:
            if source.origin not in self._supplies:
                supply = self._supplies[source.origin] = source.open()
                supply.kept = self.keepers > 0
                supply.on_growth = self._hear_growth
        found = await self._gather_tools(cancel, seconds)
        fitted = Fitted([(self._names[origin], supply) for origin, supply in self._supplies.items()], self)
        chosen: list[tuple[str, Tool]] = []
        for source in self._sources:
            tools, why = found[source.origin]
            if why is None:
                try:
                    chosen += [(source.name, tool) for tool in source.choose(tools)]
                    continue
                except SourceError as error:
                    why = message_of(error)
            fitted.missing.append((source.name, why))
            if source.required and fitted.failed is None:
                fitted.failed = (source.name, why)
            else:
                _log.warning("The run continues without the tools of %r: %s", source.name, why)
        fitted.take(chosen)
        fitted.tools += self._rename_apart(chosen)
        return fitted

    # --- tools that come while a run is in flight --------------------------------------------------------------

    def _hear_growth(self) -> None:
        task = asyncio.get_running_loop().create_task(
            self._offer_more(), name="glidepath-source-growth", context=contextvars.Context()
        )
        self._growing.add(task)
        task.add_done_callback(self._growing.discard)

    async def _offer_more(self) -> None:
        """Have the runs in flight offer what a source offers since they began."""
        chosen: list[tuple[str, Tool]] = []
        for source in self._sources:
            tools, why = await _list_tools(self._supplies[source.origin])
            with suppress(SourceError):
                chosen += [(source.name, tool) for tool in (source.choose(tools) if why is None else ())]
        for fitted in self.flying:
            run, more = fitted.run, fitted.take(chosen)
            if run is not None and more and run.plan.config.agent_name == fitted.agent_name:
                join_tools(run, [self._name_apart(run.plan.tool_names, *one) for one in more])

    def _name_apart(self, taken: Container[str], source: str, tool: Tool) -> Tool:
        """The tool, under a name that no tool of its run has."""
        names = [tool.name, *[way(source, tool) for way in _WAYS]]
        name = next((one for one in names if one not in taken), names[-1])
        return tool if name == tool.name else self._get_renamed_tool(tool, name)

    async def _gather_tools(
        self, cancel: CancelToken | None, seconds: float | None
    ) -> dict[object, tuple[Sequence[Tool], str | None]]:
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = loop.create_future()

        def hear(what: str, _reason: str) -> None:
            if what == "cancel":
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(wake_waiter, stopped)

        tasks = {
            origin: loop.create_task(_list_tools(supply), name="glidepath-source", context=contextvars.Context())
            for origin, supply in self._supplies.items()
        }
        if cancel is not None:
            cancel.subscribe(hear)
        try:
            waiting: set[asyncio.Future[Any]] = {asyncio.gather(*tasks.values(), return_exceptions=True), stopped}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if cancel is not None:
                cancel.unsubscribe(hear)
            for task in tasks.values():
                task.cancel()
        late = "had not answered when the run was stopped" if stopped.done() else "did not answer in the run's time"
        return {
            origin: task.result() if task.done() and not task.cancelled() else ((), f"{self._names[origin]!r} {late}")
            for origin, task in tasks.items()
        }

    def _rename_apart(self, chosen: Sequence[tuple[str, Tool]]) -> list[Tool]:
        """The tools, each under its own name, whichever source comes first; none is left out.

        A name that two sources have, or that a tool of the agent has, gets the source's name in front in each of them:
        no source can get another one's name by coming first, or by having it from the start.
        """
        whose = list({id(tool): (source, tool) for source, tool in chosen}.values())  # a source may be named twice
        names = [tool.name for _, tool in whose]
        ways = [0] * len(whose)
        while True:
            often = Counter(names)
            clashing = [place for place, name in enumerate(names) if often[name] > 1 or name in self._taken]
            moved = [place for place in clashing if ways[place] < len(_WAYS)]
            first = min((ways[place] for place in moved), default=0)
            if not moved:
                break
            for place in moved:
                if ways[place] == first:  # one that has the name by its own choice gives way first
                    names[place] = _WAYS[first](*whose[place])
                    ways[place] += 1
        return [
            tool if tool.name == name else self._get_renamed_tool(tool, name)
            for (_, tool), name in zip(whose, names, strict=True)
        ]

    def _get_renamed_tool(self, tool: Tool, name: str) -> Tool:
        """The same object for every run, so that its breaker lasts."""
        known = self._renamed.get((id(tool), name))
        if known is None or known[0] is not tool:
            known = self._renamed[id(tool), name] = (tool, tool.renamed(name))
        return known[1]

    async def close(self) -> tuple[AbandonedWork, ...]:
        """Close every source; those that take too long are abandoned and listed."""
        supplies, self._supplies = self._supplies, {}
        for task_of_growth in self._growing:
            task_of_growth.cancel()
        loop = asyncio.get_running_loop()
        tasks = {}
        for origin, supply in supplies.items():
            task = loop.create_task(_close_source(supply), name="glidepath-source-close", context=contextvars.Context())
            tasks[task] = self._names[origin]
        if not tasks:
            return ()
        _, slow = await asyncio.wait(tasks, timeout=PATIENCE)
        reason = "it did not close within a second after the run's end"
        return tuple(AbandonedWork(call_id="", tool_name=tasks[task], kind="source", reason=reason) for task in slow)


async def _list_tools(supply: ToolSupply) -> tuple[Sequence[Tool], str | None]:
    """What a supply offers, or why it offers nothing."""
    try:
        tools = await supply.tools()
        return tools if isinstance(tools, tuple) else tuple(tools), None  # a tuple may know more than its tools
    except SourceError as error:
        return (), message_of(error)
    except Exception as error:  # it should have raised a SourceError
        return (), describe_error(error)


async def _close_source(supply: ToolSupply) -> None:
    try:
        await supply.close()
    except Exception as error:
        _log.warning("A source of tools failed to close: %s", describe_error(error))


class SourceConnections:
    """The sources of one agent in each loop it runs in, and the agent with their tools."""

    def __init__(self, sources: Sequence[ToolSource], taken: frozenset[str]) -> None:
        self._sources = tuple(sources)
        self._taken = taken
        self._here: WeakKeyDictionary[asyncio.AbstractEventLoop, Equipment] = WeakKeyDictionary()
        self._known: tuple[tuple[Tool, ...], Any] | None = None

    def share(self) -> SourceConnections:
        """The same open sources, for an agent that differs in other settings."""
        other = SourceConnections(self._sources, self._taken)
        other._here = self._here
        return other

    def enter(self, *, keep: bool = False) -> Equipment:
        """The equipment of the running loop, in use from now on."""
        loop = asyncio.get_running_loop()
        equipment = self._here.get(loop)
        if equipment is None:
            equipment = self._here[loop] = Equipment(self._sources, self._taken)
        equipment.users += 1
        if keep:
            equipment.keep(more=1)
        return equipment

    async def release(self, equipment: Equipment, *, kept: bool = False) -> tuple[AbandonedWork, ...]:
        """One user less; the last one closes it. Returns what did not close."""
        equipment.users -= 1
        if kept:
            equipment.keep(more=-1)
        return () if equipment.users else await equipment.close()

    async def exit_kept(self) -> tuple[AbandonedWork, ...]:
        """The end of an `async with`."""
        return await self.release(self._here[asyncio.get_running_loop()], kept=True)

    def equip(self, tools: Sequence[Tool], make: Callable[[tuple[Tool, ...]], Any]) -> Any:
        """The agent that `make` builds from these tools; cached per set of tools."""
        wanted = tuple(tools)
        known = self._known
        if known is not None and len(known[0]) == len(wanted) and all(map(operator.is_, known[0], wanted)):
            return known[1]
        made = make(wanted)
        self._known = (wanted, made)
        return made
