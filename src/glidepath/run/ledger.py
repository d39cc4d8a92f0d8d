"""Spend as a tree of meters. What a call may cost is reserved before it, settled after it, refunded when unused.

Every charge goes to a node and all its ancestors. At each node, for each thing that has a limit:

    used + reserved + aside + held + asked <= limit

`reserved` is in flight and comes back, but for the part that is `pledged`: the first calls of runs that were admitted
and not yet asked, which may be behind the asker in the queue. `aside` are the landing reserves of live descendants;
`held` is the node's own. What would fit once something has come back waits in one queue per tree (`waiting.py`): a call
for calls in flight, a run that has yet to start for the landing reserves of others, too.
Money is counted in whole pico-dollars inside and is a `Decimal` at the edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from glidepath._wire import Record, Value
from glidepath.run.waiting import (
    Amount,
    Back,
    Refusal,
    Room,
    Tree,
    Waiting,
    left_for_calls,
    smallest_of,
    start_rooms,
    worst_of,
)
from glidepath.spi import Remaining
from glidepath.values import SATURATED, Price, dollars, pico, pluralize

__all__ = ["Amount", "Caps", "Meter", "Price", "Refusal", "Reservation", "Waiting", "dollars", "pico"]


class Caps(Value, frozen=True, kw_only=True):
    """The limits of one node; None is unlimited."""

    tokens: int | None = None
    money: int | None = None
    turns: int | None = None
    tool_calls: int | None = None
    descendants: int | None = None
    depth: int | None = None


class Meter:
    """One node: what it may use, has used, and has promised. Plain slots: a record writes slower."""

    __slots__ = (
        "above",
        "ahead_money",
        "ahead_tokens",
        "aside_money",
        "aside_tokens",
        "attention",
        "calls_wire",
        "caps",
        "depth",
        "descendants",
        "disputed",
        "held_money",
        "held_tokens",
        "limited",
        "money",
        "money_soft",
        "money_wire",
        "near_money",
        "near_tokens",
        "parent",
        "pledged_money",
        "pledged_tokens",
        "reserved_money",
        "reserved_tokens",
        "tokens",
        "tokens_soft",
        "tokens_wire",
        "tool_calls",
        "tree",
        "turns",
        "turns_wire",
    )

    def __init__(self, caps: Caps, parent: Meter | None = None, depth: int = 0) -> None:
        self.caps: Caps = caps
        self.parent: Meter | None = parent
        self.depth: int = depth
        self.above: tuple[Meter, ...] = ()  # all above it, the nearest first
        self.tree: Tree = Tree() if parent is None else parent.tree
        self.tokens: int = 0
        self.money: int = 0
        self.turns: int = 0
        self.tool_calls: int = 0
        self.descendants: int = 0
        self.disputed: tuple[int, int] = (0, 0)  # the tokens and money it is charged for that no call explains
        self.reserved_tokens: int = 0
        self.reserved_money: int = 0
        self.pledged_tokens: int = 0
        self.pledged_money: int = 0
        self.aside_tokens: int = 0
        self.aside_money: int = 0
        self.ahead_tokens: int = 0
        self.ahead_money: int = 0  # what can still be drawn from elsewhere: left, but not at hand
        self.held_tokens: int = 0
        self.held_money: int = 0
        self.near_tokens: int = 0
        self.near_money: int = 0
        self.calls_wire: float = inf if caps.tool_calls is None else caps.tool_calls
        self.turns_wire: float = inf if caps.turns is None else caps.turns
        if parent is not None:
            self.above = parent.lineage
            self.tree.shared = True
        self.limited: bool = (
            caps.tokens is not None or caps.money is not None or (parent is not None and parent.limited)
        )
        self.set_wires()

    def __repr__(self) -> str:
        figures = ((self.tokens, "token"), (self.turns, "turn"), (self.tool_calls, "tool call"))
        return f"<Meter: {', '.join([pluralize(*figure) for figure in figures])}>"

    @property
    def lineage(self) -> tuple[Meter, ...]:
        """It and all above it. Made when it is asked for: a meter that kept it would hold itself."""
        return (self, *self.above)

    # --- what is left ---------------------------------------------------------------------------------------

    def spare_tokens(self) -> int:
        """Tokens of this node alone, which has a limit, above all reserves and with nothing in flight."""
        return self.caps.tokens - self.tokens - self.aside_tokens - self.held_tokens  # type: ignore[operator]

    def spare_money(self) -> int:
        """The same in pico-dollars."""
        return self.caps.money - self.money - self.aside_money - self.held_money  # type: ignore[operator]

    def room_tokens(self) -> int | None:
        """Tokens left above all reserves, with nothing in flight; None when unlimited."""
        limited = [node for node in self.lineage if node.caps.tokens is not None]
        return min([node.spare_tokens() + node.ahead_tokens for node in limited], default=None)

    def room_money(self) -> int | None:
        """Pico-dollars left above all reserves, with nothing in flight; None when unlimited."""
        limited = [node for node in self.lineage if node.caps.money is not None]
        return min([node.spare_money() + node.ahead_money for node in limited], default=None)

    def unspent(self) -> tuple[int | None, int | None]:
        """Tokens and pico-dollars that are not used, reserves included; None where there is no limit."""
        tokens = [node.caps.tokens - node.tokens for node in self.lineage if node.caps.tokens is not None]
        money = [node.caps.money - node.money for node in self.lineage if node.caps.money is not None]
        return min(tokens, default=None), min(money, default=None)

    def room_turns(self) -> int | None:
        """Model turns left; None when unlimited."""
        room = [node.caps.turns - node.turns for node in self.lineage if node.caps.turns is not None]
        return max(0, min(room)) if room else None

    def room_tool_calls(self) -> int | None:
        """Tool calls left; None when unlimited."""
        room = [node.caps.tool_calls - node.tool_calls for node in self.lineage if node.caps.tool_calls is not None]
        return max(0, min(room)) if room else None

    def remaining(self, seconds: float | None = None) -> Remaining:
        """What is left of each limit, reserves apart."""
        caps = self.caps
        if self.above:
            tokens, money = self.room_tokens(), self.room_money()
            turns, calls = self.room_turns(), self.room_tool_calls()
        else:  # the same without a list of one for each
            tokens, money = caps.tokens, caps.money
            turns, calls = caps.turns, caps.tool_calls
            if tokens is not None:
                tokens += self.ahead_tokens - self.tokens - self.aside_tokens - self.held_tokens
            if money is not None:
                money += self.ahead_money - self.money - self.aside_money - self.held_money
            turns = None if turns is None else max(0, turns - self.turns)
            calls = None if calls is None else max(0, calls - self.tool_calls)
        tokens = None if tokens is None else max(0, tokens)
        cost = None if money is None else dollars(max(0, money))
        return Remaining(iterations=turns, tokens=tokens, cost=cost, seconds=seconds, tool_calls=calls)

    def near_budget(self) -> bool:
        """True when what is left of tokens or money is inside the warning margin of any node."""
        node: Meter | None = self
        while node is not None:
            if (
                node.tokens + node.aside_tokens + node.near_tokens >= node.tokens_wire + node.ahead_tokens
                or node.money + node.aside_money + node.near_money >= node.money_wire + node.ahead_money
            ):
                return True
            node = node.parent
        return False

    # --- reserve, settle ------------------------------------------------------------------------------------

    def hold_landing(self, amount: Amount, near_tokens: int = 0, near_money: int = 0) -> None:
        """Keep back this node's own landing reserve, where it has a limit; warn when this little is left above it."""
        if self.caps.tokens is not None:
            self.held_tokens = amount.tokens
        if self.caps.money is not None:
            self.held_money = amount.money
        self.warn_near(near_tokens, near_money)

    def warn_near(self, tokens: int, money: int) -> None:
        """Warn when this little is left above the reserve."""
        self.near_tokens, self.near_money = tokens, money
        self.set_wires()

    def set_caps(self, caps: Caps) -> None:
        """Let other limits hold from now on, in the middle of whatever runs below; who waits looks again."""
        with self.tree.lock:
            self.caps = caps
            self.calls_wire = caps.tool_calls if caps.tool_calls is not None else inf
            self.turns_wire = caps.turns if caps.turns is not None else inf
            self.set_wires()
            self.tree.wake_head()

    def count_from(self, tokens: int, money: int, *, turns: int = 0, tool_calls: int = 0, descendants: int = 0) -> None:
        """Set what this node has used, as known from elsewhere; what is above it is charged already, or not ours."""
        self.tokens, self.money, self.turns, self.tool_calls = tokens, money, turns, tool_calls
        self.descendants = descendants
        self.set_wires()

    def set_wires(self) -> None:
        """Work out where this node's limits and warnings begin; after its reserve or its margins have changed."""
        caps = self.caps
        self.tokens_wire: float = inf if caps.tokens is None else caps.tokens - self.held_tokens
        self.money_wire: float = inf if caps.money is None else caps.money - self.held_money
        # At the latest where counting stops: so that is looked at only where a limit is near, too.
        self.tokens_soft: float = min(self.tokens_wire - self.near_tokens, SATURATED)
        self.money_soft: float = min(self.money_wire - self.near_money, SATURATED)
        self.update_near_flag()

    def update_near_flag(self) -> None:
        """Note whether anything of this node is near its limit: one flag, because it is asked three times a turn."""
        self.attention: bool = (
            self.tokens + self.aside_tokens >= self.tokens_soft
            or self.money + self.aside_money >= self.money_soft
            or self.tool_calls >= self.calls_wire
        )

    def mark_saturated(self) -> None:
        """Something is near its limit, or beyond what can be counted: no report, however high, breaks a store."""
        self.attention, self.tokens, self.money = True, min(self.tokens, SATURATED), min(self.money, SATURATED)

    def reserve_start(
        self, landing: Amount, first: Amount, *, queued: bool, around: tuple[Meter, ...] = ()
    ) -> Reservation | Refusal:
        """Start a run on the parent's budget: set aside its landing and reserve its first call, or say why not.

        The `room` of a refusal is what there is once everybody who can be counted on has given back what they keep.
        """
        parent = self.parent
        assert parent is not None  # noqa: S101 - for the type checker
        with self.tree.lock:
            if self.tree.queue and not queued:
                return Refusal(resource="queue", limit=0, used=0, room=1)
            for node in parent.lineage:
                if node.caps.turns is not None and node.turns >= node.caps.turns:
                    return Refusal(resource="turns", limit=node.caps.turns, used=node.turns, asked=1)
            # The landing and the first call together, or the child could start and then find no way down.
            whole = landing + first
            if not parent.has_now(whole) or not self.has_now(first):  # its own limits are there from the start
                back = self.tree.back_without(self, around)
                refusal = worst_of(start_rooms(parent, back), whole) or worst_of(start_rooms(self, back), first)
                if refusal is not None:
                    return refusal
            for node in parent.lineage:
                node.aside_tokens += landing.tokens
                node.aside_money += landing.money
                node.update_near_flag()
            for node in self.lineage:
                node.reserved_tokens += first.tokens
                node.reserved_money += first.money
                # No call counts on it: two runs that wait for each other's first call would wait forever.
                node.pledged_tokens += first.tokens
                node.pledged_money += first.money
            self.tree.join(self, landing)
        return Reservation(self, first.tokens, first.money, pledged=True)

    def room_to_start(self, around: tuple[Meter, ...] = ()) -> tuple[int | None, int | None]:
        """Tokens and pico-dollars for a run that has yet to start, once all that can be counted on has come back."""
        with self.tree.lock:
            return smallest_of(start_rooms(self, self.tree.back_without(self, around)), now=False, ahead=True)

    def count_descendant(self) -> Refusal | None:
        """Count a spawned run among the descendants of all its ancestors; a refusal when it is one too many."""
        parent = self.parent
        assert parent is not None  # noqa: S101 - for the type checker
        family = parent
        with self.tree.lock:
            for node in parent.lineage:
                caps = node.caps
                family = node if node.depth >= 0 else family  # a shared budget bounds each family on it by itself
                if caps.depth is not None and self.depth - max(0, node.depth) > caps.depth:
                    return Refusal(resource="depth", limit=caps.depth, used=self.depth)
                if caps.descendants is not None and family.descendants >= caps.descendants:
                    return Refusal(resource="descendants", limit=caps.descendants, used=family.descendants)
            for node in parent.lineage:
                node.descendants += 1
        return None

    def open_landing(self, reserve: Amount, *, admitted: bool) -> Reservation:
        """The landing begins: what was held back and set aside for it becomes the reservation of its call."""
        with self.tree.lock:
            # What was held back becomes a reservation in the same step, under the lock: nobody may take it in between.
            self.held_tokens = self.held_money = 0
            self.set_wires()
            self.reserved_tokens += reserve.tokens
            self.reserved_money += reserve.money
            if admitted and self.tree.members is not None:
                self.tree.members[self].landing = _NO_AMOUNT
            for node in self.above:
                if admitted:
                    node.aside_tokens -= reserve.tokens
                    node.aside_money -= reserve.money
                node.reserved_tokens += reserve.tokens
                node.reserved_money += reserve.money
        return Reservation(self, reserve.tokens, reserve.money)

    def reserve(
        self, tokens: int, money: int, turns: int = 1, trading: Reservation | None = None, *, queued: bool = False
    ) -> Reservation | Refusal:
        """Set aside the worst case of a call in the whole lineage, or say what stands in the way.

        `trading` is a reservation to be given up for the new one. `queued` is true for the head of the queue.
        """
        # Alone is the ordinary case: one look, no lock, no loop over a lineage of one.
        if not self.tree.shared:
            promised = self.reserved_tokens + tokens
            started = self.turns + turns
            if (
                started <= self.turns_wire
                and self.tokens + self.aside_tokens + promised <= self.tokens_wire
                and self.money + self.aside_money + self.reserved_money + money <= self.money_wire
            ):
                self.turns = started
                self.reserved_tokens = promised
                if money:
                    self.reserved_money += money
                return Reservation(self, tokens, money)
        tree = self.tree
        more_tokens, more_money = tokens, money
        if trading is not None:
            more_tokens -= trading.tokens
            more_money -= trading.money
        with tree.lock:
            if tree.queue:
                # Waiting calls come first: a small call that would fit must not starve a large one in front of it. One
                # that trades goes ahead: it gives up a pledge, which no call in the queue has counted on.
                if not queued and trading is None and tree.has_calls():
                    return Refusal(resource="queue", limit=0, used=0, room=1)
                short = self.find_lack(tokens, money, trading, fair=True) if tree.has_starts() else None
                if short is not None:
                    return short
            # Every node is asked before any is changed: a refusal halfway up must leave nothing behind.
            lineage = self.lineage
            for node in lineage:
                if (
                    node.turns + turns > node.turns_wire
                    or node.tokens + node.aside_tokens + node.reserved_tokens + more_tokens > node.tokens_wire
                    or node.money + node.aside_money + node.reserved_money + more_money > node.money_wire
                ):
                    return self._refuse(tokens, money, turns, trading)
            for node in lineage:
                node.reserved_tokens += more_tokens
                node.reserved_money += more_money
                node.turns += turns
            # In the same step: between giving up the old one and getting the new one somebody else could take both.
            if trading is not None:
                trading.open = False
                if trading.pledged:
                    trading.redeem_pledge()
        return Reservation(self, tokens, money)

    def _refuse(self, tokens: int, money: int, turns: int, trading: Reservation | None) -> Refusal:
        for node in self.lineage:
            if node.turns + turns > node.turns_wire:
                return Refusal(resource="turns", limit=int(node.turns_wire), used=node.turns)
        return self.find_lack(tokens, money, trading)  # type: ignore[return-value]

    def find_lack(
        self, tokens: int, money: int, trading: Reservation | None = None, *, fair: bool = False
    ) -> Refusal | None:
        """What stands in the way of this much now, where `trading` is given up for it; None when it fits.

        `fair`: enough is left for the run that waits to start. The lock is held.
        """
        asked = Amount(tokens, money)
        if not fair and self.has_now(
            asked if trading is None else Amount(tokens - trading.tokens, money - trading.money)
        ):
            return None
        return worst_of(self._call_rooms(trading, (), fair=fair), asked)

    def find_lack_unlocked(self, amount: Amount, trading: Reservation | None = None) -> Refusal | None:
        """The same without the lock, and fair."""
        with self.tree.lock:
            return self.find_lack(amount.tokens, amount.money, trading, fair=True)

    def has_now(self, amount: Amount) -> bool:
        """Whether this much fits at once, in the whole lineage."""
        return all(
            node.tokens + node.aside_tokens + node.reserved_tokens + amount.tokens <= node.tokens_wire
            and node.money + node.aside_money + node.reserved_money + amount.money <= node.money_wire
            for node in self.lineage
        )

    def room_for(
        self,
        trading: Reservation | None,
        *,
        now: bool,
        ahead: bool = False,
        fair: bool = True,
        around: tuple[Meter, ...] = (),
    ) -> tuple[int | None, int | None]:
        """Tokens and pico-dollars that fit at once, or with nothing in flight; None where unlimited.

        What other runs have been pledged is never counted on; `trading` is what the asker itself would give up.
        `ahead`: what can still be drawn from elsewhere counts, too. `fair`: enough is left for the run that waits to
        start. `around` are the runs that wait for the asker: what they have in flight does not come back either.
        """
        with self.tree.lock:
            return smallest_of(self._call_rooms(trading, around, fair=fair), now=now, ahead=ahead)

    def _call_rooms(self, trading: Reservation | None, around: tuple[Meter, ...], *, fair: bool) -> Iterator[Room]:
        """For each limit: what fits now for a call, and with nothing in flight."""
        tree = self.tree
        stays = tree.sum_kept_by_stuck(self, around) if tree.members else {}
        left = left_for_calls(self) if fair and tree.has_starts() else {}
        mine = _NO_AMOUNT if trading is None else Amount(trading.tokens, trading.money)
        for node in self.lineage:
            kept, most = stays.get(node) or _NONE, left.get(node)
            if node.caps.tokens is not None:
                spare = node.spare_tokens() + mine.tokens
                now, alone = spare - node.reserved_tokens, spare - node.pledged_tokens - kept.sure_tokens
                if most is not None:  # what is pledged to the asker is its own, even while others wait
                    now = min(now, max(0, most.landing_tokens) + mine.tokens)
                    alone = min(alone, max(0, most.flight_tokens) + mine.tokens)
                yield Room(node, "tokens", now, alone)
            if node.caps.money is not None:
                spare = node.spare_money() + mine.money
                now, alone = spare - node.reserved_money, spare - node.pledged_money - kept.sure_money
                if most is not None:
                    now = min(now, max(0, most.landing_money) + mine.money)
                    alone = min(alone, max(0, most.flight_money) + mine.money)
                yield Room(node, "money", now, alone)

    def enqueue(self, claim: Amount | None = None, around: tuple[Meter, ...] = (), *, defers: bool = False) -> Waiting:
        """Take a place in the queue; with a `claim`, as a run that has yet to start and needs this much."""
        waiting = Waiting(self, claim, around, defers=defers)
        with self.tree.lock:
            self.tree.enter(waiting)
        return waiting

    def is_head(self, waiting: Waiting) -> bool:
        """True when it is this waiter's turn to ask."""
        return next(iter(self.tree.queue), None) is waiting

    def leave(self, waiting: Waiting) -> None:
        """Give up a place in the queue (served, refused or cancelled) and let the next one ask."""
        with self.tree.lock:
            queue = self.tree.queue
            if queue and waiting in queue:
                queue.remove(waiting)
            self.tree.wake_head()

    def give_back(self, amount: Amount) -> None:
        """This run has ended; what was set aside for its landing call and not used is free again."""
        with self.tree.lock:
            self.tree.forget(self)
            for node in self.above:
                node.aside_tokens -= amount.tokens
                node.aside_money -= amount.money
                node.update_near_flag()  # a limit that was near may be far again
            self.tree.wake_head()

    def add_landing(self, amount: Amount) -> None:
        """Set more aside for the landing of this run, which has started; or less. The lock is held."""
        self.tree.add_landing(self, amount)

    def landing_kept(self) -> Amount:
        """What is set aside for the landing of this run; nothing when it has not started on a shared budget."""
        return self.tree.landing_of(self)

    def is_short_of_calls(self, count: int) -> bool:
        """True when so many more tool calls would break a limit."""
        if not self.above:
            return self.tool_calls + count > self.calls_wire
        return any(node.tool_calls + count > node.calls_wire for node in self.lineage)

    def charge_tool_call(self) -> None:
        """Count one tool call in the whole lineage."""
        if not self.tree.shared:
            self.tool_calls = calls = self.tool_calls + 1
            if calls >= self.calls_wire:
                self.attention = True
            return
        with self.tree.lock:
            for node in self.lineage:
                node.tool_calls = calls = node.tool_calls + 1
                if calls >= node.calls_wire:
                    node.attention = True

    def return_turn(self) -> None:
        """A turn that was counted was not taken: its provider refused the call."""
        with self.tree.lock:
            for node in self.lineage:
                node.turns -= 1

    def return_tool_call(self) -> None:
        """A call that was counted did not begin: its place is free again in the whole lineage."""
        with self.tree.lock:
            for node in self.lineage:
                node.tool_calls -= 1
                node.update_near_flag()


_NO_AMOUNT = Amount()
_NONE = Back()


class Reservation(Record, gc=False):
    """Worst case set aside for one call; settle it exactly once."""

    meter: Meter
    tokens: int
    money: int
    pledged: bool = False
    open: bool = True

    def redeem_pledge(self) -> None:
        """What was pledged is traded for a call, or given up. The lock is held."""
        self.pledged = False
        for node in self.meter.lineage:
            node.pledged_tokens -= self.tokens
            node.pledged_money -= self.money

    def extend(self, tokens: int, money: int) -> bool:
        """Reserve more for a reply that outgrows its reservation; False when it does not fit."""
        meter = self.meter
        with meter.tree.lock:
            # No queue here: a reply that is streaming cannot wait for others.
            if meter.find_lack(tokens, money) is not None:
                return False
            for node in meter.lineage:
                node.reserved_tokens += tokens
                node.reserved_money += money
            self.tokens += tokens
            self.money += money
        return True

    def keep_for_landing(self, amount: Amount) -> None:
        """Move a part of what is reserved to the landing of a run that has started: its way down has become longer."""
        meter = self.meter
        with meter.tree.lock:
            self.tokens -= amount.tokens
            self.money -= amount.money
            for node in meter.lineage:
                node.reserved_tokens -= amount.tokens
                node.reserved_money -= amount.money
            meter.add_landing(amount)

    def settle(self, tokens: int, money: int) -> None:
        """Charge what was used, refund the rest, let the queue move."""
        # The code that fails and the code that cleans up may both settle: the first time counts.
        if not self.open:
            return
        self.open = False
        meter = self.meter
        if not meter.tree.shared:  # as it is below, for a lineage of one
            meter.reserved_tokens -= self.tokens
            meter.tokens = spent = meter.tokens + tokens
            if self.money or money:
                meter.reserved_money -= self.money
                meter.money += money
            # Spending only comes nearer to a limit: the flag is set here, and cleared where something is given back.
            if spent + meter.aside_tokens >= meter.tokens_soft or meter.money + meter.aside_money >= meter.money_soft:
                meter.mark_saturated()
            return
        with meter.tree.lock:
            for node in meter.lineage:
                node.reserved_tokens -= self.tokens
                node.reserved_money -= self.money
                node.tokens = spent = node.tokens + tokens
                node.money = paid = node.money + money
                if spent + node.aside_tokens >= node.tokens_soft or paid + node.aside_money >= node.money_soft:
                    node.mark_saturated()
            if self.pledged:
                self.redeem_pledge()
            meter.tree.wake_head()

    def cancel(self) -> None:
        """Nothing was used."""
        self.settle(0, 0)
