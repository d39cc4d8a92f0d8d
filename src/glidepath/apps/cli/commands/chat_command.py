"""Talk with an agent in a full-screen terminal.

A limit that you give is for the whole conversation; the defaults are for each message. Of --timeout only the time that
the agent works counts. /limits shows and raises them, /help lists the commands.
"""

from __future__ import annotations

import argparse
import asyncio

from glidepath.apps.cli.arguments import add_agent_flags, add_config_flags, add_setting_flags
from glidepath.apps.cli.cli_context import CliContext
from glidepath.apps.cli.extras import require_extra
from glidepath.apps.cli.layers import gather
from glidepath.values import ConfigurationError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-c", "--continue", dest="go_on", action="store_true", help="continue the last conversation of this folder"
    )
    which.add_argument(
        "-r",
        "--resume",
        nargs="?",
        const="",
        metavar="ID",
        help="continue this one (its id, the start of it, or its name)",
    )
    which.add_argument("--last", action="store_true", help="continue the last one, in any folder")
    parser.add_argument("--name", metavar="TEXT", help="a name for the conversation")
    parser.add_argument("-i", "--image", action="append", default=[], metavar="FILE", help="send a picture first")
    add_agent_flags(parser)
    add_setting_flags(parser, leave_out=("output_format", "streaming"))
    add_config_flags(parser)


def execute(options: argparse.Namespace, world: CliContext) -> int:
    """Open the chat; the exit code is 0 when the person left."""
    require_extra("textual")
    settings = gather(options, world)
    if options.agent is not None:
        from glidepath.apps.cli.own_agent import use_agent

        use_agent(options, settings, world)
    if not world.is_terminal(world.stdin) or not world.is_terminal(world.stdout):
        raise ConfigurationError("chat needs a terminal; in a pipe use `glidepath run`")
    from glidepath.apps.cli.attachments import load_pictures
    from glidepath.apps.cli.chat.app import ChatApp
    from glidepath.apps.cli.chat.chat_conversation import Conversation
    from glidepath.apps.cli.chat.heap import keep_heap
    from glidepath.apps.cli.chat.slash import rename_chat
    from glidepath.apps.cli.chat_cards import choose_chat, make_pending_notes, print_chats
    from glidepath.apps.cli.stores import keep_sessions

    world.notes = []
    try:
        keep_sessions(settings, world)
        if options.resume == "" and not settings.get("model"):
            return print_chats(settings, world)
        wanted = choose_chat(options, settings, world, make_pending_notes(settings, world, tell=False))
        talk = Conversation(settings, world)
        talk.title = options.name or ""
        talk.asides += load_pictures(options.image, world)
        keep_heap()
        code = ChatApp(talk, wanted, between_turns=keep_heap).run() or 0
    finally:
        unseen, world.notes = world.notes, None
        for text in unseen:
            world.note(text)
    talk.remember()
    if talk.title and talk.session.messages:  # continued without a new message
        world.note(asyncio.run(rename_chat(talk, talk.title)))
    elif talk.return_command():
        world.note(f"to come back: {talk.return_command(asyncio.run(talk.name()))}")
    return code
