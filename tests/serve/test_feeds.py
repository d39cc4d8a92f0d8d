"""Feeds and logs: readers that leave, are slow, or come back; children; what other programs wrote."""

import asyncio
import json

import pytest

from glidepath import Agent, AgentState, Limits, tool
from glidepath.apps.server import LogHead, event_streams
from glidepath.apps.server.event_log import FolderLog, MemoryLog, kind_of
from glidepath.apps.server.event_pulse import Pulse
from glidepath.apps.server.postgres_log import PostgresLog
from glidepath.apps.server.run_feed import RunFeed
from glidepath.apps.server.run_series import Series, add_series
from glidepath.apps.server.run_summary import FlightCard
from glidepath.errors import TransientError
from glidepath.events import RetryScheduled, StreamStarted, ToolStarted
from glidepath.serve.locks import OPERATOR
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import ScriptedModel, call, fail, say, virtual

from .deck import Doors, agent, code, events, messages, pay, search, serving, start


def logs(tmp_path):
    from tests.crash.postgres import dsn

    return [MemoryLog(), FolderLog(tmp_path / "log"), PostgresLog(dsn())]


LINES = [b'{"event":"StreamChunk","n":%d}' % number for number in range(1, 8)]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["memory", "folder", "postgres"])
def test_a_log_gives_back_what_it_was_given_by_number(tmp_path, which):
    async def main():
        log = logs(tmp_path)[which]
        head = LogHead(run_id=f"run/{tmp_path.name} \u00fc", session_id="s", agent="a")
        for part in (LINES[:3], LINES[3:4], LINES[4:]):
            later = log.append(head, part)
            if later is not None:
                await later
            log.release(head.run_id)
        assert await log.count(head.run_id) == 7
        assert await log.read(head.run_id, 0, 100) == LINES
        assert await log.read(head.run_id, 2, 3) == LINES[2:5]
        assert await log.read(head.run_id, 7, 3) == await log.read("other", 0, 3) == []
        assert await log.head(head.run_id) == head
        assert await log.head("other") is None
        await log.close()

    asyncio.run(main())


def test_a_torn_last_line_is_cut_off_before_the_next_is_written(tmp_path):
    async def main():
        head = LogHead(run_id="run", session_id="s")
        first = FolderLog(tmp_path)
        first.append(head, LINES[:2])
        await first.close()
        with (tmp_path / "run.jsonl").open("ab") as file:
            file.write(b'{"event":"Torn')
        second = FolderLog(tmp_path)
        assert await second.count("run") == 2
        second.append(head, LINES[2:3])
        assert await second.read("run", 0, 10) == LINES[:3]
        await second.close()

    asyncio.run(main())


def test_the_kind_of_a_line_is_read_without_decoding_it():
    assert kind_of(b'{"event":"RunEnded","run_id":"x"}') == "RunEnded"
    assert kind_of(b'{"run_id":"x"}') == "UnknownEvent"


def test_a_client_that_goes_away_does_not_end_a_run_with_a_store(tmp_path):
    async def main():
        doors = Doors()
        flying = agent(call("wait"), say("ok"), tools=doors.tools())
        async with serving(flying, store=SqliteStore(tmp_path / "s"), disconnect_grace=0.01) as client:
            run_id = await start(client)
            await doors.entered.wait()
            reader = asyncio.ensure_future(events(client, run_id))
            while not client.hub.feeds[run_id].readers:  # noqa: ASYNC110 - it is the request's doing
                await asyncio.sleep(0)
            reader.cancel()
            await asyncio.wait({reader})
            await asyncio.sleep(0.1)
            assert not client.hub.flights[run_id].token.winding_down
            doors.open.set()
            assert (await events(client, run_id))[-1][2]["result"]["outcome"] == "done"

    asyncio.run(main())


@pytest.mark.parametrize(("policy", "outcome"), [("land", "wrapped_up"), ("continue", "done")])
def test_without_a_store_a_run_whose_reader_has_gone_lands_or_continues(policy, outcome):
    async def main():
        doors = Doors()
        flying = agent(call("wait"), say("ok"), tools=doors.tools())
        async with serving(flying, on_disconnect=policy, disconnect_grace=0.01) as client:
            run_id = await start(client)
            await doors.entered.wait()
            feed = client.hub.feeds[run_id]
            feed.readers += 1  # as a stream does while somebody reads it
            feed.readers -= 1
            client.hub.on_reader_left(feed)
            await asyncio.sleep(0.1)
            doors.open.set()
            assert (await events(client, run_id))[-1][2]["result"]["outcome"] == outcome

    asyncio.run(main())


def test_a_reader_that_falls_behind_gets_a_snapshot_and_then_what_follows(monkeypatch):
    monkeypatch.setattr(event_streams, "BEHIND", 5)
    monkeypatch.setattr(event_streams, "PAGE", 5)

    async def main():
        doors = Doors()
        flying = agent(
            call("wait"), *[call("search", query=str(n)) for n in range(6)], say("ok"), tools=[search, *doors.tools()]
        )
        async with serving(flying) as client:
            run_id = await start(client)
            await doors.entered.wait()
            feed = client.hub.feeds[run_id]
            reader, got = client.server.reader, b""
            parts = event_streams._run_parts(client.hub, feed, 0, lambda: reader.detail(run_id, OPERATOR))
            while messages(got.decode())[-1:] == [] or messages(got.decode())[-1][0] < feed.last:
                got += await anext(parts)
            waiting = asyncio.ensure_future(anext(parts))
            await asyncio.sleep(0)
            doors.open.set()
            while feed.live:  # noqa: ASYNC110 - it flies while nobody reads
                await asyncio.sleep(0)
            got += await waiting
            async for part in parts:
                got += part
        seen = messages(got.decode())
        kinds = [kind for _, kind, _ in seen]
        place = kinds.index("snapshot")  # a slow machine may fall behind again
        assert seen[place][2]["run_id"] == run_id
        assert seen[place][0] > seen[place - 1][0] + 1
        assert [number for number, _, _ in seen[:place]] == list(range(1, place + 1))
        assert seen[place][2]["sequence"] == seen[place][0]

    asyncio.run(main())


def test_pages_of_events_are_found_from_both_ends_and_by_kind():
    async def main():
        async with serving(agent()) as client:
            run_id = await start(client)
            total = len(await events(client, run_id))

            async def page(query):
                json_please = {"accept": "application/json"}
                found = (await client.get(f"/api/runs/{run_id}/events?{query}", headers=json_please)).json()
                return [one["sequence"] for one in found["events"]], found["first"], found["last"], found["total"]

            assert await page("limit=3") == ([1, 2, 3], 1, 3, total)
            assert await page("after=3&limit=2") == ([4, 5], 4, 5, total)
            assert await page(f"before={total + 1}&limit=2") == ([total - 1, total], total - 1, total, total)
            assert await page("before=3&limit=10") == ([1, 2], 1, 2, total)
            assert (await page("kind=RunEnded"))[0] == [total]
            assert len((await page("kind=TurnStarted,RunEnded"))[0]) == 3
            assert await page(f"after={total}") == ([], 0, 0, total)

    asyncio.run(main())


def test_whoever_asks_for_nothing_special_gets_a_stream():
    async def main():
        async with serving(agent()) as client:
            run_id = await start(client)
            answer = await client.get(f"/api/runs/{run_id}/events")
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert messages(answer.text)[-1][1] == "RunEnded"
            page = await client.get(f"/api/runs/{run_id}/events?limit=2")
            assert len(page.json()["events"]) == 2

    asyncio.run(main())


def test_a_store_in_postgresql_keeps_events_and_shows_its_fleet():
    from tests.engines.kit import fresh_database

    from glidepath.apps.fleet import FleetLedger
    from glidepath.engines.dbos import Quota
    from glidepath.run import Amount
    from glidepath.sessions import PostgresStore

    async def main():
        address = fresh_database()
        async with serving(agent(), store=PostgresStore(address)) as client:
            assert [one["name"] for one in (await client.get("/api/budgets")).json()["roots"]][-1] == "this server"
            run_id = await start(client)
            before = await events(client, run_id)
            assert [number for number, _, _ in before] == list(range(1, len(before) + 1))
        ledger = FleetLedger(address)
        await ledger.set_budget(Quota(tokens=1000))
        await ledger.set_tenant("acme", day=Quota(runs=5), month=Quota())
        await ledger.set_rate("model", requests=3600, tokens=900_000, per=3600.0, burst=5)
        for tokens in (100, 20, 3):
            await ledger.take_slot("model", tokens)
        await ledger.register_worker("worker-1", 30.0, ["helper"])
        await ledger._fetchval("SELECT glidepath_admit('s1', 'helper', 'acme', 'go', 'd', NULL)")
        await ledger.open("s1", 1, "worker-1")
        amounts = {name: Amount(0, 0) for name in ("spent", "flight", "least", "spare")}
        await ledger.draw("s1", 1, landing=Amount(30, 0), asked=Amount(200, 0), **amounts)
        await ledger.close()
        async with serving(agent(), store=PostgresStore(address)) as client:
            assert await events(client, run_id) == before
            roots = (await client.get("/api/budgets")).json()["roots"]
            assert (roots[0]["kind"], roots[0]["gauges"][0]["limit"]) == ("fleet", 1000)
            line = [roots[0]]
            while line[-1]["children"]:
                line.append(line[-1]["children"][0])
            assert [one["kind"] for one in line] == ["fleet", "tenant", "tenant", "run"]
            assert [(one["gauges"][0]["used"], one["gauges"][0]["reserved"]) for one in line] == [(30, 200)] * 4
            assert (line[1]["name"].startswith("tenant acme, month"), line[-1]["run_id"]) == (True, "s1")
            fleet = (await client.get("/api/fleet")).json()
            assert "worker-1" in [worker["name"] for worker in fleet["workers"]]
            assert fleet["rates"] == [
                {"name": "model requests", "used": 3, "limit": 3600.0, "per": 3600.0},
                {"name": "model tokens", "used": 123, "limit": 900_000.0, "per": 3600.0},
            ]

    asyncio.run(main())


def test_events_that_cannot_be_written_are_a_503_with_a_sentence(tmp_path, caplog):
    async def main():
        async with serving(agent(), store=SqliteStore(tmp_path / "s")) as client:
            (tmp_path / "s-events").write_text("not a folder")
            answer = await client.post("/api/runs", json={"agent": "helper", "prompt": "hi"})
            assert code(answer) == (503, "store_unavailable")
            assert "cannot be written" in answer.json()["error"]["message"]
            chat = {"model": "helper", "messages": [{"role": "user", "content": "hi"}]}
            assert (await client.post("/v1/chat/completions", json=chat)).status_code == 503
            (tmp_path / "s-events").unlink()
            assert (await events(client, await start(client)))[-1][1] == "RunEnded"

    asyncio.run(main())
    assert "Traceback" not in caplog.text


def test_a_run_that_loses_its_event_log_ends_for_those_who_wait_for_it(tmp_path):
    async def main():
        doors = Doors()
        flying = agent(call("wait"), say("ok"), tools=doors.tools())
        async with serving(flying, store=SqliteStore(tmp_path / "s")) as client:
            chat = {"model": "helper", "messages": [{"role": "user", "content": "hi"}]}
            asked = asyncio.ensure_future(client.post("/v1/chat/completions", json=chat))
            await doors.entered.wait()
            (flight,) = client.hub.flights.values()
            client.hub.log.release(flight.feed.run_id)
            (tmp_path / "s-events").rename(tmp_path / "moved")
            (tmp_path / "s-events").write_text("not a folder")
            doors.open.set()
            assert code(await asyncio.wait_for(asked, 30)) == (422, "lost"), "a client would try a 5xx again"

    asyncio.run(main())


def test_a_reader_of_a_run_whose_events_were_removed_gets_a_snapshot(tmp_path):
    async def main():
        async with serving(agent(), store=SqliteStore(tmp_path / "s")) as client:
            run_id = await start(client)
            last = (await events(client, run_id))[-1][0]
            (tmp_path / "s-events").rename(tmp_path / "moved")
            ((number, kind, data),) = await events(client, run_id)
            assert (number, kind, data["outcome"]) == (last, "snapshot", "done")

    asyncio.run(main())


def test_children_have_feeds_of_their_own_below_their_parents(tmp_path):
    async def main():
        child = agent(call("search", query="x"), say("found it"), name="scout")
        parent = agent(
            call("scout", task="look"), say("all done"), name="lead", tools=[child.as_tool("scout", "Look around")]
        )
        async with serving(parent, store=SqliteStore(tmp_path / "s")) as client:
            run_id = await start(client, name="lead")
            await events(client, run_id)
            detail = (await client.get(f"/api/runs/{run_id}")).json()
            (below,) = detail["children"]
            assert (below["agent"], below["state"], below["parent"]) == ("scout", "ended", detail["session_id"])
            (node,) = detail["budget"]["children"]
            assert (node["kind"], node["run_id"]) == ("child", below["run_id"])
            seen = await events(client, below["run_id"])
            assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
            assert (seen[0][1], seen[-1][1]) == ("RunStarted", "RunEnded")
            cards = (await client.get("/api/runs")).json()["runs"]
            assert [card["run_id"] for card in cards] == [run_id]
            assert "/" in below["session_id"]
            for name in (below["session_id"], below["session_id"].replace("/", "%2F"), below["run_id"]):
                assert (await client.get(f"/api/runs/{name}")).json()["run_id"] == below["run_id"]
                assert (await client.get(f"/api/runs/{name}/messages")).json()["total"] > 1
                assert code(await client.post(f"/api/runs/{name}/stop", json={})) == (409, "run_ended")
            assert code(await client.get(f"/api/runs/{below['session_id']}/no")) == (404, "unknown_run")

    asyncio.run(main())


def test_a_run_of_another_program_is_retold_from_its_journal():
    async def main():
        store = MemoryStore()
        flown = await agent(call("search", query="x"), say("done"), store=store).run("hello", session="elsewhere")
        async with serving(store=store) as client:
            for name in ("elsewhere", flown.run_id):
                seen = await events(client, name)
                kinds = [kind for _, kind, _ in seen]
                assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
                assert (kinds[0], kinds[-1]) == ("RunStarted", "RunEnded")
                assert kinds.count("TurnStarted") == 2
                assert kinds.count("ToolStarted") == kinds.count("ToolEnded") == 1
            detail = (await client.get("/api/runs/elsewhere")).json()
            assert (detail["state"], detail["text"], detail["turn"]) == ("ended", "done", 2)
            assert detail["usage"]["total"] == flown.usage.total
            limits = {gauge["kind"]: gauge["limit"] for gauge in detail["gauges"]}
            assert (limits["turns"], limits["tokens"], limits["cost"]) == (20, 100_000, 1)

    asyncio.run(main())


def test_a_run_in_another_process_can_be_followed_landed_and_stopped(monkeypatch):
    from glidepath.apps.server import store_reader

    monkeypatch.setattr(store_reader, "LOOK", 0.02)

    async def main(action):
        doors, store = Doors(), MemoryStore()
        flying = agent(call("wait"), say("so far"), tools=doors.tools(), store=store)
        flight = asyncio.ensure_future(flying.run("hello", session="far"))
        await doors.entered.wait()
        async with serving(store=store) as client:
            assert (await client.get("/api/runs/far")).json()["state"] == "running"
            reading = asyncio.ensure_future(events(client, "far"))
            answer = await client.post(f"/api/runs/far/{action}", json={"reason": "enough"})
            assert answer.status_code == 200, answer.text
            if action == "land":
                await asyncio.sleep(0.7)  # it looks into its inbox twice a second
                doors.open.set()
            result = await flight
            assert result.outcome.value == {"land": "wrapped_up", "stop": "cancelled"}[action]
            assert result.cause.reason.startswith("enough (by ada)")
            assert (await reading)[-1][1] == "RunEnded"
            journal = (await client.get("/api/runs/far/journal")).json()["records"]
            assert [one["payload"]["action"] for one in journal if one["kind"] == "control"] == [action]

    asyncio.run(main("land"))
    asyncio.run(main("stop"))


def test_a_second_server_on_the_same_store_follows_the_runs_of_the_first(tmp_path, monkeypatch):
    from glidepath.apps.server import store_reader

    monkeypatch.setattr(store_reader, "LOOK", 0.02)

    async def main():
        doors, store = Doors(), SqliteStore(tmp_path / "s")
        flying = agent(call("wait"), call("pay", amount=1), say("ok"), tools=[*doors.tools(), pay])
        async with serving(flying, store=store) as first, serving(store=store) as second:
            run_id = await start(first)
            await doors.entered.wait()
            assert (await second.get(f"/api/runs/{run_id}")).json()["state"] == "running"
            reading = asyncio.ensure_future(events(second, run_id))
            await asyncio.sleep(0.05)
            doors.open.set()
            paused = await events(first, run_id)
            assert await reading == paused
            body = {"id": paused[-1][2]["result"]["pending"][0]["call"]["id"], "decision": "approve"}
            assert (await first.post(f"/api/runs/{run_id}/decide", json=body)).status_code == 200
            whole = await events(first, run_id)
            assert await events(second, run_id) == whole
            assert (await second.get(f"/api/runs/{run_id}")).json()["outcome"] == "done"

    asyncio.run(main())


def test_the_list_is_fed_with_changed_cards_only():
    async def main():
        async with serving(agent(call("pay", amount=1), say("ok"))) as client:
            stream = event_streams.stream_cards(client.hub, client.server.reader, OPERATOR)
            parts = stream._parts()
            got = b""
            while b"approvals" not in got:
                got += await anext(parts)
            run_id = await start(client)
            await events(client, run_id)
            while b'"count":1' not in got:
                got += await anext(parts)
            await parts.aclose()
            seen = messages(got.decode())
            cards = [card for _, kind, data in seen if kind == "cards" for card in data["runs"]]
            assert {card["run_id"] for card in cards} == {run_id}
            assert cards[-1]["state"] == "paused"
            assert len(cards) == len({json.dumps(card) for card in cards})

    asyncio.run(main())


@virtual
async def test_a_card_shows_the_state_that_a_stream_shows():
    @tool
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(5)
        return "waited"

    card, shown = FlightCard("r", "s"), {}
    model = ScriptedModel([fail(TransientError("busy")), call("wait"), call("pay", amount=3), say("done")])
    flying = Agent(model=model, tools=[wait, pay], limits=Limits(max_iterations=9))
    async with flying.stream("go") as stream:
        async for event in stream:
            card.take_event(event)
            if isinstance(event, StreamStarted | RetryScheduled | ToolStarted):
                await asyncio.sleep(0.01)  # the run goes on as far as it can
                shown[type(event).__name__] = (card.agent_state, stream.state)
    recovering, waiting = AgentState.RECOVERING, AgentState.WAITING_FOR_TOOL
    assert shown["RetryScheduled"] == (recovering, recovering)
    assert shown["ToolStarted"] == (waiting, waiting)
    assert card.agent_state is AgentState.WAITING_FOR_INPUT
    assert card.card(0.0).agent_state == "waiting_for_input"


def test_the_state_of_an_agent_is_in_the_answers_of_a_server(tmp_path):
    async def main():
        doors, store = Doors(), SqliteStore(tmp_path / "store")
        async with serving(agent(call("wait"), say("ok"), tools=doors.tools()), store=store) as client:
            run_id = await start(client)
            await doors.entered.wait()
            assert (await client.get(f"/api/runs/{run_id}")).json()["agent_state"] == "waiting_for_tool"
            doors.open.set()
            await events(client, run_id)
            (card,) = (await client.get("/api/runs")).json()["runs"]
            assert (card["state"], card["agent_state"]) == ("ended", "completed")
        await agent(store=store).run("hi", session="flown by another program")
        async with serving(agent(), store=store) as client:
            cards = (await client.get("/api/runs")).json()["runs"]
            assert [(one["state"], one["agent_state"]) for one in cards] == [("ended", "completed")] * 2

    asyncio.run(main())


def test_the_series_of_a_long_run_stays_small_and_begins_and_ends_where_the_run_does():
    series = Series()
    for turn in range(5_000):
        series.add(float(turn), turns=1)
        series.add(turn + 0.5, 0, 10, 5, 1_000)
    points = add_series([series.steps()])
    assert len(points) <= 520
    assert (points[0].turns < 50, points[-1].turns, points[-1].tokens) == (True, 5_000, 75_000)
    middle = points[len(points) // 2]
    assert abs(middle.turns - middle.time) < 2


@virtual
async def test_pieces_of_a_reply_wait_for_the_beat_and_everything_else_does_not():
    readers, recorded = [5], []

    async def record(feed):
        recorded.append((feed.run_id, round(asyncio.get_running_loop().time() - began, 3)))

    pulse = Pulse(lambda: readers[0], record)
    began = asyncio.get_running_loop().time()
    beating = asyncio.create_task(pulse.run())
    one, two = (RunFeed(LogHead(run_id=name, session_id=name), MemoryLog()) for name in ("one", "two"))
    for feed in (one, two, one):
        pulse.hold(feed)
    pulse.release(two)
    await asyncio.sleep(0)
    assert recorded == [("two", 0.0)]
    await asyncio.sleep(0.03)
    assert recorded[1:] == [("one", 0.02), ("two", 0.02)], "all that is held comes with one beat"
    readers[0] = 50
    assert 0.02 < pulse.gap < 0.1, "fifty readers are served within a blink"
    readers[0] = 100_000
    assert pulse.gap == 1.5
    pulse.close()
    beating.cancel()
