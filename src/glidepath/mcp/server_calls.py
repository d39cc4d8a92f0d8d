"""One call of a server's tool, from its arguments to its one result: progress, questions, a server that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.mcp.elicitation import Question, answers_of, combine_questions, question_of
from glidepath.mcp.server_owner import Idle, Interruptible, Request, ServerLost, ServerRefused
from glidepath.mcp.tool_answers import as_tool_result
from glidepath.tools import NeedsInput, SourceError, ToolContext, ToolResult
from glidepath.values import Unknown, message_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, InputRequiredResult
    from pydantic import BaseModel

    from glidepath.mcp.mcp_tool_source import McpToolSource

MOST_ROUNDS = 10  # answers that one call may ask for
FOREVER = 1e7  # seconds: a call's own times are kept by `Idle` and by its run
URL_REQUIRED = -32042
_UNKNOWN = "{why}. The call was in flight, so nobody knows whether it took effect: check before you repeat it."


class ServerCall(Interruptible):
    """A call in flight, as the server's questions find it."""

    def __init__(self, name: str, context: ToolContext | None) -> None:
        self.name = name
        self.context = context
        self.key = "" if context is None else context.idempotency_key
        self.request: Request[Any] | None = None
        self.answer: asyncio.Future[Any] | None = None
        self.kind = "form"
        self.form: Mapping[str, Any] = {}
        self.idle: Idle | None = None
        self.side_calls: set[asyncio.Task[Any]] = set()
        """Model calls that the server has asked for; they end with the call."""

    def end(self) -> None:
        """It has its answer, or was cancelled."""
        for task in self.side_calls:
            task.cancel()

    @property
    def run(self) -> Any:
        """The run it belongs to; None outside of one."""
        return None if self.context is None else getattr(self.context._host, "run", None)  # noqa: SLF001 - ours


async def call_tool(
    supply: McpToolSource, name: str, values: Mapping[str, Any], context: ToolContext | None, *, idempotent: bool
) -> ToolResult:
    """Call a tool of the server and map what it answers; every failure is a `SourceError` or a result that says so.

    Raises `NeedsInput` when a person has to answer first.
    """
    continuation = None if context is None else context.continuation
    state: dict[str, Any] = {} if continuation is None else _wire.loads(continuation.state.encode())
    call = ServerCall(name, context)
    if continuation is not None and state.get("held"):
        return await _answer_open_call(supply, call, continuation.answer)
    if continuation is not None:
        given = answers_of(state["kinds"], continuation.answer, state.get("forms", {}))
        state["responses"] = {**state.get("responses", {}), **{key: _dump_answer(one) for key, one in given.items()}}
    for last in (False, True):
        try:
            return await _call_with_answers(supply, call, values, state)
        except ServerLost as lost:
            if last or not idempotent:
                return _make_unknown_result(call, lost)
    raise AssertionError  # the second try returns or raises


async def _call_with_answers(
    supply: McpToolSource, call: ServerCall, values: Mapping[str, Any], state: dict[str, Any]
) -> ToolResult:
    """Send the call, and once more for every answer that it asks for."""
    pause = 0.05
    while True:
        answer = await _send_call(supply, call, values, state)
        if getattr(answer, "result_type", None) != "input_required":
            return as_tool_result(answer, supply.artifacts)
        state["rounds"] = state.get("rounds", 0) + 1
        if state["rounds"] > MOST_ROUNDS:
            raise SourceError(
                f"MCP server {supply.link.name!r}: {call.name} asked for input more than {MOST_ROUNDS} times"
            )
        state["request_state"] = answer.request_state
        if answer.input_requests:
            state["responses"] = await _answer_requests(supply, call, answer, state)
        else:
            state["responses"] = {}
            await asyncio.sleep(pause)
            pause = min(0.25, pause * 2)


async def _send_call(supply: McpToolSource, call: ServerCall, values: Mapping[str, Any], state: dict[str, Any]) -> Any:
    """The server's answer to one `tools/call`."""
    from mcp import types

    from glidepath.mcp.client_maker import CALL_RESULT

    link = supply.link
    idle = call.idle = Idle(link.idle_timeout, link.name)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        idle.renew()
        if call.context is not None:
            call.context.report({"progress": progress, "total": total, "message": message})

    request = types.CallToolRequest(
        params=types.CallToolRequestParams(
            name=call.name,
            arguments=dict(values),
            input_responses=_responses(state.get("responses")),
            request_state=state.get("request_state"),
        )
    )

    async def send(client: Client) -> CallToolResult | InputRequiredResult:
        return await client.session.send_request(
            request, CALL_RESULT, request_read_timeout_seconds=FOREVER, progress_callback=on_progress
        )

    async with supply.take_turn(call):
        call.request = await supply.owner.begin(send)
        try:
            return await supply.owner.finish(call.request, idle, call)
        except ServerRefused as refused:
            if refused.code == URL_REQUIRED and supply.link.elicitation:
                raise _make_visit_error(supply, call, refused) from None
            raise


def _responses(dumped: Mapping[str, Any] | None) -> Any:
    """Answers from the state, as the SDK's own types."""
    if not dumped:
        return None
    from mcp import types

    kinds: dict[str, Any] = {
        "action": types.ElicitResult,
        "roots": types.ListRootsResult,
        "role": types.CreateMessageResult,
    }
    return {
        key: next(kind for mark, kind in kinds.items() if mark in one).model_validate(one)
        for key, one in dumped.items()
    }


def _dump_answer(answer: BaseModel) -> Any:
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _answer_requests(
    supply: McpToolSource, call: ServerCall, answer: InputRequiredResult, state: dict[str, Any]
) -> dict[str, Any]:
    """What the server asked for: models and roots are answered here; for a person the run pauses."""
    from mcp import types

    responses: dict[str, Any] = {}
    questions: dict[str, Question] = {}
    for key, request in (answer.input_requests or {}).items():
        if isinstance(request, types.CreateMessageRequest):
            if supply.link.sampling is None:
                raise SourceError(_explain_not_allowed(supply, call, "a model's reply", "sampling=Sampling(...)"))
            said = await supply.sample(request.params, call)
        elif isinstance(request, types.ListRootsRequest):
            said = types.ListRootsResult(roots=[types.Root(uri=uri) for uri in supply.link.roots])  # type: ignore[arg-type]
        else:
            if not supply.link.elicitation:
                raise SourceError(_explain_not_allowed(supply, call, "a person's answer", "elicitation=True"))
            question = question_of(request.params)
            if isinstance(question, Question):
                questions[key] = question
                continue
            supply.report_refused_question(call, question)
            said = types.ElicitResult(action="decline")
        if isinstance(said, types.ErrorData):
            raise SourceError(f"MCP server {supply.link.name!r}: {call.name} asked for a model's reply: {said.message}")
        responses[key] = _dump_answer(said)
    if questions:
        reason, form = combine_questions(supply.link.name, call.name, questions)
        kinds = {key: "url" if question.url else "form" for key, question in questions.items()}
        forms = {key: question.form for key, question in questions.items()}
        kept = {**state, "responses": responses, "kinds": kinds, "forms": forms}
        raise NeedsInput(reason, form=form, state=_wire.encode(kept).decode())
    return responses


def _explain_not_allowed(supply: McpToolSource, call: ServerCall, what: str, how: str) -> str:
    return (
        f"MCP server {supply.link.name!r}: {call.name} asks for {what} in the middle of the call, which is not "
        f"allowed; allow it with {how}"
    )


def _make_visit_error(supply: McpToolSource, call: ServerCall, refused: ServerRefused) -> BaseException:
    """The server wants a person to open pages before it answers (protocol 2025-11-25)."""
    from mcp.types import ElicitationRequiredErrorData

    try:
        wanted = ElicitationRequiredErrorData.model_validate(refused.data).elicitations[:5]
    except ValueError:
        return refused
    questions = {
        str(number): question for number, one in enumerate(wanted) if not isinstance(question := question_of(one), str)
    }
    if not questions:
        return refused
    reason, _ = combine_questions(supply.link.name, call.name, questions)
    kept: dict[str, Any] = {"kinds": {}}
    return NeedsInput(reason, form={"type": "object", "properties": {}}, state=_wire.encode(kept).decode())


async def _answer_open_call(supply: McpToolSource, call: ServerCall, answer: Mapping[str, Any]) -> ToolResult:
    """Answer a call that a server of the older protocol has kept open; after a crash or a restart there is none."""
    held = supply.held.pop(call.key, None)
    if held is None or held.answer is None or held.answer.done() or held.request is None:
        why = f"MCP server {supply.link.name!r} no longer holds this call: the connection it was made on is gone"
        return _make_unknown_result(call, SourceError(why))
    held.context = call.context
    held.done = held.interrupted_by = None
    held.answer.set_result(answers_of({"": held.kind}, answer, {"": held.form})[""])
    try:
        if held.idle is not None:
            held.idle = Idle(supply.link.idle_timeout, supply.link.name)
        supply.calls[held.key] = held
        result = await supply.owner.finish(held.request, held.idle, held)
        return as_tool_result(result, supply.artifacts)
    except ServerLost as lost:
        return _make_unknown_result(call, lost)
    finally:
        supply.calls.pop(held.key, None)


def _make_unknown_result(call: ServerCall, why: SourceError) -> ToolResult:
    """The result of a call with an unknown outcome."""
    note = getattr(call.context._host, "mark_unknown", None) if call.context is not None else None  # noqa: SLF001 - ours
    if note is not None and call.context is not None:
        note(call.context.call_id)
    return ToolResult(
        _UNKNOWN.format(why=message_of(why)),
        is_error=True,
        kind="unknown_effect",
        details=Unknown.SERVER_LOST.details(),
    )
