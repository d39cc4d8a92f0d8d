"""The reserve: what is held back for the landing call from the start, and what that call may use when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath.kernel.landing.landing_view import landing_view
from glidepath.kernel.model_call.booking import (
    MARGIN,
    Booking,
    collect_view_source,
    least_output,
    make_booking,
    worst_case_amount,
)
from glidepath.kernel.model_call.media import media_in, media_reserve
from glidepath.kernel.model_call.pictures import replace_pictures_with_text
from glidepath.kernel.model_call.view import drop_foreign_reasoning
from glidepath.run import Amount, Meter, Reservation, broke_prefix, drop_unsendable

if TYPE_CHECKING:
    from glidepath.run import Plan, Price, Run
    from glidepath.values import Message, ModelError

LEAST_LANDING = 128  # tokens without which another attempt at the landing call says nothing


def landing_reserve(plan: Plan, messages: Sequence[Message], meter: Meter) -> Amount:
    """What the landing call will need: held back at this run's node, set aside with its ancestors."""
    if not meter.limited or plan.config.landing == "off":
        return Amount()
    task = sum(plan.size_of(message) for message in messages)
    notice = plan.landing_notice_tokens
    least = int(plan.config.min_output_tokens * MARGIN) + 1
    tokens = max(plan.config.limits.landing_tokens, plan.fixed_tokens + task + notice + least)
    if plan.caps.tokens is not None:
        # A quarter at most: a reserve that leaves nothing to work with would land every run at once.
        tokens = min(tokens, plan.caps.tokens // 4)
        if plan.fixed_tokens + task + least + tokens > plan.caps.tokens:  # it would leave nothing for the run
            tokens = max(plan.config.limits.landing_tokens, plan.landing_fixed_tokens + task + notice + least)
            tokens = min(tokens, plan.caps.tokens // 4)
    money = 0
    # In money the two halves differ: as much as half of it may be output, which costs several times as much.
    if plan.price is not None:
        output = min(tokens, max(least, tokens // 2))
        money = _landing_money(plan, tokens - output, output, meter.room_money())
        if plan.price.prices_media:
            money += plan.price.reserve_media(media_in(messages))
        if plan.caps.money is not None:
            money = min(money, plan.caps.money // 4)
    return Amount(tokens, money)


def smallest_landing_reserve(plan: Plan, reserve: Amount) -> Amount:
    """The smallest reserve for a run that could not start beside a larger one: the notice, and a few sentences."""
    tokens = plan.landing_fixed_tokens + LEAST_LANDING
    # Half of it for the notice, which is input, and half for what is written.
    price, half = plan.price, LEAST_LANDING // 2
    money = 0 if price is None else price.worst(tokens - half, half)
    return Amount(min(tokens, reserve.tokens), min(money, reserve.money))


def cap_reserve(reserve: Amount, meter: Meter) -> Amount:
    """The landing reserve of a run that continues: no more than its own limits leave."""
    caps = meter.caps
    tokens = reserve.tokens if caps.tokens is None else min(reserve.tokens, caps.tokens - meter.tokens)
    money = reserve.money if caps.money is None else min(reserve.money, caps.money - meter.money)
    return Amount(max(0, tokens), max(0, money))


def is_enough_to_land(plan: Plan, reserve: Amount, meter: Meter) -> bool:
    """Whether a landing call from this reserve could say anything."""
    caps = meter.caps
    return _is_worth_a_call(
        plan, None if caps.tokens is None else reserve.tokens, None if caps.money is None else reserve.money
    )


def can_pay_landing(plan: Plan, reserve: Amount) -> bool:
    """Whether the reserve pays for the smallest landing call there is: the notice without the task, and one token."""
    price = plan.price
    if price is None or plan.caps.money is None:
        return True
    return reserve.money >= _least_money(plan, price)


def _least_money(plan: Plan, price: Price) -> int:
    """What the smallest landing call costs: the notice without the task, and one token."""
    return (plan.landing_fixed_tokens + plan.landing_notice_tokens) * price.worst_input + price.output


def is_within_limits(plan: Plan, meter: Meter, unexplained: Amount | None) -> bool:
    """Whether the limits still leave something for a landing call: a bill that nobody could foresee may have taken it.

    `unexplained`: what the last call cost, when its provider bills what we do not see. The landing may cost as much.
    """
    tokens, money = meter.unspent()
    if not _is_worth_a_call(plan, tokens, money):
        return False
    if unexplained is None:
        return True
    return (tokens is None or unexplained.tokens <= tokens) and (money is None or unexplained.money <= money)


def _is_worth_a_call(plan: Plan, tokens: int | None, money: int | None) -> bool:
    """Whether a landing call within these amounts is worth making; None: there is no limit."""
    least, price = plan.landing_fixed_tokens + LEAST_LANDING, plan.price
    if tokens is not None and tokens < least:
        return False
    return money is None or price is None or money >= least * max(price.worst_input, price.output)


def _landing_money(plan: Plan, input_tokens: int, output: int, room: int | None) -> int:
    """What the landing call costs on the configured model, or on a dearer fallback where a quarter of `room` pays it.

    Whichever model is in use then, its landing can be paid; but a dear fallback never keeps a run from starting.
    """
    prices = [one.price for one in ((plan,) if plan.route is None else plan.route.plans) if one.price is not None]
    costs = [input_tokens * price.worst_input + output * price.output for price in prices]
    return max([costs[0], *[cost if room is None else min(cost, room // 4) for cost in costs[1:]]])


def _landing_again(run: Run, failed: ModelError) -> Reservation:
    """The reservation of another attempt at the landing call: what the first has left of the reserve."""
    meter, reserve, got = run.meter, run.spend.landing_reserve, None
    tokens, money = meter.room_for(None, now=True)
    if _is_worth_a_call(run.plan, tokens, money):
        asked = reserve.tokens if tokens is None else min(reserve.tokens, tokens)
        got = meter.reserve(asked, reserve.money if money is None else min(reserve.money, money), turns=0, queued=True)
    if type(got) is not Reservation:
        raise failed
    return got


def _output_with_whole_view(run: Run, reservation: Reservation, input_tokens: int, want: int) -> int:
    """Output tokens of a landing call that keeps the whole view, and so its prefix; 0 when that cannot be paid.

    The reply is worth more than the cache: it gets `landing_tokens` at least, or the view is compacted.
    """
    plan, price = run.plan, run.plan.price
    tokens, money = run.meter.room_for(None, now=True)
    output = want if tokens is None else min(want, tokens + reservation.tokens - input_tokens)
    if money is not None and price is not None:
        price = price.at(input_tokens)
        left = money + reservation.money - input_tokens * price.worst_input - media_reserve(run, price)
        output = min(output, left // price.output if price.output else output if left >= 0 else 0)
    if output < min(want, max(least_output(run), plan.config.limits.landing_tokens)):
        return 0
    asked = worst_case_amount(run, input_tokens, output)
    more = max(0, asked.tokens - reservation.tokens), max(0, asked.money - reservation.money)
    return output if reservation.extend(*more) else 0


def book_landing(run: Run, cap: int | None, failed: ModelError | None) -> tuple[Booking, list[Any]]:
    """The landing call's budget and view: more than its reserve where there is room, else cut to fit the reserve.

    `failed` is the error of an earlier attempt, which has used some of the reserve; it stands when too little is left.
    """
    plan, meter = run.plan, run.meter
    # It is not made any more; what it had reserved belongs to the landing now.
    run.spend.drop_first_call()
    if failed is None:
        reservation = meter.open_landing(run.spend.landing_reserve, admitted=run.spend.admitted)
    else:
        reservation = _landing_again(run, failed)
    run.spend.open_landing()
    want = plan.first_output_tokens if cap is None else cap
    input_tokens = run.transcript.input_tokens()
    # The whole view first: its prefix is in the provider's cache, and the model has seen all of it.
    output = _output_with_whole_view(run, reservation, input_tokens, want)
    if output:
        cap = cap if output == want else max(1, int(output / MARGIN))
        return make_booking(run, reservation, input_tokens, output, cap), run.transcript.view
    tokens = room = reservation.tokens if any(node.caps.tokens is not None for node in meter.lineage) else 1 << 40
    price: Any = plan.price
    paid = price is not None and any(node.caps.money is not None for node in meter.lineage)
    paid = paid and price.worst_input + price.output > 0
    messages, sizes, pinned = collect_view_source(run)
    money = reservation.money
    if paid and price.prices_media and run.transcript.picture_bytes:
        dear = price.reserve_media(media_in([messages[at] for at in pinned]))
        kept = pinned if money - dear >= _least_money(plan, price) else ()
        # Only the task keeps its sound and pictures, and only where they can be paid: they cost more than text.
        told = [one if at in kept else replace_pictures_with_text(one) for at, one in enumerate(messages)]
        sizes = [
            size if one is was else plan.size_of(one) for one, was, size in zip(told, messages, sizes, strict=True)
        ]
        messages, money = told, money - dear if kept else money
    least = max(1, min(int(plan.config.min_output_tokens * MARGIN), room // 2))
    if paid:
        least = min(least, money // 2 // max(1, price.output))
        room = min(room, (money - least * price.output) // max(1, price.worst_input) + least)
    # The definitions stay where the task and the notice fit beside them: what comes first is still in the cache.
    bare = room - least - plan.fixed_tokens < sum([sizes[place] for place in pinned]) + plan.landing_notice_tokens
    fixed = plan.landing_fixed_tokens if bare else plan.fixed_tokens
    budget = max(0, room - least - fixed)
    shaped = landing_view(messages, sizes, budget, pinned, estimate=plan.estimator.estimate)
    input_tokens = min(shaped.tokens + fixed, room - 1)
    output = min(want, tokens - input_tokens)
    if paid:
        output = min(output, (money - input_tokens * price.worst_input) // max(1, price.output))
    output = max(least, output)
    booking = make_booking(run, reservation, input_tokens, output, max(1, int(output / MARGIN)))
    booking.estimate = input_tokens
    booking.bare = bare and bool(plan.specs)
    broke_prefix(run, "the landing was compacted" + (", without the tool definitions" if booking.bare else ""))
    return booking, drop_unsendable(
        drop_foreign_reasoning(shaped.messages, plan) if run.transcript.mixed else shaped.messages
    )
