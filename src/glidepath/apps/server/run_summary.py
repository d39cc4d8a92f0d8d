"""The card of a run, folded from its events: state, phase, gauges, what it does now. Nothing here is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from glidepath import _wire
from glidepath.apps.server.run_series import Figures, Series
from glidepath.apps.server.shapes import CauseShape, Gauge, PendingItem, RunCard, UsageShape
from glidepath.run import escape_invisible, question_rows
from glidepath.values import (
    AgentState,
    ApprovalRequested,
    AttemptDiscarded,
    BudgetReserved,
    BudgetSettled,
    ChildEnded,
    ChildStarted,
    ConstraintViolated,
    Event,
    GuardTripped,
    LandingStarted,
    LoopOutcome,
    MessageAdded,
    NoticeSent,
    RetryScheduled,
    RunEnded,
    RunResult,
    RunStarted,
    StreamChunk,
    StreamStarted,
    ToolEnded,
    ToolStarted,
    TurnStarted,
    Usage,
    dollars,
    pico_of,
    pluralize,
)

__all__ = ["FlightCard", "call_line", "origin_of", "pending_items", "state_of"]

_TASK, _LINE, _KEPT = 200, 120, 200
_RESUMABLE = frozenset({"wrapped_up", "cut_off", "failed", "cancelled", "paused"})


def call_line(tool: str, arguments: Mapping[str, Any]) -> str:
    """A call in one short line."""
    inside = ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())
    line = f"{tool}({inside})"
    return line if len(line) <= _LINE else f"{line[: _LINE - 3]}..."


def _short(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else _wire.encode(value).decode()
    except Exception:
        text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."  # noqa: PLR2004 - a part of a line


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 3]}..."


def state_of(outcome: str | None) -> str:
    """The state of a run that no process runs, by the outcome that its journal has."""
    if outcome is None:
        return "lost"
    return "paused" if outcome == LoopOutcome.PAUSED.value else "ended"


def origin_of(result: RunResult) -> str | None:
    """Whether the text is the model's or the runtime's, where the result says so."""
    origin = getattr(result, "text_origin", None)
    return None if origin is None else str(getattr(origin, "value", origin))


def pending_items(
    result: RunResult, agent: str, asked: Mapping[str, float], *, task: str = "", title: str = ""
) -> tuple[PendingItem, ...]:
    """The calls that a paused run waits with."""
    return tuple(
        PendingItem(
            id=one.call.id,
            kind="question" if one.form is not None else "approval",
            run_id=result.run_id,
            session_id=result.session_id,
            task=task,
            title=title,
            agent=agent,
            tool=one.call.name,
            arguments=one.call.arguments,
            reason=one.reason,
            asked=asked.get(one.call.id, 0.0),
            message=escape_invisible(one.reason or call_line(one.call.name, one.call.arguments)),
            form=one.form,
            tool_shown=escape_invisible(one.call.name),
            shown=tuple(question_rows(one, who=agent)),
            digest=one.digest,
        )
        for one in result.pending
    )


class FlightCard:
    """Listens to the events of one run and knows its state."""

    def __init__(self, run_id: str, session_id: str, agent: str = "", parent: str | None = None) -> None:
        self.run_id, self.session_id, self.agent, self.parent = run_id, session_id, agent, parent
        self.task = self.model = self.last = ""
        self.phase = "cruise"
        self.turn = self.tool_calls = self.sequence = 0
        self.usage = Usage()
        self.money: int | None = None
        self.limits: dict[str, float] = {}
        self.started = self.updated = self.began = 0.0
        self.ended: float | None = None
        self.result: RunResult | None = None
        self.flying = False
        self.guard: dict[str, Any] | None = None
        self.guards: list[dict[str, Any]] = []
        self.verdicts: list[dict[str, Any]] = []
        self.notices: list[dict[str, Any]] = []
        self.asked: dict[str, float] = {}
        self.children: dict[str, str] = {}
        self.landed: dict[str, tuple[float, Figures]] = {}
        """The children that have ended, whose use is in its own: when, and what that was."""
        self.series = Series()
        """What it has used itself, over time."""
        self.who: str | None = None
        """Who started it."""
        self._parts: list[str] = []
        self._writing = False
        self._reserved = (0, 0)
        self._running: dict[str, str] = {}
        self._retries = False

    def take_event(self, event: Event) -> None:
        """Take one event in."""
        self.sequence, self.updated = event.sequence, event.time
        heard = self._heard.get(type(event))
        if heard is not None:
            heard(self, event)

    # --- what happened ----------------------------------------------------------------------------------------

    def _on_run_started(self, event: RunStarted) -> None:
        self.session_id, self.agent, self.model = event.session_id, event.agent_name, event.model
        self.started, self.began = self.started or event.time, event.time
        self.limits = dict(event.limits or {})
        self.flying, self.ended, self.result, self.phase = True, None, None, "cruise"
        self._running, self._retries = {}, False
        self.last = "resumed" if event.resumed else "started"

    def _on_turn_started(self, event: TurnStarted) -> None:
        self.series.add(event.time, turns=1)
        self.turn, self._writing = event.iteration, False

    def _on_message(self, event: MessageAdded) -> None:
        message: Any = event.message
        if message.role == "assistant":
            self._writing = False
        if message.role == "user" and not self.task and not getattr(message, "internal", False):
            self.task = message.text[:_TASK]

    def _stream(self, event: StreamStarted) -> None:
        if event.landing:
            self.phase = "landing"
        self._parts, self._retries, self._writing = [], False, True
        self.last = "landing: writing the final answer" if event.landing else "thinking"

    def _on_chunk(self, event: StreamChunk) -> None:
        if event.text and not event.thinking:
            self._parts.append(event.text)
            self.last = "writing"

    def _on_discarded(self, event: AttemptDiscarded) -> None:
        self._parts, self._writing, self.last = [], False, _line(f"trying again: {event.reason}")

    def _reserve(self, event: BudgetReserved) -> None:
        self._reserved = (event.tokens, event.picodollars or 0)

    def _settle(self, event: BudgetSettled) -> None:
        self._reserved = (0, 0)
        used = event.usage
        self.usage = self.usage + used
        self.series.add(event.time, 0, used.input, used.output, event.picodollars or 0)
        if event.picodollars is not None:
            self.money = (self.money or 0) + event.picodollars

    def _on_tool(self, event: ToolStarted) -> None:
        self.tool_calls += 1
        self.series.add(event.time, calls=1)
        self._running[event.call_id] = event.tool_name
        self.last = call_line(event.tool_name, event.arguments)

    def _on_tool_ended(self, event: ToolEnded) -> None:
        self._running.pop(event.call_id, None)
        if event.result.is_error:
            self.last = _line(f"{event.tool_name} failed: {event.result.text}")

    def _on_approval(self, event: ApprovalRequested) -> None:
        self.asked[event.call_id] = event.time
        self.last = _line(f"waits for a decision: {call_line(event.tool_name, event.arguments)}")

    def _on_violated(self, event: ConstraintViolated) -> None:
        self._keep(
            self.verdicts,
            event,
            constraint=event.constraint,
            action=event.action.name.lower(),
            reason=event.reason,
            skipped=event.skipped,
        )

    def _on_notice(self, event: NoticeSent) -> None:
        if event.reason == "wind_down" and self.phase == "cruise":
            self.phase = "notice"
        self._keep(self.notices, event, reason=event.reason, source=event.source, text=event.text)

    def _on_landing(self, event: LandingStarted) -> None:
        self.phase = "landing"
        self.last = _line(f"landing: {event.reason}")

    def _on_tripped(self, event: GuardTripped) -> None:
        said = {
            "guard": event.guard,
            "reason": event.reason,
            "action": event.action,
            "tools": list(event.tools),
            "period": event.period,
        }
        self._keep(self.guards, event, **said)
        if event.period is None and self.guard is not None and self.guard["guard"] == event.guard:
            said["period"] = self.guard["period"]  # it lands for the circle that it saw before
        self.guard = said
        self.last = _line(f"{event.guard}: {event.reason}")

    def _retry(self, event: RetryScheduled) -> None:
        self._retries = True
        self.last = _line(f"retry {event.attempt} in {event.delay:.0f} s: {event.error}")

    def _on_child(self, event: ChildStarted) -> None:
        self.children[event.child_id] = event.agent_name
        self.last = f"started {event.agent_name}"

    def _on_child_ended(self, event: ChildEnded) -> None:
        money = 0 if event.cost is None else pico_of(event.cost)
        self.landed[event.child_id] = event.time, (0, event.usage.input, event.usage.output, money, 0)
        self.usage = self.usage + event.usage
        if event.cost is not None:
            self.money = (self.money or 0) + pico_of(event.cost)

    def _on_run_ended(self, event: RunEnded) -> None:
        result = event.result
        self.flying, self.ended, self.result, self.phase = False, event.time, result, "ground"
        self._reserved, self._writing = (0, 0), False
        self.usage, self.turn, self._parts = result.usage, result.iterations, []
        self.tool_calls = max(self.tool_calls, result.tool_calls)
        if result.cost is not None:
            self.money = pico_of(result.cost)
        if result.outcome is LoopOutcome.PAUSED:
            self.last = f"waiting for {pluralize(len(result.pending), 'decision')}"
        else:
            self.last = _line(result.text or (result.cause.reason if result.cause else result.outcome.value))

    def _keep(self, kept: list[dict[str, Any]], event: Event, **said: Any) -> None:
        kept.append({"time": event.time, "turn": self.turn, "sequence": event.sequence, **said})
        if len(kept) > _KEPT:
            del kept[0]

    # --- its state --------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """running, paused or ended, as far as the events tell."""
        if self.result is None:
            return "running" if self.flying else "lost"
        return state_of(self.result.outcome.value)

    @property
    def agent_state(self) -> AgentState:
        """What a stream of the run shows: whether it waits for a tool, or to try a failed call again."""
        if self.result is not None:
            return self.result.state
        if self._retries:
            return AgentState.RECOVERING
        return AgentState.WAITING_FOR_TOOL if self._running else AgentState.RUNNING

    @property
    def text(self) -> str:
        """The answer; while it runs, what the model has written so far."""
        return "".join(self._parts) if self.result is None else self.result.text

    @property
    def reply(self) -> str | None:
        """What the model has written of the reply that it is at; None between two replies."""
        return "".join(self._parts) if self._writing else None

    @property
    def cost(self) -> str | None:
        """Dollars, as text."""
        if self.result is not None:
            return None if self.result.cost is None else f"{self.result.cost:f}"
        return None if self.money is None else f"{dollars(self.money):f}"

    def gauges(self, now: float, meter: Any = None, below: Sequence[FlightCard] = ()) -> tuple[Gauge, ...]:
        """One for each limit, and for tokens, money and turns in any case; `meter` knows reserves while it runs.

        A limit counts the whole tree: `below` are the children, and theirs, of a run that has no meter here.
        """
        limits, found = self.limits, []
        tokens, money = self._reserved
        keep = (0, 0) if meter is None else (meter.held_tokens, meter.held_money)
        turns, calls, used, spent = self.turn, self.tool_calls, self.usage.total, self.money
        if self.result is not None:  # limits count the children, and so does the result
            turns, calls = self.result.all_turns, max(calls, self.result.all_tool_calls)
        elif meter is None:  # its process is gone, or another one has it: what its children have told counts
            turns, calls = turns + sum(one.turn for one in below), calls + sum(one.tool_calls for one in below)
            left = [one for one in below if one.run_id not in self.landed]
            used += sum(one.usage.total for one in left)
            prices = [one.money for one in left if one.money is not None]
            spent = (spent or 0) + sum(prices) if prices else spent
        if meter is not None:  # it knows what its children use, too
            tokens, money = meter.reserved_tokens, meter.reserved_money
            turns, calls = meter.turns, max(calls, meter.tool_calls)
            used, spent = meter.tokens, meter.money if spent is not None else None
        found.append(Gauge(kind="turns", used=turns, limit=limits.get("turns")))
        found.append(
            Gauge(
                kind="tokens",
                unit="tokens",
                used=used,
                reserved=tokens,
                reserve=keep[0],
                limit=limits.get("tokens"),
            )
        )
        most = limits.get("picodollars")
        if spent is not None or most is not None:
            found.append(
                Gauge(
                    kind="cost",
                    unit="USD",
                    used=(spent or 0) / 1e12,
                    reserved=money / 1e12,
                    reserve=keep[1] / 1e12,
                    limit=None if most is None else most / 1e12,
                )
            )
        if "seconds" in limits:
            elapsed = max(0.0, (self.ended or now) - self.started) if self.started else 0.0
            if self.result is not None:
                elapsed = self.result.elapsed
            found.append(Gauge(kind="seconds", unit="s", used=round(elapsed, 3), limit=limits["seconds"]))
        if "tool_calls" in limits:
            found.append(Gauge(kind="tool_calls", used=calls, limit=limits["tool_calls"]))
        return tuple(found)

    def pending(self, title: str = "") -> tuple[PendingItem, ...]:
        """The calls that wait."""
        if self.result is None:
            return ()
        return pending_items(self.result, self.agent, self.asked, task=self.task, title=title)

    def card(self, now: float, meter: Any = None, below: Sequence[FlightCard] = (), **known: Any) -> RunCard:
        """The card; `known` is what the events do not tell: title, tags, owner, state."""
        result = self.result
        waiting = 0 if result is None else len(result.pending)
        cause = None if result is None or result.cause is None else result.cause
        resumable = self.state == "lost" or (result is not None and result.outcome.value in _RESUMABLE)
        return RunCard(
            run_id=self.run_id,
            session_id=self.session_id,
            agent=self.agent,
            task=self.task,
            agent_state=self.agent_state.value,
            outcome=None if result is None else result.outcome.value,
            cause=None if cause is None else CauseShape(source=cause.source, reason=cause.reason),
            phase=self.phase,
            turn=self.turn,
            usage=UsageShape(input=self.usage.input, output=self.usage.output, total=self.usage.total),
            cost=self.cost,
            started=self.started,
            updated=self.updated,
            ended=self.ended,
            pending=waiting,
            pending_count=waiting,
            children=len(self.children),
            parent=self.parent,
            gauges=self.gauges(now, meter, below),
            guard=self.guard,
            last=self.last,
            sequence=self.sequence,
            listed=self.ended or self.began,
            **{"state": self.state, "who": self.who, "resumable": resumable, **known},
        )

    _heard: ClassVar[dict[type, Callable[..., None]]] = {
        RunStarted: _on_run_started,
        TurnStarted: _on_turn_started,
        MessageAdded: _on_message,
        StreamStarted: _stream,
        StreamChunk: _on_chunk,
        AttemptDiscarded: _on_discarded,
        BudgetReserved: _reserve,
        BudgetSettled: _settle,
        ToolStarted: _on_tool,
        ToolEnded: _on_tool_ended,
        ApprovalRequested: _on_approval,
        ConstraintViolated: _on_violated,
        NoticeSent: _on_notice,
        LandingStarted: _on_landing,
        GuardTripped: _on_tripped,
        RetryScheduled: _retry,
        ChildStarted: _on_child,
        ChildEnded: _on_child_ended,
        RunEnded: _on_run_ended,
    }
