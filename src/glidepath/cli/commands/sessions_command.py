"""Find, show, label, fork, move and delete the sessions in a store.

`list` and `search` show a page at a time, the newest first. `export` writes a session with its children as JSON lines
and `import` takes them back. `delete` forgets sessions with everything that belongs to them. `migrate` carries a whole
store over into another.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from glidepath.cli.arguments import add_config_flags, add_setting_flags
from glidepath.cli.settings import SETTINGS
from glidepath.plurals import how_many

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from glidepath.cli.layers import LoadedSettings
    from glidepath.cli.world import World
    from glidepath.spi.sessions import SessionStore

_OF_STORE = ("store", "redact")
_WRITING = frozenset({"tag", "import", "stop"})  # what is new in the store; a fork copies what is there
_NOT_STORE = frozenset(setting.key for setting in SETTINGS) - frozenset(_OF_STORE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from glidepath.cli.shelved import add_filters

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="the sessions in the store, the newest first")
    searched = actions.add_parser("search", help="sessions with this text in their title, task or id")
    searched.add_argument("text", help="what to look for, ignoring case")
    for page in (listed, searched):
        add_filters(page)
        page.add_argument("-n", "--limit", type=int, default=50, metavar="N", help="sessions on a page (default: 50)")
        page.add_argument("--cursor", metavar="TEXT", help="start of the next page, as printed by the last one")
        page.add_argument("--json", action="store_true", help="print one JSON object per line")
    named(actions.add_parser("show", help="one session: its state, usage and messages by turn"))
    tagged = named(actions.add_parser("tag", help="give a session a title and tags"))
    tagged.add_argument("--add", action="append", default=[], metavar="TAG", help="add a tag; may be repeated")
    tagged.add_argument("--remove", action="append", default=[], metavar="TAG", help="remove a tag; may be repeated")
    tagged.add_argument("--title", metavar="TEXT", help="the title; '' removes it")
    add_fork_arguments(actions.add_parser("fork", help="make a new session from a turn of this one"))
    add_file_actions(actions)
    _add_delete(
        actions.add_parser("delete", help="delete sessions with their children and everything that belongs to them")
    )
    moved = actions.add_parser("migrate", help="copy every session into another store, unchanged")
    moved.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="segments:FOLDER, sqlite:FILE or an address (default: the folder of segments in your data folder)",
    )
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


def add_file_actions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `export` and `import`."""
    exported = named(actions.add_parser("export", help="write a session and its children as JSON lines"))
    exported.add_argument("--out", metavar="FILE", help="where to (default: standard output)")
    imported = actions.add_parser("import", help="import what export wrote")
    imported.add_argument("file", help="the file; - reads standard input")
    imported.add_argument("--as", dest="name", metavar="ID", help="under another id")


def add_store_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the store."""
    add_setting_flags(parser, leave_out=_NOT_STORE)
    add_config_flags(parser)


def add_fork_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a fork."""
    named(parser)
    parser.add_argument("--at", type=int, metavar="TURN", help="the last turn to keep (default: the last there is)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--as", dest="name", metavar="ID", help="the id of the new session")
    which.add_argument(
        "--rewind", action="store_true", help="rewind this session itself; its old state is kept under another id"
    )


def named(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the session to act on."""
    parser.add_argument("session", nargs="?", help="the session's id, the start of it, or its name")
    parser.add_argument("--last", action="store_true", help="the session that was active last")
    return parser


def check_named(options: argparse.Namespace) -> None:
    """Raise `ConfigurationError` unless a session is named in one way, where the action needs one."""
    from glidepath.errors import ConfigurationError

    if hasattr(options, "session") and hasattr(options, "last") and bool(options.session) == options.last:
        wrong = "take out --last or the id" if options.last else "name a session, or add --last for the last one"
        raise ConfigurationError(f"{options.action}: {wrong}; `glidepath sessions list` shows the ids")


def execute(options: argparse.Namespace, world: World) -> int:
    """Do one of them."""
    return act_on_store(options, world, "sessions", lambda store: _ACTIONS[options.action](options, store, world))


def act_on_store(
    options: argparse.Namespace,
    world: World,
    command: str,
    act: Callable[[Any], Awaitable[int]],
    settings: LoadedSettings | None = None,
) -> int:
    """Do something with the store that the settings name."""
    from glidepath.cli.layers import gather
    from glidepath.cli.session_names import last_session, session_named
    from glidepath.cli.stores import assume_store, make_store, on_store, redacting

    check_named(options)
    settings = settings or gather(options, world, only=_OF_STORE)
    reads = getattr(options, "action", "") not in _WRITING
    store = redacting(make_store(assume_store(settings, command), world), settings, world, reads=reads)

    async def found(kept: Any) -> int:
        if getattr(options, "last", False):
            options.session = await last_session(kept)
        elif getattr(options, "session", None):
            options.session = await session_named(kept, options.session)
        return await act(kept)

    return on_store(store, found)


async def _list(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    from glidepath import _wire
    from glidepath.cli.shelved import as_json, lines, query_of
    from glidepath.sessions.finding import find_sessions

    text = getattr(options, "text", "")
    page = await find_sessions(store, query_of(options, text=text, limit=options.limit, cursor=options.cursor))
    if options.json:
        for entry in page.sessions:
            world.write(_wire.encode(as_json(entry)).decode() + "\n")
    elif page.sessions:
        world.write("".join(f"{line}\n" for line in lines(page.sessions)))
    else:
        world.note("no session matches")
    if page.cursor is not None:
        world.note(f"there are more: --cursor '{page.cursor}'")
    return 0


async def _show(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    return await show_session(options.session, store, world)


async def show_session(session: str, store: SessionStore, world: World, *, last: int | None = None) -> int:
    """Print one session: its state, usage and messages with the numbers of their turns."""
    from glidepath.cli.commands.runs_command import show_team, waiting_calls
    from glidepath.cli.shelved import label_lines, used_lines
    from glidepath.cli.shown import call_line, revealed
    from glidepath.cli.status import printable
    from glidepath.sessions.archive import read_journal
    from glidepath.sessions.cards import is_team
    from glidepath.sessions.finding import entry_of

    if session.startswith("team:") and (entry := await entry_of(store, session)) is not None and is_team(entry):
        return await show_team(session, store, world)
    journal = await read_journal(store, session)
    folded, snapshot = journal.folded, journal.folded.snapshot
    result = folded.result
    out = world.stdout
    out.write(f"session   {revealed(session)}\n")
    out.writelines([f"{line}\n" for line in await label_lines(store, session)])
    if folded.forked is not None:
        out.write(f"fork      of {revealed(folded.forked.origin)} after turn {folded.forked.at}\n")
        for one in folded.forked.effects:
            line = call_line(one.name, one.arguments or {})
            out.write(f"behind it turn {one.turn} {line}{revealed(one.by)}: {revealed(one.outcome)}\n")
    if folded.repaired is not None:
        out.write(f"repaired  {revealed(folded.repaired.reason)}: a part is lost\n")
    if folded.imported:
        out.write("origin    imported from a file: its decisions do not count here\n")
    out.write(f"state     {'interrupted' if result is None else f'{result.state.name}/{result.outcome.name}'}\n")
    if result is not None and result.cause is not None:
        out.write(f"cause     {revealed(result.cause.source)}: {revealed(result.cause.reason)}\n")
    if snapshot is not None:
        out.writelines(f"{line}\n" for line in used_lines(folded, snapshot))
    unknown = () if result is None else result.unknown_effects
    for call in unknown:
        out.write(f"unknown   {revealed(call.id)} {call_line(call.name, call.arguments)}\n")
    for call, why in waiting_calls(folded, snapshot):
        out.write(f"waits     {revealed(call.id)} {call_line(call.name, call.arguments)}: {revealed(why)}\n")
    out.write(
        f"journal   {how_many(len(journal.commits), 'commit')}, {how_many(folded.sequence, 'record')}, intact\n\n"
    )
    turn = 0
    first = 0 if last is None else max(len(folded.messages) - max(last, 0), 0)
    if first:
        out.write(f"({how_many(first, 'message')} before)\n")
    for number, message in enumerate(folded.messages):
        turn += message.role == "assistant"
        if number < first:
            continue
        who = f"assistant, turn {turn}" if message.role == "assistant" else message.role
        if message.text or not getattr(message, "tool_calls", ()):
            out.write(f"[{who}] {printable(message.text)}\n")
        for call in getattr(message, "tool_calls", ()):
            out.write(f"[{who}] calls {call_line(call.name, call.arguments)}\n")
    return 0


async def _tag(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    from glidepath.sessions.cards import checked_tags
    from glidepath.sessions.finding import annotate, each_session

    added, removed = set(checked_tags(options.add)), set(checked_tags(options.remove))
    tags: set[str] = set()
    async for entry in each_session(store, prefix=options.session, roots=False):
        if entry.session_id == options.session:
            tags = set(entry.tags)
    after = (tags | added) - removed
    await annotate(store, options.session, title=options.title, tags=sorted(after))
    world.note(f"{options.session}: {' '.join(f'#{tag}' for tag in sorted(after)) or 'no tags'}")
    return 0


async def fork(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    """Make a fork, and list the effects after it."""
    from glidepath.cli.shown import call_line, revealed
    from glidepath.errors import ConfigurationError
    from glidepath.sessions.forking import fork, rewind

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
        world.note(f"{revealed(made.session_id)} is back at turn {made.at}; what it was is {revealed(made.origin)}")
    world.write(f"{made.session_id}\n")
    return 0


async def _export(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    from glidepath.cli.commands.runs_command import export_session

    return await export_session(options, store, world)


async def _import(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    from glidepath.cli.commands.runs_command import import_session

    return await import_session(options, store, world)


async def _delete(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    from glidepath.cli.session_names import session_named
    from glidepath.cli.shown import revealed
    from glidepath.errors import ConfigurationError
    from glidepath.sessions.finding import remove_sessions

    if bool(options.sessions) == (options.older_than is not None):
        raise ConfigurationError("delete takes sessions by id or name, or --older-than TIME: one of the two")
    if options.older_than is not None:
        return await _expire(options, store, world)
    if options.dry_run:
        raise ConfigurationError("--dry-run needs --older-than")
    if options.tag is not None:
        raise ConfigurationError("--tag needs --older-than: a named session is deleted whatever its tags")
    meant = {said: await session_named(store, said) for said in options.sessions}
    for said, session in meant.items():
        await store.load(session)
        if said != session:
            world.note(f"{said!r:.80} is {revealed(session)}")
    sessions = list(dict.fromkeys(meant.values()))
    gone = await remove_sessions(store, sessions)
    say_gone(gone, world)
    left = [session for session in sessions if session not in gone]
    for session in left:
        world.complain(f"session {session!r} has a run in flight: stop it first (glidepath runs stop)")
    return 1 if left else 0


async def _expire(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    from glidepath.cli.shelved import seconds_of, state_of
    from glidepath.sessions.finding import expired, prune

    seconds = seconds_of("--older-than", options.older_than)
    state = state_of(options.state, "any")
    states = None if state == "any" else (state,)
    if options.dry_run:
        found = [entry async for entry in expired(store, older_than=seconds, states=states, tag=options.tag)]
        for entry in found:
            world.write(f"{entry.session_id}\n")
        world.note(f"{how_many(len(found), 'session')} would be deleted, with their children")
        return 0
    say_gone(await prune(store, older_than=seconds, states=states, tag=options.tag), world)
    return 0


async def _migrate(options: argparse.Namespace, store: SessionStore, world: World) -> int:
    from glidepath.cli.stores import migrate_store

    return await migrate_store(options.target, store, world)


def say_gone(gone: list[str], world: World) -> None:
    """Say how many sessions were deleted, and forget what was kept about them elsewhere."""
    from glidepath.cli.chat_cards import forget_cards

    forget_cards(gone)
    world.note(f"deleted {how_many(len(gone), 'session')}")


_ACTIONS: dict[str, Callable[[argparse.Namespace, Any, World], Awaitable[int]]] = {
    "list": _list,
    "search": _list,
    "show": _show,
    "tag": _tag,
    "fork": fork,
    "export": _export,
    "import": _import,
    "delete": _delete,
    "migrate": _migrate,
}
