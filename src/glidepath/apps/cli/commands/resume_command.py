"""Continue a run that was stopped, limited, paused or killed.

It needs the store that the run was made with, and the same tools; its model is remembered. The meters continue where
they stood; a limit that you name here replaces the old one.
"""

from __future__ import annotations

import argparse
import asyncio

from glidepath.apps.cli.arguments import add_agent_flags, add_config_flags, add_setting_flags
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.layers import gather
from glidepath.values import ConfigurationError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", help="the session's id, the start of it, or its name")
    parser.add_argument("--last", action="store_true", help="the last session, instead of an id")
    parser.add_argument(
        "--accept-repair", action="store_true", help="continue although a part of the session was damaged and is lost"
    )
    parser.add_argument("--landed-ok", action="store_true", help="exit with 0, not 3, when a limit hurried the answer")
    add_agent_flags(parser)
    add_setting_flags(parser)
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Continue; the exit code says how it ended."""
    from glidepath.apps.cli.agent_maker import make_agent
    from glidepath.apps.cli.chat_cards import run_to_resume
    from glidepath.apps.cli.commands.run_command import make_screen, run_agent
    from glidepath.apps.cli.file_changes import make_changes
    from glidepath.apps.cli.stores import assume_store

    if bool(options.session) == options.last:
        raise ConfigurationError("name a session: its id, the start of it, its name, or --last")
    settings = gather(options, world)
    if options.agent is not None:
        from glidepath.apps.cli.own_agent import use_agent

        use_agent(options, settings, world)
    assume_store(settings, "resume")
    found = run_to_resume(options, settings, world)
    changes = make_changes(settings, world)
    agent = make_agent(settings, world, plugins=(changes,))
    limits = (
        agent.config.limits
        if any(settings.is_set_by_person(key) for key in settings.known if key[:7] == "limits.")
        else None
    )
    screen = make_screen(settings, agent, world, changes=changes)
    how = {"limits": limits, "accept_repair": options.accept_repair, "changes": changes, "landed_ok": options.landed_ok}
    return asyncio.run(run_agent(agent, None, screen, settings, world, resume=found, **how))
