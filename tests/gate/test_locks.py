"""The gate's locks are those of every door: keys with agents and rates, revoked keys, names, and no secret anywhere."""

import asyncio
import time
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from glidepath import Limits
from glidepath.apps.gate import GateConfig, ServedGate, Upstream
from glidepath.apps.server.locks import key_watch
from glidepath.apps.server.locks.keys import digest_of
from glidepath.errors import ConfigurationError
from glidepath.serve import app
from glidepath.serve.locks import RIGHTS, ROLES, AccessKey, MemoryKeys, make_key
from glidepath.sessions import SqliteStore
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import KEY, VENDORS, fly_anthropic, fly_chat, in_real_time
from .kept import until
from .plain import KEY as PLAIN_KEY, on_stage

MESSAGES = "/v1/messages"
BODY = {"model": "claude-opus-5-5", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def served(ring, behavior="answer", *, store=None, **config):
    """A long-lived gate on a socket, with the keys of a ring."""
    async with ScriptedUpstream(behavior) as up:
        upstreams = tuple(Upstream(name, name, up.url, "swap", "env:UPSTREAM_KEY") for name in VENDORS)
        config = GateConfig(upstreams=upstreams, limits=Limits(max_tokens=900_000), drain=0.2, **config)
        gate = ServedGate(config, environ={"UPSTREAM_KEY": KEY}, tokens={}, keys=ring, store=store)
        server = uvicorn.Server(uvicorn.Config(gate.application, port=0, log_level="error", lifespan="on"))
        serving = asyncio.ensure_future(server.serve())
        await until(lambda: server.started)
        gate.up, gate.url = up, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        try:
            yield gate
        finally:
            server.should_exit = True
            await serving
            await gate.close()


async def asked(gate, secret, path="/run-1"):
    async with httpx.AsyncClient() as client:
        headers = {"x-api-key": secret, "anthropic-version": "2023-06-01"}
        reply = await client.post(f"{gate.url}{path}{MESSAGES}", json=BODY, headers=headers, timeout=30)
        return reply.status_code, reply.json().get("error", {}).get("message", "")


# --- keys that say more than a name ---------------------------------------------------------------------------------


@in_real_time
async def test_a_key_for_some_agents_does_not_reach_the_models_behind_them():
    secret, key = make_key("web", "run", agents=("helper",))
    async with served(MemoryKeys([key])) as gate:
        status, said = await asked(gate, secret)
        assert (status, gate.up.usage.calls) == (403, 0)
        assert said == "key web is for the agents helper, and a gate has no agents: make a key without --agent for it"


@pytest.mark.parametrize("role", ROLES)
@in_real_time
async def test_a_role_calls_models_if_it_may_start_runs_and_no_other_does(role):
    secret, key = make_key("web", role)
    async with served(MemoryKeys([key])) as gate:
        may = role in RIGHTS["start"].roles
        assert (await asked(gate, secret))[0] == (200 if may else 403)
        assert gate.up.usage.calls == int(may)


@in_real_time
async def test_a_run_is_shown_in_the_deck_to_its_key_and_its_tenant_and_to_nobody_else(tmp_path):
    kinds = {"web": ("run", None), "acme": ("run", "acme"), "audit": ("view", "acme"), "other": ("view", "umbrella")}
    made = {name: make_key(name, role, tenant=tenant) for name, (role, tenant) in kinds.items()}
    ring = MemoryKeys([key for _, key in made.values()])
    store = SqliteStore(tmp_path / "store")
    async with served(ring, store=store) as gate:
        for name in ("web", "acme"):
            assert (await asked(gate, made[name][0]))[0] == 200
        application = app(agents=[], store=store, token="a-token-of-the-operator", keys=ring, gate=gate)
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def shown(secret):
                headers = {"authorization": f"Bearer {secret}"}
                runs = (await client.get("/api/runs", headers=headers)).json()["runs"]
                one = await client.get("/api/runs/gate:web:run-1", headers=headers)
                return sorted(run["who"] for run in runs), one.status_code

            assert await shown(made["web"][0]) == (["web"], 200)
            assert await shown(made["acme"][0]) == (["acme"], 404)
            assert await shown(made["audit"][0]) == (["acme"], 404)
            assert await shown(made["other"][0]) == ([], 404)
            assert (await shown("a-token-of-the-operator"))[1] == 200


@pytest.mark.parametrize("has_store", [True, False], ids=["store", "no store"])
@in_real_time
async def test_a_key_begins_no_more_runs_than_its_rate(tmp_path, has_store):
    secret, key = make_key("web", "run", starts=2, every=3600.0)
    store = SqliteStore(tmp_path / "store") if has_store else None
    async with served(MemoryKeys([key]), store=store) as gate:
        assert (await asked(gate, secret, "/run-1"))[0] == 200
        assert (await asked(gate, secret, "/run-1"))[0] == 200, "a run has as many calls as it wants"
        assert (await asked(gate, secret, "/run-2"))[0] == 200
        status, said = await asked(gate, secret, "/run-3")
        assert (status, said) == (429, "key web may start 2 runs in 3600 seconds (key_rate)")
        assert (await asked(gate, secret, "/run-3"))[0] == 429, "what was refused is not begun"
        assert (await asked(gate, secret, "/run-2"))[0] == 200
        assert gate.up.usage.calls == 4


@in_real_time
async def test_rates_of_a_gate_and_another_one_on_the_store_are_one(tmp_path):
    secret, key = make_key("web", "run", starts=1, every=3600.0)
    ring = MemoryKeys([key])
    async with (
        served(ring, store=SqliteStore(tmp_path / "store")) as one,
        served(ring, store=SqliteStore(tmp_path / "store")) as other,
    ):
        assert (await asked(one, secret, "/run-1"))[0] == 200
        assert (await asked(other, secret, "/run-2"))[0] == 429


# --- keys that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@in_real_time
async def test_what_a_revoked_key_has_open_ends_in_its_dialect(streams):
    secret, key = make_key("web", "run")
    ring = MemoryKeys([key])
    async with served(ring, "endless") as gate:
        gate.up._rate = 200.0
        fly = fly_anthropic if streams else fly_chat
        flying = asyncio.ensure_future(fly(f"{gate.url}/run-1", secret))
        await until(lambda: gate.witness.open_runs and gate.witness.open_runs[0].passages)
        await ring.revoke("web")
        began = time.monotonic()
        flight = await flying
        assert time.monotonic() - began < 3.0
        assert "[glidepath] The reply was cut here: key web was revoked" in flight.text
        [line] = gate.book._lines.values()
        meter = next(iter(line.sessions.values())).meter
        assert (meter.reserved_tokens, meter.tokens > 0) == (0, True), "what it used is settled"
        assert (await asked(gate, secret))[0] == 401


@in_real_time
async def test_a_call_of_a_revoked_key_that_waits_for_the_provider_ends(monkeypatch):
    monkeypatch.setattr(key_watch, "LOOK", 0.05)
    secret, key = make_key("web", "run")
    ring = MemoryKeys([key])
    async with served(ring, "slow:seconds=20") as gate:
        asking = asyncio.ensure_future(asked(gate, secret))
        await until(lambda: gate.up.usage.calls or gate.application.in_flight)
        await ring.revoke("web")
        status, said = await asyncio.wait_for(asking, 5)
        assert "key web was revoked" in said, (status, said)


# --- names ----------------------------------------------------------------------------------------------------------


@in_real_time
async def test_a_key_of_the_store_does_not_take_the_name_of_one_in_the_file():
    """They would share a line: the budget, the models and the runs of whoever came first."""
    theirs, stored = make_key("ann", "run")
    own = "ann-has-a-key-of-her-own"
    kept = AccessKey(name="ann", digest=digest_of(own), role="run", max_tokens=5, models=("none-*",))
    ring = MemoryKeys([stored])
    async with served(ring, keys=(kept,)) as gate:
        assert (await asked(gate, theirs))[0] == 401
        assert (await asked(gate, own))[0] == 403, "its own models hold"
        assert gate.up.usage.calls == 0


@pytest.mark.parametrize("name", ["operator", "shell", "gate", "view", "run", "approve", "control"])
def test_no_key_is_called_what_a_token_of_the_server_is_called(name):
    with pytest.raises(ConfigurationError, match="is what a token of the server itself is called"):
        make_key(name, "run")


# --- where the gate's own key goes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["passthrough", "swap"])
@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (MESSAGES, [(b"x-api-key", PLAIN_KEY.encode()), (b"authorization", b"Bearer " + PLAIN_KEY.encode())]),
        (f"/{PLAIN_KEY}/run-1{MESSAGES}", [(b"authorization", b"Bearer " + PLAIN_KEY.encode())]),
        (f"/{PLAIN_KEY}/run-1{MESSAGES}?key={PLAIN_KEY}", [(b"x-goog-api-key", PLAIN_KEY.encode())]),
        (MESSAGES, [(b"x-glidepath-key", PLAIN_KEY.encode()), (b"x-api-key", PLAIN_KEY.encode())]),
        (f"/{PLAIN_KEY}/run-1{MESSAGES}", [(b"x-api-key", PLAIN_KEY.encode()), (b"x-api-key", PLAIN_KEY.encode())]),
    ],
)
def test_the_gates_key_goes_no_further_wherever_else_a_client_puts_it(mode, path, headers):
    async def play(stage):
        reply = await stage.ask(path, headers=headers, key=None)
        return reply.status, stage.upstream.heads[0]

    upstream = {"mode": mode} if mode == "passthrough" else {"mode": mode, "key": "env:THE_KEY"}
    status, head = on_stage(play, upstream=upstream)
    assert status == 200
    assert PLAIN_KEY.encode() not in head


def test_a_header_of_its_own_opens_the_gate_beside_the_clients_login():
    async def play(stage):
        theirs = [(b"authorization", b"Bearer sk-of-the-client"), (b"x-glidepath-key", PLAIN_KEY.encode())]
        return (await stage.ask(MESSAGES, headers=theirs, key=None)).status, stage.upstream.heads[0]

    status, head = on_stage(play, upstream={"mode": "passthrough"})
    assert status == 200
    assert b"\r\nauthorization: Bearer sk-of-the-client\r\n" in head
    assert b"x-glidepath-key" not in head.lower()
