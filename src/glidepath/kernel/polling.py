"""Messages from outside: steering after every turn, follow-ups when a run would otherwise be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath._wire import WireError, replace
from glidepath.run import Opinion, ask_until_opinion, make_context, report, take_all, to_read
from glidepath.spi import PollContext, as_message
from glidepath.values import Message, codec, pluralize

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from glidepath.run import Run

MOST_MESSAGES = 10_000  # messages that one hook may put in at once


def poll(run: Run, hook: str) -> Awaitable[bool] | None:
    """Ask the `steering` or `follow_up` hooks for messages, which wait for the next turn.

    None when nobody has anything to say, as nearly always; else await whether there were any.
    """
    pairs = run.hooks.steering if hook == "steering" else run.hooks.follow_up
    if not pairs:
        return None
    turn, voices = run.turn, iter(pairs)
    known = turn.contexts.get(PollContext) or make_context(
        run, PollContext, messages=to_read(run, run.transcript.messages)
    )
    context = replace(known, iteration=turn.iterations)
    heard = ask_until_opinion(run, hook, voices, context)
    return None if heard is None else _poll_rest(run, hook, voices, context, heard)


async def _poll_rest(
    run: Run,
    hook: str,
    voices: Iterator[tuple[str, Any]],
    context: PollContext,
    heard: Awaitable[Opinion | None] | None,
) -> bool:
    before = len(run.transcript.waiting)
    while heard is not None and (said := await heard) is not None:
        if said.fault is not None:
            report(run, hook, said.name, said.fault, "skipped")
        else:
            _keep(run, hook, said.name, said.answer)
        heard = ask_until_opinion(run, hook, voices, context)
    return len(run.transcript.waiting) > before


def _keep(run: Run, hook: str, name: str, answer: Any) -> None:
    """Check each message separately: a bad one does not affect the others."""
    items, fault = ((answer,), None) if isinstance(answer, str | Message) else take_all(run, answer, MOST_MESSAGES)
    kept: list[Message] = []
    for item in items:
        try:
            message = as_message(item)
            codec.decode(codec.encode(message))  # built unchecked, for speed: what cannot be stored cannot be sent
        except (TypeError, ValueError, WireError, RecursionError) as error:
            report(run, hook, name, error, "skipped")
        else:
            kept.append(message)
    run.transcript.wait(kept)
    if fault is not None:
        report(run, hook, name, fault, f"kept {pluralize(len(kept), 'message')}" if kept else "skipped")
