"""Reads a history that is written as Gemini writes contents."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.models.formats.google_contents import UNSIGNED, VENDOR
from glidepath.models.formats.reading import VendorTurn, call_of, content_of, read_each
from glidepath.values import FileBlock, ImageBlock, Message, SystemMessage, TextBlock, ToolResultMessage, UserMessage


class _History:
    """Reads contents. A call without an id gets one from us, and so does its result, in the order of the calls."""

    def __init__(self) -> None:
        self.found: list[Message] = []
        self._calls = 0
        self._open: list[tuple[str, str]] = []

    def read(self, content: Mapping[str, Any]) -> None:
        role = content.get("role", "user")
        if role == "model":
            self._model(content["parts"])
        elif role in ("user", "function"):
            self._user(content["parts"])
        else:
            raise ValueError(f"role {role!r} is unknown")

    def _model(self, parts: Sequence[Mapping[str, Any]]) -> None:
        turn = VendorTurn(VENDOR)
        for part in parts:
            call, signature = part.get("functionCall"), part.get("thoughtSignature")
            known = call is not None or "text" in part
            if signature and known and signature != UNSIGNED:
                turn.keep_item({"on": "call" if call is not None else "text", "signature": signature})
            if call is not None:
                self._calls += 1
                call_id = call.get("id") or f"call_{self._calls}"
                self._open.append((call_id, call["name"]))
                turn.add_call(call_of(call_id, call["name"], call.get("args") or {}))
            elif part.get("thought") and "text" in part:
                turn.add_thinking(part["text"])
            elif "text" in part:
                turn.add_text(part["text"])
                if signature:
                    turn.keep_item({"on": "cut"})
            else:
                turn.keep_item({"on": "part", "part": dict(part)})
        self.found.append(turn.message())

    def _user(self, parts: Sequence[Mapping[str, Any]]) -> None:
        said: list[Any] = []
        for part in parts:
            if "functionResponse" in part:
                if said:
                    self.found.append(UserMessage(content_of(said)))
                    said = []
                self.found.append(self._result(part["functionResponse"]))
            else:
                said.append(_block(part))
        if said:
            self.found.append(UserMessage(content_of(said)))

    def _result(self, given: Mapping[str, Any]) -> ToolResultMessage:
        name, response = given["name"], given.get("response") or {}
        same = [place for place in self._open if place[0] == given.get("id")]
        same = same or [place for place in self._open if place[1] == name]
        call_id = same[0][0] if same else given.get("id") or name
        if same:
            self._open.remove(same[0])
        held, is_error = unwrap_response(response)
        text = held if isinstance(held, str) else _wire.encode(held).decode()
        return ToolResultMessage(call_id, name, text, is_error=is_error)


def unwrap_response(response: Mapping[str, Any]) -> tuple[Any, bool]:
    """What a function answered, and whether it is an error: clients wrap it in one field."""
    field = next(iter(response)) if len(response) == 1 else ""
    return (response[field] if field in ("output", "error", "result") else response), field == "error"


def from_gemini(history: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a Gemini history: its `contents`, or a request with `systemInstruction` and `contents`.

    Raises `ConfigurationError` for an item that cannot be read.
    """
    reader = _History()
    whole: Mapping[str, Any] = history if isinstance(history, Mapping) else {"contents": history}
    if system := whole.get("systemInstruction"):
        parts = system if isinstance(system, str) else "\n\n".join([part["text"] for part in system["parts"]])
        reader.found.append(SystemMessage(parts))
    read_each(whole.get("contents", ()), "from_gemini", reader.read)
    return reader.found


def _block(part: Mapping[str, Any]) -> Any:
    if "text" in part:
        return TextBlock(part["text"])
    held = part.get("inlineData") or part.get("fileData")
    if held is None:
        raise ValueError(f"a part with {', '.join(part)} is not supported")
    media, url = held.get("mimeType", ""), held.get("fileUri")
    data = base64.b64decode(held["data"]) if url is None else None
    return ImageBlock(media, data, url) if media.startswith("image/") else FileBlock(media, data, url)
