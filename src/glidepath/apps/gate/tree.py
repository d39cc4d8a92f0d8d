"""Who spends: the sessions of foreign programs and the agents of each, with a meter of the kernel for every one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import inf
from typing import Any

from glidepath._wire import Record, Value, replace
from glidepath.agent import Limits
from glidepath.apps.gate.dialects.dialect import Notice
from glidepath.apps.gate.gate_verdicts import judge_family, judge_stop, report_verdict
from glidepath.apps.gate.known_agents import UNKNOWN, KnownAgent
from glidepath.guards import RepetitionGuard
from glidepath.run import Amount, Caps, Meter, Price, move_meters, note_limits
from glidepath.values import Usage, Verdict, share_of

WINDOW = 200_000
"""Tokens of input that a provider holds and nobody has counted."""
MOST_HELD = 10_000
MOST_BEGINNINGS = 100
NEAR_SHARE = Decimal("0.15")
"""The share of a limit at which the model is told to finish: this much is left."""
REPEATS = 3
"""How often the same calls may return the same before the gate speaks up."""


class GateLimits(Value, frozen=True, kw_only=True):
    """What one run of a foreign agent may use. None is unlimited; money is in pico-dollars."""

    tokens: int | None = None
    money: int | None = None
    calls: int | None = None
    seconds: float | None = None
    agents: int | None = None
    """Sub-agents, at any depth."""
    depth: int | None = None

    @classmethod
    def of(cls, limits: Limits | None) -> GateLimits:
        """As a program or a command line says them."""
        if limits is None:
            return cls()
        caps = limits.caps()
        return cls(
            tokens=caps.tokens,
            money=caps.money,
            calls=caps.turns,
            seconds=limits.timeout,
            agents=caps.descendants,
            depth=caps.depth,
        )

    def caps(self) -> Caps:
        """The same for a meter of the kernel."""
        return Caps(tokens=self.tokens, money=self.money, turns=self.calls, descendants=self.agents, depth=self.depth)


def warn_near(meter: Meter, tokens: int | None, money: int | None) -> None:
    """Have a meter say that little is left when this share of these limits is."""
    meter.warn_near(share_of(tokens or 0, NEAR_SHARE), share_of(money or 0, NEAR_SHARE))


class LastCall(Record, kw_only=True):
    """What the provider said of an agent's last call: the best estimate of the next one begins here."""

    at: float
    model: str
    size: int
    messages: int
    usage: Usage


class ForeignAgent:
    """One conversation of a foreign program: the main one, or that of a sub-agent."""

    __slots__ = (
        "__weakref__",
        "answer",
        "calls",
        "fixed_size",
        "guard",
        "guarded",
        "has_tools",
        "id",
        "in_flight",
        "is_broken",
        "landed",
        "landing",
        "last",
        "last_spoken",
        "meter",
        "money",
        "name",
        "notices",
        "order",
        "own_texts",
        "parent",
        "prefix",
        "record",
        "session",
        "shape",
        "started",
        "tokens",
        "waits",
    )

    def __init__(self, session: ForeignSession, identity: str, parent: ForeignAgent | None) -> None:
        self.session = session
        self.id = identity
        self.name = ""
        self.parent = parent
        above: Meter = session.meter if parent is None else parent.meter
        self.meter: Meter = Meter(Caps(), above, 0 if parent is None else above.depth + 1)
        self.started = False
        """It has its own landing set aside."""
        self.landed: Verdict | None = None
        """Why it has come down; None while it may call."""
        self.landing: Verdict | None = None
        """Why it was last brought down, by a limit or out of a loop; after a loop it may be asked something else."""
        self.answer = ""
        """With what it has landed, in the model's words; what it asks after that is answered with it again."""
        self.in_flight = 0
        self.waits = False
        """Its next call waits until another agent beside it has ended."""
        self.calls = 0
        self.tokens = 0
        self.money = 0
        self.fixed_size = 0
        """Bytes of its tools and its system prompt."""
        self.has_tools = False
        self.last: LastCall | None = None
        self.last_spoken = -inf
        self.notices: list[Notice] = []
        self.own_texts: set[str] = set()
        """Digests of the turns that we made up: they come back in the client's history."""
        self.is_broken = False
        """A reply to it broke off: its history may have a part of a turn that its provider refuses."""
        self.guard = RepetitionGuard(REPEATS, {})
        self.guarded: set[str] = set()
        """Ids of the calls that the guard has seen."""
        self.order: str | None = None
        """Why a person wants it to finish."""
        self.record: Any = None
        """What a witness keeps with it."""
        self.shape: bytes = b""
        self.prefix: bytes = b""

    @property
    def is_noticed(self) -> bool:
        """True once it was told that little is left."""
        return bool(self.notices)


class ForeignSession:
    """One run of a foreign program: everything it and its sub-agents spend is on one meter."""

    def __init__(
        self,
        identity: str,
        limits: GateLimits,
        above: Meter | None = None,
        *,
        known: KnownAgent = UNKNOWN,
        clock: Callable[[], float] = time.monotonic,
        injected: str = "",
    ) -> None:
        self.id = identity
        self.injected = injected
        """What the wind tunnel does to its calls; empty without one."""
        self.limits = limits
        self.known = known
        self.clock = clock
        # Below zero: a budget, not a run. What it holds is its agents'.
        self.meter = Meter(limits.caps(), above, -1)
        warn_near(self.meter, limits.tokens, limits.money)
        self.agents: dict[str, ForeignAgent] = {}
        self.asking = 0
        """Calls that are being admitted, and may wait for budget."""
        self.title = ""
        self.started_at = clock()
        self.deadline = inf if limits.seconds is None else self.started_at + limits.seconds
        self.stopped: str | None = None
        """Why nothing more may be called, ordered by a person."""
        self.order: str | None = None
        """Why a person wants all of it to finish."""
        self.record: Any = None
        """What a witness keeps with it."""
        self.raised: dict[str, float] | None = None
        """Limits that a person has raised, by name."""
        self.cost_is_known = True
        self.estimated = False
        self.prices: Mapping[str, Price] = {}
        self.models: set[str] = set()
        self.beginnings: dict[tuple[str, int], LastCall] = {}
        """By model and size of tools and system prompt: what the provider counted for the first call of an agent."""
        self._held: dict[str, int] = {}

    def set_limits(self, limits: GateLimits) -> None:
        """Let these limits hold from now on."""
        self.limits = limits
        self.meter.set_caps(limits.caps())
        warn_near(self.meter, limits.tokens, limits.money)
        note_limits(self.list_meters())
        self.deadline = inf if limits.seconds is None else self.started_at + limits.seconds

    def lower_limits(self, limits: GateLimits) -> None:
        """Of these limits, let those hold that are lower than its own; not where a person has raised its own."""
        lower = {}
        for name in GateLimits.__struct_fields__:
            new, own = getattr(limits, name), getattr(self.limits, name)
            if new is not None and (own is None or new < own) and name not in (self.raised or {}):
                lower[name] = new
        if lower:
            self.set_limits(replace(self.limits, **lower))

    def list_meters(self) -> list[Meter]:
        """Its own and those of its agents, each behind what is above it."""
        return [self.meter, *sorted([agent.meter for agent in self.agents.values()], key=lambda one: one.depth)]

    @property
    def is_flying(self) -> bool:
        """True while a call is on its way, or waits for budget."""
        meter = self.meter
        is_booked = meter.reserved_tokens or meter.reserved_money or meter.tree.queue
        return bool(is_booked) or any(agent.in_flight for agent in self.agents.values())

    def move_below(self, above: Meter | None) -> None:
        """Draw from another budget from now on; nothing is in flight. Each agent needs room for its landing again."""
        for agent in self.live_agents():
            give_back_landing(agent)
        move_meters(self.list_meters(), above)

    def add_agent(self, identity: str, parent: ForeignAgent | None) -> ForeignAgent:
        """A new agent of this session. One too many is down before its first call."""
        agent = ForeignAgent(self, identity, parent)
        refusal = None if parent is None else agent.meter.count_descendant()
        if refusal is not None:
            agent.landed = judge_family(refusal)
        self.agents[identity] = agent
        return agent

    def main_agent(self) -> ForeignAgent | None:
        """The agent that the others belong to: the first with tools, else the first."""
        top = [agent for agent in self.agents.values() if agent.parent is None]
        return next((agent for agent in top if agent.has_tools), top[0] if top else None)

    def count_held_tokens(self, name: str) -> int:
        """Input that only the provider sees, by its id: as long as the call that made it, else a whole window."""
        return self._held.get(name.partition(":")[2], WINDOW)

    def note_beginning(self, agent: ForeignAgent, call: LastCall) -> None:
        """The first call of an agent was counted: those that begin like it will need as much."""
        key = (call.model, agent.fixed_size)
        if key in self.beginnings or len(self.beginnings) < MOST_BEGINNINGS:
            self.beginnings[key] = call

    def note_held(self, response_id: str, tokens: int) -> None:
        """A later request may begin where this reply ended."""
        if response_id:
            if len(self._held) >= MOST_HELD:
                self._held.clear()
            self._held[response_id] = tokens

    def forget_records(self) -> None:
        """Let go of what a witness keeps with it: conversations, which the ids of calls would keep alive."""
        self.record = None
        for agent in self.agents.values():
            agent.record = None

    @property
    def is_over(self) -> bool:
        """True when none of its agents is at work, waits to be, or keeps something for its landing."""
        return not self.asking and not any(agent.started or agent.in_flight for agent in self.agents.values())

    def live_agents(self) -> list[ForeignAgent]:
        """Those that still have a way down to pay for."""
        return [agent for agent in self.agents.values() if agent.started]

    def report(self) -> dict[str, Any]:
        """What it used and how it ended, as plain data."""
        landed = next((agent.landing for agent in self.agents.values() if agent.landing), None)
        why = landed if self.stopped is None else judge_stop(self.stopped)
        return {
            "run": self.id,
            "agent": self.known.name or None,
            "title": self.title,
            "injected": self.injected or None,
            "calls": sum(agent.calls for agent in self.agents.values()),
            "tokens": sum(agent.tokens for agent in self.agents.values()),
            "cost": self.cost(),
            "limit": self.limit_figures(),
            "landed": why is not None,
            "reason": None if why is None else why.cause.reason,
            "cause": report_verdict(why),
            "estimated": self.estimated,
            "seconds": round(self.clock() - self.started_at, 3),
            "models": sorted(self.models),
            "agents": [_agent_figures(agent) for agent in self.agents.values()],
        }

    def cost(self) -> float | None:
        """Dollars; None where a price is not known."""
        return sum(agent.money for agent in self.agents.values()) / 10**12 if self.cost_is_known else None

    def limit_figures(self) -> dict[str, Any]:
        """The limits that were set."""
        limits = self.limits
        money = None if limits.money is None else limits.money / 10**12
        figures = {"tokens": limits.tokens, "usd": money, "calls": limits.calls, "seconds": limits.seconds}
        return {name: figure for name, figure in figures.items() if figure is not None}


def _agent_figures(agent: ForeignAgent) -> dict[str, Any]:
    return {
        "id": agent.id,
        "parent": None if agent.parent is None else agent.parent.id,
        "calls": agent.calls,
        "tokens": agent.tokens,
        "cost": agent.money / 10**12 if agent.session.cost_is_known else None,
        "landed": agent.landing is not None,
        "reason": None if agent.landing is None else agent.landing.cause.reason,
        "cause": report_verdict(agent.landing),
    }


_NOTHING = Amount()


def set_landing(agent: ForeignAgent, amount: Amount) -> None:
    """Keep less for the landing of an agent, or all of it gone when it is down."""
    meter = agent.meter
    kept = meter.landing_kept()
    more = Amount(amount.tokens - kept.tokens, amount.money - kept.money)
    if more.tokens or more.money:
        with meter.tree.lock:
            meter.add_landing(more)
            meter.tree.wake_head()


def trim_landing(agent: ForeignAgent, amount: Amount) -> None:
    """Keep no more for its landing than it needs by now: before its first call was counted, that was a guess."""
    kept = agent.meter.landing_kept()
    set_landing(agent, Amount(min(kept.tokens, amount.tokens), min(kept.money, amount.money)))


def give_back_landing(agent: ForeignAgent) -> None:
    """An agent is down, or gone: what was kept for its landing is free again."""
    if agent.started:
        agent.started = False
        agent.meter.give_back(agent.meter.landing_kept())
