"""Writes one run's journal during the run. Intent before the effect, result after it.

A commit has what came since the last one: messages, changes in the state of the run, and the reason for the commit: a
model call is about to start, with its worst-case cost; tool calls are about to start; one of several calls has ended;
the run is over. Without a store there is no recorder, and none of this happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from glidepath._version import VERSION
from glidepath._wire import Raw, loads, replace
from glidepath.run import (
    Fingerprint,
    Interrupt,
    Run,
    Signal,
    Touchdown,
    Verdict,
    find_differences,
    name_configured_model,
)
from glidepath.run.fingerprint import fingerprint
from glidepath.sessions.chain import SCHEMA
from glidepath.sessions.fold import Began, Child, Intent, Opened, Reserved
from glidepath.sessions.inbox import SessionMailbox
from glidepath.sessions.journal_recorder_parts import KnownSession, RunningChildren, WrittenTranscript
from glidepath.sessions.journal_writer import Items, JournalWriter
from glidepath.sessions.state_changes import StateChanges, count, strip_result
from glidepath.sessions.store_calls import FAREWELL, StoreAnswer, WatchedAnswer, as_store_error, store_call
from glidepath.sessions.summaries import sum_session
from glidepath.spi import Lease, SessionStore, Sign
from glidepath.values import (
    AgentState,
    ConfigurationChange,
    ConfigurationChanged,
    LoopOutcome,
    RunResult,
    SessionSaved,
    Snapshot,
    StopCause,
    StoreError,
    ToolResultMessage,
    stored_arguments,
)

if TYPE_CHECKING:
    from glidepath.run import BookedCall

_NOTHING: dict[str, Any] = {}


class JournalRecorder(JournalWriter):
    """Writes what one run does."""

    __slots__ = (
        "_flying",
        "_run",
        "_transcript",
        "ahead",
        "changes",
        "children",
        "decisions",
        "known",
        "mailbox",
        "pins",
        "stopped",
        "time",
    )

    def __init__(
        self,
        store: SessionStore,
        lease: Lease,
        *,
        durability: str = "sync",
        sequence: int = 0,
        parent: dict[str, str] | None = None,
    ) -> None:
        super().__init__(store, lease, durability=durability, sequence=sequence)
        self.known = KnownSession(parent=parent)
        self.children = RunningChildren()
        self.mailbox = SessionMailbox()
        self.time = 0.0
        """When the last commit was written, in seconds since the epoch."""
        self.stopped = False  # a stop request of the store was received: the end of the run acknowledges it
        self.ahead: Items = []  # records that wait for the first commit
        # Nothing is put into these two: code that has something for one makes another.
        self.decisions: Mapping[str, Any] = _NOTHING
        self.pins: dict[str, Any] = _NOTHING
        """The digests of the tools that servers offer, by server."""
        self._flying: StoreAnswer | None = None  # the commit that is on its way
        # From `follow_run` on:
        self._run: Any = None
        self._transcript = WrittenTranscript()
        self.changes: Any = None

    # --- the beginning ----------------------------------------------------------------------------------------

    def follow_run(
        self, run: Run, *, written: int, base: Snapshot | None = None, tail: frozenset[str] | None = None
    ) -> None:
        """Follow this run. `written` messages and the state `base` are in the journal already."""
        self._run = run
        self._transcript = WrittenTranscript(written, tail)
        self.changes = StateChanges(run, base)
        self.keep_alive()

    async def begin(self) -> None:
        """The run begins, or continues: its first commit, with the task in it."""
        run = self._run
        plan = run.plan
        now, digest = fingerprint(plan)
        if not self.number:
            opened = Opened(schema=SCHEMA, session_id=self.lease.session_id, version=VERSION, parent=self.known.parent)
            # It comes first, so that a reader knows the schema before any other record.
            self.ahead.insert(0, ("opened", opened))
        # Written for each leg and not only once: versions, tools and settings may have changed since the last one.
        began = Began(
            run_id=run.run_id,
            agent=plan.config.agent_name,
            model=plan.model_name,
            resumed=run.terms.resumed is not None,
            first_new=run.transcript.first_new,
            decisions=self.decisions,
            pins=self.pins,
            schema=SCHEMA,
            version=VERSION,
            config=digest,
        )
        items = [*self.ahead, ("began", began)]
        del self.ahead  # nothing is put there any more
        # Only when it has changed: every leg of a long session would repeat it.
        if self.known.config != now:
            items.append(("config", now))
        if run.terms.resumed is not None:
            run.terms.note_changes(self._changes(now))
        # Waited for: nothing may be spent on a task that a crash would forget.
        await _await_write(self._write([], items, summary=self._summary(run.state.value, None)))
        if run.terms.changes:
            # After the commit: who hears of it may rely on its being in the journal.
            run.emit(ConfigurationChanged, run.terms.changes)

    def _changes(self, now: Fingerprint) -> tuple[ConfigurationChange, ...]:
        """What changed since the last leg; nothing if that was not recorded."""
        before, writer = self.known.config, self.known.writer
        found = [] if before is None else list(find_differences(before, now))
        if writer not in ("", VERSION):
            found.insert(0, ConfigurationChange(what="version", before=writer, now=VERSION))
        return tuple(found)

    # --- in the middle ----------------------------------------------------------------------------------------

    def record_model_call(self, booking: BookedCall) -> Awaitable[None] | None:
        """A model call is about to start; None when that is written already."""
        run, reservation, given = self._run, booking.reservation, booking.input
        tokens = reservation.tokens
        output = tokens - given if tokens > given else 0
        name = (
            run.plan.model_name
            if run.spend.other_accounts and run.plan.model_name != name_configured_model(run)
            else ""
        )
        reserved = Reserved(input=given, output=output, tokens=tokens, money=reservation.money, model=name)
        return self._write([("reserved", reserved)], begins=True)

    async def record_growth(self, booking: BookedCall) -> bool:
        """Record the larger reservation of a reply that outgrew it; False if that could not be written."""
        try:
            later = self.record_model_call(booking)
            if later is not None:
                await later
        # The reply is streaming: it is cut at what was booked, and the run lands with it, instead of losing it.
        except Touchdown:
            return False
        return True

    def record_starts(
        self, jobs: Sequence[Any], queued: Sequence[Any] = (), done: Sequence[Any] = ()
    ) -> Awaitable[None] | None:
        """These calls are about to start; `queued` will later, `done` have just got their results. None: written."""
        items: Items = []
        # A result is written when it is known, in any order; its place in the transcript follows as `placed`.
        for job in done:
            message = job.bare_message(self._run)
            self._transcript.add_result(message)
            items.append(("result", message))
        if queued:
            # They are counted already: after a crash the limit on tool calls must know of them.
            items.append(("queued", [job.call.id for job in queued]))
        for job in jobs:
            items.append(("intent", self._intent(job)))
        # The guards have not seen these results: their counts of before belong to the state that is on disk.
        return self._write(items, guards=False, begins=bool(jobs))

    def _intent(self, job: Any) -> Intent:
        run, call, bound = self._run, job.call, job.bound
        call_id, name, written, data, behind = call.id, call.name, stored_arguments(call), bound.data, run.plan.behind
        as_written = written.__class__ is Raw and (written == Raw(data) or loads(written) == loads(data))
        return Intent(
            call_id=call_id,
            key=f"{run.run_id}:{call_id}",
            # The message has them already. Only where a hook or a default has changed them are they written again.
            arguments=None if as_written or bound.arguments == call.arguments else bound.arguments,
            idempotent=job.tool.idempotent,
            tool=name if behind and name in behind else "",
            transactional=job.tool.transactional,
        )

    async def land(self, message: ToolResultMessage, transaction: Any) -> None:
        """Write a call's result in the transaction that has its effect. Raises `Touchdown` when it is not written."""
        # The chain has one place for the next commit, and the one on its way has taken it.
        await self._let_land()
        if self._run is None:
            raise _make_store_touchdown(self.broken or StoreError("the run has ended", kind="fenced"))
        # No await up to the append: nothing else may take this place in the chain.
        self._taker = transaction
        try:
            self._transcript.add_result(message)
            later = self._write([("result", message)], guards=False)
        finally:
            # Back in any case: a failed transaction must not receive the next commit of the run.
            self._taker = self.store
        await _await_write(later)

    def drop_result(self, call_id: str) -> None:
        """This result does not join the transcript: a program has it."""
        self._transcript.drop_result(call_id)

    async def record_child(self, call_id: str, session_id: str, agent: str) -> None:
        """A call is about to start a child with its own journal."""
        # Written before the child does anything: after a crash, its effects must be traceable.
        await _await_write(self._write([("child", Child(call_id=call_id, session_id=session_id, agent=agent))]))
        self.children.ids |= {session_id}

    def expect_earlier(self) -> None:
        """Results may join the transcript before some that are in the journal."""
        self._transcript.expect_earlier()

    # --- the end ----------------------------------------------------------------------------------------------

    async def end(self, result: RunResult) -> RunResult:
        """Write the last commit. If that fails, the result says so, and keeps its text."""
        # A note that was taken and never reached the model waits for the next run.
        result = self.mailbox.put_back(self._run, result)
        snapshot = result.snapshot
        if snapshot is not None:
            snapshot = replace(snapshot, children=tuple(map(strip_result, snapshot.children)))
        # A child has its own journal: here its transcript would be on disk twice.
        children = tuple(map(strip_result, result.children))
        kept = replace(result, messages=(), new_messages=(), children=children, snapshot=snapshot)
        try:
            if self.broken is None:
                summary = self._summary(result.state.value, result)
                await _await_write(self._write([("ended", kept)], summary=summary, last=True))
        except Touchdown:
            pass
        if self.broken is None:
            if self.stopped and result.outcome is LoopOutcome.CANCELLED:
                await self.forget_stop()
            return result
        return self._make_failed_result(result, self.broken)

    async def forget_stop(self) -> None:
        """Clear a stop request that was obeyed or meant for an earlier run. If it fails, the journal still says so."""
        with suppress(Exception):
            await store_call(self.store.flag, self.lease.session_id, None, timeout=FAREWELL)

    def stop(self, reason: str) -> None:
        """A stop was requested through the store."""
        self.stopped = True
        reason = reason or "a stop was requested through the store"
        self._run.watch.raise_interrupt(Interrupt(Signal.CANCEL, "KillSwitchConstraint", reason))

    def _make_failed_result(self, result: RunResult, error: StoreError) -> RunResult:
        run = self._run
        cause = _make_cause(error)
        run.turn.fail()
        run.conclude_with(
            ended := replace(
                result,
                state=AgentState.ERROR,
                outcome=LoopOutcome.FAILED,
                cause=cause if result.cause is None or result.cause.source != "store" else result.cause,
            )
        )
        return ended

    async def release(self) -> None:
        """Give the lease back. Never fails: a lease that is not given back expires."""
        try:
            await super().release()
        finally:
            self._run = None  # break the reference cycle between a run and its recorder

    # --- writing ----------------------------------------------------------------------------------------------

    def _write(
        self,
        last_items: Items,
        first: Items | None = None,
        *,
        summary: Mapping[str, Any] | None = None,
        last: bool = False,
        guards: bool = True,
        begins: bool = False,
    ) -> Awaitable[None] | None:
        """One commit: `first`, the new messages, the changed state, `last_items`. Raises `Touchdown` when it fails.

        With `begins` also when the run was stopped meanwhile: what was to begin does not. None when it is written;
        otherwise it is when this was awaited.
        """
        if self._flying is not None and self._run is not None:  # children write through their parent's recorder, too
            return self._write_after(last_items, first, summary, last, guards, begins)
        # One failure is final, even when the store works again: whether that commit is on disk, nobody knows.
        if self.broken is not None:
            raise _make_store_touchdown(self.broken)
        run = self._run
        try:
            items = self._gather(run, first or [], guards)
            items += last_items
            later = self.add(items, self.time, summary)
        except BaseException as error:
            later = self._raise_not_written(run, error)
        if later is not None:
            return self._finish_commit(self._watch(later), last, begins)
        self._conclude(run, last, begins)
        return None

    def _gather(self, run: Run, items: Items, guards: bool) -> Items:
        """Add what is new, in the order in which a reader applies it: the messages, then the state after them."""
        self._transcript.take_new(run.transcript.messages, items)
        changed = self.changes.take(run, guards)
        if changed is not None:
            items.append(("state", changed))
        self.time, counters = self._count(run)
        items.append(("tick", counters))
        if self.mailbox.stirred:
            items += self.mailbox.take_records()
        if self.children.spending:
            self.children.charge(items)
        return items

    _count = staticmethod(count)

    def _conclude(self, run: Run, last: bool, begins: bool) -> None:
        """A commit is written: say so, and let nothing begin in a run that was stopped meanwhile."""
        emit = run.voice.emit
        if emit is not None and not last:
            emit(SessionSaved, run.terms.session_id, self.sequence)  # not before: a listener may rely on it
        if begins and run.watch.interrupt is not None:
            raise run.make_interrupt()

    def _raise_not_written(self, run: Run, error: BaseException) -> NoReturn:
        """Nothing may follow a commit that may or may not be written: the chain would fork."""
        self._on_store_failure(error)
        if isinstance(error, KeyboardInterrupt):
            raise run.make_manual_interrupt() from None
        # SystemExit and CancelledError, too: nobody has cancelled the run.
        raise _make_store_touchdown(self.broken) from None  # type: ignore[arg-type]

    def _watch(self, later: Awaitable[None]) -> StoreAnswer:
        """A commit is on its way: nothing else is written until the store has answered."""
        # Our own stores answer in time and without a task; any other may be silent, and is watched.
        self._flying = flying = later if isinstance(later, StoreAnswer) else WatchedAnswer(later)
        flying.call_when_done(self._on_store_answer)
        return flying

    def _on_store_answer(self, answer: StoreAnswer) -> None:
        """The store has answered, whether or not the run still waits for it."""
        self._flying = None
        if answer.error is not None:
            self._on_store_failure(answer.error)

    async def _let_land(self) -> None:
        """Wait for the commit that is on its way, if one is."""
        while (flying := self._flying) is not None and self._run is not None:
            await self._wait_until_written(flying)
            # A signal handler raised before anybody was told: see `_wait_until_written`.
            if self._flying is flying:
                self._on_store_answer(flying)

    async def _write_after(self, last_items: Items, first: Items | None, *how: Any) -> None:
        """The same, after the commit that is on its way."""
        await self._let_land()
        summary, last, guards, begins = how
        await _await_write(
            JournalRecorder._write(self, last_items, first, summary=summary, last=last, guards=guards, begins=begins)
        )

    async def _finish_commit(self, flying: StoreAnswer, last: bool, begins: bool) -> None:
        """Wait for a commit that is on its way, as `_write` does for one that is written at once."""
        run = self._run
        await self._wait_until_written(flying)
        if self.broken is not None:
            raise _make_store_touchdown(self.broken)
        self._conclude(run, last, begins)

    def _on_store_failure(self, error: BaseException) -> None:
        """The store failed: nothing more is written, and the run ends."""
        self.broken = as_store_error(error)

    async def _wait_until_written(self, flying: StoreAnswer) -> None:
        """Wait until it is written, even if the run is interrupted: half a commit is useless."""
        watch = self._run.watch
        # A child writes through this recorder from a task that this run's watch does not own.
        if asyncio.current_task() is not watch.task:
            while not flying.done:
                await flying.make_done_future()
            return
        while not flying.done:
            with suppress(asyncio.CancelledError):  # the interrupt is recorded: nothing new begins
                await watch.wait(flying.make_done_future())

    def _summary(self, state: str, result: RunResult | None) -> dict[str, Any]:
        run, known = self._run, self.known
        cost = run.cost()
        task = next((m.text for m in run.transcript.messages if m.role == "user"), "")  # names the whole session
        return {
            "state": state,
            "outcome": None if result is None else result.outcome.value,
            "run_id": run.run_id,
            "agent": run.plan.config.agent_name,
            "model": run.plan.model_name,
            **({} if run.user is None else {"user": run.user}),
            "task": task[:200],
            "iterations": run.turn.iterations,
            "messages": len(run.transcript.messages),
            "tokens": run.meter.tokens - run.terms.carried.tokens,
            "cost": None if cost is None else str(cost),
            "parent": known.parent,
            **({"base": known.base} if known.base else {}),
            **({"forked": known.forked} if known.forked else {}),
            **sum_session(known.past, run),
        }

    # --- the heartbeat ----------------------------------------------------------------------------------------

    async def take_sign(self, sign: Sign) -> None:
        """React to the store: another process owns the session, or wants something."""
        run = self._run
        if run is None:
            return  # it has ended meanwhile
        if sign.lost:
            lost = _make_store_touchdown(StoreError("another owner has taken the session", kind="fenced"))
            reason = lost.verdict.cause.reason
            run.watch.raise_interrupt(Interrupt(Signal.CANCEL, "store", reason, lost.verdict))
            return
        if sign.mail > self.mailbox.taken:  # before the stop: a note may say who asked for it
            store: Any = self.store
            notes = await store_call(store.notes, self.lease.session_id, self.mailbox.taken)
            if self._run is not None:
                self.mailbox.take(run, notes)
        if sign.stop is not None:
            self.stop(sign.stop)


async def _await_write(later: Awaitable[None] | None) -> None:
    """Wait for a commit that is not written at once."""
    if later is not None:
        await later


def _make_cause(error: StoreError) -> StopCause:
    return StopCause(source="store", action="fail", reason=str(error), metrics={"kind": error.kind})


def _make_store_touchdown(error: StoreError) -> Touchdown:
    """The run cannot be saved: it fails, and keeps its text."""
    return Touchdown(Verdict(state=AgentState.ERROR, cause=_make_cause(error), gentle=False, cut=LoopOutcome.FAILED))
