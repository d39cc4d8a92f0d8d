"""Who may come in: hosts, origins, tokens, roles, sizes and speeds."""

import asyncio
import socket
import time

import httpx
import pytest

from glidepath.apps.server import config_for
from glidepath.apps.server.locks.addresses import host_of
from glidepath.errors import ConfigurationError
from glidepath.serve import app
from glidepath.serve.locks import check_tokens, is_loopback, parse_hosts

from .deck import HEADERS, TOKEN, VIEW, agent, code, events, serving, start
from .live import free_port

PRIVATE = (
    "/api/info",
    "/api/runs",
    "/api/approvals",
    "/api/fleet",
    "/api/budgets",
    "/api/feed",
    "/metrics",
    "/openapi.json",
)
ACTIONS = ("land", "stop", "steer", "decide", "resume", "fork", "limits", "settle")


def test_the_keywords_of_app_are_the_fields_of_its_options():
    from glidepath.apps.server import ServeKeywords, ServeOptions

    assert set(ServeKeywords.__annotations__) == set(ServeOptions.__struct_fields__)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7447",
        "localhost.evil.example",
        "[::1].evil.example",
        "[::1]evil",
        "localhost:80@evil.example",
        "localhost@evil.example",
        "localhost:7447:1",
        "localhost:x",
        "localhost/../evil",
        "127.0.0.1.evil.example",
        "::1",
        "[::1",
        "0.0.0.0",
        "2130706433",
        "127.1",
        "[::ffff:127.0.0.1]",
        "localhost\u0000",
        "loc\u0430lhost",
        ":7447",
        ".",
        "",
    ],
)
def test_nothing_but_a_known_host_and_a_port_is_a_known_host(host):
    assert host_of(host) not in parse_hosts()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:7447", "127.0.0.1:1", "[::1]", "[::1]:7447", "localhost:"])
def test_a_known_host_is_known_with_any_port(host):
    assert host_of(host) in parse_hosts()


def test_an_address_of_version_six_is_allowed_as_it_is_written_after_host_and_as_browsers_send_it():
    for said in ("2001:db8::5", "[2001:db8::5]", "[2001:DB8::5]:7447"):
        assert host_of("[2001:db8::5]:7447") in parse_hosts([said])
    with pytest.raises(ConfigurationError, match="is not a host name; write it without scheme and path"):
        parse_hosts(["https://deck.example.com/x"])


def asked(method, path, **options):
    """One request to a server; the answer."""

    async def main():
        async with serving(agent()) as client:
            client.headers.pop("authorization")
            return await client.request(method, path, **options)

    return asyncio.run(main())


@pytest.mark.parametrize("path", PRIVATE)
def test_nothing_private_is_shown_without_the_token(path):
    answer = asked("GET", path)
    assert code(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer wrong-token-0123456789", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"],
    ids=["empty", "no-secret", "wrong", "basic", "longer", "shorter"],
)
def test_a_token_is_taken_only_whole_and_as_bearer(header):
    assert asked("GET", "/api/info", headers={"authorization": header}).status_code == 401


def test_a_token_in_the_address_or_in_a_cookie_does_not_count():
    assert asked("GET", f"/api/info?token={TOKEN}").status_code == 401
    assert asked("GET", "/api/info", headers={"cookie": f"token={TOKEN}"}).status_code == 401


@pytest.mark.parametrize("path", ["/api/info", "/", "/assets/x.js", "/api/runs/x/events"])
@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "[::2]"])
def test_a_foreign_host_name_is_misdirected_on_every_route(path, host):
    answer = asked("GET", path, headers={**HEADERS, "host": host})
    assert code(answer) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7447", "127.0.0.1:9", "[::1]:7447", "localhost."])
def test_loopback_names_are_let_in(host):
    assert asked("GET", "/api/info", headers={**HEADERS, "host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_neither_token_nor_host(path):
    assert asked("GET", path, headers={"host": "10.0.0.7"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"origin": "http://localhost.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ],
    ids=["foreign", "null", "other-port", "prefix", "cross-site", "same-site", "navigate"],
)
def test_pages_of_other_origins_can_do_nothing(headers):
    async def main():
        async with serving(agent()) as client:
            answer = await client.post("/api/runs", json={"agent": "helper", "prompt": "x"}, headers=headers)
            assert code(answer) == (403, "wrong_origin")
            assert (await client.get("/api/info", headers=headers)).status_code == 403
            assert not client.hub.feeds

    asyncio.run(main())


def test_the_page_itself_may_ask():
    headers = {**HEADERS, "origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert asked("GET", "/api/info", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "text/json"]
)
def test_only_json_is_taken_so_that_no_form_can_post(kind):
    async def main():
        async with serving(agent()) as client:
            body = b'{"agent": "helper", "prompt": "x"}'
            answer = await client.post("/api/runs", content=body, headers={"content-type": kind})
            assert code(answer) == (415, "not_json")
            assert not client.hub.feeds

    asyncio.run(main())


def test_a_view_token_may_look_and_touch_nothing():
    async def main():
        async with serving(agent()) as client:
            run_id = await start(client)
            await events(client, run_id)
            client.headers["authorization"] = f"Bearer {VIEW}"
            assert (await client.get(f"/api/runs/{run_id}")).status_code == 200
            assert (await client.get("/api/info")).json()["role"] == "view"
            for action in ACTIONS:
                assert code(await client.post(f"/api/runs/{run_id}/{action}", json={})) == (403, "view_only")
            assert code(await client.post("/api/runs", json={})) == (403, "view_only")
            assert code(await client.post("/api/kill", json={})) == (403, "view_only")

    asyncio.run(main())


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not():
    async def main():
        async with serving(agent(), max_body=1000) as client:

            async def parts():
                for _ in range(50):
                    yield b" " * 100

            headers = {"content-type": "application/json"}
            said = await client.post("/api/runs", content=b" " * 2000, headers=headers)
            unsaid = await client.post("/api/runs", content=parts(), headers=headers)
            assert [code(said), code(unsaid)] == [(413, "too_large")] * 2
            lied = {**headers, "content-length": "-1"}
            assert (await client.post("/api/runs", content=b"{}", headers=lied)).status_code == 413

    asyncio.run(main())


def test_every_answer_tells_browsers_to_keep_to_themselves():
    async def main():
        async with serving(agent()) as client:
            for path in ("/", "/api/info", "/api/nothing", "/healthz", "/api/runs/none"):
                headers = (await client.get(path)).headers
                policy = headers["content-security-policy"]
                assert policy.startswith("default-src 'none'")
                assert "unsafe" not in policy
                assert "require-trusted-types-for 'script'" in policy
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["referrer-policy"] == "no-referrer"
                assert headers["cross-origin-opener-policy"] == "same-origin"
                assert headers["cross-origin-resource-policy"] == "same-origin"
                assert "access-control-allow-origin" not in headers
                assert "server" not in headers

    asyncio.run(main())


@pytest.mark.parametrize(
    "name",
    ["../serve/hub.py", "..%2f..%2fpyproject.toml", "%2e%2e/hub.py", "assets/../../hub.py", "a%00b", "/etc/passwd"],
)
def test_no_file_outside_the_page_is_served(name):
    answer = asked("GET", f"/{name}")
    assert answer.status_code in (404, 503)
    assert "import" not in answer.text


def test_a_prefix_is_taken_off_whether_the_proxy_does_it_or_not():
    async def main():
        async with serving(agent(), prefix="/deck") as client:
            assert (await client.get("/deck/api/info")).status_code == 200
            assert (await client.get("/api/info")).status_code == 200
            client.headers.pop("authorization")
            bare = await client.get("/deck?x=1")
            assert (bare.status_code, bare.headers["location"]) == (308, "/deck/?x=1")
            assert bare.headers["x-content-type-options"] == "nosniff"
            assert (await client.get("/deck/")).status_code in (200, 503)
            assert (await client.get("/deck", headers={"host": "evil.example"})).status_code == 421
            assert (await client.get("/deck/api/info")).status_code == 401
            assert (await client.get("/deckx/api/info")).status_code == 404

    asyncio.run(main())


def test_the_application_can_be_mounted_in_another_one():
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async def main():
        inner = app(agents=[agent()], token=TOKEN)
        transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/agents", app=inner)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost/agents") as client:
            assert (await client.get("/api/info")).status_code == 401
            client.headers.update(HEADERS)
            run_id = await start(client)
            assert (await events(client, run_id))[-1][1] == "RunEnded"
            await inner.state.hub.close()

    asyncio.run(main())


def test_tokens_that_can_be_guessed_and_roles_that_are_none_are_refused():
    for wrong in ("short", {"short": "view"}, {TOKEN: "admin"}, {}, 7, "line\nbreak-0123456789"):
        with pytest.raises(ConfigurationError):
            check_tokens(wrong)
    assert check_tokens({TOKEN: "control:ada"})[TOKEN].name == "ada"
    made = [app(agents=[]).state.token for _ in range(2)]
    assert made[0] != made[1]
    assert min(map(len, made)) >= 40


def test_loopback_addresses_are_known():
    assert all(is_loopback(one) for one in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"))
    assert not any(is_loopback(one) for one in ("0.0.0.0", "10.0.0.1", "example.com", "::", "127.0.0.1.example.com"))
    assert parse_hosts(["Deck.Example.com:443"]) >= {"deck.example.com", "localhost"}


# --- on a real socket -----------------------------------------------------------------------------------------------


class Socketed:
    """The application behind uvicorn, on a loopback port, in a thread."""

    def __init__(self, application):
        import threading

        import uvicorn

        self.port = free_port()
        self.server = uvicorn.Server(config_for(application, host="127.0.0.1", port=self.port))
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        until = time.monotonic() + 30
        while not self.server.started and time.monotonic() < until:
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(20)

    def said(self, data, seconds=5.0):
        """What the server answers to these bytes; empty when it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as line:
            line.sendall(data)
            got = b""
            try:
                while part := line.recv(65536):
                    got += part
                    if b"\r\n\r\n" in got and b"connection: close" not in got.lower():
                        return got
            except TimeoutError:
                return got or b"nothing"
            return got


def head(*lines):
    return "\r\n".join([*lines, "", ""]).encode()


def test_slow_and_malformed_requests_do_not_hold_the_server(monkeypatch):
    from glidepath.apps.server import listener

    monkeypatch.setattr(listener, "HEADER_SECONDS", 0.3)
    application = app(agents=[agent()], token=TOKEN, body_seconds=0.3)
    good = ("Host: localhost", f"Authorization: Bearer {TOKEN}")
    with Socketed(application) as server:
        assert server.said(b"GET /api/info HTTP/1.1\r\nHost: loc") == b""  # a head that never ends
        assert server.said(b"") == b""  # nobody says anything
        posted = head("POST /api/runs HTTP/1.1", *good, "Content-Type: application/json", "Content-Length: 50")
        assert b"408" in server.said(posted + b'{"agent"').split(b"\r\n")[0]  # a body that never ends
        injected = head("GET /api/info HTTP/1.1", *good, "X-A: a\r\n\tb: c", "X-\x01: d")
        assert b" 400 " in server.said(injected).split(b"\r\n")[0]
        twice = head("GET /api/info HTTP/1.1", *good, "Host: evil.example")
        assert server.said(twice).split(b"\r\n")[0].split()[1] in (b"400", b"421")
        huge = head("GET /api/info HTTP/1.1", *good, "X-A: " + "a" * 100_000)
        assert server.said(huge).split(b"\r\n")[0].split()[1:2] in ([b"400"], [b"431"])
        late = head("GET /api/runs/x/events HTTP/1.1", *good, "Last-Event-ID: 1\tevil", "Accept: text/event-stream")
        answer = server.said(late)
        assert b"evil" not in answer.split(b"\r\n\r\n")[0]
        assert b" 200 " in server.said(head("GET /healthz HTTP/1.1", "Host: x")).split(b"\r\n")[0]


def test_another_address_without_a_token_refuses_to_start(tmp_path):
    import io

    from glidepath.apps.cli import CliContext
    from glidepath.cli import main

    said = io.StringIO()
    world = CliContext(
        arguments=(), environ={}, stdin=io.StringIO(), stdout=io.StringIO(), stderr=said, folder=tmp_path, now=time.time
    )
    assert main(["serve", "--agent", "json:loads", "--host", "0.0.0.0", "--no-browser"], world) == 2
    assert "--token" in said.getvalue()


@pytest.mark.parametrize("name", ["s\x1b]0;PWN\x07", "s\u202eabc", "s\u200b", "s\nt", "s\x9b"])
def test_a_session_id_that_could_steer_a_terminal_is_refused(name):
    async def main():
        async with serving(agent()) as client:
            body = {"agent": "helper", "prompt": "x", "session": name}
            refused = await client.post("/api/runs", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_session")
            fine = await client.post("/api/runs", json={**body, "session": "S\u00e3o Paulo"})
            assert fine.status_code == 201

    asyncio.run(main())
