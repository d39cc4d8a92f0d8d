"""A team and its member may each have a plugin of the same name: both are asked, and each keeps its own state."""

import asyncio

from glidepath import Agent, Limits, Plugin, tool
from glidepath.teams import Team
from glidepath.testing import ScriptedModel, call, say


class Counting(Plugin):
    """Counts the calls it sees."""

    name = "counting"

    def __init__(self):
        self.seen = 0

    def before_tool_call(self, context):
        self.seen += 1


@tool
async def look() -> str:
    """Look."""
    return "seen"


def test_a_guard_of_the_team_is_asked_beside_the_members_guard_of_the_same_name():
    teams, members = Counting(), Counting()
    model = ScriptedModel([call("look"), say("Done as asked.")]).forever(say("Done as asked."))
    member = Agent(model=model, tools=[look], plugins=[members], limits=Limits(max_iterations=4))
    result = asyncio.run(Team([member], plugins=[teams]).run("Look."))
    assert result.status.value == "completed"
    assert (teams.seen, members.seen) == (1, 1)
