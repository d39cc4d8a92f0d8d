"""What a tool may ask of its run, child agents above all."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath.errors import ToolError
from glidepath.events import Event, ToolProgress
from glidepath.outcome import AbandonedWork
from glidepath.run import HIGH_WATER, CancelToken
from glidepath.tools.text import trim

if TYPE_CHECKING:
    from glidepath.outcome import RunResult
    from glidepath.run import Run
    from glidepath.spi import Remaining

__all__ = ["Host"]

MOST_REPORTED = 8_000  # characters of one report
PATIENCE = 1.5  # seconds for a child to land after its tool call has ended: it lets go of its own work after one


class Host:
    """The run, as its tools see it."""

    __slots__ = ("dropped", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.dropped = 0  # reports of this call

    def remaining(self) -> Remaining:
        """What is left of each limit of the run."""
        return self.run.remaining()

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up."""
        return self.run.near_budget()

    def is_cancelled(self) -> bool:
        """True when the run is being stopped, or has ended."""
        return self.run.watch.interrupt is not None or self.run.result is not None

    def report(self, call_id: str, tool_name: str, progress: Any, dropped: int = 0) -> None:
        """A running tool has something to say."""
        run = self.run
        self.dropped += dropped
        if run.result is None:
            if run.outbox is not None and len(run.outbox) >= HIGH_WATER:
                self.dropped += _make_room(run.outbox, call_id)
            run.emit(ToolProgress, call_id, tool_name, _brief(progress), self.dropped)
            if run.ring is not None:
                run.ring()

    async def spawn(self, agent: Any, prompt: Any, limits: Any, call_id: str) -> RunResult:
        """Run a child on this run's budget; it is stopped when its tool call ends before it."""
        run = self.run
        fly = getattr(agent, "fly_child", None)
        if fly is None:
            raise ToolError(f"spawn() takes an Agent, not {type(agent).__name__}")
        if run.result is not None:
            raise ToolError("the run has ended: nothing can be spawned any more")
        if run.watch.halted():
            raise ToolError("the run is being stopped: nothing can be spawned any more")
        token = CancelToken()
        place = f"{call_id}.{len(run.spawned.get(call_id, ())) + 1}"
        flight = partial(fly, prompt, parent=run, limits=limits, cancel=token, place=place)
        child = asyncio.get_running_loop().create_task(
            _sheltered(flight), name="glidepath-child"
        )  # a task of its own: what interrupts the child must not interrupt this run, and the other way round
        run.spawned = {**run.spawned, call_id: (*run.spawned.get(call_id, ()), (token, child))}
        result, error = await child
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    @staticmethod
    async def recall(run: Run, call_id: str) -> None:
        """The tool call has ended: stop the children it left behind, and wait for them."""
        left = run.spawned.get(call_id, ())
        run.spawned = {other: children for other, children in run.spawned.items() if other != call_id}
        for token, child in left:
            if not child.done():
                token.cancel("the tool call that spawned it has ended")
                await _gone(run, child)
            if not child.done():
                reason = "the tool call that spawned it has ended"
                run.abandoned += (AbandonedWork(call_id=call_id, tool_name="", kind="child", reason=reason),)
            elif not child.cancelled():
                child.exception()  # nobody waits for it any more: what it raised is not to be reported as forgotten


def _make_room(outbox: list[Event], call_id: str) -> int:
    """The consumer is far behind: drop the oldest report of this call that it has not seen. How many were dropped."""
    for place, event in enumerate(outbox):
        if type(event) is ToolProgress and event.call_id == call_id:
            del outbox[place]
            return 1
    return 0


def _brief(progress: Any) -> Any:
    """A report within its size: a long text is cut in the middle."""
    if isinstance(progress, str):
        return trim(progress, MOST_REPORTED)
    if isinstance(progress, bytes | bytearray) and len(progress) > MOST_REPORTED:
        return bytes(progress[:MOST_REPORTED])
    return progress


async def _sheltered(flight: Any) -> tuple[RunResult | None, BaseException | None]:
    """Await a child before it takes off, too: SystemExit or Ctrl-C in a task of ours would end the event loop."""
    try:
        return await flight(), None
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        return None, error


async def _gone(run: Run, child: asyncio.Task[Any]) -> None:
    """Wait until the child has landed, interrupts or not; it lets go of what does not stop within its own patience."""
    watch = run.watch
    until = run.time() + PATIENCE
    while not child.done() and run.time() < until:
        bell: asyncio.Future[None] = watch.loop.create_future()
        ring = partial(_ring, bell)
        child.add_done_callback(ring)
        watch.scope(until - run.time())
        try:
            await watch.wait(bell)
        except asyncio.CancelledError:
            continue  # the time is up, or the run is interrupted, which waits until its children are gone
        finally:
            child.remove_done_callback(ring)
            watch.calm()


def _ring(bell: asyncio.Future[None], _: object) -> None:
    if not bell.done():
        bell.set_result(None)
