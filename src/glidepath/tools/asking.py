"""For tools that need something during a call: a person's answer, or calls of other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from glidepath._wire import Record, Value
from glidepath.values import ToolError, ToolResultMessage

if TYPE_CHECKING:
    from glidepath.tools.definition import Tool
    from glidepath.values import RunResult


class NeedsInput(ToolError):  # noqa: N818 - not an error: what the call waits for
    """Raised by a tool that is `asking_back()`: the run pauses, and the call is made again with the person's answer.

    `form` is the JSON Schema of the answer. `state` is what the tool needs to continue, plain text; it is in the
    journal, so that the answer can be given in another process.
    """

    def __init__(self, reason: str, *, form: Mapping[str, Any] | None = None, state: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.form = dict(form or {})
        self.state = state


class NeedsDecisions(NeedsInput):
    """Raised by an agent that was made a tool: its run waits for a person, and continues when the call is made again.

    `reason` is what a model is told where nobody can decide. `child` is the `RunResult`, and `agent` its agent's name.
    """

    def __init__(self, reason: str, child: RunResult[Any], agent: str) -> None:
        super().__init__(reason)
        self.child = child
        self.agent = agent


class Continuation(Value, frozen=True):
    """What a call that asked a person continues with: its own `state` and the person's `answer`."""

    state: str
    answer: Mapping[str, Any]


class NeedsCalls(ToolError):  # noqa: N818 - not an error: what the call waits for
    """Raised by a tool that is `making_calls()`: the runtime makes these calls and invokes the tool again.

    `calls` are names of tools and their arguments; each becomes an ordinary tool call of the run. `state` is what the
    tool needs to continue, plain text; it is in the journal, so that the tool can continue in another process. `notes`
    is what the tool can report already, should it never come back.
    """

    def __init__(
        self, calls: Sequence[tuple[str, Mapping[str, Any]]] = (), *, state: str = "", notes: str = ""
    ) -> None:
        super().__init__("the call waits for other calls")
        self.calls = tuple((name, dict(arguments)) for name, arguments in calls)
        self.state = state
        self.notes = notes


class ProgramSession(Protocol):
    """What a tool keeps open between two steps of one call, such as a process; closed by the runtime."""

    async def close(self) -> None:
        """End it. Called once, however the call ended."""


class CallsMade(Record):
    """What a call that had asked for calls continues with: `ToolContext.continuation`."""

    state: str
    """Its own; empty the first time."""
    results: tuple[ToolResultMessage, ...]
    """One for each call it asked for, in that order."""
    tools: Mapping[str, Tool]
    """The tools that may be called now."""
    landing: str = ""
    """Why no more calls are made, if the run is landing."""
    clock: float = 0.0
    """The run's time when the call began, in seconds since the epoch: the same when the run is replayed."""
    seed: str = ""
    """The seed for randomness: the same when the run is replayed."""
    session: ProgramSession | None = None
    """What the tool left open at its last step; it may put something there."""
