"""Sources of tools that are known only at run time, such as MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from glidepath.tools.definition import Tool
from glidepath.values import UNPROVEN, ConfigurationError, Event, ToolError, experimental


class SourceError(ToolError):
    """A source cannot offer its tools; the message names the source and the fix."""


class SuppliedRun(Protocol):
    """A run that uses tools of a supply, as the supply sees it."""

    def emit(self, kind: type[Event], /, *fields: object) -> None:
        """Emit an event: its kind, then its own fields in order."""


@experimental(reason=UNPROVEN)
class ToolSupply:
    """One open source, in one event loop, shared by all runs of an agent there.

    Contract: `tools` starts what has to be started, within its own time, and returns the same `Tool` objects as
    long as nothing changed. It raises `SourceError` and nothing else; then the run goes without these tools, or fails
    when the source is `required`. It may be called by several runs at once and again after a failure. Cancelling it
    leaves the supply usable. `close` ends everything the supply started and may be called in any state; what it has not
    ended within a second is listed in `RunResult.abandoned`. A tool of a supply never lets an anyio scope or an
    `asyncio.timeout` of its own span the await of a call: the run may move that coroutine to another task.
    """

    kept: bool = False
    """True while an enclosing `async with agent:` keeps it open beyond the end of a run."""
    on_growth: Callable[[], None] | None = None
    """Set by the runtime: to call, in its loop, when it offers tools that it did not offer before."""

    async def tools(self) -> Sequence[Tool]:
        """The tools it offers now; raises `SourceError`."""
        raise NotImplementedError

    def attach(self, run: SuppliedRun) -> None:
        """A run that has these tools begins. News about them is emitted as its events."""

    def pins(self) -> Mapping[str, str]:
        """A digest of every tool it offers, by name, for the journal."""
        return {}

    def detach(self, run: SuppliedRun) -> None:
        """That run has ended."""

    async def close(self) -> None:
        """End everything this supply has started."""


@experimental(reason=UNPROVEN)
class ToolSource:
    """Something that goes in `tools=[...]` and offers tools when a run starts.

    A source is a value: immutable, shared by any number of agents and loops. Subclasses set `name` and implement
    `open`. Sources with the same `origin` share one supply; `choose` says which of its tools this source offers, and
    under which names.

    Contract: what `open` raises is a mistake in the configuration; what the supply raises never reaches the model, and
    costs a run these tools or, when `required`, the run.
    """

    name: str
    required: bool = False
    """True: without it a run fails. False: the run continues without its tools."""

    def open(self) -> ToolSupply:
        """A new supply; it starts nothing before `tools` is awaited."""
        raise NotImplementedError

    @property
    def origin(self) -> object:
        """The key under which sources share a supply; any hashable value."""
        return self

    def choose(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The tools of the supply that this source offers; raises `SourceError` for an unknown name."""
        return tools


def split_tools(items: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[ToolSource, ...]]:
    """The tools and the sources among what was given as tools."""
    sources = tuple(item for item in items if isinstance(item, ToolSource))
    if not sources:
        return tuple(items), ()
    for source in sources:
        name = getattr(source, "name", None)
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"tools: the source {type(source).__name__} needs a non-empty name")
    return tuple(item for item in items if not isinstance(item, ToolSource)), sources
