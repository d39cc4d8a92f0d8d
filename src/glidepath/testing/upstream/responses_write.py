"""OpenAI Responses: how a reply goes on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from glidepath._wire import encode
from glidepath.testing.upstream.asked import AskedCall
from glidepath.testing.upstream.issued_ids import IssuedIds
from glidepath.testing.upstream.reported import Piece, Reported, meter_pieces, split_text
from glidepath.testing.upstream.responses_read import ENCRYPTED, StoredResponses
from glidepath.testing.upstream.spoken import Spoken, SpokenCall

REASONS = {"length": "max_output_tokens", "refusal": "content_filter"}


class ResponsesWriter:
    """Writes one reply; `stored` keeps it for requests that continue from it."""

    def __init__(
        self, asked: AskedCall, spoken: Spoken, usage: Reported, ids: IssuedIds, stored: StoredResponses
    ) -> None:
        self._asked, self._spoken, self._usage, self._ids, self._stored = asked, spoken, usage, ids, stored
        self._id = ids.issue("resp_")
        self._created = ids.now()
        self._number = -1
        self._output: list[dict[str, Any]] = []

    def write_whole(self) -> dict[str, Any]:
        """The reply as one JSON object."""
        for _ in self.write_stream(1 << 20):
            pass
        return self._tell(self._end())

    def write_stream(self, size: int) -> Iterator[Piece]:
        """The reply as server-sent events."""
        yield self._event("response.created", 0, response=self._tell("in_progress"))
        yield self._event("response.in_progress", 0, response=self._tell("in_progress"))
        spent = 0
        if self._spoken.thinking:
            spent = self._spoken.hidden
            yield from self._think(spent)
        if self._spoken.text or self._spoken.endless:
            for data, spent in self._say(self._spoken.hidden, size):
                yield data, spent
        for call in self._spoken.calls:
            yield from self._call(call, spent, size)
            spent += call.tokens
        end = self._end()
        told = self._tell(end)
        if self._asked.is_stored:
            self._stored.keep(self._id, [*self._asked.items, *self._output])
        yield self._event(f"response.{end}", spent, response=told)

    def _end(self) -> str:
        return "incomplete" if self._spoken.stop in REASONS else "completed"

    def _think(self, spent: int) -> Iterator[Piece]:
        item: dict[str, Any] = {"id": self._ids.issue("rs_"), "type": "reasoning", "summary": []}
        if self._asked.wants_encrypted:
            item["encrypted_content"] = self._ids.issue(ENCRYPTED)
        place = len(self._output)
        yield self._event("response.output_item.added", spent, output_index=place, item=item)
        self._output.append(item)
        yield self._event("response.output_item.done", spent, output_index=place, item=item)

    def _say(self, start: int, size: int) -> Iterator[Piece]:
        item: dict[str, Any] = {"id": self._ids.issue("msg_"), "type": "message", "status": "in_progress"}
        item |= {"role": "assistant", "content": []}
        place = len(self._output)
        where = {"item_id": item["id"], "output_index": place, "content_index": 0}
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        spent = start
        yield self._event("response.output_item.added", spent, output_index=place, item=item)
        yield self._event("response.content_part.added", spent, **where, part=part)
        pieces = []
        for piece, spent in meter_pieces(self._spoken.deltas(size), start):
            pieces.append(piece)
            yield self._event("response.output_text.delta", spent, **where, delta=piece, logprobs=[])
        part = {**part, "text": "".join(pieces)}
        yield self._event("response.output_text.done", spent, **where, text=part["text"], logprobs=[])
        yield self._event("response.content_part.done", spent, **where, part=part)
        is_cut = self._spoken.stop == "length" and not self._spoken.calls
        item = {**item, "content": [part], "status": "incomplete" if is_cut else "completed"}
        self._output.append(item)
        yield self._event("response.output_item.done", spent, output_index=place, item=item)

    def _call(self, call: SpokenCall, spent: int, size: int) -> Iterator[Piece]:
        is_custom = call.kind == "custom"
        kind, field, word = (
            ("custom_tool_call", "input", "custom_tool_call_input")
            if is_custom
            else (
                "function_call",
                "arguments",
                "function_call_arguments",
            )
        )
        item: dict[str, Any] = {"id": self._ids.issue("ctc_" if is_custom else "fc_"), "type": kind}
        item |= {"status": "in_progress", "call_id": self._ids.issue("call_"), "name": call.name, field: ""}
        if call.namespace is not None:
            item["namespace"] = call.namespace
        place = len(self._output)
        where = {"item_id": item["id"], "output_index": place}
        yield self._event("response.output_item.added", spent, output_index=place, item=item)
        for piece in split_text(call.arguments, size):
            yield self._event(f"response.{word}.delta", spent, **where, delta=piece)
        spent += call.tokens
        is_cut = self._spoken.stop == "length" and call is self._spoken.calls[-1]
        item = {**item, field: call.arguments, "status": "incomplete" if is_cut else "completed"}
        yield self._event(f"response.{word}.done", spent, **where, **{field: call.arguments})
        self._output.append(item)
        yield self._event("response.output_item.done", spent, output_index=place, item=item)

    def _tell(self, status: str) -> dict[str, Any]:
        asked = self._asked
        told = {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": REASONS[self._spoken.stop]} if status == "incomplete" else None,
            "max_output_tokens": asked.max_output,
            "model": asked.model,
            "output": list(self._output),
            "parallel_tool_calls": asked.is_parallel,
            "store": asked.is_stored,
            "service_tier": "default",
            "user": None,
            **asked.echo,
            "usage": self._write_usage() if status != "in_progress" and self._usage.is_told else None,
        }
        told["tools"] = told.get("tools") or []
        told["tool_choice"] = told.get("tool_choice") or "auto"
        told["metadata"] = told.get("metadata") or {}
        return told

    def _write_usage(self) -> dict[str, Any]:
        usage = self._usage
        return {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.hidden},
            "total_tokens": usage.input + usage.output,
        }

    def _event(self, kind: str, spent: int, **fields: object) -> Piece:
        self._number += 1
        data = encode({"type": kind, "sequence_number": self._number, **fields})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data), spent
