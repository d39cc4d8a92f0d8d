"""Agents from files and skills where people meet them: teams, servers, an agent of one's own, and pages."""

import asyncio
import inspect
import json
import sys

import httpx
import pytest
from tests.cli.shell_user import glidepath
from tests.serve.deck import HEADERS, serving, start
from tests.serve.live import LiveServer

from glidepath import Agent, Limits, Skill
from glidepath.testing import ScriptedModel, call, say

from .conftest import write_agent, write_skill

APP = """
from glidepath import Agent, Limits, Skill, tool
from tests.skills.test_doors import circling

@tool
async def weather(city: str) -> str:
    "The weather."
    return "21 degrees"

mine = Agent(model=circling(), tools=[weather], skills=[Skill.read("own")], limits=Limits(max_iterations=3))
"""
CIRCLING = "python:tests.skills.test_doors:circling"


def circling():
    """Reads for as long as it has tools; then it says which it had at first, what it was told, and its last result."""
    had = []

    def reply(request):
        results = [message.text for message in request.messages if message.role == "tool_result"]
        if request.tools:
            had[:] = had or sorted(one.name for one in request.tools)
            return call("read", path="a.txt", start=len(results) + 1)
        return say(f"{had} {request.system_prompt.partition(chr(10))[0]} after {len(results)}")

    return ScriptedModel(price=("3", "15")).forever(reply)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("line\n" * 99)
    write_agent(tmp_path, more="tools: Read, Write\nmaxTurns: 4\n")
    return tmp_path


# --- teams ----------------------------------------------------------------------------------------------------------

TEAM = """
model = "python:tests.skills.test_doors:circling"
[config]
risk_profile = "low"
max_feedback_rounds = 1
[limits]
max_total_tokens = {tokens}
[rubric]
required = ["after"]
[[members]]
name = "bee"
agent_file = "reviewer.md"
tools = ["read", "list"]
max_turns = {turns}
[[steps]]
id = "look"
description = "look at it"
"""


def run_team(folder, *, tokens=100_000, turns=9):
    (folder / "team.toml").write_text(TEAM.format(tokens=tokens, turns=turns))
    ran = glidepath("team", "run", "team.toml", "look", "--output-format", "json", folder=folder)
    assert ran.out, ran
    [step] = json.loads(ran.out)["step_outcomes"]
    return step


def test_a_member_from_a_file_works_with_its_tools_and_within_its_turns(folder):
    assert run_team(folder)["output"] == "['read'] You review. after 3"  # and the fourth turn is its answer


def test_the_turns_of_the_team_file_hold_where_they_are_fewer(folder):
    assert run_team(folder, turns=3)["output"] == "['read'] You review. after 2"


def test_the_budget_of_the_team_holds_for_a_member_from_a_file(folder):
    write_agent(folder, more="tools: Read\nmaxTurns: 500\n")
    usage = run_team(folder, tokens=4_000, turns=500)["usage"]
    assert 1_000 < usage["input"] + usage["output"] <= 4_000


# --- servers --------------------------------------------------------------------------------------------------------


def test_a_server_answers_as_the_agent_in_a_file_within_its_turns_and_the_limits_of_the_folder(folder):
    write_agent(folder, "poor", more="tools: Read\nmaxTurns: 500\n")
    # Another process cannot import this module.
    (folder / "circles.py").write_text(
        f"from glidepath.testing import ScriptedModel, call, say\n\n{inspect.getsource(circling)}"
    )
    config = 'model = "python:circles:circling"\ntools = ["read", "list"]\n[limits]\nmax_tokens = 5_000\n'
    (folder / "glidepath.toml").write_text(config)
    assert glidepath("trust", "--yes", folder=folder).code == 0
    flags = ("--agent", "poor.md", "--store", "none")
    with LiveServer(folder, *flags, agent="reviewer.md") as server, httpx.Client(headers=HEADERS, timeout=30) as client:
        made, poor = (
            client.post(f"{server.url}/v1/responses", json={"model": name, "input": "go"}).json()
            for name in ("reviewer", "poor")
        )
    assert made["output"][-1]["content"][0]["text"] == "['read'] You review. after 3"
    assert 1_000 < poor["usage"]["total_tokens"] <= 5_000
    assert made["glidepath"]["outcome"] == poor["glidepath"]["outcome"] == "wrapped_up"


def test_the_page_of_a_run_is_told_which_skill_was_read_at_which_turn(tmp_path):
    skills = [Skill.read(write_skill(tmp_path, name), trusted=name == "terms") for name in ("quotes", "terms")]

    async def fly():
        turns = (call("read_skill", name="quotes"), call("read_skill", name="terms"), call("read_skill", name="no"))
        made = Agent(model=ScriptedModel([*turns, say("done")]), skills=skills, limits=Limits(max_iterations=9))
        async with serving(made) as client:
            run_id = await start(client, name="agent")
            await client.get(f"/api/runs/{run_id}/events", headers={"accept": "text/event-stream"})
            return (await client.get(f"/api/runs/{run_id}/messages")).json()["messages"]

    shown = [(one["turn"], one.get("skill")) for one in asyncio.run(fly()) if one["role"] == "tool"]
    quotes, terms = ({"name": one.name, "digest": one.digest, "file": "SKILL.md"} for one in skills)
    assert shown == [(1, {**quotes, "trusted": False}), (2, {**terms, "trusted": True}), (3, None)]


# --- an agent of one's own ------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_skill(tmp_path, "own")
    write_skill(tmp_path / ".claude/skills", "here")
    write_skill(tmp_path / "more", "extra", body="Extra step.")
    write_agent(tmp_path / ".claude/agents", "lying")
    write_agent(tmp_path / "crew", "reviewer")
    (tmp_path / "glidepath.toml").write_text('[skills]\nfolders = [".claude/skills"]\n[agents]\nfiles = ["crew"]\n')
    yield tmp_path
    sys.modules.pop("app", None)


def run_own(folder, *flags, **more):
    return glidepath("run", "--agent", "app:mine", *flags, "go", folder=folder, **more)


@pytest.mark.parametrize("trusted", [False, True])
def test_skills_and_agents_that_lie_here_are_not_those_of_an_agent_of_ones_own(own, trusted):
    if trusted:
        assert glidepath("trust", "--yes", folder=own).code == 0
    variables = {"GLIDEPATH_SKILLS_FOLDERS": "more", "GLIDEPATH_AGENT_FILES": "crew", "GLIDEPATH_AGENT_FILE": "x.md"}
    for environ in ({}, variables):
        ran = run_own(own, environ=environ)
        assert ran.out.startswith("['read_skill', 'weather']"), ran
        assert "trust" not in ran.err, "nobody has to trust what has no effect"


def test_a_flag_adds_skills_and_agents_to_an_agent_of_ones_own(own):
    ran = run_own(own, "--skills", "more", "--agents", "crew/reviewer.md")
    sys.modules.pop("app")
    assert ran.out.startswith("['read_skill', 'reviewer', 'weather']"), ran
    table = run_own(own, "--set", 'agents={"writer": {"description": "d", "prompt": "p"}}')
    assert table.out.startswith("['read_skill', 'weather', 'writer']"), table


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--agent-file", "crew/reviewer.md"), "--agent-file: app:mine is an agent already"),
        (("--skills", "nowhere"), "nowhere"),
        (("--skills", "clash"), "'own'"),
        (("--agents", "crew/none.md"), "there is no such file"),
    ],
)
def test_a_flag_that_cannot_be_added_is_refused(own, flags, said):
    write_skill(own / "clash", "own", body="Another.")
    ran = run_own(own, *flags)
    assert ran.code == 2, ran
    assert said in ran.err


# --- trust ----------------------------------------------------------------------------------------------------------


def test_an_agent_that_merely_lies_in_a_folder_is_not_picked_up_until_the_folder_is_trusted_as_it_is(folder):
    path = write_agent(folder / ".claude/agents", "lying")

    def list_tools():
        ran = glidepath("run", "go", "--model", CIRCLING, "--max-turns", "2", folder=folder)
        return ran.out.partition("]")[0], ran.err

    tools, said = list_tools()
    assert "lying" not in tools
    assert ".claude/agents is not used: this folder is not trusted." in said
    assert glidepath("trust", "--yes", folder=folder).code == 0
    assert "lying" in list_tools()[0]
    path.write_text(f"{path.read_text()}One more sentence.")
    assert "lying" not in list_tools()[0]


def test_a_table_of_agents_in_an_untrusted_folder_is_void(folder):
    table = '[agents.lying]\ndescription = "d"\nprompt = "p"\n'
    for text in (table, '[agents]\nfiles = ["reviewer.md"]\n'):
        (folder / "glidepath.toml").write_text(text)
        ran = glidepath("run", "go", "--model", CIRCLING, "--max-turns", "2", folder=folder)
        assert "cannot set agents" in ran.err, ran
        assert ran.out.startswith("['grep', 'list', 'read']"), ran


@pytest.mark.parametrize("model", ["python:evil:make", "openai-compatible:m@http://127.0.0.1:9/v1"])
def test_the_model_of_a_file_runs_no_code_and_gives_no_address(folder, model):
    (folder / "evil.py").write_text("from pathlib import Path\nPath('owned').touch()\ndef make(): 1 / 0\n")
    write_agent(folder, more=f"tools: Read\nmodel: {model}\n")
    assert run_team(folder, turns=2)["output"] == "['read'] You review. after 1"
    assert "evil" not in sys.modules
    (folder / "reviewer.md").rename(write_agent(folder / ".claude/agents"))
    checked = glidepath("skills", "check", folder=folder)
    assert "has no effect here: a file runs no code and gives no address" in checked.out


# --- slash commands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Say !`git status`.", "line 1: !`...` would run a command"),
        ("Look at this:\n```!\ngit status\n```", "line 2: "),
        ("Compare $1 with $2.", "line 1: '$1' counts arguments"),
        ("Compare $ARGUMENTS[0].", "line 1: '$ARGUMENTS[' counts arguments"),
        ("---\nargument-hint: '[file]'\nallowed-tools: Bash(git:*)\nmodel: opus\n---\nGo.", "allowed-tools"),
        ("---\narguments: a b\n---\nUse $a.", "arguments"),
        ("Use ${CLAUDE_SESSION_ID}.", "line 1: ${CLAUDE_SESSION_ID} is not filled in"),
    ],
)
def test_check_lists_each_form_of_a_command_that_is_not_supported(tmp_path, text, said):
    place = tmp_path / ".claude/commands"
    place.mkdir(parents=True)
    (place / "go.md").write_text(text)
    assert said in glidepath("skills", "check", folder=tmp_path).out
