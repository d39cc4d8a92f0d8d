"""What interrupts a run, how foreign code ends by it, and how long a stream may be silent."""

from __future__ import annotations

import asyncio
from enum import Enum, IntEnum
from typing import Any, Protocol

from glidepath._wire import Value
from glidepath.values import Verdict


class Signal(IntEnum):
    """What can interrupt a run, by severity."""

    WINDOW = 1
    DEADLINE = 2
    EMERGENCY = 3
    CANCEL = 4
    TASK = 5


class Interrupt(Value, frozen=True):
    """An interruption of the whole run, and who asked for it. `verdict`: how the run ends by it, where known."""

    signal: Signal
    source: str
    reason: str
    verdict: Verdict | None = None


class LetGo(Exception):  # noqa: N818 - not an error: what happened
    """Foreign code ignored its cancellation and was let go."""


class Why(Enum):
    """Why foreign code did not finish."""

    TIMEOUT = "timeout"
    """Its own time was up."""
    INTERRUPT = "interrupt"
    """The run is being stopped."""
    UNINVITED = "uninvited"
    """It cancelled itself: nobody of ours has asked it to stop."""


class Stopped(Exception):  # noqa: N818 - not an error: what happened
    """Foreign code did not finish. `let_go`: it may still be running."""

    def __init__(self, why: Why, *, let_go: bool = False) -> None:
        super().__init__(why.value)
        self.why = why
        self.let_go = let_go


class Alive(Protocol):
    """A model's reply as it arrives, which the run watches for silence."""

    parts: list[str]
    """The text so far."""

    def progress_mark(self) -> int:
        """Something that changes with every delta, and is 0 before the first."""
        ...

    def pause(self, run: Any) -> None:
        """The run is about to wait for it."""
        ...


class Patience(Value, frozen=True, kw_only=True):
    """How long a stream may be silent, in seconds; None is forever. `grain` is how finely that is measured."""

    first_chunk: float | None
    stall: float | None
    call: float | None
    grain: float


def wake_waiter(bell: asyncio.Future[None], _: object = None) -> None:
    """Wake the waiter, unless that was done before."""
    if not bell.done():
        bell.set_result(None)
