"""Everything that a reply may hold besides text and calls, in each dialect."""

import json

import pytest

from .sdks import asked
from .streams import SPEAKERS, TEXT, open_reader, sse
from .test_endings import NOTE, sent

CLAUDE, CHAT, RESPONSES, GEMINI = SPEAKERS


def assembled(speaker, frames, **how):
    reader = open_reader(speaker, stream=False, **how)
    for frame in frames:
        reader.feed(frame)
    return json.loads(reader.assemble()), reader


# --- Anthropic ------------------------------------------------------------------------------------------------


def test_blocks_of_every_kind_are_assembled():
    claude = CLAUDE()
    citation = {"type": "char_location", "cited_text": "x", "document_index": 0}
    use = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "web_search_result"}]}
    frames = [
        *claude.begin(),
        *claude.block(0, {"type": "redacted_thinking", "data": "abc"}),
        *claude.thought(1),
        *claude.block(2, use, *[{"type": "input_json_delta", "partial_json": part} for part in ('{"query":', ' "x"}')]),
        *claude.block(3, found),
        *claude.block(
            4,
            {"type": "text", "text": "", "citations": None},
            {"type": "citations_delta", "citation": citation},
            {"type": "text_delta", "text": "see"},
        ),
        *claude.block(5, {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "short"}),
        *claude.block(6, {"type": "hologram", "light": "a"}, {"type": "hologram_delta", "light": "b", "color": [1]}),
        sse(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None, "container": {"id": "cntr_1"}},
                "usage": {"output_tokens": 9, "server_tool_use": {"web_search_requests": 2}},
                "context_management": {"applied_edits": []},
            },
            "message_delta",
        ),
        claude.say("message_stop"),
    ]
    whole, reader = assembled(claude, frames)
    assert whole["content"] == [
        {"type": "redacted_thinking", "data": "abc"},
        {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
        {**use, "input": {"query": "x"}},
        found,
        {"type": "text", "text": "see", "citations": [citation]},
        {"type": "compaction", "content": "short"},
        {"type": "hologram", "light": "ab", "color": [1]},
    ]
    assert whole["usage"]["input_tokens"] == 32
    assert whole["usage"]["output_tokens"] == 9
    assert whole["container"] == {"id": "cntr_1"}
    assert whole["context_management"] == {"applied_edits": []}
    assert reader.info.web_searches == 2
    assert reader.calls == []
    assert assembled(claude, frames, hide_calls=True)[1].text == "see"


def test_arguments_that_are_not_json_stay_text():
    claude = CLAUDE()
    block = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    frames = [
        *claude.begin(),
        *claude.block(0, block, {"type": "input_json_delta", "partial_json": '{"path": "/'}),
        *claude.end("max_tokens"),
    ]
    whole, _ = assembled(claude, frames)
    assert whole["content"][0]["input"] == '{"path": "/'


def test_a_thought_that_is_cut_is_dropped_when_it_comes_back():
    """It has no signature, and the provider would refuse the whole request."""
    from glidepath.apps.gate.dialects import DIALECTS

    claude = CLAUDE()
    reader = open_reader(claude)
    out = b"".join([reader.feed(frame) for frame in [*claude.begin(), *claude.thought()[:2]]]) + reader.cut(NOTE)
    message = asked(claude, sent(out)).raw
    turn = {"role": "assistant", "content": [block.model_dump() for block in message.content]}
    body = claude.body(messages=[{"role": "user", "content": "hi"}, turn, {"role": "user", "content": "go"}])
    legal = DIALECTS["anthropic"].legalize(body, {reader.client_text.strip()}.__contains__)
    assert [block["type"] for block in legal["messages"][1]["content"]] == ["text"]


# --- chat -----------------------------------------------------------------------------------------------------


def chunk(choices, **more):
    return sse({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more})


def two_choices():
    frames = [
        chunk([{"index": one, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]) for one in (0, 1)
    ]
    for piece in TEXT:
        frames += [chunk([{"index": one, "delta": {"content": piece}, "finish_reason": None}]) for one in (1, 0)]
    return frames


def test_several_choices_are_kept_apart():
    stops = [chunk([{"index": one, "delta": {}, "finish_reason": stop}]) for one, stop in ((1, "length"), (0, "stop"))]
    whole, reader = assembled(CHAT(), [*two_choices(), *stops, sse("[DONE]")])
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["".join(TEXT)] * 2
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "length"]
    assert reader.text == "".join(TEXT)
    assert reader.visible == 2 * len("".join(TEXT).encode())


def test_every_choice_is_ended_by_a_cut():
    reader = open_reader(CHAT(), body={**CHAT().body(stream=True), "n": 2})
    out = b"".join([reader.feed(frame) for frame in two_choices()]) + reader.cut(NOTE)
    stops = [json.loads(line[6:]) for line in out.decode().splitlines() if '"stop"' in line]
    assert sorted(one["choices"][0]["index"] for one in stops) == [0, 1]


def test_probabilities_refusals_and_notes_are_assembled():
    weights = [{"content": [{"token": word, "logprob": -0.1, "top_logprobs": []}], "refusal": None} for word in "ab"]
    frames = [
        chunk([{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]),
        *[chunk([{"index": 0, "delta": {"refusal": "No"}, "logprobs": one, "finish_reason": None}]) for one in weights],
        chunk([{"index": 0, "delta": {"annotations": [{"type": "url_citation"}]}, "finish_reason": None}]),
        chunk([{"index": 0, "delta": {}, "finish_reason": "stop", "content_filter_results": {"hate": {}}}]),
        chunk([], usage={"prompt_tokens": 1, "completion_tokens": 2}),
        sse("[DONE]"),
    ]
    whole, _ = assembled(CHAT(), frames)
    (choice,) = whole["choices"]
    assert choice["message"]["refusal"] == "NoNo"
    assert choice["message"]["annotations"] == [{"type": "url_citation"}]
    assert [one["token"] for one in choice["logprobs"]["content"]] == ["a", "b"]
    assert choice["content_filter_results"] == {"hate": {}}
    assert whole["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("hide", [False, True])
def test_calls_in_the_form_of_2023(hide):
    body = {**CHAT().body(stream=True), "tools": None, "functions": [{"name": "old"}]}
    pieces = [{"name": "old", "arguments": ""}, {"arguments": '{"a":'}, {"arguments": " 1}"}]
    frames = [chunk([{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}])]
    frames += [chunk([{"index": 0, "delta": {"function_call": one}, "finish_reason": None}]) for one in pieces]
    frames += [chunk([{"index": 0, "delta": {}, "finish_reason": "function_call"}]), sse("[DONE]")]
    reader = open_reader(CHAT(), body=body, hide_calls=hide)
    out = b"".join([reader.feed(frame) for frame in frames])
    assert [(call.name, call.arguments) for call in reader.calls] == [("old", '{"a": 1}')]
    out += reader.finish("Done.")
    assert (b"old" in out) is not hide
    if hide:
        assert asked(CHAT(), sent(out)).stop == "stop"
    else:
        assert out == b"".join(frames)
        whole, _ = assembled(CHAT(), frames)
        assert whole["choices"][0]["message"]["function_call"] == {"name": "old", "arguments": '{"a": 1}'}


def test_custom_tools_are_calls():
    piece = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Beg"}}
    more = {"index": 0, "custom": {"input": "in"}}
    frames = [
        *CHAT().begin(),
        CHAT.chunk({"tool_calls": [piece]}),
        CHAT.chunk({"tool_calls": [more]}),
        *CHAT().end("tool_calls"),
    ]
    whole, reader = assembled(CHAT(), frames)
    assert reader.calls[0].arguments == "*** Begin"
    made = whole["choices"][0]["message"]["tool_calls"]
    assert made == [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}]
    assert assembled(CHAT(), frames, hide_calls=True)[1].hidden_calls == 1


# --- Responses ------------------------------------------------------------------------------------------------

ITEMS = [
    ({"type": "custom_tool_call", "id": "ctc", "call_id": "c1", "name": "patch", "input": "x"}, True),
    (
        {"type": "local_shell_call", "id": "ls", "call_id": "c2", "action": {"command": ["ls"]}, "status": "completed"},
        True,
    ),
    ({"type": "shell_call", "id": "sh", "call_id": "c3", "action": {"commands": ["ls"]}}, True),
    ({"type": "apply_patch_call", "id": "ap", "call_id": "c4", "operation": {"type": "delete_file"}}, True),
    ({"type": "computer_call", "id": "cu", "call_id": "c5", "action": {"type": "click"}}, True),
    ({"type": "mcp_approval_request", "id": "mcpr", "name": "pay", "arguments": "{}", "server_label": "x"}, True),
    ({"type": "tool_search_call", "id": "ts", "call_id": "c6", "execution": "client", "arguments": {}}, True),
    ({"type": "teleport_call", "id": "tp", "call_id": "c7", "name": "away", "arguments": "{}"}, True),
    ({"type": "tool_search_call", "id": "ts", "execution": "server", "arguments": {}}, False),
    ({"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search"}}, False),
    ({"type": "mcp_call", "id": "mcp", "name": "ask", "arguments": "{}", "server_label": "x"}, False),
    ({"type": "code_interpreter_call", "id": "ci", "code": "1", "status": "completed"}, False),
    ({"type": "image_generation_call", "id": "ig", "status": "completed"}, False),
    ({"type": "compaction", "id": "cp", "encrypted_content": "x"}, False),
]


@pytest.mark.parametrize(("item", "is_call"), ITEMS, ids=[item["type"] for item, _ in ITEMS])
def test_items_that_a_client_would_run_are_calls(item, is_call):
    def frames():
        speaker = RESPONSES()
        start = speaker.begin()
        added = speaker.say("response.output_item.added", output_index=0, item=item)
        return [*start, *speaker.item(item, added), *speaker.said(), *speaker.end("completed")]

    reader = open_reader(RESPONSES())
    assert b"".join([reader.feed(frame) for frame in frames()]) == b"".join(frames())
    assert len(reader.calls) == is_call
    reader = open_reader(RESPONSES())
    begun = b"".join([reader.feed(frame) for frame in frames()[:3]])
    assert (item["type"].encode() in begun) is not is_call
    hidden = open_reader(RESPONSES(), hide_calls=True)
    out = b"".join([hidden.feed(frame) for frame in frames()]) + hidden.finish()
    assert (item["type"].encode() in out) is not is_call
    assert asked(RESPONSES(), sent(out)).text == "".join(TEXT)
    assert (hidden.info.web_searches == 1) is (item["type"] == "web_search_call")


def test_an_incomplete_response_stays_incomplete():
    speaker = RESPONSES()
    response = {**speaker.response("incomplete"), "incomplete_details": {"reason": "max_output_tokens"}}
    frames = [*speaker.begin(), speaker.say("response.incomplete", response=response)]
    reader = open_reader(RESPONSES())
    assert b"".join([reader.feed(frame) for frame in frames]) == b"".join(frames)
    assert (reader.stop, reader.is_complete) == ("max_output_tokens", True)


def test_reasoning_before_a_cut_is_dropped_when_it_comes_back():
    from glidepath.apps.gate.dialects import DIALECTS

    speaker = RESPONSES()
    reader = open_reader(speaker)
    frames = [*speaker.begin(), *speaker.thought(), *speaker.called(0)[:2]]
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.cut(NOTE)
    items = [item.model_dump(exclude_none=True) for item in asked(RESPONSES(), sent(out)).raw.output]
    assert [item["type"] for item in items] == ["reasoning", "message"]
    body = speaker.body(messages=[{"role": "user", "content": "hi"}, *items])
    legal = DIALECTS["openai-responses"].legalize(body, {reader.client_text.strip()}.__contains__)
    assert [item.get("role") for item in legal["input"]] == ["user", "assistant"]
    assert "id" not in legal["input"][1]


# --- Gemini ---------------------------------------------------------------------------------------------------


def test_parts_of_every_kind_are_assembled():
    gemini = GEMINI()
    parts = [
        {"text": "a"},
        {"text": "b", "thoughtSignature": "c2ln"},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
        {"inlineData": {"mimeType": "image/png", "data": "aa"}},
    ]
    frames = [*[gemini.chunk(part) for part in parts], gemini.chunk(finish="MAX_TOKENS")]
    whole, reader = assembled(gemini, frames)
    assert whole["candidates"][0]["content"]["parts"] == parts
    assert (reader.stop, reader.text) == ("MAX_TOKENS", "ab")


def test_searches_and_sounds_are_billed():
    gemini = GEMINI()
    event = json.loads(gemini.chunk({"text": "x"}, finish="STOP")[6:])
    event["candidates"][0]["groundingMetadata"] = {"webSearchQueries": ["a", "b"]}
    event["usageMetadata"]["promptTokensDetails"] = [{"modality": "AUDIO", "tokenCount": 30}]
    reader = open_reader(gemini)
    reader.feed(sse(event))
    assert reader.info.web_searches == 1
    assert reader.info.media.audio_input == 30


def test_a_blocked_prompt_is_a_complete_reply():
    frame = sse({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}})
    reader = open_reader(GEMINI())
    assert reader.feed(frame) is frame
    assert (reader.is_complete, reader.stop, reader.usage.input) == (True, "SAFETY", 4)
