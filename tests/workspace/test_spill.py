"""Big results are kept apart, with a tool to read on; a kill loses none that the transcript names."""

import signal
import subprocess
import sys

import pytest

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.context import SpillResults
from glidepath.sessions import Session, SqliteStore
from glidepath.testing import ScriptedModel, call, say, virtual

TEXT = "".join(f"line {number}\n" for number in range(9_000))


@tool(untrusted=True)
def dump(n: int) -> str:
    """Return a lot."""
    return TEXT


def agent(spill, *turns, **more):
    model = ScriptedModel([*turns, say("done")])
    return Agent(model=model, tools=[dump, spill.tool], plugins=[spill], limits=Limits(max_iterations=20), **more)


def only_name(folder):
    (file,) = folder.iterdir()
    return file.name


def results(run):
    return [one for one in run.messages if one.role == "tool_result"]


@virtual
async def test_the_model_gets_the_beginning_and_reads_on_to_the_end(tmp_path):
    spill = SpillResults(tmp_path / "kept", over=5_000, shown=1_000)
    run = await agent(spill, call("dump", n=1)).run("go")
    (first,) = results(run)
    assert first.text.startswith(TEXT[:1_000])
    assert len(first.text) < 1_200
    name = only_name(tmp_path / "kept")
    assert f"read_result(result='{name}', start=1000)" in first.text
    read, start = TEXT[:1_000], 1_000
    while start < len(TEXT):
        more = await spill.tool.fn(name, start)
        text, _, note = more.rpartition("\n[")
        read, start = read + text, start + len(text)
    assert read == TEXT
    assert note == "the end]"


@virtual
async def test_what_was_untrusted_stays_untrusted_when_it_is_read_on(tmp_path):
    spill = SpillResults(tmp_path, over=5_000)
    turns = [call("dump", n=1), lambda request: call("read_result", result=only_name(tmp_path), start=2_000)]
    run = await agent(spill, *turns).run("go")
    assert [one.origins for one in results(run)] == [("dump",), ("read_result",)]


@virtual
async def test_a_small_result_is_not_touched(tmp_path):
    @tool
    def brief() -> str:
        """Return little."""
        return "x" * 5_000

    spill = SpillResults(tmp_path, over=5_000)
    model = ScriptedModel([call("brief"), say("done")])
    run = await Agent(model=model, tools=[brief], plugins=[spill], limits=Limits(max_iterations=9)).run("go")
    assert results(run)[0].text == "x" * 5_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("result", ["../secret", "/etc/passwd", "", "x" * 32, "0" * 31, ".", "0" * 32])
@virtual
async def test_no_name_but_that_of_a_result_is_read(tmp_path, result):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "kept").mkdir()
    spill = SpillResults(tmp_path / "kept", over=5_000)
    run = await agent(spill, call("read_result", result=result)).run("go")
    assert results(run)[0].is_error


@virtual
async def test_a_link_in_the_folder_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    spill = SpillResults(tmp_path / "kept", over=5_000)
    (tmp_path / "kept" / ("a" * 32)).symlink_to("../secret")
    run = await agent(spill, call("read_result", result="a" * 32)).run("go")
    assert results(run)[0].is_error
    assert "secret" not in results(run)[0].text


@virtual
async def test_the_files_are_for_you_alone(tmp_path):
    spill = SpillResults(tmp_path / "kept", over=5_000)
    await agent(spill, call("dump", n=1)).run("go")
    name = only_name(tmp_path / "kept")
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "kept" / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("fields", "what"), [({"over": 0}, "over"), ({"over": 100, "shown": 100}, "less than over")])
def test_sizes_that_make_no_sense_are_refused(tmp_path, fields, what):
    with pytest.raises(ConfigurationError, match=what):
        SpillResults(tmp_path, **fields)


def test_a_folder_that_is_none_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be used"):
        SpillResults(tmp_path / "file")


PROGRAM = """
import os, signal, sys
from glidepath import Agent, Limits, tool
from glidepath.context import SpillResults
from glidepath.sessions import Session, SqliteStore
from glidepath.testing import ScriptedModel, call

class Deadly(ScriptedModel):
    def stream(self, request):
        if any(one.role == "tool_result" for one in request.messages):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().stream(request)

@tool
def dump(n: int) -> str:
    "Return a lot."
    return "".join(f"line {number}\\n" for number in range(9_000))

spill = SpillResults(sys.argv[1] + "/kept", over=5_000)
agent = Agent(model=Deadly([call("dump", n=1)]), tools=[dump, spill.tool], plugins=[spill],
              limits=Limits(max_iterations=9), store=SqliteStore(sys.argv[1] + "/s.db"))
agent.run_sync("go", session=Session("s"))
"""


def test_after_a_kill_the_resumed_run_reads_on_in_what_was_spilled(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    name = only_name(tmp_path / "kept")
    spill = SpillResults(tmp_path / "kept", over=5_000)
    again = agent(spill, call("read_result", result=name, start=2_000, length=20), store=SqliteStore(tmp_path / "s.db"))
    run = again.resume_sync(Session("s"))
    assert run.outcome is LoopOutcome.DONE
    first, second = results(run)
    assert name in first.text
    assert second.text.startswith(TEXT[2_000:2_020])
