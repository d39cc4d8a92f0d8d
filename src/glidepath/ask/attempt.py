"""One attempt at a model call: the delta loop, metered while it streams.

This is the hottest loop of the runtime: locals only, and one event per delta when somebody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, field
from glidepath.ask.booking import BYTES_PER_TOKEN
from glidepath.ask.source import draw_slice
from glidepath.ask.thinking import untagged
from glidepath.errors import EmptyResponseError, ModelError, TransientError, told
from glidepath.events import StreamChunk
from glidepath.messages import (
    AssistantMessage,
    ReasoningBlock,
    ReasoningDelta,
    StopReason,
    StreamEnd,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    packed,
)
from glidepath.run import HIGH_WATER
from glidepath.tools.text import clean

if TYPE_CHECKING:
    from glidepath.ask.booking import Booking
    from glidepath.run import Run
    from glidepath.spi import Model, ModelRequest

__all__ = ["Attempt", "pump"]

BREATH = 2048  # bytes after which a stream that never pauses lets its consumer and the event loop do their work
WIDEST = 4  # bytes of a character at most: text is counted in characters until it is weighed
LEAST = 4  # bytes a delta counts for at least
FAR_BEYOND = 16  # bytes for each token of the output cap: no reply within its cap is so long
CALL_TOKENS = 8  # what a tool call costs beside its arguments
CALL_BYTES = CALL_TOKENS * BYTES_PER_TOKEN
FAILED = ("error", "aborted")  # stop reasons that are no answer
LAST_WORDS = 1.0  # seconds a stream may take to close after its terminal event


class Attempt(Record, gc=False):
    """What one attempt has streamed so far."""

    parts: list[str] = field(default_factory=list)
    calls: Mapping[int, list[str]] = MappingProxyType({})
    text: str = ""
    """The visible text, once the stream has ended."""
    thinking: Sequence[str] = ()
    reasoning: Sequence[ReasoningBlock] = ()
    size: int = 0
    """Bytes streamed so far, each delta counted as a token at least."""
    others: int = 0
    """Deltas streamed so far that were not text."""
    end: StreamEnd | None = None
    cut: bool = False
    """The budget ran out while it streamed."""
    capped: bool = False
    """It went on far beyond the output cap that it was sent."""
    garbled: bool = False
    """Some of its text was none."""
    dead: bool = False
    """The run has let go of it."""

    def pulse(self) -> int:
        """Something that changes with every delta, and is 0 before the first."""
        return len(self.parts) + self.others + self.size

    def visible(self) -> int:
        """Bytes the model has written, without rounding."""
        size = _bytes(self.text or "".join(self.parts))
        for call in self.calls.values():
            size += _bytes(call[2])
        for thought in self.thinking:
            size += _bytes(thought)
        return size

    def weight(self) -> int:
        """`size`, with text outside ASCII counted in bytes."""
        text = self.text or "".join(self.parts)
        return self.size if text.isascii() else max(self.size, self.visible())

    def metered(self) -> int:
        """Our own count of its output tokens: one for each piece at least."""
        return -(-self.weight() // BYTES_PER_TOKEN) + CALL_TOKENS * len(self.calls)

    def stop_reason(self) -> StopReason:
        """Why it stopped."""
        if self.cut:
            return StopReason.MAX_TOKENS
        return StopReason.parse(self.end.stop_reason) if self.end is not None else StopReason.ERROR

    def let_go(self) -> None:
        """The run waits for it no longer: what has come so far counts, nothing that comes later."""
        self.dead = True
        self.gather()
        thoughts, arguments = [*self.thinking], [call[2] for call in self.calls.values()]
        self.size = max(self.size, sum([max(LEAST, len(part)) for part in (*self.parts, *thoughts, *arguments)]))

    def gather(self) -> None:
        """Join the text that has come; what is no text is left out, and `fault` says so."""
        try:
            self.text = clean("".join(self.parts))
        except TypeError:
            self.parts[:] = [part for part in self.parts if isinstance(part, str)]
            self.text, self.garbled = clean("".join(self.parts)), True

    def fault(self) -> ModelError | None:
        """What is wrong with it, now that it is over; None when it is a reply."""
        if self.garbled:
            return ModelError("the model streamed a TextDelta whose text is no str")
        if self.end is None:
            return TransientError("the stream ended without its terminal event: a dropped connection")
        if not self.pulse():
            return EmptyResponseError("the stream ended before its first delta")
        if self.end.stop_reason in FAILED:
            return TransientError(f"the provider ended the stream with {self.end.stop_reason!r}")
        return None

    def message(self, run: Run, usage: Usage, model: str) -> tuple[AssistantMessage, tuple[ToolCall, ...]]:
        """The reply as a message, and its calls; call ids are unique in the transcript."""
        text, calls = self.text, []
        try:
            for index in sorted(self.calls):
                call_id, name, arguments = self.calls[index]
                calls.append(_tool_call(_fresh(call_id, run.call_ids), name, arguments))
        except (AttributeError, TypeError) as error:
            raise ModelError(f"the model streamed a tool call that is none: {told(error)}") from error
        blocks: list[Any] = [TextBlock(text), *calls] if text else calls
        if self.thinking:
            blocks = [ThinkingBlock(clean("".join(self.thinking))), *blocks]
        if self.reasoning:
            blocks = [*self.reasoning, *blocks]
        return AssistantMessage(packed(blocks), self.stop_reason(), usage, None, model), tuple(calls)

    def tokens(self, bytes_per_token: int) -> int:
        """The size of its message in the transcript, by the built-in estimate."""
        return 8 + 20 * len(self.calls) + self.visible() // bytes_per_token


def _fresh(call_id: str, seen: set[str]) -> str:
    """A call id nobody has used in this transcript."""
    if call_id not in seen and call_id.isascii() and call_id:
        seen.add(call_id)
        return call_id
    base = fresh = clean(call_id) or f"call_{len(seen) + 1}"
    count = 1
    while fresh in seen:
        count += 1
        fresh = f"{base}_{count}"
    seen.add(fresh)
    return fresh


def _tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    if not arguments or arguments.isspace():
        return ToolCall(call_id, clean(name), {})
    try:
        written = arguments.encode()
        if type(_wire.loads(written)) is dict:
            return ToolCall(call_id, clean(name), _wire.Raw(written))  # type: ignore[arg-type] # see ToolCall
    except (_wire.WireError, ValueError, RecursionError):
        pass  # not JSON at all
    return ToolCall(call_id, clean(name), {}, clean(arguments))


async def pump(run: Run, model: Model, request: ModelRequest, attempt: Attempt, booking: Booking) -> None:
    """Stream one reply into `attempt`, within what is booked for it.

    The hottest loop of the runtime: locals only, one comparison for everything that is rarely due (`_weigh`). Silence
    is noticed from outside, by the watch, which feels the pulse of the attempt.
    """
    stream: Any = model.stream(request)
    if not hasattr(stream, "__aiter__"):
        run.watch.scope(run.plan.times.connect)
        stream = await stream
        if attempt.dead:
            return
    if run.plan.thinking_tags:
        stream = untagged(stream)
    watch = run.watch
    watch.listen(attempt, run.plan.times)
    watch.fresh = True
    parts, push, text_delta, chunk = attempt.parts, run.chunk_sink(attempt), TextDelta, StreamChunk
    run_id, parent_id, number, at = run.run_id, run.parent_id, run.next_number, 0.0
    size, check_at = 0, min(booking.size // WIDEST, BREATH)
    try:
        async for delta in stream:
            if delta.__class__ is text_delta:
                text = delta.text
                length = len(text)
                parts.append(text)
                size += length if length > LEAST else LEAST  # noqa: FURB136 - a delta is a token at least
                if push is not None and length:
                    if watch.fresh:  # deltas that came together have one time
                        watch.fresh, at = False, run.now()
                    push(chunk(run_id, parent_id, number(), at, text))
            else:
                if attempt.dead:
                    break
                size += _other(run, attempt, delta)
                if attempt.end is not None:
                    watch.scope(LAST_WORDS)  # let the stream finish by itself, for a moment
                    try:
                        async for _ in stream:
                            pass
                    except Exception:  # the reply is complete: what goes wrong now cannot take it back
                        break
                    break
            if size > check_at:
                attempt.size = size
                size, check_at = await _weigh(run, attempt, booking)
                if attempt.cut or attempt.dead or attempt.capped:
                    break
    finally:
        attempt.size = size - CALL_BYTES * len(attempt.calls)  # which `metered` adds
        attempt.gather()
    if attempt.end is None or attempt.cut or attempt.capped:
        await _close(stream)
    if attempt.cut or attempt.dead:
        return
    fault = attempt.fault()
    if fault is not None:
        raise fault


async def _weigh(run: Run, attempt: Attempt, booking: Booking) -> tuple[int, int]:
    """What is due now and then: count exactly, reserve more or cut, and let the others do their work.

    Returns the size so far, and the size at which to come back.
    """
    size = attempt.weight()
    if attempt.dead:
        return size, size
    if booking.cap is not None and size > booking.cap * FAR_BEYOND:
        attempt.capped = True
        attempt.end = StreamEnd("max_tokens")
        return size, size
    if size > booking.size and not await _grown(run, booking, size):
        attempt.cut = True
        return size, size
    if run.stream is not None and len(run.stream.outbox) >= HIGH_WATER:
        run.stream.ring()
        await run.stream.room()
    if run.watch.wanted:
        run.watch.poke_self()
    await asyncio.sleep(0)  # a stream that never pauses must starve neither its consumer nor the event loop
    return size, size + max(LEAST, min((booking.size - size) // WIDEST, BREATH))


async def _grown(run: Run, booking: Booking, size: int) -> bool:
    """Reserve more for a reply that outgrows its reservation; False when there is no more."""
    if not booking.grow(size):
        if run.meter.tree.source is None:
            return False
        await draw_slice(run, booking.slice())
        if not booking.grow(size):
            return False
    return run.journal is None or await run.journal.grown(booking)


def _bytes(text: str) -> int:
    if text.__class__ is not str and not isinstance(text, str):
        raise ModelError(f"the model streamed a delta with a {type(text).__name__} where a text belongs")
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _other(run: Run, attempt: Attempt, delta: Any) -> int:
    """Everything but text: tool calls, the end, thinking, reasoning. Returns what it adds to the size.

    A delta with nothing in it is a token, too, and so is a call without arguments: a stream of them must end.
    """
    kind = delta.__class__
    if kind is StreamEnd:
        attempt.end = delta
        return 0
    attempt.others += 1
    if kind is ToolCallDelta:
        size = max(LEAST, _bytes(delta.arguments))
        call = attempt.calls.get(delta.index)
        if call is not None:
            call[0] = call[0] or delta.id
            call[1] = call[1] or delta.name
            call[2] += delta.arguments
            return size
        call = [delta.id, delta.name, delta.arguments]
        if attempt.calls:
            attempt.calls[delta.index] = call  # type: ignore[index]
        else:
            attempt.calls = {delta.index: call}
        return size + CALL_BYTES
    if isinstance(delta, ThinkingDelta):
        size = max(LEAST, _bytes(delta.text))
        if attempt.thinking:
            attempt.thinking.append(delta.text)  # type: ignore[attr-defined]
        else:
            attempt.thinking = [delta.text]
        if run.chunks and delta.text:
            run.emit(StreamChunk, delta.text, False, True)
        return size
    if isinstance(delta, ReasoningDelta):
        size = max(LEAST, _bytes(delta.text))
        if not attempt.reasoning:
            attempt.reasoning = []
        attempt.reasoning.append(_reasoning(delta))  # type: ignore[attr-defined]
        return size
    if isinstance(delta, TextDelta):  # a subclass
        size = max(LEAST, _bytes(delta.text))
        attempt.parts.append(delta.text)
        if run.chunks and delta.text:
            run.emit(StreamChunk, delta.text)
        return size
    raise ModelError(f"the model streamed a {type(delta).__name__}, which is no delta of glidepath.models")


def _reasoning(delta: ReasoningDelta) -> ReasoningBlock:
    """The block of a reasoning item, which can be written and sent."""
    parts = (delta.text, delta.opaque, delta.vendor)
    for part in parts:
        _bytes(part)
    return ReasoningBlock(*map(clean, parts))


async def _close(stream: Any) -> None:
    """Close a stream that is not read to its end; what was read counts, however it takes that."""
    try:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException:
        return
