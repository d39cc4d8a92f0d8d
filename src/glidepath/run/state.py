"""One run: what it was given, and its state, in a few parts that each have an owner; and how it begins."""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, freeze
from glidepath.plugins.hook_table import Hooks
from glidepath.run.account import Account, Spending, breakdown
from glidepath.run.error_log import log_error
from glidepath.run.event_emitter import Consumer, EventEmitter, numbers_from
from glidepath.run.hidden_messages import NEVER_SENT, drop_unsendable
from glidepath.run.interrupts import Interrupt, Signal
from glidepath.run.ledger import Caps, Meter, dollars
from glidepath.run.nested import SideWork
from glidepath.run.plan import Ending, Plan, Touchdown
from glidepath.run.run_inputs import RunGuards, RunInputs
from glidepath.run.run_transcript import PRE_FLIGHT, AnswerSoFar, CurrentTurn, Transcript
from glidepath.run.snapshot import Resumption, restore, take_snapshot
from glidepath.run.transcript_stats import TranscriptStats
from glidepath.run.unsaved import Unsaved
from glidepath.run.waiting import Amount
from glidepath.run.watch import Watch
from glidepath.run.wind_down import Audit, WindDown
from glidepath.spi import Remaining, RunIntroduction, provider_of
from glidepath.tools import LEAST_PICTURE_TOKENS, picture_bytes
from glidepath.values import (
    AgentState,
    Event,
    HookFailed,
    LoopOutcome,
    Message,
    MessageAdded,
    NoticeSent,
    PerRun,
    RunResult,
    RunStarted,
    Snapshot,
    StopCause,
    ToolResultMessage,
    TurnEnded,
    TurnStarted,
    UserMessage,
    ValidationRecord,
    Verdict,
    describe_error,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.plugins import Audience
    from glidepath.run.seams import RunJournal

_log = logging.getLogger("glidepath")
CALLED_OFF = "cancelled by the caller"


@lru_cache(maxsize=256)
def limits_of(caps: Caps, timeout: float | None) -> dict[str, float]:
    """Those that are set, under the names that people see; the same object for all runs of an agent."""
    limits = {
        "tokens": caps.tokens,
        "picodollars": caps.money,
        "turns": caps.turns,
        "tool_calls": caps.tool_calls,
        "seconds": timeout,
    }
    return freeze({name: limit for name, limit in limits.items() if limit is not None})  # type: ignore[no-any-return]


class Run(Record, eq=False, kw_only=True):
    """One run: what it was given, and the parts of its state.

    A part is written by its own methods and by those of the run, and by nobody outside this package; everybody may
    read. The parts that name what `SURVIVES` are, with the meter, what a snapshot holds.
    """

    # what it was given
    run_id: str
    plan: Plan
    """Another one while a fallback model is in use."""
    meter: Meter
    watch: Watch
    hooks: Hooks
    guards: RunGuards
    terms: RunInputs
    journal: RunJournal | None = None
    """Writes what happens, when there is a store."""
    # its state
    transcript: Transcript
    turn: CurrentTurn
    answer: AnswerSoFar
    spend: Spending
    descent: WindDown
    audit: Audit
    work: SideWork
    voice: EventEmitter
    result: RunResult | None = None
    shows = True  # what streams for it is shown: the landing window waits for its end

    def __repr__(self) -> str:
        return f"<Run {self.run_id}: {self.state.name}, {pluralize(self.turn.iterations, 'turn')}>"

    @property
    def state(self) -> AgentState:
        """Its state."""
        return self.turn.state

    @property
    def session_id(self) -> str:
        """Whose transcript it continues."""
        return self.terms.session_id

    @property
    def user(self) -> str | None:
        """The user it runs for, as the application said."""
        per_run = self.terms.per_run
        return None if per_run is None else per_run.user

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """What the application said about this run."""
        per_run = self.terms.per_run
        return None if per_run is None else per_run.metadata

    # --- beginning --------------------------------------------------------------------------------------------

    def write_to(self, journal: RunJournal) -> None:
        """From now on, record what happens in the journal."""
        self.journal = journal

    def take_id(self, run_id: str) -> None:
        """Take another id before the start: a replay has that of the run it repeats."""
        self.run_id = run_id
        self.turn.unsaved["run_id"] = None
        self.voice.run_id = run_id
        self.voice.connect_listeners(self.voice.stream, self.voice.audience)

    def start(self) -> None:
        """The first event."""
        turn, plan, terms, voice = self.turn, self.plan, self.terms, self.voice
        if turn.state is AgentState.IDLE:  # as every run but one that continues
            turn.state = AgentState.RUNNING
        else:
            turn.enter(AgentState.RUNNING)
        if voice.emit is None:
            return
        if voice.audience is not None:
            warmth = plan.config.temperature
            voice.audience.introduce(RunIntroduction(plan.system_prompt, plan.specs, warmth))
        voice.emit(
            RunStarted,
            terms.session_id,
            plan.config.agent_name,
            plan.model_name,
            self.meter.depth,
            plan.config.conversation_id,
            terms.resumed is not None,
            self.user,
            self.metadata,
            provider_of(plan.model),
            self._list_own_limits(),
            None if terms.per_run is None else terms.per_run.notes,
        )
        if voice.audience is not None:
            notes = voice.audience.notes()
            if notes:
                terms.take_notes(notes)

    def _list_own_limits(self) -> dict[str, float]:
        """The limits that are set for this run itself, as `RunStarted` shows them."""
        return limits_of(self.plan.caps, self.plan.timeout)

    def use(self, plan: Plan) -> None:
        """Another model answers from now on: with its prices, its window, its caps, and its own account."""
        self.spend.switch(self.plan.model_name, plan.model_name)
        self.plan = plan
        self.turn.contexts = {}  # hooks are shown another model, prompt and tools
        self.transcript.learn(plan.fixed_tokens)  # the other provider counts differently

    def mark_unsaved(self, names: Iterable[str]) -> None:
        """The next commit of the journal must look at these fields."""
        self.turn.unsaved.update(dict.fromkeys(names))

    def take_unsaved(self) -> tuple[str, ...]:
        """The fields that have changed since the last commit; with this one they are written."""
        names = tuple(self.turn.unsaved)
        self.turn.unsaved.clear()
        return names

    def forget_rescues(self) -> None:
        """Progress was made: bad ends are counted from the beginning."""
        self.answer.forget_rescues()
        for guard in self.guards.stops or ():
            guard.reset()

    # --- what happened ----------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.watch.time() - self.terms.started_at

    def emit(self, kind: Callable[..., Event], *fields: object) -> None:
        """Report what happened to the listeners: the kind of event, then its own fields in their order."""
        emit = self.voice.emit
        if emit is not None:
            emit(kind, *fields)

    def report_hook_failure(self, name: str, hook: str, error: BaseException | str, effect: str) -> None:
        """Report that a plugin failed and the effect; after the last event, nothing is emitted."""
        said = error if isinstance(error, str) else describe_error(error)
        if not isinstance(error, str):
            log_error(self, f"{hook} of {name!r}", error, effect)
        if self.result is None:
            self.emit(HookFailed, name, hook, said, effect)
        else:  # nothing is emitted after the last event
            _log.warning("%s: %s of %r failed after the end: %s", self.run_id, hook, name, effect)

    def note_violation(self, record: ValidationRecord) -> None:
        """Keep a violation, or a constraint that was skipped."""
        audit = self.audit
        if audit.violations:
            audit.violations.append(record)
        else:
            audit.violations = [record]  # a list only when there is something to keep
        self.turn.unsaved["violations"] = None

    def is_past_deadline(self) -> bool:
        """True when the whole time of this run is up, not only that of its landing."""
        return self.plan.timeout is not None and self.elapsed() + 1e-6 >= self.plan.timeout

    # --- transcript -------------------------------------------------------------------------------------------

    def add(self, message: Message, size: int | None = None) -> None:
        """Append a message to the transcript and to the model's view of it; `size` in tokens, where it is known."""
        if size is None:
            size = self.plan.size_of(message)
        transcript = self.transcript
        transcript.messages.append(message)
        transcript.sizes.append(size)
        if transcript.apart is not None:
            transcript.apart.append(message)
        transcript.view_tokens += size
        if size >= LEAST_PICTURE_TOKENS:
            transcript.picture_bytes += picture_bytes(getattr(message, "content", ""))
        emit = self.voice.emit
        if emit is not None:
            emit(MessageAdded, message)

    def append_result(self, result: ToolResultMessage) -> None:
        """The result of a call of this turn joins the transcript, behind those that have come."""
        turn = self.turn
        turn.results = (*turn.results, result) if turn.results else (result,)
        self.add(result)

    def complete_transcript(self) -> None:
        """Complete what an exception in the middle of `add` has left half done: a signal handler may raise anywhere."""
        transcript = self.transcript
        messages, sizes, apart = transcript.messages, transcript.sizes, transcript.apart
        if len(sizes) < len(messages):
            sizes.append(self.plan.size_of(messages[-1]))
            transcript.view_tokens += sizes[-1]
            if apart is not None and not (apart and apart[-1] is messages[-1]):
                apart.append(messages[-1])
        known = {id(message) for message in messages}
        for result in self.turn.results:
            if id(result) not in known:
                self.add(result)

    def add_prompt(self, prompt: Sequence[Message]) -> None:
        """The task of this run: never dropped from the view."""
        transcript = self.transcript
        for message in prompt:
            if type(message) is UserMessage and not message.internal:
                transcript.pinned = (*transcript.pinned[:1], len(transcript.messages)) if transcript.messages else (0,)
                transcript.unsaved["pinned"] = None
            self.admit_one(message)

    def admit_one(self, message: Message) -> None:
        """A message from outside: what no model may see joins the transcript only."""
        transcript, unseen = self.transcript, type(message) in NEVER_SENT
        if unseen and transcript.view is transcript.messages:  # from now on the view is another list
            transcript.view = transcript.apart = drop_unsendable(transcript.messages)
        self.add(message)
        if unseen:
            del transcript.view[-1]

    def tell_model(self, reason: str, source: str, text: str) -> None:
        """Tell the model something that people do not see."""
        self.add(UserMessage(text, internal=True, reason=reason))
        self.emit(NoticeSent, reason, source, text)

    def set_view(self, messages: list[Message], tokens: int) -> None:
        """Show the model less than the whole transcript from now on."""
        transcript = self.transcript
        transcript.view = transcript.apart = drop_unsendable(messages)
        transcript.view_tokens = tokens
        transcript.anchor = self.plan.fixed_tokens
        transcript.sent_view, transcript.sent_own = (), 0

    def is_narrowed(self) -> bool:
        """Whether the coming turn may not use all tools."""
        descent = self.descent
        if self.hooks.tool_gate or descent.withdrawn or descent.work_withdrawn:
            return True
        if self.turn.allowed is not None:
            self.turn.set_allowed_tools(None)
        return False

    def admit(self) -> None:
        """Add queued steering to the transcript, then the runtime's notices to the model.

        An agent that was handed the conversation, of which a notice tells, speaks from here on.
        """
        if self.terms.next_speaker is not None:
            self.terms.next_speaker()
        transcript = self.transcript
        waiting, transcript.waiting = transcript.waiting, ()
        for message in waiting:
            self.admit_one(message)
        later, transcript.later = transcript.later, ()
        transcript.unsaved["waiting"] = transcript.unsaved["later"] = None
        for reason, source, text in later:
            self.tell_model(reason, source, text)

    # --- the turn ---------------------------------------------------------------------------------------------

    def is_clear(self, checkpoint: str) -> bool:
        """Whether no constraint can be violated at this checkpoint: nearly always, and found by a few comparisons."""
        self.turn.checkpoint = checkpoint
        meter, descent = self.meter, self.descent
        if meter.attention or self.watch.interrupt is not None or self.plan.custom or descent.verdict is not None:
            return False
        if checkpoint is not PRE_FLIGHT:
            return True
        return (  # no limit on turns or time is near, and nothing has begun to bring the run down
            meter.turns < descent.soft_turns
            and self.watch.time() < descent.soft_at
            and (not descent.begun or (descent.notice is None and descent.wind_down is None))
            and (meter.parent is None or not meter.near_budget())
        )

    def open_turn(self) -> None:
        """An iteration begins; what waited for it joins the transcript first."""
        if self.transcript.waiting or self.transcript.later:
            self.admit()
        turn, emit = self.turn, self.voice.emit
        turn.checkpoint, turn.reply, turn.results, turn.is_open = PRE_FLIGHT, None, (), True
        if emit is not None:
            emit(TurnStarted, turn.iterations + 1)

    def close_turn(self) -> None:
        """An iteration that got its reply ends; asked again, nothing happens."""
        turn, emit = self.turn, self.voice.emit
        if emit is not None and turn.is_open and turn.reply is not None:
            emit(TurnEnded, turn.iterations, turn.reply, turn.results)
        turn.is_open = False

    # --- money, and what is left ------------------------------------------------------------------------------

    def cost(self) -> Decimal | None:
        """Dollars spent so far, children included; None when no price is known."""
        money = self.spend.money
        return dollars(money) if self.plan.price is not None or money else None

    def remaining(self) -> Remaining:
        """What is left of each limit, the landing reserve apart."""
        watch = self.watch
        ends_at = min(watch.window_at, watch.deadline_at)
        seconds = None if ends_at == inf else max(0.0, ends_at - watch.time())
        return self.meter.remaining(seconds)

    # --- outside ----------------------------------------------------------------------------------------------

    def on_cancel_token(self, what: str, reason: str) -> None:
        """A cancel token was triggered; from any thread."""
        loop = self.watch.loop
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            self._obey_signal(what, reason)
        else:
            if what == "cancel":
                self.watch.called_off = reason or CALLED_OFF
            try:
                loop.call_soon_threadsafe(self._obey_signal, what, reason)
            except RuntimeError:  # the loop is closed: the run is long over
                return

    def _obey_signal(self, what: str, reason: str) -> None:
        if what == "cancel":
            self.watch.raise_interrupt(Interrupt(Signal.CANCEL, "cancel", reason or CALLED_OFF))
        else:
            self.descent.ask(StopCause(source="person", action="wind_down", reason=reason or "asked to finish up"))

    def make_interrupt(self) -> Touchdown:
        """What the pending interrupt means for the run."""
        interrupt: Interrupt = self.watch.interrupt  # type: ignore[assignment]
        if interrupt.verdict is not None:
            return Touchdown(interrupt.verdict)
        signal = interrupt.signal
        timed = signal <= Signal.DEADLINE
        gentle = signal is Signal.WINDOW
        cause = StopCause(
            source=interrupt.source,
            action="graceful_exit" if gentle else "emergency_stop" if timed else "cancel",
            reason=interrupt.reason,
            metrics={"elapsed": round(self.elapsed(), 3)},
        )
        state = AgentState.TIMED_OUT if timed else AgentState.CANCELLED
        cut = LoopOutcome.CUT_OFF if timed else LoopOutcome.CANCELLED
        return Touchdown(Verdict(state=state, cause=cause, gentle=gentle, cut=cut))

    def make_manual_interrupt(self) -> Touchdown:
        """Ctrl-C arrived inside foreign code: same as a cancel."""
        self.watch.raise_interrupt(Interrupt(Signal.CANCEL, "cancel", "interrupted from the keyboard"))
        return self.make_interrupt()

    # --- end --------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What must be carried over for the run to continue from here; the messages apart."""
        return take_snapshot(self)

    def conclude(self, ending: Ending) -> RunResult:
        """The result; the run is in its last state after this."""
        transcript, turn, work, audit = self.transcript, self.turn, self.work, self.audit
        turn.enter(ending.state)
        messages = tuple(transcript.messages)
        self.result = RunResult(
            run_id=self.run_id,
            session_id=self.session_id,
            state=ending.state,
            outcome=ending.outcome,
            cause=ending.cause,
            stop_reason=turn.stop_reason,
            text=ending.text,
            text_origin=ending.origin(self.answer.text),
            output=ending.output,
            partial=ending.partial,
            messages=messages,
            new_messages=messages[transcript.first_new :],
            usage=self.spend.usage(),
            cost=self.cost(),
            breakdown=breakdown(self),
            iterations=turn.iterations,
            tool_calls=turn.tool_calls,
            landing_calls=self.descent.landing_calls,
            elapsed=self.elapsed(),
            validations=(*audit.violations, *audit.passed),
            children=work.children,
            pending=turn.pending,
            abandoned=work.abandoned,
            unknown_effects=work.unknown_effects,
            undelivered=tuple(transcript.take_unsent_notices()),
            changes=self.terms.changes,
            snapshot=None if ending.outcome is LoopOutcome.DONE else take_snapshot(self, ending),
        )
        return self.result

    def attach_usage(self, result: RunResult) -> RunResult:
        """The result, and beside it what the run may use and had used after each reply.

        It is not a field: journals record it turn by turn, and results with equal fields stay equal.
        """
        if "_use" not in result.__dict__:
            use = self.spend.use(self._list_own_limits(), self.terms.started_at, self.watch.time(), self.meter)
            result.__dict__["_use"] = use
        return result

    def conclude_with(self, result: RunResult) -> RunResult:
        """The result is this one: something was learned after the end."""
        self.result = result
        return result


# --- how a run begins: its parts, its guards, its clock, and who listens -------------------------------------------


def open_state(
    plan: Plan,
    *,
    run_id: str,
    parent_id: str | None,
    session_id: str,
    messages: list[Message],
    metadata: dict[str, Any],
    meter: Meter,
    watch: Watch,
    landing_reserve: Amount,
    landing_paid: bool,
    deps: object,
    stream: Consumer | None,
    resumed: Resumption | None,
    per_run: PerRun | None,
    survey: TranscriptStats | None,
) -> Run:
    """A run that is ready to start. `survey`: what is known of all its messages; None when there are none."""
    again, first_new, unsaved = resumed is not None, len(messages), Unsaved()
    descent, terms = _make_wind_down(plan, meter, watch, unsaved), _make_inputs(plan, session_id, watch, deps, unsaved)
    transcript = _make_transcript(plan, messages, survey, unsaved)
    now: Callable[[], float] = getattr(watch.loop, "epoch", time.time)
    run = Run(
        run_id=run_id,
        plan=plan,
        meter=meter,
        watch=watch,
        hooks=plan.lineup.shared or plan.lineup.for_run(),
        guards=RunGuards.of(
            plan.make_guards(metadata, resumed=again), plan.known_stop_guards(metadata, resumed=again), metadata
        ),
        terms=terms,
        transcript=transcript,
        turn=CurrentTurn(unsaved=unsaved),
        answer=AnswerSoFar(unsaved=unsaved),
        spend=Spending(
            account=Account(),
            landing_reserve=landing_reserve,
            landing_paid=landing_paid,
            burnt=array("d"),
            unsaved=unsaved,
        ),
        descent=descent,
        audit=Audit(),
        work=SideWork(unsaved=unsaved),
        voice=EventEmitter(run_id=run_id, parent_id=parent_id, now=now, numbers=numbers_from(1)),
    )
    if survey is not None:
        run.transcript.open(survey, first_new if resumed is None else resumed.snapshot.first_new)
    if stream is not None or run.hooks.observers or plan.config.event_sink is not None:
        _listen(run, stream)
    if resumed is not None:
        restore(run, resumed)
    if per_run is not None or resumed is not None:
        run.terms.settle(plan, per_run)
    return run


def _listen(run: Run, stream: Consumer | None) -> None:
    """Tell the listeners from now on."""
    observed = run.hooks.observers or run.plan.config.event_sink is not None
    run.voice.connect_listeners(stream, _make_audience(run) if observed else None)


def _make_transcript(
    plan: Plan, messages: list[Message], survey: TranscriptStats | None, unsaved: Unsaved
) -> Transcript:
    return Transcript(
        messages=messages,
        sizes=[] if survey is None else survey.sizes.copy(),
        view=messages,
        weighed_view=messages,
        anchor=plan.fixed_tokens,
        first_new=len(messages),
        call_ids={},
        unsaved=unsaved,
    )


def _make_inputs(plan: Plan, session_id: str, watch: Watch, deps: object, unsaved: Unsaved) -> RunInputs:
    return RunInputs(
        session_id=session_id,
        started_at=watch.time(),
        deps=deps,
        extras=plan.extras,
        tool_choice=plan.config.tool_choice,
        unsaved=unsaved,
    )


def _make_wind_down(plan: Plan, meter: Meter, watch: Watch, unsaved: Unsaved) -> WindDown:
    """How a run comes down: when its soft limits are reached."""
    window, deadline, turns = watch.window_at, watch.deadline_at, plan.soft_turns
    return WindDown(
        soft_at=window - min(plan.landing_time, deadline - window) if window < deadline else window,
        soft_turns=meter.turns_wire if turns is None else turns,
        unsaved=unsaved,
    )


def _make_audience(run: Run) -> Audience:
    """The listeners, except the consumer of a stream."""
    from glidepath.plugins import Observer, audience_of

    observers = [Observer(name, plugin, run.report_hook_failure) for name, plugin in run.hooks.observers]
    return audience_of(
        run.plan.config.event_sink, observers, run.report_hook_failure, by_hand=run.make_manual_interrupt
    )
