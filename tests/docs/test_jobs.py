"""The twenty jobs of docs/twenty-jobs.md: every program runs without a key, and each framework's prints the same."""

import importlib.util
import subprocess
import sys

import pytest

from .pages import ROOT

JOBS = ROOT / "examples" / "jobs"
PRINTED = {
    "structured_output": "A1 3.0",
    "dependencies": "You have 3 euros.",
    "delegation": "I read that bees: bees dance.",
    "handoff": "Your refund is on its way.\nTomorrow.",
    "memory": "Hello, Eve.\nYou said: I am Eve.",
    "server_sent_events": "Hello from a stream.",
    "retrieval": "The handbook says: Leave: Everybody has 30 days of leave a year.",
    "mcp_tools": "It is 5.",
    "many_items": "30 of 30",
    "dynamic_prompt": "You are Eve, and I know the day.",
    "pictures": "input_image and input_file",
    "fallback": "Hello from the second provider.",
    "reasoning": "effort high",
    "hosted_tools": "I may use web_search, only on example.org.",
    "team": "Bees dance. Source: a beekeeper.",
}
PARTS = {  # what every framework says in its own form
    "partial_output": ("name='Lisbon' people=0\n", "name='Lisbon' people=548000\n"),
    "approval": ("refund {", "7}", "Done: refunded 7."),
    "evaluation": ("66.7",),
    "costs": ("bob", "eve"),
    "telemetry": ("execute_tool price", "invoke_agent", "tea: 3 euros."),
}
PEERS = {"pydantic_ai": "pydantic_ai_jobs", "openai_agents": "openai_agents_jobs"}


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


table = load(JOBS / "table.py", "jobs_table")


def check(job, printed):
    if job in PRINTED:
        assert printed.strip() == PRINTED[job]
    for part in PARTS.get(job, ()):
        assert part in printed


def test_every_job_has_an_answer_to_expect():
    assert {*PRINTED, *PARTS} == {*table.JOBS}


def run_apart(python, program):
    command = [str(python), str(JOBS / "run.py"), program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{program}: {done.stderr}"
    return done.stdout


@pytest.mark.process
def test_a_job_runs_from_a_shell():
    check("telemetry", run_apart(sys.executable, "telemetry"))  # whose exporter keeps the stdout of its import


def test_what_is_no_job_is_told_which_there_are():
    done = subprocess.run([sys.executable, str(JOBS / "run.py"), "jobs"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("name one job: approval, costs, ")
    assert "Traceback" not in done.stderr


@pytest.mark.process
@pytest.mark.parametrize("job", [job for job in table.JOBS if job != "telemetry"])
def test_a_job_runs_without_a_key(job, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(JOBS))
    run = load(JOBS / "run.py", "run_a_job")
    for name in (*run.ENVIRONMENT, "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "")  # so that it is put back
    monkeypatch.setattr(sys, "argv", ["job"])
    run.run_job(job)
    printed = capsys.readouterr().out
    check(job, printed)
    assert "without a known price" not in printed


def test_no_job_is_missing_or_by_hand_or_longer_than_a_peers():
    assert table.find_misses() == []


def test_a_job_that_is_longer_or_by_hand_is_a_miss(tmp_path, monkeypatch):
    for folder in ("", "pydantic_ai", "openai_agents"):
        (tmp_path / folder).mkdir(exist_ok=True)
        for job in table.JOBS:
            (tmp_path / folder / f"{job}.py").write_text("a = 1\n")
    longer, by_hand, missing, *_ = table.JOBS
    (tmp_path / f"{longer}.py").write_text('a = 1\n\n# more\nb = """\n"""\n')
    (tmp_path / f"{by_hand}.py").write_text("# by hand: it all\na = 1\n")
    (tmp_path / f"{missing}.py").unlink()
    monkeypatch.setattr(table, "HERE", tmp_path)
    assert table.find_misses() == [
        f"{longer}: 3 lines, a peer 1",
        f"{longer}: 3 lines, a peer 1",
        f"{by_hand}: by hand",
        f"{missing}: there is no program",
    ]


def test_the_page_has_the_table_as_it_is():
    page = table.PAGE.read_text(encoding="utf-8")
    assert page.partition(table.BEGIN)[2].partition(table.END)[0].strip() == table.make_table()


def test_a_program_of_a_peer_belongs_to_a_job_and_a_job_without_one_says_why():
    for folder in PEERS:
        names = {program.stem for program in (JOBS / folder).glob("*.py")}
        without = {name.partition("/")[2] for name in table.WITHOUT if name.startswith(f"{folder}/")}
        assert names | without == {*table.JOBS}
        assert not names & without


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("folder", "job"),
    [(folder, program.stem) for folder in PEERS for program in sorted((JOBS / folder).glob("*.py"))],
)
def test_a_peers_job_prints_the_same(folder, job):
    environments = load(ROOT / "bench" / "peers" / "environments.py", "environments")
    python = environments.make_environment(ROOT / "build" / "peers", PEERS[folder])
    check(job, run_apart(python, f"{folder}/{job}"))
