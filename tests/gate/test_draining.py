"""A gate that is told to end: its runs go on at the one that takes its place."""

import asyncio
import json

import httpx

from glidepath.sessions import SqliteStore, find_sessions
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import fly_anthropic, in_real_time
from .kept import keep_at, until

BODY = {"model": "claude-opus-5-5", "max_tokens": 1_000, "messages": [{"role": "user", "content": "Do the work."}]}


def open_client(gate):
    headers = {"x-api-key": gate.key, "anthropic-version": "2023-06-01"}
    return httpx.AsyncClient(trust_env=False, timeout=20, base_url=gate.url, headers=headers)


@in_real_time
async def test_what_is_in_flight_is_finished_and_what_comes_is_sent_away_for_a_moment(tmp_path):
    store = SqliteStore(tmp_path / "s.db")
    async with (
        ScriptedUpstream("answer + slow:seconds=0.5") as up,
        keep_at(up.url, store) as gate,
        open_client(gate) as client,
    ):
        early = asyncio.ensure_future(client.post("/v1/messages", json=BODY))
        await until(lambda: up.usage.most_open)
        draining = asyncio.ensure_future(gate.application.drain(10))
        await asyncio.sleep(0)
        late = await client.post("/v1/messages", json=BODY)
        assert late.status_code == 503, "every SDK asks again after that"
        assert "shutting down" in late.json()["error"]["message"]
        assert "SCRIPTED-ANSWER" in (await early).text
        await draining
    await store.close()


@in_real_time
async def test_a_stream_that_does_not_end_is_broken_off_and_its_run_goes_on_at_the_next_gate(tmp_path):
    store = SqliteStore(tmp_path / "s.db")
    async with ScriptedUpstream("honest + stall:at=1,after=3,seconds=3600") as up:
        async with keep_at(up.url, store, limits={"max_tokens": 40_000}) as gate, open_client(gate) as client:
            async with client.stream("POST", "/v1/messages", json={**BODY, "stream": True}) as reply:
                lines = reply.aiter_lines()
                seen = [await anext(lines)]
                await gate.application.drain(0.1)
                seen += [line async for line in lines]
            last = json.loads(seen[-2].removeprefix("data: ") or seen[-1].removeprefix("data: "))
            assert last["type"] == "error", "the client asks again; it does not take this for an answer"
            assert "shutting down" in last["error"]["message"]
            used = gate.report()["tokens"]
            assert used
            assert not gate.report()["landed"]
        async with keep_at(up.url, store, limits={"max_tokens": 40_000}) as gate:
            flight = await fly_anthropic(gate.url, gate.key)
            assert "SCRIPTED-ANSWER" in flight.text
            assert gate.report()["tokens"] > used, "what the first gate had spent counts"
    (entry,) = (await find_sessions(store)).sessions
    assert entry.summary["outcome"] == "done"
    await store.close()
