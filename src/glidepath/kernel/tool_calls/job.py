"""One tool call on its way from what the model wrote to its one result."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from glidepath._wire import Record, replace
from glidepath.run import Admission, LostChild, PausedChild, Stopped, Why, log_error, sources_of_call, tool_breaker
from glidepath.tools import (
    CallsMade,
    Continuation,
    NeedsCalls,
    NeedsInput,
    RecordedResult,
    Tool,
    ToolContext,
    ToolResult,
    as_result,
    trim_result,
)
from glidepath.tools.binding import Bound
from glidepath.tools.picture_size import small_enough
from glidepath.values import (
    BreakerChanged,
    ChildError,
    FatalToolError,
    ResultKind,
    ToolCall,
    ToolEnded,
    ToolError,
    ToolResultMessage,
    ToolStarted,
    Unknown,
    describe_error,
    format_error,
    message_of,
    place_of,
)

if TYPE_CHECKING:
    from glidepath.run import Run

_log = logging.getLogger("glidepath")

NOT_SHOWN = (
    "The tool ran to its end, and whatever it does is done. It returned binary data that cannot be shown here; "
    "calling it again would not help."
)
UNKNOWN = ResultKind.UNKNOWN_EFFECT
MOST_KEPT = 32_000  # characters of a result at most
ALWAYS_KEPT = 200  # characters of a result that no budget takes away
SHARE = 0.35  # of what is left of window and token budget, for one batch
CHARS_PER_TOKEN = 3
ABOUT_ARGUMENTS = (
    ToolError,  # how a tool tells the model what is wrong
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
"""What a tool raises when the arguments are wrong: its breaker does not count these, the guards against loops do."""


class Job(Record, eq=False):
    """A call, its tool, and its result. `result` is set exactly once."""

    call: ToolCall
    tool: Tool | None
    bound: Bound | None = None
    context: ToolContext | None = None
    result: ToolResult | None = None
    kind: str | None = None
    fatal: str | None = None
    traceback: str | None = None
    error: BaseException | None = None
    """What its tool raised; kept until it was told of."""
    raised_at: str | None = None
    """The place where it was raised."""
    started_at: float | None = None
    took: float | None = None
    """Seconds it took, in a batch: the others may still be running."""
    begun: bool = False
    """Its task has taken its first step."""
    stop_asked: str | None = None
    """Why it was asked to stop, in words."""
    stop_why: Why = Why.UNINVITED
    """The same, for us: nobody asked it, until somebody has."""
    task: asyncio.Task[BaseException | None] | None = None
    trial: str | None = None
    """Set when the tool's breaker must be told how it ended: "call" or "probe"."""
    blamed: bool = False
    """It failed, and that is the tool's own fault."""
    waits_for: str | None = None
    """Why a person must decide first."""
    rule: str | None = None
    """The rule that has decided about it."""
    allowed: bool = False
    """A rule answers what its tool's own `requires_approval` asks."""
    suspects: tuple[str, ...] = ()
    """The untrusted sources that a plugin asks about."""
    asks: Any = None
    """A `NeedsInput` or `NeedsCalls` that it raised, or the `PendingCall` of one it had raised: what it waits for."""
    continuation: Continuation | None = None
    """What it continues with, once a person has answered."""
    made: CallsMade | None = None
    """What it continues with, once the calls it asked for are made."""
    paused: PausedChild | None = None
    """Its child, which waits for a person or continues with what was decided."""
    doubt: str | None = None
    """It had begun when the process died: what the model is told unless it gets its result now."""
    why: Unknown = Unknown.DIED
    """Why its outcome is unknown then."""
    checked: bool = False
    """The after-hooks have looked at its result already."""
    collects: str | None = None
    """The call in the background whose result it gives, once the hooks have looked at that."""
    counted: bool = False
    """It was counted before the process died."""

    # --- becoming a result ------------------------------------------------------------------------------------

    def refuse(self, kind: ResultKind, text: str) -> None:
        """It does not run, or not to its end; this is what the model is told instead."""
        if self.result is None:
            details = None
            if self.doubt is not None:
                kind, text, details = UNKNOWN, self.doubt, self.why.details()
            self.kind = kind.value
            self.result = ToolResult(text, is_error=True, details=details)

    def cancel_start(
        self, run: Run, kind: ResultKind = ResultKind.CANCELLED, reason: str = "the run is being stopped"
    ) -> None:
        """It was counted as a call and then kept from beginning: it frees its slot under the limits."""
        if self.result is None:
            if self.doubt is None:  # else it had begun before the process died
                self.uncount(run)
            self.refuse(kind, run.plan.config.texts.fill("not_started", reason=reason))

    def uncount(self, run: Run) -> None:
        """It was counted, and never began."""
        self.counted = False
        run.turn.count_call(-1)
        if self.tool is None or self.tool.counts_toward_limit:
            run.meter.return_tool_call()

    def record_return(self, value: object) -> None:
        """It returned."""
        if self.result is not None:
            return
        # Most results are a few words: nothing to clean, to encode or to shorten.
        if value.__class__ is str and 0 < len(value) <= ALWAYS_KEPT and value.isascii():
            self.result = ToolResult(value)
            return
        try:
            result = as_result(value)
        except ToolError as error:
            # No model can read it: tell the model that the tool ran, and people what to change.
            self.traceback = f"{self.call.name}: {error}"
            _log.warning("%s", self.traceback)
            self.kind, self.result = ResultKind.NOT_SHOWN.value, ToolResult(NOT_SHOWN, is_error=True)
            return
        self.kind = result.kind or ("error" if result.is_error else None)
        if isinstance(result, RecordedResult):
            self.raised_at = result.raised_at
        self.result = result

    def record_error(self, error: BaseException) -> None:
        """It raised: type and message are for the model, the traceback for people."""
        if self.result is not None:
            return
        if isinstance(error, NeedsInput) and self.tool is not None and self.tool.asks_back:
            self.waits_for, self.asks = error.reason, error
            return
        if isinstance(error, NeedsCalls) and self.tool is not None and self.tool.makes_calls:
            self.asks = error
            return
        if isinstance(error, LostChild):
            details = Unknown.CHILD_LOST.details()
            self.kind, self.result = UNKNOWN.value, ToolResult(message_of(error), is_error=True, details=details)
            return
        if isinstance(error, FatalToolError):
            self.fatal = f"{self.call.name}: {message_of(error)}"
        if not isinstance(error, ABOUT_ARGUMENTS):
            self.mark_tool_at_fault()
        self.kind = type(error).__name__
        self.error, self.raised_at = error, error.place if isinstance(error, ChildError) else place_of(error)
        self.traceback = format_error(error)
        self.result = ToolResult(describe_failure(error), is_error=True)

    def mark_tool_at_fault(self) -> None:
        """The tool is at fault: its breaker will be told."""
        self.blamed = True
        self.trial = self.trial or "call"

    def record_stop(self, run: Run, stopped: Stopped) -> None:
        """It did not finish: timed out, interrupted, or cancelled by foreign code."""
        if stopped.why is not Why.INTERRUPT and self.result is None:
            self.mark_tool_at_fault()
        context = self.context
        let_go = "task" if stopped.let_go else None if context is None else context.abandoned
        if let_go is not None:
            if context is not None:
                context.abandoned = let_go
            reason = self._explain_stop(run, stopped.why)
            run.work.abandon(self.call.id, self.call.name, let_go, reason)
            self.refuse(ResultKind.NOT_STOPPED, run.plan.config.texts.fill("not_stopped", reason=reason))
        elif stopped.why is Why.UNINVITED:
            self.refuse(ResultKind.CANCELLED_INSIDE, run.plan.config.texts.fill("cancelled_inside"))
        else:
            kind = ResultKind.TIMEOUT if stopped.why is Why.TIMEOUT else ResultKind.CANCELLED
            self.refuse(kind, run.plan.config.texts.fill("stopped", reason=self._explain_stop(run, stopped.why)))

    def _explain_stop(self, run: Run, why: Why) -> str:
        if self.stop_asked is not None:
            return self.stop_asked
        if why is Why.TIMEOUT:
            return f"no result within {self.timeout(run):g} s"
        return "the run is being stopped"

    def timeout(self, run: Run) -> float | None:
        """Seconds this call may take."""
        tool = self.tool
        return run.plan.config.tool_timeout if tool is None or tool.timeout is None else tool.timeout

    # --- the breaker of its tool; one that never failed has none ------------------------------------------------

    def ask_breaker(self, run: Run) -> None:
        """Ask whether it may run; when not, the model is told so instead of a result."""
        breaker, now = tool_breaker(self.tool), run.watch.time()
        admission = breaker.admit(now)
        if admission is Admission.REFUSED:
            texts, seconds = run.plan.config.texts, f"{breaker.wait(now):.0f}"
            text = texts.fill("breaker_open", tool=self.call.name, failures=breaker.failures, seconds=seconds)
            self.refuse(ResultKind.BREAKER_OPEN, text)
            return
        self.trial = "probe" if admission is Admission.PROBE else "call"
        if admission is Admission.PROBE:
            self._report_breaker_change(run)

    def update_breaker(self, run: Run) -> None:
        """How it ended, which the breaker must know."""
        breaker, probe = tool_breaker(self.tool), self.trial == "probe"
        if self.blamed:
            changed = breaker.record_failure(run.watch.time(), probe=probe)
        elif self.kind in (ResultKind.CANCELLED, ResultKind.ABORTED) or self.stop_asked is not None:  # not its own end
            changed = probe and breaker.record_no_answer(run.watch.time())
        else:
            changed = breaker.record_success()
        if changed:
            self._report_breaker_change(run)

    def _report_breaker_change(self, run: Run) -> None:
        state = tool_breaker(self.tool).state.value
        _log.warning("%s: the breaker of tool %s is %s", run.run_id, self.call.name, state)
        run.emit(BreakerChanged, self.call.name, state, "tool")

    # --- events -----------------------------------------------------------------------------------------------

    def announce(self, run: Run) -> None:
        """It starts."""
        self.started_at = run.watch.time()
        emit = run.voice.emit
        if emit is not None and self.made is None:  # else it is a step of a call that has started
            emit(ToolStarted, self.call.id, self.call.name, self.bound.arguments)  # type: ignore[union-attr]

    def bare_message(self, run: Run) -> ToolResultMessage:
        """The result for the journal, as soon as it is there: before the hooks, and before the batch is complete."""
        limit = None if self.tool is None else self.tool.max_result_chars
        result = trim_result(self.result, min(limit or MOST_KEPT, MOST_KEPT))  # type: ignore[arg-type]
        call, kind, origins = self.call, self.kind, self.origins(run)
        details, narration = result.details, result.narration
        return ToolResultMessage(
            call.id,
            call.name,
            result.content,
            result.is_error,
            kind,
            details,
            narration,
            origins,
            self.raised_at,
            self.rule,
        )

    def origins(self, run: Run) -> tuple[str, ...]:
        """The untrusted sources of its result: its tool, and whatever its children have read."""
        own = self.tool.origins if self.tool is not None else ()
        return sources_of_call(run, self.call.id, own) if run.work.heard else own

    def message(self, run: Run, count: int = 0) -> ToolResultMessage:
        """The result as a message, and the event that goes with it; `count` results share what is left of the budget.

        Without a count it keeps its size: it is our own words.
        """
        result: Any = self.result
        call, content = self.call, result.content
        if content.__class__ is not str or len(content) > ALWAYS_KEPT:
            result = self._fit_result(run, result, count)
            content = result.content
        tool = self.tool
        origins = self.origins(run) if run.work.heard or tool is None else tool.origins
        message = ToolResultMessage(
            call.id,
            call.name,
            content,
            result.is_error,
            self.kind,
            result.details,
            result.narration,
            origins,
            self.raised_at,
        )
        if self.rule is not None:
            message = replace(message, rule=self.rule)
        if self.error is not None:
            error, self.error = self.error, None
            if not isinstance(error, ToolError) or isinstance(error, ChildError):  # else it has words for the model
                log_error(run, f"tool {call.name!r}", error)
        emit = run.voice.emit
        if emit is not None:
            seconds = self.took
            if seconds is None:
                seconds = 0.0 if self.started_at is None else run.watch.time() - self.started_at
            emit(ToolEnded, call.id, call.name, message, seconds, self.traceback)
        return message

    def _fit_result(self, run: Run, result: ToolResult, count: int) -> ToolResult:
        """A result other than a short text, within its size."""
        plan = run.plan
        if count:  # characters that one result may have: a share of what is left in window and budget
            limit, tokens = MOST_KEPT, run.meter.room_tokens()
            left = None if plan.context_window is None else plan.context_window - run.transcript.input_tokens()
            if tokens is not None:
                left = tokens if left is None else min(left, tokens)
            if left is not None:
                limit = min(limit, max(ALWAYS_KEPT, int(left * SHARE * CHARS_PER_TOKEN) // count))
            own = self.tool.max_result_chars if self.tool is not None else None
            result = trim_result(result, limit if own is None else min(own, limit))
        if type(result.content) is tuple:
            most = (plan.config.max_image_bytes, plan.config.max_file_bytes, plan.config.max_image_bytes_per_request)
            result = replace(result, content=small_enough(result.content, *most))
        return result


def describe_failure(error: BaseException) -> str:
    """What the model is told about an exception."""
    text = message_of(error)
    if isinstance(error, ToolError) and text:
        return text[:4000]
    return describe_error(error)[:4000]
