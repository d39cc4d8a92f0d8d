"""What a tool may ask of its run, child agents above all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from glidepath.run import HIGH_WATER, CallScope, CancelToken, launch
from glidepath.tools import trim
from glidepath.values import Event, ToolError, ToolProgress

if TYPE_CHECKING:
    from glidepath.run import PausedChild, Run
    from glidepath.spi import Remaining
    from glidepath.values import RunResult

MOST_REPORTED = 8_000  # characters of one report


class Host:
    """The run, as its tools see it."""

    __slots__ = ("dropped", "paused", "run")
    result = None  # as a place of its children it does not end before the run

    def __init__(self, run: Run, paused: PausedChild | None = None) -> None:
        self.run = run
        self.paused = paused  # the child of this call, which continues
        self.dropped = 0  # reports of this call

    @property
    def user(self) -> str | None:
        """The user the run is for."""
        return self.run.user

    @property
    def deps(self) -> Any:
        """What the application passed to the run."""
        return self.run.terms.deps

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """What the application says about the run."""
        return self.run.metadata

    def remaining(self) -> Remaining:
        """What is left of each limit of the run."""
        return self.run.remaining()

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up."""
        return self.run.meter.near_budget()

    def is_cancelled(self) -> bool:
        """True when the run is being stopped, or has ended."""
        return self.run.watch.interrupt is not None or self.run.result is not None

    def report(self, call_id: str, tool_name: str, progress: object, dropped: int = 0) -> None:
        """A running tool reports progress."""
        run = self.run
        self.dropped += dropped
        if run.result is None:
            if run.voice.outbox is not None and len(run.voice.outbox) >= HIGH_WATER:
                self.dropped += _make_room(run.voice.outbox, call_id)
            run.emit(ToolProgress, call_id, tool_name, _shorten_report(progress), self.dropped)
            if run.work.ring is not None:
                run.work.ring()
            elif run.watch.consumer is not None:  # it may have come from a task beside the run's own
                run.watch.consumer.wake_consumer()

    def mark_unknown(self, call_id: str) -> None:
        """The outcome of this call is unknown: its result and the run's result say so."""
        reply = self.run.turn.reply
        calls = () if reply is None else reply.tool_calls
        self.run.work.mark_unknown([call for call in calls if call.id == call_id])

    async def spawn(self, agent: object, prompt: Any, limits: object, call_id: str) -> RunResult:
        """Run a child on this run's budget; it is stopped when its tool call ends before it."""
        run = self.run
        from glidepath.run import Spawner  # few tools start agents

        if not isinstance(agent, Spawner):
            raise ToolError(f"spawn() takes an Agent, not {type(agent).__name__}")
        if run.result is not None:
            raise ToolError("the run has ended: nothing can be spawned any more")
        if run.watch.is_halted():
            raise ToolError("the run is being stopped: nothing can be spawned any more")

        def begin(token: CancelToken, name: str) -> Any:
            return agent.run_child(prompt, parent=run, limits=limits, cancel=token, place=name, paused=self.paused)

        return await launch(self.place(call_id), begin)  # type: ignore[no-any-return]

    async def transact(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do the work of the current call in a transaction of the run's store, with its result."""
        from glidepath.kernel.tool_calls.transacting import transact  # few tools are transactional

        return await transact(self.run, work)

    def place(self, call_id: str) -> CallScope:
        """The call, as a place where children are started; open as long as the run is."""
        return CallScope(self.run, call_id, self)


def _make_room(outbox: list[Event], call_id: str) -> int:
    """The consumer is far behind: drop the oldest report of this call that it has not seen. How many were dropped."""
    for place, event in enumerate(outbox):
        if type(event) is ToolProgress and event.call_id == call_id:
            del outbox[place]
            return 1
    return 0


def _shorten_report(progress: object) -> Any:
    """A report within its size: a long text is cut in the middle."""
    if isinstance(progress, str):
        return trim(progress, MOST_REPORTED)
    if isinstance(progress, bytes | bytearray) and len(progress) > MOST_REPORTED:
        return bytes(progress[:MOST_REPORTED])
    return progress
