"""Decide about a call of a paused run, from anywhere.

The decision waits in the store, and resuming the run applies it. `glidepath runs show SESSION` lists the calls
that wait. In a fleet, `glidepath fleet resume` decides and lets the run continue.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from glidepath.apps.cli.notes import add_decision, read_decision
from glidepath.apps.cli.session_flags import act_on_store, add_store_flags, store_settings
from glidepath.values import ConfigurationError

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.run import Decision
    from glidepath.sessions import StoredJournal
    from glidepath.spi import SessionStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="the session's id, the start of it, or its name")
    add_decision(parser, required=True)
    add_store_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Leave the decision in the store."""
    from glidepath.apps.cli.chat_cards import make_session_flags
    from glidepath.apps.cli.commands.run_command import resume_line
    from glidepath.sessions import decide

    decisions = read_decision(options)

    async def act(store: SessionStore) -> int:
        await _check_waiting(store, options.session, options.call, decisions[options.call])
        await decide(store, options.session, decisions)
        return 0

    settings = store_settings(options, world)
    act_on_store(options, world, "decide", act, settings)
    line = [resume_line(options.session, settings), *make_session_flags(options.session, settings)]
    world.note(f"noted; to continue: {' '.join(line)}")
    return 0


async def _check_waiting(store: SessionStore, session: str, call: str, decision: Decision) -> None:
    """Raise `ConfigurationError` for a call that is decided otherwise, or does not wait.

    While a run is in flight, nobody can say which calls wait.
    """
    from glidepath.apps.cli.display_text import call_line, escape_invisible
    from glidepath.sessions import read_decisions, read_journal
    from glidepath.spi import Inbox, is_implementing

    journal = await read_journal(store, session)
    folded = journal.folded
    await _check_root(store, journal, call)
    notes = await store.notes(session, folded.taken) if is_implementing(store, Inbox) else ()
    earlier = {**read_decisions(notes), **folded.decisions}.get(call)
    if earlier is not None and earlier.verdict != decision.verdict:
        raise ConfigurationError(
            f"{escape_invisible(call)} is already decided: {earlier.kind}. The first decision counts, once the "
            "run is resumed"
        )
    result = folded.result
    if result is None or any(one.call.id == call for one in result.pending):
        return
    waiting = [
        f"{escape_invisible(one.call.id)} {call_line(one.call.name, one.call.arguments)}" for one in result.pending
    ]
    told = f"waiting: {'; '.join(waiting)}" if waiting else "nothing is waiting"
    raise ConfigurationError(f"no call {call!r:.80} is waiting in this session; {told}")


async def _check_root(store: SessionStore, journal: StoredJournal, call: str) -> None:
    """Raise `ConfigurationError` for a child whose root waits for it: a call that waits in it is decided there."""
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.sessions import read_journal
    from glidepath.values import StoreError

    root, run_id = journal, journal.entry.summary.get("run_id")
    while isinstance(above := root.entry.summary.get("parent"), Mapping):
        try:
            root = await read_journal(store, str(above.get("session_id")))
        except StoreError as error:
            if error.kind != "missing":
                raise
            return  # nobody waits for it
    result = root.folded.result
    waiting = () if result is None or root is journal else result.pending
    mine = [one.call.id for one in waiting if any(frame.run_id == run_id for frame in one.path)]
    if mine:
        there = next((one for one in mine if one.endswith(f"/{call}")), mine[0])
        session = escape_invisible(root.entry.session_id)
        raise ConfigurationError(
            f"session {session} waits for this one, and a call that waits here is decided there: "
            f"glidepath decide {session} with the call {escape_invisible(there)}"
        )
