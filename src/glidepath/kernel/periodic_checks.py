"""Constraints on a clock: asked while tools and streams are in flight, so that an emergency does not have to wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glidepath.kernel.constraint_checks import (
    Weighed,
    context_of,
    make_crash_verdict,
    note,
    record_of,
    verdict_of,
    weigh_answer,
)
from glidepath.run import IN_FLIGHT, Interrupt, Signal, await_until_cancelled
from glidepath.values import AgentState, ResourceAction, describe_error

if TYPE_CHECKING:
    from glidepath.run import Run
    from glidepath.spi import ResourceConstraint, ResourceContext

PATIENCE = 0.5  # seconds for a question that is still open at the end of the run


class PeriodicChecks:
    """Asks the constraints of one run that have `check_every`, each on its own clock, one question at a time.

    An emergency interrupts the run; a constraint that crashes or does not answer in time lands it at the next
    checkpoint and is not asked again. Everything milder is left to the checkpoint.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._timers: dict[int, asyncio.TimerHandle] = {}  # by id: whatever constraints think about being equal
        self._open: dict[asyncio.Task[Any], ResourceConstraint] = {}
        for constraint in run.plan.clocked:
            self._set_timer(constraint)

    def _set_timer(self, constraint: ResourceConstraint) -> None:
        every: Any = constraint.check_every
        self._timers[id(constraint)] = self.run.watch.loop.call_later(every, self._ask, constraint)

    def _ask(self, constraint: ResourceConstraint) -> None:
        loop = self.run.watch.loop
        context = context_of(self.run, IN_FLIGHT)
        task = loop.create_task(self._ask_constraint(constraint, context), name="glidepath-check")
        self._open[task] = constraint
        self._timers[id(constraint)] = loop.call_later(self.run.plan.config.constraint_timeout, self._on_timeout, task)
        task.add_done_callback(lambda done: self._on_answer(done, context))

    async def _ask_constraint(self, constraint: ResourceConstraint, context: ResourceContext) -> Any:
        return await await_until_cancelled(_answer(constraint, context), self._is_over)

    def _is_over(self) -> bool:
        return self.run.result is not None

    def _on_answer(self, task: asyncio.Task[Any], context: ResourceContext) -> None:
        constraint = self._open.pop(task, None)
        answer = None if task.cancelled() else task.result()
        timer = None if constraint is None else self._timers.pop(id(constraint), None)
        if constraint is None or timer is None:
            return  # too late: the run is over, or the constraint was given up
        timer.cancel()
        if isinstance(answer, BaseException):
            reason = f"{constraint.name} failed: {describe_error(answer)}"
            self._conclude(constraint, context, make_crash_verdict(self.run, constraint, reason))
            return
        try:
            found = weigh_answer(constraint, answer)
        except BaseException as error:
            found = make_crash_verdict(self.run, constraint, f"{constraint.name} failed: {describe_error(error)}")
        if self._conclude(constraint, context, found):
            self._set_timer(constraint)

    def _on_timeout(self, task: asyncio.Task[Any]) -> None:
        constraint = self._open[task]
        del self._timers[id(constraint)]
        task.cancel()
        reason = f"{constraint.name} did not answer within {self.run.plan.config.constraint_timeout} s"
        self._conclude(constraint, context_of(self.run, IN_FLIGHT), make_crash_verdict(self.run, constraint, reason))

    def _conclude(self, constraint: ResourceConstraint, context: ResourceContext, found: Weighed) -> bool:
        """Do what was found; whether to ask again."""
        run = self.run
        validation, action, state = found
        emergency = action is ResourceAction.EMERGENCY_STOP
        if not emergency and state is not AgentState.ERROR:
            return True
        note(run, record_of(constraint.name, context, action, validation))
        verdict = verdict_of(action, state, constraint.name, validation)
        if emergency:
            interrupt = Interrupt(Signal.EMERGENCY, constraint.name, validation.reason, verdict)
            run.watch.raise_interrupt(interrupt)
        elif run.descent.verdict is None:
            run.descent.land_at_next_checkpoint(verdict)
        return False

    # --- the end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Ask no more. A question that stays open although it was cancelled is listed as abandoned."""
        self.stop()
        await self.run.watch.wait_for_all(PATIENCE, list(self._open))
        for constraint in [one for task, one in self._open.items() if not task.done()]:
            reason = "the constraint did not stop when the run had ended"
            self.run.work.abandon("", constraint.name, "task", reason)

    def stop(self) -> None:
        """Stop the clocks, and ask what is still open to stop."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._open:
            task.cancel()


async def _answer(constraint: ResourceConstraint, context: ResourceContext) -> Any:
    """What a constraint says, or the error that it raised: nothing escapes its task."""
    try:
        answer: Any = constraint.validate(context)
        return await answer if hasattr(answer, "__await__") else answer
    except asyncio.CancelledError as cancelled:
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise
        return cancelled
    except BaseException as error:
        return error
