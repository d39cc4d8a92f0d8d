"""Every door has the same lock: roles route by route, keys, whose runs are whose, what a key may spend, origins."""

import asyncio
import json
import stat
import time
from contextlib import AsyncExitStack, contextmanager

import pytest

from glidepath import Limits, Usage
from glidepath.apps.server.locks.kept_keys import FileKeys
from glidepath.apps.server.locks.start_counts import MemoryStarts
from glidepath.apps.server.route_rights import DOORS
from glidepath.errors import ConfigurationError, StoreError
from glidepath.serve.locks import (
    RIGHTS,
    ROLES,
    MemoryKeys,
    check_bind,
    check_origins,
    check_tokens,
    is_allowed,
    keys_for,
    make_key,
)
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import ScriptedModel, call, calls, say

from .deck import TOKEN, Doors, agent, code, controls, events, messages, pay, serving, start

TOKENS = {
    TOKEN: "control:ada",
    **{f"{role}-token-0123456789": f"{role}:{role}er" for role in ("view", "run", "approve")},
}
RUN = "/api/runs/{id:path}"
ALLOWED = {
    # what it takes a route, said once more by hand: v(iew), r(un), a(pprove), c(ontrol), or nobody is asked
    ("GET", "/api/info"): "vrac",
    ("GET", "/api/runs"): "vrac",
    ("POST", "/api/runs"): "rc",
    ("GET", RUN): "vrac",
    ("GET", f"{RUN}/messages"): "vrac",
    ("GET", f"{RUN}/journal"): "vrac",
    ("GET", f"{RUN}/at"): "vrac",
    ("GET", f"{RUN}/timeline"): "vrac",
    ("GET", f"{RUN}/burn"): "vrac",
    ("GET", f"{RUN}/request"): "vrac",
    ("GET", f"{RUN}/events"): "vrac",
    ("GET", "/api/evals"): "vrac",
    ("GET", "/api/evals/{id:path}"): "vrac",
    ("POST", "/api/batch/land"): "rc",
    ("POST", "/api/batch/stop"): "rc",
    ("POST", "/api/batch/resume"): "c",
    ("GET", "/api/feed"): "vrac",
    ("GET", "/api/approvals"): "vrac",
    ("POST", f"{RUN}/land"): "rc",
    ("POST", f"{RUN}/stop"): "rc",
    ("POST", f"{RUN}/decide"): "ac",
    ("POST", f"{RUN}/steer"): "c",
    ("POST", f"{RUN}/resume"): "c",
    ("POST", f"{RUN}/fork"): "c",
    ("POST", f"{RUN}/limits"): "c",
    ("POST", f"{RUN}/settle"): "c",
    ("GET", "/api/budgets"): "vac",
    ("GET", "/api/fleet"): "vac",
    ("GET", "/api/webhooks"): "vac",
    ("GET", "/metrics"): "vac",
    ("POST", "/api/kill"): "c",
    ("GET", "/openapi.json"): "vrac",
    ("GET", "/v1/models"): "vrac",
    ("GET", "/v1/models/{id:path}"): "vrac",
    ("POST", "/v1/conversations"): "rc",
    ("POST", "/v1/responses"): "rc",
    ("GET", "/v1/responses/{id}"): "vrac",
    ("POST", "/v1/responses/{id}/cancel"): "rc",
    ("POST", "/v1/chat/completions"): "rc",
    ("POST", "/agui"): "rac",
    ("POST", "/agui/{agent}"): "rac",
    ("GET", "/mcp"): "rc",
    ("POST", "/mcp"): "rc",
    ("DELETE", "/mcp"): "rc",
    ("GET", "/healthz"): "",
    ("GET", "/readyz"): "",
    ("POST", "/api/unlock"): "",
    ("GET", "/"): "",
    ("GET", "/{path:path}"): "",
}
LONG = ("/api/feed", "/mcp")  # streams that do not end by themselves


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def as_role(role):
    return bearer(TOKEN if role == "control" else f"{role}-token-0123456789")


def test_the_table_has_every_route_that_is_served():
    async def main():
        async with serving(agent()) as client:
            served = {
                (method, route.path)
                for route in client.server.routes()
                for method in route.methods - {"HEAD"}
                if route.path not in ("/api/{path:path}", "/v1/{path:path}")
            }
            assert served == set(DOORS) == set(ALLOWED)

    asyncio.run(main())


@pytest.mark.parametrize("role", ROLES)
def test_each_role_enters_the_routes_of_its_row_and_no_other(role):
    async def main():
        async with serving(agent(), token=TOKENS) as client:
            for (method, path), roles in ALLOWED.items():
                allowed = not roles or role[0] in roles
                if allowed and path in LONG:
                    continue
                shown = path.replace("{id:path}", "none").replace("{id}", "none").replace("{agent}", "helper")
                sent = {"json": {}} if method == "POST" else {}
                answer = await client.request(method, shown.replace("{path:path}", "x"), headers=as_role(role), **sent)
                refused = answer.status_code == 403
                assert refused is not allowed, (method, path, answer.status_code, answer.text)

    asyncio.run(main())


@pytest.mark.parametrize(("method", "path"), [one for one, roles in ALLOWED.items() if roles])
def test_without_a_secret_no_route_answers(method, path):
    async def main():
        async with serving(agent()) as client:
            client.headers.pop("authorization")
            sent = {"json": {}} if method == "POST" else {}
            answer = await client.request(method, path, **sent)
            assert code(answer) == (401, "unauthorized")

    asyncio.run(main())


def test_a_route_without_a_row_cannot_be_served():
    from starlette.routing import Route

    from glidepath.apps.server.route_rights import lock_routes

    with pytest.raises(KeyError):
        lock_routes([Route("/api/new", lambda _: None, methods=["POST"])])


def test_unknown_roles_and_rights_have_nothing():
    assert not is_allowed("admin", "look")
    assert not is_allowed("control", "fly")
    assert not any(is_allowed("control", right, tenant="acme") for right, one in RIGHTS.items() if one.whole)
    with pytest.raises(ConfigurationError, match="one of view, run, approve, control"):
        check_tokens({"x" * 16: "admin"})


def test_a_caller_who_only_runs_cannot_approve_what_its_own_run_waits_for():
    async def main():
        asks = agent(call("pay", amount=900).with_id("c1"), say("done"))
        async with serving(asks, token=TOKENS) as client:
            client.headers.update(as_role("run"))
            run_id = await start(client)
            await events(client, run_id)
            decision = {"id": "c1", "decision": "approve"}
            assert code(await client.post(f"/api/runs/{run_id}/decide", json=decision)) == (403, "not_allowed")
            thread = (await client.get(f"/api/runs/{run_id}")).json()["session_id"]
            resume = [{"interruptId": "c1", "status": "resolved", "payload": {"approved": True}}]
            front = {"threadId": thread, "runId": "r", "messages": [], "tools": [], "context": [], "state": {}}
            answer = await client.post("/agui", json={**front, "forwardedProps": {}, "resume": resume})
            assert code(answer) == (403, "not_allowed")
            client.headers.update(as_role("approve"))
            answer = await client.post("/agui", json={**front, "forwardedProps": {}})
            assert code(answer) == (403, "not_allowed")  # and an approver starts nothing
            assert (await client.post(f"/api/runs/{run_id}/decide", json=decision)).status_code == 200
            said = await events(client, run_id)
            assert said[-1][1] == "RunEnded"

    asyncio.run(main())


@pytest.mark.parametrize("wish", [None, "stop", "land"])
def test_an_approver_who_leaves_does_not_end_the_run_that_it_let_go_on(wish):
    doors = Doors()

    async def main():
        asks = agent(call("pay", amount=900).with_id("c1"), call("wait"), say("done"), tools=[pay, *doors.tools()])
        async with serving(asks, token=TOKENS, disconnect_grace=30.0) as client:
            client.headers.update(as_role("run"))
            run_id = await start(client)
            await events(client, run_id)
            thread = (await client.get(f"/api/runs/{run_id}")).json()["session_id"]
            resume = [{"interruptId": "c1", "status": "cancelled"}]
            props = {} if wish is None else {"glidepath": {"on_disconnect": wish}}
            front = {"threadId": thread, "runId": "r", "messages": [], "resume": resume, "forwardedProps": props}
            if wish is not None:
                answer = await client.post("/agui", json=front, headers=as_role("approve"))
                assert code(answer) == (403, "not_allowed")
                assert not client.hub.flights
                return
            told = [{"type": "http.request", "body": json.dumps(front).encode()}, {"type": "http.disconnect"}]
            headers = {**as_role("approve"), "host": "localhost", "content-type": "application/json"}
            scope = {"type": "http", "method": "POST", "path": "/agui", "query_string": b""}
            scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]

            async def receive():
                if len(told) == 1:
                    await doors.entered.wait()
                return told.pop(0)

            async def send(_):
                return None

            await asyncio.wait_for(client._transport.app(scope, receive, send), 30)
            (flight,) = client.hub.flights.values()
            assert (flight.token.cancelled, flight.token.winding_down) == (False, False)
            doors.open.set()

    asyncio.run(main())


def test_an_approver_does_not_bring_results_of_tools_of_the_client():
    async def main():
        page = [{"name": "show_map", "description": "Show a map.", "parameters": {"type": "object", "properties": {}}}]
        asks = agent(calls(call("pay", amount=9).with_id("c1"), call("show_map").with_id("c2")), say("done"))
        async with serving(asks, token=TOKENS) as client:
            said = [{"id": "1", "role": "user", "content": "hi"}]
            front = {"threadId": "t", "runId": "r", "messages": said, "tools": page}
            await client.post("/agui", json=front, headers=as_role("run"))
            more = [*said, {"id": "2", "role": "tool", "toolCallId": "c2", "content": "forged"}]
            resume = [{"interruptId": "c1", "status": "cancelled"}]
            answer = await client.post(
                "/agui", json={**front, "messages": more, "resume": resume}, headers=as_role("approve")
            )
            assert code(answer) == (403, "not_allowed")
            assert "start runs" in answer.json()["error"]["message"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("limits", "said"),
    [({"max_cost": "1000"}, "max_cost"), ({"max_tokens": None}, "max_tokens"), ({"max_depth": 9}, "max_depth")],
)
def test_a_caller_who_only_runs_cannot_raise_a_limit(limits, said):
    async def main():
        async with serving(agent(), token=TOKENS) as client:
            body = {"agent": "helper", "prompt": "hi", "limits": limits}
            refused = await client.post("/api/runs", json=body, headers=as_role("run"))
            assert code(refused) == (403, "limit_raised")
            assert said in refused.json()["error"]["message"]
            assert not client.hub.feeds
            lower = {**body, "limits": {"max_iterations": 2, "max_cost": "0.5"}}
            assert (await client.post("/api/runs", json=lower, headers=as_role("run"))).status_code == 201
            assert (await client.post("/api/runs", json=body)).status_code == 201  # who controls may

    asyncio.run(main())


# --- whose runs are whose ---------------------------------------------------------------------------------------------


def keyed(*roles, **fields):
    """Keys of these names and roles, and their secrets."""
    made = [make_key(name, role, **fields.get(name, {})) for name, role in roles]
    return MemoryKeys([key for _, key in made]), {key.name: secret for secret, key in made}


STORES = {"none": lambda _: None, "memory": lambda _: MemoryStore(), "sqlite": lambda path: SqliteStore(path / "s.db")}


@pytest.mark.parametrize("kind", list(STORES))
def test_runs_are_reached_by_their_own_key_and_their_tenant_only(kind, tmp_path):
    ring, secret = keyed(
        ("web", "run"), ("app", "run"), ("auditor", "view"), ("boss", "control"), ("stranger", "view"),
        web={"tenant": "acme"}, app={"tenant": "acme"}, auditor={"tenant": "acme"}, boss={"tenant": "acme"},
        stranger={"tenant": "other"},
    )  # fmt: skip

    async def main():
        store = STORES[kind](tmp_path)
        async with serving(agent(call("pay", amount=1), say("x")), store=store, keys=ring) as client:
            mine = (
                await client.post(
                    "/api/runs", json={"agent": "helper", "prompt": "secret"}, headers=bearer(secret["web"])
                )
            ).json()["run_id"]
            await events(client, mine)
            others = await start(client, "the operator's")
            await events(client, others)
            reach = {"web": {mine}, "app": set(), "auditor": {mine}, "boss": {mine}, "stranger": set()}
            for name, runs in reach.items():
                headers = bearer(secret[name])
                listed = (await client.get("/api/runs", headers=headers)).json()["runs"]
                assert {one["run_id"] for one in listed} == runs, name
                waiting = (await client.get("/api/approvals", headers=headers)).json()["approvals"]
                assert {one["run_id"] for one in waiting} == runs, name
                for run in (mine, others):
                    session = client.hub.feeds[run].head.session_id
                    for each in (run, session):
                        for path in ("", "/messages", "/events?limit=5", "/journal"):
                            answer = await client.get(f"/api/runs/{each}{path}", headers=headers)
                            wanted = 200 if run in runs else 404
                            assert answer.status_code == wanted, (name, each, path, answer.text)
                    shown = await client.get(f"/v1/responses/resp_{run}", headers=headers)
                    assert (shown.status_code == 200) is (run in runs), (name, shown.text)
            everything = (await client.get("/api/runs")).json()["runs"]
            assert {one["run_id"] for one in everything} == {mine, others}
            assert {one["who"] for one in everything} == {"web", "ada"}
            for name in ("web", "boss"):  # a tenant's key has nothing to do with everybody's
                for path in ("/api/fleet", "/metrics", "/api/budgets"):
                    assert (await client.get(path, headers=bearer(secret[name]))).status_code == 403
            kill = {"scope": "fleet", "active": True, "reason": "x"}
            assert (await client.post("/api/kill", json=kill, headers=bearer(secret["boss"]))).status_code == 403
            stop = await client.post(f"/api/runs/{others}/stop", json={}, headers=bearer(secret["boss"]))
            assert code(stop) == (404, "unknown_run")

    asyncio.run(main())


def test_the_feed_shows_a_key_its_own_cards_only():
    ring, secret = keyed(("web", "run"))

    async def main():
        from glidepath.apps.server import event_streams
        from glidepath.serve.locks import Visitor

        doors = Doors()
        one = agent(call("wait"), say("x"), tools=doors.tools())
        async with serving(one, store=MemoryStore(), keys=ring) as client:
            await start(client, "the operator's")
            body = {"agent": "helper", "prompt": "mine"}
            mine = (await client.post("/api/runs", json=body, headers=bearer(secret["web"]))).json()["run_id"]
            who = Visitor("web", "run")
            parts, got = event_streams.stream_cards(client.hub, client.server.reader, who)._parts(), b""
            for _ in range(4):
                got += await asyncio.wait_for(anext(parts), 5)
                doors.open.set()
            await parts.aclose()
            cards = [card for _, kind, data in messages(got.decode()) if kind == "cards" for card in data["runs"]]
            assert {card["run_id"] for card in cards} == {mine}

    asyncio.run(main())


def test_a_key_cannot_enter_a_session_or_take_a_name_that_is_not_its_own():
    ring, secret = keyed(("web", "run"), ("app", "run"))

    async def main():
        async with serving(agent(), store=MemoryStore(), keys=ring) as client:

            async def begin(name, **more):
                body = {"agent": "helper", "prompt": "x", **more}
                answer = await client.post("/api/runs", json=body, headers=bearer(secret[name]))
                if answer.status_code == 201:
                    await events(client, answer.json()["run_id"])
                return answer

            await events(client, await start(client, session="operators"))
            assert (await begin("web", session="mine")).status_code == 201
            assert (await begin("web", session="mine", tags=["new"])).status_code == 201  # and it stays its own
            assert (await begin("web", session="mine")).status_code == 201
            for session in ("operators", "mine"):
                assert code(await begin("app", session=session)) == (409, "session_taken")
            assert code(await begin("app", session="mine/child")) == (400, "bad_session")
            for tag in ("key:web", "tenant:acme"):
                assert code(await begin("app", tags=[tag])) == (400, "reserved_tag")
            chat = {"model": "helper", "messages": [{"role": "user", "content": "x"}], "metadata": {"tags": "key:web"}}
            answer = await client.post("/v1/chat/completions", json=chat, headers=bearer(secret["app"]))
            assert answer.status_code == 400
            front = {"threadId": "mine", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
            thread = {**front, "messages": [{"id": "1", "role": "user", "content": "x"}]}
            answer = await client.post("/agui", json=thread, headers=bearer(secret["app"]))
            assert code(answer) == (409, "session_taken")
            before = {"model": "helper", "input": "x", "conversation": "mine"}
            answer = await client.post("/v1/responses", json=before, headers=bearer(secret["app"]))
            assert code(answer) == (409, "session_taken")

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["none", "memory"])
def test_a_key_cannot_have_another_conversation_told_to_its_own_run(kind, tmp_path):
    ring, secret = keyed(("web", "run"), ("app", "run"))

    async def main():
        seen = []
        model = ScriptedModel(price=("1", "2")).forever(lambda request: (seen.append(request.messages), say("ok"))[1])
        async with serving(agent().replace(model=model), store=STORES[kind](tmp_path), keys=ring) as client:
            first = {"model": "helper", "input": "my salary is 4711", "conversation": "talk"}
            mine = await client.post("/v1/responses", json=first, headers=bearer(secret["web"]))
            assert mine.status_code == 200
            session = mine.json()["conversation"]["id"]
            again = {"model": "helper", "input": "what did I say?"}
            for more in ({"conversation": session}, {"previous_response_id": mine.json()["id"]}):
                body = {**again, **more}
                stolen = await client.post("/v1/responses", json=body, headers=bearer(secret["app"]))
                assert stolen.status_code in (404, 409), stolen.text
                assert len(seen) == 1
                assert (await client.post("/v1/responses", json=body, headers=bearer(secret["web"]))).status_code == 200
                assert "4711" in str(seen.pop())

    asyncio.run(main())


def test_a_fork_belongs_to_the_key_of_its_origin():
    ring, secret = keyed(("web", "run"), ("app", "run"))

    async def main():
        async with serving(agent(), store=MemoryStore(), keys=ring) as client:
            body = {"agent": "helper", "prompt": "x", "session": "mine"}
            await client.post("/api/runs", json=body, headers=bearer(secret["web"]))
            await events(client, "mine")
            forked = (await client.post("/api/runs/mine/fork", json={"at": 1})).json()["session_id"]
            assert (await client.get(f"/api/runs/{forked}", headers=bearer(secret["web"]))).status_code == 200
            assert (await client.get(f"/api/runs/{forked}", headers=bearer(secret["app"]))).status_code == 404

    asyncio.run(main())


@pytest.mark.parametrize("door", ["api", "responses", "chat", "agui"])
def test_a_run_carries_the_name_of_its_key_through_every_door(door, tmp_path):
    ring, secret = keyed(("web", "run"))

    async def main():
        store = SqliteStore(tmp_path / "s.db")
        async with serving(agent(), store=store, keys=ring) as client:
            path, body = {
                "api": ("/api/runs", {"agent": "helper", "prompt": "x"}),
                "responses": ("/v1/responses", {"model": "helper", "input": "x"}),
                "chat": ("/v1/chat/completions", {"model": "helper", "messages": [{"role": "user", "content": "x"}]}),
                "agui": (
                    "/agui",
                    {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
                    | {"messages": [{"id": "1", "role": "user", "content": "x"}]},
                ),
            }[door]
            answer = await client.post(path, json=body, headers=bearer(secret["web"]))
            assert answer.status_code in (200, 201), answer.text
            (card,) = (await client.get("/api/runs")).json()["runs"]
            await events(client, card["run_id"])
            assert card["who"] == "web"
            assert "key:web" in (await client.get("/api/runs")).json()["runs"][0]["tags"]
            (first, *_) = await controls(client, card["run_id"])
            assert (first["action"], first["who"]) == ("start", "web")
        async with serving(agent(), store=store, keys=ring) as client:  # and a server that comes after knows it
            assert (await client.get("/api/runs")).json()["runs"][0]["who"] == "web"
            assert (await client.get(f"/api/runs/{card['run_id']}", headers=bearer(secret["web"]))).status_code == 200

    asyncio.run(main())


def test_an_openai_client_that_cancels_leaves_its_name():
    ring, secret = keyed(("web", "run"))

    async def main():
        doors = Doors()
        one = agent(call("wait"), say("x"), tools=doors.tools())
        async with serving(one, store=MemoryStore(), keys=ring) as client:
            body = {"agent": "helper", "prompt": "x"}
            run_id = (await client.post("/api/runs", json=body, headers=bearer(secret["web"]))).json()["run_id"]
            await doors.entered.wait()
            path = f"/v1/responses/resp_{run_id}/cancel"
            assert (await client.post(path, json={}, headers=bearer(secret["web"]))).status_code == 200
            said = [(one["action"], one["who"], one["reason"]) for one in await controls(client, run_id)]
            assert said == [("start", "web", ""), ("stop", "web", "cancelled by an OpenAI client")]

    asyncio.run(main())


# --- what a key may start and spend -----------------------------------------------------------------------------------


def test_a_key_has_its_own_agents_and_models():
    ring, secret = keyed(("web", "run"), ("odd", "run"), web={"agents": ("helper",)}, odd={"models": ("gpt-*",)})

    async def main():
        async with serving(agent(), agent(name="payer"), keys=ring) as client:
            web, odd = bearer(secret["web"]), bearer(secret["odd"])
            assert [one["name"] for one in (await client.get("/api/info", headers=web)).json()["agents"]] == ["helper"]
            assert [one["id"] for one in (await client.get("/v1/models", headers=web)).json()["data"]] == ["helper"]
            assert (await client.get("/v1/models/payer", headers=web)).status_code == 404
            body = {"agent": "payer", "prompt": "x"}
            assert code(await client.post("/api/runs", json=body, headers=web)) == (404, "unknown_agent")
            assert code(await client.post("/api/runs", json=body, headers=odd)) == (403, "model_not_allowed")
            assert (await client.post("/api/runs", json={**body, "agent": "helper"}, headers=web)).status_code == 201
            assert len(client.hub.feeds) == 1

    asyncio.run(main())


def test_a_key_starts_no_more_than_its_rate():
    ring, secret = keyed(("web", "run"), web={"starts": 2, "every": 3600.0})

    async def main():
        async with serving(agent(), keys=ring) as client:
            now = [0.0]
            client.hub.allowance._starts.clock = lambda: now[0]
            body = {"agent": "helper", "prompt": "x"}
            codes = [(await client.post("/api/runs", json=body, headers=bearer(secret["web"]))) for _ in range(3)]
            assert [one.status_code for one in codes] == [201, 201, 429]
            assert codes[-1].headers["retry-after"] == "3600"
            now[0] = 3601.0
            assert (await client.post("/api/runs", json=body, headers=bearer(secret["web"]))).status_code == 201

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_rate_holds_across_servers_on_one_store(kind, tmp_path):
    from tests.engines.kit import fresh_database

    from glidepath.sessions import PostgresStore

    ring, secret = keyed(("web", "run"), web={"starts": 5, "every": 3600.0})
    address = fresh_database() if kind == "postgresql" else None
    body = {"agent": "helper", "prompt": "x"}

    def store():
        return PostgresStore(address) if address else SqliteStore(tmp_path / "s.db")

    async def main():
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(serving(agent(), store=store(), keys=ring)) for _ in range(3)]
            ask = [one.post("/api/runs", json=body, headers=bearer(secret["web"])) for one in servers * 4]
            answers = await asyncio.gather(*ask)
            assert sorted(one.status_code for one in answers) == [201] * 5 + [429] * 7
            assert {code(one)[1] for one in answers if one.status_code == 429} == {"key_rate"}
            assert all(int(one.headers["retry-after"]) > 3500 for one in answers if one.status_code == 429)
        async with serving(agent(), store=store(), keys=ring) as client:  # the next process counts on
            answer = await client.post("/api/runs", json=body, headers=bearer(secret["web"]))
            assert code(answer) == (429, "key_rate")
            assert (await client.post("/api/runs", json=body)).status_code == 201  # the operator has no rate

    asyncio.run(main())


def test_starts_that_cannot_be_counted_are_not_made(tmp_path):
    ring, secret = keyed(("web", "run"), ("free", "run"), web={"starts": 5})

    async def main():
        store = SqliteStore(tmp_path / "s.db")
        async with serving(agent(), store=store, keys=ring) as client:
            body = {"agent": "helper", "prompt": "x"}
            assert (await client.post("/api/runs", json=body, headers=bearer(secret["web"]))).status_code == 201
            with patched(store, "transact", StoreError("the disk is gone", kind="unavailable")):
                answer = await client.post("/api/runs", json=body, headers=bearer(secret["web"]))
                assert code(answer) == (503, "store_unavailable")
                assert (await client.post("/api/runs", json=body, headers=bearer(secret["free"]))).status_code == 201
        await store.close()

    asyncio.run(main())


@contextmanager
def patched(thing, name, error):
    """A method that fails."""

    async def fail(*_):
        raise error

    setattr(thing, name, fail)
    try:
        yield
    finally:
        delattr(thing, name)


@pytest.mark.parametrize(("starts", "moments", "begun"), [
    (2, [0, 1, 2, 59, 60, 61, 62], [True, True, False, False, True, True, False]),
    (1, [0, 59.9, 60, 119.9, 120], [True, False, True, False, True]),
    (2, [100, 101, 0, 1], [True, True, True, True]),  # the clock was set back: the future does not count
])  # fmt: skip
def test_no_window_has_more_starts_than_the_rate(starts, moments, begun):
    _, key = make_key("web", "run", starts=starts)
    now = iter(moments)
    counts = MemoryStarts(lambda: next(now))

    async def main():
        return [await counts.count(key) is None for _ in moments]

    assert asyncio.run(main()) == begun


def test_what_a_key_spends_holds_across_servers(tmp_path):
    ring, secret = keyed(("web", "run"), web={"max_tokens": 6000})

    def spender():
        model = ScriptedModel(name="m", price=("1", "2")).forever(lambda _: say("x"))
        return agent(say("x"), limits=Limits(max_iterations=3, max_tokens=50_000)).replace(model=model)

    async def main():
        outcomes = []
        for _ in range(2):  # two servers on one store, one after the other
            store = SqliteStore(tmp_path / "s.db")
            async with serving(spender(), store=store, keys=ring) as client:
                for _ in range(4):
                    body = {"agent": "helper", "prompt": "word " * 1100}  # about 1,800 tokens a run
                    run = (await client.post("/api/runs", json=body, headers=bearer(secret["web"]))).json()["run_id"]
                    await events(client, run)
                    outcomes.append((await client.get(f"/api/runs/{run}")).json()["outcome"])
                (wallet,) = await store.wallets("key:web")
                assert wallet.tokens <= 6000
                free = await start(client)  # the operator's runs are not the key's
                await events(client, free)
                assert (await client.get(f"/api/runs/{free}")).json()["outcome"] == "done"
            await store.close()
        assert outcomes.count("done") == 3
        assert set(outcomes[3:]) == {"cut_off"}

    asyncio.run(main())


def test_whoever_resumes_the_run_of_a_key_the_key_pays(tmp_path):
    ring, secret = keyed(("web", "run"), web={"max_tokens": 50_000})

    async def main():
        store = SqliteStore(tmp_path / "s.db")
        asks = agent(call("pay", amount=1).with_id("c1"), say("done", usage=Usage(2000, 100)))
        async with serving(asks, store=store, keys=ring) as client:
            body = {"agent": "helper", "prompt": "x"}
            run = (await client.post("/api/runs", json=body, headers=bearer(secret["web"]))).json()["run_id"]
            await events(client, run)
            (before,) = await store.wallets("key:web")
            decided = await client.post(f"/api/runs/{run}/decide", json={"id": "c1", "decision": "approve"})
            assert decided.status_code == 200, decided.text
            await events(client, run)
            assert (await client.get(f"/api/runs/{run}")).json()["outcome"] == "done"
            (after,) = await store.wallets("key:web")
            assert after.tokens >= before.tokens + 2100
        await store.close()

    asyncio.run(main())


def test_a_budget_without_a_place_for_wallets_starts_nothing():
    ring, secret = keyed(("web", "run"), web={"max_cost": "1"})

    async def main():
        async with serving(agent(), keys=ring) as client:
            body = {"agent": "helper", "prompt": "x"}
            answer = await client.post("/api/runs", json=body, headers=bearer(secret["web"]))
            assert code(answer) == (409, "no_wallets")
            assert not client.hub.feeds

    asyncio.run(main())


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_key_is_void_when_it_is_revoked_or_has_expired():
    ring, secret = keyed(("web", "run"), ("old", "view"), old={"expires": time.time() - 1})

    async def main():
        async with serving(agent(), keys=ring) as client:
            assert (await client.get("/api/info", headers=bearer(secret["web"]))).json()["name"] == "web"
            assert code(await client.get("/api/info", headers=bearer(secret["old"]))) == (401, "key_void")
            await ring.revoke("web")
            assert code(await client.get("/api/info", headers=bearer(secret["web"]))) == (401, "key_void")
            unknown, _ = make_key("nobody", "control")
            assert code(await client.get("/api/info", headers=bearer(unknown))) == (401, "unauthorized")
            assert (await client.get("/api/info")).status_code == 200

    asyncio.run(main())


def test_keys_that_cannot_be_read_let_nobody_in():
    class Broken(MemoryKeys):
        async def find(self, digest):
            raise StoreError("the disk is gone", kind="unavailable")

    async def main():
        secret, _ = make_key("web", "control")
        async with serving(agent(), keys=Broken()) as client:
            assert code(await client.get("/api/info", headers=bearer(secret))) == (503, "keys_unavailable")
            assert (await client.get("/api/info")).status_code == 200

    asyncio.run(main())


def test_a_file_keeps_hashes_for_its_owner_only_and_two_processes_agree(tmp_path):
    path = tmp_path / "store-events" / "access-keys.journal"
    secret, key = make_key("web", "run", max_cost="5", per="day")

    async def main():
        one, two = FileKeys(path), FileKeys(path)
        assert await one.find(key.digest) is None
        await one.add(key)
        assert (await two.find(key.digest)).name == "web"
        with pytest.raises(ConfigurationError, match="names are not used twice"):
            await two.add(make_key("web", "control")[1])
        await two.revoke("web")
        assert (await one.find(key.digest)).fault(time.time()) == "key web was revoked"
        with pytest.raises(ConfigurationError, match="names are not used twice"):
            await one.add(make_key("web", "view")[1])
        with pytest.raises(ConfigurationError, match="no key named 'nobody'"):
            await one.revoke("nobody")
        path.write_bytes(path.read_bytes() + b'{"name":"torn')  # as a crash leaves it
        await one.add(make_key("next", "view")[1])
        assert [each.name for each in await two.keys()] == ["next", "web"]
        assert (await two.keys())[1].revoked is not None
        path.chmod(0o666)
        with pytest.raises(StoreError, match="other users can write it"):
            await FileKeys(path).find(key.digest)

    asyncio.run(main())
    text = path.read_text()
    assert secret not in text
    assert secret.removeprefix("gpk_") not in text
    path.chmod(0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_keys_in_postgresql_are_of_every_server_on_it():
    from tests.engines.kit import fresh_database

    from glidepath.sessions import PostgresStore

    async def main():
        address = fresh_database()
        secret, key = make_key("web", "run", max_tokens=50_000)
        async with serving(agent(), store=PostgresStore(address)) as client:
            assert (await client.get("/api/info", headers=bearer(secret))).status_code == 401
            ring = keys_for(PostgresStore(address))  # as another process has it
            assert await ring.find(key.digest) is None
            await ring.add(key)
            with pytest.raises(ConfigurationError, match="names are not used twice"):
                await ring.add(make_key("web", "view")[1])
            client.hub.keys._looked = -10.0  # a second has passed
            body = {"agent": "helper", "prompt": "x"}
            started = await client.post("/api/runs", json=body, headers=bearer(secret))
            assert started.status_code == 201, started.text
            await events(client, started.json()["run_id"])
            (card,) = (await client.get("/api/runs", headers=bearer(secret))).json()["runs"]
            assert (card["who"], card["tags"]) == ("web", ["key:web"])
            (wallet,) = await client.hub.store.wallets("key:web")
            assert wallet.tokens > 0
            await ring.revoke("web")
            client.hub.keys._looked = -10.0
            assert code(await client.get("/api/info", headers=bearer(secret))) == (401, "key_void")
            await ring._store.close()
        async with serving(agent(), store=PostgresStore(address)) as client:
            assert (await client.get("/api/runs")).json()["runs"][0]["who"] == "web"

    asyncio.run(main())


def test_keys_live_beside_the_store(tmp_path):
    ring = keys_for(SqliteStore(tmp_path / "s.db"))
    asyncio.run(ring.add(make_key("web", "run")[1]))
    assert stat.S_IMODE((tmp_path / "s.db-events" / "access-keys.journal").stat().st_mode) == 0o600
    assert isinstance(keys_for(None), MemoryKeys)
    assert isinstance(keys_for(MemoryStore()), MemoryKeys)


@pytest.mark.parametrize(
    ("name", "role", "fields", "said"),
    [
        ("a b", "run", {}, "must be up to 40 letters"),
        ("x" * 41, "run", {}, "must be up to 40"),
        ("a", "admin", {}, "role must be one of"),
        ("a", "run", {"tenant": "../x"}, "tenant"),
        ("a", "run", {"max_cost": "-1"}, "max_cost"),
        ("a", "run", {"per": "day"}, "needs a budget"),
        ("a", "run", {"max_cost": "1", "per": "year"}, "one of 5h, day, week, month"),
        ("a", "view", {"max_cost": "1"}, "starts no runs"),
        ("a", "run", {"starts": 0}, "at least one start"),
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(name, role, fields, said):
    with pytest.raises(ConfigurationError, match=said):
        make_key(name, role, **fields)


# --- addresses and origins --------------------------------------------------------------------------------------------


def test_an_address_beyond_loopback_needs_a_token_and_tls_or_a_proxy():
    for host in ("127.0.0.1", "localhost", "::1"):
        check_bind(host, token=False, tls=False, behind_proxy=False)
    for host in ("0.0.0.0", "::", "192.168.1.5", "deck.example.com"):
        with pytest.raises(ConfigurationError, match="GLIDEPATH_SERVE_TOKEN"):
            check_bind(host, token=False, tls=True, behind_proxy=True)
        with pytest.raises(ConfigurationError, match="--tls-cert"):
            check_bind(host, token=True, tls=False, behind_proxy=False)
        check_bind(host, token=True, tls=True, behind_proxy=False)
        check_bind(host, token=True, tls=False, behind_proxy=True)


PAGE = "http://localhost:5173"


def test_a_page_of_an_allowed_origin_may_call_and_no_other():
    async def main():
        async with serving(agent(), allow_origins=[PAGE]) as client:
            asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
            bare = {key: value for key, value in client.headers.items() if key != "authorization"}
            client.headers = bare
            for path in ("/v1/chat/completions", "/agui", "/mcp", "/api/runs"):
                answer = await client.options(path, headers={"origin": PAGE, **asks, "sec-fetch-site": "cross-site"})
                assert answer.status_code == 204
                assert answer.headers["access-control-allow-origin"] == PAGE
                assert "authorization" in answer.headers["access-control-allow-headers"]
                assert "POST" in answer.headers["access-control-allow-methods"]
                assert "access-control-allow-credentials" not in answer.headers
                assert answer.headers["vary"] == "Origin"
            for origin in ("http://localhost:5174", "https://localhost:5173", f"{PAGE}.evil.example", "null"):
                answer = await client.options("/agui", headers={"origin": origin, **asks})
                assert code(answer) == (403, "wrong_origin")
                assert "access-control-allow-origin" not in answer.headers
            refused = await client.get("/api/info", headers={"origin": PAGE})
            assert code(refused) == (401, "unauthorized")  # and the page can read why
            assert refused.headers["access-control-allow-origin"] == PAGE
            headers = {"origin": PAGE, "sec-fetch-site": "cross-site", **bearer(TOKEN)}
            answer = await client.get("/api/info", headers=headers)
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert (await client.get("/api/info", headers={**headers, "host": "evil.example"})).status_code == 421
            unlock = await client.post("/api/unlock", json={"code": "x"}, headers={"origin": PAGE})
            assert unlock.status_code == 401

    asyncio.run(main())


def test_no_origin_is_allowed_by_default():
    async def main():
        async with serving(agent()) as client:
            asks = {"origin": PAGE, "access-control-request-method": "POST"}
            answer = await client.options("/agui", headers=asks)
            assert code(answer) == (403, "wrong_origin")

    asyncio.run(main())


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "http://*.example.com",
        "example.com",
        "http://a/b",
        "http://a/",
        "null",
        "",
        "http://a:",
        "http://a:" + "9" * 5000,
    ],
)
def test_only_whole_origins_can_be_allowed(origin):
    with pytest.raises(ConfigurationError, match="is not an origin"):
        check_origins([origin])


@pytest.mark.parametrize("port", ["99999", "65536", "0", "05173", pytest.param("80", id="left out by browsers")])
def test_an_origin_that_no_browser_sends_is_refused(port):
    with pytest.raises(ConfigurationError, match="never match"):
        check_origins([f"http://localhost:{port}"])


def test_origins_at_the_edges_of_what_browsers_send_are_allowed():
    edges = ["http://localhost:1", "http://localhost:65535", "http://[::1]:443", "https://app.example.com:80"]
    assert check_origins(edges) == frozenset(edges)


# --- one-time codes ---------------------------------------------------------------------------------------------------


def test_a_code_opens_once_and_only_for_our_own_page():
    async def main():
        async with serving(agent()) as client:
            codes = client.codes
            client.headers.pop("authorization")
            first, seen = codes.code, []
            codes.on_change = seen.append
            foreign = await client.post("/api/unlock", json={"code": first}, headers={"origin": "http://evil.example"})
            assert code(foreign) == (403, "wrong_origin")
            wrong = await client.post("/api/unlock", json={"code": "x" * 43})
            assert code(wrong) == (401, "bad_code")
            assert (codes.code, seen) == (first, [])
            right = await client.post("/api/unlock", json={"code": first}, headers={"origin": "http://localhost"})
            assert right.json() == {"token": TOKEN}
            assert seen == [codes.code] != [first]
            assert code(await client.post("/api/unlock", json={"code": first})) == (401, "bad_code")

    asyncio.run(main())
