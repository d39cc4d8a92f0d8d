"""OpenAI Responses: how a request is read, and what the vendor refuses."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from glidepath.testing.upstream.asked import (
    SUBMIT_LINE,
    AskedCall,
    IllegalRequestError,
    OfferedTool,
    PastCall,
    join_texts,
    read_field,
)
from glidepath.testing.upstream.issued_ids import is_issued

SMALLEST_MAXIMUM = 16
MOST_STORED = 1000
PREFIXES = {"message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_", "reasoning": "rs_"}
CALLS = ("function_call", "custom_tool_call", "local_shell_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
ADDED = "additional_tools"
"""An item that brings tools, in agents that do not send them in the request's own field."""
ENCRYPTED = "gAAAAA"
NOT_KEPT = (
    "Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item "
    "from your input."
)
ECHOED = ("instructions", "tools", "tool_choice", "temperature", "top_p", "truncation", "metadata", "reasoning", "text")


class StoredResponses:
    """The items of responses that a later request may continue from, the latest 1,000."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, list[Any]] = OrderedDict()

    def find(self, response_id: str) -> list[Any]:
        """The whole conversation up to and with that response; refused when it is unknown."""
        if response_id not in self._items:
            raise IllegalRequestError(
                f"Previous response with id '{response_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return self._items[response_id]

    def keep(self, response_id: str, items: list[Any]) -> None:
        """Remember a conversation under the id of its last response."""
        self._items[response_id] = items
        while len(self._items) > MOST_STORED:
            self._items.popitem(last=False)


def read_response(body: dict[str, Any], stored: StoredResponses) -> AskedCall:
    """Read a request for `/v1/responses`."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise IllegalRequestError(
            "Missing required parameter: 'model'.", param="model", code="missing_required_parameter"
        )
    asked = AskedCall("openai-responses", model)
    asked.stream = bool(_read(body, "stream", bool))
    asked.is_stored = _read(body, "store", bool) is not False
    asked.max_output = _read(body, "max_output_tokens", int)
    if asked.max_output is not None and asked.max_output < SMALLEST_MAXIMUM:
        raise IllegalRequestError(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got "
            f"{asked.max_output} instead.",
            param="max_output_tokens",
            code="integer_below_min_value",
        )
    reasoning = _read(body, "reasoning", dict) or {}
    asked.thinks = bool(reasoning) and reasoning.get("effort") != "none"
    asked.wants_encrypted = "reasoning.encrypted_content" in (_read(body, "include", list) or ())
    asked.schema = ((_read(body, "text", dict) or {}).get("format") or {}).get("schema")
    asked.echo = {name: body.get(name) for name in ECHOED}
    asked.echo["previous_response_id"] = body.get("previous_response_id")
    _read_tools(asked, body)
    instructions = _read(body, "instructions", str)
    if instructions:
        asked.has_submit_line |= SUBMIT_LINE in instructions
        asked.add_block(instructions)
    _read_items(asked, _gather(body, stored))
    return asked


def _gather(body: dict[str, Any], stored: StoredResponses) -> list[Any]:
    given = body.get("input")
    previous = _read(body, "previous_response_id", str)
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    if not isinstance(given, list) or not (given or previous):
        raise IllegalRequestError(
            "Missing required parameter: 'input'.", param="input", code="missing_required_parameter"
        )
    return [*(stored.find(previous) if previous else ()), *given]


def _read(body: dict[str, Any], name: str, kind: type) -> Any:
    return read_field(body, name, kind, message=f"Invalid type for '{name}': expected {kind.__name__}.")


def _read_tools(asked: AskedCall, body: dict[str, Any]) -> None:
    tools = _read(body, "tools", list) or []
    for place, tool in enumerate(tools):
        asked.add_block(tool)
        asked.tools += _offer(tool, f"tools[{place}]")
    given = body.get("input")
    for item in given if isinstance(given, list) else ():
        if isinstance(item, dict) and item.get("type") == ADDED:
            for place, tool in enumerate(item.get("tools") or ()):
                asked.tools += _offer(tool, f"input.tools[{place}]")
    asked.is_parallel = body.get("parallel_tool_calls") is not False
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        name = choice.get("name")
        if choice.get("type") in ("function", "custom") and asked.find_tool(str(name)) is None:
            raise IllegalRequestError(f"Tool choice '{name}' not found in 'tools' parameter.", param="tool_choice")
        asked.choice = f"={name}" if name else "any"
    elif choice in ("auto", "none", None):
        asked.choice = choice or "auto"
    elif choice == "required":
        if not asked.tools and not tools:
            raise IllegalRequestError(
                "Tool choice 'required' must be specified with 'tools' parameter.", param="tool_choice"
            )
        asked.choice = "any"
    else:
        raise IllegalRequestError(
            f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'.", param="tool_choice"
        )


def _offer(tool: object, where: str) -> tuple[OfferedTool, ...]:
    """The functions of a tool: of a namespace all that are in it, of a tool that the vendor runs none."""
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise IllegalRequestError(f"Missing required parameter: '{where}.type'.", param=f"{where}.type")
    if tool["type"] == "namespace":
        return tuple(_make_offer(one, tool.get("name")) for one in tool.get("tools") or () if one.get("name"))
    if tool["type"] not in ("function", "custom"):
        return ()
    if not isinstance(tool.get("name"), str):
        raise IllegalRequestError(f"Missing required parameter: '{where}.name'.", param=f"{where}.name")
    return (_make_offer(tool, None),)


def _make_offer(tool: dict[str, Any], namespace: str | None) -> OfferedTool:
    kind = "custom" if tool.get("type") == "custom" else "function"
    return OfferedTool(name=tool["name"], parameters=tool.get("parameters") or {}, kind=kind, namespace=namespace)


def _read_items(asked: AskedCall, items: list[Any]) -> None:
    called: dict[str, str] = {}
    answered: set[str] = set()
    for place, item in enumerate(items):
        if not isinstance(item, dict):
            raise IllegalRequestError(
                f"Invalid type for 'input[{place}]': expected an object.", param=f"input[{place}]"
            )
        kind = item.get("type") or "message"
        _check_id(item, kind, place, is_stored=asked.is_stored)
        asked.add_block({key: value for key, value in item.items() if key not in ("id", "status")})
        asked.items.append(item)
        call_id = str(item.get("call_id"))
        if kind in CALLS:
            arguments = item.get("arguments") or item.get("input") or ""
            called[call_id] = str(item.get("id") or call_id)
            asked.past.append(PastCall(name=str(item.get("name") or kind), call_id=call_id, arguments=str(arguments)))
        elif kind in OUTPUTS:
            if call_id not in called:
                raise IllegalRequestError(
                    f"No tool call found for {kind.replace('_', ' ')} with call_id {call_id}.", param="input"
                )
            answered.add(call_id)
            asked.past = [_answer(past, item) if past.call_id == call_id else past for past in asked.past]
        elif kind == "message":
            _read_message(asked, item, place)
        elif kind == "agent_message":
            asked.user_texts.append(_open_agent_message(item))
        elif kind == "reasoning":
            _check_follower(item, items, place)
    missing = [call_id for call_id in called if call_id not in answered]
    if missing:
        raise IllegalRequestError(f"No tool output found for function call {missing[0]}.", param="input")


def _open_agent_message(item: dict[str, Any]) -> str:
    """What one agent tells another. The vendor encrypts the payload for the agents' program; we leave it readable."""
    parts = [part for part in item.get("content") or () if isinstance(part, dict)]
    return "\n".join(str(part.get("text") or part.get("encrypted_content") or "") for part in parts)


def _answer(past: PastCall, item: dict[str, Any]) -> PastCall:
    output = item.get("output")
    text = output if isinstance(output, str) else join_texts(output, "input_text", "output_text")
    return PastCall(name=past.name, call_id=past.call_id, arguments=past.arguments, result=text)


def _check_id(item: dict[str, Any], kind: str, place: int, *, is_stored: bool) -> None:
    given = item.get("id")
    if kind == "item_reference":
        raise IllegalRequestError(f"Item with id '{given}' not found. {NOT_KEPT}", status=404, param="input")
    encrypted = item.get("encrypted_content") if kind == "reasoning" else None
    if encrypted is not None and not is_issued(str(encrypted), ENCRYPTED):
        raise IllegalRequestError(
            f"The encrypted content for item {given} could not be verified. Reason: Encrypted content could not be "
            "decrypted or parsed.",
            code="invalid_encrypted_content",
        )
    if given is None or kind not in PREFIXES:
        return
    prefix = PREFIXES[kind]
    if not str(given).startswith(prefix):
        raise IllegalRequestError(
            f"Invalid 'input[{place}].id': '{given}'. Expected an ID that begins with '{prefix[:-1]}'.",
            param=f"input[{place}].id",
            code="invalid_value",
        )
    if kind == "message" and item.get("role") != "assistant":
        return  # what a client says may carry an id of the client
    is_kept = is_stored or kind != "reasoning" or encrypted is not None
    if not is_issued(str(given), prefix) or not is_kept:
        raise IllegalRequestError(f"Item with id '{given}' not found. {NOT_KEPT}", status=404, param="input")


def _read_message(asked: AskedCall, item: dict[str, Any], place: int) -> None:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        raise IllegalRequestError(
            f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
            param=f"input[{place}].role",
        )
    text = join_texts(item.get("content"), "input_text", "output_text", "text")
    asked.has_submit_line |= SUBMIT_LINE in text and role != "assistant"
    if role == "user":
        asked.user_texts.append(text)


def _check_follower(item: dict[str, Any], items: list[Any], place: int) -> None:
    """Reasoning is followed by what it led to. Codex leaves a reply there when another agent has sent it a message."""
    following = items[place + 1] if place + 1 < len(items) else {}
    kind = following.get("type") or "message"
    is_own = kind in (*CALLS, "reasoning", "agent_message") or (
        kind == "message" and following.get("role") == "assistant"
    )
    if not is_own:
        raise IllegalRequestError(
            f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item.",
            param="input",
        )
