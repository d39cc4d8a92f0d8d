"""One run's state: the only mutable object. Everything that changes while a run flies, changes here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import count
from math import inf
from types import MappingProxyType
from typing import Any

from glidepath._wire import Record, replace
from glidepath.events import (
    Event,
    HookFailed,
    MessageAdded,
    NoticeSent,
    RunStarted,
    TurnEnded,
    TurnStarted,
)
from glidepath.ledger import Amount, Meter, Reservation, dollars
from glidepath.messages import (
    AssistantMessage,
    Message,
    StopReason,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    visible,
)
from glidepath.outcome import (
    NOT_CARRIED,
    TRANSITIONS,
    AbandonedWork,
    AgentState,
    Carried,
    ConfigurationChange,
    LoopOutcome,
    PendingCall,
    PerRun,
    Program,
    RunResult,
    Snapshot,
    StopCause,
    ValidationRecord,
)
from glidepath.plugins.lineup import Hooks
from glidepath.plugins.observer import Audience
from glidepath.run.account import Account, breakdown
from glidepath.run.cancel import CancelToken
from glidepath.run.plan import Ending, Plan, Touchdown, Verdict
from glidepath.run.snapshot import Resumption, take_snapshot
from glidepath.run.unseen import NEVER_SENT, sendable
from glidepath.run.watch import Interrupt, Signal, Watch
from glidepath.spi.constraints import Remaining
from glidepath.spi.guards import StopGuard
from glidepath.spi.models import ModelRequest, provider_of
from glidepath.tools.picture_size import LEAST_PICTURE_TOKENS, picture_bytes

__all__ = ["Run"]

_log = logging.getLogger("glidepath")
CALLED_OFF = "cancelled by the caller"


def _tell_while_alive(attempt: Any, tell: Callable[[Event], Any], event: Event) -> None:
    if not attempt.dead:
        tell(event)


_NOTHING: Any = MappingProxyType({})  # for all, until there is something to be kept


class Run(Record, eq=False, kw_only=True):
    """Everything one run knows about itself. Slots: twenty of them change in every turn of a thousand runs."""

    # what it is
    plan: Plan
    run_id: str
    session_id: str
    parent_id: str | None = None
    meter: Meter
    watch: Watch
    hooks: Hooks
    landing_reserve: Amount
    state: AgentState = AgentState.IDLE
    spawned: Mapping[str, tuple[Any, ...]] = _NOTHING
    """The children of each tool call or hook that is running."""
    named: Mapping[str, int] = _NOTHING
    """How many children of the same name hooks have had, where there is a journal."""
    per_run: PerRun | None = None
    """What it was given beside its agent's settings."""
    carried: Carried = NOT_CARRIED
    """What its meter has in it from earlier runs of the session."""
    landing_paid: bool = True  # False when earlier runs of the session left too little for a landing call
    extras: Mapping[str, Any] | None = None
    """The agent's, with its own on top."""
    tool_choice: str = "auto"
    token: CancelToken | None = None  # who may stop it from outside
    deps: Any = None  # the application's own, for its tools and hooks; never written anywhere
    journal: Any = None
    """The scribe that writes what happens, when there is a store."""
    cruises: bool = False
    """Nobody but the model, the ledger and the guards has a say in its turns: see `look_around`."""
    ring: Callable[[], None] | None = None  # wakes the run when something happened beside it
    # guards
    before_guards: tuple[Any, ...] = ()
    after_guards: tuple[Any, ...] = ()
    stop_guards: tuple[StopGuard, ...] | None = None
    """None: no end of this run has looked bad so far."""
    guard_home: Mapping[str, Any] = _NOTHING
    """The session's metadata, where guards keep what they count."""
    # time
    time: Callable[[], float]
    now: Callable[[], float]
    """Seconds since the epoch; virtual where the loop's time is."""
    started_at: float
    soft_at: float = inf
    soft_turns: float = inf
    # the transcript
    messages: list[Message]
    sizes: list[int]
    view: list[Message]
    """What the model sees: the same list, until they must differ."""
    shown: Sequence[Message] | None = None
    """The transcript as hooks are shown it; made for the first that asks."""
    view_tokens: int = 0
    anchor: int = 0
    """What the view's size is off the provider's own count."""
    weighed_view: Sequence[Message] = ()
    weighed_messages: int = 0
    weighed_characters: int = 0
    """How many messages of `weighed_view` were counted, and their characters."""
    picture_bytes: int = 0
    """Bytes of the pictures in the view, an address counted as one; 0: there are none."""
    most_pictures: int = 1 << 60
    """How many a view may have, once some had to be left out."""
    first_new: int = 0
    stale: frozenset[int] = frozenset()
    """Where the transcript has notices of earlier runs: they were for those runs, and the model does not see them."""
    call_ids: dict[str, None]
    """The ids of all calls in the transcript: a dict, half as large as a set."""
    pinned: tuple[int, ...] = ()
    gist: Any = None  # the checkpoint that stands for the beginning of the transcript in the view
    futile: int = 0  # checkpoints in a row that did not help
    mixed: bool = False  # more than one vendor has answered: each sees only the reasoning items of its own
    return_at: float = 0.0  # when the configured model is tried again, while a fallback is in use
    # spend
    account: Account
    other_accounts: Mapping[str, Account] = _NOTHING  # of models other than the one in use
    child_accounts: Mapping[str, Account] = _NOTHING
    money: int = 0
    first_call: Reservation | None = None
    boarded: bool = False
    """Its landing is set aside with its ancestors."""
    # counters
    iterations: int = 0
    tool_calls: int = 0
    landing_calls: int = 0
    empty_outcomes: int = 0
    cut_calls_refused: bool = False
    last_error: bool = False
    rescued: bool = False
    plain_text: tuple[int, str] = (0, "")
    """How often it was asked for a call instead of plain text, and the text that is kept meanwhile."""
    output_repaired: bool = False
    """It was asked once for an answer in the right format."""
    # the turn
    checkpoint: str = "pre_flight"
    turn_open: bool = False
    reply: AssistantMessage | None = None
    results: tuple[ToolResultMessage, ...] = ()
    stop_reason: StopReason | None = None
    allowed: frozenset[str] | None = None
    denials: MutableMapping[str, str] = _NOTHING
    request: ModelRequest | None = None
    """The last one: reused while nothing about it changes but the transcript, which it does not copy."""
    sent_view: Sequence[Message] = ()
    """The last view that context transforms have made; empty when there was none, or the context was shaped since."""
    prefix_breaks: tuple[str, ...] = ()
    """What has changed messages that were sent before."""
    # coming down
    verdict: Verdict | None = None
    wind_down: StopCause | None = None
    notice: StopCause | None = None
    final_turn: Verdict | None = None
    notices_told: frozenset[tuple[str, str]] = frozenset()
    withdrawal: StopCause | None = None
    withdrawn: frozenset[str] = frozenset()
    work_withdrawn: bool = False
    later: tuple[tuple[str, str, str], ...] = ()
    """What to tell the model at the next turn: reason, source, text."""
    waiting: tuple[Message, ...] = ()
    """Steering that waits for the next turn."""
    # who listens
    next_number: Callable[[], int]
    audience: Audience | None = None
    outbox: list[Event] | None = None
    tell_all: Callable[[Event], Any] | None = None
    listening: bool = False
    chunks: bool = False
    """Somebody wants `StreamChunk` events."""
    stream: Any = None
    # what the result tells
    parts: tuple[str, ...] = ()
    abandoned: tuple[AbandonedWork, ...] = ()
    violations: list[ValidationRecord] | tuple[()] = ()
    warned: Mapping[str, Any] = _NOTHING
    """The constraints whose warning lasts, and what they said when it was last noted."""
    warnings: int = 0  # noted so far
    children: tuple[RunResult, ...] = ()
    text: str = ""
    passing: Any = None
    """What the constraints said at the last checkpoint at which they were asked."""
    passed: tuple[ValidationRecord, ...] = ()
    pending: tuple[PendingCall, ...] = ()
    votes: tuple[bool, bool, bool] | None = None
    """How a batch has voted that waits for a person: see `Snapshot`."""
    programs: Mapping[str, Program] = _NOTHING  # calls of the open turn that make calls themselves, without a result
    program_states: Mapping[str, str] = _NOTHING  # what each of them needs to go on
    unknown_effects: tuple[ToolCall, ...] = ()
    resumed: Resumption | None = None
    changes: tuple[ConfigurationChange, ...] = ()
    """What about its agent was different when it went on."""
    result: RunResult | None = None

    def __repr__(self) -> str:
        return f"<Run {self.run_id}: {self.state.name}, {self.iterations} turns>"

    # --- beginning --------------------------------------------------------------------------------------------

    def forget_rescues(self) -> None:
        """Progress was made: bad ends are counted from the beginning."""
        self.rescued = False
        self.empty_outcomes = 0
        for guard in self.stop_guards or ():
            guard.reset()

    def start(self) -> None:
        """The first event."""
        self.enter(AgentState.RUNNING)
        plan = self.plan
        self.emit(
            RunStarted,
            self.session_id,
            plan.agent_name,
            plan.model_name,
            self.meter.depth,
            plan.conversation_id,
            self.resumed is not None,
            self.user,
            self.metadata,
            provider_of(plan.model),
            self._own_limits() if self.listening else None,
            None if self.per_run is None else self.per_run.notes,
        )
        if self.audience is not None:
            self._take_notes(self.audience)

    def _own_limits(self) -> dict[str, float]:
        """The limits that are set for this run itself, as `RunStarted` shows them."""
        plan, caps = self.plan, self.plan.caps
        limits = {
            "tokens": caps.tokens,
            "picodollars": caps.money,
            "turns": caps.turns,
            "tool_calls": caps.tool_calls,
            "seconds": plan.timeout,
        }
        return {name: limit for name, limit in limits.items() if limit is not None}

    def _take_notes(self, audience: Audience) -> None:
        """What those who watch want the journal to keep about this run."""
        notes = audience.notes()
        if notes:
            per_run = self.per_run or PerRun()
            self.per_run = replace(per_run, notes={**(per_run.notes or {}), **notes})

    def look_around(self) -> None:
        """Find out once who else has a say in the turns of this run; again when that has changed.

        With none of these a turn is straightforward, and `cruise` may fly it.
        """
        counts = self.plan.counter is not None and self.meter.limited
        self.cruises = self.plan.cruises and self.watch.sentry is None and not counts

    @property
    def user(self) -> str | None:
        """For whom it runs, as the application said."""
        return None if self.per_run is None else self.per_run.user

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """What the application said about this run."""
        return None if self.per_run is None else self.per_run.metadata

    # --- what happened ----------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.time() - self.started_at

    def chunk_sink(self, attempt: Any) -> Callable[[Event], Any] | None:
        """Where one attempt puts its `StreamChunk` events; None when nobody wants them.

        An attempt that was let go must not be heard: listeners are shielded from it here, a stream's consumer by
        `leave_outbox`.
        """
        if not self.chunks or self.audience is None:
            return self.tell_all if self.chunks else None
        if not self.audience.wants_chunks:
            return self.outbox.append  # type: ignore[union-attr]
        return partial(_tell_while_alive, attempt, self.audience)

    def peek_number(self) -> int:
        """The number of the next event, without taking it: a stream in flight counts with the same counter.

        `itertools.count` cannot be asked for its value in any other way, and nothing else counts as fast.
        """
        return int(repr(self.next_number.__self__)[6:-1])  # type: ignore[attr-defined]

    def count_from(self, number: int) -> None:
        """Give the next event this number."""
        self.next_number = count(number).__next__

    def leave_outbox(self) -> None:
        """Something that was let go may still count and write: go on with another counter and another outbox."""
        if self.outbox is not None:
            self.outbox = self.stream.outbox = self.outbox[:]
            if self.audience is None:
                self.tell_all = self.outbox.append
            else:
                self.audience.outbox = self.outbox
        self.count_from(self.next_number())

    def emit(self, kind: Callable[..., Event], *fields: Any) -> None:
        """Say what happened, to whoever listens: the kind of event, then its own fields in their order.

        What happens in every turn is said on the spot instead: `tell_all` gets the same event, a call earlier.
        """
        if self.tell_all is not None:
            self.tell_all(kind(self.run_id, self.parent_id, self.next_number(), self.now(), *fields))

    def hook_failed(self, name: str, hook: str, error: str, effect: str) -> None:
        """Say that a plugin failed and what comes of it; after the last event, nothing is said."""
        if self.result is None:
            self.emit(HookFailed, name, hook, error, effect)
        else:  # nothing is said after the last event
            _log.warning("%s: %s of %r failed after the end: %s; %s", self.run_id, hook, name, error, effect)

    def enter(self, state: AgentState) -> None:
        """Go to another state; an illegal step is a defect of ours and is refused."""
        if state is not self.state:
            if state not in TRANSITIONS[self.state]:
                raise RuntimeError(f"illegal transition {self.state.name} -> {state.name}")
            self.state = state

    def past_deadline(self) -> bool:
        """True when the whole time of this run is up, not only that of its landing."""
        return self.plan.timeout is not None and self.elapsed() + 1e-6 >= self.plan.timeout

    # --- transcript -------------------------------------------------------------------------------------------

    def add(self, message: Message, size: int | None = None) -> None:
        """Append a message to the transcript and to the model's view of it; `size` in tokens, where it is known."""
        if size is None:
            size = self.plan.size_of(message)
        self.messages.append(message)
        self.sizes.append(size)
        if self.view is not self.messages:
            self.view.append(message)
        self.view_tokens += size
        if size >= LEAST_PICTURE_TOKENS:
            self.picture_bytes += picture_bytes(getattr(message, "content", ""))
        if self.listening:  # as `emit` does it: every turn comes here twice
            self.tell_all(MessageAdded(self.run_id, self.parent_id, self.next_number(), self.now(), message))  # type: ignore[misc]

    def add_prompt(self, prompt: Sequence[Message]) -> None:
        """The task of this run: never dropped from the view."""
        for message in prompt:
            if type(message) is UserMessage and not message.internal:
                index = len(self.messages)
                self.pinned = (*self.pinned[:1], index)
            self.admit_one(message)

    def admit_one(self, message: Message) -> None:
        """A message from outside: what no model may see joins the transcript only."""
        if type(message) in NEVER_SENT and self.view is self.messages:
            self.view = sendable(self.messages)
        self.add(message)
        if type(message) in NEVER_SENT:
            del self.view[-1]

    def tell(self, reason: str, source: str, text: str) -> None:
        """Tell the model something that people do not see."""
        self.add(UserMessage(text, internal=True, reason=reason))
        self.emit(NoticeSent, reason, source, text)

    def set_view(self, messages: list[Message], tokens: int) -> None:
        """Show the model less than the whole transcript from now on."""
        self.view = sendable(messages)
        self.view_tokens = tokens
        self.anchor = self.plan.fixed_tokens
        self.sent_view = ()

    def input_tokens(self) -> int:
        """The size of the next prompt: what the provider last counted, and our estimate of what came since."""
        return self.anchor + self.view_tokens

    def narrowed(self) -> bool:
        """True when the coming turn may not use all tools."""
        if self.hooks.tool_gate or self.withdrawn or self.work_withdrawn:
            return True
        if self.allowed is not None:
            self.allowed = None
        return False

    def admit(self) -> None:
        """Steering that waited joins the transcript, and then what the runtime has to tell the model."""
        if self.waiting:
            waiting, self.waiting = self.waiting, ()
            for message in waiting:
                self.admit_one(message)
        if self.later:
            later, self.later = self.later, ()
            for reason, source, text in later:
                self.tell(reason, source, text)

    # --- the turn ---------------------------------------------------------------------------------------------

    def open_turn(self) -> None:
        """An iteration begins; what waited for it joins the transcript first."""
        if self.waiting or self.later:
            self.admit()
        self.reply = None
        self.results = ()
        self.turn_open = True
        if self.listening:
            number = self.next_number()
            self.tell_all(TurnStarted(self.run_id, self.parent_id, number, self.now(), self.iterations + 1))  # type: ignore[misc]

    def close_turn(self) -> None:
        """An iteration that got its reply ends; asked again, nothing happens."""
        if self.turn_open and self.reply is not None and self.listening:
            number, at = self.next_number(), self.now()
            ended = TurnEnded(self.run_id, self.parent_id, number, at, self.iterations, self.reply, self.results)
            self.tell_all(ended)  # type: ignore[misc]
        self.turn_open = False

    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the current reply that have no result yet."""
        if self.reply is None:
            return ()
        answered = {result.call_id for result in self.results}
        return tuple([call for call in self.reply.tool_calls if call.id not in answered])

    def keep_text(self, text: str) -> None:
        """The best text so far."""
        if visible(text):
            self.text = text

    # --- money ------------------------------------------------------------------------------------------------

    def charge_child(self, name: str, usage: Usage, money: int) -> None:
        """Count what a child cost."""
        self.money += money
        accounts = {**self.child_accounts}
        accounts.setdefault(name, Account()).add(usage, money)
        self.child_accounts = accounts

    @property
    def usage(self) -> Usage:
        """The tokens of this run so far, children included."""
        total = self.account.usage()
        for account in (*self.other_accounts.values(), *self.child_accounts.values()):
            total = total + account.usage()
        return total

    def cost(self) -> Decimal | None:
        """Dollars spent so far, children included; None when no price is known."""
        return dollars(self.money) if self.plan.price is not None or self.money else None

    # --- Meters, for contexts ---------------------------------------------------------------------------------

    def remaining(self) -> Remaining:
        """What is left of each limit, the landing reserve apart."""
        watch = self.watch
        ends_at = min(watch.window_at, watch.deadline_at)
        seconds = None if ends_at == inf else max(0.0, ends_at - self.time())
        return self.meter.remaining(seconds)

    def near_budget(self) -> bool:
        """True when tokens or money are nearly used up."""
        return self.meter.near_budget()

    # --- outside ----------------------------------------------------------------------------------------------

    def hear(self, what: str, reason: str) -> None:
        """A cancel token spoke; from any thread."""
        loop = self.watch.loop
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            self._obey(what, reason)
        else:
            if what == "cancel":
                self.watch.called_off = reason or CALLED_OFF
            try:
                loop.call_soon_threadsafe(self._obey, what, reason)
            except RuntimeError:  # the loop is closed: the run is long over
                return

    def _obey(self, what: str, reason: str) -> None:
        if what == "cancel":
            self.watch.raise_interrupt(Interrupt(Signal.CANCEL, "cancel", reason or CALLED_OFF))
        elif self.wind_down is None:
            self.wind_down = StopCause(source="person", action="wind_down", reason=reason or "asked to finish up")

    def interrupted(self) -> Touchdown:
        """What the pending interrupt means for the run."""
        interrupt: Interrupt = self.watch.interrupt  # type: ignore[assignment]
        if interrupt.verdict is not None:
            return Touchdown(interrupt.verdict)
        timed = interrupt.signal <= Signal.DEADLINE
        gentle = interrupt.signal is Signal.WINDOW
        cause = StopCause(
            source=interrupt.source,
            action="graceful_exit" if gentle else "emergency_stop" if timed else "cancel",
            reason=interrupt.reason,
            metrics={"elapsed": round(self.elapsed(), 3)},
        )
        state = AgentState.TIMED_OUT if timed else AgentState.CANCELLED
        cut = LoopOutcome.CUT_OFF if timed else LoopOutcome.CANCELLED
        return Touchdown(Verdict(state=state, cause=cause, gentle=gentle, cut=cut))

    def interrupted_by_hand(self) -> Touchdown:
        """Ctrl-C arrived inside foreign code: as good as a cancel."""
        self.watch.raise_interrupt(Interrupt(Signal.CANCEL, "cancel", "interrupted from the keyboard"))
        return self.interrupted()

    def settle_up(self) -> None:
        """Give back what was promised and not used."""
        if self.first_call is not None:
            self.first_call.cancel()
            self.first_call = None
        if self.boarded:
            self.boarded = False
            self.meter.give_back(self.landing_reserve)

    # --- end --------------------------------------------------------------------------------------------------

    def _untold_notices(self) -> Iterator[Message]:
        for reason, _, text in self.later:
            yield UserMessage(text, internal=True, reason=reason)

    def snapshot(self) -> Snapshot:
        """What must be carried over for the run to go on from here; the messages apart."""
        return take_snapshot(self)

    def conclude(self, ending: Ending) -> RunResult:
        """The result; the run is in its last state after this."""
        self.enter(ending.state)
        messages = tuple(self.messages)
        self.result = RunResult(
            run_id=self.run_id,
            session_id=self.session_id,
            state=ending.state,
            outcome=ending.outcome,
            cause=ending.cause,
            stop_reason=self.stop_reason,
            text=ending.text,
            text_origin=ending.origin(self.text),
            output=ending.output,
            partial=ending.partial,
            messages=messages,
            new_messages=messages[self.first_new :],
            usage=self.usage,
            cost=self.cost(),
            breakdown=breakdown(self),
            iterations=self.iterations,
            tool_calls=self.tool_calls,
            landing_calls=self.landing_calls,
            elapsed=self.elapsed(),
            validations=(*self.violations, *self.passed),
            children=self.children,
            pending=self.pending,
            abandoned=self.abandoned,
            unknown_effects=self.unknown_effects,
            undelivered=(*self.waiting, *self._untold_notices()),
            changes=self.changes,
            snapshot=None if ending.outcome is LoopOutcome.DONE else take_snapshot(self, ending),
        )
        return self.result
