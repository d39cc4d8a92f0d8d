"""Inspect and maintain the runs in a store.

A run is named by its session's id. `export` writes a readable file that `import` takes back and `replay` replays
without calling a model or a tool; `stop` reaches a run in any process within a second.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_config_flags, add_setting_flags
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import call_line, escape_invisible
from glidepath.apps.cli.layers import gather
from glidepath.apps.cli.session_flags import (
    act_on_store,
    add_file_actions,
    add_session_argument,
    add_store_flags,
    print_entries,
    report_deleted,
)
from glidepath.values import ConfigurationError, pluralize

if TYPE_CHECKING:
    from glidepath.agent import Agent
    from glidepath.sessions import Folded
    from glidepath.spi import SessionStore
    from glidepath.values import Snapshot

_DAY = 86_400
_STOPPABLE = (None, "", "paused")  # a paused run stops when somebody resumes it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="list the runs in the store, newest first")
    listed.add_argument("--children", action="store_true", help="include the runs of child agents")
    listed.add_argument("-n", "--limit", type=int, metavar="N", help="at most this many")
    listed.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_show(actions.add_parser("show", help="one run: its state, usage and messages"))
    stopped = add_session_argument(actions.add_parser("stop", help="stop a run in another process, within a second"))
    stopped.add_argument("--reason", default="", help="the reason its result will give")
    add_file_actions(actions)
    pruned = actions.add_parser("prune", help="delete runs that ended long ago")
    pruned.add_argument("--days", type=float, default=30, help="older than this many days (default: 30)")
    add_session_argument(
        actions.add_parser("repair", help="keep the intact part of a damaged journal, and report the rest")
    )
    for action in actions.choices.values():
        add_store_flags(action)
    replayed = actions.add_parser(
        "replay", help="replay a journal with the flags of its run, --model too, and compare; calls no model, no tool"
    )
    add_setting_flags(add_session_argument(replayed))
    add_config_flags(replayed)


def add_show(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `show`."""
    add_session_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-n", "--limit", type=int, metavar="N", help="only the last N messages")
    parser.add_argument("--plot", action="store_true", help="plot how each limit was used up, turn by turn")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Do one of them."""
    from glidepath.apps.cli.agent_maker import make_agent
    from glidepath.apps.cli.file_changes import make_changes
    from glidepath.apps.cli.session_flags import to_replay

    if options.action != "replay":
        return act_on_store(options, world, "runs", lambda store: _ACTIONS[options.action](options, store, world))
    settings = to_replay(gather(options, world), options.session)
    agent = make_agent(settings, world, plugins=(make_changes(settings, world),))
    return act_on_store(options, world, "runs", lambda store: _replay(options, store, world, agent), settings)


async def _list(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.sessions import each_session

    if options.limit is not None and options.limit < 1:
        raise ConfigurationError(f"-n: expected a number of at least 1, got {options.limit}")
    found = []
    async for entry in each_session(store, roots=not options.children):
        found.append(entry)
        if len(found) == options.limit:
            break
    print_entries(found, world, "there are no runs in this store", as_data=options.json)
    return 0


async def _show_team(session: str, store: SessionStore, world: CliContext) -> int:
    from glidepath.apps.cli.team_board import TeamBoard, describe_event, report
    from glidepath.teams import TERMINAL, read_story

    events = await read_story(store, session.removeprefix("team:"))
    if not events:
        raise ConfigurationError(f"there is no session {session!r:.80}")
    out, board = world.stdout, TeamBoard()
    out.write(f"session   {escape_invisible(session)}\n")
    for event in events:
        board.record_event(event)
        said = describe_event(event)
        out.write(f"{said}\n" if said else "")
    last: Any = events[-1]
    result = last.result if type(last) in TERMINAL else None
    lines = [*board.lines(), "interrupted or running"] if result is None else report(result)
    out.writelines(f"{line}\n" for line in lines)
    return 0


async def show(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Print one session as text, as JSON, or as a plot of its limits."""
    from glidepath.apps.cli.burndown_view import plot_session, show_json

    if options.json:
        return await show_json(options, store, world)
    if options.plot:
        return await plot_session(options.session, store, world)
    return await show_session(options.session, store, world, last=options.limit)


async def show_session(session: str, store: SessionStore, world: CliContext, *, last: int | None = None) -> int:
    """Print one session: its state, usage and messages with the numbers of their turns."""
    from glidepath.apps.cli.session_flags import describe_usage, label_lines
    from glidepath.apps.cli.status import strip_control_characters
    from glidepath.sessions import entry_of, foreign_program, is_evaluation, is_team, read_journal

    if session.startswith("team:") and (entry := await entry_of(store, session)) is not None and is_team(entry):
        return await _show_team(session, store, world)
    if session.startswith("eval:") and (entry := await entry_of(store, session)) is not None and is_evaluation(entry):
        from glidepath.apps.evals import EvalReport

        world.write((await EvalReport.find(session.removeprefix("eval:"), store)).to_text())
        return 0
    journal = await read_journal(store, session)
    folded, snapshot = journal.folded, journal.folded.snapshot
    result = folded.result
    out = world.stdout
    out.write(f"session   {escape_invisible(session)}\n")
    out.writelines([f"{line}\n" for line in await label_lines(store, session)])
    if folded.forked is not None:
        out.write(f"fork      of {escape_invisible(folded.forked.origin)} after turn {folded.forked.at}\n")
        for one in folded.forked.effects:
            line = call_line(one.name, one.arguments or {})
            out.write(f"behind it turn {one.turn} {line}{escape_invisible(one.by)}: {escape_invisible(one.outcome)}\n")
    if folded.repaired is not None:
        out.write(f"repaired  {escape_invisible(folded.repaired.reason)}: a part is lost\n")
    program = foreign_program(folded)
    if program is not None:
        out.write(f"program   {escape_invisible(program)}, through the gate\n")
    if folded.imported:
        out.write("origin    imported from a file: its decisions do not count here\n")
    out.write(f"state     {'interrupted' if result is None else f'{result.state.name}/{result.outcome.name}'}\n")
    if result is not None and result.cause is not None:
        out.write(f"cause     {escape_invisible(result.cause.source)}: {escape_invisible(result.cause.reason)}\n")
    if snapshot is not None:
        out.writelines(f"{line}\n" for line in describe_usage(folded, snapshot))
    unknown = () if result is None else result.unknown_effects
    for call in unknown:
        out.write(f"unknown   {escape_invisible(call.id)} {call_line(call.name, call.arguments)}\n")
    for call, why in _list_waiting_calls(folded, snapshot):
        out.write(
            f"waits     {escape_invisible(call.id)} {call_line(call.name, call.arguments)}: {escape_invisible(why)}\n"
        )
    out.write(
        f"journal   {pluralize(len(journal.commits), 'commit')}, {pluralize(folded.sequence, 'record')}, intact\n\n"
    )
    turn = 0
    first = 0 if last is None else max(len(folded.messages) - max(last, 0), 0)
    if first:
        out.write(f"({pluralize(first, 'message')} before)\n")
    for number, message in enumerate(folded.messages):
        turn += message.role == "assistant"
        if number < first:
            continue
        who = f"assistant, turn {turn}" if message.role == "assistant" else message.role
        if message.text or not getattr(message, "tool_calls", ()):
            out.write(f"[{who}] {strip_control_characters(message.text)}\n")
        for call in getattr(message, "tool_calls", ()):
            out.write(f"[{who}] calls {call_line(call.name, call.arguments)}\n")
    return 0


def _list_waiting_calls(folded: Folded, snapshot: Snapshot | None) -> list[tuple[Any, str]]:
    """The calls without a result, each with what happens to it when the run is resumed."""
    from glidepath._wire import replace
    from glidepath.sessions import open_calls

    result = folded.result
    told = {} if snapshot is None else {one.call.id: one for one in snapshot.pending}
    told |= {} if result is None else {one.call.id: one for one in result.pending}
    found = []
    for call in open_calls(folded):
        intent = folded.intents.get(call.id)
        if call.id in told:
            found.append((told[call.id].call, told[call.id].reason or "waits for a person"))
        elif intent is not None:
            again = "it runs again if its tool is idempotent" if intent.idempotent else "its outcome is unknown"
            used = call if intent.arguments is None else replace(call, arguments=intent.arguments)
            found.append((used, f"had begun; {again}"))
        else:
            found.append((call, "imported; a person will be asked" if folded.foreign else "had not begun"))
    return found


async def _stop(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.apps.cli.session_flags import describe_state
    from glidepath.sessions import entry_of, stop

    entry = await entry_of(store, options.session)
    if entry is not None and entry.summary.get("outcome") not in _STOPPABLE:
        world.note(f"{options.session} has already ended ({describe_state(entry)})")
        return 1
    await stop(store, options.session, options.reason)
    world.note(f"asked {options.session} to stop")
    return 0


async def export(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Write a session and its children."""
    from glidepath.apps.cli.private_files import write_private
    from glidepath.sessions import export_journal

    data = await export_journal(store, options.session)
    if options.out:
        try:
            write_private(world.folder / options.out, data)
        except OSError as error:
            raise ConfigurationError(f"--out: {options.out} cannot be written: {error.strerror}") from None
    else:
        world.stdout.write(data.decode())
    return 0


async def import_(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    """Import what was exported."""
    from glidepath.sessions import import_journal

    try:
        data = world.stdin.read().encode() if options.file == "-" else (world.folder / options.file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{options.file} cannot be read: {error.strerror}") from None
    world.note(f"imported {await import_journal(store, data, session_id=options.name)}")
    return 0


async def _prune(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.sessions import prune

    report_deleted(await prune(store, older_than=options.days * _DAY), world)
    return 0


async def _repair(options: argparse.Namespace, store: SessionStore, world: CliContext) -> int:
    from glidepath.sessions.repairing import repair

    done = await repair(store, options.session)
    if not done.reason:
        world.note(f"{options.session} is intact: {pluralize(done.kept, 'commit')}")
        return 0
    world.note(f"{options.session}: kept {pluralize(done.kept, 'commit')}, dropped {done.dropped}: {done.reason}")
    for one in done.effects:
        world.note(f"may have taken effect: {call_line(one.name or 'a call', one.arguments or {})} ({one.call_id})")
    world.note("Look at it, then continue with: glidepath resume --accept-repair " + options.session)
    return 0


async def _replay(options: argparse.Namespace, store: SessionStore, world: CliContext, agent: Agent) -> int:
    from glidepath.agent.replay import replay
    from glidepath.apps.cli.session_flags import replay_line

    done = await replay(agent, store, options.session)
    world.note(replay_line(options.session, done))
    return 0 if done.same else 1


_ACTIONS = {
    "list": _list,
    "show": show,
    "stop": _stop,
    "export": export,
    "import": import_,
    "prune": _prune,
    "repair": _repair,
}
