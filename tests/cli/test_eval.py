"""`glidepath eval`: the table, the files, exit codes, stopping and continuing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

import pytest

from .shell_user import environment, glidepath

APP = """
import asyncio
from pathlib import Path
from glidepath import Agent, Limits
from glidepath.testing import ScriptedModel, say

def make(case):
    right = case.id != "wrong"
    return Agent(model=ScriptedModel([say(case.expected if right else "no idea")]), limits=Limits(max_iterations=3))

def slow(case):
    async def answer(request):
        with open("asked", "a") as file:
            file.write(case.id + "\\n")
        await asyncio.sleep(0.3)
        return say(case.expected)
    return Agent(model=ScriptedModel().forever(answer), limits=Limits(max_iterations=3))

def polite(case, result):
    return "please" in result.text

def broken(case, result):
    raise RuntimeError("out of order")

async def deaf(case, result):
    import time
    Path("blocked").touch()
    time.sleep(1000)
"""
CASES = "id,prompt,expected\nright,What is 1+1?,2\nwrong,What is 2+2?,4\nagain,What is 3+3?,6\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "evaluated_app.py").write_text(APP)
    (tmp_path / "cases.csv").write_text(CASES)
    sys.modules.pop("evaluated_app", None)
    yield tmp_path
    sys.modules.pop("evaluated_app", None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def run(folder, *argv, agent="evaluated_app:make", store="s.db"):
    return glidepath("eval", "cases.csv", "--agent", agent, "--store", store, *argv, folder=folder)


def test_the_table_has_the_pass_rate_its_interval_and_what_each_case_cost(folder):
    ran = run(folder)
    assert ran.code == 0, ran
    assert re.search(r"wrong +FAILED +1 +\d+ .* completed/done  contains: the answer does not contain '4'", ran.out)
    assert "pass rate   66.7 % (2 of 3), 95 % interval 20.8 % to 93.9 %" in ran.out
    assert "ended       3 completed/done" in ran.out
    assert "covers      all 3 attempts" in ran.out
    assert ran.out.index("wrong") < ran.out.index("right")  # failures first


@pytest.mark.parametrize(("bar", "code"), [("0.6", 0), ("67%", 1), ("0.9", 1), ("0", 0)])
def test_the_exit_code_tells_whether_the_bar_is_reached(folder, bar, code):
    assert run(folder, "--at-least", bar).code == code


def test_what_is_not_covered_has_its_own_exit_code_and_is_named(folder):
    (folder / "cases.csv").write_text(CASES + "right,What is 9?,9\nblank,,9\n")
    ran = run(folder)
    assert ran.code == 3, ran
    assert "NOT COVERED 2 of 5 attempts" in ran.out
    assert "case right (line 5): the id 'right' is already used by line 2" in ran.out
    assert run(folder, "--evaluator", "evaluated_app:broken").code == 3
    assert run(folder, "--at-least", "0.9").code == 1


def test_evaluators_by_name_and_from_a_module(folder):
    assert "pass rate   66.7 %" in run(folder, "--evaluator", "exact").out
    assert "polite: score 0" in run(folder, "--evaluator", "evaluated_app:polite").out


def test_a_dataset_in_python_may_import_what_is_beside_it(folder):
    (folder / "mine.py").write_text(
        "from evaluated_app import polite\nfrom glidepath.evals import Case\n"
        "cases = [Case(prompt='a', expected='yes, please', evaluators=(polite,))]\n"
    )
    ran = glidepath("eval", "mine.py", "--agent", "evaluated_app:make", "--store", "none", folder=folder)
    assert ran.code == 0, ran
    assert "1 of 1" in ran.out


def test_json_and_junit_are_written(folder):
    ran = run(folder, "--repeat", "2", "--json", "r.json", "--junit", "r.xml")
    assert ran.code == 0, ran
    told = json.loads((folder / "r.json").read_text())
    assert (told["passed"], told["covered"], told["planned"]) == (4, 6, 6)
    assert told["report"]["results"][1]["case_id"] == "wrong"
    (suite,) = ET.parse(folder / "r.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("6", "2", "0")
    assert [row.get("name") for row in suite if len(row)] == ["wrong #1", "wrong #2"]


def test_hostile_text_cannot_break_the_files_or_steer_the_terminal(folder):
    (folder / "cases.csv").write_text('id,prompt,expected\n"\x1b[31mred","<a>&]]>\x08","\x1b[2J"\n', encoding="utf-8")
    ran = run(folder, "--junit", "r.xml", "--evaluator", "evaluated_app:polite")
    assert "\x1b" not in ran.out
    assert len(ET.parse(folder / "r.xml").getroot()[0]) == 1


def test_evaluations_are_listed_and_shown(folder):
    run(folder, "--name", "first")
    assert "first" in glidepath("eval", "list", "--store", "s.db", folder=folder).out
    shown = glidepath("eval", "show", "first", "--store", "s.db", "--at-least", "0.9", folder=folder)
    assert shown.code == 1
    assert "66.7 %" in shown.out
    missing = glidepath("eval", "show", "second", "--store", "s.db", folder=folder)
    assert missing.code == 2
    assert "there is no evaluation 'second'" in missing.err


def test_nothing_is_kept_without_a_store(folder):
    ran = run(folder, store="none")
    assert ran.code == 0
    assert not (folder / "s.db").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("none.csv", "--agent", "evaluated_app:make"), "none.csv cannot be read"),
        (("cases.csv",), "name the agent under test: --agent MODULE:NAME, or --command"),
        (("cases.csv", "--agent", "evaluated_app:mak"), "--agent evaluated_app:mak"),
        (("cases.csv", "--agent", "evaluated_app:make", "--evaluator", "exakt"), "--evaluator exakt"),
        (("cases.csv", "--agent", "evaluated_app:make", "--max-budget-usd", "-1"), "--max-budget-usd"),
        (("cases.csv", "--agent", "evaluated_app:make", "--at-least", "2"), "expected a share such as 0.9"),
        (("cases.csv", "--agent", "evaluated_app:make", "--name", "a/b"), "the name of an evaluation"),
        (("cases.csv", "more.csv", "--agent", "evaluated_app:make"), "expected one dataset"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(folder, argv, said):
    ran = glidepath("eval", *argv, "--store", "s.db", folder=folder)
    assert ran.code == 2, ran
    assert said in ran.err


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_stopped_evaluation_continues_under_its_name(folder, number, code):
    rows = "".join(f"c{n},q{n},a{n}\n" for n in range(6))
    (folder / "cases.csv").write_text(f"id,prompt,expected\n{rows}")
    words = ["eval", "cases.csv", "--agent", "evaluated_app:slow", "--store", "s.db", "--name", "e"]
    command = [sys.executable, "-m", "glidepath.cli", *words, "--concurrency", "2"]
    child = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not (folder / "asked").exists() or len((folder / "asked").read_text().split()) < 4:
        assert time.monotonic() < until
        assert child.poll() is None
        time.sleep(0.01)
    os.kill(child.pid, number)
    _, err = child.communicate(timeout=30)
    assert child.returncode == code
    if number == signal.SIGINT:
        again = "to continue: glidepath eval cases.csv --agent evaluated_app:slow --concurrency 2 --store s.db --name e"
        assert again in err
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "6 of 6" in done.stdout
    asked = (folder / "asked").read_text().split()
    assert asked.count("c0") == asked.count("c1") == 1
    assert len(asked) <= 8


@pytest.mark.process
def test_ctrl_c_reaches_an_evaluation_whose_loop_is_blocked(folder):
    words = ["--agent", "evaluated_app:make", "--evaluator", "evaluated_app:deaf", "--store", "s.db", "--head", "1"]
    command = [sys.executable, "-m", "glidepath.cli", "eval", "cases.csv", *words]
    said = folder / "said"
    with said.open("w") as file:
        child = subprocess.Popen(command, cwd=folder, env=environment(), stderr=file)
    until = time.monotonic() + 50
    while child.poll() is None and "stopping" not in said.read_text() and time.monotonic() < until:
        if (folder / "blocked").exists():  # once it was heard, no more: it would hit the process while it exits
            child.send_signal(signal.SIGINT)
        time.sleep(0.2)
    try:
        assert child.wait(timeout=30) == 130, said.read_text()
    finally:
        child.kill()
    assert "to continue:" in said.read_text()


def test_two_evaluations_are_compared_from_the_store_or_from_files(folder):
    rows = "".join(f"c{n},q{n},a{n}\n" for n in range(10))
    (folder / "cases.csv").write_text(f"id,prompt,expected\n{rows}")
    (folder / "evaluated_app.py").write_text(
        APP + "\nworse = lambda case: make(case.__class__(prompt='a', id='wrong'))\n"
    )
    run(folder, "--name", "before", "--json", "before.json")
    run(folder, "--name", "after", agent="evaluated_app:worse")
    ran = glidepath("eval", "compare", "before.json", "after", "--store", "s.db", folder=folder)
    assert ran.code == 1, ran
    assert "after passes 100.0 points less often than before" in ran.out
    assert "this is hardly chance" in ran.out
    back = glidepath("eval", "compare", "after", "before", "--store", "s.db", "--json", "-", folder=folder)
    assert back.code == 0
    assert json.loads(back.out)["comparison"]["difference"] == 1.0
    assert glidepath("eval", "compare", "before", folder=folder).code == 2


def test_the_page_is_written(folder):
    assert run(folder, "--html", "r.html").code == 0
    assert "<svg" in (folder / "r.html").read_text()


def test_the_curve_is_drawn_from_a_stored_evaluation_and_checked_against_real_runs(folder):
    run(folder, "--name", "e")
    words = ("eval", "curve", "e", "--by", "max_tokens", "--rerun", "--store", "s.db", "--html", "c.html")
    ran = glidepath(*words, folder=folder)
    assert ran.code == 0, ran
    assert "0 runs differed from the prediction" in ran.out
    assert "pass rate by max_tokens of a run" in (folder / "c.html").read_text()
    assert glidepath("eval", "curve", "f", "--store", "s.db", folder=folder).code == 2
    assert "not by 'size'" in glidepath("eval", "curve", "e", "--by", "size", "--store", "s.db", folder=folder).err


def test_the_command_that_continues_has_all_that_the_first_one_had(folder):
    words = ["--max-tokens", "40", "--evaluator", "contains", "--repeat", "2", "--head", "2", "--name", "e"]
    ran = run(folder, *words)
    assert ran.code == 3, ran
    again = re.search("to continue: glidepath (.*)", ran.err)[1]
    assert again == (
        "eval cases.csv --agent evaluated_app:make --evaluator contains --repeat 2 --head 2 --max-tokens 40 "
        "--store s.db --name e"
    )
    more = glidepath(*again.replace("40", "9999").split(), folder=folder)
    assert more.code == 0, more


def test_a_module_that_runs_an_event_loop_when_it_is_imported_has_a_curve_too(folder):
    (folder / "evaluated_app.py").write_text(APP + "\nasyncio.run(asyncio.sleep(0))\n")
    run(folder, "--name", "e", "--evaluator", "evaluated_app:polite")
    sys.modules.pop("evaluated_app", None)
    ran = glidepath("eval", "curve", "e", "--by", "max_tokens", "--store", "s.db", folder=folder)
    assert ran.code == 0, ran
    other = ("eval", "curve", "e", "--by", "max_tokens", "--store", "s.db", "--evaluator", "exact")
    assert "3 x it was judged by polite" in glidepath(*other, folder=folder).err


def test_on_a_terminal_each_case_has_one_line(folder):
    from glidepath.evals import EvalReport

    run(folder, "--json", "r.json")
    report = EvalReport.of_json((folder / "r.json").read_bytes())
    assert max(map(len, report.to_text().splitlines()[:4])) > 100
    narrow = report.to_text(80).splitlines()
    assert max(map(len, narrow[:4])) == 80
    assert [line.endswith("...") for line in narrow[:4]] == [False, True, False, False]


@pytest.mark.process
def test_a_foreign_command_is_evaluated_behind_the_gate(folder):
    (folder / "agent.py").write_text("import os, sys\nprint('It is 2' if '1+1' in sys.argv[1] else 'no idea')\n")
    words = (
        "eval",
        "cases.csv",
        "--command",
        f"{sys.executable} agent.py {{prompt}}",
        "--store",
        "s.db",
        "--name",
        "e",
    )
    ran = glidepath(*words, "--upstream", "http://127.0.0.1:9", folder=folder, environ={"PATH": "/usr/bin"})
    assert ran.code == 0, ran
    assert "pass rate   33.3 % (1 of 3)" in ran.out
    both = glidepath(*words, "--agent", "evaluated_app:make", folder=folder)
    assert both.code == 2
    assert "--agent MODULE:NAME, or --command" in both.err
    curve = glidepath("eval", "curve", "e", "--store", "s.db", folder=folder)
    assert curve.code == 2
    assert "of a command, whose runs are not recorded" in curve.err


def test_the_other_commands_know_the_journal_of_an_evaluation(folder):
    run(folder, "--name", "e")
    listed = glidepath("sessions", "list", "--store", "s.db", folder=folder)
    assert re.search(r"eval:e .* 3 .*evaluation of make on cases", listed.out)
    shown = glidepath("runs", "show", "eval:e", "--store", "s.db", folder=folder)
    assert "pass rate   66.7 % (2 of 3)" in shown.out
    assert glidepath("sessions", "verify", "--store", "s.db", folder=folder).code == 0
    gone = glidepath("sessions", "delete", "eval:e", "--store", "s.db", folder=folder)
    assert "deleted 4 sessions" in gone.err
