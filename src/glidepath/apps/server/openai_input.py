"""The messages of an OpenAI request as ours: instructions apart, calls and results, a sentence for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.apps.server.client_tools import ClientAnswer
from glidepath.apps.server.inline_image import inline_image
from glidepath.apps.server.refusals import HttpError
from glidepath.values import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolCall,
    UserMessage,
    make_earlier_reply,
    make_earlier_result,
)

_ROLES = "system, developer, user, assistant or tool"
_ITEMS = "message, function_call, function_call_output or reasoning"


class GivenInput(Value, frozen=True, kw_only=True):
    """What a request says. With `answers`, by call id, it continues the run whose calls these are."""

    instructions: str = ""
    messages: tuple[Message, ...] = ()
    answers: Mapping[str, ClientAnswer] = {}


def read_input(given: Any, field: str = "input") -> GivenInput:
    """The messages or items of a request; raises `HttpError`."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, Sequence) or not given:
        raise HttpError(400, "bad_input", f"{field} must be text or a non-empty list of messages", param=field)
    reading = _Reading(field)
    last = max((place for place, one in enumerate(given) if not _is_result(one)), default=-1)
    for place, one in enumerate(given):
        reading.take(place, one, answers=place > last)
    if not reading.answers and (not reading.messages or not isinstance(reading.messages[-1], UserMessage)):
        raise HttpError(400, "bad_input", "the last message must be the user's, or the result of a tool", param=field)
    if not reading.answers and reading.reference is not None:
        raise HttpError(
            400,
            "bad_input",
            f"{field}[{reading.reference}]: an item_reference is not taken: send the item itself (store: false), or "
            "previous_response_id",
            param=field,
        )
    return GivenInput(
        instructions="\n\n".join(reading.instructions), messages=tuple(reading.messages), answers=reading.answers
    )


def _is_result(one: object) -> bool:
    return isinstance(one, Mapping) and (one.get("role") == "tool" or one.get("type") == "function_call_output")


class _Reading:
    """One request, item by item."""

    def __init__(self, field: str) -> None:
        self.field = field
        self.instructions: list[str] = []
        self.messages: list[Message] = []
        self.answers: dict[str, ClientAnswer] = {}
        self.reference: int | None = None
        self._names: dict[str, str] = {}

    def take(self, place: int, one: Any, *, answers: bool) -> None:
        """Read one message or item; raises `HttpError`. `answers`: the request ends with it, a result."""
        role = one.get("role") if isinstance(one, Mapping) else None
        kind = one.get("type") if isinstance(one, Mapping) else None
        if role in ("system", "developer"):
            self.instructions.append(_plain(place, one.get("content")))
        elif role == "assistant":
            self._add_reply(_plain(place, one.get("content")), self._calls(place, one.get("tool_calls")))
        elif role == "user":
            self.messages.append(_user(place, one.get("content")))
        elif role == "tool":
            self._add_result(place, one.get("tool_call_id"), one.get("content"), answers=answers)
        elif kind == "function_call_output":
            self._add_result(place, one.get("call_id"), one.get("output"), answers=answers)
        elif kind == "function_call":
            self._add_reply("", [self._call(place, one.get("call_id"), one.get("name"), one.get("arguments"))])
        elif kind == "item_reference":
            self.reference = place
        elif kind != "reasoning":
            said = (
                f"role must be {_ROLES}, not {role!r:.40}"
                if kind is None or role is not None
                else (f"type must be {_ITEMS}, not {kind!r:.40}")
            )
            raise HttpError(400, "bad_input", f"message {place}: {said}", param=f"{self.field}[{place}]")

    def _add_reply(self, text: str, calls: Sequence[ToolCall]) -> None:
        last = self.messages[-1] if self.messages else None
        if not text and calls and isinstance(last, AssistantMessage):  # as items, a reply is several
            self.messages[-1] = make_earlier_reply(last.text, (*last.tool_calls, *calls))
        else:
            self.messages.append(make_earlier_reply(text, calls))

    def _calls(self, place: int, given: object) -> list[ToolCall]:
        found = []
        for one in given if isinstance(given, Sequence) and not isinstance(given, str) else ():
            function = one.get("function") if isinstance(one, Mapping) else None
            if not isinstance(function, Mapping):
                raise HttpError(400, "bad_input", f"message {place}: a call in tool_calls must be a function")
            found.append(self._call(place, one.get("id"), function.get("name"), function.get("arguments")))
        return found

    def _call(self, place: int, call_id: object, name: object, arguments: object) -> ToolCall:
        if not isinstance(call_id, str) or not isinstance(name, str) or not call_id or not name:
            raise HttpError(400, "bad_input", f"message {place}: a call needs an id and the name of its function")
        self._names[call_id] = name
        try:
            read = _wire.loads(str(arguments or "{}").encode())
        except (ValueError, RecursionError):
            read = None
        return ToolCall(call_id, name, read) if isinstance(read, dict) else ToolCall(call_id, name, {}, str(arguments))

    def _add_result(self, place: int, call_id: object, content: object, *, answers: bool) -> None:
        if not isinstance(call_id, str) or not call_id:
            raise HttpError(400, "bad_input", f"message {place}: the result of a tool needs the id of its call")
        text = _plain(place, content)
        if "\0" in text:
            raise HttpError(400, "bad_input", f"message {place}: a result must not have NUL characters")
        if answers:
            self.answers[call_id] = ClientAnswer(content=text)
        else:
            self.messages.append(make_earlier_result(call_id, self._names.get(call_id, "tool"), text))


def _plain(place: int, content: Any) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, Sequence):
        parts = [one.get("text") if isinstance(one, Mapping) else None for one in content]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) == len(parts):
            return "".join(texts)
    raise HttpError(400, "bad_input", f"message {place}: content must be text here")


def _user(place: int, content: Any) -> UserMessage:
    if isinstance(content, str):
        if not content.strip() or "\0" in content:
            raise HttpError(400, "bad_input", f"message {place}: content must not be empty or have NUL characters")
        return UserMessage(content)
    if not isinstance(content, Sequence) or not content:
        raise HttpError(400, "bad_input", f"message {place}: content must be a text or a list of parts")
    parts = tuple(_part(place, one) for one in content)
    message = UserMessage(parts)
    if "\0" in message.text or not (message.text.strip() or any(type(part) is ImageBlock for part in parts)):
        raise HttpError(400, "bad_input", f"message {place}: content must not be empty or have NUL characters")
    return message


def _part(place: int, part: Any) -> TextBlock | ImageBlock:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in ("text", "input_text") and isinstance(part.get("text"), str):
        return TextBlock(part["text"])
    if kind in ("image_url", "input_image"):
        address = part.get("image_url")
        address = address.get("url") if isinstance(address, Mapping) else address
        if isinstance(address, str):
            return _image(place, address)
    raise HttpError(400, "bad_input", f"message {place}: a part must be text or an image, not {kind!r:.40}")


def _image(place: int, address: str) -> ImageBlock:
    if address.startswith(("https://", "http://")):
        return ImageBlock(media_type="image/*", url=address)
    if not address.startswith("data:"):
        raise HttpError(400, "bad_input", f"message {place}: image_url must begin with https:, http: or data:")
    head, _, data = address.removeprefix("data:").partition(",")
    try:
        return inline_image(head.partition(";")[0], data)
    except ValueError as error:
        raise HttpError(400, "bad_input", f"message {place}: {error}") from None
