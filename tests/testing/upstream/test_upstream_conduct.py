"""What each behavior says, in every dialect."""

import json

import pytest
from tests.testing.upstream.talk import DIALECTS, build, calls_of, events, post, run, stop_of, text_of

from glidepath.errors import ConfigurationError
from glidepath.testing import ScriptedUpstream

CUT = {
    "anthropic": "max_tokens",
    "openai-chat": "length",
    "openai-responses": "max_output_tokens",
    "gemini": "MAX_TOKENS",
}
AGENT = {
    "type": "object",
    "properties": {
        "description": {"type": "string"},
        "prompt": {"type": "string"},
        "subagent_type": {"type": "string"},
        "run_in_background": {"type": "boolean"},
    },
    "required": ["description", "prompt"],
}


def ask(behavior, dialect, **options):
    """One unstreamed reply of that behavior, with the call as the upstream saw it."""

    async def main():
        async with ScriptedUpstream(behavior) as up:
            reply = await post(up.url, *build(dialect, **options))
            assert reply.status_code == 200, reply.text
            return reply.json(), up.calls[-1]

    return run(main())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_loop_calls_a_tool_with_harmless_arguments(dialect):
    reply, call = ask("loop", dialect)
    assert calls_of(dialect, reply) == [("Bash", {"command": "echo step 1"})]
    assert (call.tools, call.said) == (("Bash",), ("Bash",))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("behavior", ["loop", "same", "spawn", "honest"])
def test_a_model_whose_tools_are_withdrawn_answers(dialect, behavior):
    for options in ({"choice": "none"}, {"tools": False}):
        reply, _ = ask(behavior, dialect, **options)
        assert calls_of(dialect, reply) == []
        assert "SCRIPTED-ANSWER" in text_of(dialect, reply)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stubborn_model_calls_a_tool_against_orders(dialect):
    reply, _ = ask("stubborn", dialect, choice="none")
    assert [name for name, _ in calls_of(dialect, reply)] == ["Bash"]
    reply, _ = ask("stubborn", dialect, tools=False)
    assert "SCRIPTED-ANSWER" in text_of(dialect, reply)  # it has never heard of a tool


def test_a_stubborn_model_remembers_a_tool_that_is_no_longer_offered():
    path, body = build("openai-chat", tools=False)
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
    ]

    async def main():
        async with ScriptedUpstream("stubborn") as up:
            return (await post(up.url, path, body)).json()

    assert [name for name, _ in calls_of("openai-chat", run(main()))] == ["look"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_that_must_use_a_tool_does(dialect):
    reply, _ = ask("answer", dialect, choice="any")
    assert [name for name, _ in calls_of(dialect, reply)] == ["Bash"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_endless_reply_ends_at_the_maximum_with_the_reason(dialect, stream):
    async def main():
        async with ScriptedUpstream("endless", rate=1e6) as up:
            reply = await post(up.url, *build(dialect, stream=stream, most=500))
            return reply, up.usage.output

    reply, output = run(main())
    assert output == 500
    if stream:
        assert CUT[dialect] in reply.text
        assert '"end_turn"' not in reply.text
        assert '"stop"' not in reply.text.replace('"stop_reason"', "")
    else:
        assert stop_of(dialect, reply.json()) == CUT[dialect]
        assert len(text_of(dialect, reply.json())) == 2000


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_call_that_exceeds_the_maximum_is_cut(dialect):
    async def main():
        async with ScriptedUpstream("loop:tokens=40") as up:
            path, body = build(dialect, most=43)
            return (await post(up.url, path, body)).json(), up.usage.output

    reply, output = run(main())
    assert stop_of(dialect, reply) == CUT[dialect]
    assert output <= 43


def test_the_same_call_comes_again_and_again():
    async def main():
        async with ScriptedUpstream("same") as up:
            path, body = build("openai-chat")
            replies = []
            for _ in range(3):
                message = (await post(up.url, path, body)).json()["choices"][0]["message"]
                replies.append(message["tool_calls"][0]["function"])
                body["messages"] += [
                    {"role": "assistant", "content": None, "tool_calls": message["tool_calls"]},
                    {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "ok"},
                ]
            up.behavior = "loop"
            message = (await post(up.url, path, body)).json()["choices"][0]["message"]
            return replies, message["tool_calls"][0]["function"]

    replies, varied = run(main())
    assert replies == [replies[0]] * 3
    assert json.loads(varied["arguments"]) == {"command": "echo step 4"}


def spawning(task, **extra):
    tools = [
        {"name": "Agent", "input_schema": AGENT},
        {"name": "Bash", "input_schema": build("anthropic")[1]["tools"][0]["input_schema"]},
    ]
    return {"model": "m", "max_tokens": 4000, "tools": tools, "messages": [{"role": "user", "content": task}]} | extra


def test_a_spawning_model_starts_its_children_at_once_and_they_loop():
    async def main():
        async with ScriptedUpstream("spawn:children=3") as up:
            parent = (await post(up.url, "/v1/messages", spawning("do it #run-a7"))).json()
            given = [call for _, call in calls_of("anthropic", parent)]
            assert [name for name, _ in calls_of("anthropic", parent)] == ["Agent"] * 3
            assert all(one["subagent_type"] == "general-purpose" for one in given)
            assert all(one["run_in_background"] is False for one in given)
            child = (await post(up.url, "/v1/messages", spawning(given[1]["prompt"]))).json()
            assert calls_of("anthropic", child) == [("Bash", {"command": "echo step 1"})]
            assert [(call.run, call.child) for call in up.calls] == [("a7", None), ("a7", "2")]
            body = spawning("do it #run-a7")
            results = [{"type": "tool_result", "tool_use_id": one["id"], "content": "ok"} for one in parent["content"]]
            body["messages"] += [
                {"role": "assistant", "content": parent["content"]},
                {"role": "user", "content": results},
            ]
            after = (await post(up.url, "/v1/messages", body)).json()
            assert [name for name, _ in calls_of("anthropic", after)] == ["Bash"]  # then the parent loops, too
            assert up.runs["a7"].calls == 3

    run(main())


def test_children_spawn_children_when_the_depth_allows_it():
    async def main():
        async with ScriptedUpstream("spawn:children=2,depth=2") as up:
            body = spawning("You are scripted child 2.")
            inner = (await post(up.url, "/v1/messages", body)).json()
            prompts = [call["prompt"] for _, call in calls_of("anthropic", inner)]
            assert prompts == ["You are scripted child 2.1.", "You are scripted child 2.2."]
            last = (await post(up.url, "/v1/messages", spawning(prompts[0]))).json()
            assert [name for name, _ in calls_of("anthropic", last)] == ["Bash"]

    run(main())


@pytest.mark.parametrize("name", ["final_answer", "final_result", "submit"])
def test_a_tool_that_ends_the_run_is_called_when_forced_or_for_the_answer_only(name):
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    both = [
        {"type": "function", "function": {"name": name, "parameters": schema}},
        {"type": "function", "function": {"name": "look", "parameters": {}}},
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": both}

    async def main():
        async with ScriptedUpstream("loop") as up:
            looped = (await post(up.url, "/v1/chat/completions", body)).json()
            picked = {"tool_choice": {"type": "function", "function": {"name": name}}}
            forced = (await post(up.url, "/v1/chat/completions", body | picked)).json()
            up.behavior = "answer"
            answered = (await post(up.url, "/v1/chat/completions", body)).json()
            return [calls_of("openai-chat", one)[0] for one in (looped, forced, answered)]

    looped, forced, answered = run(main())
    assert looped[0] == "look"
    assert forced == answered == (name, {"answer": "SCRIPTED-ANSWER after 0 tool calls"})


def test_an_agent_that_submits_by_a_shell_line_is_given_it():
    body = build("openai-chat")[1]
    body["messages"].insert(0, {"role": "system", "content": "To end: echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})

    async def main():
        async with ScriptedUpstream("answer") as up:
            return (await post(up.url, "/v1/chat/completions", body)).json()

    [(name, arguments)] = calls_of("openai-chat", run(main()))
    assert name == "Bash"
    assert arguments["command"].startswith("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo 'SCRIPTED-ANSWER")


def test_custom_and_namespaced_tools_of_responses_are_called_in_their_own_form():
    inner = {
        "type": "function",
        "name": "exec_command",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    }

    async def main():
        async with ScriptedUpstream("loop") as up:
            namespace = {"type": "namespace", "name": "unix", "tools": [inner]}
            body = {"model": "m", "input": "x", "tools": [namespace, {"type": "custom", "name": "apply_patch"}]}
            first = (await post(up.url, "/v1/responses", body)).json()["output"][0]
            second = (await post(up.url, "/v1/responses", body | {"tools": body["tools"][1:]})).json()["output"][0]
            return first, second

    first, second = run(main())
    assert (first["type"], first["name"], first["namespace"]) == ("function_call", "exec_command", "unix")
    assert (second["type"], second["name"], second["input"]) == ("custom_tool_call", "apply_patch", "step 1")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_events_of_a_stream_say_what_a_whole_reply_says(dialect):
    async def main():
        async with ScriptedUpstream("answer:tokens=50", delta=7) as up:
            whole = (await post(up.url, *build(dialect))).json()
            told = events((await post(up.url, *build(dialect, stream=True))).text)
            return whole, told, [call.output for call in up.calls]

    whole, told, outputs = run(main())
    texts = {
        "anthropic": lambda one: one.get("delta", {}).get("text", ""),
        "openai-chat": lambda one: one["choices"][0]["delta"].get("content") or "" if one["choices"] else "",
        "openai-responses": lambda one: one["delta"] if one["type"] == "response.output_text.delta" else "",
        "gemini": lambda one: one["candidates"][0]["content"]["parts"][0]["text"],
    }
    pieces = [texts[dialect](one) for one in told]
    assert "".join(pieces) == text_of(dialect, whole)
    assert len([piece for piece in pieces if piece]) == 29  # 200 bytes in pieces of 7
    assert outputs == [50, 50]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_fits_the_schema_that_the_request_wants(dialect):
    schema = {
        "type": "object",
        "properties": {"why": {"type": "string"}, "confidence": {"type": "number"}},
        "required": ["why", "confidence"],
    }
    path, body = build(dialect, tools=False)
    body |= {
        "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        "openai-chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}},
        "openai-responses": {"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}},
        "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}},
    }[dialect]

    async def main():
        async with ScriptedUpstream("loop") as up:
            return (await post(up.url, path, body)).json()

    told = json.loads(text_of(dialect, run(main())))
    assert told == {"why": "SCRIPTED-ANSWER after 0 tool calls", "confidence": 0}


def test_tools_that_come_in_an_item_are_called_and_can_be_withdrawn():
    script = {"type": "custom", "name": "exec", "format": {"type": "grammar"}}
    added = {"type": "additional_tools", "role": "developer"}
    added["tools"] = [{"type": "namespace", "name": "functions", "tools": [script]}]
    body = {"model": "m", "input": [added, {"role": "user", "content": "x"}]}

    async def main():
        async with ScriptedUpstream("loop") as up:
            called = (await post(up.url, "/v1/responses", body)).json()["output"]
            withdrawn = (await post(up.url, "/v1/responses", {**body, "tool_choice": "none"})).json()["output"]
            return called, withdrawn, up.calls[0].tools

    called, withdrawn, tools = run(main())
    assert tools == ("exec",)
    assert [(one["type"], one["namespace"], one["input"]) for one in called] == [
        ("custom_tool_call", "functions", 'text(await tools.exec_command({cmd: "echo step 1"}))')
    ]
    assert [one["type"] for one in withdrawn] == ["message"]


def test_a_child_that_is_told_its_task_by_another_agent_is_known():
    told = {"type": "agent_message", "author": "/root", "recipient": "/root/work_2"}
    told["content"] = [{"type": "encrypted_content", "encrypted_content": "You are scripted child 2."}]

    async def main():
        async with ScriptedUpstream("spawn") as up:
            await post(up.url, "/v1/responses", {"model": "m", "input": [told]})
            return up.calls[-1].child

    assert run(main()) == "2"


def test_children_that_run_beside_their_parent_are_waited_for_once():
    spawn = {"type": "object", "properties": {"message": {"type": "string"}, "items": {"type": "array"}}}
    wait = {
        "type": "object",
        "properties": {"targets": {"type": "array", "items": {"type": "string"}}},
        "required": ["targets"],
    }
    inner = [
        {"type": "function", "name": "spawn_agent", "parameters": spawn},
        {"type": "function", "name": "wait_agent", "parameters": wait},
    ]
    tools = [{"type": "namespace", "name": "crew", "tools": inner}]
    tools.append(
        {
            "type": "function",
            "name": "shell",
            "parameters": {"properties": {"command": {"type": "array"}}, "required": ["command"]},
        }
    )

    async def main():
        async with ScriptedUpstream("spawn:children=2") as up:
            items = [{"role": "user", "content": "x"}]
            said = []
            for answer in ('{"agent_id": "a1"}', '{"agent_id": "a1"}', "{}"):
                reply = (await post(up.url, "/v1/responses", {"model": "m", "input": items, "tools": tools})).json()
                said.append([(one["name"], json.loads(one["arguments"])) for one in reply["output"]])
                calls = [one for one in reply["output"] if one["type"] == "function_call"]
                items += calls
                items += [
                    {"type": "function_call_output", "call_id": one["call_id"], "output": answer} for one in calls
                ]
            return said

    first, second, third = run(main())
    assert first == [("spawn_agent", {"message": f"You are scripted child {number}."}) for number in (1, 2)]
    assert second == [("wait_agent", {"targets": ["a1", "a1"]})]
    assert third == [("shell", {"command": ["bash", "-lc", "echo step 4"]})]


def test_hidden_thinking_that_is_not_shown_is_still_paid():
    path, body = build("anthropic")
    body |= {"thinking": {"type": "adaptive", "display": "omitted"}, "max_tokens": 2000}

    async def main():
        async with ScriptedUpstream("answer") as up:
            return (
                (await post(up.url, path, body)).json(),
                (await post(up.url, path, {**body, "stream": True})).text,
                up.usage,
            )

    whole, streamed, usage = run(main())
    assert whole["content"][0]["thinking"] == ""
    assert "thinking_delta" not in streamed
    assert (usage.hidden, usage.output) == (24, 42)


def test_calls_that_an_agent_retells_in_words_count_as_calls():
    path, body = build("openai-chat", choice="any")
    told = "Calling tools:\n[{'id': 'call_1', 'type': 'function', 'function': {'name': 'Bash', 'arguments': {}}}]"
    body["messages"] += [{"role": "assistant", "content": told}, {"role": "user", "content": "Observation: ok"}]

    async def main():
        async with ScriptedUpstream("loop") as up:
            return (await post(up.url, path, body)).json()

    assert calls_of("openai-chat", run(main())) == [("Bash", {"command": "echo step 2"})]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lop", "did you mean 'loop'?"),
        ("loop+same", "both 'loop' and 'same'"),
        ("loop:speed=3", "'loop' has no option 'speed'; use one of calls"),
        ("429:every=often", "429"),
        ("honest:three", "write NAME=VALUE"),
        ("stubborn:calls=3", "takes no options"),
        ("spawn:then=dance", "'dance' is not one of"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused_with_what_is_possible(text, words):
    with pytest.raises(ConfigurationError) as caught:
        ScriptedUpstream(text)
    assert words in str(caught.value)
