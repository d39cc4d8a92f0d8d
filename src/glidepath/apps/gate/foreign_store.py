"""Finds the foreign runs that a store keeps, and puts them back into the tree: what they had spent counts again."""

from __future__ import annotations

import hashlib
import re
import time
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record
from glidepath.apps.gate.foreign_run import ForeignRun, GateNote, add_charges, read_note, read_program
from glidepath.apps.gate.foreign_transcript import ForeignTranscript
from glidepath.apps.gate.gate_verdicts import judge_stop
from glidepath.apps.gate.known_agents import KNOWN, UNKNOWN, KnownAgent
from glidepath.apps.gate.orders import set_limits
from glidepath.sessions import (
    GATE,
    StoredJournal,
    await_store,
    call_store,
    charge_reservation,
    each_session,
    is_recording,
    read_journal,
)
from glidepath.values import AssistantMessage, Charge, Snapshot, StoreError, TextOrigin

if TYPE_CHECKING:
    from glidepath.apps.gate.attribution import Attribution
    from glidepath.apps.gate.lines import Line
    from glidepath.apps.gate.tree import ForeignAgent, ForeignSession
    from glidepath.spi import Entry

RECENT = 86_400.0
"""Seconds for which a run without a name can be recognized by a gate that did not see it."""
MOST_RECENT = 500
MOST_FAMILY = 1_000
OTHER = "!"
"""In the id of a session that another living gate writes under its plain id."""
_LONGEST, _LONGEST_NAME = 100, 120
_LONGEST_CHILD = 190
_ODD = re.compile(r"[^A-Za-z0-9._@+=-]")


# --- names ----------------------------------------------------------------------------------------------------------


def session_name(line: str, identity: str) -> str:
    """The id of a foreign session in a store: readable, and never that of another line's or of a session of ours."""
    parts = [line, identity] if line != GATE else [identity]
    plain = [_ODD.sub("-", part)[:_LONGEST] for part in parts]
    name = ":".join([GATE, *plain])
    if plain == parts and len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.blake2b(f"{line}\0{identity}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{name[:_LONGEST]}~{digest}"


def line_prefix(line: str) -> str:
    """How the ids of all sessions of a line begin; those of others may, too."""
    if line == GATE:
        return f"{GATE}:"
    return f"{GATE}:{_ODD.sub('-', line)[:_LONGEST]}:"[:_LONGEST]


def child_name(parent: str, call_id: str, agent: str, number: int) -> str:
    """The id of a child's session, beside its parent's, as our own children have it."""
    place = _ODD.sub("-", call_id or agent)[:60]
    name = f"{parent}/{place}.{number}"
    if len(name) <= _LONGEST_CHILD:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{parent.partition('/')[0]}/{digest}.{number}"


# --- what is kept ---------------------------------------------------------------------------------------------------


class KeptAgent(Record, kw_only=True):
    """One agent as its journal has it."""

    journal: StoredJournal
    note: GateNote
    state: Snapshot
    """With the calls that were in flight paid for at their worst case."""

    @property
    def own_charge(self) -> Charge:
        """What its own calls have cost."""
        return add_charges([self.state.spent, *self.state.fallbacks_spent.values()])


async def read_family(store: Any, name: str) -> list[KeptAgent]:
    """The agents of a session, the main one first: its own journal, its children's, those of other gates."""
    try:
        entries = await await_store(call_store(store.entries, name))
    except StoreError as error:
        if error.kind == "missing":  # nobody has written into it yet
            return []
        raise
    mine = [
        one
        for one in entries
        if one.head and one.session_id[len(name) :][:1] in ("", "/", OTHER) and not is_recording(one)
    ]
    found = []
    for entry in sorted(mine, key=lambda one: (one.session_id.count("/"), one.session_id))[:MOST_FAMILY]:
        kept = await _read_agent(store, entry)
        if kept is not None:
            found.append(kept)
    return found


async def _read_agent(store: Any, entry: Entry) -> KeptAgent | None:
    """An agent that the gate has written; raises `StoreError` for a journal that cannot be read."""
    journal = await await_store(read_journal(store, entry.session_id))
    folded, snapshot = journal.folded, journal.folded.snapshot
    if snapshot is None or snapshot.per_run is None or folded.imported or folded.forked is not None:
        return None
    note = read_note(snapshot.per_run.notes)
    if note is None:
        return None
    return KeptAgent(journal=journal, note=note, state=charge_reservation(snapshot, folded.reserved))


async def recent_names(store: Any, line: str) -> list[str]:
    """The sessions of a line that may continue without being named: the newest ones, and what never ended."""
    found: list[str] = []
    since = time.time() - RECENT
    try:
        async for entry in each_session(store, prefix=line_prefix(line), limit=500):
            if len(found) >= MOST_RECENT:
                break
            is_ours = entry.summary.get("kind") == GATE and OTHER not in entry.session_id
            if is_ours and (not entry.summary.get("outcome") or entry.updated > since):
                found.append(entry.session_id)
    except StoreError as error:
        if error.kind != "missing":
            raise
    return found


# --- back into the tree ---------------------------------------------------------------------------------------------


def restore_session(line: Line, kept: list[KeptAgent], attribution: Attribution) -> list[ForeignRun]:
    """Put a session with its agents into the tree. What it had spent counts; its runs, the main one first."""
    first = kept[0]
    session = line.open_session(first.note.session, _find_known_agent(first.note.program))
    session.title = session.title or first.note.title
    _restore_time(session, first)
    runs: list[ForeignRun] = []
    for one in kept:
        runs.append(_restore_agent(line, session, one, runs, attribution))
    whole = add_charges([one.own_charge for one in kept])
    below = session.meter.descendants
    session.meter.count_from(whole.usage.total, whole.picodollars, turns=whole.calls, descendants=below)
    session.stopped = first.journal.entry.flag
    session.order = first.note.order
    session.injected = session.injected or first.note.injected
    session.cost_is_known = not any(one.note.is_unpriced for one in kept)
    session.estimated = whole.usage.estimated
    session.models = {model for foreign in runs for model in foreign.accounts}
    if first.note.limits:
        set_limits(session, first.note.limits)
    return runs


def _restore_agent(
    line: Line, session: ForeignSession, kept: KeptAgent, before: list[ForeignRun], attribution: Attribution
) -> ForeignRun:
    note, state, folded = kept.note, kept.state, kept.journal.folded
    agent = session.agents.get(note.agent)
    if agent is None:
        above = session.agents.get(note.parent) if note.parent is not None else None
        agent = session.add_agent(note.agent, above)
    own = kept.own_charge
    # Another gate may have written a part of the same agent under another id.
    agent.calls, agent.tokens = agent.calls + own.calls, agent.tokens + own.usage.total
    agent.money += own.picodollars
    flag = kept.journal.entry.flag if before else None  # of the main agent it stops the whole session
    stopped = None if flag is None else judge_stop(flag)
    agent.landed = agent.landed or stopped or note.landed
    agent.landing = agent.landing or stopped or note.landing
    agent.has_tools = agent.has_tools or note.has_tools
    agent.notices += [one for one in note.notices if one not in agent.notices]
    agent.own_texts |= set(note.own)
    agent.shape = bytes.fromhex(note.shape)
    meter = agent.meter
    tokens, money, turns = meter.tokens + state.tokens, meter.money + state.picodollars, meter.turns + state.turns
    meter.count_from(tokens, money, turns=turns, descendants=meter.descendants)
    _remember(line, agent, kept, attribution)
    began: Any = folded.began
    name = kept.journal.entry.session_id
    above_name = name.rpartition("/")[0]
    foreign = ForeignRun(
        agent,
        name,
        line=note.line,
        program=note.program or read_program(str(began.agent)),
        model=began.model,
        parent=next((one for one in before if one.name == above_name), before[0] if before else None),
        run_id=state.run_id,
        started=folded.time - state.elapsed,
    )
    foreign.accounts = {began.model: state.spent, **state.fallbacks_spent}
    foreign.iterations, foreign.tool_calls, foreign.landing_calls = (
        state.iterations,
        state.tool_calls,
        state.landing_calls,
    )
    foreign.text, foreign.stop_reason, foreign.landing = state.text, state.stop_reason, note.landing
    foreign.ended = folded.result
    foreign.has_answered = _has_answered(kept)
    if folded.result is not None:
        foreign.text_origin = folded.result.text_origin
    foreign.conversation = ForeignTranscript(folded.messages)
    entry = kept.journal.entry
    foreign.position = (entry.head, entry.hash, folded.sequence)
    agent.record = agent.record or foreign
    return foreign


def _has_answered(kept: KeptAgent) -> bool:
    folded = kept.journal.folded
    if folded.result is not None:
        return folded.result.ok or folded.result.text_origin is TextOrigin.RUNTIME
    last = folded.messages[-1] if folded.messages else None
    return type(last) is AssistantMessage and not last.tool_calls and folded.reserved is None


def _remember(line: Line, agent: ForeignAgent, kept: KeptAgent, attribution: Attribution) -> None:
    """Recognize its next request: by the calls of its last replies, else by what it sent before."""
    ids = [
        call.id
        for message in kept.journal.folded.messages[-40:]
        if type(message) is AssistantMessage
        for call in message.tool_calls
    ]
    attribution.remember_calls(agent, line, ids)
    if kept.note.prefix:
        attribution.remember_digest(agent, line, bytes.fromhex(kept.note.prefix))


def _restore_time(session: ForeignSession, kept: KeptAgent) -> None:
    """The time limit runs from when the session began, whichever gate saw that."""
    began = kept.journal.folded.time - kept.state.elapsed
    passed = max(0.0, time.time() - began)
    session.started_at -= passed
    session.deadline -= passed


def _find_known_agent(program: str) -> KnownAgent:
    return next((one for one in KNOWN if one.name == program), UNKNOWN)
