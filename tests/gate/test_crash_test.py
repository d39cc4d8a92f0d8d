"""The crash test: verdicts from counts and the process table, a page made from them, and cells that really run."""

import asyncio
import importlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.gate.zoo import ZOO, need_agent

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "bench" / "crash"
NAMES = ("roster", "cell", "page", "run")
PAGE = (ROOT / "docs" / "crash-test.md").read_text(encoding="utf-8")


def load_harness():
    """The modules of the harness; no other test sees them by their plain names."""
    plain = {name: sys.modules.pop(name, None) for name in (*NAMES, *vars(ZOO))}
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "gate")]
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    finally:
        del sys.path[:2]
        for name, module in plain.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


CRASH = load_harness()
cell, page, roster, run = CRASH.cell, CRASH.page, CRASH.roster, CRASH.run


def make_cell(specimen="cut-stream", agent="codex", mode="bare", **measured):
    good = {"ended": True, "code": 0, "calls": 4, "tokens": 1000, "seconds": 3.0}
    return cell.Cell(agent, specimen, mode, "key", **{**good, **measured})


def judge(tmp_path, said="", wrong="", **given):
    found = make_cell(**given)
    (tmp_path / "stdout").write_text(said)
    (tmp_path / "stderr").write_text(wrong)
    cell.judge(found, tmp_path)
    return found.verdict


ANSWER = "SCRIPTED-ANSWER after 3 tool calls"


@pytest.mark.parametrize(
    ("said", "given", "verdict"),
    [
        (ANSWER, {}, "answer"),
        ("[glidepath] The run was ended here", {}, "own words"),
        ("", {}, "no answer"),
        (ANSWER, {"code": 1}, "no answer"),
        ("SCRIPTED-ANSWER after 0 tool calls", {}, "no answer"),  # what it said to a call on the side
        (ANSWER, {"ended": False, "code": None}, "did not end"),
        (ANSWER, {"calls": 9}, "over the limit"),
        (ANSWER, {"tokens": 200_001}, "over the limit"),
        (ANSWER, {"seconds": 36.0}, "over the limit"),
        (ANSWER, {"late": 1}, "worked on"),
        (ANSWER, {"left": 1}, "worked on"),
        ("", {"specimen": "server-down", "code": 1}, "error"),
        ("", {"specimen": "server-down", "code": 0}, "no answer"),
        ("I cannot help with that.", {"specimen": "refusal"}, "error"),
        ("", {"specimen": "refusal"}, "no answer"),
    ],
)
def test_a_verdict_follows_from_what_was_counted(tmp_path, said, given, verdict):
    assert judge(tmp_path, said, **given) == verdict


def test_words_are_good_only_where_the_model_gives_no_answer():
    assert page.is_good(make_cell("server-down", verdict="own words"))
    assert not page.is_good(make_cell("cut-stream", verdict="own words"))
    assert page.has_ended(make_cell("cut-stream", verdict="own words"))
    assert not page.has_ended(make_cell("cut-stream", verdict="worked on"))


def test_the_table_has_twenty_specimens_and_ten_agents_and_says_before_a_run_what_cannot_be():
    assert (len(roster.SPECIMENS), len(roster.TITLES)) == (20, 10)
    assert roster.OURS in roster.TITLES
    assert roster.why_not("langgraph/chat", "sub-agents")
    assert not roster.why_not("claude-code", "sub-agents")
    assert all(roster.find_agent(name).env.get("AS_SHIPPED") or name == roster.OURS for name in roster.TITLES)


def test_a_cell_is_run_again_only_when_something_has_changed(tmp_path, monkeypatch):
    folder = run.place(tmp_path, "glidepath", "cut-stream", "bare")
    folder.mkdir(parents=True)
    found = make_cell(agent="glidepath", verdict="answer")
    found.key = cell.describe_key("glidepath", "cut-stream")
    (folder / "cell.json").write_text(json.dumps(vars(found)))
    assert run.is_there(tmp_path, "glidepath", "cut-stream", "bare")
    assert not run.is_there(tmp_path, "glidepath", "cut-stream", "gate")
    monkeypatch.setattr(cell, "find_release", lambda _: "99.0")
    assert not run.is_there(tmp_path, "glidepath", "cut-stream", "bare")
    (folder / "cell.json").write_text("{")  # interrupted while it was written
    assert not run.is_there(tmp_path, "glidepath", "cut-stream", "bare")


def test_what_is_to_be_run_is_chosen_by_name_and_a_wrong_name_gets_a_hint():
    assert run.choose(["codex,cut-stream"]) == (["codex"], ["cut-stream"], ["bare", "gate"])
    assert run.choose(["codex", "gate"])[2] == ["gate"]
    assert run.choose(["codex,same-call", "codex,cut-stream"])[:2] == (["codex"], ["same-call", "cut-stream"])
    assert len(run.choose([])[1]) == 21
    with pytest.raises(SystemExit, match="did you mean cut-stream"):
        run.choose(["cut-streem"])


# --- the page ---------------------------------------------------------------------------------------------------------


def make_table(**verdicts):
    """All cells: bare nothing answers, behind the gate everything does, but for what is given."""
    cells = {}
    for agent in roster.TITLES:
        for name in ("control", *roster.SPECIMENS):
            for mode in roster.MODES:
                verdict = verdicts.get(f"{name}_{mode}".replace("-", "_"), "answer" if mode == "gate" else "no answer")
                cells[agent, name, mode] = make_cell(name, agent, mode, verdict=verdict, date="2026-11-19")
    return cells


def test_a_row_that_is_no_better_behind_the_gate_must_say_why(monkeypatch):
    ours = {f"{roster.OURS} bare {name}": "It has a defect." for name in roster.SPECIMENS}
    monkeypatch.setattr(page, "REASONS", ours)
    assert page.make_page(make_table())[1] == []
    assert page.make_page(make_table(same_call_bare="answer", same_call_gate="no answer"))[1] == [
        f"{agent} same-call" for agent in roster.TITLES
    ]
    assert page.make_page(make_table(same_call_gate="no answer"))[1] == ["same-call"]
    del ours[f"{roster.OURS} bare same-call"]
    assert page.make_page(make_table())[1] == [f"{roster.OURS} bare same-call"]  # our own failures are named as well


def test_the_short_table_counts_specimens_and_not_the_control():
    row = next(line for line in page.make_brief(make_table()).splitlines() if line.startswith("| Codex"))
    assert row == "| Codex | 0 of 20 | 20 | 20 of 20 | 20 |"


def test_a_page_without_the_marks_stays_as_it_is():
    assert page.insert_brief("# A page\n", "| table |") == "# A page\n"
    marked = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    assert page.insert_brief(marked, "| new |") == f"before\n{page.BEGIN}\n| new |\n{page.END}\nafter\n"


@pytest.mark.parametrize("path", ["docs/index.md", "README.md"])
def test_the_first_pages_have_the_table_of_the_crash_tests_page(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    if path == "README.md" and page.BEGIN not in text:
        pytest.skip("README has not taken the table over")
    table = text.partition(f"{page.BEGIN}\n")[2].partition(f"\n{page.END}")[0]
    assert len(table.splitlines()) == 2 + len(roster.TITLES)
    assert table in PAGE


def test_the_page_names_releases_that_are_pinned_and_every_row_is_better_behind_the_gate():
    for agent, title in roster.TITLES.items():
        if agent != roster.OURS:
            pin = ZOO.table.PINS[ZOO.table.AGENTS[agent].program][1][0]
            assert f"| {title} | {re.split('==|@', pin)[-1]} |" in PAGE, "make crash-test"
    rows = re.findall(
        r"^\| \*{0,2}([\w. ]+?)\*{0,2} \| (\d+) of \d+ \| \d+ \| (\d+) of \d+ \| \d+ \|$", PAGE, re.MULTILINE
    )
    assert len(rows) == len(roster.TITLES)
    assert all(int(gate) > int(bare) or f"No better as a whole: {title}" in PAGE for title, bare, gate in rows)
    assert "Nobody has found out yet" not in PAGE


# --- cells that run ---------------------------------------------------------------------------------------------------


def crash(agent, specimen, mode, tmp_path):
    if agent != roster.OURS:
        need_agent(agent)
    return asyncio.run(cell.run_cell(agent, specimen, mode, tmp_path / mode))


@pytest.mark.process
@pytest.mark.parametrize(
    ("agent", "specimen", "mode", "verdict"),
    [
        ("glidepath", "half-call", "bare", "answer"),
        ("glidepath", "endless-calls", "gate", "answer"),
        ("claude-code", "endless-calls", "gate", "answer"),
    ],
)
def test_a_cell_runs_and_leaves_its_logs(agent, specimen, mode, verdict, tmp_path):
    found = crash(agent, specimen, mode, tmp_path)
    assert (found.verdict, found.code, found.late, found.left) == (verdict, 0, 0, 0), found
    assert found.tokens <= roster.find_bounds(agent, specimen).tokens
    kept = {one.name for one in (tmp_path / mode).iterdir()}
    wanted = {"cell.json", "commands.txt", "stderr", "stdout", "upstream.jsonl"}
    assert kept == (wanted | {"report.json"} if mode == "gate" else wanted)


@pytest.mark.process
def test_what_works_on_after_the_end_is_seen_and_ended(tmp_path, monkeypatch):
    script = "import os, subprocess, sys; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"
    made = ([sys.executable, "-c", script], dict(os.environ), SimpleNamespace(folder=tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(cell, "prepare", lambda *_: made)
    found = crash("glidepath", "half-call", "bare", tmp_path)
    assert (found.left, found.verdict) == (1, "worked on")
    pid = (tmp_path / "bare" / "stdout").read_text().strip()
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.process
def test_a_reader_can_check_a_cell_with_the_two_commands_of_the_page(tmp_path):
    need_agent("claude-code")
    block = PAGE.partition("## Check one cell by hand")[2].partition("```sh\n")[2].partition("```")[0]
    first, _, second = block.partition(" &\n")
    assert (first.count("\n"), second.count("\n")) == (0, 2)  # two commands, the second of them on two lines
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    agent = ZOO.install.find_cache() / "claude-code" / "node_modules" / ".bin"
    path = os.pathsep.join([str(Path(sys.executable).parent), str(agent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    own = {"PATH": path, "HOME": str(tmp_path), "GLIDEPATH_STORE": "none", **ZOO.table.AGENTS["claude-code"].env}
    options = {"cwd": tmp_path, "env": {**kept, **own}, "stdin": subprocess.DEVNULL, "text": True}
    provider = subprocess.Popen(shlex.split(first.replace("9090", port)), stdout=subprocess.PIPE, **options)
    try:
        assert provider.stdout.readline().strip().endswith(port)  # it is there
        command = ["bash", "-c", second.replace("9090", port)]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False, **options)
    finally:
        provider.terminate()
        provider.wait(10)
        provider.stdout.close()
    assert (done.returncode, done.stdout.strip()) == (0, "SCRIPTED-ANSWER after 3 tool calls"), done.stderr
    calls = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [call["fault"] for call in calls] == ["", "cut", "", "", ""]


@pytest.mark.slow
def test_the_whole_table_is_better_behind_the_gate():
    for agent in roster.TITLES:
        if agent != roster.OURS:
            need_agent(agent)
    logs = ROOT / "build" / "crash-campaign"
    agents, specimens, modes = run.choose([])
    wanted = [(a, s, m) for s in specimens for a in agents for m in modes if not roster.why_not(a, s)]
    asyncio.run(run.run_all([one for one in wanted if not run.is_there(logs, *one)], logs, 2))
    cells = {key: run.read_cell(logs, *key) for key in wanted}
    assert page.find_flat(cells) == []
    assert all(cells[agent, "control", mode].verdict == "answer" for agent in agents for mode in modes)
