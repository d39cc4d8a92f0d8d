"""Talk with an agent in a full-screen terminal.

Every message is a run of its own with the limits that are set, but --max-budget-usd is for the whole conversation.
/help lists the commands.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from glidepath.cli.arguments import add_config_flags, add_setting_flags

if TYPE_CHECKING:
    from glidepath.cli.world import World

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `glidepath chat` takes."""
    add_setting_flags(parser, leave_out=("output_format", "streaming"))
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: World) -> int:
    """Open the chat; the exit code is 0 when the person left."""
    from glidepath.cli.extras import needed

    needed("textual")
    from glidepath.cli.layers import gather

    settings = gather(options, world)
    if not world.is_terminal(world.stdin) or not world.is_terminal(world.stdout):
        from glidepath.errors import ConfigurationError

        raise ConfigurationError("chat needs a terminal; in a pipe use `glidepath run`")
    from glidepath.cli.chat.app import ChatApp
    from glidepath.cli.chat.talk import Talk

    talk = Talk(settings, world)
    code = ChatApp(talk).run() or 0
    if settings.get("store") and talk.session.messages:
        world.note(f"this conversation is session {talk.session.id}")
    return code
