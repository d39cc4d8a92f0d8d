"""Children that wait for a person: which calls of theirs wait in the middle of a call of this run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from glidepath._wire import Record
from glidepath.values import PendingCall

if TYPE_CHECKING:
    from glidepath.run.decisions import Decision  # only a run that a person decides about needs it


class PausedChild(Record, eq=False):
    """The child of a call, the calls in it that wait, as this run lists them, and what was decided about them."""

    run_id: str
    pending: tuple[PendingCall, ...]
    decisions: Mapping[str, Decision]
    """By the call ids of the child."""


def find_call_of_child(pending: PendingCall) -> str:
    """The call of this run whose child the pending call belongs to; empty when the call is this run's own."""
    return next((frame.call_id for frame in pending.path if frame.run_id), "")


def name_below(call_id: str, inner: str) -> str:
    """What a call of a child is named in its parent: ids come from models, and those of two children may be equal."""
    return f"{call_id}/{inner}"


def find_paused_child(
    pending: Iterable[PendingCall], call_id: str, decisions: Mapping[str, Decision]
) -> PausedChild | None:
    """The child of this call that waits for a person, if one does."""
    mine = tuple([one for one in pending if find_call_of_child(one) == call_id])
    if not mine:
        return None
    run_id = next(frame.run_id for frame in mine[0].path if frame.run_id)
    start = len(name_below(call_id, ""))
    decided = {one.call.id[start:]: decisions[one.call.id] for one in mine if one.call.id in decisions}
    return PausedChild(run_id, mine, decided)
