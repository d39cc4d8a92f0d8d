"""From deltas to one reply: joined fragments, unique call ids, clean text, calls that were cut (1.2, 1.3, G8)."""

import pytest

from glidepath import Agent, Limits, LoopOutcome, tool
from glidepath.messages import (
    ReasoningBlock,
    ReasoningDelta,
    StopReason,
    StreamEnd,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
)
from glidepath.testing import EventRecorder, ScriptedModel, call, calls, raw, transcript_errors, virtual

LIMITS = Limits(max_iterations=4)


@tool
async def echo(text: str = "") -> str:
    return f"echo {text}"


async def replies(*script, **settings):
    recorder = EventRecorder()
    agent = Agent(
        model=ScriptedModel(script).forever("done"),
        tools=[echo],
        limits=LIMITS,
        plugins=[recorder.as_plugin()],
        **settings,
    )
    result = await agent.run("go")
    recorder.assert_legal()
    assert transcript_errors(result.messages) == []
    return result


def end(reason="end_turn"):
    return StreamEnd(reason)


@virtual
async def test_all_blocks_of_a_reply_are_kept_in_order():
    reasoning = ReasoningDelta("because", "\x01opaque==", "vendor")
    turn = raw(
        reasoning,
        ThinkingDelta("hm "),
        ThinkingDelta("hm"),
        TextDelta("let me "),
        TextDelta("see"),
        ToolCallDelta(0, "a", "echo", '{"te'),
        ToolCallDelta(0, arguments='xt": "x"}'),
        end("tool_use"),
    )
    result = await replies(turn)
    assert result.messages[1].blocks == (
        ReasoningBlock("because", "\x01opaque==", "vendor"),
        ThinkingBlock("hm hm"),
        TextBlock("let me see"),
        ToolCall("a", "echo", {"text": "x"}),
    )
    assert result.messages[2].text == "echo x"


@virtual
async def test_fragments_of_parallel_calls_join_per_index_whatever_their_order():
    turn = raw(
        ToolCallDelta(1, "b", "echo", '{"text": '),
        ToolCallDelta(0, "a", "echo", '{"text": "1"}'),
        ToolCallDelta(1, arguments='"2"}'),
        end("tool_use"),
    )
    result = await replies(turn)
    assert [made.arguments for made in result.messages[1].tool_calls] == [{"text": "1"}, {"text": "2"}]
    assert [message.call_id for message in result.messages[2:4]] == ["a", "b"]


@virtual
async def test_a_call_without_an_id_gets_one():
    result = await replies(raw(ToolCallDelta(0, "", "echo", "{}"), ToolCallDelta(1, "", "echo", "{}"), end("tool_use")))
    ids = [made.id for made in result.messages[1].tool_calls]
    assert all(ids)
    assert len(set(ids)) == 2


@virtual
async def test_an_id_that_comes_with_a_later_fragment_is_used():
    turn = raw(ToolCallDelta(0, "", "", '{"text"'), ToolCallDelta(0, "late", "echo", ': "x"}'), end("tool_use"))
    result = await replies(turn)
    assert result.messages[1].tool_calls == (ToolCall("late", "echo", {"text": "x"}),)


@virtual
async def test_ids_used_twice_are_told_apart_in_one_reply_and_over_replies():
    turn = calls(call("echo", text="1"), call("echo", text="2")).with_id("same", "same")
    result = await replies(turn, turn)
    ids = [made.id for message in result.messages if message.role == "assistant" for made in message.tool_calls]
    assert len(set(ids)) == 4
    assert ids[0] == "same"
    results = [(m.call_id, m.text) for m in result.messages if m.role == "tool_result"]
    assert results == list(zip(ids, ["echo 1", "echo 2"] * 2, strict=True))


@virtual
async def test_ids_of_an_earlier_run_in_the_session_are_not_used_again():
    from glidepath import Session

    session = Session()
    for _ in range(2):
        agent = Agent(model=ScriptedModel([call("echo").with_id("x"), "done"]), tools=[echo], limits=LIMITS)
        await agent.run("go", session=session)
    ids = [made.id for message in session.messages if message.role == "assistant" for made in message.tool_calls]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("arguments", ["", "   ", "{}"])
@virtual
async def test_no_arguments_are_an_empty_object(arguments):
    result = await replies(raw(ToolCallDelta(0, "a", "echo", arguments), end("tool_use")))
    assert result.messages[2].text == "echo "


MALFORMED = ["{", "[]", '"text"', "3", "null", "{'text': 1}", '{"text": "x"} trailing', "\ud800", "[" * 100_000]


@pytest.mark.parametrize("arguments", MALFORMED, ids=lambda text: repr(text[:12]))
@virtual
async def test_arguments_that_are_no_json_object_are_kept_and_answered(arguments):
    result = await replies(raw(ToolCallDelta(0, "a", "echo", arguments), end("tool_use")))
    made = result.messages[1].tool_calls[0]
    assert made.arguments == {}
    assert made.malformed
    assert (result.messages[2].is_error, result.messages[2].kind) == (True, "invalid_arguments")
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_lone_surrogates_from_the_model_are_replaced_everywhere():
    turn = raw(
        ThinkingDelta("hm \ud800"),
        TextDelta("half \ud83d"),
        ToolCallDelta(0, "id\udc00", "ec\udc00ho", '{"text": "ok"}'),
        end("tool_use"),
    )
    result = await replies(turn)
    from glidepath.values import codec

    for message in result.messages:
        codec.encode(message)
    assert result.messages[1].text == "half \ufffd"
    assert result.messages[2].kind == "unknown_tool"


@virtual
async def test_a_surrogate_pair_split_over_deltas_is_one_character():
    result = await replies(raw(TextDelta("\ud83d"), TextDelta("\ude00"), end()))
    assert result.outcome is LoopOutcome.DONE
    result.text.encode("utf-8", "strict")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", StopReason.END_TURN),
        ("wibble", StopReason.OTHER),
        (None, StopReason.OTHER),
        ([], StopReason.OTHER),
    ],
)
@virtual
async def test_a_stop_reason_nobody_knows_is_other(word, reason):
    result = await replies(raw(TextDelta("hi"), StreamEnd(word)))
    assert (result.outcome, result.text, result.stop_reason) == (LoopOutcome.DONE, "hi", reason)


@virtual
async def test_calls_count_whatever_the_stop_reason_says():
    result = await replies(raw(ToolCallDelta(0, "a", "echo", "{}"), end("end_turn")))
    assert result.tool_calls == 1


@virtual
async def test_a_delta_that_is_a_subclass_counts_as_what_it_is():
    class Marked(TextDelta, frozen=True, tag="marked"):
        pass

    result = await replies(raw(Marked("hel"), TextDelta("lo"), end()))
    assert result.text == "hello"


@virtual
async def test_a_model_that_counts_tokens_is_asked_when_a_budget_needs_it():
    asked = []

    async def count(request):
        asked.append(len(request.messages))
        return 11

    model = ScriptedModel(["hi"], count_tokens=count)
    result = await Agent(model=model, limits=Limits(max_tokens=50_000)).run("go")
    assert (asked, result.outcome) == ([1], LoopOutcome.DONE)


@pytest.mark.parametrize("answer", [ValueError, -1, "many", None, True])
@virtual
async def test_a_count_that_cannot_be_had_is_estimated(answer):
    def count(request):
        if answer is ValueError:
            raise ValueError("no tokenizer")
        return answer

    model = ScriptedModel(["hi"], count_tokens=count)
    result = await Agent(model=model, limits=Limits(max_tokens=50_000)).run("go")
    assert result.outcome is LoopOutcome.DONE


@virtual
async def test_a_count_that_hangs_is_given_up_and_a_cancel_gets_through():
    import asyncio

    from glidepath import CancelToken

    async def count(request):
        await asyncio.sleep(10_000)

    settings = {"limits": Limits(max_tokens=50_000), "first_chunk_timeout": 5}
    result = await Agent(model=ScriptedModel(["hi"], count_tokens=count), **settings).run("go")
    assert (result.outcome, result.elapsed) == (LoopOutcome.DONE, 5)
    token = CancelToken()
    asyncio.get_running_loop().call_later(1, token.cancel)
    result = await Agent(model=ScriptedModel([], count_tokens=count), **settings).run("go", cancel=token)
    assert (result.outcome, result.elapsed) == (LoopOutcome.CANCELLED, 1)
