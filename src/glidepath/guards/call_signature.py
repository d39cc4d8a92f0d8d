"""What two calls, or two results, must have in common to count as the same."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from glidepath import _wire
from glidepath.messages import ToolCall, ToolResultMessage, stored_arguments
from glidepath.spi import GuardVerdict, Step
from glidepath.texts import Texts

__all__ = ["call_signature", "counted", "kept", "names", "outcome_of", "pair", "result_signature", "short", "take_away"]

_canonical, _loads, _Raw = _wire.canonical, _wire.loads, _wire.Raw
SHORT = 120  # a plain signature no longer than this is kept as it is


def digest(data: bytes, size: int = 16) -> str:
    """A hash of the whole."""
    return blake2b(data, digest_size=size).hexdigest()


def short(text: str) -> str:
    """The text itself, or its hash when it is long or a store might not be able to write it.

    The callers that every step passes through look first, to save the call.
    """
    if len(text) <= SHORT and text.isascii():
        return text
    return digest(text.encode("utf-8", "surrogatepass"))


def call_signature(call: ToolCall) -> str:
    """Tool and arguments, whatever the order of the keys; the whole of them, however long."""
    try:
        given: Any = stored_arguments(call) if call.malformed is None else call.malformed
        data = _canonical(_loads(given) if given.__class__ is _Raw else given)
    except Exception:  # what JSON cannot hold can still be told apart
        data = repr(call.arguments if call.malformed is None else call.malformed).encode("utf-8", "surrogatepass")
    if len(data) > SHORT:
        return short(f"{call.name} {digest(data)}")
    text = f"{call.name} {data.decode('utf-8', 'replace')}"
    return text if len(text) <= SHORT and text.isascii() else short(text)


def result_signature(result: ToolResultMessage) -> str:
    """What a tool answered; an error begins with an exclamation mark."""
    content = result.content
    if content.__class__ is str:
        if len(content) <= SHORT and content.isascii():
            return f"!{content}" if result.is_error else content
        text = short(content)
    else:  # an image is a result too, although it has no text
        try:
            text = digest(_wire.canonical(content))
        except Exception:
            text = digest(repr(content).encode("utf-8", "surrogatepass"))
    return f"!{text}" if result.is_error else text


def pair(call: str, outcome: str) -> str:
    """A call together with its result, from their signatures."""
    return digest(f"{call}\0{outcome}".encode("utf-8", "surrogatepass"), 8)


def outcome_of(calls: tuple[ToolCall, ...], results: tuple[ToolResultMessage, ...]) -> str:
    """The signature of what these calls returned; equal answers once, so that ten times "ok" is "ok"."""
    ours = {call.id for call in calls}
    return short("\n".join(sorted({result_signature(result) for result in results if result.call_id in ours})))


def counted(step: Step) -> tuple[ToolCall, ...]:
    """The calls whose repetition means something: polling tools are meant to be repeated."""
    tools = step.tools
    return tuple([call for call in step.calls if (tool := tools.get(call.name)) is None or not tool.polling])


def names(tools: Iterable[str]) -> str:
    """The tools, for a sentence."""
    return ", ".join(sorted(tools)) or "a tool that does not exist"


def kept(state: dict[str, Any], key: str, fresh: Any) -> Any:
    """What an earlier process kept under this key; `fresh` when it kept nothing, or nothing of this shape."""
    value = state.get(key)
    if type(value) is not type(fresh):
        value = state[key] = fresh
    return value


def take_away(step: Step, tools: frozenset[str], reason: str, guard: str, texts: Texts) -> GuardVerdict:
    """Withdraw these tools; land when there is nothing left to withdraw."""
    if tools <= step.withdrawn:
        return GuardVerdict(action="land", reason=reason, tools=tools)
    notice = texts.fill("withdrawn", tools=names(tools), reason=reason)
    return GuardVerdict(action="withdraw", reason=reason, tools=tools, notice=notice, notice_reason=guard)
