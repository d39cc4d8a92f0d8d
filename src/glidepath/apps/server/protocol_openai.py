"""The door for OpenAI clients: agents are models, a conversation or a previous response is a session.

`/v1/responses` (create, stream, get, cancel), `/v1/chat/completions` and `/v1/models`. An agent brings its own tools
and settings: `tools` of a request are refused, sampling parameters have no effect. How the run ended is in `glidepath`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glidepath import _wire
from glidepath._wire import Value, WireError
from glidepath.apps.server.event_streams import EventStream, wait_until_gone
from glidepath.apps.server.hub import Hub, model_names
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.openai_input import read_messages
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.result_json import ending_of
from glidepath.apps.server.route_rights import visitor_of
from glidepath.apps.server.run_actions import RunActions
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.shapes import ReasonBody
from glidepath.apps.server.store_reader import StoreReader
from glidepath.values import AttemptDiscarded, LoopOutcome, Message, RunEnded, RunResult, StreamChunk, StreamStarted
from glidepath.values.events import codec

RESPONSE, CHAT = "resp_", "chatcmpl-"
DISCARDED = "\n[the lines above were cut off and do not count]\n"


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
    background: bool | None = None


class ChatBody(Value, frozen=True, kw_only=True):
    """What `POST /v1/chat/completions` takes; other fields have no effect."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    stream: bool | None = None
    stream_options: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    tools: Sequence[Any] | None = None
    n: int | None = None


class OpenAIDoor:
    """One handler for each path."""

    def __init__(self, hub: Hub, reader: StoreReader, actions: RunActions) -> None:
        self.hub = hub
        self.reader = reader
        self.actions = actions

    def routes(self) -> list[Route]:
        """Every path."""
        return [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{id:path}", self.model, methods=["GET"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
            Route("/v1/responses/{id}", self.response, methods=["GET"]),
            Route("/v1/responses/{id}/cancel", self.cancel, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    # --- models -----------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        """Every agent that the caller may use."""
        who = visitor_of(request)
        names = [name for name in self.hub.agents if self.hub.allowance.has_agent(who, name)]
        return _json({"object": "list", "data": [_model(name) for name in names]})

    async def model(self, request: Request) -> Response:
        """One agent."""
        name = request.path_params["id"]
        agent = self.hub.agent(name)
        self.hub.allowance.check(visitor_of(request), name, model_names(agent))
        return _json(_model(name))

    # --- responses --------------------------------------------------------------------------------------------

    async def responses(self, request: Request) -> Any:
        """Start a run and answer with its response, or with its stream."""
        body = await _parse_body(request, ResponsesBody)
        _refuse_tools(body.tools)
        if body.background:
            raise HttpError(400, "background", "background is not offered: use POST /api/runs, or stream")
        instructions, messages = read_messages(body.input)
        instructions = "\n\n".join(part for part in (body.instructions or "", instructions) if part)
        session, earlier = await self._session(body, visitor_of(request))
        prompt = [*earlier, *messages]
        tags = _tags(body.metadata)
        feed = await self.hub.start(
            body.model, prompt, who=visitor_of(request), session=session, tags=tags, instructions=instructions
        )
        told = _Response(body, feed)
        if body.stream:
            return self._make_event_stream(feed, told.events(feed))
        return _json(told.response(await self._wait_for_end(feed, request)))

    async def _session(self, body: ResponsesBody, who: Visitor) -> tuple[str | None, Sequence[Message]]:
        """The session to continue, and, without a store, what was said in it."""
        given: Any = body.conversation
        if isinstance(given, Mapping):
            given = given.get("id")
        if given is not None and body.previous_response_id is not None:
            raise HttpError(400, "two_sessions", "give conversation or previous_response_id, not both")
        if given is not None and not isinstance(given, str):
            raise HttpError(400, "bad_conversation", "conversation must be an id, or an object with an id")
        run_id = None
        if given is not None:
            run_id = self.hub.find_last_run(given)
            await self.hub.check_owner(who, given)  # without a store, what was said there goes into a new session
        if body.previous_response_id is not None:
            found = await self.reader.find(body.previous_response_id.removeprefix(RESPONSE), who)
            given, run_id = found.session_id, found.run_id
        if self.hub.store is not None or given is None:
            return given, ()
        before = self.hub.result_of(run_id or "")
        return (given, ()) if before is None else (None, before.messages)

    async def response(self, request: Request) -> Response:
        """The response of a run that was started before, as far as it has come."""
        found = await self.reader.find(request.path_params["id"].removeprefix(RESPONSE), visitor_of(request))
        body = ResponsesBody(model="" if found.feed is None else found.feed.head.agent, input="")
        if found.feed is None:
            raise HttpError(404, "unknown_response", "the events of this run were not kept; see /api/runs/{id}")
        told = _Response(body, found.feed)
        result = await _last_result(found.feed)
        return _json(told.in_progress() if result is None or found.feed.live else told.response(result))

    async def cancel(self, request: Request) -> Response:
        """Stop the run of a response."""
        who = visitor_of(request)
        found = await self.reader.find(request.path_params["id"].removeprefix(RESPONSE), who)
        if self.hub.flights.get(found.run_id) is None or found.feed is None:
            raise HttpError(409, "not_in_flight", "this server is not producing that response: nothing was cancelled")
        await self.actions.stop(found.run_id, ReasonBody(reason="cancelled by an OpenAI client"), who)
        told = _Response(ResponsesBody(model=found.feed.head.agent, input=""), found.feed)
        return _json(told.response(await self._wait_for_end(found.feed, request)))

    # --- chat completions -------------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Any:
        """Start a run on the messages of the request: its own session each time, as in that API."""
        body = await _parse_body(request, ChatBody)
        _refuse_tools(body.tools)
        if body.n not in (None, 1):
            raise HttpError(400, "bad_n", "n must be 1: an agent gives one answer")
        instructions, messages = read_messages(list(body.messages))
        feed = await self.hub.start(
            body.model,
            messages,
            who=visitor_of(request),
            tags=_tags(body.metadata),
            instructions=instructions,
        )
        if body.stream:
            wants_usage = bool((body.stream_options or {}).get("include_usage"))
            return self._make_event_stream(feed, _chat_chunks(body.model, feed, wants_usage=wants_usage))
        result = await self._wait_for_end(feed, request)
        if result.outcome is LoopOutcome.FAILED:
            return _json(_failure(result), 500, {"x-should-retry": "false"})  # a retry would be another whole run
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": result.text, "refusal": None},
            "finish_reason": _finish(result),
            "logprobs": None,
        }
        answer = {**_chat_head(body.model, feed, "chat.completion"), "choices": [choice], "usage": _chat_usage(result)}
        return _json({**answer, "glidepath": ending_of(result)})

    # --- what both do -----------------------------------------------------------------------------------------

    async def _wait_for_end(self, feed: RunFeed, request: Request) -> RunResult[Any]:
        """Wait for the end of a run, as a reader of it, for as long as the client does."""
        feed.readers += 1
        reading = asyncio.ensure_future(_read_to_end(feed))
        leaving = asyncio.ensure_future(wait_until_gone(request.receive))
        try:
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise HttpError(408, "gone", "the client has gone; GET /api/runs/{id} shows how the run continues")
            result = reading.result()
        finally:
            for task in (reading, leaving):
                task.cancel()
            await asyncio.gather(reading, leaving, return_exceptions=True)
            feed.readers -= 1
            self.hub.on_reader_left(feed)
        if result is not None:
            return result
        raise HttpError(503, "lost", "the run was lost before it ended; GET /api/runs/{id} shows it")

    def _make_event_stream(self, feed: RunFeed, parts: AsyncIterator[bytes]) -> EventStream:
        async def count_reader() -> AsyncIterator[bytes]:
            feed.readers += 1
            try:
                async for part in parts:
                    yield part
            finally:
                feed.readers -= 1

        return EventStream(count_reader, lambda: self.hub.on_reader_left(feed))


async def _read_to_end(feed: RunFeed) -> RunResult[Any] | None:
    result = None
    async for event in feed.follow():  # to the end, when its session is free for the next request
        if isinstance(event, RunEnded):
            result = event.result
    return result


class _Response:
    """One response object of the Responses API, and the events that lead to it."""

    def __init__(self, body: ResponsesBody, feed: RunFeed) -> None:
        self.body = body
        self.feed = feed
        self.number = -1
        self.items: list[dict[str, Any]] = []

    def in_progress(self) -> dict[str, Any]:
        """As long as the run lasts."""
        return {
            "id": RESPONSE + self.feed.run_id,
            "object": "response",
            "created_at": int(self.feed.card.started or time.time()),
            "status": "in_progress",
            "model": self.body.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": self.body.instructions,
            "metadata": dict(self.body.metadata or {}),
            "parallel_tool_calls": True,
            "previous_response_id": self.body.previous_response_id,
            "conversation": {"id": self.feed.head.session_id},
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }

    def response(self, result: RunResult[Any]) -> dict[str, Any]:
        """When it has ended."""
        status, details = _status(result)
        usage, cause = result.usage, result.cause
        output = self.items or [_message(f"msg_{result.run_id}_0", result.text)]
        failed = {"code": "server_error", "message": "the run failed" if cause is None else cause.reason}
        ended = ending_of(result)
        return {
            **self.in_progress(),
            "status": status,
            "output": output,
            "error": failed if status == "failed" else None,
            "incomplete_details": details,
            "metadata": {**(self.body.metadata or {}), "glidepath": _wire.encode(ended).decode()},
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": {"cached_tokens": usage.cache_read},
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.total,
            },
            "glidepath": ended,
        }

    async def events(self, feed: RunFeed) -> AsyncIterator[bytes]:
        """The stream: every turn that says something is its own message."""
        yield self._event("response.created", response=self.in_progress())
        yield self._event("response.in_progress", response=self.in_progress())
        written: list[str] = []
        result: RunResult[Any] | None = None
        async for event in feed.follow():
            if isinstance(event, StreamChunk) and event.text and not event.thinking:
                for part in self._delta(written, event.text):
                    yield part
            elif isinstance(event, AttemptDiscarded) and written:
                for part in self._close_text(written, "incomplete"):
                    yield part
            elif isinstance(event, StreamStarted) and written:
                for part in self._close_text(written, "completed"):
                    yield part
            elif isinstance(event, RunEnded):
                result = event.result
        if result is None:
            told = _cut_off(feed)["error"]
            yield self._event("error", code=told["code"], message=told["message"], param=None)
            return
        if not written and not self.items:
            for part in self._delta(written, result.text):
                yield part
        for part in self._close_text(written, "completed"):
            yield part
        answer = self.response(result)
        kind = {"completed": "completed", "failed": "failed"}.get(answer["status"], "incomplete")
        yield self._event(f"response.{kind}", response=answer)

    def _delta(self, written: list[str], text: str) -> list[bytes]:
        where = {"item_id": self._id(), "output_index": len(self.items), "content_index": 0}
        parts = []
        if not written:
            item = {**_message(self._id(), ""), "status": "in_progress", "content": []}
            parts.append(self._event("response.output_item.added", output_index=len(self.items), item=item))
            parts.append(self._event("response.content_part.added", **where, part=_text("")))
        written.append(text)
        parts.append(self._event("response.output_text.delta", **where, delta=text, logprobs=[]))
        return parts

    def _close_text(self, written: list[str], status: str) -> list[bytes]:
        if not written:
            return []
        text, where = "".join(written), {"item_id": self._id(), "output_index": len(self.items), "content_index": 0}
        item = {**_message(self._id(), text), "status": status}
        parts = [
            self._event("response.output_text.done", **where, text=text, logprobs=[]),
            self._event("response.content_part.done", **where, part=_text(text)),
            self._event("response.output_item.done", output_index=len(self.items), item=item),
        ]
        self.items.append(item)
        written.clear()
        return parts

    def _id(self) -> str:
        return f"msg_{self.feed.run_id}_{len(self.items)}"

    def _event(self, kind: str, **fields: Any) -> bytes:
        self.number += 1
        data = _wire.encode({"type": kind, "sequence_number": self.number, **fields})
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


async def _chat_chunks(model: str, feed: RunFeed, *, wants_usage: bool) -> AsyncIterator[bytes]:
    head = _chat_head(model, feed, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return b"data: %s\n\n" % _wire.encode({**head, "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": ""})
    said = fresh = False
    result: RunResult[Any] | None = None
    async for event in feed.follow():
        if isinstance(event, StreamStarted):
            fresh = said
        elif isinstance(event, StreamChunk) and event.text and not event.thinking:
            yield chunk({"content": ("\n\n" if fresh else "") + event.text})
            said, fresh = True, False
        elif isinstance(event, AttemptDiscarded) and said and not fresh:
            yield chunk({"content": DISCARDED})
        elif isinstance(event, RunEnded):
            result = event.result
    if result is None or result.outcome is LoopOutcome.FAILED:
        yield b"data: %s\n\n" % _wire.encode(_cut_off(feed) if result is None else _failure(result))
        yield b"data: [DONE]\n\n"
        return
    if not said:
        yield chunk({"content": result.text})
    yield chunk({}, _finish(result), glidepath=ending_of(result))
    if wants_usage:
        yield b"data: %s\n\n" % _wire.encode({**head, "choices": [], "usage": _chat_usage(result)})
    yield b"data: [DONE]\n\n"


async def _last_result(feed: RunFeed) -> RunResult[Any] | None:
    found = None
    page = await feed.page(0, feed.last + 1, 1, "RunEnded")
    for line in page["events"]:
        event: Any = codec().decode(bytes(line))
        found = event.result if isinstance(event, RunEnded) else found
    return found


def _chat_head(model: str, feed: RunFeed, kind: str) -> dict[str, Any]:
    created = int(feed.card.started or time.time())
    return {"id": CHAT + feed.run_id, "object": kind, "created": created, "model": model}


def _chat_usage(result: RunResult[Any]) -> dict[str, Any]:
    usage = result.usage
    return {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total}


def _finish(result: RunResult[Any]) -> str:
    return "stop" if result.outcome in (LoopOutcome.DONE, LoopOutcome.PAUSED) else "length"


def _status(result: RunResult[Any]) -> tuple[str, dict[str, str] | None]:
    if result.outcome is LoopOutcome.DONE:
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


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "glidepath"}


def _failure(result: RunResult[Any]) -> dict[str, Any]:
    """The error of a run that failed, as OpenAI's clients know it, with how it ended beside it."""
    why = "the run failed" if result.cause is None else f"the run failed: {result.cause.source}: {result.cause.reason}"
    return {"error": _error("run_failed", why), "glidepath": ending_of(result)}


def _cut_off(feed: RunFeed) -> dict[str, Any]:
    """The error of a stream that ends before its run, because the server does."""
    why = f"the server is shutting down before the run has ended; GET /api/runs/{feed.run_id} shows how it ended"
    return {"error": _error("lost", why)}


def _error(code: str, message: str) -> dict[str, Any]:
    return {"message": message, "type": "server_error", "param": None, "code": code}


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_wire.encode(value), status, media_type="application/json", headers=dict(headers or {}))


async def _parse_body(request: Request, kind: type[Any]) -> Any:
    try:
        return _wire.decode(await request.body(), kind)
    except (WireError, ValueError, RecursionError) as error:
        raise HttpError(400, "bad_body", f"malformed body for this path: {error}"[:300]) from None


def _refuse_tools(tools: Sequence[Any] | None) -> None:
    if tools:
        raise HttpError(400, "tools", "an agent brings its own tools: leave tools out")


def _tags(metadata: Mapping[str, Any] | None) -> list[str] | None:
    tags = (metadata or {}).get("tags")
    return tags.split(",") if isinstance(tags, str) and tags else None
