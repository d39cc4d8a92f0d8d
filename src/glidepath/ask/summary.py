"""Making the view smaller: by a checkpoint the model writes, where that is the strategy and worth it, else without.

The call for a checkpoint is reserved and charged like any other, raced against everything that can stop a run, and is
no iteration. It is tried once; whatever goes wrong with it, the context is compacted instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glidepath.ask.attempt import Attempt, pump
from glidepath.ask.booking import Booking, amount, booked, shape_view, source
from glidepath.ask.usage import settled
from glidepath.errors import ModelError
from glidepath.events import BudgetReserved, BudgetSettled
from glidepath.ledger import Reservation
from glidepath.messages import StopReason, ToolResultMessage, UserMessage, visible
from glidepath.resilience import BreakerState
from glidepath.run import LetGo, cleared, tether
from glidepath.spi import ModelRequest

if TYPE_CHECKING:
    from glidepath.run import Run

__all__ = ["MOST_FUTILE", "recall", "reshape"]

MOST_FUTILE = 2  # checkpoints in a row that did not help, before no more are asked for in this run
HOME, KEY = "guardrails", "checkpoint"  # where a session keeps the last one, with what the journal takes along


async def reshape(run: Run, budget: int) -> bool:
    """Give the model a view of at most `budget` tokens; False when that made nothing smaller."""
    if (
        run.plan.strategy.name == "summarize"
        and run.transcript.failed_checkpoints < MOST_FUTILE
        and await _summarized(run, budget)
    ):
        return True
    return shape_view(run, budget)


def recall(run: Run) -> None:
    """Begin with the checkpoint that an earlier run of the session has left."""
    strategy: Any = run.plan.strategy
    home = run.guards.home.get(HOME)
    left = home.get(KEY) if isinstance(home, dict) else None
    text, upto = (left.get("text"), left.get("upto")) if isinstance(left, dict) else (None, None)
    if not isinstance(text, str) or type(upto) is not int or not 0 < upto <= len(run.transcript.messages):
        return
    if upto < len(run.transcript.messages) and type(run.transcript.messages[upto]) is ToolResultMessage:
        return  # the transcript is not the one it was made from
    run.transcript.stand_in(strategy.restored(text, upto))
    messages, sizes, _ = source(run)
    run.set_view(list(messages), sum(sizes))


async def _summarized(run: Run, budget: int) -> bool:
    """Whether a checkpoint has made the view fit."""
    plan, strategy = run.plan, run.plan.strategy
    room = (run.transcript.view_tokens if plan.context_window is None else plan.context_window) * 3 // 4
    asked: Any = strategy
    messages, sizes = run.transcript.shapeable()
    brief = asked.brief(messages, sizes, budget, run.transcript.pinned, room, run.transcript.checkpoint)
    if brief is None or plan.health.state is not BreakerState.CLOSED:
        return False
    if run.watch.sentry is not None:
        await cleared(run)
    worst = amount(run, brief.size, brief.output)
    reservation = run.meter.reserve(worst.tokens, worst.money, turns=0)
    if not isinstance(reservation, Reservation):
        return False  # it cannot be paid: compacting costs nothing
    booking = booked(run, reservation, brief.size, brief.output, brief.output)
    booking.estimate = brief.size
    if run.journal is not None:
        await _noted(run, booking)
    text = await _written(run, brief, booking)
    transcript, before = run.transcript, run.transcript.checkpoint
    transcript.stand_in(asked.gist(text, brief) or before)
    helped = transcript.checkpoint is not before and shape_view(run, budget, "summarize")
    transcript.judge_checkpoint(helped=helped)
    if not helped:
        transcript.stand_in(before)
        return False
    home: Any = run.guards.home
    home.setdefault(HOME, {})[KEY] = {"text": text.strip(), "upto": brief.upto}
    return True


async def _noted(run: Run, booking: Booking) -> None:
    """With a journal: what the call may cost is on disk before it is made."""
    try:
        await run.journal.asking(booking)
    except BaseException:
        booking.reservation.cancel()
        raise


async def _written(run: Run, brief: Any, booking: Booking) -> str:
    """What the model writes; nothing when it failed, refused or was let go."""
    plan = run.plan
    request = ModelRequest(
        system_prompt=brief.system_prompt,
        messages=(UserMessage(brief.prompt),),
        max_output_tokens=brief.output,
        temperature=plan.temperature,
        extras=run.terms.extras,
        connect_timeout=plan.times.connect,
        user=run.user,
        metadata=run.metadata,
    )
    plan.health.calls += 1
    if run.voice.listening:
        money = booking.reservation.money if plan.price is not None else None
        run.emit(BudgetReserved, booking.reservation.tokens, money, brief.output)
    attempt = Attempt()
    failed = True
    try:
        if run.watch.halted():
            raise run.interrupted()
        failed = not await _streamed(run, request, attempt, booking)
    finally:
        _settle(run, attempt, booking, request, failed=failed)
    useless = failed or attempt.stop_reason() is StopReason.REFUSAL or not visible(attempt.text)
    return "" if useless else attempt.text


async def _streamed(run: Run, request: ModelRequest, attempt: Attempt, booking: Booking) -> bool:
    """Whether there was an answer. Raises `Touchdown` when the run is interrupted."""
    watch = run.watch
    quiet: Any = _Quiet(run)
    try:
        watch.scope_hit = False
        await tether(pump(quiet, run.plan.model, request, attempt, booking), watch)
    except (LetGo, asyncio.CancelledError) as stop:
        stopped = watch.stopped(stop)
        attempt.let_go()
        if stopped.let_go:
            reason = f"the stream of a checkpoint did not stop after {stopped.why}"
            run.work.abandon("", run.plan.model_name, "stream", reason)
        if stopped.why == "interrupt":
            raise run.interrupted() from None
        return attempt.cut or (attempt.end is not None and attempt.fault() is None)
    except ModelError:
        return False
    except KeyboardInterrupt:
        raise run.interrupted_by_hand() from None
    except BaseException:
        if watch.gone:
            raise
        return False
    finally:
        watch.calm()
    return True


def _settle(run: Run, attempt: Attempt, booking: Booking, request: ModelRequest, *, failed: bool) -> None:
    """Charge it to the run; what failed before its first delta is free."""
    plan, reservation = run.plan, booking.reservation
    if failed and not attempt.pulse() and not attempt.dead:
        reservation.cancel()
        return
    reported = attempt.end.usage if attempt.end is not None else None
    usage = settled(run, reported, booking, request.messages, attempt, request.system_prompt)
    money = 0 if plan.price is None else plan.price.cost(usage)
    reservation.settle(usage.input + usage.output, money)
    run.spend.pay(usage, money)
    if run.voice.listening:
        refunded = max(0, reservation.tokens - usage.total)
        run.emit(BudgetSettled, usage, money if plan.price is not None else None, refunded)


class _Quiet:
    """The run, with nobody listening: a checkpoint is not part of the answer."""

    __slots__ = ("_run",)
    chunks = listening = False
    stream = None

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def chunk_sink(self, _attempt: Attempt) -> None:
        """Nobody wants its chunks."""

    def emit(self, *_: Any) -> None:
        """Nobody hears it."""
