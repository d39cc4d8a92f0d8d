"""README works as printed: its shell blocks run, its tables and its chart say what was measured."""

import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from .pages import ROOT, blocks, name, prose, script

README = ROOT / "README.md"
SHELL = [block for block in blocks(README) if block.language == "sh"]
FRESH = (
    "examples",
    "README.md",
    "LICENSE",
    "pyproject.toml",
    "Makefile",
    "requirements",
    "src",
    "scripts",
    "deck",
    "docs",
)
LATER = {  # first words of a block: why it only runs in the campaign
    "make demo": "it installs everything from a package index",
    "pip install": "it installs from a package index",
    "glidepath gate run": "it needs Claude Code and Codex; tests/gate/test_run.py runs other commands behind a gate",
    "glidepath chat": "it needs a terminal; tests/cli/test_chat.py drives the chat in one with every change",
    "make deck": "it installs from npm and builds",
    "glidepath serve": "it takes the port that the line names, which another program may have",
}
PATIENCE = 120.0


def reason(block):
    return next((why for words, why in LATER.items() if block.text.startswith(words)), None)


def shell(text, folder, **environ):
    """Run a block as printed, in bash, with the glidepath that is tested first in PATH."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GLIDEPATH", "COV"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**kept, "PATH": path, "XDG_DATA_HOME": str(folder / "data"), **environ}
    argv = ["bash", "-e", "-o", "pipefail", "-c", text]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


class Claude(http.server.BaseHTTPRequestHandler):
    """Answers every request as Anthropic would."""

    asked: list

    def do_POST(self):
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        usage = {"input_tokens": 40, "output_tokens": 1}
        parts = [
            {"type": "message_start", "message": {"id": "m", "role": "assistant", "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It always lands."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]
        body = "".join(f"event: {part['type']}\ndata: {json.dumps(part)}\n\n" for part in parts).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def claude():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Claude)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def address(server):
    return {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}"}


@pytest.mark.process
@pytest.mark.parametrize("block", [block for block in SHELL if not reason(block)], ids=lambda block: block.text[:24])
def test_a_shell_block_of_the_readme_runs_as_printed(block, claude, tmp_path):
    done = shell(block.text, tmp_path, **address(claude))
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if "glidepath run" in block.text:
        assert done.stdout.strip() == "It always lands."
        assert claude.asked[0]["model"] == "claude-sonnet-4-5"


def test_every_shell_line_of_the_readme_is_in_a_block_that_runs():
    assert not re.findall(r"^    \S", prose(README), re.MULTILINE), "write a shell block instead of an indented one"
    assert {block.language for block in blocks(README)} == {"sh", "python", "text"}
    assert all(block.info == "text output" for block in blocks(README) if block.language == "text")
    assert all(any(block.text.startswith(words) for block in SHELL) for words in LATER), "a reason without its block"


def test_what_the_readme_installs_finds_the_page_that_it_builds_later():
    lines = [line for block in SHELL for line in block.text.splitlines()]
    install = next(line for line in lines if line.startswith("pip install"))
    build = next(line for line in lines if line.startswith("make deck"))
    assert "serve" in install
    assert lines.index(build) < lines.index(install) or install.startswith("pip install -e ")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A fresh copy of the tree."""
    folder = tmp_path_factory.mktemp("fresh") / "glidepath"
    folder.mkdir()
    ignored = shutil.ignore_patterns("node_modules", "__pycache__", "static")
    for part in FRESH:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part, **({"ignore": ignored} if copy is shutil.copytree else {}))
    return folder


def later(words):
    (block,) = [block for block in SHELL if block.text.startswith(words)]
    return block.text


@pytest.mark.slow
def test_make_demo_runs_in_a_fresh_checkout_and_make_test_knows_what_to_do(checkout):
    done = subprocess.run(["bash", "-c", later("make demo")], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WRAPPED_UP" in done.stdout
    assert shell("make -n test", checkout).returncode == 0  # the suite would run itself


@pytest.mark.slow
def test_the_extras_install_in_a_fresh_environment_and_the_lines_after_it_work(checkout, claude, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    path = os.pathsep.join([str(tmp_path / "env" / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-e", "-c", later("pip install") + later("export ANTHROPIC_API_KEY")],
        cwd=checkout,
        env={**os.environ, "PATH": path, "XDG_DATA_HOME": str(tmp_path), **address(claude)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("It always lands.")


@pytest.mark.slow
def test_the_chat_starts_and_leaves(claude, tmp_path):
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", os.devnull]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "ANTHROPIC_API_KEY": "k", "XDG_DATA_HOME": str(tmp_path), **address(claude)}
    start = [
        *tmux,
        "new-session",
        "-d",
        "-x",
        "100",
        "-y",
        "30",
        f"{later('glidepath chat').strip()}\necho left $?; cat",  # the line ends with a comment
    ]
    subprocess.run(start, cwd=tmp_path, env=env, check=True)
    try:
        seen(tmux, "claude-sonnet-4-5")
        subprocess.run([*tmux, "send-keys", "hello", "Enter"], check=True)
        seen(tmux, "It always lands.")
        subprocess.run([*tmux, "send-keys", "/quit", "Enter"], check=True)
        seen(tmux, "left 0")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def seen(tmux, words):
    deadline = time.monotonic() + PATIENCE
    look = [*tmux, "capture-pane", "-p"]
    while words not in (screen := subprocess.run(look, capture_output=True, text=True, check=True).stdout):
        assert time.monotonic() < deadline, f"{words} never came:\n{screen}"
        time.sleep(0.2)


@pytest.mark.process
@pytest.mark.parametrize("installed", [True, False])
def test_make_deck_installs_the_development_set_only_where_there_is_no_glidepath(installed, tmp_path):
    if installed:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "glidepath").touch()
    done = shell(f"make -n deck VENV={tmp_path}", ROOT)
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}/bin/glidepath deck --demo" in done.stdout
    assert ("requirements/dev.txt" in done.stdout) != installed


@pytest.mark.slow
@pytest.mark.parametrize("words", ["make deck", "glidepath serve"])
def test_a_server_of_the_readme_starts_and_stops(words, checkout, tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "XDG_DATA_HOME": str(tmp_path), "BROWSER": "true", "PYTHONUNBUFFERED": "1"}
    log = tmp_path / "log"
    with log.open("w") as out:
        server = subprocess.Popen(
            ["bash", "-c", later(words)], cwd=checkout, env=env, stdout=out, stderr=out, start_new_session=True
        )
        try:
            deadline = time.monotonic() + 900
            while "http://127.0.0.1:7447" not in log.read_text():
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)


# --- what was measured --------------------------------------------------------------------------------------------


def probes():
    return script(ROOT / "bench" / "probes" / "run.py")


def test_pages_that_give_two_ratios_for_a_turn_say_which_workload_each_is_of():
    peers = (ROOT / "docs" / "benchmarks-peers.md").read_text(encoding="utf-8")
    row = next(line for line in peers.splitlines() if line.startswith("| glidepath | ") and "x |" in line).split("|")
    turn, checks, disk = (row[place].strip(" x") for place in (2, 4, 6))
    costs = " ".join((ROOT / "docs" / "what-it-costs.md").read_text(encoding="utf-8").split())
    assert (
        f"the same figures are {turn} times streamed, {checks} with ten constraints, and {disk} kept on disk" in costs
    )
    own = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    ranges = [
        rf"`{cell}` .* \W*{low}\d*-{high}\d*\W*\|"
        for cell, low, high in (("stream", "4.5", "4.7"), ("run", "3.2", "3.3"))
    ]
    assert all(re.search(one, own) for one in ranges), "measured anew: change README and what-it-costs.md"
    for page in (prose(README), costs):
        said = " ".join(page.split())
        assert "1,000 turns" in said
        assert "200 turns" in said
        assert f"glidepath {turn}x" in said or f"{turn} times" in said


@pytest.mark.process
def test_glidepath_still_does_in_the_probes_what_the_pages_say():
    maker = probes()
    row = maker.table({"glidepath": maker.flown(sys.executable, "glidepath_.py")}).splitlines()[-1]
    assert row in maker.PAGE.read_text(encoding="utf-8"), "run bench/probes/run.py"


def test_the_charts_are_drawn_from_the_results_and_legible_on_a_phone():
    sys.path.insert(0, str(ROOT / "bench"))
    report = script(ROOT / "bench" / "report.py")
    results = [
        json.loads((report.RESULTS / f"{kind}.json").read_text(encoding="utf-8")) for kind in ("peers", "matrix")
    ]
    drawn = report.drawn_charts(report.Figures(results[0]), results[1])
    assert {"turn-cost", "peers-ratios", "peers-long", "peers-matrix"} == set(drawn)
    for file, picture in drawn.items():
        assert (ROOT / "docs" / "images" / f"{file}.svg").read_text(encoding="utf-8") == picture, "run bench/report.py"
        width = int(re.search(r"viewBox='0 0 (\d+) ", picture)[1])
        smallest = min(int(size) for size in re.findall(r"font-size='(\d+)'", picture))
        assert smallest * (390 - 32) / width >= 9.5, f"{file}: too small at 390 px"
        assert "prefers-color-scheme: dark" in picture


@pytest.mark.parametrize("path", [README, ROOT / "docs" / "index.md"], ids=name)
def test_the_first_screen_shows_the_chart_with_the_figures_of_the_results(path):
    report = script(ROOT / "bench" / "report.py")
    figures = report.Figures(json.loads((report.RESULTS / "peers.json").read_text(encoding="utf-8")))
    (_, ours, _), *peers = figures.ranked("turn")
    short = report.charts.short
    told = f"glidepath {short(ours)}, the others {short(peers[0][1])} to {short(peers[-1][1])}"
    assert f"{told}](" in path.read_text(encoding="utf-8")
