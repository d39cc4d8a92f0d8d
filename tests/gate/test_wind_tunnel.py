"""The wind tunnel: the same bad day for the same seed, marked as what it is, and no budget broken by it."""

import json
import sys
from collections.abc import Sequence

import httpx
import pytest
from tests.gate.foreign import fly_anthropic, in_real_time
from tests.gate.kept import folded_of, until
from tests.gate.test_run import CALL, gate_run
from tests.testing.upstream.talk import DIALECTS, build

from glidepath import Limits
from glidepath.apps.gate.wind_tunnel import SCENARIOS, Scenario, WindTunnel, describe_scenarios, read_injection
from glidepath.cli import main
from glidepath.gate import Gate, Upstream
from glidepath.sessions import SqliteStore
from glidepath.testing import ScriptedUpstream
from glidepath.values import ConfigurationError

NAMES = tuple(SCENARIOS)
VENDORS = ("anthropic", "openai", "gemini")
PIECES = 12
WAITING = ("stalled-stream", "slow-first-byte")
KEYS = {"x-api-key": "k", "anthropic-version": "2023-06-01", "authorization": "Bearer k", "x-goog-api-key": "k"}
HEADERS = [(name.encode(), value.encode()) for name, value in KEYS.items()]


def make_upstreams(url):
    return [Upstream(name, name, url) for name in VENDORS]


# --- the scenarios ----------------------------------------------------------------------------------------------------


def test_there_are_at_least_twenty_scenarios_and_each_says_what_happens_and_what_would_be_good():
    assert len(SCENARIOS) >= 20
    for name, one in SCENARIOS.items():
        assert (one.name, one.does[-1], bool(one.good)) == (name, ".", True)
    assert len({one.does for one in SCENARIOS.values()}) == len(SCENARIOS)


def test_a_seed_chooses_which_call_is_struck_and_where():
    scripts = {SCENARIOS["cut-stream"].script_for(seed) for seed in range(20)}
    assert len(scripts) > 3
    assert SCENARIOS["cut-stream"].script_for(7) == SCENARIOS["cut-stream"].script_for(7)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("cut-streem", "did you mean cut-stream?"),
        ("nonsense", "--inject list"),
        ("", "is not a scenario"),
        ("cut-stream,x", "must be a whole number"),
        ("cut-stream,-1", "must be a whole number"),
        ("cut-stream,", "must be a whole number"),
        ("cut-stream," + "9" * 5000, "must be a whole number"),
    ],
)
def test_what_is_not_a_scenario_is_refused_with_what_is(said, words):
    with pytest.raises(ConfigurationError) as failure:
        read_injection(said)
    assert words in str(failure.value)


def test_an_injection_has_a_seed_or_zero():
    assert read_injection("cut-stream") == (SCENARIOS["cut-stream"], 0)
    assert read_injection(" cut-stream , 7") == (SCENARIOS["cut-stream"], 7)


def test_the_list_has_every_scenario_with_what_a_good_agent_would_do():
    text = describe_scenarios()
    assert all(name in text and one.good in text for name, one in SCENARIOS.items())


# --- the same seed, the same bytes ------------------------------------------------------------------------------------


async def pass_through(scenario: Scenario, seed: int, requests: Sequence[tuple[str, dict]]) -> list[object]:
    """Status, headers and the first pieces of every reply; the upstream gives the same replies every time, too."""
    async with ScriptedUpstream("honest", seed=1, repeatable=True) as up:
        (upstream,) = [Upstream("any", "openai", up.url)]
        tunnel = WindTunnel(scenario, seed, [upstream], {})
        seen: list[object] = []
        for target, body in requests:
            path, _, query = target.partition("?")
            reply = await tunnel.send("POST", upstream, path, query.encode(), HEADERS, json.dumps(body).encode())
            headers = [pair for pair in reply.headers if pair[0] != b"date"]
            pieces = []
            try:
                while len(pieces) < PIECES and (piece := await reply.read()):
                    pieces.append(piece)
            except Exception as error:
                pieces.append(str(error).encode())
            reply.close()
            seen.append((reply.status, headers, b"".join(pieces)))
        await tunnel.close()
        return seen


@pytest.mark.parametrize("dialect", DIALECTS)
@in_real_time
async def test_the_same_seed_gives_the_same_bytes_in_every_dialect(dialect):
    requests = [build(dialect, stream=stream) for stream in (True, False, True, False)]
    for name in NAMES:
        if name in WAITING:
            continue
        first = await pass_through(SCENARIOS[name], 3, requests)
        assert first == await pass_through(SCENARIOS[name], 3, requests), name


@in_real_time
async def test_another_seed_gives_another_day():
    requests = [build("anthropic", stream=True)] * 4
    days = [await pass_through(SCENARIOS["cut-stream"], seed, requests) for seed in (0, 1, 2, 3)]
    assert any(day != days[0] for day in days[1:])


# --- what is struck, and what is not ----------------------------------------------------------------------------------


def try_scenario(script, name="mine"):
    return Scenario(name=name, does="Something.", good="copes", script=script)


@in_real_time
async def test_a_reply_of_the_upstream_is_damaged_and_the_others_pass_as_they_are():
    requests = [build("anthropic", stream=True)] * 3
    plain = await pass_through(try_scenario("honest + cut:at=99"), 0, requests)
    struck = await pass_through(try_scenario("honest + cut:at=2,after=3"), 0, requests)
    assert struck[0] == plain[0]
    assert struck[2] == plain[2]
    status, headers, body = struck[1]
    assert status == 200
    assert (b"x-glidepath-injected", b"mine, seed 0") in headers
    assert body.endswith(b"broke off in its reply (injected: mine, seed 0)")
    assert plain[1][2].startswith(body[: body.index(b"upstream any")])  # the upstream's own bytes, until then


@pytest.mark.parametrize("script", ["honest + slow:at=1,seconds=0.05", "honest + stall:at=1,after=2,seconds=0.05"])
@in_real_time
async def test_what_only_waits_changes_no_byte(script):
    requests = [build("openai-chat", stream=True)]
    (plain,) = await pass_through(try_scenario("honest + cut:at=99"), 0, requests)
    (waited,) = await pass_through(try_scenario(script), 0, requests)
    assert waited[2] == plain[2]


@in_real_time
async def test_a_conversation_that_the_script_cannot_read_goes_to_the_upstream_and_is_counted():
    path, body = build("openai-responses")
    body["previous_response_id"] = "resp_of_another_vendor"
    async with ScriptedUpstream("honest") as up:
        upstream = Upstream("any", "openai", up.url)
        tunnel = WindTunnel(SCENARIOS["endless-calls"], 0, [upstream], {})
        reply = await tunnel.send("POST", upstream, path, b"", HEADERS, json.dumps(body).encode())
        assert not any(name == b"x-glidepath-injected" for name, _ in reply.headers)
        assert (tunnel.report()["struck"], tunnel.report()["not_injected"]) == (0, 1)
        assert "could not be struck" in tunnel.describe()
        reply.close()
        await tunnel.close()


@in_real_time
async def test_a_request_that_asks_for_no_reply_is_not_struck():
    async with ScriptedUpstream("honest") as up:
        upstream = Upstream("any", "anthropic", up.url)
        tunnel = WindTunnel(SCENARIOS["server-down"], 0, [upstream], {})
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
        reply = await tunnel.send("POST", upstream, "/v1/messages/count_tokens", b"", HEADERS, body)
        assert (reply.status, tunnel.report()["calls"]) == (200, 0)
        reply.close()
        await tunnel.close()


# --- budgets hold -----------------------------------------------------------------------------------------------------

LIMIT = 3_000
CALLS = 40


async def keep_asking(gate: Gate, dialect: str) -> None:
    """A client that never gives up by itself: it asks again whatever it got, until it is told that it has landed."""
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        for number in range(CALLS):
            path, body = build(dialect, "do it " * 20, stream=number % 2 == 0)
            try:
                reply = await client.post(
                    gate.url + path,
                    json=body,
                    headers={**KEYS, **dict.fromkeys(("x-api-key", "x-goog-api-key"), gate.key)},
                )
            except httpx.HTTPError:
                continue
            if "x-glidepath-landed" in reply.headers:
                return


async def fly_in(name: str, dialect: str) -> None:
    async with ScriptedUpstream("honest") as up:
        limits = Limits(max_tokens=LIMIT, timeout=0.8)
        async with Gate(limits, make_upstreams(up.url), line="run-1", inject=name) as gate:
            await keep_asking(gate, dialect)
            await until(lambda: not gate.tunnel.usage.open)  # a reply that was cut is counted once it is let go
            used = up.usage.tokens + gate.tunnel.usage.tokens
            assert used <= LIMIT, (name, dialect, used)
            told = gate.report()["injected"]
            assert (told["scenario"], told["calls"] > 0) == (name, True)
            assert told["struck"] > 0 or name in ("cut-stream", "malformed-stream")  # these need a streamed reply


@pytest.mark.parametrize(("name", "dialect"), [(name, DIALECTS[place % 4]) for place, name in enumerate(NAMES)])
@in_real_time
async def test_a_budget_holds_on_every_bad_day(name, dialect):
    await fly_in(name, dialect)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", NAMES)
@in_real_time
async def test_a_budget_holds_on_every_bad_day_in_every_dialect(name, dialect):
    await fly_in(name, dialect)


# --- it is marked as what it is ---------------------------------------------------------------------------------------


@in_real_time
async def test_journal_report_and_sessions_say_what_was_injected(tmp_path):
    store = SqliteStore(tmp_path / "runs.db")
    async with ScriptedUpstream("honest") as up:
        settings = {"line": "run-1", "store": store, "inject": "unknown-tool,5"}
        async with Gate(Limits(max_tokens=50_000), make_upstreams(up.url), **settings) as gate:
            await fly_anthropic(gate.url, gate.key)
            report = gate.report()
    assert report["injected"]["first_struck"][0]["what"] == "unknown_tool"
    assert (report["injected"]["scenario"], report["injected"]["seed"]) == ("unknown-tool", 5)
    assert report["runs"][0]["injected"] == "unknown-tool, seed 5"
    folded = await folded_of(store)
    assert folded.began.agent.endswith("[injected: unknown-tool, seed 5]")  # as lists and the deck show it
    assert '"injected":"unknown-tool, seed 5"' in folded.snapshot.per_run.notes["gate"]
    await store.close()


# --- on the command line ----------------------------------------------------------------------------------------------


def test_the_command_line_lists_the_scenarios_and_refuses_others(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["gate", "run", "--inject", "list"]) == 0
    assert "A good agent asks again" in capsys.readouterr().out
    assert main(["gate", "run", "--inject", "cut-streem", "--", "true"]) == 2
    assert "did you mean cut-stream?" in capsys.readouterr().err


@pytest.mark.process
def test_a_command_in_the_wind_tunnel_is_told_apart_from_a_bad_provider(provider, tmp_path):
    words = ("--max-tokens", "10k", "--upstream", provider.url, "--inject", "server-down", "--report", "r.json")
    done = gate_run(*words, "--", sys.executable, "-c", CALL, folder=tmp_path)
    assert done.returncode == 1
    assert "HTTP Error 500" in done.stderr
    assert "injected server-down, seed 0: 1 of 1 call struck" in done.stderr
    assert "This was not the provider's doing" in done.stderr
    assert provider.seen == []
    assert json.loads((tmp_path / "r.json").read_text())["injected"]["scenario"] == "server-down"
