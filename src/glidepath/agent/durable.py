"""Runs with a store: claim the session, read its journal, and give the run a scribe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, replace
from glidepath.agent.child_records import ChildRecords, add_child_spending, close_child_accounts, read_child_records
from glidepath.agent.resuming import check_decisions, is_about, reject_useless_decisions
from glidepath.run import Decision, Ending, Offspring, Resumption, make_unknown_decision, snapshot_of
from glidepath.sessions import (
    EVALUATION,
    TEAM,
    Folded,
    JournalRecorder,
    Session,
    add_measures,
    await_store,
    call_store,
    charge_reservation,
    claim_session,
    make_next_base,
    open_calls,
    read_decisions,
    read_folded_state,
    refuse_foreign,
)
from glidepath.sessions.recover import (
    abandon,
    add_inner_results,
    calls_needing_approval,
    decide_open_calls,
    drop_redacted_approvals,
    place_known_results,
)
from glidepath.sessions.repairing import repair_notice, unknown_calls
from glidepath.spi import Lease, Note
from glidepath.values import (
    AgentState,
    ConfigurationError,
    LoopOutcome,
    RunResult,
    Snapshot,
    StopCause,
    StoreError,
    Texts,
    ToolCall,
    Unknown,
    UnknownMessage,
)

if TYPE_CHECKING:
    from glidepath.agent.config import LoopConfig
    from glidepath.run import Plan, Run
    from glidepath.spi import SessionStore


def session_of(target: object) -> str:
    """The session to resume."""
    if isinstance(target, str) and target.strip():
        return target
    if isinstance(target, Session):
        return target.id
    if isinstance(target, RunResult):
        return target.session_id
    raise ConfigurationError(f"resume takes a session id, a RunResult or a Session, not {target!r:.100}")


class Opening(Record, kw_only=True):
    """A session that was claimed: where the run lives and what is in the journal already."""

    home: Session
    scribe: JournalRecorder | None = None
    error: StoreError | None = None
    written: int = 0
    base: Snapshot | None = None
    tail: frozenset[str] | None = None
    unknown: tuple[ToolCall, ...] = ()
    result: RunResult | None = None
    """The run is already done."""
    ended: RunResult | None = None
    """How it had ended, done or not."""
    snapshot: Snapshot | None = None
    decisions: Mapping[str, Decision] = {}
    decided: Mapping[str, Decision] = {}
    """Those of a person, which the journal keeps."""
    notes: Sequence[Note] = ()
    """What is in the session's inbox."""
    handed: Mapping[str, Decision] = {}
    """Those about a child's calls, which were made where its parent is."""
    stop: str | None = None
    """Why the run must stop: a stop requested while no process ran it."""
    counted: frozenset[str] = frozenset()
    """Calls that had not begun and are counted already."""
    offspring: Mapping[str, tuple[Offspring, ...]] = {}
    above: JournalRecorder | None = None
    """The parent's scribe, which knows of this child."""

    def make_resumption(self, snapshot: Snapshot) -> Resumption:
        """What the run continues from, with this state."""
        return Resumption(snapshot, self.decisions, counted=self.counted, offspring=self.offspring)

    def attach_recorder(self, run: Run) -> Ending | None:
        """Give the run its scribe; returns how it ends if the store has failed."""
        scribe = self.scribe
        if scribe is None:
            return _store_failure(self.error)
        # The result must name them even if this run never touches them: nobody else remembers.
        if self.unknown:
            run.work.mark_unknown(self.unknown)
        # What was in the session was repaired.
        if run.terms.resumed is None and self.written != len(run.transcript.messages):
            whole = [_encode_message(message) for message in run.transcript.messages]
            if scribe.number or self.written:
                scribe.ahead.append(("transcript", whole))
                self.written = len(run.transcript.messages)
        elif scribe.known.base == scribe.number + 1 and self.home.survey is not None and scribe.redactor is None:
            # The messages are those of the journal, in order, and now there is somebody who can measure them.
            scribe.ahead = [
                (kind, add_measures(one, run.transcript.messages, run.plan) if kind == "base" else one)
                for kind, one in scribe.ahead
            ]
        scribe.follow_run(run, written=self.written, base=self.base, tail=self.tail)
        # Only a person's decisions: verdicts about a crash are worked out again when the journal is next read.
        scribe.decisions = self.decided
        scribe.mailbox.take(run, self.notes)
        if self.stop is not None:
            scribe.stop(self.stop)
        run.write_to(scribe)
        return None


def _encode_message(message: object) -> Any:
    from glidepath._wire import Raw

    return Raw(message.raw) if type(message) is UnknownMessage else message


def _store_failure(error: StoreError | None) -> Ending:
    """The store could not be opened: the run ends before it begins."""
    kind = getattr(error, "kind", "unavailable")
    cause = StopCause(source="store", action="fail", reason=str(error), metrics={"kind": kind})
    return Ending(
        state=AgentState.ERROR, outcome=LoopOutcome.FAILED, cause=cause, text=f"Not started: {error}", partial=True
    )


class HeldSession(AbstractAsyncContextManager["Opening"]):
    """Claims a session and reads what its journal says; the lease is given back at the end.

    A class, as a generator would be three objects more in each of a thousand runs, until they end.
    """

    __slots__ = ("_create", "_how", "_opening")

    def __init__(
        self,
        opening: Opening,
        store: SessionStore,
        make: Callable[..., JournalRecorder],
        read: Callable[[Lease, JournalRecorder], Awaitable[None]],
        *,
        create: bool,
    ) -> None:
        self._opening, self._create = opening, create
        self._how: Any = (store, make, read)

    async def enter(self) -> Opening:
        """Claim and read. A caller of this must release the scribe at the end."""
        opening, create, name = self._opening, self._create, self._opening.home.id
        (store, make, read), self._how = self._how, None
        try:
            lease = await claim_session(store, name, create=create)
            scribe = make(store, lease)
            try:
                await read(lease, scribe)
            except BaseException:
                await scribe.release()
                raise
            opening.scribe = scribe
        except StoreError as error:
            if error.kind == "missing" and not create:
                raise ConfigurationError(f"resume({name!r:.80}): {error}") from None
            opening.error = error
        return opening

    __aenter__ = enter

    async def __aexit__(self, *_: object) -> None:
        scribe = self._opening.scribe
        if scribe is not None:
            await scribe.release()


def claim_home_session(
    config: LoopConfig,
    home: Session,
    *,
    store: SessionStore | None = None,
    parent: dict[str, str] | None = None,
    scribe: Callable[..., JournalRecorder] = JournalRecorder,
) -> HeldSession:
    """Claim a session for a new run, made when there is none; the lease is given back at the end."""
    opening, kept = Opening(home=home), store or config.store

    async def read(lease: Lease, scribe: JournalRecorder) -> None:
        if lease.head:
            folded = _require_run_journal(await await_store(read_folded_state(kept, home.id, lease.head)))
            # A run that ended has its children's spend in its own figures; only a crash leaves some of it in theirs.
            found = await read_child_records(kept, folded) if _has_crashed(folded) else None
            _move_in(home, folded, scribe, opening, config.texts, found)
            if folded.flag is not None:  # it was meant for a run before
                await scribe.forget_stop()
        await _open_inbox(kept, lease, scribe, opening)

    make = partial(scribe, parent=parent, durability=config.durability)
    return HeldSession(opening, kept, make, read, create=True)


def _require_run_journal(folded: Folded) -> Folded:
    """What was read, if it is the journal of a run: a run that wrote into a team's would make it unreadable."""
    name = folded.session.id
    if name.startswith(TEAM) and folded.sequence and folded.opened is None:
        request = name.removeprefix(TEAM)
        raise ConfigurationError(
            f"session {name!r:.80} is the journal of a team: continue it with Team.resume({request!r:.80}), or use "
            "another session"
        )
    if name.startswith(EVALUATION) and folded.sequence and folded.opened is None:
        raise ConfigurationError(f"session {name!r:.80} is the journal of an evaluation: use another session")
    return refuse_foreign(folded)


async def _open_inbox(store: SessionStore, lease: Lease, scribe: JournalRecorder, opening: Opening) -> None:
    """Messages sent to the session that are not in a journal yet."""
    if lease.mail > scribe.mailbox.taken:
        inbox: Any = store  # one that counts mail has an `Inbox`
        opening.notes = await await_store(call_store(inbox.notes, lease.session_id, scribe.mailbox.taken))


def _recall(scribe: JournalRecorder, folded: Folded) -> None:
    """Who wrote the last leg: which release, what its agent was like, and which session it is a fork of."""
    scribe.known.config, scribe.known.past = folded.config, folded.session
    scribe.known.base = folded.bases[-1][0] if folded.bases else 0
    scribe.known.writer = "" if folded.began is None else folded.began.version
    if folded.forked is not None:
        scribe.known.forked = {"origin": folded.forked.origin, "at": folded.forked.at}


def _has_crashed(folded: Folded) -> bool:
    """Its last run has not ended, and no process is running it."""
    return bool(folded.fields) and folded.result is None


def _move_in(
    home: Session, folded: Folded, scribe: JournalRecorder, opening: Opening, texts: Texts, found: ChildRecords | None
) -> None:
    """The session as the journal has it; a run that crashed there is closed, and so are its children (`found`)."""
    scribe.sequence = folded.sequence
    scribe.mailbox.skip_taken(folded.taken)
    _recall(scribe, folded)
    base = make_next_base(folded, scribe.number, scribe.hash)
    if base is not None:
        scribe.ahead.append(("base", base))
        scribe.known.base = scribe.number + 1
    opening.written = len(folded.messages)
    if folded.repaired is not None:
        opening.unknown = unknown_calls(folded.repaired)
    if found is not None:
        known = place_known_results(folded)
        if known:
            scribe.ahead.append(("placed", known))
        # Nobody can say what the call in flight has used: charging less than its worst case could break the budget.
        snapshot: Any = charge_reservation(folded.snapshot, folded.reserved)  # type: ignore[arg-type]
        told = len(snapshot.unknown_effects)
        snapshot = close_child_accounts(add_child_spending(snapshot, folded, found), found)
        ended, results = abandon(folded, snapshot, texts)
        opening.unknown += ended.unknown_effects[told:]
        scribe.ahead += [("message", result) for result in results]
        scribe.ahead.append(("ended", ended))
        folded.session.close_run(ended)
        opening.written = len(folded.messages)
    kept, snapshot = folded.session, folded.snapshot
    # In place: the caller's session keeps its list.
    home.messages[:] = kept.messages
    home.totals, home.state, home.version, home.last = kept.totals, kept.state, kept.version, kept.last
    home.survey = kept.survey or home.survey
    if snapshot is not None and "guardrails" not in home.metadata:
        home.metadata["guardrails"] = snapshot.guards


def reopen_session(
    config: LoopConfig,
    session_id: str,
    decisions: Mapping[str, Decision] | None,
    plan: Plan,
    *,
    store: SessionStore | None = None,
    run_id: str | None = None,
    accept_repair: bool = False,
    scribe: Callable[..., JournalRecorder] = JournalRecorder,
    handed: Mapping[str, Decision] = {},
) -> AbstractAsyncContextManager[Opening]:
    """Claim a session to continue its last run; raises `ConfigurationError` when there is none, or a different one.

    `handed` are decisions that came through a parent: those about calls that no longer wait are left out.
    """
    opening, kept = Opening(home=Session(session_id), handed=handed), store or config.store

    async def read(lease: Lease, scribe: JournalRecorder) -> None:
        folded = _require_run_journal(await await_store(read_folded_state(kept, session_id, lease.head)))
        # A result of an older run must not resume a newer one, whose calls it knows nothing about.
        if run_id is not None and folded.snapshot is not None and folded.snapshot.run_id != run_id:
            raise ConfigurationError(
                f"session {session_id!r} has had another run since {run_id!r}; resume that one, by the session's id"
            )
        if folded.repaired is not None:
            if not accept_repair:
                raise repair_notice(session_id, folded.repaired)
            opening.unknown = unknown_calls(folded.repaired)
        scribe.mailbox.skip_taken(folded.taken)
        await _open_inbox(kept, lease, scribe, opening)
        # After the inbox: a decision may have been posted while no process was running it.
        _prepare_continuation(folded, scribe, opening, decisions, plan)
        if folded.flag is not None and opening.result is None:
            if _has_obeyed(folded.result, folded.flag):
                await scribe.forget_stop()
            else:
                opening.stop = folded.flag
        if opening.snapshot is not None and (folded.result is None or folded.result.outcome is LoopOutcome.PAUSED):
            await _add_child_usage(kept, folded, scribe, opening)

    return HeldSession(opening, kept, partial(scribe, durability=config.durability), read, create=False)


def _has_obeyed(result: RunResult | None, flag: str) -> bool:
    """True if the journal says that this stop was already obeyed."""
    return result is not None and result.outcome is LoopOutcome.CANCELLED and _reason_of(result) == flag


def _reason_of(result: RunResult) -> str:
    return "" if result.cause is None else result.cause.reason


def _collect_decisions(
    folded: Folded, snapshot: Snapshot, opening: Opening, begun: Container[str] = ()
) -> dict[str, Decision]:
    """What a person decided from elsewhere about calls that still wait."""
    waiting = {one.call.id: one for one in snapshot.pending if one.call.id not in begun}
    posted = {**opening.handed, **read_decisions(opening.notes), **folded.decisions}
    return {
        call_id: decision
        for call_id, decision in posted.items()
        if call_id in waiting and (call_id in folded.redacted or is_about(decision, waiting[call_id]))
    }


def _prepare_continuation(
    folded: Folded, scribe: JournalRecorder, opening: Opening, decisions: object, plan: Plan
) -> None:
    result = folded.result
    opening.base = snapshot = folded.snapshot
    if snapshot is None:
        raise ConfigurationError(f"session {folded.session.id!r} has no run to resume; start one with run()")
    scribe.sequence, scribe.known.imported = folded.sequence, folded.imported
    _recall(scribe, folded)
    opening.ended = result
    if folded.opened is not None:
        scribe.known.parent = folded.opened.parent
    if result is not None and result.outcome is LoopOutcome.DONE:
        reject_useless_decisions(decisions, folded.decisions)
        opening.result = result
        return
    if result is not None:
        snapshot = snapshot_of(result)
        checked = check_decisions(decisions, snapshot, folded.decisions, (), folded.redacted)
        opening.decided = {**_collect_decisions(folded, snapshot, opening), **checked}
        opening.decisions = {
            **calls_needing_approval(folded, snapshot),
            **drop_redacted_approvals(folded, opening.decided),
        }
    else:
        known = place_known_results(folded)
        if known:
            scribe.ahead.append(("placed", known))
        snapshot = add_inner_results(folded, charge_reservation(snapshot, folded.reserved))
        begun = folded.intents.keys() | {*known}
        checked = check_decisions(decisions, snapshot, folded.decisions, begun, folded.redacted)
        opening.decided = {**_collect_decisions(folded, snapshot, opening, begun), **checked}
        opening.decisions = {
            **decide_open_calls(folded, snapshot, _find_tools(plan, folded)),
            **drop_redacted_approvals(folded, opening.decided),
        }
        # They were counted when they were queued; counted again they would use the limit up twice.
        opening.counted = frozenset(folded.queued)
    if folded.imported:  # a stranger may have written what is sent with every request: it is given again, or not sent
        snapshot = replace(snapshot, per_run=None, program_states={})
    # A run that fails between its first record and its first message has pinned a message that the journal lacks.
    pinned = tuple([place for place in snapshot.pinned if place < len(folded.session.messages)])
    opening.snapshot = snapshot if pinned == snapshot.pinned else replace(snapshot, pinned=pinned)
    opening.home = home = folded.session
    home.metadata["guardrails"] = _wire.loads(_wire.encode(snapshot.guards))  # theirs to change
    opening.written = len(home.messages)
    opening.tail = _find_unplaced_results(folded)


def _find_tools(plan: Plan, folded: Folded) -> Mapping[str, Any]:
    if plan.roster is None:
        return plan.tools
    from glidepath.agent.handoffs import find_speakers_tools  # few agents hand over

    return find_speakers_tools(plan, folded.session.messages)


async def _add_child_usage(store: SessionStore, folded: Folded, scribe: JournalRecorder, opening: Opening) -> None:
    """The state with what the children of unfinished calls have used since it was written down.

    A call with a child that cannot be read is unknown: the child may have done anything.
    """
    snapshot: Any = opening.snapshot
    found = await read_child_records(store, folded)
    opening.snapshot = add_child_spending(snapshot, folded, found)
    opening.offspring = found.by_call
    scribe.children.spending = dict(found.used)
    scribe.children.ids = {child.session_id for child in folded.children}
    # Only calls that had begun: one that had not has no child that could have done anything.
    lost = {call_id: make_unknown_decision(Unknown.CHILD_LOST) for call_id in found.lost if call_id in folded.intents}
    opening.decisions = {**opening.decisions, **lost}


def _find_unplaced_results(folded: Folded) -> frozenset[str] | None:
    """The results of the last batch, when some of its calls have none: those will be put between them."""
    from glidepath.values import ToolResultMessage

    if not open_calls(folded):
        return None
    tail = []
    for message in reversed(folded.messages):
        if type(message) is not ToolResultMessage:
            break
        tail.append(message.call_id)
    return frozenset(tail)
