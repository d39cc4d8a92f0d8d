"""How a person's messages reach a member that is already working."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Agent
from glidepath.spi import Plugin, PollContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KEPT_VARIANTS = 256  # how many agents' variants are cached


class TeamMailbox(Plugin):
    """Gives a running member the notes for its step: after each turn, and before it would end.

    A run lives in the task that started it, so the task tells whose notes they are: there is no state per run.
    """

    name = "team_mailbox"

    def __init__(self, boxes: dict[asyncio.Task[Any] | None, list[str]]) -> None:
        self._boxes = boxes

    def _take(self) -> Sequence[str] | None:
        notes = self._boxes.get(asyncio.current_task())
        if not notes:
            return None
        taken = [f"A note from the person in charge: {note}" for note in notes]
        notes.clear()
        return taken

    def steering(self, context: PollContext) -> Any:  # noqa: ARG002 - the hook's signature
        """The notes that arrived during the last turn."""
        return self._take()

    def follow_up(self, context: PollContext) -> Any:  # noqa: ARG002 - the hook's signature
        """The notes that arrived during what would have been the final turn."""
        return self._take()


class Mailboxes:
    """The mailboxes of all running steps, and the agents that read them."""

    def __init__(self) -> None:
        self._boxes: dict[asyncio.Task[Any] | None, list[str]] = {}
        mailbox = TeamMailbox(self._boxes)

        @lru_cache(KEPT_VARIANTS)
        def steerable(agent: Agent) -> Agent:
            return Agent(replace(agent.config, plugins=(*agent.config.plugins, mailbox)))

        self.steerable: Callable[[Agent], Agent] = steerable
        """The same agent with a mailbox."""

    def open(self, notes: list[str]) -> None:
        """Deliver notes put into this list to the runs of the current task."""
        self._boxes[asyncio.current_task()] = notes

    def close(self) -> None:
        """Stop delivering notes to the current task."""
        self._boxes.pop(asyncio.current_task(), None)
