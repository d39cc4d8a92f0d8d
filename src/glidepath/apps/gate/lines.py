"""Lines of budgets: what a key, its tenant and its user may spend, and the sessions that spend it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from glidepath._wire import Value
from glidepath.agent import Budget, Limits, WalletClient
from glidepath.apps.gate.governing import GateRequest
from glidepath.apps.gate.known_agents import UNKNOWN, KnownAgent
from glidepath.apps.gate.tree import ForeignSession, GateLimits, give_back_landing
from glidepath.apps.server.locks import Visitor
from glidepath.apps.server.refusals import HttpError
from glidepath.run import Amount, Caps, Meter

IDLE = 900.0
"""Seconds after which an agent that has not called is presumed gone: its landing is free for others."""
MOST_NAMES = 2
MOST_MODELS = 1_000
MOST_LINES = 10_000
"""Tenants and users in memory: a client may name as many as it likes."""
MOST_SESSIONS = 2_000
"""Sessions in memory; of those that are over, the oldest are forgotten first. A store still has them."""


class Line:
    """One holder of a key. `limits` are those of each of its sessions; `budget` is what all of them share.

    A budget that is a wallet is kept in a store for any number of gates: this one draws from it what its calls need.
    """

    def __init__(
        self,
        name: str,
        limits: GateLimits,
        *,
        budget: Budget | None = None,
        models: tuple[str, ...] = (),
        known: KnownAgent = UNKNOWN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.limits = limits
        self.models = models
        self.known = known
        """The program that uses it, where somebody has named it."""
        self.clock = clock
        self.stopped: str | None = None
        self.sessions: dict[str, ForeignSession] = {}
        self._thinkers: set[str] = set()
        self.meter: Meter | None = None if budget is None else budget.meter
        """What is above its sessions."""
        self._purse: WalletClient | None = None
        self._drawing = asyncio.Lock()
        if budget is not None and budget.line:
            # Each gate has its own key: two processes never hold the same draw.
            key = f"gate:{name}:{secrets.token_hex(8)}"
            self._purse = WalletClient(budget.store, budget.line, Meter(Caps()), key=key)
            self.meter = self._purse.meter

    async def draw(self, amount: Amount) -> None:
        """Have room for this much in what was drawn from the wallets, if there is that much. One after the other.

        Without the lock every call that waits would ask the store by itself, again and again.
        """
        if self._purse is not None:
            async with self._drawing:
                await self._purse.draw(None, amount, amount)  # type: ignore[arg-type] # of no run in particular

    async def close(self) -> None:
        """Settle what was drawn: what is used is used, the rest is free for others."""
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
            session = ForeignSession(identity, self.limits, self.meter, clock=self.clock)
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
        return not any(
            agent.started or agent.in_flight for session in self.sessions.values() for agent in session.agents.values()
        )

    def _forget_oldest(self) -> None:
        if len(self.sessions) < MOST_SESSIONS:
            return
        over = [one.id for one in self.sessions.values() if not one.live_agents()]
        for identity in over[: MOST_SESSIONS // 10]:
            self.sessions.pop(identity).forget_records()


class LineBook:
    """Finds the line of a request: the key that let it in, and the tenant and the user that its path names below that.

    `limits` are those of every run. `tenants` and `users` have limits of their own, by name; with a `store` they are
    wallets. Names in a path choose only below the node of the key.
    """

    def __init__(
        self,
        limits: GateLimits,
        *,
        store: Any = None,
        tenants: Mapping[str, BudgetTerms] | None = None,
        users: Mapping[str, BudgetTerms] | None = None,
        models: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._store = store
        self._tenants = tenants or {}
        self._users = users or {}
        self._models = models
        self._clock = clock
        self._lines: dict[tuple[str, str, str], Line] = {}
        self._budgets: dict[tuple[str, ...], Budget] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def find(self, request: GateRequest) -> Line:
        """The line of a request; raises `HttpError` for a name outside the key."""
        visitor: Visitor = request.key
        tenant, user = _names_in(visitor, request.line)
        key = (visitor.name, tenant, user)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= MOST_LINES:
                self._forget_idle()
            line = self._lines[key] = self._open(visitor, tenant, user)
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
            closing = asyncio.ensure_future(self._lines.pop(key).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _open(self, visitor: Visitor, tenant: str, user: str) -> Line:
        own = visitor.key
        terms = None
        if own is not None and own.wallet is not None:
            terms = BudgetTerms(own.wallet, Limits(max_cost=own.max_cost, max_tokens=own.max_tokens), own.per)
        budget = self._below(None, ("key", visitor.name), terms)
        budget = self._below(budget, ("tenant", visitor.name, tenant), self._tenants.get(tenant) if tenant else None)
        budget = self._below(budget, ("user", visitor.name, tenant, user), self._users.get(user) if user else None)
        models = own.models if own is not None and own.models else self._models
        name = "/".join(part for part in (visitor.name, tenant, user) if part)
        return Line(name, self._limits, budget=budget, models=models, clock=self._clock)

    def _below(self, above: Budget | None, place: tuple[str, ...], terms: BudgetTerms | None) -> Budget | None:
        """The budget of one node below another; the same for everybody who comes by the same way."""
        if terms is None:
            return above
        if place not in self._budgets:
            if self._store is None:
                self._budgets[place] = Budget(terms.limits, parent=above)
            else:
                self._budgets[place] = Budget(
                    terms.limits, name=terms.name, store=self._store, per=terms.per, parent=above
                )
        return self._budgets[place]


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
