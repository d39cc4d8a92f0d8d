"""Process tools, the shell and MCP servers in a sandbox."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.sandbox import Sandbox, SandboxError
from glidepath.testing import ScriptedModel, call, say
from glidepath.tools.sandbox import list_mechanisms, policy as policies
from glidepath.workspace import Workspace, workspace_tools

from . import boxed_tools

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not list_mechanisms(), reason="neither bubblewrap nor Landlock works here"),
]
SHELL = pytest.mark.skipif("bubblewrap" not in list_mechanisms(), reason="bubblewrap does not work here")


def flown(*turns, tools):
    agent = Agent(model=ScriptedModel([*turns, say("done")]), tools=tools, limits=Limits(max_iterations=9))
    result = asyncio.run(agent.run("go"))
    return [(m.kind, m.text) for m in result.messages if m.role == "tool_result"]


def test_a_process_tool_works_in_its_sandbox_and_sees_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_SECRET", "x")
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    found = flown(call("compute", n=7), call("peek", path=str(secret)), tools=[boxed_tools.compute, boxed_tools.peek])
    assert found[0] == (None, '{"square":49,"secrets":0}')
    assert found[1][0] in ("ChildError", "error")
    assert "hidden" not in found[1][1]


def test_what_comes_out_of_a_sandbox_runs_nothing_here():
    Path("/tmp/glidepath-escaped").unlink(missing_ok=True)
    ((kind, text),) = flown(call("evil"), tools=[boxed_tools.evil])
    assert kind == "ToolError"
    assert "plain data" in text
    assert not Path("/tmp/glidepath-escaped").exists()


def test_g7_a_boxed_tool_that_hangs_is_killed():
    hang = tool(boxed_tools.hang.fn, isolation="process", sandbox=Sandbox(), timeout=0.7)
    ((kind, _),) = flown(call("hang"), tools=[hang])
    assert kind == "timeout"


def test_a_sandbox_that_is_missing_is_refused_unless_none_is_named(monkeypatch):
    monkeypatch.setattr(policies, "_TRIED", {"bubblewrap": "it is not installed", "landlock": "the kernel is old"})
    with pytest.raises(SandboxError, match="bubblewrap: it is not installed; landlock: the kernel is old"):
        Sandbox().enter(["true"])
    with Sandbox(by=["bubblewrap", "landlock", "none"]).enter(["true"]) as boxed:
        assert (boxed.mechanism, boxed.words) == ("none", ["true"])
    ((kind, text),) = flown(call("compute", n=1), tools=[boxed_tools.compute])
    assert kind == "SandboxError"
    assert "Install bubblewrap" in text


def test_landlock_refuses_a_list_of_hosts():
    with pytest.raises(SandboxError, match="cannot tell one host from another"):
        Sandbox(network=["example.com"], by=["landlock"]).mechanism()


def test_the_error_does_not_tell_to_install_what_was_not_named(monkeypatch):
    monkeypatch.setattr(policies, "_TRIED", {"bubblewrap": "", "landlock": ""})
    with pytest.raises(SandboxError, match=r"Add 'bubblewrap' to by, or allow"):
        Sandbox(network=["example.com"], by=["landlock"]).mechanism()


def test_a_folder_that_may_be_written_may_be_read_too_whatever_the_mechanism(monkeypatch, tmp_path):
    monkeypatch.setattr(policies, "_TRIED", {"landlock": ""})
    assert Sandbox(read=[tmp_path], write=[tmp_path], by=["landlock"]).mechanism() == "landlock"


@pytest.mark.parametrize("words", ["ls -l", [], [3], ["ls", "a\0b"], None], ids=str)
def test_a_command_is_a_list_of_words(words):
    with pytest.raises(ConfigurationError, match="a list of words"):
        Sandbox(by=["none"]).enter(words)


def test_a_command_does_not_start_in_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "file").touch()
    for place in ("nowhere", "file"):
        with pytest.raises(SandboxError, match="is not a folder; make it first"):
            Sandbox(by=["none"]).enter(["true"], cwd=tmp_path / place)


@SHELL
def test_the_shell_sees_only_what_its_policy_names(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "other").write_text("hidden")
    made = workspace_tools(Workspace(tmp_path / "work"), ["shell"], sandbox=Sandbox(), shell_approval=False)
    found = flown(
        call("shell", command="echo hi > made; cat made"),
        call("shell", command=f"cat {tmp_path}/other || echo no"),
        call("shell", command="ls /root /home 2>&1 | head -3; echo $HOME"),
        call("shell", command="mkdir -p .git/hooks && echo x > .git/hooks/pre-commit"),
        tools=made,
    )
    assert found[0] == (None, "hi")
    assert "hidden" not in found[1][1]
    assert found[1][1].endswith("no")
    assert found[2][1].endswith("/tmp")
    assert (tmp_path / "work" / "made").read_text() == "hi\n"
    assert not (tmp_path / "work" / ".git" / "hooks" / "pre-commit").exists()


@SHELL
def test_a_person_is_told_what_the_shells_policy_is(tmp_path):
    (shell,) = workspace_tools(Workspace(tmp_path), ["shell"], sandbox=Sandbox(network=["example.com"]))
    assert shell.approval_reason == f"sandboxed: network: example.com, writes only in {os.path.realpath(tmp_path)}"
    assert "only example.com through the proxy" in shell.description


def test_an_mcp_server_runs_in_its_sandbox(tmp_path):
    pytest.importorskip("mcp", reason="needs the SDK: pip install 'glidepath[mcp]'")
    from glidepath.mcp import McpServer

    script = tmp_path / "server.py"
    script.write_text(
        "from mcp.server import MCPServer\nserver = MCPServer('s')\n\n@server.tool()\ndef peek(path: str) -> str:\n"
        "    '''Read.'''\n    try:\n        return open(path).read()\n    except OSError as error:\n"
        "        return f'no: {type(error).__name__}'\n\nserver.run()\n"
    )
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    needed = [sys.prefix, script]
    server = McpServer("s", command=sys.executable, args=[str(script)], sandbox=Sandbox(read=needed), required=True)
    found = flown(call("peek", path=str(secret)), call("peek", path="/etc/shadow"), tools=[server])
    assert [text.startswith("no: ") for _, text in found] == [True, True], found


def test_an_mcp_server_without_a_sandbox_that_works_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("mcp", reason="needs the SDK: pip install 'glidepath[mcp]'")
    from glidepath.mcp import McpServer

    monkeypatch.setattr(policies, "_TRIED", {"bubblewrap": "missing", "landlock": "missing"})
    server = McpServer("s", command=sys.executable, sandbox=Sandbox(), required=True)
    agent = Agent(model=ScriptedModel([say("x")]), tools=[server], limits=Limits(max_iterations=2))
    result = asyncio.run(agent.run("go"))
    assert result.outcome.name == "FAILED"
    assert "no sandbox works here" in result.cause.reason


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"read": "data"}, "takes a list"),
        ({"read": ["/no/such/place"]}, "does not exist"),
        ({"read": ["/"]}, "the whole system"),
        ({"write": ["/"]}, "part of the system"),
        ({"write": ["/etc"]}, "part of the system"),
        ({"write": [3]}, "takes paths"),
        ({"network": "some"}, "'none', 'all' or a list of hosts"),
        ({"write": ["/usr/bin"]}, "part of the system"),
        ({"write": ["/etc/passwd"]}, "part of the system"),
        ({"network": ["http://example.com"]}, "write its host alone, without 'http://'"),
        ({"network": ["example.com/path"]}, "is not a host"),
        ({"network": ["all"]}, "network='all', without a list"),
        ({"network": ["none", "example.com"]}, "network='none', without a list"),
        ({"network": ["exa mple.com"]}, "is not a host"),
        ({"network": ["example.com:99999"]}, "is not a port"),
        ({"network": ["*"]}, "is not a host"),
        ({"memory": 5}, "memory"),
        ({"processes": 0}, "processes"),
        ({"files": True}, "files"),
        ({"by": []}, "must name some of"),
        ({"by": ["docker"]}, "must name some of"),
        ({"by": ["none", "bubblewrap"]}, "'none' must come last"),
        ({"env": "PATH"}, "takes a list"),
        ({"env": ["TOKEN=secret"]}, "takes names of variables, not their values: write 'TOKEN'"),
    ],
    ids=str,
)
def test_a_wrong_policy_is_named(keywords, says):
    with pytest.raises(ConfigurationError, match=says):
        Sandbox(**keywords)


def test_only_a_process_can_be_closed_in():
    with pytest.raises(ConfigurationError, match="isolation='process'"):
        tool(lambda: None, name="x", sandbox=Sandbox())
    with pytest.raises(ConfigurationError, match=r"glidepath\.sandbox\.Sandbox"):
        tool(boxed_tools.peek.fn, isolation="process", sandbox="yes")


def inside(sandbox, words, **options):
    """What a command printed in a sandbox, and the hosts it was refused."""
    with sandbox.enter(words, **options) as boxed:
        given = {"env": boxed.env, "cwd": boxed.cwd, "pass_fds": boxed.pass_fds}
        done = subprocess.run(boxed.words, **given, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout, boxed.refused


@SHELL
def test_a_folder_to_read_inside_one_to_write_stays_as_it_is(tmp_path):
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "deep").mkdir()
    sandbox = Sandbox(read=[tmp_path / "keep"], write=[tmp_path, tmp_path / "keep" / "deep"], by=["bubblewrap"])
    command = "touch a; touch keep/b; touch keep/deep/c; ls -d a keep/b keep/deep/c"
    assert inside(sandbox, ["/bin/sh", "-c", command], cwd=tmp_path)[0] == "a\nkeep/deep/c\n"
    with pytest.raises(SandboxError, match="that needs bubblewrap"):
        Sandbox(read=[tmp_path / "keep"], write=[tmp_path], by=["landlock"]).mechanism()


@SHELL
def test_hosts_that_were_wanted_and_refused_are_known():
    code = "import urllib.request as r; r.urlopen('http://other.example/')"
    words = [os.path.realpath(sys.executable), "-I", "-S", "-c", code]
    assert inside(Sandbox(network=["allowed.example"]), words)[1] == ("other.example:80",)


@pytest.mark.process
def test_landlock_keeps_rights_owners_times_and_attributes_of_files_as_they_are(tmp_path):
    """Landlock itself does not look at them, so that a key could be opened to everybody without being read."""
    (tmp_path / "data").mkdir()
    key = tmp_path / "id_rsa"
    key.write_text("secret")
    key.chmod(0o600)
    os.utime(key, (1, 1))
    tries = {
        "read": "open(p).read()", "chmod": "os.chmod(p, 0o777)", "chown": "os.chown(p, 1, 1)",
        "utime": "os.utime(p, (0, 0))", "setxattr": "os.setxattr(p, 'user.x', b'1')", "lchown": "os.lchown(p, 1, 1)",
        "fchmod": "os.fchmod(os.open(sys.executable, os.O_RDONLY), 0o777)",
        "removexattr": "os.removexattr(p, 'user.x')",
    }  # fmt: skip
    code = f"import os, sys\np = {str(key)!r}\n" + "\n".join(
        f"try:\n    {what}\n    print('{name} WORKED')\nexcept OSError as error:\n    print('{name}', error.errno)"
        for name, what in tries.items()
    )
    sandbox = Sandbox(read=[str(tmp_path / "data")], network="none", by=["landlock"])
    with sandbox.enter([sys.executable, "-I", "-S", "-c", code], cwd=str(tmp_path / "data")) as boxed:
        done = subprocess.run(
            boxed.words,
            env=boxed.env,
            cwd=boxed.cwd,
            pass_fds=boxed.pass_fds,
            capture_output=True,
            text=True,
            check=False,
        )
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(tries), done
    assert "WORKED" not in done.stdout
    assert (key.stat().st_mode & 0o777, key.stat().st_mtime) == (0o600, 1)
