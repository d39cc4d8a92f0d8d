"""Agents that tools start without naming the parent run."""

from __future__ import annotations

from glidepath.testing.specimens.specimen import Moment, Tireless
from glidepath.testing.turns import Turn, call, calls


class RunsItself(Tireless):
    """A tool runs the agent itself, twice in every turn, by `agent.run`: the limits must reach what it starts."""

    family = "children"
    extra_tool = "run"

    def step(self, moment: Moment) -> Turn:
        """Two more runs."""
        return calls(*[call("run", task=f"part {moment.number}.{part}") for part in range(2)])
