"""Starting, reading and steering runs over HTTP."""

import asyncio
import json

import pytest

from glidepath.sessions import MemoryStore, RedactingStore, SqliteStore
from glidepath.testing import call, calls, say

from .deck import Doors, agent, code, controls, events, pay, serving, start


def test_a_run_is_started_and_read_to_its_end():
    async def main():
        async with serving(agent()) as client:
            run_id = await start(client)
            seen = await events(client, run_id)
            assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
            assert (seen[0][1], seen[-1][1]) == ("RunStarted", "RunEnded")
            assert all(data["event"] == kind and data["sequence"] == number for number, kind, data in seen)
            detail = (await client.get(f"/api/runs/{run_id}")).json()
            assert (detail["state"], detail["outcome"], detail["text"]) == ("ended", "done", "done")
            assert detail["usage"]["total"] > 0
            assert detail["cost"] is not None
            assert detail["pending"] == []

    asyncio.run(main())


def test_a_session_id_is_the_id_of_its_latest_run(tmp_path):
    async def main():
        async with serving(agent(), store=SqliteStore(tmp_path / "store")) as client:
            first = await start(client, session="talk")
            await events(client, first)
            second = await start(client, session="talk")
            await events(client, second)
            assert (await client.get("/api/runs/talk")).json()["run_id"] == second
            assert (await client.get(f"/api/runs/{first}/events?limit=1")).json()["total"] > 0

    asyncio.run(main())


def test_a_reader_comes_back_without_gap_or_duplicate():
    async def main():
        async with serving(agent()) as client:
            run_id = await start(client)
            whole = await events(client, run_id)
            assert await events(client, run_id, after=4) == whole[4:]

    asyncio.run(main())


def test_an_approval_continues_the_run_and_the_journal_says_who(tmp_path):
    async def main():
        store = SqliteStore(tmp_path / "store")
        async with serving(agent(call("pay", amount=3), say("paid")), store=store) as client:
            run_id = await start(client)
            assert (await events(client, run_id))[-1][2]["result"]["outcome"] == "paused"
            (waiting,) = (await client.get("/api/approvals")).json()["approvals"]
            assert (waiting["tool"], waiting["arguments"]) == ("pay", {"amount": 3})
            body = {"id": waiting["id"], "decision": "edit", "arguments": {"amount": 2}, "reason": "cheaper"}
            answer = await client.post(f"/api/runs/{run_id}/decide", json=body)
            assert answer.status_code == 200
            seen = await events(client, run_id)
            assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
            assert seen[-1][2]["result"]["outcome"] == "done"
            (control,) = await controls(client, run_id)
            assert (control["action"], control["reason"], control["who"]) == ("decide", "cheaper", "ada")
            results = (await client.get(f"/api/runs/{run_id}/messages")).json()["messages"]
            assert [one["text"] for one in results if one["role"] == "tool"] == ["paid 2"]
            again = await client.post(f"/api/runs/{run_id}/decide", json=body)
            assert code(again) == (409, "run_ended")

    asyncio.run(main())


@pytest.mark.parametrize("make_store", [lambda: None, MemoryStore], ids=["no store", "store"])
def test_a_call_of_a_child_is_asked_about_once_and_decided_at_its_root(make_store):
    async def main():
        clerk = agent(call("pay", amount=3), say("paid"), name="clerk")
        lead = agent(call("clerk", task="pay"), say("all done"), name="lead", tools=[clerk.as_tool("clerk", "Pays")])
        async with serving(lead, store=make_store()) as client:
            run_id = await start(client, name="lead")
            assert (await events(client, run_id))[-1][2]["result"]["outcome"] == "paused"
            (waiting,) = (await client.get("/api/approvals")).json()["approvals"]
            assert (waiting["run_id"], waiting["tool"], waiting["arguments"]) == (run_id, "pay", {"amount": 3})
            assert waiting["reason"].startswith("clerk: ")
            answer = await client.post(f"/api/runs/{run_id}/decide", json={"id": waiting["id"], "decision": "approve"})
            assert answer.status_code == 200
            assert (await events(client, run_id))[-1][2]["result"]["outcome"] == "done"
            detail = (await client.get(f"/api/runs/{run_id}")).json()
            assert (detail["text"], [one["outcome"] for one in detail["children"]]) == ("all done", ["done"])

    asyncio.run(main())


@pytest.mark.parametrize("make_store", [lambda: None, MemoryStore], ids=["no store", "store"])
@pytest.mark.parametrize("verb", ["decide", "resume"])
def test_what_is_asked_of_a_childs_own_card_points_to_the_root(make_store, verb):
    async def main():
        clerk = agent(call("pay", amount=3), say("paid"), name="clerk")
        head = agent(call("clerk", task="pay"), say("passed on"), name="head", tools=[clerk.as_tool("clerk", "Pays")])
        lead = agent(
            call("head", task="pay"), say("all done"), name="lead", tools=[head.as_tool("head", "Has a clerk")]
        )
        async with serving(lead, store=make_store()) as client:
            root = await start(client, name="lead")
            await events(client, root)
            (waiting,) = (await client.get("/api/approvals")).json()["approvals"]
            below = (await client.get(f"/api/runs/{root}")).json()["children"]
            runs = {one["agent"]: one["run_id"] for one in below if one["state"] == "paused"}
            for depth, run in ((1, runs["head"]), (2, runs["clerk"])):
                own = waiting["id"].split("/", depth)[-1]
                body = {"id": own, "decision": "approve"} if verb == "decide" else {"reason": "go on"}
                answer = await client.post(f"/api/runs/{run}/{verb}", json=body)
                assert code(answer) == (409, "decide_at_root")
                said = answer.json()["error"]["message"]
                assert f"POST /api/runs/{root}/decide" in said
                assert verb == "resume" or f"id {waiting['id']!r}" in said
            assert (await client.get(f"/api/runs/{root}")).json()["state"] == "paused"  # nothing has changed
            assert (await client.get("/api/approvals")).json()["approvals"] == [waiting]
            body = {"id": waiting["id"], "decision": "approve"}
            assert (await client.post(f"/api/runs/{root}/decide", json=body)).status_code == 200
            assert (await events(client, root))[-1][2]["result"]["outcome"] == "done"

    asyncio.run(main())


def test_a_stop_is_answered_with_what_happened(tmp_path):
    async def main():
        doors = Doors()
        flying = agent(call("wait"), say("never"), tools=doors.tools())
        async with serving(flying, store=SqliteStore(tmp_path / "store")) as client:
            run_id = await start(client)
            await doors.entered.wait()
            answer = (await client.post(f"/api/runs/{run_id}/stop", json={"reason": "enough"})).json()
            assert answer["state"] == "ended"
            assert answer["message"].startswith("stopped in ")
            ending = (await events(client, run_id))[-1][2]["result"]
            assert (ending["outcome"], ending["cause"]["reason"]) == ("cancelled", "enough (by ada)")
            assert [(one["action"], one["who"]) for one in await controls(client, run_id)] == [("stop", "ada")]
            again = await client.post(f"/api/runs/{run_id}/stop", json={"reason": "enough"})
            assert code(again) == (409, "run_ended")

    asyncio.run(main())


def test_a_landing_delivers_what_there_is(tmp_path):
    async def main():
        doors = Doors()
        flying = agent(call("wait"), say("so far"), tools=doors.tools())
        async with serving(flying, store=SqliteStore(tmp_path / "store")) as client:
            run_id = await start(client)
            await doors.entered.wait()
            asked = asyncio.ensure_future(client.post(f"/api/runs/{run_id}/land", json={"reason": "time"}))
            while not client.hub.flights[run_id].token.winding_down:  # noqa: ASYNC110 - it is the request's doing
                await asyncio.sleep(0)
            doors.open.set()
            assert (await asked).status_code == 200
            ending = (await events(client, run_id))[-1][2]["result"]
            assert (ending["outcome"], ending["text"]) == ("wrapped_up", "so far")
            assert [one["action"] for one in await controls(client, run_id)] == ["land"]

    asyncio.run(main())


def test_steering_reaches_the_model_after_the_turn_with_and_without_a_store(tmp_path):
    async def main(store):
        doors = Doors()
        async with serving(agent(call("wait"), say("ok"), tools=doors.tools()), store=store) as client:
            run_id = await start(client)
            await doors.entered.wait()
            answer = await client.post(f"/api/runs/{run_id}/steer", json={"message": "be brief"})
            assert answer.status_code == 200
            doors.open.set()
            await events(client, run_id)
            texts = [one["text"] for one in (await client.get(f"/api/runs/{run_id}/messages")).json()["messages"]]
            assert texts == ["hi", "", "the door is open", "be brief", "ok"]
            late = await client.post(f"/api/runs/{run_id}/steer", json={"message": "late"})
            assert code(late) == (409, "run_ended")

    asyncio.run(main(None))
    asyncio.run(main(SqliteStore(tmp_path / "store")))


def test_more_runs_than_allowed_are_refused_with_retry_after():
    async def main():
        doors = Doors()
        async with serving(agent(call("wait"), say("ok"), tools=doors.tools()), max_runs=1) as client:
            run_id = await start(client)
            full = await client.post("/api/runs", json={"agent": "helper", "prompt": "hi"})
            assert code(full) == (429, "full")
            assert int(full.headers["retry-after"]) > 0
            doors.open.set()
            await events(client, run_id)
            await start(client)

    asyncio.run(main())


def test_a_refused_reason_leaves_nothing_behind(tmp_path):
    async def main():
        turns = [calls(call("pay", amount=1), call("pay", amount=2)), say("both")]
        async with serving(agent(*turns, tools=[pay]), store=SqliteStore(tmp_path / "store")) as client:
            run_id = await start(client)
            await events(client, run_id)
            before = (await client.get(f"/api/runs/{run_id}")).json()
            call_id = before["pending"][0]["id"]
            for reason in ("x" * 501, "a\0b"):
                for verb, body in [("steer", {"message": "hi"}), ("decide", {"id": call_id, "decision": "approve"})]:
                    answer = await client.post(f"/api/runs/{run_id}/{verb}", json={**body, "reason": reason})
                    assert answer.status_code == 400
            assert (await client.get(f"/api/runs/{run_id}")).json() == before
            assert list(await client.hub.store.notes(before["session_id"], 0)) == []

    asyncio.run(main())


class FarStore(MemoryStore):
    """A store whose inbox is a network away."""

    async def notes(self, session_id, after=0):
        found = await super().notes(session_id, after)
        await asyncio.sleep(0.01)
        return found


def test_of_clients_that_decide_at_once_one_decides_each_call_and_the_run_continues():
    async def main():
        turns = [calls(call("pay", amount=1), call("pay", amount=2)), say("both")]
        async with serving(agent(*turns, tools=[pay]), store=FarStore()) as client:
            run_id = await start(client)
            await events(client, run_id)
            ids = [one["id"] for one in (await client.get(f"/api/runs/{run_id}")).json()["pending"]]
            bodies = [{"id": one, "decision": word} for word in ("approve", "deny") for one in ids]
            answers = await asyncio.gather(*[client.post(f"/api/runs/{run_id}/decide", json=body) for body in bodies])
            assert sorted(answer.status_code for answer in answers) == [200, 200, 409, 409]
            assert (await events(client, run_id))[-1][2]["result"]["text"] == "both"
            assert len(await controls(client, run_id)) == 2

    asyncio.run(main())


def test_the_fleets_kill_switch_stops_what_flies_here_and_elsewhere_until_it_is_taken_back(tmp_path):
    async def main():
        here, there = Doors(), Doors()
        turns = (call("wait"), say("ok"))
        store = tmp_path / "store"
        async with (
            serving(agent(*turns, tools=here.tools()), store=SqliteStore(store)) as client,
            serving(agent(*turns, tools=there.tools()), store=SqliteStore(store)) as other,
        ):
            mine, others = await start(client), await start(other)
            await asyncio.gather(here.entered.wait(), there.entered.wait())
            answer = (await client.post("/api/kill", json={"scope": "fleet", "active": True, "reason": "fire"})).json()
            assert (answer["state"], answer["message"]) == (
                "killed",
                "2 runs are stopped, and none can start until the switch is released",
            )
            for asked, run_id in ((client, mine), (other, others)):
                ended = (await events(asked, run_id))[-1][2]["result"]
                assert (ended["outcome"], "fire (by ada)" in ended["cause"]["reason"]) == ("cancelled", True)
            assert code(await client.post("/api/runs", json={"agent": "helper", "prompt": "x"})) == (409, "killed")
            assert code(await client.post(f"/api/runs/{mine}/resume", json={})) == (409, "killed")
            assert (await client.get("/api/fleet")).json()["kill"]["active"] is True
            answer = (await client.post("/api/kill", json={"scope": "fleet", "active": False})).json()
            assert (answer["state"], answer["message"]) == ("open", "runs can start again")
            here.open.set()
            there.open.set()
            for asked, run_id in ((client, mine), (other, others)):
                assert (await asked.post(f"/api/runs/{run_id}/resume", json={})).status_code == 200
                assert (await events(asked, run_id))[-1][2]["result"]["outcome"] == "done"

    asyncio.run(main())


def test_a_kill_switch_outlives_the_server_and_holds_every_server_on_its_store(tmp_path):
    async def main():
        body = {"scope": "fleet", "active": True, "reason": "fire"}
        async with serving(agent(), store=SqliteStore(tmp_path / "store")) as client:
            await client.post("/api/kill", json=body)
        async with (
            serving(agent(), store=SqliteStore(tmp_path / "store")) as client,
            serving(agent(), store=SqliteStore(tmp_path / "store")) as other,
        ):
            assert code(await other.post("/api/runs", json={"agent": "helper", "prompt": "x"})) == (409, "killed")
            (shown,) = (await client.get("/api/fleet")).json()["kill"]["switches"]
            assert (shown["scope"], shown["reason"], shown["who"]) == ("fleet", "fire (by ada)", "ada")
            assert (await client.post("/api/kill", json={**body, "active": False})).status_code == 200
            assert code(await other.post("/api/kill", json={**body, "active": False})) == (409, "not_thrown")
            assert (await events(other, await start(other)))[-1][1] == "RunEnded"
        lines = [json.loads(line) for line in (tmp_path / "store-events/kill-switch.journal").read_text().splitlines()]
        assert [(line["action"], line["who"]) for line in lines] == [("throw", "ada"), ("release", "ada")]

    asyncio.run(main())


def test_a_redacting_store_keeps_the_switch_and_hides_what_was_said(tmp_path):
    async def main():
        store = RedactingStore(SqliteStore(tmp_path / "store"), lambda text: text.replace("Smith", "[name]"))
        body = {"scope": "fleet", "active": True, "reason": "Smith asked for it"}
        for _ in range(2):  # the second server finds it thrown
            async with serving(agent(), store=store) as client:
                assert (await client.post("/api/kill", json=body)).status_code == 200
                assert (await client.get("/api/fleet")).json()["kill"]["reason"] == "[name] asked for it (by ada)"
                assert code(await client.post("/api/runs", json={"agent": "helper", "prompt": "x"})) == (409, "killed")
        assert "Smith" not in (tmp_path / "store-events/kill-switch.journal").read_text()

    asyncio.run(main())


def test_a_run_that_is_admitted_as_the_switch_is_thrown_does_not_slip_through():
    async def main():
        async with serving(agent()) as client:
            held, looks = client.hub.switches.find_thrown_switch, []

            async def slow(session):  # the answer of a look that was made before the switch was thrown
                found = await held(session)
                looks.append(session)
                if len(looks) == 1:
                    await client.post("/api/kill", json={"scope": "fleet", "active": True, "reason": "fire"})
                return found

            client.hub.switches.find_thrown_switch = slow
            run_id = await start(client)
            assert (await events(client, run_id))[-1][2]["result"]["outcome"] == "cancelled"

    asyncio.run(main())


def test_a_fork_that_cannot_start_its_run_is_not_made(tmp_path):
    async def main():
        async with serving(agent(), store=SqliteStore(tmp_path / "store")) as client:
            run_id = await start(client)
            await events(client, run_id)
            await client.post("/api/kill", json={"scope": "fleet", "active": True})
            answer = await client.post(f"/api/runs/{run_id}/fork", json={"at": 1, "prompt": "go"})
            assert code(answer) == (409, "killed")
            assert len((await client.get("/api/runs")).json()["runs"]) == 1

    asyncio.run(main())


def test_a_fork_has_the_turns_before_it_and_runs_on_its_own(tmp_path):
    async def main():
        async with serving(agent(), store=SqliteStore(tmp_path / "store")) as client:
            run_id = await start(client)
            await events(client, run_id)
            body = {"at": 1, "prompt": "otherwise", "reason": "try"}
            answer = (await client.post(f"/api/runs/{run_id}/fork", json=body)).json()
            await events(client, answer["run_id"])
            texts = [
                one["text"] for one in (await client.get(f"/api/runs/{answer['run_id']}/messages")).json()["messages"]
            ]
            assert texts[:4] == ["hi", "", "found a", "otherwise"]
            assert [one["action"] for one in await controls(client, answer["run_id"])] == ["fork"]
            origin = {"session": (await client.get(f"/api/runs/{run_id}")).json()["session_id"], "turn": 1}
            cards = {one["run_id"]: one for one in (await client.get("/api/runs")).json()["runs"]}
            assert cards[answer["run_id"]]["forked_from"] == origin
            assert cards[run_id]["forked_from"] is None
            assert (await client.get(f"/api/runs/{answer['run_id']}")).json()["forked_from"] == origin
            bare = (await client.post(f"/api/runs/{run_id}/fork", json={"at": 1})).json()
            assert (await client.get(f"/api/runs/{bare['run_id']}")).json()["forked_from"] == origin
            missing = await client.post(f"/api/runs/{run_id}/fork", json={"at": 99})
            assert missing.status_code == 400

    asyncio.run(main())


def test_a_run_is_stopped_and_continues_under_other_limits(tmp_path):
    async def main():
        doors = Doors()
        flying = agent(call("wait"), say("ok"), tools=[*doors.tools(), pay])
        async with serving(flying, store=SqliteStore(tmp_path / "store")) as client:
            run_id = await start(client)
            await doors.entered.wait()
            asked = client.post(f"/api/runs/{run_id}/limits", json={"limits": {"max_iterations": 7}, "reason": "more"})
            answer = await asked
            assert answer.status_code == 200, answer.text
            seen = await events(client, run_id)
            assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
            starts = [data for _, kind, data in seen if kind == "RunStarted"]
            assert [(one["resumed"], one["limits"]["turns"]) for one in starts] == [(False, 20), (True, 7)]
            assert seen[-1][2]["result"]["outcome"] in ("done", "wrapped_up")

    asyncio.run(main())


@pytest.mark.parametrize("stored", [True, False], ids=["store", "no store"])
def test_limits_that_a_run_was_started_with_hold_when_it_continues(tmp_path, stored):
    eager = agent(call("pay", amount=5), times=50, tools=[pay])

    async def main():
        async with serving(eager, store=SqliteStore(tmp_path / "store") if stored else None) as client:
            run_id = await start(client, limits={"max_iterations": 2, "grace_iterations": 0})
            feed = client.hub.feeds[run_id]
            for _ in range(2):
                while not feed.finished:
                    await asyncio.wait({feed.wait_for_news()}, timeout=5)
                (waiting,) = feed.card.result.pending
                body = {"id": waiting.call.id, "decision": "approve"}
                assert (await client.post(f"/api/runs/{run_id}/decide", json=body)).status_code == 200
            while not feed.finished:
                await asyncio.wait({feed.wait_for_news()}, timeout=5)
            assert feed.card.result.cause.reason == "the limit of 2 model turns is reached"

    asyncio.run(main())
