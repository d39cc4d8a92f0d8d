"""A real backend: Arize Phoenix shows agent, model and tool spans with tokens, cost and messages. Campaign only."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from glidepath import Agent, Limits, tool
from glidepath.otel import OpenTelemetry
from glidepath.testing import ScriptedModel, call, say

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PHOENIX = "arize-phoenix==20.26.1"


@tool
async def price(item: str) -> str:
    """What something costs."""
    return f"{item}: 3 euros"


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phoenix")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", PHOENIX]
    installed = subprocess.run(pip, capture_output=True, text=True, timeout=900, check=False)
    if installed.returncode:
        pytest.skip(f"{PHOENIX} cannot be installed here: {installed.stderr[-300:]}")
    with socket.socket() as free, socket.socket() as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, grpc = free.getsockname()[1], other.getsockname()[1]
    environ = {
        **os.environ,
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_WORKING_DIR": str(folder),
    }
    server = subprocess.Popen([venv / "bin" / "phoenix", "serve"], env=environ, cwd=folder)
    try:
        address = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 480
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"{address}/healthz", timeout=5).close()
                break
            except OSError:
                time.sleep(1)
        else:
            pytest.fail("Phoenix did not start in 480 s")
        yield address
    finally:
        server.terminate()
        server.wait(30)


def test_phoenix_shows_agent_model_and_tool_with_tokens_and_messages(phoenix):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{phoenix}/v1/traces")))
    model = ScriptedModel([call("price", item="tea"), say("Tea is 3 euros.")], price=("3", "15"))
    plugin = OpenTelemetry(tracer_provider=provider, content=True)
    result = Agent(
        model=model,
        tools=[price],
        plugins=[plugin],
        limits=Limits(max_iterations=5),
        agent_name="buyer",
        system_prompt="Be brief.",
    ).run_sync("What is tea?")
    provider.shutdown()
    found = []
    until = time.monotonic() + 60
    while time.monotonic() < until and len(found) < 4:
        with urllib.request.urlopen(f"{phoenix}/v1/projects/default/spans?limit=50", timeout=10) as answer:
            found = json.load(answer)["data"]
        time.sleep(0.5)
    kinds = {span["name"]: span["span_kind"] for span in found}
    assert kinds["invoke_agent buyer"] == "AGENT"
    assert kinds["chat scripted"] == "LLM"
    assert kinds["execute_tool price"] == "TOOL"
    counted = [span["attributes"] for span in found if span["name"] == "chat scripted"]
    assert sum(int(one["llm.token_count.prompt"]) for one in counted) == result.usage.input
    assert "What is tea?" in json.dumps(counted)
    (run,), (used,) = (
        [span["attributes"] for span in found if span["name"] == name]
        for name in ("invoke_agent buyer", "execute_tool price")
    )  # what Phoenix itself has read out of our attributes, under its own names
    assert run["llm.input_messages.0.message.content"] == "Be brief."
    assert run["llm.input_messages.1.message.content"] == "What is tea?"
    assert run["llm.output_messages.0.message.content"] == "Tea is 3 euros."
    assert "What something costs." in run["llm.tools.0.tool.json_schema"]
    assert run["session.id"] == result.session_id
    assert (used["tool.parameters.item"], used["output.value"]) == ("tea", "tea: 3 euros")
    called = "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments"
    assert [json.loads(one[called]) for one in counted if called in one] == [{"item": "tea"}]
