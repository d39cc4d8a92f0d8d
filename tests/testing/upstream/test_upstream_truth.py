"""What the upstream counts, remembers and logs; its prompt cache; HTTP itself; the process."""

import asyncio
import gzip
import json
import os
import signal
import sys

import httpx
import pytest
from tests.testing.upstream.talk import DIALECTS, KEYS, build, post, run, usage_of

from glidepath.testing import ScriptedUpstream
from glidepath.testing.upstream import HttpConnection

EVERY = pytest.mark.parametrize("dialect", DIALECTS)
LONG = "long " * 2000  # 2,500 tokens


@EVERY
def test_a_token_is_four_bytes_of_every_part(dialect):
    async def main():
        async with ScriptedUpstream("answer") as up:
            short = usage_of(dialect, (await post(up.url, *build(dialect, "x" * 400))).json())
            longer = usage_of(dialect, (await post(up.url, *build(dialect, "x" * 800))).json())
            return short, longer

    short, longer = run(main())
    assert longer[0] - short[0] == 100
    assert short[2] == 9  # the answer has 34 bytes


@EVERY
def test_the_second_request_reads_its_prefix_from_the_cache(dialect):
    async def main():
        async with ScriptedUpstream("answer") as up:
            path, body = build(dialect, LONG)
            if dialect == "anthropic":
                mark = {"cache_control": {"type": "ephemeral"}}
                body["messages"] = [{"role": "user", "content": [{"type": "text", "text": LONG, **mark}]}]
            first = usage_of(dialect, (await post(up.url, path, body)).json())
            second = usage_of(dialect, (await post(up.url, path, body)).json())
            other = usage_of(dialect, (await post(up.url, path.replace("/m:", "/n:"), {**body, "model": "n"})).json())
            return first, second, other

    first, second, other = run(main())
    assert first[1] == other[1] == 0
    assert first[0] == second[0]
    assert second[1] >= second[0] - 128


def test_anthropic_keeps_tools_and_system_but_loses_messages_when_the_tool_choice_changes():
    mark = {"cache_control": {"type": "ephemeral"}}
    path, body = build("anthropic")
    body["system"] = [{"type": "text", "text": LONG, **mark}]
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": LONG, **mark}]}]

    async def main():
        async with ScriptedUpstream("answer") as up:
            await post(up.url, path, body)
            same = await post(up.url, path, body)
            none = await post(up.url, path, {**body, "tool_choice": {"type": "none"}})
            return [one.json()["usage"]["cache_read_input_tokens"] for one in (same, none)], none.json()["usage"]

    (same, none), usage = run(main())
    assert same > 5000
    assert 2500 < none < 2700
    assert usage["cache_creation_input_tokens"] == same - none


def test_runs_are_told_apart_by_the_name_in_their_task():
    async def main():
        async with ScriptedUpstream("answer") as up:
            for task in ("do #run-a", "do #run-b", "again #run-a", "no name"):
                await post(up.url, *build("openai-chat", task))
            return {name: usage.calls for name, usage in up.runs.items()}, up.usage

    runs, usage = run(main())
    assert runs == {"a": 2, "b": 1, "": 1}
    assert usage.calls == 4


@EVERY
def test_a_client_that_leaves_pays_for_what_was_sent_and_leaves_nothing_open(dialect):
    async def main():
        async with ScriptedUpstream("endless", rate=5000) as up:
            path, body = build(dialect, stream=True, most=None)
            async with (
                httpx.AsyncClient(trust_env=False) as client,
                client.stream("POST", up.url + path, json=body, headers=KEYS) as reply,
            ):
                seen = 0
                async for chunk in reply.aiter_raw():
                    seen += len(chunk)
                    if seen > 20_000:
                        break
                assert up.usage.open == 1
            await up.wait_idle()
            assert up.usage.open == 0
            return up.usage

    usage = run(main())
    assert usage.aborted == 1
    assert 50 < usage.output < 10_000


class BrokenTransport:
    """A connection that breaks at its second write; asyncio tells the protocol of it only later."""

    def __init__(self):
        self.writes = 0

    def write(self, data):
        self.writes += 1

    def is_closing(self):
        return self.writes >= 2

    def close(self):
        pass


def test_nothing_is_written_to_a_connection_that_is_breaking():
    async def main():
        async with ScriptedUpstream("endless", rate=1e9) as up:
            connection, transport = HttpConnection(up.respond, set()), BrokenTransport()
            connection.connection_made(transport)
            connection.data_received(raw(json.dumps(build("openai-chat", stream=True, most=None)[1]).encode()))
            await up.wait_idle()
            return transport.writes, up.usage.aborted

    assert run(main(), 5) == (2, 1)


def test_an_endless_stream_without_a_maximum_has_no_end():
    async def main():
        async with ScriptedUpstream("endless", rate=1e9, delta=4000) as up:
            path, body = build("openai-chat", stream=True, most=None)
            async with (
                httpx.AsyncClient(trust_env=False) as client,
                client.stream("POST", up.url + path, json=body, headers=KEYS) as reply,
            ):
                seen = 0
                async for chunk in reply.aiter_raw():
                    seen += len(chunk)
                    if seen > 4_000_000:  # a million tokens
                        break
            return up.usage.most_open

    assert run(main()) == 1


def test_the_log_has_a_line_for_each_call_and_no_key(tmp_path):
    async def main():
        async with ScriptedUpstream("loop", log=tmp_path / "a.jsonl", bodies=True) as up:
            for dialect in DIALECTS:
                path, body = build(dialect, "x #run-1")
                await post(up.url, path, body, {**KEYS, "x-api-key": "sk-secret", "authorization": "Bearer sk-secret"})

    run(main())
    text = (tmp_path / "a.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["dialect"] for line in lines] == list(DIALECTS)
    assert {line["run"] for line in lines} == {"1"}
    assert all(line["body"] and line["input"] and line["output"] and line["said"] == ["Bash"] for line in lines)
    assert "sk-secret" not in text
    assert lines[0]["headers"]["x-api-key"] == "***"


def test_any_path_before_the_version_is_served():
    async def main():
        async with ScriptedUpstream("answer") as up:
            replies = [await post(up.url + "/acme/ann/run-77", *build(dialect)) for dialect in DIALECTS]
            lost = await post(up.url, "/v1/embeddings", {})
            assert up.looks == {"POST /v1/embeddings": 1}
            return [one.status_code for one in replies], lost.status_code, [call.path[:16] for call in up.calls]

    statuses, lost, paths = run(main())
    assert statuses == [200] * 4
    assert lost == 404
    assert paths == ["/acme/ann/run-77"] * 4


async def talk_raw(url: str, *pieces: bytes, wait: float = 0.05) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(wait)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def raw(body: bytes, *headers: str, length: bool = True) -> bytes:
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", "authorization: Bearer k", *headers]
    lines += [f"content-length: {len(body)}"] if length else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_requests_arrive_in_pieces_in_chunks_compressed_and_one_behind_the_other():
    body = json.dumps(build("openai-chat")[1]).encode()
    chunked = raw(b"", "transfer-encoding: chunked", length=False) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)

    async def main():
        async with ScriptedUpstream("answer") as up:
            whole = raw(body)
            answers = [
                await talk_raw(up.url, whole[:50], whole[50:90], whole[90:]),
                await talk_raw(up.url, chunked[:150], chunked[150:]),
                await talk_raw(up.url, raw(gzip.compress(body), "content-encoding: gzip")),
                await talk_raw(up.url, whole + chunked + whole),
            ]
            return [answer.count(b"HTTP/1.1 200 OK") for answer in answers]

    assert run(main()) == [1, 1, 1, 3]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (raw(b"x", "content-encoding: br"), b"415"),
        (raw(b"x", "content-encoding: gzip"), b"400"),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: many\r\n\r\n", b"400"),
        (b"POST /v1/messages HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", b"413"),
        (b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, b"431"),
        (raw(b"{not json"), b"400"),
    ],
)
def test_bytes_that_make_no_sense_are_refused(data, status):
    async def main():
        async with ScriptedUpstream("answer") as up:
            return await talk_raw(up.url, data)

    assert run(main()).startswith(b"HTTP/1.1 " + status)


@pytest.mark.process
def test_the_process_tells_its_address_and_at_the_end_what_it_served(tmp_path):
    async def main():
        command = (
            "-m",
            "glidepath.testing.upstream",
            "--behavior",
            "loop",
            "--port",
            "0",
            "--log",
            str(tmp_path / "l"),
        )
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        url = (await process.stdout.readline()).decode().strip()
        assert (await post(url, *build("anthropic", "x #run-9"))).status_code == 200
        async with httpx.AsyncClient(trust_env=False) as client:
            live = (await client.get(url + "/__usage")).json()
        process.send_signal(signal.SIGTERM)
        told = json.loads(await process.stdout.read())
        return live, told, await process.wait()

    live, told, code = run(main())
    assert code == 0
    assert told["usage"]["calls"] == live["usage"]["calls"] == 1
    assert told["runs"]["9"]["input"] == told["usage"]["input"] > 0
    assert len((tmp_path / "l").read_text().splitlines()) == 1


@pytest.mark.process
def test_the_process_refuses_a_script_that_makes_no_sense():
    async def main():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "glidepath.testing.upstream", "--behavior", "lop", stderr=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[1].decode(), process.returncode

    words, code = run(main())
    assert code == 2
    assert "did you mean 'loop'?" in words


def test_five_hundred_small_requests_take_less_than_a_second_of_cpu():
    body = raw(json.dumps(build("openai-chat", "x" * 1500)[1]).encode())

    async def ask(port, count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count):
            writer.write(body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        writer.close()
        await writer.wait_closed()

    async def main():
        async with ScriptedUpstream("answer", keep=0) as up:
            began = sum(os.times()[:2])
            await asyncio.gather(*[ask(int(up.url.rsplit(":", 1)[1]), 100) for _ in range(5)])
            return sum(os.times()[:2]) - began, up.usage.calls

    seconds, calls = run(main())
    assert calls == 500
    assert seconds < 1.0  # with its clients in the same process; it takes about 0.15
