"""Clients that want to break the gate or go round it, and upstreams that lie: bounded time and memory, no secret."""

import asyncio
import gc
import gzip
import json
import time
import urllib.parse
import weakref

import aiohttp
import pytest

from glidepath import Limits
from glidepath.apps.gate import GateLimits, Line, LineBook, lines
from glidepath.apps.gate.attribution import Attribution
from glidepath.apps.gate.dialects import parse_body
from glidepath.apps.gate.dialects.dialect import BadRequest
from glidepath.apps.gate.gate_routes import read_route
from glidepath.gate import Gate, Upstream
from glidepath.serve.locks import Visitor
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import fly_anthropic, fly_behind, in_real_time
from .plain import KEY, RawUpstream, Talk, events, on_stage, raw

MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"
ASKED = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
PROVIDER_KEY = "sk-of-the-provider-0123456789"


def seconds_of(work):
    began = time.process_time()
    work()
    return time.process_time() - began


# --- clients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [b"/v1", b"/v1beta", b"/models/", b"/messages", b"/a"])
def test_a_path_of_ten_thousand_parts_is_read_at_once(part):
    path = part * (30_000 // len(part)) + b"x"
    assert seconds_of(lambda: read_route("POST", path)) < 0.2


def test_several_versions_are_one_and_the_last_one_counts():
    route = read_route("POST", b"/run-1/v1/v1beta/models/m:generateContent")
    assert (route.line, route.path) == (("run-1",), "/v1beta/models/m:generateContent")


def test_a_field_that_occurs_twice_among_many_is_found_at_once():
    names = b",".join(b'"a%d":1' % number for number in range(20_000))

    def read():
        with pytest.raises(BadRequest, match="twice"):
            parse_body(b"{" + names + b',"a7":1}')

    assert seconds_of(read) < 1


def test_a_body_of_a_million_empty_lists_is_refused_before_it_fills_the_memory():
    with pytest.raises(BadRequest, match="more than 500,000 lists and objects"):
        parse_body(b'{"messages":[' + b",".join([b"[]"] * 1_000_000) + b"]}")


def test_a_body_that_is_encoded_over_and_over_is_refused():
    async def play(stage):
        headers = [(b"content-encoding", b"gzip," * 4000 + b"gzip")]
        return await stage.ask(MESSAGES, gzip.compress(b"{}"), headers=headers)

    reply = on_stage(play)
    assert reply.status == 415
    assert "one encoding" in reply.json["error"]["message"]


def test_what_stands_behind_a_body_is_no_header():
    async def play(stage):
        async with Talk(stage.gate) as talk:
            talk.send(MESSAGES, None, headers=[(b"transfer-encoding", b"chunked")])
            talk.writer.write(b"2\r\n{}\r\n0\r\nhost: evil.example\r\nx-glidepath-run: other\r\nx-late: 1\r\n\r\n")
            reply = await asyncio.wait_for(talk.read_reply(), 5)
        return reply, stage.upstream.heads[0], stage.governor.requests[0].headers

    reply, head, headers = on_stage(play)
    assert reply.status == 200
    assert b"x-late" not in head
    assert b"x-glidepath-run" not in dict(headers)


def test_a_second_head_without_end_is_cut_off_while_the_first_request_is_answered():
    async def play(stage):
        async with Talk(stage.gate) as talk:
            talk.send(MESSAGES, b'{"stream":true}')
            await talk.read_head()
            talk.writer.write(b"POST /v1/messages HTTP/1.1\r\n")
            for number in range(100):
                talk.writer.write(b"x-%d: %b\r\n" % (number, b"a" * 4000))
            try:
                await asyncio.wait_for(talk.writer.drain(), 5)
                rest = await asyncio.wait_for(talk.reader.read(), 5)
            except ConnectionError:
                rest = b""
        return rest

    assert b"431" not in on_stage(play, events(b"data: 1\n\n", hang=True))  # never in the middle of an answer


@pytest.mark.parametrize("place", ["header", "cookie", "query", "encoded query", "path", "run", "body"])
def test_the_gates_key_goes_no_further_wherever_it_is(place):
    headers, query, path, body = [], "", f"/{KEY}", {**ASKED, "stream": True}
    match place:
        case "header":
            headers = [(b"x-api-key", KEY.encode()), (b"authorization", b"Bearer sk-of-the-client")]
        case "cookie":
            headers = [(b"cookie", b"a=" + KEY.encode())]
        case "query":
            query = f"?key={KEY}&a=1"
        case "encoded query":
            query = f"?note={urllib.parse.quote(KEY).replace('-', '%2d')}&a=1"
        case "run":
            headers = [(b"x-glidepath-run", KEY.encode())]
        case "path":
            path = f"/{KEY}/{KEY}"
        case "body":
            body["messages"] = [{"role": "tool", "tool_call_id": "c1", "content": f"GLIDEPATH_GATE_KEY={KEY}"}]

    async def play(stage):
        reply = await stage.ask(f"{path}{CHAT}{query}", json.dumps(body).encode(), headers=headers, key=None)
        return reply, stage.upstream.heads[0] + stage.upstream.bodies[0], stage.governor.requests[0]

    reply, sent, request = on_stage(play, upstream={"mode": "passthrough"})
    assert reply.status == 200
    assert KEY.encode() not in urllib.parse.unquote_to_bytes(sent)
    assert KEY not in f"{request.headers}{request.query}{request.line}{request.body}"
    assert (b"sk-of-the-client" in sent) == (place == "header")
    assert (b"a=1" in sent) == ("query" in place)


def test_a_compressed_body_with_the_gates_key_goes_on_without_it():
    async def play(stage):
        body = gzip.compress(json.dumps({**ASKED, "note": KEY}).encode())
        await stage.ask(CHAT, body, headers=[(b"content-encoding", b"gzip")])
        return stage.upstream.heads[0], stage.upstream.bodies[0]

    head, body = on_stage(play)
    assert b"content-encoding" not in head
    assert json.loads(body)["note"] == "*" * len(KEY)


@in_real_time
async def test_a_reason_with_line_breaks_stays_in_its_header():
    async with fly_behind("loop", max_tokens=20_000) as flown:
        await fly_anthropic(flown.url, flown.key, most=1)
        flown.session().order = "lunch\r\nx-evil: 1\r\n\r\nHTTP/1.1 200 OK é" + "." * 5000
        async with aiohttp.ClientSession() as client:
            body = {"model": "claude-opus-5-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
            headers = {"x-api-key": flown.key, "anthropic-version": "2023-06-01"}
            async with client.post(f"{flown.url}{MESSAGES}", json=body, headers=headers) as reply:
                await reply.read()
    assert reply.headers["x-glidepath-landed"].startswith("lunch??x-evil: 1????HTTP/1.1 200 OK ?")
    assert "x-evil" not in reply.headers


@in_real_time
async def test_a_client_that_invents_agents_and_parents_without_end_gets_a_bounded_tree(monkeypatch):
    from glidepath.apps.gate import attribution

    monkeypatch.setattr(attribution, "MOST_AGENTS", 20)
    monkeypatch.setattr(attribution, "MOST_DEPTH", 5)
    async with fly_behind("answer", max_tokens=200_000) as flown:
        for number in range(30):
            names = {"x-claude-code-session-id": "s", "x-claude-code-agent-id": f"a{number}"}
            parent = {"x-claude-code-parent-agent-id": f"a{number - 1}"} if number else {}
            await fly_anthropic(flown.url, flown.key, headers=names | parent, most=1)
        session = flown.session()
        assert len(session.agents) == 21
        assert max(agent.meter.depth for agent in session.agents.values()) <= 6
        assert flown.report()["tokens"] == flown.up.usage.input + flown.up.usage.output


@in_real_time
async def test_users_without_end_are_forgotten_when_they_are_idle(monkeypatch):
    monkeypatch.setattr(lines, "MOST_LINES", 50)
    book, visitor = LineBook(GateLimits()), Visitor("ann", "run", None)

    class Asked:
        key = visitor

        def __init__(self, number):
            self.line = (f"user-{number}", "run")

    first = book.find(Asked(0))
    first.open_session("run").add_agent("main", None).started = True
    for number in range(1, 500):
        book.find(Asked(number))
    assert len(book._lines) <= 50
    assert book.find(Asked(0)) is first  # it is at work
    await book.close()


@in_real_time
async def test_a_thousand_open_connections_do_not_keep_others_out():
    async with ScriptedUpstream("answer") as up, Gate(Limits(max_tokens=10**6), up.url) as gate:
        port = gate.socket.getsockname()[1]
        idle = await asyncio.gather(*[asyncio.open_connection("127.0.0.1", port) for _ in range(1000)])
        for _, writer in idle[::2]:
            writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        flight = await fly_anthropic(gate.url, gate.key, most=1)
        for _, writer in idle:
            writer.close()
    assert "SCRIPTED-ANSWER" in flight.text


@in_real_time
async def test_a_client_that_leaves_before_the_reply_begins_pays_for_what_was_sent():
    """Or anyone could spend without end: the provider bills a prompt that it has read."""
    async with fly_behind("honest + slow:seconds=5", max_tokens=100_000) as flown, aiohttp.ClientSession() as client:
        body = {"model": "claude-opus-5-5", "max_tokens": 50, "messages": [{"role": "user", "content": "hi " * 500}]}
        headers = {"x-api-key": flown.key, "anthropic-version": "2023-06-01"}
        with pytest.raises(TimeoutError):
            async with client.post(
                f"{flown.url}{MESSAGES}", json=body, headers=headers, timeout=aiohttp.ClientTimeout(total=1)
            ):
                pass
        for _ in range(100):
            if flown.report()["tokens"]:
                break
            await asyncio.sleep(0.02)
        assert flown.up.usage.input > 0
        assert flown.report()["tokens"] >= flown.up.usage.input
        assert flown.report()["estimated"]


# --- upstreams ------------------------------------------------------------------------------------------------------


async def ask_liar(script, *, stream, body=ASKED):
    """One call of the real rules before an upstream that writes these bytes: status, headers, body, report."""
    async with RawUpstream(script) as up:
        upstream = Upstream("openai", "openai", up.url, "swap", "env:UP", idle_timeout=5)
        settings = {"environ": {"UP": PROVIDER_KEY}, "line": "run-1"}
        async with Gate(Limits(max_tokens=100_000), upstream, **settings) as gate, aiohttp.ClientSession() as client:
            headers = {"authorization": f"Bearer {gate.key}"}
            asked = client.post(f"{gate.url}{CHAT}", json={**body, "stream": stream}, headers=headers)
            async with asked as reply:
                found = await reply.read()
            return reply, found, gate.report()


def told(status, body, kind=b"application/json", more=b""):
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n" % (status, kind, more, len(body))
    return raw(head + body)


STREAMED = pytest.mark.parametrize("stream", [True, False])


@STREAMED
@pytest.mark.parametrize("status", [b"204 No Content", b"205 Reset", b"206 Partial Content"])
@in_real_time
async def test_a_status_that_brings_no_reply_is_an_error_and_costs_nothing(status, stream):
    reply, body, report = await ask_liar(raw(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status), stream=stream)
    assert reply.status == 502
    assert f"status {status[:3].decode()}" in json.loads(body)["error"]["message"]
    assert report["tokens"] == 0


@STREAMED
@in_real_time
async def test_a_page_instead_of_a_reply_is_an_error_before_a_stream_begins(stream):
    page = told(b"200 OK", b"<html>Welcome to the captive portal</html>", b"text/html")
    reply, found, report = await ask_liar(page, stream=stream)
    assert reply.status == 502
    assert "answered with a web page (text/html)" in json.loads(found)["error"]["message"]
    assert report["tokens"] > 0  # somebody may bill it


@STREAMED
@pytest.mark.parametrize("body", [b"<html>Welcome to the captive portal</html>", b""])
@in_real_time
async def test_nothing_that_is_a_reply_is_an_error_in_the_dialect(body, stream):
    reply, found, report = await ask_liar(told(b"200 OK", body, b"text/plain"), stream=stream)
    assert b"sent nothing that is a reply" in found
    assert reply.status == (200 if stream else 502)  # a stream has begun by then
    assert report["tokens"] > 0  # somebody may bill it


@STREAMED
@in_real_time
async def test_an_event_without_end_is_an_error_and_not_a_crash_of_the_gate(stream, monkeypatch):
    from glidepath.apps.gate.dialects import frames

    monkeypatch.setattr(frames, "LARGEST", 100_000)
    reply, found, _ = await ask_liar(events(*[b"x" * 60_000] * 4), stream=stream)
    assert b"an event of more than 100000 bytes" in found
    assert reply.status == (200 if stream else 502)


@STREAMED
@in_real_time
async def test_a_million_comments_cost_next_to_nothing(stream):
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    began = time.process_time()
    _, found, _ = await ask_liar(events(*[b":\n\n" * 20_000] * 10, chunk), stream=stream)
    assert b'"ok"' in found
    assert time.process_time() - began < 4


WHOLE = {
    "id": "x",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hey"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 30, "completion_tokens": 3, "total_tokens": 33},
}


@STREAMED
@in_real_time
async def test_a_server_that_never_streams_is_metered_and_serves_both_kinds_of_clients(stream):
    reply, found, report = await ask_liar(told(b"200 OK", json.dumps(WHOLE).encode()), stream=stream)
    assert report["tokens"] == 33
    if stream:
        assert reply.headers["content-type"] == "text/event-stream"
        assert b'"content":"hey"' in found
        assert found.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(found) == WHOLE


@STREAMED
@in_real_time
async def test_a_document_that_is_no_reply_is_an_error(stream):
    _, found, _ = await ask_liar(told(b"200 OK", b'{"hello":"world"}'), stream=stream)
    assert b"sent nothing that is a reply" in found


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"200 OK"])
@in_real_time
async def test_an_upstream_that_quotes_its_key_or_speaks_in_our_name_is_not_believed(status):
    more = b"x-glidepath-landed: nothing\r\nx-glidepath-run: other\r\nx-echo: Bearer " + PROVIDER_KEY.encode() + b"\r\n"
    body = json.dumps({"error": {"message": f"Incorrect API key: {PROVIDER_KEY}"}} if status[:1] == b"4" else WHOLE)
    reply, found, _ = await ask_liar(told(status, body.encode(), more=more), stream=False)
    assert PROVIDER_KEY.encode() not in found
    assert PROVIDER_KEY not in str(reply.raw_headers)
    assert "x-glidepath-landed" not in reply.headers
    assert reply.headers.getall("x-glidepath-run") == ["run-1"]


USAGES = [
    None,
    {},
    {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": -5_000_000, "completion_tokens": -1},
    {"prompt_tokens": "many", "completion_tokens": [1]},
    {"prompt_tokens": 1e308, "completion_tokens": 1.5},
    {"prompt_tokens": 10**30, "completion_tokens": 10**30},
    "a text",
]


@pytest.mark.parametrize("usage", USAGES, ids=str)
@in_real_time
async def test_a_usage_that_is_a_lie_never_makes_a_reply_cheaper_than_what_was_seen(usage):
    reply = {"choices": [{"index": 0, "delta": {"content": "word " * 400}, "finish_reason": "stop"}]}
    if usage is not None:
        reply["usage"] = usage
    stream = b"data: " + json.dumps(reply).encode() + b"\n\ndata: [DONE]\n\n"
    _, _, report = await ask_liar(events(stream), stream=True)
    assert report["tokens"] >= 2000 / 8
    assert report["estimated"]


class Turn:
    """What a request with the result of one call says."""

    first_text, has_tools, dialect, model, tool_names = "hi", True, "anthropic", "m", ()

    def __init__(self, *ids):
        self.ids = ids

    def call_ids(self):
        return self.ids

    def prefix_digests(self):
        return [b"%d" % number for number in range(3)]


def test_twenty_thousand_short_sessions_keep_no_more_agents_alive_than_sessions_are_remembered():
    line, attribution, made = Line("ann", GateLimits()), Attribution(), weakref.WeakSet()
    for number in range(20_000):
        agent = attribution.find(line, (f"run-{number}",), {}, Turn())
        attribution.remember_calls(agent, line, [f"call-{number}"])
        made.add(agent)
    del agent
    gc.collect()
    assert 0 < len(made) <= lines.MOST_SESSIONS
    last = attribution.find(line, (), {}, Turn("call-19999"))
    assert last.session.id == "run-19999", "a conversation that continues is recognized while its session is remembered"
    assert attribution.find(line, (), {}, Turn("call-3")).session.id not in ("run-3", "run-19999")


def test_a_session_that_was_forgotten_is_not_continued_beside_those_that_are_counted(monkeypatch):
    monkeypatch.setattr(lines, "MOST_SESSIONS", 10)
    line, attribution = Line("ann", GateLimits()), Attribution()
    first = attribution.find(line, ("run-0",), {}, Turn())
    attribution.remember_calls(first, line, ["call-0"])
    for number in range(1, 20):
        line.open_session(f"run-{number}")
    assert "run-0" not in line.sessions
    again = attribution.find(line, (), {}, Turn("call-0"))
    assert again is not first
    assert line.sessions[again.session.id] is again.session


def test_with_thousands_of_sessions_at_work_a_new_one_does_not_look_through_all_of_them(monkeypatch):
    looks, look = [], Line.release_idle
    monkeypatch.setattr(Line, "release_idle", lambda self: (looks.append(len(self.sessions)), look(self)))
    line = Line("ann", GateLimits())
    for number in range(3_000):
        line.open_session(f"run-{number}").asking = 1
    assert len(line.sessions) == 3_000, "none that is at work is forgotten"
    assert looks == [2_000, 2_200, 2_400, 2_600, 2_800]
    for session in line.sessions.values():
        session.asking = 0
    line.open_session("one more")
    assert len(line.sessions) <= lines.MOST_SESSIONS


def test_agents_that_have_gone_for_long_do_not_keep_their_sessions(monkeypatch):
    monkeypatch.setattr(lines, "MOST_SESSIONS", 10)
    now = [0.0]
    line = Line("ann", GateLimits(), clock=lambda: now[0])
    for number in range(30):
        agent = line.open_session(f"run-{number}").add_agent("main", None)
        agent.started, agent.last_spoken = True, now[0]
        now[0] += lines.IDLE / 5
    assert len(line.sessions) <= 10


@in_real_time
async def test_a_session_whose_call_waits_for_budget_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(lines, "MOST_SESSIONS", 10)
    async with fly_behind("answer", max_tokens=200_000) as flown:
        line, waits, arrived = flown.gate.governor._line_of(None), asyncio.Event(), asyncio.Event()

        async def wait():
            arrived.set()
            await waits.wait()
            return True

        monkeypatch.setattr(Line, "await_change", lambda self: wait())
        flight = asyncio.ensure_future(fly_anthropic(flown.url, flown.key, most=1))
        await arrived.wait()
        [(name, session)] = line.sessions.items()
        for number in range(30):
            line.open_session(f"other-{number}")
        assert line.sessions.get(name) is session
        assert not line.is_idle
        waits.set()
        await flight
        assert session.agents
