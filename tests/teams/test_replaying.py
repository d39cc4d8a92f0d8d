"""The runs of a team can be flown again."""

import pytest

from glidepath import ConfigurationError, Plugin
from glidepath.errors import StoreError
from glidepath.sessions import MemoryStore
from glidepath.teams import ExpertTeamCoordinator, replay_team
from glidepath.testing import virtual

from .kit import agent, request, step, team


@pytest.mark.parametrize("request_id", ["plain", "with/slash", "r" * 190], ids=["plain", "slash", "long"])
@virtual
async def test_the_members_of_a_team_are_replayed(request_id):
    store = MemoryStore()
    crew = team(agent("a is done", name="one"), agent("b is done", name="two"), store=store)
    asked = request(step("a", member="one"), step("b", "a", member="two"), request_id=request_id)
    await crew.run(asked)
    found = await replay_team(crew, asked.id)
    assert len(found) == 2
    assert all((one.difference, one.whole) == ("", True) for one in found.values()), found


@virtual
async def test_the_members_of_a_team_that_can_be_steered_are_replayed():
    class Guard(Plugin):
        """Guards every member of the team."""

        inheritable_to_child = True

        def before_tool_call(self, context):
            return None

    store = MemoryStore()
    crew = team(agent("a is done", name="one"), store=store, plugins=[Guard()])
    asked = request(step("a"))
    await crew.run(asked, coordinator=ExpertTeamCoordinator())
    [replayed] = (await replay_team(crew, asked.id)).values()
    assert (replayed.difference, replayed.whole) == ("", True)


@virtual
async def test_there_must_be_a_store_and_something_in_it():
    with pytest.raises(ConfigurationError, match="needs a team with a store"):
        await replay_team(team(agent("a", name="one")), "r")
    with pytest.raises(StoreError, match="no run for request 'r'"):
        await replay_team(team(agent("a", name="one"), store=MemoryStore()), "r")
