"""What the turns of a scripted model stream, with which ids, usage and delays."""

import asyncio
import contextlib

import pytest
from hypothesis import given, strategies as st

from glidepath import _wire
from glidepath.errors import TransientError
from glidepath.messages import StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta, Usage, UserMessage
from glidepath.spi import Model, ModelRequest, ToolSpec
from glidepath.testing import (
    ScriptedModel,
    VirtualClock,
    call,
    calls,
    empty,
    fail,
    no_end,
    raw,
    refuse,
    say,
    thinking,
    truncated,
    virtual,
)
from glidepath.testing.turns import fragments, pieces

ASK = ModelRequest(messages=[UserMessage("what is it?")])


async def drain(model, request=ASK):
    return [delta async for delta in model.stream(request)]


def play(*turns, **options):
    return asyncio.run(drain(ScriptedModel(turns, **options)))


def text_of(deltas):
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls_of(deltas):
    found = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call_id, name, arguments = found.get(delta.index, ("", "", ""))
            found[delta.index] = (call_id + delta.id, name + delta.name, arguments + delta.arguments)
    return [found[index] for index in sorted(found)]


def test_it_is_a_model():
    assert isinstance(ScriptedModel([]), Model)


@given(st.text())
def test_pieces_join_back_to_the_text(text):
    assert "".join(pieces(text)) == text


@given(st.text())
def test_fragments_join_back_and_are_two_or_more(text):
    split = fragments(text)
    assert "".join(split) == text
    assert len(split) >= min(2, len(text))
    assert len(split) <= 9


@given(st.text(max_size=60))
def test_a_text_is_streamed_exactly(text):
    deltas = play(say(text))
    assert text_of(deltas) == text
    assert [delta for delta in deltas if isinstance(delta, StreamEnd)] == deltas[-1:]


def test_a_text_comes_word_by_word():
    *words, end = play(say("one two  three\n"))
    assert [word.text for word in words] == ["one ", "two  ", "three\n"]
    assert end.stop_reason == "end_turn"


def test_a_call_comes_in_fragments_and_the_first_names_it():
    *parts, end = play(call("lookup", query="x"))
    assert len(parts) >= 2
    assert (parts[0].id, parts[0].name) == ("call_1", "lookup")
    assert {(part.id, part.name) for part in parts[1:]} == {("", "")}
    assert calls_of(parts) == [("call_1", "lookup", '{"query":"x"}')]
    assert end.stop_reason == "tool_use"


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.booleans())))
def test_any_arguments_survive_the_stream(arguments):
    [(_, _, body)] = calls_of(play(call("t", arguments)))
    assert _wire.loads(body) == {**arguments}


def test_every_keyword_is_an_argument_even_name_usage_text_and_delay():
    [(_, name, body)] = calls_of(play(call("t", name="n", usage=1, text="x", delay=2, given=3)))
    assert name == "t"
    assert _wire.loads(body) == {"name": "n", "usage": 1, "text": "x", "delay": 2, "given": 3}


def test_several_calls_in_one_reply_keep_their_order_and_get_ids_in_turn():
    deltas = play(calls(call("a", x=1), call("b"), text="Both now."))
    assert text_of(deltas) == "Both now."
    assert calls_of(deltas) == [("call_1", "a", '{"x":1}'), ("call_2", "b", "{}")]


def test_ids_go_on_from_turn_to_turn_and_can_be_given():
    model = ScriptedModel([call("a"), call("b").with_id("mine"), call("c").with_text("Now.")])
    deltas = [asyncio.run(drain(model)) for _ in range(3)]
    assert [calls_of(part)[0][0] for part in deltas] == ["call_1", "mine", "call_2"]
    assert text_of(deltas[2]) == "Now."


def test_one_id_is_needed_for_each_call():
    with pytest.raises(ValueError, match="1 id for 2 calls"):
        calls(call("a"), call("b")).with_id("only")


def test_a_turn_never_changes():
    turn = call("a")
    turn.with_text("x").with_id("y").with_usage("missing").with_delay(1.0)
    assert turn == call("a")


def test_fail_raises_the_error_after_so_many_pieces():
    seen = []

    async def main():
        async for delta in ScriptedModel([fail(TransientError("gone"), after=2, text="a b c")]).stream(ASK):
            seen.append(delta)  # noqa: PERF401 - read after a failure

    with pytest.raises(TransientError, match="gone"):
        asyncio.run(main())
    assert text_of(seen) == "a b "


@pytest.mark.parametrize(
    ("turn", "text"),
    [
        (fail(TransientError()), ""),
        (fail(TransientError(), text="all of it"), "all of it"),
        (fail(TransientError, after=1), "word "),
        (fail(TransientError(), after=0, text="none of it"), ""),
    ],
)
def test_what_fail_says_before(turn, text):
    seen = []

    async def main():
        async for delta in ScriptedModel([turn]).stream(ASK):
            seen.append(delta)  # noqa: PERF401 - read after a failure

    with pytest.raises(TransientError):
        asyncio.run(main())
    assert text_of(seen) == text


def test_fail_after_more_pieces_than_there_are_is_refused():
    with pytest.raises(ValueError, match="only 1 pieces"):
        fail(TransientError(), after=2, text="one")


def test_an_error_raised_again_and_again_does_not_grow():
    error = TransientError("again")
    model = ScriptedModel().forever(fail(error))

    async def main():
        for _ in range(5):
            with contextlib.suppress(TransientError):
                await drain(model)

    asyncio.run(main())
    depth = 0
    trace = error.__traceback__
    while trace:
        depth, trace = depth + 1, trace.tb_next
    assert depth <= 4


@pytest.mark.parametrize(
    ("turn", "text", "reason"),
    [
        (truncated("half a"), "half a", "max_tokens"),
        (refuse("I will not."), "I will not.", "refusal"),
        (refuse(), "", "refusal"),
        (empty(), "", "end_turn"),
        (say("x", stop_reason="pause_turn"), "x", "pause_turn"),
    ],
)
def test_texts_and_their_stop_reasons(turn, text, reason):
    deltas = play(turn)
    assert text_of(deltas) == text
    assert deltas[-1].stop_reason == reason


def test_a_truncated_call_has_its_last_arguments_cut():
    turn = calls(call("a", x=1), call("b", y="long enough"))
    deltas = play(truncated(turn, cut=5))
    assert calls_of(deltas) == [("call_1", "a", '{"x":1}'), ("call_2", "b", '{"y":')]
    assert deltas[-1].stop_reason == "max_tokens"


@pytest.mark.parametrize(("cut", "body"), [(None, '{"x"'), (0, ""), (99, '{"x":123}')])
def test_where_a_call_is_cut(cut, body):
    assert calls_of(play(truncated(call("a", x=123), cut=cut))) == [("call_1", "a", body)]


def test_a_text_is_not_cut():
    with pytest.raises(ValueError, match="pass the text already cut"):
        truncated("text", cut=2)


def test_thinking_comes_first():
    deltas = play(thinking("let me see", call("a")))
    assert [type(delta) for delta in deltas[:3]] == [ThinkingDelta] * 3
    assert calls_of(deltas) == [("call_1", "a", "{}")]
    assert deltas[-1].stop_reason == "tool_use"
    assert text_of(play(thinking("hm", "so"))) == "so"


def test_no_end_has_no_end():
    assert text_of(play(no_end("some text"))) == "some text"
    assert not any(isinstance(delta, StreamEnd) for delta in play(no_end("some text")))
    assert play(no_end()) == []


def test_raw_is_what_is_given():
    deltas = (TextDelta("<thi"), TextDelta("nk>"), StreamEnd("weird"))
    assert tuple(play(raw(*deltas))) == deltas


def test_usage_is_counted_honestly():
    request = ModelRequest(
        system_prompt="x" * 40, messages=[UserMessage("y" * 40)], tools=(ToolSpec("t" * 10, "d" * 10, {}),)
    )
    *_, end = asyncio.run(drain(ScriptedModel([say("z" * 20)]), request))
    assert end.usage == Usage(input=(40 + 40 + 22) // 4, output=5)


def test_usage_counts_at_least_one_token_for_a_word_and_none_for_silence():
    assert play(say("a"))[-1].usage.output == 1
    assert play(empty())[-1].usage.output == 0


def test_usage_of_the_turn_wins_over_that_of_the_model():
    told, other = Usage(input=7, output=3), Usage(input=1, output=1)
    assert play(say("a"), usage=told)[-1].usage == told
    assert play(say("a", usage=other), usage=told)[-1].usage == other
    assert play(call("a").with_usage("missing"), usage=told)[-1].usage is None
    assert play(say("a"), usage="missing")[-1].usage is None


def test_functions_of_the_request_answer_it():
    async def later(request):
        await asyncio.sleep(0)
        return call("echo", text=request.messages[0].text)

    model = ScriptedModel([lambda request: request.messages[0].text.upper(), later])
    assert text_of(asyncio.run(drain(model))) == "WHAT IS IT?"
    assert calls_of(asyncio.run(drain(model))) == [("call_1", "echo", '{"text":"what is it?"}')]


def test_optional_attributes_are_there_only_as_given():
    plain = ScriptedModel([])
    assert not hasattr(plain, "count_tokens")
    assert (plain.name, plain.price, plain.context_window) == ("scripted", None, None)
    rich = ScriptedModel([], name="m", price=("1", "2"), max_output_tokens=9, context_window=99, count_tokens=len)
    assert (rich.name, rich.price, rich.max_output_tokens, rich.context_window) == ("m", ("1", "2"), 9, 99)
    assert rich.count_tokens is len


@virtual
async def test_delays_are_slept_before_each_piece():
    loop = asyncio.get_running_loop()
    times = [loop.time() async for _ in ScriptedModel([say("a b c")], delay=2.0, first_chunk_delay=5.0).stream(ASK)]
    assert times == [7.0, 9.0, 11.0, 11.0]


@pytest.mark.parametrize("turn", [fail(TransientError()), empty()])
def test_the_first_delay_passes_also_when_nothing_is_said(turn):
    clock = VirtualClock()

    async def main():
        with contextlib.suppress(TransientError):
            await drain(ScriptedModel([turn], first_chunk_delay=3.0))

    clock.run(main())
    assert clock.time() == 3.0


def test_a_turns_delay_wins_over_that_of_the_model():
    clock = VirtualClock()
    model = ScriptedModel([say("a b", delay=1.0), call("t").with_delay(0.0, first_chunk=4.0)], delay=50.0)
    clock.run(drain(model))
    assert clock.time() == 2.0
    clock.run(drain(model))
    assert clock.time() == 6.0
