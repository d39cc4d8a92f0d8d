"""The full-screen chat: a conversation, its slash commands, and the screen around them."""

from typing import TYPE_CHECKING

from glidepath._lazy import lazy_attributes

# What other packages use, imported when it is first asked for.
if TYPE_CHECKING:
    from glidepath.apps.cli.chat.chat_conversation import COMMANDS as COMMANDS
    from glidepath.apps.cli.chat.heap import keep_heap as keep_heap

if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, chat_conversation=("COMMANDS",), heap=("keep_heap",))
