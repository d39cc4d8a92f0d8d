"""The door for OpenAI clients: agents are models, a conversation or a previous response is a session.

`/v1/responses` (create, stream, get, cancel), `/v1/conversations`, `/v1/chat/completions` and `/v1/models`. `tools` of
a request are the client's: the run waits for the results of their calls, and the request that brings them continues it.
How the run ended is in `glidepath`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glidepath import _wire
from glidepath._wire import WireError
from glidepath.apps.server.client_answers import continue_run
from glidepath.apps.server.client_tools import ClientAnswer
from glidepath.apps.server.departures import STAY, STOP, begin_reading, leave_run, read_departure
from glidepath.apps.server.event_streams import EventStream, wait_until_gone
from glidepath.apps.server.hub import Hub
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.openai_answers import (
    RESPONSE,
    AnswerLeg,
    ChatAnswer,
    ResponseAnswer,
    describe_failure,
    find_leg,
    read_call_id,
    read_leg_id,
)
from glidepath.apps.server.openai_input import read_input
from glidepath.apps.server.openai_requests import (
    ChatBody,
    ConversationBody,
    ResponsesBody,
    read_chat_changes,
    read_response_changes,
)
from glidepath.apps.server.per_request import RequestChanges, model_names
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.route_rights import visitor_of
from glidepath.apps.server.run_actions import RunActions
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.shapes import ReasonBody
from glidepath.apps.server.store_reader import StoreReader
from glidepath.values import Event, LoopOutcome, Message, RunEnded, RunResult

FAILED = 422
"""Of a run that failed: clients try again after 408, 409, 429 and 5xx, and that would be another whole run."""


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
            Route("/v1/conversations", self.conversation, methods=["POST"]),
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

    async def conversation(self, request: Request) -> Response:
        """A name for a conversation that begins; its first response makes the session."""
        body = await _parse_body(request, ConversationBody)
        if body.items:
            raise HttpError(
                400, "bad_items", "items is not offered: send them as the input of a response", param="items"
            )
        made = {"id": f"conv_{secrets.token_hex(16)}", "object": "conversation", "created_at": int(time.time())}
        return _json({**made, "metadata": dict(body.metadata or {})})

    async def responses(self, request: Request) -> Any:
        """Start a run, or continue one with the results of its client's tools; answer with its response or a stream."""
        body = await _parse_body(request, ResponsesBody)
        changes, given, who = read_response_changes(body), read_input(body.input), visitor_of(request)
        departure = STAY if body.background else self._read_departure(body.metadata)
        if given.answers:
            leg = await self._continue_run(given.answers, changes, who)
        else:
            instructions = "\n\n".join(part for part in (body.instructions or "", given.instructions) if part)
            session, earlier = await self._session(body, who)
            leg = AnswerLeg(
                feed=await self.hub.start(
                    body.model,
                    [*earlier, *given.messages],
                    who=who,
                    session=session,
                    tags=_tags(body.metadata),
                    instructions=instructions,
                    changes=changes,
                ),
                schema=changes.schema,
                most=changes.max_output_tokens,
            )
        begin_reading(self.hub, leg.feed, departure)
        answer = ResponseAnswer(body, leg)
        if body.stream:
            return self._make_event_stream(leg.feed, answer.events(), departure)
        if body.background:
            return _json(answer.in_progress())
        return await self._answer_at_end(answer, request, departure)

    async def _answer_at_end(self, answer: ResponseAnswer, request: Request, departure: str) -> Response:
        result = await self._wait_for_end(answer.leg, request, departure, answer.note)
        answer.finish(result)
        return _json(answer.response(result))

    async def _continue_run(
        self, given: Mapping[str, ClientAnswer], changes: RequestChanges, who: Visitor
    ) -> AnswerLeg:
        named = {read_call_id(name) for name in given}
        runs = {run_id for run_id, _ in named}
        if len(runs) != 1 or not all(call_id for _, call_id in named):
            raise HttpError(
                FAILED, "unknown_call", "a result must have the id of its call, as this server sent it, all of one run"
            )
        answers = {read_call_id(name)[1]: one for name, one in given.items()}
        try:
            found = await continue_run(self.actions, runs.pop(), answers, changes, who)
        except HttpError as refused:
            if refused.status != 404:  # noqa: PLR2004 - for which clients would look at the path
                raise
            why = "the run that waits for this result is not here: without a store, runs end with the server"
            raise HttpError(FAILED, "unknown_call", why) from None
        return AnswerLeg(
            feed=found.feed,
            after=found.after,
            before=found.before,
            schema=changes.schema,
            most=changes.max_output_tokens,
        )

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
            found = await self.reader.find(read_leg_id(body.previous_response_id, RESPONSE)[0], who)
            given, run_id = found.session_id, found.run_id
        if self.hub.store is not None or given is None:
            return given, ()
        before = self.hub.result_of(run_id or "")
        return (given, ()) if before is None else (None, before.messages)

    async def response(self, request: Request) -> Response:
        """The response of a run that was started before, as far as it has come."""
        run_id, after = read_leg_id(request.path_params["id"], RESPONSE)
        found = await self.reader.find(run_id, visitor_of(request))
        body = ResponsesBody(model="" if found.feed is None else found.feed.head.agent, input="")
        if found.feed is None:
            raise HttpError(404, "unknown_response", "the events of this run were not kept; see /api/runs/{id}")
        answer = ResponseAnswer(body, AnswerLeg(feed=found.feed, after=after))
        answer.leg, result = await find_leg(found.feed, after, answer.note)
        if result is None:
            return _json(answer.in_progress())
        answer.finish(result)
        return _json(answer.response(result))

    async def cancel(self, request: Request) -> Response:
        """Stop the run of a response."""
        who = visitor_of(request)
        run_id, after = read_leg_id(request.path_params["id"], RESPONSE)
        found = await self.reader.find(run_id, who)
        if self.hub.flights.get(found.run_id) is None or found.feed is None:
            raise HttpError(409, "not_in_flight", "this server is not producing that response: nothing was cancelled")
        await self.actions.stop(found.run_id, ReasonBody(reason="cancelled by an OpenAI client"), who)
        leg = AnswerLeg(feed=found.feed, after=after)
        answer = ResponseAnswer(ResponsesBody(model=found.feed.head.agent, input=""), leg)
        return await self._answer_at_end(answer, request, "")

    # --- chat completions -------------------------------------------------------------------------------------

    async def chat(self, request: Request) -> Any:
        """Start a run on the messages of the request: its own session each time, as in that API.

        Messages that end with the results of the client's tools continue the run that waits for them.
        """
        body = await _parse_body(request, ChatBody)
        changes, given, who = read_chat_changes(body), read_input(list(body.messages), "messages"), visitor_of(request)
        departure = self._read_departure(body.metadata)
        if given.answers:
            leg = await self._continue_run(given.answers, changes, who)
        else:
            leg = AnswerLeg(
                feed=await self.hub.start(
                    body.model,
                    given.messages,
                    who=who,
                    tags=_tags(body.metadata),
                    instructions=given.instructions,
                    changes=changes,
                ),
                schema=changes.schema,
                most=changes.max_output_tokens,
            )
        begin_reading(self.hub, leg.feed, departure)
        answer = ChatAnswer(body.model, leg)
        if body.stream:
            wants_usage = bool((body.stream_options or {}).get("include_usage"))
            return self._make_event_stream(leg.feed, answer.events(wants_usage=wants_usage), departure)
        result = await self._wait_for_end(leg, request, departure, answer.text.read)
        if result.outcome is LoopOutcome.FAILED:
            return _json(describe_failure(result), FAILED, {"x-should-retry": "false"})
        return _json(answer.make_completion(result))

    # --- what both do -----------------------------------------------------------------------------------------

    def _read_departure(self, metadata: object) -> str:
        return read_departure(metadata, STOP if self.hub.on_disconnect == STOP else "")

    async def _wait_for_end(
        self, leg: AnswerLeg, request: Request, departure: str, note: Callable[[Event], object] = bool
    ) -> RunResult[Any]:
        """Wait for the end of a run, as a reader of it, for as long as the client does; `note` what happens."""
        feed = leg.feed
        feed.readers += 1
        reading = asyncio.ensure_future(_read_to_end(leg, note))
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
            leave_run(self.hub, feed, departure)
        if result is not None:
            return result
        raise HttpError(FAILED, "lost", "the run was lost before it ended; GET /api/runs/{id} shows it")

    def _make_event_stream(self, feed: RunFeed, parts: AsyncIterator[bytes], departure: str) -> EventStream:
        async def count_reader() -> AsyncIterator[bytes]:
            feed.readers += 1
            try:
                async for part in parts:
                    yield part
            finally:
                feed.readers -= 1

        return EventStream(count_reader, lambda: leave_run(self.hub, feed, departure))


async def _read_to_end(leg: AnswerLeg, note: Callable[[Event], object]) -> RunResult[Any] | None:
    result = None
    async for event in leg.feed.follow(leg.after):  # to the end, when its session is free for the next request
        note(event)
        if isinstance(event, RunEnded):
            result = event.result
    return result


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "glidepath"}


def _json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_wire.encode(value), status, media_type="application/json", headers=dict(headers or {}))


async def _parse_body(request: Request, kind: type[Any]) -> Any:
    try:
        return _wire.decode(await request.body(), kind)
    except (WireError, ValueError, RecursionError) as error:
        raise HttpError(400, "bad_body", f"malformed body for this path: {error}"[:300]) from None


def _tags(metadata: Mapping[str, Any] | None) -> list[str] | None:
    tags = (metadata or {}).get("tags")
    return tags.split(",") if isinstance(tags, str) and tags else None
