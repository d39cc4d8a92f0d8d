"""Replies that the gate ends: cut at any event, with hidden calls, with words of its own. The SDKs are the judges."""

import json

import pytest

from glidepath.apps.gate.dialects import DIALECTS, OwnReply, WireAnswer
from glidepath.messages import Usage

from .sdks import asked
from .streams import CALLS, SAID, SPEAKERS, TEXT, open_reader, read, sse

in_pieces = pytest.mark.parametrize("speaker", SPEAKERS[:3], ids=lambda speaker: speaker.name)
"""Dialects in which a call comes in pieces."""
every = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
NOTE = "The budget is spent."


def sent(body: bytes) -> WireAnswer:
    return WireAnswer(status=200, content_type="text/event-stream", body=body)


@every
def test_a_reply_cut_at_any_event_is_a_whole_reply_without_half_a_call(speaker):
    frames = speaker().calls()
    for count in range(len(frames)):
        reader = open_reader(speaker())
        out = b"".join([reader.feed(frame) for frame in frames[:count]])
        complete = reader.is_complete
        out += reader.cut(NOTE)
        parsed = asked(speaker(), sent(out))
        assert all(call in CALLS for call in parsed.calls), count
        assert [call[0] for call in parsed.calls] == [call.id for call in reader.calls][: len(parsed.calls)]
        assert parsed.stop == (speaker.calling if parsed.calls else speaker.final), count
        assert parsed.output is not None
        assert reader.is_cut is not complete
        assert reader.feed(frames[-1]) == b""
        if not parsed.calls:
            assert parsed.text == reader.client_text
            assert parsed.text == (f"{reader.text}\n\n{NOTE}" if reader.text else NOTE)


@every
def test_a_cut_is_seen_by_a_client_that_does_not_stream(speaker):
    frames = speaker().calls()
    for count in range(0, len(frames), 3):
        reader = open_reader(speaker(), stream=False)
        for frame in frames[:count]:
            reader.feed(frame)
        if reader.is_complete:
            continue
        reader.cut(NOTE)
        whole = WireAnswer(status=200, content_type="application/json", body=reader.assemble())
        parsed = asked(speaker(), whole)
        assert all(call in CALLS for call in parsed.calls), count
        assert parsed.calls or parsed.text == reader.client_text


@in_pieces
def test_half_a_call_never_leaves_until_it_is_whole(speaker):
    reader = open_reader(speaker())
    before = [*speaker().begin(), *speaker().said(0)]
    for frame in before:
        assert reader.feed(frame)
    *call, last = speaker().called(0, 1)
    assert [reader.feed(frame) for frame in call] == [b""] * len(call)
    assert reader.is_waiting
    if speaker.name == "openai-chat":  # only the finish reason ends a call there
        call.append(last)
        assert reader.feed(last) == b""
        last = speaker.chunk({}, "tool_calls")
    assert reader.feed(last) == b"".join([*call, last])
    assert not reader.is_waiting


@in_pieces
def test_a_stream_that_breaks_off_inside_a_call_loses_the_call(speaker):
    reader = open_reader(speaker())
    begun = [*speaker().begin(), *speaker().said(0)]
    out = b"".join([reader.feed(frame) for frame in [*begun, *speaker().called(0, 1)[:2]]]) + reader.end()
    assert out == b"".join(begun)
    assert not reader.is_complete
    assert reader.calls == []


@every
def test_an_observer_holds_nothing_back(speaker):
    reader = open_reader(speaker(), hold_calls=False)
    for frame in speaker().calls():
        assert reader.feed(frame) is frame


@in_pieces
def test_what_waits_leaves_when_it_is_released(speaker):
    reader = open_reader(speaker())
    call = speaker().called(0, 1)
    begun = [*speaker().begin(), *speaker().said(0)]
    out = b"".join([reader.feed(frame) for frame in [*begun, *call[:2]]])
    out += reader.release()
    assert out == b"".join([*begun, *call[:2]])
    assert reader.feed(call[2]) is call[2]


@in_pieces
def test_half_a_call_that_has_left_is_not_ended_like_a_whole_one(speaker):
    for release in (False, True):
        reader = open_reader(speaker(), hold_calls=release)
        frames = [*speaker().begin(), *speaker().said(0), *speaker().called(0, 1)[:2]]
        out = b"".join([reader.feed(frame) for frame in frames])
        out += reader.release()
        assert out == b"".join(frames)
        assert reader.cut(NOTE) == b""
        assert reader.is_cut


@every
def test_usage_that_the_core_knows_is_told(speaker):
    reader = open_reader(speaker())
    out = b"".join([reader.feed(frame) for frame in [*speaker().begin(), *speaker().said(0)[:3]]])
    out += reader.cut(NOTE, Usage(input=100, output=77, cache_read=10))
    assert asked(speaker(), sent(out)).output == 77


@every
def test_hidden_calls_never_reach_the_client_and_the_reply_is_final(speaker):
    reader = open_reader(speaker(), hide_calls=True)
    out = b"".join([reader.feed(frame) for frame in speaker().calls()]) + reader.end()
    assert reader.is_complete
    assert b"look" not in out
    assert b"call_one" not in out
    out += reader.finish()
    parsed = asked(speaker(), sent(out))
    assert (parsed.text, parsed.calls, parsed.stop) == (SAID, [], speaker.final)
    assert [call.id for call in reader.calls] == ["call_one", "call_two"]
    assert reader.hidden_calls == 2
    assert b"call_one" not in out


@every
def test_a_reply_of_calls_only_gets_our_words(speaker):
    for how in ("streamed", "whole"):
        provider = speaker()
        frames = [*provider.begin(), *provider.called(0, 0), *provider.called(1, 1), *provider.end(provider.calling)]
        reader = open_reader(speaker(), hide_calls=True, stream=how == "streamed")
        out = b"".join([reader.feed(frame) for frame in frames]) + reader.end()
        assert reader.text == ""
        out += reader.finish(NOTE)
        answer = sent(out)
        if how == "whole":
            answer = WireAnswer(status=200, content_type="application/json", body=reader.assemble())
        parsed = asked(speaker(), answer)
        assert (parsed.text, parsed.calls, parsed.stop) == (NOTE, [], speaker.final)
        assert reader.client_text == NOTE
        assert parsed.output == 12


@every
def test_text_after_a_hidden_call_keeps_its_place(speaker):
    provider = speaker()
    frames = [*provider.begin(), *provider.called(0, 0), *provider.said(1), *provider.end(provider.calling)]
    reader = open_reader(speaker(), hide_calls=True)
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.finish("More.")
    parsed = asked(speaker(), sent(out))
    assert (parsed.text, parsed.calls) == (f"{SAID}\n\nMore.", [])


@every
def test_the_finishing_tool_may_be_called(speaker):
    reader = open_reader(speaker(), hide_calls=True, finishing="send")
    out = b"".join([reader.feed(frame) for frame in speaker().calls()]) + reader.finish()
    parsed = asked(speaker(), sent(out))
    assert parsed.calls == [CALLS[1]]
    assert parsed.stop == speaker.calling
    assert reader.hidden_calls == 1


@every
def test_a_landing_reply_that_is_cut_has_no_call(speaker):
    frames = speaker().calls()
    for count in range(len(frames) - 3):
        reader = open_reader(speaker(), hide_calls=True)
        out = b"".join([reader.feed(frame) for frame in frames[:count]]) + reader.cut(NOTE)
        parsed = asked(speaker(), sent(out))
        assert parsed.calls == []
        assert parsed.text.endswith(NOTE)


@every
def test_an_error_inside_a_landing_reply_becomes_our_words(speaker):
    provider = speaker()
    error = DIALECTS[speaker.name].write_stream_error(529, "overloaded", "Overloaded")
    reader = open_reader(speaker(), hide_calls=True)
    out = b"".join([reader.feed(frame) for frame in [*provider.begin(), *provider.said(0)[:3], error]])
    assert "Overloaded" in reader.failure
    assert b"Overloaded" not in out
    parsed = asked(speaker(), sent(out + reader.finish(NOTE)))
    assert parsed.text.endswith(NOTE)
    reader = open_reader(speaker())
    assert reader.feed(error) is error
    assert "Overloaded" in reader.failure


@in_pieces
def test_an_assembled_reply_is_what_the_sdk_makes_of_the_stream(speaker):
    """The reply of a provider that was streamed to us, for a client that wants one document."""
    frames = speaker().calls()
    reader = open_reader(speaker(), stream=False)
    for frame in frames:
        reader.feed(frame)
    whole = asked(speaker(), WireAnswer(status=200, content_type="application/json", body=reader.assemble()))
    streamed = asked(speaker(), sent(b"".join(frames)))
    assert (whole.text, whole.calls, whole.stop, whole.output) == (SAID, CALLS, speaker.calling, 12)
    assert (streamed.text, streamed.calls, streamed.stop) == (whole.text, whole.calls, whole.stop)
    one, other = (reply.raw.model_dump(exclude_none=True, warnings=False) for reply in (whole, streamed))
    assert one == strip(other)


def strip(dumped):
    """Without what only the SDK's stream helper adds."""
    if isinstance(dumped, list):
        return [strip(one) for one in dumped]
    if not isinstance(dumped, dict):
        return dumped
    return {
        name: strip(value) for name, value in dumped.items() if name not in ("parsed", "parsed_arguments", "index")
    } | ({"index": dumped["index"]} if "finish_reason" in dumped else {})


@every
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_our_own_words_are_a_reply_like_any_other(speaker, stream):
    dialect = DIALECTS[speaker.name]
    facts = read(speaker, speaker().body(stream=stream))
    answer = dialect.write_reply(facts, OwnReply(text="I am — done.", usage=Usage(3, 2)))
    parsed = asked(speaker(), answer)
    assert (parsed.text, parsed.calls, parsed.stop, parsed.output) == ("I am — done.", [], speaker.final, 2)
    assert facts.model in (getattr(parsed.raw, "model", None), getattr(parsed.raw, "model_version", None))


@every
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("text", ["", "Here it is."])
def test_our_own_finishing_move_is_a_call(speaker, stream, text):
    dialect = DIALECTS[speaker.name]
    facts = read(speaker, speaker().body(stream=stream))
    answer = dialect.write_reply(facts, OwnReply(text=text, call=("done", {"answer": "42", "é": [1]})))
    parsed = asked(speaker(), answer)
    ((_, name, arguments),) = parsed.calls
    assert (name, arguments) == ("done", {"answer": "42", "é": [1]})
    assert (parsed.text, parsed.stop) == (text, speaker.calling)


@every
def test_an_own_reply_without_words_still_has_a_text(speaker):
    dialect = DIALECTS[speaker.name]
    facts = read(speaker, speaker().body(stream=True))
    assert asked(speaker(), dialect.write_reply(facts, OwnReply())).text


@every
def test_an_own_stream_is_read_by_our_own_reader(speaker):
    dialect = DIALECTS[speaker.name]
    facts = read(speaker, speaker().body(stream=True))
    answer = dialect.write_reply(facts, OwnReply(text="Words.", call=("done", {"a": 1}), usage=Usage(3, 2)))
    reader = open_reader(speaker())
    assert reader.feed(answer.body) == answer.body
    assert (reader.text, reader.is_complete, reader.usage) == ("Words.", True, Usage(3, 2))
    assert [(call.name, json.loads(call.arguments)) for call in reader.calls] == [("done", {"a": 1})]


@every
def test_keep_alives_and_comments_before_a_reply_are_ignored(speaker):
    dialect = DIALECTS[speaker.name]
    for stream in (True, False):
        facts = read(speaker, speaker().body(stream=stream))
        answer = dialect.write_reply(facts, OwnReply(text="Words."))
        late = WireAnswer(
            status=200, content_type=answer.content_type, body=dialect.keep_alive(facts) * 3 + answer.body
        )
        assert asked(speaker(), late).text == "Words."


ERRORS = [400, 401, 402, 403, 404, 413, 422, 500, 503, 529]


@every
@pytest.mark.parametrize("status", ERRORS)
def test_an_error_is_the_vendors_own_shape(speaker, status):
    answer = DIALECTS[speaker.name].write_error(status, "budget", "The budget is spent: raise it.")
    with pytest.raises(Exception, match="The budget is spent") as caught:
        asked(speaker(), answer)
    assert getattr(caught.value, "status_code", None) or caught.value.code == status
    assert type(caught.value).__module__.partition(".")[0] in ("anthropic", "openai", "google")


@every
def test_an_error_in_a_stream_is_raised_by_the_sdk(speaker):
    provider = speaker()
    error = DIALECTS[speaker.name].write_stream_error(503, "unavailable", "The provider is gone.")
    with pytest.raises(Exception, match="provider is gone"):
        asked(speaker(), sent(b"".join(provider.begin()) + error))


def test_a_client_that_did_not_ask_for_usage_gets_none():
    chat = next(speaker for speaker in SPEAKERS if speaker.name == "openai-chat")
    frames = chat().calls()
    body = {**chat().body(stream=True), "stream_options": None}
    reader = open_reader(chat(), body=body)
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.end()
    assert out == b"".join([frame for frame in frames if b'"choices": []' not in frame])
    assert reader.usage == Usage(40, 12, 8, 0, 4)
    reader = open_reader(chat(), body=body)
    out = b"".join([reader.feed(frame) for frame in frames[:4]]) + reader.cut(NOTE)
    assert asked(chat(), sent(out)).output is None


def test_calls_without_an_index_or_an_id_are_told_apart():
    chat = next(speaker for speaker in SPEAKERS if speaker.name == "openai-chat")
    whole = [{"function": {"name": "look", "arguments": json.dumps({"n": number})}} for number in range(2)]
    frames = [*chat().begin(), *[chat.chunk({"tool_calls": [piece]}) for piece in whole], *chat().end("tool_calls")]
    reader = open_reader(chat(), stream=False)
    for frame in frames:
        reader.feed(frame)
    assert [json.loads(call.arguments) for call in reader.calls] == [{"n": 0}, {"n": 1}]
    made = json.loads(reader.assemble())["choices"][0]["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in made] == [{"n": 0}, {"n": 1}]


def test_a_whole_call_in_the_last_chunk_is_hidden_too():
    chat = next(speaker for speaker in SPEAKERS if speaker.name == "openai-chat")
    piece = {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    last = chat.chunk({"content": "Hm.", "tool_calls": [piece]}, "tool_calls")
    reader = open_reader(chat(), hide_calls=True)
    out = b"".join([reader.feed(frame) for frame in [*chat().begin(), last, sse("[DONE]")]]) + reader.finish()
    parsed = asked(chat(), sent(out))
    assert (parsed.text, parsed.calls, parsed.stop) == ("Hm.", [], "stop")
    assert b"look" not in out


def test_a_search_of_the_provider_waits_for_its_result():
    claude = next(speaker for speaker in SPEAKERS if speaker.name == "anthropic")()
    use = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    asks = claude.block(1, use, {"type": "input_json_delta", "partial_json": '{"query": "x"}'})
    frames = [*claude.begin(), *claude.said(0), *asks]
    reader = open_reader(claude)
    out = b"".join([reader.feed(frame) for frame in frames])
    assert b"srv_1" not in out
    result = claude.block(2, found)
    assert b"".join([reader.feed(frame) for frame in result]) == b"".join([*asks, *result])
    reader = open_reader(claude)
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.cut(NOTE)
    assert [block.type for block in asked(claude, sent(out)).raw.content] == ["text", "text"]


def test_text_behind_a_waiting_call_is_kept_when_the_reply_is_cut():
    chat = next(speaker for speaker in SPEAKERS if speaker.name == "openai-chat")()
    reader = open_reader(chat)
    frames = [*chat.begin(), *chat.called(0), *chat.said()]
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.cut(NOTE)
    assert asked(chat, sent(out)).text == f"{''.join(TEXT)}\n\n{NOTE}"


def test_arguments_of_gemini_in_pieces_wait_for_the_last_one():
    gemini = SPEAKERS[3]()
    begun = {"functionCall": {"name": "look", "willContinue": True}}
    more = {"functionCall": {"partialArgs": [{"jsonPath": "$.path", "stringValue": "a"}], "willContinue": True}}
    frames = [*gemini.said(), gemini.chunk(begun), gemini.chunk(more)]
    reader = open_reader(gemini)
    out = b"".join([reader.feed(frame) for frame in frames])
    assert out == b"".join(gemini.said())
    assert asked(gemini, sent(out + reader.cut(NOTE))).calls == []
    reader = open_reader(gemini)
    whole = [*frames, gemini.chunk({"functionCall": {}}), *gemini.end("STOP")]
    assert b"".join([reader.feed(frame) for frame in whole]) == b"".join(whole)


def test_an_assembled_reply_of_gemini_has_its_texts_joined():
    gemini = SPEAKERS[3]()
    reader = open_reader(gemini, stream=False)
    for frame in gemini.calls():
        reader.feed(frame)
    whole = json.loads(reader.assemble())
    (candidate,) = whole["candidates"]
    assert [set(part) for part in candidate["content"]["parts"]] == [
        {"text", "thought"},
        {"text"},
        {"functionCall"},
        {"functionCall"},
        {"text"},
    ]
    assert candidate["content"]["parts"][1]["text"] == SAID
    assert (candidate["finishReason"], whole["responseId"]) == ("STOP", "r-1")
    assert whole["usageMetadata"]["candidatesTokenCount"] == 8
    answer = WireAnswer(status=200, content_type="application/json", body=reader.assemble())
    parsed = asked(gemini, answer)
    assert (parsed.text, parsed.calls, parsed.output) == (SAID, CALLS, 12)


@pytest.mark.parametrize("how", ["plain", "hidden", "cut", "empty"])
def test_a_stream_of_gemini_without_sse_is_one_growing_array(how):
    gemini = SPEAKERS[3]()
    reader = open_reader(gemini, framing="array", hide_calls=how == "hidden")
    frames = [] if how == "empty" else gemini.calls()
    if how == "cut":
        frames = frames[:3]
    out = b"".join([reader.feed(frame) for frame in frames])
    if how == "cut":
        out += reader.cut(NOTE)
    else:
        out += reader.end()
        out += reader.finish(NOTE)
    chunks = json.loads(out)
    assert len(chunks) == {"plain": 7, "hidden": 7, "cut": 5, "empty": 2}[how]
    text = "".join([part.get("text", "") for one in chunks for part in one["candidates"][0]["content"]["parts"]])
    assert text.endswith(NOTE) is (how != "plain")
    facts = read(gemini, gemini.body(stream=True), "array")
    assert json.loads(DIALECTS["gemini"].write_reply(facts, OwnReply(text="x")).body)[0]["candidates"]


def test_a_malformed_call_of_gemini_ends_a_landing_with_an_ordinary_stop():
    gemini = SPEAKERS[3]()
    reader = open_reader(gemini, hide_calls=True)
    frames = [*gemini.said(), gemini.chunk(finish="UNEXPECTED_TOOL_CALL")]
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.finish()
    assert asked(gemini, sent(out)).stop == "STOP"
    assert reader.stop == "UNEXPECTED_TOOL_CALL"


@every
def test_a_server_that_does_not_stream_is_read_like_a_stream(speaker):
    source = open_reader(speaker(), stream=False)
    for frame in speaker().calls():
        source.feed(frame)
    document = source.assemble()
    reader = open_reader(speaker())
    out = reader.feed_whole(document) + reader.end()
    parsed = asked(speaker(), sent(out))
    assert (parsed.text, parsed.calls, parsed.stop, parsed.output) == (SAID, CALLS, speaker.calling, 12)
    assert (reader.text, reader.usage, reader.is_complete) == (SAID, Usage(40, 12, 8, 0, 4), True)
    assert [call.id for call in reader.calls] == ["call_one", "call_two"]
    reader = open_reader(speaker(), stream=False)
    reader.feed_whole(document)
    assert reader.assemble() == document
    reader = open_reader(speaker(), hide_calls=True)
    parsed = asked(speaker(), sent(reader.feed_whole(document) + reader.end() + reader.finish(NOTE)))
    assert (parsed.text, parsed.calls, parsed.stop) == (f"{SAID}\n\n{NOTE}", [], speaker.final)


@every
@pytest.mark.parametrize("document", [b"", b"<html>", b"[]", b"{}", b'{"choices": 7, "type": 1, "object": []}'])
def test_a_document_that_is_not_a_reply_is_a_failure(speaker, document):
    reader = open_reader(speaker())
    reader.feed_whole(document)
    assert speaker.name == "gemini" or reader.failure
    assert not reader.is_complete


def test_a_message_without_its_very_last_event_is_complete():
    claude = SPEAKERS[0]()
    frames = claude.calls()[:-1]
    reader = open_reader(claude)
    assert b"".join([reader.feed(frame) for frame in frames]) + reader.end() == b"".join(frames)
    assert reader.is_complete
    reader = open_reader(claude, hide_calls=True)
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.end() + reader.finish()
    assert asked(claude, sent(out)).stop == "end_turn"


def test_a_message_that_is_over_gets_no_more_text():
    claude = SPEAKERS[0]()
    frames = claude.answer()[:-1]
    reader = open_reader(claude)
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.cut(NOTE)
    assert asked(claude, sent(out)).text == reader.client_text == SAID


def test_text_in_the_event_that_begins_a_call_is_kept_when_the_reply_is_cut():
    chat = SPEAKERS[1]()
    piece = {"index": 0, "id": "c", "type": "function", "function": {"name": "look", "arguments": ""}}
    reader = open_reader(chat)
    frames = [*chat.begin(), chat.chunk({"content": "I look.", "tool_calls": [piece]})]
    out = b"".join([reader.feed(frame) for frame in frames]) + reader.cut(NOTE)
    assert asked(chat, sent(out)).text == reader.client_text == f"I look.\n\n{NOTE}"


def test_calls_after_a_first_chunk_without_choices_are_complete_at_the_end():
    """Azure begins with the verdicts on the prompt; some servers never give a finish reason."""
    chat = SPEAKERS[1]()
    frames = [chat.chunk(None), *chat.called(0), sse("[DONE]")]
    reader = open_reader(chat)
    assert b"".join([reader.feed(frame) for frame in frames]) == b"".join(frames)
    assert [call.id for call in reader.calls] == ["call_one"]
