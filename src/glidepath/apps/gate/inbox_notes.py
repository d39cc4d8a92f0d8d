"""Notes to a foreign run, from any process: an order to land, a message for its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.orders import land_run
from glidepath.sessions import await_store, call_store, control_in

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun


async def take_notes(store: Any, run: ForeignRun) -> None:
    """Obey what is in the inbox of a run, and write that it was taken."""
    journal = run.writer
    notes = await await_store(call_store(store.notes, run.name, journal.taken))
    if run.writer is not journal:
        return  # it has ended meanwhile
    items: list[tuple[str, Any]] = []
    for note in notes:
        if note.number <= journal.taken:
            continue
        journal.taken = note.number
        control = control_in(note)
        if control is not None:
            items.append(("control", control))
            if control.get("action") == "land" and control.get("obey") is True:
                land_run(run, str(control.get("reason") or "asked to land"))
    if items:
        journal.put(*items, ("mail", journal.taken))
