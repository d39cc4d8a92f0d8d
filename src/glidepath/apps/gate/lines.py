"""Lines of budgets: what a key, its tenant and its user may spend, and the sessions that spend it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from glidepath._wire import Value
from glidepath.agent import Budget, Limits, WalletClient, has_room
from glidepath.apps.gate.governing import GateRequest
from glidepath.apps.gate.known_agents import UNKNOWN, KnownAgent
from glidepath.apps.gate.tree import ForeignSession, GateLimits, give_back_landing, warn_near
from glidepath.apps.server.locks import AccessKey, Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.run import Amount, Caps, Meter
from glidepath.sessions import MemoryStore
from glidepath.spi import WalletTerms

REPLY_PATIENCE = 20.0
"""Seconds that a reply waits for more room: two that wait for each other do so no longer than this."""
IDLE = 900.0
"""Seconds after which an agent that has not called is presumed gone: its landing is free for others."""
MOST_NAMES = 2
MOST_MODELS = 1_000
MOST_LINES = 10_000
"""Tenants and users in memory: a client may name as many as it likes."""
SETTLE = 120.0
"""Seconds that a new call waits for calls in flight on budgets that are no longer those of its line."""
LOOK = 0.02
"""Seconds between two looks whether they have ended."""
MOST_SESSIONS = 2_000
"""Sessions in memory; of those that are over, the oldest are forgotten first. A store still has them."""


class Line:
    """One holder of a key. `limits` are those of each of its sessions; `budgets` are what all of them share.

    A single budget may be in memory. Wallets are kept in a store for any number of gates: this one draws what its calls
    need, the same from each of them, or nothing from any. None is inside another: a user who comes with two keys is
    bounded by his own wallet and by that of the key.
    """

    def __init__(
        self,
        name: str,
        limits: GateLimits,
        *,
        budgets: Sequence[Budget] = (),
        models: tuple[str, ...] = (),
        known: KnownAgent = UNKNOWN,
        clock: Callable[[], float] = time.monotonic,
        injected: str = "",
    ) -> None:
        self.name = name
        self.injected = injected
        """What a wind tunnel does to its calls; empty without one."""
        self.limits = limits
        self.models = models
        self.known = known
        """The program that uses it, where somebody has named it."""
        self.clock = clock
        self.stopped: str | None = None
        self.sessions: dict[str, ForeignSession] = {}
        self._most_sessions = MOST_SESSIONS
        """With this many in memory, the next new one has those forgotten that are over."""
        self._thinkers: set[str] = set()
        self._drawing = asyncio.Lock()
        self._next: Sequence[Budget] | None = None
        """Budgets that will be above its sessions as soon as nothing is in flight."""
        self._closing: set[asyncio.Task[None]] = set()
        self._hang_below(budgets)

    def _hang_below(self, budgets: Sequence[Budget]) -> None:
        self.meter: Meter | None = budgets[0].meter if budgets else None
        """What is above its sessions."""
        self._purse: WalletClient | None = None
        wallets = _list_wallets(budgets)
        if wallets:
            # Each gate has its own key: two processes never hold the same draw.
            key = f"gate:{self.name}:{secrets.token_hex(8)}"
            self._purse = WalletClient(budgets[0].store, wallets, Meter(Caps()), key=key)
            self.meter = self._purse.meter
            _foresee(self.meter, wallets)

    # --- other terms ------------------------------------------------------------------------------------------------

    def change(self, limits: GateLimits, budgets: Sequence[Budget], models: tuple[str, ...]) -> None:
        """Let other terms hold. No limit of a run that has begun is raised: the new ones are for the next runs.

        Wallets have their new limits with the next draw. Where there are others than before, what is in flight ends
        first: see `await_change`.
        """
        self.limits, self.models = limits, models
        for session in self.sessions.values():
            session.lower_limits(limits)
        new = _list_wallets(budgets)
        if _shape_of(new) != _shape_of(() if self._purse is None else self._purse.line):
            self._next = budgets
            self._move()
            return
        self._next = None
        if self._purse is not None:
            self._purse.declare(new)
            warn_near(self._purse.meter, *_least_of(new))

    async def await_change(self) -> bool:
        """Wait a while for what is in flight on budgets that have changed; False when that does not end."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SETTLE
        while self._next is not None and not self._move():
            if loop.time() >= until:
                return False
            await asyncio.sleep(LOOK)
        return True

    def _move(self) -> bool:
        """Put all sessions below the new budgets, unless something is in flight."""
        if self._next is None or self._drawing.locked() or any(one.is_flying for one in self.sessions.values()):
            return False
        for session in self.sessions.values():
            session.move_below(None)
        if self._purse is not None:
            closing = asyncio.ensure_future(self._purse.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._hang_below(self._next)
        self._next = None
        for session in self.sessions.values():
            session.move_below(self.meter)
        return True

    # --- drawing ----------------------------------------------------------------------------------------------------

    async def draw(self, amount: Amount) -> None:
        """Have room for this much in what was drawn from the wallets, if there is that much. One after the other.

        Without the lock every call that waits would ask the store by itself, again and again.
        """
        if self._purse is not None:
            async with self._drawing:
                await self._purse.draw(None, amount, amount)  # type: ignore[arg-type] # of no run in particular

    async def draw_for_reply(self, amount: Amount) -> None:
        """The same for a reply that has outgrown its reservation: not behind calls that have yet to begin.

        It waits for what others have in flight, but not for long: their replies may wait for this one.
        """
        purse = self._purse
        if purse is None:
            return
        until = asyncio.get_running_loop().time() + REPLY_PATIENCE
        while True:
            await purse.draw(None, amount, amount, patient=False)  # type: ignore[arg-type] # as above
            if has_room(purse.meter, amount) or asyncio.get_running_loop().time() >= until:
                return
            await asyncio.sleep(REPLY_PATIENCE / 40)

    async def close(self) -> None:
        """Settle what was drawn: what is used is used, the rest is free for others."""
        await asyncio.gather(*self._closing)
        if self._purse is not None:
            await self._purse.close()

    def has_hidden_output(self, model: str) -> bool:
        """True for a model that was billed for reasoning which its stream did not show."""
        return model in self._thinkers

    def note_hidden_output(self, model: str) -> None:
        """Remember such a model; few enough that nobody fills the memory with names."""
        if len(self._thinkers) < MOST_MODELS:
            self._thinkers.add(model)

    def open_session(self, identity: str, known: KnownAgent = UNKNOWN) -> ForeignSession:
        """The session of this name, new where there is none."""
        session = self.sessions.get(identity)
        if session is None:
            self._forget_oldest()
            session = ForeignSession(identity, self.limits, self.meter, clock=self.clock, injected=self.injected)
            self.sessions[identity] = session
        if session.known is UNKNOWN:
            session.known = known if self.known is UNKNOWN else self.known
        return session

    def allows_model(self, model: str) -> bool:
        """True when this key may use a model."""
        return not self.models or any(fnmatchcase(model, one) for one in self.models)

    def release_idle(self) -> None:
        """Give back what is kept for agents that have not called for a long time."""
        now = self.clock()
        for session in self.sessions.values():
            for agent in session.live_agents():
                if not agent.in_flight and now - agent.last_spoken > IDLE:
                    give_back_landing(agent)

    @property
    def is_idle(self) -> bool:
        """True when none of its agents is at work or keeps something for its landing."""
        return all(session.is_over for session in self.sessions.values())

    def _forget_oldest(self) -> None:
        if len(self.sessions) < self._most_sessions:
            return
        self.release_idle()
        over = [one.id for one in self.sessions.values() if one.is_over]
        excess, some = len(self.sessions) - MOST_SESSIONS, MOST_SESSIONS // 10
        for identity in over[: excess + some]:
            self.sessions.pop(identity).forget_records()
        # Where nearly all are at work, not every new one looks through all of them.
        self._most_sessions = max(MOST_SESSIONS, len(self.sessions) + some)


def _list_wallets(budgets: Sequence[Budget]) -> tuple[WalletTerms, ...]:
    """The wallets of these budgets, each once."""
    return tuple({one.name: one for budget in budgets for one in budget.line}.values())


def _shape_of(wallets: Sequence[WalletTerms]) -> list[tuple[object, ...]]:
    """All that cannot change below a hold: which wallets there are, and what they limit."""
    return sorted([(one.name, one.per or "", one.max_tokens is None, one.max_money is None) for one in wallets])


def _least_of(wallets: Sequence[WalletTerms]) -> tuple[int | None, int | None]:
    """The smallest limits among these wallets, in tokens and in money."""
    tokens = min([one.max_tokens for one in wallets if one.max_tokens is not None], default=None)
    return tokens, min([one.max_money for one in wallets if one.max_money is not None], default=None)


def _foresee(root: Meter, wallets: Sequence[WalletTerms]) -> None:
    """Have a meter know about how much can be drawn before anything was, and say when little of it is left."""
    tokens, money = _least_of(wallets)
    root.ahead_tokens, root.ahead_money = tokens or 0, money or 0
    warn_near(root, tokens, money)


class LineBook:
    """Finds the line of a request: the key that let it in, and the tenant and the user that its path names below that.

    `limits` are those of every run. `tenants` and `users` have limits of their own, by name, whichever key they come
    with; `windows` say which window the wallet of this name is a share of. All are wallets in the `store`; without one
    they are gone with the gate. Names in a path choose only below the node of the key.
    """

    def __init__(
        self,
        limits: GateLimits,
        *,
        store: Any = None,
        tenants: Mapping[str, BudgetTerms] | None = None,
        users: Mapping[str, BudgetTerms] | None = None,
        windows: Mapping[str, BudgetTerms] | None = None,
        models: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = MemoryStore() if store is None else store
        self._clock = clock
        self._lines: dict[tuple[str, str, str], Line] = {}
        self._holders: dict[tuple[str, str, str], AccessKey | None] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._set_terms(limits, tenants, users, windows, models)

    def _set_terms(
        self,
        limits: GateLimits,
        tenants: Mapping[str, BudgetTerms] | None,
        users: Mapping[str, BudgetTerms] | None,
        windows: Mapping[str, BudgetTerms] | None,
        models: tuple[str, ...],
    ) -> None:
        self._limits = limits
        self._tenants = tenants or {}
        self._users = users or {}
        self._windows = windows or {}
        self._models = models

    def change(
        self,
        limits: GateLimits,
        *,
        keys: Mapping[str, AccessKey],
        tenants: Mapping[str, BudgetTerms],
        users: Mapping[str, BudgetTerms],
        windows: Mapping[str, BudgetTerms],
        models: tuple[str, ...],
    ) -> None:
        """Let other terms hold from now on, also for the lines there are; `keys` are those that may have changed."""
        self._set_terms(limits, tenants, users, windows, models)
        for place, line in self._lines.items():
            self._holders[place] = keys.get(place[0], self._holders[place])
            line.change(limits, *self._terms_of(place))

    def find(self, request: GateRequest) -> Line:
        """The line of a request; raises `HttpError` for a name outside the key."""
        visitor: Visitor = request.key
        tenant, user = _names_in(visitor, request.line)
        place = (visitor.name, tenant, user)
        line = self._lines.get(place)
        if line is None:
            if len(self._lines) >= MOST_LINES:
                self._forget_idle()
            self._holders[place] = visitor.key
            budgets, models = self._terms_of(place)
            name = "/".join(part for part in place if part)
            line = self._lines[place] = Line(name, self._limits, budgets=budgets, models=models, clock=self._clock)
        return line

    async def close(self) -> None:
        """Settle every line."""
        await asyncio.gather(*self._closing)
        for line in self._lines.values():
            await line.close()

    def _forget_idle(self) -> None:
        """Forget the oldest lines on which nothing happens; what they drew from wallets is given back."""
        idle = [key for key, line in self._lines.items() if line.is_idle]
        for key in idle[: max(1, MOST_LINES // 10)]:
            del self._holders[key]
            closing = asyncio.ensure_future(self._lines.pop(key).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _terms_of(self, place: tuple[str, str, str]) -> tuple[Sequence[Budget], tuple[str, ...]]:
        """The budgets above a line, and the models that it may use."""
        own, (_, tenant, user) = self._holders[place], place
        found = [self._tenants.get(tenant), self._users.get(user)]  # nobody has an empty name
        if own is not None and own.wallet is not None:
            found.insert(0, BudgetTerms(own.wallet, Limits(max_cost=own.max_cost, max_tokens=own.max_tokens), own.per))
        terms = [one for one in found if one is not None]
        windows = [self._windows[one.name] for one in terms if one.name in self._windows]
        budgets = [Budget(one.limits, name=one.name, store=self._store, per=one.per) for one in [*windows, *terms]]
        return budgets, own.models if own is not None and own.models else self._models


class BudgetTerms(Value, frozen=True):
    """A budget as a configuration says it: its name, its limits, and the period after which they start again."""

    name: str
    limits: Limits
    per: str | None = None


def _names_in(visitor: Visitor, line: tuple[str, ...]) -> tuple[str, str]:
    """Tenant and user that a path names: `/tenant/user/run`, `/user/run` or `/run`."""
    *names, _ = line or ("",)
    if len(names) > MOST_NAMES:
        raise HttpError(404, "not_found_error", "a path names at most a tenant, a user and a run: /acme/ann/run-7/v1")
    user = names[-1] if names else ""
    tenant = names[0] if len(names) == MOST_NAMES else visitor.tenant or ""
    if visitor.tenant is not None and tenant != visitor.tenant:
        raise HttpError(
            403, "permission_error", f"key {visitor.name} is bound to tenant {visitor.tenant}, not to {tenant}"
        )
    return tenant, user
