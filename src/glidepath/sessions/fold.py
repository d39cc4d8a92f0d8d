"""Reads a journal: from its records to the state of the session and of its last run.

`fold(journal)` is the live state at the moment of the last commit. Every record is a fact about the run; nothing is
computed again, so that a journal means the same under any configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

from glidepath import _wire
from glidepath._wire import Value, WireError
from glidepath.run import Decision, Fingerprint
from glidepath.sessions.chain import JournalRecord, check_schema, read
from glidepath.sessions.changes import apply
from glidepath.sessions.schema_compat import convert_leniently, decode_leniently, make_unreadable_error, message_of
from glidepath.sessions.session import Session, copy_session
from glidepath.sessions.state_changes import read_counters
from glidepath.spi import Commit
from glidepath.values import (
    IMPORTED,
    AgentState,
    AssistantMessage,
    Message,
    RunResult,
    Snapshot,
    StoreError,
    ToolResultMessage,
    add_origins,
    place_result,
)

HOOK = "hook:"  # prefix of a hook's name, used instead of a call id for its children
_BESIDE = frozenset({"charged", "child", "control", "state", "tick"})  # kinds that are written while a hook runs


class Opened(Value, frozen=True, kw_only=True):
    """The first record: what wrote this journal and, for a child, under which call of which run."""

    schema: int
    session_id: str
    version: str = ""
    parent: dict[str, str] | None = None


class Began(Value, frozen=True, kw_only=True):
    """A run began, or continued (`resumed`) with a person's decisions.

    `pins`: the digest of every tool that a server has offered it, by server and name.
    """

    run_id: str
    agent: str = ""
    model: str = ""
    resumed: bool = False
    first_new: int = 0
    decisions: Mapping[str, Decision] = {}
    pins: Mapping[str, Mapping[str, str]] = {}
    schema: int
    version: str = ""
    """The release that writes from here on."""
    config: str = ""
    """The digest of the agent; the last `config` record has the details."""


class Intent(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call is about to start, under this idempotency key. From here on it may have taken effect.

    `arguments` are the ones actually used; None if they are what the model wrote.
    """

    call_id: str
    key: str
    arguments: dict[str, Any] | None = None
    idempotent: bool = False
    tool: str = ""
    """Its tool, if the model called it through another one (`call_found_tool`)."""
    transactional: bool = False
    """It takes effect in the same transaction as its result: without a result it has done nothing."""


class Imported(Value, frozen=True, kw_only=True):
    """Everything before this was imported from a file, under this id, and is not trusted. Decisions are void."""

    session_id: str


class Effect(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A call that was made in the original of a fork, after the turn it was forked at. `outcome`: done, error, unknown.

    In a journal that was repaired: a call of which only this much is known.
    """

    call_id: str
    name: str = ""
    arguments: dict[str, Any] | None = None
    turn: int = 0
    outcome: str = "unknown"
    agent: str = ""
    """The child that made it; empty if it was the session's own agent."""

    @property
    def by(self) -> str:
        """Who made it, to put after the call: ` by helper`; empty if it was the session's own agent."""
        return f" by {self.agent}" if self.agent else ""


class Forked(Value, frozen=True, kw_only=True):
    """Everything before this is a copy of another session up to one of its turns. From here on it is its own run.

    Decisions do not count twice, what had begun in the original is unknown here, and what had not waits for a person.
    `effects` are the calls that the original made after that turn. `kept`: this is what a rewound session was.
    """

    session_id: str
    origin: str
    at: int
    run_id: str = ""
    effects: tuple[Effect, ...] = ()
    kept: bool = False


class Quarantined(Value, frozen=True, kw_only=True):
    """An intact commit after a damaged one."""

    commit: int
    hash: str
    records: _wire.Raw


class Quarantine(Value, frozen=True, kw_only=True):
    """The journal was repaired: commits from `first` on are lost, except those kept here. They are not trusted.

    `effects` are the calls that may have taken effect, as far as anything is known about them.
    """

    reason: str
    first: int
    lost: tuple[int, ...] = ()
    kept: tuple[Quarantined, ...] = ()
    effects: tuple[Effect, ...] = ()


class Reserved(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A model call is about to start: what it may use at worst. `model` is set when it is not the configured one."""

    input: int
    output: int
    tokens: int
    money: int = 0
    model: str = ""


class Child(Value, frozen=True, kw_only=True):
    """A call started a child, which has its own journal; or a hook did, which has a name instead of an id."""

    call_id: str
    session_id: str
    agent: str = ""

    @property
    def of_hook(self) -> bool:
        """True for the child of a hook."""
        return self.call_id.startswith(HOOK)


class Used(Value, frozen=True, array_like=True):
    """What a child has used of its parent's limits, its own children and itself included."""

    tokens: int = 0
    picodollars: int = 0
    turns: int = 0
    tool_calls: int = 0
    descendants: int = 0
    disputed: tuple[int, int] = (0, 0)


class Folded:
    """The state at the end of a journal."""

    def __init__(self, session_id: str = "") -> None:
        self.session = Session(session_id or None)
        self.opened: Opened | None = None
        self.began: Began | None = None
        self.sequence = 0
        self.time = 0.0
        self.fields: dict[str, Any] = {}
        self.result: RunResult | None = None
        """How the last run ended; None if it did not end."""
        self.reserved: Reserved | None = None
        """The model call that was in flight."""
        self.intents: dict[str, Intent] = {}
        self.results: dict[str, ToolResultMessage] = {}
        """Results of the last batch that were not in the transcript yet."""
        self.queued: tuple[str, ...] = ()
        """Calls of the last batch that were counted and had not started."""
        self.redacted: frozenset[str] = frozenset()
        """Calls of the last batch whose arguments are not the ones they were made with."""
        self.decisions: dict[str, Decision] = {}
        self.children: list[Child] = []
        self.taken = 0
        """Up to which number the notes of the inbox were taken."""
        self.controls: list[dict[str, Any]] = []
        """What people did to its runs from outside, who and why."""
        self.config: Fingerprint | None = None
        """The configuration of the agent that wrote the last leg."""
        self.charged: dict[str, Used] = {}
        """How much of each child's spending is already in the run's figures."""
        self.flag: str | None = None
        """Why the store asks the run in this session to stop."""
        self.imported = False
        """Some of it was imported."""
        self.foreign = False
        """The last batch was imported or copied: none of our models asked for its calls."""
        self.forked: Forked | None = None
        """Where it was copied from, if it is a fork."""
        self.repaired: Quarantine | None = None
        """What was lost; None once a run that knows of it begins."""
        self.bases: list[tuple[int, str]] = []
        """The bases in it: the number and the hash of each commit that has one."""
        self.based = 0
        """How many messages they hold."""
        self.unread: list[str] = []
        """Kinds of records that this version does not know."""

    @property
    def snapshot(self) -> Snapshot | None:
        """The last run's state; None when there was none."""
        if not self.fields:
            return None
        try:
            return convert_leniently(self.fields, Snapshot)  # type: ignore[no-any-return]
        except WireError as error:
            raise self._make_unreadable_error("the state of the last run", error) from None

    @property
    def state(self) -> AgentState:
        """The state of the last run at the last commit, as far as the journal knows: waiting for a tool, or running."""
        if self.result is not None or self.began is None:
            return self.session.state
        return AgentState.WAITING_FOR_TOOL if self.intents.keys() - self.results.keys() else AgentState.RUNNING

    @property
    def messages(self) -> list[Message]:
        """The transcript."""
        return self.session.messages

    def copy(self) -> Folded:
        """An independent copy. Messages are shared."""
        other = copy(self)
        other.session = copy_session(self.session)
        other.fields = _wire.thaw(self.fields)
        other.intents, other.results = self.intents.copy(), self.results.copy()
        other.decisions, other.charged = self.decisions.copy(), self.charged.copy()
        other.children, other.unread, other.bases = self.children.copy(), self.unread.copy(), self.bases.copy()
        other.controls = _wire.thaw(self.controls)
        return other

    def take(self, records: Iterable[JournalRecord], commit: Commit | None = None) -> None:
        """Add the records of a commit; without `commit`, a base among them is not remembered."""
        # A reservation holds until the next commit: by then the call is over, or has reserved again.
        self.reserved = None
        records = list(records)
        if self.children and any(record.kind not in _BESIDE for record in records):
            # The run has continued: hooks are done.
            self.children = [child for child in self.children if not child.of_hook]
        for record in records:
            reader = _READERS.get(record.kind)
            self.sequence, self.time = record.sequence, record.time
            if reader is None:
                self.unread.append(record.kind)
                continue
            try:
                reader(self, bytes(record.payload))
                if record.kind == "base":
                    self._remember(bytes(record.payload), commit)
            except (WireError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
                raise self._make_unreadable_error(f"record {record.sequence} ({record.kind})", error) from None

    def _make_unreadable_error(self, what: str, error: Exception) -> StoreError:
        """The error for an unreadable part. Its hash fits, so a later release wrote it, or it is a bug."""
        return make_unreadable_error(what, "" if self.began is None else self.began.version, error)

    # --- one method for each kind of record -------------------------------------------------------------------

    def on_opened(self, data: bytes) -> None:
        """The session is new."""
        check_schema(_wire.decode(data, dict[str, Any]).get("schema"))
        self.opened = decode_leniently(data, Opened)
        self.session.id = self.opened.session_id

    def on_began(self, data: bytes) -> None:
        """A run begins, or continues."""
        check_schema(_wire.decode(data, dict[str, Any]).get("schema"))
        self.began = began = decode_leniently(data, Began)
        # A new run of the session starts from nothing; a resumed one keeps what it had.
        if not began.resumed:
            self.fields, self.decisions, self.children = {}, {}, []
            self._start_batch()
        self.result = self.repaired = None
        self.decisions.update(began.decisions)

    def _start_batch(self) -> None:
        self.intents, self.results, self.queued, self.foreign, self.charged = {}, {}, (), False, {}
        self.redacted = frozenset()

    def on_config(self, data: bytes) -> None:
        """The configuration of the agent from here on."""
        self.config = decode_leniently(data, Fingerprint)

    def on_message(self, data: bytes) -> None:
        """The transcript grows."""
        self.add(message_of(data))

    def add(self, message: Message) -> None:
        """One more message; a result goes where it belongs."""
        messages = self.messages
        if type(message) is ToolResultMessage:
            self.results.pop(message.call_id, None)
            self.intents.pop(message.call_id, None)
            messages.insert(_find_result_place(messages, message), message)
            return
        if type(message) is AssistantMessage:
            self._start_batch()
        messages.append(message)

    def _remember(self, data: bytes, commit: Commit | None) -> None:
        """Remember a base: it has nothing new, but reading can start there."""
        told = _wire.loads(data)
        if commit is None or not isinstance(told, dict):
            self.bases, self.based = [], 0
            return
        self.bases.append((commit.number, commit.hash.hex()))
        self.based = int(told["count"])

    def on_base(self, data: bytes) -> None:
        """A base has nothing new."""

    def on_transcript(self, data: bytes) -> None:
        """The transcript was repaired."""
        # They describe a transcript that no longer exists.
        self.bases, self.based = [], 0
        self.messages[:] = [message_of(bytes(raw)) for raw in _wire.decode(data, list[_wire.Raw])]

    def on_intent(self, data: bytes) -> None:
        """A call may take effect from here on."""
        intent = decode_leniently(data, Intent)
        self.queued = tuple(call_id for call_id in self.queued if call_id != intent.call_id)
        if intent.transactional:  # counted, and not begun until its result is there
            self.queued += (intent.call_id,)
        else:
            # The last one counts: a call that is repeated after a crash has two.
            self.intents[intent.call_id] = intent

    def on_queued(self, data: bytes) -> None:
        """Calls that are counted and wait for their turn."""
        self.queued = tuple(_wire.decode(data, list[str]))

    def on_result(self, data: bytes) -> None:
        """One of several calls has ended."""
        result: Any = message_of(data)
        self.results[result.call_id] = result

    def on_placed(self, data: bytes) -> None:
        """Add known results to the transcript."""
        for call_id in _wire.decode(data, list[str]):
            # The result was written when it came, and only its place now: it is on disk once.
            self.add(self.results[call_id])

    def on_state(self, data: bytes) -> None:
        """What changed in the state of the run."""
        changed = _wire.decode(data, dict[str, Any])
        for name, patch in changed.items():
            if name == "text" and patch is True:
                # The answer is nearly always the last reply, which is in the journal: only that fact was written.
                self.fields["text"] = next(m.text for m in reversed(self.messages) if type(m) is AssistantMessage)
            else:
                self.fields[name] = apply(self.fields.get(name), patch)

    def on_tick(self, data: bytes) -> None:
        """The figures that change every turn."""
        read_counters(_wire.decode(data, list[Any]), self.fields)

    def on_reserved(self, data: bytes) -> None:
        """What a model call may cost."""
        self.reserved = decode_leniently(data, Reserved)

    def on_child(self, data: bytes) -> None:
        """A call has a child."""
        self.children.append(decode_leniently(data, Child))

    def on_charged(self, data: bytes) -> None:
        """How much of each running child's spending is in the figures of this commit."""
        self.charged = _wire.decode(data, dict[str, Used])

    def on_imported(self, data: bytes) -> None:
        """The journal was imported: decisions are void, and calls that had begun are never repeated."""
        old, self.session.id = self.session.id, _wire.decode(data, Imported).session_id
        self.imported = self.foreign = True
        self.messages[:] = [add_origins(message, (IMPORTED,)) for message in self.messages]
        self.results = {key: add_origins(one, (IMPORTED,)) for key, one in self.results.items()}
        self.bases, self.based = [], 0  # not ours
        self.taken = 0  # its inbox is its own
        if self.result is not None:
            self.result = self.session.last = self._add_transcript(
                _wire.replace(self.result, session_id=self.session.id)
            )
        self.decisions = {}
        self.intents = {key: _wire.replace(intent, idempotent=False) for key, intent in self.intents.items()}
        mine = f"{old}/"
        self.children = [
            _wire.replace(child, session_id=f"{self.session.id}/{child.session_id[len(mine) :]}")
            for child in self.children
            if child.session_id.startswith(mine)
        ]
        self.charged = {
            f"{self.session.id}/{name[len(mine) :]}": used
            for name, used in self.charged.items()
            if name.startswith(mine)
        }

    def on_mail(self, data: bytes) -> None:
        """Notes were taken from the inbox, or put back."""
        self.taken = _wire.decode(data, int)

    def on_control(self, data: bytes) -> None:
        """A person did something: land, stop, steer, decide, and so on. The result is in other records."""
        self.controls.append(_wire.decode(data, dict[str, Any]))

    def on_decided(self, data: bytes) -> None:
        """A person decided while no run was waiting for it."""
        # The first decision wins: a second person may have answered the same question.
        self.decisions = {**_wire.decode(data, dict[str, Decision]), **self.decisions}

    def on_forked(self, data: bytes) -> None:
        """Everything before this is a copy: calls that had begun are not repeated; the run gets its own id."""
        self.forked = forked = decode_leniently(data, Forked)
        self.session.id = forked.session_id
        self.foreign, self.taken = True, 0  # its inbox is its own
        self.decisions = {}
        self.intents = {key: _wire.replace(intent, idempotent=False) for key, intent in self.intents.items()}
        if self.fields and forked.run_id:
            self.fields["run_id"] = forked.run_id
        result = self.result
        if result is not None:
            run_id = forked.run_id or result.run_id
            snapshot = result.snapshot and _wire.replace(result.snapshot, run_id=run_id)
            self.result = _wire.replace(result, run_id=run_id, session_id=forked.session_id, snapshot=snapshot)
            self.session.last = self.result

    def on_redacted(self, data: bytes) -> None:
        """The stored arguments of these calls are redacted: they may not run with them."""
        self.redacted = self.redacted.union(_wire.decode(data, list[str]))

    def on_quarantine(self, data: bytes) -> None:
        """The journal was repaired: how far open calls got is unknown, and so is the state of the run."""
        self.repaired = decode_leniently(data, Quarantine)
        self._start_batch()
        self.decisions, self.result = {}, None
        if self.fields:
            self.fields["pending"] = []

    def on_recording(self, data: bytes) -> None:
        """What the gate recorded of a run: `apps.gate.recordings` reads it."""

    on_exchange = on_recorded = on_recording

    def on_ended(self, data: bytes) -> None:
        """The run is over."""
        self.result = self._add_transcript(decode_leniently(data, RunResult))
        self.session.close_run(self.result)

    def _add_transcript(self, result: RunResult) -> RunResult:
        """A result with its transcript, which the journal has only once."""
        # Written with the result it would be on disk twice, and grow with every run of a session.
        messages = tuple(self.messages)
        return _wire.replace(result, messages=messages, new_messages=messages[self.fields.get("first_new", 0) :])


_READERS: dict[str, Callable[[Folded, bytes], None]] = {
    name.removeprefix("on_"): method for name, method in vars(Folded).items() if name.startswith("on_")
}
KINDS = tuple(_READERS)
"""The records that this release writes and understands; it leaves others as they are."""


def _find_result_place(messages: list[Message], result: ToolResultMessage) -> int:
    """Where a result belongs: in the order of the calls of its reply, nearly always at the end."""
    results: list[ToolResultMessage] = []
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if type(message) is ToolResultMessage:
            results.insert(0, message)
        elif type(message) is AssistantMessage:
            if any(call.id == result.call_id for call in message.tool_calls):
                return place + 1 + place_result(message, results, result).index(result)
            break
        else:
            break
    return len(messages)


def fold(commits: Iterable[Commit], session_id: str = "") -> Folded:
    """The state at the end of these commits, which are verified already; raises `StoreError`."""
    folded = Folded(session_id)
    for commit in commits:
        folded.take(read(commit), commit)
    return folded
