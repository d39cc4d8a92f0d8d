"""Go on with a run that was stopped, limited, paused or killed.

It needs the store that the run was made with, and the same model and tools. The meters go on where they stood; a limit
that you name here replaces the old one.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.cli.arguments import add_config_flags, add_setting_flags

if TYPE_CHECKING:
    from glidepath.cli.world import World

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `glidepath resume` takes."""
    parser.add_argument("session", help="the session's id, as the run said at its end")
    parser.add_argument(
        "--accept-repair", action="store_true", help="continue although a part of the session was damaged and is lost"
    )
    add_setting_flags(parser)
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: World) -> int:
    """Go on; the exit code says how it ended."""
    import asyncio

    from glidepath.cli.agent_maker import assume_store, make_agent
    from glidepath.cli.commands.run_command import fly, make_screen
    from glidepath.cli.layers import gather

    settings = gather(options, world)
    assume_store(settings, "resume")
    agent = make_agent(settings, world)
    limits = agent.config.limits if any(settings.said(key) for key in settings.known if key[:7] == "limits.") else None
    screen = make_screen(settings, agent, world)
    return asyncio.run(
        fly(
            agent,
            None,
            screen,
            settings,
            world,
            resume=options.session,
            limits=limits,
            accept_repair=options.accept_repair,
        )
    )
