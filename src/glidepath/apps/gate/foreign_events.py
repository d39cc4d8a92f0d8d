"""What happens to a foreign run as the events that our own runs have: for the deck, telemetry and metrics.

One call of an agent is one turn. An agent may have several calls in flight: the events of one are told as they happen,
those of the others together when they are over, so that a listener never sees two calls mixed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.values import (
    AssistantMessage,
    AttemptDiscarded,
    BudgetReserved,
    BudgetSettled,
    ChildEnded,
    ChildStarted,
    ContextShaped,
    Event,
    LandingStarted,
    Message,
    MessageAdded,
    NoticeSent,
    RunEnded,
    RunStarted,
    StreamChunk,
    StreamStarted,
    ToolEnded,
    ToolResultMessage,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    describe_error,
)

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun
    from glidepath.apps.gate.passage import GovernedPassage
    from glidepath.kernel import CallCharge
    from glidepath.values import RunResult

Observer = Callable[[Event], None]
_log = logging.getLogger("glidepath.gate")


class ForeignVoice:
    """Tells the events of one leg of a run to its observers. One that fails is not told any more."""

    def __init__(self, run: ForeignRun, observers: Sequence[Observer]) -> None:
        self._run = run
        self._observers = list(observers)
        self._number = 0
        above = run.parent
        # A span that an observer makes current is so for this run and the children that it starts, and for nobody else.
        outer: Context | None = None if above is None or above.teller is None else above.teller.context
        self.context = copy_context() if outer is None else outer.copy()
        self._calls: dict[GovernedPassage, list[Event] | None] = {}
        """Calls in flight: None for the one that is told as it happens, else what is waiting."""
        self._running: dict[str, tuple[str, float]] = {}
        self._shown: dict[GovernedPassage, int] = {}

    @property
    def is_heard(self) -> bool:
        """True when anybody listens."""
        return bool(self._observers)

    def tell(self, kind: Any, *fields: Any, at: float | None = None) -> None:
        """One event, now."""
        if self._observers:
            self._send(self._make(kind, fields, at))

    def _make(self, kind: Any, fields: tuple[Any, ...], at: float | None) -> Event:
        run = self._run
        above = None if run.parent is None else run.parent.run_id
        event: Event = kind(run.run_id, above, 0, time.time() if at is None else at, *fields)
        return event

    def _send(self, event: Event) -> None:
        self._number += 1
        event = replace(event, sequence=self._number)
        for observer in tuple(self._observers):
            try:
                self.context.run(observer, event)
            except Exception as error:
                _log.error("an observer of foreign runs failed and is not asked any more: %s", describe_error(error))
                self._observers.remove(observer)

    # --- the run --------------------------------------------------------------------------------------------------

    def start(self, *, resumed: bool) -> None:
        """The run begins, or continues."""
        run = self._run
        if not self._observers:
            return
        depth, above = 0, run.parent
        while above is not None:
            depth, above = depth + 1, above.parent
        name = run.who.name if run.who is not None else None
        given = (run.name, run.agent_name, run.model, depth, None, resumed, name, None, run.provider, run.limits())
        self.tell(RunStarted, *given)
        if run.parent is not None and run.parent.teller is not None and not resumed:
            run.parent.teller.tell(ChildStarted, run.run_id, run.agent_name, depth)

    def end(self, result: RunResult) -> None:
        """The run is over."""
        for call_id, (name, began) in list(self._running.items()):
            self._end_tool(call_id, name, began, None)
        self.tell(RunEnded, result)
        above = self._run.parent
        if above is not None and above.teller is not None:
            above.teller.tell(
                ChildEnded,
                result.run_id,
                self._run.agent_name,
                result.state.value,
                result.outcome.value,
                result.usage,
                result.cost,
            )

    # --- the conversation -----------------------------------------------------------------------------------------

    def add_messages(self, messages: Sequence[Message]) -> None:
        """What a request has brought: results of calls, and what a person said."""
        if not self._observers:
            return
        for message in messages:
            if isinstance(message, ToolResultMessage) and message.call_id in self._running:
                name, began = self._running[message.call_id]
                self._end_tool(message.call_id, name, began, message)
            self.tell(MessageAdded, message)
        # The client asks again: whatever it did not bring a result of is over, too.
        for call_id, (name, began) in list(self._running.items()) if messages else ():
            self._end_tool(call_id, name, began, None)

    def _end_tool(self, call_id: str, name: str, began: float, result: ToolResultMessage | None) -> None:
        del self._running[call_id]
        if result is None:
            text = "The program did not send a result."
            result = ToolResultMessage(call_id, name, text, is_error=True, kind="interrupted")
        self.tell(ToolEnded, call_id, name, result, round(time.time() - began, 6))

    def rewrite(self, before: int, messages: Sequence[Message]) -> None:
        """The client has changed its own history."""
        self.tell(ContextShaped, "client", 0, 0, max(0, before - len(messages)))
        self.add_messages(messages[-1:])

    def notify(self, reason: str, text: str) -> None:
        """The model is told something by us."""
        self.tell(NoticeSent, reason, "gate", text)

    # --- calls ----------------------------------------------------------------------------------------------------

    def begin_call(self, passage: GovernedPassage, turn: int) -> None:
        """A call goes out."""
        if not self._observers:
            return
        events = [self._make(TurnStarted, (turn,), None)]
        if passage.landing is not None:
            events.append(
                self._make(LandingStarted, (passage.landing.cause.source, passage.landing.cause.reason), None)
            )
        booking, facts = passage.booking, passage.call.facts
        money = None if booking.price is None else booking.reservation.money
        events.append(self._make(BudgetReserved, (booking.reservation.tokens, money, facts.max_output), None))
        events.append(self._make(StreamStarted, (facts.model, 1, passage.landing is not None), None))
        if any(waiting is None for waiting in self._calls.values()):
            self._calls[passage] = events
            return
        self._calls[passage] = None
        for event in events:
            self._send(event)

    def show_text(self, passage: GovernedPassage) -> None:
        """Tell what the model has written since the last time."""
        if self._calls.get(passage, passage) is not None:
            return
        text, before = passage.reader.text, self._shown.get(passage, 0)
        if len(text) > before:
            self._shown[passage] = len(text)
            self.tell(StreamChunk, text[before:])

    def end_call(self, passage: GovernedPassage, charge: CallCharge | None, reply: AssistantMessage | None) -> None:
        """A call is over."""
        if passage not in self._calls:
            return
        self.show_text(passage)
        self._shown.pop(passage, None)
        waiting = self._calls.pop(passage)
        events = waiting or []
        usage = Usage() if charge is None else charge.usage
        money = None if charge is None or passage.call.price is None else charge.money
        refunded = max(0, passage.booking.reservation.tokens - usage.total)
        implausible = charge is not None and charge.is_implausible
        events.append(self._make(BudgetSettled, (usage, money, refunded, implausible), None))
        if reply is not None:
            events.append(self._make(MessageAdded, (reply,), None))
            events.append(self._make(TurnEnded, (self._run.iterations, reply), None))
        else:
            why = "no_reply" if passage.status < 300 else f"status_{passage.status}"  # noqa: PLR2004 - a success
            events.append(self._make(AttemptDiscarded, (1, why), None))
        for event in events:
            self._send(event)
        for call in () if reply is None else reply.tool_calls:
            self._running[call.id] = (call.name, time.time())
            self.tell(ToolStarted, call.id, call.name, call.arguments)
