"""Messages as the GenAI conventions write them, clipped and redacted. Only where the user has allowed content."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from glidepath import _wire
from glidepath.apps.telemetry.vocabulary import finish_reason
from glidepath.spi import RunIntroduction, ToolSpec
from glidepath.values import AssistantMessage, Message, RunResult, ThinkingBlock, ToolCall, ToolResultMessage

__all__ = ["ContentWriter", "Redact", "clean"]

Redact: TypeAlias = Callable[[str], str]
REDACTION_FAILED = "[not shown: the redaction failed]"


def clean(text: str) -> str:
    """Text that every exporter can encode: lone surrogates become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


class ContentWriter:
    """Writes the messages of a turn: each text is redacted, then cut to `max_chars`."""

    def __init__(self, redact: Redact | None, max_chars: int) -> None:
        self._redact = redact
        self._max_chars = max_chars

    def text(self, text: str) -> str:
        """One piece of content. A redaction that fails shows nothing."""
        if self._redact is not None:
            text = _redact_text(self._redact, text)
        if len(text) > self._max_chars:
            text = f"{text[: self._max_chars]}... ({len(text)} characters)"
        return clean(text)

    def exchange(
        self, messages: Iterable[Message], reply: AssistantMessage | None, told: RunIntroduction | None = None
    ) -> dict[str, str]:
        """What came to the model since the turn before, and what it answered; `told`: with its instructions."""
        written = self._instructions(told)
        written["gen_ai.input.messages"] = _json([self._message(message) for message in messages])
        if reply is not None:
            answer = {**self._message(reply), "finish_reason": finish_reason(reply.stop_reason)}
            written["gen_ai.output.messages"] = _json([answer])
        return written

    def run(self, told: RunIntroduction | None, messages: Iterable[Message], result: RunResult[Any]) -> dict[str, str]:
        """What a run began with, its answer, and why it ended."""
        written = self._instructions(told)
        written["gen_ai.input.messages"] = _json([self._message(message) for message in messages])
        answer: dict[str, Any] = {
            "role": "assistant",
            "parts": [{"type": "text", "content": self.text(result.text)}],
        }
        if result.stop_reason is not None:
            answer["finish_reason"] = finish_reason(result.stop_reason)
        written["gen_ai.output.messages"] = _json([answer])
        return written if result.cause is None else {**written, **self.cause(result.cause.reason)}

    def _instructions(self, told: RunIntroduction | None) -> dict[str, str]:
        """The system prompt and the tools, as they go with every request."""
        written: dict[str, str] = {}
        if told is not None and told.system_prompt:
            part = {"type": "text", "content": self.text(told.system_prompt)}
            written["gen_ai.system_instructions"] = _json([part])
        if told is not None and told.tools:
            written["gen_ai.tool.definitions"] = _json([self._definition(spec) for spec in told.tools])
        return written

    def _definition(self, spec: ToolSpec) -> dict[str, Any]:
        described = {"type": "function", "name": clean(spec.name), "description": self.text(spec.description)}
        parameters = _wire.loads(_wire.encode(spec.parameters))
        size = len(_json(parameters))
        return {**described, "parameters": parameters} if size <= self._max_chars else described

    def call(self, arguments: Mapping[str, Any], result: str | None) -> dict[str, str]:
        """The arguments of a tool call, and its result if it has one."""
        written = {"gen_ai.tool.call.arguments": self._arguments(arguments)}
        if result is not None:
            written["gen_ai.tool.call.result"] = self.text(result)
        return written

    def cause(self, reason: str) -> dict[str, str]:
        """Why a run ended: it may quote what was said."""
        return {"glidepath.cause.reason": self.text(reason)}

    def _arguments(self, arguments: Mapping[str, Any]) -> str:
        """Every text in them is redacted before JSON writes it with quotes and backslashes, and then the whole."""
        plain = arguments if self._redact is None else _map_texts(partial(_redact_text, self._redact), arguments)
        return self.text(_json(plain))

    def _message(self, message: Message) -> dict[str, Any]:
        if isinstance(message, ToolResultMessage):
            part = {"type": "tool_call_response", "id": clean(message.call_id), "response": self.text(message.text)}
            return {"role": "tool", "parts": [part]}
        if isinstance(message, AssistantMessage):
            return {"role": "assistant", "parts": [part for block in message.blocks for part in self._block(block)]}
        text = getattr(message, "text", "")
        role = "user" if message.role == "user" else "system"
        return {"role": role, "parts": [{"type": "text", "content": self.text(text)}]}

    def _block(self, block: Any) -> Iterable[dict[str, Any]]:
        if isinstance(block, ToolCall):
            arguments = _parse_object(self._arguments(block.arguments))
            yield {"type": "tool_call", "id": clean(block.id), "name": clean(block.name), "arguments": arguments}
        elif isinstance(block, ThinkingBlock):
            yield {"type": "reasoning", "content": self.text(block.text)}
        elif isinstance(text := getattr(block, "text", None), str):
            yield {"type": "text", "content": self.text(text)}


def _redact_text(redact: Redact, text: str) -> str:
    try:
        shown = redact(text)
    except BaseException:
        return REDACTION_FAILED
    return shown if isinstance(shown, str) else REDACTION_FAILED


def _map_texts(change: Redact, value: Any) -> Any:
    """The same value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_texts(change, name): _map_texts(change, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_map_texts(change, one) for one in value]
    return value


def _parse_object(text: str) -> Any:
    """The object that the text still is after redaction and cutting, else the text."""
    try:
        found = json.loads(text)
        return _map_texts(clean, found) if isinstance(found, dict) else text  # its escapes may be lone surrogates
    except (ValueError, RecursionError):
        return text


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)
