"""The messages of an OpenAI request as ours: instructions apart, text and images, and a sentence for anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glidepath.apps.server.inline_image import inline_image
from glidepath.apps.server.refusals import HttpError
from glidepath.values import ImageBlock, Message, TextBlock, UserMessage, make_earlier_reply


def read_messages(given: Any) -> tuple[str, list[Message]]:
    """The instructions and the messages of a request; raises `HttpError`."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, Sequence) or not given:
        raise HttpError(400, "bad_input", "input must be text or a non-empty list of messages")
    instructions: list[str] = []
    messages: list[Message] = []
    for place, one in enumerate(given):
        role = one.get("role") if isinstance(one, Mapping) else None
        if role in ("system", "developer"):
            instructions.append(_plain(place, one.get("content")))
        elif role == "assistant":
            messages.append(make_earlier_reply(_plain(place, one.get("content"))))
        elif role == "user":
            messages.append(_user(place, one.get("content")))
        else:
            raise HttpError(
                400,
                "bad_input",
                f"message {place}: role must be system, developer, user or assistant, not {role!r:.40}",
            )
    if not messages or not isinstance(messages[-1], UserMessage):
        raise HttpError(400, "bad_input", "the last message must be the user's")
    return "\n\n".join(instructions), messages


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
