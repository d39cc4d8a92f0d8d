"""The vendor's own compaction, inside a run: what it replaces goes first, and another vendor reads the whole."""

import json

from glidepath import Agent, Limits, tool
from glidepath.errors import TransientError
from glidepath.messages import (
    AssistantMessage,
    ReasoningBlock,
    ReasoningDelta,
    StreamEnd,
    TextDelta,
    ToolCallDelta,
    Usage,
    UserMessage,
)
from glidepath.testing import ScriptedModel, call, fail, raw, virtual

SUMMARY = json.dumps({"item": {"type": "compaction", "encrypted_content": "c2VjcmV0"}})


@tool
async def look(n: int) -> str:
    """Look something up."""
    return f"{n}: " + "The rule changed in spring. " * 40


def compacting(*turns, **settings):
    model = ScriptedModel(turns, name="first", **settings)
    model.vendor, model.compaction = "acme", 1_000
    return model


def compacted(number, opaque=SUMMARY):
    one = ToolCallDelta(index=0, id=f"s{number}", name="look", arguments=json.dumps({"n": number}))
    return raw(ReasoningDelta("", opaque, "acme"), TextDelta("so"), one, StreamEnd("tool_use", Usage(300, 20)))


def numbers(request):
    return [c.arguments["n"] for m in request.messages if isinstance(m, AssistantMessage) for c in m.tool_calls]


def has_summary(request):
    blocks = [b for m in request.messages if isinstance(m, AssistantMessage) for b in m.blocks]
    return any(isinstance(block, ReasoningBlock) and block.opaque == SUMMARY for block in blocks)


@virtual
async def test_what_is_before_the_summary_goes_first_and_the_task_and_the_summary_never():
    turns = [call("look", n=1), call("look", n=2), compacted(3), *[call("look", n=n) for n in range(4, 14)], "Done."]
    model = compacting(*turns, max_output_tokens=200)
    agent = Agent(model=model, tools=[look], limits=Limits(max_iterations=30), context_window=4_000)
    await agent.run("Look up everything.")
    assert numbers(model.requests[3]) == [1, 2, 3]  # sent as long as it fits: the cache has it
    assert 1 not in numbers(model.requests[-1])
    assert 2 not in numbers(model.requests[-1])
    assert has_summary(model.requests[-1])
    assert model.requests[-1].messages[0] == UserMessage("Look up everything.")


@virtual
async def test_a_summary_that_failed_replaces_nothing():
    empty = json.dumps({"item": {"type": "compaction", "content": ""}})
    turns = [
        *[call("look", n=n) for n in range(1, 9)],
        compacted(9, empty),
        *[call("look", n=n) for n in range(10, 17)],
    ]
    model = compacting(*turns, "Done.", max_output_tokens=200)
    agent = Agent(model=model, tools=[look], limits=Limits(max_iterations=30), context_window=4_000)
    await agent.run("Look up everything.")
    shaped = next(request for request in model.requests if numbers(request) and 1 not in numbers(request))
    assert 7 in numbers(shaped)  # only as much as had to go


@virtual
async def test_a_fallback_of_another_vendor_reads_the_conversation_itself():
    first = compacting(
        call("look", n=1), call("look", n=2), compacted(3), *[call("look", n=n) for n in range(4, 20)],
        fail(TransientError("down")), max_output_tokens=200,
    )  # fmt: skip
    second = ScriptedModel(["Done."], name="second", max_output_tokens=200, context_window=100_000)
    agent = Agent(model=first, fallback_models=[second], tools=[look], limits=Limits(max_iterations=30),
                  context_window=4_000, max_retries=0)  # fmt: skip
    result = await agent.run("Look up everything.")
    assert result.text == "Done."
    assert 1 not in numbers(first.requests[-1])
    assert numbers(second.requests[0]) == list(range(1, 20))
    assert not has_summary(second.requests[0])
