"""The vendors' own compaction: asked for, sent back unchanged, charged, and left behind only when it has to be."""

import json

import pytest

from glidepath import Agent, ConfigurationError, Limits, tool
from glidepath.events import ContextShaped
from glidepath.models import AnthropicModel, OpenAIChatModel, OpenAIResponsesModel

from .dialects import KEY, Anthropic, Responses, event
from .server import Answer, Wire, run

SUMMARY = {"type": "compaction", "content": "Steps 1 to 3 are done.", "encrypted_content": "opaque"}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VjcmV0"}
USED = {"type": "compaction", "input_tokens": 900, "output_tokens": 70, "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0}  # fmt: skip


@tool
async def look(n: int) -> str:
    """Look something up."""
    return f"{n}: " + "The rule changed in spring. " * 40


def anthropic_reply(number, compacts):
    dialect = Anthropic()
    blocks = []
    if compacts:
        delta = {"type": "compaction_delta", "content": SUMMARY["content"], "encrypted_content": "opaque"}
        blocks = dialect.block(0, {"type": "compaction", "content": None}, delta)
    calls = dialect.calls((f"c{number}", "look", json.dumps({"n": number})))
    usage = {"output_tokens": 12, **({"iterations": [USED]} if compacts else {})}
    delta = {"stop_reason": "tool_use", "stop_sequence": None}
    end = [dialect.say("message_delta", delta=delta, usage=usage), dialect.say("message_stop")]
    counted = {"input_tokens": 300 + 450 * number, "output_tokens": 1}
    start = dialect.say("message_start", message={"id": "m", "role": "assistant", "usage": counted})
    return Answer([start, *blocks, *calls, *end])


def responses_reply(number, compacts):
    dialect = Responses()
    calls = dialect.calls((f"c{number}", "look", json.dumps({"n": number})))
    items = []
    if compacts:
        done = {"type": "response.output_item.done", "output_index": 7, "item": ITEM}
        items = [event(done, "response.output_item.done")]
    return Answer([*items, *calls, *dialect.end("tools")])


def fly(dialect, reply, model, window, turns=9, compacts_at=4):
    events = []

    async def flight():
        answers = [reply(number, number == compacts_at) for number in range(1, turns)]
        async with Wire([*answers, Answer([*dialect.text("Done."), *dialect.end()])]) as wire:
            made = model(wire.url)
            agent = Agent(model=made, tools=[look], limits=Limits(max_iterations=20), context_window=window,
                          max_output_tokens=200, event_sink=events.append)  # fmt: skip
            result = await agent.run("Look up everything.")
            await made.aclose()
            return result, wire.requests

    return *run(flight), [one for one in events if type(one) is ContextShaped]


def claude(url):
    return AnthropicModel("claude-opus-4-6", base_url=url, api_key=KEY, compaction=50_000)


def gpt(url):
    return OpenAIResponsesModel("gpt-test", base_url=f"{url}/v1", api_key=KEY, compaction=9_000)


def test_anthropic_is_asked_for_it_and_gets_its_block_back_unchanged():
    result, requests, shaped = fly(Anthropic(), anthropic_reply, claude, None)
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}}
    assert all(one.body["context_management"] == {"edits": [edit]} for one in requests)
    assert all("compact-2026-01-12" in one.headers["anthropic-beta"] for one in requests)
    sent = [block for message in requests[-1].body["messages"] for block in message["content"] if type(block) is dict]
    assert [block for block in sent if block.get("type") == "compaction"] == [SUMMARY]
    assert shaped == []
    assert result.outcome.name == "DONE"


def test_what_the_compaction_took_is_charged():
    with_it, _, _ = fly(Anthropic(), anthropic_reply, claude, None)
    without, _, _ = fly(Anthropic(), anthropic_reply, claude, None, compacts_at=99)
    assert with_it.usage.input - without.usage.input == 900
    assert with_it.usage.output - without.usage.output == 70


def test_openai_is_asked_for_it_and_gets_its_item_back_unchanged():
    result, requests, _ = fly(Responses(), responses_reply, gpt, None)
    asked = [{"type": "compaction", "compact_threshold": 9_000}]
    assert all(one.body["context_management"] == asked for one in requests)
    assert [one for one in requests[-1].body["input"] if one.get("type") == "compaction"] == [ITEM]
    assert result.outcome.name == "DONE"


@pytest.mark.parametrize(("dialect", "reply", "model"), [
    (Anthropic(), anthropic_reply, claude), (Responses(), responses_reply, gpt)
], ids=["anthropic", "openai-responses"])  # fmt: skip
def test_what_is_before_the_summary_goes_first_and_the_summary_never(dialect, reply, model):
    _, requests, shaped = fly(dialect, reply, model, 4_300, turns=16)
    assert shaped
    last = json.dumps(requests[-1].body)
    assert '"compaction"' in last
    assert "Look up everything." in last
    assert '"n": 1}' not in last
    assert '\\"n\\": 1}' not in last


def test_without_the_setting_nothing_is_asked_for():
    _, requests, _ = fly(Anthropic(), anthropic_reply, lambda url: Anthropic().model(url), None)
    assert "context_management" not in requests[0].body
    assert "compact" not in requests[0].headers.get("anthropic-beta", "")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: AnthropicModel("claude-opus-4-6", api_key=KEY, compaction=100), "at least 50000"),
        (lambda: AnthropicModel("claude-opus-4-6", api_key=KEY, compaction=True), "compaction=True"),
        (lambda: OpenAIResponsesModel("gpt-test", api_key=KEY, compaction=0), "compaction=0"),
        (lambda: OpenAIChatModel("gpt-test", api_key=KEY, compaction=9_000), "chat completions do not have it"),
    ],
)
def test_a_threshold_that_is_none_is_refused(make, what):
    with pytest.raises(ConfigurationError, match=what):
        make()
