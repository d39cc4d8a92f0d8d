"""What if: stored runs under other limits, prices and guards. Figures come from the journals; no model is called.

Every run is walked turn by turn. A run trips after the turn at which the next one would no longer have fit: the room
for a landing (the input of the next call, and `landing_tokens` of output) is kept free, as a real run keeps it. What a
model would have said in that landing, nobody knows; so an answer counts as lost when the turn that gave it is not
reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from glidepath import _wire
from glidepath._wire import Value, replace
from glidepath.agent import Limits, check_prices
from glidepath.guards import RepetitionGuard
from glidepath.guards.streaks import ErrorStreakGuard
from glidepath.run import Price, pico
from glidepath.sessions import Folded, each_session, is_group, read, read_journal
from glidepath.spi import Commit, SessionQuery, SessionStore, Step, ToolTraits
from glidepath.values import (
    NOT_CARRIED,
    AssistantMessage,
    Carried,
    ConfigurationError,
    LoopOutcome,
    Snapshot,
    StoreError,
    ToolResultMessage,
    Usage,
    dollars,
)

if TYPE_CHECKING:
    from glidepath.sessions import Began, Reserved

DIMENSIONS = ("max_iterations", "max_tokens", "max_cost", "timeout", "max_tool_calls")
GUARDS: Mapping[str, Any] = {"max_repeated_tool_steps": RepetitionGuard, "max_error_streak": ErrorStreakGuard}
_SHARED = tuple(name for name in DIMENSIONS if name != "timeout")  # what a session uses up; each run has its own time
_ANSWERED = (LoopOutcome.DONE, LoopOutcome.WRAPPED_UP)


Figures = Mapping[str, float]


class WhatIfMoment(Value, frozen=True, kw_only=True):
    """A run right after one of its replies: what it had used by then, its children included."""

    turns: int
    tokens: int
    money: int
    tool_calls: int
    elapsed: float
    next_input: int = 0
    """Tokens of input that the next call had; of the last one, what this call had."""
    charges: tuple[tuple[str, Usage, int], ...] = ()
    """What each model had used, and what was paid for it."""
    own_turns: int = 0
    """Turns of the run itself: what `RunResult.iterations` counts."""
    landing_calls: int = 0
    carried: Carried = NOT_CARRIED
    """The part of `turns` to `tool_calls` that earlier runs of the session have used."""


class Flown(Value, frozen=True, kw_only=True):
    """One run of a journal, reply by reply."""

    session_id: str
    run_id: str
    agent: str
    outcome: str
    answered: bool
    moments: tuple[WhatIfMoment, ...]
    steps: tuple[Any, ...] = ()
    task: str = ""
    priced: bool = True
    """False when nobody knows what the model costs: its money is 0, and says nothing."""
    copied: int = 0
    """How many of the moments a fork has copied: they were paid for in the original."""

    @property
    def is_copy(self) -> bool:
        """True when nothing in it is its own: the run is another session's."""
        return self.copied == len(self.moments)

    @property
    def tokens(self) -> int:
        """Tokens of this run, without those of earlier runs of its session."""
        return _own_figures(self.last).tokens

    @property
    def paid(self) -> int:
        """Pico-dollars that were paid for this run itself."""
        return _own_cost(self, [moment.money - moment.carried.money for moment in self.moments], len(self.moments))

    @property
    def last(self) -> WhatIfMoment:
        """The run at its end."""
        return self.moments[-1]


class Trip(Value, frozen=True, kw_only=True):
    """Where a run would have been stopped: by which limit or guard, after which of its replies."""

    by: str
    reply: int
    tokens: int
    cost: Decimal


class Forecast(Value, frozen=True, kw_only=True):
    """What would have happened to one run."""

    run: Flown
    cost: Decimal
    """What it cost by the given prices, without what a fork copied."""
    trip: Trip | None = None

    @property
    def lost(self) -> bool:
        """True if the run gave an answer that it would no longer reach."""
        return self.trip is not None and self.run.answered


# --- stored runs ---------------------------------------------------------------------------------------------------


async def flown_runs(store: SessionStore, query: SessionQuery | None = None) -> tuple[list[Flown], list[str]]:
    """Every run in the sessions that match, children inside their parents; and the sessions that cannot be read.

    The runs of one session come in the order in which they were made.
    """
    found: list[Flown] = []
    unreadable: list[str] = []
    models: dict[str, str] = {}
    async for entry in each_session(store, query or SessionQuery(), roots=False):
        agent, model = entry.summary.get("agent"), entry.summary.get("model")
        if isinstance(agent, str) and isinstance(model, str):
            models.setdefault(agent, model)
    async for entry in each_session(store, query or SessionQuery()):
        if is_group(entry):
            continue
        try:
            journal = await read_journal(store, entry.session_id)
            found += _runs(entry.session_id, journal.commits, models)
        except StoreError as error:
            unreadable.append(f"{entry.session_id}: {error}")
    return found, unreadable


def session_runs(session_id: str, commits: Iterable[Commit]) -> Iterator[Flown]:
    """Every run in one session's journal."""
    return _runs(session_id, commits, {})


def _runs(session_id: str, commits: Iterable[Commit], models: Mapping[str, str]) -> Iterator[Flown]:
    folded, commits = Folded(session_id), tuple(commits)
    moments: list[WhatIfMoment] = []
    began, first, landings, copied, last_copied = None, 0, 0, 0, _find_last_copied(commits)
    for commit in commits:
        records = read(commit)
        if began is not None and _is_new_run(records):
            yield from _make_past_runs(folded, began, moments, first, copied)
            moments, began, landings, copied = [], None, 0, 0
        count = len(folded.messages)
        folded.take(records)
        if began is None and folded.began is not None:
            began, first = folded.began, folded.fields.get("first_new", 0)
        replied = any(type(message) is AssistantMessage for message in folded.messages[count:])
        ended = folded.result.snapshot if folded.result is not None else None
        snapshot = ended or folded.snapshot
        if snapshot is None:
            continue
        latest = _moment(snapshot, folded.began.model if folded.began else "", models)
        if replied:
            moments.append(_as_of_reply(latest, latest, folded.reserved, landings))
        elif moments:
            moments[-1] = _as_of_reply(latest, moments[-1], folded.reserved, moments[-1].landing_calls)
        landings = latest.landing_calls
        copied = len(moments) if commit.number <= last_copied else copied
    if began is not None:
        yield from _make_past_runs(folded, began, moments, first, copied)


def _find_last_copied(commits: Sequence[Commit]) -> int:
    """The number of the last commit that a fork copied, with the mark of the fork."""
    marks = [
        commit.number
        for commit in commits
        for record in read(commit)
        if record.kind == "forked" and not _wire.loads(record.payload).get("kept", False)
    ]
    return max(marks, default=0)


def _as_of_reply(latest: WhatIfMoment, then: WhatIfMoment, asked: Reserved | None, landings: int) -> WhatIfMoment:
    """The run after a reply, without the call that it makes next; `landings` were made up to the reply."""
    if asked is None:
        return replace(latest, landing_calls=landings, next_input=then.next_input)
    early = latest.landing_calls == landings  # the next call is counted already: as a turn, or as one of a landing
    return replace(latest, turns=latest.turns - early, landing_calls=landings, next_input=asked.input)


def _is_new_run(records: Sequence[Any]) -> bool:
    return any(record.kind == "began" and not _wire.loads(record.payload).get("resumed", False) for record in records)


def _moment(snapshot: Snapshot, model: str, models: Mapping[str, str]) -> WhatIfMoment:
    charges = [(model, snapshot.spent.usage, snapshot.spent.picodollars)]
    charges += [(name, one.usage, one.picodollars) for name, one in snapshot.fallbacks_spent.items()]
    charges += [(models.get(name, ""), one.usage, one.picodollars) for name, one in snapshot.children_spent.items()]
    return WhatIfMoment(
        turns=snapshot.turns,
        tokens=snapshot.tokens,
        money=snapshot.picodollars,
        tool_calls=snapshot.metered_tool_calls,
        elapsed=snapshot.elapsed,
        charges=tuple(charges),
        own_turns=snapshot.iterations,
        landing_calls=snapshot.landing_calls,
        carried=snapshot.carried,
    )


def _make_past_runs(
    folded: Folded, began: Began, moments: Sequence[WhatIfMoment], first: int, copied: int
) -> Iterator[Flown]:
    if not moments:
        return
    result = folded.result
    task = next((message.text for message in folded.messages[first:] if message.role == "user"), "")
    yield Flown(
        session_id=folded.session.id,
        run_id=began.run_id,
        agent=began.agent,
        outcome="interrupted" if result is None else result.outcome.value,
        answered=result is not None and result.outcome in _ANSWERED and bool(result.text.strip()),
        moments=tuple(moments),
        steps=tuple(_steps(folded.messages[first:])),
        task=task,
        priced=bool(moments[-1].money) or (result is not None and result.cost is not None),
        copied=copied,
    )


def _steps(messages: Sequence[Any]) -> Iterator[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
    """The batches of calls with all their results, each with the number of its reply."""
    reply = 0
    for place, message in enumerate(messages):
        if type(message) is not AssistantMessage:
            continue
        reply += 1
        calls = message.tool_calls
        behind = messages[place + 1 : place + 1 + len(calls)]
        results = tuple(one for one in behind if type(one) is ToolResultMessage)
        if calls and len(results) == len(calls):
            yield reply, calls, results


# --- what would have happened --------------------------------------------------------------------------------------


def what_if(
    runs: Iterable[Flown],
    limits: Limits,
    *,
    prices: Mapping[str, Price | tuple[str, ...]] | None = None,
    guards: Mapping[str, int] | None = None,
) -> list[Forecast]:
    """What would have happened to these runs; raises `ConfigurationError` when a cost limit meets runs without a price.

    `prices` are used for the models they name, and what was paid then for all others. Limits with `scope="session"`
    bound the runs of each session together, and others each run, whatever was the case then. A run that a fork has
    only copied is left out: it is told where it was made.
    """
    if not isinstance(limits, Limits):
        raise ConfigurationError(f"limits must be Limits, not {limits!r:.80}")
    checked, guards = check_prices(prices), dict(guards or {})
    for name, value in guards.items():
        if name not in GUARDS:
            raise ConfigurationError(f"guards: {name!r:.40} cannot be tried here; use one of {', '.join(GUARDS)}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigurationError(f"guards: {name} must be a whole number of at least 1, not {value!r:.40}")
    found, sessions = [], dict[str, Figures]()
    for run in runs:
        before = sessions.get(run.session_id, {})
        fate, used = _forecast(run, limits, checked, guards, before)
        if limits.scope == "session":
            sessions[run.session_id] = {name: before.get(name, 0) + used.get(name, 0) for name in _SHARED}
        if not run.is_copy:
            found.append(fate)
    if limits.max_cost is not None and found and not any(one.cost for one in found):
        raise ConfigurationError("max_cost: no run in this store has a price: pass prices for the models it used")
    return found


def _forecast(
    run: Flown, limits: Limits, prices: Mapping[str, Price], guards: Mapping[str, int], before: Figures
) -> tuple[Forecast, Figures]:
    """What would have happened to a run, and how much of each limit it would have used."""
    moments = [_own_figures(moment) for moment in run.moments]
    costs = [_cost(moment, prices) for moment in moments]
    trips = [
        *[
            _find_first_trip(moments, costs, name, value - before.get(name, 0), limits)
            for name, value in _list_limits(limits)
        ],
        *[_find_guard_stop(run, name, value) for name, value in guards.items()],
    ]
    first = min((trip for trip in trips if trip is not None), key=lambda trip: trip[1], default=None)
    whole = dollars(_own_cost(run, costs, len(costs)))
    if first is None:
        return Forecast(run=run, cost=whole), {name: _amount_used(moments[-1], costs[-1], name) for name in _SHARED}
    by, reply = first
    if not reply:  # not even its first call would have been made
        return Forecast(run=run, cost=whole, trip=Trip(by=by, reply=0, tokens=0, cost=Decimal(0))), {}
    moment = moments[reply - 1]
    landing = moment.next_input + limits.landing_tokens
    spent = costs[reply - 1] + (costs[reply - 1] // moment.tokens if moment.tokens else 0) * landing
    used = {name: _amount_used(moment, spent, name) for name in _SHARED}
    used["max_tokens"] += landing
    used["max_iterations"] += 1
    cost = dollars(spent - costs[reply - 1] + _own_cost(run, costs, reply) if reply > run.copied else 0)
    trip = Trip(by=by, reply=reply, tokens=moment.tokens + landing, cost=cost)
    return Forecast(run=run, cost=whole, trip=trip), used


def _own_figures(moment: WhatIfMoment) -> WhatIfMoment:
    """The figures of the run alone, without those of earlier runs of its session."""
    earlier = moment.carried
    if earlier == NOT_CARRIED:
        return moment
    return replace(
        moment,
        turns=moment.turns - earlier.turns,
        tokens=moment.tokens - earlier.tokens,
        money=moment.money - earlier.money,
        tool_calls=moment.tool_calls - earlier.tool_calls,
        carried=NOT_CARRIED,
    )


def _own_cost(run: Flown, costs: Sequence[int], replies: int) -> int:
    """What a run cost up to this reply, without what a fork has copied."""
    return max(0, costs[replies - 1] - (costs[run.copied - 1] if run.copied else 0))


def _list_limits(limits: Limits) -> list[tuple[str, float]]:
    found = [(name, getattr(limits, name)) for name in DIMENSIONS]
    return [(name, _figure(name, value)) for name, value in found if value is not None]


def _figure(name: str, value: Any) -> float:
    return pico(value, field="max_cost") if name == "max_cost" else value


def _cost(moment: WhatIfMoment, prices: Mapping[str, Price]) -> int:
    """Pico-dollars: by the given prices if they name the model, else what was paid."""
    if not prices:
        return moment.money
    return sum(prices[model].cost(usage) if model in prices else paid for model, usage, paid in moment.charges)


def _find_first_trip(
    moments: Sequence[WhatIfMoment], costs: Sequence[int], name: str, limit: float, limits: Limits
) -> tuple[str, int] | None:
    """The reply after which this limit stops a run; None if it never does."""
    last = len(moments)
    for reply, (moment, cost) in enumerate(zip(moments, costs, strict=True), 1):
        if _amount_used(moment, cost, name) > limit:
            return name, reply - 1
        if reply < last and _amount_used(moment, cost, name) + _landing(moment, cost, name, limits) > limit:
            return name, reply
    return None


def _amount_used(moment: WhatIfMoment, cost: int, name: str) -> float:
    figures = {
        "max_iterations": moment.turns,
        "max_tokens": moment.tokens,
        "max_cost": cost,
        "timeout": moment.elapsed,
        "max_tool_calls": moment.tool_calls,
    }
    return figures[name]


def _landing(moment: WhatIfMoment, cost: int, name: str, limits: Limits) -> float:
    """What is kept free for the landing while there is more to do."""
    tokens = moment.next_input + limits.landing_tokens
    if name == "max_tokens":
        return tokens
    if name == "max_cost":
        return cost // moment.tokens * tokens if moment.tokens else 0
    if name == "max_iterations":
        return 1
    return limits.landing_time if name == "timeout" else 0


def _find_guard_stop(run: Flown, name: str, value: int) -> tuple[str, int] | None:
    stops = [reply for reply, action in guard_verdicts(run, name, value, {}) if action in ("withdraw", "land")]
    return (name, min(stops[0], len(run.moments))) if stops else None


def guard_verdicts(run: Flown, name: str, value: int, tools: Mapping[str, ToolTraits]) -> Iterator[tuple[int, str]]:
    """What a guard with this value would have said about a run: the number of the reply, and the action."""
    guard = GUARDS[name](value, {})
    for reply, calls, results in run.steps:
        known = [call.name for call, result in zip(calls, results, strict=True) if result.kind != "unknown_tool"]
        step = Step(calls, {name: tools.get(name, _UNMARKED) for name in known})
        verdict = guard.before(step) if guard.before is not None else None
        if verdict is None and guard.after is not None:
            verdict = guard.after(step, results)
        if verdict is not None:
            yield reply, str(verdict.action)


class _Unmarked:
    polling = False
    read_only = False


_UNMARKED = _Unmarked()


# --- every value of a limit ----------------------------------------------------------------------------------------


def count_unaffected(
    runs: Sequence[Flown],
    name: str,
    values: Sequence[Any],
    prices: Mapping[str, Price] | None = None,
    *,
    scope: str = "run",
) -> list[tuple[Any, int]]:
    """For each value of one limit: how many of the answers these runs gave would have been reached."""
    found = []
    for value in values:
        given: dict[str, Any] = {name: str(value) if name == "max_cost" else value, "scope": scope}
        fates = what_if(runs, Limits(**given), prices=prices)
        found.append((value, sum(one.trip is None and one.run.answered for one in fates)))
    return found


def choose_values(
    runs: Sequence[Flown],
    name: str,
    prices: Mapping[str, Price] | None = None,
    steps: int = 12,
    *,
    scope: str = "run",
) -> list[Any]:
    """Values of a limit worth comparing: from below the smallest run's usage to a little above the largest."""
    before = dict[str, float]()
    used = []
    for run in runs:
        needed, whole = _find_needed_limit(run, name, prices or {})
        earlier = before.get(run.session_id, 0) if scope == "session" and name in _SHARED else 0
        before[run.session_id] = earlier + whole
        used += [earlier + needed] if run.answered and not run.is_copy else []
    if not used or max(used) <= 0:
        return []
    low, high = max(min(used) / 2, max(used) / 1e4), max(used) * 1.25
    values = [low * (high / low) ** (number / (steps - 1)) for number in range(steps)]
    if name == "max_cost":  # four figures, not so many places: a run may have cost next to nothing
        return sorted({Decimal(f"{dollars(round(value)):.4g}") for value in values if round(value) > 0})
    if name == "timeout":
        return sorted({float(f"{value:.4g}") for value in values})
    return sorted({max(1, round(value)) for value in values})


def _find_needed_limit(run: Flown, name: str, prices: Mapping[str, Price]) -> tuple[float, float]:
    """The lowest value of a limit that does not stop a run, and how much of it the run used."""
    moments = [_own_figures(moment) for moment in run.moments]
    pairs = [(moment, _cost(moment, prices)) for moment in moments]
    room = [_amount_used(moment, cost, name) + _landing(moment, cost, name, Limits()) for moment, cost in pairs[:-1]]
    whole = _amount_used(*pairs[-1], name)
    return max([whole, *room]), whole
