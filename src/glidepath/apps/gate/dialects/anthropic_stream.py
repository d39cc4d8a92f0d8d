"""A streamed message of Anthropic: blocks that open, grow and close, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Unpack

from glidepath import _wire
from glidepath.apps.gate.dialects.dialect import RequestFacts, WireCall
from glidepath.apps.gate.dialects.folding import UNREADABLE, grow_fields
from glidepath.apps.gate.dialects.frames import data_of, frame_of
from glidepath.apps.gate.dialects.stream_reader import ReaderWays, StreamReader, by_place, info_of, size_of
from glidepath.apps.gate.dialects.wire_body import as_objects, as_text, write_body
from glidepath.models import anthropic_searches, parse_event
from glidepath.models.usage_reports import anthropic_usage
from glidepath.values import ReplyInfo, Usage

CALLS = ("tool_use",)
"""Blocks that the client runs."""
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
"""Blocks that the provider runs. Without its result one is not legal in a history, so that it waits for it."""
NOTHING = "…"
"""The text of a reply that has none: an empty one is not legal in a history."""
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_DELTA = b"event: content_block_delta\n"


class _Grown(_wire.Struct, gc=False):
    type: str
    text: str = ""
    partial_json: str = ""
    thinking: str = ""


class _Delta(_wire.Struct, gc=False):
    type: str
    index: int
    delta: _Grown


_read_delta = _wire.decoder(_Delta)


class _Block:
    """A block that is open."""

    __slots__ = ("arguments", "id", "is_hidden", "kind", "name", "place", "start")

    def __init__(self, block: Mapping[str, Any], place: int, *, is_hidden: bool) -> None:
        self.kind = str(block.get("type"))
        self.id = str(block.get("id") or block.get("tool_use_id") or "")
        self.name = str(block.get("name") or "")
        self.start: Any = block.get("input")
        self.place = place
        self.is_hidden = is_hidden
        self.arguments: list[str] = []


class AnthropicStream(StreamReader):
    """Reads the events of one message."""

    def __init__(self, facts: RequestFacts, **ways: Unpack[ReaderWays]) -> None:
        super().__init__(facts, **ways)
        self._usage: dict[str, Any] = {}
        self._facts: dict[str, object] = {}
        self._blocks: dict[int, _Block] = {}
        self._next = 0
        """The index of the next block at the client."""
        self._renumbers = False
        self._ending: list[dict[str, Any]] = []

    @property
    def usage(self) -> Usage | None:
        """The figures of all events so far."""
        return anthropic_usage(self._usage) if self._usage else None

    @property
    def info(self) -> ReplyInfo | None:
        """Id, model, service tier, web searches."""
        facts = {**self._facts, "service_tier": self._usage.get("service_tier")}
        return info_of(facts, anthropic_searches(self._usage))

    # --- events ---------------------------------------------------------------------------------------------------

    def _take(self, frame: bytes, data: bytes) -> bytes:
        if frame.startswith(_DELTA):
            try:
                event = _read_delta(data)
            except _wire.WireError:
                return self._take_event(frame, parse_event(data.decode("utf-8", "replace")))
            grown = event.delta
            if event.type != "content_block_delta":
                return self._take_event(frame, parse_event(data.decode("utf-8", "replace")))
            return self._grow(frame, event.index, grown.type, grown.text or grown.partial_json or grown.thinking)
        return self._take_event(frame, parse_event(data.decode("utf-8", "replace")))

    def _take_event(self, frame: bytes, event: dict[str, Any]) -> bytes:
        read = self._EVENTS.get(event.get("type", ""))
        return frame if read is None else read(self, frame, event)

    def _begin_message(self, frame: bytes, event: dict[str, Any]) -> bytes:
        message = event["message"]
        self._begun = True
        self._facts = {"response_id": message.get("id"), "model": message.get("model")}
        self._count(message.get("usage"))
        return frame

    def _grow_any(self, frame: bytes, event: dict[str, Any]) -> bytes:
        delta = event["delta"]
        more = delta.get("text") or delta.get("partial_json") or delta.get("thinking") or ""
        return self._grow(frame, event["index"], delta.get("type"), more if type(more) is str else "")

    def _fail(self, frame: bytes, event: dict[str, Any]) -> bytes:
        error = event.get("error")
        message = error.get("message") if type(error) is dict else None
        self.failure = message if type(message) is str else "the provider sent an error"
        return b"" if self._hide else frame

    def _start(self, frame: bytes, event: dict[str, Any]) -> bytes:
        index, block = event["index"], event["content_block"]
        kind = block.get("type")
        name = str(block.get("name") or "")
        is_hidden = kind in CALLS and self._is_hidden(name)
        if not is_hidden and kind in CALLS + _SERVER_CALLS:
            self._open_call(block.get("id") or index)
        known = self._blocks[index] = _Block(block, self._next, is_hidden=is_hidden)
        text = block.get("text")
        if kind == "text" and type(text) is str and text:
            self._say(text)
        if is_hidden:
            self._renumbers = True
            return b""
        self._next += 1
        return self._renumber(frame, known)

    def _grow(self, frame: bytes, index: int, kind: object, more: str) -> bytes:
        if kind == "text_delta":
            self._say(more)
        elif kind == "thinking_delta":
            self._think(more)
        elif kind == "input_json_delta":
            self.visible += size_of(more)
            self._blocks[index].arguments.append(more)
        return self._renumber(frame, self._blocks[index]) if self._renumbers else frame

    def _stop_block(self, frame: bytes, event: dict[str, Any]) -> bytes:
        index = event["index"]
        block = self._blocks.pop(index)
        out = self._renumber(frame, block) if self._renumbers else frame
        if block.kind in CALLS:
            whole = "".join(block.arguments) or write_body(block.start or {}).decode()
            if not block.arguments:
                self.visible += size_of(whole)
            self._add_call(WireCall(block.id, block.name, whole), is_hidden=block.is_hidden)
            self._open.discard(block.id or index)
        elif block.kind.endswith("_tool_result"):
            self._open.discard(block.id)
        return out

    def _end_soon(self, frame: bytes, event: dict[str, Any]) -> bytes:
        delta = event["delta"]
        self.stop = delta.get("stop_reason") or self.stop
        if type(delta.get("stop_sequence")) is str:
            self._facts["stop_sequence"] = delta["stop_sequence"]
        self._count(event.get("usage"))
        self._open.clear()
        return self._last(frame, event)

    def _complete(self, frame: bytes, event: dict[str, Any]) -> bytes:
        self.is_complete = True
        self._open.clear()
        return self._last(frame, event)

    def _last(self, frame: bytes, event: dict[str, Any]) -> bytes:
        """One of the last events: it waits for `finish` if calls are hidden."""
        if not self._hide:
            return frame
        self._ending.append(event)
        return b""

    def _renumber(self, frame: bytes, block: _Block) -> bytes:
        """The event with the index that its block has at the client: clients use it as a place in a list."""
        if block.is_hidden:
            return b""
        if not self._renumbers:
            return frame
        event = parse_event(data_of(frame).decode("utf-8", "replace"))
        event["index"] = block.place
        return _frame(event)

    def _count(self, usage: object) -> None:
        """Later figures are totals; a missing or null one changes nothing."""
        if isinstance(usage, Mapping):
            self._usage.update({name: value for name, value in usage.items() if value is not None})

    # --- our own events -------------------------------------------------------------------------------------------

    def _remember(self) -> Callable[[], None]:
        known, blocks = self._next, dict(self._blocks)

        def go_back() -> None:
            self._next, self._blocks = known, blocks

        return go_back

    def _at_end(self) -> None:
        self.is_complete = self.stop is not None  # a server that forgets the very last event

    @property
    def _has_told_stop(self) -> bool:
        """Whether the client knows that the message is over: nothing can be added."""
        return self.stop is not None and not self._hide

    def _add(self, more: str, note: str) -> bytes:
        said = more + note
        if not said or self._has_told_stop:
            return b""
        open_text = next((one for one in self._blocks.values() if one.kind == "text" and not one.is_hidden), None)
        if open_text is not None:
            return text_delta(open_text.place, said)
        out = b"" if self._begun else self._begin()
        out += self._stop_open() + text_block(self._next, said)
        self._next += 1
        return out

    def _begin(self) -> bytes:
        self._begun = True
        return message_start(self.facts, Usage())

    def _stop_open(self) -> bytes:
        """Close what is open at the client."""
        places = [block.place for block in self._blocks.values() if not block.is_hidden]
        self._blocks = {}
        return b"".join([_frame({"type": "content_block_stop", "index": place}) for place in places])

    def _close(self, usage: Usage) -> bytes:
        if self._has_told_stop:
            return _STOP
        out = b"" if self._begun else self._begin()
        out += self._stop_open()
        if not self._next:
            out += text_block(0, NOTHING)
        stop = "tool_use" if self.shown_calls else "end_turn"
        return out + message_end(stop, usage)

    def _last_events(self) -> bytes:
        out = b""
        if not self._next:
            out = text_block(0, NOTHING)
        for event in self._ending:
            delta = event.get("delta")
            if isinstance(delta, Mapping) and delta.get("stop_reason") in CALLS and not self.shown_calls:
                event["delta"] = {**delta, "stop_reason": "end_turn"}
            out += _frame(event) if event.get("type") != "message_stop" else b""
        return out + _STOP

    _EVENTS: ClassVar[dict[str, Callable[[Any, bytes, dict[str, Any]], bytes]]] = {
        "message_start": _begin_message,
        "content_block_start": _start,
        "content_block_delta": _grow_any,
        "content_block_stop": _stop_block,
        "message_delta": _end_soon,
        "message_stop": _complete,
        "error": _fail,
    }

    def _unfold(self, reply: dict[str, Any]) -> list[bytes]:
        return unfold_message(reply)

    def _folder(self) -> MessageFolder:
        return MessageFolder()


def _frame(event: Mapping[str, Any]) -> bytes:
    return frame_of(write_body(dict(event)), str(event.get("type") or ""))


# --- events that we write -------------------------------------------------------------------------------------


def usage_words(usage: Usage) -> dict[str, int]:
    """A usage as Anthropic writes it: its input does not include the cache."""
    return {
        "input_tokens": max(usage.input - usage.cache_read - usage.cache_write, 0),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


def message_start(facts: RequestFacts, usage: Usage, message_id: str = "msg_glidepath") -> bytes:
    """The first event of a message."""
    message: dict[str, Any] = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": facts.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_words(usage),
    }
    return _frame({"type": "message_start", "message": message})


def text_delta(place: int, text: str) -> bytes:
    """More text in an open block."""
    return _frame({"type": "content_block_delta", "index": place, "delta": {"type": "text_delta", "text": text}})


def text_block(place: int, text: str) -> bytes:
    """A whole block of text."""
    start = _frame({"type": "content_block_start", "index": place, "content_block": {"type": "text", "text": ""}})
    return start + text_delta(place, text) + _frame({"type": "content_block_stop", "index": place})


def call_block(place: int, call_id: str, name: str, arguments: Mapping[str, Any]) -> bytes:
    """A whole call."""
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    written = {"type": "input_json_delta", "partial_json": write_body(dict(arguments)).decode()}
    return b"".join(
        [
            _frame({"type": "content_block_start", "index": place, "content_block": block}),
            _frame({"type": "content_block_delta", "index": place, "delta": written}),
            _frame({"type": "content_block_stop", "index": place}),
        ]
    )


def message_end(stop: str, usage: Usage) -> bytes:
    """The last two events of a message."""
    delta = {"stop_reason": stop, "stop_sequence": None}
    last = _frame({"type": "message_delta", "delta": delta, "usage": usage_words(usage)})
    return last + _STOP


# --- the message as a whole -----------------------------------------------------------------------------------


def unfold_message(message: Mapping[str, Any]) -> list[bytes]:
    """The events of a whole message."""
    if message.get("type") != "message":
        return []
    late = ("stop_reason", "stop_sequence")
    start = {**message, "content": [], **dict.fromkeys(late)}
    frames = [_frame({"type": "message_start", "message": start})]
    for index, block in enumerate(as_objects(message.get("content"))):
        frames += [
            _frame({"type": "content_block_start", "index": index, "content_block": block}),
            _frame({"type": "content_block_stop", "index": index}),
        ]
    delta = {name: message.get(name) for name in late}
    last = {"type": "message_delta", "delta": delta, "usage": message.get("usage") or {}}
    return [*frames, _frame(last), _STOP]


class MessageFolder:
    """Builds a message, with every field that the events bring."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._written: dict[int, list[str]] = {}

    def add(self, event: dict[str, Any]) -> None:
        """One more event."""
        kind, index = event.get("type"), event.get("index")
        if kind == "message_start":
            self._message = {**self._message, **event["message"]}
        elif kind == "content_block_start":
            self._blocks[event["index"]] = dict(event["content_block"])
        elif kind == "content_block_delta" and type(index) is int:
            delta = event["delta"]
            if delta.get("type") == "input_json_delta":
                self._written.setdefault(index, []).append(as_text(delta.get("partial_json")))
            else:
                _grow_block(self._blocks[index], delta)
        elif kind == "message_delta":
            beside = {name: value for name, value in event.items() if name not in ("type", "delta", "usage")}
            self._message = {**self._message, **beside, **event["delta"]}
            told = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
            self._message["usage"] = {**(self._message.get("usage") or {}), **told}

    def whole(self) -> dict[str, Any]:
        """The message. Arguments that are not JSON stay text, which no tool accepts."""
        for index, pieces in self._written.items():
            written = "".join(pieces)
            if index in self._blocks and written:
                try:
                    self._blocks[index]["input"] = parse_event(written)
                except UNREADABLE:
                    self._blocks[index]["input"] = written
        return {**self._message, "content": [self._blocks[index] for index in sorted(self._blocks, key=by_place)]}


def _grow_block(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    if delta.get("type") == "citations_delta":
        block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
    else:
        grow_fields(block, delta, "type")
