"""Webhooks: signed, by rule, retried, bounded; a receiver that hangs, lies or dies costs no run anything."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
from contextlib import asynccontextmanager

import pytest

from glidepath import Limits
from glidepath.apps.server import HookAddress, PostFailed, Webhooks, post_signed, read_webhooks, sign
from glidepath.errors import ConfigurationError, RejectedError
from glidepath.events import RunEnded, RunStarted
from glidepath.outcome import AgentState, LoopOutcome, RunResult, StopCause
from glidepath.serve import Webhook
from glidepath.testing import call, fail, say

from .deck import HEADERS, agent, pay, serving, start

SECRET = "a-secret-of-ours-01234"
OK = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receiver:
    """A program that is told. `answers` says what each delivery is answered, the last for all that follow."""

    def __init__(self, *answers):
        self.answers = list(answers or [OK])
        self.got = []
        self.news = asyncio.Event()

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        self.got.append((head[0], headers, body))
        self.news.set()
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if said == "hang":
            await reader.read()  # until the other side gives up
        elif said != "die":
            writer.write(said)
            await writer.drain()
        writer.close()

    async def wait_for(self, count):
        while len(self.got) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 20)
        return [json.loads(body) for _, _, body in self.got]


@asynccontextmanager
async def receiving(*answers):
    receiver = Receiver(*answers)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?of=ours"
    try:
        yield receiver
    finally:
        server.close()


async def no_pause(_seconds):
    await asyncio.sleep(0)


async def settle(client, run_id):
    feed = client.hub.feeds[run_id]
    while not feed.finished:
        await asyncio.wait({feed.wait_for_news()}, timeout=5)
    return feed


async def delivered(hooks, count):
    for _ in range(2_000):
        if len(hooks.deliveries) >= count:
            return list(hooks.deliveries)
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(hooks.deliveries)} of {count}")


def check(headers, body):
    """As any library for Standard Webhooks does."""
    said = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = base64.b64encode(hmac.new(SECRET.encode(), said, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{mac}"


def test_a_run_that_waits_is_told_signed_and_without_content():
    async def main():
        async with receiving() as receiver:
            one = agent(call("pay", amount=5), say("ok"), tools=[pay])
            async with serving(one, webhooks=[Webhook(url=receiver.url, secret=SECRET)]) as client:
                run_id = await start(client, "a secret task")
                (told,) = await receiver.wait_for(1)
                line, headers, body = receiver.got[0]
                assert line == "POST /hook?of=ours HTTP/1.1"
                assert check(headers, body)
                assert not check({**headers, "webhook-timestamp": "1"}, body)
                assert not check(headers, body + b" ")
                assert (told["type"], told["run_id"], told["agent"]) == ("run.waits", run_id, "helper")
                assert [one["tool"] for one in told["pending"]] == ["pay"]
                assert b"secret task" not in body
                assert b"5" not in json.dumps(told["pending"][0]["tool"]).encode()
                for _ in range(500):
                    page = (await client.get("/api/webhooks")).json()
                    if page["deliveries"]:
                        break
                    await asyncio.sleep(0.01)
                assert [one["status"] for one in page["deliveries"]] == ["delivered"]
                assert SECRET not in json.dumps(page)
                assert "of=ours" not in json.dumps(page)

    asyncio.run(main())


def test_content_is_sent_where_the_operator_wants_it():
    async def main():
        async with receiving() as receiver:
            hook = Webhook(url=receiver.url, secret=SECRET, content=True)
            one = agent(call("pay", amount=5), say("ok"), tools=[pay])
            async with serving(one, webhooks=[hook]) as client:
                await start(client, "a task")
                (told,) = await receiver.wait_for(1)
                assert told["task"] == "a task"
                assert told["shown"] == [["The agent wants to call pay:", "  amount: 5"]]

    asyncio.run(main())


def test_a_failure_and_a_limit_that_comes_near_are_told_once_each():
    eager = agent(
        call("search", query="a"), limits=Limits(max_iterations=5, grace_iterations=0), times=50, name="eager"
    )
    broken = agent(fail(RejectedError("no such key")), name="broken")

    async def main():
        async with receiving() as receiver, serving(eager, broken) as client:
            hooks = Webhooks([Webhook(url=receiver.url, secret=SECRET)], client.hub.watchers)
            await settle(client, await start(client, name="eager"))
            await settle(client, await start(client, name="broken"))
            told = await receiver.wait_for(2)
            await hooks.close()
            kinds = [(one["type"], one["agent"]) for one in told]
            assert kinds == [("run.near_limit", "eager"), ("run.fails", "broken")]
            assert (told[0]["limit"]["limit"], told[0]["limit"]["used"]) == (5, 4)
            assert "no such key" not in json.dumps(told)

    asyncio.run(main())


def test_the_run_of_another_program_is_told_and_a_child_is_not():
    """What a gate shows to the hub comes as the events of runs that the hub does not drive."""
    about = {"parent_id": None, "sequence": 1, "time": 1.0}
    cause = StopCause(source="provider", action="fail", reason="no answer")
    failed = {"state": AgentState.ERROR, "outcome": LoopOutcome.FAILED, "cause": cause}

    async def main():
        async with receiving() as receiver, serving(agent()) as client:
            hooks = Webhooks([Webhook(url=receiver.url, secret=SECRET)], client.hub.watchers)
            for run_id, parent in (("run_f", None), ("run_f/child", "run_f")):
                known = {**about, "run_id": run_id, "parent_id": parent}
                begun = RunStarted(**known, session_id=run_id, agent_name="codex", model="m")
                client.hub.child_event(begun)
                result = RunResult(run_id=run_id, session_id=run_id, **failed)
                client.hub.child_event(RunEnded(**known, result=result))
            (told,) = await receiver.wait_for(1)
            assert (told["type"], told["run_id"], told["agent"], told["source"]) == (
                "run.fails",
                "run_f",
                "codex",
                "provider",
            )
            await hooks.close()
            assert len(receiver.got) == 1

    asyncio.run(main())


def test_only_what_a_rule_names_is_told():
    one = agent(call("pay", amount=5), say("ok"), tools=[pay])

    async def main():
        async with receiving() as receiver:
            hooks = [
                Webhook(url=receiver.url, secret=SECRET, on=("fails",)),
                Webhook(url=receiver.url, secret=SECRET, agents=("another",)),
                Webhook(url=f"{receiver.url}&last", secret=SECRET, on=("waits",)),
            ]
            async with serving(one, webhooks=hooks) as client:
                await settle(client, await start(client))
                await receiver.wait_for(1)
            assert [line for line, _, _ in receiver.got] == ["POST /hook?of=ours&last HTTP/1.1"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answers", "statuses", "why"),
    [
        ([b"HTTP/1.1 500 No\r\n\r\n", OK], ["retried", "delivered"], "HTTP 500"),
        (["die", OK], ["retried", "delivered"], "not HTTP"),
        ([b"SSH-2.0-lies\r\n", OK], ["retried", "delivered"], "not HTTP"),
        ([b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"], ["given up"], "redirects are not followed"),
        ([b"HTTP/1.1 410 Gone\r\n\r\n"], ["given up"], "HTTP 410"),
        (["die"], ["retried"] * 5 + ["given up"], "not HTTP"),
        (["hang", OK], ["retried", "delivered"], "no answer within"),
        ([b"x" * 100_000, OK], ["retried", "delivered"], "ValueError"),
        ([b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK], ["delivered"], ""),
        ([b"HTTP/1.1 101 Switching Protocols\r\n\r\n"], ["given up"], "HTTP 101"),
    ],
    ids=["error", "dies", "lies", "redirect", "gone", "dead", "hangs", "floods", "hints", "switches"],
)
def test_a_receiver_that_hangs_lies_or_dies_costs_the_run_nothing(monkeypatch, answers, statuses, why):
    monkeypatch.setattr("glidepath.apps.server.webhook_post.SECONDS", 0.3)

    async def main():
        async with receiving(*answers) as receiver:
            one = agent(call("pay", amount=5), say("ok"), tools=[pay])
            async with serving(one) as client:
                hook = Webhook(url=receiver.url, secret=SECRET, on=("waits",))
                hooks = Webhooks([hook], client.hub.watchers, pause=no_pause)
                feed = await settle(client, await start(client))
                assert feed.card.result.outcome.value == "paused"
                found = await delivered(hooks, len(statuses))
                await hooks.close()
            assert [one.status for one in found] == statuses
            assert [one.attempts for one in found] == list(range(1, len(statuses) + 1))
            assert why in found[0].why
            assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == 1, "one delivery, however often"

    asyncio.run(main())


def test_a_receiver_that_is_not_there_fills_no_memory(monkeypatch):
    monkeypatch.setattr("glidepath.apps.server.webhooks.MOST_WAITING", 3)

    async def main():
        never = asyncio.Event()
        hook = Webhook(url="http://127.0.0.1:1/", secret=SECRET, on=("waits",))
        one = agent(call("pay", amount=5), tools=[pay])
        async with serving(one) as client:
            hooks = Webhooks([hook], client.hub.watchers, pause=lambda _: never.wait())
            for _ in range(6):
                await settle(client, await start(client))
            monkeypatch.setattr("glidepath.apps.server.webhooks.FAREWELL", 0.05)
            await hooks.close()
        assert [one.status for one in hooks.deliveries].count("dropped") == 6
        assert hooks.describe()["webhooks"][0]["waiting"] == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "found", "private", "allowed"),
    [
        ("https://hooks.example.com/", "93.184.216.34", False, True),
        ("https://hooks.example.com/", "10.0.0.7", False, False),
        ("https://hooks.example.com/", "10.0.0.7", True, True),
        ("https://hooks.example.com/", "127.0.0.1", False, False),
        ("https://hooks.example.com/", "169.254.169.254", False, False),
        ("https://hooks.example.com/", "::ffff:10.0.0.7", False, False),
        ("https://hooks.example.com/", "::1", False, False),
        ("https://hooks.example.com/", "::", True, False),
        ("https://hooks.example.com/", "::2", False, False),
        ("https://hooks.example.com/", "::10.0.0.7", False, False),
        ("https://hooks.example.com/", "::ffff:0:127.0.0.1", False, False),
        ("https://hooks.example.com/", "64:ff9b::10.0.0.7", False, False),
        ("https://hooks.example.com/", "64:ff9b::93.184.216.34", False, True),
        ("https://hooks.example.com/", "64:ff9b:1::10.0.0.7", False, False),
        ("https://hooks.example.com/", "2002:a00:7::1", False, False),
        ("https://hooks.example.com/", "fec0::1", False, False),
        ("https://hooks.example.com/", "2606:2800:220:1:248:1893:25c8:1946", False, True),
        ("https://hooks.example.com/", "224.0.0.1", True, False),
        ("https://hooks.example.com/", "0.0.0.0", True, False),
        ("http://localhost:9/", "127.0.0.1", False, True),
        ("http://localhost:9/", "10.0.0.7", True, False),
        ("https://127.0.0.1:9/", "127.0.0.1", False, True),
    ],
)
def test_the_address_that_a_name_stands_for_is_checked_when_it_is_called(url, found, private, allowed):
    address = HookAddress.read(url, private=private)
    if allowed:
        address.check(found)
        return
    with pytest.raises(PostFailed) as failed:
        address.check(found)
    assert not failed.value.again


@pytest.mark.parametrize("secret", ["whsec_----------------", "whsec_abcdefghijklm", "whsec_YWJjZGVmZw===="])
def test_a_secret_that_would_be_no_key_is_refused(secret):
    with pytest.raises(ConfigurationError, match="base64") as refused:
        Webhook(url="https://hooks.example.com/", secret=secret)
    assert secret not in str(refused.value)


def test_the_very_address_that_was_checked_is_called(monkeypatch):
    """A name that stands for another address a moment later is not looked up again."""
    looked = []

    async def main():
        async with receiving() as receiver:
            port = int(receiver.url.split(":")[2].split("/")[0])
            loop = asyncio.get_running_loop()

            async def look(host, port, **_):
                looked.append(host)
                return [(2, 1, 6, "", ("127.0.0.1", port))]

            monkeypatch.setattr(loop, "getaddrinfo", look)
            hook = Webhook(url=f"http://localhost:{port}/", secret=SECRET)
            one = agent(call("pay", amount=5), say("ok"), tools=[pay])
            async with serving(one) as client:
                hooks = Webhooks([hook], client.hub.watchers, pause=no_pause)
                await settle(client, await start(client))
                (found,) = await delivered(hooks, 1)
                await hooks.close()
            assert found.status == "delivered"
            assert looked.count("localhost") == 1

    asyncio.run(main())


@pytest.mark.parametrize("others", [["::1"], ["127.0.0.2", "127.0.0.3"]], ids=["two families", "two without it"])
def test_a_name_with_several_addresses_is_called_at_the_one_that_answers(monkeypatch, others):
    """localhost is often ::1 before 127.0.0.1, and a receiver listens on one of them only."""

    async def main():
        async with receiving() as receiver:
            port = int(receiver.url.split(":")[2].split("/")[0])

            async def look(*_, **__):
                return [(0, 1, 6, "", (one, port)) for one in (*others, "127.0.0.1")]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look)
            address = HookAddress.read(f"http://localhost:{port}/")
            assert await post_signed(address, SECRET, "msg_1", b"{}") == 204

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"url": "http://hooks.example.com/"}, "use https"),
        ({"url": "ftp://x"}, "https:// address"),
        ({"url": "https://me:pw@hooks.example.com/"}, "without a password"),
        ({"url": "https://hooks.example.com/\r\nx: y"}, "https:// address"),
        ({"url": None}, "https:// address"),
        ({"url": "https://[::1"}, "https:// address"),
        ({"secret": "short"}, "at least 16"),
        ({"on": ("explodes",)}, "waits, fails, near_limit"),
        ({"on": ()}, "waits, fails, near_limit"),
        ({"near": 80}, "at most 1"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(fields, said):
    with pytest.raises(ConfigurationError, match=said):
        Webhook(**{"url": "https://hooks.example.com/", "secret": SECRET, **fields})


def read(folder, text, environ=None):
    path = folder / "hooks.toml"
    path.write_text(text)
    return read_webhooks(path, environ or {}, lambda file: file.read_text().strip())


def test_a_file_names_its_secrets_and_never_holds_them(tmp_path):
    (tmp_path / "key").write_text(SECRET)
    entry = '[[webhook]]\nurl = "https://hooks.example.com/x"\n'
    (one,) = read(tmp_path, f'{entry}secret = "file:key"\non = ["fails"]\nnear = 0.5')
    assert (one.secret, one.on, one.near, one.content) == (SECRET, ("fails",), 0.5, False)
    (one,) = read(tmp_path, f'{entry}secret = "env:HOOK"', {"HOOK": SECRET})
    assert SECRET not in repr(one)
    for text, said in (
        (f'{entry}secret = "{SECRET}"', "never the secret itself"),
        (f'{entry}secret = "env:NOT_SET"', "is not set"),
        (f'{entry}secret = "file:key"\ncolor = 1', "has no key 'color'"),
        (f'{entry}secret = "file:key"\non = "fails"', "must be a list"),
        (f'{entry}secret = "file:key"\nprivate = "yes"', "true or false"),
        ("[webhooks]", "and nothing else"),
        ("= 1", "cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            read(tmp_path, text)


def test_secrets_of_other_programs_are_read_as_they_do():
    key = base64.b64encode(os.urandom(24)).decode()
    body, when = b"{}", 1_700_000_000
    mac = hmac.new(base64.b64decode(key), b"msg_1.1700000000.{}", hashlib.sha256).digest()
    assert sign(f"whsec_{key}", "msg_1", when, body) == f"v1,{base64.b64encode(mac).decode()}"
    assert HEADERS
