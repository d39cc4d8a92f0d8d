"""OpenAI Responses: requests, edits, and replies of our own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from glidepath.apps.gate.dialects.conversations import (
    StepCollector,
    hints_from,
    place_notices,
    result_of,
    rolling_digests,
    text_of,
    title_of,
    with_inserted,
)
from glidepath.apps.gate.dialects.dialect import BadRequest, Body, Notice, OwnReply, PastStep, RequestFacts, WireAnswer
from glidepath.apps.gate.dialects.frames import frame_of
from glidepath.apps.gate.dialects.openai_words import find_hidden_reasoning, openai_error
from glidepath.apps.gate.dialects.responses_items import (
    OWN,
    EventWriter,
    call_in,
    close_response,
    is_client_call,
    message_item,
    new_response,
    own_id,
    previous_of,
)
from glidepath.apps.gate.dialects.responses_stream import ResponsesStream
from glidepath.apps.gate.dialects.wire_body import (
    as_objects,
    as_text,
    body_of,
    count_in,
    flag_in,
    kind_of,
    model_in,
    object_in,
    objects_in,
    write_body,
)
from glidepath.models import call_of
from glidepath.values import ToolCall

NAME = "openai-responses"
_CLIENT_TOOLS = ("function", "custom", "namespace", "local_shell", "shell", "apply_patch", "computer")
"""How the types of tools begin that the client runs. Any other type is the provider's: it runs and bills it."""
_TEXTS = ("input_text", "output_text", "text")
_ASKING = ("user", "system", "developer")
_MEDIA = ("input_image", "input_file", "input_audio")
NOTHING = "…"


class ResponsesDialect:
    """OpenAI's Responses endpoint."""

    name = NAME

    # --- requests -------------------------------------------------------------------------------------------------

    def read_request(
        self, body: object, path_model: str | None = None, stream: bool | None = None, framing: str = "sse"
    ) -> RequestFacts:
        """The facts of a request; raises `BadRequest`."""
        given = body_of(body)
        items = _items_in(given)
        prompt = object_in(given, "prompt")
        model = path_model or (as_text(given.get("model")) if prompt else "") or model_in(given)
        tools = [*objects_in(given, "tools"), *_list_added_tools(items)]
        own, provided = _split_tools(tools)
        media, files = _survey(items)
        wanted = object_in(given, "text").get("format")
        wanted = wanted if type(wanted) is dict else {}
        schema = wanted.get("schema")
        effort = object_in(given, "reasoning").get("effort")
        return RequestFacts(
            dialect=NAME,
            body=given,
            model=model,
            stream=flag_in(given, "stream") if stream is None else stream,
            framing=framing,
            max_output=count_in(given, "max_output_tokens", least=0),
            messages=len(items),
            tool_names=own,
            server_tools=provided,
            tool_choice=_read_choice(given.get("tool_choice")),
            hidden="asked" if provided else find_hidden_reasoning(model, effort),
            other_models=tuple([as_text(tool.get("model")) for tool in tools if as_text(tool.get("model"))]),
            held_by_server=(*_list_held_input(given, tools), *files),
            media=media,
            output_schema=schema if type(schema) is dict else None,
            wants_json=wanted.get("type") in ("json_object", "json_schema"),
            first_text=title_of(_user_texts(items)),
            hints=hints_from(given, "user", "safety_identifier", "prompt_cache_key", "service_tier"),
            refusal=_refusal(given),
            past=_PAST,
        )

    def insert_notices(self, body: Body, notices: Sequence[Notice]) -> Body:
        """Each notice is a message of the user."""
        if not notices:
            return body
        items = _items_of(body)
        made: dict[int, list[Any]] = {
            place: [_user_item(text) for text in texts] for place, texts in place_notices(items, notices).items()
        }
        return with_inserted(body, "input", items, made)

    def close_tools(self, body: Body, finishing: str | None = None) -> Body:
        """No call of any kind, or the finishing tool."""
        tools = [*as_objects(body.get("tools")), *_list_added_tools(_items_of(body))]
        if not tools:
            return body
        choice: Any = "none"
        if finishing is not None:
            is_custom = any(
                tool.get("type") == "custom" and tool.get("name") == finishing for tool in _flatten_namespaces(tools)
            )
            choice = {"type": "custom" if is_custom else "function", "name": finishing}
        return body if body.get("tool_choice") == choice else {**body, "tool_choice": choice}

    def set_streaming(self, body: Body, *, with_usage: bool = True) -> Body:  # noqa: ARG002 - the port's
        """Streams always report their usage here."""
        return body if body.get("stream") is True else {**body, "stream": True}

    def streaming_target(self, path: str, query: str) -> tuple[str, str]:
        """The same: the body says whether it streams."""
        return path, query

    def legalize(self, body: Body, is_ours: Callable[[str], bool]) -> Body:
        """Messages of ours without an id and without the reasoning before them; calls of ours as text.

        Reasoning of a reply that broke off before what it led to is left out: OpenAI refuses it.
        """
        changed = _without_own_response(body)
        items = body.get("input")
        if type(items) is not list:
            return changed
        legal = _legal_items(items, is_ours)
        if len(legal) == len(items) and all(new is old for new, old in zip(legal, items, strict=True)):
            return changed
        return {**changed, "input": legal}

    # --- replies --------------------------------------------------------------------------------------------------

    def open_reader(
        self, facts: RequestFacts, *, hide_calls: bool = False, finishing: str | None = None, hold_calls: bool = True
    ) -> ResponsesStream:
        """Follow a streamed response."""
        return ResponsesStream(facts, hide_calls=hide_calls, finishing=finishing, hold_calls=hold_calls)

    def write_reply(self, facts: RequestFacts, reply: OwnReply) -> WireAnswer:
        """Our own words as a response."""
        writer, mark = EventWriter(), secrets.token_hex(8)
        response = new_response(facts, own_id(facts, mark))
        frames = [writer.write(f"response.{kind}", response=response) for kind in ("created", "in_progress")]
        output: list[dict[str, Any]] = []
        if reply.text or reply.call is None:
            output.append(message_item(f"msg_glidepath_{mark}", reply.text or NOTHING))
            frames.append(writer.add_message(0, output[0]))
        if reply.call is not None:
            output.append(_call_item(facts, mark, *reply.call))
            frames.append(writer.add_call(len(output) - 1, output[-1]))
        response = close_response(response, output, reply.usage)
        if not facts.stream:
            return WireAnswer(status=200, content_type="application/json", body=write_body(response))
        frames.append(writer.write("response.completed", response=response))
        return WireAnswer(status=200, content_type="text/event-stream; charset=utf-8", body=b"".join(frames))

    def write_error(self, status: int, kind: str, message: str) -> WireAnswer:
        """An error as OpenAI writes it."""
        return WireAnswer(status=status, content_type="application/json", body=openai_error(status, kind, message))

    def write_stream_error(self, status: int, kind: str, message: str) -> bytes:
        """The event `response.failed`, which Codex knows, with a field `error`, at which the SDK raises."""
        error = {"code": kind or str(status), "message": message}
        response = {"id": f"{OWN}_failed", "object": "response", "status": "failed", "error": error, "output": []}
        event = {"type": "response.failed", "sequence_number": 0, "response": response, "error": error}
        return frame_of(write_body(event), "response.failed")

    def keep_alive(self, facts: RequestFacts) -> bytes:
        """A comment; white space for a client that waits for one JSON document."""
        return b": keep-alive\n\n" if facts.stream else b"\n"


# --- looks at requests ----------------------------------------------------------------------------------------


def _items_in(body: Body) -> list[dict[str, Any]]:
    """The items of a request; a text is one message. Raises `BadRequest`."""
    given = body.get("input")
    if given is not None and type(given) not in (str, list):
        raise BadRequest("input", f"is {kind_of(given)}: send a text or a list of items")
    return objects_in(body, "input") if type(given) is list else _items_of(body)


def _items_of(body: Body) -> list[Any]:
    given = body.get("input")
    if type(given) is list:
        return given
    return [{"role": "user", "content": given}] if type(given) is str else []


def _user_item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _list_added_tools(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools that a request declares among its items."""
    holders = [item for item in items if type(item) is dict and item.get("type") in _TOOL_HOLDERS]
    return [tool for item in holders for tool in as_objects(item.get("tools"))]


_TOOL_HOLDERS = ("additional_tools", "tool_search_output")


def _flatten_namespaces(tools: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from as_objects(tool.get("tools"))
        else:
            yield tool


def _split_tools(tools: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the client's own tools, and the types of the provider's."""
    own, provided = [], []
    for tool in _flatten_namespaces(tools):
        kind = as_text(tool.get("type")) or "function"
        if kind.startswith(_CLIENT_TOOLS) or (kind == "tool_search" and tool.get("execution") == "client"):
            own.append(as_text(tool.get("name")) or kind)
        else:
            provided.append(kind)
    return tuple(own), tuple(provided)


def _read_choice(choice: object) -> str:
    if type(choice) is str:
        return choice if choice in ("none", "required") else "auto"
    if type(choice) is not dict:
        return "auto"
    if choice.get("type") == "allowed_tools":
        return "required" if choice.get("mode") == "required" else "auto"
    return as_text(choice.get("name")) or as_text(choice.get("type")) or "required"


def _list_held_input(body: Body, tools: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Input that the provider has kept."""
    if previous := as_text(body.get("previous_response_id")):
        yield f"previous_response_id:{previous}"
    for field in ("conversation", "prompt"):
        held = body.get(field)
        name = held.get("id") if type(held) is dict else held
        if as_text(name):
            yield f"{field}:{name}"
    for tool in tools:
        if container := as_text(tool.get("container")):
            yield f"container:{container}"


def _survey(items: Sequence[Mapping[str, Any]]) -> tuple[int, tuple[str, ...]]:
    """How much is attached, and what only the provider has."""
    media, held = 0, dict[str, None]()
    for item in items:
        if item.get("type") == "item_reference":
            held[f"item:{as_text(item.get('id'))}"] = None
        for content in (item.get("content"), item.get("output")):
            if type(content) is not list:
                continue
            for part in content:
                if type(part) is dict and part.get("type") in _MEDIA:
                    media += 1
                    if part.get("file_id"):
                        held[f"file:{as_text(part['file_id'])}"] = None
    return media, tuple(held)


def _refusal(body: Body) -> str | None:
    if flag_in(body, "background"):
        return "The request asks for a background response, which nobody can meter or stop: send it without background."
    return None


def _user_texts(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for item in items:
        role, content = item.get("role"), item.get("content")
        if role == "assistant" or is_client_call(item):
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
        """The ids of all calls of the client's tools."""
        calls = [item for item in as_objects(body.get("input")) if is_client_call(item)]
        return tuple([call["call_id"] for call in calls if type(call.get("call_id")) is str])

    def steps(self, body: Body, most: int) -> tuple[PastStep, ...]:
        """The newest steps: calls with nothing but the model's own items between them are one step."""
        found = StepCollector(most)
        calls: list[ToolCall] = []
        for item in reversed(as_objects(body.get("input"))):
            if as_text(item.get("type")).endswith("_output"):
                found.add_calls(calls[::-1])
                calls = []
                found.add_result(result_of(as_text(item.get("call_id")), "", item.get("output")))
            elif is_client_call(item):
                call = call_in(item)
                calls.append(call_of(call.id, call.name, call.arguments))
            if found.is_full:
                break
        found.add_calls(calls[::-1])
        return found.steps()

    def prefix_digests(self, body: Body) -> tuple[bytes, ...]:
        """A digest after each item."""
        return rolling_digests(_items_of(body))


_PAST = _Past()


# --- turns of ours --------------------------------------------------------------------------------------------


def _without_own_response(body: Body) -> Body:
    """The request without a response of ours before it: the provider never had it. The one before that stays."""
    previous = previous_of(body)
    if previous == as_text(body.get("previous_response_id")):
        return body
    rest = {name: value for name, value in body.items() if name != "previous_response_id"}
    return {**rest, "previous_response_id": previous} if previous else rest


def _legal_items(items: Sequence[Any], is_ours: Callable[[str], bool]) -> list[Any]:
    legal: list[Any] = []
    made = set[str]()
    for item in items:
        if type(item) is not dict:
            legal.append(item)
            continue
        call_id = as_text(item.get("call_id"))
        if is_client_call(item) and call_id and is_ours(call_id):
            made.add(call_id)
            _drop_reasoning(legal)
            call = call_in(item)
            legal.append({"role": "assistant", "content": f"Called {call.name} {call.arguments}"})
        elif call_id in made:
            legal.append(_user_item(text_of(item.get("output"), *_TEXTS) or NOTHING))
        elif item.get("role") == "assistant" and _is_own_text(item, is_ours):
            _drop_reasoning(legal)
            legal.append({name: value for name, value in item.items() if name not in ("id", "status")})
            if legal[-1] == item:
                legal[-1] = item
        else:
            if item.get("role") in _ASKING or as_text(item.get("type")).endswith("_output"):
                _drop_reasoning(legal)
            legal.append(item)
    _drop_reasoning(legal)
    return legal


def _is_own_text(item: Mapping[str, Any], is_ours: Callable[[str], bool]) -> bool:
    text = text_of(item.get("content"), *_TEXTS).strip()
    return bool(text) and is_ours(text)


def _drop_reasoning(items: list[Any]) -> None:
    """Reasoning is only legal before what followed it."""
    while items and type(items[-1]) is dict and items[-1].get("type") == "reasoning":
        items.pop()


def _call_item(facts: RequestFacts, mark: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    tools = [*as_objects(facts.body.get("tools")), *_list_added_tools(_items_of(facts.body))]
    written = write_body(dict(arguments)).decode()
    item = {"call_id": f"call_glidepath{mark}", "name": name, "status": "completed"}
    if any(tool.get("type") == "custom" and tool.get("name") == name for tool in _flatten_namespaces(tools)):
        text = arguments.get("input")
        return {
            "id": f"ctc_glidepath_{mark}",
            "type": "custom_tool_call",
            **item,
            "input": text if type(text) is str else written,
        }
    return {"id": f"fc_glidepath_{mark}", "type": "function_call", **item, "arguments": written}
