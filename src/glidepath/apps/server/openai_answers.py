"""What OpenAI clients are answered: chat completions and responses, whole and as streams, made from a run's events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from glidepath import _wire
from glidepath._wire import Value
from glidepath.apps.server.client_tools import is_client_call
from glidepath.apps.server.openai_requests import ResponsesBody
from glidepath.apps.server.result_json import ending_of
from glidepath.apps.server.run_feed import RunFeed
from glidepath.mcp import make_schema_type
from glidepath.tools import Output, OutputError
from glidepath.values import (
    AttemptDiscarded,
    Event,
    LoopOutcome,
    PendingCall,
    RunEnded,
    RunResult,
    StopReason,
    StreamChunk,
    StreamStarted,
    Usage,
)
from glidepath.values.events import codec

__all__ = [
    "RESPONSE",
    "AnswerLeg",
    "ChatAnswer",
    "ResponseAnswer",
    "describe_failure",
    "find_leg",
    "read_call_id",
    "read_leg_id",
]

RESPONSE, CHAT = "resp_", "chatcmpl-"
_PAGE = 1_000  # events that are read at once
DISCARDED = "\n[the lines above were cut off and do not count]\n"


class AnswerLeg(Value, frozen=True, kw_only=True):
    """What one request shows of a run: what follows event `after`. `before` is how the leg before it ended."""

    feed: RunFeed
    after: int = 0
    before: RunResult[Any] | None = None
    schema: Mapping[str, Any] | None = None
    """Of its answer, where that is JSON for a program: then nothing else is its text."""
    most: int | None = None
    """How many tokens its client has asked for at most."""

    @property
    def id(self) -> str:
        """The run's id, and where the leg begins."""
        return f"{self.feed.run_id}.{self.after}" if self.after else self.feed.run_id

    def usage_of(self, result: RunResult[Any]) -> Usage:
        """What this leg has used."""
        mine, then = result.usage, Usage() if self.before is None else self.before.usage
        return Usage(
            mine.input - then.input,
            mine.output - then.output,
            mine.cache_read - then.cache_read,
            mine.cache_write - then.cache_write,
            mine.reasoning - then.reasoning,
            mine.estimated,
        )

    def is_cut(self, result: RunResult[Any]) -> bool:
        """True for an answer that has reached its client's limit, also where the model did not stop there."""
        if result.outcome is not LoopOutcome.DONE:
            return False
        over = self.most is not None and self.usage_of(result).output > self.most
        return over or result.stop_reason is StopReason.MAX_TOKENS

    def text_of(self, result: RunResult[Any]) -> str:
        """The last text of the run; nothing where it only waits for its client."""
        if self.schema is not None and result.outcome is not LoopOutcome.PAUSED:
            with suppress(OutputError):  # of a run that ended without it
                return _wire.encode(Output(make_schema_type(self.schema)).read(result.text)).decode()
        return "" if _client_calls(result) else result.text


def read_leg_id(name: str, prefix: str) -> tuple[str, int]:
    """The run of an answer, and where its leg begins."""
    run_id, _, after = name.removeprefix(prefix).partition(".")
    return run_id, int(after) if after.isascii() and after.isdigit() and len(after) < 12 else 0  # noqa: PLR2004


def _write_call_id(feed: RunFeed, call_id: str) -> str:
    """The id of a call for its client: it comes back with the result, and says which run waits for it."""
    return f"{feed.run_id}.{call_id}"


def read_call_id(name: str) -> tuple[str, str]:
    """The run and the call of an id that a client sends back."""
    run_id, _, call_id = name.partition(".")
    return run_id, call_id


async def find_leg(
    feed: RunFeed, after: int, note: Callable[[Event], object]
) -> tuple[AnswerLeg, RunResult[Any] | None]:
    """One leg of a run, and how it ended; None while it lasts. `note` what has happened in it so far."""
    page = await feed.page(0, after + 1, 1, "RunEnded") if after else {"events": []}
    known: list[Any] = [codec().decode(bytes(line)) for line in page["events"]]
    before = known[0].result if known else None
    leg, found, place = AnswerLeg(feed=feed, after=after, before=before), None, after
    while lines := await feed.lines(place, _PAGE):
        for line in lines:
            place += 1
            event: Any = codec().decode(line)
            note(event)
            if isinstance(event, RunEnded):
                found = event.result
                if _client_calls(found):
                    return leg, found
    return leg, None if feed.live else found


# --- chat completions ---------------------------------------------------------------------------------------------


class ChatAnswer:
    """One chat completion, whole or in chunks: both have the same text."""

    def __init__(self, model: str, leg: AnswerLeg) -> None:
        self.leg = leg
        self.text = ChatText(discards=True)
        self._head = {
            "id": CHAT + leg.id,
            "created": int(leg.feed.card.started or time.time()),
            "model": model,
        }

    async def events(self, *, wants_usage: bool) -> AsyncIterator[bytes]:
        """The chunks."""
        yield self._chunk({"role": "assistant", "content": ""})
        text, result = ChatText(), None
        async for event in self.leg.feed.follow(self.leg.after):
            if isinstance(event, RunEnded):
                result = event.result
            elif self.leg.schema is None and (piece := text.read(event)):
                yield self._chunk({"content": piece})
        if result is None or result.outcome is LoopOutcome.FAILED:
            yield b"data: %s\n\n" % _wire.encode(
                describe_cut(self.leg.feed) if result is None else describe_failure(result)
            )
            yield b"data: [DONE]\n\n"
            return
        if not text.parts and (whole := self.leg.text_of(result)):
            yield self._chunk({"content": whole})
        for index, call in enumerate(self._calls(result)):
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        yield self._chunk({}, _finish(self.leg, result), glidepath=ending_of(result))
        if wants_usage:
            usage = {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage(result)}
            yield b"data: %s\n\n" % _wire.encode(usage)
        yield b"data: [DONE]\n\n"

    def make_completion(self, result: RunResult[Any]) -> dict[str, Any]:
        """The whole answer, once `text` has read the events."""
        calls, parts = self._calls(result), [] if self.leg.schema is not None else self.text.parts
        content = "".join(parts) or self.leg.text_of(result)
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": _finish(self.leg, result), "logprobs": None}
        head = {**self._head, "object": "chat.completion"}
        return {**head, "choices": [choice], "usage": self._usage(result), "glidepath": ending_of(result)}

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        head = {**self._head, "object": "chat.completion.chunk"}
        return b"data: %s\n\n" % _wire.encode({**head, "choices": [choice], **more})

    def _calls(self, result: RunResult[Any]) -> list[dict[str, Any]]:
        return [
            {
                "id": _write_call_id(self.leg.feed, one.call.id),
                "type": "function",
                "function": {"name": one.call.name, "arguments": _arguments(one)},
            }
            for one in _client_calls(result)
        ]

    def _usage(self, result: RunResult[Any]) -> dict[str, int]:
        usage = self.leg.usage_of(result)
        return {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total}


class ChatText:
    """The text of a chat completion, piece by piece. With `discards`, what was cut off is taken out again."""

    def __init__(self, *, discards: bool = False) -> None:
        self.parts: list[str] = []
        self._begun = 0  # where the text of this attempt begins
        self._discards = discards

    def read(self, event: Event) -> str:
        """What an event adds to it."""
        piece = ""
        if isinstance(event, StreamStarted):
            self._begun = len(self.parts)
        elif isinstance(event, StreamChunk) and event.text and not event.thinking:
            piece = ("\n\n" if self.parts and len(self.parts) == self._begun else "") + event.text
        elif isinstance(event, AttemptDiscarded) and len(self.parts) > self._begun:
            if self._discards:
                del self.parts[self._begun :]
            else:
                piece = DISCARDED
        if piece:
            self.parts.append(piece)
        return piece


# --- responses ----------------------------------------------------------------------------------------------------


class ResponseAnswer:
    """One response object of the Responses API, and the events that lead to it."""

    def __init__(self, body: ResponsesBody, leg: AnswerLeg) -> None:
        self.body = body
        self.leg = leg
        self.number = -1
        self.items: list[dict[str, Any]] = []
        self._written: list[str] = []  # of the message that is being written

    def in_progress(self) -> dict[str, Any]:
        """As long as the run lasts."""
        return {
            "id": RESPONSE + self.leg.id,
            "object": "response",
            "created_at": int(self.leg.feed.card.started or time.time()),
            "status": "in_progress",
            "background": self.body.background is True,
            "model": self.body.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": self.body.instructions,
            "max_output_tokens": self.body.max_output_tokens,
            "metadata": {name: one for name, one in (self.body.metadata or {}).items() if isinstance(one, str)},
            "parallel_tool_calls": True,
            "previous_response_id": self.body.previous_response_id,
            "conversation": {"id": self.leg.feed.head.session_id},
            "temperature": None,
            "tool_choice": "auto",
            "tools": list(self.body.tools or ()),
            "top_p": None,
            "usage": None,
        }

    def note(self, event: Event) -> list[bytes]:
        """An event of the run adds to the output; what a stream says of it."""
        if self.leg.schema is not None:
            return []
        if isinstance(event, StreamChunk) and event.text and not event.thinking:
            return self._delta(event.text)
        if isinstance(event, AttemptDiscarded):
            return self._close_text("incomplete")
        return self._close_text("completed") if isinstance(event, StreamStarted) else []

    def finish(self, result: RunResult[Any]) -> list[bytes]:
        """The run has ended, and the output is whole; what a stream says of it, the last event included."""
        if not self._written and not self.items and ((text := self.leg.text_of(result)) or not _client_calls(result)):
            parts = self._delta(text)
        else:
            parts = []
        parts += [*self._close_text("completed"), *self._tell_calls(result)]
        answer = self.response(result)
        kind = {"completed": "completed", "failed": "failed"}.get(answer["status"], "incomplete")
        return [*parts, self._event(f"response.{kind}", response=answer)]

    def response(self, result: RunResult[Any]) -> dict[str, Any]:
        """When it has ended, and is finished."""
        status, details = _status(self.leg, result)
        usage, cause, begun = self.leg.usage_of(result), result.cause, self.in_progress()
        failed = {"code": "server_error", "message": "the run failed" if cause is None else cause.reason}
        ended = ending_of(result)
        return {
            **begun,
            "status": status,
            "output": self.items,
            "error": failed if status == "failed" else None,
            "incomplete_details": details,
            "metadata": {**begun["metadata"], "glidepath": _wire.encode(ended).decode()},
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": {"cached_tokens": usage.cache_read},
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.total,
            },
            "glidepath": ended,
        }

    async def events(self) -> AsyncIterator[bytes]:
        """The stream: every turn that says something is its own message, every call of a client's tool its own item."""
        yield self._event("response.created", response=self.in_progress())
        yield self._event("response.in_progress", response=self.in_progress())
        result: RunResult[Any] | None = None
        async for event in self.leg.feed.follow(self.leg.after):
            for part in self.note(event):
                yield part
            if isinstance(event, RunEnded):
                result = event.result
        if result is None:
            told = describe_cut(self.leg.feed)["error"]
            yield self._event("error", code=told["code"], message=told["message"], param=None)
            return
        for part in self.finish(result):
            yield part

    def _delta(self, text: str) -> list[bytes]:
        where = {"item_id": self._id(), "output_index": len(self.items), "content_index": 0}
        parts = []
        if not self._written:
            item = {**_message(self._id(), ""), "status": "in_progress", "content": []}
            parts.append(self._event("response.output_item.added", output_index=len(self.items), item=item))
            parts.append(self._event("response.content_part.added", **where, part=_text("")))
        self._written.append(text)
        parts.append(self._event("response.output_text.delta", **where, delta=text, logprobs=[]))
        return parts

    def _close_text(self, status: str) -> list[bytes]:
        if not self._written:
            return []
        text = "".join(self._written)
        where = {"item_id": self._id(), "output_index": len(self.items), "content_index": 0}
        item = {**_message(self._id(), text), "status": status}
        parts = [
            self._event("response.output_text.done", **where, text=text, logprobs=[]),
            self._event("response.content_part.done", **where, part=_text(text)),
            self._event("response.output_item.done", output_index=len(self.items), item=item),
        ]
        self.items.append(item)
        self._written.clear()
        return parts

    def _tell_calls(self, result: RunResult[Any]) -> list[bytes]:
        parts = []
        for one in _client_calls(result):
            item, place = self._call(one), len(self.items)
            where = {"item_id": item["id"], "output_index": place}
            begun = {**item, "status": "in_progress", "arguments": ""}
            parts += [
                self._event("response.output_item.added", output_index=place, item=begun),
                self._event("response.function_call_arguments.delta", **where, delta=item["arguments"]),
                self._event(
                    "response.function_call_arguments.done", **where, name=item["name"], arguments=item["arguments"]
                ),
                self._event("response.output_item.done", output_index=place, item=item),
            ]
            self.items.append(item)
        return parts

    def _call(self, pending: PendingCall) -> dict[str, Any]:
        name = _write_call_id(self.leg.feed, pending.call.id)
        return {
            "id": f"fc_{name}",
            "type": "function_call",
            "status": "completed",
            "call_id": name,
            "name": pending.call.name,
            "arguments": _arguments(pending),
        }

    def _id(self) -> str:
        return f"msg_{self.leg.id}_{len(self.items)}"

    def _event(self, kind: str, **fields: Any) -> bytes:
        self.number += 1
        data = _wire.encode({"type": kind, "sequence_number": self.number, **fields})
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


# --- what both say ------------------------------------------------------------------------------------------------


def describe_failure(result: RunResult[Any]) -> dict[str, Any]:
    """The error of a run that failed, as OpenAI's clients know it, with how it ended beside it."""
    why = "the run failed" if result.cause is None else f"the run failed: {result.cause.source}: {result.cause.reason}"
    return {"error": _error("run_failed", why), "glidepath": ending_of(result)}


def describe_cut(feed: RunFeed) -> dict[str, Any]:
    """The error of a stream that ends before its run, because the server does."""
    why = f"the server is shutting down before the run has ended; GET /api/runs/{feed.run_id} shows how it ended"
    return {"error": _error("lost", why)}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"message": message, "type": "server_error", "param": None, "code": code}


def _client_calls(result: RunResult[Any]) -> list[PendingCall]:
    return [one for one in result.pending if is_client_call(one)]


def _arguments(pending: PendingCall) -> str:
    return _wire.encode(pending.call.arguments).decode()


def _finish(leg: AnswerLeg, result: RunResult[Any]) -> str:
    if _client_calls(result):
        return "tool_calls"
    whole = result.outcome in (LoopOutcome.DONE, LoopOutcome.PAUSED) and not leg.is_cut(result)
    return "stop" if whole else "length"


def _status(leg: AnswerLeg, result: RunResult[Any]) -> tuple[str, dict[str, str] | None]:
    if (result.outcome is LoopOutcome.DONE and not leg.is_cut(result)) or _client_calls(result):
        return "completed", None
    if result.outcome is LoopOutcome.FAILED:
        return "failed", None
    if result.outcome is LoopOutcome.CANCELLED:
        return "cancelled", None
    reason = "paused" if result.outcome is LoopOutcome.PAUSED else "max_output_tokens"
    return "incomplete", {"reason": reason}


def _message(name: str, text: str) -> dict[str, Any]:
    return {"id": name, "type": "message", "role": "assistant", "status": "completed", "content": [_text(text)]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
