from glidepath.teams import DefaultTaskDispatchCoordinator, ExpertTeamCoordinator, TeamStatus
from glidepath.testing import no_leftovers, virtual

from .kit import PASS, REVISE, Recorder, Verdicts, agent, request, step, team


@virtual
async def test_a_team_delivers():
    for coordinator in (DefaultTaskDispatchCoordinator(), ExpertTeamCoordinator(evaluator=Verdicts(REVISE, PASS))):
        seen = Recorder()
        async with no_leftovers():
            result = await team(agent("hello"), recorder=seen).run(
                request(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c")), coordinator=coordinator
            )
        print(seen.kinds())
        print(result)
        assert result.status is TeamStatus.COMPLETED
        seen.check(result)
