"""What a run asks of the keeper of its journal, and of anything that can be started inside it: one protocol each."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from glidepath.run.cancel import CancelToken
from glidepath.run.ledger import Reservation
from glidepath.values import Message, RunResult, ToolCall, ToolResultMessage

if TYPE_CHECKING:
    from glidepath.run.state import Run
    from glidepath.spi import Lease, SessionStore


class BookedCall(Protocol):
    """A model call that is paid for, as a journal sees it."""

    reservation: Reservation
    input: int


class JournaledCall(Protocol):
    """A tool call, as a journal sees it."""

    call: ToolCall

    def bare_message(self, run: Run) -> ToolResultMessage:
        """Its result, before any hook has seen it."""
        ...


class RunJournal(Protocol):
    """Writes what happens to a run, before it happens where it cannot be undone.

    Contract: a method returns when the record is written, and raises `Touchdown` when it cannot be: then the run comes
    down and what was about to happen does not. It never changes the run but through the owners of its parts.
    """

    store: SessionStore
    lease: Lease
    durability: str
    time: float
    """When the last commit was made, in seconds since the epoch: a replay has the same."""
    pins: dict[str, Any]
    """What the tools of the run's servers looked like when it began."""

    async def begin(self) -> None:
        """The run begins, or continues: its first commit, with the task in it."""
        ...

    def record_model_call(self, booking: BookedCall) -> Awaitable[None] | None:
        """A model call is about to start. None when that is written; otherwise it is when this was awaited."""
        ...

    async def record_growth(self, booking: BookedCall) -> bool:
        """A reply has outgrown its reservation, which is larger now; False when that could not be written."""
        ...

    def record_starts(
        self, jobs: Sequence[JournaledCall], queued: Sequence[JournaledCall] = (), done: Sequence[JournaledCall] = ()
    ) -> Awaitable[None] | None:
        """These calls are about to start.

        `queued` will later, `done` have just got their results. As `record_model_call`.
        """
        ...

    def drop_result(self, call_id: str) -> None:
        """This result does not join the transcript: a program has it."""
        ...

    def expect_earlier(self) -> None:
        """Results may join the transcript before some that are in the journal."""
        ...

    async def record_child(self, call_id: str, session_id: str, agent: str) -> None:
        """A call is about to start a child with its own journal."""
        ...

    async def begin_transaction(self, seconds: float | None) -> Any:
        """A transaction of the store's own database; raises `ToolError` when there is none."""
        ...

    async def land(self, message: ToolResultMessage, transaction: Any) -> None:
        """Write a call's result in the transaction that has its effect: both are there, or neither."""
        ...

    async def end(self, result: RunResult) -> RunResult:
        """The run is over: its last commit, and the result as it stands then."""
        ...


@runtime_checkable
class Spawner(Protocol):
    """What can run as a child of a run: an `Agent`. The one call from a tool call up to the agents."""

    def run_child(
        self, prompt: str | Message | Sequence[Message], *, parent: Run, cancel: CancelToken, **options: Any
    ) -> Coroutine[Any, Any, RunResult]:
        """Run as a child of `parent`: on its budget, within its time, under its guards."""
        ...
