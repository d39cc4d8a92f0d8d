"""What AG-UI front ends send, as ours: messages, tools, their results, decisions; `HttpError` for the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath.apps.server.client_tools import ClientAnswer, ClientTool, make_client_tools
from glidepath.apps.server.inline_image import inline_image
from glidepath.apps.server.per_request import NO_CHANGES, RequestChanges
from glidepath.apps.server.refusals import HttpError
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.shapes import DecideBody
from glidepath.values import (
    ImageBlock,
    Message,
    TextBlock,
    ToolCall,
    UserMessage,
    make_earlier_reply,
    make_earlier_result,
)

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput

__all__ = ["parse_input", "read_answers", "read_changes", "read_decision", "read_messages"]


def parse_input(body: bytes) -> RunAgentInput:
    """The input of a run."""
    try:
        from ag_ui.core import RunAgentInput
    except ImportError:
        raise HttpError(501, "not_installed", "the server lacks ag-ui-protocol, a part of the extra serve") from None
    try:
        return RunAgentInput.model_validate_json(body)
    except ValueError as error:
        raise HttpError(400, "bad_body", f"the body is not a RunAgentInput: {_first_error(error)}") from None


def _first_error(error: ValueError) -> str:
    found = getattr(error, "errors", None)
    if found is None:
        return str(error)[:200]
    one = found()[0]
    return f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"


_QUESTION = re.compile(r"(?P<call>.*)#(?P<nonce>[0-9a-f]{16})\.(?P<digest>[0-9a-f]{32})", re.DOTALL)
"""The id of an interrupt. It comes back with the answer, whatever front end it is."""


def read_decision(entry: Any, feed: RunFeed, waiting: frozenset[str]) -> DecideBody:
    """What a front end answered; raises `HttpError`. A yes counts for the question it answers, and for no other."""
    payload, question = entry.payload, _QUESTION.fullmatch(entry.interrupt_id)
    call_id, digest = (entry.interrupt_id, "") if question is None else (question["call"], question["digest"])
    if entry.status == "cancelled":
        return DecideBody(id=call_id, decision="deny", message="cancelled by the person", reason="AG-UI")
    if isinstance(payload, str):
        return DecideBody(id=call_id, decision="answer", message=payload, reason="AG-UI")
    if not isinstance(payload, Mapping):
        raise HttpError(
            400, "bad_resume", 'resume: payload must be {"approved": true or false}, a text, or the form filled in'
        )
    if "approved" not in payload:
        return DecideBody(id=call_id, decision="answer", arguments=dict(payload), reason="AG-UI")
    if payload["approved"] is not True:
        return DecideBody(id=call_id, decision="deny", message=str(payload.get("reason") or "denied"), reason="AG-UI")
    is_open = question is not None and feed.nonces.get(call_id, question["nonce"]) == question["nonce"]
    if call_id in waiting and not is_open:
        wrong = f"resume: {entry.interrupt_id!r:.80} is not the question that is open; use the last interrupt's id"
        raise HttpError(409, "other_question", wrong)
    arguments = payload.get("arguments")
    kind: Any = "approve" if arguments is None else "edit"
    return DecideBody(id=call_id, decision=kind, arguments=arguments, reason="AG-UI", digest=digest)


def read_changes(given: RunAgentInput) -> RequestChanges:
    """The front end's own tools, for the run; raises `HttpError`."""
    tools = make_client_tools(
        [
            ClientTool(place=f"tools[{place}]", name=one.name, description=one.description, parameters=one.parameters)
            for place, one in enumerate(given.tools or ())
        ]
    )
    return RequestChanges(tools=tools) if tools else NO_CHANGES


def read_answers(given: RunAgentInput) -> dict[str, ClientAnswer]:
    """By call id, what the front end's tools have returned: the messages that the request ends with."""
    found: dict[str, ClientAnswer] = {}
    for one in reversed(given.messages):
        if one.role != "tool":
            break
        text, error = str(one.content), getattr(one, "error", None)
        if "\0" in text:
            raise HttpError(400, "bad_messages", "the result of a tool must not have NUL characters")
        found.setdefault(one.tool_call_id, ClientAnswer(content=text or str(error or ""), is_error=bool(error)))
    return found


def read_messages(given: RunAgentInput) -> tuple[str, list[Message]]:
    """The instructions and the messages; raises `HttpError`."""
    instructions: list[str] = [f"{one.description}: {one.value}" for one in given.context or ()]
    messages: list[Message] = []
    names: dict[str, str] = {}
    for one in given.messages:
        content: Any = one.content if hasattr(one, "content") else None
        if one.role in ("system", "developer"):
            instructions.insert(0, str(content))
        elif one.role == "assistant":
            calls = [_call(call) for call in getattr(one, "tool_calls", None) or ()]
            names |= {call.id: call.name for call in calls}
            if content or calls:
                messages.append(make_earlier_reply(str(content or ""), calls))
        elif one.role == "tool":
            messages.append(make_earlier_result(one.tool_call_id, names.get(one.tool_call_id, "tool"), str(content)))
        elif one.role == "user":
            messages.append(
                UserMessage(content if isinstance(content, str) else tuple(_part(part) for part in content))
            )
    if not messages or not isinstance(messages[-1], UserMessage):
        raise HttpError(400, "bad_messages", "the last message must be the user's or a tool's, or give resume")
    if not messages[-1].text.strip() or "\0" in messages[-1].text:
        raise HttpError(400, "bad_messages", "the last message must not be empty or have NUL characters")
    return "\n\n".join(instructions), messages


def _call(given: Any) -> ToolCall:
    """A call that the front end says was made."""
    try:
        arguments = _wire.loads(given.function.arguments.encode())
    except (ValueError, RecursionError):
        arguments = None
    malformed = None if isinstance(arguments, dict) else given.function.arguments
    return ToolCall(given.id, given.function.name, arguments if isinstance(arguments, dict) else {}, malformed)


def _part(part: Any) -> TextBlock | ImageBlock:
    if part.type == "text":
        return TextBlock(part.text)
    source = getattr(part, "source", None)
    if part.type == "image" and source is not None and source.type in ("data", "url"):
        kind = getattr(source, "mime_type", None) or "image/*"
        if source.type == "url":
            if not source.value.startswith(("https://", "http://")):
                raise HttpError(400, "bad_messages", "an image's address must begin with https: or http:")
            return ImageBlock(media_type=kind, url=source.value)
        try:
            return inline_image(kind, source.value)
        except ValueError as error:
            raise HttpError(400, "bad_messages", str(error)) from None
    raise HttpError(400, "bad_messages", f"a part of type {part.type!r:.40} is not supported: send text or images")
