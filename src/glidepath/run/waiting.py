"""The queue for a budget: who waits, in which order, and what a waiter can count on.

Calls of runs that have begun are in front, then the runs that have yet to start; both in order of arrival. A run that
has begun continues, ends and gives back what it keeps: that is what a start waits for. In return a call leaves enough
for the first start that waits: a run that has had its first call lands before somebody else gets nothing. Not so for a
start that `defers`: it gets what is left when others have ended, and nobody lands for it.

A waiter counts only on what comes back without it. A run cannot end before its children do, nor before a run that one
of its own tools awaits, nor while it waits here itself; so none of these is counted on, by any waiter, and a run that
is counted on does not wait in this queue. When there is none left, the head is refused at once, and the next one asks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from glidepath._wire import Record, Value

if TYPE_CHECKING:
    from glidepath.run.ledger import Meter

T = TypeVar("T")


class Amount(Value, frozen=True, gc=False):
    """Tokens and money."""

    tokens: int = 0
    money: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.money + other.money)


class Refusal(Value, frozen=True, kw_only=True):
    """A reservation that does not fit. `room` is what would fit with nothing in flight, `now` what fits at once."""

    resource: str
    limit: int
    used: int
    room: int = 0
    now: int = 0
    asked: int = 0


class Room(Value, frozen=True, gc=False):
    """What one limit of a node leaves: at once, and once all that is counted on has come back."""

    node: Meter
    what: str
    now: int
    alone: int


def worst_of(rooms: Iterator[Room], asked: Amount) -> Refusal | None:
    """The limit that this does not fit now; None when it fits. One for which waiting cannot help comes first."""
    short = [room for room in rooms if room.now < (asked.money if room.what == "money" else asked.tokens)]
    if not short:
        return None
    wants = {"tokens": asked.tokens, "money": asked.money}
    worst = min(short, key=lambda room: (room.alone >= wants[room.what], room.what == "money", room.alone))
    node, want = worst.node, wants[worst.what]
    limit, used = (node.caps.money, node.money) if worst.what == "money" else (node.caps.tokens, node.tokens)
    return Refusal(resource=worst.what, limit=limit or 0, used=used, room=worst.alone, now=worst.now, asked=want)


def smallest_of(rooms: Iterator[Room], *, now: bool, ahead: bool) -> tuple[int | None, int | None]:
    """Tokens and pico-dollars that all limits leave; None where there is no limit."""
    least: dict[str, int] = {}
    for room in rooms:
        node = room.node
        left = room.now if now else room.alone
        if ahead:
            left += node.ahead_money if room.what == "money" else node.ahead_tokens
        least[room.what] = min(left, least.get(room.what, left))
    return least.get("tokens"), least.get("money")


class Waiting:
    """A place in the queue of a tree; await `turn` and then ask again."""

    __slots__ = ("around", "claim", "defers", "loop", "meter", "thread", "turn")

    def __init__(self, meter: Meter, claim: Amount | None, around: tuple[Meter, ...], *, defers: bool = False) -> None:
        self.meter = meter
        self.claim = claim  # of a run that has yet to start: its first call and its landing; None for a call
        self.defers = defers  # nobody leaves room for it
        self.around = around  # the runs inside whose tools and hooks it was started: they wait for it
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.turn: asyncio.Future[None] = self.loop.create_future()

    def wake(self) -> None:
        """Let the waiter ask again; from any thread."""
        if threading.get_ident() == self.thread:
            self._wake()
        else:
            try:
                self.loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # its loop is closed: nobody waits any more
                return

    def _wake(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)

    def prepare_next_wake(self) -> None:
        """Be ready for the next wake-up; call it before looking, so that none is missed."""
        if self.turn.done():
            self.turn = self.loop.create_future()


async def in_turn(
    meter: Meter,
    attempt: Callable[[Waiting | None], Awaitable[T | None]],
    pause: Callable[[Waiting], Awaitable[None]],
    *,
    waiting: Waiting | None = None,
    claim: Callable[[], Amount] | None = None,
    around: tuple[Meter, ...] = (),
    defers: bool = False,
) -> T:
    """Try at once, unless `waiting` in the queue of the tree already, and then whenever it is our turn there.

    `attempt` answers None while it makes sense to wait. `pause` returns when the waiter may have been called, and
    raises when it waits no longer. `claim` is what a run needs that has yet to start; calls leave that much for it
    unless it `defers` to them.
    """
    try:
        while True:
            # Before looking: what comes free between the look and the wait must wake us.
            if waiting is not None:
                waiting.prepare_next_wake()
            if waiting is None or meter.is_head(waiting):
                got = await attempt(waiting)
                if got is not None:
                    return got
            if waiting is None:
                waiting = meter.enqueue(None if claim is None else claim(), around, defers=defers)
            await pause(waiting)
    finally:
        if waiting is not None:
            meter.leave(waiting)


class LiveRun(Record, gc=False):
    """A run that has started in a tree: what is set aside for its landing, and the loop it lives on."""

    landing: Amount
    loop: asyncio.AbstractEventLoop | None


class Back(Record, gc=False):
    """What comes back to a node: of landings, and of reservations; the part of those that is not only pledged."""

    landing_tokens: int = 0
    landing_money: int = 0
    flight_tokens: int = 0
    flight_money: int = 0
    sure_tokens: int = 0
    sure_money: int = 0


_EMPTY: list[Waiting] = []  # never filled: one list for all trees that nobody waits in


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a ledger can be kept without one
        return None


class Tree:
    """What all meters of a tree share: the lock, the queue, and who has started in it.

    `source` (`ask/source.py`) is where a tree draws from whose root holds a part of a budget that is kept elsewhere.
    `shared`: it has more than one meter, or had a queue. Before that it belongs to one run alone, which needs no lock.
    """

    __slots__ = ("lock", "members", "queue", "shared", "source")

    def __init__(self) -> None:
        self.shared = False
        self.lock = threading.Lock()
        self.queue: list[Waiting] = _EMPTY  # nearly always: made when somebody waits
        self.members: dict[Meter, LiveRun] | None = None
        self.source: Any = None

    # --- the queue; the lock is held ------------------------------------------------------------------------

    def enter(self, waiting: Waiting) -> None:
        """Take a place: a call behind the calls, a start behind everybody."""
        self.shared = True
        queue = self.queue or []
        self.queue = queue
        place = len(queue)
        if waiting.claim is None:
            place = next((at for at, other in enumerate(queue) if other.claim is not None), place)
        queue.insert(place, waiting)
        # Always: nobody can count on the one that has come, so the head may have nobody left to wait for.
        self.wake_head()

    def wake_head(self) -> None:
        """Only the head of the queue: the others would ask, be refused, and wait again."""
        queue = self.queue
        while queue:
            if not queue[0].loop.is_closed():
                queue[0].wake()
                return
            queue.pop(0)  # its loop was closed under it: it will never ask again

    def has_calls(self) -> bool:
        """True when a call of a run that has begun waits."""
        return bool(self.queue) and self.queue[0].claim is None

    def has_starts(self) -> bool:
        """True when a run waits that has yet to start."""
        return bool(self.queue) and self.queue[-1].claim is not None

    # --- what to count on; the lock is held -----------------------------------------------------------------

    def join(self, meter: Meter, landing: Amount) -> None:
        """A run has started."""
        members = self.members
        if members is None:
            members = self.members = {}
            root = meter.above[-1]
            if root.depth >= 0:  # a run, which is above all others: what it has reserved itself is its own
                members[root] = LiveRun(Amount(), _loop_here())
        members[meter] = LiveRun(landing, _loop_here())

    def landing_of(self, meter: Meter) -> Amount:
        """What is set aside for the landing of a run."""
        member = (self.members or {}).get(meter)
        return Amount() if member is None else member.landing

    def add_landing(self, meter: Meter, amount: Amount) -> None:
        """A run that has started needs more for its landing, or less."""
        assert self.members is not None  # noqa: S101 - for the type checker
        self.members[meter].landing += amount
        for node in meter.above:
            node.aside_tokens += amount.tokens
            node.aside_money += amount.money
            node.update_near_flag()

    def forget(self, meter: Meter) -> None:
        """A run has ended: nothing more comes back from it."""
        if self.members is not None:
            self.members.pop(meter, None)

    def is_spread(self, loop: asyncio.AbstractEventLoop) -> bool:
        """True when runs of other loops than this have started in it."""
        with self.lock:
            return any(member.loop is not loop for member in (self.members or {}).values())

    def find_stuck(self, meter: Meter, around: Iterable[Meter], *, behind_calls: bool = False) -> set[Meter]:
        """The nodes of runs that cannot end before this asker, or before somebody else who waits here.

        `behind_calls`: those who wait with a call come first, so they end without it.
        """
        found = {*meter.lineage}
        for one in around:
            found.update(one.lineage)
        for waiting in self.queue:
            if waiting.claim is not None or not behind_calls:
                found.update(waiting.meter.lineage)
                for one in waiting.around:
                    found.update(one.lineage)
        for one, member in (self.members or {}).items():
            if member.loop is not None and member.loop.is_closed():  # whatever ran there will never end
                found.add(one)
        return found

    def sum_coming_back(self, members: Iterable[Meter]) -> dict[Meter, Back]:
        """What these runs have reserved themselves and keep for their landings, at each node that it counts for."""
        known = self.members or {}
        # What a node has reserved includes its children's: each part belongs to the run that has it in flight.
        own = {
            one: Back(0, 0, one.reserved_tokens, one.reserved_money, one.pledged_tokens, one.pledged_money)
            for one in known
        }
        for one in known:
            above = next((own[node] for node in one.above if node in own), None)
            if above is not None:
                above.flight_tokens -= one.reserved_tokens
                above.flight_money -= one.reserved_money
                above.sure_tokens -= one.pledged_tokens
                above.sure_money -= one.pledged_money
        back: dict[Meter, Back] = {}
        for one in members:
            mine, landing = own[one], known[one].landing
            for node in one.lineage:
                sum_up = back.setdefault(node, Back())
                sum_up.flight_tokens += mine.flight_tokens
                sum_up.flight_money += mine.flight_money
                sum_up.sure_tokens += mine.flight_tokens - mine.sure_tokens
                sum_up.sure_money += mine.flight_money - mine.sure_money
                if node is not one:
                    sum_up.landing_tokens += landing.tokens
                    sum_up.landing_money += landing.money
        return back

    def back_without(self, meter: Meter, around: Iterable[Meter]) -> dict[Meter, Back]:
        """What comes back to each node without this asker."""
        stuck = self.find_stuck(meter, around)
        return self.sum_coming_back([one for one in self.members or () if one not in stuck])

    def sum_kept_by_stuck(self, meter: Meter, around: Iterable[Meter]) -> dict[Meter, Back]:
        """What is in flight at each node and does not come back without this asker; its own calls apart."""
        stuck = self.find_stuck(meter, around)
        return self.sum_coming_back([one for one in self.members or () if one in stuck and one is not meter])

    def find_first_start(self, meter: Meter) -> Waiting | None:
        """The first run that waits to start, unless it is inside the asker: then it must not hold the asker up."""
        for waiting in self.queue:
            if waiting.claim is not None and not waiting.defers:
                inside = any(meter in one.lineage for one in (waiting.meter, *waiting.around))
                return None if inside else waiting
        return None


def start_rooms(meter: Meter, back: dict[Meter, Back]) -> Iterator[Room]:
    """For each limit: what fits now, and once this has come back."""
    for node in meter.lineage:
        got = back.get(node) or Back()
        if node.caps.tokens is not None:
            now = node.spare_tokens() - node.reserved_tokens
            yield Room(node, "tokens", now, now + got.landing_tokens + got.flight_tokens)
        if node.caps.money is not None:
            now = node.spare_money() - node.reserved_money
            yield Room(node, "money", now, now + got.landing_money + got.flight_money)


def left_for_calls(meter: Meter) -> dict[Meter, Back]:
    """What a call may take so that the first run that waits to start still can, once this one has come down.

    As `landing_*` with what is in flight at its worst, as `flight_*` with nothing in flight. Empty when that run
    cannot start anyway: nobody lands for nothing.
    """
    tree = meter.tree
    first = tree.find_first_start(meter)
    if first is None:
        return {}
    claim = first.claim or Amount()
    stuck = tree.find_stuck(first.meter, first.around, behind_calls=True)
    counted = [one for one in tree.members or () if one not in stuck]
    whole = tree.sum_coming_back(counted)
    for room in start_rooms(first.meter, whole):
        if room.node is not first.meter and room.alone < (claim.tokens if room.what == "tokens" else claim.money):
            return {}
    back = tree.sum_coming_back([one for one in counted if one is not meter])
    left = {}
    for node in first.meter.above:
        got = back.get(node) or Back()
        tokens = 0 if node.caps.tokens is None else node.spare_tokens() - node.reserved_tokens - claim.tokens
        money = 0 if node.caps.money is None else node.spare_money() - node.reserved_money - claim.money
        left[node] = Back(
            tokens + got.landing_tokens,
            money + got.landing_money,
            tokens + got.landing_tokens + got.flight_tokens,
            money + got.landing_money + got.flight_money,
        )
    return left
