"""Forks: a new session from any turn of another, which does not change; and rewinding, which keeps the name."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Value, replace
from glidepath.sessions.archive import StoredJournal, naming_damage, read_journal, verify_journal
from glidepath.sessions.chain import link, read, verify_commits
from glidepath.sessions.child_sessions import (
    FamilyMember,
    family_of,
    rebase_id,
    refuse_unfinished,
    rename_parent,
    rename_sessions,
    write_family,
)
from glidepath.sessions.effects import describe_effects, effects_in
from glidepath.sessions.finding import each_session, entry_of, remove_sessions
from glidepath.sessions.fold import Effect, Folded, Forked, Imported, fold
from glidepath.sessions.owner import this_owner
from glidepath.sessions.recover import open_calls
from glidepath.sessions.session import check_session_id
from glidepath.sessions.summaries import COPY, is_child, is_group, is_half_copy
from glidepath.spi import Commit, Entry, SessionStore
from glidepath.values import (
    AgentState,
    AssistantMessage,
    ConfigurationError,
    LoopOutcome,
    PendingCall,
    RunResult,
    StopCause,
    StoreError,
    Texts,
    Usage,
    UserMessage,
    codec,
    dollars,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.sessions.chain import JournalRecord

_LONGEST_BASE = 160
_TASK = 200
REWINDING = "rewinding"


class Fork(Value, frozen=True, kw_only=True):
    """A session made from a turn of another: `run(..., session=fork.session_id)` or `resume(fork.session_id)`.

    `effects` are the calls that the original and its children made after that turn, and those behind a fork that it is
    itself: the model is told about them, and no fork undoes them. `pending` waits for a person, as in the original.
    """

    session_id: str
    origin: str
    at: int
    effects: tuple[Effect, ...] = ()
    pending: tuple[PendingCall, ...] = ()


class _Place(Value, frozen=True):
    """Where a journal is cut: how many commits are kept, and the turn that ended there."""

    kept: int
    at: int
    whole: bool


def count_turns(folded: Folded) -> int:
    """How many turns a session has: replies of its model."""
    return sum(type(message) is AssistantMessage for message in folded.messages)


async def fork(
    store: SessionStore,
    session_id: str,
    *,
    at: int | None = None,
    name: str | None = None,
    texts: Texts | None = None,
    harmless: Collection[str] = (),
) -> Fork:
    """Make a new session from this one as it was after turn `at` (the last one by default), with its children.

    The original is only read, also while a run is in flight in it. `name` is the new id. The calls of tools in
    `harmless` are not listed among the effects. Raises `ConfigurationError` for a turn that is not there, and
    `StoreError` (`missing`, `damaged`, `conflict`).
    """
    journal = await read_journal(store, check_session_id(session_id))
    place = _find(journal, at)
    new = check_session_id(name) if name is not None else _fresh_name(session_id)
    if new == session_id:
        raise ConfigurationError(f"{new!r} is the session's own name: choose another, or rewind it")
    try:
        return await _copy(store, journal, place, new, texts or Texts(), harmless)
    except BaseException:
        with suppress(Exception):  # nobody knows it by a name that we made, so nobody would finish it
            await _clean_up(store, session_id)
        raise


async def _copy(
    store: SessionStore,
    journal: StoredJournal,
    place: _Place,
    new: str,
    texts: Texts,
    harmless: Collection[str] = (),
    then: Callable[[], Awaitable[None]] | None = None,
) -> Fork:
    """Write the copy. Before its last commit, which lists it, `then` is called (in a rewind)."""
    session_id = journal.entry.session_id
    await _clean_up(store, session_id)
    rename = partial(rebase_id, old=session_id, new=new)
    kept = journal.commits[: place.kept]
    later = await _effects_behind(store, journal, place, harmless)
    mark, made = _mark(journal, place, new, session_id, texts, later, kept=then is not None)
    commits = rename_sessions(kept, rename, root=True)
    labels = await entry_of(store, session_id) or journal.entry
    root = FamilyMember(
        session_id=new,
        commits=commits,
        mark=link(commits[-1].hash, place.kept + 1, made.sequence + 1, time.time(), mark),
        summary=_summary(journal.entry, made, mark),
        tags=labels.tags,  # not the title: it is a name, and stays the original's
    )
    children = [await _child(store, name, rename) for name in await _find_started_children(store, session_id, kept)]
    await write_family(store, [root, *children], then=then)
    return _fork(new, session_id, place, mark, made)


async def _clean_up(store: SessionStore, session_id: str) -> None:
    """Remove copies of this session that a process has begun and did not live to finish."""
    copies = each_session(store, prefix=_base_of(session_id), roots=False)
    left = [one.session_id async for one in copies if is_half_copy(one) and not is_child(one)]
    if left:
        await remove_sessions(store, left)  # those that somebody is writing stay


async def rewind(
    store: SessionStore,
    session_id: str,
    *,
    at: int,
    texts: Texts | None = None,
    harmless: Collection[str] = (),
) -> Fork:
    """Take a session back to the end of turn `at`, under its own id. Its old state is kept as the session `origin`.

    Raises what `fork` raises, and `StoreError` of kind `busy` while a run is in flight in it.
    """
    lease = await store.claim(check_session_id(session_id), this_owner(), create=False)
    try:
        entry, commits = await store.load(session_id)
        begun = entry.summary.get(REWINDING)
        if begun:  # an earlier one did not come to its end
            # It continues as it was asked for then: half of the work may be done for that turn.
            old, at, taken = str(begun["origin"]), int(begun["at"]), int(begun.get("mail", 0))
        else:
            old = _fresh_name(session_id)
        journal = await _read_whole_journal(store, old if begun and await _is_finished(store, old) else session_id)
        place = _find(journal, at)
        if journal.entry.session_id == session_id:  # it is all here yet: the copy first
            taken = journal.folded.taken

            async def note() -> None:
                """On disk before the copy counts and anything is removed: from now on the session refuses to run."""
                if not begun:
                    said = link(journal.entry.hash, lease.head + 1, journal.folded.sequence + 1, time.time(), [])
                    more = {REWINDING: {"origin": old, "at": at, "mail": taken}}
                    later = store.append(lease, said, summary={**entry.summary, **more})
                    if later is not None:
                        await later

            # All of it, also a turn that a crash has cut short: nobody is in it, since we have the lease.
            await _copy(store, journal, _find(journal, count_turns(journal.folded)), old, texts or Texts(), then=note)
        later = await _effects_behind(store, journal, place, harmless)
        mark, made = _mark(journal, place, session_id, old, texts or Texts(), later)
        kept = tuple(verify_commits(commits))[: place.kept]
        keep = set(await _find_started_children(store, session_id, kept))
        later_children = [one.session_id for one in await family_of(store, session_id) if one.session_id not in keep]
        await remove_sessions(store, later_children)
        await store.cut(lease, place.kept, kept[-1].hash)
    except BaseException:
        await store.release(lease)
        with suppress(Exception):
            await _clean_up(store, session_id)
        raise
    # Claimed again: a cut ends the lease, so that nobody writes on with the old head.
    lease = await store.claim(session_id, this_owner(), create=False)
    try:
        items = [*mark, ("mail", taken)] if taken else mark  # what was said after that turn is not said again
        commit = link(kept[-1].hash, place.kept + 1, made.sequence + 1, time.time(), items)
        written = store.append(lease, commit, summary=_summary(entry, made, mark))
        if written is not None:
            await written
    finally:
        await store.release(lease)
    return _fork(session_id, old, place, mark, made)


async def _is_finished(store: SessionStore, copy: str) -> bool:
    """Whether all of this copy is there."""
    try:
        entry, _ = await store.load(copy)
    except StoreError as error:
        if error.kind == "missing":
            return False
        raise
    return not is_half_copy(entry)


async def _read_whole_journal(store: SessionStore, session_id: str) -> StoredJournal:
    """The journal of a session, also of one whose rewind was not finished."""
    entry, commits = await store.load(session_id)
    if not entry.summary.get(REWINDING):
        refuse_unfinished(entry)
    return verify_journal(entry, commits)


def _fork(new: str, old: str, place: _Place, mark: Sequence[tuple[str, Any]], made: Folded) -> Fork:
    forked = next(item for kind, item in mark if kind == "forked")
    pending = made.result.pending if made.result is not None else ()
    return Fork(session_id=new, origin=old, at=place.at, effects=forked.effects, pending=pending)


def _fresh_name(session_id: str) -> str:
    return f"{_base_of(session_id)}{os.urandom(3).hex()}"


def _base_of(session_id: str) -> str:
    return f"{session_id.replace('/', '-')[:_LONGEST_BASE]}{COPY}"


# --- where to cut --------------------------------------------------------------------------------------------------


def _find(journal: StoredJournal, at: object) -> _Place:
    """The place after turn `at`; raises `ConfigurationError` when there is no such turn."""
    name, most = journal.entry.session_id, count_turns(journal.folded)
    if is_group(journal.entry):
        raise ConfigurationError(
            f"session {name!r} is the journal of a team or an evaluation: fork the session of one of its runs"
        )
    if journal.folded.began is None:
        raise ConfigurationError(f"session {name!r} has no run yet: there is nothing to fork")
    if at is None:
        at = most
        if journal.folded.result is None and open_calls(journal.folded) and at:
            at = most - 1 if journal.entry.owner is not None else most  # a turn in flight is not over
    if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= most:
        turns_there = f"it has {pluralize(most, 'turn')}: choose 0 to {most}"
        raise ConfigurationError(f"at={at!r:.40}: there is no such turn in session {name!r:.80}; {turns_there}")
    folded, kept, count = Folded(name), 0, 0
    for commit in journal.commits:
        records = read(commit)
        kinds = {record.kind for record in records}
        replies = sum(record.kind == "message" and _is_reply(record) for record in records)
        if kept and ("began" in kinds or replies):
            break
        folded.take(records)
        count = count_turns(folded) if "transcript" in kinds else count + replies
        if not kept and count == at and folded.began is not None and not open_calls(folded):
            kept = commit.number
        if kept and "ended" in kinds:
            return _Place(commit.number, at, whole=True)
    return _Place(kept, at, whole=True) if kept else _Place(len(journal.commits), at, whole=False)


def _is_reply(record: JournalRecord) -> bool:
    return type(codec.decode(bytes(record.payload))) is AssistantMessage


# --- what the copy says about itself -------------------------------------------------------------------------------


def _mark(
    journal: StoredJournal,
    place: _Place,
    new: str,
    old: str,
    texts: Texts,
    behind: Iterable[Effect],
    *,
    kept: bool = False,
) -> tuple[list[tuple[str, Any]], Folded]:
    """The records that end the copy, and the state before them."""
    made = fold(journal.commits[: place.kept], journal.entry.session_id)
    earlier = made.forked.effects if made.forked is not None else ()  # the model has been told about those
    later = tuple(one for one in behind if one not in earlier)
    # A new id: idempotency keys are made of it, and the copy must not pass for the original.
    run_id = f"run_{os.urandom(8).hex()}"
    effects = (*earlier, *later)
    items: list[tuple[str, Any]] = [
        ("forked", Forked(session_id=new, origin=old, at=place.at, run_id=run_id, effects=effects, kept=kept))
    ]
    if journal.folded.imported and not made.imported:  # what a stranger wrote stays a stranger's
        items.insert(0, ("imported", Imported(session_id=new)))
    if not place.whole:
        return items, made
    if later:
        text = texts.fill("forked", turn=place.at, calls=describe_effects(later))
        items.append(("message", UserMessage(text, internal=True)))
    if made.result is None and made.snapshot is not None:
        items.append(("ended", _make_stopped_result(made, run_id, new, old, place.at)))
    return items, made


def _make_stopped_result(folded: Folded, run_id: str, new: str, old: str, at: int) -> RunResult:
    """The run of the copy, which has stopped between two turns: resume continues it, a new prompt leaves it."""
    snapshot: Any = folded.snapshot
    if folded.reserved is not None:  # its next call is counted as a turn already, and was the original's
        snapshot = replace(snapshot, turns=snapshot.turns - 1)
    cause = StopCause(source="fork", action="cancel", reason=f"copied from session {old} after turn {at}")
    usage, money = snapshot.spent.usage, snapshot.spent.picodollars
    for charge in (*snapshot.fallbacks_spent.values(), *snapshot.children_spent.values()):
        usage, money = usage + charge.usage, money + charge.picodollars
    usage = usage if isinstance(usage, Usage) else Usage()
    ended: dict[str, Any] = {
        "state": AgentState.CANCELLED,
        "outcome": LoopOutcome.CANCELLED,
        "cause": cause,
        "partial": True,
    }
    return RunResult(
        run_id=run_id,
        session_id=new,
        text=snapshot.text,
        usage=usage,
        cost=dollars(money) if money else None,
        iterations=snapshot.iterations,
        tool_calls=snapshot.tool_calls,
        landing_calls=snapshot.landing_calls,
        elapsed=snapshot.elapsed,
        validations=snapshot.violations,
        children=snapshot.children,
        pending=snapshot.pending,
        abandoned=snapshot.abandoned,
        unknown_effects=snapshot.unknown_effects,
        snapshot=replace(snapshot, run_id=run_id, **ended),
        **ended,
    )


def _summary(entry: Entry, made: Folded, mark: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    forked = next(item for kind, item in mark if kind == "forked")
    ended = next((item for kind, item in mark if kind == "ended"), made.result)
    snapshot = made.snapshot
    asked = [message.text[:_TASK] for message in made.messages if message.role == "user" and not _internal(message)]
    task = entry.summary.get("task")
    if task not in asked:  # of a run behind the fork
        task = asked[-1] if asked else ""
    cost = None if ended is None else ended.cost
    return {
        **{key: value for key, value in entry.summary.items() if key not in (REWINDING, "base", "session")},
        "state": AgentState.RUNNING.value if ended is None else ended.state.value,
        "outcome": None if ended is None else ended.outcome.value,
        "run_id": forked.run_id,
        "task": task,
        "iterations": 0 if snapshot is None else snapshot.iterations,
        "messages": len(made.messages),
        "tokens": 0 if snapshot is None else snapshot.tokens,
        "cost": None if cost is None else str(cost),
        "parent": None,
        "forked": {"origin": forked.origin, "at": forked.at},
    }


def _internal(message: object) -> bool:
    return bool(getattr(message, "internal", False))


# --- children ------------------------------------------------------------------------------------------------------


async def _effects_behind(
    store: SessionStore, journal: StoredJournal, place: _Place, harmless: Collection[str]
) -> list[Effect]:
    """The calls that were made after the turn: in the session, and in the children that it started there."""
    session_id, commits = journal.entry.session_id, journal.commits[place.kept :]
    found = effects_in(commits, place.at)
    turn_of = {one.call_id: one.turn for one in found}
    for child in await _find_started_children(store, session_id, commits):
        path = child.removeprefix(f"{session_id}/")
        turn = turn_of.get(path.partition("/")[0].rpartition(".")[0], place.at + 1)
        with suppress(StoreError):  # one that cannot be read: the call that started it is listed
            entry, whole = await store.load(child)
            made = effects_in(verify_commits(whole, head=entry.head, hash_=entry.hash), 0)
            agent = str(entry.summary.get("agent") or "a child")
            found += [
                replace(one, call_id=f"{path}/{one.call_id}", turn=turn, agent=one.agent or agent) for one in made
            ]
    return sorted([one for one in found if one.name not in harmless], key=lambda one: one.turn)


async def _find_started_children(store: SessionStore, session_id: str, commits: Iterable[Commit]) -> list[str]:
    """The children that were started in these commits, and theirs, as far as they are kept beside their parent."""
    mine = f"{session_id}/"
    named = [
        str(_wire.decode(bytes(record.payload), dict[str, Any]).get("session_id"))
        for commit in commits
        for record in read(commit)
        if record.kind == "child"
    ]
    roots = tuple(one for one in named if one.startswith(mine))
    below = tuple(f"{one}/" for one in roots)
    found = [entry.session_id for entry in await family_of(store, session_id)]
    return [one for one in found if one in roots or one.startswith(below)]


async def _child(store: SessionStore, session_id: str, rename: Callable[[str], str]) -> FamilyMember:
    """A child's current state, for the family of the copy."""
    entry, commits = await store.load(session_id)
    with naming_damage(session_id):
        whole = tuple(verify_commits(commits, head=entry.head, hash_=entry.hash))
        folded = fold(whole, session_id)
    made, new = rename_sessions(whole, rename), rename(session_id)
    # One that is over makes no calls under its id any more, and its parent's journal knows it by it.
    over = folded.result is not None and not folded.result.pending
    run_id = "" if over else f"run_{os.urandom(8).hex()}"
    forked = Forked(session_id=new, origin=session_id, at=count_turns(folded), run_id=run_id)
    last = made[-1].hash if made else b""
    return FamilyMember(
        session_id=new,
        commits=made,
        mark=link(last, len(made) + 1, folded.sequence + 1, time.time(), [("forked", forked)]),
        summary=rename_parent(entry.summary, rename),
    )
