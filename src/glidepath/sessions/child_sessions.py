"""Families: a session, the children it started and theirs; copied as a whole, under any id, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Raw, Record, Value, WireError
from glidepath.sessions.chain import hash_commit, read
from glidepath.sessions.finding import TEAM, each_session, member_runs, remove_sessions
from glidepath.sessions.owner import this_owner
from glidepath.sessions.session_ids import check_storable_id
from glidepath.sessions.summaries import IMPORTING, is_child
from glidepath.spi import Commit, Entry, Lease, SessionStore
from glidepath.values import StoreError

__all__ = [
    "IMPORTING",
    "TEAM",
    "FamilyMember",
    "family_of",
    "rebase_id",
    "refuse_unfinished",
    "rename_parent",
    "rename_sessions",
    "write_family",
]

_Rename = Callable[[str], str]


class FamilyMember(Value, frozen=True, kw_only=True):
    """One journal of a family. `mark` is the commit that is written last, when the whole family is there."""

    session_id: str
    commits: tuple[Commit, ...]
    mark: Commit
    summary: Mapping[str, Any] = {}
    title: str = ""
    tags: tuple[str, ...] = ()


async def family_of(store: SessionStore, session_id: str) -> list[Entry]:
    """The sessions that belong to this one: its children and theirs; for a team, the runs of its members."""
    mine = f"{check_storable_id(session_id)}/"
    found = [entry async for entry in each_session(store, prefix=mine, roots=False) if is_child(entry)]
    found += await member_runs(store, session_id)
    return sorted(found, key=lambda entry: entry.session_id)


def rebase_id(name: str, old: str, new: str) -> str:
    """The id of a member of the family of `old` in the family of `new`; any other id as it is."""
    if name == old:
        return new
    return f"{new}{name[len(old) :]}" if name.startswith(f"{old}/") else name


def refuse_unfinished(entry: Entry) -> None:
    """Raise `StoreError` for a journal that was copied in part: nothing in it says yet that it is a copy."""
    if entry.summary.get(IMPORTING):
        what = f"session {entry.session_id!r} is an unfinished copy: import or fork it again, or delete it"
        raise StoreError(what, kind="damaged")
    if entry.summary.get("rewinding"):
        what = f"the rewind of session {entry.session_id!r} was not finished: rewind it again"
        raise StoreError(what, kind="damaged")


# --- another id ----------------------------------------------------------------------------------------------------


def rename_sessions(commits: Iterable[Commit], rename: _Rename, *, root: bool = False) -> tuple[Commit, ...]:
    """The same commits with other session ids in them, chained again; `root` leaves out who started the session.

    Only what glidepath itself wrote as the id of a session is changed, never what a model, a tool or a person said.
    """
    made: list[Commit] = []
    before = b""
    for commit in commits:
        records: list[tuple[int, float, str, Raw]] = []
        for record in read(commit):
            change = _CHANGES.get(record.kind)
            if record.kind == "base":  # its hashes do not fit any more
                records.append((record.sequence, record.time, record.kind, Raw(b"null")))
                continue
            payload = record.payload if change is None else _change_payload(record.payload, change, rename, root=root)
            records.append((record.sequence, record.time, record.kind, payload))
        # Every hash after a change is different, so the whole chain is computed again.
        body = _wire.encode(records)
        before = hash_commit(before, commit.number, body)
        made.append(Commit(commit.number, body, before))
    return tuple(made)


def _change_payload(payload: Raw, change: Callable[..., None], rename: _Rename, *, root: bool) -> Raw:
    try:
        told = _wire.loads(payload)
    except (WireError, ValueError):
        return payload  # the reader reports it
    if not isinstance(told, dict):
        return payload
    change(told, rename, root)
    return Raw(_wire.encode(told))


def _rename_field(told: object, rename: _Rename, _root: bool = False) -> None:
    if isinstance(told, dict) and isinstance(told.get("session_id"), str):
        told["session_id"] = rename(told["session_id"])


def _rename_opened(told: dict[str, Any], rename: _Rename, root: bool) -> None:
    _rename_field(told, rename)
    _rename_field(told.get("parent"), rename)
    if root:
        told["parent"] = None


def _rename_result(told: object, rename: _Rename, _root: bool = False) -> None:
    if not isinstance(told, dict):
        return
    _rename_field(told, rename)
    snapshot = told.get("snapshot")
    for holder in (told, snapshot if isinstance(snapshot, dict) else {}):
        for child in _as_list(holder.get("children")):
            _rename_result(child, rename)


def _rename_state(told: dict[str, Any], rename: _Rename, _root: bool = False) -> None:
    patch = _as_list(told.get("children"))
    for child in _as_list(patch[-1] if patch else None):
        _rename_result(child, rename)


def _rename_keys(told: dict[str, Any], rename: _Rename, _root: bool = False) -> None:
    for name in list(told):
        told[rename(name)] = told.pop(name)


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


_CHANGES: dict[str, Callable[..., None]] = {
    "opened": _rename_opened,
    "child": _rename_field,
    "charged": _rename_keys,
    "imported": _rename_field,
    "forked": _rename_field,
    "ended": _rename_result,
    "state": _rename_state,
}


def rename_parent(summary: Mapping[str, Any], rename: _Rename) -> dict[str, Any]:
    """The summary with another id of its parent."""
    parent = summary.get("parent")
    if not isinstance(parent, dict):
        return dict(summary)
    parent = dict(parent)
    _rename_field(parent, rename)
    return {**summary, "parent": parent}


# --- writing -------------------------------------------------------------------------------------------------------


class _Copy(Record):
    lease: Lease
    member: FamilyMember


async def write_family(
    store: SessionStore, members: Sequence[FamilyMember], *, then: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Write a family, its root first. Until all of it is there none of it is listed or can be run.

    It can be written again. `then` is called when only the root's last commit is missing. Raises `StoreError` of
    kind `conflict` when a session of one of these names is there already.
    """
    root = members[0]
    await _clear(store, root.session_id)
    # The root first, and its last commit at the very end: until then its summary says that it is not whole.
    first = await _begin_copy(store, root)
    try:
        await _refuse_taken(store, members)
        for member in members[1:]:
            copy = await _begin_copy(store, member)
            try:
                await _finish_copy(store, copy)
            finally:
                await store.release(copy.lease)
        if then is not None:
            await then()
        await _finish_copy(store, first)
    except StoreError as error:
        await store.release(first.lease)
        # Only then: after any other error the part that is there is cleared when the copy is made again.
        if error.kind == "conflict":
            await store.remove(root.session_id)
        raise
    except BaseException:
        await store.release(first.lease)
        raise
    await store.release(first.lease)
    catalog: Any = store if getattr(store, "find", None) is not None else None
    for member in members:
        if catalog is not None and (member.title or member.tags):
            await catalog.annotate(member.session_id, title=member.title, tags=member.tags)


async def _refuse_taken(store: SessionStore, members: Sequence[FamilyMember]) -> None:
    names = {member.session_id for member in members[1:]}
    for entry in await family_of(store, members[0].session_id):
        if entry.session_id in names:
            raise StoreError(
                f"session {entry.session_id!r} is already in this store; choose another id", kind="conflict"
            )


async def _clear(store: SessionStore, session_id: str) -> None:
    """Clear an unfinished copy."""
    try:
        entry, _ = await store.load(session_id)
    except StoreError as error:
        if error.kind == "missing":
            return
        raise
    if entry.summary.get(IMPORTING) or not entry.head:
        await remove_sessions(store, [session_id])
        return
    raise StoreError(f"session {session_id!r} is already in this store; choose another id", kind="conflict")


async def _begin_copy(store: SessionStore, member: FamilyMember) -> _Copy:
    lease = await store.claim(member.session_id, this_owner())
    try:
        if lease.head:
            raise StoreError(f"session {member.session_id!r} is already in this store", kind="conflict")
        first = {IMPORTING: True, "parent": member.summary.get("parent")}
        for commit in member.commits:
            await _append_commit(store, lease, commit, first)
    except BaseException:
        await store.release(lease)
        raise
    return _Copy(lease, member)


async def _finish_copy(store: SessionStore, copy: _Copy) -> None:
    member = copy.member
    kept = {key: value for key, value in member.summary.items() if key not in (IMPORTING, "rewinding", "base")}
    await _append_commit(store, copy.lease, member.mark, kept)


async def _append_commit(store: SessionStore, lease: Lease, commit: Commit, summary: Mapping[str, Any]) -> None:
    later = store.append(lease, commit, summary=summary)
    if later is not None:
        await later
