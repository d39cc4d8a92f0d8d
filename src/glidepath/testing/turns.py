"""What a scripted model says: turns, and the helpers that make them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from glidepath import _wire
from glidepath._wire import Value
from glidepath.spi import ModelRequest
from glidepath.values import Delta, ReasoningDelta, TextDelta, ThinkingDelta, ToolCallDelta, Usage, pluralize

UsageReport: TypeAlias = Usage | Literal["missing"] | None
"""The usage that a reply reports: these figures, none at all ("missing"), or an honest count (None)."""

_WORDS = re.compile(r"\s*\S+\s*|\s+")
_FRAGMENTS = 8
_SHORTEST = 8


def pieces(text: str) -> list[str]:
    """The words of a text with the space around them; joined, they are the text."""
    return _WORDS.findall(text)


def fragments(text: str) -> list[str]:
    """A JSON text in two or more pieces (at most nine); joined, they are the text."""
    size = max(min(_SHORTEST, -(-len(text) // 2)), -(-len(text) // _FRAGMENTS), 1)
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


class Call(Value, frozen=True, kw_only=True):
    """One tool call inside a turn. Without an `id`, the model assigns call_1, call_2, ... in turn."""

    name: str
    arguments: str
    id: str = ""

    def deltas(self, index: int, call_id: str) -> Iterator[ToolCallDelta]:
        """The call as fragments; the first carries id and name."""
        first, *rest = fragments(self.arguments)
        yield ToolCallDelta(index=index, id=call_id, name=self.name, arguments=first)
        for fragment in rest:
            yield ToolCallDelta(index=index, arguments=fragment)


Part: TypeAlias = TextDelta | ThinkingDelta | ReasoningDelta | Call


class Turn(Value, frozen=True, kw_only=True):
    """One reply of a scripted model, immutable. Helpers create it, the `with_...` methods return a changed copy."""

    parts: tuple[Part, ...] = ()
    verbatim: tuple[Delta, ...] | None = None
    stop_reason: str | None = "end_turn"
    usage: UsageReport = None
    delay: float | None = None
    first_chunk_delay: float | None = None
    error: BaseException | type[BaseException] | None = None
    hangs: bool = False

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls, in source order."""
        return tuple(part for part in self.parts if isinstance(part, Call))

    def with_text(self, text: str) -> Turn:
        """The same turn, saying `text` first."""
        return _wire.replace(self, parts=(TextDelta(text), *self.parts))

    def with_id(self, *call_ids: str) -> Turn:
        """The same turn with these call ids, one for each call."""
        if len(call_ids) != len(self.calls):
            raise ValueError(
                f"{pluralize(len(call_ids), 'id')} for {pluralize(len(self.calls), 'call')}: give one id for each call"
            )
        ids = iter(call_ids)
        parts = [_wire.replace(part, id=next(ids)) if isinstance(part, Call) else part for part in self.parts]
        return _wire.replace(self, parts=tuple(parts))

    def with_usage(self, usage: UsageReport) -> Turn:
        """The same turn, reporting this usage; "missing" reports none."""
        return _wire.replace(self, usage=usage)

    def with_delay(self, delay: float, *, first_chunk: float | None = None) -> Turn:
        """The same turn with `delay` seconds before every piece, and `first_chunk` more before the first."""
        return _wire.replace(self, delay=delay, first_chunk_delay=first_chunk)

    def describe(self) -> str:
        """The turn in one short line, for error texts."""
        said = [f"{part.name}({part.arguments})" if isinstance(part, Call) else repr(part.text) for part in self.parts]
        if self.verbatim is not None:
            said.append(f"{len(self.verbatim)} raw deltas")
        if self.error is not None:
            said.append(f"fails with {self.error!r}")
        if self.hangs:
            said.append("hangs")
        text = ", ".join(said) or "nothing"
        return f"{text[:120]} [{self.stop_reason or 'no end'}]"


Step: TypeAlias = Turn | str | Callable[[ModelRequest], Turn | str | Awaitable[Turn | str]]
"""One entry of a script: a turn, a str to say, or a function of the request that returns one of them."""


def as_turn(step: object) -> Turn:
    """A turn unchanged, or a str as `say`; raises TypeError for anything else."""
    if isinstance(step, Turn):
        return step
    if isinstance(step, str):
        return say(step)
    raise TypeError(f"a scripted turn is a Turn or a str, not {type(step).__name__}: use say(), call(), fail(), ...")


def say(text: str, *, usage: UsageReport = None, delay: float | None = None, stop_reason: str = "end_turn") -> Turn:
    """A reply in plain text, streamed word by word."""
    return Turn(parts=(TextDelta(text),), usage=usage, delay=delay, stop_reason=stop_reason)


def call(name: str, given: Mapping[str, Any] | None = None, /, **arguments: object) -> Turn:
    """A reply that calls one tool. Every keyword is an argument of the tool; refine the turn with `.with_...`.

    Arguments can also be given as one mapping: `call("tool", {"not-a-name": 1})`.
    """
    body = _wire.encode({**(given or {}), **arguments}).decode()
    return Turn(parts=(Call(name=name, arguments=body),), stop_reason="tool_use")


def calls(*turns: Turn, text: str = "", usage: UsageReport = None, delay: float | None = None) -> Turn:
    """A reply that makes several calls at once, in this order, after `text` if there is any."""
    parts = tuple(part for turn in turns for part in turn.parts)
    spoken = (TextDelta(text),) if text else ()
    return Turn(parts=(*spoken, *parts), stop_reason="tool_use", usage=usage, delay=delay)


def fail(
    error: BaseException | type[BaseException],
    *,
    after: int | None = None,
    text: str | None = None,
    delay: float | None = None,
) -> Turn:
    """A call that raises `error` after `after` pieces of `text`; by default after all of the text, if there is any."""
    said = pieces("word " * (after or 0) if text is None else text)
    if after is not None and after > len(said):
        raise ValueError(f"after={after}, but the text has only {len(said)} pieces")
    parts = tuple(TextDelta(piece) for piece in said[:after])
    return Turn(parts=parts, stop_reason=None, error=error, delay=delay)


def hang(after_text: str = "", *, delay: float | None = None) -> Turn:
    """A stream that says `after_text` and then nothing more, until it is closed or cancelled."""
    parts = (TextDelta(after_text),) if after_text else ()
    return Turn(parts=parts, stop_reason=None, hangs=True, delay=delay)


def truncated(
    what: str | Turn, *, cut: int | None = None, usage: UsageReport = None, delay: float | None = None
) -> Turn:
    """A reply cut by its output cap. The JSON of a last tool call is cut after `cut` characters: half, by default.

    A text arrives unchanged. A `cut` beyond the end leaves arguments that parse, in a reply that was still cut.
    """
    turn = as_turn(what)
    last = turn.parts[-1] if turn.parts else None
    if not isinstance(last, Call):
        if cut is not None:
            raise ValueError("cut= works only for the arguments of a tool call; pass the text already cut")
    else:
        at = len(last.arguments) // 2 if cut is None else cut
        turn = _wire.replace(turn, parts=(*turn.parts[:-1], _wire.replace(last, arguments=last.arguments[:at])))
    return _wire.replace(
        turn, stop_reason="max_tokens", usage=usage or turn.usage, delay=_choose_delay(delay, turn.delay)
    )


def thinking(thoughts: str, then: str | Turn = "", *, usage: UsageReport = None, delay: float | None = None) -> Turn:
    """A reply that thinks first, then says or does `then`."""
    turn = as_turn(then) if then else Turn()
    parts = (ThinkingDelta(thoughts), *turn.parts)
    return _wire.replace(turn, parts=parts, usage=usage or turn.usage, delay=_choose_delay(delay, turn.delay))


def refuse(text: str = "", *, usage: UsageReport = None, delay: float | None = None) -> Turn:
    """A reply in which the model refuses, saying `text`."""
    parts = (TextDelta(text),) if text else ()
    return Turn(parts=parts, stop_reason="refusal", usage=usage, delay=delay)


def no_end(what: str | Turn = "", *, delay: float | None = None) -> Turn:
    """A stream that stops without its terminal event, as when a connection drops."""
    turn = as_turn(what) if what else Turn()
    return _wire.replace(turn, stop_reason=None, delay=_choose_delay(delay, turn.delay))


def empty(*, usage: UsageReport = None, delay: float | None = None, stop_reason: str = "end_turn") -> Turn:
    """A stream that ends at once, before its first delta."""
    return Turn(usage=usage, delay=delay, stop_reason=stop_reason)


def raw(*deltas: Delta, delay: float | None = None) -> Turn:
    """Exactly these deltas; nothing is added, not even the end."""
    return Turn(verbatim=deltas, stop_reason=None, delay=delay)


def _choose_delay(delay: float | None, otherwise: float | None) -> float | None:
    return otherwise if delay is None else delay
