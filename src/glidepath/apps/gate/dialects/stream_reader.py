"""Follows one streamed reply: counts it, remembers what the model said, and decides which bytes the client gets.

Rules that hold in every dialect:

- Only whole events leave. If nothing is hidden or added, what leaves is what came, byte for byte. Data that is not JSON
  is left out: most clients end at it with an error. In the middle of a call it makes the reply `is_torn`.
- A call is complete or it is not there (G8). With `hold_calls`, the events of a call wait until the model has written
  all of it; a reply that is cut before loses the call. This is the only safe way: SDKs repair half a JSON text into
  arguments, and agents run calls whatever the stop reason is. Events that follow a waiting call wait behind it, because
  clients depend on the order.
- A call whose events have left is the client's. A reply that is cut after it ends as a reply with calls, so that the
  client runs it and asks again, and its history stays legal.
- With `hide_calls`, no call reaches the client, except calls of the `finishing` tool; the provider's last events wait
  until `finish` says what to add before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

from glidepath.apps.gate.dialects.dialect import RequestFacts, WireCall
from glidepath.apps.gate.dialects.folding import UNREADABLE, ReplyFolder, fold
from glidepath.apps.gate.dialects.frames import FrameSplitter, data_of
from glidepath.apps.gate.dialects.wire_body import write_body
from glidepath.models import parse_event
from glidepath.tools import clean
from glidepath.values import Media, ReplyInfo, Usage

_BYTES_PER_TOKEN = 4
_NO_MEDIA = Media()


class ReaderWays(TypedDict, total=False):
    """How a reply is followed: see `StreamReader`."""

    hide_calls: bool
    finishing: str | None
    hold_calls: bool


class StreamReader:
    """One reply. `feed` takes what the network brings and returns what to send; it never raises for odd content.

    The reply so far: `visible` and `hidden` are bytes of text and arguments, and of thinking; `calls` are complete
    calls, hidden ones too; `stop` is the provider's word; `is_complete` is true once its last event came, `failure`
    is the text of an error that it sent instead.
    """

    def __init__(self, facts: RequestFacts, **ways: Unpack[ReaderWays]) -> None:
        self.facts = facts
        self.visible = 0
        self.hidden = 0
        self.calls: list[WireCall] = []
        self.hidden_calls = 0
        self.stop: str | None = None
        self.is_complete = False
        self.is_cut = False
        self.failure: str | None = None
        self.is_torn = False
        """Something that is not JSON came in the middle of a call: nobody knows whether the call is whole."""
        self.left_out = 0
        """Events that were not JSON, and did not leave."""
        self.passes_all = False
        """Set it for a client that shall get what is not JSON, too."""
        self._hide = ways.get("hide_calls", False)
        self._finishing = ways.get("finishing")
        self._hold = ways.get("hold_calls", True)
        self._texts: list[str] = []
        self._notes: list[str] = []
        self._unsent: list[str] = []
        self._splitter = FrameSplitter()
        self._open: set[object] = set()
        """Calls that are not complete: while there is one, events wait, if calls are held back."""
        self._queue: list[bytes] = []
        self._undo: Callable[[], None] | None = None
        """Takes back what the events that wait have changed."""
        self._sent: list[bytes] | None = None if facts.stream else []
        self._document = b""
        self._begun = False
        self._is_over = False

    # --- what the model said --------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The visible text that the model wrote."""
        return "".join(self._texts)

    @property
    def client_text(self) -> str:
        """The visible text of the reply as the client has it, our own included: a turn it may send back."""
        return "".join([*self._texts, *self._notes])

    @property
    def usage(self) -> Usage | None:
        """The usage that the provider has reported so far."""
        raise NotImplementedError

    @property
    def info(self) -> ReplyInfo | None:
        """What the provider says about the reply beside the reply."""
        raise NotImplementedError

    @property
    def is_waiting(self) -> bool:
        """Whether events are held back: a keep-alive may be due."""
        return bool(self._queue)

    # --- what the client gets -------------------------------------------------------------------------------------

    def feed(self, chunk: bytes) -> bytes:
        """What to send for this chunk: the same object if nothing changed, b"" while events are held back."""
        if self._is_over:
            return b""
        frames = self._splitter.feed(chunk)
        if len(frames) == 1:
            out = self._read(frames[0])
        else:
            out = b"".join([self._read(frame) for frame in frames])
            if out == chunk:
                out = chunk
        if self._sent is not None and out:
            self._sent.append(out)
        return out

    def feed_whole(self, body: bytes) -> bytes:
        """The same for a server that does not stream: its one JSON document becomes the events of a stream.

        A document that is not a reply is a `failure`, and nothing is sent.
        """
        reply = _event_in(body)
        try:
            frames = self._unfold(reply) if reply else []
        except UNREADABLE:
            frames = []
        if not frames:
            self.failure = self.failure or "the provider sent a document that is not a reply"
        if self._sent is not None and not self._hide:
            self._document = body
        return b"".join([StreamReader.feed(self, frame) for frame in frames])

    def end(self) -> bytes:
        """What to send when the provider's stream has ended. Half a call stays here."""
        if self._is_over:
            return b""
        rest = self._splitter.finish()
        out = self._read(rest) if rest else b""
        self._at_end()
        if self._queue and not self._open:
            out += self._flush()
        out += self._closing()
        self._queue = []
        return self._keep(out)

    def release(self) -> bytes:
        """Stop holding calls back, for a reply that will not be cut. Returns what was waiting."""
        self._hold = False
        return self._keep(self._flush())

    def cut(self, note: str, usage: Usage | None = None) -> bytes:
        """Bytes that end the reply now, properly: no half call, the text that came, the note, an ordinary stop.

        `usage` is what the client is told; without it, the provider's figures so far and an estimate of the output.
        If half a call has left, because calls are not held back, there is no proper end: b"" means that the connection
        must be closed, so that no client takes the call for a whole one.
        """
        if self._is_over or (self.is_complete and not self._hide):
            return b""
        if self.is_complete:
            return self.finish(note)
        if self._open and not self._hold:
            self.is_cut = self._is_over = True
            return b""
        if self._undo is not None:
            self._undo()
        self._queue, self._open = [], set()
        unsent, self._unsent = "".join(self._unsent), []
        out = self._add_note(unsent, note)
        out += self._close(self.usage_so_far() if usage is None else usage)
        self.is_cut = self._is_over = True
        return self._keep(out)

    def finish(self, text: str = "") -> bytes:
        """End a reply whose calls are hidden: our text, if there is one, then the provider's own last events."""
        if not self.is_complete:
            return self.cut(text)
        if self._is_over or not self._hide:
            return b""
        out = self._add_note("", text) + self._last_events()
        self._is_over = True
        return self._keep(out)

    def assemble(self) -> bytes:
        """The reply as one JSON document, for a client that does not stream: of everything that was sent."""
        if self._document and not self.is_cut:
            return self._document
        splitter, events = FrameSplitter(), []
        frames = [frame for sent in self._sent or () for frame in splitter.feed(sent)]
        for frame in [*frames, splitter.finish()]:
            event = _event_in(data_of(frame)) if frame else None
            if event is not None:
                events.append(event)
        return write_body(fold(self._folder(), events))

    def usage_so_far(self) -> Usage:
        """What was reported, and for the output at least what we saw."""
        known = self.usage or Usage()
        seen = -(-(self.visible + self.hidden) // _BYTES_PER_TOKEN)
        if known.output >= seen:
            return known
        return Usage(known.input, seen, known.cache_read, known.cache_write, known.reasoning, estimated=True)

    # --- for the dialects -----------------------------------------------------------------------------------------

    def _take(self, frame: bytes, data: bytes) -> bytes:
        """Read one event; returns what the client gets for it: the frame itself, another one, or nothing."""
        raise NotImplementedError

    def _remember(self) -> Callable[[], None]:
        """Keep what the client knows; the function returned goes back to it, when waiting events are dropped."""
        raise NotImplementedError

    def _add(self, more: str, note: str) -> bytes:
        """Events that add text to the reply: `more` of the model's own, then a note of ours."""
        raise NotImplementedError

    def _close(self, usage: Usage) -> bytes:
        """Events that end the reply now."""
        raise NotImplementedError

    def _last_events(self) -> bytes:
        """The provider's last events, which were held back, with a stop that fits what the client has."""
        raise NotImplementedError

    def _at_end(self) -> None:
        """The stream has ended: for formats whose last event may be missing."""

    def _closing(self) -> bytes:
        """What the framing needs after the last event."""
        return b""

    def _unfold(self, reply: dict[str, Any]) -> list[bytes]:
        """The events of a reply that came as one document; empty if it is not a reply."""
        raise NotImplementedError

    def _folder(self) -> ReplyFolder:
        """Builds the reply for a client that does not stream."""
        raise NotImplementedError

    def _is_hidden(self, name: str) -> bool:
        """Whether calls of this tool are kept from the client."""
        return self._hide and (self._finishing is None or name != self._finishing)

    def _open_call(self, key: object) -> None:
        """A call begins with this event."""
        if self._hold and not (self._open or self._queue):
            self._undo = self._remember()
        self._open.add(key)

    def _say(self, text: str) -> None:
        self._texts.append(text)
        self.visible += len(text) if text.isascii() else size_of(text)

    def _think(self, text: str) -> None:
        self.hidden += size_of(text)

    def _add_call(self, call: WireCall, *, is_hidden: bool) -> None:
        self.calls.append(call)
        self.hidden_calls += is_hidden

    @property
    def shown_calls(self) -> int:
        """Complete calls that the client has."""
        return len(self.calls) - self.hidden_calls

    # --- inside ---------------------------------------------------------------------------------------------------

    def _read(self, frame: bytes) -> bytes:
        data, known = data_of(frame), len(self._texts)
        if data:
            try:
                out = self._take(frame, data)
            except UNREADABLE:
                out = self._take_unreadable(frame, data)
        else:
            out = frame
        if self._hold and (self._open or self._queue):
            self._queue.append(out)
            self._unsent += self._texts[known:]
            return b"" if self._open else self._flush()
        return out

    def _take_unreadable(self, frame: bytes, data: bytes) -> bytes:
        if self._hide:
            return b""  # a call could be in it
        if self.passes_all or _is_json(data):
            return frame  # nobody can tell what it is: the client may know
        self.left_out += 1
        self.is_torn = self.is_torn or bool(self._open)
        return b""

    def _flush(self) -> bytes:
        out = b"".join(self._queue)
        self._queue, self._unsent, self._undo = [], [], None
        return out

    def _keep(self, out: bytes) -> bytes:
        if self._sent is not None and out:
            self._sent.append(out)
        return out

    def _add_note(self, more: str, note: str) -> bytes:
        """Add text of the model, and a note apart from what comes before it, unless the reply is already over."""
        said = f"\n\n{note}" if note and any(self._texts) else note
        out = self._add(more, said)
        if out and said:
            self._notes.append(said)
        return out


def by_place(index: object) -> tuple[bool, Any]:
    """A key that sorts indexes as numbers; what a provider wrote in the place of one comes last."""
    return (False, index) if type(index) is int else (True, str(index))


def size_of(text: str) -> int:
    """Bytes of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def info_of(
    facts: Mapping[str, object], searches: int = 0, media: Media | None = None, billed: float | None = None
) -> ReplyInfo | None:
    """`ReplyInfo` of what is known; None if nothing is."""
    known: dict[str, Any] = {name: clean(fact)[:200] for name, fact in facts.items() if fact and isinstance(fact, str)}
    if searches:
        known["web_searches"] = searches
    if media is not None and media != _NO_MEDIA:
        known["media"] = media
    if billed is not None:
        known["billed"] = billed
    return ReplyInfo(**known) if known else None


def _is_json(data: bytes) -> bool:
    try:
        parse_event(data.decode("utf-8", "replace"))
    except UNREADABLE:
        return False
    return True


def _event_in(data: bytes) -> dict[str, Any] | None:
    try:
        event = parse_event(data.decode("utf-8", "replace"))
    except UNREADABLE:
        return None
    return event if type(event) is dict else None
