"""A foreign command as the agent under test: judged by what it prints, governed case by case and all together."""

import asyncio
import sys
import time

import pytest

from glidepath import CancelToken, ConfigurationError, Limits
from glidepath.apps.gate.evaluated_command import EvaluatedCommand
from glidepath.evals import Case, evaluate
from glidepath.gate import Upstream
from glidepath.testing import ScriptedUpstream

pytestmark = pytest.mark.process

KEY = "sk-upstream-0123456789"
AGENT = """
import json, os, sys, urllib.request
calls, prompt = int(sys.argv[1]), sys.argv[2]
assert os.environ["ANTHROPIC_API_KEY"] != "sk-upstream-0123456789"
for number in range(calls):
    body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": prompt * 50}]}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        json.dumps(body).encode(),
        {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"},
    )
    try:
        reply = json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        sys.exit(error.read().decode())
print("about", prompt)
"""


def command(url, script=AGENT, calls="1", **limits):
    upstreams = [Upstream("anthropic", "anthropic", url, "swap", "env:UPSTREAM_KEY")]
    words = [sys.executable, "-c", script, calls, "{prompt}"]
    environ = {"UPSTREAM_KEY": KEY, "PATH": "/usr/bin:/bin"}
    return EvaluatedCommand(words, upstreams, limits=Limits(**limits), environ=environ)


def cases(count):
    return [Case(prompt=f"question {n}", expected=f"about question {n}") for n in range(count)]


def fly(count, act=None, **more):
    async def whole():
        async with ScriptedUpstream("honest") as up:
            return await evaluate(cases(count), command(up.url, **(act or {})), **more)

    return asyncio.run(whole())


def test_what_a_command_prints_is_its_answer_and_its_calls_are_counted():
    report = fly(3)
    assert [(one.passed, one.text) for one in report.results] == [(True, f"about question {n}") for n in range(3)]
    assert all(one.turns == 1 and one.tokens > 100 for one in report.results)
    assert report.endings == {"completed/done": 3}


def test_all_commands_together_keep_within_one_budget():
    report = fly(8, {"calls": "2"}, budget=Limits(max_tokens=1_500), concurrency=2)
    assert report.tokens <= 1_500
    assert 0 < len(report.covered) < 8
    assert report.uncovered == {"the budget of the evaluation ended": 8 - len(report.covered)}


def test_a_limit_of_the_run_itself_is_its_own_failure():
    report = fly(2, {"calls": "9", "max_tokens": 700})
    assert all(one.state == "budget_exceeded" for one in report.results)
    assert report.complete


def test_a_command_that_fails_counts_against_it_and_says_why():
    report = fly(1, {"script": "import sys; sys.exit('out of order')"})
    assert report.pass_rate == 0.0
    assert "exit code 1: out of order" in report.results[0].cause


def test_a_command_that_does_not_exist_is_not_covered():
    made = EvaluatedCommand(["no-such-program"], [Upstream("anthropic", "anthropic", "http://127.0.0.1:9")])
    report = asyncio.run(evaluate(cases(1), made))
    assert "no-such-program cannot be started" in report.results[0].why
    with pytest.raises(ConfigurationError, match="the command under test is empty"):
        EvaluatedCommand([], [])


def test_a_command_that_has_printed_an_answer_and_failed_does_not_pass():
    report = fly(1, {"script": "import sys; print('about', sys.argv[2]); sys.exit(3)"})
    assert (report.pass_rate, report.results[0].text) == (0.0, "about question 0")
    assert "the run failed: exit code 3" in report.results[0].why


def test_a_command_that_hangs_is_ended_when_its_time_is_up():
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script = f"{deaf}; print('so far', flush=True); time.sleep(60)"
    began = time.monotonic()
    own = fly(1, {"script": script, "timeout": 1})
    shared = fly(1, {"script": script}, budget=Limits(timeout=1))
    assert time.monotonic() - began < 30
    assert [(one.passed, one.ended, one.text) for one in own.results] == [(False, "timed_out/cut_off", "so far")]
    assert own.complete
    assert shared.uncovered == {"the budget of the evaluation ended": 1}


@pytest.mark.parametrize("away", [False, True])
def test_what_outlives_a_command_holds_up_nothing(away):
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(12)']"
    script = f"import subprocess, sys; {child}, start_new_session={away}); print('about', sys.argv[2])"
    began = time.monotonic()
    report = fly(2, {"script": script})
    assert time.monotonic() - began < 11
    assert (report.passed, report.endings) == (2, {"completed/done": 2})


def test_stopping_the_evaluation_ends_the_command_and_its_children(tmp_path):
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(4); open({str(mark)!r}, 'w')"
    script = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    token = CancelToken()

    async def whole():
        async with ScriptedUpstream("honest") as up:
            asyncio.get_running_loop().call_later(1.0, token.cancel, "Ctrl-C")
            return await evaluate(cases(1), command(up.url, script), cancel=token)

    began = time.monotonic()
    report = asyncio.run(whole())
    assert time.monotonic() - began < 20
    assert report.uncovered == {"not run yet": 1}
    time.sleep(3.5)
    assert not mark.exists()
