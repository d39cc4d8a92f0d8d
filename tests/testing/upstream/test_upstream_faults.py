"""What goes wrong on request, in every dialect."""

import time
from itertools import pairwise

import httpx
import pytest
from tests.testing.upstream.talk import DIALECTS, KEYS, build, events, post, run, usage_of

from glidepath.testing import ScriptedUpstream

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
