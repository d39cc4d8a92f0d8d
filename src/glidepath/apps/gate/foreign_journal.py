"""Writes the journal of a foreign run: the worst case before a call goes out, what was said and paid after it.

The records are those of our own runs, so that whatever reads a journal reads these. Commits are written one after the
other; what comes while one is on its way goes with the next. Nobody waits for that but a call that has yet to go out.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from glidepath._version import VERSION
from glidepath.sessions import SCHEMA, Began, Items, JournalWriter, Opened
from glidepath.sessions.store_calls import StoreAnswer, WatchedAnswer, as_store_error
from glidepath.spi import Lease, SessionStore, Sign
from glidepath.values import AgentState, AssistantMessage, RunResult, StoreError

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun

SUMMARY_EVERY = 2.0  # seconds between two looks at a run in a list of sessions


class ForeignJournal(JournalWriter):
    """Writes what one agent of a foreign program does."""

    __slots__ = ("_dirty", "_fields", "_flying", "_items", "_run", "_summarized", "on_sign", "taken")

    def __init__(self, store: SessionStore, lease: Lease, run: ForeignRun, *, sequence: int = 0) -> None:
        super().__init__(store, lease, sequence=sequence)
        self._run = run
        self._items: Items = []
        self._dirty = False
        self._fields: dict[str, Any] = {}
        self._flying: StoreAnswer | None = None
        self._summarized = 0.0
        self.taken = 0
        """Up to which number the notes of the inbox were taken."""
        self.on_sign: Callable[[ForeignRun, Sign], Awaitable[None]] | None = None
        """Called with what the store reports: a stop, a note, the loss of the session."""

    # --- what is written ------------------------------------------------------------------------------------------

    def begin(self, *, resumed: bool, rewrites: bool) -> None:
        """The run begins, or continues. With `rewrites` nobody knows how much of its conversation was written."""
        run = self._run
        config = run.fingerprint()
        items: Items = []
        if not self.number:
            above = run.parent
            parent = None
            if above is not None:
                parent = {"session_id": above.name, "run_id": above.run_id, "call": run.name.rpartition("/")[2]}
            opened = Opened(schema=SCHEMA, session_id=self.lease.session_id, version=VERSION, parent=parent)
            items.append(("opened", opened))
        began = Began(
            run_id=run.run_id,
            agent=run.agent_name,
            model=run.model,
            resumed=resumed,
            schema=SCHEMA,
            version=VERSION,
            config=config.digest,
        )
        items += [("began", began), ("config", config)]
        self.put(*items, *(run.conversation.records() if rewrites else []), summarize=True)

    def end(self, result: RunResult) -> None:
        """The run is over, for now."""
        items = self._run.conversation.records() if self._run.conversation.settle() else []
        self.put(*items, ("ended", result), summarize=True)

    def put(self, *items: tuple[str, Any], summarize: bool = False) -> None:
        """Write these records with the figures of the run as they are then, at once or behind what is on its way."""
        self._items += items
        self._dirty = True
        if summarize:
            self._summarized = 0.0
        self._advance()

    @property
    def is_written(self) -> bool:
        """True when the store has everything."""
        return not self._dirty and self._flying is None and self.broken is None

    async def flush(self) -> None:
        """Wait until everything is written; raises `StoreError`."""
        while self._flying is not None:
            await self._flying.make_done_future()
        if self.broken is not None:
            raise self.broken

    # --- one commit after the other -------------------------------------------------------------------------------

    def _advance(self) -> None:
        while self._dirty and self._flying is None and self.broken is None:
            try:
                later = self._write()
            except Exception as error:
                self.fail(error)
                return
            if later is not None:
                # Our own stores answer in time and without a task; any other may be silent, and is watched.
                flying = later if isinstance(later, StoreAnswer) else WatchedAnswer(later)
                self._flying = flying
                flying.call_when_done(self._land)

    def _land(self, answer: StoreAnswer) -> None:
        self._flying = None
        if answer.error is not None:
            self.fail(answer.error)
        else:
            self._advance()

    def _write(self) -> Awaitable[None] | None:
        """All that is new, in the order in which a reader applies it: what was said, the state, what may be spent."""
        run, now = self._run, round(time.time(), 3)
        items, self._items, self._dirty = self._items, [], False
        last = items.pop() if items and items[-1][0] == "ended" else None
        changed = self._changes()
        if changed:
            items.append(("state", changed))
        items.append(("tick", run.tick(now)))
        if last is not None:
            items.append(last)
        # A reservation holds until the next commit: it is reported again for as long as a call is in flight.
        reserved = run.sum_reserved()
        if reserved is not None:
            items.append(("reserved", reserved))
        summary = None
        if now - self._summarized >= SUMMARY_EVERY:
            state = AgentState.RUNNING if run.ended is None else run.ended.state
            summary, self._summarized = run.summary(state.value), now
        return self.add(items, now, summary)

    def _changes(self) -> dict[str, Any]:
        """Patches for the fields that differ from what is written; they are known from then on."""
        known, found = self._fields, self._run.fields()
        changed: dict[str, Any] = {}
        for name, value in found.items():
            if name not in known or known[name] != value:
                changed[name] = ["=", value]
        if "text" in changed and found["text"] == _last_reply(self._run):
            changed["text"] = True  # it is in the journal already
        self._fields = found
        return changed

    def fail(self, error: BaseException) -> None:
        """The store has failed, or another gate owns the session: nothing is written, and no call goes out."""
        self.broken = self.broken or as_store_error(error)
        self._items, self._dirty = [], False

    async def take_sign(self, sign: Sign) -> None:
        """Act on what the store reports about the session."""
        if sign.lost:
            self.fail(StoreError("another process has taken the session", kind="fenced"))
        if self.on_sign is not None:
            await self.on_sign(self._run, sign)


def _last_reply(run: ForeignRun) -> str | None:
    for message in reversed(run.conversation.messages):
        if type(message) is AssistantMessage:
            return message.text
    return None
