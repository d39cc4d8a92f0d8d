"""One call of a foreign agent: what it asks, who makes it, what it may cost, and the budget it is booked on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, replace
from glidepath.apps.gate.estimates import (
    Estimate,
    estimate_call,
    estimate_landing,
    landing_amount,
    measure_fixed_part,
    slice_size,
    worst_case,
)
from glidepath.apps.gate.gate_verdicts import judge_refusal
from glidepath.apps.gate.tree import ForeignAgent, ForeignSession, trim_landing
from glidepath.kernel import SLICE, Booking
from glidepath.kernel.model_call.booking import open_booking
from glidepath.run import Amount, Price, Refusal, Reservation, Waiting, in_turn

if TYPE_CHECKING:
    from glidepath.apps.gate.dialects.dialect import Dialect, RequestFacts
    from glidepath.apps.gate.governing import GateRequest
    from glidepath.apps.gate.lines import Line
    from glidepath.apps.gate.upstreams import Upstream
    from glidepath.values import Usage, Verdict


LEAST_ANSWER = 128
"""Output tokens without which a last call says nothing."""
LEAST_HIDDEN = 4096
"""Output tokens that are reserved at the least for a reply whose reasoning the stream does not show."""
LARGEST_REPLY = 128_000
"""Output tokens of a model whose maximum nobody told us."""
LONGEST_HEADER = 500
"""Characters of a reason in a header."""
WAIT = 120.0
"""Seconds that a call waits for what other calls have reserved."""
REPORTS = 8
"""Children for whose reports a main agent keeps room at the least."""
LOOK = 5.0
"""Seconds between two looks whether those that it waits for are still at work."""
WORK = 2
"""Landings that must be left for the work of each sub-agent before another one begins beside it."""
AT_WORK = 60.0
"""Seconds after its last reply in which a sub-agent is taken to be running its tools."""
CROWD_LOOK = 0.25
"""Seconds between two looks whether those beside a sub-agent leave enough for it to begin."""
WAIT_TO_START = 540.0
"""Seconds that an agent waits for its first call, until others have ended. Clients give up after 600."""


class GateCall(Record, kw_only=True):
    """What is known of a call before it goes out."""

    request: GateRequest
    dialect: Dialect
    facts: RequestFacts
    body: dict[str, Any]
    line: Line
    agent: ForeignAgent
    upstream: Upstream
    price: Price | None
    path: str
    query: bytes
    size: int
    """Bytes of its text."""
    estimate: Estimate = Estimate(0)
    slice: int = 0
    """Tokens of output that are reserved at a time."""

    @property
    def session(self) -> ForeignSession:
        """The run it belongs to."""
        return self.agent.session

    def now(self) -> float:
        """By the clock of the gate."""
        return self.line.clock()

    def estimate_now(self) -> None:
        """Count the prompt, by what the provider has last counted."""
        if not self.agent.fixed_size:
            self.agent.fixed_size = measure_fixed_part(self.body)
        self.estimate = estimate_call(self.agent, self.facts, self.size, self.now())
        self.slice = slice_size(self.agent.meter.above, self.price)

    def first_output(self) -> int:
        """Output to reserve before it begins: a slice where we see it grow, the worst case where we do not."""
        most = self.facts.max_output
        if self.hides_output:
            return (LARGEST_REPLY if most is None else most) * self.facts.copies
        return (self.slice if most is None else min(self.slice, most)) * self.facts.copies

    def least_output(self) -> int:
        """The least output worth a call. What is hidden needs room that nobody sees it take."""
        if not self.hides_output:
            return self.first_output()
        seen = 0 if self.agent.last is None else 4 * self.agent.last.usage.output
        return min(self.first_output(), max(LEAST_HIDDEN, seen))

    @property
    def hides_output(self) -> bool:
        """True when tokens may be billed that the stream does not show. Claude's thinking is in the stream."""
        facts = self.facts
        if facts.server_tools or self.line.has_hidden_output(facts.model):
            return True
        return facts.hidden == "asked" and facts.dialect != "anthropic"

    def landing_after(self) -> Amount:
        """What must be left behind this call for the agent to come down."""
        if not self.facts.has_tools or not self.agent.meter.limited or self.agent.id == "side":
            return Amount()
        children = sum(1 for other in self.session.live_agents() if other.parent is self.agent)
        return landing_amount(self.estimate, self.price, self.slice, children)

    def trim_landing(self, usage: Usage, calls: int) -> None:
        """This call was counted: its agent keeps for its landing what it needs by now.

        The main agent keeps room for some reports of children, also before it has any.
        """
        if self.facts.has_tools and self.agent.started and self.agent.meter.limited:
            children = sum(1 for other in self.session.live_agents() if other.parent is self.agent)
            reports = max(children, calls, REPORTS if self.agent.parent is None else 0)
            estimate = estimate_landing(self.agent, self.facts, usage)
            trim_landing(self.agent, landing_amount(estimate, self.price, self.slice, reports))

    @property
    def can_draw(self) -> bool:
        """True when the budget is kept elsewhere and only a part of it is here."""
        return self.agent.meter.tree.source is not None

    async def draw(self, amount: Amount) -> None:
        """Draw this much more from there, where it is kept elsewhere."""
        await self.line.draw(amount)

    def judge_shortage(self) -> Verdict:
        """Which limit has nothing left."""
        refusal = self.agent.meter.find_lack_unlocked(
            Amount(SLICE, 0 if self.price is None else SLICE * self.price.output)
        )
        return self.judge_refusal(refusal or Refusal(resource="queue", limit=0, used=0))

    def judge_refusal(self, refusal: Refusal) -> Verdict:
        """How its agent ends when this is refused for good."""
        return judge_refusal(self.agent.meter, self.session.limits, refusal)

    def reply_headers(self, landing: Verdict | None) -> tuple[tuple[bytes, bytes], ...]:
        """Headers of ours for its reply."""
        headers = ((b"x-glidepath-run", _header_text(self.session.id)),)
        if landing is None:
            return headers
        return (*headers, (b"x-glidepath-landed", _header_text(landing.cause.reason)))


def _header_text(text: str) -> bytes:
    """What a header may hold: a person's reason to land a run may have any character, line breaks too."""
    return "".join([one if " " <= one <= "~" else "?" for one in text[:LONGEST_HEADER]]).encode("ascii")


async def book_call(call: GateCall) -> Booking | Refusal:
    """Reserve a call and keep a way down behind it; wait for what comes back. A refusal is for good.

    A worst case that the budget could never pay is made smaller before the call is given up: hidden output is then
    reserved as far as the budget goes, and what exceeds that is a bill that nobody could foresee.
    """
    meter, landing = call.agent.meter, call.landing_after()
    output, least = call.first_output(), call.least_output()
    refusal = _lacks_turns(call)
    if refusal is not None:
        return refusal

    async def attempt(waiting: Waiting | None) -> Reservation | Refusal | _Crowded | None:
        nonlocal output, landing
        if waiting is not None:
            call.line.release_idle()  # it is short: what is kept for those who have gone may help
        if waiting is not None and waiting.claim is not None:
            # Meanwhile the provider may have counted an agent that began like this one.
            call.estimate_now()
            landing = call.landing_after()
            waiting.claim = landing + worst_case(call.estimate, output, call.price)
        while True:
            worst = worst_case(call.estimate, output, call.price)
            got = await _reserve(call, landing, worst, waiting)
            if isinstance(got, _Crowded):
                return got
            if isinstance(got, Refusal) and (got.resource == "queue" or got.room >= got.asked > 0):
                return None
            if isinstance(got, Reservation) or got.resource == "turns" or output <= least:
                return got
            output = max(least, min(output - 1, _output_that_fits(call, landing)))

    claim = None if call.agent.started else lambda: landing + worst_case(call.estimate, output, call.price)
    around = tuple(node for node in meter.above if node.depth >= 0)
    lack = Refusal(resource="queue", limit=0, used=0)
    try:
        # Those that work may finish: nobody is brought down so that another one can begin.
        patience = _Patience(call, WAIT if claim is None else WAIT_TO_START)
        while True:
            got: Reservation | Refusal | _Crowded = await in_turn(
                meter, attempt, patience.pause, claim=claim, around=around, defers=True
            )
            if isinstance(got, Refusal) and _may_finish_later(call, got):
                lack, call.agent.waits = got, True
            elif not isinstance(got, _Crowded):
                break
            # Not in the queue: that is of all runs on this budget, and the others need not wait for this family.
            await patience.pause_aside()
            call.line.release_idle()
            call.estimate_now()
            landing = call.landing_after()
    except TimeoutError:
        is_late = call.now() >= call.session.deadline
        return Refusal(resource="time", limit=0, used=0) if is_late else lack
    finally:
        call.agent.waits = False
    if isinstance(got, Refusal):
        return got
    return open_booking(got, call.estimate.tokens, output, None, call.price, call.estimate.tokens)


async def _reserve(
    call: GateCall, landing: Amount, worst: Amount, waiting: Waiting | None
) -> Reservation | Refusal | _Crowded:
    meter = call.agent.meter
    if call.agent.parent is not None and call.agent.started and not call.agent.in_flight and call.facts.has_tools:
        trim_landing(call.agent, landing)
    kept = meter.landing_kept()
    more = Amount(max(0, landing.tokens - kept.tokens), max(0, landing.money - kept.money))
    if waiting is not None or not meter.tree.queue:  # anyone who must queue anyway leaves the store alone
        await call.draw(worst + more)
    refusal = _lacks_turns(call)  # others have called while this one waited
    if refusal is not None:
        return refusal
    if call.agent.started:
        return _continue(call, more, worst, waiting)
    return _reserve_first_call(call, landing, worst, waiting)


def _output_that_fits(call: GateCall, landing: Amount) -> int:
    """Output tokens that the budget could pay behind this prompt and its landing, once nothing else is in flight."""
    meter, kept = call.agent.meter, call.agent.meter.landing_kept()
    tokens, money = meter.room_for(None, now=False, ahead=True)
    prompt = worst_case(call.estimate, 0, call.price)
    fits = 1 << 40 if tokens is None else tokens - prompt.tokens - max(0, landing.tokens - kept.tokens)
    if money is not None and call.price is not None and call.price.output:
        left = money - prompt.money - max(0, landing.money - kept.money)
        fits = min(fits, left // call.price.output)
    return fits


def _reserve_first_call(
    call: GateCall, landing: Amount, first: Amount, waiting: Waiting | None
) -> Reservation | Refusal | _Crowded:
    """The first call of an agent, or its first since it was down: with its landing, or not at all."""
    meter = call.agent.meter
    if _is_crowded(call, landing, first):
        return _Crowded()
    got = meter.reserve_start(landing, first, queued=waiting is not None)
    if isinstance(got, Refusal):
        return got
    call.agent.started = True
    traded = meter.reserve(first.tokens, first.money, turns=1, trading=got, queued=waiting is not None)
    if isinstance(traded, Refusal):
        got.cancel()
    return traded


def _is_crowded(call: GateCall, landing: Amount, first: Amount) -> bool:
    """True for a sub-agent that would leave too little to those beside it: all of them would land half-way.

    Each needs more for its work than its next call. Nobody knows how much: at least twice its landing is presumed.
    """
    agent = call.agent
    if agent.parent is None:
        return False
    others = _find_at_work(call)
    if not others:
        return False
    tokens, money = agent.meter.room_for(None, now=True, ahead=True, fair=False)
    need = WORK * (len(others) + 1)
    few_tokens = tokens is not None and tokens < landing.tokens + first.tokens + need * landing.tokens
    return few_tokens or (money is not None and money < landing.money + first.money + need * landing.money)


def _find_at_work(call: GateCall) -> list[ForeignAgent]:
    """The sub-agents beside this one that are in a call, or run their tools."""
    agent, now = call.agent, call.now()
    return [
        one
        for one in call.session.live_agents()
        if one is not agent and one.parent is agent.parent and (one.in_flight or now - one.last_spoken < AT_WORK)
    ]


def _may_finish_later(call: GateCall, refusal: Refusal) -> bool:
    """True for a sub-agent that what others keep for their landings may help: they give it back when they finish.

    One of them always continues, so they never wait for each other.
    """
    agent = call.agent
    if agent.parent is None or not agent.started or refusal.resource not in ("tokens", "money"):
        return False
    if agent.order is not None or call.session.order is not None:
        return False
    return any(not one.waits and one.meter.landing_kept() != Amount() for one in _find_at_work(call))


def _continue(call: GateCall, more: Amount, worst: Amount, waiting: Waiting | None) -> Reservation | Refusal:
    """A further call of an agent: its way down has become longer by `more`."""
    whole = worst + more
    got = call.agent.meter.reserve(whole.tokens, whole.money, turns=1, queued=waiting is not None)
    if isinstance(got, Reservation) and (more.tokens or more.money):
        got.keep_for_landing(more)
    return got


def _lacks_turns(call: GateCall) -> Refusal | None:
    """A limit on calls keeps one for the landing of every live agent."""
    left = call.agent.meter.room_turns()
    if left is None:
        return None
    live = len(call.session.live_agents()) + (not call.agent.started)
    needed = 1 + (live if call.facts.has_tools and call.agent.id != "side" else 0)
    limit = call.session.limits.calls or 0
    return None if left >= needed else Refusal(resource="turns", limit=limit, used=limit - left)


class _Crowded:
    """Those beside a sub-agent leave too little for it to begin."""


class _Patience:
    """How long a call waits in the queue: until its session's time is up, and never longer than this."""

    def __init__(self, call: GateCall, longest: float = WAIT) -> None:
        self.until = min(call.session.deadline, call.now() + longest)
        self.now = call.now

    async def pause(self, waiting: Waiting) -> None:
        left = self.until - self.now()
        if left <= 0:
            raise TimeoutError
        await asyncio.wait([waiting.turn], timeout=min(left, LOOK))

    async def pause_aside(self) -> None:
        left = self.until - self.now()
        if left <= 0:
            raise TimeoutError
        await asyncio.sleep(min(left, CROWD_LOOK))


async def book_landing(call: GateCall) -> Booking | None:
    """Reserve the last call of an agent, from what was kept for it and what else is free; None: it cannot be paid."""
    agent, meter = call.agent, call.agent.meter
    left = meter.room_turns()
    others = 0 if agent.started else len(call.session.live_agents())  # one is kept for each of these
    if left is not None and left < 1 + others:
        return None
    estimate = Estimate(call.estimate.tokens, call.estimate.cached_in_landing)
    least = worst_case(estimate, LEAST_ANSWER, call.price)
    if agent.started:
        held = meter.open_landing(meter.landing_kept(), admitted=True)
        _count_turn(call)
    else:
        await call.draw(least)
        got = meter.reserve(least.tokens, least.money, turns=1, queued=True)
        if isinstance(got, Refusal):
            return None
        held = got
    whole = worst_case(estimate, max(call.slice, LEAST_ANSWER), call.price)
    is_paid = False
    try:
        is_paid = await _extend(call, held, whole) or await _extend(call, held, least)
    finally:  # the client may leave while it waits, and the place where the budget is kept may fail
        if not is_paid:
            held.cancel()
            meter.return_turn()
    if not is_paid:
        return None
    output = _output_paid(held, estimate, call.price)
    return open_booking(held, estimate.tokens, output, None, call.price, estimate.tokens)


def _count_turn(call: GateCall) -> None:
    with call.agent.meter.tree.lock:
        for node in call.agent.meter.lineage:
            node.turns += 1


async def _extend(call: GateCall, held: Reservation, need: Amount) -> bool:
    """Have a reservation of this much at least; waits for calls in flight where they will give it back."""
    more = Amount(max(0, need.tokens - held.tokens), max(0, need.money - held.money))
    if held.extend(more.tokens, more.money):
        return True
    meter = call.agent.meter

    async def attempt(_: object) -> bool | None:
        await call.draw(more)
        if held.extend(more.tokens, more.money):
            return True
        refusal = meter.find_lack_unlocked(more)
        if refusal is None:
            return False
        own = held.money if refusal.resource == "money" else held.tokens  # in flight, too, and never comes back first
        return None if refusal.room - own >= refusal.asked else False

    try:
        return await in_turn(meter, attempt, _Patience(call).pause)
    except TimeoutError:
        return False


def _output_paid(held: Reservation, estimate: Estimate, price: Price | None) -> int:
    """The output that a reservation pays for, behind its prompt."""
    output = held.tokens - estimate.tokens
    prompt = worst_case(estimate, 0, price)
    if price is not None and price.output and held.meter.limited:
        paid = (held.money - prompt.money) // price.output
        output = min(output, paid) if any(node.caps.money is not None for node in held.meter.lineage) else output
    return max(1, output)


def shorten_estimate(call: GateCall, size: int) -> None:
    """The request has been shortened to this many bytes."""
    gone = max(0, call.size - size)
    call.size = size
    call.estimate = replace(call.estimate, tokens=max(1, call.estimate.tokens - gone // 4), cached=0)
