"""Bases: a record now and then that holds what a journal says so far, so that a long one is not read from its start.

A base has the state between two runs, and the messages since the base before it; the newest one names all others. To
read a session is then to read its bases and what was written after the last: the messages, each once, and a few
commits. What does not fit is not used as a base: the whole journal is read instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Raw, Value, WireError
from glidepath.run import Decision, Fingerprint, Measured, Plan, TranscriptStats, measure_messages
from glidepath.sessions.archive import read_journal
from glidepath.sessions.chain import hash_commit, read, verify_commits
from glidepath.sessions.child_sessions import refuse_unfinished
from glidepath.sessions.fold import Began, Child, Folded, Forked, Opened, Used
from glidepath.sessions.fold_cache import recall_state, remember
from glidepath.sessions.recover import open_calls
from glidepath.sessions.schema_compat import messages_of
from glidepath.sessions.session import Totals
from glidepath.spi import Commit, Entry, SessionStore
from glidepath.values import Message, RunResult, StoreError, UnknownMessage

if TYPE_CHECKING:
    from glidepath.spi import Excerpts

SPAN = 400
"""Commits after which the next run writes a base."""
_NOTHING = 1 << 62  # a number that no commit has: only the entry is asked for


class Base(Value, frozen=True, kw_only=True):
    """The state after commit `at`, whose hash is `hash`, and the messages from place `first` on.

    `before` are the bases whose messages come first, each with the hash of its commit.
    """

    at: int
    hash: str
    sequence: int
    time: float
    first: int
    count: int
    messages: tuple[Raw, ...]
    before: tuple[tuple[int, str], ...] = ()
    opened: Opened | None = None
    began: Began | None = None
    fields: Mapping[str, Any] = {}
    result: RunResult
    told: int
    """How many messages there were when the run ended."""
    decisions: Mapping[str, Decision] = {}
    children: tuple[Child, ...] = ()
    charged: Mapping[str, Used] = {}
    config: Fingerprint | None = None
    imported: bool = False
    foreign: bool = False
    redacted: tuple[str, ...] = ()
    forked: Forked | None = None
    unread: tuple[str, ...] = ()
    taken: int = 0
    """How many notes of the inbox were taken."""
    controls: tuple[Mapping[str, Any], ...] = ()
    totals: Totals
    version: int = 0
    measured: Measured | None = None
    """What its messages are like, so that the first prompt of a process does not measure them all again."""


def make_next_base(folded: Folded, head: int, hash_: bytes) -> Base | None:
    """The base to write after commit `head`; None when it is not due, or something is still open."""
    result = folded.result
    last = folded.bases[-1][0] if folded.bases else 0
    if head - last < SPAN or result is None or folded.repaired is not None or open_calls(folded):
        return None
    first = folded.based
    return Base(
        at=head,
        hash=hash_.hex(),
        sequence=folded.sequence,
        time=folded.time,
        first=first,
        count=len(folded.messages),
        messages=tuple(Raw(_encode_message(message)) for message in folded.messages[first:]),
        before=tuple((number, digest) for number, digest in folded.bases),
        opened=folded.opened,
        began=folded.began,
        fields=folded.fields,
        result=_wire.replace(result, messages=(), new_messages=()),
        told=len(result.messages),
        decisions=folded.decisions,
        children=tuple(folded.children),
        charged=folded.charged,
        config=folded.config,
        imported=folded.imported,
        foreign=folded.foreign,
        redacted=tuple(sorted(folded.redacted)),
        forked=folded.forked,
        unread=tuple(folded.unread),
        taken=folded.taken,
        controls=tuple(folded.controls),
        totals=folded.session.totals,
        version=folded.session.version,
    )


def add_measures(base: Base, messages: list[Message], plan: Plan) -> Base:
    """The base with what its messages are like; `messages` are all of the session."""
    return _wire.replace(base, measured=measure_messages(messages[base.first : base.count], plan))


def _encode_message(message: object) -> bytes:
    return message.raw if type(message) is UnknownMessage else _wire.encode(message)


# --- reading -------------------------------------------------------------------------------------------------------


async def read_folded_state(store: SessionStore, session_id: str, head: int) -> Folded:
    """The state at the end of a journal with this many commits, read from its last base where there is one."""
    found = await recall_state(store, session_id)
    if found is not None:
        return found
    parts: Any = store if getattr(store, "pick", None) is not None else None
    if parts is not None and head >= SPAN:
        try:
            found = await _from_base(parts, session_id)
        except StoreError as error:
            if error.kind != "damaged":
                raise  # else the whole journal says what is wrong
        if found is not None:
            return found
    journal = await read_journal(store, session_id)
    weight = sum([len(commit.body) for commit in journal.commits])
    return _set_flag(remember(store, journal.entry, journal.folded, weight), journal.entry)


def _set_flag(folded: Folded, entry: Entry) -> Folded:
    folded.flag = entry.flag
    return folded


async def _from_base(store: Excerpts, session_id: str) -> Folded | None:
    entry, _ = await store.load(session_id, since=_NOTHING)
    refuse_unfinished(entry)
    number = entry.summary.get("base")
    if type(number) is not int or not 0 < number <= entry.head:
        return None
    entry, commits = await store.load(session_id, since=number)
    if not commits or commits[0].number != number:
        return None
    base = _base_in(commits[0])
    if base is None or base.at != number - 1:
        return None
    tail = tuple(verify_commits(commits, head=entry.head, hash_=entry.hash, after=(base.at, bytes.fromhex(base.hash))))
    older = await store.pick(session_id, [place for place, _ in base.before]) if base.before else ()
    folded = _restore_base(session_id, base, older)
    if folded is None:
        return None
    for commit in tail:
        folded.take(read(commit), commit)
    weight = sum([len(commit.body) for commit in (*older, *tail)])
    return _set_flag(remember(store, entry, folded, weight), entry)


def _base_in(commit: Commit) -> Base | None:
    for record in read(commit):
        if record.kind == "base":
            try:
                return _wire.decode(bytes(record.payload), Base)  # type: ignore[no-any-return]
            except (WireError, ValueError):
                return None
    return None


def _restore_base(session_id: str, base: Base, older: Sequence[Commit]) -> Folded | None:
    """The state that a base holds; None when one of those before it does not fit."""
    chunks: list[tuple[int, Sequence[Raw]]] = []
    measures: list[Measured | None] = []
    for commit, (number, digest) in zip(older, base.before, strict=False):
        one = _base_in(commit)
        if one is None or (commit.number, commit.hash.hex()) != (number, digest):
            return None
        if hash_commit(bytes.fromhex(one.hash), commit.number, commit.body) != commit.hash:
            return None
        chunks.append((one.first, one.messages))
        measures.append(one.measured)
    chunks.append((base.first, base.messages))
    measures.append(base.measured)
    folded = Folded(session_id)
    messages = folded.messages
    for first, chunk in chunks:
        if first != len(messages):
            return None
        messages += messages_of(chunk)
    if len(messages) != base.count or len(older) != len(base.before):
        return None
    whole = tuple(messages[: base.told])
    session = folded.session
    session.totals, session.version, session.state = base.totals, base.version, base.result.state
    if not base.imported and not base.foreign:  # a journal from elsewhere may say anything
        session.survey = TranscriptStats.from_parts(messages, measures)
    new = whole[base.fields.get("first_new", 0) :]
    folded.result = session.last = _wire.replace(base.result, messages=whole, new_messages=new)
    folded.opened, folded.began, folded.fields = base.opened, base.began, dict(base.fields)
    folded.children, folded.charged = list(base.children), dict(base.charged)
    folded.foreign, folded.redacted = base.foreign, frozenset(base.redacted)
    folded.sequence, folded.time = base.sequence, base.time
    folded.decisions, folded.config = dict(base.decisions), base.config
    folded.imported, folded.forked, folded.unread = base.imported, base.forked, list(base.unread)
    folded.bases, folded.based = list(base.before), base.first
    folded.taken, folded.controls = base.taken, [dict(one) for one in base.controls]
    return folded
