"""The scribe: writes one run's journal during the run. Intent before the effect, result after it.

A commit has what came since the last one: messages, changes in the state of the run, and the reason for the commit: a
model call is about to start, with its worst-case cost; tool calls are about to start; one of several calls has ended;
the run is over. Without a store there is no scribe, and none of this happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from glidepath._version import VERSION
from glidepath._wire import Raw, loads, replace
from glidepath.errors import StoreError
from glidepath.events import ConfigurationChanged, SessionSaved
from glidepath.messages import AssistantMessage, ToolResultMessage, UnknownMessage, stored_arguments
from glidepath.outcome import AgentState, ConfigurationChange, LoopOutcome, RunResult, Snapshot, StopCause
from glidepath.run import Interrupt, Run, Signal, Touchdown, Verdict
from glidepath.run.fingerprint import Fingerprint, differences, fingerprint
from glidepath.run.snapshot import configured
from glidepath.sessions.answer import FAREWELL, StoreAnswer, WatchedAnswer, as_store_error, called, heard
from glidepath.sessions.capture import Capture, bare, moment
from glidepath.sessions.cards import whole_session
from glidepath.sessions.chain import SCHEMA, sealed
from glidepath.sessions.fold import Began, Child, Intent, Opened, Reserved, Used
from glidepath.sessions.inbox import SessionMailbox
from glidepath.sessions.journal_writer import Items, JournalWriter
from glidepath.spi.sessions import Commit, Lease, SessionStore, Sign

if TYPE_CHECKING:
    from glidepath.ledger import Meter
    from glidepath.run.seams import BookedCall
    from glidepath.sessions.session import Session

_NOBODY: frozenset[str] = frozenset()
_NOTHING: dict[str, Any] = {}


class Scribe(JournalWriter):
    """Writes what one run does."""

    __slots__ = (
        "_charged",
        "_filed",
        "_flying",
        "_odd",
        "_plain",
        "_run",
        "_vessel",
        "ahead",
        "base",
        "born",
        "capture",
        "config",
        "decisions",
        "durability",
        "forked",
        "imported",
        "kin",
        "mailbox",
        "parent",
        "past",
        "pins",
        "stopped",
        "tail",
        "time",
        "writer",
        "written",
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
        super().__init__(store, lease, sequence=sequence)
        self.durability = durability
        # Commits go to the store one by one and as they are.
        self._plain = self.redactor is None
        self._odd = True  # the next commit may need more than `_write_one` does
        self.config: Fingerprint | None = None
        """The agent's configuration when the journal was last written."""
        self.parent = parent
        self.past: Session | None = None  # the session as this run found it
        self.base = 0
        """The commit with the newest base."""
        self.forked: dict[str, Any] | None = None
        """Which session, and which of its turns, this one was forked from."""
        self.time = 0.0
        """When the last commit was written, in seconds since the epoch."""
        self.mailbox = SessionMailbox()
        self.stopped = False  # a stop request of the store was received: the end of the run acknowledges it
        self.imported = False
        """Some of the journal was imported."""
        self.writer = ""
        """The release that wrote the last leg."""
        self.capture: Any = None  # a Capture, from `attend` on
        self.written = 0  # messages of the transcript that are in the journal
        self.tail: frozenset[str] | None = None  # results among them, when others of their batch may join in between
        # Nothing is put into any of these: code that has something for one makes another.
        self.decisions: Mapping[str, Any] = _NOTHING
        self.pins: dict[str, Any] = _NOTHING
        """The digests of the tools that servers offer, by server."""
        self.kin: Mapping[str, Meter | Used] = _NOTHING  # children of running calls: our figures have their spending
        self.born: AbstractSet[str] = _NOBODY  # the sessions of all children that this run is known to have started
        self._charged: Mapping[str, Used] = _NOTHING
        self.ahead: Items = []  # records that wait for the first commit
        self._filed: dict[str, ToolResultMessage] = _NOTHING
        self._flying: StoreAnswer | None = None  # the commit that is on its way
        self._run: Any = None  # a Run, from `attend` on
        self._vessel: Any = None  # the transaction that takes the next commit, in place of the store

    # --- the beginning ----------------------------------------------------------------------------------------

    def attend(
        self, run: Run, *, written: int, base: Snapshot | None = None, tail: frozenset[str] | None = None
    ) -> None:
        """Follow this run. `written` messages and the state `base` are in the journal already."""
        self._run = run
        self.written = written
        self.capture = Capture(base)
        self.tail = tail
        self.keep_alive()

    async def begin(self) -> None:
        """The run begins, or continues: its first commit, with the task in it."""
        run = self._run
        plan = run.plan
        now, digest = fingerprint(plan)
        if not self.number:
            opened = Opened(schema=SCHEMA, session_id=self.lease.session_id, version=VERSION, parent=self.parent)
            # It comes first, so that a reader knows the schema before any other record.
            self.ahead.insert(0, ("opened", opened))
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
        if self.config != now:
            items.append(("config", now))
        if run.terms.resumed is not None:
            run.terms.note_changes(self._changes(now))
        await _written(self._write([], items, summary=self._summary(run.state.value, None)))
        if run.terms.changes:
            run.emit(ConfigurationChanged, run.terms.changes)

    def _changes(self, now: Fingerprint) -> tuple[ConfigurationChange, ...]:
        """What changed since the last leg; nothing if that was not recorded."""
        found = [] if self.config is None else list(differences(self.config, now))
        if self.writer not in ("", VERSION):
            found.insert(0, ConfigurationChange(what="version", before=self.writer, now=VERSION))
        return tuple(found)

    # --- in the middle ----------------------------------------------------------------------------------------

    def asking(self, booking: BookedCall) -> Awaitable[None] | None:
        """A model call is about to start; None when that is written already."""
        run, reservation, given = self._run, booking.reservation, booking.input
        tokens = reservation.tokens
        output = tokens - given if tokens > given else 0
        name = run.plan.model_name if run.spend.other_accounts and run.plan.model_name != configured(run) else ""
        reserved = Reserved(input=given, output=output, tokens=tokens, money=reservation.money, model=name)
        return self._write_one("reserved", reserved, guards=True)

    async def grown(self, booking: BookedCall) -> bool:
        """Record the larger reservation of a reply that outgrew it; False if that could not be written."""
        try:
            later = self.asking(booking)
            if later is not None:
                await later
        except Touchdown:
            return False
        return True

    def starting(
        self, jobs: Sequence[Any], queued: Sequence[Any] = (), done: Sequence[Any] = ()
    ) -> Awaitable[None] | None:
        """These calls are about to start; `queued` will later, `done` have just got their results. None: written."""
        run = self._run
        items: Items = []
        # A result is written when it is known, in any order; its place in the transcript follows as `placed`.
        for job in done:
            self._odd, message = True, job.bare_message(run)
            self._filed = {**self._filed, message.call_id: message}
            items.append(("result", message))
        if queued:
            items.append(("queued", [job.call.id for job in queued]))
        items += [("intent", self._intent(job)) for job in jobs]
        if len(items) == 1:
            return self._write_one(*items[0], guards=False)
        return self._write(items, guards=False, begins=bool(jobs))

    def _intent(self, job: Any) -> Intent:
        run, call, bound = self._run, job.call, job.bound
        call_id, name, written, data, behind = call.id, call.name, stored_arguments(call), bound.data, run.plan.behind
        as_written = written.__class__ is Raw and (written == Raw(data) or loads(written) == loads(data))
        return Intent(
            call_id=call_id,
            key=f"{run.run_id}:{call_id}",
            arguments=None if as_written or bound.arguments == call.arguments else bound.arguments,
            idempotent=job.tool.idempotent,
            tool=name if behind and name in behind else "",
            transactional=job.tool.transactional,
        )

    async def land(self, message: ToolResultMessage, transaction: Any) -> None:
        """Write a call's result in the transaction that has its effect. Raises `Touchdown` when it is not written."""
        while self._flying is not None and self._run is not None:
            await self._see_through(self._flying)
        if self._run is None:
            raise _down(self.broken or StoreError("the run has ended", kind="fenced"))
        # No await up to the append: nothing else may take this place in the chain.
        self._vessel = transaction
        try:
            self._odd = True
            self._filed = {**self._filed, message.call_id: message}
            later = self._write([("result", message)], guards=False)
        finally:
            self._vessel = None
        await _written(later)

    def unfile(self, call_id: str) -> None:
        """This result does not join the transcript: a program has it."""
        self._filed.pop(call_id, None)

    async def spawned(self, call_id: str, session_id: str, agent: str) -> None:
        """A call is about to start a child with its own journal."""
        # Written before the child does anything: after a crash, its effects must be traceable.
        await _written(self._write([("child", Child(call_id=call_id, session_id=session_id, agent=agent))]))
        self.born |= {session_id}

    def follow(self, session_id: str, meter: Meter) -> None:
        """A child is running: what it spends is in the figures of this run from now on."""
        self.kin = {**self.kin, session_id: meter}
        self._odd = True

    def expect_earlier(self) -> None:
        """Results may join the transcript before some that are in the journal."""
        if self.tail is None:
            self.tail = frozenset()
        self._odd = True

    # --- the end ----------------------------------------------------------------------------------------------

    async def end(self, result: RunResult) -> RunResult:
        """Write the last commit. If that fails, the result says so, and keeps its text."""
        # A note that was taken and never reached the model waits for the next run.
        result = self.mailbox.put_back(self._run, result)
        snapshot = result.snapshot
        if snapshot is not None:
            snapshot = replace(snapshot, children=tuple(map(bare, snapshot.children)))
        children = tuple(map(bare, result.children))
        kept = replace(result, messages=(), new_messages=(), children=children, snapshot=snapshot)
        try:
            if self.broken is None:
                summary = self._summary(result.state.value, result)
                await _written(self._write([("ended", kept)], summary=summary, last=True))
        except Touchdown:
            pass
        if self.broken is None:
            if self.stopped and result.outcome is LoopOutcome.CANCELLED:
                await self.forget_stop()
            return result
        return self._failed(result, self.broken)

    async def forget_stop(self) -> None:
        """Clear a stop request that was obeyed or meant for an earlier run. If it fails, the journal still says so."""
        with suppress(Exception):
            await heard(called(self.store.flag, self.lease.session_id, None), FAREWELL)

    def stop(self, reason: str) -> None:
        """A stop was requested through the store."""
        self.stopped = True
        reason = reason or "a stop was requested through the store"
        self._run.watch.raise_interrupt(Interrupt(Signal.CANCEL, "KillSwitchConstraint", reason))

    def _failed(self, result: RunResult, error: StoreError) -> RunResult:
        run = self._run
        cause = _cause(error)
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
            self._run = None  # break the reference cycle between a run and its scribe

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
        if self._flying is not None and self._run is not None:  # children write through their parent's scribe, too
            return self._write_after(last_items, first, summary, last, guards, begins)
        if self.broken is not None:
            raise _down(self.broken)
        run = self._run
        try:
            later = self._commit(run, last_items, first or [], summary, last, guards)
        except BaseException as error:
            later = self._not_written(run, error)
        if later is not None:
            return self._waited(run, later, last, begins)
        if run.voice.listening and not last:
            self._tell_saved(run)
        if begins and run.watch.interrupt is not None:
            raise run.interrupted()
        return None

    def _not_written(self, run: Run, error: BaseException) -> NoReturn:
        """Nothing may follow a commit that may or may not be written: the chain would fork."""
        self._break(error)
        if isinstance(error, KeyboardInterrupt):
            raise run.interrupted_by_hand() from None
        # SystemExit and CancelledError, too: nobody has cancelled the run.
        raise _down(self.broken) from None  # type: ignore[arg-type]

    def _waited(self, run: Run, later: Awaitable[None], last: bool, begins: bool) -> Coroutine[Any, Any, None]:  # noqa: ARG002 - a cruise passes it
        self._odd = True
        # Our own stores answer in time and without a task; any other may be silent, and is watched.
        flying = later if isinstance(later, StoreAnswer) else WatchedAnswer(later)
        self._flying = flying
        flying.then(self._land)
        return self._landed(flying, last, begins)

    def _land(self, answer: StoreAnswer) -> None:
        """The store has answered, whether or not the run still waits for it."""
        self._flying = None
        if answer.error is not None:
            self._break(answer.error)
        else:
            self._odd = self._is_odd()

    async def _write_after(self, last_items: Items, first: Items | None, *how: Any) -> None:
        """The same, after the commit that is on its way."""
        while self._flying is not None and self._run is not None:
            await self._see_through(self._flying)
        summary, last, guards, begins = how
        await _written(Scribe._write(self, last_items, first, summary=summary, last=last, guards=guards, begins=begins))

    async def _landed(self, flying: StoreAnswer, last: bool, begins: bool) -> None:
        """Wait for a commit that is on its way, as `_write` does for one that is written at once."""
        run = self._run
        if asyncio.current_task() is run.watch.task:  # as `_see_through`, twice a turn
            while not flying.done:
                with suppress(asyncio.CancelledError):
                    await run.watch.wait(flying.bell())
        else:
            await self._see_through(flying)
        if self.broken is not None:
            raise _down(self.broken)
        if run.voice.listening and not last:
            self._tell_saved(run)
        if begins and run.watch.interrupt is not None:
            raise run.interrupted()

    def _tell_saved(self, run: Run) -> None:
        """Not before it is on disk: a listener may rely on it."""
        voice = run.voice  # as `Run.emit`, twice a turn
        number, at, name = voice.next_number(), voice.now(), run.terms.session_id
        voice.tell_all(SessionSaved(run.run_id, voice.parent_id, number, at, name, self.sequence))  # type: ignore[misc]

    def _write_one(self, kind: str, payload: object, *, guards: bool) -> Awaitable[None] | None:
        """`_write` in short, for what nearly every commit has: a message, perhaps a changed state, and what begins."""
        run = self._run
        messages, written, sequence, number = run.transcript.messages, self.written, self.sequence, self.number + 1
        if (
            self._odd
            or len(messages) != written + 1
            or self.mailbox.stirred
            or (message := messages[written]).__class__ is UnknownMessage
        ):
            return self._write([(kind, payload)], guards=guards, begins=True)
        try:
            changed = self.capture.changes(run, guards)
            now, figures = moment(run)
            self.time = now
            records: list[tuple[int, float, str, Any]]
            if changed is None:
                records = [(sequence + 1, now, "message", message), (sequence + 2, now, "tick", figures)]
                sequence += 3
            else:
                records = [
                    (sequence + 1, now, "message", message),
                    (sequence + 2, now, "state", changed),
                    (sequence + 3, now, "tick", figures),
                ]
                sequence += 4
            records.append((sequence, now, kind, payload))
            commit = sealed(self.hash, number, records)
            later = self.store.append(self.lease, commit, summary=None, durability=self.durability)
            # The chain advances only after the store has accepted the commit: a failed write leaves no gap.
            self.number, self.hash, self.sequence, self.written = number, commit.hash, sequence, written + 1
        except BaseException as error:
            later = self._not_written(run, error)
        if later is not None:
            return self._waited(run, later, last=False, begins=True)
        if run.voice.listening:
            self._tell_saved(run)
        if run.watch.interrupt is not None:
            raise run.interrupted()
        return None

    def _commit(
        self,
        run: Run,
        last_items: Items,
        items: Items,
        summary: Mapping[str, Any] | None,
        last: bool,
        guards: bool,
    ) -> Awaitable[None] | None:
        """Gather what is new, in the order in which a reader applies it, and give it to the store."""
        # The messages, the state after them, then what is about to begin.
        messages = run.transcript.messages
        items += self._new_messages()
        changed = self.capture.changes(run, guards)
        if changed is not None:
            items.append(("state", changed))
        self.time, figures = self._moment(run)
        items.append(("tick", figures))
        if self.mailbox.stirred:
            items += self.mailbox.news()
        if self.kin:
            self._charge(items)
        items += last_items
        later = self.add(items, self.time, summary, last)
        self.written = len(messages)
        self._odd = self._is_odd()
        return later

    def _is_odd(self) -> bool:
        """The next commit needs more than `_write_one` does."""
        return bool(not self._plain or self.broken is not None or self.tail is not None or self.kin or self._filed)

    def _charge(self, items: Items) -> None:
        """Record how much of each child is in the figures of this commit: a resume adds only what came after it."""
        if any(kind == "message" and type(message) is AssistantMessage for kind, message in items):
            self.kin = self._charged = _NOTHING  # their calls have ended
            return
        charged = {name: one if isinstance(one, Used) else _used(one) for name, one in self.kin.items()}
        if charged != self._charged:
            self._charged = charged
            items.append(("charged", charged))

    _moment = staticmethod(moment)

    def _append(self, commit: Commit, summary: Mapping[str, Any] | None, last: bool) -> Awaitable[None] | None:  # noqa: ARG002 - of the journal writer
        taker = self._vessel or self.store
        return taker.append(self.lease, commit, summary=summary, durability=self.durability)

    def _break(self, error: BaseException) -> None:
        """The store failed: nothing more is written, and the run ends."""
        self._odd = True
        self.broken = as_store_error(error)

    async def _see_through(self, flying: StoreAnswer) -> None:
        """Wait until it is written, even if the run is interrupted: half a commit is useless."""
        watch = self._run.watch
        # A child writes through this scribe from a task that this run's watch does not own.
        if asyncio.current_task() is not watch.task:
            while not flying.done:
                await flying.bell()
            return
        while not flying.done:
            with suppress(asyncio.CancelledError):  # the interrupt is recorded: nothing new begins
                await watch.wait(flying.bell())

    def _new_messages(self) -> Items:
        messages = self._run.transcript.messages
        if self.tail is not None:
            recent = messages[self.written - len(self.tail) :]
            fresh = [one for one in recent if type(one) is not ToolResultMessage or one.call_id not in self.tail]
            if len(recent) - len(fresh) != len(self.tail):
                raise StoreError("the transcript was changed while its run was running", kind="conflict")
            results = [one.call_id for one in fresh if type(one) is ToolResultMessage]
            self.tail = self.tail.union(results) if len(results) == len(fresh) else None
        else:
            fresh = messages[self.written :]
        filed = self._filed
        items: Items = []
        for message in fresh:
            if type(message) is ToolResultMessage and filed.pop(message.call_id, None) == message:
                items.append(("placed", [message.call_id]))
            else:
                items.append(("message", Raw(message.raw) if type(message) is UnknownMessage else message))
        return items

    def _summary(self, state: str, result: RunResult | None) -> dict[str, Any]:
        run = self._run
        cost = run.cost()
        task = next((m.text for m in run.transcript.messages[run.transcript.first_new :] if m.role == "user"), "")
        return {
            "state": state,
            "outcome": None if result is None else result.outcome.value,
            "run_id": run.run_id,
            "agent": run.plan.config.agent_name,
            "model": run.plan.model_name,
            "task": task[:200],
            "iterations": run.turn.iterations,
            "messages": len(run.transcript.messages),
            "tokens": run.meter.tokens - run.terms.carried.tokens,
            "cost": None if cost is None else str(cost),
            "parent": self.parent,
            **({"base": self.base} if self.base else {}),
            **({"forked": self.forked} if self.forked else {}),
            **whole_session(self.past, run),
        }

    # --- the heartbeat ----------------------------------------------------------------------------------------

    async def hear(self, sign: Sign) -> None:
        """React to the store: another process owns the session, or wants something."""
        run = self._run
        if run is None:
            return  # it has ended meanwhile
        if sign.lost:
            lost = _down(StoreError("another owner has taken the session", kind="fenced"))
            reason = lost.verdict.cause.reason
            run.watch.raise_interrupt(Interrupt(Signal.CANCEL, "store", reason, lost.verdict))
            return
        if sign.mail > self.mailbox.taken:  # before the stop: a note may say who asked for it
            store: Any = self.store
            notes = await heard(called(store.notes, self.lease.session_id, self.mailbox.taken))
            if self._run is not None:
                self.mailbox.take(run, notes)
        if sign.stop is not None:
            self.stop(sign.stop)


async def _written(later: Awaitable[None] | None) -> None:
    """Wait for a commit that is not written at once."""
    if later is not None:
        await later


def _used(meter: Meter) -> Used:
    return Used(meter.tokens, meter.money, meter.turns, meter.tool_calls, meter.descendants + 1)


def _cause(error: StoreError) -> StopCause:
    return StopCause(source="store", action="fail", reason=str(error), metrics={"kind": error.kind})


def _down(error: StoreError) -> Touchdown:
    """The run cannot be saved: it fails, and keeps its text."""
    return Touchdown(Verdict(state=AgentState.ERROR, cause=_cause(error), gentle=False, cut=LoopOutcome.FAILED))
