"""The prefix of a run's requests, which the provider's prompt cache holds: it only grows; what breaks it is logged."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from glidepath.values import Message, SystemMessage

if TYPE_CHECKING:
    from glidepath.run.state import Run

SYSTEM_FIRST = frozenset({"anthropic", "google"})
"""Vendors that take system messages only in front of everything else, wherever they are in the transcript."""
_log = logging.getLogger("glidepath")
_LOST = "%s: the next request cannot use the prompt cache of the last one: %s"


def broke_prefix(run: Run, what: str, *, ours: bool = True) -> None:
    """Something changed what was sent before: log it, once per run and cause, but not before the first request.

    What the runtime does itself, for a window or a budget, is a warning only where a cache was in use: without one
    nothing is lost.
    """
    if run.turn.request is None or what in run.transcript.prefix_breaks:
        return
    if ours and not run.spend.account.cache_read:
        _log.info(_LOST, run.run_id, what)
        return
    run.transcript.prefix_breaks += (what,)
    _log.warning(_LOST, run.run_id, what)


def has_same_prefix(before: Sequence[Message], now: Sequence[Message], vendor: str | None) -> bool:
    """Whether a view begins like the one sent before it; its last message may differ, as a reminder at the end does."""
    if vendor in SYSTEM_FIRST and _system_messages_of(before) != _system_messages_of(now):
        return False
    most = len(before) - 1
    if len(now) < most:
        return False
    return all(now[k] is before[k] or now[k] == before[k] for k in range(most))


def _system_messages_of(view: Sequence[Message]) -> list[Message]:
    return [message for message in view if type(message) is SystemMessage]
