"""Give a team one goal: plan, work, review, and a board of the steps meanwhile.

The result goes to standard output, the board and the report to the error stream. The first Ctrl-C lets what is running
deliver, the second stops it.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glidepath.cli.board import TeamScreen
    from glidepath.cli.world import World
    from glidepath.teams import TeamResult

__all__ = ["add_arguments", "execute"]

_EXAMPLES = """\
examples:
  glidepath team run team.toml 'a note about bees'
  glidepath team run team.toml 'a note about bees' --store teams.db
  glidepath team resume team.toml request_0123456789abcdef --store teams.db

exit codes: 0 completed, 1 failed, 2 usage, 3 degraded, timed out or cancelled, 6 waits for a person, 130 Ctrl-C
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `glidepath team` takes."""
    parser.epilog = _EXAMPLES
    parser.add_argument("action", choices=("run", "resume"), help="carry out a goal, or go on with a request")
    parser.add_argument("file", help="the team: members, steps, reviewers, limits (see docs/teams.md)")
    parser.add_argument("goal", help="the goal; for resume: the id of the request")
    parser.add_argument("--store", metavar="FILE", help="keep the journal here, so that the team can be resumed")
    parser.add_argument("--output-format", choices=("text", "json"), default="text", help="what is printed at the end")


def execute(options: argparse.Namespace, world: World) -> int:
    """Run the team; the exit code says how it ended."""
    import asyncio

    from glidepath.cli.teamfile import load_team
    from glidepath.errors import ConfigurationError, StoreError

    file = load_team(world.folder / options.file, world)
    if options.action == "resume" and not options.store:
        raise ConfigurationError("resume needs --store FILE, the one that the team was run with")
    try:
        return asyncio.run(_fly(file, options, world))
    except StoreError as error:
        raise ConfigurationError(f"--store {options.store}: {error}") from None


async def _fly(file: Any, options: argparse.Namespace, world: World) -> int:
    from glidepath.cli.signals import catching
    from glidepath.run import CancelToken
    from glidepath.sessions import SqliteStore

    store = SqliteStore(world.folder / options.store) if options.store else None
    screen = _screen(world)
    token = CancelToken()
    with catching(token, screen.say) as caught:
        try:
            team = file.team(event_sink=screen.show, store=store)
            if options.action == "resume":
                result = await team.resume(options.goal, cancel=token)
            else:
                request = file.request(options.goal)
                if options.store:
                    screen.say(f"resume with: {_again(options, request.id)}")
                result = await team.run(request, cancel=token)
        finally:
            screen.close()
            if store is not None:
                await store.close()
    _print(result, options, world)
    return _exit(result, caught.number)


def _screen(world: World) -> TeamScreen:
    from glidepath.cli.board import LiveBoard, PlainBoard

    if not world.is_terminal(world.stderr) or world.environ.get("TERM") == "dumb":
        return PlainBoard(world)
    try:
        return LiveBoard(world)
    except ImportError:
        world.note("no live board: pip install 'glidepath[cli]'")
        return PlainBoard(world)


def _print(result: TeamResult, options: argparse.Namespace, world: World) -> None:
    from glidepath import _wire
    from glidepath.cli.board import report

    if options.output_format == "json":
        world.stdout.write(_wire.encoder(enc_hook=repr)(result).decode() + "\n")
    elif result.final_output:
        world.stdout.write(f"{result.final_output.rstrip()}\n")
    world.stdout.flush()
    for line in report(result):
        world.note(line)
    for outcome in result.step_outcomes:
        for waiting in outcome.pending:
            world.note(f"step {outcome.step_id} waits for a decision about {waiting.call.name}")
    if options.store and result.status.name == "PAUSED":
        world.note(f"resume with: {_again(options, result.request_id)}")


def _again(options: argparse.Namespace, request_id: str) -> str:
    return f"glidepath team resume {options.file} {request_id} --store {options.store}"


def _exit(result: TeamResult, signal: int | None) -> int:
    if signal is not None:
        return 128 + signal
    return {"COMPLETED": 0, "FAILED": 1, "PAUSED": 6}.get(result.status.name, 3)
