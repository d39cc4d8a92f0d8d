"""Spend as a tree of meters. What a call may cost is reserved before it, settled after it, refunded when unused.

Every charge goes to a node and all its ancestors. At each node, for each thing that has a limit:

    used + reserved + aside + held + asked <= limit

`reserved` is in flight and comes back, but for the part that is `pledged`: the first calls of runs that were admitted
and not yet asked, which may be behind the asker in the queue. `aside` are the landing reserves of live descendants;
`held` is the node's own. A call that would fit if nothing were in flight waits in one queue per tree, in order.
Money is counted in whole pico-dollars inside and is a `Decimal` at the edge.
"""

from __future__ import annotations

import asyncio
import threading
from math import inf
from typing import Any

from glidepath._wire import Record, Value
from glidepath.money import Price, pico
from glidepath.outcome import dollars
from glidepath.plurals import how_many
from glidepath.spi.constraints import Remaining

__all__ = ["Amount", "Caps", "Meter", "Price", "Refusal", "Reservation", "Waiting", "dollars", "pico"]


class Amount(Value, frozen=True, gc=False):
    """Tokens and money."""

    tokens: int = 0
    money: int = 0


class Caps(Value, frozen=True, kw_only=True):
    """The limits of one node; None is unlimited."""

    tokens: int | None = None
    money: int | None = None
    turns: int | None = None
    tool_calls: int | None = None
    descendants: int | None = None
    depth: int | None = None


class Refusal(Value, frozen=True, kw_only=True):
    """A reservation that does not fit. `room` is what would fit with nothing in flight, `now` what fits at once."""

    resource: str
    limit: int
    used: int
    room: int = 0
    now: int = 0
    asked: int = 0


class Waiting:
    """A place in the queue of a tree; await `turn` and then ask again."""

    __slots__ = ("loop", "thread", "turn")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.turn: asyncio.Future[None] = self.loop.create_future()

    def wake(self) -> None:
        """Let the waiter ask again; from any thread."""
        if threading.get_ident() == self.thread:
            self._ring()
        else:
            try:
                self.loop.call_soon_threadsafe(self._ring)
            except RuntimeError:  # its loop is closed: nobody waits any more
                return

    def _ring(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)

    def rearm(self) -> None:
        """Be ready for the next wake-up; call it before looking, so that none is missed."""
        if self.turn.done():
            self.turn = self.loop.create_future()


class _Tree:
    """What all meters of a tree share: the lock and the queue.

    `source` (`ask/source.py`) is where a tree draws from whose root holds a part of a budget that is kept elsewhere.
    `shared`: it has more than one meter, or had a queue. Before that it belongs to one run alone, which needs no lock.
    """

    __slots__ = ("lock", "queue", "shared", "source")

    def __init__(self) -> None:
        self.shared = False
        self.lock = threading.Lock()
        self.queue: list[Waiting] | tuple[()] = ()  # nearly always empty
        self.source: Any = None

    def wake_head(self) -> None:
        """Only the head of the queue: the others would ask, be refused, and wait again."""
        if self.queue:
            self.queue[0].wake()


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
        self.tree: _Tree = _Tree() if parent is None else parent.tree
        self.tokens: int = 0
        self.money: int = 0
        self.turns: int = 0
        self.tool_calls: int = 0
        self.descendants: int = 0
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
        turns, calls = how_many(self.turns, "turn"), how_many(self.tool_calls, "tool call")
        return f"<Meter: {how_many(self.tokens, 'token')}, {turns}, {calls}>"

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
            tokens, money, turns, calls = caps.tokens, caps.money, caps.turns, caps.tool_calls
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
        self.tokens_soft: float = self.tokens_wire - self.near_tokens
        self.money_soft: float = self.money_wire - self.near_money
        self.look()

    def look(self) -> None:
        """Note whether anything of this node is near its limit: one flag, because it is asked three times a turn."""
        self.attention: bool = (
            self.tokens + self.aside_tokens >= self.tokens_soft
            or self.money + self.aside_money >= self.money_soft
            or self.tool_calls >= self.calls_wire
        )

    def reserve_start(self, landing: Amount, first: Amount, *, queued: bool) -> Reservation | Refusal:
        """Start a run on the parent's budget: set aside its landing and reserve its first call, or say why not."""
        parent = self.parent
        assert parent is not None  # noqa: S101 - for the type checker
        with self.tree.lock:
            if self.tree.queue and not queued:
                return Refusal(resource="queue", limit=0, used=0, room=1)
            for node in parent.lineage:
                if node.caps.turns is not None and node.turns >= node.caps.turns:
                    return Refusal(resource="turns", limit=node.caps.turns, used=node.turns, asked=1)
            # The landing and the first call together, or the child could start and then find no way down.
            refusal = parent.lack(landing.tokens + first.tokens, landing.money + first.money)
            refusal = refusal or self.lack(first.tokens, first.money)  # its own limits are there from the start
            if refusal is not None:
                return refusal
            for node in parent.lineage:
                node.aside_tokens += landing.tokens
                node.aside_money += landing.money
                node.look()
            for node in self.lineage:
                node.reserved_tokens += first.tokens
                node.reserved_money += first.money
                # Nobody counts on it: two runs that wait for each other's first call would wait forever.
                node.pledged_tokens += first.tokens
                node.pledged_money += first.money
        return Reservation(self, first.tokens, first.money, pledged=True)

    def adopt(self) -> Refusal | None:
        """Count a spawned run among the descendants of all its ancestors; a refusal when it is one too many."""
        parent = self.parent
        assert parent is not None  # noqa: S101 - for the type checker
        with self.tree.lock:
            family = parent
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
            # Waiting calls come first: a small call that would fit must not starve a large one in front of it. One
            # that trades goes ahead: it gives up a pledge, which nobody in the queue has counted on.
            if tree.queue and not queued and trading is None:
                return Refusal(resource="queue", limit=0, used=0, room=1)
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
                    trading.redeem()
        return Reservation(self, tokens, money)

    def _refuse(self, tokens: int, money: int, turns: int, trading: Reservation | None) -> Refusal:
        for node in self.lineage:
            if node.turns + turns > node.turns_wire:
                return Refusal(resource="turns", limit=int(node.turns_wire), used=node.turns)
        return self.lack(tokens, money, trading)  # type: ignore[return-value]

    def lack(self, tokens: int, money: int, trading: Reservation | None = None) -> Refusal | None:
        """What stands in the way of this much now, where `trading` is given up for it; None when it fits."""
        mine_tokens, mine_money = (0, 0) if trading is None else (trading.tokens, trading.money)
        worst: Refusal | None = None
        for node in self.lineage:
            caps = node.caps
            if caps.tokens is not None:
                # `room` is what there is with nothing in flight: when that is too little, waiting cannot help.
                room = node.spare_tokens() - node.pledged_tokens + mine_tokens
                now = room - node.reserved_tokens + node.pledged_tokens
                if tokens > now and (worst is None or worst.resource != "tokens" or room < worst.room):
                    used = node.tokens
                    worst = Refusal(resource="tokens", limit=caps.tokens, used=used, room=room, now=now, asked=tokens)
            if caps.money is not None:
                room = node.spare_money() - node.pledged_money + mine_money
                now = room - node.reserved_money + node.pledged_money
                if money > now and (worst is None or room < worst.room):
                    used = node.money
                    worst = Refusal(resource="money", limit=caps.money, used=used, room=room, now=now, asked=money)
        return worst

    def room_for(self, trading: Reservation | None, *, now: bool, ahead: bool = False) -> tuple[int | None, int | None]:
        """Tokens and pico-dollars that fit at once, or with nothing in flight; None where unlimited.

        What other runs have been pledged is never counted on; `trading` is what the asker itself would give up.
        `ahead`: what can still be drawn from elsewhere counts, too.
        """
        tokens: int | None = None
        money: int | None = None
        for node in self.lineage:
            caps = node.caps
            if caps.tokens is not None:
                room = node.spare_tokens() + ahead * node.ahead_tokens
                room -= node.reserved_tokens if now else node.pledged_tokens
                tokens = room if tokens is None else min(tokens, room)
            if caps.money is not None:
                room = node.spare_money() + ahead * node.ahead_money
                room -= node.reserved_money if now else node.pledged_money
                money = room if money is None else min(money, room)
        if trading is not None:
            tokens = None if tokens is None else tokens + trading.tokens
            money = None if money is None else money + trading.money
        return tokens, money

    def enqueue(self) -> Waiting:
        """Take a place at the end of the queue."""
        waiting = Waiting()
        with self.tree.lock:
            self.tree.shared = True
            self.tree.queue = queue = self.tree.queue or []
            queue.append(waiting)
            if queue[0] is waiting:
                waiting.wake()
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
        """This run has ended without its landing call: what was set aside for it is free again."""
        with self.tree.lock:
            for node in self.above:
                node.aside_tokens -= amount.tokens
                node.aside_money -= amount.money
                # A limit that was near may be far again.
                node.look()
            self.tree.wake_head()

    def short_of_calls(self, count: int) -> bool:
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

    def return_tool_call(self) -> None:
        """A call that was counted did not begin: its place is free again in the whole lineage."""
        with self.tree.lock:
            for node in self.lineage:
                node.tool_calls -= 1
                node.look()


class Reservation(Record, gc=False):
    """Worst case set aside for one call; settle it exactly once."""

    meter: Meter
    tokens: int
    money: int
    pledged: bool = False
    open: bool = True

    def redeem(self) -> None:
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
            if meter.lack(tokens, money) is not None:
                return False
            for node in meter.lineage:
                node.reserved_tokens += tokens
                node.reserved_money += money
            self.tokens += tokens
            self.money += money
        return True

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
                meter.attention = True
            return
        with meter.tree.lock:
            for node in meter.lineage:
                node.reserved_tokens -= self.tokens
                node.reserved_money -= self.money
                node.tokens = spent = node.tokens + tokens
                node.money = paid = node.money + money
                if spent + node.aside_tokens >= node.tokens_soft or paid + node.aside_money >= node.money_soft:
                    node.attention = True
            if self.pledged:
                self.redeem()
            meter.tree.wake_head()

    def cancel(self) -> None:
        """Nothing was used."""
        self.settle(0, 0)
