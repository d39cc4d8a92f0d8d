"""OpenAI chat completions: requests, edits, and replies of our own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from glidepath.apps.gate.dialects.chat_stream import (
    DONE,
    ChatStream,
    CompletionFolder,
    chat_head,
    chunk_body,
    usage_words,
)
from glidepath.apps.gate.dialects.conversations import (
    StepCollector,
    hints_from,
    place_notices,
    result_of,
    rolling_digests,
    text_of,
    title_of,
    with_changed,
    with_inserted,
)
from glidepath.apps.gate.dialects.dialect import Body, Notice, OwnReply, PastStep, RequestFacts, WireAnswer
from glidepath.apps.gate.dialects.folding import fold
from glidepath.apps.gate.dialects.frames import frame_of
from glidepath.apps.gate.dialects.openai_words import find_hidden_reasoning, openai_error
from glidepath.apps.gate.dialects.wire_body import (
    as_objects,
    as_text,
    body_of,
    count_in,
    flag_in,
    messages_in,
    model_in,
    object_in,
    objects_in,
    write_body,
)
from glidepath.models import call_of, parse_event
from glidepath.values import ToolCall

NAME = "openai-chat"
_TEXTS = ("text", "input_text", "output_text")
_MEDIA = ("image_url", "input_audio", "file", "video_url", "document_url")
_OWN_TURN = ("role", "content", "name")
NOTHING = "…"


class ChatDialect:
    """OpenAI's chat completions, and the many servers that speak them."""

    name = NAME

    # --- requests -------------------------------------------------------------------------------------------------

    def read_request(
        self, body: object, path_model: str | None = None, stream: bool | None = None, framing: str = "sse"
    ) -> RequestFacts:
        """The facts of a request; raises `BadRequest`."""
        given = body_of(body)
        messages = messages_in(given, "messages")
        model = path_model or model_in(given)
        is_stream = flag_in(given, "stream") if stream is None else stream
        media, held = _survey(messages)
        wanted = object_in(given, "response_format")
        schema = wanted.get("json_schema")
        schema = schema.get("schema") if type(schema) is dict else None
        searches = given.get("web_search_options") is not None
        return RequestFacts(
            dialect=NAME,
            body=given,
            model=model,
            stream=is_stream,
            framing=framing,
            max_output=_max_output(given),
            copies=count_in(given, "n") or 1,
            messages=len(messages),
            tool_names=_tool_names(given),
            server_tools=("web_search",) if searches else (),
            tool_choice=_read_choice(given),
            hidden="asked" if searches else find_hidden_reasoning(model, given.get("reasoning_effort")),
            held_by_server=held,
            media=media,
            wants_usage=not is_stream or object_in(given, "stream_options").get("include_usage") is True,
            output_schema=schema if type(schema) is dict else None,
            wants_json=wanted.get("type") in ("json_object", "json_schema"),
            first_text=title_of(_user_texts(messages)),
            hints=hints_from(given, "user", "safety_identifier", "prompt_cache_key", "service_tier"),
            refusal=_refusal(given),
            past=_PAST,
        )

    def insert_notices(self, body: Body, notices: Sequence[Notice]) -> Body:
        """Each notice is a message of the user."""
        messages = body.get("messages")
        if not notices or type(messages) is not list:
            return body
        made: dict[int, list[Any]] = {
            place: [{"role": "user", "content": text} for text in texts]
            for place, texts in place_notices(messages, notices).items()
        }
        return with_inserted(body, "messages", messages, made)

    def close_tools(self, body: Body, finishing: str | None = None) -> Body:
        """No call, or the finishing tool."""
        if not body.get("tools"):
            return _close_functions(body, finishing)
        choice: Any = "none"
        if finishing is not None:
            kind = _tool_kind(body, finishing)
            choice = {"type": kind, kind: {"name": finishing}}
        return body if body.get("tool_choice") == choice else {**body, "tool_choice": choice}

    def set_streaming(self, body: Body, *, with_usage: bool = True) -> Body:
        """A stream, with a last chunk that has the usage; the reader takes it out again if nobody asked for it."""
        options = body.get("stream_options")
        options = options if type(options) is dict else {}
        has_usage = not with_usage or options.get("include_usage") is True
        if body.get("stream") is True and has_usage:
            return body
        added = {} if has_usage else {"stream_options": {**options, "include_usage": True}}
        return {**body, "stream": True, **added}

    def streaming_target(self, path: str, query: str) -> tuple[str, str]:
        """The same: the body says whether it streams."""
        return path, query

    def legalize(self, body: Body, is_ours: Callable[[str], bool]) -> Body:
        """Turns of ours as plain text; calls of ours, and what came back from them, as text of the user."""
        made = set[str]()

        def change(message: dict[str, Any]) -> dict[str, Any]:
            role = message.get("role")
            if role == "tool" and as_text(message.get("tool_call_id")) in made:
                return {"role": "user", "content": text_of(message.get("content"), *_TEXTS) or NOTHING}
            if role != "assistant":
                return message
            calls = as_objects(message.get("tool_calls"))
            own = {call["id"] for call in calls if type(call.get("id")) is str and is_ours(call["id"])}
            made.update(own)
            text = text_of(message.get("content"), *_TEXTS)
            if own or (text.strip() and not calls and is_ours(text.strip())):
                return _legal_turn(message, text, [call for call in calls if as_text(call.get("id")) not in own])
            return message

        return with_changed(body, "messages", change)

    # --- replies --------------------------------------------------------------------------------------------------

    def open_reader(
        self, facts: RequestFacts, *, hide_calls: bool = False, finishing: str | None = None, hold_calls: bool = True
    ) -> ChatStream:
        """Follow a streamed completion."""
        return ChatStream(facts, hide_calls=hide_calls, finishing=finishing, hold_calls=hold_calls)

    def write_reply(self, facts: RequestFacts, reply: OwnReply) -> WireAnswer:
        """Our own words as a completion."""
        head = chat_head(facts, f"chatcmpl-glidepath-{secrets.token_hex(12)}")
        text = reply.text or (None if reply.call else NOTHING)
        chunks = [chunk_body(head, {"role": "assistant", "content": "" if text else None})]
        if text:
            chunks.append(chunk_body(head, {"content": text}))
        if reply.call is not None:
            chunks.append(chunk_body(head, _call_delta(facts, *reply.call)))
        chunks.append(chunk_body(head, {}, "stop" if reply.call is None else _call_stop(facts)))
        if facts.wants_usage:
            last = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage_words(reply.usage)}
            chunks.append(write_body(last))
        if facts.stream:
            stream = b"".join([frame_of(chunk) for chunk in chunks]) + DONE
            return WireAnswer(status=200, content_type="text/event-stream; charset=utf-8", body=stream)
        whole = fold(CompletionFolder(), [parse_event(chunk.decode()) for chunk in chunks])
        return WireAnswer(status=200, content_type="application/json", body=write_body(whole))

    def write_error(self, status: int, kind: str, message: str) -> WireAnswer:
        """An error as OpenAI writes it."""
        return WireAnswer(status=status, content_type="application/json", body=openai_error(status, kind, message))

    def write_stream_error(self, status: int, kind: str, message: str) -> bytes:
        """An error in place of a chunk."""
        return frame_of(openai_error(status, kind, message))

    def keep_alive(self, facts: RequestFacts) -> bytes:
        """A comment; white space for a client that waits for one JSON document."""
        return b": keep-alive\n\n" if facts.stream else b"\n"


# --- looks at requests ----------------------------------------------------------------------------------------


def _max_output(body: Body) -> int | None:
    """The larger of the two caps, should a request have both."""
    caps = [count_in(body, field, least=0) for field in ("max_completion_tokens", "max_tokens")]
    return max([cap for cap in caps if cap is not None], default=None)


def _tool_names(body: Body) -> tuple[str, ...]:
    names = []
    for tool in objects_in(body, "tools"):
        kind = as_text(tool.get("type")) or "function"
        held = tool.get(kind)
        names.append(as_text(held.get("name")) if type(held) is dict else as_text(tool.get("name")) or kind)
    names += [as_text(function.get("name")) for function in objects_in(body, "functions")]
    return tuple(names)


def _tool_kind(body: Body, name: str) -> str:
    for tool in as_objects(body.get("tools")):
        held = tool.get("custom")
        if type(held) is dict and held.get("name") == name:
            return "custom"
    return "function"


def _read_choice(body: Body) -> str:
    choice = body.get("tool_choice", body.get("function_call"))
    if type(choice) is str:
        return choice if choice in ("none", "required") else "auto"
    if type(choice) is not dict:
        return "auto"
    kind = choice.get("type")
    if kind == "allowed_tools":
        held = choice.get("allowed_tools")
        return "required" if type(held) is dict and held.get("mode") == "required" else "auto"
    held = choice.get(kind) if type(kind) is str else choice
    name = held.get("name") if type(held) is dict else choice.get("name")
    return as_text(name) or "required"


def _close_functions(body: Body, finishing: str | None) -> Body:
    """The same for requests in the form of 2023."""
    if not body.get("functions"):
        return body
    choice: Any = "none" if finishing is None else {"name": finishing}
    return body if body.get("function_call") == choice else {**body, "function_call": choice}


def _refusal(body: Body) -> str | None:
    modalities = body.get("modalities")
    if body.get("audio") is not None or (type(modalities) is list and "audio" in modalities):
        return "The request asks for spoken output, which cannot be metered while it streams: ask for text only."
    return None


def _survey(messages: Sequence[Mapping[str, Any]]) -> tuple[int, tuple[str, ...]]:
    """How much is attached, and what only the provider has."""
    media, held = 0, dict[str, None]()
    for message in messages:
        if type(audio := message.get("audio")) is dict:
            held[f"audio:{as_text(audio.get('id'))}"] = None
        content = message.get("content")
        if type(content) is not list:
            continue
        for part in content:
            if type(part) is dict and part.get("type") in _MEDIA:
                media += 1
                file = part.get("file")
                if type(file) is dict and file.get("file_id"):
                    held[f"file:{as_text(file['file_id'])}"] = None
    return media, tuple(held)


def _user_texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            return
        if role != "user":
            continue
        if type(content) is str:
            yield content
        else:
            yield from [as_text(part.get("text")) for part in as_objects(content)]


# --- the conversation -----------------------------------------------------------------------------------------


class _Past:
    """Reads the conversation of a request."""

    def call_ids(self, body: Body) -> tuple[str, ...]:
        """The ids of all calls."""
        calls = [call for message in body["messages"] for call in as_objects(message.get("tool_calls"))]
        return tuple([call["id"] for call in calls if type(call.get("id")) is str])

    def steps(self, body: Body, most: int) -> tuple[PastStep, ...]:
        """The newest steps."""
        found = StepCollector(most)
        for message in reversed(body["messages"]):
            role = message.get("role")
            if role == "tool":
                found.add_result(result_of(as_text(message.get("tool_call_id")), "", message.get("content")))
            elif role == "function":  # the form of 2023 has names instead of ids
                found.add_result(result_of(as_text(message.get("name")), "", message.get("content")))
            elif role == "assistant":
                found.add_calls(_read_calls(message))
            if found.is_full:
                break
        return found.steps()

    def prefix_digests(self, body: Body) -> tuple[bytes, ...]:
        """A digest after each message."""
        return rolling_digests(body["messages"])


_PAST = _Past()


def _read_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    calls = []
    for call in as_objects(message.get("tool_calls")):
        held = call.get("function") or call.get("custom")
        held = held if type(held) is dict else {}
        given = held.get("arguments", held.get("input"))
        calls.append(call_of(as_text(call.get("id")), as_text(held.get("name")), given if type(given) is str else {}))
    legacy = message.get("function_call")
    if type(legacy) is dict:
        name = as_text(legacy.get("name"))
        calls.append(call_of(name, name, as_text(legacy.get("arguments"))))
    return calls


# --- turns of ours --------------------------------------------------------------------------------------------


def _legal_turn(message: dict[str, Any], text: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    if not calls and set(message) <= set(_OWN_TURN) and text:
        return message
    legal = {name: value for name, value in message.items() if name in _OWN_TURN}
    legal["content"] = message.get("content") if text else NOTHING
    return {**legal, "tool_calls": calls} if calls else legal


def _call_delta(facts: RequestFacts, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    written = {"name": name, "arguments": write_body(dict(arguments)).decode()}
    if not facts.body.get("tools") and facts.body.get("functions"):
        return {"function_call": written}
    call_id = f"call_glidepath{secrets.token_hex(8)}"
    return {"tool_calls": [{"index": 0, "id": call_id, "type": "function", "function": written}]}


def _call_stop(facts: RequestFacts) -> str:
    return "tool_calls" if facts.body.get("tools") or not facts.body.get("functions") else "function_call"
