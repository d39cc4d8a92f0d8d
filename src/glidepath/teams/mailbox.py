"""How a person's messages reach a member that is already working."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from glidepath._wire import replace
from glidepath.agent import Agent
from glidepath.spi import Plugin, PollContext
from glidepath.teams.agent_variants import AgentVariants

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Mailboxes", "TeamMailbox"]


class TeamMailbox(Plugin):
    """Gives a running member the notes for its step: after each turn, and before it would be done.

    A run lives in the task that started it, so the task says whose notes they are: nothing is kept for each run.
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
        """Notes that came during the last turn."""
        return self._take()

    def follow_up(self, context: PollContext) -> Any:  # noqa: ARG002 - the hook's signature
        """Notes that came during what would have been the last turn."""
        return self._take()


class Mailboxes:
    """The mailboxes of all steps at work, and the agents that look into them."""

    def __init__(self) -> None:
        self._boxes: dict[asyncio.Task[Any] | None, list[str]] = {}
        mailbox = TeamMailbox(self._boxes)
        self._variants = AgentVariants(lambda config: replace(config, plugins=(*config.plugins, mailbox)))

    def steerable(self, agent: Agent) -> Agent:
        """The same agent with a mailbox."""
        return self._variants.of(agent)

    def open(self, notes: list[str]) -> None:
        """Notes put into this list reach the runs of the current task."""
        self._boxes[asyncio.current_task()] = notes

    def close(self) -> None:
        """The current task has no runs any more."""
        self._boxes.pop(asyncio.current_task(), None)
