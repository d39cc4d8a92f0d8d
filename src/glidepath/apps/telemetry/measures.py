"""Metrics of runs: the standard ones of the GenAI conventions, and those of budgets, landings and guards.

No label has the id of a run or a session. Everything is recorded on the background thread.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakSet, finalize

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from glidepath._version import VERSION
from glidepath.apps.telemetry.background import Background
from glidepath.apps.telemetry.span_content import clean
from glidepath.values import (
    BreakerChanged,
    BudgetReserved,
    BudgetSettled,
    ContextShaped,
    GuardTripped,
    LandingStarted,
    RunEnded,
    RunPaused,
    RunStarted,
)

__all__ = ["SCHEMA_URL", "SCOPE", "Measures", "instruments_of"]

SCOPE = "glidepath"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
SECONDS = [0.01 * 2**power for power in range(14)]
AGENT_SECONDS = [0.1 * 2**power for power in range(13)]
TOKENS = [4**power for power in range(14)]
_MOST_PAUSED = 10_000
_BREAKER = {"closed": 0, "half_open": 1, "open": 2}
Labels = dict[str, Any]


class MeasuredTotals:
    """What is used, reserved and allowed right now, over all runs in flight, by agent. Read by gauges."""

    def __init__(self) -> None:
        self.backgrounds: WeakSet[Background] = WeakSet()
        self.reset()

    def reset(self) -> None:
        """Nothing is in flight: also in a forked process, where the runs in flight are the parent's."""
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.used: dict[tuple[str, str], float] = {}
        self.reserved: dict[tuple[str, str], float] = {}
        self.limit: dict[tuple[str, str], float] = {}
        self.breakers: dict[tuple[str, str], int] = {}
        self.waiting: OrderedDict[str, int] = OrderedDict()

    def add(self, which: dict[tuple[str, str], float], agent: str, dimension: str, amount: float) -> None:
        """Add to one of them."""
        key = (agent, dimension)
        with self.lock:
            which[key] = which.get(key, 0) + amount

    def observe(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        """What a gauge shows."""
        with self.lock:
            found = list(getattr(self, name).items())
        return [Observation(value, {"gen_ai.agent.name": agent, "dimension": kind}) for (agent, kind), value in found]

    def breaker_states(self, _: CallbackOptions) -> Iterable[Observation]:
        """0 is closed, 1 half open, 2 open."""
        with self.lock:
            found = list(self.breakers.items())
        return [Observation(value, {"target": target, "kind": kind}) for (target, kind), value in found]

    def approvals(self, _: CallbackOptions) -> Iterable[Observation]:
        """Calls that wait for a person, as far as this process has seen."""
        with self.lock:
            return [Observation(sum(self.waiting.values()))]

    def observe_dropped(self, _: CallbackOptions) -> Iterable[Observation]:
        """Spans that never reached their exporter."""
        return [Observation(sum(one.dropped + one.failed for one in list(self.backgrounds)))]


class Instruments:
    """Every instrument, made once for a meter provider."""

    def __init__(self, meter: Meter, totals: MeasuredTotals, *, latest: bool) -> None:
        self.totals = totals
        self.latest = latest
        counter, histogram = meter.create_counter, _histograms(meter)
        if latest:
            self.duration = histogram("gen_ai.client.inference.duration", "s", SECONDS)
            self.input = histogram("gen_ai.client.inference.operation.input_tokens", "{token}", TOKENS)
            self.output = histogram("gen_ai.client.inference.operation.output_tokens", "{token}", TOKENS)
            prefix = "gen_ai.client.inference.usage"
            self.usage = {
                kind: counter(f"{prefix}.{kind}", "{token}")
                for kind in (
                    "input_tokens",
                    "output_tokens",
                    "cache_read.input_tokens",
                    "cache_write.input_tokens",
                    "reasoning.output_tokens",
                )
            }
        else:
            self.duration = histogram("gen_ai.client.operation.duration", "s", SECONDS)
            self.tokens = histogram("gen_ai.client.token.usage", "{token}", TOKENS)
        self.agent = histogram("gen_ai.invoke_agent.duration", "s", AGENT_SECONDS)
        self.inference_calls = histogram("gen_ai.invoke_agent.inference_calls", "{call}", TOKENS)
        self.tool_calls = histogram("gen_ai.invoke_agent.tool_calls", "{call}", TOKENS)
        self.tool = histogram("gen_ai.execute_tool.duration", "s", SECONDS)
        self.runs = counter("glidepath.runs", "{run}", "Runs that ended, by outcome and cause")
        self.cost = counter("glidepath.cost", "USD", "Money spent")
        self.landings = counter("glidepath.landings", "{landing}", "Runs that landed")
        self.overshoot = counter("glidepath.overshoot", "{token}", "Tokens above a limit: must stay 0")
        self.guards = counter("glidepath.guard.trips", "{trip}", "Guards that acted")
        self.resent = counter("glidepath.context.resent", "{token}", "Tokens sent again for a smaller view")
        self.retries = counter("glidepath.retries", "{retry}", "Model calls tried again")
        gauge = meter.create_observable_gauge
        for name in ("used", "reserved", "limit"):
            gauge(f"glidepath.budget.{name}", [partial(totals.observe, name)], description=f"{name}, runs in flight")
        gauge("glidepath.breaker.state", [totals.breaker_states], description="0 closed, 1 half open, 2 open")
        gauge("glidepath.approvals.pending", [totals.approvals], "{call}", "Calls that wait for a person")
        gauge("glidepath.telemetry.dropped", [totals.observe_dropped], "{span}", "Spans that were dropped")


class _Made:
    """What was made for each provider, by its identity: one that cannot be hashed is a provider as well."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[MeasuredTotals, dict[bool, Instruments]]] = {}

    def find(self, provider: MeterProvider) -> tuple[MeasuredTotals, dict[bool, Instruments]]:
        """What was made for this provider; it is forgotten with the provider."""
        key = id(provider)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = (MeasuredTotals(), {})
            finalize(provider, self._found.pop, key, None).atexit = False
        return found


_MADE = _Made()
_MAKING = threading.Lock()


def instruments_of(provider: MeterProvider, background: Background, *, latest: bool) -> Instruments:
    """The instruments of a provider, shared by all plugins that use it: a provider asks only the first gauge of a name.

    `background` is a thread whose losses they show, too.
    """
    with _MAKING:
        totals, made = _MADE.find(provider)
        if totals.process != os.getpid():
            totals.reset()
        found = made.get(latest)
        if found is None:
            found = made[latest] = Instruments(provider.get_meter(SCOPE, VERSION, SCHEMA_URL), totals, latest=latest)
        totals.backgrounds.add(background)
        return found


def _histograms(meter: Meter) -> Callable[[str, str, list[Any]], Any]:
    def make(name: str, unit: str, buckets: list[Any]) -> Any:
        return meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=buckets)

    return make


class Measures:
    """The metrics of one run."""

    __slots__ = ("_agent", "_calls", "_limits", "_own", "_put", "_sampling", "_started", "_used", "on")

    def __init__(self, instruments: Instruments, background: Background) -> None:
        self.on = instruments
        self._put = background.put
        self._agent = ""
        self._limits: dict[str, float] = {}
        self._used = {"tokens": 0, "picodollars": 0}
        self._own = (0, 0)
        self._sampling: deque[tuple[int, int]] = deque()
        self._calls = 0
        self._started = 0.0

    def on_run_started(self, event: RunStarted) -> None:
        """Its limits count while it runs."""
        self._agent, self._started = clean(event.agent_name), event.time
        self._limits = {name: limit for name, limit in (event.limits or {}).items() if name in self._used}
        totals = self.on.totals
        for name, limit in self._limits.items():
            totals.add(totals.limit, self._agent, name, limit)
        if event.resumed:
            with totals.lock:
                totals.waiting.pop(event.run_id, None)

    def on_reserved(self, event: BudgetReserved, *, beside: bool = False) -> None:
        """Something is set aside; `beside` for a call that a server asks for, of which several may be under way."""
        amount = (event.tokens, event.picodollars or 0)
        if beside:
            self._sampling.append(amount)
            self._hold(amount)
        else:
            self._hold(amount, self._own)
            self._own = amount

    def _hold(self, amount: tuple[int, int], instead_of: tuple[int, int] = (0, 0)) -> None:
        totals = self.on.totals
        totals.add(totals.reserved, self._agent, "tokens", amount[0] - instead_of[0])
        totals.add(totals.reserved, self._agent, "picodollars", amount[1] - instead_of[1])

    def _release(self, *, beside: bool) -> None:
        if beside:
            self._hold((0, 0), self._sampling.popleft())
        else:
            self._hold((0, 0), self._own)
            self._own = (0, 0)

    def on_settled(self, event: BudgetSettled, *, beside: bool = False) -> None:
        """It is charged, and the rest is free."""
        self._release(beside=beside)
        totals, usage = self.on.totals, event.usage
        self._used["tokens"] += usage.total
        self._used["picodollars"] += event.picodollars or 0
        totals.add(totals.used, self._agent, "tokens", usage.total)
        totals.add(totals.used, self._agent, "picodollars", event.picodollars or 0)

    def record_call(
        self, model: str, provider: str, started: float, settled: BudgetSettled | None, error: str | None
    ) -> None:
        """One attempt at a model call."""
        self._calls += 1
        labels: Labels = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
        }
        self._put(partial(_record_call, self.on, labels, started, settled, error))

    def on_tool(self, name: str, seconds: float, error: str | None) -> None:
        """One tool call."""
        labels: Labels = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": clean(name)}
        if error is not None:
            labels["error.type"] = error
        self._put(partial(self.on.tool.record, seconds, labels))

    def on_landing(self, event: LandingStarted) -> None:
        """A landing."""
        self._put(partial(self.on.landings.add, 1, {"glidepath.cause.source": clean(event.source)}))

    def guard(self, event: GuardTripped) -> None:
        """A guard."""
        self._put(partial(self.on.guards.add, 1, {"guard": clean(event.guard), "action": clean(event.action)}))

    def on_shaped(self, event: ContextShaped) -> None:
        """A view was made smaller: what no cache has of it."""
        self._put(partial(self.on.resent.add, event.resent_tokens, {"strategy": clean(event.strategy)}))

    def retry(self, model: str) -> None:
        """A retry."""
        self._put(partial(self.on.retries.add, 1, {"gen_ai.request.model": model}))

    def on_breaker(self, event: BreakerChanged) -> None:
        """A breaker."""
        totals = self.on.totals
        with totals.lock:
            totals.breakers[clean(event.target), event.kind] = _BREAKER.get(event.state, 2)

    def on_paused(self, event: RunPaused) -> None:
        """Calls wait for a person."""
        totals = self.on.totals
        with totals.lock:
            totals.waiting[event.run_id] = len(event.call_ids)
            if len(totals.waiting) > _MOST_PAUSED:
                totals.waiting.popitem(last=False)

    def on_run_ended(self, event: RunEnded) -> None:
        """It has ended: nothing is used, reserved or allowed for it any more."""
        self._release(beside=False)
        while self._sampling:
            self._release(beside=True)
        totals, result = self.on.totals, event.result
        for name, used in self._used.items():
            totals.add(totals.used, self._agent, name, -used)
        for name, limit in self._limits.items():
            totals.add(totals.limit, self._agent, name, -limit)
        labels: Labels = {
            "gen_ai.agent.name": self._agent,
            "glidepath.outcome": result.outcome.value,
            "glidepath.state": result.state.value,
            "glidepath.cause.source": "" if result.cause is None else clean(result.cause.source),
        }
        used = result.usage.total  # with what its children and earlier legs have used, as the limit has it
        over = max(0, used - int(self._limits.get("tokens", used)))
        self._put(
            partial(_record_end, self.on, labels, event.time - self._started, self._calls, result.tool_calls, over)
        )
        if result.cost is not None:
            cost = self._used["picodollars"] / 1e12
            self._put(partial(self.on.cost.add, cost, {"gen_ai.agent.name": self._agent}))


def _record_call(
    on: Instruments, labels: Labels, started: float, settled: BudgetSettled | None, error: str | None
) -> None:
    ended = started if settled is None else settled.time
    on.duration.record(ended - started, labels if error is None else {**labels, "error.type": error})
    if settled is None:
        return
    usage = settled.usage
    if not on.latest:
        on.tokens.record(usage.input, {**labels, "gen_ai.token.type": "input"})
        on.tokens.record(usage.output, {**labels, "gen_ai.token.type": "output"})
        return
    on.input.record(usage.input, labels)
    on.output.record(usage.output, labels)
    figures = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    for counter, figure in zip(on.usage.values(), figures, strict=True):
        if figure:
            counter.add(figure, labels)


def _record_end(on: Instruments, labels: Labels, seconds: float, calls: int, tool_calls: int, over: int) -> None:
    agent: Labels = {"gen_ai.agent.name": labels["gen_ai.agent.name"]}
    on.runs.add(1, labels)
    on.agent.record(seconds, agent)
    on.inference_calls.record(calls, agent)
    on.tool_calls.record(tool_calls, agent)
    on.overshoot.add(over, agent)
