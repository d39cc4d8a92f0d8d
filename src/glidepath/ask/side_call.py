"""A model call beside the turn, for somebody else's question: reserved, metered and charged like any other.

It runs in a task of its own while the run waits for a tool, so it does not use the run's watch: whoever started it
cancels it. It is no iteration, and what it says is not part of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, Value
from glidepath.ask.attempt import Attempt, pump
from glidepath.ask.booking import Booking, amount, booked
from glidepath.ask.usage import settled
from glidepath.errors import GlidepathError, ModelError, told
from glidepath.events import BudgetReserved, BudgetSettled
from glidepath.ledger import Reservation, pico
from glidepath.messages import Message, StopReason, Usage
from glidepath.resilience import BreakerState
from glidepath.run import Touchdown
from glidepath.spi import ModelRequest

if TYPE_CHECKING:
    from glidepath.run import Run

__all__ = ["SideAccount", "SideQuestion", "SideRefused", "SideReply", "side_call"]

LEAST_OUTPUT = 64
LONGEST = 300.0  # seconds


class SideRefused(GlidepathError):  # noqa: N818 - an answer, not an error
    """The call is not made; the message says why."""


class SideQuestion(Value, frozen=True, kw_only=True):
    """What is asked, and how long the reply may be at most."""

    messages: Sequence[Message]
    max_output_tokens: int
    system_prompt: str = ""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()


class SideAccount(Record):
    """What somebody may spend in one run, and has spent; `name` is what it is charged under."""

    name: str
    max_calls: int
    max_tokens: int
    max_cost: str | None = None
    calls: int = 0
    tokens: int = 0
    money: int = 0


class SideReply(Value, frozen=True, kw_only=True):
    """What the model said."""

    text: str
    stop_reason: StopReason
    model: str
    usage: Usage


async def side_call(run: Run, question: SideQuestion, account: SideAccount) -> SideReply:
    """Ask the run's model; raises `SideRefused` when the call may not be made or failed.

    Cancelling it ends the stream; what was received by then is charged.
    """
    _check(run, account)
    plan = run.plan
    size = sum(plan.size_of(message) for message in question.messages) + plan.estimator.estimate(question.system_prompt)
    booking = _booked(run, question, account, size)
    account.calls += 1
    request = ModelRequest(
        system_prompt=question.system_prompt,
        messages=tuple(question.messages),
        max_output_tokens=booking.cap,
        temperature=question.temperature if question.temperature is not None else plan.temperature,
        stop_sequences=question.stop_sequences,
        extras=run.terms.extras,
        connect_timeout=plan.times.connect,
        user=run.user,
        metadata=run.metadata,
    )
    attempt = Attempt()
    free = True  # until it is sent, and when it fails before its first delta
    try:
        if run.journal is not None:
            with suppress(Touchdown):  # the run is coming down, which is seen below
                await run.journal.asking(booking)
        if run.watch.halted() or run.result is not None:
            raise SideRefused("the run is being stopped")
        if run.voice.listening:
            money = booking.reservation.money if plan.price is not None else None
            _tell(run, BudgetReserved, booking.reservation.tokens, money, booking.cap)
        plan.health.calls += 1
        free = False
        await _streamed(run, request, attempt, booking)
    except SideRefused:
        free = free or not attempt.pulse()
        raise
    finally:
        attempt.let_go()
        usage = Usage() if _given_back(booking, free=free) else _settle(run, attempt, booking, request, account)
    return SideReply(text=attempt.text, stop_reason=attempt.stop_reason(), model=plan.model_name, usage=usage)


def _check(run: Run, account: SideAccount) -> None:
    """Whether such a call may be made now."""
    if run.result is not None or run.watch.halted():
        raise SideRefused("the run is being stopped")
    coming_down = run.descent.notice is not None or run.descent.wind_down is not None or run.descent.verdict is not None
    if coming_down or run.descent.final_turn is not None or run.descent.landing_calls:
        raise SideRefused("the run is landing, and makes no other model calls")
    if account.calls >= account.max_calls:
        raise SideRefused(f"the limit of {account.max_calls} model calls of {account.name} in this run is reached")
    if run.plan.health.state is not BreakerState.CLOSED:
        raise SideRefused("the model is failing and is left alone for a while")


def _booked(run: Run, question: SideQuestion, account: SideAccount, size: int) -> Booking:
    """Reserve the worst case; the reply's cap is lowered until it fits what is left."""
    left = account.max_tokens - account.tokens - size
    cap = min(question.max_output_tokens, left)
    dear = inf if account.max_cost is None else pico(account.max_cost, field="max_cost") - account.money
    while cap >= min(LEAST_OUTPUT, question.max_output_tokens):
        worst = amount(run, size, cap)
        if worst.money <= dear:
            reservation = run.meter.reserve(worst.tokens, worst.money, turns=0)
            if isinstance(reservation, Reservation):
                booking = booked(run, reservation, size, cap, cap)
                booking.estimate = size
                return booking
        cap //= 2
    if left < LEAST_OUTPUT:
        raise SideRefused(f"the limit of {account.max_tokens} tokens of {account.name} in this run is reached")
    raise SideRefused(f"what is left of the run's budget, or of {account.name}'s, does not pay for it")


async def _streamed(run: Run, request: ModelRequest, attempt: Attempt, booking: Booking) -> None:
    apart: Any = _Apart(run)
    seconds = min(run.plan.times.call or LONGEST, max(0.05, run.watch.window_at - run.watch.time()))
    try:
        async with asyncio.timeout(seconds):
            await pump(apart, run.plan.model, request, attempt, booking)
    except TimeoutError:
        raise SideRefused(f"the model did not answer within {seconds:.0f} s") from None
    except ModelError as error:
        raise SideRefused(f"the model failed: {told(error)}") from None
    except Exception as error:
        raise SideRefused(f"the model failed: {told(error)}") from None


def _given_back(booking: Booking, *, free: bool) -> bool:
    if free:
        booking.reservation.cancel()
    return free


def _settle(run: Run, attempt: Attempt, booking: Booking, request: ModelRequest, account: SideAccount) -> Usage:
    """Charge it to the run, under its own name."""
    reservation, plan = booking.reservation, run.plan
    apart: Any = _Apart(run)
    reported = attempt.end.usage if attempt.end is not None else None
    usage = settled(apart, reported, booking, request.messages, attempt, request.system_prompt)
    money = 0 if plan.price is None else plan.price.cost(usage)
    reservation.settle(usage.input + usage.output, money)
    account.tokens += usage.total
    account.money += money
    run.spend.pay_beside(account.name, usage, money)
    if run.voice.listening and run.result is None:
        refunded = max(0, reservation.tokens - usage.total)
        _tell(run, BudgetSettled, usage, money if plan.price is not None else None, refunded)
    return usage


def _tell(run: Run, *event: Any) -> None:
    """Say what happened beside the run's own task, and wake whoever listens."""
    run.emit(*event)
    if run.watch.ring is not None:
        run.watch.ring()


class _NoWatch:
    """The watch of a call that is ended by cancelling its task."""

    scope_hit = gone = wanted = fresh = False
    interrupt = None

    def __init__(self, run: Run) -> None:
        self.time = run.watch.time

    def scope(self, *_: object) -> None:
        """Its time is kept outside."""

    def listen(self, *_: object) -> None:
        """Nobody feels its pulse."""


class _Apart:
    """The run, with nobody listening and a watch of its own; what is written to it stays here."""

    chunks = listening = False
    stream = None

    def __init__(self, run: Run) -> None:
        self._run = run
        self.watch = _NoWatch(run)
        self.weighed_view: Sequence[Message] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def chunk_sink(self, _attempt: Attempt) -> None:
        """Nobody wants its chunks."""

    def emit(self, *_: Any) -> None:
        """Nobody hears it."""
