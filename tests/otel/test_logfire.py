"""Logfire's own SDK, in an environment of its own and without a network: spans and metrics arrive. Campaign only."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# All that it asks for: the environment is made of exactly these. A skip names the first.
PACKAGES = (
    "logfire==5.2.0",
    "certifi==2026.10.18",
    "charset-normalizer==3.5.2",
    "executing==2.3.0",
    "googleapis-common-protos==1.76.0",
    "idna==3.20",
    "markdown-it-py==4.3.0",
    "mdurl==0.1.2",
    "msgspec",
    "opentelemetry-api==1.45.2",
    "opentelemetry-exporter-http-transport==0.66b1",
    "opentelemetry-exporter-otlp-common==0.66b1",
    "opentelemetry-exporter-otlp-proto-common==1.45.1",
    "opentelemetry-exporter-otlp-proto-http==1.45.1",
    "opentelemetry-instrumentation==0.66b2",
    "opentelemetry-proto==1.45.1",
    "opentelemetry-sdk==1.45.2",
    "opentelemetry-semantic-conventions==0.66b2",
    "packaging==26.3",
    "protobuf==7.36.2",
    "Pygments==2.21.0",
    "requests==2.34.2",
    "rich==15.0.0",
    "typing_extensions==4.16.0",
    "urllib3==2.8.0",
    "wrapt==2.5.2",
)
METRICS = {
    "gen_ai.client.operation.duration",
    "gen_ai.client.token.usage",
    "gen_ai.execute_tool.duration",
    "gen_ai.invoke_agent.duration",
    "glidepath.cost",
    "glidepath.runs",
}


@pytest.fixture(scope="module")
def flight():
    spec = importlib.util.spec_from_file_location("environment", ROOT / "bench" / "environment.py")
    environment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environment)
    try:
        python = environment.python_with("logfire", PACKAGES)
    except environment.NotInstalledError as problem:
        pytest.skip(str(problem))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LOGFIRE_", "OTEL_"))}
    return subprocess.run(
        [python, "-W", "always", HERE / "fly_logfire.py"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environ, "PYTHONPATH": str(ROOT / "src")},
    )


def test_it_warns_of_nothing(flight):
    assert (flight.returncode, flight.stderr) == (0, "")


def test_the_spans_of_a_run_are_below_the_callers_and_say_what_was_said(flight):
    found = json.loads(flight.stdout)
    spans = {}
    for span in found["spans"]:
        spans.setdefault(span["name"], []).append(span)
    assert {name: len(several) for name, several in spans.items()} == {
        "shop": 1, "invoke_agent buyer": 1, "chat scripted": 2, "execute_tool price": 1,
    }  # fmt: skip
    (shop,), (run,) = spans["shop"], spans["invoke_agent buyer"]
    assert run["parent"] == shop["id"]
    below = [*spans["chat scripted"], *spans["execute_tool price"]]
    assert {span["parent"] for span in below} == {run["id"]}
    used = sum(span["attributes"]["gen_ai.usage.input_tokens"] for span in spans["chat scripted"])
    assert used == found["usage"]["input"]
    said = run["attributes"]
    assert "Be brief." in said["gen_ai.system_instructions"]
    assert "What something costs." in said["gen_ai.tool.definitions"]
    assert "What is tea?" in said["gen_ai.input.messages"]
    assert "Tea is 3 euros." in said["gen_ai.output.messages"]


def test_the_metrics_of_a_run_reach_its_meter_provider(flight):
    metrics = json.loads(flight.stdout)["metrics"]
    assert set(metrics) >= METRICS
    assert all(metrics[name] for name in METRICS)
