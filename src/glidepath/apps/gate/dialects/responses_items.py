"""Items of OpenAI Responses: which are calls, and whose; items and events that we write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from glidepath.apps.gate.dialects.conversations import stable
from glidepath.apps.gate.dialects.dialect import RequestFacts, WireCall
from glidepath.apps.gate.dialects.frames import frame_of
from glidepath.apps.gate.dialects.wire_body import as_text, write_body
from glidepath.values import Usage

_PROVIDERS_CALLS = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
)
_OPERATIONS = ("arguments", "input", "action", "operation")


def is_client_call(item: Mapping[str, Any]) -> bool:
    """Whether an item asks the client to do something. An unknown kind of call does: nothing may run unseen."""
    kind = as_text(item.get("type"))
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    return kind == "mcp_approval_request" or (kind.endswith("_call") and kind not in _PROVIDERS_CALLS)


def name_of(item: Mapping[str, Any]) -> str:
    """The tool that a call item calls."""
    return as_text(item.get("name")) or as_text(item.get("type")).removesuffix("_call")


def call_in(item: Mapping[str, Any]) -> WireCall:
    """The call of an item."""
    given = next((item[field] for field in _OPERATIONS if item.get(field) is not None), "")
    written = given if type(given) is str else stable(given).decode()
    return WireCall(as_text(item.get("call_id")) or as_text(item.get("id")), name_of(item), written)


# --- what we write --------------------------------------------------------------------------------------------

_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def usage_words(usage: Usage) -> dict[str, Any]:
    """A usage as Responses writes it."""
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


OWN = "resp_glidepath_"
"""How the ids of responses begin that no model wrote. The id of the one before follows, so that nothing is stored."""


def own_id(facts: RequestFacts, mark: str) -> str:
    """An id for a response of ours."""
    return f"{OWN}{previous_of(facts.body).encode('utf-8', 'surrogatepass').hex()}_{mark}"


def previous_of(body: Mapping[str, Any]) -> str:
    """The newest response before this one that the provider has."""
    previous = as_text(body.get("previous_response_id"))
    while previous.startswith(OWN):
        try:
            previous = bytes.fromhex(previous.removeprefix(OWN).partition("_")[0]).decode("utf-8", "surrogatepass")
        except ValueError:
            previous = ""
    return previous


def new_response(facts: RequestFacts, response_id: str) -> dict[str, Any]:
    """A response that has just begun."""
    given = facts.body
    echoed = {name: given[name] if given.get(name) is not None else usual for name, usual in _ECHOED.items()}
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": facts.model,
        "output": [],
        **echoed,
        "usage": None,
    }


def close_response(response: Mapping[str, Any], output: Sequence[Any], usage: Usage) -> dict[str, Any]:
    """The response at its end."""
    ended = {"status": "completed", "error": None, "incomplete_details": None}
    return {**response, **ended, "output": list(output), "usage": usage_words(usage)}


def message_item(item_id: str, text: str) -> dict[str, Any]:
    """A whole message."""
    return {
        "id": item_id,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [text_part(text)],
    }


def text_part(text: str) -> dict[str, Any]:
    """A part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class EventWriter:
    """Writes events, with sequence numbers that rise."""

    __slots__ = ("sequence",)

    def __init__(self, sequence: int = -1) -> None:
        self.sequence = sequence

    def write(self, kind: str, **fields: object) -> bytes:
        """One event."""
        self.sequence += 1
        return frame_of(write_body({"type": kind, "sequence_number": self.sequence, **fields}), kind)

    def add_message(self, place: int, item: Mapping[str, Any]) -> bytes:
        """The events of a whole message."""
        start = {**item, "status": "in_progress", "content": []}
        text = item["content"][0]["text"]
        return b"".join(
            [
                self.write("response.output_item.added", output_index=place, item=start),
                self.add_part(item["id"], place, 0, text),
                self.write("response.output_item.done", output_index=place, item=item),
            ]
        )

    def add_part(self, item_id: object, place: int, number: int, text: str) -> bytes:
        """The events of a whole part of a message."""
        at = {"item_id": item_id, "output_index": place, "content_index": number}
        return b"".join(
            [
                self.write("response.content_part.added", **at, part=text_part("")),
                self.write("response.output_text.delta", **at, delta=text, logprobs=[]),
                self.close_part(at, text_part(text)),
            ]
        )

    def close_part(self, at: Mapping[str, Any], part: Mapping[str, Any]) -> bytes:
        """The events that end a part of a message."""
        if part.get("type") == "refusal":
            done = self.write("response.refusal.done", **at, refusal=part["refusal"])
        else:
            done = self.write("response.output_text.done", **at, text=part["text"], logprobs=[])
        return done + self.write("response.content_part.done", **at, part=part)

    def add_call(self, place: int, item: Mapping[str, Any]) -> bytes:
        """The events of a whole call of a function or a custom tool."""
        field, kind = ("input", "custom_tool_call_input")
        if item["type"] == "function_call":
            field, kind = ("arguments", "function_call_arguments")
        at = {"item_id": item["id"], "output_index": place}
        start = {**item, "status": "in_progress", field: ""}
        return b"".join(
            [
                self.write("response.output_item.added", output_index=place, item=start),
                self.write(f"response.{kind}.delta", **at, delta=item[field]),
                self.write(f"response.{kind}.done", **at, **{field: item[field]}),
                self.write("response.output_item.done", output_index=place, item=item),
            ]
        )
