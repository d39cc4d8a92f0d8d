"""Asking the model: one usable reply, or one error. Retries, overflow and truncation are absorbed here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from glidepath._lazy import lazy_attributes
from glidepath._wire import Record
from glidepath.kernel.model_call.attempt import Attempt, Reply, classify_broken_stream, pump, wait_for_consumer
from glidepath.kernel.model_call.booking import (
    FILL,
    Booking,
    book,
    book_with_hosted,
    find_needed_size,
    shape_view,
    shrink_view,
    wait_or_shrink,
)
from glidepath.kernel.model_call.fallback import (
    admit,
    note_stopped_trial,
    record_recovery,
    return_to_configured_model,
    summarize_error,
    take_over,
)
from glidepath.kernel.model_call.gates import offer, request_for
from glidepath.kernel.model_call.pictures import shed_pictures
from glidepath.kernel.model_call.settlement import settle
from glidepath.kernel.model_call.view import recover_from_overflow, transform_view
from glidepath.run import (
    HIGH_WATER,
    MARK_EVERY,
    BreakerState,
    HookFault,
    Refusal,
    Stopped,
    Touchdown,
    await_interruptibly,
    await_interruptibly_within,
    check_survivable,
    is_too_long_a_wait,
    log_error,
    random_fraction,
    report,
    retry_delay,
)
from glidepath.spi import ModelRequest, ToolSpec
from glidepath.values import (
    AgentState,
    AttemptDiscarded,
    BudgetReserved,
    ContextOverflowError,
    Message,
    ModelError,
    OutputTokensEscalated,
    RejectedError,
    RetryScheduled,
    StopReason,
    StreamChunk,
    StreamStarted,
    TransientError,
    Usage,
    pluralize,
    short_repr,
)

if TYPE_CHECKING:
    from glidepath.run import Plan, Run

_log = logging.getLogger("glidepath")
_SHOWN = 300
_NOTHING_USED = Usage()
LandingBooking: TypeAlias = "Callable[[Run, int | None, ModelError | None], tuple[Booking, Sequence[Message]]]"
"""How the landing call is paid: its booking and its view, given its cap and the error of an earlier attempt."""


async def ask(run: Run, *, landing: LandingBooking | None = None) -> Reply:
    """One reply to the current transcript; raises `ModelError` when there is none, `Touchdown` to land."""
    tools = run.plan.specs if landing is None and _is_ready(run) else await _make_ready(run, landing)
    plan, watch, recovering = run.plan, run.watch, False
    health = plan.health
    health.calls += 1
    call = _Call(run, tools, landing, plan.max_output_tokens)
    try:
        if health.alert or not health.calls % MARK_EVERY:
            admit(call)
        while True:
            try:
                if recovering:
                    await call.recover()
                booking, view = call.book_at_once() or await call.book()
                if run.journal is not None and (written := journal_call(run, booking)) is not None:
                    await written
                plan = run.plan  # another one when a fallback has taken over
                request, attempt = call.begin(booking, view), Attempt()
                if watch.is_halted():  # an observer of this attempt may have stopped the run
                    call.abandon_unsent(attempt, booking, view)
                try:
                    await await_interruptibly(pump(run, plan.model, request, attempt, booking), watch)
                except BaseException as error:
                    call.note_broken_stream(attempt, error)
                finally:
                    call.settle(attempt, booking, view)
                recovering = call.error is not None
                if not recovering and (plan.config.max_output_tokens_recovery is None or not call.escalate(attempt)):
                    if plan.health.alert:
                        call.probing = False
                        record_recovery(run)
                    return attempt.make_reply(run, call.usage)
            except ModelError as error:
                recovering = False
                take_over(call, error)
            except BaseException:
                if call.probing:
                    note_stopped_trial(call)
                raise
    finally:
        call.error = call.run = None


def _is_ready(run: Run) -> bool:
    """Whether the next call can be made as it is: every tool, a view that fits, and a consumer who keeps up."""
    plan, stream = run.plan, run.voice.stream
    return not (
        plan.position
        or run.is_narrowed()
        or (plan.context_window is not None and find_needed_size(run, plan.context_window) is not None)
        or run.transcript.picture_bytes
        or (stream is not None and len(stream.outbox) >= HIGH_WATER)
    )


async def _make_ready(run: Run, landing: LandingBooking | None) -> tuple[ToolSpec, ...]:
    """The tools of a call that is about to be made, once its view fits and its consumer listens."""
    plan: Plan = return_to_configured_model(run) if landing is None and run.plan.position else run.plan
    tools = () if landing is not None else await offer(run) if run.is_narrowed() else plan.specs
    budget = None if plan.context_window is None else find_needed_size(run, plan.context_window)
    if budget is not None and landing is not None:
        shape_view(run, budget)
    elif budget is not None:
        await shrink_view(run, budget)
    if run.transcript.picture_bytes > plan.config.max_image_bytes_per_request:
        shed_pictures(run, plan.config.max_image_bytes_per_request)
    stream = run.voice.stream
    if stream is not None and len(stream.outbox) >= HIGH_WATER:
        await wait_for_consumer(run)
    return tools


def journal_call(run: Run, booking: Booking) -> Awaitable[None] | None:
    """With a journal: what the call may cost is on disk before it is made. None when it is there already."""
    if run.meter.tree.source is not None:
        return _journal_call(run, booking, None)
    try:
        later = run.journal.record_model_call(booking)  # type: ignore[union-attr] # the caller has checked
    except BaseException:
        booking.reservation.cancel()
        raise
    return None if later is None else _journal_call(run, booking, later)


async def _journal_call(run: Run, booking: Booking, later: Awaitable[None] | None) -> None:
    try:
        if later is None:
            from glidepath.kernel.model_call.source import wait_for_pace  # only a wallet is a source

            await wait_for_pace(run, booking.reservation.tokens)
            later = run.journal.record_model_call(booking)  # type: ignore[union-attr]
        if later is not None:
            await later
    except BaseException:
        booking.reservation.cancel()
        raise


class _Call(Record, eq=False):
    """One model call with all its attempts.

    An error keeps its call, by the frames of its traceback, and a model may keep the error: the code that makes a call
    clears its `error` and its `run` in the end, so that nothing leads from it back to either. The garbage collector
    looks at it: a loop that is closed in the middle of a call leaves a ring, which holds what the call has reserved.
    """

    run: Any  # a Run
    tools: tuple[ToolSpec, ...]
    landing: LandingBooking | None
    cap: int | None
    error: ModelError | None = None
    usage: Usage = _NOTHING_USED
    number: int = 0
    retries: int = 0
    escalations: int = 0
    overflowed: bool = False
    probing: bool = False
    """It finds out for everybody whether the model works again."""
    denied: bool = False
    """The retry budget had nothing left for it, not even for one more try."""
    longest: str = ""

    # --- one attempt ------------------------------------------------------------------------------------------

    def book_at_once(self) -> tuple[Booking, Sequence[Message]] | None:
        """The booking and the view of an attempt where nobody is asked or waited for first; None: `book` has to."""
        run = self.run
        if (
            self.landing is not None
            or run.hooks.context_transform
            or run.watch.sentry is not None
            or (run.plan.books_with_care and run.meter.limited)
        ):
            return None
        transcript = run.transcript
        count = transcript.anchor + transcript.view_tokens
        booking = book(run, self.cap, 0 if self.number else 1, count if count > 0 else 1)
        return (booking, transcript.view) if booking.__class__ is Booking else None

    async def book(self) -> tuple[Booking, Sequence[Message]]:
        """The booking and the view of an attempt."""
        run = self.run
        if run.watch.sentry is not None:
            await run.watch.sentry.wait_until_clear(run)
        if self.landing is None:
            return await self._book_view()
        booking, view = self.landing(run, self.cap, self.error)
        run.turn.drop_request()  # what may run at the provider is different now, and perhaps nothing else
        if run.hooks.context_transform:
            view = await self._transform_within(booking, view, sum(map(run.plan.size_of, view)))
        return booking, view

    def begin(self, booking: Booking, view: Sequence[Message]) -> ModelRequest:
        """The request of the next attempt, which begins now; the last one again while nothing about it has changed."""
        run = self.run
        turn, plan = run.turn, run.plan
        self.number += 1
        request = turn.request
        if (
            request is None
            or request.messages is not view
            or request.tools is not self.tools
            or request.max_output_tokens != booking.cap
        ):
            request = turn.send(request_for(run, self.tools, view, booking.cap, bare=booking.bare))
        self.error = None
        emit = run.voice.emit
        if emit is not None:
            held = booking.reservation
            emit(BudgetReserved, held.tokens, held.money if plan.price is not None else None, booking.cap)
            emit(StreamStarted, plan.model_name, self.number, self.landing is not None)
        return request  # type: ignore[no-any-return]

    def abandon_unsent(self, attempt: Attempt, booking: Booking, view: Sequence[Message]) -> NoReturn:
        """The run is being stopped, and the request has not gone out: it costs nothing."""
        run = self.run
        self.error = TransientError("the request was not sent: the run is being stopped")
        self.settle(attempt, booking, view)
        raise run.make_interrupt()

    async def _book_view(self) -> tuple[Booking, Sequence[Message]]:
        """Reserve for the view as the plugins want it, which may be larger than the transcript."""
        run, transcript = self.run, self.run.transcript
        source, size = transcript.view, transcript.view_tokens
        view, tokens = source, size
        if run.hooks.context_transform:
            view, tokens = await transform_view(run, source, size)
        count = await self._count(view) if run.plan.counter is not None and run.meter.limited else None
        more, turns = tokens - size, 0 if self.number else 1
        count = max(1, transcript.input_tokens() + more) if count is None else count
        booking = (book if run.plan.hosted is None else book_with_hosted)(run, self.cap, turns, count)
        if isinstance(booking, Refusal):  # wait, or make the call smaller
            booking = await wait_or_shrink(run, booking, self.cap, turns, count)
        if not run.hooks.context_transform:
            return booking, transcript.view  # the booking may have compacted it
        if transcript.view is not source:  # it had to be compacted to fit: they have not seen this one
            return booking, await self._transform_within(booking, transcript.view, transcript.view_tokens)
        if booking.input >= count:
            booking.estimate += more
            return booking, view
        return booking, self._accept_larger_view(booking, source, view, more, count - booking.input)

    async def _transform_within(self, booking: Booking, source: Sequence[Message], tokens: int) -> Sequence[Message]:
        """The view as the plugins want it, if what is reserved or can be added pays for it; else as it is."""
        try:
            view, size = await transform_view(self.run, source, tokens)
        except BaseException:
            booking.reservation.cancel()
            raise
        return self._accept_larger_view(booking, source, view, size - tokens, size - tokens)

    def _accept_larger_view(
        self, booking: Booking, source: Sequence[Message], view: Sequence[Message], more: int, short: int
    ) -> Sequence[Message]:
        """The plugins' view, which is `more` tokens larger, when `short` more can be paid for; else the source."""
        if short > 0 and not booking.add_input(short):
            run = self.run
            fault = HookFault(f"its view takes {pluralize(short, 'token')} more than the budget allows")
            for name, _ in run.hooks.context_transform:
                report(run, "context_transform", name, fault, "skipped")
            return source
        booking.estimate += more
        return view

    async def _count(self, view: Sequence[Message]) -> int | None:
        """The prompt as the model itself counts it, where it can and a budget needs it."""
        run = self.run
        count: Any = run.plan.counter
        request = request_for(run, self.tools, view, None)
        try:
            tokens = count(request)
            if hasattr(tokens, "__await__"):
                tokens = await await_interruptibly_within(tokens, run.watch, run.plan.config.first_chunk_timeout)
        except BaseException as error:
            check_survivable(run, error)
            if not isinstance(error, Stopped | ModelError):
                log_error(run, f"count_tokens of {run.plan.model_name}", error, "our own estimate is used")
            return None
        return tokens if type(tokens) is int and tokens >= 0 else None

    def note_broken_stream(self, attempt: Attempt, error: BaseException) -> None:
        """The stream did not end by itself: its error is noted, or raised when it ends the run."""
        try:
            self.error = classify_broken_stream(self.run, attempt, error)
        except Touchdown:
            self._keep(attempt)
            raise
        if self.error is not None:
            self._keep(attempt)

    def _keep(self, attempt: Attempt) -> None:
        """The longest text of a call that failed or was cut is its best text."""
        text = attempt.text
        if len(text) > len(self.longest):
            self.longest = text
            self.run.answer.keep_text(text)

    def settle(self, attempt: Attempt, booking: Booking, view: Sequence[Message]) -> None:
        """The attempt is over: emit that, and charge what it used."""
        run, failed = self.run, self.error is not None
        watch = run.watch
        watch.end_wait()
        # A landing window that opens during a text that answers is left alone: the text is the landing.
        if (failed or attempt.calls) and watch.time() >= watch.window_at:
            watch.open_window()  # it was showing text then, and is not what the run has waited for
        voice = run.voice
        if voice.chunks is not None:
            voice.emit(StreamChunk, "", True)
        self.usage = usage = settle(run, booking, attempt, view, run.spend.pay, failed)
        if self.landing is None and not usage.estimated and (usage.input or usage.output):
            # The provider's count of a prompt is kept as a distance from ours: it stays right while the view grows.
            fixed = run.plan.fixed_tokens
            learnt = usage.input - booking.estimate + fixed
            # What a transform has made smaller may be larger again in the next call.
            run.transcript.learn(fixed if learnt < fixed and run.hooks.context_transform else learnt)

    # --- what comes next --------------------------------------------------------------------------------------

    def escalate(self, attempt: Attempt) -> bool:
        """A truncated reply, and a ladder to ask for it again with a larger cap: discard it."""
        run, ladder = self.run, self.run.plan.config.max_output_tokens_recovery
        if attempt.cut or ladder is None or self.cap is None or self.landing is not None:
            return False
        if attempt.stop_reason() is not StopReason.MAX_TOKENS:
            return False
        larger = self._find_larger_cap(self.cap)
        if larger is None:
            return False
        self.escalations += 1
        self._keep(attempt)
        run.emit(AttemptDiscarded, self.number, "truncated at its output cap")
        run.emit(OutputTokensEscalated, self.escalations, self.cap, larger)
        self.cap = larger
        return True

    def _find_larger_cap(self, cap: int) -> int | None:
        """The next cap of the ladder; None when it has none, or fails: the truncated reply is accepted then."""
        ladder = self.run.plan.config.max_output_tokens_recovery
        try:
            if self.escalations >= ladder.max_attempts:
                return None
            larger = ladder.next_cap(cap, self.escalations)
            if larger is not None and type(larger) is not int:
                raise TypeError(f"next_cap returned {short_repr(larger, 80)}, not a whole number")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            name = type(ladder).__name__
            report(self.run, "max_output_tokens_recovery", name, error, "no larger cap")
            return None
        return larger if larger is not None and larger > cap else None

    async def recover(self) -> None:
        """The attempt has failed: make ready for another; raises the error when there is none."""
        if isinstance(self.error, ContextOverflowError):
            await self.shrink()
        else:
            await self.back_off(self.run.plan.config.max_retries)

    async def shrink(self) -> None:
        """The provider's window overflowed: use a smaller view, once per call; else raise the error."""
        run, error = self.run, cast("ModelError", self.error)
        run.emit(AttemptDiscarded, self.number, "the context window overflowed")
        if self._retry_without_pictures():
            return
        if self.overflowed or self.landing is not None:
            raise error
        self.overflowed = True
        if not await recover_from_overflow(run) and not await shrink_view(run, int(run.transcript.view_tokens * FILL)):
            raise error

    def _retry_without_pictures(self) -> bool:
        """A request was refused, perhaps because of older pictures: try once without them."""
        run = self.run
        return run.transcript.picture_bytes > 0 and run.transcript.most_pictures > 0 and shed_pictures(run, 0)

    async def back_off(self, max_retries: int) -> None:
        """Wait before the next attempt; raises the error when there is none."""
        run, error = self.run, cast("ModelError", self.error)
        run.emit(AttemptDiscarded, self.number, summarize_error(error, _SHOWN))
        if run.watch.interrupt is not None:
            raise run.make_interrupt()
        # Providers reject a request with too many pictures in many ways: before giving up, try once without them.
        if isinstance(error, RejectedError) and self._retry_without_pictures():
            return
        if not error.retryable or self.retries >= max_retries or self.probing:
            raise error
        if run.watch.deadline_at == inf and is_too_long_a_wait(error):
            raise error
        delay = retry_delay(self.retries, error, getattr(run.watch.loop, "random", random_fraction))
        until = min(run.watch.deadline_at, inf if self.landing is not None else run.watch.window_at)
        if delay >= until - run.watch.time():
            raise error
        if not run.plan.health.may_retry(run.watch.time()):
            self.denied = not self.retries
            raise error
        self.retries += 1
        run.emit(RetryScheduled, self.number + 1, round(delay, 3), summarize_error(error, _SHOWN), run.plan.model_name)
        _log.info(
            "%s: attempt %d failed, next in %.1f s: %s", run.run_id, self.number, delay, summarize_error(error, _SHOWN)
        )
        run.turn.enter(AgentState.RECOVERING)
        try:
            await run.watch.sleep(delay)
        except asyncio.CancelledError:
            if run.watch.interrupt is None:  # our own future was cancelled by somebody: as good as a fault
                raise TransientError("the wait before a retry was cancelled") from None
            raise run.make_interrupt() from None
        run.turn.enter(AgentState.RUNNING)
        if run.plan.health.state is not BreakerState.CLOSED:  # others have found out meanwhile
            raise error


# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.kernel.model_call.closing import MOST_AFTER_END as MOST_AFTER_END
    from glidepath.kernel.model_call.settlement import cost_of as cost_of, is_implausible as is_implausible

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, closing=("MOST_AFTER_END",), settlement=("cost_of", "is_implausible"))
