"""The scripted model is strict: it fails the test when the run does not follow the script."""

import asyncio
import contextlib

import pytest

from glidepath import Agent, Limits, LoopOutcome
from glidepath.errors import TransientError
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, UserMessage
from glidepath.spi import ModelRequest, ToolSpec
from glidepath.testing import ScriptedModel, ScriptError, call, empty, fail, hang, no_leftovers, raw, say, virtual

ASK = ModelRequest(messages=[UserMessage("what is it?")])


async def drain(model, request=ASK):
    return [delta async for delta in model.stream(request)]


def text_of(deltas):
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def ids_of(deltas):
    return [delta.id for delta in deltas if isinstance(delta, ToolCallDelta) and delta.id]


def test_an_unexpected_request_raises_and_is_remembered():
    model = ScriptedModel([say("only")])
    asyncio.run(drain(model))
    with pytest.raises(ScriptError, match=r"unexpected request 2.*'what is it\?'"):
        asyncio.run(drain(model))
    with pytest.raises(ScriptError, match="unexpected request 2"):
        model.check()


def test_leftovers_fail_the_check_and_are_shown():
    def never(request):
        raise NotImplementedError

    model = ScriptedModel([say("first"), call("lookup", q=1), never, raw(StreamEnd()), hang(), fail(OSError), empty()])
    asyncio.run(drain(model))
    with pytest.raises(ScriptError) as caught:
        model.check()
    assert "6 of 7 turns" in str(caught.value)
    assert all(word in str(caught.value) for word in ("1 raw deltas", "hangs", "fails with", "nothing"))
    assert 'lookup({"q":1}) [tool_use]' in str(caught.value)
    assert "function never" in str(caught.value)


def test_a_script_that_was_followed_passes():
    with ScriptedModel([say("x"), empty()]) as model:
        asyncio.run(drain(model))
        asyncio.run(drain(model))
    model.check()


def test_leaving_the_block_checks():
    with pytest.raises(ScriptError, match="1 of 1 turn "), ScriptedModel([say("x")]):
        pass


def test_an_error_in_flight_is_kept_and_annotated():
    with pytest.raises(ZeroDivisionError) as caught, ScriptedModel([say("x")]):
        _ = 1 / 0
    assert "1 of 1 turn " in caught.value.__notes__[0]


def test_an_assertion_about_the_request_fails_the_check_even_when_swallowed():
    def picky(request):
        assert request.system_prompt == "be nice"
        return "never"

    model = ScriptedModel([picky])
    with contextlib.suppress(AssertionError):
        asyncio.run(drain(model))
    with pytest.raises(ScriptError, match="function picky raised AssertionError"):
        model.check()


def test_a_model_error_of_a_function_is_part_of_the_script():
    def down(request):
        raise TransientError("down")

    with ScriptedModel([down]) as model, contextlib.suppress(TransientError):
        asyncio.run(drain(model))
    assert model.closed_early == 0


def test_a_function_that_returns_nonsense_fails_the_check():
    model = ScriptedModel([lambda request: 42])
    with contextlib.suppress(TypeError):
        asyncio.run(drain(model))
    with pytest.raises(ScriptError, match="not int"):
        model.check()


def test_forever_answers_whatever_comes_after_the_script():
    with ScriptedModel([say("first")]).forever(call("again")) as model:
        first, second, third = [asyncio.run(drain(model)) for _ in range(3)]
    assert text_of(first) == "first"
    assert [*ids_of(second), *ids_of(third)] == ["call_1", "call_2"]
    assert model.calls == 3


def test_forever_does_not_excuse_leftovers():
    with pytest.raises(ScriptError, match="never asked for"):
        ScriptedModel([say("first")]).forever("again").check()


def test_a_recorded_request_does_not_see_later_messages():
    messages = [UserMessage("one")]
    model = ScriptedModel(["a"])
    request = ModelRequest(
        system_prompt="s",
        messages=messages,
        tools=(ToolSpec("t", "", {}),),
        max_output_tokens=5,
        tool_choice="none",
    )
    asyncio.run(drain(model, request))
    messages.append(UserMessage("two"))
    [seen] = model.requests
    assert seen.messages == (UserMessage("one"),)
    assert (seen.system_prompt, seen.tools, seen.max_output_tokens, seen.tool_choice) == ("s", ("t",), 5, "none")


def test_requests_need_not_be_kept():
    model = ScriptedModel(["a"], record=False)
    asyncio.run(drain(model))
    assert (model.requests, model.calls) == ([], 1)


def test_a_stream_that_was_never_read_asks_for_nothing():
    model = ScriptedModel(["a"])
    model.stream(ASK)
    assert model.calls == 0


@virtual
async def test_hang_never_ends_until_it_is_cancelled():
    model = ScriptedModel([hang("so far")])
    seen = []

    async def read():
        async for delta in model.stream(ASK):
            seen.append(delta)  # noqa: PERF401 - read after a failure

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(), 3600)
    assert text_of(seen) == "so far"
    assert (model.open_streams, model.closed_early) == (0, 1)


@virtual
async def test_closing_a_stream_in_the_middle_is_seen_and_leaves_nothing():
    model = ScriptedModel(["a b c"])
    async with no_leftovers():
        stream = model.stream(ASK)
        await anext(stream)
        assert model.open_streams == 1
        await stream.aclose()
    assert (model.open_streams, model.closed_early) == (0, 1)


@pytest.mark.parametrize("turn", [say("a"), raw(TextDelta("a"), StreamEnd())])
def test_closing_a_stream_after_its_end_is_not_early(turn):
    model = ScriptedModel([turn])

    async def main():
        stream = model.stream(ASK)
        async for delta in stream:
            if isinstance(delta, StreamEnd):
                break
        await stream.aclose()

    asyncio.run(main())
    assert (model.open_streams, model.closed_early) == (0, 0)


@virtual
async def test_parallel_streams_each_take_their_turn():
    model = ScriptedModel([say("a"), say("b")], delay=1.0)
    first, second = await asyncio.gather(drain(model), drain(model))
    assert {text_of(first), text_of(second)} == {"a", "b"}
    assert model.open_streams == 0


@virtual
async def test_others_get_a_chance_before_the_first_delta():
    order = []
    asyncio.get_running_loop().call_soon(order.append, "other")
    async for _ in ScriptedModel(["word"]).stream(ASK):
        order.append("delta")  # noqa: PERF401
    assert order[0] == "other"


def test_a_request_nobody_expected_is_not_retried():
    model = ScriptedModel([say("only this")])
    agent = Agent(model=model, limits=Limits(max_iterations=3))
    assert agent.run_sync("one").text == "only this"
    result = agent.run_sync("two")
    assert (result.outcome, model.calls) == (LoopOutcome.FAILED, 2)
    assert "unexpected request 2, the script has 1 turn;" in result.cause.reason


def test_a_failed_assertion_about_a_request_is_not_retried():
    def picky(request):
        assert request.system_prompt == "something else"

    model = ScriptedModel([picky])
    result = Agent(model=model, limits=Limits(max_iterations=3)).run_sync("go")
    assert (result.outcome, model.calls) == (LoopOutcome.FAILED, 1)
    with pytest.raises(ScriptError, match="picky raised"):
        model.check()
