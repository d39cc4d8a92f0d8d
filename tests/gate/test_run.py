"""`glidepath gate run` as people use it: real commands, a real terminal, exit codes and signals."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler

import pytest

pytestmark = pytest.mark.process

REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "done"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 40, "output_tokens": 10},
}


def sse(name, **data):
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


class Provider(BaseHTTPRequestHandler):
    """Answers like Anthropic, streamed or not."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((dict(self.headers), body))
        if body.get("stream"):
            start = {**REPLY, "content": [], "stop_reason": None, "usage": {"input_tokens": 40, "output_tokens": 1}}
            text = b"".join(
                [
                    sse("message_start", message=start),
                    sse("content_block_start", index=0, content_block={"type": "text", "text": ""}),
                    sse("content_block_delta", index=0, delta={"type": "text_delta", "text": "done"}),
                    sse("content_block_stop", index=0),
                    sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 10}),
                    sse("message_stop"),
                ]
            )
            kind = "text/event-stream"
        else:
            text, kind = json.dumps(REPLY).encode(), "application/json"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


CALL = """
import json, os, urllib.request
body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}
for _ in range(int(os.environ.get("TIMES", "1"))):
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(),
        {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"})
    reply = json.load(urllib.request.urlopen(request))
    print(reply["content"][0]["text"])
"""


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "GLIDEPATH_STORE": "none", **more}


def gate_run(*words, folder, stdin="", **environ):
    return subprocess.run(
        [sys.executable, "-m", "glidepath", "gate", "run", *words],
        cwd=folder,
        env=environment(**environ),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,  # without a terminal, wherever the tests run
    )


def test_a_command_is_run_behind_a_gate_and_what_it_used_is_told(provider, tmp_path):
    done = gate_run(
        *("--max-tokens", "10k", "--upstream", provider.url, "--report", "r.json", "--", sys.executable, "-c", CALL),
        folder=tmp_path,
        ANTHROPIC_API_KEY="sk-real",
        TIMES="2",
    )
    assert (done.returncode, done.stdout) == (0, "done\ndone\n"), done.stderr
    assert "2 calls, 100 of 10,000 tokens" in done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert {"calls", "tokens", "cost", "limit", "landed", "agents"} <= set(report)
    assert (report["calls"], report["tokens"], report["limit"], report["landed"]) == (2, 100, {"tokens": 10_000}, False)
    assert (tmp_path / "r.json").stat().st_mode & 0o077 == 0
    headers = [{name.lower(): value for name, value in seen[0].items()} for seen in provider.seen]
    assert [one["x-api-key"] for one in headers] == ["sk-real", "sk-real"]


def test_a_run_is_a_session_among_the_others(provider, tmp_path):
    words = ("--upstream", provider.url, "--store", "runs.db", "--", sys.executable, "-c", CALL)
    done = gate_run(*words, folder=tmp_path, TIMES="2")
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        [sys.executable, "-m", "glidepath", "sessions", "list", "--store", "runs.db", "--json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "hello" in listed.stdout
    again = gate_run("--report", "r.json", *words, folder=tmp_path, TIMES="1")
    assert "1 call, 50 tokens" in again.stderr
    assert json.loads((tmp_path / "r.json").read_text())["calls"] == 1


def test_what_a_run_said_is_redacted_as_the_settings_say(provider, tmp_path):
    (tmp_path / "vault.py").write_text("def hide(text):\n    return text.replace('hello', '*****')\n")
    settings = {"GLIDEPATH_REDACT": "python:vault:hide", "PYTHONPATH": str(tmp_path)}
    words = ("--upstream", provider.url, "--store", "runs.db", "--", sys.executable, "-c", CALL)
    done = gate_run(*words, folder=tmp_path, TIMES="1", **settings)
    assert done.returncode == 0, done.stderr
    written = b"".join([one.read_bytes() for one in tmp_path.glob("runs.db*")])
    assert b"*****" in written
    assert b"hello" not in written
    refused = gate_run("--record", *words, folder=tmp_path, TIMES="1", **settings)
    assert refused.returncode == 2
    assert "this store redacts what it keeps" in refused.stderr


def test_streams_and_the_exit_code_pass_through(provider, tmp_path):
    code = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('oops'); sys.exit(7)"
    done = gate_run("--upstream", provider.url, "--", sys.executable, "-c", code, folder=tmp_path, stdin="abc")
    assert (done.returncode, done.stdout) == (7, "ABC")
    assert done.stderr.startswith("oops")
    assert "made no call through the gate" in done.stderr


def test_the_signal_that_ended_a_command_is_in_the_exit_code(provider, tmp_path):
    done = gate_run("--upstream", provider.url, "--", "sh", "-c", "kill -9 $$", folder=tmp_path)
    assert done.returncode == 137


def test_a_landing_can_have_an_exit_code_of_its_own(provider, tmp_path):
    words = ("--max-calls", "2", "--upstream", provider.url, "--exit-landed", "3", "--", sys.executable, "-c", CALL)
    done = gate_run(*words, folder=tmp_path, TIMES="5")
    assert done.returncode == 3, done.stderr
    assert "was landed: the limit of 2 calls is reached" in done.stderr
    assert len(provider.seen) <= 2
    assert gate_run(*words, folder=tmp_path, TIMES="1").returncode == 0


def test_the_key_of_the_run_is_not_in_its_command_line_and_dies_with_it(provider, tmp_path):
    code = "import os; print(os.environ['GLIDEPATH_GATE_URL'], os.environ['GLIDEPATH_GATE_KEY'])"
    done = gate_run("--upstream", provider.url, "--", sys.executable, "-c", code, folder=tmp_path)
    url, key = done.stdout.split()
    assert url.startswith("http://127.0.0.1:")
    assert "/run-" in url
    assert len(key) > 30
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--", "no-such-command-anywhere"], 127, "there is no such command"),
        ([], 2, "name the command after --"),
        (
            ["claude", "-p", "hi", "--max-tokens", "5k"],
            2,
            "first the flags, then --, then the command: glidepath gate run [flags] -- claude ...",
        ),
        (["--max-tokens", "0", "--", "true"], 2, "--max-tokens"),
        (["--max-budget-usd", "much", "--", "true"], 2, "--max-budget-usd"),
        (["--timeout", "soon", "--", "true"], 2, "--timeout"),
        (["--upstream", "opnai=http://127.0.0.1:1", "--", "true"], 2, "did you mean openai?"),
        (["--exit-landed", "300", "--", "true"], 2, "between 0 and 255"),
        (["--max-tokns", "5", "--", "true"], 2, "--max-tokens"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(words, code, says, tmp_path):
    done = gate_run(*words, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in done.stderr


def test_arguments_behind_the_dashes_belong_to_the_command(provider, tmp_path):
    code = "import sys; print(sys.argv[1:])"
    words = ("--upstream", provider.url, "--", sys.executable, "-c", code, "--report", "x", "--", "--help")
    assert gate_run(*words, folder=tmp_path).stdout == "['--report', 'x', '--', '--help']\n"


def test_a_signal_to_the_gate_reaches_the_command_and_its_children(provider, tmp_path):
    # Before it is `sleep`, the child is a shell that has the trap as well.
    begun = '[ "$(cat /proc/$!/comm 2>/dev/null || echo sleep)" = sleep ]'
    script = f"trap 'echo caught; exit 5' TERM; sleep 60 & until {begun}; do :; done; echo ready; wait"
    process = subprocess.Popen(
        [sys.executable, "-m", "glidepath", "gate", "run", "--upstream", provider.url, "--", "sh", "-c", script],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (5, "caught\n"), err
    assert "glidepath gate:" in err


class AtTerminal:
    """A gate run in a terminal of its own, started by a shell with job control or directly."""

    def __init__(self, folder, *words):
        self.seen = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(words[0], words, environment(PS1="$ ", TERM="dumb", HISTFILE=""))

    def until(self, word, seconds=30):
        deadline = time.monotonic() + seconds
        while word not in self.seen:
            assert time.monotonic() < deadline, self.seen.decode(errors="replace")
            if select.select([self.terminal], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.terminal, 4096)
                except OSError:
                    break
        assert word in self.seen, self.seen.decode(errors="replace")
        found, _, self.seen = self.seen.partition(word)
        return found

    def type(self, text):
        os.write(self.terminal, text)

    def code(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self.terminal, 4096)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"it did not end: {self.seen.decode(errors='replace')}")

    def close(self):
        os.close(self.terminal)


INTERACTIVE = """
import os, signal, sys, time
print("foreground", os.tcgetpgrp(0) == os.getpgrp(), "tty", sys.stdout.isatty(), flush=True)
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
signal.signal(signal.SIGWINCH, lambda *_: print("resized", os.get_terminal_size().columns, flush=True))
signal.signal(signal.SIGCONT, lambda *_: print("continued", flush=True))
print("ready", flush=True)
while True:
    line = sys.stdin.readline()
    if line.strip() == "quit":
        sys.exit(4)
    print("got", line.strip(), flush=True)
"""


def run_words(provider, code=INTERACTIVE):
    words = (sys.executable, "-m", "glidepath", "gate", "run", "--upstream", provider.url, "--", sys.executable, "-u")
    return (*words, "-c", code)


def test_at_a_terminal_the_command_has_it_with_ctrl_c_and_its_size(provider, tmp_path):
    import fcntl
    import struct
    import termios

    here = AtTerminal(tmp_path, *run_words(provider))
    here.until(b"foreground True tty True")
    here.until(b"ready")
    here.type(b"hello\n")
    here.until(b"got hello")
    here.type(b"\x03")
    here.until(b"interrupted")
    fcntl.ioctl(here.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 77, 0, 0))
    here.until(b"resized 77")
    here.type(b"quit\n")
    assert here.code() == 4
    assert b"glidepath gate:" in here.seen
    here.close()


def test_under_a_shell_ctrl_z_suspends_the_job_and_fg_brings_it_back(provider, tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(INTERACTIVE)
    here = AtTerminal(tmp_path, "/bin/bash", "--norc", "--noprofile", "-i")
    here.type(
        f"{sys.executable} -m glidepath gate run --upstream {provider.url} -- {sys.executable} -u agent.py\n".encode()
    )
    here.until(b"foreground True tty True")
    here.until(b"ready")
    here.type(b"\x1a")
    here.until(b"Stopped")
    here.type(b"echo shell-$((1+1))\n")
    here.until(b"shell-2\r\n")
    here.type(b"fg\n")
    here.until(b"continued")
    here.type(b"again\n")
    here.until(b"got again")
    here.type(b"quit\n")
    here.until(b"glidepath gate:")
    here.type(b"echo code-$?\n")
    here.until(b"code-4")
    here.type(b"exit\n")
    here.code()
    here.close()


def test_a_raw_terminal_is_put_right_after_a_command_that_was_killed(provider, tmp_path):
    import termios

    code = "import os, tty; tty.setraw(0); print('raw', flush=True); os.kill(os.getpid(), 9)"
    here = AtTerminal(tmp_path, *run_words(provider, code))
    here.until(b"raw")
    modes = None
    while True:
        pid, status = os.waitpid(here.pid, os.WNOHANG)
        modes = termios.tcgetattr(here.terminal) if not pid else modes
        if pid:
            break
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status) == 137
    assert modes[3] & termios.ICANON
    here.close()
