"""What can be said: files, citations, the providers' own tools, and settings that are typed."""

import base64
import json
import zlib

import pytest
from hypothesis import given, strategies as st

from glidepath import Agent, ConfigurationError, Limits, LoopOutcome, tool
from glidepath.errors import RejectedError
from glidepath.messages import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    ReasoningDelta,
    ReplyInfo,
    StreamEnd,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.models import AnthropicModel, ModelRequest, OpenAIChatModel, ToolSpec
from glidepath.testing import ScriptedModel, call
from glidepath.tools import count_pages, file_tokens
from glidepath.values import codec

from .dialects import DIALECTS, KEY, Anthropic, Chat, Google, Responses, event
from .server import Answer, Wire, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
LIMITS = Limits(max_iterations=5)
PDF = b"%PDF-1.7\n1 0 obj << /Type /Pages /Count 2 >>\n2 0 obj << /Type /Page >>\n3 0 obj << /Type /Page >>"
DATA = base64.b64encode(PDF).decode()
DOCUMENT = FileBlock("application/pdf", PDF, name="a.pdf")
SOUND = FileBlock("audio/wav", b"RIFF....WAVE")
FILM = FileBlock("video/mp4", b"film")
SPEC = ToolSpec(
    "search",
    "Search.",
    {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer", "default": 3}},
        "required": ["q"],
    },
)


def asked(*blocks):
    return ModelRequest(messages=[UserMessage((TextBlock("What is this?"), *blocks))])


def body_of(dialect, request, answer=None, **keywords):
    async def sent():
        async with Wire([Answer(answer or [*dialect.text("ok"), *dialect.end()])]) as wire:
            model = dialect.model(wire.url, **keywords)
            try:
                async for _ in model.stream(request):
                    pass
            finally:
                await model.aclose()
            return wire.requests[0].body

    return run(sent)


def heard(dialect, *chunks, **headers):
    async def ask():
        async with Wire(
            [Answer([*chunks], headers={key.replace("_", "-"): text for key, text in headers.items()})]
        ) as wire:
            model = dialect.model(wire.url)
            try:
                return [delta async for delta in model.stream(asked())]
            finally:
                await model.aclose()

    return run(ask)


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_document_is_sent_as_each_vendor_takes_it():
    content = body_of(Anthropic(), asked(DOCUMENT))["messages"][0]["content"]
    source = {"type": "base64", "media_type": "application/pdf", "data": DATA}
    assert {key: content[1][key] for key in ("type", "title", "source")} == {
        "type": "document",
        "title": "a.pdf",
        "source": source,
    }
    held = f"data:application/pdf;base64,{DATA}"
    part = body_of(Chat(), asked(DOCUMENT))["messages"][0]["content"][1]
    assert part == {"type": "file", "file": {"filename": "a.pdf", "file_data": held}}
    part = body_of(Responses(), asked(DOCUMENT))["input"][0]["content"][1]
    assert part == {"type": "input_file", "filename": "a.pdf", "file_data": held}
    part = body_of(Google(), asked(DOCUMENT))["contents"][0]["parts"][1]
    assert part == {"inlineData": {"mimeType": "application/pdf", "data": DATA}}


def test_a_document_may_be_an_address():
    far = FileBlock("application/pdf", url="https://example.org/a.pdf")
    content = body_of(Anthropic(), asked(far))["messages"][0]["content"]
    assert content[1]["source"] == {"type": "url", "url": "https://example.org/a.pdf"}
    part = body_of(Responses(), asked(far))["input"][0]["content"][1]
    assert part == {"type": "input_file", "file_url": "https://example.org/a.pdf"}
    part = body_of(Google(), asked(far))["contents"][0]["parts"][1]
    assert part == {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}}


def test_a_text_file_is_a_document_of_text_at_anthropic():
    content = body_of(Anthropic(), asked(FileBlock("text/csv", b"a,b\n1,2", name="t.csv")))["messages"][0]["content"]
    assert content[1]["source"] == {"type": "text", "media_type": "text/plain", "data": "a,b\n1,2"}


def test_sound_and_film_go_where_they_are_taken():
    part = body_of(Chat(), asked(SOUND))["messages"][0]["content"][1]
    assert part["input_audio"] == {"data": base64.b64encode(SOUND.data).decode(), "format": "wav"}
    parts = body_of(Google(), asked(SOUND, FILM))["contents"][0]["parts"]
    assert [part["inlineData"]["mimeType"] for part in parts[1:]] == ["audio/wav", "video/mp4"]


WORD = FileBlock("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK")
REFUSED = [
    (Anthropic(), SOUND, "Anthropic takes no audio"),
    (Anthropic(), FILM, "Anthropic takes no video"),
    (Anthropic(), WORD, "Anthropic takes no document with media_type"),
    (Responses(), SOUND, "OpenAI Responses takes no audio"),
    (Responses(), FILM, "OpenAI Responses takes no video"),
    (Google(), WORD, "Gemini takes no document with media_type"),
    (Google(), FileBlock("application/zip", b"PK"), "Gemini takes no file"),
    (Chat(), FileBlock("audio/ogg", b"x"), "takes no audio with media_type"),
    (Chat(), FileBlock("audio/wav", url="https://example.org/a.wav"), "takes no audio by url"),
    (Google(), FileBlock("application/pdf"), "needs data or a url"),
]


@pytest.mark.parametrize(("dialect", "block", "said"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_kind_that_a_vendor_does_not_take_is_refused_before_the_call(dialect, block, said):
    model = dialect.model("http://127.0.0.1:1")
    with pytest.raises(RejectedError, match=said):
        model.stream(asked(block))


@pytest.mark.parametrize("host", ["groq", "deepseek", "xai", "ollama", "lmstudio"])
def test_a_host_without_files_says_so(host):
    with pytest.raises(RejectedError, match=f"{host} takes no document"):
        OpenAIChatModel("m", host=host, api_key=KEY).stream(asked(DOCUMENT))


@every
@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "/etc/passwd", "data:application/pdf;base64,eA==", "ftp://e.org/a"]
)
@pytest.mark.parametrize("kind", ["file", "image"])
def test_an_address_on_a_disk_is_not_sent_to_be_fetched(dialect, url, kind):
    block = FileBlock("application/pdf", url=url) if kind == "file" else ImageBlock("image/png", url=url)
    with pytest.raises(RejectedError, match=r"https:// or http://|takes no document by url"):
        dialect.model("http://127.0.0.1:1").stream(asked(block))


def test_gemini_fetches_from_googles_storage():
    body = body_of(Google(), asked(FileBlock("application/pdf", url="gs://bucket/a.pdf")))
    assert body["contents"][0]["parts"][1]["fileData"]["fileUri"] == "gs://bucket/a.pdf"


@pytest.mark.parametrize("block", [DOCUMENT, ImageBlock("image/png", url="https://example.org/a.png")])
def test_bedrock_takes_no_address(block):
    far = FileBlock("application/pdf", url="https://example.org/a.pdf") if isinstance(block, FileBlock) else block
    model = AnthropicModel("anthropic.claude-sonnet-4-5", host="bedrock", api_key=KEY, base_url="http://x")
    with pytest.raises(RejectedError, match=r"Bedrock takes no (document|image) by url"):
        model.stream(asked(far))


def test_a_file_in_a_result_reaches_every_vendor():
    history = [
        UserMessage("hi"),
        AssistantMessage((ToolCall("t1", "search", {"q": "a"}),)),
        ToolResultMessage("t1", "search", (TextBlock("here"), DOCUMENT)),
    ]
    request = ModelRequest(messages=history, tools=(SPEC,))
    result = body_of(Anthropic(), request)["messages"][2]["content"][0]
    assert [block["type"] for block in result["content"]] == ["text", "document"]
    assert body_of(Responses(), request)["input"][2]["output"][1]["type"] == "input_file"
    messages = body_of(Chat(), request)["messages"]
    assert [message["role"] for message in messages[-2:]] == ["tool", "user"]
    assert messages[-1]["content"][1]["type"] == "file"
    assert body_of(Google(), request)["contents"][2]["parts"][-1]["inlineData"]["data"] == DATA


@every
def test_a_file_in_a_result_that_a_vendor_does_not_take_is_told_to_the_model(dialect):
    """The tool has run: the model must be able to go on."""
    history = [
        UserMessage("hi"),
        AssistantMessage((ToolCall("t1", "search", {"q": "a"}),)),
        ToolResultMessage("t1", "search", (TextBlock("here"), FileBlock("application/zip", b"PK", name="a.zip"))),
    ]
    body = body_of(dialect, ModelRequest(messages=history, tools=(SPEC,)))
    assert "the file 'a.zip' was left out" in json.dumps(body)


@every
def test_a_picture_of_a_tool_that_cannot_be_fetched_is_told_and_the_run_goes_on(dialect):
    far = ImageBlock("image/png", url="file:///tmp/a.png")
    call_ = AssistantMessage((ToolCall("c", "search", {"q": "a"}),))
    result = ToolResultMessage("c", "search", (TextBlock("Look:"), far))
    body = body_of(dialect, ModelRequest(messages=[UserMessage("hi"), call_, result]))
    assert "the image was left out" in json.dumps(body)
    assert "UEs" not in json.dumps(body)


def test_openai_chat_takes_no_file_by_address_but_a_picture():
    model = OpenAIChatModel("gpt-4o", api_key=KEY)
    with pytest.raises(RejectedError, match="OpenAI chat completions takes no document by url"):
        model.stream(asked(FileBlock("application/pdf", url="https://example.org/a.pdf")))
    assert model._body(asked(ImageBlock("image/png", url="https://example.org/a.png")))


def test_a_file_is_read_from_a_path(tmp_path):
    (tmp_path / "a.pdf").write_bytes(PDF)
    (tmp_path / "notes.md").write_text("# Notes")
    assert FileBlock.read(tmp_path / "a.pdf") == DOCUMENT
    assert FileBlock.read(str(tmp_path / "notes.md")).media_type == "text/markdown"
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(ConfigurationError, match="use an ImageBlock"):
        FileBlock.read(tmp_path / "a.png")
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="media_type="):
        FileBlock.read(tmp_path / "a.bin")
    assert FileBlock.read(tmp_path / "a.bin", "text/plain").kind == "document"


@given(
    st.binary(max_size=40),
    st.sampled_from(["application/pdf", "audio/wav", "video/mp4", "text/csv"]),
    st.none() | st.text(),
)
def test_a_file_survives_the_journal(data, media, name):
    if name is not None:
        name = name.encode("utf-8", "ignore").decode()
    for message in (
        UserMessage((FileBlock(media, data, name=name), TextBlock("x"))),
        ToolResultMessage("a", "b", (FileBlock(media, url="https://example.org/x"),)),
    ):
        assert codec.decode(codec.encode(message)) == message


def test_files_that_cannot_be_sent_are_refused_with_the_name_of_the_setting():
    agent = Agent(model=ScriptedModel([]), limits=LIMITS, max_file_bytes=10)
    with pytest.raises(ConfigurationError, match=rf"{len(PDF)} bytes, more than max_file_bytes=10"):
        agent.run_sync(UserMessage((DOCUMENT,)))
    for media in ("application/zip", "nonsense", "image/png", ""):
        with pytest.raises(ConfigurationError, match="media_type"):
            agent.run_sync(UserMessage((FileBlock(media, b"x"),)))
    with pytest.raises(ConfigurationError, match="data or a url"):
        agent.run_sync(UserMessage((FileBlock("application/pdf"),)))
    many = Agent(model=ScriptedModel([]), limits=LIMITS, max_image_bytes_per_request=100)
    with pytest.raises(ConfigurationError, match="max_image_bytes_per_request=100"):
        many.run_sync(UserMessage((DOCUMENT, DOCUMENT)))


def test_a_result_with_a_file_that_is_too_large_tells_the_model():
    @tool
    def fetch() -> list:
        """Fetch."""
        return [TextBlock("here:"), DOCUMENT]

    model = ScriptedModel([call("fetch"), "done"])
    result = Agent(model=model, tools=[fetch], limits=LIMITS, max_file_bytes=10).run_sync("go")
    assert result.outcome is LoopOutcome.DONE
    assert f"its {len(PDF)} bytes are more than max_file_bytes=10" in result.messages[2].text
    model = ScriptedModel([call("fetch"), "done"])
    result = Agent(model=model, tools=[fetch], limits=LIMITS).run_sync("go")
    assert result.messages[2].content[1] == DOCUMENT


def test_files_are_counted_before_the_call_rather_too_large():
    assert count_pages(PDF) == 2
    packed = zlib.compress(b"<< /Type /Page >> " * 7)
    modern = b"%PDF-1.7\n5 0 obj << /Type /ObjStm /N 7 /Filter /FlateDecode >> stream\n" + packed + b"\nendstream"
    assert count_pages(modern) == 7
    assert count_pages(b"%PDF" + b"x" * 8_000) == 3, "what cannot be counted is taken for many pages"
    assert file_tokens(DOCUMENT) > 2 * 4_600
    assert file_tokens(FileBlock("application/pdf", url="https://example.org/a")) == 50_000
    wav = b"RIFF" + b"\0" * 4 + b"WAVE" + b"\0" * 16 + (32_000).to_bytes(4, "little") + b"\0" * 64_000
    assert 3 * 32 <= file_tokens(FileBlock("audio/wav", wav)) <= 500
    assert file_tokens(FileBlock("audio/mpeg", b"x" * 200_000)) >= 3_200
    assert file_tokens(FileBlock("video/mp4", b"x" * 125_000)) >= 3_000
    assert file_tokens(FileBlock("text/plain", b"word " * 3_000)) >= 3_000


@given(st.binary(max_size=300))
def test_no_file_breaks_the_count(data):
    for media in ("application/pdf", "audio/wav", "video/mp4", "text/plain"):
        assert file_tokens(FileBlock(media, data)) > 0
        assert file_tokens(FileBlock(media, b"%PDF" + data)) > 0


# --- the providers' own tools, and citations ------------------------------------------------------------------------

CITATION = {
    "type": "web_search_result_location",
    "url": "https://e.org",
    "title": "E",
    "cited_text": "blue",
    "encrypted_index": "x==",
}


def replies(dialect, chunks):
    """The message of a reply, and what the next request sends of it."""

    async def ask():
        async with Wire([Answer(chunks), Answer([*dialect.text("ok"), *dialect.end()])]) as wire:
            model = dialect.model(wire.url)
            agent = Agent(model=model, limits=Limits(max_iterations=3))
            first = await agent.run("What color?")
            history = [*first.messages, UserMessage("And now?")]
            await agent.run(history)
            await model.aclose()
            return first, wire.requests[1].body

    return run(ask)


def test_anthropics_server_tools_and_citations_come_back_as_they_came():
    dialect = Anthropic()
    use = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srv_1",
        "content": [{"type": "web_search_result", "encrypted_content": "E"}],
    }
    mcp = {"type": "mcp_tool_use", "id": "m", "name": "x", "server_name": "s", "input": {}}
    chunks = [
        *dialect.start(),
        *dialect.block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Searching. "}),
        *dialect.block(
            1,
            use,
            {"type": "input_json_delta", "partial_json": '{"query":'},
            {"type": "input_json_delta", "partial_json": '"sky"}'},
        ),
        *dialect.block(2, found),
        *dialect.block(3, mcp),
        *dialect.block(4, {"type": "text", "text": ""}, {"type": "text_delta", "text": "The sky is "}),
        *dialect.block(
            5,
            {"type": "text", "text": "", "citations": []},
            {"type": "citations_delta", "citation": CITATION},
            {"type": "text_delta", "text": "blue"},
        ),
        *dialect.block(6, {"type": "text", "text": ""}, {"type": "text_delta", "text": "."}),
        *dialect.end(),
    ]
    result, body = replies(dialect, chunks)
    assert result.text == "Searching. The sky is blue."
    [cited] = result.messages[-1].citations
    assert (cited.url, cited.title, cited.quote) == ("https://e.org", "E", "blue")
    assert result.text[cited.start : cited.end] == "blue"
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "Searching. "},
        {**use, "input": {"query": "sky"}},
        found,
        mcp,
        {"type": "text", "text": "The sky is "},
        {"type": "text", "text": "blue", "citations": [CITATION]},
        {"type": "text", "text": "."},
    ]
    assert codec.decode(codec.encode(result.messages[-1])).citations == result.messages[-1].citations


def test_server_tools_of_responses_come_back_as_they_came():
    dialect = Responses()
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "sky"},
    }
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"}
    note = {"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 4, "end_index": 8}
    part = {"type": "output_text", "text": "The blue sky.", "annotations": [note]}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
    chunks = [
        dialect.say("response.output_item.done", output_index=0, item=thought),
        dialect.say("response.output_item.done", output_index=1, item=search),
        dialect.say("response.output_text.delta", output_index=2, delta="The blue sky."),
        dialect.say("response.output_item.done", output_index=2, item=message),
        *dialect.end(),
    ]
    result, body = replies(dialect, chunks)
    assert result.text == "The blue sky."
    [cited] = result.messages[-1].citations
    assert (cited.url, result.text[cited.start : cited.end]) == ("https://e.org", "blue")
    assert body["input"][1:4] == [thought, search, {"role": "assistant", "content": "The blue sky."}]


def test_a_reply_of_nothing_but_a_server_tool_is_no_empty_one():
    dialect = Responses()
    item = {"type": "tool_search_call", "id": "ts_1", "status": "completed"}
    deltas = heard(dialect, dialect.say("response.output_item.done", output_index=0, item=item), *dialect.end())
    assert [type(delta) for delta in deltas] == [ReasoningDelta, StreamEnd]


def test_geminis_code_and_sources_come_back_as_they_came():
    dialect = Google()
    code = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
    ran = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://e.org", "title": "E"}}, {"web": {"uri": "https://f.org"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 0, "endIndex": 3, "text": "One"}, "groundingChunkIndices": [0]}
        ],
    }
    chunks = [
        dialect.chunk(code),
        dialect.chunk(ran),
        dialect.chunk({"text": "One."}, groundingMetadata=grounding),
        *dialect.end(),
    ]
    result, body = replies(dialect, chunks)
    assert result.text == "One."
    assert [(one.url, one.quote, one.start, one.end) for one in result.messages[-1].citations] == [
        ("https://e.org", "One", 0, 3),
        ("https://f.org", "", None, None),
    ]
    assert body["contents"][1]["parts"] == [code, ran, {"text": "One."}]


@pytest.mark.parametrize(
    ("segment", "place"),
    [
        ({"startIndex": 9, "endIndex": 15, "text": "blüht"}, (6, 11)),  # in bytes, as Google counts
        ({"endIndex": 9, "text": "Grün ☘"}, (0, 6)),
        ({"endIndex": 9, "text": "Grün ist"}, (None, None)),
        ({"partIndex": 1, "startIndex": 0, "endIndex": 4, "text": "sehr"}, (12, 16)),  # in a part of its own
        ({"startIndex": 0, "endIndex": 1, "text": "e"}, (None, None)),  # nobody knows which one
        ({"startIndex": 0, "endIndex": 4}, (None, None)),
    ],
    ids=["bytes", "first", "not there", "another part", "ambiguous", "no text"],
)
def test_geminis_citations_have_their_place_in_the_text(segment, place):
    dialect = Google()
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://e.org"}}],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}],
    }
    chunks = [
        dialect.chunk({"text": "Hm.", "thought": True}),
        dialect.chunk({"text": "Grün ☘"}),
        dialect.chunk({"text": "blüht sehr gern."}, groundingMetadata=grounding),
        *dialect.end(),
    ]
    result, _ = replies(dialect, chunks)
    [cited] = result.messages[-1].citations
    assert (cited.start, cited.end) == place
    if place[0] is not None:
        assert result.text[cited.start : cited.end] == segment["text"]


def test_annotations_of_chat_completions_are_citations():
    dialect = Chat()
    note = {
        "type": "url_citation",
        "url_citation": {"url": "https://e.org", "title": "E", "content": "c", "start_index": 0, "end_index": 3},
    }
    result, body = replies(dialect, [*dialect.text("Yes."), dialect.chunk({"annotations": [note]}), *dialect.end()])
    [cited] = result.messages[-1].citations
    assert (cited.url, cited.quote, cited.start, cited.end) == ("https://e.org", "c", 0, 3)
    assert body["messages"][1] == {"role": "assistant", "content": "Yes."}


@every
def test_tools_in_extras_add_to_ours(dialect):
    own = {"googleSearch": {}} if dialect.name == "google" else {"type": "web_search_20250305", "name": "web_search"}
    request = ModelRequest(messages=[UserMessage("hi")], tools=(SPEC,), extras={"tools": [own]})
    tools = body_of(dialect, request)["tools"]
    assert len(tools) == 2
    assert "search" in json.dumps(tools[0])
    assert tools[1] == own
    alone = body_of(dialect, ModelRequest(messages=[UserMessage("hi")], extras={"tools": [own]}))
    assert alone["tools"] == [own]
    assert "tools" not in body_of(
        dialect, ModelRequest(messages=[UserMessage("hi")], tools=(SPEC,), extras={"tools": None})
    )


# --- typed settings -------------------------------------------------------------------------------------------------


def settings(**fields):
    return ModelRequest(messages=[UserMessage("hi")], **fields)


def test_stop_sequences_and_seeds_are_sent_in_each_vendors_words():
    assert body_of(Anthropic(), settings(stop_sequences=("END",)))["stop_sequences"] == ["END"]
    body = body_of(Chat(), settings(stop_sequences=("END",), seed=7))
    assert (body["stop"], body["seed"]) == (["END"], 7)
    body = body_of(Google(), settings(stop_sequences=("END",), seed=7))
    assert body["generationConfig"] == {"stopSequences": ["END"], "seed": 7}


@pytest.mark.parametrize(
    ("dialect", "fields", "named"),
    [
        (Responses(), {"stop_sequences": ("END",)}, "stop_sequences"),
        (Responses(), {"seed": 1}, "seed"),
        (Anthropic(), {"seed": 1}, "seed"),
        (Anthropic(), {"stop_sequences": (" ",)}, "stop_sequences"),
        (Google(), {"stop_sequences": tuple("abcdef")}, "at most 5 stop_sequences"),
    ],
)
def test_a_setting_that_a_vendor_does_not_have_is_refused_before_the_call(dialect, fields, named):
    with pytest.raises(RejectedError, match=named):
        dialect.model("http://127.0.0.1:1").stream(settings(**fields))


def test_models_that_refuse_stop_sequences_are_not_sent_any():
    for host, name in (("openai-chat", "gpt-5"), ("openai-chat", "o3"), ("xai", "grok-4")):
        with pytest.raises(RejectedError, match="stop_sequences"):
            OpenAIChatModel(name, host=host, api_key=KEY).stream(settings(stop_sequences=("END",)))
    with pytest.raises(RejectedError, match="at most 4 stop_sequences"):
        OpenAIChatModel("gpt-4o", api_key=KEY).stream(settings(stop_sequences=tuple("abcde")))
    assert OpenAIChatModel("gpt-4o", api_key=KEY)._body(settings(stop_sequences=("END",)))["stop"] == ["END"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": True}, "seed"),
        ({"seed": 1 << 63}, "seed"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": ("",)}, r"stop_sequences\[0\] is empty"),
        ({"stop_sequences": (7,)}, "stop_sequences"),
        ({"strict_tools": 1}, "strict_tools"),
        ({"max_file_bytes": 0}, "max_file_bytes"),
        ({"max_file_bytes": None}, "max_file_bytes"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(fields, said):
    with pytest.raises(ConfigurationError, match=said):
        Agent(model=ScriptedModel([]), limits=LIMITS, **fields)


def test_settings_of_an_agent_reach_its_requests():
    asked = []

    class Listening(ScriptedModel):
        def stream(self, request):
            asked.append((request.stop_sequences, request.seed, request.strict_tools))
            return super().stream(request)

    agent = Agent(model=Listening(["done"]), limits=LIMITS, stop_sequences=["END"], seed=3, strict_tools=True)
    agent.run_sync("go")
    assert asked == [(("END",), 3, True)]


def test_strict_tools_are_closed_where_they_can_be():
    loose = ToolSpec("store", "Store.", {"type": "object", "properties": {"m": {"type": "object"}}})
    request = settings(tools=(SPEC, loose), strict_tools=True)
    closed = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["q", "n"],
        "additionalProperties": False,
    }
    tools = body_of(Responses(), request)["tools"]
    assert [one["strict"] for one in tools] == [True, False]
    assert tools[0]["parameters"] == closed
    tools = body_of(Chat(), request)["tools"]
    assert [one["function"].get("strict") for one in tools] == [True, None]
    tools = body_of(Anthropic(), request)["tools"]
    assert [one.get("strict") for one in tools] == [True, None]
    assert tools[0]["input_schema"] == closed
    assert tools[1]["input_schema"] == loose.parameters


@pytest.mark.parametrize("strict_tools", [False, True])
def test_a_tool_decides_for_itself_whether_the_model_is_held_to_its_schema(strict_tools):
    named = [("follows", None), ("held", True), ("free", False)]
    specs = tuple(ToolSpec(name, "", SPEC.parameters, strict=said) for name, said in named)
    request = settings(tools=specs, strict_tools=strict_tools)
    expected = [strict_tools, True, False]
    assert [one["strict"] for one in body_of(Responses(), request)["tools"]] == expected
    assert ["strict" in one["function"] for one in body_of(Chat(), request)["tools"]] == expected
    assert ["strict" in one for one in body_of(Anthropic(), request)["tools"]] == expected


def test_the_mark_of_a_tool_reaches_the_request():
    asked_for = []

    class Listening(ScriptedModel):
        def stream(self, request):
            asked_for.extend([(one.name, one.strict) for one in request.defined_tools])
            return super().stream(request)

    @tool(strict=True)
    async def held(q: str) -> str:
        return q

    @tool
    async def plain(q: str) -> str:
        return q

    Agent(model=Listening(["done"]), tools=[held, plain], limits=LIMITS).run_sync("go")
    assert asked_for == [("held", True), ("plain", None)]
    with pytest.raises(ConfigurationError, match="strict: expected True, False, or None"):
        tool(strict="yes")


# --- what the provider says about a reply ---------------------------------------------------------------------------


def info(deltas):
    return deltas[-1].info


def test_the_end_of_a_stream_tells_what_the_provider_said_about_it():
    chat = Chat()
    first = event(
        {
            "id": "chatcmpl-1",
            "model": "gpt-4o-2024-08-06",
            "service_tier": "default",
            "choices": [{"delta": {"content": "x"}}],
        }
    )
    assert info(heard(chat, first, *chat.end(), x_request_id="req_1")) == ReplyInfo(
        "chatcmpl-1", "req_1", "gpt-4o-2024-08-06", "default"
    )
    responses = Responses()
    done = responses.say(
        "response.completed",
        response={"id": "resp_1", "status": "completed", "model": "gpt-5-2025", "service_tier": "flex"},
    )
    assert info(heard(responses, *responses.text("x"), done)) == ReplyInfo("resp_1", "", "gpt-5-2025", "flex")
    anthropic = Anthropic()
    begun = anthropic.say(
        "message_start",
        message={"id": "msg_1", "model": "claude-x", "usage": {"input_tokens": 1, "service_tier": "standard"}},
    )
    delta = {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    ended = [anthropic.say("message_delta", delta=delta, usage={"output_tokens": 1}), anthropic.say("message_stop")]
    text = anthropic.block(0, {"type": "text", "text": "x"})
    found = info(heard(anthropic, begun, *text, *ended, request_id="req_2"))
    assert found == ReplyInfo("msg_1", "req_2", "claude-x", "standard", "END")
    google = Google()
    chunk = event(
        {"candidates": [{"content": {"parts": [{"text": "x"}]}}], "responseId": "r1", "modelVersion": "gemini-3-001"}
    )
    assert info(heard(google, chunk, *google.end())) == ReplyInfo("r1", "", "gemini-3-001")


def test_a_reply_keeps_what_was_said_about_it_and_so_do_journal_and_events():
    dialect = Anthropic()
    result, _ = replies(dialect, [*dialect.text("x"), *dialect.end()])
    message = result.messages[-1]
    assert message.info == ReplyInfo("m")
    assert codec.decode(codec.encode(message)) == message
    assert "ReplyInfo" in repr(message)
    assert "info" not in repr(AssistantMessage((TextBlock("x"),)))
