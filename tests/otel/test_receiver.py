"""What a run says of itself, as it arrives over HTTP at a receiver: read from the bytes, not from the SDK's objects."""

import json

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from glidepath import Agent, Limits, __version__, tool
from glidepath.otel import OpenTelemetry
from glidepath.testing import ScriptedModel, call, say

from .kit import Receiver

SCHEMA = "https://opentelemetry.io/schemas/1.41.0"
MESSAGES = ("gen_ai.input.messages", "gen_ai.output.messages")
TOLD = ("gen_ai.system_instructions", "gen_ai.tool.definitions")


@tool
async def price(item: str) -> str:
    """What something costs."""
    return f"{item}: 3 euros"


def fly(*, content):
    """The scopes that a receiver got of one run, and the attributes of its spans by their names."""
    with Receiver() as receiver:
        provider = TracerProvider(shutdown_on_exit=False)
        endpoint = f"http://127.0.0.1:{receiver.server.server_port}/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        agent = Agent(
            model=ScriptedModel([call("price", item="tea"), say("Tea is 3 euros.")]),
            tools=[price],
            system_prompt="Be brief.",
            temperature=0.5,
            agent_name="buyer",
            plugins=[OpenTelemetry(tracer_provider=provider, content=content)],
            limits=Limits(max_iterations=5),
        )
        agent.run_sync("What is tea?")
        provider.shutdown()
    spans = {}
    for span in sorted(receiver.spans, key=lambda span: span.start_time_unix_nano):
        attributes = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
        spans.setdefault(span.name, []).append(attributes)
    return receiver.scopes, spans


@pytest.fixture(scope="module")
def shown():
    return fly(content=True)


def test_the_scope_has_our_version_and_the_schema(shown):
    scopes, spans = shown
    assert {(one.scope.name, one.scope.version, one.schema_url) for one in scopes} == {
        ("glidepath", __version__, SCHEMA)
    }
    assert {name: len(several) for name, several in spans.items()} == {
        "invoke_agent buyer": 1, "chat scripted": 2, "execute_tool price": 1,
    }  # fmt: skip


def test_the_run_arrives_with_what_it_was_told_asked_and_answered(shown):
    (run,), chats = shown[1]["invoke_agent buyer"], shown[1]["chat scripted"]
    for span in (run, chats[0]):
        assert json.loads(span["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
        (definition,) = json.loads(span["gen_ai.tool.definitions"])
        assert (definition["type"], definition["name"]) == ("function", "price")
        assert definition["parameters"]["required"] == ["item"]
    assert not set(TOLD) & set(chats[1])  # once: it may be long
    (question,) = json.loads(run["gen_ai.input.messages"])
    assert question == {"role": "user", "parts": [{"type": "text", "content": "What is tea?"}]}
    (answer,) = json.loads(run["gen_ai.output.messages"])
    assert (answer["role"], answer["parts"]) == ("assistant", [{"type": "text", "content": "Tea is 3 euros."}])


def test_calls_and_tools_arrive_with_their_conversation_temperature_and_type(shown):
    (run,), chats, (used,) = (shown[1][name] for name in ("invoke_agent buyer", "chat scripted", "execute_tool price"))
    assert [span["gen_ai.request.temperature"] for span in chats] == [0.5, 0.5]
    assert run["gen_ai.conversation.id"]
    assert {span["gen_ai.conversation.id"] for span in chats} == {run["gen_ai.conversation.id"]}
    assert used["gen_ai.tool.type"] == "function"
    assert json.loads(used["gen_ai.tool.call.arguments"]) == {"item": "tea"}
    assert used["gen_ai.tool.call.result"] == "tea: 3 euros"
    (said,) = json.loads(chats[0]["gen_ai.output.messages"])
    (asked,) = said["parts"]
    assert (asked["type"], asked["name"], asked["arguments"]) == ("tool_call", "price", {"item": "tea"})


def test_without_content_nothing_that_was_said_leaves_the_process():
    scopes, spans = fly(content=False)
    names = {name for several in spans.values() for attributes in several for name in attributes}
    assert not names & {*MESSAGES, *TOLD, "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
    sent = b"".join(one.SerializeToString() for one in scopes)
    for said in (b"Be brief", b"What is tea", b"euros", b"What something costs"):
        assert said not in sent
    assert spans["execute_tool price"][0]["gen_ai.tool.type"] == "function"
