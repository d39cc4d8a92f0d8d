"""Streams of many hosts, to the published formats: text, thoughts, calls, usage and ids come out right."""

import json
from pathlib import Path

import anthropic  # noqa: F401 - the SDKs are imported before the clock of a test starts
import pytest
from google import genai  # noqa: F401

from glidepath.messages import ReasoningDelta, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta, UserMessage
from glidepath.models import HOSTS, KIND, ModelRequest, ToolSpec
from glidepath.models.strings import _make_model

from .dialects import KEY
from .server import SSE, Answer, Wire, run
from .test_hosts import chunk

HERE = Path(__file__).resolve().parent / "recorded"
HOSTED = sorted(path.stem for path in HERE.glob("*.json"))
SPEC = ToolSpec("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}})


@pytest.fixture(autouse=True)
def cloud(monkeypatch):
    for name in ("OPENAI_API_VERSION", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "proj")


def sent(name, size):
    raw = (HERE / f"{name}.sse").read_bytes()
    if json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")).get("framed"):
        lines = [line for line in raw.decode().splitlines() if line.startswith("data: ")]
        raw = b"".join([chunk(json.loads(line[6:])) for line in lines])
        kind = KIND
    else:
        kind = SSE
    return Answer([raw[start : start + size] for start in range(0, len(raw), size)], kind=kind)


def heard(name, size, asked=None):
    expected = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    provider, _, model_name = expected["model"].partition(":")
    path = "/v1" if HOSTS[provider].adapter in ("chat", "responses") else ""

    async def ask():
        async with Wire([sent(name, size)]) as wire:
            model = _make_model(HOSTS[provider], f"{model_name}@{wire.url}{path}", KEY)
            try:
                return [
                    delta async for delta in model.stream(ModelRequest(messages=[UserMessage("hi")], tools=(SPEC,)))
                ]
            finally:
                await model.aclose()

    return expected, run(ask)


@pytest.mark.parametrize("size", [61, 1 << 20])
@pytest.mark.parametrize("name", HOSTED)
def test_a_recorded_stream_gives_its_message(name, size):
    expected, deltas = heard(name, size)
    calls = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            known = calls.setdefault(delta.index, ["", ""])
            known[0] = known[0] or delta.name
            known[1] += delta.arguments
    end = deltas[-1]
    assert isinstance(end, StreamEnd)
    assert "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)]) == expected["text"]
    assert "".join([delta.text for delta in deltas if isinstance(delta, ThinkingDelta)]) == expected["thinking"]
    assert [[name, json.loads(given)] for name, given in calls.values()] == expected["calls"]
    assert end.stop_reason == expected["stop"]
    used = end.usage
    assert [used.input, used.output, used.cache_read, used.cache_write, used.reasoning] == expected["usage"]
    assert [end.info.response_id, end.info.model, end.info.service_tier] == expected["info"]
    cites = [
        one
        for delta in deltas
        if isinstance(delta, ReasoningDelta)
        for one in json.loads(delta.opaque).get("cites", ())
    ]
    assert [one["url"] for one in cites] == expected.get("cited", [])


def test_at_least_eight_hosts_are_recorded_and_every_one_with_a_protocol_of_its_own():
    assert len(HOSTED) >= 8
    known = [json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")) for name in HOSTED]
    assert all(one["follows"].startswith("https://") for one in known)
    assert {one["seen"] for one in known} <= {"page", "spec", "told"}
    assert {HOSTS[name].adapter for name in HOSTED} == {host.adapter for host in HOSTS.values()} - {"local"}


def published(adapter):
    """The types that the vendor's own SDK publishes for the events of a stream, and how an event is checked by them."""
    from pydantic import TypeAdapter

    if adapter == "responses":
        from openai.types.responses import ResponseStreamEvent

        return TypeAdapter(ResponseStreamEvent)
    if adapter in ("chat", "azure"):
        from openai.types.chat import ChatCompletionChunk

        return TypeAdapter(ChatCompletionChunk)
    if adapter == "google":
        from google.genai.types import GenerateContentResponse

        return TypeAdapter(GenerateContentResponse)
    from anthropic.types import RawMessageStreamEvent

    return TypeAdapter(RawMessageStreamEvent)


@pytest.mark.parametrize("name", [name for name in HOSTED if name != "mistral"])  # its parts are not OpenAI's
def test_a_recorded_stream_is_made_of_events_that_the_vendors_sdk_knows(name):
    types = published(HOSTS[name].adapter)
    for line in (HERE / f"{name}.sse").read_text(encoding="utf-8").splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            if event.get("type") != "ping" and event.get("object") != "":
                types.validate_python(event)
