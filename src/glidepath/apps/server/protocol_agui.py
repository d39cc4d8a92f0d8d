"""The door for AG-UI front ends: a thread is a session, a run that waits for a person ends with interrupts.

`POST /agui` runs the server's only agent (or the one that `forwardedProps.agent` names), `POST /agui/NAME` the one of
that name. Tools of the front end are its own: a run ends its turn with their calls, and the request that ends with
their results continues it. How the run ended is in the last event's metadata.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Set as AbstractSet
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import Route

from glidepath import _wire
from glidepath.apps.server.agui_input import (
    parse_input,
    read_answers,
    read_changes,
    read_decision,
    read_messages,
)
from glidepath.apps.server.client_answers import continue_run
from glidepath.apps.server.client_tools import ClientAnswer, is_client_call
from glidepath.apps.server.departures import LAND, STAY, STOP, begin_reading, leave_run, read_departure
from glidepath.apps.server.event_streams import EventStream
from glidepath.apps.server.hub import Hub
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.per_request import RequestChanges
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.result_json import ending_of
from glidepath.apps.server.route_rights import visitor_of
from glidepath.apps.server.run_actions import RunActions
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.store_reader import StoreReader
from glidepath.run import question_rows
from glidepath.values import (
    PROTOCOL_STOPS,
    ApprovalRequested,
    AttemptDiscarded,
    ChildEnded,
    ChildStarted,
    ConstraintViolated,
    Event,
    GuardTripped,
    LandingStarted,
    ModelSwitched,
    NoticeSent,
    PendingCall,
    RunEnded,
    RunResult,
    StreamChunk,
    StreamStarted,
    ToolEnded,
    ToolsChanged,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

if TYPE_CHECKING:
    from ag_ui.core import BaseEvent, RunAgentInput

_TOLD = (ConstraintViolated, GuardTripped, LandingStarted, ModelSwitched, NoticeSent, ToolsChanged, ChildStarted)
"""What has no event in AG-UI and is worth one: sent as a custom event."""


class AguiDoor:
    """Takes a `RunAgentInput` and answers with a stream of AG-UI events."""

    def __init__(self, hub: Hub, reader: StoreReader, actions: RunActions) -> None:
        self.hub = hub
        self.reader = reader
        self.actions = actions

    def routes(self) -> list[Route]:
        """Both paths."""
        return [
            Route("/agui", self.run, methods=["POST"]),
            Route("/agui/{agent}", self.run, methods=["POST"]),
        ]

    async def run(self, request: Request) -> Any:
        """Start a run, or continue one that was interrupted."""
        given = parse_input(await request.body())
        name, changes = self._agent(request.path_params.get("agent"), given), read_changes(given)
        who, answers = visitor_of(request), read_answers(given)
        if given.resume:
            who.must("decide")  # the route takes either
        if answers or not given.resume:
            who.must("start")
        departure = self._read_departure(given, who)
        feed, after = await self._find_or_start_run(name, given, answers, changes, who)
        begin_reading(self.hub, feed, departure)
        told = _Told(given.thread_id, given.run_id, feed, set(answers))

        async def parts() -> AsyncIterator[bytes]:
            feed.readers += 1
            try:
                async for part in told.stream(after):
                    yield part
            finally:
                feed.readers -= 1

        return EventStream(parts, lambda: leave_run(self.hub, feed, departure))

    def _read_departure(self, given: RunAgentInput, who: Visitor) -> str:
        """What happens when the caller leaves: a run is not ended by who may not end it."""
        usual = STAY if self.hub.on_disconnect == STAY else STOP if who.may("stop") else ""
        asked = read_departure(given.forwarded_props, usual, "forwardedProps.glidepath.on_disconnect")
        if asked in (STOP, LAND):
            who.must("stop")
        return asked

    async def _find_or_start_run(
        self,
        name: str,
        given: RunAgentInput,
        answers: Mapping[str, ClientAnswer],
        changes: RequestChanges,
        who: Visitor,
    ) -> tuple[RunFeed, int]:
        """The run that the request starts or continues, and the number of the last event before it does."""
        if given.resume:
            decided = await self._resume_run(given, answers, who)
            if not answers:
                return decided
        if answers:
            found = await continue_run(self.actions, given.thread_id, answers, changes, who)
            return found.feed, found.after
        return await self._start_run(name, given, changes, who), 0

    def _agent(self, path: str | None, given: RunAgentInput) -> str:
        props = given.forwarded_props
        asked = path or (props.get("agent") if isinstance(props, Mapping) else None)
        if asked is None and len(self.hub.agents) == 1:
            return next(iter(self.hub.agents))
        if not isinstance(asked, str):
            raise HttpError(404, "no_agent", f"name an agent: POST /agui/NAME with one of {', '.join(self.hub.agents)}")
        self.hub.agent(asked)
        return asked

    async def _start_run(self, name: str, given: RunAgentInput, changes: RequestChanges, who: Visitor) -> RunFeed:
        instructions, messages = read_messages(given)
        if self.hub.store is not None and await self._is_known(given.thread_id, who):
            messages = messages[-1:]  # what was said before is in the journal, in full
        return await self.hub.start(
            name, messages, who=who, session=given.thread_id, instructions=instructions, changes=changes
        )

    async def _is_known(self, session_id: str, who: Visitor) -> bool:
        try:
            await self.reader.find(session_id, who)
        except HttpError as refused:
            if refused.status == 404:  # noqa: PLR2004 - a thread that begins
                return False
            raise
        return True

    async def _resume_run(
        self, given: RunAgentInput, answers: Mapping[str, ClientAnswer], who: Visitor
    ) -> tuple[RunFeed, int]:
        """Decide about the calls that wait for a person; the run continues once those of its client are answered."""
        found = await self.reader.find(given.thread_id, who)
        if found.feed is None:
            raise HttpError(
                409, "not_here", "the events of this run were not kept: decide by POST /api/runs/{id}/decide"
            )
        feed, after = found.feed, found.feed.last
        waiting = await self.actions.list_undecided(found.run_id, who) - set(answers)
        decisions = {one.id: one for one in (read_decision(entry, feed, waiting) for entry in given.resume or ())}
        if missing := waiting - set(decisions):
            raise HttpError(
                409, "still_waiting", f"decide about {', '.join(sorted(missing))} in the same request as well"
            )
        for call_id in sorted(decisions, key=waiting.__contains__):  # one that does not wait is refused before the rest
            await self.actions.decide(found.run_id, decisions[call_id], who)
        return feed, after


class _Told:
    """One run as AG-UI events."""

    def __init__(self, thread_id: str, run_id: str, feed: RunFeed, answered: AbstractSet[str] = frozenset()) -> None:
        self._answered = answered  # calls that the client has made, and shows already
        self.thread_id = thread_id
        self.run_id = run_id
        self.feed = feed
        self.message: str | None = None
        self.thought: str | None = None
        self.count = 0
        self.asked: set[str] = set()
        self.step: str | None = None

    async def stream(self, after: int) -> AsyncIterator[bytes]:
        """The encoded events."""
        from ag_ui.core import PROTOCOL_VERSION, RunStartedEvent
        from ag_ui.encoder import EventEncoder

        encoder = EventEncoder()
        started = RunStartedEvent(thread_id=self.thread_id, run_id=self.run_id, protocol_version=PROTOCOL_VERSION)
        yield encoder.encode(started).encode()
        result: RunResult[Any] | None = None
        async for event in self.feed.follow(after):
            if isinstance(event, RunEnded):
                result = event.result  # told when the session is free for the next request
            for told in self._events(event):
                yield encoder.encode(told).encode()
        if result is not None:
            yield encoder.encode(self._make_end_event(result)).encode()

    def _events(self, event: Event) -> Iterator[BaseEvent]:
        import ag_ui.core as agui

        if isinstance(event, StreamChunk):
            yield from self._chunk(event)
        elif isinstance(event, StreamStarted | AttemptDiscarded):
            yield from self._close_messages()
            if isinstance(event, AttemptDiscarded):
                yield _custom(event)
        elif isinstance(event, ToolStarted | ApprovalRequested | ToolEnded) and event.call_id in self._answered:
            return
        elif isinstance(event, ToolStarted | ApprovalRequested):
            yield from self._close_messages()
            if event.call_id not in self.asked:
                self.asked.add(event.call_id)
                name, arguments = event.call_id, _wire.encode(dict(event.arguments)).decode()
                yield agui.ToolCallStartEvent(tool_call_id=name, tool_call_name=event.tool_name)
                yield agui.ToolCallArgsEvent(tool_call_id=name, delta=arguments)
                yield agui.ToolCallEndEvent(tool_call_id=name)
        elif isinstance(event, ToolEnded):
            text = event.result.text
            yield agui.ToolCallResultEvent(
                message_id=f"result_{event.call_id}", tool_call_id=event.call_id, content=text, role="tool"
            )
        elif isinstance(event, TurnStarted):
            yield from self._step_over()
            self.step = f"turn {event.iteration}"
            yield agui.StepStartedEvent(step_name=self.step)
        elif isinstance(event, TurnEnded | RunEnded):  # a run that pauses or is stopped ends in the middle of a turn
            yield from self._close_messages()
            yield from self._step_over()
        elif isinstance(event, (*_TOLD, ChildEnded)):
            yield _custom(event)

    def _chunk(self, event: StreamChunk) -> Iterator[BaseEvent]:
        import ag_ui.core as agui

        if not event.text:
            return
        if event.thinking:
            if self.thought is None:
                yield from self._close_messages()
                self.thought = self._make_message_id("reasoning")
                yield agui.ReasoningStartEvent(message_id=self.thought)
                yield agui.ReasoningMessageStartEvent(message_id=self.thought, role="reasoning")
            yield agui.ReasoningMessageContentEvent(message_id=self.thought, delta=event.text)
            return
        if self.message is None:
            yield from self._close_messages()
            self.message = self._make_message_id("message")
            yield agui.TextMessageStartEvent(message_id=self.message, role="assistant")
        yield agui.TextMessageContentEvent(message_id=self.message, delta=event.text)

    def _close_messages(self) -> Iterator[BaseEvent]:
        import ag_ui.core as agui

        if self.thought is not None:
            yield agui.ReasoningMessageEndEvent(message_id=self.thought)
            yield agui.ReasoningEndEvent(message_id=self.thought)
        if self.message is not None:
            yield agui.TextMessageEndEvent(message_id=self.message)
        self.thought = self.message = None

    def _step_over(self) -> Iterator[BaseEvent]:
        """Finish the step that was started in this stream; clients refuse any other."""
        import ag_ui.core as agui

        if self.step is not None:
            yield agui.StepFinishedEvent(step_name=self.step)
        self.step = None

    def _make_message_id(self, kind: str) -> str:
        self.count += 1
        return f"{kind}_{self.run_id}_{self.feed.run_id}_{self.count}"

    def _interrupt(self, pending: PendingCall) -> str:
        """The id of an interrupt: the call, a nonce of this very question, and the digest of what is shown with it."""
        nonce = self.feed.nonces[pending.call.id] = secrets.token_hex(8)
        return f"{pending.call.id}#{nonce}.{pending.digest}"

    def _make_end_event(self, result: RunResult[Any]) -> BaseEvent:
        import ag_ui.core as agui

        usage, metadata = [_usage(result)], {"glidepath": ending_of(result)}
        word, _, outcome = PROTOCOL_STOPS[result.state, result.outcome]["ag_ui"].partition("/")
        if word == "RUN_ERROR":
            message = "the run failed" if result.cause is None else result.cause.reason
            return agui.RunErrorEvent(message=message, code=result.outcome.value, usage=usage, metadata=metadata)
        found: Any = agui.RunFinishedSuccessOutcome(type="success")
        asked = [one for one in result.pending if not is_client_call(one)]
        if outcome == "cancelled":
            found = agui.RunFinishedCancelledOutcome(type="cancelled")
        elif outcome == "interrupt" and asked:
            interrupts = [
                agui.Interrupt(
                    id=self._interrupt(one),
                    reason="approval" if one.form is None else "input",
                    message="\n".join(question_rows(one)),
                    tool_call_id=one.call.id,
                    response_schema=dict(one.form) if one.form is not None else _APPROVAL,
                    metadata={"tool": one.call.name, "arguments": dict(one.call.arguments), "digest": one.digest},
                )
                for one in asked
            ]
            found = agui.RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts)
        return agui.RunFinishedEvent(
            thread_id=self.thread_id,
            run_id=self.run_id,
            outcome=found,
            result="" if outcome == "interrupt" and not asked else result.text,
            usage=usage,
            metadata=metadata,
        )


_APPROVAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "arguments": {"type": "object", "description": "run the call with these arguments instead"},
        "reason": {"type": "string", "description": "why it is denied"},
    },
    "required": ["approved"],
}


def _usage(result: RunResult[Any]) -> Any:
    import ag_ui.core as agui

    usage = result.usage
    return agui.TokenUsage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        total_tokens=usage.total,
        reasoning_tokens=usage.reasoning or None,
        cached_input_tokens=usage.cache_read or None,
        cache_write_input_tokens=usage.cache_write or None,
    )


def _custom(event: Event) -> BaseEvent:
    import ag_ui.core as agui

    return agui.CustomEvent(name=f"glidepath.{type(event).__name__}", value=_wire.decode(_wire.encode(event)))
