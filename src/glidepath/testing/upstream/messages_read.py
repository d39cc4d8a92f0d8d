"""Anthropic Messages: how a request is read, and what the vendor refuses."""

from __future__ import annotations

import re
from typing import Any

from glidepath._wire import encode
from glidepath.testing.upstream.asked import (
    SUBMIT_LINE,
    AskedCall,
    IllegalRequestError,
    OfferedTool,
    PastCall,
    join_texts,
    read_field,
)
from glidepath.testing.upstream.issued_ids import sign

MOST_MARKS = 4
SMALLEST_THINKING = 1024
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
CHOICES = {"auto": "auto", "any": "any", "none": "none"}
THINKING = ("thinking", "redacted_thinking")


def read_messages(body: dict[str, Any], *, counting: bool = False) -> AskedCall:
    """Read a request for `/v1/messages`, or for `count_tokens` when `counting`."""
    asked = AskedCall("anthropic", _require(body, "model", str))
    asked.stream = bool(read_field(body, "stream", bool))
    if not counting:
        asked.max_output = _require(body, "max_tokens", int)
        if asked.max_output < 1:
            raise IllegalRequestError("max_tokens: Input should be greater than or equal to 1")
    messages = _require(body, "messages", list)
    if not messages:
        raise IllegalRequestError("messages: at least one message is required")
    wanted = (read_field(body, "output_config", dict) or {}).get("format") or read_field(body, "output_format", dict)
    asked.schema = (wanted or {}).get("schema")
    _read_tools(asked, body)
    _read_thinking(asked, body)
    _read_system(asked, body)
    _read_turns(asked, body, messages)
    _count_cache_marks(asked, body)
    return asked


def _require(body: dict[str, Any], name: str, kind: type) -> Any:
    value = read_field(body, name, kind)
    if value is None:
        raise IllegalRequestError(f"{name}: Field required")
    return value


def _read_tools(asked: AskedCall, body: dict[str, Any]) -> None:
    tools = read_field(body, "tools", list) or []
    found = []
    for place, tool in enumerate(tools):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            raise IllegalRequestError(f"tools.{place}.name: Field required")
        asked.add_block(_drop_cache_mark(tool), is_marked="cache_control" in tool)
        if tool.get("type", "custom") == "custom":
            schema = tool.get("input_schema")
            if not isinstance(schema, dict):
                raise IllegalRequestError(f"tools.{place}.custom.input_schema: Field required")
            found.append(OfferedTool(name=name, parameters=schema))
    if len({tool["name"] for tool in tools}) < len(tools):
        raise IllegalRequestError("tools: Tool names must be unique.")
    asked.tools = tuple(found)
    choice = read_field(body, "tool_choice", dict)
    if choice is None:
        return
    if not tools:
        raise IllegalRequestError("tool_choice may only be specified while providing tools.")
    kind = choice.get("type")
    if kind == "tool":
        if asked.find_tool(str(choice.get("name"))) is None:
            raise IllegalRequestError(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")
        asked.choice = f"={choice['name']}"
    elif kind in CHOICES:
        asked.choice = CHOICES[kind]
    else:
        raise IllegalRequestError(
            f"tool_choice: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        )
    asked.is_parallel = not choice.get("disable_parallel_tool_use")


def _read_thinking(asked: AskedCall, body: dict[str, Any]) -> None:
    thinking = read_field(body, "thinking", dict) or {}
    kind = thinking.get("type", "disabled")
    if kind not in ("enabled", "adaptive", "disabled"):
        raise IllegalRequestError(
            f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        )
    asked.thinks = kind != "disabled"
    asked.shows_thinking = thinking.get("display") != "omitted"
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < SMALLEST_THINKING:
            raise IllegalRequestError("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if asked.max_output is not None and asked.max_output <= budget:
            raise IllegalRequestError("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if asked.thinks and (asked.choice == "any" or asked.choice.startswith("=")):
        raise IllegalRequestError("Thinking may not be enabled when tool_choice forces tool use.")


def _read_system(asked: AskedCall, body: dict[str, Any]) -> None:
    system = body.get("system")
    if system is None:
        return
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else system:
        if not isinstance(block, dict) or not isinstance(block.get("text"), str):
            raise IllegalRequestError("system: Input should be a valid string or a list of text blocks")
        asked.has_submit_line |= SUBMIT_LINE in block["text"]
        asked.add_block(_drop_cache_mark(block), is_marked="cache_control" in block)


def _read_turns(asked: AskedCall, body: dict[str, Any], messages: list[Any]) -> None:
    # A change of tool_choice or thinking loses the cached messages, not the tools and the system prompt.
    salt = encode([body.get("tool_choice"), body.get("thinking")])
    is_manual = (body.get("thinking") or {}).get("type") == "enabled"
    open_calls: dict[str, PastCall] = {}
    for place, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant", "system"):
            raise IllegalRequestError(f"messages.{place}.role: Input should be 'user' or 'assistant'")
        if place == 0 and role == "assistant":
            raise IllegalRequestError('messages: first message must use the "user" role')
        blocks = _blocks_of(message, place, is_last=place == len(messages) - 1)
        if role == "assistant":
            _check_assistant(blocks, place, is_manual=is_manual and _is_answered(messages, place))
        elif role == "user":
            _check_results(blocks, place, open_calls)
            asked.user_texts.append(join_texts(blocks, "text"))
            asked.has_submit_line |= SUBMIT_LINE in asked.user_texts[-1]
        if role != "system":
            open_calls = {}
        for number, block in enumerate(blocks):
            asked.add_block([role, _drop_cache_mark(block)], is_marked="cache_control" in block, salt=salt)
            salt = b""
            if block.get("type") == "tool_use" and role == "assistant":
                call_id = str(block.get("id"))
                if not TOOL_ID.fullmatch(call_id):
                    raise IllegalRequestError(
                        f"messages.{place}.content.{number}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                    )
                call = PastCall(
                    name=str(block.get("name")), call_id=call_id, arguments=encode(block.get("input")).decode()
                )
                open_calls[call_id] = call
                asked.past.append(call)
        if open_calls and role == "assistant":
            _check_answers(messages, place, open_calls)
    if asked.past and not body.get("tools"):
        raise IllegalRequestError("Requests which include `tool_use` or `tool_result` blocks must define tools")


def _blocks_of(message: dict[str, Any], place: int, *, is_last: bool) -> list[dict[str, Any]]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(one, dict) and "type" in one for one in blocks):
        raise IllegalRequestError(
            f"messages.{place}.content: Input should be a valid string or a list of content blocks"
        )
    is_open_end = is_last and message["role"] == "assistant"
    if not blocks and not is_open_end:
        raise IllegalRequestError(
            f"messages.{place}: all messages must have non-empty content except for the optional final assistant "
            "message"
        )
    for one in blocks:
        if one["type"] == "text":
            text = one.get("text")
            if not isinstance(text, str) or not text:
                raise IllegalRequestError("messages: text content blocks must be non-empty")
            if not text.strip():
                raise IllegalRequestError("messages: text content blocks must contain non-whitespace text")
            if is_open_end and text != text.rstrip():
                raise IllegalRequestError("messages: final assistant content cannot end with trailing whitespace")
    return blocks


def _check_assistant(blocks: list[dict[str, Any]], place: int, *, is_manual: bool) -> None:
    for number, block in enumerate(blocks):
        if block["type"] == "thinking" and block.get("signature") != sign(str(block.get("thinking"))):
            raise IllegalRequestError(f"messages.{place}.content.{number}: Invalid `signature` in `thinking` block")
    if is_manual and blocks and blocks[0]["type"] not in THINKING:
        raise IllegalRequestError(
            f"messages.{place}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0]['type']}`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block (preceding the lastmost set of `tool_use` and `tool_result` blocks)."
        )


def _is_answered(messages: list[Any], place: int) -> bool:
    """Whether this is the assistant turn whose tool results end the request."""
    following = messages[place + 1] if place + 2 == len(messages) else None
    content = following.get("content") if isinstance(following, dict) else None
    return isinstance(content, list) and any(
        isinstance(one, dict) and one.get("type") == "tool_result" for one in content
    )


def _check_answers(messages: list[Any], place: int, open_calls: dict[str, PastCall]) -> None:
    later = [one for one in messages[place + 1 :] if isinstance(one, dict) and one.get("role") != "system"]
    content = later[0].get("content") if later else None
    blocks = content if isinstance(content, list) else []
    given = {one.get("tool_use_id") for one in blocks if isinstance(one, dict) and one.get("type") == "tool_result"}
    missing = [call_id for call_id in open_calls if call_id not in given]
    if missing:
        raise IllegalRequestError(
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _check_results(blocks: list[dict[str, Any]], place: int, open_calls: dict[str, PastCall]) -> None:
    for number, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        call_id = block.get("tool_use_id")
        if call_id not in open_calls:
            raise IllegalRequestError(
                f"messages.{place}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{call_id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                "message."
            )


def _count_cache_marks(asked: AskedCall, body: dict[str, Any]) -> None:
    marks = sum(block.is_marked for block in asked.blocks)
    if "cache_control" in body and body["cache_control"] is not None:
        marks += 1
        asked.blocks[-1] = asked.blocks[-1].__class__(
            data=asked.blocks[-1].data, is_marked=True, salt=asked.blocks[-1].salt
        )
    if marks > MOST_MARKS:
        raise IllegalRequestError(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")


def _drop_cache_mark(block: dict[str, Any]) -> dict[str, Any]:
    if "cache_control" not in block:
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}
