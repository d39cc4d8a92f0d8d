"""The same agents with something added to their configuration."""

from __future__ import annotations

from collections.abc import Callable

from glidepath.agent import Agent, LoopConfig

__all__ = ["AgentVariants"]

_KEPT = 256  # agents that are remembered


class AgentVariants:
    """Agents with a changed configuration; made once for each, for the last few hundred agents."""

    def __init__(self, change: Callable[[LoopConfig], LoopConfig]) -> None:
        self._change = change
        self._known: dict[int, tuple[Agent, Agent]] = {}

    def of(self, agent: Agent) -> Agent:
        """The variant of this agent; itself, where nothing changes."""
        known = self._known.get(id(agent))
        if known is None:
            config = self._change(agent.config)
            known = (agent, agent if config is agent.config else Agent(config))  # the first keeps its id from reuse
            if len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[id(agent)] = known
        return known[1]
