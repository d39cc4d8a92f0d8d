"""The shell tool: its sandbox, its limits, and that nothing of it is left running."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glidepath import Agent, CancelToken, ConfigurationError, Limits
from glidepath.errors import ToolError
from glidepath.testing import ScriptedModel, call, say
from glidepath.workspace import Bubblewrap, Workspace, _warden, run_command, sandbox as sandbox_module, workspace_tools
from glidepath.workspace.sandbox import find_sandbox
from glidepath.workspace.shell import MOST_OUTPUT

pytestmark = pytest.mark.process


@pytest.fixture
def place(tmp_path):
    (tmp_path / "root").mkdir()
    return Workspace(tmp_path / "root")


def sh(place, command, *, sandbox=None, seconds=20.0):
    return asyncio.run(run_command(place, sandbox, command, seconds))


def test_a_command_prints_and_its_status_is_told(place):
    assert sh(place, "echo out; echo err >&2") == "out\nerr"
    assert sh(place, "echo oops; exit 3") == "oops\n[exit status 3]"
    assert sh(place, "true") == "(no output)"
    assert sh(place, "pwd") == str(place.root)


def test_nothing_of_our_environment_reaches_a_command(place, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    assert "sk-planted" not in sh(place, "env")


def test_input_is_empty(place):
    assert sh(place, "cat; echo end") == "end"


def test_a_flood_of_output_keeps_its_beginning_and_its_end(place):
    text = sh(place, "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast")
    assert "bytes left out" in text
    assert len(text) < MOST_OUTPUT + 100


@pytest.mark.parametrize("command", ["", "  ", "a\0b"])
def test_an_empty_command_is_refused(place, command):
    with pytest.raises(ToolError):
        sh(place, command)


def running(mark):
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if line.strip() == mark]


def gone(mark):
    deadline = time.monotonic() + 10
    while running(mark):
        assert time.monotonic() < deadline, f"{mark} is still running"
        time.sleep(0.02)
    return True


def test_a_command_that_takes_too_long_is_stopped_with_its_children(place):
    mark = f"sleep {50_000 + os.getpid()}.25"
    before = time.monotonic()
    with pytest.raises(ToolError, match=r"begun\n\[stopped: the command took longer than 0.3 seconds\]"):
        sh(place, f"echo begun; {mark} & {mark}", seconds=0.3)
    assert time.monotonic() - before < 8
    assert gone(mark)


def test_a_command_that_ignores_the_request_to_stop_is_killed(place):
    mark = f"sleep {51_000 + os.getpid()}.25"
    with pytest.raises(ToolError, match="stopped"):
        sh(place, f"trap '' TERM; {mark}; {mark}", seconds=0.3)
    assert gone(mark)


def test_what_a_command_leaves_behind_is_killed(place):
    mark = f"sleep {52_000 + os.getpid()}.25"
    assert sh(place, f"{mark} >/dev/null 2>&1 & echo started") == "started"
    assert gone(mark)


LEAVERS = ["{} & echo started", "setsid {} & echo started", "(setsid nohup {} >/dev/null 2>&1 &); echo started",
           "env -i setsid sh -c '(exec {}) & exec {}' & echo started"]  # fmt: skip


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("leaver", LEAVERS)
def test_nothing_outlives_its_command_and_nobody_waits_for_it(place, sandbox, boxed, leaver):
    mark = f"sleep {54_000 + os.getpid()}.{LEAVERS.index(leaver)}{int(boxed)}"
    before = time.monotonic()
    assert sh(place, leaver.replace("{}", mark), sandbox=sandbox if boxed else None) == "started"
    assert not running(mark)
    assert time.monotonic() - before < 15


def test_a_command_that_kills_its_warden_is_found_by_its_mark(place, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mark = f"sleep {55_000 + os.getpid()}.25"
    with pytest.raises(ToolError, match="the process that watches over the command was killed"):
        sh(place, f"setsid {mark} & sleep 0.2; kill -9 $PPID; {mark}")
    assert gone(mark)
    assert [path.name for path in tmp_path.iterdir()] == ["root"], "and its empty home is removed"


MARKED = {"GLIDEPATH_COMMAND": "a-mark", "PATH": os.environ["PATH"]}


@pytest.fixture
def left_behind():
    process = subprocess.Popen(["sleep", "1000"], env=MARKED, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_process_that_was_forked_while_leftovers_were_looked_for_is_found(left_behind, monkeypatch):
    every, looks = _warden.list_processes, []

    def as_if_it_were_new():
        looks.append(1)
        return [pid for pid in every() if len(looks) > 1 or pid != left_behind.pid]

    other = subprocess.Popen(["sleep", "1000"], env=MARKED, start_new_session=True)
    monkeypatch.setattr(_warden, "list_processes", as_if_it_were_new)
    _warden.sweep("a-mark")
    assert (other.wait(timeout=30), left_behind.wait(timeout=30)) == (-9, -9)


def test_a_process_that_has_no_environment_for_a_moment_is_found(left_behind, monkeypatch):
    reads, real = [], _warden.environment_of

    def as_if_it_were_in_exec(pid):
        reads.append(pid)
        return b"" if pid == left_behind.pid and reads.count(pid) == 1 else real(pid)

    monkeypatch.setattr(_warden, "environment_of", as_if_it_were_in_exec)
    _warden.sweep("a-mark")
    assert left_behind.wait(timeout=30) == -9


def test_what_has_another_mark_is_left_alone(left_behind):
    _warden.sweep("another-mark")
    _warden.sweep("a-mar")
    assert left_behind.poll() is None


@pytest.mark.parametrize("boxed", [False, True])
def test_a_command_does_not_outlive_us_when_we_are_killed(place, sandbox, boxed):
    mark = f"sleep {56_000 + os.getpid() + boxed}.25"
    code = (
        "import asyncio\n"
        "from glidepath.workspace import Bubblewrap, Workspace\n"
        "from glidepath.workspace.shell import run_command\n"
        f"box = Bubblewrap({sandbox.program!r}) if {boxed} else None\n"
        f"asyncio.run(run_command(Workspace({str(place.root)!r}), box, 'setsid {mark} & {mark}', 100))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        while not running(mark):
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert gone(mark)


def test_output_that_is_held_open_is_not_waited_for(place):
    before = time.monotonic()
    assert sh(place, "sleep 1000 & echo started", seconds=60) == "started"
    assert time.monotonic() - before < 30


def test_a_command_that_is_too_long_is_refused(place):
    with pytest.raises(ToolError, match="longer than 100000 bytes"):
        sh(place, "true " + "x" * 200_000)


def test_the_command_gets_ordinary_signals(place):
    assert sh(place, "yes | head -n 1; kill -TERM $$; echo not reached") == "y\n[exit status -15]"


@pytest.mark.parametrize("boxed", [False, True])
def test_cancelling_the_run_kills_the_command(place, boxed, sandbox):
    mark = f"sleep {53_000 + os.getpid() + boxed}.25"

    async def fly():
        tools = workspace_tools(place, ["shell"], sandbox=sandbox if boxed else "off", shell_approval=False)
        agent = Agent(
            model=ScriptedModel([call("shell", command=f"{mark}; true")]), tools=tools, limits=Limits(max_iterations=3)
        )
        token = CancelToken()
        task = asyncio.create_task(agent.run("go", cancel=token))
        while not running(mark):  # noqa: ASYNC110 - a real process in real time
            await asyncio.sleep(0.02)
        token.cancel()
        return await task

    assert asyncio.run(fly()).outcome.name == "CANCELLED"
    assert gone(mark)


# --- the sandbox ------------------------------------------------------------------------------------------------------


def test_only_the_workspace_can_be_written(place, sandbox, tmp_path):
    assert sh(place, "echo x > inside && cat inside", sandbox=sandbox) == "x"
    outside = tmp_path / "outside"
    for target in (outside, "/etc/glidepath-was-here", "/usr/glidepath-was-here"):
        assert "exit status" in sh(place, f"echo x > {target}", sandbox=sandbox) or not Path(target).exists()
    assert not outside.exists()


def test_there_is_no_network(place, sandbox):
    text = sh(place, "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '", sandbox=sandbox)
    assert text in ("lo", "(no output)")


def test_home_folders_are_hidden(place, sandbox):
    home = Path("/root") if Path("/root").is_dir() else Path("/home")
    shown = sh(place, f"ls -A {home}", sandbox=sandbox)
    assert shown == "(no output)" or place.root.is_relative_to(home / shown)


def test_other_processes_are_not_seen(place, sandbox):
    assert len(sh(place, "ls /proc | grep '^[0-9]'", sandbox=sandbox).split()) < 8


def test_links_and_mounts_do_not_help(place, sandbox):
    (place.root / "out").symlink_to("/etc")
    assert "exit status" in sh(place, "echo x > out/glidepath-was-here", sandbox=sandbox)
    assert "exit status" in sh(place, "mount -t tmpfs none /mnt", sandbox=sandbox)


def test_a_shell_needs_approval_unless_it_is_boxed_or_somebody_says_otherwise(place, monkeypatch):
    monkeypatch.setattr(sandbox_module.shutil, "which", lambda *_, **__: None)
    assert workspace_tools(place, ["shell"])[0].requires_approval
    with pytest.raises(ConfigurationError, match="no sandbox works here"):
        workspace_tools(place, ["shell"], shell_approval=False)
    with pytest.raises(ConfigurationError, match="no sandbox works here"):
        workspace_tools(place, ["shell"], sandbox="require")
    assert not workspace_tools(place, ["shell"], sandbox="off", shell_approval=False)[0].requires_approval


def test_a_sandbox_that_does_not_work_is_none(tmp_path, monkeypatch):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sandbox_module.shutil, "which", lambda *_, **__: str(broken))
    assert find_sandbox() is None


def test_an_unknown_sandbox_is_refused(place):
    with pytest.raises(ConfigurationError, match="sandbox must be"):
        workspace_tools(place, ["shell"], sandbox="maybe")


def test_the_model_is_told_about_the_sandbox(place):
    boxed = workspace_tools(place, ["shell"], sandbox=Bubblewrap("bwrap"))[0]
    assert "no network" in boxed.description
    assert "no network" not in workspace_tools(place, ["shell"], sandbox="off")[0].description


def test_the_answer_of_a_command_goes_to_the_model(place):
    tools = workspace_tools(place, ["shell"], sandbox="off", shell_approval=False)
    model = ScriptedModel([call("shell", command="echo hi"), lambda request: say(request.messages[-1].text)])
    assert Agent(model=model, tools=tools, limits=Limits(max_iterations=3)).run_sync("go").text == "hi"
