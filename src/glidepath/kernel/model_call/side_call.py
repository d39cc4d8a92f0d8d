"""A model call beside the turn, for example for an MCP server: reserved, metered and charged like any other.

It runs in its own task while the run waits for a tool, so it does not use the run's watch: the code that
started it cancels it. It does not count as an iteration, and what it says is not part of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from glidepath._wire import Record, Value
from glidepath.kernel.model_call.booking import worst_case_amount
from glidepath.kernel.model_call.metered import MeteredCall
from glidepath.run import BreakerState, Touchdown, log_error, pico
from glidepath.values import GlidepathError, Message, ModelError, StopReason, Usage, describe_error, pluralize

if TYPE_CHECKING:
    from glidepath.run import Run

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
    """What one client may spend in a run, and has spent; `name` is what it is charged under."""

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
    call = _reserve_call(run, question, account, size)
    # Counted before it is made: a server that asks many times at once must not get past its limit.
    account.calls += 1
    attempt = call.attempt
    failed = False
    try:
        if run.journal is not None:
            # Before it goes out, as for a turn: after a crash its worst case is charged.
            with suppress(Touchdown):  # the run is coming down, which is seen below
                later = run.journal.record_model_call(call.booking)
                if later is not None:
                    await later
        if run.watch.is_halted() or run.result is not None:
            raise SideRefused("the run is being stopped")
        call.ask(question.system_prompt, question.messages, question.temperature, question.stop_sequences)
        # From here on it is with the provider: whatever is received is charged.
        _wake(run)
        await _stream_call(run, call)
    except SideRefused:
        failed = True
        raise
    except BaseException:  # the task was cancelled
        attempt.abandon()
        raise
    finally:
        usage = _settle(run, call, account, failed=failed)
    return SideReply(text=attempt.text, stop_reason=attempt.stop_reason(), model=plan.model_name, usage=usage)


def _check(run: Run, account: SideAccount) -> None:
    """Whether such a call may be made now."""
    if run.result is not None or run.watch.is_halted():
        raise SideRefused("the run is being stopped")
    coming_down = run.descent.notice is not None or run.descent.wind_down is not None or run.descent.verdict is not None
    # What is left is the landing's: a server's question must not use it up.
    if coming_down or run.descent.final_turn is not None or run.descent.landing_calls:
        raise SideRefused("the run is landing and makes no other model calls")
    if account.calls >= account.max_calls:
        raise SideRefused(
            f"the limit of {pluralize(account.max_calls, 'model call')} of {account.name} in this run is reached"
        )
    if run.plan.health.state is not BreakerState.CLOSED:
        raise SideRefused("the model is failing and is left alone for a while")


def _reserve_call(run: Run, question: SideQuestion, account: SideAccount, size: int) -> MeteredCall:
    """Reserve the worst case; the reply's cap is lowered until it fits what is left."""
    left = account.max_tokens - account.tokens - size
    cap = min(question.max_output_tokens, left)
    dear = inf if account.max_cost is None else pico(account.max_cost, field="max_cost") - account.money
    while cap >= min(LEAST_OUTPUT, question.max_output_tokens):
        call = MeteredCall.reserve(run, size, cap) if worst_case_amount(run, size, cap).money <= dear else None
        if call is not None:
            return call
        cap //= 2
    if left < LEAST_OUTPUT:
        raise SideRefused(
            f"the limit of {pluralize(account.max_tokens, 'token')} of {account.name} in this run is reached"
        )
    raise SideRefused(f"what is left of the run's budget, or of {account.name}'s, does not cover it")


async def _stream_call(run: Run, call: MeteredCall) -> None:
    # Over before the landing window opens: the run may be waiting for the tool that waits for this.
    seconds = min(run.plan.config.call_timeout or LONGEST, max(0.05, run.watch.window_at - run.watch.time()))
    try:
        async with asyncio.timeout(seconds) as limit:
            await call.stream(_NoWatch(run))
    except Exception as error:
        if limit.expired():
            call.attempt.abandon()
            raise SideRefused(f"the model did not answer within {seconds:.0f} s") from None
        if not isinstance(error, ModelError):
            log_error(run, f"model {run.plan.model_name!r}", error)
        raise SideRefused(f"the model failed: {describe_error(error)}") from None


def _settle(run: Run, call: MeteredCall, account: SideAccount, *, failed: bool) -> Usage:
    """Charge it to the run, under its own name."""

    def pay(usage: Usage, money: int) -> None:
        account.tokens += usage.total
        account.money += money
        run.spend.pay_beside(account.name, usage, money)

    usage = call.settle(pay, failed=failed)
    _wake(run)
    return usage


def _wake(run: Run) -> None:
    """Something happened outside the run's own task: wake the listeners."""
    if run.watch.consumer is not None:
        run.watch.consumer.wake_consumer()


class _NoWatch:
    """The watch of a call that is ended by cancelling its task."""

    scope_hit = gone = wanted = fresh = False
    interrupt = None

    def __init__(self, run: Run) -> None:
        self.time = run.watch.time

    def scope(self, *_: object) -> None:
        """Its time limit is enforced elsewhere."""

    def listen(self, *_: object) -> None:
        """It has no stall detection."""
