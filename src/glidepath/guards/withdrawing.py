"""What guards have in common: short texts to compare, what they keep, and how they take tools away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from glidepath.spi import GuardVerdict, Step
from glidepath.values import Texts, ToolCall

SHORT = 120  # a plain signature no longer than this is kept as it is


def digest(data: bytes, size: int = 16) -> str:
    """A hash of the whole."""
    try:
        from hashlib import blake2b  # only long texts need it
    except (ImportError, OSError):  # no file can be opened any more: one that another process does not make is enough
        return f"{hash(data):x}"
    return blake2b(data, digest_size=size).hexdigest()


def shorten_text(text: str) -> str:
    """The text itself, or its hash when it is long or a store might not be able to write it.

    The callers that every step passes through look first, to save the call.
    """
    if len(text) <= SHORT and text.isascii():
        return text
    return digest(text.encode("utf-8", "surrogatepass"))


def repeatable_calls(step: Step) -> tuple[ToolCall, ...]:
    """The calls whose repetition means something: polling tools are meant to be repeated."""
    tools = step.tools
    return tuple([call for call in step.calls if (tool := tools.get(call.name)) is None or not tool.polling])


def join_tool_names(tools: Iterable[str]) -> str:
    """The tools, for a sentence."""
    return ", ".join(sorted(tools)) or "a tool that does not exist"


def restore_state(state: dict[str, Any], key: str, fresh: object) -> Any:
    """What an earlier process kept under this key; `fresh` when it kept nothing, or nothing of this shape."""
    value = state.get(key)
    if type(value) is not type(fresh):
        value = state[key] = fresh
    return value


def take_away(
    step: Step, tools: frozenset[str], reason: str, guard: str, texts: Texts, period: int | None = None
) -> GuardVerdict:
    """Withdraw these tools; land when there is nothing left to withdraw."""
    if tools <= step.withdrawn:
        return GuardVerdict(action="land", reason=reason, tools=tools, period=period)
    notice = texts.fill("withdrawn", tools=join_tool_names(tools), reason=reason)
    return GuardVerdict(
        action="withdraw", reason=reason, tools=tools, notice=notice, notice_reason=guard, period=period
    )
