"""The model's view of the transcript, as plugins want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glidepath.events import ContextShaped
from glidepath.messages import Message
from glidepath.run import HookFault, consult
from glidepath.run.hooks import report
from glidepath.spi import OverflowContext, TransformContext

if TYPE_CHECKING:
    from glidepath.run import Run

__all__ = ["recovered", "transformed"]


async def transformed(run: Run) -> Sequence[Message]:
    """The view after every context transform, left to right; one that fails is skipped. Never kept."""
    view: Sequence[Message] = run.view
    for name, method in run.hooks.context_transform:
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
        try:
            answer = await consult(run, "context_transform", name, method, context)
            view = view if answer is None else _messages(answer)
        except HookFault as fault:
            report(run, "context_transform", name, fault, "skipped")
    return view if view is run.view else run.plan.repair(view)


async def recovered(run: Run) -> bool:
    """Whether a plugin made a smaller view after an overflow; the first that does is used."""
    for name, method in run.hooks.context_overflow_recovery:
        context = OverflowContext(
            run_id=run.run_id,
            agent_name=run.plan.agent_name,
            iteration=run.iterations,
            conversation_id=run.plan.conversation_id,
            messages=run.view,
            estimated_tokens=run.input_tokens(),
        )
        try:
            answer = await consult(run, "context_overflow_recovery", name, method, context)
            smaller = None if answer is None else list(run.plan.repair(_messages(answer)))
        except HookFault as fault:
            report(run, "context_overflow_recovery", name, fault, "skipped")
            continue
        if smaller is not None:
            before, after = [sum(run.plan.size_of(message) for message in view) for view in (run.view, smaller)]
            if after < before:
                run.set_view(smaller, after)
                run.emit(ContextShaped, name, before, after, max(0, len(run.messages) - len(smaller)))
                return True
    return False


def _messages(answer: Any) -> Sequence[Message]:
    if isinstance(answer, str) or not isinstance(answer, Sequence) or not all(hasattr(m, "role") for m in answer):
        raise HookFault(f"expected a sequence of messages or None, got {type(answer).__name__}")
    return answer
