"""The hosts of the table: strings, addresses, keys, prices, quirks, and what is said when a key is wrong."""

import asyncio
import base64
import json
from binascii import crc32
from itertools import pairwise

import openai
import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, ConfigurationError, Limits
from glidepath.agent import find_price
from glidepath.errors import RateLimitedError, RejectedError, TransientError
from glidepath.messages import (
    AssistantMessage,
    ReasoningBlock,
    StreamEnd,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.models import (
    HOSTS,
    KIND,
    AnthropicModel,
    AwsEvents,
    GoogleModel,
    ModelRequest,
    OpenAIChatModel,
    OpenAIResponsesModel,
    ToolSpec,
    resolve,
)

from .dialects import KEY, Anthropic, Chat, Google
from .server import Answer, Wire, error, run

HI = ModelRequest(messages=[UserMessage("hi")])
SPEC = ToolSpec("look", "Look.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})
VARIABLES = {
    "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com",
    "AWS_REGION": "eu-central-1",
    "GOOGLE_CLOUD_PROJECT": "proj",
    "GOOGLE_CLOUD_LOCATION": "europe-west1",
    **{host.key: f"{KEY}-{host.name}" for host in HOSTS.values() if host.key and host.name != "vertex"},
}


@pytest.fixture
def cloud(monkeypatch):
    for name in ("OPENAI_API_VERSION", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_API_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bare(monkeypatch):
    for host in HOSTS.values():
        for name in (host.key, *host.needs):
            monkeypatch.delenv(name or "NOTHING", raising=False)
    for name in ("AWS_DEFAULT_REGION", "AZURE_OPENAI_AD_TOKEN", "ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


# --- what a string makes --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    ("string", "kind", "name", "url"),
    [
        ("azure:my-gpt", OpenAIChatModel, "my-gpt", "https://mine.openai.azure.com/openai/v1/"),
        ("azure:d@https://b.openai.azure.com/", OpenAIChatModel, "d", "https://b.openai.azure.com/openai/v1/"),
        (
            "bedrock:openai.gpt-oss-120b",
            OpenAIChatModel,
            "openai.gpt-oss-120b",
            "https://bedrock-mantle.eu-central-1.api.aws/v1/",
        ),
        ("openrouter:a/b", OpenAIChatModel, "a/b", "https://openrouter.ai/api/v1/"),
        ("groq:openai/gpt-oss-120b", OpenAIChatModel, "openai/gpt-oss-120b", "https://api.groq.com/openai/v1/"),
        ("deepseek:deepseek-chat", OpenAIChatModel, "deepseek-chat", "https://api.deepseek.com/v1/"),
        ("mistral:m", OpenAIChatModel, "m", "https://api.mistral.ai/v1/"),
        ("xai:grok-4", OpenAIChatModel, "grok-4", "https://api.x.ai/v1/"),
        ("ollama:qwen3:8b", OpenAIChatModel, "qwen3:8b", "http://127.0.0.1:11434/v1/"),
        ("ollama:qwen3:8b@http://box:9/v1", OpenAIChatModel, "qwen3:8b", "http://box:9/v1/"),
        ("vllm:Qwen/Qwen3-8B", OpenAIChatModel, "Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1/"),
        ("lmstudio:m", OpenAIChatModel, "m", "http://127.0.0.1:1234/v1/"),
        ("llamacpp:m", OpenAIChatModel, "m", "http://127.0.0.1:8080/v1/"),
        (
            "bedrock:us.anthropic.claude-v1:0",
            AnthropicModel,
            "us.anthropic.claude-v1:0",
            "https://bedrock-runtime.eu-central-1.amazonaws.com",
        ),
        (
            "vertex:claude-sonnet-4-5@20250929",
            AnthropicModel,
            "claude-sonnet-4-5@20250929",
            "https://europe-west1-aiplatform.googleapis.com/v1/",
        ),
    ],
)
def test_a_string_reaches_its_host(string, kind, name, url):
    model = resolve(string)
    assert type(model) is kind
    assert model.name == name
    assert model.host == string.partition(":")[0]
    assert str(model._clients.peek().base_url) == url


@pytest.mark.usefixtures("cloud")
def test_every_example_of_the_table_resolves():
    for host in HOSTS.values():
        if host.adapter not in ("local", "vertex"):
            assert resolve(host.example).host in (host.name, "openai-responses", "openai-chat"), host.name


@pytest.mark.usefixtures("cloud")
def test_gemini_on_vertex_gets_project_and_location():
    inside = resolve("vertex:gemini-2.5-flash")._clients.peek().client._api_client
    assert (inside.vertexai, inside.project, inside.location) == (True, "proj", "europe-west1")


@pytest.mark.usefixtures("cloud")
def test_azure_with_a_version_uses_the_client_of_the_sdk(monkeypatch):
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    client = resolve("azure:my-gpt")._clients.peek()
    assert isinstance(client, openai.AsyncAzureOpenAI)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("string", "named"),
    [
        ("groq:m", "GROQ_API_KEY"),
        ("openrouter:a/b", "OPENROUTER_API_KEY"),
        ("deepseek:m", "DEEPSEEK_API_KEY"),
        ("mistral:m", "MISTRAL_API_KEY"),
        ("xai:m", "XAI_API_KEY"),
        ("azure:m", "AZURE_OPENAI_ENDPOINT"),
        ("azure:m@https://x.openai.azure.com", "AZURE_OPENAI_API_KEY"),
        ("bedrock:us.anthropic.claude-sonnet-4-5", "AWS_REGION"),
        ("bedrock:openai.gpt-oss-120b", "AWS_REGION"),
        ("vertex:claude-sonnet-4-5", "GOOGLE_CLOUD_PROJECT"),
        ("vertex:gemini-2.5-pro", "GOOGLE_CLOUD_PROJECT"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
    ],
)
def test_what_is_missing_is_named(string, named):
    with pytest.raises(ConfigurationError, match=named):
        resolve(string)


@pytest.mark.usefixtures("bare")
def test_servers_on_this_machine_need_no_key():
    for name in ("ollama", "vllm", "lmstudio", "llamacpp"):
        assert resolve(f"{name}:m").host == name


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    "string",
    [
        "groq:m@http://127.0.0.1:1/v1",
        "azure:m@https://evil.example",
        "bedrock:us.anthropic.claude-sonnet-4-5@https://evil.example",
        "vertex:claude-sonnet-4-5@https://evil.example",
        "vertex:gemini-2.5-pro@https://evil.example",
        "bedrock:openai.gpt-oss-120b@https://evil.example/v1",
        "groq:m@http://api.groq.com/openai/v1",
    ],
)
def test_a_key_from_the_environment_goes_to_no_other_address(string):
    with pytest.raises(ConfigurationError, match="api_key="):
        resolve(string)


def test_an_unknown_host_is_refused():
    with pytest.raises(ConfigurationError, match="host='grok' is not a host; known are"):
        OpenAIChatModel("m", host="grok")
    with pytest.raises(ConfigurationError, match="does not"):
        AnthropicModel("m", host="groq")
    with pytest.raises(ConfigurationError, match="does not"):
        OpenAIChatModel("m", host="anthropic")
    with pytest.raises(ConfigurationError, match="does not"):
        GoogleModel("m", host="openai")


# --- prices ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(
    "string",
    [
        "azure:gpt-5",
        "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "vertex:claude-sonnet-4-5@20250929",
        "vertex:gemini-2.5-flash",
        "openrouter:anthropic/claude-sonnet-4.5",
        "groq:llama-3.3-70b-versatile",
        "deepseek:deepseek-chat",
        "mistral:mistral-large-latest",
        "xai:grok-4",
    ],
)
def test_a_money_limit_finds_the_price_of_a_host(string):
    agent = Agent(model=string, limits=Limits(max_cost="1"))
    assert agent._plan.price.output > 0
    assert agent.config.model.usage_is_billed


@pytest.mark.usefixtures("cloud")
def test_a_price_may_be_given_by_the_model_string():
    prices = {"ollama:qwen3:8b": ("1", "2")}
    agent = Agent(model="ollama:qwen3:8b", limits=Limits(max_cost="1"), prices=prices)
    assert find_price(agent.config, agent.config.model, needed=True).input == 1_000_000


def test_a_cloud_names_a_claude_model_as_anthropic_knows_it():
    model = AnthropicModel(
        "eu.anthropic.claude-opus-4-1-20250805-v1:0", host="bedrock", api_key=KEY, base_url="http://x"
    )
    assert model.max_output_tokens == 32_000
    body = model._body(ModelRequest(messages=[UserMessage("hi")], reasoning="low"))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2_048}


# --- Bedrock's binary stream ----------------------------------------------------------------------------------------


def frame(headers, payload: bytes) -> bytes:
    """One message, as Amazon documents it."""
    named = b""
    for name, value in headers.items():
        named += bytes([len(name)]) + name.encode() + b"\x07" + len(value).to_bytes(2, "big") + value.encode()
    prelude = (16 + len(named) + len(payload)).to_bytes(4, "big") + len(named).to_bytes(4, "big")
    message = prelude + crc32(prelude).to_bytes(4, "big") + named + payload
    return message + crc32(message).to_bytes(4, "big")


def chunk(event) -> bytes:
    held = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcd"}).encode()
    kind = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(kind, held)


def events_of(*sse: bytes):
    return [json.loads(line[6:]) for part in sse for line in part.decode().splitlines() if line.startswith("data: ")]


SAID = events_of(*Anthropic().text("Hello ", "there."), *Anthropic().end())


def bedrock(wire):
    name = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    return AnthropicModel(name, host="bedrock", api_key=KEY, base_url=wire.url)


OWN = []


async def heard(answer, make=bedrock, request=HI):
    async with Wire([answer]) as wire:
        model = make(wire)
        try:
            return [delta async for delta in model.stream(request)], wire.requests[0]
        finally:
            await model.aclose()
            await asyncio.gather(*[client.close() for client in OWN])
            OWN.clear()


def test_a_reply_from_bedrock_is_read_and_its_request_is_routed():
    answer = Answer([chunk(event) for event in SAID], kind=KIND, headers={"x-amzn-requestid": "req-7"})
    deltas, request = run(lambda: heard(answer))
    assert "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)]) == "Hello there."
    assert isinstance(deltas[-1], StreamEnd)
    assert deltas[-1].info.request_id == "req-7"
    assert request.path == "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/invoke-with-response-stream"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "model" not in request.body, "Bedrock refuses it: extraneous key"
    assert "stream" not in request.body
    assert request.body["anthropic_version"] == "bedrock-2023-05-31"
    assert request.body["messages"][0]["content"][0]["text"] == "hi"
    assert request.body["max_tokens"] == 64_000


@given(st.data())
def test_bedrock_messages_may_be_cut_anywhere(data):
    whole = b"".join([chunk(event) for event in SAID])
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    reader, found = AwsEvents(), []
    for start, end in zip([0, *places], [*places, len(whole)], strict=True):
        found += reader.feed(whole[start:end])
    assert [json.loads(text) for _, text in found] == SAID


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("throttlingException", RateLimitedError),
        ("modelStreamErrorException", TransientError),
        ("internalServerException", TransientError),
        ("validationException", RejectedError),
    ],
)
def test_an_exception_in_a_bedrock_stream_is_typed(code, kind):
    broken = frame({":exception-type": code, ":message-type": "exception"}, b'{"message":"slow down"}')
    with pytest.raises(kind, match="slow down"):
        run(lambda: heard(Answer([chunk(SAID[0]), broken], kind=KIND)))


@pytest.mark.parametrize("place", [2, 9, -1, -12])
def test_a_damaged_bedrock_message_is_worth_another_try(place):
    damaged = bytearray(chunk(SAID[0]))
    damaged[place] ^= 0xFF
    with pytest.raises(TransientError, match="malformed event"):
        run(lambda: heard(Answer([bytes(damaged), b"x" * 40], kind=KIND)))


def test_what_bedrock_refuses_ends_with_its_own_words():
    refused = error(400, {"message": "The provided model identifier is invalid."})
    with pytest.raises(RejectedError, match="model identifier is invalid"):
        run(lambda: heard(refused))


def test_half_a_bedrock_stream_is_a_dropped_connection():
    deltas, _ = run(lambda: heard(Answer([chunk(event) for event in SAID[:4]], kind=KIND)))
    assert not isinstance(deltas[-1], StreamEnd)


# --- Vertex and Azure on the wire -----------------------------------------------------------------------------------


def test_claude_on_vertex_is_routed_and_streams(monkeypatch):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "proj")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west1")

    def make(wire):
        return AnthropicModel("claude-sonnet-4-5@20250929", host="vertex", api_key=KEY, base_url=wire.url)

    answer = Answer([*Anthropic().text("ok"), *Anthropic().end()])
    deltas, request = run(lambda: heard(answer, make))
    assert isinstance(deltas[-1], StreamEnd)
    where = "/projects/proj/locations/europe-west1/publishers/anthropic/models/claude-sonnet-4-5@20250929"
    assert request.path.replace("%40", "@") == f"{where}:streamRawPredict"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert "model" not in request.body
    assert request.body["stream"] is True
    assert request.body["anthropic_version"] == "vertex-2023-10-16"


@pytest.mark.parametrize(
    ("headers", "version"), [({}, "2023-06-01"), ({"anthropic-version": "2099-01-01"}, "2099-01-01")]
)
def test_the_version_of_the_interface_is_the_one_we_read(headers, version):
    """https://platform.claude.com/docs/en/api/versioning: a version keeps its fields; the SDK's may be a newer one."""

    def make(wire):
        return AnthropicModel("claude-sonnet-4-5", api_key=KEY, base_url=wire.url, headers=headers)

    answer = Answer([*Anthropic().text("ok"), *Anthropic().end()])
    _, request = run(lambda: heard(answer, make))
    assert request.headers["anthropic-version"] == version
    assert "anthropic_version" not in request.body


def test_a_client_of_ones_own_is_routed_too():
    import anthropic

    def make(wire):
        client = anthropic.AsyncAnthropicBedrock(api_key=KEY, aws_region="x", base_url=wire.url)
        OWN.append(client)
        return AnthropicModel("us.anthropic.claude-sonnet-4-5", client=client)

    deltas, request = run(lambda: heard(Answer([chunk(event) for event in SAID], kind=KIND), make))
    assert isinstance(deltas[-1], StreamEnd)
    assert request.path.startswith("/model/us.anthropic.claude-sonnet-4-5/")


def test_bedrocks_newer_endpoint_speaks_plain_events():
    import anthropic

    def make(wire):
        client = anthropic.AsyncAnthropicBedrockMantle(api_key=KEY, aws_region="x", base_url=wire.url)
        OWN.append(client)
        return AnthropicModel("anthropic.claude-opus-4-8", client=client)

    deltas, request = run(lambda: heard(Answer([*Anthropic().text("ok"), *Anthropic().end()]), make))
    assert isinstance(deltas[-1], StreamEnd)
    assert request.body["model"] == "anthropic.claude-opus-4-8"


@pytest.mark.parametrize("version", [None, "2024-10-21"])
def test_azure_is_asked_at_its_own_address(monkeypatch, version):
    monkeypatch.delenv("OPENAI_API_VERSION", raising=False)
    if version:
        monkeypatch.setenv("OPENAI_API_VERSION", version)

    def make(wire):
        return OpenAIChatModel("my-gpt", host="azure", api_key=KEY, base_url=wire.url)

    asked = ModelRequest(messages=[UserMessage("hi")], max_output_tokens=9)
    deltas, request = run(lambda: heard(Answer([*Chat().text("ok"), *Chat().end()]), make, asked))
    assert isinstance(deltas[-1], StreamEnd)
    dated = f"/openai/deployments/my-gpt/chat/completions?api-version={version}"
    assert request.path == (dated if version else "/openai/v1/chat/completions")
    assert request.headers["api-key" if version else "authorization"].endswith(KEY)
    assert request.body["max_completion_tokens"] == 9


def test_gemini_on_vertex_streams(monkeypatch):
    def make(wire):
        return GoogleModel("gemini-2.5-flash", host="vertex", api_key=KEY, base_url=wire.url)

    deltas, request = run(lambda: heard(Answer([*Google().text("ok"), *Google().end()]), make))
    assert isinstance(deltas[-1], StreamEnd)
    assert "publishers/google/models/gemini-2.5-flash:streamGenerateContent" in request.path


# --- wrong keys -----------------------------------------------------------------------------------------------------


def refused(make):
    async def ask():
        async with Wire([error(401, {"error": {"message": "bad key"}})]) as wire:
            model = make(wire)
            with pytest.raises(RejectedError) as caught:
                [delta async for delta in model.stream(HI)]
            await model.aclose()
            return str(caught.value)

    return run(ask)


def test_a_wrong_key_names_the_variable_that_was_sent(monkeypatch):
    def behind(wire):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{wire.url}/v1")
        return resolve("openai:gpt-5")

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    said = refused(behind)
    assert "OPENAI_API_KEY" in said
    assert "GLIDEPATH_API_KEY" not in said
    assert KEY not in said
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    assert "GEMINI_API_KEY" in refused(lambda wire: GoogleModel("gemini-3", base_url=wire.url))
    monkeypatch.setenv("GOOGLE_API_KEY", f"{KEY}-other")
    assert "(GOOGLE_API_KEY)" in refused(lambda wire: GoogleModel("gemini-3", base_url=wire.url))


def test_a_wrong_key_that_was_passed_names_api_key():
    for make in (
        lambda wire: OpenAIChatModel("m", host="groq", api_key=KEY, base_url=wire.url),
        lambda wire: AnthropicModel("claude-sonnet-4-5", api_key=KEY, base_url=wire.url),
        lambda wire: OpenAIResponsesModel("gpt-5", api_key=KEY, base_url=f"{wire.url}/v1"),
    ):
        assert "(api_key=" in refused(make)
    assert "none was sent" in refused(lambda wire: OpenAIChatModel("m", host="ollama", base_url=f"{wire.url}/v1"))


# --- quirks ---------------------------------------------------------------------------------------------------------

LOOP = [
    UserMessage("hi"),
    AssistantMessage((ToolCall("toolu_01abc", "look", {"q": "a"}),)),
    ToolResultMessage("toolu_01abc", "look", "found"),
    UserMessage("Two turns left.", internal=True),
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
KNOWN = [
    # host, model, request, what it documents as refused
    ("mistral", "m", {}, lambda body: "stream_options" in body),
    ("mistral", "m", {"messages": LOOP}, lambda body: body["messages"][2]["tool_call_id"] == "toolu_01abc"),
    ("mistral", "m", {"messages": LOOP}, lambda body: [m["role"] for m in body["messages"]][-2:] == ["tool", "user"]),
    ("mistral", "m", {"seed": 1}, lambda body: "seed" in body),
    ("groq", "m", {"output_schema": SCHEMA}, lambda body: "response_format" in body),
    ("deepseek", "m", {"output_schema": SCHEMA}, lambda body: body["response_format"]["type"] == "json_schema"),
    ("xai", "grok-4", {"reasoning": "low"}, lambda body: "reasoning_effort" in body),
    ("xai", "grok-4-1-fast-reasoning", {"reasoning": "low"}, lambda body: "reasoning_effort" in body),
    ("xai", "grok-4.20-reasoning", {"reasoning": "low"}, lambda body: "reasoning_effort" in body),
    ("xai", "grok-4.3", {"reasoning": "low"}, lambda body: "reasoning_effort" not in body),
    ("lmstudio", "m", {"tools": (SPEC,), "tool_choice": "look"}, lambda body: not isinstance(body["tool_choice"], str)),
    ("llamacpp", "m", {"tools": (SPEC,), "tool_choice": "look"}, lambda body: not isinstance(body["tool_choice"], str)),
    ("azure", "gpt-5", {"max_output_tokens": 5}, lambda body: "max_tokens" in body),
    ("openai-chat", "o3", {"max_output_tokens": 5}, lambda body: "max_tokens" in body),
    ("openrouter", "openai/gpt-5", {"max_output_tokens": 5}, lambda body: "max_tokens" in body),
]


THOUGHT = {"type": "reasoning", "id": "rs", "summary": []}
HELD = ReasoningBlock(opaque=json.dumps({"at": [0, 0], "item": THOUGHT}), vendor="openai")
MANY = [UserMessage("hi"), AssistantMessage((TextBlock("a"),)), UserMessage("b"), AssistantMessage((TextBlock("c"),))]
VENDORS = [
    # model, request, what the vendor documents as refused
    (
        AnthropicModel("claude-sonnet-4-5", api_key=KEY),
        {"messages": MANY * 3},
        lambda body: json.dumps(body).count("cache_control") > 4,
    ),
    (
        AnthropicModel("claude-sonnet-4-5", api_key=KEY),
        {"messages": [UserMessage("")]},
        lambda body: body["messages"][0]["content"] in ("", []),
    ),
    (AnthropicModel("claude-sonnet-4-5", api_key=KEY), {"messages": LOOP}, lambda body: "tools" not in body),
    (
        AnthropicModel("claude-3-haiku-20240307", api_key=KEY),
        {"output_schema": SCHEMA},
        lambda body: "output_config" in body,
    ),
    (
        OpenAIResponsesModel("gpt-5", api_key=KEY),
        {"messages": [UserMessage("hi"), AssistantMessage((HELD,))]},
        lambda body: THOUGHT in body["input"],
    ),
    (OpenAIResponsesModel("gpt-4o", api_key=KEY), {}, lambda body: "include" in body),
    (
        GoogleModel("gemini-2.5-flash", api_key=KEY),
        {"tools": (SPEC,), "output_schema": SCHEMA},
        lambda body: "responseJsonSchema" in str(body),
    ),
    (GoogleModel("gemini-3-pro", api_key=KEY), {"messages": LOOP}, lambda body: "thoughtSignature" not in str(body)),
    (
        GoogleModel("gemini-2.5-flash", api_key=KEY),
        {"messages": LOOP},
        lambda body: any(a["role"] == b["role"] for a, b in pairwise(body["contents"])),
    ),
]


@pytest.mark.parametrize(("model", "fields", "refuses"), VENDORS, ids=map(str, range(len(VENDORS))))
def test_a_vendor_is_not_sent_what_it_is_known_to_refuse(model, fields, refuses):
    assert not refuses(model._body(ModelRequest(**{"messages": [UserMessage("hi")], **fields})))


@pytest.mark.parametrize(("host", "name", "fields", "refuses"), KNOWN, ids=map(str, range(len(KNOWN))))
def test_a_host_is_not_sent_what_it_is_known_to_refuse(host, name, fields, refuses, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://x.openai.azure.com")
    model = OpenAIChatModel(name, host=host, api_key=KEY)
    assert not refuses(model._body(ModelRequest(**{"messages": [UserMessage("hi")], **fields})))


def test_mistral_gets_the_same_short_id_for_a_call_and_its_result():
    messages = OpenAIChatModel("m", host="mistral", api_key=KEY)._body(ModelRequest(messages=LOOP))["messages"]
    call, result = messages[1]["tool_calls"][0]["id"], messages[2]["tool_call_id"]
    assert call == result
    assert len(call) == 9
    assert call.isalnum()


def test_a_model_that_cannot_be_held_to_a_schema_is_told_it():
    for host in ("groq", "deepseek"):
        body = OpenAIChatModel("m", host=host, api_key=KEY)._body(
            ModelRequest(messages=[UserMessage("hi")], output_schema=SCHEMA)
        )
        assert '"properties"' in body["messages"][0]["content"]
