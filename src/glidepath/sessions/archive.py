"""Inspects and moves journals: list, read, stop, export, import."""

from __future__ import annotations

import binascii
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from glidepath import _wire
from glidepath._wire import Raw, Value, WireError
from glidepath.sessions.chain import SCHEMA, JournalRecord, check_schema, link, read, verify_commits
from glidepath.sessions.child_sessions import (
    FamilyMember,
    family_of,
    rebase_id,
    refuse_unfinished,
    rename_parent,
    rename_sessions,
    write_family,
)
from glidepath.sessions.finding import GROUPS, each_session, entry_of, name_in_group, prune, remove_unfinished
from glidepath.sessions.fold import Folded, Imported, fold
from glidepath.sessions.redaction import redact_commits, redactor_of
from glidepath.sessions.repairing import Repaired, repair
from glidepath.sessions.session import check_session_id
from glidepath.sessions.session_ids import home_of
from glidepath.sessions.summaries import check_title, normalize_tags
from glidepath.spi import Commit, Entry, SessionStore
from glidepath.values import ConfigurationError, StoreError

__all__ = [
    "Repaired",
    "StoredJournal",
    "export_journal",
    "import_journal",
    "list_runs",
    "naming_damage",
    "prune",
    "read_journal",
    "refuse_unfinished",
    "repair",
    "stop",
]

FORMAT = "glidepath journal"


class StoredJournal(Value, frozen=True):
    """A journal, verified, and the state at its end."""

    entry: Entry
    commits: tuple[Commit, ...]
    folded: Folded

    def records(self) -> Iterator[JournalRecord]:
        """Every record, in order."""
        for commit in self.commits:
            yield from read(commit)


async def read_journal(store: SessionStore, session_id: str) -> StoredJournal:
    """Read and verify a journal; raises `StoreError`: `missing`, `damaged` (names `repair`), `newer`, `schema`."""
    entry, commits = await store.load(session_id)
    refuse_unfinished(entry)
    return verify_journal(entry, commits)


def verify_journal(entry: Entry, commits: Iterable[Commit]) -> StoredJournal:
    """The journal that a store has given, verified and folded."""
    with naming_damage(entry.session_id):
        whole = tuple(verify_commits(commits, head=entry.head, hash_=entry.hash))
        return StoredJournal(entry, whole, fold(whole, entry.session_id))


@contextmanager
def naming_damage(session_id: str) -> Iterator[None]:
    """Name the session in an error about damage: it may be one of a family that nobody asked for by its name."""
    try:
        yield
    except StoreError as error:
        if error.kind != "damaged":
            raise
        what = f"the journal of session {session_id!r} is damaged: {error}. `repair` keeps the intact part"
        raise StoreError(what, kind="damaged") from None


async def list_runs(store: SessionStore, *, children: bool = False) -> list[Entry]:
    """The sessions in the store, newest first; child sessions only with `children`."""
    return [entry async for entry in each_session(store, roots=not children)]


async def stop(store: SessionStore, session_id: str, reason: str = "") -> None:
    """Ask the run in this session to stop, wherever it runs: it lands as CANCELLED within a second."""
    await store.flag(session_id, reason or "stopped from outside")


# --- files --------------------------------------------------------------------------------------------------------


class _Header(Value, frozen=True, kw_only=True, omit_defaults=True):
    format: str
    schema: int
    session_id: str
    head: int
    hash: str
    summary: Mapping[str, Any] = {}
    title: str = ""
    tags: tuple[str, ...] = ()
    family: int = 1
    """How many journals the file has; only the first header says."""


class _Line(Value, frozen=True, kw_only=True):
    commit: int
    hash: str
    records: Raw


async def export_journal(store: SessionStore, session_id: str) -> bytes:
    """The journals of a session and of its children as JSON lines, readable and complete.

    One line for the session, one for each of its commits, then the same for each child.
    """
    names = [session_id, *[entry.session_id for entry in await family_of(store, session_id)]]
    parts = []
    for name in names:
        entry, commits = await store.load(name)
        refuse_unfinished(entry)
        with naming_damage(name):
            list(verify_commits(commits, head=entry.head, hash_=entry.hash))
        known = await entry_of(store, name) or entry
        header = _Header(
            format=FORMAT,
            schema=SCHEMA,
            session_id=name,
            head=entry.head,
            hash=entry.hash.hex(),
            summary=dict(entry.summary),
            title=known.title,
            tags=known.tags,
            family=len(names) if name == session_id else 1,
        )
        lines: list[Any] = [header]
        lines += [_Line(commit=one.number, hash=one.hash.hex(), records=Raw(one.body)) for one in commits]
        parts += [_wire.encode(line) + b"\n" for line in lines]
    return b"".join(parts)


def parse_export(data: bytes) -> list[tuple[Entry, tuple[Commit, ...]]]:
    """Read what `export_journal` wrote, and verify it: the session itself first. Raises `StoreError`."""
    headers: list[_Header] = []
    lines: list[list[_Line]] = []
    try:
        for number, line in enumerate(data.splitlines() or [b""], 1):
            if number > 1 and not line.strip():
                continue
            if number == 1 or "format" in _wire.decode(line, dict[str, Raw]):
                headers.append(_wire.decode(line, _Header))
                lines.append([])
                _check_header(headers[-1], number)
            else:
                lines[-1].append(_wire.decode(line, _Line))
        sessions = [_section(header, rows) for header, rows in zip(headers, lines, strict=True)]
    except (WireError, ValueError, RecursionError) as error:
        what = f"this is not an exported journal, or not a whole one: line {number}: {error}"
        raise StoreError(what, kind="damaged") from None
    _check_family(headers)
    return sessions


def _check_header(header: _Header, number: int) -> None:
    check_schema(header.schema)
    if header.format != FORMAT:
        what = f"this is not an exported journal: the format in line {number} is {header.format!r:.80}"
        raise StoreError(what, kind="damaged")


def _section(header: _Header, rows: Sequence[_Line]) -> tuple[Entry, tuple[Commit, ...]]:
    commits = [Commit(row.commit, bytes(row.records), binascii.unhexlify(row.hash)) for row in rows]
    entry = Entry(
        session_id=header.session_id,
        head=header.head,
        hash=binascii.unhexlify(header.hash),
        summary=header.summary,
        title=check_title(header.title),
        tags=normalize_tags(header.tags),
    )
    return entry, tuple(verify_commits(commits, head=entry.head, hash_=entry.hash))


def _check_family(headers: Sequence[_Header]) -> None:
    root, names = headers[0], {header.session_id for header in headers}
    if root.family != len(headers) or len(names) != len(headers):
        what = f"the file has {len(headers)} journals and says that it has {root.family}: it was cut, or put together"
        raise StoreError(what, kind="damaged")
    flown = (f"{root.session_id}/", f"{home_of(name_in_group(root.session_id))}/")
    for header in headers[1:]:
        if not header.session_id.startswith(flown):
            what = f"session {header.session_id!r:.80} in this file is not a child of {root.session_id!r:.80}"
            raise StoreError(what, kind="damaged")


async def import_journal(store: SessionStore, data: bytes, *, session_id: str | None = None) -> str:
    """Put an exported journal into a store; raises `StoreError` (`conflict`) if the session already exists.

    Every record is kept, and a last one in each journal says that it was imported. Nothing in it takes effect:
    decisions are void, a call that had begun is unknown and never repeated, one that had not begun waits for a
    person. `session_id` becomes its id in every record, and the start of its children's ids.
    """
    sections = parse_export(data)
    old = sections[0][0].session_id
    new = check_session_id(session_id or old)
    if new != old and old.startswith(GROUPS):
        raise ConfigurationError(
            f"session_id: the journal of a team or an evaluation keeps its id, {old!r}: leave session_id out"
        )
    members = []
    kept_tags = getattr(store, "kept_tags", tuple)  # a store that redacts leaves some of them out
    for entry, written in sections:
        name = check_session_id(rebase_id(entry.session_id, old, new))
        folded = fold(written)  # what cannot be read is not imported
        commits = written if new == old else rename_sessions(written, partial(rebase_id, old=old, new=new))
        items: list[tuple[str, Any]] = [("imported", Imported(session_id=name))]
        redactor, told = redactor_of(store), entry.summary
        if redactor is not None:
            commits, changed = redact_commits(redactor, commits)
            told = redactor.summary(told) or {}
            items = [("redacted", changed), *items] if changed else items
        last = commits[-1].hash if commits else b""
        mark = link(last, entry.head + 1, folded.sequence + 1, time.time(), items)
        summary = rename_parent(told, partial(rebase_id, old=old, new=new))
        members.append(
            FamilyMember(
                session_id=name,
                commits=commits,
                mark=mark,
                summary=summary,
                title=entry.title,
                tags=kept_tags(entry.tags),
            )
        )
    with suppress(StoreError):  # of an import that was killed, under whatever name; without a store there is none
        await remove_unfinished(store)
    try:
        await write_family(store, members)
    except Exception:
        with suppress(Exception):
            await remove_unfinished(store)
        raise
    return new
