"""Requests that a vendor refuses, and the words it refuses them with."""

import pytest
from tests.testing.upstream.talk import DIALECTS, KEYS, build, post, run

from glidepath.testing import ScriptedUpstream

TOOL = {"name": "Bash", "input_schema": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "x"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}
THINK = {"type": "enabled", "budget_tokens": 1024}
MARK = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}

MESSAGES = [
    ({"max_tokens": None}, "max_tokens: Field required"),
    ({"messages": []}, "at least one message is required"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, 'first message must use the "user" role'),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": ""}]}, "text content blocks must be non-empty"),
    ({"messages": [{"role": "user", "content": []}]}, "all messages must have non-empty content"),
    ({"messages": [USER, {"role": "assistant", "content": "x "}]}, "trailing whitespace"),
    ({"messages": [USER, USE, USER], "tools": [TOOL]}, "`tool_use` ids were found without `tool_result` blocks"),
    ({"messages": [USER, RESULT], "tools": [TOOL]}, "unexpected `tool_use_id` found"),
    ({"messages": [USER, USE, RESULT]}, "must define tools"),
    ({"tool_choice": {"type": "none"}}, "tool_choice may only be specified while providing tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "Other"}}, "'Other' not found"),
    ({"tools": [TOOL, TOOL]}, "Tool names must be unique"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "any"}, "thinking": THINK},
        "may not be enabled when tool_choice forces",
    ),
    ({"thinking": THINK, "max_tokens": 1000}, "`max_tokens` must be greater than"),
    (
        {"messages": [USER, USE, RESULT], "tools": [TOOL], "thinking": THINK},
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    (
        {
            "messages": [
                USER,
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}]},
                USER,
            ]
        },
        "Invalid `signature` in `thinking` block",
    ),
    ({"messages": [{"role": "user", "content": [MARK] * 5}]}, "A maximum of 4 blocks"),
]
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}],
}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
FUNCTION = {"type": "function", "function": {"name": "Bash", "parameters": {}}}
CHAT = [
    ({"model": None}, "you must provide a model parameter"),
    ({"messages": []}, "empty array"),
    ({"tools": []}, "Invalid 'tools': empty array"),
    ({"tool_choice": "none"}, "'tool_choice' is only allowed when 'tools' are specified"),
    ({"parallel_tool_calls": False}, "'parallel_tool_calls' is only allowed when 'tools' are specified"),
    (
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "Other"}}},
        "no function named 'Other'",
    ),
    ({"tools": [FUNCTION], "tool_choice": "never"}, "Invalid value: 'never'"),
    ({"messages": [USER, CALL, USER]}, "did not have response messages: c1"),
    ({"messages": [USER, CALL]}, "did not have response messages: c1"),
    ({"messages": [USER, ANSWER]}, "must be a response to a preceeding message"),
    ({"messages": [USER, CALL, ANSWER, ANSWER]}, "must be a response to a preceeding message"),
    ({"messages": [{"role": "user", "content": None}]}, "expected a string, got null"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "Invalid value: 'robot'"),
    ({"stream_options": {"include_usage": True}}, "only allowed when 'stream' is"),
    ({"max_tokens": 5, "max_completion_tokens": 5}, "at the same time"),
    ({"n": 500}, "Invalid 'n'"),
]
ITEM = {"type": "function_call", "call_id": "c1", "name": "Bash", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
RESPONSES = [
    ({"input": None}, "Missing required parameter: 'input'"),
    ({"max_output_tokens": 5}, "Expected a value >= 16"),
    ({"tool_choice": "required"}, "must be specified with 'tools'"),
    ({"tool_choice": {"type": "function", "name": "Other"}}, "Tool choice 'Other' not found"),
    ({"input": [USER, ITEM]}, "No tool output found for function call c1"),
    ({"input": [USER, OUTPUT]}, "No tool call found for function call output with call_id c1"),
    ({"input": [{**ITEM, "id": "x1"}, OUTPUT]}, "Expected an ID that begins with 'fc'"),
    ({"input": [{**ITEM, "id": "fc_x1"}, OUTPUT]}, "Item with id 'fc_x1' not found"),
    (
        {"input": [{"type": "message", "role": "assistant", "id": "msg_1", "content": "x"}, USER]},
        "Item with id 'msg_1' not found",
    ),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "Item with id 'msg_1' not found"),
    ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, USER]}, "could not be verified"),
    ({"input": [USER, {"type": "reasoning", "summary": []}, USER]}, "without its required following item"),
    ({"previous_response_id": "resp_1"}, "Previous response with id 'resp_1' not found"),
]
PART = {"functionCall": {"name": "Bash", "args": {}}}
BACK = {"role": "user", "parts": [{"functionResponse": {"name": "Bash", "response": {}}}]}
SAY = {"role": "user", "parts": [{"text": "x"}]}
GEMINI = [
    ({"contents": []}, "contents is not specified"),
    ({"contents": [{"role": "user", "parts": []}]}, "parts must not be empty"),
    ({"contents": [{"role": "robot", "parts": [{"text": "x"}]}]}, "valid role"),
    ({"contents": [SAY, {"role": "model", "parts": [PART]}]}, "number of function response parts"),
    ({"contents": [SAY, {"role": "model", "parts": [PART]}, SAY, BACK]}, "number of function response parts"),
    ({"contents": [SAY, {"role": "model", "parts": [PART, PART]}, BACK]}, "number of function response parts"),
    ({"contents": [SAY, BACK]}, "number of function response parts"),
    (
        {"contents": [SAY, {"role": "model", "parts": [{"text": "x", "thoughtSignature": "eA=="}]}, SAY]},
        "Thought signature is not valid",
    ),
    ({"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}, "set without function_declarations"),
]
CASES = [
    (dialect, *case)
    for dialect, cases in zip(DIALECTS, (MESSAGES, CHAT, RESPONSES, GEMINI), strict=True)
    for case in cases
]


@pytest.mark.parametrize(("dialect", "change", "words"), CASES)
def test_an_illegal_request_is_refused_in_the_vendors_words_and_costs_nothing(dialect, change, words):
    path, body = build(dialect, tools=False)
    body = {name: value for name, value in {**body, **change}.items() if value is not None}

    async def main():
        async with ScriptedUpstream("answer") as up:
            legal = await post(up.url, *build(dialect, tools=False))
            assert legal.status_code == 200, legal.text
            served = up.usage.tokens
            reply = await post(up.url, path, body)
            assert (up.usage.tokens, up.usage.refused, up.usage.calls, up.usage.open) == (served, 1, 1, 0)
            return reply

    reply = run(main())
    assert reply.status_code in (400, 404)
    assert words in reply.json()["error"]["message"]


def test_gemini_3_wants_its_signature_back():
    body = {"contents": [SAY, {"role": "model", "parts": [PART]}, BACK]}

    async def main():
        async with ScriptedUpstream("answer") as up:
            old = await post(up.url, "/v1beta/models/gemini-2.5-pro:generateContent", body)
            new = await post(up.url, "/v1beta/models/gemini-3-pro:generateContent", body)
            return old.status_code, new.status_code, new.json()["error"]["message"]

    old, new, words = run(main())
    assert (old, new) == (200, 400)
    assert "missing a thought_signature" in words


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_without_a_key_or_with_a_wrong_one_is_refused(dialect):
    async def main():
        async with ScriptedUpstream("answer", keys=frozenset({"right"})) as up:
            path, body = build(dialect)
            none = await post(up.url, path, body, {"anthropic-version": "1"})
            wrong = await post(up.url, path, body, KEYS)
            right = {"x-api-key": "right", "authorization": "Bearer right", "x-goog-api-key": "right"}
            fine = await post(up.url, path, body, right | {"anthropic-version": "1"})
            return none.status_code, wrong.status_code, fine.status_code

    none, wrong, fine = run(main())
    assert none in (401, 403)
    assert wrong in (400, 401)
    assert fine == 200


def test_anthropic_wants_its_version_header():
    async def main():
        async with ScriptedUpstream("answer") as up:
            return (await post(up.url, *build("anthropic"), {"x-api-key": "k"})).json()["error"]["message"]

    assert run(main()) == "anthropic-version: header is required"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("body", ["[1]", '"x"', "3"])
def test_a_body_that_is_not_an_object_is_refused(dialect, body):
    import json

    async def main():
        async with ScriptedUpstream("answer") as up:
            return (await post(up.url, build(dialect)[0], json.loads(body))).status_code

    assert run(main()) == 400


def test_reasoning_before_the_message_of_another_agent_is_legal():
    """Codex leaves a reply after its reasoning when a sub-agent reports, and sends what it has."""
    report = {"type": "agent_message", "author": "/root/work_1", "recipient": "/root"}
    report["content"] = [{"type": "input_text", "text": "done"}]
    body = {"model": "m", "input": [USER, {"type": "reasoning", "summary": []}, report]}

    async def main():
        async with ScriptedUpstream("answer") as up:
            return await post(up.url, "/v1/responses", body)

    assert run(main()).status_code == 200
