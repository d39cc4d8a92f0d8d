"""`--otel`: the SDK set up from the usual variables, in a process of its own."""

import subprocess
import sys
import time

import pytest

from glidepath.apps.telemetry import sdk
from glidepath.errors import ConfigurationError

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


def test_a_setting_that_says_no_content_wins_over_the_environment(tmp_path):
    variables = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none"}
    setting = ("--otel", "--set", "telemetry.content=false")
    done = run(tmp_path, *setting, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY", **variables)
    assert done.returncode == 0, done.stderr
    assert '"name": "chat scripted"' in done.stdout
    assert "gen_ai.input.messages" not in done.stdout


def test_a_wrong_exporter_is_named(tmp_path):
    done = run(tmp_path, "--otel", OTEL_TRACES_EXPORTER="carrier-pigeon")
    assert done.returncode != 0
    assert "OTEL_TRACES_EXPORTER must be otlp, console or none" in done.stderr


@pytest.fixture
def variables(monkeypatch):
    def set_all(**values):
        quiet = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", **values}
        for name, value in quiet.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "glidepath"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,host.name=x"}, "mine"),
    ],
    ids=["nobody", "name", "attributes"],
)
def test_the_service_has_the_name_that_the_variables_give_it(variables, values, name):
    variables(**values)
    tracers, _ = sdk._providers()
    assert tracers.resource.attributes["service.name"] == name


def test_a_variable_that_is_empty_is_not_set(variables):
    variables(OTEL_TRACES_EXPORTER="")
    assert type(sdk._exporter("TRACES", "trace_exporter", "OTLPSpanExporter", "")).__name__ == "OTLPSpanExporter"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "refuses an OTEL_.* max_queue_size"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "pigeon"}, "must be http/protobuf or grpc"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "exporter-otlp-proto-grpc"),
    ],
    ids=["queue", "pigeon", "grpc"],
)
def test_a_wrong_variable_is_named(variables, values, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc", None)  # as if it were not installed
    variables(**values)
    with pytest.raises(ConfigurationError, match=said):
        sdk.set_up_sdk()
