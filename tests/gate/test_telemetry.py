"""Foreign runs in OpenTelemetry: spans and metrics as our own runs have them."""

import asyncio
import sys

import pytest

from glidepath import Limits
from glidepath.gate import Gate, Upstream
from glidepath.otel import OpenTelemetry
from glidepath.sessions import SqliteStore
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import KEY, VENDORS, fly_anthropic, in_real_time

trace = pytest.importorskip("opentelemetry.sdk.trace")
MAIN = {"x-claude-code-session-id": "s-1"}


def make_tracer():
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@pytest.mark.parametrize("has_store", [True, False], ids=["store", "no store"])
@in_real_time
async def test_a_run_and_its_sub_agents_are_spans_with_every_token_once(tmp_path, has_store):
    provider, exporter = make_tracer()
    store = SqliteStore(tmp_path / "store") if has_store else None
    async with ScriptedUpstream("loop") as up:
        upstreams = [Upstream(name, name, up.url, "swap", "env:UPSTREAM_KEY") for name in VENDORS]
        telemetry = OpenTelemetry(provider)
        limits = Limits(max_tokens=40_000)
        async with Gate(
            limits, upstreams, environ={"UPSTREAM_KEY": KEY}, store=store, telemetry=telemetry, line="run-1"
        ) as gate:
            await fly_anthropic(gate.url, gate.key, headers=MAIN, most=2)
            await fly_anthropic(gate.url, gate.key, headers={**MAIN, "x-claude-code-agent-id": "a-1"}, most=2)
            await fly_anthropic(gate.url, gate.key, headers=MAIN)
        used = up.usage
    if store is not None:
        await store.close()
    for _ in range(500):
        if len([span for span in exporter.get_finished_spans() if span.name.startswith("invoke_agent")]) == 2:
            break
        await asyncio.sleep(0.01)
    spans = exporter.get_finished_spans()
    runs = {span.name: span for span in spans if span.name.startswith("invoke_agent")}
    assert set(runs) == {"invoke_agent claude-code", "invoke_agent claude-code/a-1"}
    child, root = runs["invoke_agent claude-code/a-1"], runs["invoke_agent claude-code"]
    assert child.context.trace_id == root.context.trace_id
    chats = [span for span in spans if span.name == "chat claude-opus-5-5"]
    assert len(chats) == used.calls
    for name, tokens in (("input", used.input), ("output", used.output)):
        assert sum(span.attributes[f"gen_ai.usage.{name}_tokens"] for span in chats) == tokens
    assert any(span.attributes.get("glidepath.landing") for span in chats)
    assert root.attributes["glidepath.outcome"] == "wrapped_up"
    assert KEY not in str([dict(span.attributes) for span in spans])


AGENT = """
import json, os, urllib.request
body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello."}]}
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "1", "content-type": "application/json"}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""


@pytest.mark.process
def test_gate_run_sends_spans_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")

    async def play():
        async with ScriptedUpstream("answer") as up:
            flags = ("--max-tokens", "9000", "--store", "none", "--otel", "--upstream", up.url)
            command = [sys.executable, "-m", "glidepath", "gate", "run", *flags, "--", sys.executable, "-c", AGENT]
            process = await asyncio.create_subprocess_exec(
                *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            out, err = await asyncio.wait_for(process.communicate(), 40)
            return process.returncode, out.decode(), err.decode()

    code, out, err = asyncio.run(play())
    assert code == 0, err
    assert '"name": "invoke_agent' in out
    assert '"name": "chat claude-opus-5-5"' in out
