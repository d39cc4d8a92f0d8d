"""A streamed reply of Gemini: chunks, each a small response; the last one has a finish reason.

A call comes whole, in one part. Only where a client asks for arguments in pieces does it come in several, and then it
waits for the last one. There is no event for the end: the stream closes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeGuard, Unpack

from glidepath import _wire
from glidepath.apps.gate.dialects.dialect import RequestFacts, WireCall
from glidepath.apps.gate.dialects.folding import grow_fields
from glidepath.apps.gate.dialects.frames import FrameSplitter, data_of
from glidepath.apps.gate.dialects.stream_reader import ReaderWays, StreamReader, by_place, info_of, size_of
from glidepath.apps.gate.dialects.wire_body import as_objects, as_text, write_body
from glidepath.models import parse_event
from glidepath.models.thinkers import LEVELED
from glidepath.models.usage_reports import gemini_media, gemini_searches, gemini_usage
from glidepath.values import ReplyInfo, Usage

NOTHING = "…"
"""The text of a reply that has none: clients take an empty one for a fault and ask again."""
_CALL_STOPS = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")


class _Part(_wire.Struct, gc=False):
    text: str
    thought: bool = False
    functionCall: Any = None  # noqa: N815 - as it is on the wire


class _Content(_wire.Struct, gc=False):
    parts: list[_Part]


class _Candidate(_wire.Struct, gc=False):
    content: _Content
    index: int = 0
    finishReason: str | None = None  # noqa: N815
    groundingMetadata: Any = None  # noqa: N815


class _Chunk(_wire.Struct, gc=False):
    candidates: tuple[_Candidate]
    usageMetadata: _wire.Raw = _wire.Raw(b"")  # noqa: N815 - parsed when somebody asks
    error: Any = None


_read_chunk = _wire.decoder(_Chunk)
_HUMP = re.compile(r"(?<!^)([A-Z])")


@lru_cache(maxsize=512)
def snake(name: str) -> str:
    """The other spelling of a field: Google accepts both."""
    return _HUMP.sub(r"_\1", name).lower()


def pick(given: Mapping[str, Any], name: str) -> Any:
    """A field in either spelling."""
    found = given.get(name)
    return given.get(snake(name)) if found is None else found


def frame_chunk(chunk: Mapping[str, Any]) -> bytes:
    """A chunk as Google frames it."""
    return b"data: %b\r\n\r\n" % write_body(dict(chunk))


class GeminiStream(StreamReader):
    """Reads the chunks of one reply."""

    def __init__(self, facts: RequestFacts, **ways: Unpack[ReaderWays]) -> None:
        super().__init__(facts, **ways)
        self._raw_usage = _wire.Raw(b"")
        self._facts: dict[str, object] = {}
        self._head: dict[str, Any] = {}
        self._searches = 0
        self._finished: set[int] = set()
        self._ending: list[dict[str, Any]] = []
        self._array_begun = False
        self._array_ended = False

    @property
    def usage(self) -> Usage | None:
        """The figures of the newest chunk that had some."""
        used = self._used()
        return gemini_usage(used) if used else None

    @property
    def info(self) -> ReplyInfo | None:
        """Id, model, searches, media."""
        return info_of(self._facts, self._searches, gemini_media(self._used()))

    def _used(self) -> dict[str, Any]:
        """The newest usage, in the spelling of the SDK."""
        raw = bytes(self._raw_usage)
        used = parse_event(raw.decode("utf-8", "replace")) if raw else None
        if type(used) is not dict:
            return {}
        told: dict[str, Any] = {}
        for name, value in used.items():
            listed = [{snake(key): one for key, one in entry.items()} for entry in as_objects(value)]
            told[snake(name)] = listed if type(value) is list else value
        return told

    # --- chunks ---------------------------------------------------------------------------------------------------

    def _take(self, frame: bytes, data: bytes) -> bytes:
        if self._begun:
            try:
                chunk = _read_chunk(data)
            except _wire.WireError:
                return self._take_any(frame, data)
            (candidate,) = chunk.candidates
            odd = candidate.index or candidate.finishReason or candidate.groundingMetadata or chunk.error
            parts = candidate.content.parts
            if not odd and not any(part.functionCall for part in parts):
                for part in parts:
                    if part.thought:
                        self._think(part.text)
                    else:
                        self._say(part.text)
                self._raw_usage = chunk.usageMetadata or self._raw_usage
                return frame
        return self._take_any(frame, data)

    def _take_any(self, frame: bytes, data: bytes) -> bytes:
        chunk = parse_event(data.decode("utf-8", "replace"))
        if type(chunk.get("error")) is dict:
            self.failure = as_text(chunk["error"].get("message")) or "the provider sent an error"
            return b"" if self._hide else frame
        self._begun = True
        for name, fact in (("responseId", "response_id"), ("modelVersion", "model")):
            if chunk.get(name):
                self._head[name] = self._facts[fact] = chunk[name]
        if type(chunk.get("usageMetadata")) is dict:
            self._raw_usage = _wire.Raw(write_body(chunk["usageMetadata"]))
        feedback = chunk.get("promptFeedback")
        if type(feedback) is dict and feedback.get("blockReason"):
            self.stop, self.is_complete = as_text(feedback["blockReason"]), True
            return self._last(frame, chunk)
        candidates = as_objects(chunk.get("candidates"))
        shown = [self._candidate(candidate) for candidate in candidates]
        if self.is_complete and not candidates:
            return self._last(frame, chunk)
        return self._hide_calls(chunk, shown) if self._hide else frame

    def _candidate(self, candidate: dict[str, Any]) -> dict[str, Any]:
        """Read a candidate; returns it without hidden calls."""
        index = candidate.get("index") or 0
        content = candidate.get("content")
        content = content if type(content) is dict else {}
        parts = content.get("parts")
        kept = [part for part in parts if self._part(index, part)] if type(parts) is list else []
        grounds = candidate.get("groundingMetadata")
        if type(grounds) is dict:
            each = LEVELED.match(self.facts.model) is not None
            self._searches = gemini_searches(grounds.get("webSearchQueries"), each=each) or self._searches
        if candidate.get("finishReason"):
            self.stop = as_text(candidate["finishReason"]) or self.stop
            self._finished.add(index)
            self._open.discard(index)
            self.is_complete = len(self._finished) >= self.facts.copies
        return {**candidate, "content": {**content, "parts": kept}} if content else candidate

    def _part(self, index: int, part: object) -> bool:
        """Read a part; returns whether a client may see it."""
        if type(part) is not dict:
            return True
        call, text = part.get("functionCall"), part.get("text")
        if type(call) is dict:
            return self._call(index, call)
        if type(text) is str and part.get("thought"):
            self._think(text)
        elif type(text) is str and not index:
            self._say(text)
        elif type(text) is str:
            self.visible += size_of(text)
        elif type(code := part.get("executableCode")) is dict:
            self.visible += size_of(as_text(code.get("code")))
        return True

    def _call(self, index: int, call: Mapping[str, Any]) -> bool:
        name = as_text(call.get("name"))
        written = write_body(call["args"] if type(call.get("args")) is dict else {}).decode()
        self.visible += size_of(written)
        is_hidden = self._is_hidden(name)
        if call.get("willContinue"):
            if not is_hidden:
                self._open_call(index)
            return not is_hidden
        self._open.discard(index)
        self._add_call(WireCall(as_text(call.get("id")), name, written), is_hidden=is_hidden)
        return not is_hidden

    def _hide_calls(self, chunk: dict[str, Any], candidates: list[dict[str, Any]]) -> bytes:
        """The chunk as a client may see it if calls are hidden: its finish reason waits for `finish`."""
        spoken = [_drop_finish_reason(one) for one in candidates if _has_parts(one)]
        if any(one.get("finishReason") for one in candidates):
            ended = [{**one, "content": {"parts": [], "role": "model"}} for one in candidates]
            self._ending.append({**chunk, "candidates": ended})
        return frame_chunk({**chunk, "candidates": spoken}) if spoken else b""

    def _last(self, frame: bytes, chunk: dict[str, Any]) -> bytes:
        if not self._hide:
            return frame
        self._ending.append(chunk)
        return b""

    def _at_end(self) -> None:
        self.is_complete = self.is_complete or bool(self._finished)

    # --- our own chunks -------------------------------------------------------------------------------------------

    def _remember(self) -> Callable[[], None]:
        return lambda: None  # nothing here has a number

    def _add(self, more: str, note: str) -> bytes:
        return frame_chunk(self._chunk(more + note)) if more + note else b""

    def _chunk(self, text: str, stop: str | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
        if stop is not None:
            candidate["finishReason"] = stop
        head = self._head or {"modelVersion": self.facts.model}
        return {"candidates": [candidate], **head}

    def _close(self, usage: Usage) -> bytes:
        text = "" if self.client_text or self.shown_calls else NOTHING
        return frame_chunk({**self._chunk(text, "STOP"), "usageMetadata": usage_words(usage)})

    def _last_events(self) -> bytes:
        out = b"" if self.client_text or self.shown_calls else self._add("", NOTHING)
        for chunk in self._ending:
            for candidate in as_objects(chunk.get("candidates")):
                if candidate.get("finishReason") in _CALL_STOPS:
                    candidate["finishReason"] = "STOP"
                    candidate.pop("finishMessage", None)
            out += frame_chunk(chunk)
        return out

    def _unfold(self, reply: dict[str, Any]) -> list[bytes]:
        return [frame_chunk(reply)]

    def _folder(self) -> GeminiFolder:
        return GeminiFolder()

    # --- the framing of a stream without `alt=sse` ------------------------------------------------------------------

    def feed(self, chunk: bytes) -> bytes:
        """What to send for this chunk."""
        return self._frame_events(super().feed(chunk))

    def end(self) -> bytes:
        """What to send when the provider's stream has ended; one that broke off stays open for `cut`."""
        out = super().end()
        return self._frame_events(out, is_last=self.is_complete and not self._hide)

    def feed_whole(self, body: bytes) -> bytes:
        """What to send for a reply that was not streamed."""
        return self._frame_events(super().feed_whole(body))

    def release(self) -> bytes:
        """Stop holding calls back."""
        return self._frame_events(super().release())

    def cut(self, note: str, usage: Usage | None = None) -> bytes:
        """Bytes that end the reply now."""
        return self._frame_events(super().cut(note, usage), is_last=True)

    def finish(self, text: str = "") -> bytes:
        """End a reply whose calls are hidden."""
        return self._frame_events(super().finish(text), is_last=True)

    def _frame_events(self, out: bytes, *, is_last: bool = False) -> bytes:
        """Events as they are, or as elements of a JSON array."""
        if self.facts.framing != "array" or self._array_ended:
            return out
        splitter = FrameSplitter()
        chunks = [data for frame in [*splitter.feed(out), splitter.finish()] if (data := data_of(frame))]
        whole = b""
        for chunk in chunks:
            whole += (b",\r\n" if self._array_begun else b"[") + chunk
            self._array_begun = True
        if is_last:
            whole += b"]" if self._array_begun else b"[]"
            self._array_ended = True
        return whole


def _has_parts(candidate: Mapping[str, Any]) -> bool:
    content = candidate.get("content")
    return type(content) is dict and bool(content.get("parts"))


def _drop_finish_reason(candidate: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in candidate.items() if name not in ("finishReason", "finishMessage")}


def usage_words(usage: Usage) -> dict[str, int]:
    """A usage as Gemini writes it."""
    return {
        "promptTokenCount": usage.input,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": max(usage.output - usage.reasoning, 0),
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
    }


# --- the reply as a whole -------------------------------------------------------------------------------------


class GeminiFolder:
    """Builds a reply, with every field that the chunks bring. Neighboring texts become one."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._candidates: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> None:
        """One more chunk."""
        self._whole.update({name: value for name, value in event.items() if name != "candidates"})
        for candidate in as_objects(event.get("candidates")):
            index = candidate.get("index") or 0
            empty: dict[str, Any] = {"content": {"parts": [], "role": "model"}}
            whole = self._candidates.setdefault(index, empty)
            rest = {name: value for name, value in candidate.items() if name not in ("content", "citationMetadata")}
            whole.update(rest)
            if type(cited := candidate.get("citationMetadata")) is dict:
                grow_fields(whole.setdefault("citationMetadata", {}), cited)
            content = candidate.get("content")
            for part in content.get("parts") or () if type(content) is dict else ():
                _grow_parts(whole["content"]["parts"], part)

    def whole(self) -> dict[str, Any]:
        """The reply."""
        candidates = [self._candidates[index] for index in sorted(self._candidates, key=by_place)]
        return {"candidates": candidates, **self._whole} if candidates else self._whole


def _grow_parts(parts: list[Any], part: object) -> None:
    last: Any = parts[-1] if parts else None
    if _is_plain_text(last) and _is_plain_text(part) and last.get("thought") == part.get("thought"):
        parts[-1] = {**last, "text": last["text"] + part["text"]}
    else:
        parts.append(part)


def _is_plain_text(part: object) -> TypeGuard[dict[str, Any]]:
    return type(part) is dict and type(part.get("text")) is str and not set(part) - {"text", "thought"}
