"""Messages from outside: steering after every turn, follow-ups when a run would otherwise be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidepath.messages import codec
from glidepath.run import HookFault, consult
from glidepath.run.hooks import report
from glidepath.spi import PollContext
from glidepath.spi.hooks import as_messages

if TYPE_CHECKING:
    from glidepath.messages import Message
    from glidepath.run import Run

__all__ = ["poll"]


async def poll(run: Run, hook: str) -> bool:
    """Ask the `steering` or `follow_up` hooks for messages; True when there were any. They wait for the next turn."""
    pairs = getattr(run.hooks, hook)
    if not pairs:
        return False
    before = len(run.waiting)
    context = PollContext(
        run_id=run.run_id,
        agent_name=run.plan.agent_name,
        iteration=run.iterations,
        conversation_id=run.plan.conversation_id,
        messages=run.messages,
    )
    for name, method in pairs:
        try:
            answer = await consult(run, hook, name, method, context)
            run.waiting += _read(answer)
        except HookFault as fault:
            report(run, hook, name, fault, "skipped")
    return len(run.waiting) > before


def _read(answer: object) -> tuple[Message, ...]:
    try:
        messages = as_messages(answer)  # type: ignore[arg-type]
        for message in messages:
            codec.decode(codec.encode(message))  # built unchecked, for speed: what cannot be stored cannot be sent
    except Exception as error:
        raise HookFault(f"{type(error).__name__}: {error}") from error
    return messages
