"""History in and out: what is written is what the adapters send, and reading it back gives the messages again."""

from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

from glidepath.errors import ConfigurationError
from glidepath.messages import (
    AssistantMessage,
    FileBlock,
    ImageBlock,
    ReasoningBlock,
    StopReason,
    SystemMessage,
    TextBlock,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from glidepath.models import ModelRequest
from glidepath.models.formats.read_anthropic import from_anthropic
from glidepath.models.formats.read_gemini import from_gemini
from glidepath.models.formats.read_openai import from_openai_chat, from_openai_responses
from glidepath.models.history import to_anthropic, to_gemini, to_openai_chat, to_openai_responses

from .dialects import DIALECTS

FORMATS = {
    "openai-chat": (to_openai_chat, from_openai_chat),
    "openai-responses": (to_openai_responses, from_openai_responses),
    "anthropic": (to_anthropic, from_anthropic),
    "google": (to_gemini, from_gemini),
}
every = pytest.mark.parametrize("name", FORMATS)

words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)
names = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
data = st.binary(min_size=1, max_size=8)
pictures = st.builds(ImageBlock, st.just("image/png"), data)
documents = st.builds(FileBlock, st.just("application/pdf"), data, st.none(), st.just("a.pdf"))
arguments = st.dictionaries(
    words, st.none() | st.booleans() | st.integers(-9, 9) | words | st.lists(words, max_size=2), max_size=3
)


@st.composite
def transcripts(draw, *, attached=True):
    """Turns as a run writes them: a person, replies with calls and their results, an answer."""
    made, number = [], 0
    if draw(st.booleans()):
        made.append(SystemMessage(draw(words)))
    for _ in range(draw(st.integers(1, 3))):
        blocks = [TextBlock(draw(words)), *draw(st.lists(pictures | documents, max_size=2))]
        made.append(UserMessage(tuple(blocks) if attached and len(blocks) > 1 else blocks[0].text))
        for _ in range(draw(st.integers(0, 2))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                calls.append(ToolCall(f"id{number}", draw(names), draw(arguments)))
            said = (TextBlock(draw(words)),) if draw(st.booleans()) else ()
            made.append(AssistantMessage((*said, *calls), StopReason.TOOL_USE))
            made += [ToolResultMessage(one.id, one.name, draw(words)) for one in calls]
        made.append(AssistantMessage((TextBlock(draw(words)),)))
    return made


def without_names(messages):
    """Gemini gives a file no name."""
    plain = []
    for message in messages:
        if isinstance(message, UserMessage) and isinstance(message.content, tuple):
            blocks = [FileBlock(b.media_type, b.data) if isinstance(b, FileBlock) else b for b in message.content]
            message = UserMessage(tuple(blocks))  # noqa: PLW2901
        plain.append(message)
    return plain


@every
@settings(max_examples=50, deadline=None)
@given(transcripts())
def test_a_transcript_survives_the_way_out_and_in(name, transcript):
    write, read = FORMATS[name]
    expected = without_names(transcript) if name == "google" else transcript
    assert read(write(transcript)) == expected


@every
@settings(max_examples=50, deadline=None)
@given(transcripts())
def test_what_was_read_is_written_as_it_was(name, transcript):
    write, read = FORMATS[name]
    written = write(without_names(transcript))
    assert write(read(written)) == written


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@settings(max_examples=50, deadline=None)
@given(transcripts())
def test_the_adapters_send_what_is_written_here(dialect, transcript):
    write, _ = FORMATS[dialect.name]
    plain = [message for message in transcript if not isinstance(message, SystemMessage)]
    model = _model(dialect)
    body, written = model._body(ModelRequest(messages=plain)), write(plain)
    if dialect.name == "anthropic":
        model._mark = None
        assert model._body(ModelRequest(messages=plain))["messages"] == written["messages"]
    elif dialect.name == "google":
        for turn in body["contents"]:
            for part in turn["parts"]:
                part.pop("thoughtSignature", None)
        assert body["contents"] == written["contents"]
    else:
        assert body["input" if dialect.name == "openai-responses" else "messages"] == written


@cache
def _model(dialect):
    return dialect.model("http://127.0.0.1:1")


def test_reasoning_and_server_items_survive():
    items = [
        {"type": "reasoning", "id": "rs", "encrypted_content": "E", "summary": []},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"role": "assistant", "content": "Blue."},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
    ]
    assert to_openai_responses(from_openai_responses(items)) == items
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "text", "text": "Look: "},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "blue", "citations": [{"type": "char_location", "cited_text": "b"}]},
        {"type": "tool_use", "id": "t", "name": "look", "input": {}},
    ]
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "no"}], "is_error": True}
    history = {
        "system": "Be brief.",
        "messages": [{"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}],
    }
    assert to_anthropic(from_anthropic(history)) == history
    contents = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {
            "role": "model",
            "parts": [
                {"executableCode": {"code": "1"}},
                {"text": "a", "thoughtSignature": "QQ=="},
                {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "Qg=="},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"error": "no"}}}]},
    ]
    assert to_gemini(from_gemini(contents)) == {"contents": contents}
    chat = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "reasoning_content": "hm",
        },
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]
    assert to_openai_chat(from_openai_chat(chat)) == chat


def test_histories_of_other_programs_are_read():
    read = from_openai_chat(
        [
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "not json"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "ok"}]},
        ]
    )
    assert read[0] == SystemMessage("Be brief.")
    assert read[1].content == (ImageBlock("image/png", url="https://e.org/a.png"),)
    assert read[2].tool_calls[0].malformed == "not json"
    assert read[3] == ToolResultMessage("c", "f", "ok")
    parts = [{"functionCall": {"name": "f", "args": {}}}, {"functionCall": {"name": "f", "args": {}}}]
    answers = [{"functionResponse": {"name": "f", "response": {"sum": n}}} for n in (1, 2)]
    read = from_gemini([{"role": "model", "parts": parts}, {"role": "user", "parts": answers}])
    assert [result.call_id for result in read[1:]] == [call.id for call in read[0].tool_calls]
    assert [result.text for result in read[1:]] == ['{"sum":1}', '{"sum":2}']


def test_a_malformed_call_does_not_stop_a_history():
    reply = AssistantMessage((ToolCall("c", "f", {}, "{broken"),), StopReason.TOOL_USE)
    for write, _ in FORMATS.values():
        assert write([UserMessage("hi"), reply])


@pytest.mark.parametrize(
    ("read", "history", "said"),
    [
        (from_openai_chat, "hi", "takes a list"),
        (from_openai_chat, [7], "message 0"),
        (from_openai_chat, [{"role": "user", "content": "a"}, {"role": "wizard"}], "message 1.*wizard"),
        (from_openai_chat, [{"role": "user", "content": [{"type": "hologram"}]}], "hologram"),
        (from_openai_responses, [{"type": "message", "role": "x", "content": ""}], "role 'x'"),
        (from_openai_responses, [{"type": "function_call_output"}], "message 0"),
        (from_anthropic, [{"role": "user"}], "message 0"),
        (from_anthropic, [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}], "image"),
        (from_gemini, [{"role": "user"}], "message 0"),
        (from_gemini, [{"role": "user", "parts": [{"odd": 1}]}], "odd"),
    ],
)
def test_what_cannot_be_read_is_named(read, history, said):
    with pytest.raises(ConfigurationError, match=said):
        read(history)


def test_opaque_items_of_another_vendor_are_not_written():
    reply = AssistantMessage(
        (ReasoningBlock(opaque='{"at":[0,0],"item":{"type":"secret"}}', vendor="x"), TextBlock("a"))
    )
    for write, _ in FORMATS.values():
        assert "secret" not in str(write([UserMessage("hi"), reply]))


def test_files_as_mistral_writes_them_are_read():
    parts = [
        {"type": "document_url", "document_url": "https://e.org/a.pdf"},
        {"type": "document_url", "document_url": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_audio", "input_audio": "SUQz"},
        {"type": "input_audio", "input_audio": "https://e.org/a.mp3"},
    ]
    [message] = from_openai_chat([{"role": "user", "content": parts}])
    assert message.content == (
        FileBlock("application/pdf", url="https://e.org/a.pdf"),
        FileBlock("application/pdf", b"%PDF"),
        FileBlock("audio/mpeg", b"ID3"),
        FileBlock("audio/mpeg", url="https://e.org/a.mp3"),
    )


def test_the_module_offers_all_its_names():
    from glidepath.models import history

    here = {name for name in vars(history) if name.startswith(("from_", "to_"))}
    assert here == set(history.__all__)
    assert len(here) == 8
