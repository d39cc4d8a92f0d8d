"""Looking at journals and looking after them: list, show, export, import, prune, repair, stop."""

from __future__ import annotations

import binascii
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Raw, Value, WireError
from glidepath.errors import StoreError
from glidepath.sessions.chain import SCHEMA, Record, chained, check_schema, link, read, verified
from glidepath.sessions.fold import Folded, Imported, fold
from glidepath.sessions.owner import free, this_owner
from glidepath.sessions.session import checked_id
from glidepath.spi.sessions import Commit, Entry, SessionStore

__all__ = [
    "Journal",
    "Repaired",
    "export_journal",
    "import_journal",
    "list_runs",
    "prune",
    "read_journal",
    "refuse_unfinished",
    "repair",
    "show",
    "stop",
]

FORMAT = "glidepath journal"
IMPORTING = "importing"  # in the summary until the import is complete: without its last record it has authority


class Journal(Value, frozen=True):
    """A journal, verified, and the state at its end."""

    entry: Entry
    commits: tuple[Commit, ...]
    folded: Folded

    def records(self) -> Iterator[Record]:
        """Every record, in order."""
        for commit in self.commits:
            yield from read(commit)


async def read_journal(store: SessionStore, session_id: str) -> Journal:
    """Read and verify a journal; raises `StoreError`: `missing`, `damaged` (names `repair`), `newer`, `schema`."""
    entry, commits = await store.load(session_id)
    refuse_unfinished(entry)
    try:
        whole = tuple(verified(commits, head=entry.head, hash_=entry.hash))
        return Journal(entry, whole, fold(whole, session_id))
    except StoreError as error:
        if error.kind != "damaged":
            raise
        what = f"the journal of session {session_id!r} is damaged: {error}. `repair` keeps what is whole"
        raise StoreError(what, kind="damaged") from None


def refuse_unfinished(entry: Entry) -> None:
    """Raise `StoreError` for a journal whose import was cut short: nothing in it says yet that a stranger wrote it."""
    if entry.summary.get(IMPORTING):
        what = f"the import of session {entry.session_id!r} was not finished: import it again"
        raise StoreError(what, kind="damaged")


async def list_runs(store: SessionStore, *, children: bool = False) -> list[Entry]:
    """What is in the store, the last written first; child sessions only when asked for."""
    return [entry for entry in await store.entries() if children or not entry.summary.get("parent")]


async def show(store: SessionStore, session_id: str) -> Journal:
    """One journal, read and verified."""
    return await read_journal(store, session_id)


async def stop(store: SessionStore, session_id: str, reason: str = "") -> None:
    """Ask the run in this session to stop, wherever it runs: it lands as CANCELLED within a second."""
    await store.flag(session_id, reason or "stopped from outside")


# --- files --------------------------------------------------------------------------------------------------------


class _Header(Value, frozen=True, kw_only=True):
    format: str
    schema: int
    session_id: str
    head: int
    hash: str
    summary: Mapping[str, Any] = {}


class _Line(Value, frozen=True, kw_only=True):
    commit: int
    hash: str
    records: Raw


async def export_journal(store: SessionStore, session_id: str) -> bytes:
    """The journal as JSON lines: one for the session, then one for each commit, readable and complete."""
    entry, commits = await store.load(session_id)
    list(verified(commits, head=entry.head, hash_=entry.hash))
    header = _Header(
        format=FORMAT,
        schema=SCHEMA,
        session_id=session_id,
        head=entry.head,
        hash=entry.hash.hex(),
        summary=dict(entry.summary),
    )
    lines: list[Any] = [header]
    lines += [_Line(commit=one.number, hash=one.hash.hex(), records=Raw(one.body)) for one in commits]
    return b"".join([_wire.encode(line) + b"\n" for line in lines])


def parse_export(data: bytes) -> tuple[Entry, tuple[Commit, ...]]:
    """Read what `export_journal` wrote, and verify it; raises `StoreError`."""
    first, *rest = data.splitlines() or [b""]
    try:
        header = _wire.decode(first, _Header)
        check_schema(header.schema)
        lines = [_wire.decode(line, _Line) for line in rest if line.strip()]
        commits = tuple([Commit(line.commit, bytes(line.records), binascii.unhexlify(line.hash)) for line in lines])
        entry = Entry(
            session_id=header.session_id,
            head=header.head,
            hash=binascii.unhexlify(header.hash),
            summary=header.summary,
        )
    except (WireError, ValueError) as error:
        raise StoreError(f"this is no exported journal, or not a whole one: {error}", kind="damaged") from None
    if header.format != FORMAT:
        raise StoreError(f"this is no exported journal: its format is {header.format!r:.80}", kind="damaged")
    return entry, tuple(verified(commits, head=entry.head, hash_=entry.hash))


async def import_journal(store: SessionStore, data: bytes, *, session_id: str | None = None) -> str:
    """Put an exported journal into a store; raises `StoreError` (`conflict`) when the session is there already.

    Every record is kept, and a last one says that it was imported. From then on nothing in it may act: decisions have
    lost their force, a call that had begun is unknown and never repeated, one that had not begun waits for a person.
    """
    entry, commits = parse_export(data)
    folded = fold(commits)  # what cannot be read is not taken in
    name = checked_id(session_id or entry.session_id)
    commits = (*commits, _import_mark(name, entry, folded))
    lease = await store.claim(name, this_owner())
    if lease.head and (await store.load(name))[0].summary.get(IMPORTING):
        await store.release(lease)
        await store.remove(name)
        lease = await store.claim(name, this_owner())
    try:
        if lease.head:
            raise StoreError(f"session {name!r} is in this store already; import it under another id", kind="conflict")
        kept = {key: value for key, value in entry.summary.items() if key != IMPORTING}
        for commit in commits:
            summary = kept if commit is commits[-1] else {IMPORTING: True}
            later = store.append(lease, commit, summary=summary)
            if later is not None:
                await later
    finally:
        await store.release(lease)
    return name


def _import_mark(name: str, entry: Entry, folded: Folded) -> Commit:
    """The commit that takes the force out of all before it. It is part of the chain, so an export keeps it."""
    items = [("imported", Imported(session_id=name))]
    return link(entry.hash, entry.head + 1, folded.sequence + 1, time.time(), items)


# --- housekeeping -------------------------------------------------------------------------------------------------


async def prune(store: SessionStore, *, older_than: float, states: Sequence[str] = ("completed",)) -> list[str]:
    """Remove sessions whose last run ended so many seconds ago in one of these states; their children, too."""
    before = time.time() - older_than
    entries = await store.entries()
    gone = [
        entry.session_id
        for entry in entries
        if entry.updated < before
        and entry.summary.get("state") in states
        and not entry.summary.get("parent")
        and free(entry.owner, entry.expires, time.time())
    ]
    chosen = [entry.session_id for entry in entries if _family(entry.session_id, gone)]
    for session_id in chosen:
        await store.remove(session_id)
    return chosen


def _family(session_id: str, roots: Iterable[str]) -> bool:
    return any(session_id == root or session_id.startswith(f"{root}/") for root in roots)


class Repaired(Value, frozen=True, kw_only=True):
    """What a repair kept and what it had to drop, and why."""

    session_id: str
    kept: int
    dropped: int
    reason: str = ""


async def repair(store: SessionStore, session_id: str) -> Repaired:
    """Keep the commits that are whole and drop the rest. Nothing happens to a journal that is whole.

    A commit is dropped when it, or one before it, does not fit the chain or cannot be read. Whatever it had recorded is
    lost: calls whose results are gone are reported as unknown when the run is resumed.
    """
    entry, commits = await store.load(session_id)
    whole: list[Commit] = []
    reason = ""
    folded = Folded(session_id)
    before = b""
    for commit in commits:
        try:
            if commit.number != len(whole) + 1:
                raise StoreError(f"commit {len(whole) + 1} is missing", kind="damaged")
            if chained(before, commit.number, commit.body) != commit.hash:
                raise StoreError(f"commit {commit.number} was changed", kind="damaged")
            folded.take(read(commit))
        except StoreError as error:
            if error.kind in ("newer", "schema"):
                raise
            reason = str(error)
            break
        whole.append(commit)
        before = commit.hash
    last = whole[-1] if whole else Commit(0, b"", b"")
    dropped = max(len(commits) - len(whole), entry.head - last.number)
    if not reason and (entry.head, entry.hash) != (last.number, last.hash):
        reason = f"the journal ends with commit {last.number}, and its head said {entry.head}"
    if reason:
        lease = await store.claim(session_id, this_owner(), create=False)
        await store.cut(lease, last.number, last.hash)
    return Repaired(session_id=session_id, kept=len(whole), dropped=dropped, reason=reason)
