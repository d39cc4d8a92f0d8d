"""Reading folders: what is in a skill, what it costs, and what is refused."""

import os

import pytest
from hypothesis import given, strategies as st
from tests.skills.conftest import write_agent, write_skill

from glidepath import Agent, AgentFile, ConfigurationError, Limits, Skill, read_agents_md
from glidepath.sandbox import Sandbox
from glidepath.testing import ScriptedModel
from glidepath.tools import text_tokens

LIMITS = Limits(max_iterations=5)


def agent(**named):
    return Agent(model=ScriptedModel(), limits=LIMITS, **named)


def test_a_folder_a_file_and_a_folder_of_folders_are_read(skill, tmp_path):
    place = skill("pdf")
    skill("docx")
    assert Skill.read(place).name == Skill.read(place / "SKILL.md").name == "pdf"
    assert [one.name for one in agent(skills=[tmp_path / "skills"]).config.skills] == ["docx", "pdf"]
    assert [one.name for one in agent(skills=[Skill.read(place), str(tmp_path / "skills")]).config.skills] == [
        "pdf",
        "docx",
    ]


def test_the_digest_covers_every_name_and_byte(skill):
    place = skill("pdf", notes_md="one")
    digests = {Skill.read(place).digest}
    (place / "notes.md").write_text("two")
    digests.add(Skill.read(place).digest)
    (place / "notes.md").rename(place / "other.md")
    digests.add(Skill.read(place).digest)
    (place / "SKILL.md").write_text((place / "SKILL.md").read_text() + "\n")
    digests.add(Skill.read(place).digest)
    assert len(digests) == 4
    assert Skill.read(place).digest == Skill.read(place).digest


def test_what_is_used_is_what_was_read(skill):
    place = skill("pdf", body="Be kind.")
    found = Skill.read(place)
    (place / "SKILL.md").write_text("---\nname: pdf\ndescription: d\n---\nBe cruel.")
    assert found.instructions == "Be kind."


@given(st.text(min_size=1, max_size=3_000))
def test_no_skill_costs_more_than_a_hundred_tokens_before_it_is_used(description):
    line = Skill(name="a" * 64, description=description, instructions="i").line
    assert text_tokens(line) <= 100
    assert line.startswith(f"- {'a' * 64}")


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("/etc/passwd", "out of the skill"),
        ("..", "out of the skill"),
        (".", "circle"),
        ("me", "cannot be read"),
        ("gone", "cannot be read"),
    ],
)
def test_a_link_that_leads_out_or_in_a_circle_is_refused(skill, target, what):
    place = skill("pdf")
    (place / "me").symlink_to(target)
    with pytest.raises(ConfigurationError, match=what) as caught:
        Skill.read(place)
    assert "pdf/me" in str(caught.value)


def test_a_link_to_a_file_of_the_same_skill_is_that_file(skill):
    place = skill("pdf", notes_md="kept")
    (place / "more.md").symlink_to("notes.md")
    assert Skill.read(place).files["more.md"] == b"kept"


def test_a_skill_that_is_a_link_out_of_its_folder_is_refused(skill, tmp_path):
    other = write_skill(tmp_path / "elsewhere", "docx")
    skill("pdf")
    (tmp_path / "skills" / "docx").symlink_to(other)
    with pytest.raises(ConfigurationError, match="link that leads out"):
        agent(skills=[tmp_path / "skills"])


def test_a_pipe_is_left_out_and_nothing_hangs(skill):
    place = skill("pdf")
    os.mkfifo(place / "pipe")
    assert list(Skill.read(place).files) == ["SKILL.md"]


def test_what_is_too_much_is_refused(skill):
    place = skill("large", body="x" * 200_001)
    with pytest.raises(ConfigurationError, match="200,000 are read"):
        Skill.read(place)
    place = skill("heavy", a_bin=b"\0" * 5_000_001)
    with pytest.raises(ConfigurationError, match=r"a.bin: it has more than 5,000,000 bytes"):
        Skill.read(place)
    place = skill("deep")
    (place / "/".join("abcdefghij")).mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="8 deep"):
        Skill.read(place)


def test_two_skills_of_a_name_are_refused_and_one_twice_is_one(skill, tmp_path):
    place = skill("pdf")
    other = write_skill(tmp_path / "more", "pdf", body="Other.")
    with pytest.raises(ConfigurationError, match="two skills are named 'pdf'") as caught:
        agent(skills=[place, other])
    assert str(place) in str(caught.value)
    assert str(other) in str(caught.value)
    assert len(agent(skills=[place, place]).config.skills) == 1


@pytest.mark.parametrize("given", [7, "nowhere", [7], ["nowhere"], [None]])
def test_what_is_no_skill_is_refused(given, tmp_path):
    with pytest.raises(ConfigurationError, match="skill"):
        agent(skills=given)
    with pytest.raises(ConfigurationError, match=r"no SKILL.md"):
        agent(skills=[tmp_path])


def test_a_sandbox_that_is_none_is_refused(skill):
    with pytest.raises(ConfigurationError, match="without by='none'"):
        Skill.read(skill("pdf"), sandbox=Sandbox(by=["bubblewrap", "none"]))


def test_a_tool_of_the_same_name_is_refused(skill):
    async def read_skill(name: str) -> str:
        return name

    with pytest.raises(ConfigurationError, match="two tools are named 'read_skill'"):
        agent(tools=[read_skill], skills=[skill("pdf")])


def test_a_changed_agent_has_the_tools_of_its_own_skills(skill, tmp_path):
    first = agent(skills=[skill("pdf")])
    assert [one.name for one in first.config.tools] == ["read_skill"]
    assert [one.name for one in first.replace(temperature=0.5).config.tools] == ["read_skill"]
    assert first.replace(skills=()).config.tools == ()
    assert first.replace(skills=()).config.plugins == ()


# --- agents and AGENTS.md -------------------------------------------------------------------------------------------


def test_an_agent_file_is_read_with_what_has_no_effect(tmp_path):
    path = write_agent(
        tmp_path, more="tools: Read, Bash(git:*), Grep\nmodel: sonnet\nmaxTurns: 4\nhooks:\n  Stop: []\ncolor: red\n"
    )
    file = AgentFile.read(path)
    assert (file.name, file.prompt, file.tools, file.model, file.max_turns) == (
        "reviewer",
        "You review.",
        ("read", "grep"),
        None,
        4,
    )
    assert [
        remark
        for remark in file.remarks
        if "hooks" in remark or "color" in remark or "sonnet" in remark or "git" in remark
    ]
    assert len(file.remarks) == 4


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("maxTurns: many\n", r"line 4: maxTurns: it must be a whole number"),
        ("maxTurns: 0\n", "from 1 to"),
        ("tools:\n  a: b\n", "line 4: tools: it must be a list"),
        ("name: two\n", "second 'name'"),
    ],
)
def test_a_broken_agent_file_is_refused_with_its_line(tmp_path, more, what):
    with pytest.raises(ConfigurationError, match=what):
        AgentFile.read(write_agent(tmp_path, more=more))


def test_agents_of_one_name_are_refused(tmp_path):
    paths = [write_agent(tmp_path / one, body=f"You are {one}.") for one in "ab"]
    with pytest.raises(ConfigurationError, match="two agents are named 'reviewer'"):
        agent(agents=paths)
    with pytest.raises(ConfigurationError, match=r"no agent file \(\*.md\)"):
        agent(agents=[tmp_path])


def test_agents_md_is_one_rule_for_library_and_command_line(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Be kind.\n")
    said = read_agents_md(tmp_path)
    assert said == "Instructions of this project, from its AGENTS.md:\n\nBe kind."
    assert read_agents_md(tmp_path / "AGENTS.md") == said
    (tmp_path / "AGENTS.md").write_text("x" * 64_001)
    with pytest.raises(ConfigurationError, match="more than 64,000 characters"):
        read_agents_md(tmp_path)
    with pytest.raises(ConfigurationError, match="there is no"):
        read_agents_md(tmp_path / "nowhere")
