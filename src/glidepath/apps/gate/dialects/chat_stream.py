"""A streamed chat completion: chunks with deltas, a finish reason for each choice, usage, [DONE].

A call has no end of its own here: it is complete when its choice has a finish reason. So with `hold_calls` everything
from the first fragment of a call on waits for the finish reason; clients run calls only then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from glidepath import _wire
from glidepath.apps.gate.dialects.dialect import RequestFacts, WireCall
from glidepath.apps.gate.dialects.folding import grow_fields
from glidepath.apps.gate.dialects.frames import frame_of
from glidepath.apps.gate.dialects.stream_reader import ReaderWays, StreamReader, by_place, info_of, size_of
from glidepath.apps.gate.dialects.wire_body import as_objects, as_text, write_body
from glidepath.models import anthropic_searches, parse_event
from glidepath.models.chat_calls import ChatCalls
from glidepath.models.usage_reports import chat_bill, chat_media, chat_usage
from glidepath.values import ReplyInfo, Usage

DONE = b"data: [DONE]\n\n"
_CALL_STOPS = ("tool_calls", "function_call")
_THOUGHTS = ("reasoning_content", "reasoning")


class _Said(_wire.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(_wire.Struct, gc=False):
    delta: _Said
    index: int = 0
    finish_reason: str | None = None


class _Chunk(_wire.Struct, gc=False):
    choices: tuple[_Choice]
    usage: Any = None
    error: Any = None
    x_groq: Any = None


_read_chunk = _wire.decoder(_Chunk)


class ChatStream(StreamReader):
    """Reads the chunks of one completion."""

    def __init__(self, facts: RequestFacts, **ways: Unpack[ReaderWays]) -> None:
        super().__init__(facts, **ways)
        self._usage: dict[str, Any] = {}
        self._head: dict[str, Any] = {}
        """What every chunk repeats: id, time, model."""
        self._facts: dict[str, object] = {}
        self._calls: dict[int, ChatCalls] = {}
        self._seen = {0}
        self._finished: set[int] = set()
        self._ending: list[dict[str, Any] | None] = []

    @property
    def usage(self) -> Usage | None:
        """The figures of the last chunk that had some."""
        return chat_usage(self._usage) if self._usage else None

    @property
    def info(self) -> ReplyInfo | None:
        """Id, model, service tier, media, and what OpenRouter adds."""
        used = self._usage
        return info_of(self._facts, anthropic_searches(used), chat_media(used), chat_bill(used))

    # --- chunks ---------------------------------------------------------------------------------------------------

    def _take(self, frame: bytes, data: bytes) -> bytes:
        if self._begun:
            try:
                chunk = _read_chunk(data)
            except _wire.WireError:
                return self._take_any(frame, data)
            (choice,) = chunk.choices
            said = choice.delta
            odd = said.function_call or said.refusal or chunk.usage or chunk.error or chunk.x_groq
            odd = odd or (said.tool_calls and self._hide)
            if not odd and choice.finish_reason is None and not choice.index:
                if said.content:
                    self._say(said.content)
                if thought := said.reasoning_content or said.reasoning:
                    self._think(thought)
                if said.tool_calls:
                    self._read_calls(0, {"tool_calls": said.tool_calls})
                return frame
        return self._take_any(frame, data)

    def _take_any(self, frame: bytes, data: bytes) -> bytes:
        if data == b"[DONE]":
            self._complete()
            return self._last(frame, None)
        chunk = parse_event(data.decode("utf-8", "replace"))
        if chunk.get("error") or chunk.get("object") == "error":
            return self._fail(frame, chunk)
        self._note_facts(chunk)
        choices = as_objects(chunk.get("choices"))
        used = chunk.get("usage") or as_usage(chunk.get("x_groq"))
        if type(used) is dict and used:
            self._usage = used
            if not choices:
                return self._last(frame, chunk) if self.facts.wants_usage else b""
        changed = [self._choice(choice) for choice in choices]
        if not self._hide or not choices:
            return frame
        return self._hide_calls(chunk, [choice for choice in changed if choice is not None])

    def _note_facts(self, chunk: Mapping[str, Any]) -> None:
        if not self._begun:
            self._begun = True
            self._head = {name: chunk.get(name) for name in ("id", "created", "model", "system_fingerprint")}
            self._facts = {"response_id": chunk.get("id"), "model": chunk.get("model")}
        if chunk.get("service_tier"):
            self._facts["service_tier"] = chunk["service_tier"]

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """Read a choice; returns what of it a client may see if calls are hidden, None for nothing."""
        index = choice.get("index") or 0
        self._seen.add(index)
        delta = choice.get("delta") or {}
        self._read_words(index, delta)
        left = self._read_calls(index, delta)
        if choice.get("finish_reason"):
            self.stop = as_text(choice["finish_reason"]) or self.stop
            self._finish_choice(index)
        return {**choice, "delta": left} if left or choice.get("finish_reason") else None

    def _read_words(self, index: int, delta: Mapping[str, Any]) -> None:
        for field in ("content", "refusal"):
            text = delta.get(field)
            if type(text) is list:  # some servers send thoughts and text in parts
                text = "".join([as_text(part.get("text")) for part in as_objects(text)])
            if type(text) is not str or not text:
                continue
            if index:
                self.visible += size_of(text)
            else:
                self._say(text)
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if type(thought) is str:
            self._think(thought)

    def _read_calls(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        """Read the fragments of calls; returns the delta without those that are hidden."""
        legacy = delta.get("function_call")
        pieces = as_objects(delta.get("tool_calls"))
        if type(legacy) is dict:
            pieces = [*pieces, {"index": "function_call", "function": legacy}]
        if not pieces:
            return delta
        calls = self._calls.setdefault(index, ChatCalls())
        shown = []
        for piece in pieces:
            call, _, written = calls.add(piece)
            self.visible += size_of(written)
            if not self._is_hidden(call.name):
                self._open_call(index)
                ahead = [one for one in calls.all[: call.place] if self._is_hidden(one.name)]
                shown.append({**piece, "index": call.place - len(ahead)} if ahead else piece)
        left = {name: value for name, value in delta.items() if name not in ("tool_calls", "function_call")}
        if shown and type(legacy) is dict:
            left["function_call"] = legacy
        elif shown:
            left["tool_calls"] = shown
        return left

    def _finish_choice(self, index: int) -> None:
        if index not in self._finished:
            self._finished.add(index)
            for call in self._calls[index].all if index in self._calls else ():
                made = WireCall(call.id, call.name, "".join(call.arguments))
                self._add_call(made, is_hidden=self._is_hidden(call.name))
        self._open.discard(index)

    def _complete(self) -> None:
        for index in self._seen:
            self._finish_choice(index)
        self._open.clear()
        self.is_complete = True

    def _hide_calls(self, chunk: dict[str, Any], choices: list[dict[str, Any]]) -> bytes:
        """The chunk as a client may see it if calls are hidden: its finish reason waits for `finish`."""
        finished = [{**choice, "delta": {}} for choice in choices if choice.get("finish_reason")]
        spoken = [{**choice, "finish_reason": None} for choice in choices if choice.get("delta")]
        if finished:
            self._ending.append({**chunk, "choices": finished})
            chunk = {name: value for name, value in chunk.items() if name != "usage"}
        return frame_of(write_body({**chunk, "choices": spoken})) if spoken else b""

    def _last(self, frame: bytes, chunk: dict[str, Any] | None) -> bytes:
        if not self._hide:
            return frame
        self._ending.append(chunk)
        return b""

    def _fail(self, frame: bytes, chunk: Mapping[str, Any]) -> bytes:
        error = chunk.get("error")
        message = error.get("message") if type(error) is dict else error or chunk.get("message")
        self.failure = message if type(message) is str else "the provider sent an error"
        return b"" if self._hide else frame

    def _at_end(self) -> None:
        if self.stop is not None:  # a server that never sends [DONE]
            self._complete()

    # --- our own chunks -------------------------------------------------------------------------------------------

    def _remember(self) -> Callable[[], None]:
        finished = set(self._finished)

        def go_back() -> None:
            self._finished = finished

        return go_back

    def _add(self, more: str, note: str) -> bytes:
        out = b"" if self._begun else self._begin()
        if not more + note or (0 in self._finished and not self._hide):  # it is finished at the client
            return out
        return out + self._chunk({"content": more + note})

    def _begin(self) -> bytes:
        self._begun = True
        self._head = chat_head(self.facts)
        return self._chunk({"role": "assistant", "content": ""})

    def _close(self, usage: Usage) -> bytes:
        out = b"" if self._begun else self._begin()
        for index in sorted(self._seen - self._finished, key=by_place):
            out += self._chunk({}, "stop", index)
        if self.facts.wants_usage:
            out += frame_of(write_body({**self._top(), "choices": [], "usage": usage_words(usage)}))
        return out + DONE

    def _last_events(self) -> bytes:
        out = b""
        for chunk in self._ending:
            if chunk is None:
                continue
            for choice in as_objects(chunk.get("choices")):
                if choice.get("finish_reason") in _CALL_STOPS and not self.shown_calls:
                    choice["finish_reason"] = "stop"
            out += frame_of(write_body(chunk))
        return out + DONE

    def _top(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _chunk(self, delta: Mapping[str, Any], stop: str | None = None, index: int = 0) -> bytes:
        return frame_of(chunk_body(self._head, delta, stop, index))

    def _unfold(self, reply: dict[str, Any]) -> list[bytes]:
        return unfold_completion(reply)

    def _folder(self) -> CompletionFolder:
        return CompletionFolder()


def as_usage(groq: object) -> object:
    """The usage that Groq sends in its own field."""
    return groq.get("usage") if type(groq) is dict else None


# --- chunks that we write -------------------------------------------------------------------------------------


def usage_words(usage: Usage) -> dict[str, Any]:
    """A usage as chat completions write it."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def chat_head(facts: RequestFacts, reply_id: str = "chatcmpl-glidepath") -> dict[str, Any]:
    """What every chunk of a reply repeats."""
    return {"id": reply_id, "created": int(time.time()), "model": facts.model, "system_fingerprint": None}


def chunk_body(head: Mapping[str, Any], delta: Mapping[str, Any], stop: str | None = None, index: int = 0) -> bytes:
    """One chunk."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": stop}
    return write_body({**head, "object": "chat.completion.chunk", "choices": [choice]})


# --- the completion as a whole --------------------------------------------------------------------------------


def unfold_completion(reply: Mapping[str, Any]) -> list[bytes]:
    """The chunks of a whole completion: one with everything, one with the usage."""
    if not as_objects(reply.get("choices")):
        return []
    head = {**{name: value for name, value in reply.items() if name != "usage"}, "object": "chat.completion.chunk"}
    choices = []
    for choice in as_objects(reply["choices"]):
        message = {**choice["message"]}
        if pieces := as_objects(message.get("tool_calls")):
            message["tool_calls"] = [{"index": number, **piece} for number, piece in enumerate(pieces)]
        rest = {name: value for name, value in choice.items() if name != "message"}
        choices.append({**rest, "delta": message})
    frames = [frame_of(write_body({**head, "choices": choices}))]
    if reply.get("usage"):
        frames.append(frame_of(write_body({**head, "choices": [], "usage": reply["usage"]})))
    return [*frames, DONE]


class CompletionFolder:
    """Builds a completion, with every field that the chunks bring."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, ChatCalls] = {}

    def add(self, event: dict[str, Any]) -> None:
        """One more chunk."""
        grown = {name: value for name, value in event.items() if value is not None or name not in self._whole}
        self._whole.update({name: value for name, value in grown.items() if name not in ("choices", "object")})
        for choice in as_objects(event.get("choices")):
            index = choice.get("index") or 0
            whole = self._choices.setdefault(index, _new_choice(index))
            _grow_choice(whole, choice)
            delta = choice.get("delta")
            for piece in as_objects(delta.get("tool_calls")) if type(delta) is dict else ():
                _grow_calls(whole["message"], self._calls.setdefault(index, ChatCalls()), piece)

    def whole(self) -> dict[str, Any]:
        """The completion."""
        choices = [self._choices[index] for index in sorted(self._choices, key=by_place)]
        return {**self._whole, "object": "chat.completion", "choices": choices}


def _new_choice(index: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "refusal": None}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": None}


def _grow_choice(whole: dict[str, Any], choice: Mapping[str, Any]) -> None:
    delta = choice.get("delta") or {}
    grow_fields(whole["message"], delta, "role", "tool_calls", "function_call")
    if type(legacy := delta.get("function_call")) is dict:
        grow_fields(whole["message"].setdefault("function_call", {}), legacy)
    if type(weights := choice.get("logprobs")) is dict:
        whole["logprobs"] = whole["logprobs"] or {}
        grow_fields(whole["logprobs"], weights)
    rest = {name: value for name, value in choice.items() if name not in ("delta", "logprobs", "index")}
    whole.update({name: value for name, value in rest.items() if value is not None or name not in whole})


def _grow_calls(message: dict[str, Any], calls: ChatCalls, piece: Mapping[str, Any]) -> None:
    call, _, _ = calls.add(piece)
    made = message.setdefault("tool_calls", [])
    if call.place == len(made):
        made.append({"id": call.id, "type": as_text(piece.get("type")) or "function"})
    entry = made[call.place]
    for part in ("function", "custom"):
        if type(piece.get(part)) is dict:
            text = "input" if part == "custom" else "arguments"
            entry[part] = {"name": call.name, text: "".join(call.arguments)}
    rest = {name: value for name, value in piece.items() if name not in ("index", "id", "type", "function", "custom")}
    grow_fields(entry, rest)
