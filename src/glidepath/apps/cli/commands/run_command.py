"""Give an agent one task and print its answer.

The answer goes to standard output; everything else goes to the error stream when output is piped. The first Ctrl-C asks
the agent to finish up, the second stops it. SIGTERM stops it without another model call and keeps the text.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glidepath.apps.cli.arguments import add_agent_flags, add_config_flags, add_setting_flags
from glidepath.apps.cli.cli_context import CliContext, ScreenClosed
from glidepath.apps.cli.display_text import call_line, escape_invisible
from glidepath.apps.cli.layers import LoadedSettings, gather
from glidepath.apps.cli.notes import amount_used, suggest_next_commands
from glidepath.apps.cli.session_names import label_session
from glidepath.apps.cli.usage_errors import parse_name, parse_title
from glidepath.values import ConfigurationError, StoreError, install_line

if TYPE_CHECKING:
    from glidepath.agent import Agent
    from glidepath.apps.cli.file_changes import Changes
    from glidepath.apps.cli.screens import Screen
    from glidepath.apps.cli.signals import Caught
    from glidepath.run import CancelToken, RunStream
    from glidepath.values import RunResult, UserMessage

_MOST_STDIN = 10_000_000
_EXAMPLES = """\
examples:
  glidepath run 'what does this project do?'
  git diff | glidepath run 'review this' -
  glidepath run -c 'and what about the tests?'
  glidepath run --json-schema invoice.schema.json -i invoice.png 'read this invoice'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("task", nargs="*", help="what to do; - reads standard input (the default in a pipe)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-c", "--continue", dest="go_on", action="store_true", help="continue the last session of this folder"
    )
    which.add_argument(
        "-r",
        "--resume",
        metavar="ID",
        type=parse_name,
        help="continue this session (its id, the start of it, or its name)",
    )
    which.add_argument("--last", action="store_true", help="continue the last session, in any folder")
    parser.add_argument("--name", metavar="TEXT", type=parse_title, help="a name for the session")
    parser.add_argument("-i", "--image", action="append", default=[], metavar="FILE", help="also send a picture")
    parser.add_argument(
        "--json-schema", metavar="FILE", help="the answer must be a JSON object that fits this schema; print it"
    )
    parser.add_argument("--landed-ok", action="store_true", help="exit with 0, not 3, when a limit hurried the answer")
    parser.add_argument("-o", "--out", metavar="FILE", help="also write the answer to a file")
    parser.add_argument("-p", "--print", dest="plain", action="store_true", help="print the raw answer, no status line")
    parser.add_argument("-q", "--quiet", action="store_true", help="print the answer and errors, nothing else")
    parser.add_argument("-v", "--verbose", action="store_true", help="show calls and results in full")
    add_agent_flags(parser)
    add_setting_flags(parser)
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Run the task; the exit code says how it ended."""
    world.notes = [] if options.quiet else None
    settings = gather(options, world)
    if options.agent is not None:
        from glidepath.apps.cli.own_agent import use_agent

        use_agent(options, settings, world)
    task = read_task(options.task, world)
    from glidepath.apps.cli.agent_maker import make_agent
    from glidepath.apps.cli.attachments import attach_pictures, load_picture
    from glidepath.apps.cli.chat_cards import choose_chat, make_pending_notes
    from glidepath.apps.cli.file_changes import make_changes
    from glidepath.apps.cli.stores import keep_sessions

    pictures = [load_picture(world.folder / name) for name in options.image]
    wants_it_kept = options.go_on or options.last or options.resume or options.name
    if world.is_terminal(world.stdout) or world.is_terminal(world.stderr) or wants_it_kept:
        keep_sessions(settings, world)
    session = choose_chat(options, settings, world, make_pending_notes(settings, world)) or None
    output = None
    if options.json_schema is not None:
        from glidepath.apps.cli.schema_answers import answer_type

        output = answer_type(world.folder / options.json_schema)
    if options.out is not None:
        _must_be_writable(world.folder / options.out)
    changes = make_changes(settings, world)
    agent = make_agent(settings, world, plugins=(changes,), output=output)
    screen = make_screen(settings, agent, world, options, changes)
    message = attach_pictures(task, pictures)
    how: Any = {"session": session, "changes": changes, "name": options.name, "landed_ok": options.landed_ok}
    return asyncio.run(run_agent(agent, message, screen, settings, world, **how))


def _must_be_writable(path: Path) -> None:
    """Fail now rather than after paying for the answer."""
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise ConfigurationError(f"--out: {path} cannot be written: {error.strerror or error}") from None


def read_task(words: list[str], world: CliContext) -> str:
    """The task: the words, and what is piped in."""
    piped = not world.is_terminal(world.stdin)
    if not words and not piped:
        raise ConfigurationError("no task: say what to do, such as glidepath run 'summarize README.md'")
    parts = [word for word in words if word != "-"]
    if "-" in words or not words:
        try:
            text = world.stdin.read(_MOST_STDIN + 1)
            text.encode()  # in the C locale invalid bytes arrive as lone surrogates
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise ConfigurationError(f"standard input is not UTF-8 text (at {error.start})") from None
        if len(text) > _MOST_STDIN:
            raise ConfigurationError(f"standard input has more than {_MOST_STDIN} characters")
        parts.append(text.rstrip("\n"))
    return "\n\n".join(part for part in parts if part.strip())


def make_screen(
    settings: LoadedSettings,
    agent: Agent,
    world: CliContext,
    options: argparse.Namespace | None = None,
    changes: Changes | None = None,
) -> Screen:
    """The screen for this output format and terminal."""
    from glidepath.apps.cli.screens import JsonScreen, PlainScreen, StreamScreen

    form = settings["output_format"]
    out = getattr(options, "out", None)
    look: Any = {
        "out": None if out is None else world.folder / out,
        "quiet": getattr(options, "quiet", False),
        "verbose": getattr(options, "verbose", False),
        "only_output": getattr(options, "json_schema", None) is not None,
    }
    if form == "stream-json":
        return StreamScreen(world)
    if form == "json":
        return JsonScreen(world, **look)
    echo = world.is_terminal(world.stdout)
    plain = getattr(options, "plain", False) or look["quiet"] or look["only_output"]
    if plain or (not echo and not world.is_terminal(world.stderr)) or world.environ.get("TERM") == "dumb":
        return PlainScreen(world, **look)
    try:
        from glidepath.apps.cli.live import LiveScreen
    except ImportError:
        world.note(f"no live status line: {install_line('cli')}")
        return PlainScreen(world, **look)
    from glidepath.apps.cli.status import Status, reserved_output_of

    return LiveScreen(
        world,
        Status(agent.config.limits, world.now, reserved_output_of(agent.config)),
        echo=echo,
        streaming=settings["streaming"],
        verbose=look["verbose"],
        out=look["out"],
        changes=changes,
    )


async def run_agent(
    agent: Agent,
    task: str | UserMessage | None,
    screen: Screen,
    settings: LoadedSettings,
    world: CliContext,
    *,
    resume: str | None = None,
    session: str | None = None,
    changes: Changes | None = None,
    name: str | None = None,
    landed_ok: bool = False,
    **going_on: Any,
) -> int:
    """The run, from the first event to the exit code; `resume` names the session to continue, `going_on` says how."""
    from glidepath.apps.cli.chat_cards import keep_run_card
    from glidepath.apps.cli.exits import exit_code
    from glidepath.apps.cli.signals import abandon_tasks, catch_signals
    from glidepath.apps.cli.stores import wallet_of
    from glidepath.run import CancelToken
    from glidepath.sessions import Session
    from glidepath.values import LoopOutcome

    token = CancelToken()
    session = resume or session or (Session().id if settings.get("store") else None)
    ended, result = False, None
    with catch_signals(token, screen.print_line) as caught:
        try:
            given: Any = {"session": session} if resume is None else {"resume": resume, **going_on}
            stream = agent.stream(task, cancel=token, parent=await wallet_of(settings, agent), **given)
            keep_run_card(session, settings, world.folder)
            async with agent:  # tool servers stay up while a person decides
                result = await _continue_until_end(
                    agent, stream, screen, settings, world, token, caught, changes=changes
                )
            kept = session is not None or caught.number is not None
            _finish(screen, result, limits_named=going_on.get("limits") is not None, kept=kept)
            ended = result.outcome is LoopOutcome.DONE or _is_lost(result, begun=resume is not None)
            if session is not None and agent.config.store is not None:
                await label_session(agent.config.store, session, name, world)
        except ConfigurationError:
            ended = True  # nothing has started
            raise
        except (BrokenPipeError, ScreenClosed, StoreError):
            raise
        except Exception:
            screen.close()
            world.complain(f"this should not have happened\n{traceback.format_exc()}")  # and then how to continue
            return 1
        finally:
            screen.close()
            if session is not None and not ended:
                world.note("\n".join(suggest_next_commands(session, settings, result)))
            if agent.config.store is not None:
                await agent.config.store.close()
            await abandon_tasks()
    return exit_code(result, caught.number, landed_ok=landed_ok)


def _finish(screen: Screen, result: RunResult, *, limits_named: bool, kept: bool) -> None:
    """Show the answer, and what else a person should know."""
    from glidepath.values import LoopOutcome

    screen.finish(result)
    for line in describe_interruption(result, limits_named=limits_named):
        screen.print_line(line)
    if result.outcome is LoopOutcome.PAUSED and not kept:
        screen.print_line(
            "Nobody decided, and the run is not saved. Pass --store PATH to save it, or --approve all or deny."
        )


def describe_interruption(result: RunResult, *, limits_named: bool = False) -> Iterator[str]:
    """What a person should know about a run that was interrupted: what has changed since, what may have happened.

    With `limits_named`, changed limits are not mentioned: the person has just set them.
    """
    for change in result.changes:
        if limits_named and change.what == "limit":
            continue
        yield f"since the run was interrupted, {escape_invisible(str(change))}"
    for call in result.unknown_effects:
        yield f"outcome unknown, it may have taken effect: {call_line(call.name, call.arguments)}"


def _is_lost(result: RunResult, *, begun: bool) -> bool:
    """True when the store failed and there is nothing to continue: the run never began, or another process owns it."""
    cause = result.cause
    if cause is None or cause.source != "store":
        return False
    passing = cause.metrics.get("kind") in ("full", "read_only", "locked", "unavailable")
    return not passing or not (begun or result.iterations)


async def _continue_until_end(
    agent: Agent,
    stream: RunStream,
    screen: Screen,
    settings: LoadedSettings,
    world: CliContext,
    token: CancelToken,
    caught: Caught,
    *,
    changes: Changes | None = None,
) -> RunResult:
    """Continue until the run has ended, or needs a decision that nobody can make."""
    from glidepath._wire import replace
    from glidepath.apps.cli.approval import decide
    from glidepath.apps.cli.stores import wallet_of
    from glidepath.guards.approvals import AlwaysAllowed
    from glidepath.values import LoopOutcome

    since: tuple[Any, ...] = ()
    always = AlwaysAllowed()
    while True:
        result, ran = await _consume(stream, screen, token)
        since += result.changes if ran else ()
        result = replace(result, changes=since)
        if result.outcome is not LoopOutcome.PAUSED or caught.number is not None:
            return result
        tools = agent.config.tools
        decisions = await decide(result, tools, screen, settings, world, caught, changes=changes, always=always)
        if decisions is None:
            return result
        target = result if agent.config.store is None else result.session_id
        stream = agent.stream(resume=target, decisions=decisions, cancel=token, parent=await wallet_of(settings, agent))


def resume_line(session: str, settings: LoadedSettings, result: RunResult | None = None) -> str:
    """The command that continues a session, with the flags of this command line but without a password.

    It raises the limit that was hit, or the run would end at once.
    """
    hit = limit_that_was_hit(result)
    return " ".join(
        ["glidepath", "resume", session, *repeat_flags(settings, but=hit), *suggest_raised_limit(settings, hit, result)]
    )


def limit_that_was_hit(result: RunResult | None) -> str:
    """The key of the limit that ended a run; "" for another end."""
    if result is None or result.cause is None:
        return ""
    from glidepath.guards import LIMIT_KINDS

    fields = {kind.__name__: kind.limit for kind in LIMIT_KINDS} | {"GracefulTurnLimit": "max_iterations"}
    field = fields.get(result.cause.source)
    return "" if field is None else f"limits.{field}"


def suggest_raised_limit(settings: LoadedSettings, key: str, result: RunResult | None) -> list[str]:
    """Twice the limit that ended the run, or twice what the run has used if that is more, as a flag."""
    from glidepath.apps.cli.setting_rows import ROWS

    flag = next((row.flag for row in ROWS if row.key == key), None)
    limit = settings.get(key) if flag else None
    if flag is None or limit is None:
        return []
    limit = max(limit, amount_used(key, result))
    return [flag, f"{2 * limit:g}s" if flag == "--timeout" else str(2 * limit)]


_REPEATED = ("store", "model", "tools", "wallet", "landing")


def repeat_flags(settings: LoadedSettings, but: str = "") -> list[str]:
    """The flags of this command line to repeat for the same model, tools, store and limits, without any secret.

    A limit that is left out would not hold for what comes next. `but` is the key of a setting to leave out.
    """
    from glidepath.apps.cli.commands.config_command import HIDDEN, to_safe_json

    words: list[str] = ["--agent", shlex.quote(settings.agent_name)] if settings.agent_name else []
    first = {key: settings.known[key] for key in _REPEATED if key in settings.known}
    for key, known in (first | settings.known).items():
        if key == but or not known.typed or (key, known.value) == ("store", "default"):
            continue
        if key == "store" and "://" in known.typed:  # with a password, perhaps
            words += ["--store", '"$GLIDEPATH_STORE"']
        elif HIDDEN in str(to_safe_json(known.value)):
            continue
        elif known.origin == "flag --set":
            words += ["--set", shlex.quote(f"{key}={known.typed}")]
        elif key in _REPEATED or key.startswith("limits."):
            words += [known.origin.removeprefix("flag "), shlex.quote(known.typed)]
    return words


async def _consume(stream: RunStream, screen: Screen, token: CancelToken) -> tuple[RunResult, bool]:
    event = None  # and none comes from a run that has ended already
    async with stream:
        async for event in stream:
            try:
                screen.show(event)
            except BrokenPipeError:
                token.cancel("nothing reads the output any more")
                raise
    return stream.result, event is not None
