"""One attempt at a model call: the delta loop, metered while it streams.

This is the hottest loop of the runtime: locals only, and nothing per delta but to keep it and to count it. Events are
made of what has come when the run waits next: until then nobody could see them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from types import AsyncGeneratorType, MappingProxyType
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, field
from glidepath.kernel.model_call.booking import BYTES_PER_TOKEN
from glidepath.kernel.model_call.closing import LAST_WORDS, finish
from glidepath.run import HIGH_WATER, LetGo, Stopped, Why, check_survivable, is_mistake, log_error
from glidepath.tools import MESSAGE_TOKENS, clean, opaque_tokens, text_tokens
from glidepath.tools.text import split_half
from glidepath.tools.token_estimate import dense_tokens
from glidepath.values import (
    AssistantBlock,
    AssistantMessage,
    EmptyResponseError,
    ModelError,
    ReasoningBlock,
    ReasoningDelta,
    StopReason,
    StreamChunk,
    StreamEnd,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    TransientError,
    Two,
    Usage,
    describe_error,
    pack_blocks,
)

if TYPE_CHECKING:
    from glidepath.kernel.model_call.booking import Booking
    from glidepath.run import EventEmitter, Run
    from glidepath.spi import Model, ModelRequest
    from glidepath.values import Delta

_log = logging.getLogger("glidepath")

_loads, _Raw = _wire.loads, _wire.Raw
BREATH = 2048  # bytes after which a stream that never pauses lets its consumer and the event loop do their work
WIDEST = 4  # bytes of a character at most: text is counted in characters until it is weighed
LEAST = 4  # bytes a delta counts for at least
FAR_BEYOND = 16  # bytes for each token of the output cap: no reply within its cap is so long
CALL_TOKENS = 8  # what a tool call costs beside its arguments
CALL_BYTES = CALL_TOKENS * BYTES_PER_TOKEN
_OVER = object()
_ALL = 1 << 60  # parts: more than there are
LARGEST_LOOK = 1 << 18  # characters that came at once: more than that is beyond every limit anyway
CALL_OVERHEAD = 20  # what a call in the transcript costs beside its arguments, its name and id included
ORDINARY_NAMES = 64  # characters of id and name together that are in the overhead of a call
FAILED = ("error", "aborted")  # stop reasons without an answer
WORKING = {stop.value: stop for stop in (StopReason.TOOL_USE, StopReason.END_TURN)}  # nearly always one of these


class Reply(Record, gc=False):
    """One usable reply. `cut`: the budget ran out while it streamed; `size`: in tokens, where it is known."""

    message: AssistantMessage
    calls: tuple[ToolCall, ...]
    text: str
    size: int | None
    cut: bool
    truncated: bool
    refused: bool


class Attempt(Record, gc=False):
    """What one attempt has streamed so far."""

    parts: list[str] = field(default_factory=list)
    calls: Mapping[int, list[str]] = MappingProxyType({})
    text: str = ""
    """The visible text, once the stream has ended."""
    thinking: list[str] = field(default_factory=list)
    reasoning: list[ReasoningBlock] = field(default_factory=list)
    size: int = 0
    """Characters streamed so far, each delta counted as a token at least."""
    surplus: int = 0
    """Bytes that `size` does not have: text outside ASCII, dense text, ids, names and opaque parts.

    A provider's report is not held to them: a token has eight characters at most, but of these nobody knows.
    """
    opaque: int = 0
    """Bytes of opaque parts, which are in the surplus."""
    counted: int = 0
    """Parts of the text whose characters are in `size`."""
    told: int = 0
    """Parts of the text that were made events."""
    half: str = ""
    """The first half of a character whose second half has not come yet; and that of a thought."""
    half_thought: str = ""
    closing: bool = False
    """It is complete and did not end at once: its last wait has a time limit of its own."""
    loose: list[str] = field(default_factory=list)
    """What came beside the text, and was not looked at closely yet."""
    weighed: int = 0
    """Parts of the text that were looked at closely."""
    plain: int = 0
    """The size when that was done."""
    end: StreamEnd | None = None
    cut: bool = False
    """The budget ran out while it streamed."""
    capped: bool = False
    """It continued far beyond the output cap that it was sent."""
    garbled: bool = False
    """Some of its text was not a str."""
    odd: bool = False
    """It has more than a text and one call, or something unusual in them."""
    split: bool = False
    """The arguments of a call came in more than one piece."""
    dead: bool = False
    """The run has let go of it."""

    def progress_mark(self) -> int:
        """Something that changes with every delta, and is 0 before the first."""
        return len(self.parts) + self.size

    def pause(self, run: Run) -> None:
        """The run is about to wait for the stream: others see now what has come. A complete one must end soon."""
        if self.parts:
            _emit_new_text(run.voice, self)
        if self.end is not None and not self.closing:
            self.closing = True
            run.watch.set_time_limit(LAST_WORDS, LAST_WORDS)

    def weigh(self) -> int:
        """Look closely at what has come since the last time; returns what that adds to the surplus.

        Each piece is looked at once: this is linear in the length of a reply.
        """
        self.count()
        text = "".join([*self.parts[self.weighed :], *self.loose])
        dense = dense_tokens(text) if len(text) <= LARGEST_LOOK else 0
        more = max(_count_bytes(text), dense * BYTES_PER_TOKEN) - (self.size - self.plain)
        self.weighed, self.loose, self.plain = len(self.parts), [], self.size
        if more <= 0:
            return 0
        self.surplus += more
        return more

    def count(self) -> None:
        """Count the characters of the text that has come since the last time, each delta as a token at least."""
        lengths = [*map(len, self.parts[self.counted :] if self.counted else self.parts)]
        if lengths:
            self.size += sum(lengths)
            self.counted += len(lengths)
            if min(lengths) < LEAST:
                self.size += sum([LEAST - length for length in lengths if length < LEAST])

    def count_output(self) -> int:
        """Our own count of its output tokens: one for each piece at least."""
        self.weigh()
        return -(-(self.size + self.surplus) // BYTES_PER_TOKEN) + CALL_TOKENS * len(self.calls)

    def stop_reason(self) -> StopReason:
        """Why it stopped."""
        if self.cut:
            return StopReason.MAX_TOKENS
        return StopReason.parse(self.end.stop_reason) if self.end is not None else StopReason.ERROR

    def abandon(self) -> None:
        """The run stops waiting for it: only what has arrived so far counts."""
        self.dead = True
        self.gather()

    def gather(self) -> None:
        """Count and join what has come; anything that is not text is left out, and `fault` says so."""
        parts = self.parts
        try:
            text = "".join(parts)
            if self.counted or not text or min(map(len, parts)) < 4:  # noqa: PLR2004 - LEAST
                self.count()
            else:  # as most are, and none is counted yet
                self.size += len(text)
                self.counted = _ALL
        except TypeError:
            self.count()
            self.parts[:] = [part for part in self.parts if isinstance(part, str)]
            text, self.garbled, self.odd = "".join(self.parts), True, True
            self.counted = self.told = len(self.parts)
            self.weighed = min(self.weighed, self.counted)
        self.text = text if text.isascii() else clean(text)
        if self.split:
            for call in self.calls.values():
                call[2:] = ["".join(call[2:])]

    def find_fault(self) -> ModelError | None:
        """What is wrong with the finished attempt; None when it is a valid reply."""
        if self.garbled:
            return ModelError("the model streamed a TextDelta whose text is not a str")
        if self.end is None:
            return TransientError("the stream ended without its terminal event: a dropped connection")
        if not self.progress_mark():
            return EmptyResponseError("the model sent an empty reply")
        if self.end.stop_reason in FAILED:
            return TransientError(f"the provider ended the stream with {self.end.stop_reason!r}")
        return None

    def complain(self) -> None:
        """Raise what is wrong with it, unless we cut it or let it go."""
        fault = None if self.cut or self.dead else self.find_fault()
        if fault is not None:
            raise fault

    def make_reply(self, run: Run, usage: Usage) -> Reply:
        """The usable reply: its message, its calls and its size by the built-in estimate."""
        plan = run.plan
        text = self.text
        end = self.end
        calls: tuple[ToolCall, ...] = ()
        size = MESSAGE_TOKENS + text_tokens(text)
        if self.calls:
            calls, more = self._tool_calls(run.transcript.call_ids)
            size += more
        if self.thinking or self.reasoning:
            blocks, more = self._collect_thoughts()
            kept = pack_blocks((*blocks, TextBlock(text), *calls) if text else (*blocks, *calls))
            size += more
        elif text and len(calls) == 1:  # most replies
            kept = Two(TextBlock(text), calls[0])
        else:
            kept = pack_blocks((TextBlock(text), *calls) if text else calls)
        stop = WORKING.get(end.stop_reason) if end is not None and end.stop_reason.__class__ is str else None
        if stop is None or self.cut:
            stop = self.stop_reason()
            if stop is StopReason.OTHER:
                _log.warning("%s: the provider stopped for an unknown reason: %r", run.run_id, end)
        return Reply(
            AssistantMessage(kept, stop, usage, None, plan.model_name, None if end is None else end.info),
            calls,
            text,
            size if plan.measures_replies else None,
            self.cut,
            stop is StopReason.MAX_TOKENS,
            stop is StopReason.REFUSAL,
        )

    def _tool_calls(self, seen: dict[str, None]) -> tuple[tuple[ToolCall, ...], int]:
        """The calls in the order of their indices, and their size; call ids are unique in the transcript."""
        made, size, streamed = [], 0, self.calls
        try:
            for call_id, name, arguments in (
                streamed.values() if len(streamed) == 1 else [streamed[index] for index in sorted(streamed)]
            ):
                size += CALL_OVERHEAD + text_tokens(arguments)
                if len(call_id) + len(name) > ORDINARY_NAMES:
                    size += opaque_tokens(call_id) + text_tokens(name)
                fresh = call_id
                if call_id in seen or not call_id or not call_id.isascii():
                    fresh = _make_fresh_call_id(call_id, seen)
                seen[fresh] = None
                made.append(_tool_call(fresh, name, arguments))
        except (AttributeError, TypeError) as error:
            raise ModelError(f"the model streamed a malformed tool call: {describe_error(error)}") from error
        return tuple(made), size

    def _collect_thoughts(self) -> tuple[Sequence[AssistantBlock], int]:
        """What it wrote besides its answer, and its size."""
        thinking = "".join(self.thinking)
        size = text_tokens(thinking) + sum(
            [text_tokens(one.text) + opaque_tokens(one.opaque) for one in self.reasoning]
        )
        return (*self.reasoning, *([ThinkingBlock(clean(thinking))] if self.thinking else ())), size


def _make_fresh_call_id(call_id: str, seen: Collection[str]) -> str:
    """A call id nobody has used in this transcript."""
    base = fresh = clean(call_id) or f"call_{len(seen) + 1}"
    count = 1
    while fresh in seen:
        count += 1
        fresh = f"{base}_{count}"
    return fresh


def _tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    if name.__class__ is not str or not name.isascii():
        name = clean(name)
    if not arguments.isascii():
        arguments = clean(arguments)  # also what was split over two deltas
    try:
        written = arguments.encode()
        if _loads(written).__class__ is dict:
            return ToolCall(call_id, name, _Raw(written))  # type: ignore[arg-type] # see ToolCall
    except (_wire.WireError, ValueError, RecursionError):
        if not arguments or arguments.isspace():
            return ToolCall(call_id, name, {})
    return ToolCall(call_id, name, {}, clean(arguments))  # not a JSON object


async def pump(run: Run, model: Model, request: ModelRequest, attempt: Attempt, booking: Booking) -> None:
    """Stream one reply into `attempt`, within what is booked for it.

    The hottest loop of the runtime: locals only, one comparison for everything that is rarely due (`_weigh`). Silence
    is noticed from outside, by the watch, which feels the pulse of the attempt.
    """
    plan = run.plan
    run.watch.listen(attempt, plan.patience, run)
    stream: Any = model.stream(request)
    if plan.config.thinking_tags or (stream.__class__ is not AsyncGeneratorType and not hasattr(stream, "__aiter__")):
        stream = await _open_stream(run, stream)
        if attempt.dead:
            return
        run.watch.listen(attempt, plan.patience, run)
    parts, text_delta = attempt.parts, TextDelta
    # Size is counted in characters until `_weigh` has looked. A character has four bytes at most, and a delta counts
    # for four at least: four times this is never too low.
    size, over = 0, False
    delta: Any = None
    check_at = min(booking.size // WIDEST, BREATH)
    try:
        async for delta in stream:
            kind = delta.__class__
            if kind is not text_delta:
                # Text needs no such look: what comes after the run has let go is kept here and read by nobody.
                if attempt.dead:
                    break
                if kind is StreamEnd:
                    # The reply is complete. A generator that does not end by itself may not hold the run up: `pause`.
                    attempt.end = delta
                    try:  # noqa: SIM105 - `suppress` would be three calls more in every turn
                        over = await anext(stream, _OVER) is _OVER  # ordinarily it is
                    except Exception:  # noqa: S110 - the reply is complete: what goes wrong now cannot take it back
                        pass
                    break
                size += _add_fragment(attempt, delta) if kind is ToolCallDelta else _add_other(run, attempt, delta)
            else:
                text = delta.text
                size += len(text) or 4  # LEAST
                parts.append(text)
            if size > check_at:
                size, check_at = await _weigh(run, attempt, booking)
                if attempt.cut or attempt.dead or attempt.capped:
                    break
    except BaseException as error:  # what came before it is charged, and may be the best text there is
        _emit_new_text(run.voice, attempt, last=True)
        attempt.gather()
        if isinstance(error, TypeError) and delta.__class__ is text_delta:
            _count_bytes(delta.text)  # raises when it is not text: the model did not raise, we did
        raise
    voice = run.voice
    if voice.chunks and not attempt.dead:
        _emit_new_text(voice, attempt, last=True)
    attempt.gather()
    if not over:
        await finish(run, stream, attempt)
        attempt.complain()
    elif not size or attempt.odd or attempt.end.stop_reason in FAILED:  # type: ignore[union-attr]
        attempt.complain()


def _emit_new_text(voice: EventEmitter, attempt: Attempt, *, last: bool = False) -> None:
    """Make events of the text that has come since the last time, for the listeners."""
    told, parts = attempt.told, attempt.parts
    attempt.told = count = len(parts)
    if (count > told or (last and attempt.half)) and not attempt.dead and voice.chunks:
        voice.emit_text_chunks(_join_split_characters(attempt, parts[told:] if told else parts, last=last))


def _join_split_characters(attempt: Attempt, texts: list[str], *, last: bool = False) -> list[str]:
    """These pieces with whole characters only: a gateway may split one over two deltas, and no writer takes halves."""
    try:
        if not attempt.half and all(map(str.isascii, texts)):
            return texts
    except TypeError:  # not a text: `gather` says so
        return texts
    said = []
    for text in texts:
        piece, attempt.half = split_half(attempt.half + text)
        said.append(piece)
    if last and attempt.half:
        said.append(clean(attempt.half))
        attempt.half = ""
    return said


async def _open_stream(run: Run, stream: Any) -> Any:
    """A stream that must be awaited first, or filtered."""
    if not hasattr(stream, "__aiter__"):
        run.watch.set_time_limit(run.plan.config.connect_timeout)
        stream = await stream
    if not run.plan.config.thinking_tags:
        return stream
    from glidepath.kernel.model_call.thinking import split_thinking_tags  # a setting that few need

    return split_thinking_tags(stream)


async def _weigh(run: Run, attempt: Attempt, booking: Booking) -> tuple[int, int]:
    """Periodic work: count exactly, reserve more or cut, and let other tasks run.

    Returns the size so far, and the size at which to come back.
    """
    if attempt.dead:
        return 0, 0
    _emit_new_text(run.voice, attempt)
    attempt.weigh()
    size = attempt.size + attempt.surplus + CALL_BYTES * len(attempt.calls)
    weight = size  # a provider keeps to its cap in tokens, of which opaque parts have more bytes than text
    if booking.cap is not None:
        weight -= attempt.opaque // 2
        attempt.capped = weight > booking.cap * FAR_BEYOND
    if not attempt.capped and weight > booking.size and not await _grow_reservation(run, booking, weight):
        attempt.cut = attempt.odd = True
        return size, size
    if attempt.capped or (booking.cap is None and size > run.plan.reply_bytes):
        # As if the provider had kept to its cap: what follows a truncated reply is decided elsewhere.
        attempt.capped = attempt.odd = True
        attempt.end = StreamEnd("max_tokens")
        return size, size
    # A consumer who is far behind holds up the reply itself: events are never dropped, and memory is bounded.
    if run.voice.stream is not None and len(run.voice.stream.outbox) >= HIGH_WATER:
        run.voice.stream.wake_consumer()
        await run.voice.stream.wait_for_room()
    if run.watch.wanted:
        run.watch.cancel_next_wait()
    await asyncio.sleep(0)  # a stream that never pauses must starve neither its consumer nor the event loop
    return size, size + max(LEAST, min((booking.size - weight) // WIDEST, BREATH))


async def _grow_reservation(run: Run, booking: Booking, size: int) -> bool:
    """Reserve more for a reply that outgrows its reservation; False when there is no more."""
    if not booking.grow(size):
        source, more = run.meter.tree.source, booking.next_slice()
        if source is None:
            return False
        await source.draw(run, more, more, patient=False)
        if not booking.grow(size):
            return False
    # On disk before it can be spent: after a crash the written worst case is what is charged.
    return run.journal is None or await run.journal.record_growth(booking)


def _count_bytes(text: str) -> int:
    if text.__class__ is not str and not isinstance(text, str):
        raise ModelError(f"the model streamed a delta with a {type(text).__name__} instead of text")
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _take_other_text(attempt: Attempt, text: str) -> int:
    """Take note of a piece of text that is not the answer; returns what it adds to the size."""
    if text.__class__ is not str:
        _count_bytes(text)
    attempt.loose.append(text)
    size = max(LEAST, len(text))
    attempt.size += size
    return size


def _add_fragment(attempt: Attempt, delta: ToolCallDelta) -> int:
    """A piece of a tool call; ids and names that are longer than any provider's are metered, too."""
    call_id, name = delta.id, delta.name
    arguments = delta.arguments
    if arguments.__class__ is not str:  # as `_take_other_text` does it
        _count_bytes(arguments)
    attempt.loose.append(arguments)
    size = len(arguments)
    if size < LEAST:  # noqa: PLR1730 - quicker
        size = LEAST
    attempt.size += size
    try:
        names = len(call_id) + len(name)
    except TypeError:  # `make_reply` says what is wrong with it
        names, attempt.odd = 0, True
    if not attempt.calls:
        attempt.calls = {delta.index: [call_id, name, arguments]}
    elif (call := attempt.calls.get(delta.index)) is None:
        attempt.odd = True
        attempt.calls[delta.index] = [call_id, name, arguments]  # type: ignore[index]
    else:
        call[0] = call[0] or call_id
        call[1] = call[1] or name
        call.append(arguments)
        attempt.split = True
        attempt.surplus += names
        return size + names
    if names <= ORDINARY_NAMES:
        return size + CALL_BYTES
    attempt.odd = True
    attempt.surplus += names
    return size + names + CALL_BYTES


def _add_other(run: Run, attempt: Attempt, delta: Delta) -> int:
    """Everything but text, tool calls and the end: thinking, reasoning. Returns what it adds to the size.

    A delta with nothing in it is a token, too, and so is a call without arguments: a stream of them must end.
    """
    attempt.odd = True
    if isinstance(delta, ThinkingDelta):
        size = _take_other_text(attempt, delta.text)
        attempt.thinking.append(delta.text)
        if run.voice.chunks and delta.text:
            _emit_new_text(run.voice, attempt)
            piece, attempt.half_thought = split_half(attempt.half_thought + delta.text)
            if piece:
                run.emit(StreamChunk, piece, False, True)
        return size
    if isinstance(delta, ReasoningDelta):
        size, opaque = _take_other_text(attempt, delta.text), _count_bytes(delta.opaque)
        attempt.reasoning.append(_make_reasoning_block(delta))
        attempt.surplus += opaque
        attempt.opaque += opaque
        return size + opaque
    if isinstance(delta, TextDelta):  # a subclass
        _count_bytes(delta.text)
        attempt.parts.append(delta.text)
        return max(LEAST, len(delta.text))
    raise ModelError(f"the model streamed a {type(delta).__name__}, which is not a delta of glidepath.models")


def _make_reasoning_block(delta: ReasoningDelta) -> ReasoningBlock:
    """The block of a reasoning item, which can be written and sent."""
    parts = (delta.text, delta.opaque, delta.vendor)
    for part in parts:
        _count_bytes(part)
    return ReasoningBlock(*map(clean, parts))


def classify_broken_stream(
    run: Run, attempt: Attempt, error: BaseException, what: str = "the model's stream"
) -> ModelError | None:
    """What it means that a stream did not end by itself: an error, or None when it is a reply anyway.

    Raises what ends the run.
    """
    if isinstance(error, ModelError):
        return error
    if isinstance(error, LetGo | asyncio.CancelledError):  # the run, or a time limit, has stopped it
        error = run.watch.explain_stop(error)
        attempt.abandon()
        if error.let_go:
            run.work.abandon("", run.plan.model_name, "stream", f"{what} did not stop after {error.why.value}")
    check_survivable(run, error)
    if attempt.end is not None or attempt.cut:  # complete, or cut by us: what goes wrong now cannot take it back
        return None if attempt.cut else attempt.find_fault()
    if isinstance(error, Stopped):
        why = "it cancelled itself" if error.why is Why.UNINVITED else "no delta in time"
        return TransientError(f"the stream stalled: {why}")
    log_error(run, f"model {run.plan.model_name!r}", error)
    failed = ModelError(describe_error(error)) if is_mistake(error) else TransientError(describe_error(error))
    failed.__cause__ = error
    return failed


async def wait_for_consumer(run: Run) -> None:
    """A thousand events are unread: spend no more until the consumer catches up."""
    room = run.voice.stream.wait_for_room()  # type: ignore[union-attr] # a consumer that is far behind exists
    try:
        await run.watch.wait(room)
    except asyncio.CancelledError:
        raise run.make_interrupt() from None
