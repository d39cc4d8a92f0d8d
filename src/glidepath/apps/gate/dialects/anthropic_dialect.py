"""Anthropic Messages: requests, edits, and replies of our own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from glidepath.apps.gate.dialects.anthropic_stream import (
    NOTHING,
    AnthropicStream,
    MessageFolder,
    call_block,
    message_end,
    message_start,
    text_block,
)
from glidepath.apps.gate.dialects.conversations import (
    StepCollector,
    hints_from,
    place_notices,
    result_of,
    rolling_digests,
    stable,
    text_of,
    title_of,
    with_changed,
)
from glidepath.apps.gate.dialects.dialect import Body, Notice, OwnReply, PastStep, RequestFacts, WireAnswer
from glidepath.apps.gate.dialects.folding import fold
from glidepath.apps.gate.dialects.frames import data_of, frame_of
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
from glidepath.models.thinkers import claude_thinks_unasked, strip_cloud_prefix
from glidepath.values import ToolCall

NAME = "anthropic"
_CLIENT_TOOLS = ("custom", "bash_", "text_editor_", "computer_", "memory_", "browser_")
"""How the types of tools begin that the client runs. Any other type is the provider's: it runs and bills it."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_THOUGHTS = ("thinking", "redacted_thinking")
_MEDIA = ("image", "document")
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _Survey:
    """One look at all messages: what they attach, and what only the provider has."""

    __slots__ = ("held", "media")

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self.media = 0
        self.held: dict[str, None] = {}
        for message in messages:
            content = message.get("content")
            if type(content) is list:
                self._look(content)

    def _look(self, blocks: list[Any]) -> None:
        for block in blocks:
            if type(block) is not dict:
                continue
            kind = block.get("type")
            if kind in _MEDIA:
                self.media += 1
                source = block.get("source")
                if type(source) is dict and source.get("type") == "file":
                    self.held[f"file:{as_text(source.get('file_id'))}"] = None
            elif kind == "tool_result" and type(block.get("content")) is list:
                self._look(block["content"])
            elif kind == "container_upload":
                self.held[f"file:{as_text(block.get('file_id'))}"] = None


class AnthropicDialect:
    """Anthropic's Messages endpoint."""

    name = NAME

    # --- requests -------------------------------------------------------------------------------------------------

    def read_request(
        self, body: object, path_model: str | None = None, stream: bool | None = None, framing: str = "sse"
    ) -> RequestFacts:
        """The facts of a request; raises `BadRequest`."""
        given = body_of(body)
        messages = messages_in(given, "messages")
        model = path_model or model_in(given)
        own, provided = _split_tools(objects_in(given, "tools"))
        if objects_in(given, "mcp_servers"):
            provided = (*provided, "mcp")
        thinking = as_text(object_in(given, "thinking").get("type"))
        survey = _Survey(messages)
        wanted = object_in(given, "output_config").get("format") or given.get("output_format")
        schema = wanted.get("schema") if type(wanted) is dict else None
        return RequestFacts(
            dialect=NAME,
            body=given,
            model=model,
            stream=flag_in(given, "stream") if stream is None else stream,
            framing=framing,
            max_output=count_in(given, "max_tokens", least=0),
            messages=len(messages),
            tool_names=own,
            server_tools=provided,
            tool_choice=_read_choice(object_in(given, "tool_choice")),
            can_force=_can_force(model, thinking),
            hidden=_read_hidden(given, model, thinking, provided),
            other_models=_other_models(given),
            held_by_server=(*_list_held_input(given), *survey.held),
            media=survey.media,
            output_schema=schema if type(schema) is dict else None,
            wants_json=type(schema) is dict,
            first_text=title_of(_user_texts(messages)),
            hints=hints_from(given, "service_tier", "speed", "inference_geo", "user_profile_id"),
            past=_PAST,
        )

    def insert_notices(self, body: Body, notices: Sequence[Notice]) -> Body:
        """Each notice is a block of text at the end of the user's message that came last before its place."""
        messages = body.get("messages")
        if not notices or type(messages) is not list:
            return body
        changed = list(messages)
        for place, texts in place_notices(messages, notices).items():
            number = next((one for one in range(place - 1, -1, -1) if _role(messages[one]) == "user"), None)
            blocks = [{"type": "text", "text": text} for text in texts]
            if number is None:
                changed.insert(0, {"role": "user", "content": blocks})
                continue
            content = changed[number].get("content")
            if type(content) is not list:
                content = [{"type": "text", "text": content}] if type(content) is str and content else []
            changed[number] = {**changed[number], "content": [*content, *blocks]}
        return {**body, "messages": changed}

    def close_tools(self, body: Body, finishing: str | None = None) -> Body:
        """No call, or the finishing tool where thinking allows it to be forced."""
        if not body.get("tools"):
            return body
        choice: dict[str, Any] = {"type": "none"}
        thinking = body.get("thinking")
        kind = as_text(thinking.get("type")) if type(thinking) is dict else ""
        if finishing is not None and _can_force(as_text(body.get("model")), kind):
            choice = {"type": "tool", "name": finishing, "disable_parallel_tool_use": True}
        return body if body.get("tool_choice") == choice else {**body, "tool_choice": choice}

    def set_streaming(self, body: Body, *, with_usage: bool = True) -> Body:  # noqa: ARG002 - the port's
        """Streams always report their usage here."""
        return body if body.get("stream") is True else {**body, "stream": True}

    def streaming_target(self, path: str, query: str) -> tuple[str, str]:
        """The same: the body says whether it streams."""
        return path, query

    def legalize(self, body: Body, is_ours: Callable[[str], bool]) -> Body:
        """Turns of ours without thoughts; calls of ours, and what came back from them, as text."""
        made = set[str]()

        def change(message: dict[str, Any]) -> dict[str, Any]:
            content = message.get("content")
            if type(content) is not list:
                return message
            if message.get("role") == "assistant":
                made.update(_own_calls(content, is_ours))
                spoken = text_of(content, "text").strip()
                blocks = _legal_turn(content, made, is_own_text=bool(spoken) and is_ours(spoken))
            else:
                blocks = [_legal_result(block, made) for block in content]
            if len(blocks) == len(content) and all(new is old for new, old in zip(blocks, content, strict=True)):
                return message
            return {**message, "content": blocks or [{"type": "text", "text": NOTHING}]}

        return with_changed(body, "messages", change)

    # --- replies --------------------------------------------------------------------------------------------------

    def open_reader(
        self, facts: RequestFacts, *, hide_calls: bool = False, finishing: str | None = None, hold_calls: bool = True
    ) -> AnthropicStream:
        """Follow a streamed message."""
        return AnthropicStream(facts, hide_calls=hide_calls, finishing=finishing, hold_calls=hold_calls)

    def write_reply(self, facts: RequestFacts, reply: OwnReply) -> WireAnswer:
        """Our own words as a message."""
        frames = [message_start(facts, reply.usage, f"msg_glidepath_{secrets.token_hex(12)}")]
        if reply.text or reply.call is None:
            frames.append(text_block(0, reply.text or NOTHING))
        if reply.call is not None:
            name, arguments = reply.call
            call_id = f"toolu_glidepath_{secrets.token_hex(8)}"
            frames.append(call_block(int(bool(reply.text)), call_id, name, arguments))
        frames.append(message_end("end_turn" if reply.call is None else "tool_use", reply.usage))
        stream = b"".join(frames)
        if facts.stream:
            return WireAnswer(status=200, content_type="text/event-stream; charset=utf-8", body=stream)
        events = [parse_event(data_of(frame + b"\n\n").decode()) for frame in stream.split(b"\n\n") if frame]
        return WireAnswer(status=200, content_type="application/json", body=write_body(fold(MessageFolder(), events)))

    def write_error(self, status: int, kind: str, message: str) -> WireAnswer:
        """An error as Anthropic writes it. Clients decide by its type, so that our own kind is part of the text."""
        return WireAnswer(status=status, content_type="application/json", body=_error(status, kind, message))

    def write_stream_error(self, status: int, kind: str, message: str) -> bytes:
        """The event `error`."""
        return frame_of(_error(status, kind, message), "error")

    def keep_alive(self, facts: RequestFacts) -> bytes:
        """A ping; white space for a client that waits for one JSON document."""
        return b'event: ping\ndata: {"type": "ping"}\n\n' if facts.stream else b"\n"


def _error(status: int, kind: str, message: str) -> bytes:
    word = _ERRORS.get(status, "api_error")
    shown = f"{message} ({kind})" if kind and kind != word else message
    return write_body({"type": "error", "error": {"type": word, "message": shown}})


# --- looks at requests ----------------------------------------------------------------------------------------


def _split_tools(tools: list[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the client's own tools, and the types of the provider's."""
    own, provided = [], []
    for tool in tools:
        kind = tool.get("type")
        if type(kind) is not str or kind.startswith(_CLIENT_TOOLS):
            own.append(as_text(tool.get("name")) or as_text(kind))
        else:
            provided.append(kind)
    return tuple(own), tuple(provided)


def _read_choice(choice: Mapping[str, Any]) -> str:
    kind = as_text(choice.get("type")) or "auto"
    if kind == "tool":
        return as_text(choice.get("name")) or "required"
    return _CHOICES.get(kind, "auto")


def _can_force(model: str, thinking: str) -> bool:
    if thinking in ("", "disabled"):
        return not (claude_thinks_unasked(model) and thinking != "disabled")
    return False


def _read_hidden(body: Body, model: str, thinking: str, provided: tuple[str, ...]) -> str:
    """Thoughts are billed whole and shown as a summary, or not at all; tools of the provider write out of sight."""
    edits = as_objects(object_in(body, "context_management").get("edits"))
    compacts = any(as_text(edit.get("type")).startswith("compact") for edit in edits)
    if provided or compacts or thinking not in ("", "disabled"):
        return "asked"
    if thinking == "disabled":
        return "none"
    if claude_thinks_unasked(model):
        return "asked"
    return "none" if strip_cloud_prefix(model).startswith("claude-") else "unknown"


def _other_models(body: Body) -> tuple[str, ...]:
    fallbacks = body.get("fallbacks")
    if type(fallbacks) is str:
        return (fallbacks,)
    listed = fallbacks if type(fallbacks) is list else []
    named = [one.get("model") if type(one) is dict else one for one in listed]
    named += [tool.get("model") for tool in as_objects(body.get("tools")) if tool.get("type") is not None]
    return tuple([name for name in named if type(name) is str])


def _list_held_input(body: Body) -> Iterator[str]:
    """Input that the provider has kept."""
    container = body.get("container")
    if type(container) is str:
        yield f"container:{container}"
    elif type(container) is dict and container.get("id"):
        yield f"container:{as_text(container['id'])}"
    thread = body.get("thread")
    if type(thread) is dict and thread.get("type") == "continue":
        yield f"thread:{as_text(thread.get('previous_message_id'))}"


def _role(message: object) -> object:
    return message.get("role") if type(message) is dict else None


def _user_texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        if message.get("role") == "assistant":
            return
        content = message.get("content")
        if type(content) is str:
            yield content
        else:
            yield from [as_text(block.get("text")) for block in as_objects(content) if block.get("type") == "text"]


# --- the conversation -----------------------------------------------------------------------------------------


class _Past:
    """Reads the conversation of a request."""

    def call_ids(self, body: Body) -> tuple[str, ...]:
        """The ids of all calls of the client's tools."""
        turns = [message.get("content") for message in body["messages"] if message.get("role") == "assistant"]
        calls = [block for turn in turns for block in as_objects(turn) if block.get("type") == "tool_use"]
        return tuple([call["id"] for call in calls if type(call.get("id")) is str])

    def steps(self, body: Body, most: int) -> tuple[PastStep, ...]:
        """The newest steps."""
        found = StepCollector(most)
        for message in reversed(body["messages"]):
            blocks = as_objects(message.get("content"))
            if message.get("role") == "assistant":
                found.add_calls([_read_call(block) for block in blocks if block.get("type") == "tool_use"])
            else:
                for block in blocks:
                    if block.get("type") == "tool_result":
                        failed = block.get("is_error") is True
                        call_id = as_text(block.get("tool_use_id"))
                        found.add_result(result_of(call_id, "", block.get("content"), is_error=failed))
            if found.is_full:
                break
        return found.steps()

    def prefix_digests(self, body: Body) -> tuple[bytes, ...]:
        """Marks for the cache wander from message to message, and a marked text becomes a list: both are left out."""
        return rolling_digests(_plain(message) for message in body["messages"])


_PAST = _Past()


def _read_call(block: Mapping[str, Any]) -> ToolCall:
    given = block.get("input")
    return call_of(as_text(block.get("id")), as_text(block.get("name")), given if type(given) is dict else {})


def _plain(message: Mapping[str, Any]) -> tuple[object, ...]:
    content = message.get("content")
    if type(content) is str:
        content = [{"type": "text", "text": content}]
    return message.get("role"), [_drop_cache_mark(block) for block in content] if type(content) is list else content


def _drop_cache_mark(block: object) -> object:
    if type(block) is not dict or "cache_control" not in block:
        return block
    return {name: value for name, value in block.items() if name != "cache_control"}


# --- turns of ours --------------------------------------------------------------------------------------------


def _own_calls(content: list[Any], is_ours: Callable[[str], bool]) -> list[str]:
    calls = [block for block in as_objects(content) if block.get("type") == "tool_use"]
    return [call["id"] for call in calls if type(call.get("id")) is str and is_ours(call["id"])]


def _legal_turn(content: list[Any], made: set[str], *, is_own_text: bool) -> list[Any]:
    kept = []
    for block in content:
        kind = block.get("type") if type(block) is dict else None
        if kind in _THOUGHTS and (is_own_text or made):
            continue
        if kind == "tool_use" and as_text(block.get("id")) in made:
            called = f"{as_text(block.get('name'))} {stable(block.get('input')).decode()}"
            kept.append({"type": "text", "text": f"Called {called}"})
        else:
            kept.append(block)
    return kept


def _legal_result(block: object, made: set[str]) -> object:
    if type(block) is not dict or block.get("type") != "tool_result" or as_text(block.get("tool_use_id")) not in made:
        return block
    text = text_of(block.get("content"), "text") or NOTHING
    return {"type": "text", "text": text}
