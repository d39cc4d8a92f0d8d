"""Find, show, label, fork, move and delete the sessions in a store.

`list` and `search` show a page at a time, the newest first. `export` writes a session with its children as JSON lines
and `import` takes them back. `report` adds up what sessions have cost. `delete` forgets sessions with everything that
belongs to them. `backup` copies a store while it is in use, `verify` checks all of it, and `compact` gives back the
room that deleted sessions took.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.commands.runs_command import add_show, export, import_, show
from glidepath.apps.cli.session_flags import (
    act_on_store,
    add_file_actions,
    add_filters,
    add_session_argument,
    add_store_flags,
    print_entries,
    report_deleted,
)
from glidepath.apps.cli.session_report import add_report_arguments, report
from glidepath.apps.cli.store_upkeep import add_upkeep_actions, backup, compact, verify
from glidepath.values import pluralize

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.spi import SessionStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="the sessions in the store, the newest first")
    searched = actions.add_parser("search", help="sessions with this text in their title, task or id")
    searched.add_argument("text", help="what to look for, ignoring case")
    for page in (listed, searched):
        add_filters(page)
        page.add_argument("-n", "--limit", type=int, default=50, metavar="N", help="sessions on a page (default: 50)")
        page.add_argument("--cursor", metavar="TEXT", help="start of the next page, as printed by the last one")
        page.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_show(actions.add_parser("show", help="one session: its state, usage and messages by turn"))
    tagged = add_session_argument(actions.add_parser("tag", help="give a session a title and tags"))
    tagged.add_argument("--add", action="append", default=[], metavar="TAG", help="add a tag; may be repeated")
    tagged.add_argument("--remove", action="append", default=[], metavar="TAG", help="remove a tag; may be repeated")
    tagged.add_argument("--title", metavar="TEXT", help="the title; '' removes it")
    add_fork_arguments(actions.add_parser("fork", help="make a new session from a turn of this one"))
    add_report_arguments(actions.add_parser("report", help="what sessions have cost, by user, agent or model"))
    add_file_actions(actions)
    _add_delete(
        actions.add_parser("delete", help="delete sessions with their children and everything that belongs to them")
    )
    add_upkeep_actions(actions)
    for action in actions.choices.values():
        add_store_flags(action)


def _add_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="ids, the starts of them, or names")
    parser.add_argument("--older-than", metavar="TIME", help="all that were inactive for 12h, 30d, 8w")
    parser.add_argument("--tag", help="of those, only the ones with this tag")
    parser.add_argument(
        "--state",
        default="completed",
        metavar="WORD",
        help="of those, only the ones whose last run ended in this state, or any (default: completed)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print how many there are")


def add_fork_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a fork."""
    add_session_argument(parser)
    parser.add_argument("--at", type=int, metavar="TURN", help="the last turn to keep (default: the last there is)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--as", dest="name", metavar="ID", help="the id of the new session")
    which.add_argument(
        "--rewind", action="store_true", help="rewind this session itself; its old state is kept under another id"
    )


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    return act_on_store(options, world, "sessions", lambda store: _ACTIONS[options.action](options, store, world))


async def _list(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.apps.cli.session_flags import query_of
    from glidepath.sessions import find_sessions

    text = getattr(options, "text", "")
    page = await find_sessions(store, query_of(options, text=text, limit=options.limit, cursor=options.cursor))
    print_entries(page.sessions, world, "no session matches", as_data=options.json)
    if page.cursor is not None:
        world.note(f"there are more: --cursor '{page.cursor}'")
    return 0


async def _tag(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.sessions import annotate, entry_of, normalize_tags

    added, removed = set(normalize_tags(options.add)), set(normalize_tags(options.remove))
    entry = await entry_of(store, options.session)
    after = (added if entry is None else added.union(entry.tags)) - removed
    await annotate(store, options.session, title=options.title, tags=sorted(after))
    world.note(f"{options.session}: {' '.join(f'#{tag}' for tag in sorted(after)) or 'no tags'}")
    return 0


async def fork(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Make a fork, and list the effects after it."""
    from glidepath.apps.cli.display_text import call_line, escape_invisible
    from glidepath.sessions import fork, rewind
    from glidepath.values import ConfigurationError

    if options.rewind:
        if options.at is None:
            raise ConfigurationError("--rewind needs --at TURN: the last turn to keep")
        made = await rewind(store, options.session, at=options.at)
    else:
        made = await fork(store, options.session, at=options.at, name=options.name)
    for one in made.effects:
        line = call_line(one.name, one.arguments or {})
        world.note(f"made after turn {made.at}, and not undone: turn {one.turn} {line}{one.by}: {one.outcome}")
    for waiting in made.pending:
        world.note(f"waiting for a person: {call_line(waiting.call.name, waiting.call.arguments)}")
    if options.rewind:
        world.note(
            f"{escape_invisible(made.session_id)} is back at turn {made.at}; what it was is "
            f"{escape_invisible(made.origin)}"
        )
    world.write_id(made.session_id)
    return 0


async def _delete(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.cli.session_names import find_session
    from glidepath.sessions import remove_sessions
    from glidepath.values import ConfigurationError

    if bool(options.sessions) == (options.older_than is not None):
        raise ConfigurationError("delete takes sessions by id or name, or --older-than TIME: one of the two")
    if options.older_than is not None:
        return await _expire(options, store, world)
    if options.dry_run:
        raise ConfigurationError("--dry-run needs --older-than")
    if options.tag is not None:
        raise ConfigurationError("--tag needs --older-than: a named session is deleted whatever its tags")
    meant = {said: await find_session(store, said) for said in options.sessions}
    for said, session in meant.items():
        await store.load(session)
        if said != session:
            world.note(f"{said!r:.80} is {escape_invisible(session)}")
    sessions = list(dict.fromkeys(meant.values()))
    gone = await remove_sessions(store, sessions)
    report_deleted(gone, world)
    left = [session for session in sessions if session not in gone]
    for session in left:
        world.complain(f"session {session!r} has a run in flight: stop it first (glidepath runs stop)")
    return 1 if left else 0


async def _expire(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.apps.cli.session_flags import seconds_of, state_of
    from glidepath.sessions import find_expired, prune

    seconds = seconds_of("--older-than", options.older_than)
    state = state_of(options.state, "any")
    states = None if state == "any" else (state,)
    if options.dry_run:
        found = [entry async for entry in find_expired(store, older_than=seconds, states=states, tag=options.tag)]
        for entry in found:
            world.write_id(entry.session_id)
        world.note(f"{pluralize(len(found), 'session')} would be deleted, with their children")
        return 0
    report_deleted(await prune(store, older_than=seconds, states=states, tag=options.tag), world)
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace, Any, CliContext], Awaitable[int]]] = {
    "list": _list,
    "search": _list,
    "show": show,
    "tag": _tag,
    "fork": fork,
    "report": report,
    "export": export,
    "import": import_,
    "delete": _delete,
    "backup": backup,
    "verify": verify,
    "compact": compact,
}
