"""`--otel`: the SDK set up from the usual variables, in a process of its own."""

import subprocess
import sys
import time

MODEL = """
from glidepath.testing import ScriptedModel, say
model = ScriptedModel().forever(say("Hello."))
"""


def run(tmp_path, *arguments, **environ):
    (tmp_path / "scripted.py").write_text(MODEL)
    command = [sys.executable, "-m", "glidepath", "run", "--model", "python:scripted:model", *arguments, "Hi"]
    paths = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **environ}
    return subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, timeout=120, check=False)


def test_spans_go_where_the_variables_say(tmp_path):
    done = run(tmp_path, "--otel", OTEL_TRACES_EXPORTER="console", OTEL_METRICS_EXPORTER="none")
    assert done.returncode == 0, done.stderr
    assert '"name": "invoke_agent agent"' in done.stdout
    assert '"name": "chat scripted"' in done.stdout


def test_a_collector_that_is_not_there_does_not_hold_up_the_command(tmp_path):
    before = time.monotonic()
    done = run(tmp_path, "--otel", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 0
    assert done.stdout == "Hello.\n"
    assert time.monotonic() - before < 30  # the exporter itself would try for a minute and more


def test_a_wrong_exporter_is_named(tmp_path):
    done = run(tmp_path, "--otel", OTEL_TRACES_EXPORTER="carrier-pigeon")
    assert done.returncode != 0
    assert "OTEL_TRACES_EXPORTER must be otlp, console or none" in done.stderr
