"""Specimens that could take a result away: an ordinary configuration flies them all, and has its answer."""

import pytest

from glidepath import Agent, Limits, tool
from glidepath.sim import fly
from glidepath.testing import ScriptedModel
from glidepath.testing.specimens import Specimen, result


@tool
async def lookup(query: str) -> str:
    """Look something up."""
    raise AssertionError("the real tool must never run")


@pytest.mark.parametrize("kind", [*result.OBSERVERS, *result.TOOLS], ids=lambda kind: kind.name)
def test_g1_a_result_is_never_taken_away(kind):
    agent = Agent(
        model=ScriptedModel(), tools=[lookup], limits=Limits(max_iterations=10, max_tokens=50_000, timeout=600)
    )
    flight = fly(agent.config, kind, 1)
    assert (flight.problems, flight.outcome, flight.answer) == ((), "DONE", "model")


def test_a_specimen_brings_its_plugins_along_anew_for_every_flight():
    made = []

    class Quiet(result._Slow):
        seconds = 0

        def __init__(self):
            made.append(self)

    class Watched(Specimen):
        name = "watched"
        plugins = (Quiet,)
        succeeds = True

    agent = Agent(model=ScriptedModel(), limits=Limits(max_iterations=10))
    for seed in (1, 2):
        assert fly(agent.config, Watched, seed).answer == "model"
    assert len(made) == 2
    assert made[0] is not made[1]
