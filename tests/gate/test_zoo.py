"""The harness around real agents: what it says of a run, of a release and of itself; nothing is installed here."""

import asyncio
import json
import sys

import pytest
from tests.gate.zoo import FOLDER, ZOO

from glidepath.apps.gate import finishing_tool, recognize
from glidepath.testing.upstream import CONDUCTS

table, observe, fly, flight = ZOO.table, ZOO.observe, ZOO.fly, ZOO.flight


def test_every_agent_is_of_a_pinned_program_and_every_program_has_an_agent():
    assert {agent.program for agent in table.AGENTS.values()} == set(table.PINS)
    for kind, pins in table.PINS.values():
        assert all(("==" in pin) if kind == "pypi" else pin.rpartition("@")[2][0].isdigit() for pin in pins)


def test_what_an_agent_cannot_express_is_a_behavior():
    assert {cell for agent in table.AGENTS.values() for cell in agent.cannot} <= {*CONDUCTS, "stubborn"}
    assert set(fly.CELLS) <= {*CONDUCTS, "stubborn"}


def test_every_agent_was_observed_in_the_pinned_release():
    known = observe.read_known()
    assert set(known) == set(table.AGENTS)
    for name, row in known.items():
        first = table.PINS[table.AGENTS[name].program][1][0]
        assert first.endswith((f"=={row['version']}", f"@{row['version']}"))
        assert row["dialect"] == table.AGENTS[name].dialect


def test_an_observation_holds_no_path_and_no_id_of_this_machine():
    text = (FOLDER / "observed.json").read_text()
    assert "/home" not in text
    assert "/tmp" not in text
    assert "127.0.0.1" not in text


def headers_in(names):
    return {one.removeprefix("header ") for one in names or () if one.startswith("header ")}


@pytest.mark.parametrize("name", table.AGENTS)
def test_what_was_observed_to_name_runs_and_children_is_what_the_gate_looks_at(name):
    """Also how an agent, or its sub-agents, must end. A release that changes this fails here once it is observed."""
    row = observe.read_known()[name]
    children = row.get("children") or {}
    known = recognize({"user-agent": row["user_agent"].lower(), **dict.fromkeys(row["headers"], "x")})
    if headers_in(row["run_is_named_by"]):
        assert set(known.session) & headers_in(row["run_is_named_by"])
    if headers_in(children.get("are_named_by")):
        assert set(known.agent) & headers_in(children["are_named_by"])
    for one in (row, children):
        if one.get("finishing") and one["finishing"] in one["tools"]:
            assert finishing_tool(tuple(one["tools"]), row["tool_choice"]) == one["finishing"]


def call(number, child=None, tools=("Bash",), session="aaaa-1111", past=1, **headers):
    return {
        "number": number,
        "method": "POST",
        "path": "/v1/messages",
        "query": {},
        "headers": {"x-session": session, "user-agent": "prog/1.2.3 (Linux)", "host": "x", **headers},
        "body": {"model": "m", "messages": [{"role": "user"}], "metadata": {"user_id": json.dumps({"s": session})}},
        "child": child,
        "past": past,
        "tools": list(tools),
        "said": ["Agent"],
        "stream": True,
        "max_output": 100,
        "choice": "auto",
    }


def test_what_names_a_run_differs_between_runs_and_stays_within_one():
    first = [call(1, nonce="xxxxxxxxx1"), call(2, nonce="xxxxxxxxx2")]
    second = [call(1, session="bbbb-2222", nonce="xxxxxxxxx3"), call(2, session="bbbb-2222", nonce="xxxxxxxxx4")]
    assert observe.name_runs(first, second) == ["field metadata.user_id.s", "header x-session"]


def test_what_names_a_child_is_new_in_it_or_differs_from_child_to_child():
    main = [call(1, lane="main-lane")]
    children = [call(2, "1", lane="lane-one", agent="a1"), call(3, "2", lane="lane-two", agent="a2")]
    assert observe.name_children(main, children) == ["header agent", "header lane"]


def test_a_call_without_tools_beside_others_is_on_the_side():
    main, children, side = observe.split_calls([call(1, tools=(), past=0), call(2), call(3, "1")])
    assert [[one["number"] for one in part] for part in (main, children, side)] == [[2], [3], [1]]
    assert observe.split_calls([call(1, tools=())])[0] != []  # an agent that has no tools at all


def test_what_a_new_release_sends_is_told_in_words():
    known = {"headers": ["a", "b"], "max_output": 10, "tools": ["x"], "children": {"tool": "Agent"}}
    seen = {"headers": ["b", "c"], "max_output": 20, "tools": ["x", "y"], "children": {"tool": "Task"}}
    assert observe.compare(known, known) == []
    assert observe.compare(known, seen) == [
        "headers: 'c' is new",
        "headers: 'a' is gone",
        "max_output: 20, was 10",
        "children.tool: 'Task', was 'Agent'",
        "tools: y differ",
    ]


def test_a_user_agent_is_kept_without_versions_and_machine():
    assert observe.tidy("codex_exec/0.169.0 (Debian 12; x86_64) dumb") == "codex_exec/N (...) dumb"


GOOD = {"limit": 100, "tokens": 90, "calls": 5, "answer": "model"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"tokens": 100}, ""),
        ({"code": 1}, "exit code 1"),
        ({"answer": ""}, "no answer"),
        ({"tokens": 101}, "1 tokens over"),
        ({"calls": 0}, "no call arrived"),
        ({"refused": 2}, "2 illegal requests"),
        ({"cell": "spawn"}, "no sub-agent called"),
    ],
)
def test_a_cell_is_judged_by_code_answer_and_tokens(change, words):
    cell = fly.Cell(**{"agent": "x", "cell": "loop", "verdict": "", **GOOD, **change})
    verdict, why = fly.judge(cell, "last words")
    assert (verdict == "ok") == (words == "")
    assert words in why


def test_an_agent_has_its_own_home_its_files_and_no_variable_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-real")
    stage = flight.Stage(table.AGENTS["opencode"], tmp_path, "do it", "http://127.0.0.1:1", "k")
    command, env = stage.prepare(bare=False)
    assert command[-2:] == ["run", "do it"]
    assert env["HOME"] == str(tmp_path / "home")
    assert "ANTHROPIC_API_KEY" not in env
    assert json.loads((tmp_path / "home/.config/opencode/opencode.json").read_text())["autoupdate"] is False
    _, bare = stage.prepare(bare=True)
    assert bare["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert bare["ANTHROPIC_API_KEY"] == "k"


@pytest.mark.process
def test_a_command_that_does_not_end_is_ended_with_all_its_children(tmp_path):
    (tmp_path / "work").mkdir()
    script = "import subprocess, sys; p = subprocess.Popen(['sleep', '77']); print(p.pid, flush=True); p.wait()"
    code, seconds = flight.run_command([sys.executable, "-c", script], {}, tmp_path, 1.5)
    assert code == flight.TIMED_OUT
    assert seconds < 10
    child = (tmp_path / "stdout").read_text().strip()
    status = asyncio.run(wait_gone(child))
    assert status


async def wait_gone(pid: str) -> bool:
    """Whether a process ends within five seconds; a zombie has ended."""
    process = await asyncio.create_subprocess_shell(
        f"for i in $(seq 50); do case $(ps -o stat= -p {pid}) in ''|Z*) exit 0;; esac; sleep 0.1; done; exit 1"
    )
    return await process.wait() == 0


def test_a_release_that_is_asked_for_by_name_only_is_the_newest():
    assert ZOO.install.unpin("@openai/codex@0.169.0") == "@openai/codex@latest"
    assert ZOO.install.unpin("strands-agents[openai,anthropic]==1.62.0") == "strands-agents[openai,anthropic]"


def test_an_unknown_program_is_refused_with_the_known_ones():
    with pytest.raises(ZOO.install.CannotInstallError, match="use one of claude-code, codex"):
        ZOO.install.install("claude")
