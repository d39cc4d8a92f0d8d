"""Redaction: a hook that rewrites text before it is written, and the store that enforces it.

What a person, a model or a tool said goes through the hook: texts, arguments, results, reasons. Names, ids and kinds,
which the journal is read by, do not. When the hook fails nothing is written, and the run comes down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Raw, replace
from glidepath.sessions.chain import link, plain_payload, read
from glidepath.sessions.foreign_mark import TAPE_HEAD, TAPED_CALL
from glidepath.spi import Commit, Note
from glidepath.values import REDACTED, ConfigurationError, StoreError, describe_error

if TYPE_CHECKING:
    from glidepath.spi import SessionStore

Hook = Callable[[str], str]
Items = list[tuple[str, Any]]

_WHOLE = frozenset(  # records without anything that somebody said
    {
        *("opened", "config", "queued", "placed", "tick", "reserved", "child", "charged"),
        *("imported", "redacted", "base", "recorded"),
    }
)
_DEEP = frozenset({"arguments", "details", "payload", "output", "metadata", "extras", "metrics"})
_NAMES = frozenset(  # what a journal is read by
    {
        *("role", "type", "kind", "id", "call_id", "name", "tool_name", "tool_choice", "key", "run_id", "session_id"),
        *("agent", "model", "state", "outcome", "source", "action", "checkpoint", "constraint", "stop_reason", "cut"),
        *(
            "media_type",
            "vendor",
            "data",
            "opaque",
            "response_id",
            "request_id",
            "service_tier",
            "cost",
            "origin",
            "origins",
        ),
        *("text_origin", "withdrawn", "allowed", "pinned", "votes", "notices_told"),
        *("step_id", "member", "members", "team", "status", "to", "depends_on"),
        *(
            "event",
            "version",
            "coordinator",
            "evaluator",
            "parent_id",
            "member_run_id",
            "required_capability",
            "resource_constraint",
        ),
    }
)
_SETTINGS = frozenset({"config", "changes"})  # names, figures and digests; nobody said them
_SAID = frozenset({"user", "tool_result"})  # messages that have origins
_GUARDS = "guards"
_RECORD = 4  # a record in a commit: number, time, kind, payload
_GUARD_KEYS = 2  # levels of names in what guards keep: the guard, and what it calls a figure


class Redactor:
    """Puts records through a hook, and notes the calls whose arguments it changed."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._calls: dict[str, None] = {}

    def text(self, text: str) -> str:
        """What is written instead; raises `StoreError` when the hook fails."""
        if not text:
            return text
        try:
            found = self._hook(text)
        except Exception as error:
            raise StoreError(f"the redaction hook failed, so nothing was written: {describe_error(error)}") from error
        if type(found) is not str:
            got = type(found).__name__
            raise StoreError(f"the redaction hook must return a str, not {got}: nothing was written")
        return found

    def items(self, items: Items) -> Items:
        """These records as they are written; one more names the calls that may not run from them."""
        self._calls = {}
        found = [(kind, payload if kind in _WHOLE else self.record(kind, payload)) for kind, payload in items]
        if self._calls:
            found.append(("redacted", list(self._calls)))
        return found

    def record(self, kind: str, payload: object) -> Any:
        """The payload of one record, as plain data."""
        if kind == TAPED_CALL:
            return None  # bytes of which nobody can say what is in them
        data = plain_payload(payload)
        if kind == TAPE_HEAD and isinstance(data, dict):
            return {**self._walk(data), "redacted": True}
        if kind == "quarantine" and isinstance(data, dict):  # it keeps whole commits
            kept = [{**one, "records": self._records(one.get("records"))} for one in data.get("kept") or ()]
            return {**self._walk({**data, "kept": []}), "kept": kept}
        if kind == "state" and isinstance(data, dict):
            data.pop("program_states", None)  # nobody can look inside: such a call cannot continue from the journal
            return {name: self._patch(name, patch) for name, patch in data.items()}
        return self._walk(data)

    def summary(self, summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """A summary, whose task is user text, and which may name the user."""
        if summary is None:
            return summary
        told = {name: self.text(text) for name in ("task", "user") if isinstance(text := summary.get(name), str)}
        return {**summary, **told} if told else summary

    # --- all the way down -------------------------------------------------------------------------------------

    def _records(self, records: object) -> list[Any]:
        """The records of a commit that is kept inside another; anything else there is left out."""
        rows = records if isinstance(records, list) else []
        whole = [row for row in rows if isinstance(row, list) and len(row) == _RECORD and isinstance(row[2], str)]
        return [
            [*row, None if kind == "base" else payload if kind in _WHOLE else self.record(kind, payload)]
            for *row, payload in whole
            if (kind := row[2])
        ]

    def _walk(self, data: object, name: str = "") -> Any:
        if isinstance(data, str):
            return data if name in _NAMES else self.text(data)
        if isinstance(data, list):
            return data if name in _NAMES or name in _SETTINGS else [self._walk(one, name) for one in data]
        if not isinstance(data, dict):
            return data
        if name in _SETTINGS:
            return data
        if name == _GUARDS:
            return self._redact_deep(data, _GUARD_KEYS)
        if "program_states" in data:
            data = {**data, "program_states": {}}
        found = {key: self._redact_deep(one) if key in _DEEP else self._walk(one, key) for key, one in data.items()}
        if found.get("role") in _SAID and found.get("content") != data.get("content"):
            found["origins"] = [*[one for one in data.get("origins") or () if one != REDACTED], REDACTED]
        if found.get("arguments") != data.get("arguments"):
            call_id = data.get("call_id") or data.get("id")
            if isinstance(call_id, str):
                self._calls[call_id] = None
        return found

    def _redact_deep(self, data: object, names: int = 0) -> Any:
        """Content, keys and all; the first levels of keys may be names."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, list):
            return [self._redact_deep(one, names - 1) for one in data]
        if isinstance(data, dict):
            return {
                key if names > 0 else self.text(key): self._redact_deep(one, names - 1) for key, one in data.items()
            }
        return data

    def _patch(self, name: str, patch: object, names: int = _GUARD_KEYS) -> Any:
        """A change of one field of the state."""
        if not isinstance(patch, list) or not patch:
            return patch
        sign, *rest = patch
        inside = name == _GUARDS
        if sign == "{":
            changed = {
                key if names > 0 or not inside else self.text(key): self._patch(name, one, names - 1)
                for key, one in rest[0].items()
            }
            removed = [key if names > 0 or not inside else self.text(key) for key in rest[1]]
            return [sign, changed, removed]
        value = rest[-1]
        kept = self._redact_deep(value, names) if inside else self._walk(value, name)
        return [sign, *rest[:-1], kept]


def redactor_of(store: object) -> Redactor | None:
    """The redactor of a store that has one."""
    hook = getattr(store, "redact", None)
    return None if hook is None else Redactor(hook)


def redact_commits(redactor: Redactor, commits: Sequence[Commit]) -> tuple[tuple[Commit, ...], list[str]]:
    """Commits that were written elsewhere, put through the hook and chained again, and the calls it changed."""
    made: list[Commit] = []
    calls: dict[str, None] = {}
    before = b""
    for commit in commits:
        records = read(commit)
        # A base repeats messages, and its hashes do not fit any more.
        told = [(record.kind, Raw(b"null") if record.kind == "base" else record.payload) for record in records]
        items = redactor.items(told)
        if len(items) > len(records):
            calls |= dict.fromkeys(items.pop()[1])
        first, time = (records[0].sequence, records[0].time) if records else (0, 0.0)
        made.append(link(before, commit.number, first, time, items))
        before = made[-1].hash
    return tuple(made), list(calls)


class RedactingStore:
    """A store whose content goes through `hook` before it is written: `RedactingStore(SqliteStore(path), hide)`.

    `hook` gets every text that a person, a model or a tool said, and returns what is kept of it. It must be a plain
    function, and the same for the same text. When it raises, or returns anything other than a str, nothing is written
    and the run ends FAILED. A call whose stored arguments it changed is never run from the journal: after a crash its
    outcome is unknown, and an approval must bring the arguments.
    """

    def __init__(self, store: SessionStore, hook: Hook) -> None:
        if not callable(getattr(store, "append", None)):
            raise ConfigurationError(f"RedactingStore takes a session store, not {store!r:.80}")
        if not callable(hook):
            raise ConfigurationError(f"RedactingStore takes a function of a str, not {hook!r:.80}")
        self.store: Any = store  # with whatever it has beside journals: a catalog, an inbox, wallets
        self.redact = hook

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, put through the hook, the tags, or both; raises `ConfigurationError` for a tag it changes."""
        kept = None if title is None else Redactor(self.redact).text(title)
        if tags is not None and len(left := self.kept_tags(tags)) < len(tags):
            raise ConfigurationError(f"tags: {len(tags) - len(left)} of these would be redacted; choose others")
        if getattr(self.store, "annotate", None) is None:
            raise StoreError(f"{type(self.store).__name__} has no catalog: it cannot keep titles and tags")
        await self.store.annotate(session_id, title=kept, tags=tags)

    def kept_tags(self, tags: Sequence[str]) -> tuple[str, ...]:
        """Those of the tags that the hook leaves as they are."""
        redactor = Redactor(self.redact)
        return tuple(tag for tag in tags if redactor.text(tag) == tag)

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop, for a reason that is put through the hook; None takes it back."""
        await self.store.flag(session_id, None if reason is None else Redactor(self.redact).text(reason))

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox, through the hook: its run reads what is kept.

        Raises `StoreError` for a decision whose arguments the hook would change: the call would be made with those.
        """
        told = plain_payload(Raw(note.body))
        kept = Redactor(self.redact).record(note.kind, told)
        for call_id, decision in told.items() if note.kind == "decision" else ():
            if decision.get("arguments") != kept[call_id].get("arguments"):
                what = f"the decision about {call_id!r:.80} has arguments that may not be stored"
                raise StoreError(f"{what}: decide with resume(decisions=...)")
        return await self.store.post(session_id, replace(note, body=_wire.encode(kept)))  # type: ignore[no-any-return]

    async def fork(self, session: str, *, at: int | None = None, name: str | None = None) -> Any:
        """A new session from a turn of this one, as `fork` of the store inside."""
        from glidepath.sessions.forking import fork

        store: Any = self
        return await fork(store, session, at=at, name=name)

    async def rewind(self, session: str, *, at: int) -> Any:
        """Take a session back to a turn, as `rewind` of the store inside."""
        from glidepath.sessions.forking import rewind

        store: Any = self
        return await rewind(store, session, at=at)

    def __getattr__(self, name: str) -> Any:
        if name == "store":  # not there yet: a copy is being made
            raise AttributeError(name)
        return getattr(self.store, name)

    def __repr__(self) -> str:
        return f"<RedactingStore of {self.store!r}>"
