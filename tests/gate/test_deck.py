"""Foreign runs in the deck: listed, live, with tree and gauges; landed, stopped, raised, killed, forked."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from glidepath import Agent, Limits
from glidepath.apps.gate import GateConfig, ServedGate, Upstream
from glidepath.serve import app
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedModel, say
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import KEY, VENDORS, fly_anthropic, fly_chat, in_real_time
from .kept import until

TOKEN = "control-token-0123456789"
VIEW = "view-token-0123456789012"
GATE = "gate-token-of-ann-0123456789"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


class Deck:
    """A server with a gate below /gate/, the upstream behind it, and a client of the deck."""

    def __init__(self, up, gate, hub, client, address):
        self.up, self.gate, self.hub, self.client = up, gate, hub, client
        self.url = f"{address}/gate/run-1"
        self.key = GATE

    async def card(self, state=None):
        cards = (await self.client.get("/api/runs", params={"state": state} if state else {})).json()["runs"]
        return cards[0] if cards else None

    async def detail(self, name="gate:ann:run-1"):
        return (await self.client.get(f"/api/runs/{name}")).json()

    async def act(self, verb, name="gate:ann:run-1", **body):
        return await self.client.post(f"/api/runs/{name}/{verb}", json=body)


@asynccontextmanager
async def deck_behind(behavior, store=None, *, limits=None, scripted=None, agents=(), idle=30.0):
    async with ScriptedUpstream(behavior, **(scripted or {})) as up:
        upstreams = tuple(Upstream(name, name, up.url, "swap", "env:UPSTREAM_KEY") for name in VENDORS)
        config = GateConfig(upstreams=upstreams, limits=limits or Limits(max_tokens=12_000), drain=0.2)
        gate = ServedGate(config, environ={"UPSTREAM_KEY": KEY}, tokens={GATE: "run:ann"}, store=store)
        gate.witness._idle = idle
        tokens = {TOKEN: "control:ada", VIEW: "view"}
        application = app(agents=list(agents), store=store, token=tokens, gate=gate)
        server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="error", lifespan="on"))
        serving = asyncio.ensure_future(server.serve())
        await until(lambda: server.started)
        address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        async with httpx.AsyncClient(base_url=address, headers=HEADERS) as client:
            yield Deck(up, gate, application.state.hub, client, address)
        server.should_exit = True
        await serving


STORES = pytest.mark.parametrize("has_store", [True, False], ids=["store", "no store"])


def store_in(folder, has_store=True):
    return SqliteStore(folder / "store") if has_store else None


@STORES
@in_real_time
async def test_a_foreign_run_is_listed_live_with_its_gauges_and_its_end(tmp_path, has_store):
    async with deck_behind("loop", store_in(tmp_path, has_store)) as deck:
        await fly_anthropic(deck.url, deck.key, most=3, task="Tidy up.")
        card = await deck.card("running")
        assert (card["session_id"], card["foreign"], card["task"]) == ("gate:ann:run-1", True, "Tidy up.")
        assert (card["agent"], card["who"], card["resumable"]) == ("asyncanthropic", "ann", False)
        assert card["turn"] == 3
        gauges = {gauge["kind"]: gauge for gauge in card["gauges"]}
        assert gauges["tokens"]["limit"] == 12_000
        assert gauges["tokens"]["used"] == deck.up.usage.input + deck.up.usage.output
        assert gauges["tokens"]["reserve"] + gauges["tokens"]["reserved"] > 0
        assert gauges["cost"]["used"] > 0
        assert card["last"].startswith("lookup(")
        detail = await deck.detail()
        assert detail["usage"]["total"] == deck.up.usage.input + deck.up.usage.output
        pages = (await deck.client.get("/api/runs/gate:ann:run-1/messages")).json()
        assert [one["role"] for one in pages["messages"]][:3] == ["user", "assistant", "tool"]
        events = (await deck.client.get(f"/api/runs/{card['run_id']}/events?limit=500")).json()["events"]
        kinds = [event["event"] for event in events]
        assert kinds[0] == "RunStarted"
        assert kinds.count("BudgetReserved") == kinds.count("BudgetSettled") == 3
        assert kinds.count("ToolStarted") == 3
        assert kinds.count("ToolEnded") == 2
        flight = await fly_anthropic(deck.url, deck.key)
        assert "SCRIPTED-ANSWER" in flight.text
        deck.gate.witness._idle = 0.01
        await until(lambda: not deck.gate.witness.open_runs)
        await asyncio.sleep(0.05)
        ended = await deck.detail()
        assert (ended["state"], ended["outcome"]) == ("ended", "wrapped_up")
        assert ended["cause"]["reason"] == "the limit of 12,000 tokens is reached"
        assert ended["text"] == flight.text


@in_real_time
async def test_the_tree_of_sub_agents_is_shown_with_their_gauges(tmp_path):
    async with deck_behind("loop", store_in(tmp_path), limits=Limits(max_tokens=90_000)) as deck:
        main = {"x-claude-code-session-id": "s-1"}
        await fly_anthropic(deck.url, deck.key, headers=main, most=2)
        for name in ("a-1", "a-2"):
            await fly_anthropic(deck.url, deck.key, headers={**main, "x-claude-code-agent-id": name}, most=2)
        detail = await deck.detail()
        assert detail["agent"] == "claude-code"
        assert sorted(child["agent"] for child in detail["children"]) == ["claude-code/a-1", "claude-code/a-2"]
        assert all(child["parent"] == "gate:ann:run-1" and child["foreign"] for child in detail["children"])
        roots = (await deck.client.get("/api/budgets")).json()["roots"]
        (node,) = roots[-1]["children"]
        assert len(node["children"]) == 2
        tokens = next(gauge for gauge in node["gauges"] if gauge["kind"] == "tokens")
        assert tokens["used"] == deck.up.usage.input + deck.up.usage.output
        below = [next(one["used"] for one in child["gauges"] if one["kind"] == "tokens") for child in node["children"]]
        assert 0 < sum(below) < tokens["used"]


@in_real_time
async def test_a_reply_is_seen_while_it_is_written(tmp_path):
    async with deck_behind("endless:tokens=3000", store_in(tmp_path), limits=Limits(max_tokens=90_000)) as deck:
        deck.up._rate = 1_000.0
        flying = asyncio.ensure_future(fly_anthropic(deck.url, deck.key))
        await until(lambda: deck.gate.witness.open_runs)
        run_id = deck.gate.witness.open_runs[0].run_id
        chunks = []
        stream = {"accept": "text/event-stream"}
        async with deck.client.stream("GET", f"/api/runs/{run_id}/events", headers=stream, timeout=20) as answer:
            async for line in answer.aiter_lines():
                if line == "event: StreamChunk":
                    chunks.append(line)
                if len(chunks) == 3:
                    break
        assert not flying.done()
        await flying


@STORES
@in_real_time
async def test_a_person_lands_it_and_its_next_call_is_the_last(tmp_path, has_store):
    async with deck_behind("loop", store_in(tmp_path, has_store)) as deck:
        await fly_anthropic(deck.url, deck.key, most=2)
        answer = (await deck.act("land", reason="the limit of 5 tokens is reached")).json()
        assert answer["message"] == "asked to land: its next call is its last"
        before = deck.up.usage.calls
        flight = await fly_anthropic(deck.url, deck.key)
        assert "SCRIPTED-ANSWER" in flight.text
        assert deck.up.usage.calls == before + 1
        deck.gate.witness._idle = 0.01
        await until(lambda: not deck.gate.witness.open_runs)
        await asyncio.sleep(0.05)
        detail = await deck.detail()
        assert (detail["outcome"], detail["cause"]) == (
            "wrapped_up",
            {"source": "person", "reason": "the limit of 5 tokens is reached (by ada)"},
        )
        if has_store:
            assert [(one["action"], one["reason"], one["who"]) for one in detail["controls"]] == [
                ("land", "the limit of 5 tokens is reached", "ada")
            ]


@STORES
@in_real_time
async def test_a_person_stops_it_in_the_middle_of_a_reply(tmp_path, has_store):
    async with deck_behind("endless", store_in(tmp_path, has_store), limits=Limits(max_tokens=900_000)) as deck:
        deck.up._rate = 500.0
        flying = asyncio.ensure_future(fly_chat(deck.url, deck.key, model="gpt-4.1"))
        await until(lambda: deck.gate.witness.open_runs and deck.gate.witness.open_runs[0].passages)
        await asyncio.sleep(0.3)
        answer = (await deck.act("stop", reason="wrong file")).json()
        assert answer["message"].startswith("stopped in ")
        assert answer["state"] == "ended"
        flight = await flying
        assert "[glidepath] The reply was cut here: wrong file (by ada)" in flight.text
        detail = await deck.detail()
        assert (detail["state"], detail["outcome"]) == ("ended", "cancelled")
        with pytest.raises(Exception, match="wrong file"):
            await fly_chat(deck.url, deck.key)
        body = {"scope": "run", "id": "gate:ann:run-1", "active": False}
        assert (await deck.client.post("/api/kill", json=body)).status_code == 200
        deck.up.behavior = "answer"
        again = await fly_chat(deck.url, deck.key)
        assert "[glidepath]" not in again.text or "stopped" not in again.text


@in_real_time
async def test_limits_are_raised_while_it_runs_and_never_lowered(tmp_path):
    async with deck_behind("loop", store_in(tmp_path), limits=Limits(max_iterations=3)) as deck:
        first = await fly_anthropic(deck.url, deck.key)
        assert first.calls == 3
        lower = await deck.act("limits", limits={"max_iterations": 2})
        assert (lower.status_code, lower.json()["error"]["code"]) == (400, "bad_limit")
        unknown = await deck.act("limits", limits={"max_tokens": 5})
        assert "no such limit; it has calls" in unknown.json()["error"]["message"]
        raised = await deck.act("limits", limits={"max_iterations": 6}, reason="go on")
        assert raised.status_code == 200, raised.text
        second = await fly_anthropic(deck.url, deck.key)
        assert second.calls == 3
        assert deck.up.usage.calls == 6
        detail = await deck.detail()
        assert detail["limits"]["turns"] == 6
        headers = {"authorization": f"Bearer {VIEW}"}
        denied = await deck.client.post(
            "/api/runs/gate:ann:run-1/limits", json={"limits": {"max_iterations": 9}}, headers=headers
        )
        assert denied.status_code == 403


@in_real_time
async def test_a_deck_in_another_process_raises_limits_through_the_store(tmp_path):
    async with deck_behind("loop", store_in(tmp_path), limits=Limits(max_iterations=3)) as deck:
        first = await fly_anthropic(deck.url, deck.key)
        assert first.calls == 3
        other = app(agents=[], store=store_in(tmp_path), token={TOKEN: "control:ada"})
        door = httpx.ASGITransport(other)
        async with httpx.AsyncClient(transport=door, base_url="http://127.0.0.1", headers=HEADERS) as client:

            async def act(limits):
                return await client.post("/api/runs/gate:ann:run-1/limits", json={"limits": limits, "reason": "go on"})

            for wrong, words in (
                ({"max_iterations": 2}, "2 is less than 3"),
                ({"max_iterations": None}, "None is less than 3"),
                ({"max_tokens": 5_000}, "no such limit; it has max_iterations"),
                ({"max_iterations": "many"}, "max_iterations"),
            ):
                refused = await act(wrong)
                assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_limit")
                assert words in refused.json()["error"]["message"]
            raised = await act({"max_iterations": 6})
            assert "notices within a second" in raised.json()["message"], raised.text
            await until(lambda: deck.gate.witness.open_runs[0].session.limits.calls == 6)
            second = await fly_anthropic(deck.url, deck.key)
            assert (second.calls, deck.up.usage.calls) == (3, 6)
            detail = (await client.get("/api/runs/gate:ann:run-1")).json()
            assert detail["limits"]["turns"] == 6
            assert ("limits", "ada") in [(one["action"], one["who"]) for one in detail["controls"]]


@STORES
@in_real_time
async def test_the_kill_switch_stops_foreign_runs_and_holds_new_ones_back(tmp_path, has_store):
    async with deck_behind("loop", store_in(tmp_path, has_store)) as deck:
        await fly_anthropic(deck.url, deck.key, most=2)
        body = {"scope": "fleet", "active": True, "reason": "fire"}
        assert (await deck.client.post("/api/kill", json=body)).status_code == 200
        before = deck.up.usage.calls
        other = deck.url.replace("run-1", "run-2")
        for url in (deck.url, other):
            with pytest.raises(Exception, match="fire"):
                await fly_anthropic(url, deck.key)
        assert deck.up.usage.calls == before
        body = {"scope": "fleet", "active": False, "reason": "out"}
        assert (await deck.client.post("/api/kill", json=body)).status_code == 200
        for url in (deck.url, other):
            assert (await fly_anthropic(url, deck.key, most=1)).calls == 1


@in_real_time
async def test_a_foreign_run_is_forked_and_never_resumed_or_steered(tmp_path):
    helper = Agent(model=ScriptedModel([say("I am yours.")] * 3, name="m"), agent_name="helper")
    async with deck_behind("loop", store_in(tmp_path), agents=[helper]) as deck:
        await fly_anthropic(deck.url, deck.key, most=3)
        for verb, body in (("resume", {}), ("steer", {"message": "Go on."})):
            refused = await deck.act(verb, **body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "foreign_run")
        forked = (await deck.act("fork", at=1)).json()
        assert forked["message"] == "forked after turn 1"
        copy = await deck.detail(forked["session_id"])
        assert copy["foreign"] is False
        assert copy["forked_from"] == {"session": "gate:ann:run-1", "turn": 1}


@in_real_time
async def test_the_gate_below_its_mount_has_its_own_locks_and_the_deck_keeps_its_own(tmp_path):
    async with deck_behind("answer", store_in(tmp_path)) as deck, httpx.AsyncClient() as client:
        body = {
            "model": "claude-opus-5-5",
            "max_tokens": 10,
            "messages": [{"role": "user", "content": "x" * 2_000_000}],
        }
        refused = await client.post(f"{deck.url}/v1/messages", json=body)
        assert refused.status_code == 401
        deck_key = await client.post(f"{deck.url}/v1/messages", json=body, headers={"x-api-key": VIEW})
        assert deck_key.status_code == 401
        bare = await client.get(f"{deck.url.partition('/gate')[0]}/api/runs", headers={"x-api-key": GATE})
        assert bare.status_code == 401
        lost = await client.get(f"{deck.url}/v1/files", headers={"x-api-key": GATE})
        assert lost.status_code == 404


@in_real_time
async def test_metrics_count_foreign_calls_like_our_own(tmp_path):
    async with deck_behind("loop", store_in(tmp_path)) as deck:
        await fly_anthropic(deck.url, deck.key, most=3)
        page = (await deck.client.get("/metrics")).text
        assert "glidepath_serve_foreign_runs_in_flight 1" in page
        assert 'gen_ai_request_model="claude-opus-5-5"' in page
        assert 'gen_ai_provider_name="anthropic"' in page
        used = deck.up.usage
        line = (
            f'glidepath_budget_used{{dimension="tokens",gen_ai_agent_name="asyncanthropic"}} {used.input + used.output}'
        )
        assert line in page


def test_a_server_without_a_gate_knows_nothing_of_it():
    application = app(agents=[], token=TOKEN)
    assert application.state.hub.foreign is None
