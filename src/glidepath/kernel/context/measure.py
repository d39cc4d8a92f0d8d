"""How large a message is, in tokens, before the provider has counted it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from glidepath import _wire
from glidepath.run import interrupt_by_hand
from glidepath.spi import TokenEstimator
from glidepath.tools import MESSAGE_TOKENS, block_tokens, opaque_tokens, text_tokens
from glidepath.tools.token_estimate import ORDINARY_ID, result_tokens
from glidepath.values import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    log_first,
    stored_arguments,
)

Estimate: TypeAlias = Callable[[str], int]
"""The tokens of a text; `TokenEstimator.estimate` is one."""

CALL_OVERHEAD = 12


class CharEstimator:
    """Counts a token for every three bytes of UTF-8, and more for dense text: numbers, hex, base64, CSV, emoji.

    That is more than tokenizers count for prose, code and data in common scripts. Rare characters can still be more:
    plug in a real tokenizer where that matters. A huge text is measured piece by piece, without a second copy of it.
    """

    def estimate(self, text: str) -> int:
        """Tokens of a text, erring on the high side."""
        return text_tokens(text)


char_estimate: Estimate = CharEstimator().estimate


def guard_estimate(estimate: Estimate) -> Estimate:
    """The same estimate, with `CharEstimator` in its place for a text on which it raises or answers nonsense."""
    if getattr(estimate, "__func__", None) is CharEstimator.estimate or getattr(estimate, "is_guarded", False):
        return estimate
    known: set[tuple[str, str]] = set()

    def measure_text(text: str) -> int:
        try:
            tokens = estimate(text)
        except KeyboardInterrupt:
            if not interrupt_by_hand():
                raise
            return char_estimate(text)
        except BaseException as error:
            log_first(known, "token_estimator", error, "characters are counted instead")
            return char_estimate(text)
        return tokens if type(tokens) is int and tokens >= 0 else char_estimate(text)

    measure_text.is_guarded = True  # type: ignore[attr-defined]
    return measure_text


def message_size(message: Message, estimate: Estimate) -> int:
    """Tokens of one message with all that is sent of it; 0 for a custom or unknown one, which is never sent.

    When `estimate` raises, the message is measured with `CharEstimator` instead.
    """
    try:
        return _size(message, estimate)
    except Exception:  # of the message itself: what an estimator raises stays in `guard_estimate`
        return _size(message, char_estimate)


def make_sizer(estimator: TokenEstimator, estimate: Estimate | None = None) -> Callable[[Message], int]:
    """A `message_size` for one estimator, perhaps guarded already; quick for what is added every turn."""
    estimate = guard_estimate(estimator.estimate) if estimate is None else estimate
    if type(estimator) is not CharEstimator:
        return lambda message: message_size(message, estimate)

    # A prompt is measured twice in a row: for the landing reserve, and when it joins the transcript.
    measured: tuple[Message, int] | None = None  # one value, since agents run in several threads

    def size(message: Message) -> int:
        nonlocal measured
        if message.__class__ is ToolResultMessage:
            text = message.content
            if text.__class__ is str and len(message.call_id) <= ORDINARY_ID:
                return result_tokens(message.tool_name, text)
        known, measured = measured, None
        if known is not None and known[0] is message:
            return known[1]
        tokens = _size(message, estimate)
        if message.__class__ is UserMessage:
            measured = (message, tokens)
        return tokens

    return size


def _size(message: Message, estimate: Estimate) -> int:
    kind = type(message)
    if kind is AssistantMessage:
        return _assistant(message, estimate)  # type: ignore[arg-type]
    if kind is ToolResultMessage:
        extra = MESSAGE_TOKENS + estimate(message.tool_name) + _id(message.call_id)  # type: ignore[union-attr]
    elif kind is UserMessage or kind is SystemMessage:
        extra = MESSAGE_TOKENS
    else:
        return 0
    content = message.content  # type: ignore[union-attr]
    if type(content) is str:
        return extra + estimate(content)
    for block in content:
        extra += estimate(block.text) if type(block) is TextBlock else block_tokens(block)  # type: ignore[arg-type]
    return extra


def _assistant(message: AssistantMessage, estimate: Estimate) -> int:
    size = MESSAGE_TOKENS
    for block in message.blocks:
        if type(block) is ToolCall:
            size += CALL_OVERHEAD + estimate(block.name) + estimate(_json(stored_arguments(block))) + _id(block.id)
            if block.malformed is not None:
                size += estimate(block.malformed)
        else:
            size += estimate(block.text)  # type: ignore[union-attr]
            opaque = getattr(block, "opaque", "")
            if opaque:
                size += opaque_tokens(opaque)
    return size


def _id(call_id: str) -> int:
    """The extra size of an id that is longer than any provider's."""
    return 0 if len(call_id) <= ORDINARY_ID else opaque_tokens(call_id)


def _json(arguments: object) -> str:
    """The arguments as they are sent; for what JSON cannot hold, a text of at least that length."""
    try:
        return _wire.encode(_wire.loads(arguments) if type(arguments) is _wire.Raw else arguments).decode()
    except Exception:  # lone surrogates, numbers past 64 bits, foreign objects, nesting without end
        return " " * _length(arguments)


def _length(value: object) -> int:
    length, stack, seen = 0, [value], set()
    while stack:
        item = stack.pop()
        length += 4
        if isinstance(item, str):
            length += len(item) * 3
        elif isinstance(item, _wire.Raw):
            length += len(bytes(item))
        elif isinstance(item, int):
            length += item.bit_length() // 3
        elif isinstance(item, dict | list | tuple | set | frozenset):
            if id(item) in seen:
                continue
            seen.add(id(item))
            stack.extend(item)
            if isinstance(item, dict):
                stack.extend(item.values())
        else:
            length += 60
    return length
