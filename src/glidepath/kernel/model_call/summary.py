"""Making the view smaller: by a checkpoint the model writes, where that is the strategy and worth it, else without.

The call for a checkpoint is reserved and charged like any other, raced against everything that can stop a run, and does
not count as an iteration. It is tried once; whatever goes wrong with it, the context is compacted instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath.kernel.model_call.attempt import classify_broken_stream
from glidepath.kernel.model_call.booking import collect_view_source, shape_view
from glidepath.kernel.model_call.metered import MeteredCall
from glidepath.run import BreakerState, await_interruptibly
from glidepath.values import StopReason, ToolResultMessage, UserMessage, is_visible

if TYPE_CHECKING:
    from glidepath.run import Run

MOST_FUTILE = 2  # checkpoints in a row that did not help, before no more are asked for in this run
HOME, KEY = "guardrails", "checkpoint"  # where a session keeps the last one, with what the journal takes along


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
    run.transcript.set_checkpoint(strategy.restore(text, upto))
    messages, sizes, _ = collect_view_source(run)
    run.set_view(list(messages), sum(sizes))


async def summarize_view(run: Run, budget: int) -> bool:
    """Whether a checkpoint has made the view fit; none is asked for when too many have not helped."""
    if run.transcript.failed_checkpoints >= MOST_FUTILE:
        return False
    plan, strategy = run.plan, run.plan.strategy
    room = (run.transcript.view_tokens if plan.context_window is None else plan.context_window) * 3 // 4
    asked: Any = strategy
    messages, sizes = run.transcript.list_shapeable()
    request = asked.checkpoint_request(messages, sizes, budget, run.transcript.pinned, room, run.transcript.checkpoint)
    if request is None or plan.health.state is not BreakerState.CLOSED:
        return False
    if run.watch.sentry is not None:
        await run.watch.sentry.wait_until_clear(run)
    call = MeteredCall.reserve(run, request.size, request.output)
    if call is None:
        return False  # it cannot be paid: compacting costs nothing
    await call.note()
    text = await _write_summary(run, request, call)
    transcript, before = run.transcript, run.transcript.checkpoint
    transcript.set_checkpoint(asked.checkpoint_from(text, request) or before)
    helped = transcript.checkpoint is not before and shape_view(run, budget, "summarize")
    transcript.judge_checkpoint(helped=helped)
    if not helped:
        transcript.set_checkpoint(before)
        return False
    home: Any = run.guards.home
    home.setdefault(HOME, {})[KEY] = {"text": text.strip(), "upto": request.upto}
    return True


async def _write_summary(run: Run, request: Any, call: MeteredCall) -> str:
    """What the model writes; nothing when it failed, refused or was let go."""
    attempt = call.attempt
    call.ask(request.system_prompt, (UserMessage(request.prompt),))
    failed = True
    try:
        if run.watch.is_halted():
            raise run.make_interrupt()
        failed = not await _stream_summary(run, call)
    finally:
        call.settle(run.spend.pay, failed=failed)
    useless = failed or attempt.stop_reason() is StopReason.REFUSAL or not is_visible(attempt.text)
    return "" if useless else attempt.text


async def _stream_summary(run: Run, call: MeteredCall) -> bool:
    """Whether there was an answer. Raises `Touchdown` when the run is interrupted."""
    try:
        await await_interruptibly(call.stream(), run.watch)
    except BaseException as error:
        return classify_broken_stream(run, call.attempt, error, "the stream of a checkpoint") is None
    finally:
        run.watch.end_wait()
    return True
