"""A conversation: its transcript, its totals, and the state that guards and applications keep with it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Protocol

from glidepath._wire import Struct, replace
from glidepath.run import LONG, Run, TranscriptStats, usage_since
from glidepath.sessions.session_ids import is_keepable
from glidepath.values import (
    EXACT,
    AgentState,
    ConfigurationError,
    LoopOutcome,
    Message,
    RunResult,
    Usage,
    codec,
    pluralize,
)

_MAX_ID = 200


class SessionLimits(Protocol):
    """What all runs of a session may use together: a `Limits`."""

    @property
    def max_tokens(self) -> int | None:
        """Tokens, input and output."""
        ...

    @property
    def max_cost(self) -> Decimal | str | float | None:
        """Dollars."""
        ...


class Totals(Struct):
    """What all runs of a session have used together. `turns` and `all_tool_calls` include those of children."""

    runs: int = 0
    iterations: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost: Decimal | None = None
    turns: int = 0
    all_tool_calls: int = 0


def check_session_id(name: object) -> str:
    """This id; raises `ConfigurationError` if it is not valid in every store."""
    if not isinstance(name, str) or not name.strip() or len(name) > _MAX_ID:
        raise ConfigurationError(
            f"session id must be a non-empty str of at most {_MAX_ID} characters, not {name!r:.80}"
        )
    if not is_keepable(name):
        what = "session id must be valid Unicode, without lone surrogates and NUL characters"
        raise ConfigurationError(f"{what}, not {name!r:.80}")
    return name


def check_messages(messages: object) -> list[Message]:
    """A list of these messages; raises `ConfigurationError` for malformed ones. Messages are built unchecked."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise ConfigurationError(f"session messages must be messages, not {messages!r:.100}")
    found = list(messages)
    for message in found:
        if not isinstance(message, Message):
            raise ConfigurationError(f"session messages must be messages of glidepath.messages, not {message!r:.100}")
        try:
            codec.decode(codec.encode(message))
        except Exception as error:
            raise ConfigurationError(f"session messages: this {message.role} message cannot be kept: {error}") from None
    return found


class Session:
    """One conversation, in memory. Pass it to several runs and each continues where the last one ended.

    One run at a time: a second run in a session that is in flight is a `ConfigurationError`.
    """

    __slots__ = ("_state", "flight", "id", "last", "limits", "messages", "metadata", "survey", "totals", "version")

    def __init__(
        self,
        id: str | None = None,  # noqa: A002 - what it is called everywhere
        *,
        messages: Iterable[Message] = (),
        metadata: dict[str, Any] | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        if id is not None:
            check_session_id(id)
        if metadata is not None and not isinstance(metadata, dict):
            raise ConfigurationError(f"session metadata must be a dict, not {type(metadata).__name__}")
        if limits is not None and not hasattr(limits, "max_tokens"):
            raise ConfigurationError(
                f"session limits must be a Limits such as Limits(max_iterations=10), not {type(limits).__name__}"
            )
        self.id = id or f"session_{os.urandom(8).hex()}"
        self._state = AgentState.IDLE
        self.messages: list[Message] = check_messages(messages)
        self.totals = Totals()
        self.metadata: dict[str, Any] = {} if metadata is None else metadata
        self.version = 0
        self.flight: Run | None = None
        """The run in flight."""
        self.survey: TranscriptStats | None = None
        """What runs have computed about its messages, if there are many."""
        self.limits = limits
        """What the whole conversation may use: tokens, money and tool calls of all its runs together."""
        self.last: RunResult | None = None
        """The last run, which `Agent.resume` continues."""

    @property
    def in_flight(self) -> bool:
        """True while a run uses this session."""
        return self.flight is not None

    @property
    def state(self) -> AgentState:
        """The state of the current run, or how the last one ended."""
        return self._state if self.flight is None else self.flight.state

    @state.setter
    def state(self, state: AgentState) -> None:
        self._state = state

    def close_run(self, result: RunResult) -> None:
        """Add a finished run to the totals; for a resumed one, only its last leg."""
        totals = self.totals
        self.version += 1
        self.state = result.state
        if self.last is None and not totals.runs:  # the first: nothing to add to, and nothing to take off
            self.last = result
            totals.runs, totals.usage, totals.cost = 1, result.usage, result.cost
            totals.iterations, totals.turns = result.iterations, result.all_turns
            totals.tool_calls, totals.all_tool_calls = result.tool_calls, result.all_tool_calls
            return
        before = self.last if self.last is not None and self.last.run_id == result.run_id else _NOTHING
        totals.runs += before is _NOTHING
        totals.iterations += result.iterations - before.iterations
        totals.tool_calls += result.tool_calls - before.tool_calls
        totals.turns += result.all_turns - before.all_turns
        totals.all_tool_calls += result.all_tool_calls - before.all_tool_calls
        totals.usage = totals.usage + usage_since(result.usage, before.usage)
        if result.cost is not None:
            totals.cost = EXACT.add(EXACT.subtract(result.cost, before.cost or 0), totals.cost or 0)
        self.last = result

    def __repr__(self) -> str:
        return f"<Session {self.id}: {pluralize(len(self.messages), 'message')}, {pluralize(self.totals.runs, 'run')}>"


_NOTHING = RunResult(run_id="", session_id="", state=AgentState.IDLE, outcome=LoopOutcome.DONE)


def copy_session(session: Session) -> Session:
    """A copy of the conversation without its run. Computed facts about its messages are shared."""
    other = Session(session.id, metadata=dict(session.metadata), limits=session.limits)
    other.messages, other.totals = session.messages.copy(), replace(session.totals)
    other.version, other.last, other.state = session.version, session.last, session.state
    if len(session.messages) >= LONG:
        session.survey = other.survey = session.survey or TranscriptStats()
    return other
