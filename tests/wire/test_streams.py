"""What comes out of each adapter for what a provider sends, well and badly."""

import asyncio
import json
import time

import pytest

from glidepath.errors import ModelError, RefusedError, RejectedError, TransientError
from glidepath.messages import StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta, UserMessage
from glidepath.models import Events, ModelRequest
from glidepath.testing import no_leftovers

from .dialects import DIALECTS, USED, event
from .server import Answer, Wire, run

REQUEST = ModelRequest(messages=[UserMessage("hello")])
every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


async def collect(model, request=REQUEST):
    return [delta async for delta in model.stream(request)]


async def heard(dialect, *answers):
    """All deltas of one request, and the server that answered it."""
    async with Wire(answers) as wire:
        model = dialect.model(wire.url)
        try:
            return await collect(model)
        finally:
            await model.aclose()


def text_of(deltas):
    return "".join([delta.text for delta in deltas if type(delta) is TextDelta])


def calls_of(deltas):
    calls = {}
    for delta in deltas:
        if type(delta) is ToolCallDelta:
            call = calls.setdefault(delta.index, ["", "", ""])
            call[0] = call[0] or delta.id
            call[1] = call[1] or delta.name
            call[2] += delta.arguments
    return [(call_id, name, json.loads(arguments)) for call_id, name, arguments in calls.values()]


@every
def test_text_streams_in_its_pieces_and_ends_with_its_usage(dialect):
    deltas = run(lambda: heard(dialect, Answer([*dialect.text("Hel", "lo ", "w\u00f6rld"), *dialect.end()])))
    assert [delta.text for delta in deltas if type(delta) is TextDelta] == ["Hel", "lo ", "w\u00f6rld"]
    end = deltas[-1]
    assert type(end) is StreamEnd
    assert end.stop_reason == "end_turn"
    assert (end.usage.input, end.usage.output) == (USED["input"], USED["output"])
    assert (end.usage.cache_read, end.usage.reasoning) == (USED["cached"], USED["thought"])


@every
def test_parallel_calls_come_in_fragments_and_join_by_index(dialect):
    sent = [("call_a", "search", '{"query": "leave rules"}'), ("call_b", "open", '{"page": 7}')]
    chunks = [*dialect.text("Looking."), *dialect.calls(*sent), *dialect.end("tools")]
    deltas = run(lambda: heard(dialect, Answer(chunks)))
    assert calls_of(deltas) == [("call_a", "search", {"query": "leave rules"}), ("call_b", "open", {"page": 7})]
    assert text_of(deltas) == "Looking."
    assert deltas[-1].stop_reason == "tool_use"


@every
@pytest.mark.parametrize(("said", "meant"), [("length", "max_tokens"), ("refusal", "refusal"), ("odd", None)])
def test_stop_reasons_have_our_names(dialect, said, meant):
    assert run(lambda: heard(dialect, Answer([*dialect.text("x"), *dialect.end(said)])))[-1].stop_reason == (
        meant or dialect.odd
    )


@every
def test_an_unknown_stop_reason_is_logged_once(dialect, caplog):
    async def twice():
        async with Wire([Answer([*dialect.text("x"), *dialect.end("odd")])] * 2) as wire:
            model = dialect.model(wire.url)
            await collect(model)
            await collect(model)
            await model.aclose()

    run(twice)
    assert [record.name for record in caplog.records if "unknown reason" in record.message] == ["glidepath"]


@every
def test_a_refusal_without_a_word_is_a_refusal_and_not_an_empty_reply(dialect):
    opening = dialect.start() if hasattr(dialect, "start") else []
    with pytest.raises(RefusedError):
        run(lambda: heard(dialect, Answer([*opening, *dialect.end("refusal")])))


@every
def test_a_reply_spent_on_hidden_thoughts_is_truncated_and_not_empty(dialect):
    opening = dialect.start() if hasattr(dialect, "start") else []
    deltas = run(lambda: heard(dialect, Answer([*opening, *dialect.end("length")])))
    assert deltas[:-1] == [ThinkingDelta("")]
    assert deltas[-1].stop_reason == "max_tokens"


@every
def test_a_stream_without_its_terminal_event_has_no_end(dialect):
    deltas = run(lambda: heard(dialect, Answer(dialect.text("half an ans"))))
    assert text_of(deltas) == "half an ans"
    assert not [delta for delta in deltas if type(delta) is StreamEnd]


@every
@pytest.mark.parametrize("ending", ["abort", "refuse"])
def test_a_dropped_connection_is_transient(dialect, ending):
    with pytest.raises(TransientError):
        run(lambda: heard(dialect, Answer(dialect.text("half"), ending=ending)))


@every
def test_nobody_at_the_address_is_transient_and_says_why(dialect):
    async def nobody():
        async with Wire([]) as wire:
            url = wire.url
        model = dialect.model(url)
        try:
            await collect(model)
        finally:
            await model.aclose()

    with pytest.raises(TransientError, match=r"nothing answers at this address"):
        run(nobody)


@every
@pytest.mark.parametrize("garbage", [b"data: {nonsense\n\n", b'data: {"choices": 7, "type": 3, "candidates": 5}\n\n'])
def test_a_garbage_event_is_transient(dialect, garbage):
    if b"choices" in garbage and dialect.name == "openai-responses":
        garbage = b'data: {"type": "response.output_text.delta"}\n\n'
    if b"choices" in garbage and dialect.name == "anthropic":
        garbage = b'event: content_block_delta\ndata: {"type": "content_block_delta"}\n\n'
    with pytest.raises(TransientError):
        run(lambda: heard(dialect, Answer([*dialect.text("x"), garbage, *dialect.end()])))


@every
def test_a_page_instead_of_a_stream_is_rejected_and_names_the_address(dialect):
    page = Answer([b"<html><body>Log in</body></html>"], kind="text/html")
    with pytest.raises(RejectedError, match="base_url"):
        run(lambda: heard(dialect, page))


@every
def test_a_wrong_content_type_does_not_matter_when_the_events_are_right(dialect):
    answer = Answer([*dialect.text("fine"), *dialect.end()], kind="text/plain")
    assert text_of(run(lambda: heard(dialect, answer))) == "fine"


@every
def test_a_huge_event_is_read_in_time_that_grows_with_its_length(dialect):
    large = "x" * 4_000_000
    whole = b"".join([*dialect.text(large), *dialect.end()])
    pieces = [whole[start : start + 16_384] for start in range(0, len(whole), 16_384)]
    begun = time.process_time()
    assert len(text_of(run(lambda: heard(dialect, Answer(pieces))))) == len(large)
    assert time.process_time() - begun < 5


@every
def test_an_error_event_in_mid_stream_has_its_kind(dialect):
    with pytest.raises(TransientError, match="it broke"):
        run(lambda: heard(dialect, Answer([*dialect.text("so far"), dialect.failed("api_error")])))


@every
def test_breaking_off_closes_the_connection_and_leaves_nothing_behind(dialect):
    async def break_off():
        async with Wire([Answer([*dialect.text("one", "two")], ending="hang")]) as wire:
            model = dialect.model(wire.url)
            async with no_leftovers():
                stream = model.stream(REQUEST)
                async for delta in stream:
                    if type(delta) is TextDelta:
                        break
                await stream.aclose()
                async with asyncio.timeout(2):
                    await wire.closed.wait()
                await asyncio.sleep(0)
            await model.aclose()

    run(break_off)


@every
def test_cancelling_closes_the_connection(dialect):
    async def cancel():
        async with Wire([Answer(dialect.text("one"), ending="hang")]) as wire:
            model = dialect.model(wire.url)
            task = asyncio.create_task(collect(model))
            await wire.asked.wait()
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(2):
                await wire.closed.wait()
            await model.aclose()

    run(cancel)


@every
def test_a_connection_is_used_again_and_closed_when_its_loop_ends(dialect):
    """One model, two event loops: each has connections of its own."""
    answers = [Answer([*dialect.text("x"), *dialect.end()])] * 2
    model = None

    async def two_calls():
        nonlocal model
        async with Wire(list(answers)) as wire:
            model = dialect.model(wire.url)
            await collect(model)
            await collect(model)
            assert wire.connections == 1

    run(two_calls)
    assert not model._clients._live

    async def elsewhere():
        with pytest.raises(ModelError):  # the server has gone, and the answer is an error of ours, not of a dead loop
            await collect(model)
        await model.aclose()

    run(elsewhere)


def test_thoughts_and_text_in_parts_are_told_apart():
    """As Mistral sends them."""
    chat = DIALECTS[0]
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Yes."}]
    deltas = run(lambda: heard(chat, Answer([chat.chunk({"content": parts}), *chat.end()])))
    assert deltas[:-1] == [ThinkingDelta("Hm."), TextDelta("Yes.")]


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "abort"])
def test_a_reply_that_the_server_gave_up_is_no_answer(reason):
    chat = DIALECTS[0]
    deltas = run(lambda: heard(chat, Answer([*chat.text("half"), chat.chunk({}, reason)])))
    assert deltas[-1].stop_reason in ("error", "aborted")


def test_a_server_that_never_says_done_has_given_its_reason():
    chat = DIALECTS[0]
    deltas = run(lambda: heard(chat, Answer([*chat.text("whole"), chat.chunk({}, "stop")])))
    assert deltas[-1].stop_reason == "end_turn"


def test_a_server_that_counts_reasoning_apart_has_it_counted_in():
    chat = DIALECTS[0]
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 22}
    usage["completion_tokens_details"] = {"reasoning_tokens": 7}
    chunk = event({"choices": [], "usage": usage})
    deltas = run(lambda: heard(chat, Answer([*chat.text("x"), chat.chunk({}, "stop"), chunk])))
    assert (deltas[-1].usage.output, deltas[-1].usage.reasoning) == (12, 7)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_their_bytes_are_cut(line_end, size):
    lines = [": hello", "event: a", "data: {\u00fc", "data:}", "id: 4", "", "", "data:  two", "", "data: tail"]
    raw = line_end.join(lines).encode()
    events = Events()
    found = [pair for start in range(0, len(raw), size) for pair in events.feed(raw[start : start + size])]
    assert [*found, *events.finish()] == [("a", "{\u00fc\n}"), ("", " two"), ("", "tail")]


def test_an_event_without_end_is_given_up():
    events = Events()
    for _ in range(64):
        assert events.feed(b"x" * 1_000_000) == []
    with pytest.raises(TransientError, match="more than"):
        events.feed(b"x" * 4_000_000)
