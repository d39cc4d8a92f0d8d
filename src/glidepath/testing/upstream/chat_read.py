"""OpenAI chat completions: how a request is read, and what the vendor refuses."""

from __future__ import annotations

from typing import Any

from glidepath.testing.upstream.asked import (
    SUBMIT_LINE,
    TOLD_CALL,
    AskedCall,
    IllegalRequestError,
    OfferedTool,
    PastCall,
    join_texts,
    read_field,
)

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MOST_COPIES = 128


def read_chat(body: dict[str, Any]) -> AskedCall:
    """Read a request for `/v1/chat/completions`."""
    asked = AskedCall("openai-chat", _require_model(body))
    asked.stream = bool(_read(body, "stream", bool))
    messages = _read(body, "messages", list)
    if messages is None:
        raise IllegalRequestError(
            "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
        )
    if not messages:
        raise _illegal(
            "messages", "empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
    _read_limits(asked, body)
    _read_tools(asked, body)
    _read_turns(asked, messages)
    options = _read(body, "stream_options", dict)
    if options is not None and not asked.stream:
        raise IllegalRequestError(
            "Invalid value for 'stream_options': The 'stream_options' parameter is only allowed when 'stream' is "
            "enabled.",
            param="stream_options",
        )
    asked.wants_usage = not asked.stream or bool((options or {}).get("include_usage"))
    wanted = (_read(body, "response_format", dict) or {}).get("json_schema") or {}
    asked.schema = wanted.get("schema")
    effort = _read(body, "reasoning_effort", str)
    asked.thinks = effort not in (None, "none")
    return asked


def _require_model(body: dict[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise IllegalRequestError("you must provide a model parameter")
    return model


def _read(body: dict[str, Any], name: str, kind: type) -> Any:
    return read_field(body, name, kind, message=f"Invalid type for '{name}': expected {kind.__name__}.")


def _illegal(name: str, why: str) -> IllegalRequestError:
    return IllegalRequestError(f"Invalid '{name}': {why}", param=name)


def _read_limits(asked: AskedCall, body: dict[str, Any]) -> None:
    old, new = _read(body, "max_tokens", int), _read(body, "max_completion_tokens", int)
    if old is not None and new is not None:
        raise IllegalRequestError(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", param="max_tokens"
        )
    asked.max_output = old if new is None else new
    if asked.max_output is not None and asked.max_output < 1:
        raise _illegal("max_tokens", "integer below minimum value. Expected a value >= 1.")
    asked.copies = _read(body, "n", int) or 1
    if not 1 <= asked.copies <= MOST_COPIES:
        raise _illegal("n", f"integer out of range. Expected a value from 1 to {MOST_COPIES}.")


def _read_tools(asked: AskedCall, body: dict[str, Any]) -> None:
    tools = _read(body, "tools", list)
    if tools is not None and not tools:
        raise _illegal("tools", "empty array. Expected an array with minimum length 1, but got an empty array instead.")
    found = []
    for place, tool in enumerate(tools or ()):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise IllegalRequestError(
                f"Missing required parameter: 'tools[{place}].function.name'.", param=f"tools[{place}]"
            )
        asked.add_block(tool)
        found.append(OfferedTool(name=function["name"], parameters=function.get("parameters") or {}))
    asked.tools = tuple(found)
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not tools:
            raise IllegalRequestError(
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", param=name
            )
    asked.is_parallel = body.get("parallel_tool_calls") is not False
    _read_choice(asked, body.get("tool_choice"))


def _read_choice(asked: AskedCall, choice: object) -> None:
    if choice is None:
        return
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        if asked.find_tool(str(name)) is None:
            raise IllegalRequestError(
                f"Invalid value for 'tool_choice': no function named '{name}' was specified in the 'tools' parameter.",
                param="tool_choice",
            )
        asked.choice = f"={name}"
    elif choice in ("auto", "none", "required"):
        asked.choice = "any" if choice == "required" else str(choice)
    else:
        raise IllegalRequestError(
            f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'.", param="tool_choice"
        )


def _read_turns(asked: AskedCall, messages: list[Any]) -> None:
    waiting: list[str] = []
    for place, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise IllegalRequestError(
                f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', "
                "and 'developer'.",
                param=f"messages[{place}].role",
            )
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                raise IllegalRequestError(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=f"messages[{place}].role",
                )
            waiting.remove(message["tool_call_id"])
        else:
            _check_answered(waiting, place)
        asked.add_block(message)
        if role == "assistant":
            waiting = _read_calls(asked, message, place)
        elif role in ("user", "system", "developer"):
            _read_text(asked, message, place)
    _check_answered(waiting, len(messages))


def _read_text(asked: AskedCall, message: dict[str, Any], place: int) -> None:
    content = message.get("content")
    if not isinstance(content, (str, list)):
        found = "null" if content is None else type(content).__name__
        raise IllegalRequestError(
            f"Invalid value for 'content': expected a string, got {found}.",
            param=f"messages.[{place}].content",
        )
    text = join_texts(content, "text")
    asked.has_submit_line |= SUBMIT_LINE in text
    if message["role"] == "user":
        asked.user_texts.append(text)


def _read_calls(asked: AskedCall, message: dict[str, Any], place: int) -> list[str]:
    calls = message.get("tool_calls")
    if calls is None:
        told = join_texts(message.get("content"), "text")
        if told.startswith("Calling tools:"):
            asked.past += [PastCall(name=name) for name in TOLD_CALL.findall(told)]
        if message.get("content") is None and message.get("refusal") is None and message.get("function_call") is None:
            raise IllegalRequestError(
                "Invalid value for 'content': expected a string, got null.", param=f"messages.[{place}].content"
            )
        return []
    if not isinstance(calls, list) or not calls:
        raise _illegal(
            f"messages[{place}].tool_calls",
            "empty array. Expected an array with minimum length 1, but got an empty array instead.",
        )
    for call in calls:
        function = call.get("function") or {}
        past = PastCall(
            name=str(function.get("name")), call_id=str(call.get("id")), arguments=str(function.get("arguments"))
        )
        asked.past.append(past)
    return [str(call.get("id")) for call in calls]


def _check_answered(waiting: list[str], place: int) -> None:
    if waiting:
        raise IllegalRequestError(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param=f"messages.[{place}].role",
        )
