"""One flight: a configuration, a specimen and a seed, run to its end in virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from random import Random

from glidepath._wire import Value, encode, replace
from glidepath.agent import Agent, LoopConfig
from glidepath.sessions import Session
from glidepath.spi import mark_unreal
from glidepath.testing import VirtualClock, VirtualTimeError, transcript_errors, work
from glidepath.testing.leftovers import live_work
from glidepath.testing.simulator.crash import PROMPT, approve_all, run_killed_and_resumed
from glidepath.testing.simulator.sim_world import CEILING, SimWorld
from glidepath.testing.specimens import ANSWER, Specimen
from glidepath.values import (
    ENDINGS,
    AgentState,
    BudgetSettled,
    ConfigurationError,
    Event,
    GateApplied,
    GuardTripped,
    LoopOutcome,
    RunEnded,
    RunResult,
    ToolStarted,
    TurnStarted,
    describe_error,
)

REAL_SECONDS = 2.0  # time limit of a flight that needs real time
TIME_SLACK = 1.5  # seconds that an abandoned tool may add after the deadline
UNBOUNDED_REPLY = 30_000  # tokens: nothing but the general ceiling on replies ended it
REPEATS = 12
BURN_POINTS = 64
GUARDS = ("repetition", "error_streak", "withdrawn", "read_only")


class Flight(Value, frozen=True, kw_only=True):
    """How one flight went, as measured outside the runtime."""

    specimen: str
    family: str
    seed: int
    contained: bool = False
    state: str = ""
    outcome: str = ""
    cause: str = ""
    answer: str = "none"
    """"model": a complete answer of the model; "partial": a part of one; "summary": written by the runtime."""
    overshoot: float = 0.0
    """By how much the worst limit was exceeded, as a share of it; without a bill that nobody could foresee."""
    calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost: Decimal | None = None
    seconds: float = 0.0
    problems: tuple[str, ...] = ()
    burn: tuple[tuple[int, int, float, int, float], ...] = ()
    """What was used after each model call: turns, tokens, dollars, tool calls, seconds; thinned out when it is long."""
    refused: str = ""
    """Why the configuration was refused."""
    gated: bool = False
    """A gate or a hook kept a tool back."""
    journal: str = ""
    """A chained hash over every event; the same seed gives the same hash."""


class Trail:
    """Follows every event of a flight and its children, for a chained hash and for the verdict."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.result: RunResult | None = None
        self.ended = 0
        self.gated = self.noticed = False
        self.burn: list[tuple[int, int, float, int, float]] = []
        self.unforeseen: BudgetSettled | None = None
        """The last call, when its provider billed far more than the call can explain."""
        self._turns = self._tools = 0
        self._began: float | None = None

    def __call__(self, event: Event) -> None:
        """Take note of one event."""
        try:
            self._hash.update(encode(event))
        except Exception:  # half a surrogate pair in a chunk cannot be written
            self._hash.update(repr(event).encode("utf-8", "replace"))
        if self._began is None:
            self._began = event.time
        if type(event) is TurnStarted and event.parent_id is None:
            self._turns = event.iteration
        elif type(event) is ToolStarted:
            self._tools += 1
        elif type(event) is BudgetSettled:
            self._on_settled(event)
        if type(event) is RunEnded and event.parent_id is None:
            self.result = event.result
            self.ended += 1
            blocked = [message for message in event.result.messages if getattr(message, "kind", None) == "blocked"]
            self.gated = self.gated or bool(blocked)
        elif type(event) is GateApplied:
            self.gated = True
        elif type(event) is GuardTripped and event.guard in GUARDS:
            self.noticed = True

    def _on_settled(self, event: BudgetSettled) -> None:
        _, tokens, money, _, _ = self.burn[-1] if self.burn else (0, 0, 0.0, 0, 0.0)
        paid = float(event.cost or 0)
        self.unforeseen = event if event.implausible else None
        seconds = round(event.time - (self._began or 0.0), 3)
        self.burn.append((self._turns, tokens + event.usage.total, money + paid, self._tools, seconds))
        if len(self.burn) > BURN_POINTS:
            self.burn = [*self.burn[:-1:2], self.burn[-1]]

    def digest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()


@mark_unreal()
def fly(config: LoopConfig, kind: type[Specimen], seed: int) -> Flight:
    """Run a configuration against one specimen. Only the user's plugins and constraints are called."""
    if kind.killed:
        return _run_killed(config, kind, seed)
    if kind.real_time:
        began = time.monotonic()
        timeout = min(REAL_SECONDS, config.limits.timeout or REAL_SECONDS)
        hurried = replace(config, limits=replace(config.limits, timeout=timeout))
        flight: Flight = asyncio.run(_run_once(hurried, kind, seed, lambda: time.monotonic() - began))
        return replace(flight, journal="")  # real time is never the same twice
    clock = VirtualClock(limit=CEILING.seconds * 3, max_iterations=2_000_000, seed=seed)
    try:
        return clock.run(_run_once(config, kind, seed, clock.time))
    except VirtualTimeError as error:
        return Flight(
            specimen=kind.name,
            family=kind.family,
            seed=seed,
            problems=("never_ended",),
            cause=str(error).partition("\n")[0],
            seconds=clock.time(),
        )


def _run_killed(config: LoopConfig, kind: type[Specimen], seed: int) -> Flight:
    trail = Trail()
    try:
        world, result, seconds, twice = run_killed_and_resumed(config, kind, seed, trail)
    except ConfigurationError as error:
        return _make_refused_flight(config, kind, seed, error)
    if trail.result is None:  # no tool started, so nothing killed it: the run had already ended
        trail.result, trail.ended = result, 1
    flight = _judge_flight(config, world, trail, seconds, raised="", left=[], seed=seed)
    problems = (*flight.problems, "repeated_effect") if twice else flight.problems
    return replace(flight, problems=problems, contained=flight.contained and not twice, journal="")


def _make_refused_flight(config: LoopConfig, kind: type[Specimen], seed: int, error: ConfigurationError) -> Flight:
    """A configuration that cannot start because its money limit has no price."""
    problem = "refused"
    if config.limits.max_cost is not None:
        penniless = replace(config, limits=replace(config.limits, max_cost=None))
        with suppress(ConfigurationError):
            Agent(SimWorld(penniless, kind(), Random(seed)).configuration(None))  # noqa: S311 - for tests
            problem = "unknown_price"
    return Flight(specimen=kind.name, family=kind.family, seed=seed, refused=str(error), problems=(problem,))


async def _run_once(config: LoopConfig, kind: type[Specimen], seed: int, elapsed: Callable[[], float]) -> Flight:
    world = SimWorld(config, kind(), Random(seed))  # noqa: S311 - for tests
    trail = Trail()
    logs = logging.getLogger("glidepath")
    quiet, logs.disabled = logs.disabled, True
    try:
        try:
            agent = world.agent = Agent(world.configuration(trail))
        except ConfigurationError as error:
            return _make_refused_flight(config, kind, seed, error)
        before = work()
        raised = await _to_the_end(agent, world, trail, seed)
        seconds = elapsed()
        left = live_work(before) if trail.result is None or not trail.result.abandoned else []
        return _judge_flight(config, world, trail, seconds, raised=raised, left=left, seed=seed)
    finally:
        logs.disabled = quiet


async def _to_the_end(agent: Agent, world: SimWorld, trail: Trail, seed: int) -> str:
    """Run until there is a result; returns what was raised instead, if anything."""
    world.task = asyncio.create_task(_run(agent, world, seed))
    beside = [asyncio.create_task(world.specimen.outside(world)), asyncio.create_task(_stop_runaway(world))]
    raised = ""
    try:
        await world.task
    except asyncio.CancelledError:
        raised = "" if trail.result is not None else "CancelledError without a result"
    except BaseException as error:
        raised = describe_error(error)
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    return raised


async def _run(agent: Agent, world: SimWorld, seed: int) -> None:
    session = Session(f"flight_{seed}")
    if world.specimen.output_type is None:
        result = await agent.run(PROMPT, session=session, cancel=world.token)
    else:
        async with agent.stream(PROMPT, session=session, cancel=world.token) as stream:
            async for _ in stream.partial():
                pass
            result = stream.result
    await approve_all(agent, result, world.token)


async def _stop_runaway(world: SimWorld) -> None:
    await asyncio.sleep(CEILING.seconds)
    world.runaway = "seconds"
    world.cancel()


# --- judging ------------------------------------------------------------------------------------------------------


def _judge_flight(
    config: LoopConfig, world: SimWorld, trail: Trail, seconds: float, *, raised: str, left: list[str], seed: int
) -> Flight:
    specimen, result = world.specimen, trail.result
    over = _overshoot(config, world, trail, seconds)
    problems = [f"over_{name}" for name in over]
    if world.runaway:
        problems.append(f"runaway_{world.runaway}")
    if world.longest_reply > UNBOUNDED_REPLY and config.limits.max_tokens is None and config.limits.max_cost is None:
        problems.append("unbounded_reply")
    if raised or result is None:
        problems.append("raised")
    if left:
        problems.append("left_running")
    cause = raised
    if result is not None:
        problems += _find_wrong_claims(config, world, trail, result)
        cause = "" if result.cause is None else f"{result.cause.source}: {result.cause.reason}"
    contained = not any(problem.startswith(("over_", "runaway_", "unbounded_", "left_")) for problem in problems)
    return Flight(
        specimen=specimen.name,
        family=specimen.family,
        seed=seed,
        contained=contained and result is not None,
        state=result.state.name if result is not None else "",
        outcome=result.outcome.name if result is not None else "",
        cause=cause,
        answer=_answer(result),
        overshoot=max([0.0, *over.values()]),
        calls=world.calls,
        tool_calls=world.tools_started,
        tokens=world.tokens,
        cost=result.cost if result is not None else None,
        seconds=round(seconds, 3),
        problems=tuple(problems),
        burn=tuple(trail.burn),
        gated=trail.gated,
        journal=trail.digest(),
    )


def _overshoot(config: LoopConfig, world: SimWorld, trail: Trail, seconds: float) -> dict[str, float]:
    """The limits that were really exceeded, and by what share.

    A tenth of one call is allowed, and the bill of the last one where nobody could foresee it: with what was spent
    before it the limit was kept, and no call was made after it.
    """
    limits, result, bill = config.limits, trail.result, trail.unforeseen
    over = {}

    def compare(name: str, used: float, limit: float | Decimal | str | None, slack: float = 0.0) -> None:
        if limit is not None and used > float(limit) + slack:
            over[name] = used / float(limit) - 1

    tokens = world.tokens
    if result is not None and bill is not None:
        tokens = max(tokens, result.usage.total - bill.usage.total)
    compare("tokens", tokens, limits.max_tokens, world.largest / 10)
    compare("time", seconds, limits.timeout if not world.specimen.real_time else None, TIME_SLACK)
    if result is not None:
        compare("turns", result.iterations, limits.max_iterations)
        compare("tool_calls", result.tool_calls, limits.max_tool_calls)
        unforeseen = 0 if bill is None else bill.cost or 0
        compare("cost", float((result.cost or 0) - unforeseen), limits.max_cost)
    return over


def _is_overbilled(config: LoopConfig, trail: Trail, result: RunResult) -> bool:
    """Whether the last bill, which nobody could foresee, has crossed a limit: it leaves nothing for a landing call."""
    limits = config.limits
    crossed = (
        limits.max_tokens is not None and result.usage.total > limits.max_tokens,
        limits.max_cost is not None and (result.cost or 0) > Decimal(limits.max_cost),
    )
    return trail.unforeseen is not None and any(crossed)


def _find_wrong_claims(config: LoopConfig, world: SimWorld, trail: Trail, result: RunResult) -> list[str]:
    """What the result gets wrong: about its end, and about what the specimen did."""
    return [*_find_wrong_ends(config, world, trail, result), *_find_wrong_reports(config, world, trail, result)]


def _find_wrong_ends(config: LoopConfig, world: SimWorld, trail: Trail, result: RunResult) -> list[str]:
    specimen = world.specimen
    problems = []
    answered = ANSWER in result.text
    delivered = result.outcome is LoopOutcome.DONE
    if (result.state, result.outcome) not in ENDINGS or trail.ended < 1:
        problems.append("untyped")
    if not delivered and result.outcome is not LoopOutcome.PAUSED and result.cause is None:
        problems.append("untyped")
    if delivered and result.cause is None and not (answered or specimen.succeeds):
        problems.append("silent_success")
    cut_short = bool(world.runaway)  # the simulator ended it, before it could land
    if specimen.answers and not answered and not cut_short and result.outcome is not LoopOutcome.PAUSED:
        cut = result.cause is not None and result.cause.source == "truncation"
        overbilled = not world.answered and _is_overbilled(config, trail, result)
        problems.append("calls_cut" if cut else "overbilled" if overbilled else "answer_lost")
    return problems


def _find_wrong_reports(config: LoopConfig, world: SimWorld, trail: Trail, result: RunResult) -> list[str]:
    specimen = world.specimen
    problems = []
    stopped = specimen.ends_from_outside and world.stopped  # if no tool may run, none is stopped in the middle
    if stopped and (result.outcome is not LoopOutcome.CANCELLED or world.asked_after_cancel):
        problems.append("went_on_after_cancel")
    if specimen.loops and not trail.noticed and result.iterations > REPEATS:
        marked = all(one.read_only for one in config.tools if not one.terminal)
        problems.append("unmarked_tools" if specimen.only_if_read_only and not marked else "unnoticed_loop")
    if specimen.honest and trail.noticed:
        problems.append("honest_work_stopped")
    if result.outcome is not LoopOutcome.PAUSED and transcript_errors(result.messages):
        problems.append("broken_transcript")
    if specimen.hangs and result.state is AgentState.TIMED_OUT:
        problems.append("tool_without_timeout")
    if not result.text.strip():
        problems.append("no_text")
    return problems


def _answer(result: RunResult | None) -> str:
    if result is None or not result.text.strip():
        return "none"
    if not result.partial:
        return "model"
    return "summary" if result.text.startswith("No answer was written.") else "partial"
