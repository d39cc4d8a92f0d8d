"""Files that hold secrets are asked about before they are read, by whatever name or link they are reached."""

import asyncio

import pytest

from glidepath import Agent, Limits, approve, deny
from glidepath.errors import ConfigurationError
from glidepath.testing import ScriptedModel, call, say
from glidepath.workspace import SecretFiles, Workspace, workspace_tools


def reader(workspace, *turns):
    tools = workspace_tools(workspace, ["read", "grep"])
    return Agent(model=ScriptedModel([*turns, say("done")]), tools=tools, limits=Limits(max_iterations=5))


def results(result):
    return [message.text for message in result.messages if message.role == "tool_result"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".env").write_text("KEY=sk-secret\n")
    (tmp_path / "app.py").write_text("KEY = None\n")
    (tmp_path / "notes.txt").symlink_to(".env")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "up").symlink_to("..")
    return tmp_path


@pytest.mark.parametrize("path", [".env", "./.env", "notes.txt", "sub/up/.env", "sub/../.env"])
@pytest.mark.parametrize("allowed", [True, False])
def test_read_asks_and_reads_only_after_a_yes(folder, path, allowed):
    async def main():
        agent = reader(Workspace(folder), call("read", path=path))
        paused = await agent.run("go")
        (waiting,) = paused.pending
        assert "'.env' may hold secrets" in waiting.reason
        assert "sk-secret" not in str(paused)
        done = await agent.resume(paused, decisions={waiting.call.id: approve() if allowed else deny("no")})
        assert ("sk-secret" in results(done)[0]) is allowed

    asyncio.run(main())


def test_other_files_are_read_without_a_question(folder):
    result = asyncio.run(reader(Workspace(folder), call("read", path="app.py")).run("go"))
    assert results(result) == ["KEY = None\n"]


def test_grep_leaves_them_out_and_says_so(folder):
    result = asyncio.run(reader(Workspace(folder), call("grep", pattern="KEY")).run("go"))
    (text,) = results(result)
    assert "sk-secret" not in text
    assert "app.py:1: KEY = None" in text
    assert "[not searched, because they may hold secrets: " in text
    assert ".env" in text


def test_the_list_can_be_set(folder):
    result = asyncio.run(reader(Workspace(folder, secrets=[]), call("read", path=".env")).run("go"))
    assert "sk-secret" in results(result)[0]
    paused = asyncio.run(reader(Workspace(folder, secrets=["app.*"]), call("read", path="app.py")).run("go"))
    assert len(paused.pending) == 1


@pytest.mark.parametrize("wrong", [".env", [""], [5]])
def test_a_list_that_is_none_is_refused(folder, wrong):
    with pytest.raises(ConfigurationError, match="secrets"):
        Workspace(folder, secrets=wrong)


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        (".env", True), ("a/.ENV", True), (".env.local", True), (".env.example", False), ("id_rsa", True),
        ("id_rsa.pub", False), ("x/server.pem", True), (".aws/credentials", True), ("credentials", False),
        ("environment.py", False), ("keys.py", False), (".e\u200bnv", True), (".ssh/config", True),
        ("ssh/config", False),
    ],
)  # fmt: skip
def test_which_names_are_secrets(path, secret):
    assert SecretFiles().has(path.split("/")) is secret
