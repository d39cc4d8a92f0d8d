"""What a tool can learn about its call, and ask of its run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock
from types import SimpleNamespace
from typing import Any, Generic, Protocol

from glidepath.spi import Remaining
from glidepath.tools.asking import CallsMade, Continuation
from glidepath.values import DepsT, RunResult, ToolError

MOST_UNTOLD = 256  # reports of one call from another thread that may wait for the loop
_UNTOLD = Lock()  # several threads of a tool may report at once, and every report is told or counted


class ToolHost(Protocol):
    """The runner of tools, to which a `ToolContext` passes everything on.

    Contract: all methods but `spawn` are cheap and synchronous. `report` and `spawn` are called on the run's own
    loop; `remaining`, `near_budget` and `is_cancelled` may be called from any thread and only read.
    """

    @property
    def user(self) -> str | None:
        """The user the run is for."""

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """What the application says about the run."""

    @property
    def deps(self) -> Any:
        """What the application passed to the run for its tools."""

    def remaining(self) -> Remaining:
        """What is left of each limit of the run."""

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up."""

    def is_cancelled(self) -> bool:
        """True when the run is being stopped."""

    def report(self, call_id: str, tool_name: str, progress: object, dropped: int = 0) -> None:
        """A running tool reports progress; `dropped` is how many earlier reports of this call were dropped."""

    async def transact(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do the work of a transactional tool, whose result is committed with it."""

    async def spawn(self, agent: object, prompt: object, limits: object, call_id: str) -> RunResult:
        """Run a child agent on the run's budget."""


class ToolContext(Generic[DepsT]):
    """One call, as its tool sees it: who is calling, what is left, and how to report or spawn.

    A tool gets it by having a parameter annotated `ToolContext`, or `ToolContext[Shop]` when it needs the `Shop` that
    was passed as `run(deps=...)`. `idempotency_key` stays the same when the call is
    repeated after a crash: pass it on to services that can recognize a repetition.
    """

    __slots__ = (
        "_asked",
        "_dropped",
        "_host",
        "_loop",
        "_untold",
        "abandoned",
        "call_id",
        "calls_made",
        "continuation",
        "idempotency_key",
        "tool_name",
    )

    abandoned: str | None
    """Internal: set when the call was abandoned while its work still runs."""

    continuation: Continuation | None
    """Set after the tool raised `NeedsInput` in this call and a person has answered."""

    calls_made: CallsMade | None
    """Set after the tool raised `NeedsCalls` in this call and they were made."""

    def __init__(self, host: ToolHost, call_id: str, tool_name: str, idempotency_key: str) -> None:
        self._host = host
        self._loop = _running_loop()
        self._untold: deque[Any] | None = None
        self.abandoned = None
        self._asked = False
        self._dropped = 0
        self.continuation = None
        self.calls_made = None
        self.call_id = call_id
        self.tool_name = tool_name
        self.idempotency_key = idempotency_key

    @classmethod
    def for_testing(
        cls,
        *,
        call_id: str = "call_1",
        tool_name: str = "tool",
        idempotency_key: str = "key_1",
        remaining: Remaining | None = None,
        near_budget: bool = False,
        cancelled: bool = False,
        spawn: Callable[[Any, Any, Any], Awaitable[RunResult]] | None = None,
        user: str | None = None,
        metadata: Mapping[str, str] | None = None,
        deps: object = None,
    ) -> RecordingContext:
        """A context without a run, for unit tests: `.reports` lists what was reported.

        `spawn(agent, prompt, limits)` answers `context.spawn`; without it, spawning is a `ToolError`.
        """
        reports: list[Any] = []

        async def spawn_child(agent: object, prompt: object, limits: object, _call_id: str) -> RunResult:
            if spawn is None:
                raise ToolError("this context has no run to spawn from: give for_testing(spawn=...) a function")
            return await spawn(agent, prompt, limits)

        host: Any = SimpleNamespace(
            user=user,
            metadata=metadata,
            deps=deps,
            remaining=lambda: remaining or Remaining(),
            near_budget=lambda: near_budget,
            is_cancelled=lambda: cancelled,
            report=lambda _id, _name, progress, _dropped=0: reports.append(progress),
            spawn=spawn_child,
        )
        context = RecordingContext(host, call_id, tool_name, idempotency_key)
        context.reports = reports
        return context

    @property
    def cancelled(self) -> bool:
        """True once the run is being stopped or this call was abandoned: finish as soon as you can."""
        return self.abandoned is not None or self._host.is_cancelled()

    @property
    def user(self) -> str | None:
        """The user the run is for, as passed to `run(user=...)`; a child has its parent's."""
        return self._host.user

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the application says about the run, as passed to `run(metadata=...)`; a child has its parent's, too."""
        return self._host.metadata or {}

    @property
    def deps(self) -> DepsT:
        """What was passed as `run(deps=...)`, or made by the agent's `deps_factory`; a child has its parent's."""
        return self._host.deps  # type: ignore[no-any-return]

    def remaining(self) -> Remaining:
        """What is left of each limit of the run, not counting the landing reserve."""
        return self._host.remaining()

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up."""
        return self._host.near_budget()

    def report(self, progress: object) -> None:
        """Report progress; safe from any thread, never blocks, ignored once the call was abandoned.

        Reports that come faster than they can be shown are dropped, oldest first; the next event says how many.
        """
        if self.abandoned is not None:
            return
        if self._loop is None or self._loop is _running_loop():
            self._host.report(self.call_id, self.tool_name, progress)
            return
        with _UNTOLD:
            if self._untold is None:
                self._untold = deque(maxlen=MOST_UNTOLD)
            self._dropped += len(self._untold) == MOST_UNTOLD
            self._untold.append(progress)
            if self._asked:
                return  # a callback is already scheduled: it delivers everything that waits
            self._asked = True
        try:
            self._loop.call_soon_threadsafe(self._deliver_reports)
        except RuntimeError:  # the loop is closed: nobody is listening
            return

    def _deliver_reports(self) -> None:
        """On the loop: deliver the reports of other threads. The flag goes first, so that no report is missed."""
        self._asked = False
        untold: Any = self._untold
        for _ in range(len(untold)):
            if self.abandoned is not None:
                return
            with _UNTOLD:
                progress, dropped, self._dropped = untold.popleft(), self._dropped, 0
            self._host.report(self.call_id, self.tool_name, progress, *([dropped] if dropped else ()))
        if untold:
            self._asked = True
            self._loop.call_soon(self._deliver_reports)  # type: ignore[union-attr]

    async def transact(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """For the runtime: do the work of a transactional tool, whose result is committed with it."""
        return await self._host.transact(work)

    async def spawn(self, agent: object, prompt: object, limits: object = None) -> RunResult:
        """Run a child agent that spends from this run's budget; await it on the run's own loop."""
        if self._loop is not None and self._loop is not _running_loop():
            raise ToolError("spawn() must be awaited on the run's own loop: make the tool an inline `async def`")
        return await self._host.spawn(agent, prompt, limits, self.call_id)


class RecordingContext(ToolContext):
    """A `ToolContext` without a run, made by `ToolContext.for_testing`: `reports` lists what was reported."""

    __slots__ = ("reports",)

    reports: list[Any]
    """What was reported so far, oldest first."""


def _running_loop() -> asyncio.AbstractEventLoop | None:
    return asyncio._get_running_loop()  # noqa: SLF001 - documented; the public one raises, which costs four times as much
