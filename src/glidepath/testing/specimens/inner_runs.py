"""Other agents in a run: those that its tools start, one that takes over, and one that reviews its calls."""

from __future__ import annotations

from glidepath.testing.specimens.specimen import ANSWER, Moment, Tireless
from glidepath.testing.turns import Turn, call, calls, hang, say
from glidepath.tools import Tool, tool

_TRANSFER = "transfer_to_"


class RunsItself(Tireless):
    """A tool runs the agent itself, twice in every turn, by `agent.run`: the limits must reach what it starts."""

    family = "children"
    extra_tool = "run"

    def step(self, moment: Moment) -> Turn:
        """Two more runs."""
        return calls(*[call("run", task=f"part {moment.number}.{part}") for part in range(2)])


class MapsWithoutEnd(Tireless):
    """A tool runs the agent on one item after the other, of which there is no last one."""

    family = "children"
    extra_tool = "map"

    def step(self, moment: Moment) -> Turn:
        """Map, and answer for each of the items."""
        mapped = any(message.text.startswith("item ") for message in moment.request.messages)
        return say(ANSWER) if mapped else call("map", task="all of them")


class HandsBackAndForth(Tireless):
    """Hands the conversation over to another agent, which hands it back, and so on."""

    family = "handoffs"
    hands_over = True

    def step(self, moment: Moment) -> Turn:
        """The agent that speaks gives it to the other one."""
        name = next((one.name for one in moment.request.tools if one.name.startswith(_TRANSFER)), None)
        return say(ANSWER) if name is None else call(name, reason=f"round {moment.number}")


class _Reviewed(Tireless):
    """Makes calls that need approval, each another one."""

    family = "reviewer"
    reviewed = True

    def tools(self) -> tuple[Tool, ...]:
        """A tool that a model may approve."""
        return (tool(look_at, requires_approval=True, read_only=True),)

    def step(self, moment: Moment) -> Turn:
        """Look at something else."""
        return call("look_at", place=f"place {moment.number}")


async def look_at(place: str) -> str:
    """Look at a place."""
    return f"{place}: nothing new"


class ReviewerIsSilent(_Reviewed):
    """Makes calls that need approval; the reviewer of the approvals never answers."""

    def review(self, moment: Moment) -> Turn:
        """Nothing."""
        return hang()


class ReviewerRefuses(_Reviewed):
    """Makes calls that need approval; the reviewer of the approvals refuses each of them, at length."""

    def review(self, moment: Moment) -> Turn:
        """No, for a reason that fills a page."""
        return say(f"REFUSE: {'because ' * 2000}{moment.number}")
