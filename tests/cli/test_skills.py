"""Skills, agents and commands of a folder on the command line: once it is trusted, as it was then."""

import io
import json

import pytest
from tests.skills.conftest import write_agent, write_skill

from glidepath import ConfigurationError
from glidepath.apps.cli import CliContext
from glidepath.apps.cli.attachments import attach_files
from glidepath.apps.cli.deck_server import load_agents
from glidepath.apps.cli.instructions import load_custom_commands
from glidepath.testing import ScriptedModel, call, say
from glidepath.workspace import Workspace

from .shell_user import glidepath


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    write_skill(folder / ".claude/skills", "pdf", body="Step one.", notes_md="A note.")
    write_agent(folder / ".claude/agents", more="tools: Read, Write\nmaxTurns: 2\n")
    commands = folder / ".claude/commands"
    commands.mkdir()
    (commands / "rev.md").write_text("---\ndescription: Review it\nmodel: opus\n---\nReview $ARGUMENTS.\n")
    (commands / "runs.md").write_text("Say !`git status`.\n")
    return folder


def trust(folder):
    assert glidepath("trust", "--yes", folder=folder).code == 0


def world_of(folder, **named):
    world = CliContext(stdin=io.StringIO(), stdout=io.StringIO(), stderr=io.StringIO(), folder=folder, **named)
    world.notes = []
    return world


# --- list, check, show ----------------------------------------------------------------------------------------------


def test_nothing_of_an_untrusted_folder_is_used_and_a_line_says_so(project):
    ran = glidepath("skills", "list", folder=project)
    assert ran.code == 0
    assert "pdf" not in ran.out
    assert ".claude/skills is not used: this folder is not trusted." in ran.err


def test_a_trusted_folder_has_its_skills_until_one_byte_of_them_changes(project):
    trust(project)
    listed = glidepath("skills", "list", folder=project).out
    assert listed.startswith("pdf  trusted")
    assert "tokens" in listed
    (project / ".claude/skills/pdf/notes.md").write_text("Another note.")
    ran = glidepath("skills", "list", folder=project)
    assert "pdf" not in ran.out
    assert "not trusted" in ran.err


def test_a_named_skill_is_untrusted_until_its_own_folder_is_trusted(project, tmp_path):
    place = write_skill(tmp_path / "shared", "docx")
    flags = ("skills", "list", "--skills", str(tmp_path / "shared"))
    assert glidepath(*flags, folder=project).out.startswith("docx  untrusted")
    assert glidepath("trust", "--yes", str(place), folder=project).code == 0
    assert glidepath(*flags, folder=project).out.startswith("docx  trusted")
    (place / "extra.md").write_text("more")
    assert glidepath(*flags, folder=project).out.startswith("docx  untrusted")


def test_show_prints_what_a_model_reads_and_no_sign_of_it_steers_the_terminal(project):
    skill = project / ".claude/skills/pdf/SKILL.md"
    skill.write_text(skill.read_text() + "\x1b[2Jgone")
    trust(project)
    shown = glidepath("skills", "show", "pdf", folder=project).out
    assert "Step one." in shown
    assert "sha256:" in shown
    assert "\x1b" not in shown
    assert glidepath("skills", "show", "pdf", "notes.md", folder=project).out == "A note.\n"
    assert "did you mean 'pdf'" in glidepath("skills", "show", "pfd", folder=project).err
    assert "has no file 'x'" in glidepath("skills", "show", "pdf", "x", folder=project).err


def test_check_reads_everything_and_lists_what_has_no_effect(project):
    (project / ".claude/skills/broken").mkdir()
    (project / ".claude/skills/broken/SKILL.md").write_text("---\nname: broken\ndescription: a: b\n---\nx")
    ran = glidepath("skills", "check", folder=project)
    assert ran.code == 1
    assert "broken/SKILL.md, line 3: it is not valid YAML" in ran.out
    assert "line 3: model has no effect here: the model of the chat stays" in ran.out
    assert "runs.md, line 1: !`...` would run a command" in ran.out
    assert "1 skill can be used, 1 cannot." in ran.out
    assert "1 agent can be used, 0 cannot." in ran.out
    assert "1 command can be used, 1 cannot." in ran.out
    told = glidepath("skills", "check", "--json", folder=project)
    files = [json.loads(line) for line in told.out.splitlines()]
    assert told.code == 1
    assert sorted((one["kind"], one["error"] is None) for one in files) == [
        ("agent", True),
        ("command", False),
        ("command", True),
        ("skill", False),
        ("skill", True),
    ]
    (project / ".claude/commands/runs.md").unlink()
    (project / ".claude/skills/broken/SKILL.md").unlink()
    assert glidepath("skills", "check", "-q", str(project), folder=project).code == 0


# --- runs -----------------------------------------------------------------------------------------------------------


def skilled():
    """Reads its skill, and says what it was given."""

    def reply(request):
        results = [message for message in request.messages if message.role == "tool_result"]
        if results:
            return say(f"{sorted(tool.name for tool in request.tools)} {results[-1].text}")
        return call("read_skill", name="pdf")

    return ScriptedModel().forever(reply)


MODEL = ("--model", "python:tests.cli.test_skills:skilled")


def test_a_run_has_the_skills_and_agents_of_a_trusted_folder(project):
    trust(project)
    ran = glidepath("run", "go", *MODEL, folder=project)
    assert ran.code == 0, ran
    assert "Step one." in ran.out
    assert "['grep', 'list', 'read', 'read_skill', 'reviewer']" in ran.out


def test_a_section_of_the_file_names_folders_and_none(project):
    (project / "glidepath.toml").write_text("[skills]\nfolders = []\n\n[agents]\nfiles = []\n")
    trust(project)
    ran = glidepath("run", "go", *MODEL, folder=project)
    assert ran.out.startswith("['grep', 'list', 'read'] There is no tool named 'read_skill'")


def test_the_section_of_an_untrusted_folder_is_void(project, tmp_path):
    write_skill(tmp_path / "evil", "pdf", body="Evil step.")
    (project / "glidepath.toml").write_text(f'[skills]\nfolders = ["{tmp_path}/evil"]\n')
    ran = glidepath("run", "go", *MODEL, folder=project)
    assert "Evil step." not in ran.out
    assert "cannot set skills.folders" in ran.err


def test_an_agent_of_the_table_is_a_tool(project):
    text = '[skills]\nfolders = [".claude/skills"]\n[agents.writer]\ndescription = "Writes."\nprompt = "You write."\n'
    (project / "glidepath.toml").write_text(f"{text}max_turns = 3\n")
    trust(project)
    ran = glidepath("run", "go", *MODEL, folder=project)
    assert "'writer'" in ran.out


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("[agents.writer]\nprompt = 'p'", "description: it is missing"),
        ("[agents.writer]\ndescription = 'd'", "prompt is missing"),
        ("[agents.writer]\ndescription = 'd'\nprompt = 'p'\nturns = 3", "has no key 'turns'"),
        ("[agents.writer]\ndescription = 'd'\nprompt = 'p'\nmax_turns = 'x'", "whole number"),
        ("[agents]\nfiles = 'x'", "agents.files must be a list"),
        ("[agents]\nwriter = 7", "must be a table"),
    ],
)
def test_a_wrong_table_is_named(project, table, what):
    (project / "glidepath.toml").write_text(table)
    ran = glidepath("run", "go", "--config", "glidepath.toml", *MODEL, folder=project)
    assert ran.code == 2
    assert what in ran.err


def test_a_run_is_the_agent_in_a_file_with_the_tools_it_was_given(project):
    write_agent(project / ".claude/agents", more="tools: Read, Write\nskills: pdf\n")
    trust(project)
    ran = glidepath("run", "go", "--agent-file", ".claude/agents/reviewer.md", *MODEL, folder=project)
    assert ran.code == 0, ran
    assert "reviewer also lists write, which it was not given: a file gives no tools, --tools does." in ran.err
    assert "['read', 'read_skill']" in ran.out


def test_a_team_has_members_from_files(project):
    (project / "team.toml").write_text(
        'model = "python:crews:worker"\n[rubric]\nrequired = ["sources"]\n'
        '[[members]]\nname = "bee"\nagent_file = ".claude/agents/reviewer.md"\ntools = ["read", "list"]\n'
    )
    from glidepath.apps.cli.teamfile import TeamFile

    glidepath("--help", folder=project)  # the crews can be imported from now on
    [bee] = TeamFile(project / "team.toml", world_of(project, environ={})).team().members
    assert [one.name for one in bee.agent.config.tools] == ["read"]
    assert (bee.agent.config.limits.max_iterations, bee.agent.config.system_prompt) == (2, "You review.")


def test_a_server_serves_the_agent_in_a_file(project):
    world = world_of(project, environ={"GLIDEPATH_MODEL": "python:tests.cli.test_skills:skilled"})
    [(name, made)] = load_agents([".claude/agents/reviewer.md"], world).items()
    assert (name, made.config.system_prompt, made.config.limits.max_iterations) == ("reviewer", "You review.", 2)
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load_agents(["nowhere.md"], world)


# --- slash commands -------------------------------------------------------------------------------------------------


def test_a_command_of_a_trusted_folder_means_the_same_or_is_left_out(project):
    trust(project)
    world = world_of(project)
    commands = load_custom_commands(world)
    assert list(commands) == ["rev"]
    assert commands["rev"].fill_in("the diff") == "Review the diff."
    assert commands["rev"].description == "Review it"
    assert any("/runs is not used" in note and "line 1" in note for note in world.notes)


def test_a_command_of_ours_wins_over_one_of_another_agent(project):
    place = project / ".glidepath/commands"
    place.mkdir(parents=True)
    (place / "rev.md").write_text("Ours.")
    trust(project)
    assert load_custom_commands(world_of(project))["rev"].fill_in("that") == "Ours.\n\nthat"


def test_a_command_sends_the_files_that_it_names_and_runs_nothing(project):
    (project / ".claude/commands/rev.md").write_text("!touch owned\nCompare @a.txt with @$ARGUMENTS.")
    (project / "a.txt").write_text("one\n")
    (project / "b.txt").write_text("two\n")
    trust(project)
    text = load_custom_commands(world_of(project))["rev"].fill_in("b.txt")
    message, said = attach_files(text, Workspace(project))
    assert message.text.startswith("!touch owned\nCompare @a.txt with @b.txt.")
    assert said == ["@a.txt: 1 line", "@b.txt: 1 line"]
    assert not (project / "owned").exists()
