"""May the run continue? The constraint chain, asked at three checkpoints of every turn, and the soft limits before it.

Nearly always this costs a few comparisons (`Run.is_clear`): the ledger keeps one flag for all limits. The chain is
walked only when something may be wrong, or when there are custom constraints to ask.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Coroutine, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias

from glidepath._wire import Record, encode, loads
from glidepath.run import (
    AFTER_MODEL,
    ASKED,
    CallScope,
    Stopped,
    Touchdown,
    Verdict,
    Why,
    await_interruptibly_within,
    check_survivable,
    dollars,
    log_error,
    recall,
    to_read,
)
from glidepath.spi import INSIDE, ResourceConstraint, ResourceContext
from glidepath.tools import clean
from glidepath.values import (
    ENDINGS,
    AgentState,
    ConstraintViolated,
    HookFailed,
    LoopOutcome,
    ResourceAction,
    ResourceValidation,
    StopCause,
    ValidationRecord,
    describe_error,
    short_repr,
)

if TYPE_CHECKING:
    from glidepath.run import Run

_log = logging.getLogger("glidepath")
_OK = ResourceValidation.ok()
MOST_WARNINGS = 1_000  # warnings of one run that are noted: a constraint may change its words at every checkpoint
_FIGURES = r"\d+(?:[.,]\d+)*"
MOST_FIGURES = 1_000  # metrics of one validation that are kept
_SCALARS = (int, float, bool, type(None), Decimal)
_ALL = object()  # all constraints hold
Chain: TypeAlias = tuple[ResourceConstraint, ...]
Weighed: TypeAlias = tuple[ResourceValidation, ResourceAction, AgentState]
_LIMITED = frozenset(state for state, outcome in ENDINGS if outcome is LoopOutcome.WRAPPED_UP) - {AgentState.COMPLETED}


async def judge(run: Run, checkpoint: str) -> None:
    """Ask the constraints. Return when the run may continue; raise `Touchdown` when it must land.

    A graceful verdict after the model spoke is kept until this turn's tools are done.
    """
    if run.watch.interrupt is not None:
        raise run.make_interrupt()
    verdict = await (_walk(run) if not run.plan.custom else _walk_inside(run))
    # The first gentle verdict stands, so that the result names what came first; a hard one overrules it.
    if verdict is not None and (run.descent.verdict is None or not verdict.gentle):
        run.descent.land_at_next_checkpoint(verdict)
    if run.descent.verdict is not None and (checkpoint is not AFTER_MODEL or not run.descent.verdict.gentle):
        raise Touchdown(run.descent.verdict)
    # The timer may be late on a busy loop, and nothing new may start after the deadline.
    if run.watch.interrupt_if_overdue():  # a deadline from above, which no constraint of this run knows
        raise run.make_interrupt()


def context_of(run: Run, checkpoint: str | None = None) -> ResourceContext:
    """What constraints see."""
    meter = run.meter
    turn = run.turn
    terms = run.terms
    config = run.plan.config
    transcript = run.transcript
    messages = transcript.shown
    if messages is None:
        messages = to_read(run, transcript.messages)
    per_run = terms.per_run
    return ResourceContext(
        checkpoint=checkpoint or turn.checkpoint,
        # Turns that are over: one that has its reply is counted, and still open.
        iteration=turn.iterations - 1 if turn.is_open and turn.reply is not None else turn.iterations,
        tokens_used=meter.tokens,
        cost=dollars(meter.money),
        elapsed=run.watch.time() - terms.started_at,
        tool_calls=meter.tool_calls,
        depth=meter.depth,
        agent_name=config.agent_name,
        agent_state=turn.state,
        last_stop_reason=turn.stop_reason,
        run_id=run.run_id,
        session_id=terms.session_id,
        conversation_id=config.conversation_id,
        user=None if per_run is None else per_run.user,
        metadata=None if per_run is None else per_run.metadata,
        left=run.remaining(),
        nearly_used_up=meter.near_budget(),
        messages=messages,
        first_new=transcript.first_new,
    )


async def _walk(run: Run) -> Verdict | None:
    """Ask the chain, built-ins first. The most severe wins, the first on ties.

    The built-ins are left out while the ledger knows that none of them can be violated.
    """
    context = context_of(run)
    meter = run.meter
    watch = run.watch
    worst: tuple[ResourceAction, AgentState, str, ResourceValidation] | None = None
    quiet = not meter.attention and watch.time() < watch.window_at and meter.turns < meter.turns_wire
    chain = run.plan.asked if quiet else run.plan.constraints
    left = iter(chain)
    answers: list[ResourceValidation | None] = []  # None: violated
    while True:
        waited: list[bool] = []
        answer = _begin(_ask_until_objection(left, context, answers, waited))
        if answer is _ALL:
            break
        waited.append(True)
        constraint = chain[len(answers)]
        validation, action, state = await _conclude(run, constraint, answer)
        if not validation.violated:
            answers.append(validation)
            continue
        answers.append(None)
        record = record_of(constraint.name, context, action, validation)
        if action is not ResourceAction.WARN_CONTINUE or _is_news(run, record):
            note(run, record)
        if worst is None or action.severity > worst[0].severity:
            worst = (action, state, constraint.name, validation)
        # Nobody else is asked: a constraint that waits for a service must not delay an emergency.
        if action is ResourceAction.EMERGENCY_STOP:
            for skipped in left:
                why = f"skipped after {constraint.name} asked for an emergency stop"
                passed = ResourceValidation(violated=False, reason=why)
                note(run, record_of(skipped.name, context, ResourceAction.ALLOW, passed, skipped=True))
            break
    if run.audit.warned:
        for name, _ in _list_holding_constraints(chain, answers):
            if name in run.audit.warned:
                run.audit.note_holding(name)
                _log.info("%s: %s: holds again", run.run_id, name)
    run.audit.record_answers((context, quiet, chain, answers))
    if worst is None or worst[0].severity < ResourceAction.GRACEFUL_EXIT.severity:
        return None
    return verdict_of(*worst)


async def _walk_inside(run: Run) -> Verdict | None:
    """The same, where constraints may start agents: those are children of the run."""
    place = CallScope(run, "validate", ASKED)
    INSIDE.set(place)
    try:
        return await _walk(run)
    finally:
        place.close()
        INSIDE.set(None)
        if run.work.spawned and not run.watch.gone:
            await recall(run, "validate")


def record_of(
    name: str, seen: ResourceContext, action: ResourceAction, validation: ResourceValidation, *, skipped: bool = False
) -> ValidationRecord:
    """What a constraint said, for the result."""
    return ValidationRecord(
        constraint=name,
        checkpoint=seen.checkpoint,
        iteration=seen.iteration,
        action=action,
        validation=validation,
        skipped=skipped,
    )


class _Begun(Record):
    """A constraint that waits for something, or raised at once."""

    work: Any = None
    waiting: Any = None
    error: BaseException | None = None


async def _ask_until_objection(
    left: Iterator[ResourceConstraint],
    context: ResourceContext,
    answers: list[ResourceValidation | None],
    waited: list[bool],
) -> Any:
    """Ask until one does not simply hold, and return what it said: `answers` has those before it. `_ALL` if they hold.

    One coroutine for all that answer at once, as nearly all do. When one waits, `waited` is no longer empty once it
    continues, and it is the last: each has its own time.
    """
    for constraint in left:
        answer: Any = constraint.validate(context)
        if answer.__class__ is CoroutineType or hasattr(answer, "__await__"):
            answer = await answer
        if waited or answer.__class__ is not ResourceValidation or answer.violated is not False:
            return answer
        answers.append(answer)
    return _ALL


def _begin(work: Coroutine[Any, Any, Any]) -> Any:
    """What the constraints said, when they did so at once; else a `_Begun`."""
    try:
        return _Begun(work, work.send(None))
    except StopIteration as answered:
        return answered.value
    except BaseException as error:
        return _Begun(error=error)


async def _conclude(run: Run, constraint: ResourceConstraint, answer: object) -> Weighed:
    """What an answer means; a constraint that cannot answer properly is violated, and the run ends in state ERROR."""
    try:
        validation = answer
        if answer.__class__ is _Begun:
            if answer.error is not None:
                raise answer.error
            validation = await await_interruptibly_within(
                answer.work, run.watch, run.plan.config.constraint_timeout, answer.waiting
            )
        return weigh_answer(constraint, validation)
    except BaseException as error:
        check_survivable(run, error)
        what = f"failed: {describe_error(error)}"
        if isinstance(error, Stopped):
            hung = f"did not answer within {run.plan.config.constraint_timeout} s"
            what = hung if error.why is Why.TIMEOUT else "cancelled itself"
        else:
            log_error(run, f"constraint {constraint.name!r}", error, "the run lands")
    return make_crash_verdict(run, constraint, f"{constraint.name} {what}")


def weigh_answer(constraint: ResourceConstraint, validation: object) -> Weighed:
    """What an answer asks for; raises for one that cannot be trusted."""
    if type(validation) is not ResourceValidation:
        raise TypeError(f"validate returned {type(validation).__name__}, not ResourceValidation")
    if validation.violated is False:
        return validation, ResourceAction.ALLOW, AgentState.RUNNING
    for field, kind in (("violated", bool), ("reason", str), ("notice", str | None)):
        value = getattr(validation, field)
        if not isinstance(value, kind):
            raise TypeError(f"validate returned a ResourceValidation whose {field} is {short_repr(value)}")
    action, state = constraint.on_violation(validation), constraint.state
    if type(action) is not ResourceAction:
        raise TypeError(f"on_violation returned {type(action).__name__}, not ResourceAction")
    if type(state) is not AgentState or state not in _LIMITED:
        raise TypeError(f"its state is {short_repr(state)}, which is not a valid end state for a limit")
    return to_plain_validation(validation), action, state


def make_crash_verdict(run: Run, constraint: ResourceConstraint, reason: str) -> Weighed:
    """A constraint that cannot answer is violated: a guard that crashes stops what it guards."""
    run.emit(HookFailed, constraint.name, "validate", reason, "the run lands")
    return ResourceValidation.violation(reason), ResourceAction.GRACEFUL_EXIT, AgentState.ERROR


def to_plain_validation(validation: ResourceValidation) -> ResourceValidation:
    """A validation as it can be kept, sent and written, whatever a constraint has put in; its figures are copied."""
    reason: Any = validation.reason
    notice: Any = validation.notice
    return ResourceValidation(
        validation.violated,
        clean(reason if isinstance(reason, str) else short_repr(reason)),
        _clean_metrics(validation.metrics),
        clean(notice) if isinstance(notice, str) else None,
    )


def _clean_metrics(metrics: Any) -> dict[str, Any]:
    try:
        items = islice(metrics.items(), MOST_FIGURES)  # its own mapping may have no end
        return {clean(key if isinstance(key, str) else short_repr(key)): _clean_metric(value) for key, value in items}
    except KeyboardInterrupt:
        raise
    except BaseException:  # no mapping at all
        return {} if metrics is None else {"metrics": clean(short_repr(metrics))}


def _clean_metric(value: object) -> Any:
    if isinstance(value, str):
        return clean(value)
    try:
        written = encode(value)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return clean(short_repr(value))
    return value if type(value) in _SCALARS else loads(written)


def _is_news(run: Run, record: ValidationRecord) -> bool:
    """Whether a warning says something new: it begins, or its words change. Different figures alone do not count."""
    said = (re.sub(_FIGURES, "#", record.validation.reason), record.validation.notice)
    if (run.audit.warned or {}).get(record.constraint) == said or run.audit.warnings >= MOST_WARNINGS:
        return False
    run.audit.warn(record.constraint, said)
    if run.audit.warnings == MOST_WARNINGS:
        _log.warning("%s: %d constraint warnings recorded; further ones are dropped", run.run_id, MOST_WARNINGS)
    return True


def _list_holding_constraints(
    chain: Chain, answers: Sequence[ResourceValidation | None]
) -> list[tuple[str, ResourceValidation]]:
    """The constraints that were asked and hold, by name."""
    asked = zip(chain, answers, strict=False)
    return [(constraint.name, answer) for constraint, answer in asked if answer is not None]


def note(run: Run, record: ValidationRecord) -> None:
    """Keep a violation or a skipped constraint for the result; tell observers, and the model what it should know."""
    run.note_violation(record)
    validation = record.validation
    if not record.skipped:
        level = logging.WARNING if record.action is ResourceAction.WARN_CONTINUE else logging.INFO
        _log.log(level, "%s: %s: %s (%s)", run.run_id, record.constraint, validation.reason, record.action.name)
    run.emit(
        ConstraintViolated,
        record.constraint,
        record.checkpoint,
        record.action,
        validation.reason,
        validation.metrics,
        record.skipped,
    )
    if validation.notice and run.descent.is_first_notice(record.constraint, validation.notice):
        run.transcript.queue_notice("constraint", record.constraint, validation.notice)


def record_verdict(run: Run, verdict: Verdict) -> None:
    """What the watchdog or the ledger enforced between two checkpoints is recorded as the chain's violations do."""
    cause = verdict.cause
    action = ResourceAction.GRACEFUL_EXIT if verdict.gentle else ResourceAction.EMERGENCY_STOP
    if cause.action == "wind_down" or not any(constraint.name == cause.source for constraint in run.plan.constraints):
        return
    if any(known.constraint == cause.source and known.action is action for known in run.audit.violations):
        return
    validation = ResourceValidation(violated=True, reason=cause.reason, metrics=cause.metrics)
    note(run, record_of(cause.source, context_of(run), action, validation))


def verdict_of(action: ResourceAction, state: AgentState, name: str, validation: ResourceValidation) -> Verdict:
    """What a violation means for the run."""
    gentle = action is ResourceAction.GRACEFUL_EXIT
    cause = StopCause(source=name, action=action.name.lower(), reason=validation.reason, metrics=validation.metrics)
    cut = LoopOutcome.CANCELLED if state is AgentState.CANCELLED and not gentle else LoopOutcome.CUT_OFF
    return Verdict(state=state, cause=cause, gentle=gentle, cut=cut)


def collect_last_validations(run: Run) -> tuple[ValidationRecord, ...]:
    """The constraints that passed at the last checkpoint. Built-ins that were not asked then are asked now."""
    fine = not run.meter.attention and not run.audit.violations  # the ledger knows without asking
    context, quiet, chain, said = run.audit.passing or (context_of(run), True, (), ())
    passing = [
        (name, answer if answer is _OK else to_plain_validation(answer))
        for name, answer in _list_holding_constraints(chain, said)
    ]
    answers: list[tuple[str, ResourceValidation]] = []
    for constraint in run.plan.metered if quiet else ():
        # The built-in ones' `validate` does nothing but call `check`.
        check = getattr(constraint, "check", None) if getattr(type(constraint).validate, "calls_check", False) else None
        validation = _OK if fine or check is None else check(context)
        if not validation.violated:
            answers.append((constraint.name, validation))
    return tuple([record_of(name, context, ResourceAction.ALLOW, answer) for name, answer in (*answers, *passing)])
