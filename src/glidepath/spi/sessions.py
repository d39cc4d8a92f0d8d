"""The session store port: where journals live. A journal is a chain of commits that only grows.

A commit is written whole or not at all. A writer holds a lease: `claim` gives it out with a fencing token that only
grows, and a write with an older token is refused, however late it arrives. A store does not look inside a commit: it
keeps bytes, their hash and their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

from glidepath._wire import Value
from glidepath.outcome import dollars
from glidepath.stability import UNPROVEN, experimental


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
    """The title that a person gave it. Only a `Catalog` fills in `title` and `tags`."""
    tags: tuple[str, ...] = ()


class Sign(Value, frozen=True, kw_only=True):
    """What a heartbeat found out about one lease: `lost` to another owner, or why the run must `stop`.

    `mail` is the number of the last note in the inbox; the owner reads those that it has not taken yet.
    """

    session_id: str
    lost: bool = False
    stop: str | None = None
    mail: int = 0


class Note(Value, frozen=True, kw_only=True):
    """A note to a run, from any process: `kind` is "message" or "decision", `body` its JSON.

    Posting the same `id` again changes nothing. The store counts the notes of a session: `number` starts at 1.
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

    Contract: a method that fails raises `StoreError` with its `kind`, and nothing else. A commit that was reported as
    written survives the death of the process. Reading never changes anything and needs no lease. A store may be used
    from several event loops and threads, and after a fork; it keeps no task, thread or connection alive for a loop on
    which no lease is held.

    What happens when it crashes: a run whose store fails, or does not answer for 30 seconds, ends ERROR/FAILED with the
    cause `store`; its text is kept. Pending work is asked to stop then; a commit may still have been written.
    """

    async def claim(self, session_id: str, owner: str, *, create: bool = True) -> Lease:
        """Become the owner, with a token larger than any before; a requested stop stays in force.

        Raises `StoreError` of kind `busy` while another living owner holds the lease, and of kind `missing` when the
        session does not exist and `create` is False.
        """
        ...

    def append(
        self, lease: Lease, commit: Commit, *, summary: Mapping[str, Any] | None = None, durability: str = "sync"
    ) -> Awaitable[None] | None:
        """Write one commit after the last, with the new head, and renew the lease; all of it or nothing.

        Returns None when it is written, or an awaitable that ends when it is. Raises `StoreError` of kind `fenced` when
        somebody else has claimed the session since, and of kind `conflict` when the commit does not follow the head.
        With durability "async" it may answer before it has written, and then reports a failure at the next call.
        """
        ...

    async def beat(self, leases: Sequence[Lease], *, renew: bool) -> Sequence[Sign]:
        """Check leases: renew them if asked to, and report which are lost and which runs must stop."""
        ...

    async def release(self, lease: Lease) -> None:
        """Release the lease once everything is written; does nothing if it was already lost."""
        ...

    async def load(self, session_id: str) -> tuple[Entry, Sequence[Commit]]:
        """The whole journal, as it was written; raises `StoreError` of kind `missing` when there is none."""
        ...

    async def entries(self, prefix: str = "") -> Sequence[Entry]:
        """All sessions whose id begins with `prefix`, the last written first."""
        ...

    async def flag(self, session_id: str, reason: str | None) -> None:
        """Ask the run in this session to stop, from any process; None withdraws it."""
        ...

    async def cut(self, lease: Lease, head: int, hash_: bytes) -> None:
        """Drop every commit after `head`: the repair of a damaged journal. The lease is void after this."""
        ...

    async def remove(self, session_id: str) -> None:
        """Forget a session that no living owner holds; raises kinds `busy` and `missing`."""
        ...

    async def close(self) -> None:
        """Close files and connections; the store reopens them when it is used again."""
        ...


@experimental(reason=UNPROVEN)
@runtime_checkable
class Inbox(Protocol):
    """An optional part of a store: notes to a session, from any process. Reading removes nothing.

    Contract: notes are numbered 1, 2, 3 ... without a gap, and a note that can be read is never ahead of an earlier
    one. They are removed with their session. `claim` and `beat` report how many there are (`mail`). The journal records
    which ones were taken, so that a run that dies and continues takes only the others.

    What happens when it crashes: the run continues without the messages, and the inbox is read again at the next beat.
    """

    async def post(self, session_id: str, note: Note) -> int:
        """Put a note into a session's inbox and return its number; raises `StoreError` of kind `missing`."""
        ...

    async def notes(self, session_id: str, after: int = 0) -> Sequence[Note]:
        """The notes with a number above `after`, in order; raises `StoreError` of kind `missing`."""
        ...


# --- wallets: budgets kept in a store -----------------------------------------------------------------------------
# Optional: a store that has these methods can keep wallets. Money is in whole pico-dollars.


class WalletTerms(Value, frozen=True, kw_only=True):
    """How a program declares a wallet: its limits, its period ("day", "month" or None) and the wallet above it."""

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
    """It was written off long ago at everything it held; its journal may have the real figures."""


class Wallet(Value, frozen=True, kw_only=True):
    """A wallet as its store knows it, in the current period.

    The limits are those in force: an operator's if there are any, else those of the program that opened it last.
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
    """Which sessions to list: those that match every field that is set. Up to `limit` of them make a page.

    `roots` leaves children out. `text` is searched in titles, tasks and ids, ignoring case. `outcome` is a
    `LoopOutcome` or a team's status, or "unfinished". `before` and `after` are times (seconds since the epoch) between
    which the last run began or ended. `cursor` comes from the previous page.
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
    """An optional part of a store: reading a part of a journal, so that long sessions are not read from the start.

    If a store has no `pick`, the whole journal is read.

    What happens when it crashes: as with `SessionStore.load`.
    """

    async def load(self, session_id: str, *, since: int = 0) -> tuple[Entry, Sequence[Commit]]:
        """The entry, and the commits from number `since` on; none when there are fewer."""
        ...

    async def pick(self, session_id: str, numbers: Sequence[int]) -> Sequence[Commit]:
        """The commits with these numbers, in this order; missing ones are left out."""
        ...


@experimental(reason=UNPROVEN)
@runtime_checkable
class WalletStore(Protocol):
    """Keeps wallets for many processes: holds what a call may cost before it, and charges what it did cost after it.

    Contract: every method is one transaction; one that fails raises `StoreError` and nothing else. In every wallet of a
    line, in every period, used + held never exceeds the limit, unless a run spent more than it was granted. A day or a
    month is one of UTC by the store's clock; what was held in one period is used in it. A hold that is not renewed for
    the length of a lease is overdue; nothing is given back until it is written off. No method blocks the event loop,
    and nothing of the store outlives the last hold of a loop.

    What happens when it crashes: a run whose wallet fails, or does not answer for 30 seconds, makes no further call; it
    ends ERROR/FAILED with the cause `store`, its text is kept, and its hold is written off when it is overdue.
    """

    async def draw(self, hold: Hold, want: WalletDraw) -> Grant:
        """Take out what the next call may cost, in every wallet of the line or in none, and renew the hold.

        Creates new wallets, and gives the others the limits in `hold.line`. Raises kind `conflict` when a wallet has
        another period or another parent. What a new hold has spent before its first draw is not counted.
        """
        ...

    async def open_wallets(self, line: Sequence[WalletTerms]) -> None:
        """Create new wallets, and give the others these limits; raises kind `conflict`, as `draw` does."""
        ...

    async def settle(self, hold: Hold, tokens: int, money: int) -> bool:
        """End a hold with the meter at these totals: that is used, the rest is free. False if another leg has it."""
        ...

    async def overdue(self) -> Sequence[OverdueHold]:
        """The holds that are due to be written off."""
        ...

    async def write_off(self, hold: OverdueHold, tokens: int | None, money: int | None) -> bool:
        """Settle a hold that is still overdue at these totals of its meter; None: all that it holds counts as used.

        A hold settled at None is corrected if its run turns up after all, or listed again if it has a journal. False
        when it is no longer overdue.
        """
        ...

    async def wallets(self, name: str | None = None) -> Sequence[Wallet]:
        """Every wallet, ordered by name; with `name`, only that one, if it exists."""
        ...

    async def set_wallet(self, name: str, *, max_tokens: int | None, max_money: int | None) -> None:
        """An operator's limits, which outrank those of programs; both None restores those of programs.

        Raises kind `missing`, and kind `conflict` for a limit on what the wallet does not limit.
        """
        ...

    async def close_wallet(self, name: str, *, closed: bool = True) -> None:
        """Refuse every further draw, or allow them again; what is held stays held. Raises kind `missing`."""
        ...

    async def remove_wallet(self, name: str) -> None:
        """Forget a wallet and its history; raises `missing`, and `busy` for one that is held or is a parent."""
        ...


@experimental(reason=UNPROVEN)
@runtime_checkable
class Catalog(Protocol):
    """An optional part of a store: find, label and remove many sessions without reading their journals.

    If a store has no catalog, glidepath reads `entries()` instead, which takes longer.

    Contract: `find` searches the last summary of each session, as soon as `append` has written it. Titles and tags
    belong to the session and go with it when it is removed; writing a journal does not change them.

    What happens when it crashes: the caller gets its `StoreError`; runs are not affected.
    """

    async def find(self, query: SessionQuery) -> SessionPage:
        """One page of the sessions that match, the newest first, with titles and tags."""
        ...

    async def remove_many(self, session_ids: Sequence[str]) -> list[str]:
        """Remove these sessions with their children; returns the ids of all that were removed, children included.

        A session stays, with its whole family, while a living owner holds any of them. Missing sessions are skipped.
        """
        ...

    async def annotate(self, session_id: str, *, title: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the title, the tags, or both; None leaves them. Needs no lease. Raises kind `missing`."""
        ...
