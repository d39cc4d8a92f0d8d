"""The OpenAPI page is true, and nothing that it allows, or does not, makes the server fail."""

import asyncio
from contextlib import suppress

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from glidepath.serve import app
from glidepath.sessions import MemoryStore
from glidepath.testing import ScriptedModel, say

from .deck import HEADERS, TOKEN, agent, code, events, serving, start

LONG = b'{%s, "reason": "' + b"x" * 501 + b'"}'
PARTS = b'{"model": "helper", "input": [{"role": "user", "content": [%s]}]}'


def test_every_route_of_the_api_is_on_the_page():
    async def main():
        async with serving(agent()) as client:
            page = (await client.get("/openapi.json")).json()
            said = {(path, method.upper()) for path, methods in page["paths"].items() for method in methods}
            routes = {
                (route.path.replace("{id:path}", "{id}"), method)
                for route in client.server.routes()
                for method in route.methods - {"HEAD"}
                if route.path != "/" and "{path:path}" not in route.path
            }
            assert said == routes

    asyncio.run(main())


def test_answers_have_the_fields_that_the_page_promises():
    async def main():
        async with serving(agent()) as client:
            run_id = await start(client)
            await events(client, run_id)
            page = (await client.get("/openapi.json")).json()
            for path, methods in page["paths"].items():
                if "get" in methods and path not in ("/api/feed", "/metrics", "/mcp"):
                    json_please = {"accept": "application/json"}
                    name = "helper" if path.startswith("/v1/models") else run_id
                    answer = await client.get(path.replace("{id}", name), headers=json_please)
                    if path.endswith(("/at", "/request", "/evals/{id}")):
                        continue  # there is no journal here, no time is named, no evaluation was made
                    content = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
                    wanted = content.get("required", [])
                    if "$ref" in content:
                        wanted = page["components"]["schemas"][content["$ref"].rpartition("/")[2]]["required"]
                    assert set(wanted) <= set(answer.json()), path

    asyncio.run(main())


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_schemathesis_finds_no_server_error(mode):
    schemathesised(mode, 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_schemathesis_finds_no_server_error_however_long_it_tries(mode):
    schemathesised(mode, 300)


def schemathesised(mode, examples):
    flown = agent(say("ok"), times=1).replace(
        model=ScriptedModel(record=False, price=("1", "2")).forever(lambda _: say("ok"))
    )
    application = app(agents=[flown], store=MemoryStore(), token=TOKEN, max_runs=1000)

    async def seeded():
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as client:
            page = (await client.get("/openapi.json")).json()
            session = (await client.post("/api/runs", json={"agent": "helper", "prompt": "x", "session": "s"})).json()
            await events(client, session["run_id"])
            await application.state.hub.close()
            return page

    page = asyncio.run(seeded())
    page["paths"].pop("/api/feed")  # it never ends
    schema = schemathesis.openapi.from_dict(page)
    failures, tried = [], set()
    loop = asyncio.new_event_loop()
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS, timeout=30)

    def ask(case, run):
        keywords = case.as_transport_kwargs(base_url="http://localhost")
        url = httpx.URL(keywords["url"].replace("%7Bid%7D", run))
        body = keywords.get("json")
        headers = {key: value for key, value in (keywords.get("headers") or {}).items() if value is not None}
        headers["accept"] = "application/json"  # a stream of a lost run would not end
        return loop.run_until_complete(
            client.request(
                keywords["method"],
                url,
                params=keywords.get("params") or {},
                headers=headers,
                **({"json": body} if body is not None else {}),
            )
        )

    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case):
            if "id" in (case.path_parameters or {}) and len(tried) % 2:
                case.path_parameters["id"] = "s"
            tried.add((case.method, case.path, len(tried)))
            try:
                answer = ask(case, "s")
            except (httpx.InvalidURL, UnicodeEncodeError, ValueError):
                return  # no client could send it
            if answer.status_code >= 500:
                failures.append(
                    (case.method, case.path, case.path_parameters, case.query, case.body, answer.text[:300])
                )

        with suppress(Unsatisfiable):  # nothing about this path can be wrong
            check()
    loop.run_until_complete(client.aclose())
    loop.run_until_complete(application.state.hub.close())
    loop.close()
    assert failures == []
    if mode is GenerationMode.POSITIVE:
        assert len({path for _, path, _ in tried}) == len(page["paths"])


def test_bad_input_is_answered_with_a_sentence_and_changes_nothing():
    async def main():
        async with serving(agent(), store=MemoryStore()) as client:
            run_id = await start(client)
            await events(client, run_id)
            before = (await client.get(f"/api/runs/{run_id}")).json()
            raw = {"content-type": "application/json"}
            for path, body, wanted in [
                ("/api/runs", b"{", (400, "bad_body")),
                ("/api/runs", b"[]", (400, "bad_body")),
                ("/api/runs", b"\xff\xfe", (400, "bad_body")),
                ("/api/runs", b"[" * 100_000, (400, "bad_body")),
                ("/api/runs", b'{"agent": "nobody", "prompt": "x"}', (404, "unknown_agent")),
                ("/api/runs", b'{"agent": "helper", "prompt": ""}', (400, "bad_prompt")),
                ("/api/runs", b'{"agent": "helper", "prompt": "x", "limits": {"max_steps": 1}}', (400, "bad_limit")),
                ("/api/runs", b'{"agent": "helper", "prompt": "x", "limits": {"max_cost": -1}}', (400, "bad_limit")),
                ("/api/runs", b'{"agent": "helper", "prompt": "x", "tags": ["a b"]}', (400, "refused")),
                ("/api/runs", b'{"agent": "helper", "prompt": "x", "session": ""}', (400, "refused")),
                ("/api/runs", b'{"agent": "helper", "prompt": "x", "extra": 1}', (400, "bad_body")),
                ("/api/runs/none/stop", b"{}", (404, "unknown_run")),
                (f"/api/runs/{run_id}/stop", b"{}", (409, "run_ended")),
                (f"/api/runs/{run_id}/land", b"{}", (409, "run_ended")),
                (f"/api/runs/{run_id}/steer", b'{"message": "x"}', (409, "run_ended")),
                (f"/api/runs/{run_id}/resume", b"{}", (409, "already_done")),
                (f"/api/runs/{run_id}/decide", b'{"id": "x", "decision": "approve"}', (409, "run_ended")),
                (f"/api/runs/{run_id}/decide", b'{"id": "x", "decision": "maybe"}', (400, "bad_body")),
                (f"/api/runs/{run_id}/fork", b'{"at": 99}', (400, "refused")),
                (f"/api/runs/{run_id}/fork", b'{"at": -1}', (400, "refused")),
                (f"/api/runs/{run_id}/settle", b'{"call_id": "x", "outcome": "done"}', (404, "unknown_call")),
                (f"/api/runs/{run_id}/limits", b'{"limits": {"max_tokens": 5}}', (409, "already_done")),
                (f"/api/runs/{run_id}/nothing", b"{}", (404, "not_found")),
                (f"/api/runs/{run_id}/fork", LONG % b'"at": 1', (400, "long_reason")),
                (f"/api/runs/{run_id}/fork", b'{"at": 1, "reason": "\\u0000"}', (400, "bad_reason")),
                ("/v1/responses", b'{"a":' * 100_000, (400, "bad_body")),
                ("/v1/chat/completions", b'{"a":' * 100_000, (400, "bad_body")),
                ("/v1/responses", PARTS % b'{"type": "input_text", "text": " "}', (400, "bad_input")),
                ("/v1/responses", PARTS % b'{"type": "input_image", "image_url": "file:///x"}', (400, "bad_input")),
                ("/api/kill", b'{"scope": "tenant", "active": true}', (409, "no_tenant")),
                ("/api/kill", b'{"scope": "run", "active": true}', (400, "no_id")),
            ]:
                answer = await client.post(path, content=body, headers=raw)
                assert code(answer) == wanted, (path, body)
                assert len(answer.json()["error"]["message"]) > 20
            for path, wanted in [
                ("/api/runs?state=odd", (400, "bad_state")),
                ("/api/runs?limit=0", (400, "bad_limit")),
                ("/api/runs?cursor=odd", (400, "bad_query")),
                ("/api/runs?tag=%00", (400, "bad_tag")),
                (f"/api/runs/{run_id}/events?after=x", (400, "bad_after")),
                (f"/api/runs/{run_id}/events?after=--5", (400, "bad_after")),
                (f"/api/runs/{run_id}/at?turn=-", (400, "bad_turn")),
                (f"/api/runs/{run_id}/at?turn=99", (404, "unknown_turn")),
                ("/api/runs/" + "x" * 400, (404, "unknown_run")),
            ]:
                assert code(await client.get(path)) == wanted, path
            late = {"accept": "text/event-stream", "last-event-id": "-1"}
            assert code(await client.get(f"/api/runs/{run_id}/events", headers=late)) == (400, "bad_event_id")
            assert (await client.get(f"/api/runs/{run_id}")).json() == before
            assert len((await client.get("/api/runs")).json()["runs"]) == 1

    asyncio.run(main())
