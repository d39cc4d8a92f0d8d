"""Repairing a damaged journal: the intact part stays, what verifies after the damage is kept as evidence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Raw, Value, replace
from glidepath.sessions.chain import SCHEMA, hash_commit, link, read
from glidepath.sessions.effects import describe_effects, effects_in
from glidepath.sessions.finding import GROUPS
from glidepath.sessions.fold import Effect, Folded, Opened, Quarantine, Quarantined
from glidepath.sessions.owner import this_owner
from glidepath.sessions.recover import open_calls
from glidepath.spi import Commit, Entry, Lease, SessionStore
from glidepath.values import StoreError, Texts, ToolCall, ToolResultMessage, Unknown, UserMessage, codec


class Repaired(Value, frozen=True, kw_only=True):
    """What a repair kept and what it had to drop, and why. `quarantined` commits are kept but not trusted.

    `effects` are calls that may have taken effect in what was dropped.
    """

    session_id: str
    kept: int
    dropped: int
    reason: str = ""
    quarantined: int = 0
    effects: tuple[Effect, ...] = ()


async def repair(store: SessionStore, session_id: str, *, texts: Texts | None = None) -> Repaired:
    """Keep the commits that are whole and drop the rest. Nothing happens to a journal that is whole.

    A commit is dropped when it, or one before it, does not fit the chain or cannot be read. Dropped commits that
    verify against the stored hash of the one before them go into a quarantine record, and the session is marked:
    `resume` asks for `accept_repair=True` before it continues. From then on every call that was open, and every call
    that the quarantined commits name, is known by its result or reported as unknown; none of them runs again. A call
    of which nothing is left but the damage itself cannot be reported: that is why a person is asked.

    The journal of a team is only cut back to what is whole.
    """
    done, _ = _examine(*await store.load(session_id), texts)
    if not done.reason:
        return done
    lease = await store.claim(session_id, this_owner(), create=False)
    try:
        # Again: another process may have repaired it before it was claimed, and a run continued.
        entry, commits = await store.load(session_id)
        done, end = _examine(entry, commits, texts)
        if done.reason:
            last = commits[done.kept - 1].hash if done.kept else b""
            summary = {**entry.summary, "outcome": None, "repaired": True, "base": None}
            lease = await _replace_tail(store, lease, done.kept, last, end, summary)
    finally:
        await store.release(lease)
    return done


async def _replace_tail(
    store: SessionStore, lease: Lease, kept: int, last: bytes, end: Commit | None, summary: dict[str, Any]
) -> Lease:
    """Write this end in place of all behind the intact part; returns the lease that is left."""
    at_once: Any = getattr(store, "replace_end", None)
    if end is not None and at_once is not None:  # both or nothing: without its end a journal would only be shorter
        await at_once(lease, end, summary)
        return lease
    await store.cut(lease, kept, last)
    if end is not None:
        lease = await store.claim(lease.session_id, this_owner(), create=False)
        later = store.append(lease, end, summary=summary)
        if later is not None:
            await later
    return lease


def _examine(entry: Entry, commits: Sequence[Commit], texts: Texts | None) -> tuple[Repaired, Commit | None]:
    """What a repair would do, and the commit it would end the journal with; without a reason there is nothing to do."""
    name = entry.session_id
    whole, folded, reason = _find_whole_commits(name, commits)
    last = whole[-1] if whole else Commit(0, b"", b"")
    done = Repaired(
        session_id=name,
        kept=len(whole),
        dropped=max(len(commits) - len(whole), entry.head - last.number),
        reason=reason,
    )
    if not reason and (entry.head, entry.hash) != (last.number, last.hash):
        reason = f"the journal ends with commit {last.number}, and its head said {entry.head}"
        done = replace(done, reason=reason)
    if not reason or name.startswith(GROUPS):
        return done, None
    behind = _find_intact_commits(commits, len(whole))
    items, effects = _make_closing_records(folded, last, entry, reason, behind, texts or Texts())
    end = link(last.hash, last.number + 1, folded.sequence + 1, time.time(), items)
    return replace(done, quarantined=len(behind), effects=effects), end


def _find_whole_commits(session_id: str, commits: Sequence[Commit]) -> tuple[list[Commit], Folded, str]:
    """The commits up to the first that is not whole, the state at their end, and what is wrong with the next."""
    whole: list[Commit] = []
    folded, before = Folded(session_id), b""
    for commit in commits:
        try:
            if commit.number != len(whole) + 1:
                raise StoreError(f"commit {len(whole) + 1} is missing", kind="damaged")
            if hash_commit(before, commit.number, commit.body) != commit.hash:
                raise StoreError(f"commit {commit.number} was changed", kind="damaged")
            folded.take(read(commit))
        except StoreError as error:
            if error.kind != "damaged":
                raise
            return whole, _refold(session_id, whole), str(error)
        whole.append(commit)
        before = commit.hash
    return whole, folded, ""


def _refold(session_id: str, commits: Sequence[Commit]) -> Folded:
    """The state at the end of these; half a commit may have been taken in before the damage was met."""
    folded = Folded(session_id)
    for commit in commits:
        folded.take(read(commit))
    return folded


def _find_intact_commits(commits: Sequence[Commit], whole: int) -> list[Commit]:
    """What is behind the damage and fits the stored hash of the commit before it."""
    hashes = {commit.number: commit.hash for commit in commits}
    found = []
    for commit in commits[whole:]:
        before = hashes.get(commit.number - 1, b"")
        if len(before) != 0 and hash_commit(before, commit.number, commit.body) == commit.hash:
            try:
                read(commit)
            except StoreError:
                continue
            found.append(commit)
    return found


def _make_closing_records(
    folded: Folded, last: Commit, entry: Entry, reason: str, behind: Sequence[Commit], texts: Texts
) -> tuple[list[tuple[str, Any]], tuple[Effect, ...]]:
    """The records of the repair: what was open gets its result, or is unknown."""
    results = {**_results(behind), **folded.results}
    answers, effects = [], []
    for call in open_calls(folded):
        known = results.pop(call.id, None)
        if known is None:
            text, details = texts.fill("unknown_effect", reason=Unknown.DAMAGED.reason), Unknown.DAMAGED.details()
            known = ToolResultMessage(call.id, call.name, text, is_error=True, kind="unknown_effect", details=details)
            effects.append(Effect(call_id=call.id, name=call.name, arguments=call.arguments))
        answers.append(known)
    answered = {one.call_id for one in answers}
    effects += [one for one in effects_in(behind, 0, whole=False) if one.call_id not in answered]
    quarantine = Quarantine(
        reason=reason,
        first=last.number + 1,
        lost=tuple(sorted(set(range(last.number + 1, entry.head + 1)) - {commit.number for commit in behind})),
        kept=tuple(Quarantined(commit=one.number, hash=one.hash.hex(), records=Raw(one.body)) for one in behind),
        effects=tuple(effects),
    )
    items: list[tuple[str, Any]] = []
    if folded.opened is None:
        items.append(("opened", Opened(schema=SCHEMA, session_id=folded.session.id)))
    items += [("message", answer) for answer in answers]
    calls = describe_effects(effects) if effects else "which ones is unknown."
    items += [
        ("quarantine", quarantine),
        ("message", UserMessage(texts.fill("repaired", calls=calls), internal=True)),
    ]
    return items, quarantine.effects


def _results(commits: Sequence[Commit]) -> dict[str, ToolResultMessage]:
    found = {}
    for commit in commits:
        for record in read(commit):
            if record.kind in ("message", "result"):
                try:
                    message = codec.decode(bytes(record.payload))
                except (_wire.WireError, ValueError):
                    continue
                if type(message) is ToolResultMessage:
                    found[message.call_id] = message
    return found


# --- before resuming -----------------------------------------------------------------------------------------------


def repair_notice(session_id: str, quarantine: Quarantine) -> StoreError:
    """The error that asks before a repaired session is resumed."""
    calls = ", ".join(f"{one.name or 'a call'} ({one.call_id})" for one in quarantine.effects[:10])
    what = f"these calls may have taken effect: {calls}" if calls else "calls may have been made in it"
    return StoreError(
        f"the journal of session {session_id!r} was repaired ({quarantine.reason}), and a part of it is lost; {what}. "
        "Look at the session, then resume it with accept_repair=True (--accept-repair): those calls stay unknown",
        kind="repaired",
    )


def unknown_calls(quarantine: Quarantine) -> tuple[ToolCall, ...]:
    """The calls in what was lost, as calls whose effect is unknown."""
    return tuple(ToolCall(one.call_id, one.name, one.arguments or {}) for one in quarantine.effects)
