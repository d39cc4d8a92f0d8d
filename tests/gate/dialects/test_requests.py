"""Requests: their facts, edits that leave the prefix alone, and odd ones."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from glidepath.apps.gate.dialects import DIALECTS, BadRequest, Notice, parse_body, write_body
from glidepath.guards import call_signature

from .streams import SPEAKERS, read

every = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)


def dialect_of(speaker):
    return DIALECTS[speaker.name]


def long_body(speaker, **more):
    return speaker().body(messages=speaker().history(), **more)


# --- facts ----------------------------------------------------------------------------------------------------


@every
def test_an_ordinary_request_has_its_facts(speaker):
    facts = read(speaker, long_body(speaker, stream=True))
    assert facts.model == speaker().body().get("model", "gemini-2.0-flash")
    assert facts.stream
    assert facts.messages == len(speaker().history())
    assert facts.tool_names == ("look", "send", "done")
    assert (facts.tool_choice, facts.copies, facts.server_tools, facts.media) == ("auto", 1, (), 0)
    assert (facts.hidden, facts.held_by_server, facts.refusal) == ("none", (), None)
    assert facts.first_text == "Fix the bug"
    assert facts.wants_usage
    assert not facts.wants_json


@every
def test_past_calls_are_known(speaker):
    facts = read(speaker, long_body(speaker))
    (call_id,) = facts.call_ids()
    assert call_id in ("toolu_1", "call_1")
    (step,) = facts.steps()
    assert [(call.id, call.name, call.arguments) for call in step.calls] == [(call_id, "look", {"a": 2, "b": 1})]
    assert call_signature(step.calls[0]) == 'look {"a":2,"b":1}'
    assert [(result.call_id, result.content) for result in step.results] == [(call_id, "seen")]


@every
def test_only_the_newest_steps_are_told(speaker):
    history = speaker().history()
    facts = read(speaker, speaker().body(messages=history + history[2:] * 60))
    assert len(facts.call_ids()) == 61
    assert len(facts.steps()) == 40
    assert len(facts.steps(7)) == 7
    assert all(step.results for step in facts.steps())


@every
def test_a_request_that_continues_another_has_its_digests(speaker):
    history = speaker().history()
    one = read(speaker, speaker().body(messages=history[:2])).prefix_digests()
    other = read(speaker, speaker().body(messages=history)).prefix_digests()
    assert len(other) == len(history)
    assert other[:2] == one
    assert len(set(other)) == len(other)
    changed = [copy.deepcopy(history[0]), *history[1:]]
    changed[0]["parts" if speaker.name == "gemini" else "content"] = "something else"
    third = read(speaker, speaker().body(messages=changed)).prefix_digests()
    assert not set(third) & set(other)


def test_marks_for_the_cache_do_not_change_a_digest():
    claude = DIALECTS["anthropic"]
    speaker = next(one for one in SPEAKERS if one.name == "anthropic")()
    plain = speaker.body(messages=[{"role": "user", "content": "hi"}])
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    marked = speaker.body(messages=[{"role": "user", "content": [block]}])
    assert claude.read_request(plain).prefix_digests() == claude.read_request(marked).prefix_digests()


FACTS = [
    ("anthropic", {"max_tokens": 64000}, {"max_output": 64000}),
    ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"hidden": "asked", "can_force": False}),
    ("anthropic", {"thinking": {"type": "adaptive"}}, {"hidden": "asked", "can_force": False}),
    ("anthropic", {"thinking": {"type": "disabled"}}, {"hidden": "none", "can_force": True}),
    ("anthropic", {"model": "claude-opus-5"}, {"hidden": "asked", "can_force": False}),
    ("anthropic", {"model": "glm-5"}, {"hidden": "unknown"}),
    ("anthropic", {"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    ("anthropic", {"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
    ("anthropic", {"tool_choice": {"type": "tool", "name": "look"}}, {"tool_choice": "look"}),
    (
        "anthropic",
        {
            "tools": [
                {"type": "web_search_20250305", "name": "web_search"},
                {"type": "bash_20250124", "name": "bash"},
                {"type": "custom", "name": "mine"},
                {"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-4-6"},
                {"type": "hologram_20300101", "name": "hologram"},
            ]
        },
        {
            "server_tools": ("web_search_20250305", "advisor_20260301", "hologram_20300101"),
            "tool_names": ("bash", "mine"),
            "hidden": "asked",
            "other_models": ("claude-opus-4-6",),
        },
    ),
    ("anthropic", {"mcp_servers": [{"url": "https://x", "name": "x"}]}, {"server_tools": ("mcp",), "hidden": "asked"}),
    ("anthropic", {"container": "cntr_1"}, {"held_by_server": ("container:cntr_1",)}),
    ("anthropic", {"container": {"id": "cntr_2", "skills": []}}, {"held_by_server": ("container:cntr_2",)}),
    (
        "anthropic",
        {"thread": {"type": "continue", "previous_message_id": "msg_9"}},
        {"held_by_server": ("thread:msg_9",)},
    ),
    ("anthropic", {"fallbacks": [{"model": "claude-haiku-4-5"}]}, {"other_models": ("claude-haiku-4-5",)}),
    ("anthropic", {"context_management": {"edits": [{"type": "compact_20260112"}]}}, {"hidden": "asked"}),
    (
        "anthropic",
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {"wants_json": True, "output_schema": {"type": "object"}},
    ),
    (
        "anthropic",
        {"metadata": {"user_id": "u-1"}, "speed": "fast"},
        {"hints": {"metadata.user_id": "u-1", "speed": "fast"}},
    ),
    (
        "anthropic",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}},
                        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
                        {"type": "container_upload", "file_id": "file_2"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "t",
                            "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}],
                        },
                    ],
                }
            ]
        },
        {"media": 3, "held_by_server": ("file:file_1", "file:file_2")},
    ),
    ("openai-chat", {"max_tokens": 5, "max_completion_tokens": 9}, {"max_output": 9}),
    ("openai-chat", {"n": 3}, {"copies": 3}),
    ("openai-chat", {"model": "o3"}, {"hidden": "asked"}),
    ("openai-chat", {"model": "gpt-5.2", "reasoning_effort": "none"}, {"hidden": "none"}),
    ("openai-chat", {"model": "qwen3-coder"}, {"hidden": "unknown"}),
    ("openai-chat", {"stream": True, "stream_options": None}, {"wants_usage": False}),
    ("openai-chat", {"stream": False}, {"wants_usage": True}),
    ("openai-chat", {"tool_choice": "required"}, {"tool_choice": "required"}),
    ("openai-chat", {"tool_choice": {"type": "function", "function": {"name": "look"}}}, {"tool_choice": "look"}),
    ("openai-chat", {"tool_choice": {"type": "custom", "custom": {"name": "c"}}}, {"tool_choice": "c"}),
    (
        "openai-chat",
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}},
        {"tool_choice": "required"},
    ),
    ("openai-chat", {"tools": None, "functions": [{"name": "old"}]}, {"tool_names": ("old",)}),
    (
        "openai-chat",
        {"tools": None, "functions": [{"name": "old"}], "function_call": {"name": "old"}},
        {"tool_choice": "old"},
    ),
    ("openai-chat", {"tools": [{"type": "custom", "custom": {"name": "c"}}]}, {"tool_names": ("c",)}),
    ("openai-chat", {"web_search_options": {}}, {"server_tools": ("web_search",), "hidden": "asked"}),
    ("openai-chat", {"response_format": {"type": "json_object"}}, {"wants_json": True, "output_schema": None}),
    (
        "openai-chat",
        {"user": "u", "prompt_cache_key": "k", "service_tier": "priority", "metadata": {"run": "7"}},
        {"hints": {"user": "u", "prompt_cache_key": "k", "service_tier": "priority", "metadata.run": "7"}},
    ),
    (
        "openai-chat",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:x"}},
                        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                        {"type": "file", "file": {"file_id": "file-1"}},
                        {"type": "text", "text": "what?"},
                    ],
                },
                {"role": "assistant", "audio": {"id": "audio_1"}},
            ]
        },
        {"media": 3, "held_by_server": ("file:file-1", "audio:audio_1"), "first_text": "what?"},
    ),
    ("openai-responses", {"max_output_tokens": 7}, {"max_output": 7}),
    ("openai-responses", {"input": "hi there"}, {"messages": 1, "first_text": "hi there"}),
    ("openai-responses", {"model": "gpt-5-codex"}, {"hidden": "asked"}),
    ("openai-responses", {"reasoning": {"effort": "low"}}, {"hidden": "none"}),
    (
        "openai-responses",
        {"previous_response_id": "resp_1", "conversation": {"id": "conv_1"}, "prompt": {"id": "pmpt_1"}},
        {"held_by_server": ("previous_response_id:resp_1", "conversation:conv_1", "prompt:pmpt_1")},
    ),
    ("openai-responses", {"conversation": "conv_2"}, {"held_by_server": ("conversation:conv_2",)}),
    (
        "openai-responses",
        {
            "tools": [
                {"type": "web_search"},
                {"type": "mcp", "server_label": "x"},
                {"type": "code_interpreter", "container": "cntr_1"},
                {"type": "image_generation", "model": "gpt-image-2"},
                {"type": "local_shell"},
                {"type": "custom", "name": "patch"},
                {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "inner"}]},
                {"type": "tool_search", "execution": "client"},
            ]
        },
        {
            "server_tools": ("web_search", "mcp", "code_interpreter", "image_generation"),
            "tool_names": ("local_shell", "patch", "inner", "tool_search"),
            "hidden": "asked",
            "other_models": ("gpt-image-2",),
            "held_by_server": ("container:cntr_1",),
        },
    ),
    ("openai-responses", {"tool_choice": {"type": "function", "name": "look"}}, {"tool_choice": "look"}),
    (
        "openai-responses",
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}},
        {"tool_choice": "auto"},
    ),
    ("openai-responses", {"tool_choice": {"type": "apply_patch"}}, {"tool_choice": "apply_patch"}),
    (
        "openai-responses",
        {"tools": [], "input": [{"type": "additional_tools", "tools": [{"type": "function", "name": "late"}]}]},
        {"tool_names": ("late",)},
    ),
    (
        "openai-responses",
        {
            "input": [
                {"type": "item_reference", "id": "msg_1"},
                {"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]},
                {
                    "type": "function_call_output",
                    "call_id": "c",
                    "output": [{"type": "input_file", "file_id": "file_2"}],
                },
            ]
        },
        {"media": 2, "held_by_server": ("item:msg_1", "file:file_1", "file:file_2")},
    ),
    (
        "openai-responses",
        {"text": {"format": {"type": "json_schema", "schema": {"a": 1}}}},
        {"output_schema": {"a": 1}},
    ),
]

FACTS += [
    ("gemini", {"generationConfig": {"maxOutputTokens": 9, "candidateCount": 2}}, {"max_output": 9, "copies": 2}),
    ("gemini", {"generation_config": {"max_output_tokens": 9, "candidate_count": 2}}, {"max_output": 9, "copies": 2}),
    ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}, {"hidden": "none"}),
    ("gemini", {"cachedContent": "cachedContents/1"}, {"held_by_server": ("cachedContent:cachedContents/1",)}),
    ("gemini", {"cached_content": "cachedContents/1"}, {"held_by_server": ("cachedContent:cachedContents/1",)}),
    (
        "gemini",
        {"tools": [{"function_declarations": [{"name": "f"}]}, {"google_search": {}}, {"codeExecution": {}}]},
        {"tool_names": ("f",), "server_tools": ("google_search", "code_execution"), "hidden": "asked"},
    ),
    ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}, {"tool_choice": "none"}),
    ("gemini", {"tool_config": {"function_calling_config": {"mode": "ANY"}}}, {"tool_choice": "required"}),
    (
        "gemini",
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}}},
        {"tool_choice": "look"},
    ),
    (
        "gemini",
        {"generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}}},
        {"wants_json": True, "output_schema": {"type": "OBJECT"}},
    ),
    ("gemini", {"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}, {"hidden": "asked", "refusal": None}),
    ("gemini", {"labels": {"team": "x"}}, {"hints": {"labels.team": "x"}}),
    (
        "gemini",
        {
            "contents": [
                {"parts": [{"inlineData": {"mimeType": "image/png", "data": ""}}, {"text": "what?"}]},
                {"role": "user", "parts": [{"file_data": {"file_uri": "files/1"}}]},
            ]
        },
        {"media": 2, "held_by_server": ("file:files/1",), "first_text": "what?"},
    ),
]


@pytest.mark.parametrize(("name", "fields", "expected"), FACTS)
def test_fields_are_read(name, fields, expected):
    speaker = next(one for one in SPEAKERS if one.name == name)()
    facts = read(speaker, {**speaker.body(), **fields})
    assert {field: getattr(facts, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("name", "fields", "word"),
    [
        ("openai-chat", {"modalities": ["text", "audio"]}, "spoken"),
        ("openai-chat", {"audio": {"voice": "x"}}, "spoken"),
        ("openai-responses", {"background": True}, "background"),
        ("gemini", {"generationConfig": {"responseModalities": ["AUDIO"]}}, "spoken"),
        ("gemini", {"generationConfig": {"speechConfig": {}}}, "spoken"),
    ],
)
def test_what_cannot_be_governed_is_told(name, fields, word):
    speaker = next(one for one in SPEAKERS if one.name == name)()
    assert word in read(speaker, {**speaker.body(), **fields}).refusal


# --- edits ----------------------------------------------------------------------------------------------------


def prefix(speaker, body):
    """What the provider sees of the conversation, message by message."""
    return [json.dumps(message) for message in body[speaker.field]]


@every
def test_a_notice_is_put_back_at_the_same_place(speaker):
    """The request with the notice is a prefix of the next one, or the provider's cache would be lost."""
    dialect, history = dialect_of(speaker), speaker().history()
    first = speaker().body(messages=history)
    before = copy.deepcopy(first)
    place = read(speaker, first).messages
    assert place == len(history)
    noticed = dialect.insert_notices(first, [Notice(place, "Come to an end.")])
    assert first == before
    later = speaker().body(messages=[*history, *history[2:]])
    again = dialect.insert_notices(later, [Notice(place, "Come to an end.")])
    assert prefix(speaker, again)[: len(noticed[speaker.field])] == prefix(speaker, noticed)
    assert "Come to an end." in json.dumps(noticed[speaker.field][-1])
    assert dialect.insert_notices(first, []) is first
    two = dialect.insert_notices(later, [Notice(place, "one"), Notice(len(later[speaker.field]), "two")])
    assert json.dumps(two[speaker.field]).index('"one"') < json.dumps(two[speaker.field]).index('"two"')


def test_a_notice_follows_the_results_in_the_users_message():
    claude, speaker = DIALECTS["anthropic"], SPEAKERS[0]()
    body = speaker.body(messages=speaker.history())
    last = claude.insert_notices(body, [Notice(4, "Enough.")])["messages"][-1]
    assert [block["type"] for block in last["content"]] == ["tool_result", "text"]
    body = speaker.body(messages=[{"role": "user", "content": "hi"}])
    (message,) = claude.insert_notices(body, [Notice(1, "Enough.")])["messages"]
    assert message["content"] == [{"type": "text", "text": "hi"}, {"type": "text", "text": "Enough."}]
    marked = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    body = speaker.body(messages=[{"role": "user", "content": marked}])
    (message,) = claude.insert_notices(body, [Notice(1, "Enough.")])["messages"]
    assert message["content"][0] is marked[0]
    body = speaker.body(messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}])
    noticed = claude.insert_notices(body, [Notice(2, "Enough.")])["messages"]
    assert [message["role"] for message in noticed] == ["user", "assistant"]
    assert "Enough." in json.dumps(noticed[0])


def test_a_text_as_input_becomes_a_list():
    responses = DIALECTS["openai-responses"]
    noticed = responses.insert_notices({"model": "m", "input": "hi"}, [Notice(1, "Enough.")])["input"]
    assert noticed[0] == {"role": "user", "content": "hi"}
    assert noticed[1]["content"] == [{"type": "input_text", "text": "Enough."}]
    assert responses.insert_notices({"model": "m"}, [Notice(0, "Enough.")])["input"][0]["role"] == "user"


@every
def test_places_beyond_the_end_are_the_end(speaker):
    dialect = dialect_of(speaker)
    body = speaker().body()
    for place in (-5, 0, 1, 99):
        assert "Enough." in json.dumps(dialect.insert_notices(body, [Notice(place, "Enough.")])[speaker.field])


@every
def test_closing_tools_leaves_everything_else_alone(speaker):
    dialect, body = dialect_of(speaker), long_body(speaker)
    before = copy.deepcopy(body)
    closed = dialect.close_tools(body)
    assert body == before
    assert read(speaker, closed).tool_choice == "none"
    changed = {name for name in closed if closed[name] is not body.get(name)}
    assert changed == {"toolConfig" if speaker.name == "gemini" else "tool_choice"}
    assert dialect.close_tools(closed) is closed
    forced = dialect.close_tools(body, "done")
    assert read(speaker, forced).tool_choice == "done"
    bare = {name: value for name, value in body.items() if name != "tools"}
    assert dialect.close_tools(bare) is bare
    assert dialect.close_tools(bare, "done") is bare


def test_a_thinking_model_is_not_forced():
    claude, speaker = DIALECTS["anthropic"], SPEAKERS[0]()
    for fields in ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"model": "claude-opus-5"}):
        closed = claude.close_tools({**speaker.body(), **fields}, "done")
        assert closed["tool_choice"] == {"type": "none"}
    closed = claude.close_tools({**speaker.body(), "thinking": {"type": "disabled"}}, "done")
    assert closed["tool_choice"]["name"] == "done"


@pytest.mark.parametrize(
    ("name", "tools", "choice"),
    [
        ("openai-chat", {"functions": [{"name": "done"}], "tools": None}, {"name": "done"}),
        (
            "openai-chat",
            {"tools": [{"type": "custom", "custom": {"name": "done"}}]},
            {"type": "custom", "custom": {"name": "done"}},
        ),
        ("openai-responses", {"tools": [{"type": "custom", "name": "done"}]}, {"type": "custom", "name": "done"}),
        (
            "openai-responses",
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "done"}]}]},
            {"type": "custom", "name": "done"},
        ),
    ],
)
def test_other_kinds_of_tools_are_closed_and_forced_too(name, tools, choice):
    speaker = next(one for one in SPEAKERS if one.name == name)()
    dialect, body = DIALECTS[name], {**speaker.body(), **tools}
    field = "function_call" if body.get("functions") else "tool_choice"
    assert dialect.close_tools(body)[field] == "none"
    assert dialect.close_tools(body, "done")[field] == choice


@pytest.mark.parametrize("speaker", SPEAKERS[:3], ids=lambda speaker: speaker.name)
def test_a_request_is_made_to_stream(speaker):
    dialect, body = dialect_of(speaker), speaker().body()
    streaming = dialect.set_streaming(body)
    assert read(speaker, streaming).stream
    assert read(speaker, streaming).wants_usage
    assert dialect.set_streaming(streaming) is streaming
    assert "stream" not in body
    assert dialect.streaming_target("/v1/x", "beta=true") == ("/v1/x", "beta=true")


def test_options_of_a_stream_are_kept():
    chat = DIALECTS["openai-chat"]
    body = {"model": "m", "messages": [], "stream": True, "stream_options": {"include_obfuscation": False}}
    assert chat.set_streaming(body)["stream_options"] == {"include_obfuscation": False, "include_usage": True}
    assert chat.set_streaming(body, with_usage=False) is body


# --- turns of ours --------------------------------------------------------------------------------------------


def test_an_own_turn_of_anthropic_comes_back_legal():
    claude, speaker = DIALECTS["anthropic"], SPEAKERS[0]()
    thought = {"type": "thinking", "thinking": "Hm", "signature": ""}
    text = {"type": "text", "text": "Ours. \n", "cache_control": {"type": "ephemeral"}}
    ours = {"role": "assistant", "content": [thought, text]}
    theirs = {"role": "assistant", "content": [thought, {"type": "text", "text": "Theirs"}]}
    body = speaker.body(messages=[{"role": "user", "content": "hi"}, ours, {"role": "user", "content": "x"}, theirs])
    legal = claude.legalize(body, {"Ours."}.__contains__)
    assert legal["messages"][1]["content"] == [text]
    assert legal["messages"][3] is theirs
    assert claude.legalize(legal, {"Ours."}.__contains__) is legal
    assert claude.legalize(body, lambda _: False) is body
    call = {"type": "tool_use", "id": "toolu_own", "name": "done", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "toolu_own", "content": "ok"}
    body = speaker.body(
        messages=[{"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    )
    legal = claude.legalize(body, {"toolu_own"}.__contains__)
    assert [[block["type"] for block in message["content"]] for message in legal["messages"]] == [["text"], ["text"]]
    assert "ok" in json.dumps(legal)


def test_an_own_turn_of_chat_comes_back_legal():
    chat, speaker = DIALECTS["openai-chat"], SPEAKERS[1]()
    ours = {"role": "assistant", "content": "Ours.", "reasoning_content": "Hm", "refusal": None, "annotations": []}
    body = speaker.body(messages=[{"role": "user", "content": "hi"}, ours])
    legal = chat.legalize(body, {"Ours."}.__contains__)
    assert legal["messages"][1] == {"role": "assistant", "content": "Ours."}
    assert chat.legalize(legal, {"Ours."}.__contains__) is legal
    call = {"id": "call_own", "type": "function", "function": {"name": "done", "arguments": "{}"}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = speaker.body(messages=[turn, {"role": "tool", "tool_call_id": "call_own", "content": "ok"}])
    legal = chat.legalize(body, {"call_own"}.__contains__)
    assert [message["role"] for message in legal["messages"]] == ["assistant", "user"]
    assert all(message["content"] and "tool_calls" not in message for message in legal["messages"])


def test_an_own_turn_of_responses_comes_back_legal():
    responses, speaker = DIALECTS["openai-responses"], SPEAKERS[2]()
    part = {"type": "output_text", "text": "Ours.", "annotations": []}
    ours = {"type": "message", "id": "msg_x", "status": "completed", "role": "assistant", "content": [part]}
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    body = speaker.body(messages=[{"role": "user", "content": "hi"}, thought, ours])
    legal = responses.legalize(body, {"Ours."}.__contains__)
    assert legal["input"][1:] == [{"type": "message", "role": "assistant", "content": [part]}]
    assert responses.legalize(legal, {"Ours."}.__contains__) is legal
    call = {"type": "function_call", "call_id": "call_own", "name": "done", "arguments": "{}"}
    body = speaker.body(messages=[call, {"type": "function_call_output", "call_id": "call_own", "output": "ok"}])
    legal = responses.legalize(body, {"call_own"}.__contains__)
    assert [item["role"] for item in legal["input"]] == ["assistant", "user"]


def test_reasoning_of_a_reply_that_broke_off_is_left_out_and_no_other_reasoning():
    responses, speaker = DIALECTS["openai-responses"], SPEAKERS[2]()
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    asked = {"role": "user", "content": "hi"}
    call = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    for odd in ([asked, thought], [thought, asked], [asked, call, result, thought, thought], [call, thought, result]):
        legal = responses.legalize(speaker.body(messages=odd), lambda _: False)
        assert legal["input"] == [item for item in odd if item is not thought]
    said = {"type": "message", "role": "assistant", "content": "Hm."}
    for fine in ([asked, thought, call, result], [asked, thought, said], [thought, {"type": "agent_message"}]):
        body = speaker.body(messages=fine)
        assert responses.legalize(body, lambda _: False) is body


def test_a_response_of_ours_is_never_a_previous_response():
    from glidepath.apps.gate.dialects import OwnReply

    responses, speaker = DIALECTS["openai-responses"], SPEAKERS[2]()
    body = speaker.body(previous_response_id="resp_real")
    for _ in range(3):
        facts = responses.read_request(body)
        reply = json.loads(responses.write_reply(facts, OwnReply(text="x")).body)
        body = {**body, "previous_response_id": reply["id"]}
        assert responses.legalize(body, lambda _: False)["previous_response_id"] == "resp_real"
    reply = json.loads(responses.write_reply(responses.read_request(speaker.body()), OwnReply(text="x")).body)
    assert len(reply["id"]) < 64
    legal = responses.legalize({**speaker.body(), "previous_response_id": reply["id"]}, lambda _: False)
    assert "previous_response_id" not in legal


# --- odd input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "body"),
        (b"hello", "body"),
        (b"[1]", "body"),
        (b"null", "body"),
        (b'"text"', "body"),
        (b"\xff\xfe{}", "body"),
        (b'{"a": NaN}', "body"),
        (b'{"a": Infinity}', "body"),
        (b'{"a": 1', "body"),
        (b'{"a": 1} {"b": 2}', "body"),
        (b"[" * 100_000, "body"),
        (b'{"a":' * 100_000, "body"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "body"),
        (b'{"model": "cheap", "model": "dear"}', "model"),
        (b'{"model":"cheap","x":{"a":1},"model":"dear"}', "model"),
        (b'{"mod\\u0065l":"cheap","model":"dear"}', "model"),
        (b'{ "model" : "cheap" , "model" : "dear" }', "model"),
    ],
)
def test_a_body_that_is_not_one_object_is_refused_with_a_fix(raw, field):
    with pytest.raises(BadRequest) as caught:
        parse_body(raw)
    assert caught.value.field == field
    assert caught.value.message


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b' {"a": [1, 2.5, {"b": null}]} ',
        b'{"a":"\\ud83c"}',
        b'{"a":"\\ud83c\\udf26"}',
        '{"é":"ü"}'.encode(),
        b'{"\\u0061":1}',
        b'{\n  "a": 1,\n  "b": 2\n}',
        b'{"a":{"x":1,"y":2}}',
        b'{"a":123456789012345678901234567890}',
        b'{"a": 1e3}',
    ],
)
def test_every_json_object_is_read_and_can_be_written_again(raw):
    body = parse_body(raw)
    assert body == json.loads(raw)
    assert json.loads(write_body(body)) == body


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=True)
    | st.text(st.characters(), max_size=12)
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
FIELDS = sorted(
    {field for _, fields, _ in FACTS for field in fields}
    | {"model", "messages", "input", "stream", "stream_options", "system", "instructions", "background", "modalities"}
)


@every
@given(fields=st.dictionaries(st.sampled_from(FIELDS), anything, max_size=4), base=st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_field_of_any_type_gives_facts_or_one_kind_of_error(speaker, fields, base):
    check(speaker, {**(long_body(speaker) if base else {}), **fields})


@every
@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_place_inside_of_any_type_gives_facts_or_one_kind_of_error(speaker, data):
    """Somewhere in an ordinary request, something else."""
    chosen = [fields for name, fields, _ in FACTS if name == speaker.name]
    body = copy.deepcopy({**long_body(speaker), **data.draw(st.sampled_from(chosen))})
    place = body
    for _ in range(data.draw(st.integers(0, 5))):
        inner = [
            one
            for one in (place.values() if isinstance(place, dict) else place)
            if one and isinstance(one, dict | list)
        ]
        if not inner:
            break
        place = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(anything)
    check(speaker, body)


@every
@given(body=anything)
@settings(max_examples=80, deadline=None)
def test_anything_at_all_gives_facts_or_one_kind_of_error(speaker, body):
    check(speaker, body)


def check(speaker, body):
    """Facts, all of them, and every edit; or `BadRequest` with a field and a fix."""
    dialect = dialect_of(speaker)
    try:
        facts = read(speaker, body)
    except BadRequest as error:
        bad = error
    else:
        bad = None
    if bad is not None:
        assert bad.field
        assert ": " in bad.message
        return
    facts.call_ids(), facts.steps(), facts.prefix_digests()
    edited = dialect.insert_notices(facts.body, [Notice(facts.messages, "Enough.")])
    edited = dialect.legalize(dialect.set_streaming(dialect.close_tools(edited, "done")), lambda _: True)
    write_body(edited)
    read(speaker, edited)


@every
def test_a_huge_text_is_only_looked_at(speaker):
    body = speaker().body(messages=[{"role": "user", "content": "x" * 10_000_000}])
    facts = read(speaker, parse_body(write_body(body)))
    assert facts.first_text == "x" * 200


@every
def test_a_bad_request_says_which_field_and_how_to_mend_it(speaker):
    of_the_body = [({"model": None}, "model"), ({"model": 7}, "model"), ({"stream": "yes"}, "stream")]
    for fields, field in [
        *([] if speaker.name == "gemini" else of_the_body),
        ({speaker.field: {"a": 1}}, speaker.field),
        ({speaker.field: [1]}, f"{speaker.field}[0]"),
        ({"tools": {"a": 1}}, "tools"),
    ]:
        with pytest.raises(BadRequest) as caught:
            read(speaker, {**speaker().body(), **fields})
        assert caught.value.field == field
        assert "send" in caught.value.message or "name" in caught.value.message


def test_a_bad_request_survives_a_pickle():
    import pickle

    error = pickle.loads(pickle.dumps(BadRequest("model", "is missing: name one")))
    assert (error.field, error.message, str(error)) == ("model", "is missing: name one", "model: is missing: name one")


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("gemini-2.5-pro", "asked"),
        ("gemini-3-pro-preview", "asked"),
        ("gemini-1.5-pro", "none"),
        ("gemma-3", "unknown"),
    ],
)
def test_the_path_of_gemini_names_the_model(name, hidden):
    facts = DIALECTS["gemini"].read_request(SPEAKERS[3]().body(), f"publishers/google/models/{name}", True)
    assert (facts.model, facts.stream, facts.hidden) == (name, True, hidden)
    with pytest.raises(BadRequest, match="model: is missing"):
        DIALECTS["gemini"].read_request(SPEAKERS[3]().body())


def test_gemini_streams_by_its_path():
    gemini = DIALECTS["gemini"]
    body = SPEAKERS[3]().body()
    assert gemini.set_streaming(body) is body
    path = "/v1beta/models/gemini-2.5-pro"
    target = (f"{path}:streamGenerateContent", "key=1&alt=sse")
    assert gemini.streaming_target(f"{path}:generateContent", "key=1") == target
    assert gemini.streaming_target(f"{path}:streamGenerateContent", "alt=json&key=1") == target
    assert gemini.streaming_target(f"{path}:streamGenerateContent", "")[1] == "alt=sse"


def test_the_tools_of_gemini_are_closed_in_the_clients_spelling():
    gemini, body = DIALECTS["gemini"], SPEAKERS[3]().body()
    body = {**body, "tool_config": {"function_calling_config": {"mode": "AUTO"}, "retrieval_config": {"x": 1}}}
    closed = gemini.close_tools(body)["tool_config"]
    assert closed == {"function_calling_config": {"mode": "NONE"}, "retrieval_config": {"x": 1}}
    searching = {**body, "tools": [{"googleSearch": {}}]}
    assert gemini.close_tools(searching) is searching


def test_calls_of_gemini_without_ids_find_their_results():
    calls = [{"functionCall": {"name": "look", "args": {"n": number}}} for number in range(2)]
    results = [{"functionResponse": {"name": "look", "response": {"output": f"seen {number}"}}} for number in range(2)]
    contents = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": calls},
        {"role": "user", "parts": results},
    ]
    facts = read(SPEAKERS[3], {"contents": contents})
    (step,) = facts.steps()
    found = {result.call_id: result.content for result in step.results}
    assert [(call.arguments["n"], found[call.id]) for call in step.calls] == [(0, "seen 0"), (1, "seen 1")]
    assert facts.call_ids() == ()


def test_an_own_turn_of_gemini_comes_back_legal():
    gemini = DIALECTS["gemini"]
    thought = {"text": "Hm", "thought": True}
    ours = {"role": "model", "parts": [thought, {"text": "Ours.", "thoughtSignature": "x"}]}
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}, ours]}
    legal = gemini.legalize(body, {"Ours."}.__contains__)
    assert legal["contents"][1]["parts"] == [{"text": "Ours."}]
    assert gemini.legalize(legal, {"Ours."}.__contains__) is legal
    call = {"functionCall": {"id": "own", "name": "done", "args": {}}}
    result = {"functionResponse": {"id": "own", "name": "done", "response": {"output": "ok"}}}
    body = {"contents": [{"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}]}
    legal = gemini.legalize(body, {"own"}.__contains__)
    assert [list(content["parts"][0]) for content in legal["contents"]] == [["text"], ["text"]]
