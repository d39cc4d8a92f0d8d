"""What goes wrong on request, in every dialect."""

import asyncio
import json
import time
from itertools import pairwise

import httpx
import pytest
from tests.testing.upstream.talk import DIALECTS, KEYS, build, events, post, run, usage_of

from glidepath.testing import ScriptedUpstream, VirtualClock
from glidepath.testing.upstream import HttpRequest, damage_pieces

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EVERY = pytest.mark.parametrize("dialect", DIALECTS)


@EVERY
@pytest.mark.parametrize(
    ("behavior", "status", "retry"),
    [("429", 429, None), ("429:retry_after=2.5", 429, "2.5"), ("529", 529, None), ("500", 500, None)],
)
def test_an_error_has_the_vendors_shape_and_costs_nothing(dialect, behavior, status, retry):
    async def main():
        async with ScriptedUpstream(f"answer + {behavior}") as up:
            reply = await post(up.url, *build(dialect, stream=True))
            assert (up.usage.tokens, up.usage.calls, up.usage.faults, up.usage.open) == (0, 0, 1, 0)
            return reply

    reply = run(main())
    assert reply.status_code == status
    assert reply.headers.get("retry-after") == retry
    error = reply.json()["error"]
    kinds = {
        "anthropic": {429: "rate_limit_error", 529: "overloaded_error", 500: "api_error"},
        "gemini": {429: "RESOURCE_EXHAUSTED", 529: "UNAVAILABLE", 500: "INTERNAL"},
    }
    if dialect in kinds:
        assert kinds[dialect][status] in (error.get("type"), error.get("status"))
    else:
        assert error["type"] in ("requests", "server_error")


def test_a_fault_strikes_when_it_is_told_to():
    async def statuses(behavior, count, seed=0):
        async with ScriptedUpstream(behavior, seed=seed) as up:
            return [(await post(up.url, *build("openai-chat"))).status_code for _ in range(count)]

    assert run(statuses("answer + 500:every=3", 6)) == [200, 200, 500, 200, 200, 500]
    assert run(statuses("answer + 429:at=2", 3)) == [200, 429, 200]
    assert run(statuses("answer + 429:first=2", 3)) == [429, 429, 200]
    seldom = run(statuses("answer + 500:rate=0.5", 20))
    assert 3 <= seldom.count(500) <= 17
    assert run(statuses("answer + 500:rate=0.5", 20)) == seldom  # the same seed, the same luck
    assert run(statuses("answer + 500:rate=0.5", 20, seed=1)) != seldom


@EVERY
def test_a_cut_stream_breaks_off_and_what_was_sent_counts(dialect):
    async def main():
        async with ScriptedUpstream("answer:tokens=100 + cut:after=6", delta=8) as up:
            with pytest.raises(httpx.RemoteProtocolError):
                await post(up.url, *build(dialect, stream=True))
            return up.usage

    usage = run(main())
    assert usage.calls == 1
    assert 0 < usage.output < 30
    assert (usage.open, usage.aborted) == (0, 0)


@EVERY
def test_a_cut_reply_that_is_not_streamed_breaks_off_in_the_middle(dialect):
    async def main():
        async with ScriptedUpstream("answer + cut") as up:
            with pytest.raises(httpx.RemoteProtocolError):
                await post(up.url, *build(dialect))
            return up.usage

    usage = run(main())
    assert (usage.calls, usage.output) == (1, 9)  # it was generated, so it is billed


@BOTH
def test_a_slow_upstream_waits_before_its_first_byte(stream):
    async def main():
        async with ScriptedUpstream("answer + slow:seconds=0.3") as up:
            began = time.monotonic()
            path, body = build("anthropic", stream=stream)
            async with (
                httpx.AsyncClient(trust_env=False) as client,
                client.stream("POST", up.url + path, json=body, headers=KEYS) as reply,
            ):
                return time.monotonic() - began, reply.status_code

    seconds, status = run(main())
    assert seconds >= 0.3
    assert status == 200


def test_a_stalled_stream_pauses_in_the_middle():
    async def main():
        async with ScriptedUpstream("answer:tokens=50 + stall:after=4,seconds=0.3") as up:
            path, body = build("anthropic", stream=True)
            times = []
            async with (
                httpx.AsyncClient(trust_env=False) as client,
                client.stream("POST", up.url + path, json=body, headers=KEYS) as reply,
            ):
                times += [time.monotonic() async for _ in reply.aiter_raw()]
            return times

    times = run(main())
    assert max(later - earlier for earlier, later in pairwise(times)) >= 0.25


@EVERY
@BOTH
def test_usage_can_be_missing(dialect, stream):
    async def main():
        async with ScriptedUpstream("answer + no_usage") as up:
            reply = await post(up.url, *build(dialect, stream=stream))
            assert up.usage.tokens > 0
            return reply

    reply = run(main())
    assert '_tokens"' not in reply.text.replace("max_output_tokens", "").replace("max_tokens", "")
    assert "TokenCount" not in reply.text


@EVERY
@pytest.mark.parametrize("factor", [1000, -1])
def test_usage_can_be_absurd_while_the_truth_stays(dialect, factor):
    async def main():
        async with ScriptedUpstream(f"answer + absurd_usage:factor={factor}") as up:
            reply = (await post(up.url, *build(dialect))).json()
            return usage_of(dialect, reply), (up.usage.input, up.usage.output)

    reported, real = run(main())
    assert (reported[0], reported[2]) == (real[0] * factor, real[1] * factor)
    assert real[0] > 0


def test_a_redirect_names_where_it_leads():
    async def main():
        async with ScriptedUpstream("answer + redirect:to=http://127.0.0.1:9/x") as up:
            return await post(up.url, *build("anthropic"))

    reply = run(main())
    assert (reply.status_code, reply.headers["location"]) == (307, "http://127.0.0.1:9/x")


def test_half_a_tool_call_ends_as_if_it_were_whole():
    async def main():
        async with ScriptedUpstream("loop + half_call") as up:
            return (await post(up.url, *build("openai-chat"))).json()["choices"][0]

    choice = run(main())
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"command":"'


@EVERY
def test_garbage_is_not_json(dialect):
    async def main():
        async with ScriptedUpstream("answer:tokens=40 + garbage:after=1") as up:
            whole = await post(up.url, *build(dialect))
            streamed = await post(up.url, *build(dialect, stream=True))
            return whole, streamed

    whole, streamed = run(main())
    with pytest.raises(ValueError, match="Expecting value"):
        whole.json()
    with pytest.raises(ValueError, match="Expecting property name"):
        events(streamed.text)


@EVERY
def test_a_huge_reply_is_as_large_as_told(dialect):
    async def main():
        async with ScriptedUpstream("answer + huge:tokens=60000", rate=1e9, delta=4000) as up:
            reply = await post(up.url, *build(dialect, stream=True, most=None))
            return len(reply.content), up.usage.output

    size, output = run(main())
    assert size > 240_000
    assert output == 60_009


def serve(dialect, behavior, *, stream):
    """A reply without a connection."""
    path, body = build(dialect, stream=stream)
    target, _, query = path.partition("?")
    query = {"alt": "sse"} if query else {}
    request = HttpRequest(
        method="POST", path=target, query=query, headers=KEYS, raw_headers=[], body=json.dumps(body).encode()
    )
    reply = ScriptedUpstream(behavior, keep=0, repeatable=True).respond(request)
    return reply, (reply.body if reply.chunks is None else b"".join(reply.chunks)).decode()


@EVERY
@BOTH
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refusal", {"anthropic": '"refusal"', "gemini": "SAFETY", "": "content_filter"}),
        (
            "truncated",
            {"anthropic": '"max_tokens"', "gemini": "MAX_TOKENS", "openai-chat": '"length"', "": "incomplete"},
        ),
        ("unknown_tool", {"": "look_into_the_future"}),
        ("bad_arguments", {"": "nonsense"}),
    ],
)
def test_a_reply_goes_wrong_in_the_vendors_own_form(dialect, stream, fault, words):
    reply, text = serve(dialect, f"loop + {fault}", stream=stream)
    assert reply.status == 200
    if (fault, dialect, stream) == ("bad_arguments", "anthropic", False):
        assert '"input":{}' in text  # an object on the wire: what cannot be parsed is not there
    else:
        assert words.get(dialect, words.get("", "\0")) in text


@EVERY
@BOTH
def test_an_empty_reply_is_a_whole_one_without_words_and_calls(dialect, stream):
    _, text = serve(dialect, "loop + empty", stream=stream)
    assert "Bash" not in text.replace('"name":"Bash","parameters"', "")
    assert "SCRIPTED" not in text
    stops = {"anthropic": "end_turn", "gemini": "STOP", "openai-chat": '"stop"', "openai-responses": "completed"}
    assert stops[dialect] in text


@EVERY
@BOTH
def test_a_web_page_comes_with_status_200_and_costs_nothing(dialect, stream):
    reply, text = serve(dialect, "loop + web_page", stream=stream)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert text.startswith("<!doctype html>")


@pytest.mark.parametrize(("dialect", "mark"), [("anthropic", '"id":"toolu_'), ("openai-chat", '"id":"call_')])
def test_tool_calls_can_all_have_one_id(dialect, mark):
    ids = []
    for behavior in ("loop + same_ids", "same + same_ids", "loop"):
        _, text = serve(dialect, behavior, stream=True)
        ids.append(text.partition(mark)[2].partition('"')[0])
    assert ids[0] == ids[1] != ids[2]


@EVERY
def test_a_repeatable_upstream_says_the_same_to_the_byte(dialect):
    assert serve(dialect, "loop", stream=True) == serve(dialect, "loop", stream=True)


@pytest.mark.parametrize(
    ("fault", "seconds", "sent"),
    [
        ("stall:after=9,seconds=5", 5.0, b"ab"),
        ("garbage:after=9", 0.0, b"ab" + b"data: {not json\n\n"),
        ("cut:after=9", 0.0, b"ab"),
    ],
)
def test_a_reply_that_is_shorter_than_a_fault_wants_is_struck_at_its_end(fault, seconds, sent):
    async def main():
        async def pieces():
            yield b"a"
            yield b"b"

        faults = ScriptedUpstream(f"answer + {fault}").begin_call()
        began = asyncio.get_running_loop().time()
        found = b"".join([piece async for piece in damage_pieces(pieces(), faults)])
        return found, asyncio.get_running_loop().time() - began

    assert VirtualClock().run(main()) == (sent, pytest.approx(seconds))
