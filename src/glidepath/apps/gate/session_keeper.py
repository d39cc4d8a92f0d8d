"""Keeps the runs of foreign programs: a session with a journal for each agent, and events for anyone who listens.

A run begins with the first call of an agent. It ends when the agent has answered and nothing more comes for a while, or
when the gate closes; a later call reopens it. After a restart the tree is what the store says: what was spent counts
again, and a call that was in flight counts at its worst case.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, field, replace
from glidepath.apps.gate.attribution import headers_of, session_named
from glidepath.apps.gate.foreign_endings import LEFT, conclude
from glidepath.apps.gate.foreign_events import ForeignVoice, Observer
from glidepath.apps.gate.foreign_journal import ForeignJournal
from glidepath.apps.gate.foreign_run import ForeignRun
from glidepath.apps.gate.foreign_store import (
    OTHER,
    child_name,
    read_family,
    recent_names,
    restore_session,
    session_name,
)
from glidepath.apps.gate.foreign_transcript import own_reply, read_conversation, reply_of
from glidepath.apps.gate.gate_prices import provider_of
from glidepath.apps.gate.inbox_notes import take_notes
from glidepath.apps.gate.known_agents import recognize
from glidepath.apps.gate.orders import look_at_flag, stop_run
from glidepath.apps.gate.starting_calls import program_of, starting_call
from glidepath.apps.server.locks import Allowance
from glidepath.apps.server.owners import Owners
from glidepath.sessions import Child, Items, await_store, claim_session, read_journal
from glidepath.spi import Sign
from glidepath.tools import clean
from glidepath.values import StoreError, TextOrigin, UserMessage, describe_error

if TYPE_CHECKING:
    from glidepath.apps.gate.attribution import Attribution
    from glidepath.apps.gate.gate_calls import GateCall
    from glidepath.apps.gate.governing import GateRequest
    from glidepath.apps.gate.lines import Line
    from glidepath.apps.gate.passage import GovernedPassage
    from glidepath.apps.gate.tree import ForeignSession
    from glidepath.apps.telemetry import OpenTelemetry
    from glidepath.kernel import CallCharge
    from glidepath.spi import SessionStore
    from glidepath.values import Message, Verdict

IDLE = 30.0
"""Seconds after its answer in which a run may be asked something else and is still the same leg."""
LOST = 900.0
"""Seconds after which a run that has not answered is presumed gone."""
MOST_KNOWN = 10_000
"""Lines whose sessions in the store were looked at."""
LOOK = 1.0
FAREWELL = 10.0
_log = logging.getLogger("glidepath.gate")


def observe_by(telemetry: OpenTelemetry | None) -> list[Callable[[ForeignRun], Observer | None]]:
    """Have runs told to telemetry, where there is any."""
    return [] if telemetry is None else [lambda _: telemetry.for_run().event_observer]


class SessionRecord(Record, eq=False):
    """What is kept beside a session of the tree."""

    root: ForeignRun | None = None
    is_flagged: bool = False
    """It was stopped through the store, and is free again when that is taken back there."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SessionKeeper:
    """A `Witness` that keeps sessions. Without a store it only tells events.

    `observe` is asked for observers of a run, one leg at a time: functions of an event. `idle` and `lost` are seconds.
    One that does not adopt continues only sessions that a request names.
    """

    def __init__(
        self,
        store: SessionStore | None = None,
        *,
        observe: Sequence[Callable[[ForeignRun], Observer | None]] = (),
        idle: float = IDLE,
        lost: float = LOST,
        adopts: bool = True,
    ) -> None:
        self.store = store
        self.observe = list(observe)
        self.admit: Callable[[ForeignRun], Awaitable[None]] | None = None
        """Asked before a run begins or continues; raises `Refused` for one that must not."""
        self._allowance = Allowance(store)
        self._idle = idle
        self._lost = lost
        self._adopts = adopts
        self._open: dict[str, ForeignRun] = {}
        self._adopted: set[str] = set()
        self._locks: dict[str, asyncio.Lock] = {}
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False

    # --- finding --------------------------------------------------------------------------------------------------

    @property
    def open_runs(self) -> list[ForeignRun]:
        """The runs that have not ended."""
        return list(self._open.values())

    def find(self, run_id: str) -> ForeignRun | None:
        """The run of this id that has not ended."""
        return self._open.get(run_id)

    async def recall(self, line: Line, request: GateRequest, attribution: Attribution) -> None:
        """Have the session of a request in the tree, if the store keeps it."""
        if self.store is None:
            return
        if self._adopts and line.name not in self._adopted:
            await self.adopt(line, attribution)
        headers = headers_of(request.headers)
        identity = session_named(recognize(headers), request.line, headers)
        session = None if identity is None else line.sessions.get(identity)
        if identity is not None and session is None:
            async with self._lock_of(line):  # another request of this session may be at it
                if identity not in line.sessions:
                    await self._restore(line, session_name(line.name, identity), attribution)
        elif session is not None and session.record is not None and session.record.is_flagged:
            await look_at_flag(self.store, session)

    def _lock_of(self, line: Line) -> asyncio.Lock:
        return self._locks.setdefault(line.name, asyncio.Lock())

    async def adopt(self, line: Line, attribution: Attribution) -> None:
        """Take over what earlier gates have left of a line: runs that have not ended continue, or end, here."""
        async with self._lock_of(line):
            if line.name in self._adopted:
                return
            for name in await recent_names(self.store, line.name):
                try:
                    runs = await self._restore(line, name, attribution)
                except StoreError as error:
                    if error.kind not in ("damaged", "newer", "schema"):
                        raise
                    _log.error("session %s is not adopted: %s", name, error)  # anyone who names it is refused
                    continue
                for foreign in runs:
                    if foreign.ended is None and not foreign.is_open:
                        await self._adopt_run(foreign)
            if len(self._adopted) >= MOST_KNOWN:  # of many users: to look once more does no harm
                self._adopted.clear()
                self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
            self._adopted.add(line.name)

    async def _adopt_run(self, foreign: ForeignRun) -> None:
        try:
            await self._open_run(foreign)
            await self._flush(foreign)
        except StoreError as error:
            if error.kind != "busy":
                raise
            foreign.is_open = False  # another living gate writes it

    async def _restore(self, line: Line, name: str, attribution: Attribution) -> list[ForeignRun]:
        kept = [one for one in await read_family(self.store, name) if one.note.line == line.name]
        if not kept or kept[0].note.session in line.sessions:
            return []
        runs = restore_session(line, kept, attribution)
        session = runs[0].session
        session.record = SessionRecord(root=runs[0], is_flagged=session.stopped is not None)
        return runs

    # --- calls ----------------------------------------------------------------------------------------------------

    async def begin_call(self, passage: GovernedPassage) -> None:
        """Write what the call may cost at worst, with what the request has told."""
        call = passage.call
        foreign = await self._run_of(call)
        items = [*self._take_request(foreign, call), *self._take_notices(foreign, passage)]
        foreign.iterations += 1
        foreign.landing_calls += passage.landing is not None
        foreign.touched = call.now()
        passage.mark = foreign.cover(passage).mark
        if foreign.writer is not None:
            foreign.writer.put(*items, summarize=passage.landing is not None)
            await foreign.writer.flush()
        foreign.teller.begin_call(passage, foreign.iterations)

    def _take_request(self, foreign: ForeignRun, call: GateCall) -> Items:
        """What a request tells that the journal does not have."""
        before = len(foreign.conversation.messages)
        new = foreign.conversation.take(read_conversation(call.facts.dialect, call.facts.body))
        if new is None:
            foreign.teller.rewrite(before, foreign.conversation.messages)
            return foreign.conversation.records()
        foreign.teller.add_messages(new)
        return [("message", message) for message in new]

    def _take_notices(self, foreign: ForeignRun, passage: GovernedPassage) -> Items:
        """What the model is told by us, marked as ours; once."""
        notices, items = foreign.agent.notices, []
        for number in range(foreign.noticed, len(notices)):
            is_landing = passage.landing is not None and number == len(notices) - 1
            reason, text = "landing" if is_landing else "wind_down", notices[number].text
            items.append(("message", foreign.conversation.add(UserMessage(text, internal=True, reason=reason))))
            foreign.teller.notify(reason, text)
        foreign.noticed = len(notices)
        return items

    def follow_growth(self, passage: GovernedPassage, size: int) -> bool:
        """Write a larger worst case ahead of a reply that grows."""
        foreign: ForeignRun | None = passage.call.agent.record
        if foreign is None or passage not in foreign.passages or foreign.writer is None:
            passage.mark = float("inf")
            return True
        journal, before = foreign.writer, foreign.passages[passage].size
        if journal.is_written:  # else the last one is on its way, and what it says is not kept yet
            passage.mark = foreign.cover(passage, size).mark
            journal.put()
        return size <= before or journal.is_written

    async def catch_up(self, passage: GovernedPassage) -> None:
        """Wait until the worst case of a reply is written."""
        foreign: ForeignRun | None = passage.call.agent.record
        if foreign is not None and passage in foreign.passages and foreign.writer is not None:
            await self._flush(foreign)
            size = passage.reader.visible + passage.reader.hidden
            if size > passage.mark:
                passage.mark = foreign.cover(passage, size).mark
                foreign.writer.put()
                await self._flush(foreign)

    def end_call(self, passage: GovernedPassage, charge: CallCharge | None) -> None:
        """Write what a call cost and how it ended; nobody waits for that."""
        call = passage.call
        foreign: ForeignRun | None = call.agent.record
        if foreign is None or foreign.passages.pop(passage, None) is None:
            return
        foreign.touched = call.now()
        reply = None
        if charge is None:
            foreign.iterations -= 1
            foreign.landing_calls -= passage.landing is not None
            if passage.is_refused:
                foreign.failure = f"the upstream answered {passage.status}"
        else:
            foreign.charge(call.facts.model, charge)
            reply = reply_of(passage)
        if reply is not None and charge is not None:
            reply = self._take_reply(foreign, passage, replace(reply, usage=charge.usage))
        if foreign.writer is not None:
            items = [] if reply is None else [("message", reply)]
            foreign.writer.put(*items, summarize=foreign.has_answered)
        foreign.teller.end_call(passage, charge, reply)

    def _take_reply(self, foreign: ForeignRun, passage: GovernedPassage, told: Message) -> Any:
        """Note how a call has ended; its reply as it is kept."""
        reply: Any = foreign.conversation.add(told)
        reader, calls = passage.reader, reply.tool_calls
        foreign.tool_calls += len(calls)
        foreign.failure = reply.error
        foreign.stop_reason = reply.stop_reason
        foreign.landing = passage.landing
        foreign.has_answered = not calls and reply.error is None and (reader.is_complete or passage.is_cut)
        if reply.text:
            foreign.text = reply.text
            whole = reader.client_text == reader.text
            foreign.text_origin = TextOrigin.MODEL if whole else TextOrigin.RUNTIME
        return reply

    async def answer_call(self, call: GateCall, text: str, why: Verdict) -> None:
        """Write that we have answered in the model's place."""
        foreign = await self._run_of(call)
        before = foreign.conversation.messages[-1] if foreign.conversation.messages else None
        reply = own_reply(text)
        items = self._take_request(foreign, call)
        foreign.touched, foreign.landing, foreign.has_answered = call.now(), why, True
        foreign.text, foreign.text_origin = text, TextOrigin.RUNTIME
        if before == reply and foreign.conversation.messages[-1:] == [before]:
            return  # it asks the same again, and is told the same
        foreign.conversation.add(reply)
        if foreign.writer is not None:
            foreign.writer.put(*items, ("message", reply), summarize=True)
            await foreign.writer.flush()
        foreign.teller.add_messages([reply])

    # --- opening --------------------------------------------------------------------------------------------------

    async def _run_of(self, call: GateCall) -> ForeignRun:
        """The run of a call, open: its journal is claimed, and says that it began. Raises `StoreError`."""
        foreign: ForeignRun | None = call.agent.record
        if foreign is not None and foreign.is_open and (foreign.writer is None or foreign.writer.broken is None):
            return foreign
        record = self._record_of(call.session)
        async with record.lock:
            foreign = call.agent.record or self._make_run(call, record)
            foreign.who = foreign.who or call.request.key
            if foreign.parent is not None:
                await self._ensure_open(foreign.parent)
            await self._ensure_open(foreign)
            return foreign

    def _record_of(self, session: ForeignSession) -> SessionRecord:
        record: SessionRecord | None = session.record
        if record is None:
            record = session.record = SessionRecord()
        return record

    def _make_run(self, call: GateCall, record: SessionRecord) -> ForeignRun:
        agent, root = call.agent, record.root
        if root is not None and self._takes_over(call, root):
            # The first call was a title or a check: the conversation that counts begins now.
            root.agent.record, root.agent, agent.record = None, agent, root
            return root
        above = None if root is None else (agent.parent.record if agent.parent is not None else None) or root
        name, call_id = session_name(call.line.name, call.session.id), ""
        if above is not None:
            call_id = starting_call(above, call.facts.first_text)
            name = child_name(above.name, call_id, agent.id, 1 + len(above.children))
        foreign = ForeignRun(
            agent,
            name,
            line=call.line.name,
            program=program_of(call) if above is None else above.program,
            model=clean(call.facts.model),
            provider=provider_of(call.facts.dialect),
            parent=above,
            call_id=call_id,
            started=time.time(),
        )
        agent.record = foreign
        if above is None:
            record.root = foreign
        return foreign

    def _takes_over(self, call: GateCall, root: ForeignRun) -> bool:
        agent = call.agent
        return agent.parent is None and agent.has_tools and not root.agent.has_tools and not root.passages

    async def _ensure_open(self, foreign: ForeignRun) -> None:
        journal = foreign.writer
        if foreign.is_open and (journal is None or journal.broken is None):
            return
        if journal is not None:  # its store has failed, or another gate has it: begin again from its state
            foreign.position, foreign.writer = None, None
            await journal.release()
        await self._open_run(foreign)
        await self._flush(foreign)

    async def _open_run(self, foreign: ForeignRun) -> None:
        if self._is_closed:
            raise StoreError("this gate is closing")
        if self.admit is not None:
            await self.admit(foreign)
        if foreign.parent is None and foreign.who is not None and not foreign.is_open:
            await self._allowance.count_start(foreign.who)
        resumed = foreign.ended is not None or foreign.is_open or foreign.position is not None
        if self.store is not None:
            foreign.writer = await self._claim(foreign)
            # Whatever is known of the conversation and not surely in this journal is written with the beginning.
            rewrites = foreign.position is None and (foreign.writer.number > 0 or bool(foreign.conversation.messages))
            foreign.noticed = sum(1 for one in foreign.conversation.messages if getattr(one, "internal", False))
            foreign.ended = None
            foreign.writer.begin(resumed=resumed, rewrites=rewrites)
            foreign.writer.on_sign = self._hear
            foreign.writer.keep_alive()
        foreign.ended, foreign.is_open, foreign.touched = None, True, foreign.session.clock()
        self._open[foreign.run_id] = foreign
        self._start_looking()
        heard_by = [make(foreign) for make in self.observe]
        foreign.teller = ForeignVoice(foreign, [one for one in heard_by if one is not None])
        foreign.teller.start(resumed=resumed)
        await self._mark_owner(foreign)
        if foreign.parent is not None and foreign.parent.writer is not None and not resumed:
            child = Child(call_id=foreign.call_id, session_id=foreign.name, agent=foreign.agent_name)
            foreign.parent.writer.put(("child", child))
            await self._flush(foreign.parent)

    async def _mark_owner(self, foreign: ForeignRun) -> None:
        """Say in the store whose a session is: the holder of the key, and nobody else, reaches it in the deck."""
        if foreign.parent is None and foreign.who is not None and foreign.writer is not None:
            await Owners(self.store).mark(foreign.who, foreign.name, None)

    async def _claim(self, foreign: ForeignRun) -> ForeignJournal:
        """Become the writer of its journal; of another one, where another gate writes that."""
        store: Any = self.store
        try:
            lease = await claim_session(store, foreign.name)
        except StoreError as error:
            if error.kind != "busy":
                raise
            foreign.name, foreign.position = f"{foreign.name.partition(OTHER)[0]}{OTHER}{os.urandom(3).hex()}", None
            lease = await claim_session(store, foreign.name)
        if not lease.head or (foreign.position is not None and foreign.position[:2] == (lease.head, lease.hash)):
            return ForeignJournal(
                store, lease, foreign, sequence=0 if foreign.position is None else foreign.position[2]
            )
        try:
            journal = await await_store(read_journal(store, foreign.name))
        except BaseException:
            await store.release(lease)
            raise
        foreign.position = None
        return ForeignJournal(store, lease, foreign, sequence=journal.folded.sequence)

    async def _flush(self, foreign: ForeignRun) -> None:
        if foreign.writer is not None:
            await foreign.writer.flush()

    # --- what the store reports -----------------------------------------------------------------------------------

    async def _hear(self, foreign: ForeignRun, sign: Sign) -> None:
        if sign.stop is not None and foreign.session.stopped is None:
            stop_run(foreign, sign.stop)
            foreign.session.record.is_flagged = True
        if foreign.writer is not None and sign.mail > foreign.writer.taken:
            await take_notes(self.store, foreign)

    # --- ending ---------------------------------------------------------------------------------------------------

    def _start_looking(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="glidepath-gate-sessions")

    async def _look(self) -> None:
        """End the runs that are over, the children first."""
        while self._open:
            await asyncio.sleep(min(LOOK, self._idle / 2))
            for foreign in reversed(self.open_runs):
                if self._is_over(foreign):
                    try:
                        await self.end_run(foreign)
                    except Exception as error:
                        _log.error("run %s could not be ended: %s", foreign.run_id, describe_error(error))

    def _is_over(self, foreign: ForeignRun) -> bool:
        if foreign.passages or any(one.is_open for one in foreign.children):
            return False
        silent = foreign.session.clock() - foreign.touched
        if foreign.session.stopped is not None or foreign.stopped is not None:
            return True
        return silent > (self._idle if foreign.has_answered else self._lost)

    async def end_run(self, foreign: ForeignRun, left: str = LEFT) -> None:
        """Write how a run ended and give its session back. Never fails because of the store."""
        if self._open.pop(foreign.run_id, None) is None:
            return
        foreign.is_open = False
        foreign.ended = result = conclude(foreign, time.time(), left)
        journal, foreign.writer = foreign.writer, None
        if journal is not None:
            journal.end(result)
            try:
                await journal.flush()
                foreign.position = (journal.number, journal.hash, journal.sequence)
            except StoreError as error:
                foreign.position = None
                _log.error("the end of run %s could not be written: %s", foreign.run_id, error)
            await journal.release()
        foreign.teller.end(result)

    async def end_family(self, foreign: ForeignRun, left: str = LEFT) -> None:
        """End a run and those below it, the lowest first."""
        for one in (*reversed(foreign.descendants()), foreign):
            await self.end_run(one, left)

    async def close(self, left: str = "the gate was closed") -> None:
        """End every run, and give all sessions back."""
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking], timeout=FAREWELL)
        for foreign in reversed(self.open_runs):
            await self.end_run(foreign, left)
