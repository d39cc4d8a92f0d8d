"""Give an agent one task and print its answer.

The answer goes to standard output; everything else goes to the error stream when output is piped. The first Ctrl-C asks
the agent to finish up, the second stops it. SIGTERM stops it without another model call and keeps the text.
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from glidepath.cli.arguments import add_config_flags, add_setting_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glidepath.cli.layers import LoadedSettings
    from glidepath.cli.screens import Screen
    from glidepath.cli.signals import Caught
    from glidepath.cli.world import World
    from glidepath.outcome import RunResult
    from glidepath.run import CancelToken

__all__ = ["add_arguments", "execute", "fly", "read_task", "to_know"]

_MOST_STDIN = 10_000_000
_EXAMPLES = """\
examples:
  glidepath run 'what does this project do?'
  git diff | glidepath run 'review this' -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `glidepath run` takes."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "task", nargs="*", help="what to do; - reads standard input, as does no task at all when it is a pipe"
    )
    add_setting_flags(parser)
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: World) -> int:
    """Run the task; the exit code says how it ended."""
    from glidepath.cli.layers import gather

    settings = gather(options, world)
    task = read_task(options.task, world)
    from glidepath.cli.agent_maker import keep_sessions, make_agent

    if world.is_terminal(world.stdout) or world.is_terminal(world.stderr):
        keep_sessions(settings, world)
    agent = make_agent(settings, world)
    screen = make_screen(settings, agent, world)
    import asyncio

    return asyncio.run(fly(agent, task, screen, settings, world))


def read_task(words: list[str], world: World) -> str:
    """The task: the words, and what is piped in."""
    from glidepath.errors import ConfigurationError

    piped = not world.is_terminal(world.stdin)
    if not words and not piped:
        raise ConfigurationError("no task: say what to do, such as glidepath run 'summarize README.md'")
    parts = [word for word in words if word != "-"]
    if "-" in words or not words:
        try:
            text = world.stdin.read(_MOST_STDIN + 1)
            text.encode()  # in the C locale bytes that are no text come as half characters
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise ConfigurationError(f"standard input is not UTF-8 text (at {error.start})") from None
        if len(text) > _MOST_STDIN:
            raise ConfigurationError(f"standard input has more than {_MOST_STDIN} characters")
        parts.append(text.rstrip("\n"))
    return "\n\n".join(part for part in parts if part.strip())


def make_screen(settings: LoadedSettings, agent: Any, world: World) -> Screen:
    """The screen that the output format and the terminal call for."""
    from glidepath.cli.screens import JsonScreen, PlainScreen, StreamScreen

    form = settings["output_format"]
    if form == "stream-json":
        return StreamScreen(world)
    if form == "json":
        return JsonScreen(world)
    echo = world.is_terminal(world.stdout)
    if (not echo and not world.is_terminal(world.stderr)) or world.environ.get("TERM") == "dumb":
        return PlainScreen(world)
    try:
        from glidepath.cli.live import LiveScreen
    except ImportError:
        world.note("no live status line: pip install 'glidepath[cli]'")
        return PlainScreen(world)
    from glidepath.cli.status import Status

    return LiveScreen(world, Status(agent.config.limits, world.now), echo=echo, streaming=settings["streaming"])


async def fly(
    agent: Any,
    task: str | None,
    screen: Screen,
    settings: LoadedSettings,
    world: World,
    *,
    resume: str | None = None,
    **going_on: Any,
) -> int:
    """The run itself, from the first event to the exit code; `resume` names the session to continue, `going_on` how."""
    import traceback

    from glidepath.cli.agent_maker import wallet_of
    from glidepath.cli.exits import exit_code
    from glidepath.cli.signals import catching, let_go
    from glidepath.cli.world import ScreenClosed
    from glidepath.errors import ConfigurationError, StoreError
    from glidepath.outcome import LoopOutcome
    from glidepath.run import CancelToken
    from glidepath.sessions import Session

    token = CancelToken()
    session = resume or (Session().id if settings.get("store") else None)
    ended = False
    with catching(token, screen.say) as caught:
        try:
            given: Any = {"session": session} if resume is None else {"resume": resume, **going_on}
            stream = agent.stream(task, cancel=token, parent=await wallet_of(settings, agent), **given)
            async with agent:  # servers of tools stay while a person decides
                result = await _fly_on(agent, stream, screen, settings, world, token, caught)
            kept = session is not None or caught.number is not None
            _finish(screen, result, limits_named=going_on.get("limits") is not None, kept=kept)
            ended = result.outcome is LoopOutcome.DONE or _lost(result, begun=resume is not None)
        except ConfigurationError:
            ended = True  # nothing was begun
            raise
        except StoreError as error:
            screen.close()
            raise ConfigurationError(str(error)) from None
        except (BrokenPipeError, ScreenClosed):
            raise
        except Exception:
            screen.close()
            world.complain(f"this should not have happened\n{traceback.format_exc()}")  # and then how to continue
            return 1
        finally:
            screen.close()
            if session is not None and not ended:
                world.note(f"to continue: {resume_line(session, settings)}")
            await _close_store(agent)
            await let_go()
    return exit_code(result, caught.number)


def _finish(screen: Screen, result: RunResult, *, limits_named: bool, kept: bool) -> None:
    """The answer, and what a person should know beside it."""
    from glidepath.outcome import LoopOutcome

    screen.finish(result)
    for line in to_know(result, limits_named=limits_named):
        screen.say(line)
    if result.outcome is LoopOutcome.PAUSED and not kept:
        screen.say("Nobody decided, and the run is not kept. Pass --store PATH to keep it, or --approve all or deny.")


def to_know(result: RunResult, *, limits_named: bool = False) -> Iterator[str]:
    """What a person should know about a run that was interrupted: what has changed since, what may have happened.

    `limits_named`: who names other limits knows that they are others.
    """
    from glidepath.cli.shown import call_line, revealed

    for change in result.changes:
        if limits_named and change.what == "limit":
            continue
        yield f"changed since the run was interrupted: {revealed(str(change))}"
    for call in result.unknown_effects:
        yield f"outcome unknown, it may have taken effect: {call_line(call.name, call.arguments)}"


def _lost(result: RunResult, *, begun: bool) -> bool:
    """True when the store failed and there is nothing to go on with: it never began, or is somebody else's."""
    cause = result.cause
    if cause is None or cause.source != "store":
        return False
    passing = cause.metrics.get("kind") in ("full", "read_only", "locked", "unavailable")
    return not passing or not (begun or result.iterations)


async def _fly_on(
    agent: Any, stream: Any, screen: Screen, settings: LoadedSettings, world: World, token: CancelToken, caught: Caught
) -> RunResult:
    """Until the run has ended, or waits for a decision that nobody is there to make."""
    from glidepath._wire import replace
    from glidepath.cli.agent_maker import wallet_of
    from glidepath.cli.approval import decide
    from glidepath.outcome import LoopOutcome

    changes: tuple[Any, ...] = ()
    while True:
        result = await _consume(stream, screen, token)
        changes += result.changes
        result = replace(result, changes=changes)
        if result.outcome is not LoopOutcome.PAUSED or caught.number is not None:
            return result
        decisions = await decide(result, agent.config.tools, screen, settings, world, caught)
        if decisions is None:
            return result
        target = result if agent.config.store is None else result.session_id
        above = await wallet_of(settings, agent)
        stream = agent.stream(resume=target, decisions=decisions, cancel=token, parent=above)


def resume_line(session: str, settings: LoadedSettings) -> str:
    """The command that goes on with a session: with what was said on this command line, and without a password."""
    words = ["glidepath", "resume", session]
    for key, flag in (("store", "--store"), ("model", "--model"), ("tools", "--tools"), ("wallet", "--wallet")):
        value = settings.get(key)
        if value and settings.origin(key).startswith("flag") and (key, value) != ("store", "default"):
            text = ",".join(value) if isinstance(value, tuple) else value
            words += [flag, '"$GLIDEPATH_STORE"' if "://" in text and key == "store" else shlex.quote(text)]
    return " ".join(words)


async def _close_store(agent: Any) -> None:
    if agent.config.store is not None:
        await agent.config.store.close()


async def _consume(stream: Any, screen: Screen, token: CancelToken) -> RunResult:
    async with stream:
        async for event in stream:
            try:
                screen.show(event)
            except BrokenPipeError:
                token.cancel("nobody reads the output any more")
                raise
    ended: RunResult = stream.result
    return ended
