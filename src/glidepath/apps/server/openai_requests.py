"""What OpenAI clients send: a field is honored, refused before a run starts, or documented as without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from glidepath._wire import Value
from glidepath.apps.server.client_tools import MOST_DEPTH, ClientTool, is_too_deep, make_client_tools
from glidepath.apps.server.per_request import NO_CHANGES, RequestChanges
from glidepath.apps.server.refusals import HttpError

__all__ = ["ChatBody", "ConversationBody", "ResponsesBody", "read_chat_changes", "read_response_changes"]

_MOST_TOKENS = 10_000_000


class ResponsesBody(Value, frozen=True, kw_only=True):
    """What `POST /v1/responses` takes; other fields have no effect."""

    model: str
    input: Any
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | Mapping[str, Any] | None = None
    stream: bool | None = None
    metadata: Mapping[str, Any] | None = None
    tools: Sequence[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: Mapping[str, Any] | None = None
    max_output_tokens: Any = None
    background: bool | None = None
    prompt: Any = None


class ChatBody(Value, frozen=True, kw_only=True):
    """What `POST /v1/chat/completions` takes; other fields have no effect."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    stream: bool | None = None
    stream_options: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    tools: Sequence[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    stop: Any = None
    n: int | None = None
    functions: Any = None
    function_call: Any = None
    audio: Any = None


class ConversationBody(Value, frozen=True, kw_only=True):
    """What `POST /v1/conversations` takes."""

    items: Sequence[Any] | None = None
    metadata: Mapping[str, Any] | None = None


def read_chat_changes(body: ChatBody) -> RequestChanges:
    """What a chat completion changes about the agent; raises `HttpError`."""
    if body.n not in (None, 1):
        raise HttpError(400, "bad_n", "n must be 1: an agent gives one answer", param="n")
    if body.functions or body.function_call:
        _refuse("functions", "is the old form: send tools")
    if body.audio:
        _refuse("audio", "is not offered: an agent answers with text")
    if body.stop:
        _refuse("stop", "is not offered: it would cut the calls of the agent's own tools as well; leave it out")
    asked = body.response_format or {}
    kind = asked.get("type", "text")
    given = asked.get("json_schema")
    schema = _read_schema("response_format", kind, given.get("schema") if isinstance(given, Mapping) else None)
    most = [
        _read_most(name, value)
        for name, value in (
            ("max_tokens", body.max_tokens),
            ("max_completion_tokens", body.max_completion_tokens),
        )
        if value is not None
    ]
    tools = [
        _ask_tool(place, one, one.get("function") if isinstance(one, Mapping) else None)
        for place, one in enumerate(body.tools or ())
    ]
    return _collect(body, tools, schema, min(most, default=None))


def read_response_changes(body: ResponsesBody) -> RequestChanges:
    """What a response changes about the agent; raises `HttpError`."""
    if body.prompt:
        _refuse("prompt", "is not offered: prompts are not stored here; send input")
    asked = (body.text or {}).get("format")
    given: Mapping[str, Any] = asked if isinstance(asked, Mapping) else {}
    schema = _read_schema("text.format", given.get("type", "text"), given.get("schema"))
    most = None if body.max_output_tokens is None else _read_most("max_output_tokens", body.max_output_tokens)
    return _collect(body, [_ask_tool(place, one, one) for place, one in enumerate(body.tools or ())], schema, most)


def _collect(
    body: ChatBody | ResponsesBody, tools: Sequence[ClientTool], schema: Mapping[str, Any] | None, most: int | None
) -> RequestChanges:
    if tools and body.parallel_tool_calls is False:
        _refuse("parallel_tool_calls", "must not be false: a turn of an agent may have several calls")
    if body.tool_choice not in (None, "auto", "none"):
        _refuse("tool_choice", "must be auto or none: the agent decides when it calls a tool")
    made = make_client_tools(tools)
    if body.tool_choice == "none":
        made = ()
    if not made and schema is None and most is None:
        return NO_CHANGES
    return RequestChanges(tools=made, schema=schema, max_output_tokens=most)


def _ask_tool(place: int, one: object, function: object) -> ClientTool:
    """One tool of a request; only functions are taken."""
    kind = one.get("type") if isinstance(one, Mapping) else None
    if kind != "function" or not isinstance(function, Mapping):
        raise HttpError(
            400,
            "tools",
            f"tools[{place}]: type must be function, not {kind!r:.40}: the agent brings its other tools itself",
            param=f"tools[{place}]",
        )
    return ClientTool(
        place=f"tools[{place}]",
        name=function.get("name"),
        description=function.get("description"),
        parameters=function.get("parameters"),
    )


def _read_schema(field: str, kind: object, schema: object) -> Mapping[str, Any] | None:
    """The JSON Schema of the answer; None for plain text."""
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        _refuse(field, f"type must be text, json_object or json_schema, not {kind!r:.40}")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        _refuse(field, 'the schema must describe an object: {"type": "object", "properties": ...}')
    if is_too_deep(schema):
        _refuse(field, f"the schema must be nested {MOST_DEPTH} deep at most")
    lost = _find_lost_reference(schema)
    if lost is not None:
        _refuse(field, f"the schema has no {lost!r:.80}, which a $ref names; nothing is fetched")
    return schema


def _find_lost_reference(schema: Mapping[str, Any]) -> str | None:
    """The first `$ref` that names nothing in the schema."""
    left: list[Any] = [schema]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            reference = one.get("$ref")
            if isinstance(reference, str) and not _has_place(schema, reference):
                return reference
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
    return None


def _has_place(schema: Any, reference: str) -> bool:
    if not reference.startswith("#"):
        return False
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, Mapping) or key not in schema:
            return False
        schema = schema[key]
    return True


def _read_most(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_TOKENS:
        _refuse(field, f"must be a whole number from 1, not {value!r:.40}")
    return value


def _refuse(field: str, why: str) -> NoReturn:
    raise HttpError(400, f"bad_{field.replace('.', '_')}", f"{field} {why}", param=field)
