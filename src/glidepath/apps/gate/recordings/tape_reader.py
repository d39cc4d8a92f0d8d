"""Reads what was recorded of a session: its calls in the order in which they happened, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from glidepath._wire import Value, WireError, decode, replace
from glidepath.apps.gate.recordings.body_deltas import Delta, DeltaReader, unpack
from glidepath.apps.gate.recordings.taped_values import FOLDER, TapedCall, TapeEnd, TapeHead
from glidepath.sessions import (
    TAPE_END,
    TAPE_HEAD,
    TAPED_CALL,
    each_session,
    is_recording,
    read,
    refuse_unfinished,
    verify_commits,
)
from glidepath.values import ConfigurationError, StoreError

if TYPE_CHECKING:
    from glidepath.spi import Entry, SessionStore

LARGEST_TAPE = 4 << 30
"""Bytes of journals that are read."""


class RecordedTape:
    """A recording in memory. Bodies and replies are unpacked when somebody asks for them."""

    def __init__(self, session: str, head: TapeHead, calls: Iterable[TapedCall], torn: str = "") -> None:
        self.session = session
        self.head = head
        self.calls = tuple(calls)
        self.torn = torn
        """Why it may end too early; empty for one that is whole."""
        self._by_number = {call.number: call for call in self.calls}
        self._bodies = DeltaReader({call.number: _delta_of(call) for call in self.calls})

    def read_body(self, call: TapedCall) -> bytes:
        """What the client sent; raises `StoreError` (damaged)."""
        try:
            return self._bodies.read(call.number)
        except ValueError as error:
            raise StoreError(f"the recording of {self.session!r} is damaged: {error}", kind="damaged") from None

    def read_reply(self, call: TapedCall) -> bytes:
        """What it got; raises `StoreError` (damaged)."""
        try:
            reply = unpack(call.reply)
        except ValueError as error:
            raise StoreError(
                f"the recording of {self.session!r} is damaged: the reply of call {call.number}: {error}",
                kind="damaged",
            ) from None
        if len(reply) != sum(size for _, size in call.chunks):
            raise StoreError(
                f"the recording of {self.session!r} is damaged: call {call.number} does not have all of its reply",
                kind="damaged",
            )
        return reply


class _Part(Value, frozen=True, kw_only=True):
    head: TapeHead
    calls: tuple[TapedCall, ...]
    end: TapeEnd | None


async def read_tape(store: SessionStore, session: str) -> RecordedTape:
    """The recording of a session, all its parts; raises `ConfigurationError` when there is none, and `StoreError`."""
    prefix = f"{session}/{FOLDER}."
    entries = [one async for one in each_session(store, prefix=prefix, roots=False) if is_recording(one)]
    parts = [part for part in [await _read_part(store, entry) for entry in entries] if part is not None]
    if not parts:
        raise ConfigurationError(
            f"nothing was recorded of session {session!r:.120}: record a run with `glidepath gate run --record -- "
            "COMMAND`, then replay it"
        )
    if any(part.head.redacted for part in parts):
        raise ConfigurationError(
            f"the recording of session {session!r:.120} was copied into a store that redacts: what was said is gone, "
            "so it cannot be replayed. Replay it from the store in which it was recorded"
        )
    parts.sort(key=lambda part: part.head.started)
    return RecordedTape(session, parts[0].head, _join(parts), _find_tear(parts))


async def find_last_recorded(store: SessionStore) -> str:
    """The session of which something was recorded last; raises `ConfigurationError` when nothing ever was."""
    async for entry in each_session(store, roots=False):
        if is_recording(entry):
            return entry.session_id.rpartition("/")[0]
    raise ConfigurationError(
        "nothing was recorded in this store: `glidepath gate run --record -- COMMAND` records a run"
    )


async def _read_part(store: SessionStore, entry: Entry) -> _Part | None:
    entry, commits = await store.load(entry.session_id)
    refuse_unfinished(entry)
    try:
        whole = list(verify_commits(commits, head=entry.head, hash_=entry.hash))
    except StoreError as error:
        raise StoreError(f"the recording {entry.session_id!r} is damaged: {error}", kind="damaged") from None
    if sum(len(commit.body) for commit in whole) > LARGEST_TAPE:
        raise StoreError(f"the recording {entry.session_id!r} is larger than {LARGEST_TAPE} bytes", kind="damaged")
    head: TapeHead | None = None
    end: TapeEnd | None = None
    calls: list[TapedCall] = []
    for commit in whole:
        for record in read(commit):
            if record.kind == TAPE_HEAD:
                head = _decode(bytes(record.payload), TapeHead, entry)
            elif record.kind == TAPED_CALL and not (head is not None and head.redacted):
                calls.append(_decode(bytes(record.payload), TapedCall, entry))
            elif record.kind == TAPE_END:
                end = _decode(bytes(record.payload), TapeEnd, entry)
    return None if head is None else _Part(head=head, calls=tuple(calls), end=end)


def _decode(payload: bytes, kind: type, entry: Entry) -> Any:
    try:
        return decode(payload, kind)
    except (WireError, ValueError, RecursionError) as error:
        raise StoreError(f"the recording {entry.session_id!r} cannot be read: {error}", kind="damaged") from None


def _join(parts: Iterable[_Part]) -> list[TapedCall]:
    """The calls of all parts under numbers of their own."""
    found: list[TapedCall] = []
    for part in parts:
        numbers, places = len(found), max([call.ended for call in found], default=0)
        found += [
            replace(
                call,
                number=call.number + numbers,
                base=call.base + numbers if call.base else 0,
                began=call.began + places,
                ended=call.ended + places,
            )
            for call in part.calls
        ]
    return found


def _find_tear(parts: Iterable[_Part]) -> str:
    for part in parts:
        if part.end is None:
            why = "its gate was killed, could not write any more, or still records"
            return f"it breaks off after call {len(part.calls)}: {why}"
        if part.end.reason:
            return f"it stops after call {len(part.calls)}: {part.end.reason}"
    return ""


def _delta_of(call: TapedCall) -> Delta:
    return Delta(base=call.base, prefix=call.prefix, suffix=call.suffix, middle=call.middle)
