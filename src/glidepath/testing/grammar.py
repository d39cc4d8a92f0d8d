"""The legal orders of events: one small function per rule, each on the events of one leg of one run.

A leg is what one `run()` or `resume()` emits: it begins with `RunStarted` and ends with `RunEnded`. A resumed leg
continues from earlier events, so it may begin inside a turn and with results of earlier calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from glidepath.testing.plain_transcript import transcript_errors
from glidepath.values import (
    ENDINGS,
    AssistantMessage,
    AttemptDiscarded,
    Event,
    LoopOutcome,
    Message,
    MessageAdded,
    RunEnded,
    RunPaused,
    RunResult,
    RunStarted,
    StopReason,
    StreamChunk,
    StreamStarted,
    ToolEnded,
    ToolProgress,
    ToolResultMessage,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    pluralize,
)

Leg = Sequence[Event]
_CUT = (StopReason.ABORTED, StopReason.ERROR)


def grammar_errors(events: Iterable[Event]) -> list[str]:
    """Every rule these events break, run by run; empty when their order is legal."""
    errors: list[str] = []
    for run_id, legs in _runs(events).items():
        for leg in legs:
            for name, rule in RULES.items():
                errors.extend(f"run {run_id}: {name}: {error}" for error in rule(leg))
        # A resumed leg continues the numbers or restarts them; it never goes back to used ones.
        for last, first in [(before[-1].sequence, after[0].sequence) for before, after in pairwise(legs)]:
            if first not in (0, 1, last + 1):
                errors.append(f"run {run_id}: legs: a resumed leg begins at {first} after {last}")
    return errors


def _runs(events: Iterable[Event]) -> dict[str, list[list[Event]]]:
    runs: dict[str, list[list[Event]]] = {}
    for event in events:
        legs = runs.setdefault(event.run_id, [[]])
        if isinstance(event, RunStarted) and event.resumed and legs[-1]:
            legs.append([])
        legs[-1].append(event)
    return runs


# --- the frame ------------------------------------------------------------------------------------------------


def _sequence(leg: Leg) -> Iterator[str]:
    """Sequence numbers begin at 0 or 1 and rise by one, without gaps."""
    if leg[0].sequence not in (0, 1) and not _is_resumed(leg):
        yield f"begins at {leg[0].sequence}"
    for before, after in pairwise(leg):
        if after.sequence != before.sequence + 1:
            yield f"{after.sequence} ({_name(after)}) follows {before.sequence} ({_name(before)})"


def _start(leg: Leg) -> Iterator[str]:
    """The first event, and no other, is RunStarted."""
    if not isinstance(leg[0], RunStarted):
        yield f"the first event is {_name(leg[0])}"
    for event in leg[1:]:
        if isinstance(event, RunStarted):
            yield f"a second RunStarted at {event.sequence}"


def _end(leg: Leg) -> Iterator[str]:
    """The last event, and no other, is RunEnded."""
    if not isinstance(leg[-1], RunEnded):
        yield f"the last event is {_name(leg[-1])}"
    for event in leg[:-1]:
        if isinstance(event, RunEnded):
            yield f"RunEnded at {event.sequence} is not the last event"


def _ending(leg: Leg) -> Iterator[str]:
    """State and outcome are a legal pair, and a cause is missing only where none is needed."""
    result = _result(leg)
    if result is None:
        return
    if (result.state, result.outcome) not in ENDINGS:
        yield f"{result.state.name}/{result.outcome.name} is not a legal ending"
    natural = result.outcome is LoopOutcome.DONE and result.stop_reason is not StopReason.REFUSAL
    if result.cause is None and not natural and result.outcome is not LoopOutcome.PAUSED:
        yield f"{result.state.name}/{result.outcome.name} without a cause"
    if result.run_id != leg[0].run_id:
        yield f"the result belongs to run {result.run_id}"


def _pause(leg: Leg) -> Iterator[str]:
    """RunPaused is directly followed by RunEnded with PAUSED, about the same calls, and PAUSED needs RunPaused."""
    for event, following in zip(leg, [*leg[1:], None], strict=True):
        if not isinstance(event, RunPaused):
            continue
        result = following.result if isinstance(following, RunEnded) else None
        if result is None or result.outcome is not LoopOutcome.PAUSED:
            yield "RunPaused is not directly followed by RunEnded with PAUSED"
        elif set(event.call_ids) != {item.call.id for item in result.pending}:
            yield f"RunPaused names {sorted(event.call_ids)}, the result {sorted(_pending(leg))}"
    result = _result(leg)
    if result and result.outcome is LoopOutcome.PAUSED and not any(isinstance(event, RunPaused) for event in leg):
        yield "the run ended PAUSED without RunPaused"


# --- turns ----------------------------------------------------------------------------------------------------


def _turns(leg: Leg) -> Iterator[str]:
    """Turns do not overlap, end as they began, and count up by one; the first is 1."""
    open_turn: int | None = None
    last: int | None = None if _is_resumed(leg) else 0
    for event in leg:
        if isinstance(event, TurnStarted):
            if open_turn is not None:
                yield f"turn {event.iteration} started inside turn {open_turn}"
            if last is not None and event.iteration != last + 1:
                yield f"turn {event.iteration} follows turn {last}"
            open_turn = last = event.iteration
        elif isinstance(event, TurnEnded):
            unseen = open_turn is None and last is None
            if open_turn != event.iteration and not unseen:
                yield f"turn {event.iteration} ended, but turn {open_turn} is open"
            open_turn, last = None, event.iteration


def _finished_turns(leg: Leg) -> Iterator[str]:
    """A turn in which a reply was finished ends before the run does, unless the run is paused in it."""
    open_turn: int | None = None
    replied = landing = False
    for event in leg:
        if isinstance(event, TurnStarted):
            open_turn, replied = event.iteration, False
        elif isinstance(event, TurnEnded):
            open_turn = None
        elif isinstance(event, StreamStarted):
            landing = event.landing
        elif isinstance(event, MessageAdded) and not landing:
            reply = event.message if isinstance(event.message, AssistantMessage) else None
            replied = replied or (reply is not None and reply.stop_reason not in _CUT)
    result = _result(leg)
    paused = result is not None and result.outcome is LoopOutcome.PAUSED
    if open_turn is not None and replied and not paused:
        yield f"turn {open_turn} has its reply but no TurnEnded"


def _turn_results(leg: Leg) -> Iterator[str]:
    """TurnEnded carries the reply that was added, and one result for each of its calls, in source order."""
    pending = _pending(leg)
    called: list[str] | None = None
    for event in leg:
        if isinstance(event, TurnStarted):
            called = None
        elif isinstance(event, MessageAdded) and isinstance(event.message, AssistantMessage):
            called = [call.id for call in event.message.tool_calls]
        elif isinstance(event, TurnEnded):
            carried = [call.id for call in event.message.tool_calls]
            called = carried if called is None else called
            answered = [result.call_id for result in event.tool_results]
            if carried != called:
                yield f"turn {event.iteration} called {called} and ended with a reply that called {carried}"
            if answered not in (called, [call_id for call_id in called if call_id not in pending]):
                yield f"turn {event.iteration} called {called} and ended with results of {answered}"


# --- streams --------------------------------------------------------------------------------------------------


def _streams(leg: Leg) -> Iterator[str]:
    """Every attempt streams its chunks, then exactly one finished and empty chunk."""
    streaming = False
    for event in leg:
        if isinstance(event, StreamChunk):
            if not streaming:
                yield f"a chunk at {event.sequence} outside of an attempt, or after its finished chunk"
            if event.finished and event.text:
                yield f"the finished chunk at {event.sequence} has text"
            streaming = streaming and not event.finished
        elif isinstance(event, StreamStarted | AttemptDiscarded | RunEnded):
            if streaming:
                yield f"{_name(event)} at {event.sequence} before the finished chunk of the attempt"
            streaming = isinstance(event, StreamStarted)


def _discards(leg: Leg) -> Iterator[str]:
    """A discard follows the finished chunk of its attempt, once; a second attempt follows a discard."""
    attempt: int | None = None
    finished = discarded = False
    for event in leg:
        if isinstance(event, StreamStarted):
            if event.attempt > 1 and not discarded:
                yield f"attempt {event.attempt} at {event.sequence} begins, but the one before was not discarded"
            attempt, finished, discarded = event.attempt, False, False
        elif isinstance(event, StreamChunk):
            finished = finished or event.finished
        elif isinstance(event, AttemptDiscarded):
            if not finished or discarded or event.attempt != attempt:
                yield f"attempt {event.attempt} is discarded at {event.sequence}, but is not the one just finished"
            discarded = True


# --- tools ----------------------------------------------------------------------------------------------------


def _tools(leg: Leg) -> Iterator[str]:
    """A tool that started ends exactly once, and reports progress only in between."""
    running: set[str] = set()
    for event in leg:
        if isinstance(event, ToolStarted):
            if event.call_id in running:
                yield f"call {event.call_id} started twice"
            running.add(event.call_id)
        elif isinstance(event, ToolEnded):
            running.discard(event.call_id)
        elif isinstance(event, ToolProgress) and event.call_id not in running:
            yield f"call {event.call_id} reported progress while it was not running"
    for call_id in sorted(running - _pending(leg)):
        yield f"call {call_id} started and never ended"


def _tool_ends(leg: Leg) -> Iterator[str]:
    """A call ends at most once for each time a reply made it, and a call of a program (`id.number`) once."""
    made: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for event in leg:
        if isinstance(event, MessageAdded) and isinstance(event.message, AssistantMessage):
            made.update(call.id for call in event.message.tool_calls)
        elif isinstance(event, ToolEnded):
            ended[event.call_id] += 1
            program = event.call_id.rpartition(".")[0]
            by_program = not made[event.call_id] and made[program] > 0
            if ended[event.call_id] > made[event.call_id] + _is_resumed(leg) + by_program:
                often = pluralize(ended[event.call_id], "time"), pluralize(made[event.call_id], "time")
                yield f"call {event.call_id} ended {often[0]}, was made {often[1]}"
            if event.result.call_id != event.call_id:
                yield f"call {event.call_id} ended with the result of {event.result.call_id}"


def _results(leg: Leg) -> Iterator[str]:
    """Every call in the added messages has exactly one result, in source order (G6)."""
    messages = _in_order([event.message for event in leg if isinstance(event, MessageAdded)], leg)
    yield from transcript_errors(messages, _pending(leg), continued=_is_resumed(leg))


def _in_order(messages: list[Message], leg: Leg) -> list[Message]:
    """The messages, with results in source order: next to a program, later calls may end first."""
    if not any(isinstance(event, ToolEnded) and "." in event.call_id for event in leg):
        return messages
    found: list[Message] = []
    for message in messages:
        found.append(message)
        if isinstance(message, ToolResultMessage):
            at = max((place for place, one in enumerate(found) if isinstance(one, AssistantMessage)), default=-1)
            if at >= 0:
                order = [call.id for call in found[at].tool_calls]  # type: ignore[union-attr]
                found[at + 1 :] = sorted(found[at + 1 :], key=lambda one: _place(one, order))
    return found


def _place(message: Message, order: list[str]) -> int:
    call_id = message.call_id if isinstance(message, ToolResultMessage) else ""
    return order.index(call_id) if call_id in order else len(order)


_FRAME = (_sequence, _start, _end, _ending, _pause)
_INSIDE = (_turns, _finished_turns, _turn_results, _streams, _discards, _tools, _tool_ends, _results)
RULES: Mapping[str, Callable[[Leg], Iterator[str]]] = {
    rule.__name__.strip("_").replace("_", " "): rule for rule in (*_FRAME, *_INSIDE)
}
"""Every rule by its name."""


def _name(event: Event) -> str:
    return type(event).__name__


def _is_resumed(leg: Leg) -> bool:
    return isinstance(leg[0], RunStarted) and leg[0].resumed


def _result(leg: Leg) -> RunResult | None:
    return leg[-1].result if isinstance(leg[-1], RunEnded) else None


def _pending(leg: Leg) -> set[str]:
    result = _result(leg)
    paused = result is not None and result.outcome is LoopOutcome.PAUSED
    if result is None or not paused:
        return set()
    begun = {frame.call_id for item in result.pending for frame in item.path}  # a call of a child may wait inside them
    return begun.union(*[(item.call.id, item.inside) for item in result.pending])
