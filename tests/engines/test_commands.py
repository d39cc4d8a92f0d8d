"""`glidepath worker`, `submit`, `fleet`, and what `runs` shows of them."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from .kit import Crew, fresh_database, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def crew(tmp_path_factory):
    made = Crew(fresh_database(), tmp_path_factory.mktemp("crew"), pause=0.05)
    early = made.command("submit", "stepper", "go")
    assert early.returncode == 2
    assert "no worker has offered an agent here yet" in early.stderr
    with made:
        made.start(1)
        asyncio.run(until(made.ready))
        yield made


def test_a_run_is_submitted_and_its_answer_printed(crew):
    done = crew.command("submit", "stepper", "go", "--wait")
    assert (done.returncode, done.stdout) == (0, "all steps are done\n")
    session = done.stderr.split()[0]
    shown = crew.command("runs", "show", session, "--store", crew.address)
    assert shown.returncode == 0
    assert "done" in shown.stdout.lower()


def test_a_run_that_waits_in_its_queue_is_listed_and_can_be_stopped(crew):
    worker = crew.workers[0]
    worker.send_signal(signal.SIGSTOP)
    try:
        session = crew.command("submit", "stepper", "the task of this run").stdout.strip()
        listed = crew.command("runs", "list", "--store", crew.address).stdout
        assert any(session in line and "queued" in line.lower() for line in listed.splitlines())
        assert "the task of this run" in listed
        stopped = crew.command("runs", "stop", session, "--store", crew.address, "--reason", "not wanted")
        assert stopped.returncode == 0, stopped.stderr
    finally:
        worker.send_signal(signal.SIGCONT)
    sent = crew.sent()
    waited = crew.command("submit", "stepper", "the task of this run", "--session", session, "--wait")
    assert waited.returncode == 3
    assert "CANCELLED: not wanted" in waited.stderr
    assert crew.sent() == sent


def test_an_agent_that_nobody_offers_is_refused_with_those_there_are(crew):
    wrong = crew.command("submit", "steper", "go")
    assert wrong.returncode == 2
    assert "no worker offers an agent 'steper'; did you mean 'stepper'?" in wrong.stderr


def test_the_same_session_twice_is_one_run(crew):
    first = crew.command("submit", "stepper", "go", "--session", "mine", "--wait")
    again = crew.command("submit", "stepper", "go", "--session", "mine", "--wait")
    assert first.stdout == again.stdout == "all steps are done\n"
    listed = crew.command("runs", "list", "--store", crew.address).stdout
    assert listed.count("mine") == 1
    other = crew.command("submit", "stepper", "something else", "--session", "mine", "--wait")
    assert other.returncode == 2
    assert "session 'mine' already belongs to a run with another task, agent or tenant: use another id" in other.stderr


def test_a_tenant_over_its_quota_is_refused_with_the_reason(crew):
    assert "there is no tenant 'acme'" in crew.command("submit", "stepper", "go", "--tenant", "acme").stderr
    assert crew.command("fleet", "tenant", "acme", "--day-runs", "1", "--month-cost", "9").returncode == 0
    assert crew.command("submit", "stepper", "go", "--tenant", "acme", "--wait").returncode == 2  # no price is known
    refused = crew.command("submit", "stepper", "go", "--tenant", "acme")
    assert refused.returncode == 3
    assert "quota of tenant acme, day" in refused.stderr
    assert "its only run is used" in refused.stderr


def test_the_fleet_shows_its_workers_and_budgets(crew):
    shown = crew.command("fleet", "budget", "--tokens", "1000000", "--cost", "2.50")
    assert "fleet: 0 of 1000000 tokens, $0 of $2.5, 0 of any runs" in shown.stdout
    assert ": stepper" in shown.stdout
    told = json.loads(crew.command("fleet", "--json").stdout)
    assert told == json.loads(crew.command("fleet", "status", "--json").stdout) | {"status": told["status"]}
    assert told["accounts"][0]["max_tokens"] == 1_000_000
    assert [worker["agents"] for worker in told["workers"]] == [["stepper"]]
    assert told["status"]["queued"] == 0
    assert crew.command("fleet", "budget").returncode == 0
    assert "fleet:" not in crew.command("fleet", "status").stdout


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("worker",), "a worker needs agents"),
        (("worker", "--agent", "stepper"), "expected NAME=MODULE:ATTRIBUTE"),
        (("worker", "--agent", "a=nowhere:b"), "nowhere"),
        (("worker", "--agent", "a=crew:stepper", "--store", "runs.db"), "a fleet lives in PostgreSQL"),
        (("worker", "--agent", "a=crew:stepper", "--lease", "-1"), "lease"),
        (("fleet", "rate", "pilot", "--requests", "0"), "requests"),
        (("submit", "a b", "go"), "agent must be"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(crew, argv, says):
    done = crew.command(*argv)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_without_a_database_ends_with_an_error(crew):
    done = crew.command("worker", "--agent", "a=crew:stepper", "--store", "postgresql://me:hunter2@127.0.0.1:1/x")
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "hunter2" not in done.stderr


STUCK = """
import asyncio, io, os, signal
from glidepath.apps.cli.commands import worker_command
from glidepath.apps.cli.cli_context import CliContext

class Stuck:
    id, agents, cut_off = "here|1", {}, False

    async def started(self):
        os.kill(os.getpid(), signal.SIGTERM)

    async def serve(self):
        await asyncio.sleep(60)

    def stop(self, *, now):
        pass

worker_command.LAST = 0.2
here = CliContext(environ={}, stdin=io.StringIO(), stdout=io.StringIO(), stderr=io.StringIO())
asyncio.run(worker_command._serve(Stuck(), here, 0.1))
"""


def test_a_worker_that_cannot_hand_over_ends_nevertheless():
    assert subprocess.run([sys.executable, "-c", STUCK], timeout=30, check=False).returncode == 143
