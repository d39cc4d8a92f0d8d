"""Writes a request so that a small model can follow it.

A small model cannot be trusted to call tools natively. It is told to reply with one JSON object, and a grammar made
from a schema lets it write nothing else: {"tool": name, "arguments": {...}} for a call, {"answer": text} for an answer.
Earlier calls and results are shown in the same form. Without tools it just talks, and earlier calls are told in prose.

All tools of a run are shown in every request, also those that may not be called now: the grammar leaves those out. So a
request begins like the one before it, and llama.cpp reads only what is new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.spi import ModelRequest, ToolSpec
from glidepath.tools.schema import move_references
from glidepath.values import (
    AssistantMessage,
    ImageBlock,
    Message,
    RejectedError,
    SystemMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)

_REPLY = "Reply with one JSON object and nothing else."
_CALL = 'To use a tool: {"tool": "NAME", "arguments": {...}}.'
_ANSWER = 'To answer the user: {"answer": "TEXT"}.'
_ADVICE = "Use a tool when it helps. When you have the result of a tool, answer."
_GO_ON = "Now answer the user."
_GO_ON_CALLING = "Now use the next tool."
_MEND = "Correct the call, or answer the user."
_ANY_TEXT: Mapping[str, Any] = {"type": "string"}
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class PromptBrief(_wire.Value, frozen=True):
    """A request in the form the server accepts."""

    messages: list[dict[str, str]]
    schema: Mapping[str, Any] | None
    """What the reply must conform to; None when it is free text."""
    wrapped: bool
    """The reply is an object that says whether it is a call or an answer."""


def make_brief(request: ModelRequest) -> PromptBrief:
    """The messages and the constraint of a request; raises `RejectedError` for what such a model cannot do."""
    shown, tools = request.defined_tools or request.tools, _choose_offered_tools(request)
    answering = not tools or request.tool_choice == "auto"
    schema = request.output_schema
    system = request.system_prompt
    if shown:
        schema = _choice(tools, (schema or _ANY_TEXT) if answering else None)
        lines = [system or "You are a helpful assistant.", "", "You can use these tools:"]
        lines += [f"- {spec.name}: {spec.description} Arguments: {_arguments(spec)}" for spec in shown]
        system = "\n".join([*lines, "", f"{_REPLY} {_CALL} {_ANSWER}", _ADVICE])
    return PromptBrief(
        _merge_turns(system, request.messages, wrapped=bool(shown), answering=answering), schema, bool(shown)
    )


def loosen_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same choice with any object for arguments: for schemas that cannot be made into a grammar."""
    definitions = {name: _ANY_OBJECT if name != "answer" else given for name, given in schema["$defs"].items()}
    return {**schema, "$defs": definitions}


def _choose_offered_tools(request: ModelRequest) -> Sequence[ToolSpec]:
    choice = request.tool_choice
    if choice == "none" or not request.tools:
        return ()
    if choice in ("auto", "required"):
        return request.tools
    named = [spec for spec in request.tools if spec.name == choice]
    if not named:
        raise RejectedError(f"tool_choice {choice!r} is neither auto, required, none nor the name of a tool")
    return named


def _choice(tools: Sequence[ToolSpec], answer: Mapping[str, Any] | None) -> Mapping[str, Any]:
    forms: list[Any] = []
    definitions: dict[str, Any] = {}
    for number, spec in enumerate(tools):
        place = f"tool{number}"
        definitions[place] = move_references(spec.parameters, "#", f"#/$defs/{place}")
        forms.append(_form(tool={"const": spec.name}, arguments={"$ref": f"#/$defs/{place}"}))
    if answer is not None:
        definitions["answer"] = move_references(answer, "#", "#/$defs/answer")
        forms.append(_form(answer={"$ref": "#/$defs/answer"}))
    return {"oneOf": forms, "$defs": definitions} if len(forms) > 1 else {**forms[0], "$defs": definitions}


def _form(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _arguments(spec: ToolSpec) -> str:
    """The parameters without the frame around them, which is the same for every tool."""
    schema = spec.parameters
    told = schema if "$defs" in schema or "properties" not in schema else schema["properties"]
    return _wire.encode(told).decode()


def _merge_turns(system: str, messages: Sequence[Message], *, wrapped: bool, answering: bool) -> list[dict[str, str]]:
    """Alternating turns: many templates refuse two messages of one role in a row, and have no role for results."""
    said = [("system", system)] if system else []
    ends = {  # the last result of each batch asks for the next step, even when it is no longer the newest
        number
        for number, message in enumerate(messages)
        if number + 1 == len(messages) or type(messages[number + 1]) is not ToolResultMessage
    }
    for number, message in enumerate(messages):
        if type(message) is UserMessage:
            said.append(("user", _user_text(message)))
        elif type(message) is AssistantMessage:
            if text := _assistant_text(message, wrapped=wrapped):
                said.append(("assistant", text))
        elif type(message) is ToolResultMessage:
            said.append(("user", _result_text(message, asks=number in ends, answering=answering)))
        elif type(message) is SystemMessage:
            said.append(("system" if len(said) < 2 and not _has_conversation(said) else "user", message.content))  # noqa: PLR2004
    turns: list[dict[str, str]] = []
    for role, text in said:
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n\n" + text
        else:
            turns.append({"role": role, "content": text})
    return turns


def _has_conversation(said: list[tuple[str, str]]) -> bool:
    return any(role != "system" for role, _ in said)


def _user_text(message: UserMessage) -> str:
    for block in message.content if not isinstance(message.content, str) else ():
        if type(block) is not TextBlock:
            kind = "image" if type(block) is ImageBlock else getattr(block, "kind", "") or "file"
            article = "an" if kind[0] in "aeiou" else "a"
            raise RejectedError(f"the embedded model reads text only: it cannot be sent {article} {kind}")
    return message.text


def _assistant_text(message: AssistantMessage, *, wrapped: bool) -> str:
    """A reply in the form that the next one must have: a small model imitates what it said before."""
    text, calls = message.text, message.tool_calls
    if not wrapped:
        told = [f"I used the tool {call.name} with {_json(call.arguments)}." for call in calls]
        return "\n".join([text, *told] if text else told)
    lines = [_json({"tool": call.name, "arguments": call.arguments}) for call in calls]
    if text:
        lines.insert(0, text if calls else _json({"answer": text}))
    return "\n".join(lines)


def _result_text(message: ToolResultMessage, *, asks: bool, answering: bool) -> str:
    text = message.text
    if not isinstance(message.content, str):
        for block in message.content:
            if type(block) is not TextBlock:
                what = "an image" if type(block) is ImageBlock else "a file"
                text += f"\n[{what} ({getattr(block, 'media_type', '')}) you cannot see]"
    line = f"{message.tool_name} failed: {text}" if message.is_error else f"Result of {message.tool_name}: {text}"
    if not asks:
        return line
    if message.is_error:
        return f"{line}\n{_MEND}"
    return f"{line}\n{_GO_ON if answering else _GO_ON_CALLING}"


def _json(value: object) -> str:
    """JSON with spaces, as models write it: they imitate best what they have seen most."""
    return json.dumps(value, ensure_ascii=False, default=str)
