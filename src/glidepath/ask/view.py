"""The model's view of the transcript, as plugins want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.events import ContextShaped
from glidepath.messages import Message
from glidepath.run import HookFault, opinion, report
from glidepath.spi import OverflowContext, TransformContext

if TYPE_CHECKING:
    from glidepath.run import Run

__all__ = ["recovered", "transformed"]


async def transformed(run: Run, view: Sequence[Message], tokens: int) -> tuple[Sequence[Message], int]:
    """The view after every context transform, left to right, and its size; one that fails is skipped. Never kept."""
    voices = iter(run.hooks.context_transform)
    context = TransformContext(
        run_id=run.run_id,
        agent_name=run.plan.agent_name,
        iteration=run.iterations,
        conversation_id=run.plan.conversation_id,
        messages=view,
        system_prompt=run.plan.system_prompt,
        model_id=run.plan.model_id,
        estimator=run.plan.estimator,
    )
    said = await opinion(run, "context_transform", voices, context)
    while said is not None:
        try:
            if said.fault is not None:
                raise said.fault
            view, tokens = _usable(run, said.answer)
            context = replace(context, messages=view)
        except HookFault as fault:
            report(run, "context_transform", said.name, fault, "skipped")
        said = await opinion(run, "context_transform", voices, context)
    return view, tokens


async def recovered(run: Run) -> bool:
    """Whether a plugin made a smaller view after an overflow; the first that does is used."""
    hook, voices = "context_overflow_recovery", iter(run.hooks.context_overflow_recovery)
    context = OverflowContext(
        run_id=run.run_id,
        agent_name=run.plan.agent_name,
        iteration=run.iterations,
        conversation_id=run.plan.conversation_id,
        messages=run.view,
        estimated_tokens=run.input_tokens(),
    )
    said = await opinion(run, hook, voices, context)
    while said is not None:
        try:
            if said.fault is not None:
                raise said.fault
            smaller, after = _usable(run, said.answer)
            before = sum(map(run.plan.size_of, run.view))
            if after < before:
                run.set_view(list(smaller), after)
                run.emit(ContextShaped, said.name, before, after, max(0, len(run.messages) - len(smaller)))
                return True
        except HookFault as fault:
            report(run, hook, said.name, fault, "skipped")
        said = await opinion(run, hook, voices, context)
    return False


def _usable(run: Run, answer: Any) -> tuple[Sequence[Message], int]:
    """What a plugin wants the model to see, no call without its result, and its size."""
    try:
        if isinstance(answer, str) or not isinstance(answer, Sequence):
            raise TypeError(f"expected a sequence of messages or None, got {type(answer).__name__}")
        for message in answer:
            if not isinstance(message, Message):
                raise TypeError(f"expected messages, got a {type(message).__name__} among them")
        view: Sequence[Message] = run.plan.repair(answer)
        if not view:
            raise ValueError("a view without any message cannot be sent")
        return view, sum(map(run.plan.size_of, view))  # built unchecked, for speed: what cannot be measured is refused
    except Exception as error:
        raise HookFault(f"{type(error).__name__}: {error}") from error
