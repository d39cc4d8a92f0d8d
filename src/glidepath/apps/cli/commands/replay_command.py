"""Replay a recorded run of another agent: offline, or from one of its turns on with other limits or another model.

`glidepath gate run --record -- COMMAND` records. `glidepath replay SESSION -- COMMAND` runs the command again and gives
it the recorded replies.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.commands.gate_command import add_limit_flags, add_upstream_flags, read_limits, write_report

if TYPE_CHECKING:
    from glidepath.apps.cli.cli_context import CliContext
    from glidepath.apps.gate.recordings import RecordedTape, ReplayFlight, ReplayTerms
    from glidepath.spi import SessionStore

_EPILOG = """\
The command's tools run again. So it runs in a sandbox, with a copy of the workspace in the place of the recorded one
and no network but the recording. Where there is no sandbox, it is refused unless you pass --run-tools-again: then the
tools run as you, in the current folder.

With --from-turn N the first N turns of the main agent come from the recording. What follows is new: it goes to the
upstream, costs money, and --max-tokens and the other limits hold for it.

examples:
  glidepath replay gate:run-1f2e3d4c -- claude -p "fix the failing test"
  glidepath replay --last --workspace ../before -- codex exec "fix the failing test"
  glidepath replay gate:run-1f2e --from-turn 4 --max-budget-usd 0.20 -- claude -p "fix the failing test"

exit code: that of the command; if that is 0 and the run was not the same, 1.
"""
_DIFFERS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "glidepath replay SESSION [flags] -- COMMAND ..."
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("session", nargs="?", help="the session's id, the start of it, or its name")
    parser.add_argument("--last", action="store_true", help="the session that was recorded last")
    if hasattr(parser, "command_as"):
        parser.command_as = "words"
    parser.add_argument("--store", metavar="URL", help="where the run is kept (default: GLIDEPATH_STORE, else default)")
    parser.add_argument(
        "--workspace", metavar="FOLDER", help="a folder as it was when the recording began (default: the current one)"
    )
    parser.add_argument("--keep", metavar="FOLDER", help="leave the copy of the workspace here, to be looked at")
    parser.add_argument(
        "--read", action="append", default=[], metavar="PATH", help="let the command read this, too; may be repeated"
    )
    parser.add_argument(
        "--run-tools-again", action="store_true", help="without a sandbox: the tools run as you, in the current folder"
    )
    parser.add_argument("--timing", action="store_true", help="replies take the time they took")
    parser.add_argument("--volatile", action="store_true", help="print what may differ between equal runs, and exit")
    live = parser.add_argument_group("what follows a turn")
    live.add_argument("--from-turn", type=int, metavar="N", help="repeat N turns of the main agent, then continue live")
    add_limit_flags(live)
    add_upstream_flags(live)
    live.add_argument("--report", metavar="FILE", help="write what the live part used, as JSON")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Replay it."""
    from glidepath.apps.cli.extras import require_extra
    from glidepath.values import ConfigurationError

    require_extra("aiohttp", "gate")
    require_extra("uvicorn", "gate")
    if options.volatile:
        from glidepath.apps.gate.recordings import print_table

        world.write(print_table() + "\n")
        return 0
    if (options.session is None) == (not options.last):
        wrong = (
            "take out --last or the id" if options.last else "name a session, or add --last for the last recorded one"
        )
        raise ConfigurationError(f"{wrong}; `glidepath sessions list` shows them")
    if not options.words:
        raise ConfigurationError("name the command after --: glidepath replay SESSION -- claude -p '...'")
    if options.from_turn is None:
        _refuse_live_flags(options)
    return _replay(options, world)


def _refuse_live_flags(options: argparse.Namespace) -> None:
    from glidepath.values import ConfigurationError

    names = ("max_tokens", "max_budget_usd", "max_calls", "timeout", "upstream", "passthrough", "report")
    given = next((name for name in names if getattr(options, name)), None)
    if given is not None:
        flag = f"--{given.replace('_', '-')}"
        raise ConfigurationError(f"{flag} is for what follows a turn: add --from-turn N, or leave {flag} out")


def _replay(options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.apps.cli.stores import open_redacted_store
    from glidepath.apps.gate.child import CannotStart
    from glidepath.apps.gate.recordings import replay_command
    from glidepath.apps.gate.run_plan import plan_upstreams

    is_live = options.from_turn is not None
    tape = _read(options, world)
    terms = _read_terms(options, world)
    live: dict[str, Any] = {}
    if is_live:
        upstreams = plan_upstreams(options.upstream, world.environ, passthrough=options.passthrough)
        live = {
            "limits": read_limits(options),
            "upstreams": upstreams,
            "store": open_redacted_store(_name_store(options, world), None, world),
        }
    try:
        flown = replay_command(options.words, tape, terms, environ=world.environ, **live)
    except CannotStart as error:
        world.complain(str(error))
        return error.code
    _tell(flown, world, is_live=is_live)
    if options.report:
        write_report(options.report, flown.report | {"exit_code": flown.code, "command": options.words[0]}, world)
    return flown.code or (0 if flown.played.is_same else _DIFFERS)


def _name_store(options: argparse.Namespace, world: CliContext) -> str:
    from glidepath.apps.cli.stores import DEFAULT_STORE

    return options.store or world.environ.get("GLIDEPATH_STORE") or DEFAULT_STORE


def _read(options: argparse.Namespace, world: CliContext) -> RecordedTape:
    """The recording that is meant."""
    from glidepath.apps.cli.session_names import find_session
    from glidepath.apps.cli.stores import make_store, on_store
    from glidepath.apps.gate.recordings import find_last_recorded, read_tape
    from glidepath.sessions import entry_of, is_foreign
    from glidepath.values import ConfigurationError

    async def read(store: SessionStore) -> RecordedTape:
        name = await (find_last_recorded(store) if options.last else find_session(store, options.session))
        entry = await entry_of(store, name)
        if entry is not None and entry.head and not is_foreign(entry):
            raise ConfigurationError(
                f"session {name!r:.120} is a run of glidepath itself: `glidepath runs replay {name}` replays it"
            )
        return await read_tape(store, name)

    return on_store(make_store(_name_store(options, world), world), read)


def _read_terms(options: argparse.Namespace, world: CliContext) -> ReplayTerms:
    from glidepath.apps.gate.recordings import ReplayTerms
    from glidepath.apps.gate.recordings.isolation import explain_no_sandbox
    from glidepath.values import ConfigurationError

    missing = "" if options.run_tools_again else explain_no_sandbox()
    if missing:
        raise ConfigurationError(
            f"a replay runs the tools of the agent again, and there is no sandbox here ({missing}). Install "
            "bubblewrap, or pass --run-tools-again to run them as you, in this folder"
        )
    workspace = (world.folder / Path(options.workspace or ".").expanduser()).resolve()
    if not workspace.is_dir():
        raise ConfigurationError(f"--workspace: {workspace} is not a folder")
    if options.run_tools_again and options.keep:
        raise ConfigurationError("--keep is for the copy in a sandbox: leave it out, or leave --run-tools-again out")
    read = [(world.folder / Path(one).expanduser()).resolve() for one in options.read]
    absent = next((one for one in read if not one.exists()), None)
    if absent is not None:
        raise ConfigurationError(f"--read: {absent} does not exist")
    return ReplayTerms(
        workspace=workspace,
        is_isolated=not options.run_tools_again,
        keep=None if options.keep is None else (world.folder / Path(options.keep).expanduser()).resolve(),
        read=tuple(map(str, read)),
        timing=options.timing,
        turns=options.from_turn,
    )


def _tell(flown: ReplayFlight, world: CliContext, *, is_live: bool) -> None:
    """Say what was replayed, and where it was not the same."""
    from glidepath.apps.cli.display_text import escape_invisible
    from glidepath.apps.gate.report_words import describe_report
    from glidepath.values import pluralize

    played = flown.played
    told = f"{played.replayed} of {pluralize(played.total, 'recorded call')} replayed"
    if played.difference is not None:
        difference = played.difference
        world.complain(f"{told}, then the run differs: {escape_invisible(difference.sentence)}.")
        if difference.field:
            world.note(f"  first difference, in call {difference.call}: {escape_invisible(difference.field)}")
            world.note(f"  recorded: {escape_invisible(difference.recorded)}")
            world.note(f"  now:      {escape_invisible(difference.live)}")
        if flown.hint:
            world.note(f"  {flown.hint}")
    elif played.left:
        few = ", ".join(map(str, played.left[:5])) + (", ..." if len(played.left) > 5 else "")  # noqa: PLR2004
        world.complain(f"{told}; the command ended without making call {few} again.")
    else:
        world.note(f"glidepath replay: {told}, nothing differs.")
    if is_live:
        world.note(describe_report(flown.report, flown.name))
