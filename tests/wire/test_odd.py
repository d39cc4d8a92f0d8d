"""Odd but real: what gateways, local servers and proxies send that no vendor has on its pages."""

import json

import pytest

from glidepath.errors import (
    ContextOverflowError,
    ModelError,
    RateLimitedError,
    RejectedError,
    TransientError,
)
from glidepath.messages import StreamEnd, TextDelta, ToolCallDelta, UserMessage
from glidepath.models import Faults, ModelRequest

from .dialects import DIALECTS, KEY, Anthropic, Chat, Responses, event
from .server import Answer, Wire, error, run

every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
openai = pytest.mark.parametrize("dialect", [Chat(), Responses()], ids=lambda dialect: dialect.name)
REQUEST = ModelRequest(messages=[UserMessage("hello")])
chat, responses, anthropic = Chat(), Responses(), Anthropic()


def told(dialect, *answers):
    """The deltas, or the error, of one call."""

    async def ask():
        async with Wire(answers) as wire:
            model = dialect.model(wire.url)
            try:
                return [delta async for delta in model.stream(REQUEST)]
            except ModelError as failure:
                return failure
            finally:
                await model.aclose()

    return run(ask)


def calls(deltas):
    """The calls, joined by their index."""
    made: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = made.setdefault(delta.index, ["", "", ""])
            call[0], call[1], call[2] = call[0] or delta.id, call[1] or delta.name, call[2] + delta.arguments
    return list(made.values())


def text(deltas):
    return "".join([delta.text for delta in deltas if isinstance(delta, TextDelta)])


def fragment(arguments, **fields):
    function = {"arguments": arguments, **({"name": fields.pop("name")} if "name" in fields else {})}
    return chat.chunk({"tool_calls": [{"function": function, **fields}]})


# --- calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("marks", [{"index": 0, "id": ""}, {"index": 0}, {}])
def test_calls_without_ids_and_with_one_index_are_told_apart_by_their_names(name, marks):
    wire = [fragment('{"x": 1}', name="a", **marks), fragment('{"x"', name=name, **marks), fragment(": 2}", **marks)]
    assert calls(told(chat, Answer([*wire, *chat.end("tools")]))) == [["", "a", '{"x": 1}'], ["", name, '{"x": 2}']]


def test_a_server_that_says_the_name_with_every_fragment_has_made_one_call():
    wire = [fragment(part, name="a", index=0) for part in ("", '{"x"', ": {}}", "")]
    assert calls(told(chat, Answer([*wire, *chat.end("tools")]))) == [["", "a", '{"x": {}}']]


def test_a_server_that_invents_an_id_for_every_fragment_has_made_one_call():
    wire = [fragment("", name="a", index=0, id="i1"), *[fragment(p, index=0, id=f"n{p}") for p in ('{"x"', ": 1}")]]
    assert calls(told(chat, Answer([*wire, *chat.end("tools")]))) == [["i1", "a", '{"x": 1}']]


def test_a_fragment_without_an_index_belongs_to_the_call_before_it():
    wire = [fragment("", name="a", index=0, id="i1"), fragment('{"x": 1}')]
    assert calls(told(chat, Answer([*wire, *chat.end("tools")]))) == [["i1", "a", '{"x": 1}']]


def test_an_id_that_is_a_number_is_an_id():
    wire = [fragment("{}", name="a", index=3, id=17)]
    assert calls(told(chat, Answer([*wire, *chat.end("tools")]))) == [["17", "a", "{}"]]


def test_anthropic_calls_that_come_whole_keep_their_arguments():
    block = {"type": "tool_use", "name": "f", "input": {"x": 1}}
    wire = [*anthropic.start(), *anthropic.block(0, block), *anthropic.end("tools")]
    assert calls(told(anthropic, Answer(wire))) == [["", "f", '{"x":1}']]


def test_a_tool_that_the_provider_runs_itself_is_no_call_of_ours():
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    wire = [*anthropic.start(), *anthropic.block(0, block, {"type": "input_json_delta", "partial_json": "{}"})]
    wire += [*anthropic.block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "found"})]
    got = told(anthropic, Answer([*wire, *anthropic.end()]))
    assert (text(got), calls(got)) == ("found", [])


# --- text -----------------------------------------------------------------------------------------------------


def test_a_character_cut_in_two_escapes_is_made_whole():
    halves = [b'data: {"choices": [{"delta": {"content": "a\\ud83d"}}]}\n\n']
    halves += [b'data: {"choices": [{"delta": {"content": "\\ude00b"}}]}\n\n']
    assert text(told(chat, Answer([*halves, *chat.end()]))) == "a\U0001f600b"


def test_half_a_character_that_stays_alone_does_no_harm():
    half = [b'data: {"choices": [{"delta": {"content": "a\\ud83d"}}]}\n\n', *chat.text("b")]
    assert text(told(chat, Answer([*half, *chat.end()]))) == "a\ufffdb"


def test_a_figure_that_is_no_json_does_not_lose_the_reply():
    odd = b'data: {"choices": [{"delta": {"content": "hi"}, "logprobs": {"x": NaN, "y": -Infinity}}]}\n\n'
    assert text(told(chat, Answer([odd, *chat.end()]))) == "hi"


@pytest.mark.parametrize("content", [{"a": 1}, 5, True])
def test_content_that_is_no_text_is_a_fault_of_the_line(content):
    assert type(told(chat, Answer([chat.chunk({"content": content}), *chat.end()]))) is TransientError


@pytest.mark.parametrize(
    ("said", "meant"),
    [("STOP", "end_turn"), ("model_length", "max_tokens"), ("MAX_TOKENS", "max_tokens"), ("eos_token", "end_turn"),
     ("tool_use", "tool_use"), ("SAFETY", "refusal")],
)  # fmt: skip
def test_the_words_of_other_vendors_behind_a_gateway_are_known(said, meant):
    got = told(chat, Answer([*chat.text("hi"), chat.chunk({}, said), event("[DONE]")]))
    assert got[-1] == StreamEnd(stop_reason=meant, usage=None)


def test_a_response_that_comes_whole_and_not_in_pieces_is_read():
    item = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    done = responses.say("response.output_item.done", output_index=0, item=item)
    assert text(told(responses, Answer([done, *responses.end()]))) == "hi"
    last = responses.say("response.completed", response={"status": "completed", "output": [item]})
    assert text(told(responses, Answer([last]))) == "hi"
    assert text(told(responses, Answer([done, last]))) == "hi"
    assert text(told(responses, Answer([*responses.text("h", "i"), last]))) == "hi"


def test_a_response_that_is_complete_and_failed_has_failed():
    failed = {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    got = told(responses, Answer([*responses.text("a"), responses.say("response.completed", response=failed)]))
    assert type(got) is RateLimitedError


@every
@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\u2029"])
def test_a_sign_that_only_looks_like_the_end_of_a_line_ends_none(dialect, sign):
    wire = [chunk.replace(b"MARK", sign.encode()) for chunk in [*dialect.text("aMARKb"), *dialect.end()]]
    assert text(told(dialect, Answer(wire))) == f"a{sign}b"


@every
def test_comments_and_fields_that_nobody_asked_for_are_passed_over(dialect):
    wire = [
        b": keep-alive\n\n",
        *dialect.text("hi"),
        b"id: 7\nretry: 10\n: ping {\n\n",
        *dialect.end(),
        event("[DONE]"),
    ]
    got = told(dialect, Answer(wire))
    assert text(got) == "hi"
    assert got[-1].stop_reason == "end_turn"


# --- errors ---------------------------------------------------------------------------------------------------


@openai
@pytest.mark.parametrize(
    ("code", "kind"),
    [(400, RejectedError), (401, RejectedError), (402, RejectedError), (403, RejectedError), (404, RejectedError),
     (408, TransientError), (429, RateLimitedError), ("429", RateLimitedError), (502, TransientError),
     (0, TransientError), (True, TransientError), (99999999999999999999, TransientError)],
)  # fmt: skip
def test_a_number_in_an_error_within_the_stream_is_its_status(dialect, code, kind):
    got = told(dialect, Answer([*dialect.text("a"), event({"error": {"code": code, "message": f"no: {KEY}"}})]))
    assert type(got) is kind
    assert KEY not in str(got)


def test_an_error_chunk_without_an_envelope_is_an_error():
    chunk = {"object": "error", "message": "bad words", "type": "BadRequestError", "param": None, "code": 400}
    got = told(chat, Answer([event(chunk), event("[DONE]")]))
    assert type(got) is RejectedError
    assert "bad words" in str(got)


def test_what_the_provider_behind_the_gateway_said_is_passed_on_and_read():
    metadata = {"raw": '{"message": "prompt is too long: 9 tokens"}', "provider_name": "X"}
    got = told(chat, error(400, {"error": {"code": 400, "message": "Provider returned error", "metadata": metadata}}))
    assert type(got) is ContextOverflowError
    assert "prompt is too long" in str(got)


@every
@pytest.mark.parametrize(
    ("body", "words"),
    [(b"404 page not found", "404 page not found"),
     (b"<html><head><title>502 Bad Gateway</title><style>a { b }</style></head></html>", "502 Bad Gateway"),
     (b'{"detail": "Not Found"}', "Not Found"),
     (b'{"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}', "field required"),
     (b'{"error": "model \'x\' not found"}', "model 'x' not found")],
)  # fmt: skip
def test_what_a_server_says_about_an_error_is_passed_on_whatever_its_shape(dialect, body, words):
    kind = "application/json" if body.startswith(b"{") else "text/html"
    got = told(dialect, Answer([body], status=404, kind=kind))
    assert type(got) is RejectedError
    assert words in str(got)
    assert "<" not in str(got)


def test_an_overflow_is_seen_in_a_body_of_any_shape():
    said = "This model's maximum context length is 4096 tokens"
    assert type(told(chat, Answer([said.encode()], status=400, kind="text/plain"))) is ContextOverflowError
    assert type(told(chat, error(422, {"detail": said}))) is ContextOverflowError


def test_input_and_cap_that_do_not_fit_together_are_an_overflow():
    said = "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length"
    got = told(anthropic, error(400, {"type": "error", "error": {"type": "invalid_request_error", "message": said}}))
    assert type(got) is ContextOverflowError


@every
@pytest.mark.parametrize("status", [302, 304, 307])
def test_a_redirect_that_leads_nowhere_is_a_wrong_address_and_not_tried_again(dialect, status):
    got = told(dialect, Answer([], status=status))
    assert type(got) is RejectedError
    assert "base_url" in str(got)


@every
def test_a_redirect_in_a_circle_is_a_wrong_address(dialect):
    def round_and_round(request):
        return Answer([], status=307, headers={"location": request.path})

    assert type(told(dialect, *[round_and_round] * 25)) is RejectedError


def test_an_error_as_a_json_page_that_comes_in_pieces_has_its_kind():
    page = json.dumps({"error": {"message": "busy", "type": "server_error"}}).encode()
    assert type(told(chat, Answer([page[:9], page[9:]], kind="application/json"))) is TransientError


def test_an_address_without_a_path_is_pointed_out():
    async def ask():
        from glidepath.models import OpenAIChatModel

        async with Wire([Answer([b"404 page not found"], status=404, kind="text/plain")]) as wire:
            model = OpenAIChatModel("qwen", base_url=wire.url)
            with pytest.raises(RejectedError, match="/v1"):
                [delta async for delta in model.stream(REQUEST)]

    run(ask)


def test_a_server_that_wants_a_key_says_where_the_command_takes_it_from():
    got = told(chat, error(401, {"error": {"message": "no key"}}))
    assert "GLIDEPATH_API_KEY" in str(got)


def test_a_huge_page_of_html_is_read_in_no_time():
    assert "x" in str(Faults("x", [], "").refusal(500, "<" * 5_000_000))


def test_usage_in_groqs_own_field_counts_where_there_is_no_other():
    used = {"prompt_tokens": 30, "completion_tokens": 9, "total_tokens": 39}
    last = {"id": "g", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "x_groq": {"usage": used}}
    first = {"id": "g", "choices": [], "x_groq": {"id": "req_1"}}
    deltas = told(chat, Answer([event(first), *chat.text("ok"), event(last), event("[DONE]")]))
    assert (deltas[-1].usage.input, deltas[-1].usage.output) == (30, 9)
