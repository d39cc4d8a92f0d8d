"""Shared by the readers of foreign histories: collects blocks into messages, and says where an error is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glidepath import _wire
from glidepath.models.content import encode_held_item
from glidepath.values import (
    AssistantMessage,
    ConfigurationError,
    ReasoningBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)


def read_each(history: object, name: str, read: Callable[[Mapping[str, Any]], None]) -> None:
    """Hand every item of a history to `read`; raises `ConfigurationError` saying which one cannot be read."""
    if isinstance(history, str | bytes | Mapping) or not isinstance(history, Sequence):
        raise ConfigurationError(f"{name} takes a list of messages, not {type(history).__name__}")
    for number, item in enumerate(history):
        try:
            if not isinstance(item, Mapping):
                raise TypeError(f"a {type(item).__name__} instead of a mapping")
            read(item)
        except (KeyError, TypeError, ValueError, AttributeError, _wire.WireError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ConfigurationError(f"{name}: message {number} cannot be read ({what:.200})") from None


def content_of(blocks: Sequence[Any]) -> Any:
    """The content of a message: a single text becomes a str."""
    if not blocks:
        return ""
    return blocks[0].text if len(blocks) == 1 and isinstance(blocks[0], TextBlock) else tuple(blocks)


def call_of(call_id: str, name: str, arguments: Mapping[str, Any] | str | None) -> ToolCall:
    """A call whose arguments are an object or its JSON; anything else is kept as malformed."""
    if isinstance(arguments, Mapping):
        return ToolCall(call_id, name, dict(arguments))
    try:
        given = _wire.loads(arguments) if arguments else {}
    except _wire.WireError:
        given = None
    if isinstance(given, dict):
        return ToolCall(call_id, name, given)
    return ToolCall(call_id, name, {}, str(arguments))


class VendorTurn:
    """Collects one reply of a model: opaque items, text and calls, with their places."""

    __slots__ = ("_calls", "_items", "_text", "_thoughts", "vendor")

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor
        self._items: list[ReasoningBlock] = []
        self._thoughts: list[str] = []
        self._text: list[str] = []
        self._calls: list[ToolCall] = []

    def add_text(self, text: str) -> None:
        """A piece of text."""
        self._text.append(text)

    def add_thinking(self, text: str) -> None:
        """A piece of thinking that is shown but not sent back."""
        self._thoughts.append(text)

    def add_call(self, call: ToolCall) -> None:
        """A call."""
        self._calls.append(call)

    def keep_item(self, item: Mapping[str, Any]) -> None:
        """An item to send back unchanged."""
        opaque = encode_held_item(item, text=len("".join(self._text)), calls=len(self._calls))
        self._items.append(ReasoningBlock(opaque=opaque, vendor=self.vendor))

    def message(self) -> AssistantMessage:
        """The reply."""
        blocks: list[Any] = list(self._items)
        if self._thoughts:
            blocks.append(ThinkingBlock("".join(self._thoughts)))
        if text := "".join(self._text):
            blocks.append(TextBlock(text))
        blocks += self._calls
        return AssistantMessage(tuple(blocks), StopReason.TOOL_USE if self._calls else StopReason.END_TURN)
