"""One agent of a foreign program as a run of ours: its figures, its conversation, and its state.

Nothing here writes or waits. A journal asks a run for its records, the deck and telemetry for its events, a person's
order changes its session; all of them see the same figures.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Record, Value, WireError
from glidepath.apps.gate.dialects.dialect import Notice
from glidepath.apps.gate.foreign_transcript import ForeignTranscript
from glidepath.kernel import BYTES_PER_TOKEN
from glidepath.run import Fingerprint
from glidepath.sessions import GATE, Counters, Reserved
from glidepath.tools import clean
from glidepath.values import Charge, PerRun, RunResult, Spend, StopReason, TextOrigin, Usage, Verdict, dollars

if TYPE_CHECKING:
    from glidepath.apps.gate.passage import GovernedPassage
    from glidepath.apps.gate.tree import ForeignAgent, ForeignSession
    from glidepath.kernel import CallCharge
    from glidepath.run import Meter

AHEAD = 4096
"""Tokens of output that are kept as its worst case before a reply has them: it grows without waiting for the store."""
INJECTED = " [injected: "
"""How the mark of a run in a wind tunnel begins."""
_MOST_OWN = 64
_NOTHING = Charge()


class Cover(Record):
    """What the journal has as the worst case of a call in flight."""

    input: int
    output: int
    money: int
    most: int | None
    """Tokens of output that it can have at all."""

    @property
    def size(self) -> int:
        """Bytes of a reply that it pays for."""
        return self.output * BYTES_PER_TOKEN

    @property
    def mark(self) -> float:
        """Bytes from which on there must be more of it."""
        if self.most is not None and self.output >= self.most:
            return float("inf")
        return max(1, self.output - AHEAD // 2) * BYTES_PER_TOKEN


class GateNote(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What another gate must know to continue with an agent; kept in the journal, as JSON in `PerRun.notes`."""

    line: str
    session: str
    agent: str
    parent: str | None = None
    program: str = ""
    title: str = ""
    has_tools: bool = False
    landed: Verdict | None = None
    landing: Verdict | None = None
    order: str | None = None
    notices: tuple[Notice, ...] = ()
    own: tuple[str, ...] = ()
    prefix: str = ""
    shape: str = ""
    limits: dict[str, float] | None = None
    """Those that a person has raised."""
    is_unpriced: bool = False
    injected: str = ""


def read_program(agent_name: str) -> str:
    """The program in the name that people call its run."""
    return agent_name.partition(INJECTED)[0].partition("/")[0]


def read_note(notes: object) -> GateNote | None:
    """The note in the state of a run; None when the gate has not written it, or a hook has changed it."""
    text = notes.get(GATE) if isinstance(notes, dict) else None
    if not isinstance(text, str):
        return None
    try:
        return _wire.decode(text.encode(), GateNote)  # type: ignore[no-any-return]
    except (WireError, ValueError, RecursionError):
        return None


class ForeignRun:
    """What one agent does between its first call and its last."""

    def __init__(
        self,
        agent: ForeignAgent,
        name: str,
        *,
        line: str,
        program: str,
        model: str,
        provider: str | None = None,
        parent: ForeignRun | None = None,
        call_id: str = "",
        run_id: str = "",
        started: float = 0.0,
    ) -> None:
        self.agent = agent
        self.name = name
        """Of its session in the store."""
        self.line = line
        self.program = program
        self.model = model
        self.provider = provider
        self.parent = parent
        self.call_id = call_id
        """The call of its parent that started it, where that is known."""
        self.run_id = run_id or f"run_{os.urandom(8).hex()}"
        self.started = started
        self.conversation = ForeignTranscript()
        self.accounts: dict[str, Charge] = {}
        self.iterations = 0
        self.tool_calls = 0
        self.landing_calls = 0
        self.text = ""
        self.text_origin = TextOrigin.MODEL
        self.stop_reason: StopReason | None = None
        self.landing: Verdict | None = None
        """Why its last call was a landing; None when it was an ordinary one."""
        self.stopped: str | None = None
        """Why a person has stopped it alone."""
        self.has_answered = False
        self.failure: str | None = None
        """Why its last call had no reply."""
        self.noticed = 0
        """How many of its notices are in the conversation."""
        self.passages: dict[GovernedPassage, Cover] = {}
        self.children: list[ForeignRun] = []
        self.is_open = False
        self.ended: RunResult | None = None
        self.touched = 0.0
        """When it last did something, by the clock of the gate."""
        self.writer: Any = None
        self.teller: Any = None
        self.who: Any = None
        self.position: tuple[int, bytes, int] | None = None
        """Where its journal ended: number and hash of the last commit, number of the last record."""
        if parent is not None:
            parent.children.append(self)

    @property
    def session(self) -> ForeignSession:
        """The run of the whole program."""
        return self.agent.session

    @property
    def meter(self) -> Meter:
        """What it and all below it spend: for the main agent, all of the session."""
        return self.session.meter if self.parent is None else self.agent.meter

    @property
    def agent_name(self) -> str:
        """What people call it, with a mark where a wind tunnel changes what its model says."""
        name = self.program if self.parent is None else f"{self.program}/{self.agent.id}"[:120]
        return f"{name}{INJECTED}{self.session.injected}]" if self.session.injected else name

    def __repr__(self) -> str:
        return f"<ForeignRun {self.run_id} of {self.name}>"

    # --- one call -----------------------------------------------------------------------------------------------

    def cover(self, passage: GovernedPassage, size: int = 0) -> Cover:
        """Count a call in flight at what it may cost at worst, for a reply that has this many bytes by now."""
        booking, facts = passage.booking, passage.call.facts
        booked = max(0, booking.reservation.tokens - booking.input)
        most = None if facts.max_output is None else facts.max_output * facts.copies
        output = max(booked, 2 * size // BYTES_PER_TOKEN) + AHEAD
        output = max(booked, output if most is None else min(output, most))
        price = booking.price
        money = booking.reservation.money + (0 if price is None else (output - booked) * price.output)
        found = self.passages[passage] = Cover(booking.input, output, money, most)
        return found

    def sum_reserved(self) -> Reserved | None:
        """What all calls in flight may cost at worst."""
        if not self.passages:
            return None
        covers = self.passages.values()
        given, output = sum(one.input for one in covers), sum(one.output for one in covers)
        model = clean(next(iter(self.passages)).call.facts.model)
        return Reserved(
            input=given,
            output=output,
            tokens=given + output,
            money=sum(one.money for one in covers),
            model="" if model == self.model else model,
        )

    def charge(self, model: str, charge: CallCharge) -> None:
        """Count what a call cost."""
        model = clean(model)
        before = self.accounts.get(model, _NOTHING)
        self.accounts[model] = Charge(
            calls=before.calls + 1, usage=before.usage + charge.usage, picodollars=before.picodollars + charge.money
        )

    # --- figures --------------------------------------------------------------------------------------------------

    def sum_spending(self) -> Charge:
        """What its own calls have cost."""
        return add_charges(self.accounts.values())

    def descendants(self) -> list[ForeignRun]:
        """The runs below it."""
        found = list(self.children)
        for child in self.children:
            found += child.descendants()
        return found

    def note(self) -> GateNote:
        """What another gate would have to know."""
        agent, session = self.agent, self.session
        return GateNote(
            line=self.line,
            session=session.id,
            agent=agent.id,
            parent=None if agent.parent is None else agent.parent.id,
            program=session.known.name,
            title=session.title,
            has_tools=agent.has_tools,
            landed=agent.landed,
            landing=agent.landing,
            order=agent.order or session.order,
            notices=tuple(agent.notices),
            own=tuple(sorted(agent.own_texts)[-_MOST_OWN:]),
            prefix=agent.prefix.hex(),
            shape=agent.shape.hex(),
            limits=session.raised,
            is_unpriced=not session.cost_is_known,
            injected=session.injected,
        )

    def fields(self) -> dict[str, Any]:
        """The state of the run that changes rarely, as the journal has it."""
        others = {name: one for name, one in self.accounts.items() if name != self.model}
        below: dict[str, Charge] = {}
        for run in self.descendants():
            below[run.agent_name] = add_charges([below.get(run.agent_name, _NOTHING), run.sum_spending()])
        return {
            "run_id": self.run_id,
            "per_run": PerRun(notes={GATE: _wire.encode(self.note()).decode()}),
            "landing_calls": self.landing_calls,
            "descendants": self.meter.descendants,
            "fallbacks_spent": others,
            "children_spent": below,
            "text": self.text,
        }

    def tick(self, now: float) -> Counters:
        """The figures that change with every call, as a journal's `tick`."""
        meter, own = self.meter, self.accounts.get(self.model, _NOTHING)
        usage = own.usage
        return Counters(
            elapsed=round(max(0.0, now - self.started), 6),
            iterations=self.iterations,
            tool_calls=self.tool_calls,
            turns=meter.turns,
            metered_tool_calls=meter.tool_calls,
            tokens=meter.tokens,
            picodollars=meter.money,
            next_event=1,
            stop_reason=self.stop_reason,
            last_error=self.failure is not None,
            model_calls=own.calls,
            input=usage.input,
            output=usage.output,
            cache_read=usage.cache_read,
            cache_write=usage.cache_write,
            reasoning=usage.reasoning,
            estimated=usage.estimated,
            model_picodollars=own.picodollars,
        )

    def fingerprint(self) -> Fingerprint:
        """The program, its model and its limits."""
        limits, root = self.session.limits, self.parent is None
        figures: dict[str, Any] = {
            "max_iterations": limits.calls,
            "max_tokens": limits.tokens,
            "max_cost": None if limits.money is None else dollars(limits.money),
            "timeout": limits.seconds,
            "max_depth": limits.depth,
            "max_descendants": limits.agents,
        }
        known = {name: str(figure) for name, figure in figures.items() if figure is not None and root}
        return Fingerprint(agent=self.agent_name, model=self.model, limits=known)

    def limits(self) -> dict[str, float]:
        """Its own limits, under the names that events use."""
        limits = self.session.limits
        figures = {
            "tokens": limits.tokens,
            "picodollars": limits.money,
            "turns": limits.calls,
            "seconds": limits.seconds,
        }
        return {name: figure for name, figure in figures.items() if figure is not None and self.parent is None}

    def cost(self, charge: Charge) -> Any:
        """Dollars; None where a price is not known."""
        return dollars(charge.picodollars) if self.session.cost_is_known else None

    def breakdown(self) -> tuple[Spend, ...]:
        """What each model and each child cost."""
        models = [
            Spend(kind="model", name=name, calls=one.calls, usage=one.usage, cost=self.cost(one))
            for name, one in self.accounts.items()
        ]
        children = [
            Spend(kind="child", name=run.agent_name, calls=one.calls, usage=one.usage, cost=self.cost(one))
            for run in self.children
            for one in [add_charges([run.sum_spending(), *[below.sum_spending() for below in run.descendants()]])]
        ]
        return (*models, *children)

    def summary(self, state: str) -> dict[str, Any]:
        """What a list of sessions shows."""
        result, meter = self.ended, self.meter
        spent = add_charges([self.sum_spending(), *[run.sum_spending() for run in self.descendants()]])
        cost = self.cost(spent)
        above = self.parent
        return {
            "state": state,
            "outcome": None if result is None else result.outcome.value,
            "run_id": self.run_id,
            "agent": self.agent_name,
            "model": self.model,
            "task": self.session.title[:200] if above is None else _first_text(self.conversation)[:200],
            "iterations": self.iterations,
            "messages": len(self.conversation.messages),
            "tokens": meter.tokens,
            "cost": None if cost is None else str(cost),
            "parent": None
            if above is None
            else {"session_id": above.name, "run_id": above.run_id, "call": self.name.rpartition("/")[2]},
            "kind": GATE,
        }


def _first_text(transcript: ForeignTranscript) -> str:
    said = (one.text for one in transcript.messages if one.role == "user" and not getattr(one, "internal", False))
    return next(said, "")


def add_charges(charges: Any) -> Charge:
    """All of them together."""
    calls, usage, money = 0, Usage(), 0
    for one in charges:
        calls, usage, money = calls + one.calls, usage + one.usage, money + one.picodollars
    return Charge(calls=calls, usage=usage, picodollars=money)
