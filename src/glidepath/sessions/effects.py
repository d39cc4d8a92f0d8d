"""The calls that some commits say have begun: what may have taken effect, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from glidepath import _wire
from glidepath._wire import Value, replace
from glidepath.sessions.chain import read
from glidepath.sessions.fold import Effect
from glidepath.spi import Commit
from glidepath.values import AssistantMessage, ToolCall, ToolResultMessage, codec

_SHOWN_CALLS, _SHOWN_ARGUMENTS = 20, 200
_NEVER_RAN = frozenset({"interrupted", "not_decided", "denied", "blocked", "unknown_tool", "cancelled", "answered"})


class _Listing(Value, frozen=True):
    effects: tuple[Effect, ...] = ()


def effects_in(commits: Iterable[Commit], at: int, *, whole: bool = True) -> list[Effect]:
    """The calls that began in these commits, the first of which comes after turn `at`.

    Where they are not `whole`, a result alone says that its call had begun.
    """
    calls: dict[str, tuple[ToolCall, int]] = {}
    found: dict[str, Effect] = {}
    elsewhere: list[Effect] = []  # call ids are unique in one session only
    for commit in commits:
        for record in read(commit):
            data = bytes(record.payload)
            message = codec.decode(data) if record.kind in ("message", "result") else None
            if type(message) is AssistantMessage:
                at += 1
                calls = {call.id: (call, at) for call in message.tool_calls}
            elif type(message) is ToolResultMessage:
                _conclude(found, message, at, whole=whole)
            elif record.kind == "forked":  # what was behind an earlier fork
                elsewhere += [one for one in _wire.decode(data, _Listing).effects if one not in elsewhere]
            elif record.kind == "quarantine":  # what was lost
                found |= {one.call_id: one for one in _wire.decode(data, _Listing).effects}
            elif record.kind == "intent":
                told = _wire.decode(data, dict[str, Any])
                call_id = str(told.get("call_id", ""))
                call, turn = calls.get(call_id, (ToolCall(call_id, "", {}), at))
                arguments = told.get("arguments") or call.arguments
                found[call_id] = Effect(call_id=call_id, name=call.name, arguments=arguments, turn=turn)
    return [*elsewhere, *found.values()]


def _conclude(found: dict[str, Effect], message: ToolResultMessage, at: int, *, whole: bool) -> None:
    """Note how a call ended."""
    known = found.get(message.call_id)
    if known is None:
        if whole or message.kind in _NEVER_RAN:
            return
        known = Effect(call_id=message.call_id, name=message.tool_name, turn=at)
    how = "unknown" if message.kind == "unknown_effect" else "error" if message.is_error else "done"
    found[message.call_id] = replace(known, name=known.name or message.tool_name, outcome=how)


def describe_effects(effects: Sequence[Effect]) -> str:
    """What a model is told about them."""
    lines = [
        f"{one.name}({_wire.encode(one.arguments or {}).decode()[:_SHOWN_ARGUMENTS]}){one.by}, "
        f"turn {one.turn}: {one.outcome}"
        for one in effects[:_SHOWN_CALLS]
    ]
    more = len(effects) - len(lines)
    return "; ".join(lines) + (f"; and {more} more." if more else ".")
