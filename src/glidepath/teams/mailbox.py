"""How a person's messages reach a member that is already working."""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from glidepath._wire import replace
from glidepath.agent import Agent
from glidepath.spi import Plugin, PollContext

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_VARIANTS = 256  # how many agents' variants are cached
INBOX: ContextVar[list[str] | None] = ContextVar("glidepath_team_inbox", default=None)
"""The notes for the step that is worked on here: a step has its own task, in which its member runs."""


class TeamMailbox(Plugin):
    """Gives a running member the notes for its step: after each turn, and before it would end. It has no state."""

    name = "team_mailbox"
    inheritable_to_child: ClassVar[bool | None] = False

    def steering(self, context: PollContext) -> Any:  # noqa: ARG002 - the hook's signature
        """The notes that arrived during the last turn."""
        notes = INBOX.get()
        if not notes:
            return None
        taken = [f"A note from the person in charge: {note}" for note in notes]
        notes.clear()
        return taken

    def follow_up(self, context: PollContext) -> Any:
        """The notes that arrived during what would have been the final turn."""
        return self.steering(context)


class Mailboxes:
    """Makes agents that read the notes for their steps."""

    def __init__(self) -> None:
        mailbox = TeamMailbox()

        @lru_cache(KEPT_VARIANTS)
        def steerable(agent: Agent) -> Agent:
            return Agent(replace(agent.config, plugins=(*agent.config.plugins, mailbox)))

        self.steerable: Callable[[Agent], Agent] = steerable
        """The same agent with a mailbox."""
