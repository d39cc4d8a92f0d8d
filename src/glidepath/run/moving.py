"""Hangs meters below another budget: what is above them has changed while they were in use."""

from __future__ import annotations

from collections.abc import Sequence

from glidepath.run.ledger import Meter
from glidepath.run.waiting import Tree


def move_meters(meters: Sequence[Meter], parent: Meter | None) -> None:
    """Hang the first of these below a parent, or none; the others are all that is below it, from the top.

    Nothing is reserved or set aside in them, and nobody waits. What they have used stays theirs: the new parent is
    charged from here on.
    """
    for meter in meters:
        meter.parent = above = parent if meter is meters[0] else meter.parent
        meter.above = () if above is None else above.lineage
        meter.tree = Tree() if above is None else above.tree
        meter.tree.shared = True
    note_limits(meters)


def note_limits(meters: Sequence[Meter]) -> None:
    """Note in each of these, from the top, whether it or what is above it has a limit: limits have changed."""
    for meter in meters:
        caps, above = meter.caps, meter.parent
        meter.limited = caps.tokens is not None or caps.money is not None or (above is not None and above.limited)
