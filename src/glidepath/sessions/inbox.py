"""Notes for a run, from any process: messages and decisions wait in the store, and the journal says which were taken.

Nothing is read destructively. A run takes a note into its state, and the next commit has both what the note brought and
its number: after kill -9 it is taken again when that commit was not written, and never again when it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, WireError, field, replace
from glidepath.run import Decision
from glidepath.sessions.chain import plain_payload
from glidepath.sessions.redaction import redactor_of
from glidepath.sessions.session_ids import is_keepable
from glidepath.spi import Inbox, Note, as_message, is_implementing
from glidepath.values import ConfigurationError, Message, RunResult, StoreError, codec

if TYPE_CHECKING:
    from glidepath.run import Run
    from glidepath.spi import SessionStore
    from glidepath.values import ToolCall

_DECISIONS = Mapping[str, Decision]
_NOTHING: dict[Any, Any] = {}


async def send(store: object, session_id: str, message: str | Message, *, note_id: str | None = None) -> int:
    """Send a message to a session, wherever its run is; the number of the note.

    A run in flight reads it within a second and tells its model after the turn; it does not end before it has. While
    nothing is running, the message waits for the next run, or for the resume. With a `note_id` of yours it is sent
    once, however often you try. Raises `StoreError` (`missing`) when there is no such session.
    """
    try:
        ready = as_message(message)
        body = codec.encode(ready)
        codec.decode(body)
    except (TypeError, ValueError, WireError, RecursionError) as error:
        raise ConfigurationError(f"send() takes a text or a user message: {error}") from None
    if not ready.text.strip() or "\0" in ready.text:
        raise ConfigurationError("send() takes a non-empty text without NUL characters")
    redactor = redactor_of(store)
    if redactor is not None:  # what is kept is what the run will read
        body = _wire.encode(redactor.record("message", ready))
    return await _post(store, session_id, "message", body, note_id)


async def decide(store: object, session_id: str, decisions: _DECISIONS, *, note_id: str | None = None) -> int:
    """Decide about calls of a paused run, by call id; resuming it picks up the decisions. The number of the note.

    A decision about a call that does not wait any more changes nothing: the first one was obeyed.
    """
    if not isinstance(decisions, Mapping) or not decisions:
        raise ConfigurationError(f"decisions must map call ids to approve(), deny() or answer(): {decisions!r:.100}")
    for call_id, decision in decisions.items():
        if isinstance(call_id, str) and not is_keepable(call_id):
            raise ConfigurationError(f"decisions: {call_id!r:.80} is not the id of a call")
        if not isinstance(call_id, str) or not isinstance(decision, Decision):
            raise ConfigurationError(
                f"decisions[{call_id!r:.80}] must be approve(), deny(reason) or answer(text), not {decision!r:.100}"
            )
    body, redactor = _wire.encode(dict(decisions)), redactor_of(store)
    if redactor is not None and redactor.record("decided", dict(decisions)) != plain_payload(dict(decisions)):
        raise ConfigurationError("decisions: this store redacts a text or an argument in them; pass them to resume()")
    return await _post(store, session_id, "decision", body, note_id)


async def note_control(store: object, session_id: str, control: Mapping[str, Any]) -> int:
    """Note what a person did to a session, why, and who; the journal of its next run, or of the one in flight, has it.

    Nothing comes of it but the record, unless the action is "land" and `obey` is true: then the run that reads it
    lands. Raises `StoreError` (`missing`).
    """
    return await _post(store, session_id, "control", _wire.encode(dict(control)), None)


async def _post(store: object, session_id: str, kind: str, body: bytes, note_id: str | None) -> int:
    if not is_implementing(store, Inbox):
        raise ConfigurationError(f"{type(store).__name__} has no inbox: use a store with `post` and `notes`")
    if note_id is not None and not is_keepable(note_id):
        raise ConfigurationError(f"note_id {note_id!r:.80} must have no NUL characters and no lone surrogates")
    if kind != "control" and isinstance(session_id, str) and session_id.startswith(("team:", "eval:")):
        await _refuse_team(store, session_id)
    return await store.post(session_id, Note(id=note_id or os.urandom(8).hex(), kind=kind, body=body))


async def _refuse_team(store: Any, session_id: str) -> None:
    """Raise `ConfigurationError` for the journal of a team: nobody reads an inbox there."""
    from glidepath.sessions.summaries import is_group

    if any(is_group(entry) for entry in await store.entries(session_id) if entry.session_id == session_id):
        raise ConfigurationError(
            f"session {session_id!r:.80} is the journal of a team or an evaluation, which reads no messages: name the "
            "session of one of its runs, or decide with Team.resume"
        )


def read_decisions(notes: Iterable[Note]) -> dict[str, Decision]:
    """What was decided in these notes; the first decision about a call counts."""
    found: dict[str, Decision] = {}
    for note in notes:
        if note.kind == "decision":
            try:
                decided = _wire.decode(note.body, dict[str, Decision])
            except (WireError, ValueError):  # of another version: it is not ours to guess
                continue
            for call_id, decision in decided.items():
                if decision.kind in ("approve", "deny", "answer"):
                    found.setdefault(call_id, decision)
    return found


async def find_approved_calls(store: SessionStore, session_id: str) -> tuple[ToolCall, ...]:
    """The calls of a session's last run that a person has approved or answered and that have not run since."""
    from glidepath.sessions.archive import read_journal
    from glidepath.sessions.recover import open_calls

    folded = (await read_journal(store, session_id)).folded
    posted = read_decisions(await store.notes(session_id, folded.taken)) if is_implementing(store, Inbox) else {}
    decided = {**posted, **folded.decisions}
    if folded.result is not None:
        waiting = tuple([one.call for one in folded.result.pending])
    else:
        waiting = tuple([call for call in open_calls(folded) if call.id not in folded.intents])
    return tuple([call for call in waiting if call.id in decided and decided[call.id].kind != "deny"])


class SessionMailbox(Record, gc=False):
    """How far one run has taken the notes of its session."""

    taken: int = 0
    closed: bool = False
    stirred: bool = False
    """There may be something to write."""
    _written: int = 0
    # Nothing is put into these: code that has something for one makes another.
    _decided: _DECISIONS = field(default_factory=lambda: _NOTHING)
    _controls: tuple[dict[str, Any], ...] = ()
    _delivered: Mapping[int, tuple[int, Message]] = field(default_factory=lambda: _NOTHING)
    """By the message's identity, while the run waits with it."""

    def skip_taken(self, taken: int) -> None:
        """What the journal says was taken before."""
        self.taken = self._written = taken

    def take(self, run: Run, notes: Sequence[Note]) -> None:
        """Apply these notes to the run. It awaits nothing, so a commit has all of them or none."""
        if self.closed:
            return
        self.stirred = True
        if not notes:
            return
        messages = []
        for note in notes:
            if note.number <= self.taken:
                continue
            self.taken = note.number
            control = control_in(note)
            if control is not None:
                self._controls = (*self._controls, control)
                if control.get("action") == "land" and control.get("obey") is True:
                    run.on_cancel_token("wind_down", str(control.get("reason") or ""))
            message = _message(note)
            if message is not None:
                messages.append(message)
                self._delivered = {**self._delivered, id(message): (note.number, message)}
        self._decided = {**self._decided, **read_decisions(notes)}
        run.transcript.wait(messages)

    def add_remark(self, control: dict[str, Any]) -> None:
        """What a person did to this run, for the next commit; the same as a note, without the way through the store."""
        if not self.closed:
            self._controls = (*self._controls, control)
            self.stirred = True

    def take_records(self) -> Sequence[tuple[str, Any]]:
        """The records that say so, for the next commit."""
        self.stirred = False
        items: list[tuple[str, Any]] = [("control", one) for one in self._controls]
        self._controls = ()
        if self._decided:
            items.append(("decided", self._decided))
            self._decided = _NOTHING
        if self.taken != self._written:
            items.append(("mail", self.taken))
            self._written = self.taken
        return items

    def put_back(self, run: Run, result: RunResult) -> RunResult:
        """The run ends with messages that its model has not seen: they wait in the inbox again, for the next run."""
        self.closed = True
        left = [self._delivered[id(one)] for one in run.transcript.waiting if id(one) in self._delivered]
        if not left:
            return result
        run.transcript.take_back(frozenset(id(message) for _, message in left))
        self.taken = min(number for number, _ in left) - 1
        self.stirred = True
        if result.snapshot is None:
            return result
        return replace(result, snapshot=replace(result.snapshot, waiting=run.transcript.waiting))


def control_in(note: Note) -> dict[str, Any] | None:
    """What a person did, when the note says that."""
    if note.kind != "control":
        return None
    try:
        return _wire.decode(note.body, dict[str, Any])  # type: ignore[no-any-return]
    except (WireError, ValueError, RecursionError):
        return None


def _message(note: Note) -> Message | None:
    if note.kind != "message":
        return None
    try:
        return as_message(codec.decode(note.body))
    except (TypeError, ValueError, WireError, RecursionError, StoreError):
        return None  # of another version, or no message
