"""A streamed response of OpenAI: items that are added, grow and are done, and the whole response at the end.

A call is complete with `response.output_item.done`. Clients take items from there, or from the response at the end:
both tell the same, also when a reply is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Unpack

from glidepath import _wire
from glidepath.apps.gate.dialects.dialect import RequestFacts
from glidepath.apps.gate.dialects.frames import frame_of
from glidepath.apps.gate.dialects.responses_items import (
    EventWriter,
    call_in,
    close_response,
    is_client_call,
    message_item,
    name_of,
    new_response,
    own_id,
    text_part,
)
from glidepath.apps.gate.dialects.stream_reader import ReaderWays, StreamReader, by_place, info_of, size_of
from glidepath.apps.gate.dialects.wire_body import as_objects, as_text, write_body
from glidepath.models import parse_event
from glidepath.models.content import dollars_in
from glidepath.models.usage_reports import is_billed_search, responses_media, responses_usage
from glidepath.values import ReplyInfo, Usage

_HEAD = 70
"""Bytes at the beginning of an event that hold its kind."""
_TEXTS = {"response.output_text.delta": "output_text", "response.refusal.delta": "refusal"}
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


class _Delta(_wire.Struct, gc=False):
    type: str
    delta: str
    output_index: int
    content_index: int = 0
    sequence_number: int = 0


_read_delta = _wire.decoder(_Delta)


class _Item:
    """An item that is not done. `parts` are the texts of a message, by their numbers."""

    __slots__ = ("closed", "is_call", "is_hidden", "item", "parts", "place")

    def __init__(self, item: Mapping[str, Any], place: int, *, is_call: bool, is_hidden: bool) -> None:
        self.item = item
        self.place = place
        self.is_call = is_call
        self.is_hidden = is_hidden
        self.parts: dict[int, tuple[str, list[str]]] = {}
        self.closed: set[int] = set()

    def copy(self) -> _Item:
        """As it is now, whatever comes later."""
        twin = _Item(self.item, self.place, is_call=self.is_call, is_hidden=self.is_hidden)
        twin.parts = {number: (kind, list(texts)) for number, (kind, texts) in self.parts.items()}
        twin.closed = set(self.closed)
        return twin

    def content(self) -> list[dict[str, Any]]:
        """The message so far."""
        return [
            _part(kind, "".join(texts))
            for _, (kind, texts) in sorted(self.parts.items(), key=lambda part: by_place(part[0]))
        ]


def _part(kind: str, text: str) -> dict[str, Any]:
    return text_part(text) if kind == "output_text" else {"type": "refusal", "refusal": text}


class ResponsesStream(StreamReader):
    """Reads the events of one response."""

    def __init__(self, facts: RequestFacts, **ways: Unpack[ReaderWays]) -> None:
        super().__init__(facts, **ways)
        self._response: dict[str, Any] = {}
        self._items: dict[int, _Item] = {}
        self._done: list[dict[str, Any]] = []
        """Items that the client has, whole."""
        self._next = 0
        self._hidden: set[int] = set()
        self._places: dict[int, int] = {}
        self._own: list[dict[str, Any]] = []
        """Items that we added."""
        self._writer = EventWriter()
        self._searches = 0
        self._ending: dict[str, Any] = {}

    @property
    def usage(self) -> Usage | None:
        """The figures of the response at the end."""
        used = self._response.get("usage")
        return responses_usage(used) if type(used) is dict else None

    @property
    def info(self) -> ReplyInfo | None:
        """Id, model, service tier, web searches, media."""
        told, used = self._response, self._response.get("usage")
        used = used if type(used) is dict else {}
        facts = {"response_id": told.get("id"), "model": told.get("model"), "service_tier": told.get("service_tier")}
        return info_of(facts, self._searches, responses_media(used), dollars_in(used, "cost"))

    # --- events ---------------------------------------------------------------------------------------------------

    def _take(self, frame: bytes, data: bytes) -> bytes:
        if b".delta" in frame[:_HEAD]:
            try:
                event = _read_delta(data)
            except _wire.WireError:
                return self._take_event(frame, parse_event(data.decode("utf-8", "replace")))
            self._writer.sequence = event.sequence_number or self._writer.sequence + 1
            self._grow(event.type, event.output_index, event.content_index, event.delta)
            return self._renumber(frame, data, event.output_index) if self._hidden else frame
        if data == b"[DONE]":  # some gateways send it
            return frame
        return self._take_event(frame, parse_event(data.decode("utf-8", "replace")))

    def _take_event(self, frame: bytes, event: dict[str, Any]) -> bytes:
        number = event.get("sequence_number")
        self._writer.sequence = number if type(number) is int else self._writer.sequence + 1
        read = self._EVENTS.get(event.get("type", ""))
        if read is not None:
            return read(self, frame, event)
        if self._hidden and type(event.get("output_index")) is int:
            return self._renumber(frame, b"", event["output_index"], event)
        return frame

    def _grow(self, kind: str, index: int, number: int, more: str) -> None:
        if kind in _TEXTS:
            self._say(more)
            item = self._items.get(index)
            if item is not None:
                item.parts.setdefault(number, (_TEXTS[kind], []))[1].append(more)
        elif kind in _THOUGHTS:
            self._think(more)
        else:
            self.visible += size_of(more)

    def _begin_response(self, frame: bytes, event: dict[str, Any]) -> bytes:
        self._begun = True
        self._response = {**self._response, **event["response"]}
        return frame

    def _add_item(self, frame: bytes, event: dict[str, Any]) -> bytes:
        index, item = event["output_index"], event["item"]
        self._track(index, item)
        return self._renumber(frame, b"", index, event) if self._hidden else frame

    def _track(self, index: int, item: Mapping[str, Any]) -> None:
        is_call = is_client_call(item)
        is_hidden = is_call and self._is_hidden(name_of(item))
        if is_hidden:
            self._hidden.add(index)
        elif is_call:
            self._open_call(index)
        self._items[index] = _Item(item, self._next, is_call=is_call, is_hidden=is_hidden)
        self._places[index] = self._next
        self._next += not is_hidden

    def _close_part(self, frame: bytes, event: dict[str, Any]) -> bytes:
        item = self._items.get(event["output_index"])
        if item is not None:
            item.closed.add(event.get("content_index") or 0)
        return self._renumber(frame, b"", event["output_index"], event) if self._hidden else frame

    def _finish_item(self, frame: bytes, event: dict[str, Any]) -> bytes:
        index, item = event["output_index"], event["item"]
        if index not in self._items:  # a server that does not announce its items
            self._track(index, item)
        known = self._items.pop(index)
        if known.is_call:
            self._add_call(call_in(item), is_hidden=known.is_hidden)
        if not known.parts and item.get("type") == "message":
            self._say_all(item)
        self._searches += is_billed_search(item)
        self._open.discard(index)
        if not known.is_hidden:
            self._done.append(item)
        return self._renumber(frame, b"", index, event) if self._hidden else frame

    def _say_all(self, item: Mapping[str, Any]) -> None:
        """The text of a message that came at once."""
        for part in as_objects(item.get("content")):
            text = as_text(part.get("text")) or as_text(part.get("refusal"))
            if text:
                self._say(text)

    def _end_response(self, frame: bytes, event: dict[str, Any]) -> bytes:
        response = event["response"]
        self._begun = True
        self._response = {**self._response, **response}
        why = response.get("incomplete_details")
        reason = why.get("reason") if type(why) is dict else None
        self.stop = as_text(reason) or as_text(response.get("status")) or "completed"
        self.is_complete = True
        self._open.clear()
        if not self._done and not self._items and not self.calls and not self._texts:
            self._read_output(response)
        if not self._hide:
            return frame
        self._ending = event
        return b""

    def _read_output(self, response: Mapping[str, Any]) -> None:
        """A server that does not stream sends all of it at the end."""
        for index, item in enumerate(as_objects(response.get("output"))):
            if is_client_call(item):
                is_hidden = self._is_hidden(name_of(item))
                self._add_call(call_in(item), is_hidden=is_hidden)
                if is_hidden:
                    self._hidden.add(index)
            elif item.get("type") == "message":
                self._say_all(item)

    def _fail(self, frame: bytes, event: dict[str, Any]) -> bytes:
        response = event.get("response")
        error = response.get("error") if type(response) is dict else event.get("error")
        if type(response) is dict:
            self._response = {**response, **self._response, "usage": response.get("usage")}
        message = error.get("message") if type(error) is dict else event.get("message")
        self.failure = message if type(message) is str else "the response failed"
        return b"" if self._hide else frame

    _EVENTS: ClassVar[dict[str, Callable[[Any, bytes, dict[str, Any]], bytes]]] = {
        "response.created": _begin_response,
        "response.in_progress": _begin_response,
        "response.queued": _begin_response,
        "response.output_item.added": _add_item,
        "response.content_part.done": _close_part,
        "response.output_item.done": _finish_item,
        "response.completed": _end_response,
        "response.incomplete": _end_response,
        "response.failed": _fail,
        "error": _fail,
    }

    def _renumber(self, frame: bytes, data: bytes, index: int, event: dict[str, Any] | None = None) -> bytes:
        """The event with the index that its item has at the client: clients use it as a place in a list."""
        if index in self._hidden:
            return b""
        place = self._places.get(index, index)
        if place == index:
            return frame
        given = parse_event(data.decode("utf-8", "replace")) if event is None else event
        return frame_of(write_body({**given, "output_index": place}), as_text(given.get("type")))

    # --- our own events -------------------------------------------------------------------------------------------

    def _remember(self) -> Callable[[], None]:
        items = {index: item.copy() for index, item in self._items.items()}
        count, known = len(self._done), self._next

        def go_back() -> None:
            self._items, self._next = items, known
            self._done = self._done[:count]

        return go_back

    def _begin(self) -> bytes:
        self._begun = True
        self._response = new_response(self.facts, own_id(self.facts, "cut"))
        return self._writer.write("response.created", response=self._response)

    def _add(self, more: str, note: str) -> bytes:
        said = more + note
        if not said:
            return b""
        out = b"" if self._begun else self._begin()
        message = next((one for one in self._items.values() if one.item.get("type") == "message"), None)
        if message is None:
            out += self._close_open()
            item = message_item(f"msg_glidepath_{len(self._own)}", said)
            out += self._writer.add_message(self._next, item)
            self._next += 1
            self._own.append(item)
            self._done.append(item)
            return out
        number = max(message.parts, default=-1)
        at = {"item_id": message.item.get("id"), "output_index": message.place}
        if number in message.parts and number not in message.closed and message.parts[number][0] == "output_text":
            message.parts[number][1].append(said)
            delta = {"content_index": number, "delta": said, "logprobs": []}
            return out + self._writer.write("response.output_text.delta", **at, **delta)
        message.parts[number + 1] = ("output_text", [said])
        message.closed.add(number + 1)
        return out + self._writer.add_part(message.item.get("id"), message.place, number + 1, said)

    def _close(self, usage: Usage) -> bytes:
        out = b"" if self._begun else self._begin()
        out += self._close_open()
        response = close_response(self._response, self._done, usage)
        return out + self._writer.write("response.completed", response=response)

    def _close_open(self) -> bytes:
        """End the items that are open at the client, in their order."""
        shown = [item for item in self._items.values() if not item.is_hidden]
        self._items = {}
        return b"".join(
            [self._close_message(one) if one.item.get("type") == "message" else self._close_item(one) for one in shown]
        )

    def _close_message(self, message: _Item) -> bytes:
        out, content = b"", message.content()
        at = {"item_id": message.item.get("id"), "output_index": message.place}
        for number, part in zip(sorted(message.parts, key=by_place), content, strict=True):
            if number not in message.closed:
                out += self._writer.close_part({**at, "content_index": number}, part)
        item = {**message.item, "status": "completed", "content": content}
        self._done.append(item)
        return out + self._writer.write("response.output_item.done", output_index=message.place, item=item)

    def _close_item(self, known: _Item) -> bytes:
        """An item that is neither text nor a call, as it began: SDKs refuse a response with an open item."""
        item = {**known.item, **({"status": "incomplete"} if "status" in known.item else {})}
        self._done.append(item)
        return self._writer.write("response.output_item.done", output_index=known.place, item=item)

    def _last_events(self) -> bytes:
        response = dict(self._ending["response"])
        output = response.get("output")
        if type(output) is list:
            kept = [item for index, item in enumerate(output) if index not in self._hidden]
            response["output"] = [*kept, *self._own]
        event = {**self._ending, "response": response, "sequence_number": self._writer.sequence + 1}
        return frame_of(write_body(event), as_text(event.get("type")))

    def _unfold(self, reply: dict[str, Any]) -> list[bytes]:
        if reply.get("object") != "response":
            return []
        writer = EventWriter()
        frames = [writer.write("response.created", response={**reply, "output": [], "status": "in_progress"})]
        for index, item in enumerate(as_objects(reply.get("output"))):
            frames += [
                writer.write("response.output_item.added", output_index=index, item=item),
                writer.write("response.output_item.done", output_index=index, item=item),
            ]
        return [*frames, writer.write(f"response.{reply.get('status') or 'completed'}", response=reply)]

    def _folder(self) -> ResponseFolder:
        return ResponseFolder()


class ResponseFolder:
    """Takes the response at the end; one whose output is empty there gets the items that were done."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._done: list[Any] = []

    def add(self, event: dict[str, Any]) -> None:
        """One more event."""
        response = event.get("response")
        if type(response) is dict:
            self._whole = {**self._whole, **response}
        elif event.get("type") == "response.output_item.done":
            self._done.append(event["item"])

    def whole(self) -> dict[str, Any]:
        """The response."""
        return self._whole if self._whole.get("output") else {**self._whole, "output": self._done}
