"""The session store port: where journals live. A journal is a chain of commits that only grows.

A commit is written whole or not at all. A writer holds a lease: `claim` gives it out with a fencing token that
only grows, and a write with an older token is refused, however late it arrives. What is inside a commit is of no
concern to a store: it keeps bytes, their hash and their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

from glidepath._wire import Value
from glidepath.outcome import dollars
from glidepath.stability import UNPROVEN, experimental

__all__ = [
    "Catalog",
    "Commit",
    "Entry",
    "Excerpts",
    "Grant",
    "Hold",
    "Inbox",
    "Lease",
    "Note",
    "OverdueHold",
    "SessionPage",
    "SessionQuery",
    "SessionStore",
    "Sign",
    "Wallet",
    "WalletDraw",
    "WalletStore",
    "WalletTerms",
]


class Commit(Value, frozen=True, gc=False):
    """One link of a journal: its number (from 1), the records as JSON bytes, and the hash over it and all before it."""

    number: int
    body: bytes
    hash: bytes


class Lease(Value, frozen=True, gc=False):
    """The right to write one session's journal until `expires` (seconds since the epoch, by the store's clock).

    `head` and `hash` are those of the last commit; 0 and empty for a session that is new.
    """

    session_id: str
    token: int
    owner: str
    expires: float
    head: int = 0
    hash: bytes = b""
    key: Any = None
    """Whatever the store itself needs to find the session quickly."""
    mail: int = 0
    """The number of the last note in the session's inbox, in a store that has one."""


class Entry(Value, frozen=True, kw_only=True):
    """What a store knows about a session without reading its journal. `summary` is what the last commit brought."""

    session_id: str
    head: int
    hash: bytes = b""
    token: int = 0
    owner: str | None = None
    expires: float = 0.0
    updated: float = 0.0
    flag: str | None = None
    """Why the run in this session must stop; None when nobody asked."""
    summary: Mapping[str, Any] = {}
    title: str = ""
    """What a person called it. Only a `Catalog` fills this in, and the next one."""
    tags: tuple[str, ...] = ()


class Sign(Value, frozen=True, kw_only=True):
    """What a heartbeat found out about one lease: it was `lost` to another owner, or the run must `stop` and why.

    `mail` is the number of the last note in the inbox; the owner reads those that it has not taken yet.
    """

    session_id: str
    lost: bool = False
    stop: str | None = None
    mail: int = 0


class Note(Value, frozen=True, kw_only=True):
    """Something for a run, from anywhere: `kind` is "message" or "decision", `body` its JSON.

    Posting the same `id` again is the same note. The store counts the notes of a session: `number` begins with 1.
    """

    id: str
    kind: str
    body: bytes
    number: int = 0
    posted: float = 0.0


@experimental(reason=UNPROVEN)
@runtime_checkable
class SessionStore(Protocol):
    """Keeps the journals of many sessions, for many processes.

    Contract: every method raises `StoreError`, with its `kind`, when it cannot do what it says, and nothing else. A
    commit that was reported as written survives the death of the process. Reading never changes anything and needs no
    lease. A store may be used from several event loops and threads, and after a fork; it keeps no task, thread or
    connection alive for a loop on which no lease is held.

    What happens when it crashes: a run whose store fails, or does not answer for 30 seconds, ends ERROR/FAILED with the
    cause `store`; its text is kept. Pending work is asked to stop then; a commit may still have been written.
    """

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner, with a token larger than any before; a stop that was asked for still holds.

        Raises `StoreError` of kind `busy` while another living owner holds the lease, and of kind `missing` when
        there is no such session and none is to be made.
        """

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit after the last, with the new head, and renew the lease; all of it or nothing.

        Answers None when it is written, or something to await until it is. Raises `StoreError` of kind `fenced` when
        somebody else has claimed the session since, and of kind `conflict` when the commit does not follow the head.
        With durability "async" it may answer before it has written, and then reports a failure at the next call.
        """

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Look after leases: renew them if asked to, and report those that are lost and those that must stop."""

    async def release(self, lease: Lease) -> None:
        """Give the lease back after everything is written; nothing happens when it was lost before."""

    async def load(self, session_id: str) -> tuple[Entry, Sequence[Commit]]:
        """The whole journal, as it was written; raises `StoreError` of kind `missing` when there is none."""

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions whose id begins with `prefix`, the last written first."""

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop, from any process; None withdraws it."""

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`: the repair of a damaged journal. The lease is void after this."""

    async def remove(self, session_id: str) -> None:
        """Forget a session that no living owner holds; raises kinds `busy` and `missing`."""

    async def close(self) -> None:
        """Close files and connections; the store reopens them when it is used again."""


@experimental(reason=UNPROVEN)
@runtime_checkable
class Inbox(Protocol):
    """What a store may have beside journals: notes for a session, from any process. Reading removes nothing.

    Contract: notes are numbered 1, 2, 3 ... without a gap, and a note that can be read has all those before it beside
    it. They go when their session is removed. `claim` and `beat` say how many there are (`mail`). The journal says how
    far they were taken, so that a run that dies takes them again, or never again.

    What happens when it crashes: the run does not see the messages in there, and continues; it is read at the next
    beat.
    """

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox and return its number; raises `StoreError` of kind `missing`."""

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes with a number above `after`, in order; raises `StoreError` of kind `missing`."""


# --- wallets: budgets that are kept in a store --------------------------------------------------------------------
# Optional: a store that has these methods can keep wallets. Money is in whole pico-dollars.


class WalletTerms(Value, frozen=True, kw_only=True):
    """What a program says about a wallet: its limits, its period ("day", "month" or None) and the wallet above it."""

    name: str
    per: str | None = None
    parent: str | None = None
    max_tokens: int | None = None
    max_money: int | None = None


class Hold(Value, frozen=True, kw_only=True):
    """Who draws: one leg of one run. `line` are the wallets it draws from, the outermost first.

    `leg` grows each time the run is taken up again, and the latest leg owns the hold. `session_id` names the journal
    that knows what the run has spent; None when no journal has it on disk before each call.
    """

    key: str
    leg: int
    owner: str
    line: tuple[WalletTerms, ...]
    session_id: str | None = None


class WalletDraw(Value, frozen=True, kw_only=True):
    """The state of a run when it draws. What it has spent is the total of its meter, earlier legs included.

    `landing` is kept back for its landing, `flight` is reserved for calls in flight, `asked` is what the next call may
    cost and `least` the smallest call that is worth making. A draw that asks for nothing gives the surplus back.
    """

    spent_tokens: int = 0
    spent_money: int = 0
    landing_tokens: int = 0
    landing_money: int = 0
    flight_tokens: int = 0
    flight_money: int = 0
    asked_tokens: int = 0
    asked_money: int = 0
    least_tokens: int = 0
    least_money: int = 0


class Grant(Value, frozen=True, kw_only=True):
    """The answer to a draw: `granted`, `wait`, `refused`, `closed` or `fenced`.

    `tokens` and `money` are what the meter of the run may reach now; `ahead_*` is what could still be drawn (None is
    unlimited). `tight` and `period` name the wallet that refused, `most` and `used` are its limit and what is used.
    """

    verdict: str
    tokens: int = 0
    money: int = 0
    ahead_tokens: int | None = None
    ahead_money: int | None = None
    tight: str = ""
    period: str = ""
    resource: str = ""
    most: int = 0
    used: int = 0


class OverdueHold(Value, frozen=True, kw_only=True):
    """A hold whose owner is dead, or has been silent for the length of a lease."""

    key: str
    leg: int
    session_id: str | None
    dead: bool
    """True when its process is known to be dead; else it may only be slow."""
    written_off: bool = False
    """It was written off at all that it held, long ago by now: its journal may know better."""


class Wallet(Value, frozen=True, kw_only=True):
    """A wallet as its store knows it, in the period that is running now.

    The limits are those that hold: an operator's where there are any, else those of the program that opened it last.
    """

    name: str
    per: str | None
    parent: str | None
    period: str
    max_tokens: int | None
    max_money: int | None
    declared: tuple[int | None, int | None] = (None, None)
    """The limits of the program that opened it last, in tokens and money."""
    tokens: int = 0
    money: int = 0
    held_tokens: int = 0
    held_money: int = 0
    holds: int = 0
    """How many runs draw from it now, those that began in an earlier period included."""
    closed: bool = False
    overruled: bool = False
    """True when an operator has set its limits."""
    history: Mapping[str, tuple[int, int]] = {}
    """Tokens and money that were used in every period, this one included."""

    @property
    def cost(self) -> Decimal:
        """Dollars used in this period."""
        return dollars(self.money)

    @property
    def held_cost(self) -> Decimal:
        """Dollars that runs hold for calls in flight and for their landings."""
        return dollars(self.held_money)

    @property
    def max_cost(self) -> Decimal | None:
        """The limit in dollars; None is unlimited."""
        return None if self.max_money is None else dollars(self.max_money)

    @property
    def left_tokens(self) -> int | None:
        """Tokens that are neither used nor held; None is unlimited."""
        return None if self.max_tokens is None else max(0, self.max_tokens - self.tokens - self.held_tokens)

    @property
    def left_cost(self) -> Decimal | None:
        """Dollars that are neither used nor held; None is unlimited."""
        return None if self.max_money is None else dollars(max(0, self.max_money - self.money - self.held_money))


# --- finding sessions among many ----------------------------------------------------------------------------------


class SessionQuery(Value, frozen=True, kw_only=True):
    """Which sessions to list: those that match every field that is given. Up to `limit` of them make a page.

    `roots` leaves children out. `text` is looked for in titles, tasks and ids, whatever the case. `outcome` is a
    `LoopOutcome` or a team's status, or "unfinished". `before` and `after` are times (seconds since the epoch)
    between which the last run began or ended. `cursor` is the one that the page before gave.
    """

    prefix: str = ""
    roots: bool = True
    state: str | None = None
    outcome: str | None = None
    agent: str | None = None
    tag: str | None = None
    text: str = ""
    min_cost: Decimal | None = None
    max_cost: Decimal | None = None
    before: float | None = None
    after: float | None = None
    limit: int = 50
    cursor: str | None = None


class SessionPage(Value, frozen=True):
    """Sessions that match, the newest first; `cursor` asks for the next page, and is None on the last one."""

    sessions: tuple[Entry, ...]
    cursor: str | None = None


@experimental(reason=UNPROVEN)
@runtime_checkable
class Excerpts(Protocol):
    """What a store can do so that long sessions are not read from their start: read a part of a journal.

    Optional: where a store has no `pick`, the whole journal is read.

    What happens when it crashes: as with `SessionStore.load`.
    """

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The entry, and the commits from number `since` on; none when there are fewer."""

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """The commits with these numbers, in this order; those that are not there are left out."""


@experimental(reason=UNPROVEN)
@runtime_checkable
class WalletStore(Protocol):
    """Keeps wallets for many processes: what a call may cost is held before it, what it did cost is used after it.

    Contract: every method is one transaction, and raises `StoreError` and nothing else when it cannot do what it says.
    In every wallet of a line, in every period, used + held never exceeds the limit, unless a run spent more than it
    was granted. A day or a month is one of UTC by the store's clock; what was held in one period is used in it.
    A hold that is not renewed for the length of a lease is overdue; nothing is given back until somebody writes it off.
    No method blocks the event loop, and nothing of the store outlives the last hold of a loop.

    What happens when it crashes: a run whose wallet fails, or does not answer for 30 seconds, makes no further call; it
    ends ERROR/FAILED with the cause `store`, its text is kept, and its hold is written off when it is overdue.
    """

    async def draw(self, hold: Hold, want: WalletDraw) -> Grant:
        """Take out what the next call may cost, in every wallet of the line or in none, and renew the hold.

        Makes the wallets that are new, and gives the others the limits in `hold.line`. Raises kind `conflict` when a
        wallet has another period or another parent. What a new hold has spent before its first draw is not counted.
        """

    async def open_wallets(self, line: Sequence[WalletTerms]) -> None:
        """Make the wallets that are new, and give the others these limits; raises kind `conflict`, as `draw` does."""

    async def settle(self, hold: Hold, tokens: int, money: int) -> bool:
        """The run is over with its meter at these totals: that is used, the rest free. False for another leg's hold."""

    async def overdue(self) -> Sequence[OverdueHold]:
        """The holds that somebody should write off."""

    async def write_off(self, hold: OverdueHold, tokens: int | None, money: int | None) -> bool:
        """Settle a hold that is still overdue at these totals of its meter; None: all that it holds counts as used.

        What is settled at None is corrected when its run is heard of after all, or listed once more when it has a
        journal. False when it is no longer overdue.
        """

    async def wallets(self, name: str | None = None) -> Sequence[Wallet]:
        """Every wallet, by name; or the one with this name, or none."""

    async def set_wallet(self, name: str, *, max_tokens: int | None, max_money: int | None) -> None:
        """An operator's limits, which outrank those of programs; both None restores those of programs.

        Raises kind `missing`, and kind `conflict` for a limit on what the wallet does not limit.
        """

    async def close_wallet(self, name: str, *, closed: bool = True) -> None:
        """Refuse every further draw, or allow them again; what is held stays held. Raises kind `missing`."""

    async def remove_wallet(self, name: str) -> None:
        """Forget a wallet and its history; raises `missing`, and `busy` for one that is held or is a parent."""


@experimental(reason=UNPROVEN)
@runtime_checkable
class Catalog(Protocol):
    """What a store can do beside keeping journals: find, label and remove many sessions without reading them.

    Optional: where a store has no catalog, glidepath reads `entries()` instead, which takes longer.

    Contract: what a session's last summary says is what `find` finds it by, from the moment `append` has written it.
    Titles and tags belong to the session and go with it when it is removed; writing a journal does not change them.

    What happens when it crashes: the caller gets its `StoreError`; runs are not concerned.
    """

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match, the newest first, with titles and tags."""

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Forget these sessions with their children; returns the ids of all that are gone, children included.

        A session stays, with its whole family, while a living owner holds any of them. What is not there is skipped.
        """

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both; None leaves them. Needs no lease. Raises kind `missing`."""
