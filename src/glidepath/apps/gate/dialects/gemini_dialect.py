"""Gemini's generateContent: requests, edits, and replies of our own. Fields come in either spelling."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from glidepath.apps.gate.dialects.conversations import (
    LONGEST_HINT,
    StepCollector,
    place_notices,
    result_of,
    rolling_digests,
    stable,
    title_of,
    with_changed,
)
from glidepath.apps.gate.dialects.dialect import BadRequest, Body, Notice, OwnReply, PastStep, RequestFacts, WireAnswer
from glidepath.apps.gate.dialects.gemini_stream import NOTHING, GeminiStream, frame_chunk, pick, snake, usage_words
from glidepath.apps.gate.dialects.wire_body import (
    as_objects,
    as_text,
    body_of,
    count_in,
    messages_in,
    object_in,
    objects_in,
    write_body,
)
from glidepath.models import call_of
from glidepath.models.formats.read_gemini import unwrap_response
from glidepath.models.thinkers import UNTHINKING
from glidepath.values import ToolCall

NAME = "gemini"
_CHOICES = {"ANY": "required", "NONE": "none"}
_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiDialect:
    """Google's generateContent and streamGenerateContent."""

    name = NAME

    # --- requests -------------------------------------------------------------------------------------------------

    def read_request(
        self, body: object, path_model: str | None = None, stream: bool | None = None, framing: str = "sse"
    ) -> RequestFacts:
        """The facts of a request; raises `BadRequest`. The path has the model, and whether it streams."""
        given = body_of(body)
        contents = messages_in(given, "contents")
        model = (path_model or as_text(given.get("model"))).rpartition("models/")[2]
        if not model:
            raise BadRequest(
                "model", "is missing in the path: name the model, as in /v1beta/models/NAME:generateContent"
            )
        settings = _object(given, "generationConfig")
        own, provided = _split_tools(_objects(given, "tools"))
        media, held = _survey(contents)
        cached = as_text(pick(given, "cachedContent"))
        schema = pick(settings, "responseJsonSchema") or pick(settings, "responseSchema")
        labels = _object(given, "labels")
        return RequestFacts(
            dialect=NAME,
            body=given,
            model=model,
            stream=bool(stream),
            framing=framing,
            max_output=_count(settings, "maxOutputTokens"),
            copies=_count(settings, "candidateCount") or 1,
            messages=len(contents),
            tool_names=own,
            server_tools=provided,
            tool_choice=_read_choice(given),
            hidden=_read_hidden(model, _object(settings, "thinkingConfig"), settings, provided),
            held_by_server=(*([f"cachedContent:{cached}"] if cached else []), *held),
            media=media,
            output_schema=schema if type(schema) is dict else None,
            wants_json=pick(settings, "responseMimeType") == "application/json",
            first_text=title_of(_user_texts(contents)),
            hints={f"labels.{name}": value[:LONGEST_HINT] for name, value in labels.items() if type(value) is str},
            refusal=_refusal(settings),
            past=_PAST,
        )

    def insert_notices(self, body: Body, notices: Sequence[Notice]) -> Body:
        """Each notice is a text at the end of the user's content that came last before its place."""
        contents = body.get("contents")
        if not notices or type(contents) is not list:
            return body
        changed = list(contents)
        for place, texts in place_notices(contents, notices).items():
            number = next((one for one in range(place - 1, -1, -1) if _is_user(contents[one])), None)
            added = [{"text": text} for text in texts]
            if number is None:
                changed.insert(0, {"role": "user", "parts": added})
                continue
            parts = changed[number].get("parts")
            changed[number] = {**changed[number], "parts": [*(parts if type(parts) is list else ()), *added]}
        return {**body, "contents": changed}

    def close_tools(self, body: Body, finishing: str | None = None) -> Body:
        """No call, or the finishing tool. The mode is only legal with functions: the provider's tools stay."""
        if not _split_tools(as_objects(body.get("tools")))[0]:
            return body
        mode: dict[str, Any] = {"mode": "NONE"}
        if finishing is not None:
            mode = {"mode": "ANY", "allowedFunctionNames": [finishing]}
        name = "tool_config" if body.get("tool_config") is not None else "toolConfig"
        config = body.get(name)
        config = config if type(config) is dict else {}
        inner = "function_calling_config" if "function_calling_config" in config else "functionCallingConfig"
        return body if config.get(inner) == mode else {**body, name: {**config, inner: mode}}

    def set_streaming(self, body: Body, *, with_usage: bool = True) -> Body:  # noqa: ARG002 - the port's
        """The same: the path says whether it streams."""
        return body

    def streaming_target(self, path: str, query: str) -> tuple[str, str]:
        """The streaming method, as server-sent events."""
        fields = [field for field in query.split("&") if field and field.partition("=")[0] != "alt"]
        head, colon, method = path.rpartition(":")
        if colon and method == "generateContent":
            path = f"{head}:streamGenerateContent"
        return path, "&".join([*fields, "alt=sse"])

    def legalize(self, body: Body, is_ours: Callable[[str], bool]) -> Body:
        """Turns of ours without thoughts and signatures; calls of ours, and what came back from them, as text."""
        made = set[str]()

        def change(content: dict[str, Any]) -> dict[str, Any]:
            parts = content.get("parts")
            if type(parts) is not list:
                return content
            if content.get("role") == "model":
                spoken = _text_in(parts).strip()
                legal = _legal_turn(parts, made, is_ours, is_own_text=bool(spoken) and is_ours(spoken))
            else:
                legal = [_legal_result(part, made) for part in parts]
            if len(legal) == len(parts) and all(new is old for new, old in zip(legal, parts, strict=True)):
                return content
            return {**content, "parts": legal or [{"text": NOTHING}]}

        return with_changed(body, "contents", change)

    # --- replies --------------------------------------------------------------------------------------------------

    def open_reader(
        self, facts: RequestFacts, *, hide_calls: bool = False, finishing: str | None = None, hold_calls: bool = True
    ) -> GeminiStream:
        """Follow a streamed reply."""
        return GeminiStream(facts, hide_calls=hide_calls, finishing=finishing, hold_calls=hold_calls)

    def write_reply(self, facts: RequestFacts, reply: OwnReply) -> WireAnswer:
        """Our own words as a reply."""
        parts: list[dict[str, Any]] = []
        if reply.text or reply.call is None:
            parts.append({"text": reply.text or NOTHING})
        if reply.call is not None:
            name, arguments = reply.call
            call_id = f"glidepath_{secrets.token_hex(8)}"
            parts.append({"functionCall": {"id": call_id, "name": name, "args": dict(arguments)}})
        whole = {
            "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": usage_words(reply.usage),
            "modelVersion": facts.model,
            "responseId": f"glidepath_{secrets.token_hex(12)}",
        }
        if facts.stream and facts.framing != "array":
            return WireAnswer(status=200, content_type="text/event-stream", body=frame_chunk(whole))
        body = b"[%b]" % write_body(whole) if facts.stream else write_body(whole)
        return WireAnswer(status=200, content_type="application/json; charset=UTF-8", body=body)

    def write_error(self, status: int, kind: str, message: str) -> WireAnswer:
        """An error as Google writes it."""
        content_type = "application/json; charset=UTF-8"
        return WireAnswer(status=status, content_type=content_type, body=write_body(_error(status, kind, message)))

    def write_stream_error(self, status: int, kind: str, message: str) -> bytes:
        """An error in place of a chunk."""
        return frame_chunk(_error(status, kind, message))

    def keep_alive(self, facts: RequestFacts) -> bytes:
        """Nothing in a stream: Google's clients read a comment, or a blank line, as a broken chunk."""
        return b"" if facts.stream and facts.framing != "array" else b"\n"


def _error(status: int, kind: str, message: str) -> dict[str, Any]:
    error: dict[str, Any] = {"code": status, "message": message, "status": _ERRORS.get(status, "INTERNAL")}
    if kind:
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": kind, "domain": "glidepath"}
        error["details"] = [reason]
    return {"error": error}


# --- looks at requests ----------------------------------------------------------------------------------------


def _spelling(given: Mapping[str, Any], name: str) -> str:
    return name if given.get(name) is not None else snake(name)


def _object(given: dict[str, Any], name: str) -> dict[str, Any]:
    return object_in(given, _spelling(given, name))


def _objects(given: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return objects_in(given, _spelling(given, name))


def _count(given: dict[str, Any], name: str) -> int | None:
    return count_in(given, _spelling(given, name), least=0)


def _split_tools(tools: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the client's functions, and the provider's tools."""
    own, provided = list[str](), list[str]()
    for tool in tools:
        declared = pick(tool, "functionDeclarations")
        own += [as_text(function.get("name")) for function in as_objects(declared)]
        for name in tool:
            kind = snake(name) if type(name) is str else ""
            if kind == "computer_use":
                own.append(kind)
            elif kind != "function_declarations" and tool[name] is not None:
                provided.append(kind)
    return tuple(own), tuple(provided)


def _read_choice(body: Body) -> str:
    config = pick(_object(body, "toolConfig"), "functionCallingConfig")
    if type(config) is not dict:
        return "auto"
    allowed = pick(config, "allowedFunctionNames")
    mode = as_text(config.get("mode")).upper()
    if mode == "ANY" and type(allowed) is list and len(allowed) == 1 and type(allowed[0]) is str:
        return allowed[0]
    return _CHOICES.get(mode, "auto")


def _read_hidden(
    model: str, thinking: Mapping[str, Any], settings: Mapping[str, Any], provided: tuple[str, ...]
) -> str:
    """Thoughts are billed whole and shown as a summary; tools of the provider write out of sight."""
    modalities = pick(settings, "responseModalities")
    is_textual = type(modalities) is not list or all(one == "TEXT" for one in modalities)
    if provided or not is_textual:
        return "asked"
    if UNTHINKING.match(model) or pick(thinking, "thinkingBudget") == 0:
        return "none"
    return "asked" if thinking or model.startswith("gemini-") else "unknown"


def _refusal(settings: Mapping[str, Any]) -> str | None:
    modalities = pick(settings, "responseModalities")
    spoken = type(modalities) is list and any(type(one) is str and one.upper() == "AUDIO" for one in modalities)
    if spoken or pick(settings, "speechConfig") is not None:
        return "The request asks for spoken output, which cannot be metered while it streams: ask for text only."
    return None


def _survey(contents: Sequence[Mapping[str, Any]]) -> tuple[int, tuple[str, ...]]:
    """How much is attached, and what only the provider has."""
    media, held = 0, dict[str, None]()
    for content in contents:
        parts = content.get("parts")
        if type(parts) is not list:
            continue
        for part in parts:
            if type(part) is not dict or "text" in part:
                continue
            if pick(part, "inlineData") is not None:
                media += 1
            elif type(file := pick(part, "fileData")) is dict:
                media += 1
                held[f"file:{as_text(pick(file, 'fileUri'))}"] = None
    return media, tuple(held)


def _is_user(content: object) -> bool:
    return type(content) is dict and content.get("role") != "model"


def _text_in(parts: Sequence[Any]) -> str:
    texts = [part["text"] for part in parts if type(part) is dict and not part.get("thought") and "text" in part]
    return "".join([text for text in texts if type(text) is str])


def _user_texts(contents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for content in contents:
        if content.get("role") == "model":
            return
        yield from [as_text(part.get("text")) for part in as_objects(content.get("parts"))]


# --- the conversation -----------------------------------------------------------------------------------------


def _calls_in(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = [pick(part, "functionCall") for part in as_objects(content.get("parts"))]
    return [call for call in calls if type(call) is dict]


def _results_in(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    results = [pick(part, "functionResponse") for part in as_objects(content.get("parts"))]
    return [result for result in results if type(result) is dict]


class _Past:
    """Reads the conversation of a request."""

    def call_ids(self, body: Body) -> tuple[str, ...]:
        """The ids of all calls that have one: many clients send none."""
        calls = [call for content in body["contents"] for call in _calls_in(content)]
        return tuple([call["id"] for call in calls if type(call.get("id")) is str and call["id"]])

    def steps(self, body: Body, most: int) -> tuple[PastStep, ...]:
        """The newest steps. A result without an id belongs to the first call of its name that has none yet."""
        found = StepCollector(most)
        results: list[dict[str, Any]] = []
        for content in reversed(body["contents"]):
            results = [*_results_in(content), *results]
            calls = _calls_in(content)
            if calls:
                found.add_calls([self._match(found, call, results) for call in calls])
                results = []
            if found.is_full:
                break
        return found.steps()

    @staticmethod
    def _match(found: StepCollector, call: Mapping[str, Any], results: list[dict[str, Any]]) -> ToolCall:
        name = as_text(call.get("name"))
        same = [one for one in results if as_text(call.get("id")) and one.get("id") == call.get("id")]
        same = same or [one for one in results if one.get("name") == name]
        call_id = as_text(call.get("id")) or f"call_{found.calls}_{len(results)}_{name}"
        if same:
            results.remove(same[0])
            response = same[0].get("response")
            held, is_error = unwrap_response(response) if type(response) is dict else (response, False)
            found.add_result(result_of(call_id, name, held, is_error=is_error))
        arguments = call.get("args")
        return call_of(call_id, name, arguments if type(arguments) is dict else {})

    def prefix_digests(self, body: Body) -> tuple[bytes, ...]:
        """A digest after each content."""
        return rolling_digests(body["contents"])


_PAST = _Past()


# --- turns of ours --------------------------------------------------------------------------------------------


def _legal_turn(parts: list[Any], made: set[str], is_ours: Callable[[str], bool], *, is_own_text: bool) -> list[Any]:
    kept = []
    for part in parts:
        call = pick(part, "functionCall") if type(part) is dict else None
        call_id = as_text(call.get("id")) if type(call) is dict else ""
        if type(call) is dict and call_id and is_ours(call_id):
            made.add(call_id)
            kept.append({"text": f"Called {as_text(call.get('name'))} {stable(call.get('args')).decode()}"})
        elif is_own_text and type(part) is dict and part.get("thought"):
            continue
        elif is_own_text and type(part) is dict and "text" in part and set(part) - {"text"}:
            kept.append({"text": part["text"]})
        else:
            kept.append(part)
    return kept


def _legal_result(part: object, made: set[str]) -> object:
    result = pick(part, "functionResponse") if type(part) is dict else None
    if type(result) is not dict or as_text(result.get("id")) not in made:
        return part
    return {"text": stable(result.get("response")).decode()}
