"""Give a team of agents one goal and watch its steps.

The result goes to standard output, the board and the report to the error stream. The first Ctrl-C lets what is running
deliver, the second stops it. On a terminal you are asked about calls that need approval.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.display_text import call_line
from glidepath.apps.cli.session_flags import replay_request
from glidepath.values import ConfigurationError, StoreError, install_line

if TYPE_CHECKING:
    from glidepath.apps.cli.signals import Caught
    from glidepath.apps.cli.team_board import TeamScreen
    from glidepath.apps.cli.teamfile import TeamFile
    from glidepath.teams import StepOutcome, Team, TeamExecutionPlan, TeamResult

_SHOWN = 500  # characters shown of a pending call
_EXAMPLES = """\
examples:
  glidepath team run team.toml 'a note about bees'
  glidepath team run team.toml 'a note about bees' --store teams.db
  glidepath team run team.toml 'a note about bees' --store teams.db --plan-only
  glidepath team resume team.toml request_0123456789abcdef --store teams.db

exit codes: 0 completed, 1 failed, 2 usage, 3 degraded, timed out or cancelled, 6 waiting for a person, 130 Ctrl-C
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    what = "work toward a goal, continue a request, or replay its runs and compare, without a model"
    parser.add_argument("action", choices=("run", "resume", "replay"), help=what)
    parser.add_argument("file", help="the team: members, steps, reviewers, limits (see docs/teams.md)")
    parser.add_argument("goal", help="the goal; for resume and replay: the id of the request")
    parser.add_argument("--store", metavar="FILE", help="keep the journals here, so that the team can be resumed")
    parser.add_argument("--redact", metavar="NAME", help="rewrites what is stored: python:module:function")
    parser.add_argument("--wallet", metavar="NAME", help="spend from this wallet in the store")
    parser.add_argument("--plan-only", action="store_true", help="show the plan and wait; resume carries it out")
    parser.add_argument(
        "--approve",
        choices=("ask", "all", "deny"),
        default="ask",
        help="calls that need a person's approval: ask, approve all of them, or deny them",
    )
    parser.add_argument("--output-format", choices=("text", "json"), default="text", help="what to print at the end")


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Run the team; the exit code says how it ended."""
    from glidepath.apps.cli.teamfile import TeamFile

    file = TeamFile(world.folder / options.file, world, approve=options.approve, store=options.store)
    if options.action != "run" and not options.store:
        raise ConfigurationError(f"{options.action} needs --store FILE, the store of the first run")
    if options.wallet and not options.store:
        raise ConfigurationError(f"wallet {options.wallet!r:.80} needs a store: pass --store FILE")
    try:
        if options.action == "replay":
            return replay_request(file, options, world)
        return asyncio.run(_run_team(file, options, world))
    except StoreError as error:
        raise ConfigurationError(f"--store {options.store}: {error}") from None


async def _run_team(file: TeamFile, options: argparse.Namespace, world: CliContext) -> int:
    from glidepath.agent import Budget
    from glidepath.apps.cli.signals import catch_signals
    from glidepath.apps.cli.stores import open_redacted_store
    from glidepath.run import CancelToken
    from glidepath.teams import read_story

    store = open_redacted_store(options.store, options.redact, world) if options.store else None
    screen = _screen(world)
    token = CancelToken()
    with catch_signals(token, screen.print_line) as caught:
        try:
            team = file.team(event_sink=screen.show, store=store)
            above = await Budget.find(options.wallet, store) if options.wallet and store is not None else None
            if options.action == "resume":
                screen.recall(await read_story(store, options.goal) if store is not None else ())
                result = await team.resume(options.goal, cancel=token, parent=above)
            else:
                request = file.request(options.goal, plan_only=options.plan_only)
                if options.store:
                    screen.print_line(f"resume with: {_make_repeat_command(options, request.id)}")
                result = await team.run(request, cancel=token, parent=above)
            go_on = partial(team.resume, cancel=token, parent=above)
            result = await _continue_until_decided(result, team, screen, options, world, go_on, caught)
        finally:
            screen.close()
            if store is not None:
                await store.close()
    _print(result, options, world)
    return _exit(result, caught.number)


async def _continue_until_decided(
    result: TeamResult,
    team: Team,
    screen: TeamScreen,
    options: argparse.Namespace,
    world: CliContext,
    go_on: Callable[..., Awaitable[TeamResult]],
    caught: Caught,
) -> TeamResult:
    """Continue until the team has ended, or needs a decision that nobody can make."""
    from glidepath._wire import replace
    from glidepath.apps.cli.approval import decisions_about, has_person, is_sandboxed
    from glidepath.apps.cli.approval_dialog import ApprovalAsked

    while caught.number is None:
        waiting = [(pending, outcome) for outcome in result.step_outcomes for pending in outcome.pending]
        nobody = options.approve == "ask" and (options.output_format != "text" or not has_person(world))
        if not waiting or nobody:
            break
        screen.close()
        asked = [
            ApprovalAsked(
                name=f"{outcome.step_id}/{pending.call.id}",
                pending=pending,
                who=f"{_name_worker(outcome)} (step {outcome.step_id})",
                sandboxed=is_sandboxed(pending, _tools(outcome, team)),
            )
            for pending, outcome in waiting
        ]
        decisions = await decisions_about(asked, options.approve, world, caught)
        if decisions is None:
            break
        later = await go_on(result, decisions=decisions)
        result = replace(later, changes=(*result.changes, *later.changes))
    return result


def _name_worker(outcome: StepOutcome) -> str:
    return f"The senior of {outcome.member}" if outcome.senior else str(outcome.member)


def _tools(outcome: StepOutcome, team: Team) -> Iterable[Any]:
    """The tools of the member that is waiting."""
    if outcome.senior:
        senior = getattr(team.coordinator, "senior", None)
        return () if senior is None else senior.config.tools
    return [tool for member in team.members if member.name == outcome.member for tool in member.agent.config.tools]


def _screen(world: CliContext) -> TeamScreen:
    from glidepath.apps.cli.team_board import LiveBoard, PlainBoard

    if not world.is_terminal(world.stderr) or world.environ.get("TERM") == "dumb":
        return PlainBoard(world)
    try:
        return LiveBoard(world)
    except ImportError:
        world.note(f"no live board: {install_line('cli')}")
        return PlainBoard(world)


def _print(result: TeamResult, options: argparse.Namespace, world: CliContext) -> None:
    from glidepath import _wire
    from glidepath.apps.cli.status import strip_control_characters
    from glidepath.apps.cli.team_board import report

    if options.output_format == "json":
        world.stdout.write(_wire.encoder(enc_hook=repr)(result).decode() + "\n")
    elif result.final_output:
        text = result.final_output.rstrip()
        world.stdout.write(f"{strip_control_characters(text) if world.is_terminal(world.stdout) else text}\n")
    elif result.plan is not None and options.plan_only:
        world.stdout.writelines(f"{line}\n" for line in _plan(result.plan))
    world.stdout.flush()
    for line in report(result):
        world.note(line)
    if result.status.name == "PAUSED":
        _print_how_to_continue(result, options, world)


def _plan(plan: TeamExecutionPlan) -> Iterator[str]:
    from glidepath.apps.cli.status import clip_line

    for step in plan.steps:
        who = [f"as {step.role.name}"] if step.role is not None else []
        who += [f"by {step.member}"] if step.member is not None else []
        who += [f"after {', '.join(step.depends_on)}"] if step.depends_on else []
        more = f" ({'; '.join(who)})" if who else ""
        yield clip_line(f"{step.id}: {step.description}{more}", 1000)


def _print_how_to_continue(result: TeamResult, options: argparse.Namespace, world: CliContext) -> None:
    for outcome in result.step_outcomes:
        for waiting in outcome.pending:
            call = call_line(waiting.call.name, waiting.call.arguments, _SHOWN)
            world.note(f"step {outcome.step_id} is waiting for a decision about {call}")
    if options.store:
        world.note(f"to continue: {_make_repeat_command(options, result.request_id)}")
        if any(outcome.pending for outcome in result.step_outcomes):
            world.note("run it on a terminal to be asked, or pass --approve all or --approve deny")
    else:
        world.note("nothing was saved: run it with --store FILE to continue later")


def _make_repeat_command(options: argparse.Namespace, request_id: str) -> str:
    store = '"$GLIDEPATH_STORE"' if "://" in options.store else shlex.quote(options.store)  # it may have a password
    wallet = f" --wallet {shlex.quote(options.wallet)}" if options.wallet else ""
    return f"glidepath team resume {shlex.quote(options.file)} {shlex.quote(request_id)} --store {store}{wallet}"


def _exit(result: TeamResult, signal: int | None) -> int:
    if signal is not None:
        return 128 + signal
    return {"COMPLETED": 0, "FAILED": 1, "PAUSED": 6}.get(result.status.name, 3)
