"""What a model call costs, settled by one rule: for a turn, a landing, a checkpoint, a question of an MCP server.

- Charged is what the provider reports where that can be true, else our own over-estimate, flagged (`ask/usage.py`); at
  the price of the model in use, with what its provider takes for searches of the web.
- Free is a call that was not sent, or that failed by itself before its first delta. What we stopped, by a cancellation
  or a time limit, is charged: the provider may have worked on it.
- The whole reservation is released, once, whatever happened.
- Every `BudgetReserved` has its `BudgetSettled`.
- A crash settles nothing. The journal has the worst case since before the call went out, and the run that
  takes over is charged for that (`sessions/recover.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from glidepath.ask.usage import fees, settled
from glidepath.events import BudgetSettled
from glidepath.messages import Message, Usage

if TYPE_CHECKING:
    from glidepath.ask.attempt import Attempt
    from glidepath.ask.booking import Booking
    from glidepath.ledger import Price, Reservation
    from glidepath.resilience import Health
    from glidepath.run import Run

_NONE = 0  # compared by identity: unlike False, 0.0 and None it is an int, and a journal keeps only ints


def settle(
    run: Run,
    booking: Booking,
    attempt: Attempt,
    sent: Sequence[Message],
    pay: Callable[[Usage, int], None],
    *,
    failed: bool = False,
    system_prompt: str | None = None,
) -> Usage:
    """Charge what a call used, by `pay`, release the rest of what was booked, and report it; returns what it used.

    `sent` and `system_prompt` (None: the agent's own) are what the model was sent; `failed`: it was not sent, or there
    is no reply.
    """
    plan, price, held, money = run.plan, run.plan.price, booking.reservation, 0
    # Stopped by us before it ended, it may have been worked on although nothing has come.
    stopped = attempt.dead and attempt.end is None
    if failed and not stopped and not attempt.pulse():
        usage = Usage()
        held.cancel()
    else:
        reported = None if attempt.end is None else attempt.end.usage
        usage = settled(run, reported, booking, sent, attempt, system_prompt)
        plan.health.sent = max(plan.health.sent, usage.input)
        if price is not None:
            money = price.cost(usage) + fees(price, attempt)
        held.settle(usage.input + usage.output, money)
        pay(usage, money)
    if run.result is None:
        refunded = max(0, held.tokens - usage.input - usage.output)
        run.emit(BudgetSettled, usage, None if price is None else money, refunded)
    return usage


def learn(run: Run, usage: Usage, booking: Booking) -> None:
    """Keep the provider's count of a prompt, as a distance from ours: it stays right while the view grows."""
    fixed = run.plan.fixed_tokens
    learnt = usage.input - booking.estimate + fixed
    if learnt < fixed and run.hooks.context_transform:
        learnt = fixed
    if not usage.estimated:
        run.transcript.learn(learnt)


def settle_ordinary(  # noqa: PLR0917 - what `cruise` has at hand
    run: Run,
    attempt: Attempt,
    booking: Booking,
    held: Reservation,
    estimate: int,
    weight: int,
    price: Price | None,
    health: Health,
    run_id: str,
    parent_id: str | None,
    number: Callable[[], int],
    tell: Any,
    at: float,
) -> Usage:
    """`settle` and `learn` for what most calls of `cruise` are.

    Ordinary is a report of input and output alone, both as they can be: what `settled` believes at first sight. `held`
    and `estimate` are the booking's own, `weight` is the size of the view, `at` the time of the event.
    """
    end: Any = attempt.end
    if end is not None and (usage := end.usage).__class__ is Usage:
        given = usage.input
        written = usage.output
        if (
            given.__class__ is int
            and written.__class__ is int
            and given >= estimate * 0.375  # `settled` has names for these figures
            and given <= 16 * estimate + 100_000
            and written > attempt.size // 8 - 4
            and written <= 16 * attempt.size + 100_000
            and written > 0  # as the input is, which is more than a share of a view that is never empty
            and usage.cache_read is _NONE
            and usage.cache_write is _NONE
            and usage.reasoning is _NONE
            and usage.estimated is False
        ):
            if given > health.sent:  # noqa: PLR1730 - quicker
                health.sent = given
            spent = given + written
            money = 0
            if price is not None:
                money = price.cost(usage)
                if price.web_search:
                    money += fees(price, attempt)
            held.settle(spent, money)
            run.spend.pay_plain(given, written, money)
            run.transcript.learn(given - weight)
            if tell is not None:
                refunded = held.tokens - spent
                if refunded < 0:  # noqa: PLR1730 - quicker
                    refunded = 0
                tell(BudgetSettled(run_id, parent_id, number(), at, usage, None if price is None else money, refunded))
            return usage
    sent: Any = run.turn.request
    usage = settle(run, booking, attempt, sent.messages, run.spend.pay)
    learn(run, usage, booking)
    return usage
