"""Gemini generateContent: how a request is read, and what the vendor refuses."""

from __future__ import annotations

from typing import Any

from glidepath._wire import encode
from glidepath.testing.upstream.asked import (
    SUBMIT_LINE,
    AskedCall,
    IllegalRequestError,
    OfferedTool,
    PastCall,
    read_field,
)
from glidepath.testing.upstream.issued_ids import is_issued

SIGNATURE = "Cscript0"
UNEQUAL = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
MODES = {"AUTO": "auto", "NONE": "none", "ANY": "any", "VALIDATED": "auto", "MODE_UNSPECIFIED": "auto"}


def read_gemini(body: dict[str, Any], model: str) -> AskedCall:
    """Read a request for `models/MODEL:generateContent`; a request to count may hold a whole one."""
    body = pick_names(body)
    if "generateContentRequest" in body:
        body = pick_names(body["generateContentRequest"])
    asked = AskedCall("gemini", model)
    contents = read_field(body, "contents", (list, str, dict))
    if isinstance(contents, str):
        contents = [{"role": "user", "parts": [{"text": contents}]}]
    if isinstance(contents, dict):
        contents = [contents]
    if not contents:
        raise IllegalRequestError("* GenerateContentRequest.contents: contents is not specified")
    config = pick_names(read_field(body, "generationConfig", dict) or {})
    asked.max_output = read_field(config, "maxOutputTokens", int)
    if asked.max_output is not None and asked.max_output < 1:
        raise IllegalRequestError("* GenerateContentRequest.generation_config.max_output_tokens: must be positive")
    asked.copies = read_field(config, "candidateCount", int) or 1
    asked.schema = config.get("responseJsonSchema") or config.get("responseSchema")
    thinking = pick_names(config.get("thinkingConfig") or {})
    asked.thinks = bool(thinking) and thinking.get("thinkingBudget") != 0
    _read_tools(asked, body)
    system = body.get("systemInstruction")
    if system:
        asked.has_submit_line |= SUBMIT_LINE in encode(system).decode()
        asked.add_block(system)
    _read_contents(asked, contents)
    return asked


def pick_names(given: object) -> dict[str, Any]:
    """The fields of an object in camel case: the vendor takes both ways to write them."""
    if not isinstance(given, dict):
        raise IllegalRequestError("Invalid JSON payload received. Expected an object.")
    return {_camel(name) if "_" in name else name: value for name, value in given.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _read_tools(asked: AskedCall, body: dict[str, Any]) -> None:
    found = []
    for tool in read_field(body, "tools", list) or ():
        declared = pick_names(tool).get("functionDeclarations") or ()
        if not declared:
            asked.add_block(tool)
        for function in declared:
            asked.add_block(function)
            named = pick_names(function)
            schema = named.get("parametersJsonSchema") or named.get("parameters") or {}
            found.append(OfferedTool(name=str(named.get("name")), parameters=schema))
    asked.tools = tuple(found)
    config = pick_names(pick_names(body.get("toolConfig") or {}).get("functionCallingConfig") or {})
    if not config:
        return
    if not found:
        raise IllegalRequestError("Function calling config is set without function_declarations.")
    mode = str(config.get("mode") or "AUTO").upper()
    if mode not in MODES:
        raise IllegalRequestError(f"Invalid value at 'tool_config.function_calling_config.mode': \"{mode}\"")
    asked.choice = MODES[mode]
    allowed = config.get("allowedFunctionNames") or ()
    if allowed:
        if mode not in ("ANY", "VALIDATED"):
            raise IllegalRequestError("Allowed function names should be set only when function calling mode is ANY.")
        unknown = [name for name in allowed if asked.find_tool(name) is None]
        if unknown:
            raise IllegalRequestError(f"allowed_function_names: {unknown[0]!r} is not in function_declarations.")
        asked.tools = tuple(tool for tool in found if tool.name in allowed)
        if len(allowed) == 1 and mode == "ANY":
            asked.choice = f"={allowed[0]}"


def _read_contents(asked: AskedCall, contents: list[Any]) -> None:
    waiting = 0
    for place, content in enumerate(contents):
        role = content.get("role", "user") if isinstance(content, dict) else None
        if role not in ("user", "model", "function"):
            raise IllegalRequestError(f"Please use a valid role: user, model. (contents[{place}].role)")
        parts = [pick_names(part) for part in content.get("parts") or ()]
        if not parts:
            raise IllegalRequestError(
                f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty."
            )
        for part in parts:
            if not part.keys() - {"thought", "thoughtSignature"}:
                raise IllegalRequestError(
                    f"* GenerateContentRequest.contents[{place}].parts: required oneof field 'data' must have one "
                    "initialized field"
                )
            asked.add_block([role, part])
        answers = sum("functionResponse" in part for part in parts)
        if answers and answers != waiting:
            raise IllegalRequestError(UNEQUAL)
        waiting = _read_calls(asked, parts, place) if role == "model" else 0
        if role == "user":
            asked.user_texts.append("\n".join(str(part["text"]) for part in parts if "text" in part))
    if waiting:  # a text may stand in for the answers, as Google's own agent sends it; the end may not
        raise IllegalRequestError(UNEQUAL)


def _read_calls(asked: AskedCall, parts: list[dict[str, Any]], place: int) -> int:
    calls = [part for part in parts if "functionCall" in part]
    for part in calls:
        call = part["functionCall"]
        asked.past.append(PastCall(name=str(call.get("name")), arguments=encode(call.get("args")).decode()))
    for part in parts:
        signature = part.get("thoughtSignature")
        if signature is not None and not is_issued(str(signature), SIGNATURE):
            raise IllegalRequestError("Thought signature is not valid.")
    if calls and asked.model.startswith("gemini-3") and "thoughtSignature" not in calls[0]:
        name = calls[0]["functionCall"].get("name")
        raise IllegalRequestError(
            "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
            f"correctly. Additional data, function call `default_api:{name}`, position {place}."
        )
    return len(calls)
