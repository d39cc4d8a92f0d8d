"""A transactional call: its effect and its result are committed together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.kernel.tool_calls.job import Job
from glidepath.run import Touchdown, run_uninterrupted
from glidepath.spi import INSIDE
from glidepath.values import ResultKind, ToolError

if TYPE_CHECKING:
    from glidepath.run import Run
    from glidepath.values import ToolResultMessage

DONE = (
    "The call is done, and what it changed is kept. Its result was lost when the process ended; calling it again would "
    "change it again."
)
ROLLED_BACK = "Rolled back: {why}. Nothing was changed."


async def transact(run: Run, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do the work of the current call in a transaction of the run's store, and commit it with the call's result."""
    place: Any = INSIDE.get()
    job: Job = place.work
    journal: Any = run.journal
    if journal is None:
        raise ToolError("a transactional tool needs a run that is kept in a store")
    transaction = await journal.begin_transaction(job.timeout(run))
    try:
        value = await work(transaction.connection)
        await transaction.seal()
        message = _message(run, job, value)
    except BaseException as error:
        await transaction.roll_back()
        if isinstance(error, asyncio.CancelledError) and job.context is not None and job.context.abandoned is not None:
            # Its thread may still be running, and can change nothing any more: it was stopped.
            run.work.abandon(job.call.id, job.call.name, job.context.abandoned, "its transaction was rolled back")
            job.context.abandoned = None
        raise
    try:
        # To its end, even if the call is cancelled now: half a commit is useless.
        await run_uninterrupted(_commit(journal, message, transaction, job, value))
    except Touchdown as down:  # the store failed, and the run with it
        if transaction.is_unknown:
            job.refuse(ResultKind.UNKNOWN_EFFECT, run.plan.config.texts.fill("unknown_effect"))
        else:
            job.refuse(ResultKind.CANCELLED, ROLLED_BACK.format(why=down.verdict.cause.reason))
    return value


async def _commit(journal: Any, message: ToolResultMessage, transaction: Any, job: Job, value: object) -> None:
    await journal.land(message, transaction)
    job.record_return(value)  # at once: a cancellation that came meanwhile does not undo it


def _message(run: Run, job: Job, value: object) -> ToolResultMessage:
    """The result as the journal keeps it. What hooks may still take out of it is not written before they have."""
    trial = Job(job.call, job.tool)
    trial.record_return(value)
    message = trial.bare_message(run)
    return replace(message, content=DONE, details=None) if run.hooks.after_tool_call else message
