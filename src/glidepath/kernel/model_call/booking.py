"""Budget for one call: reserve its worst case, wait for it, trim the call until it fits, or land."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath._wire import Record
from glidepath.kernel.model_call.media import media_reserve
from glidepath.kernel.model_call.pictures import drop_excess_pictures
from glidepath.kernel.model_call.view import COMPACTED, drop_foreign_reasoning
from glidepath.run import (
    Amount,
    Meter,
    Price,
    Refusal,
    Reservation,
    Touchdown,
    Verdict,
    Waiting,
    broke_prefix,
    dollars,
    in_turn,
    wait_for_budget,
)
from glidepath.values import AgentState, StopCause, name_limit

if TYPE_CHECKING:
    from glidepath.run import Run
    from glidepath.values import Message

T = TypeVar("T")
BYTES_PER_TOKEN = 4  # how output is metered while it streams
SLICE = 4096  # how much a reply that outgrows its reservation asks for at a time
PIECE = 64  # bytes of a piece of text: what a stream has sent when it is found to be too long must still fit
LARGEST_PIECE = 1024  # tokens that one delta may have: the same, where all the rest of a budget is reserved
UNBOUNDED = 1 << 60  # bytes that a reply may have where no budget is looked after
NOTICE = 32  # tokens by which the notice of a limit that is near may be longer than that of the landing
LOOK_AGAIN = 1.0  # seconds between two looks of a waiter who counts on runs of other loops
_NOTHING = Amount()
FILL = 0.75  # how full the window is after shaping, so that it is not done again at every turn
MARGIN = 1.1  # our token count and the provider's differ: a lowered cap leaves this much room


class Booking(Record, gc=False):
    """What a call may use: its reservation, the input counted, what may be written, the cap to send (or None)."""

    reservation: Reservation
    input: int
    output: int
    cap: int | None
    price: Price | None
    estimate: int
    size: int
    bare: bool = False
    """The request leaves the tool definitions out: the landing reserve does not hold them."""

    def grow(self, size: int) -> bool:
        """A reply outgrows its reservation: reserve more until `size` bytes fit; False when the ledger refuses."""
        while self.size < size:
            # In slices: reserving the whole rest for one long reply would make every sibling wait for it.
            tokens = SLICE if self._extend(SLICE) else self._reserve_rest() - LARGEST_PIECE
            if tokens <= 0:
                return False
            self.size += tokens * BYTES_PER_TOKEN
        return True

    def add_input(self, tokens: int) -> bool:
        """The prompt has become larger: reserve that, too; False when the ledger refuses."""
        before, money = self.price, 0
        price = None if before is None else before.at(self.input + tokens)
        if price is not None and before is not None:
            # A larger prompt may reach a dearer tier, and then all of it is dearer, not only what was added.
            money = (self.input + tokens) * price.worst_input - self.input * before.worst_input
            money += self.output * (price.output - before.output)
        if not self.reservation.extend(tokens, max(0, money)):
            return False
        self.input += tokens
        self.price = price
        return True

    def next_slice(self) -> Amount:
        """What a reply that outgrows its reservation asks for at a time."""
        return Amount(SLICE, SLICE * self.price.output if self.price is not None else 0)

    def _extend(self, tokens: int) -> bool:
        return self.reservation.extend(tokens, tokens * self.price.output if self.price is not None else 0)

    def _reserve_rest(self) -> int:
        """Reserve what is left when a whole slice is not; 0 when that is too little."""
        # A reply cut in the middle is worth less than what it would leave for a run that waits to start.
        tokens, money = self.reservation.meter.room_for(None, now=True, fair=False)
        rest = SLICE if tokens is None else min(SLICE, tokens)
        if money is not None and self.price is not None and self.price.output:
            rest = min(rest, money // self.price.output)
        # The last delta is received before it is weighed, so it must be paid for in advance.
        return rest if rest > LARGEST_PIECE and self._extend(rest) else 0


def make_booking(run: Run, reservation: Reservation, input_tokens: int, output: int, cap: int | None) -> Booking:
    """The booking that goes with a reservation of a run."""
    plan = run.plan
    estimate = plan.fixed_tokens + run.transcript.view_tokens
    return open_booking(reservation, input_tokens, output, cap, plan.price, estimate)


def open_booking(
    reservation: Reservation, input_tokens: int, output: int, cap: int | None, price: Price | None, estimate: int
) -> Booking:
    """The booking that goes with a reservation, by any caller."""
    size = UNBOUNDED
    if price is not None:
        price = price.at(input_tokens)
    # Where nothing is limited nothing has to be cut, and weighing each delta would cost for nothing.
    if reservation.meter.limited:
        # A piece less than is reserved: the delta that goes too far has been received, and must still be paid for.
        size = max(1, output * BYTES_PER_TOKEN - PIECE)
    return Booking(reservation, input_tokens, output, cap, price, estimate, size)


def worst_case_amount(run: Run, input_tokens: int, output: int) -> Amount:
    """The worst case of a call."""
    more, fees = _reserve_hosted(run, input_tokens)
    read = input_tokens + more
    price = None if run.plan.price is None else run.plan.price.at(read)
    money = 0 if price is None else price.worst(read, output) + media_reserve(run, price) + fees
    return Amount(read + output, money)


def _reserve_hosted(run: Run, input_tokens: int) -> tuple[int, int]:
    """Tokens and pico-dollars that tools at the provider may use above the prompt; none in a landing."""
    hosted = run.plan.hosted
    if hosted is None or run.spend.landing_opened or run.descent.work_withdrawn:
        return 0, 0
    return hosted.tokens(input_tokens), hosted.fees


def least_output(run: Run) -> int:
    """The least output worth a call, with the margin of our count."""
    return int(run.plan.config.min_output_tokens * MARGIN) + 1


async def admit_to_budget(run: Run) -> None:
    """Start the run. On a shared budget: set aside the landing and the first call, wait for them, or do not start."""
    # The task is on disk before anything is spent on it.
    if run.journal is not None:
        await run.journal.begin()
    # Alone, nobody else can take what the first call will need: it is reserved when it is made.
    if run.meter.parent is None:
        return
    # The runs around us wait for this one: what they hold cannot come back to us, and is not counted on.
    around, ways = runs_around(run), _iterate_start_amounts(run)
    landing, first = next(ways)

    async def start(waiting: Waiting | None) -> Reservation | None:
        nonlocal landing, first
        while True:
            if run.meter.tree.source is not None:
                from glidepath.kernel.model_call.source import draw_start  # only a wallet is a source

                await draw_start(run, landing + first, around)
            got = run.meter.reserve_start(landing, first, queued=waiting is not None, around=around)
            if isinstance(got, Reservation):
                return got
            # It would fit once others have given theirs back: waiting helps, asking for less would only hurt.
            if got.resource == "queue" or got.room >= got.asked:
                return None
            # Not even with all that others will give back. A smaller start helps against all but turns.
            smaller = None if got.resource == "turns" else next(ways, None)
            if smaller is None:
                raise Touchdown(make_refusal_verdict(run.meter, got))
            landing, first = smaller
            if waiting is not None:
                # The queue plans by what its waiters claim: a claim that is too large would hold back those behind it.
                waiting.claim = landing + first

    # Both in one reservation: with a landing set aside and no first call a run could only say that it has failed.
    reservation = await _wait_for_turn(run, start, claim=lambda: landing + first, until=_start_until(run))
    run.spend.admit(reservation, landing)


def runs_around(run: Run) -> tuple[Meter, ...]:
    """The meters of the runs inside whose tools and hooks this one was started, whichever budget it spends from."""
    outer, meters = run.watch.outer, []
    while outer is not None:
        if outer.meter is not None:
            meters.append(outer.meter)
        outer = outer.outer
    return tuple(meters)


def _iterate_start_amounts(run: Run) -> Iterator[tuple[Amount, Amount]]:
    """Landing and first call, ever smaller: with the whole landing, with a shorter prompt, with the least landing."""
    spend = run.spend
    output = min(run.plan.first_output_tokens, least_output(run))
    whole, least = spend.landing_reserve, spend.least_landing
    size = run.transcript.input_tokens()
    # Little may be left by the time of the first call, and then it is told to wrap up: that must still fit.
    notice = run.plan.landing_notice_tokens + NOTICE
    # The prompt shrinks before the landing does: an answer from a shorter context is better than a landing cut short.
    for landing in (whole, least):
        yield landing, worst_case_amount(run, size + notice, output)
        shorter = _compact_to_fit(run, size, run.meter.room_to_start(runs_around(run)), landing)
        if shorter < size:
            size = shorter
            yield landing, worst_case_amount(run, size + notice, output)


def _start_until(run: Run) -> float:
    """When a run that has yet to start stops waiting; its deadline is looked after by its watch."""
    patience = run.plan.config.start_timeout
    return inf if patience is None else run.watch.time() + patience


async def _wait_for_turn(
    run: Run,
    attempt: Callable[[Waiting | None], Awaitable[T | None]],
    waiting: Waiting | None = None,
    *,
    claim: Callable[[], Amount] | None = None,
    until: float = inf,
) -> T:
    """Try at once, unless `waiting` in the queue of the tree already, and then whenever it is our turn there.

    `claim` is what a run needs that has yet to start; it waits until `until`.
    """
    meter, watch = run.meter, run.watch

    async def try_in_time(waiting: Waiting | None) -> T | None:
        if until < inf:
            watch.set_time_limit(max(0.0, until - watch.time()))
        return await attempt(waiting)

    async def pause(waiting: Waiting) -> None:
        # A loop that is closed under the runs on it rings no bell: where there are others, look now and then.
        look = watch.time() + LOOK_AGAIN if meter.tree.is_spread(waiting.loop) else inf
        if not await wait_for_budget(watch, waiting.turn, min(until, look)):
            raise Touchdown(_make_blocked_verdict(run))
        if watch.time() >= until:
            raise Touchdown(_make_start_timeout_verdict(run))

    try:
        around = runs_around(run)
        return await in_turn(meter, try_in_time, pause, waiting=waiting, claim=claim, around=around)
    except asyncio.CancelledError:
        if watch.interrupt is None and watch.scope_hit:  # inside a draw
            raise Touchdown(_make_start_timeout_verdict(run)) from None
        raise run.make_interrupt() from None
    finally:
        if until < inf:
            watch.end_wait()


def book(run: Run, cap: int | None, turns: int, count: int) -> Booking | Refusal:
    """Reserve a call with a prompt of `count` tokens at once, or say what stands in the way."""
    plan, spend = run.plan, run.spend
    want = plan.first_output_tokens if cap is None else cap
    # As `worst_case_amount`, which is only called where it makes a difference: this is asked every turn.
    if plan.price is None:
        money = 0
    elif run.transcript.picture_bytes:
        money = worst_case_amount(run, count, want).money
    else:
        money = plan.price.at(count).worst(count, want)
    got = run.meter.reserve(count + want, money, turns, spend.first_call)
    if got.__class__ is not Reservation:
        return got  # type: ignore[return-value]
    # The pledge was traded in the same step in which the call was reserved; only the run's own note of it is left.
    if spend.first_call is not None:
        spend.trade_first_call()
    estimate = plan.fixed_tokens + run.transcript.view_tokens
    return open_booking(got, count, want, cap, plan.price, estimate)


def book_with_hosted(run: Run, cap: int | None, turns: int, count: int) -> Booking | Refusal:
    """The same where tools at the provider may use more than the prompt and the reply."""
    spend = run.spend
    want = run.plan.first_output_tokens if cap is None else cap
    worst = worst_case_amount(run, count, want)
    got = run.meter.reserve(worst.tokens, worst.money, turns, spend.first_call)
    if not isinstance(got, Reservation):
        return got
    spend.trade_first_call()
    return make_booking(run, got, count, want, cap)


async def wait_or_shrink(run: Run, refusal: Refusal, cap: int | None, turns: int, input_tokens: int) -> Booking:
    """Wait in the queue of the tree; at its head, take the whole call, or a smaller one, or give up and land."""
    want = run.plan.first_output_tokens if cap is None else cap
    # Turns are never given back: waiting cannot help.
    if refusal.resource == "turns":
        raise Touchdown(make_refusal_verdict(run.meter, refusal))
    meter, compacted, around = run.meter, False, runs_around(run)

    async def take(_: object) -> Booking | None:
        nonlocal input_tokens, compacted
        while True:
            least = worst_case_amount(run, input_tokens, min(want, least_output(run)))
            if meter.tree.source is not None:
                from glidepath.kernel.model_call.source import draw

                await draw(run, worst_case_amount(run, input_tokens, want), least)
            output = _find_affordable_output(run, input_tokens, want, around)
            if output is not None:
                break
            # Not even the least output would ever fit: a shorter prompt may make room, once.
            # Once: a view that did not become small enough at the first try does not at the second.
            if compacted:
                raise Touchdown(
                    make_refusal_verdict(run.meter, meter.find_lack_unlocked(least, run.spend.first_call) or refusal)
                )
            compacted = True
            room = meter.room_for(run.spend.first_call, now=False, ahead=True, around=around)
            input_tokens = _compact_to_fit(run, input_tokens, room)
        if not output:
            return None
        asked = worst_case_amount(run, input_tokens, output)
        got = meter.reserve(asked.tokens, asked.money, turns=turns, trading=run.spend.first_call, queued=True)
        if isinstance(got, Reservation):
            run.spend.trade_first_call()
            # The provider counts otherwise: the cap leaves room for that within what is reserved.
            # Nothing was lowered: the cap stays what the caller wanted, which may be none at all.
            lowered = cap if output == want else max(1, int(output / MARGIN))
            return make_booking(run, got, input_tokens, output, lowered)
        if got.resource == "turns":
            raise Touchdown(make_refusal_verdict(run.meter, got))
        return None

    return await _wait_for_turn(run, take, meter.enqueue(around=around))


def _find_affordable_output(run: Run, input_tokens: int, want: int, around: tuple[Meter, ...]) -> int | None:
    """Output tokens to ask for now; 0: wait for calls in flight; None: not even the least would ever fit."""
    least = least_output(run)
    alone = _output_room(run, input_tokens, *run.meter.room_for(run.spend.first_call, now=False, around=around))
    # What can never fit is refused now. Waiting for it would hold up the queue behind us.
    if alone < min(least, want):
        return None
    now = _output_room(run, input_tokens, *run.meter.room_for(run.spend.first_call, now=True))
    # Wait for the whole call as long as it can still come; take less only when it never will.
    if alone >= want:
        return want if now >= want else 0
    # A reply of the least size is nearly always cut: some more is worth waiting for.
    return now if now >= min(alone, 4 * least) else 0


def _output_room(run: Run, input_tokens: int, tokens: int | None, money: int | None) -> int:
    more, fees = _reserve_hosted(run, input_tokens)
    input_tokens += more
    room = 1 << 62 if tokens is None else tokens - input_tokens
    price = None if run.plan.price is None else run.plan.price.at(input_tokens)
    if money is not None and price is not None:
        left = money - input_tokens * price.worst_input - media_reserve(run, price) - fees
        room = min(room, left // price.output if price.output else room if left >= 0 else -1)
    return room


def _compact_to_fit(
    run: Run, input_tokens: int, available: tuple[int | None, int | None], landing: Amount = _NOTHING
) -> int:
    """Compact the context so that the least output fits into what is available; returns the new input size."""
    plan = run.plan
    least = least_output(run)
    tokens, money = available
    room = 1 << 62 if tokens is None else tokens - landing.tokens - least
    if money is not None and plan.price is not None and plan.price.worst_input:
        left = money - landing.money - media_reserve(run, plan.price) - least * plan.price.output
        room = min(room, left // plan.price.worst_input)
    if plan.hosted is not None:  # they read the whole prompt again, with what they have found
        room = plan.hosted.prompt_within(room)
    budget = room - plan.fixed_tokens
    if budget <= 0:
        return input_tokens
    shape_view(run, budget)
    # Where it was counted by the model itself, our own count of the smaller view may still be the larger one.
    return min(input_tokens, run.transcript.input_tokens())


def find_needed_size(run: Run, window: int) -> int | None:
    """The size to which the view must shrink because it has outgrown the model's window; None while it fits.

    The view is measured as the provider last counted it, but never as less than three quarters of our own estimate: a
    provider may report too little. After shaping it fills three quarters of the window by that measure, and never more
    than all of it by our estimate.
    """
    plan, view = run.plan, run.transcript.view_tokens
    room = window - plan.fixed_tokens - min(plan.first_output_tokens, window // 4)
    counted = max(run.transcript.anchor + view - plan.fixed_tokens, view * FILL)
    if counted <= room or plan.strategy.name == "none":
        return None
    return int(max(0, room) * FILL * view / counted)


def collect_view_source(run: Run) -> tuple[Sequence[Message], Sequence[int], Sequence[int]]:
    """What a view is made from: messages, their sizes, and which of them are pinned."""
    messages, sizes = run.transcript.list_shapeable()
    if getattr(run.plan.model, "compaction", None) is not None:
        from glidepath.kernel.model_call.vendor_compaction import leave_out_compacted

        return leave_out_compacted(messages, sizes, run.transcript.pinned, run.plan)
    if run.transcript.checkpoint is None:
        return messages, sizes, run.transcript.pinned
    strategy: Any = run.plan.strategy
    return strategy.apply_checkpoint(run.transcript.checkpoint, messages, sizes, run.transcript.pinned)  # type: ignore[no-any-return]


async def shrink_view(run: Run, budget: int) -> bool:
    """Give the model a view of at most `budget` tokens; False when that made nothing smaller."""
    if run.plan.strategy.name == "summarize":
        from glidepath.kernel.model_call.summary import summarize_view

        # A summary is a model call of its own and may fail, or cost too much: cutting always works.
        if await summarize_view(run, budget):
            return True
    return shape_view(run, budget)


def shape_view(run: Run, budget: int, name: str = "compact") -> bool:
    """Give the model a view of at most `budget` tokens from now on; False when that made nothing smaller."""
    strategy: Any = run.plan.strategy
    before = run.transcript.view_tokens
    messages, sizes, pinned = collect_view_source(run)
    if getattr(strategy, "lists_done_calls", False) and len(messages) == len(run.transcript.messages):
        known = run.transcript.done_calls
        shaped, done = strategy.shape_listing_calls(known, messages, sizes, budget, pinned)
        run.transcript.remember_done_calls(done)
    else:
        shaped = strategy.shape(messages, sizes, budget, pinned)
    after = shaped.tokens
    # A view that is not smaller only breaks the provider's cache.
    if after >= before:
        return False
    old = run.transcript.view
    view = drop_foreign_reasoning(shaped.messages, run.plan) if run.transcript.mixed else shaped.messages
    run.set_view(drop_excess_pictures(run, view) if run.transcript.picture_bytes else view, after)
    dropped = (
        shaped.dropped if run.transcript.checkpoint is None else len(run.transcript.messages) + 1 - len(shaped.messages)
    )
    # Said where it happens: the provider charges the whole prompt at full price after this.
    broke_prefix(run, COMPACTED)
    from glidepath.kernel.model_call.prefix_cost import report_shaped

    report_shaped(run, name if strategy.name == "summarize" else strategy.name, old, before, after, dropped)
    return True


def make_refusal_verdict(meter: Meter, refusal: Refusal) -> Verdict:
    """How a run ends whose next call is refused for good."""
    turns = refusal.resource == "turns"
    # A wallet knows better why: the local figures only say that nothing more was drawn.
    kept_elsewhere = meter.tree.source
    if kept_elsewhere is not None and kept_elsewhere.refused is not None and not turns:
        return Verdict(state=AgentState.BUDGET_EXCEEDED, cause=kept_elsewhere.refused)
    source = {"turns": "MaxIterationConstraint", "money": "CostLimitConstraint"}.get(
        refusal.resource, "TokenBudgetConstraint"
    )
    money = refusal.resource == "money"
    limit, used = (str(dollars(refusal.limit)), str(dollars(refusal.used))) if money else (refusal.limit, refusal.used)
    return Verdict(
        state=AgentState.MAX_STEPS if turns else AgentState.BUDGET_EXCEEDED,
        cause=StopCause(
            source=source,
            action="graceful_exit",
            reason=f"the next call would exceed the {name_limit(refusal.resource)}",
            metrics={"limit": limit, "used": used},
        ),
    )


def _make_start_timeout_verdict(run: Run) -> Verdict:
    """It has not started within `start_timeout`."""
    reason = (
        f"the run waited {run.plan.config.start_timeout:g} s (start_timeout) for what other runs keep of the budget, "
        "and did not start"
    )
    cause = StopCause(source="start_timeout", action="graceful_exit", reason=reason)
    return Verdict(state=AgentState.BUDGET_EXCEEDED, cause=cause)


def _make_blocked_verdict(run: Run) -> Verdict:
    """It waits for a reservation on a loop that is blocked by this run: end with a result anyway."""
    lineage = run.meter.lineage
    money = all(node.caps.tokens is None for node in lineage)
    reason = (
        "what comes next waits for what other work has reserved, and the event loop of that work is blocked until this "
        "run is done: in an async function, await run() in place of run_sync()"
    )
    source = "CostLimitConstraint" if money else "TokenBudgetConstraint"
    cause = StopCause(source=source, action="graceful_exit", reason=reason)
    return Verdict(state=AgentState.BUDGET_EXCEEDED, cause=cause)
