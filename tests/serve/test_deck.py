"""The demo fleet, the page, exports, and what the command line makes of it."""

import asyncio
import base64
import hashlib
import io
import json
import re
import stat
import sys

import pytest

from glidepath.apps.cli import CliContext
from glidepath.apps.cli.deck_server import _choose_store, load_agents
from glidepath.apps.server import demo, static_files
from glidepath.apps.server.deck_export import export_page, export_run
from glidepath.cli import main as command
from glidepath.errors import ConfigurationError, StoreError
from glidepath.serve import app
from glidepath.serve.locks import OPERATOR
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import call, calls, say

from .deck import Doors, agent, code, controls, events, serving, start

HOSTILE = "</script><script>alert(1)</script><!-- \u2028\u2029\x85 end"


def test_the_demo_shows_a_landing_a_loop_an_approval_a_team_and_a_tree(monkeypatch):
    monkeypatch.setattr(demo, "PACE", 0.0)
    monkeypatch.setattr(demo, "THINK", 0.0)
    monkeypatch.setattr(demo, "_make_embedded_agent", lambda: None)

    async def main():
        store = MemoryStore()
        application = app(demo.demo_agents(), store=store, token="a-token-of-the-demo-fleet")
        hub, reader = application.state.hub, application.state.server.reader
        await demo.DemoFleet(hub, again=0, rounds=1).run_fleet()
        async with asyncio.timeout(60):
            while hub.flights:  # noqa: ASYNC110 - until all have landed
                await asyncio.sleep(0.05)
        found = {card.agent: card for card in (await reader.list.page(OPERATOR)).cards}
        assert set(found) == set(demo.TASKS)
        assert (found["researcher"].outcome, found["researcher"].phase) == ("wrapped_up", "ground")
        assert found["looper"].guard["guard"] == "repetition"
        assert found["looper"].cause.source == "repetition"
        (waiting,) = await reader.approvals(OPERATOR)
        assert (waiting.agent, waiting.tool, waiting.arguments["amount"]) == ("billing", "pay", "1240.00")
        assert {one.agent for one in (await reader.detail(found["press-office"].run_id, OPERATOR)).children} == {
            "reporter",
            "editor",
        }
        tree = (await reader.detail(found["expedition"].run_id, OPERATOR)).budget
        assert [[len(two.children) for two in one.children] for one in [tree]] == [[1, 1, 1]]
        await hub.close()

    asyncio.run(main())


def test_a_missing_page_says_what_to_run_and_a_built_one_is_served(tmp_path, monkeypatch):
    monkeypatch.setattr(static_files, "STATIC", tmp_path)

    async def main():
        async with serving() as client:
            client.headers.pop("authorization")
            missing = await client.get("/")
            assert (missing.status_code, "make deck-build" in missing.text) == (503, True)
            assert "install again unless" in missing.text  # pip copies what was built by then
            (tmp_path / "assets").mkdir()
            (tmp_path / "index.html").write_text("<!doctype html>")
            (tmp_path / "assets" / "deck-CGoAHQq-.js").write_text("1")
            page, script = await client.get("/"), await client.get("/assets/deck-CGoAHQq-.js")
            assert page.headers["content-type"].startswith("text/html")
            assert page.headers["cache-control"] == "no-cache"
            assert script.headers["content-type"].startswith("text/javascript")
            assert "immutable" in script.headers["cache-control"]

    asyncio.run(main())


def test_an_export_is_one_file_whose_policy_allows_its_own_code_only(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "deck-12345678.js").write_text("console.log('deck')")
    (tmp_path / "assets" / "deck-12345678.css").write_text("body { color: black }")
    (tmp_path / "index.html").write_text(
        '<!doctype html><html><head><meta charset="utf-8" /><link rel="icon" href="./favicon.svg" />'
        '<script type="module" crossorigin src="./assets/deck-12345678.js"></script>'
        '<link rel="stylesheet" crossorigin href="./assets/deck-12345678.css"></head>'
        '<body><div id="deck"></div></body></html>'
    )

    async def main():
        store = MemoryStore()
        async with serving(agent(call("search", query=HOSTILE), say(HOSTILE)), store=store) as client:
            run_id = await start(client, HOSTILE)
            await events(client, run_id)
            return await export_run(client.server.reader, run_id)

    page = export_page(asyncio.run(main()), tmp_path)
    data = json.loads(re.search(r'id="glidepath-export">(.*?)</script>', page, re.DOTALL).group(1))
    assert data["run"]["text"] == HOSTILE
    assert [one["sequence"] for one in data["events"]] == list(range(1, len(data["events"]) + 1))
    assert [one["role"] for one in data["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert set(data["turns"]) == {"0", "1", "2"}
    assert page.count("<script") == 2
    assert "http" not in page.replace("http-equiv", "").replace("https", "http").split("glidepath-export")[0]
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page).group(1)
    for text in ("console.log('deck')", "body { color: black }"):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "src=" not in page
    assert "href=" not in page
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_deck_export_writes_a_file_and_says_what_is_missing(tmp_path, monkeypatch):
    store = SqliteStore(tmp_path / "store")
    asyncio.run(agent(say("done"), store=store).run("hi", session="mine"))
    world = CliContext(stderr=io.StringIO(), stdout=io.StringIO(), folder=tmp_path)
    (tmp_path / "index.html").write_text('<head></head><body><script src="./a.js"></script></body>')
    (tmp_path / "a.js").write_text("1")
    monkeypatch.setattr("glidepath.apps.server.deck_export.STATIC", tmp_path)
    monkeypatch.setattr(export_page, "__defaults__", (tmp_path,))
    assert command(["deck", "export", "mine", "out.html", "--store", "sqlite:store"], world) == 0
    assert '"run_id"' in (tmp_path / "out.html").read_text()
    assert stat.S_IMODE((tmp_path / "out.html").stat().st_mode) == 0o600, "a whole transcript is its owner's"
    named = CliContext(
        stderr=io.StringIO(), stdout=io.StringIO(), folder=tmp_path, environ={"GLIDEPATH_STORE": "sqlite:store"}
    )
    assert command(["deck", "export", "mi", "start.html"], named) == 0
    assert command(["deck", "export", "mine", "no/such/out.html"], named) == 2
    assert "no/such/out.html cannot be written: No such file" in named.stderr.getvalue()
    assert command(["deck", "export", "nobody", "out.html", "--store", "sqlite:store"], world) == 2
    assert "glidepath runs list" in world.stderr.getvalue()
    assert command(["deck", "export", "mine"], world) == 2
    monkeypatch.setattr(export_page, "__defaults__", (tmp_path / "none",))
    assert command(["deck", "export", "mine", "out.html", "--store", "sqlite:store"], world) == 2
    assert "make deck" in world.stderr.getvalue()


def test_agents_are_found_by_module_and_named_by_the_flag_or_by_themselves(tmp_path, monkeypatch):
    (tmp_path / "served_agents.py").write_text(
        "from glidepath import Agent, Limits\nfrom glidepath.testing import ScriptedModel\n"
        "one = Agent(model=ScriptedModel(), limits=Limits(max_iterations=1), agent_name='first')\n"
        "two = Agent(model=ScriptedModel(), limits=Limits(max_iterations=1))\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    world = CliContext(folder=tmp_path)
    named = load_agents(["served_agents:one", "served_agents:two", "x=served_agents:one"], world)
    assert list(named) == ["first", "two", "x"]
    for wrong in (
        ["served_agents:one", "served_agents:one"],
        ["served_agents:Limits"],
        ["served_agents:none"],
        ["nothing"],
    ):
        with pytest.raises(ConfigurationError):
            load_agents(wrong, world)


# --- more of the controls -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_a_run_with_two_calls_continues_when_both_are_decided(tmp_path, stored):
    async def main():
        store = SqliteStore(tmp_path / "s") if stored else None
        two = calls(call("pay", amount=1), call("pay", amount=2))
        async with serving(agent(two, say("ok")), store=store) as client:
            run_id = await start(client)
            await events(client, run_id)
            first, second = [one["id"] for one in (await client.get("/api/approvals")).json()["approvals"]]
            path = f"/api/runs/{run_id}/decide"
            answer = (await client.post(path, json={"id": first, "decision": "approve", "reason": "fine"})).json()
            assert (answer["state"], answer["message"]) == ("paused", "noted: 1 more to decide")
            again = await client.post(path, json={"id": first, "decision": "deny"})
            assert code(again) == (409, "decided")
            assert code(await client.post(path, json={"id": "none", "decision": "deny"})) == (404, "unknown_call")
            assert code(await client.post(path, json={"id": second, "decision": "edit"})) == (400, "no_arguments")
            body = {"id": second, "decision": "deny", "message": "too much", "reason": "budget"}
            assert (await client.post(path, json=body)).status_code == 200
            assert (await events(client, run_id))[-1][2]["result"]["outcome"] == "done"
            shown = (await client.get(f"/api/runs/{run_id}/messages")).json()["messages"]
            results = [one["text"] for one in shown if one["role"] == "tool"]
            assert results[0] == "paid 1"
            assert "too much" in results[1]
            if stored:
                assert [one["decision"] for one in await controls(client, run_id)] == ["approve", "deny"]

    asyncio.run(main())


def test_a_card_says_how_many_steps_a_stuck_loop_has():
    async def main():
        turns = [call("search", query="a"), call("search", query="b")]
        async with serving(agent(*turns)) as client:
            run_id = await start(client)
            await events(client, run_id)
            card = (await client.get(f"/api/runs/{run_id}")).json()
            assert (card["guard"]["guard"], card["guard"]["period"]) == ("repetition", 2)
            assert card["guards"][0]["period"] == 2

    asyncio.run(main())


def test_the_kill_switch_stops_everything_and_holds_new_runs_back():
    async def main():
        doors = Doors()
        async with serving(agent(call("wait"), tools=doors.tools()), store=MemoryStore()) as client:
            run_ids = [await start(client) for _ in range(3)]
            await doors.entered.wait()
            body = {"scope": "fleet", "active": True, "reason": "bad release"}
            answer = (await client.post("/api/kill", json=body)).json()
            assert answer["message"].startswith("3 runs are stopped")
            for run_id in run_ids:
                assert (await events(client, run_id))[-1][2]["result"]["outcome"] == "cancelled"
                assert [one["action"] for one in await controls(client, run_id)] == ["kill"]
            assert (await client.get("/api/fleet")).json()["kill"]["active"] is True
            refused = await client.post("/api/runs", json={"agent": "helper", "prompt": "x"})
            assert code(refused) == (409, "killed")
            await client.post("/api/kill", json={"scope": "fleet", "active": False})
            doors.open.set()
            assert (await client.post(f"/api/runs/{run_ids[0]}/resume", json={})).status_code == 200

    asyncio.run(main())


def test_an_unknown_effect_is_settled_by_hand_and_the_model_is_told():
    async def main():
        from glidepath.run import CancelToken

        store, doors, token = MemoryStore(), Doors(), CancelToken()
        flying = agent(call("wait"), say("ok"), tools=doors.tools(), store=store)
        flight = asyncio.ensure_future(flying.run("hello", session="far", cancel=token))
        await doors.entered.wait()
        entry = store._shelves["far"]
        copied = list(entry.commits)
        token.cancel("end")
        await flight
        entry.commits[:] = copied  # as if its process had died in the middle of the call
        kept = copied[-1]
        entry.entry = type(entry.entry)(
            session_id="far",
            head=kept.number,
            hash=kept.hash,
            token=9,
            summary={**entry.entry.summary, "outcome": None},
        )
        async with serving(agent(say("understood"), tools=doors.tools()), store=store) as client:
            detail = (await client.get("/api/runs/far")).json()
            assert detail["state"] == "lost"
            (effect,) = detail["unknown_effects"]
            assert effect["tool"] == "wait"
            body = {"call_id": effect["call_id"], "outcome": "done", "result": "it ran", "reason": "checked"}
            assert (await client.post("/api/runs/far/settle", json=body)).status_code == 200
            after = (await client.get("/api/runs/far")).json()
            assert after["unknown_effects"] == []
            assert after["controls"][-1]["action"] == "settle"
            assert (await client.post("/api/runs/far/resume", json={"reason": "go"})).status_code == 200
            assert (await events(client, "far"))[-1][2]["result"]["outcome"] == "done"
            texts = [one["text"] for one in (await client.get("/api/runs/far/messages")).json()["messages"]]
            assert any("it took effect" in text for text in texts)

    asyncio.run(main())


def test_a_server_that_comes_back_knows_the_runs_of_the_one_before(tmp_path):
    async def main():
        store = tmp_path / "store"
        async with serving(agent(), store=SqliteStore(store)) as client:
            run_id = await start(client)
            before = await events(client, run_id)
            card = (await client.get(f"/api/runs/{run_id}")).json()
        async with serving(agent(), store=SqliteStore(store)) as client:
            assert await events(client, run_id) == before
            assert (await client.get(f"/api/runs/{run_id}")).json() == card
            assert [one["run_id"] for one in (await client.get("/api/runs?q=HI&agent=helper")).json()["runs"]] == [
                run_id
            ]
            assert (await client.get("/api/runs?state=lost")).json()["runs"] == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "variable", "own", "kind"),
    [
        (None, "", False, "SqliteStore"),
        (None, "", True, "MemoryStore"),
        ("none", "sqlite:there", False, "NoneType"),
        (None, "sqlite:there", True, "SqliteStore"),
        ("sqlite:here", "sqlite:there", True, "SqliteStore"),
    ],
    ids=["its own", "the agent's", "none", "the variable's", "the flag's"],
)
def test_a_server_keeps_runs_in_a_store_of_its_own_unless_told_otherwise(tmp_path, said, variable, own, kind):
    world = CliContext(environ={"HOME": str(tmp_path), "GLIDEPATH_STORE": variable}, folder=tmp_path)
    agents = {"helper": agent(store=MemoryStore()) if own else agent()}
    assert type(_choose_store(agents, said, world)).__name__ == kind


@pytest.mark.parametrize(
    ("agents", "said", "told"),
    [
        ({"helper": agent()}, "sqlite:other.txt", "other.txt is not an SQLite database"),
        ({"helper": agent()}, "sqlite:other.txt/runs", "other.txt/runs"),
        ({}, "sqlite:typo", "there is no session store at .*typo"),
    ],
    ids=["another file", "below a file", "a deck over nothing"],
)
def test_a_store_that_cannot_be_used_is_reported_before_anything_is_served(tmp_path, agents, said, told):
    (tmp_path / "other.txt").write_text("not a database at all")
    world = CliContext(environ={"HOME": str(tmp_path)}, folder=tmp_path)
    with pytest.raises((ConfigurationError, StoreError), match=told):
        _choose_store(agents, said, world)
