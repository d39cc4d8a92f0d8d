"""The model's view of the transcript, as plugins want it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.run import (
    HookFault,
    Opinion,
    ToRead,
    ask_until_opinion,
    broke_prefix,
    has_same_prefix,
    make_context,
    report,
    take_all,
    to_read,
)
from glidepath.spi import OverflowContext, TransformContext
from glidepath.values import AssistantMessage, Message, ReasoningBlock, codec, describe_error

if TYPE_CHECKING:
    from glidepath.run import Plan, Run

COMPACTED = "the context was compacted"
MOST_SHOWN = 1_000_000  # messages of a view that a plugin makes


def drop_foreign_reasoning(messages: list[Message], plan: Plan) -> list[Message]:
    """The messages without the reasoning items of other vendors; the same list when there are none.

    An item belongs to a model that wrote it itself, or whose vendor wrote it. A message that was nothing else is left
    out.
    """
    found = False
    own: list[Message] = []
    for message in messages:
        if type(message) is AssistantMessage and message.model != plan.model_name:
            kept = [one for one in message.blocks if type(one) is not ReasoningBlock or one.vendor == plan.vendor]
            if len(kept) != len(message.blocks):
                found = True
                if kept:
                    own.append(replace(message, blocks=tuple(kept)))
                continue
        own.append(message)
    return own if found else messages


def transform_if_needed(
    run: Run, view: Sequence[Message], tokens: int
) -> Awaitable[tuple[Sequence[Message], int]] | None:
    """Ask every context transform. None: the view does not change; else await what `transform_view` returns."""
    voices, turn, transcript = iter(run.hooks.context_transform), run.turn, run.transcript
    messages = transcript.shown if view is transcript.messages else None
    if messages is None:
        messages = to_read(run, view)
    context = turn.contexts.get(TransformContext)
    if context is None:
        plan = run.plan
        parts = {"system_prompt": plan.system_prompt, "model_id": plan.model_id, "estimator": plan.estimator}
        context = make_context(run, TransformContext, messages=messages, **parts)
    context = replace(context, iteration=turn.iterations, messages=messages)
    heard = ask_until_opinion(run, "context_transform", voices, context)
    if heard is None and view is transcript.view and not transcript.sent_view:
        transcript.record_sent_unchanged()
        return None
    return _transform_rest(run, view, tokens, voices, context, heard)


async def transform_view(run: Run, view: Sequence[Message], tokens: int) -> tuple[Sequence[Message], int]:
    """The view after every context transform, left to right, and its size; one that fails is skipped. Never kept."""
    later = transform_if_needed(run, view, tokens)
    return (view, tokens) if later is None else await later


async def _transform_rest(
    run: Run,
    view: Sequence[Message],
    tokens: int,
    voices: Iterator[Any],
    context: TransformContext,
    heard: Awaitable[Opinion | None] | None,
) -> tuple[Sequence[Message], int]:
    while heard is not None and (said := await heard) is not None:
        try:
            if said.fault is not None:
                raise said.fault
            view, tokens = _check_view(run, said.answer)
            context = replace(context, messages=ToRead(view))
        except HookFault as fault:
            report(run, "context_transform", said.name, fault, "skipped")
        heard = ask_until_opinion(run, "context_transform", voices, context)
    transcript = run.transcript
    before: Sequence[Message] = transcript.sent_view
    if view is transcript.view:
        # compared only with what a transform has made: nobody reads the whole history here
        transcript.record_sent_unchanged()
    else:
        before = before or transcript.view[: transcript.sent_own]
        transcript.record_sent_view(tuple(view))
    if before and not has_same_prefix(before, view, run.plan.vendor):
        names = ", ".join([name for name, _ in run.hooks.context_transform])
        broke_prefix(run, f"a context transform ({names}) changed earlier messages", ours=False)
    return view, tokens


async def recover_from_overflow(run: Run) -> bool:
    """Whether a plugin made a smaller view after an overflow; the first that does is used."""
    hook, voices = "context_overflow_recovery", iter(run.hooks.context_overflow_recovery)
    messages, tokens = to_read(run, run.transcript.view), run.transcript.input_tokens()
    context = make_context(run, OverflowContext, messages=messages, estimated_tokens=tokens)
    heard = ask_until_opinion(run, hook, voices, context)
    while heard is not None and (said := await heard) is not None:
        try:
            if said.fault is not None:
                raise said.fault
            smaller, after = _check_view(run, said.answer)
            before = sum(map(run.plan.size_of, run.transcript.view))
            if after < before:
                from glidepath.kernel.model_call.prefix_cost import report_shaped

                old = run.transcript.view
                run.set_view(list(smaller), after)
                broke_prefix(run, COMPACTED)
                dropped = max(0, len(run.transcript.messages) - len(smaller))
                report_shaped(run, said.name, old, before, after, dropped)
                return True
        except HookFault as fault:
            report(run, hook, said.name, fault, "skipped")
        heard = ask_until_opinion(run, hook, voices, context)
    return False


def _check_view(run: Run, answer: object) -> tuple[Sequence[Message], int]:
    """What a plugin wants the model to see, no call without its result, and its size."""
    try:
        if isinstance(answer, str) or not isinstance(answer, Sequence):
            raise TypeError(f"expected a sequence of messages or None, got {type(answer).__name__}")
        answer, fault = take_all(run, answer, MOST_SHOWN)  # read once: what is looked at is what is sent
        if fault is not None:
            raise fault
        for message in answer:
            if not isinstance(message, Message):
                raise TypeError(f"expected messages, got a {type(message).__name__} among them")
        view: Sequence[Message] = run.plan.repair(answer)
        if not view:
            raise ValueError("a view without any message cannot be sent")
        return view, _measure_view(run, view)
    except (HookFault, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise HookFault(describe_error(error)) from error


def _measure_view(run: Run, view: Sequence[Message]) -> int:
    """The size of a plugin's view. Messages are built unchecked, for speed: what cannot be measured or sent is refused.

    A message of the transcript was measured when it was added.
    """
    known = dict(zip(map(id, run.transcript.messages), run.transcript.sizes, strict=True))
    size_of, tokens = run.plan.size_of, 0
    for message in view:
        size = known.get(id(message))
        if size is None:
            codec.encode(message)  # raises for half a surrogate pair, and for anything but text
            size = size_of(message)
        tokens += size
    return tokens
