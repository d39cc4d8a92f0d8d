"""Which model answers a call: its breaker is asked first and told afterwards, and a fallback may take over.

Nothing of this is looked at while all is well: `ask` comes here when a model's health asks for attention, when a call
has failed, and while a fallback is in use.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from glidepath.kernel.model_call.booking import find_needed_size, shape_view
from glidepath.kernel.model_call.view import drop_foreign_reasoning
from glidepath.run import MARK_EVERY, PROBE_EVERY, Admission, broke_prefix
from glidepath.spi import provider_of
from glidepath.values import (
    BreakerChanged,
    BreakerOpenError,
    ContextOverflowError,
    EmptyResponseError,
    InconsistentHistoryError,
    ModelError,
    ModelSwitched,
    RateLimitedError,
    RefusedError,
    TransientError,
    describe_error,
    pluralize,
)

if TYPE_CHECKING:
    from glidepath.run import Plan, Run


class PaidCall(Protocol):
    """A call of the model, as far as its health is concerned."""

    run: Run
    cap: int | None
    retries: int
    escalations: int
    overflowed: bool
    probing: bool
    denied: bool


_log = logging.getLogger("glidepath")

UNHEALTHY = (TransientError, RateLimitedError, EmptyResponseError)
"""What a breaker counts: the model gave no answer. Any other error is an answer."""
STAYS = (RefusedError, InconsistentHistoryError)
"""What no fallback is asked about: a refusal is respected, a malformed transcript is ours to repair."""


def admit(call: PaidCall) -> None:
    """Ask the breaker of the model in use about a call that was just counted; when it refuses, go to the next model.

    Raises `BreakerOpenError` when no model is left.
    """
    run: Run = call.run
    while True:
        plan, now = run.plan, run.watch.time()
        health = plan.health
        if not health.calls % MARK_EVERY:
            health.mark(now)
        admission = health.admit(now) if health.alert else Admission.FREE
        call.probing = admission is Admission.PROBE
        if call.probing:
            _report_breaker_change(run, plan)
        if admission is not Admission.REFUSED:
            return
        _switch_to_next_model(
            call,
            BreakerOpenError(
                f"{plan.model_name} failed {pluralize(health.failures, 'time')} in a row and is not asked; "
                f"it is tried again in {health.wait(now):.0f} s"
            ),
        )
        run.plan.health.calls += 1


def record_recovery(run: Run) -> None:
    """The current model answered although its health needed attention."""
    if run.plan.health.record_success():
        _report_breaker_change(run, run.plan)


def note_stopped_trial(call: PaidCall) -> None:
    """The call was stopped before it was known whether the model works again."""
    run: Run = call.run
    call.probing = False
    if run.plan.health.record_no_answer(run.watch.time()):
        _report_breaker_change(run, run.plan)


def take_over(call: PaidCall, error: ModelError) -> None:
    """A call failed on the current model: tell its breaker and continue with the next model, or raise the error."""
    run: Run = call.run
    plan, probe = run.plan, call.probing
    health = plan.health
    call.probing = False
    if isinstance(error, UNHEALTHY):  # a call that was denied even one retry says little about the model
        if not call.denied and health.record_failure(run.watch.time(), probe=probe):
            _report_breaker_change(run, plan)
    elif health.alert and health.record_success():
        _report_breaker_change(run, plan)
    if run.watch.interrupt is not None:
        raise run.make_interrupt() from error
    _switch_to_next_model(call, error)
    run.plan.health.calls += 1
    admit(call)


def return_to_configured_model(run: Run) -> Plan:
    """A fallback is in use: go back to the configured model when it is time to try it again."""
    now = run.watch.time()
    if run.plan.route is not None and now >= run.spend.return_at:
        home = run.plan.route.plans[0]
        wait = home.health.wait(now)
        if wait <= 0:
            _switch(run, home, "the configured model is tried again")
        else:
            run.spend.schedule_return(now + wait)
    return run.plan


def _switch_to_next_model(call: PaidCall, error: ModelError) -> None:
    """Continue with the next model that can help with this error; raises it when there is none."""
    run: Run = call.run
    plan = run.plan
    if plan.route is None or isinstance(error, STAYS):
        raise error
    others = plan.route.plans[plan.position + 1 :]
    if isinstance(error, ContextOverflowError):
        least = run.transcript.input_tokens() + plan.config.min_output_tokens
        others = tuple([other for other in others if (other.context_window or 0) > least])
    if not others:
        raise error
    if not plan.position:
        run.spend.schedule_return(run.watch.time() + PROBE_EVERY)
    _switch(run, others[0], summarize_error(error, 200))
    call.cap = run.plan.max_output_tokens
    call.retries = call.escalations = 0
    call.overflowed = call.denied = False


def _switch(run: Run, plan: Plan, reason: str) -> None:
    """Use another model of the route, because the one in use has failed or works again."""
    _log.warning("%s: from %s to %s: %s", run.run_id, run.plan.model_name, plan.model_name, reason)
    switch_plan(run, plan, reason)


def switch_plan(run: Run, plan: Plan, reason: str) -> None:
    """Use another plan from now on: its model, its prices, its window, its caps, its own account."""
    before = run.plan
    broke_prefix(run, f"another model answers ({plan.model_name})")
    run.use(plan)
    run.emit(ModelSwitched, before.model_name, plan.model_name, reason, provider_of(plan.model))
    if before.vendor is None or before.vendor != plan.vendor:
        run.transcript.note_other_vendor()
        if getattr(before.model, "compaction", None) is not None:
            from glidepath.kernel.model_call.vendor_compaction import restore_compacted

            restore_compacted(run)
        view = drop_foreign_reasoning(run.transcript.view, plan)
        if view is not run.transcript.view:
            run.set_view(view, sum([plan.size_of(message) for message in view]))
    budget = None if plan.context_window is None else find_needed_size(run, plan.context_window)
    if budget is not None:
        shape_view(run, budget)
    run.turn.drop_request()  # what it says may be for the other model only, such as a countdown


def _report_breaker_change(run: Run, plan: Plan) -> None:
    state = plan.health.state.value
    _log.warning("%s: the breaker of %s is %s", run.run_id, plan.model_name, state)
    run.emit(BreakerChanged, plan.model_name, state, "model")


def summarize_error(error: BaseException, most: int) -> str:
    """What happened, in at most this many characters."""
    text = describe_error(error)
    return text if len(text) <= most else text[: most - 3] + "..."
