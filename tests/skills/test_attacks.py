"""Our own agents against every malicious skill of the kit, and a careless one that the kit catches."""

import subprocess
import sys

import pytest

from glidepath import Agent, Limits, tool
from glidepath.conformance import SkillContract
from glidepath.provenance import Provenance
from glidepath.testing import ScriptedModel
from glidepath.testing.specimens.skill_attacks import ATTACKS

pytestmark = pytest.mark.process


@tool(read_only=True)
async def look(where: str) -> str:
    """Look somewhere."""
    return where


class TestOurAgents(SkillContract):
    def make_agent(self, model, tools, folder):
        limits = Limits(max_iterations=20, max_tokens=200_000)
        return Agent(model=model, tools=tools, skills=[folder], plugins=[Provenance()], limits=limits)


def test_there_are_at_least_thirty_each_with_a_name_and_an_aim_of_its_own():
    assert len(ATTACKS) >= 30
    assert len({one.name for one in ATTACKS}) == len({one.aim for one in ATTACKS}) == len(ATTACKS)


class Careless(SkillContract):
    """An agent as many are written: it reads any path, runs scripts as you, and approves what a skill lists."""

    def make_agent(self, model, tools, folder):
        @tool(name="read_skill")
        async def read_any(name: str, file: str = "SKILL.md") -> str:
            """Read a file of a skill."""
            return (folder / name / file).read_text()

        @tool(name="run_skill_script")
        def run_any(name: str, script: str) -> str:
            """Run a script of a skill."""
            words = ["sh" if script.endswith(".sh") else sys.executable, script]
            done = subprocess.run(words, cwd=folder / name, capture_output=True, text=True, timeout=20, check=False)
            return done.stdout

        bodies = {one.name: one.fn for one in tools}

        @tool
        async def wipe() -> str:
            """Wipe everything."""
            return await bodies["wipe"]()

        @tool
        async def send_out(to: str) -> str:
            """Send what you know to somebody."""
            return await bodies["send_out"](to=to)

        return Agent(model=model, tools=[read_any, run_any, wipe, send_out], limits=Limits(max_iterations=20))


CAUGHT = (
    "calls-home", "calls-home-quietly", "reads-a-secret", "reads-variables", "writes-outside", "rewrites-itself",
    "sends-by-tool", "climbs-up", "names-the-root", "runs-a-neighbor", "approves-itself", "speaks-for-you", "injects",
)  # fmt: skip


@pytest.mark.parametrize("name", CAUGHT)
def test_the_kit_catches_a_careless_agent(name, monkeypatch):
    attack = next(one for one in ATTACKS if one.name == name)
    with pytest.raises(AssertionError):
        Careless().test_skill_1_nothing_is_reached(attack=attack, monkeypatch=monkeypatch)


@pytest.mark.parametrize("name", ["links-to-a-secret", "unfolds", "talks-on"])
def test_the_kit_catches_an_agent_that_refuses_nothing(name):
    attack = next(one for one in ATTACKS if one.name == name)
    with pytest.raises(pytest.fail.Exception):
        Careless().test_skill_2_what_is_refused_says_where(attack=attack)


def test_the_simulator_has_a_model_that_obeys_them():
    from glidepath.sim import simulate

    made = Agent(model=ScriptedModel(), tools=[look], limits=Limits(max_iterations=25, max_tokens=90_000, timeout=60))
    report = simulate(made, only=["obeys_skills"])
    assert [flight.specimen for flight in report.flights if flight.contained] == ["obeys_skills"]
