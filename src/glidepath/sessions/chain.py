"""The journal's format: records in commits, commits in a chain. No other module knows it.

A commit's body is a JSON array of records `[sequence, time, kind, payload]`. Its hash is taken over the hash before it,
its number and its body, so that no change, omission or insertion goes unnoticed. Payloads of
a kind that this version does not know are kept as they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import count, repeat
from operator import add
from typing import Any

from glidepath import _wire
from glidepath._wire import Raw, Value
from glidepath.spi import Commit
from glidepath.values import StoreError, describe_error

SCHEMA = 1
OLDEST = max(1, SCHEMA - 1)
"""This version reads the last two."""

HASH_SIZE = 16


class JournalRecord(Value, frozen=True, array_like=True, gc=False):
    """One thing that happened: its place in the journal, the time, the kind, and the payload."""

    sequence: int
    time: float
    kind: str
    payload: Raw


_records = _wire.decoder(tuple[JournalRecord, ...])


def _make_encodable(value: object) -> Any:
    """Plain data for an application's own object, or at least its repr."""
    try:
        return _wire.dump_foreign_model(value)
    except TypeError:
        return repr(value)


_encode = _wire.encoder(enc_hook=_make_encodable)


def hash_commit(before: bytes, number: int, body: bytes) -> bytes:
    """The hash of a commit."""
    # Keyed with the hash before it: a commit cannot be moved to another place or another journal.
    return blake2b(body, digest_size=HASH_SIZE, key=before, person=number.to_bytes(8, "big")).digest()


def link(before: bytes, number: int, first: int, time: float, items: Iterable[tuple[str, Any]]) -> Commit:
    """The next commit: these kinds and payloads, numbered from `first`.

    Raises `StoreError` when something in them cannot be written.
    """
    try:
        # (number, time) + (kind, payload) for each item; in C, because it is done twice a turn.
        body = _encode([*map(add, zip(count(first), repeat(time), strict=False), items)])
    except Exception as error:
        what = f"the run has something that cannot be written: {describe_error(error)}"
        raise StoreError(what, kind="unavailable") from error
    return Commit(number, body, hash_commit(before, number, body))


def plain_payload(payload: object) -> Any:
    """A payload as a reader of the journal sees it."""
    return _wire.loads(payload if type(payload) is Raw else _encode(payload))


def read(commit: Commit) -> tuple[JournalRecord, ...]:
    """The records of a commit; raises `StoreError` of kind `damaged`."""
    try:
        return _records(commit.body)  # type: ignore[no-any-return]
    except (_wire.WireError, ValueError, RecursionError) as error:
        raise StoreError(f"commit {commit.number} cannot be read: {error}", kind="damaged") from None


def verify_commits(
    commits: Iterable[Commit],
    *,
    head: int | None = None,
    hash_: bytes | None = None,
    after: tuple[int, bytes] = (0, b""),
) -> Iterator[Commit]:
    """The commits, each checked against the chain; raises `StoreError` (damaged) at the first damaged one.

    `head` and `hash_`: where the chain must end; `after`: the number and hash of the commit before the first.
    """
    number, before = after
    for commit in commits:
        if commit.number != number + 1:
            raise StoreError(f"commit {number + 1} is missing: the next one is {commit.number}", kind="damaged")
        if hash_commit(before, commit.number, commit.body) != commit.hash:
            raise StoreError(f"commit {commit.number} was changed: its hash does not fit", kind="damaged")
        before, number = commit.hash, commit.number
        yield commit
    if head is not None and (number != head or (hash_ and before != hash_)):
        raise StoreError(f"the journal ends with commit {number}; its head says {head}", kind="damaged")


def make_layout_error(what: str, layout: int, known: int) -> StoreError:
    """The error for a store of another layout: kind `newer` for what a later release made, else `schema`."""
    newer = layout > known
    fix = "use a newer glidepath" if newer else "open it with an older glidepath and export it"
    return StoreError(f"{what} layout {layout}; this version knows {known}: {fix}", kind="newer" if newer else "schema")


def check_schema(version: object) -> None:
    """Reject a schema this version cannot read: kind `newer` if a later release wrote it, else `schema`."""
    if type(version) is not int or not OLDEST <= version <= SCHEMA:
        newer = type(version) is int and version > SCHEMA
        fix = "use a newer glidepath" if newer else "open it with an older glidepath and export it"
        raise StoreError(
            f"the journal has schema version {version!r}; this version reads {OLDEST} to {SCHEMA}: {fix}",
            kind="newer" if newer else "schema",
        )
