"""`glidepath run`: what goes in, what comes out, and how it is stopped."""

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

import pytest

from glidepath.apps.cli.commands.run_command import execute
from glidepath.models.local import KNOWN
from glidepath.values import EVENTS, install_line
from glidepath.values.events import codec

from .shell_user import environment, glidepath, process

HELLO = ("--model", "python:flights:hello")


def test_the_answer_and_nothing_else_goes_to_a_pipe(tmp_path):
    ran = glidepath("run", "hi", *HELLO, folder=tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, "Hello from the script.\n", "")


def test_the_task_can_come_from_standard_input(tmp_path):
    for argv, stdin, sent in (
        ([], "from a pipe\n", "from a pipe"),
        (["-"], "from a pipe\n", "from a pipe"),
        (["summarize", "-"], "the text\n", "summarize\n\nthe text"),
    ):
        ran = glidepath("run", *argv, *HELLO, "--output-format", "json", folder=tmp_path, stdin=stdin)
        assert json.loads(ran.out)["messages"][0]["content"] == sent


@pytest.mark.parametrize("stdin", ["", "  \n"])
def test_an_empty_task_is_wrong_usage(tmp_path, stdin):
    ran = glidepath("run", *HELLO, folder=tmp_path, stdin=stdin)
    assert ran.code == 2
    assert "prompt is empty" in ran.err


def test_standard_input_that_is_no_text_is_wrong_usage(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "glidepath.cli", "run", *HELLO],
        cwd=tmp_path,
        env=environment(PYTHONUTF8="1"),
        input=b"\xff\xfe",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_no_model_is_wrong_usage_and_says_what_to_do(tmp_path):
    ran = glidepath("run", "hi", folder=tmp_path)
    assert ran.code == 2
    assert "--model" in ran.err
    assert "glidepath demo" in ran.err


def test_json_is_the_whole_result(tmp_path):
    ran = glidepath("run", "hi", *HELLO, "--output-format", "json", folder=tmp_path)
    data = json.loads(ran.out)
    assert (data["outcome"], data["state"], data["text"]) == ("done", "completed", "Hello from the script.")
    assert data["usage"]["output"] > 0


def test_stream_json_is_every_event_and_its_last_is_the_end(tmp_path):
    ran = glidepath("run", "hi", "--model", "python:flights:looks", "--output-format", "stream-json", folder=tmp_path)
    read = codec()
    events = [read.decode(line.encode()) for line in ran.out.splitlines()]
    assert [event.sequence for event in events] == list(range(events[0].sequence, events[0].sequence + len(events)))
    assert type(events[0]).__name__ == "RunStarted"
    assert type(events[-1]).__name__ == "RunEnded"
    assert events[-1].result.text.startswith("There is one file")
    assert all(type(event) in EVENTS for event in events)


def test_text_that_is_no_terminal_gets_no_color(tmp_path):
    ran = process("run", "hi", "--model", "python:flights:looks", folder=tmp_path)
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err


def test_the_workspace_is_what_the_tools_see(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "notes.txt").write_text("x")
    ran = glidepath(
        "run",
        "hi",
        "--model",
        "python:flights:looks",
        "--workspace",
        "inner",
        "--output-format",
        "json",
        folder=tmp_path,
    )
    results = [m for m in json.loads(ran.out)["messages"] if m["role"] == "tool_result"]
    assert results[0]["content"] == "notes.txt"


def test_a_shell_call_runs_when_all_are_approved_beforehand(tmp_path):
    argv = ["run", "go", "--model", "python:flights:shell", "--tools", "shell", "--approve", "all"]
    ran = glidepath(*argv, folder=tmp_path)
    assert (ran.code, ran.out) == (0, "Result: from the shell\n")
    assert (tmp_path / "made.txt").read_text() == "from the shell\n"


def test_a_shell_call_in_a_pipe_waits_for_a_person(tmp_path):
    ran = glidepath("run", "go", "--model", "python:flights:shell", "--tools", "shell", folder=tmp_path)
    assert ran.code == 6
    assert "waiting for a decision about shell(command=" in ran.err
    assert "Nobody decided, and the run is not saved" in ran.err
    assert not (tmp_path / "made.txt").exists()


def test_the_reader_may_leave_early(tmp_path):
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m glidepath.cli run hi --model python:flights:many_lines | head -1"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "line\n"
    assert done.stderr == ""


def test_a_closed_pipe_stops_a_run_that_streams_events(tmp_path):
    flight = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "glidepath.cli",
            "run",
            "hi",
            "--model",
            "python:flights:endless",
            "--max-turns",
            "100000",
            "--output-format",
            "stream-json",
            "--set",
            "guardrails.max_repeated_tool_steps=0",
        ],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    flight.stdout.readline()
    flight.stdout.close()
    assert flight.wait(30) == 141
    assert flight.stderr.read() == b""
    flight.stderr.close()


# --- signals ------------------------------------------------------------------------------------------------------


class Flight:
    """A real process that has begun to answer and goes on for ever."""

    def __init__(self, folder, model, *argv):
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-u",
                "-m",
                "glidepath.cli",
                "run",
                "hi",
                "--model",
                f"python:flights:{model}",
                "--output-format",
                "stream-json",
                *argv,
            ],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []

    def until(self, word):
        for line in self.process.stdout:
            self.lines.append(line)
            if word in line:
                return
        raise AssertionError(f"{word} never came: {self.lines} {self.process.stderr.read()}")

    def end(self):
        out, err = self.process.communicate(timeout=30)
        self.lines += out.splitlines()
        events = [json.loads(line) for line in self.lines]
        assert events[-1]["event"] == "RunEnded"
        return self.process.returncode, events, err


@pytest.mark.process
def test_the_first_ctrl_c_winds_down_and_still_exits_130(tmp_path):
    flight = Flight(
        tmp_path, "lands", "--tools", "shell", "--approve", "all", "--sandbox", "off", "--set", "tool_timeout=3"
    )
    flight.until('"ToolStarted"')
    flight.process.send_signal(signal.SIGINT)
    code, events, err = flight.end()
    assert code == 130
    told = "no sandbox: shell commands run as you (it is switched off)\n"
    assert err == f"{told}finishing up; Ctrl-C again to stop now\n"
    assert events[-1]["result"]["text"] == "This is what I have."
    assert events[-1]["result"]["cause"]["source"] == "person"


@pytest.mark.process
def test_the_second_ctrl_c_stops_now_and_keeps_the_text(tmp_path):
    flight = Flight(tmp_path, "waits")
    flight.until('"it "')
    flight.process.send_signal(signal.SIGINT)
    assert flight.process.stderr.readline() == "finishing up; Ctrl-C again to stop now\n"
    flight.process.send_signal(signal.SIGINT)
    code, events, _ = flight.end()
    assert code == 130
    result = events[-1]["result"]
    assert (result["outcome"], result["landing_calls"], result["partial"]) == ("cancelled", 0, True)
    assert result["text"] == "I found one file, and in it "


@pytest.mark.process
def test_sigterm_makes_no_model_call_keeps_the_text_and_exits_143(tmp_path):
    flight = Flight(tmp_path, "waits")
    flight.until('"it "')
    calls = sum('"StreamStarted"' in line for line in flight.lines)
    flight.process.send_signal(signal.SIGTERM)
    code, events, err = flight.end()
    assert (code, err) == (143, "")
    assert sum(event["event"] == "StreamStarted" for event in events) == calls
    assert events[-1]["result"]["text"] == "I found one file, and in it "
    assert events[-1]["result"]["landing_calls"] == 0


@pytest.mark.process
def test_sigterm_kills_what_the_shell_started(tmp_path):
    mark = f"sleep {40_000 + os.getpid() % 1000}.5"
    body = f"    return ScriptedModel([call('shell', command='{mark} & {mark}; true')])"
    head = "from glidepath.testing import ScriptedModel, call"
    (tmp_path / "mine.py").write_text(f"{head}\ndef model():\n{body}\n")
    flight = subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-m",
            "glidepath.cli",
            "run",
            "hi",
            "--model",
            "python:mine:model",
            "--output-format",
            "stream-json",
            "--tools",
            "shell",
            "--approve",
            "all",
            "--sandbox",
            "off",
        ],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for line in flight.stdout:
        if '"ToolStarted"' in line:
            break
    wait_until(lambda: len(running(mark)) >= 2)
    flight.send_signal(signal.SIGTERM)
    flight.stdout.read()
    assert flight.wait(30) == 143
    flight.stdout.close()
    wait_until(lambda: running(mark) == [])


DEAF = """
import asyncio, time
from glidepath import tool
from glidepath.messages import StreamEnd, TextDelta, Usage
from glidepath.testing import ScriptedModel, call

async def ignore():
    print("here", flush=True)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass

class Model:
    name = "deaf"
    max_output_tokens = 100
    async def stream(self, request):
        yield TextDelta("What I have so far.")
        await ignore()
        yield StreamEnd("end_turn", Usage(1, 1))

class Sleeper:
    name = "sleeper"
    max_output_tokens = 100
    async def stream(self, request):
        yield TextDelta("What I have so far.")
        print("here", flush=True)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
        yield StreamEnd("end_turn", Usage(1, 1))

def caller():
    return ScriptedModel([call("work")])

@tool
async def work() -> str:
    await ignore()
    return "never"
"""


@pytest.mark.process
@pytest.mark.parametrize("who", ["Model", "Sleeper", "caller"])
def test_sigterm_ends_a_process_whose_code_ignores_being_cancelled(tmp_path, who):
    (tmp_path / "deaf.py").write_text(DEAF)
    argv = ["--model", f"python:deaf:{who}", "--tools", "python:deaf:work", "--store", "runs.db"]
    flight = subprocess.Popen(
        [sys.executable, "-u", "-m", "glidepath.cli", "run", "hi", *argv],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert flight.stdout.readline() == "here\n"
    began = time.monotonic()
    flight.send_signal(signal.SIGTERM)
    _, err = flight.communicate(timeout=50)
    assert flight.returncode == 143
    assert time.monotonic() - began < 10
    assert err.splitlines()[-1].startswith("to continue: glidepath resume session_"), err


def running(command):
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in found if line.strip() == command]


def wait_until(check, seconds=20.0):
    """Real processes live in real time: look again until it is so."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


# --- the cost of asking for help ------------------------------------------------------------------------------------


@pytest.mark.process
def test_help_costs_at_most_five_times_an_empty_python(tmp_path):
    def cost(*argv):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *argv], cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    empty, asked = [], []
    for _ in range(9):  # taken in turns: both meet the same machine
        empty.append(cost("-c", "pass"))
        asked.append(cost("-m", "glidepath.cli", "--help"))
    assert min(asked) <= 5 * min(empty), f"{min(asked):.3f} s against {min(empty):.3f} s"


@pytest.mark.process
def test_help_imports_nothing_of_the_runtime(tmp_path):
    code = (
        "import sys\nfrom glidepath.apps.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('msgspec', 'asyncio', 'rich', 'textual', 'shtab')\n"
        "print([m for m in sys.modules if m in heavy or m.startswith('glidepath.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    loaded = json.loads(done.stderr.replace("'", '"'))
    assert set(loaded) <= {
        "glidepath._version",
        "glidepath._lazy",
        "glidepath.apps",
        "glidepath.apps.cli",
        "glidepath.apps.cli.commands",
        "glidepath.apps.cli.parser",
        "glidepath.apps.cli.cli_context",
        "glidepath.values",
        "glidepath.values.errors",
    }


# --- without the extra ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("argv", "module"), [(["completion", "bash"], "shtab"), (["chat", *HELLO], "textual")])
def test_a_command_without_its_package_says_which_extra_to_install(tmp_path, monkeypatch, argv, module):
    monkeypatch.setitem(sys.modules, module, None)
    ran = glidepath(*argv, folder=tmp_path)
    assert ran.code == 2
    assert install_line("cli") in ran.err


def test_run_without_rich_does_its_work_all_the_same(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for name in [name for name in sys.modules if name.startswith("rich")] + ["glidepath.apps.cli.live"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    from glidepath.apps.cli import CliContext, make_parser

    out, err = Terminal(), Terminal()
    world = CliContext(environ={}, stdin=io.StringIO(), stdout=out, stderr=err, folder=tmp_path)
    glidepath("--version", folder=tmp_path)  # the folder of the models is on the path
    assert execute(make_parser(["run"]).parse_args(["run", "hi", *HELLO]), world) == 0
    assert out.getvalue() == "Hello from the script.\n"
    assert install_line("cli") in err.getvalue()


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_scripts_know_the_commands_and_flags(tmp_path, shell):
    ran = glidepath("completion", shell, folder=tmp_path)
    assert ran.code == 0
    assert "max-budget-usd" in ran.out


def test_a_shell_completes_with_the_script(tmp_path):
    script = tmp_path / "complete.sh"
    script.write_text(glidepath("completion", "bash", folder=tmp_path).out)
    ask = f"source {script}; COMP_WORDS=(glidepath run --max-b); COMP_CWORD=2; _shtab_glidepath; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "--max-budget-usd\n"


def test_version(tmp_path):
    ran = glidepath("--version", folder=tmp_path)
    assert (ran.code, ran.out) == (0, "glidepath 0.1.0\n")


@pytest.mark.parametrize("argv", [[], ["fly"], ["run", "--no-such-flag"], ["--model", "x"]])
def test_wrong_usage_exits_with_2(tmp_path, argv):
    assert glidepath(*argv, folder=tmp_path).code == 2


def test_models_lists_every_way_to_name_one(tmp_path):
    ran = glidepath("models", folder=tmp_path)
    assert ran.code == 0
    assert "ready once ANTHROPIC_API_KEY is set" in ran.out
    known = glidepath("models", "list", folder=tmp_path, environ={"ANTHROPIC_API_KEY": "sk-secret"})
    assert "sk-secret" not in known.out + known.err
    assert known.out.count("ready\n") > ran.out.count("ready\n")


def test_on_a_terminal_the_list_of_models_is_wrapped_at_words(tmp_path):
    from .terminal import Terminal

    with Terminal(80, tmp_path, "models", height=90) as terminal:
        assert terminal.code() == 0
        lines = terminal.screen().splitlines()
    second = next(line.index("Claude") for line in lines if line.startswith("anthropic:"))
    assert all(line[:second].strip() == "" or ":" in line[:second] for line in lines)
    assert len(lines) == len([line for line in lines if line[second - 1] == " " and line[second] != " "])


# --- a hostile place ------------------------------------------------------------------------------------------------


def at_the_shell(line, folder):
    program = f"{sys.executable} -m glidepath.cli"
    return subprocess.run(
        ["/bin/sh", "-c", line.replace("glidepath", program)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.process
def test_a_full_disk_is_one_line_and_a_failure(tmp_path):
    done = at_the_shell("glidepath run hi --model python:flights:hello > /dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "glidepath: error: the output cannot be written: No space left on device\n"


@pytest.mark.process
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_crash(tmp_path, closed):
    done = at_the_shell(f"glidepath run hi --model python:flights:hello {closed}", tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_configuration_without_an_end_is_refused(tmp_path):
    ran = glidepath("config", "show", "--config", "/dev/zero", folder=tmp_path)
    assert ran.code == 2
    assert "larger than 1,000,000 bytes" in ran.err


def test_what_a_model_says_cannot_steer_the_terminal(tmp_path):
    from .terminal import Terminal

    for number, more in enumerate(([], ["--no-streaming"])):
        argv = ["run", "hi", "--model", "python:flights:steers", *more]
        with Terminal(80 + number, tmp_path, *argv) as terminal:
            assert terminal.code() == 0
            shown = terminal.until("before", "after", "tokens")
        assert re.search(r"before.*\[2J.*after", shown), shown


def test_models_says_whether_the_embedded_model_is_here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "models pull" in glidepath("models", folder=tmp_path).out
    path = tmp_path / "glidepath" / "models" / KNOWN["smollm2"].file
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(KNOWN["smollm2"].size)
    assert "models pull" not in glidepath("models", folder=tmp_path).out


@pytest.mark.process
def test_bytes_that_are_no_text_are_refused_in_any_locale(tmp_path):
    for locale in ("C", "C.UTF-8"):
        ran = subprocess.run(
            [sys.executable, "-m", "glidepath", "run", *HELLO],
            cwd=tmp_path,
            env=environment(LC_ALL=locale),
            input=b"h\xe9llo",
            capture_output=True,
            check=False,
        )
        assert (ran.returncode, ran.stdout) == (2, b"")
        assert b"standard input is not UTF-8 text" in ran.stderr
