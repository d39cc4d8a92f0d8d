"""Notes to a foreign run, from any process: what a person wants of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from glidepath.apps.gate.orders import land_run, raise_limits
from glidepath.sessions import await_store, call_store, control_in
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.gate.foreign_run import ForeignRun

_log = logging.getLogger("glidepath.gate")


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
            if control.get("obey") is True:
                items += _obey(run, control)
    if items:
        journal.put(*items, ("mail", journal.taken), summarize=True)


def _obey(run: ForeignRun, control: dict[str, Any]) -> list[tuple[str, Any]]:
    """Do what a person wants; the records that say what is different now."""
    action = control.get("action")
    if action == "land":
        land_run(run, str(control.get("reason") or "asked to land"))
    elif action == "limits" and run.parent is None:
        try:
            raise_limits(run.session, control.get("limits") or {})
        except (ConfigurationError, AttributeError) as error:  # it has another limit by now, or was never checked
            _log.warning("the limits of run %s are not raised: %s", run.run_id, error)
        else:
            return [("config", run.fingerprint())]
    return []
