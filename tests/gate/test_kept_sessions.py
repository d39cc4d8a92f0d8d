"""The commands that read a store know foreign sessions; none of them continues one."""

import asyncio
import json
import sys

import httpx
import pytest
from tests.cli.shell_user import glidepath
from tests.serve.live import LiveServer

from glidepath import Agent, Limits
from glidepath.errors import ConfigurationError
from glidepath.sessions import SqliteStore, import_journal
from glidepath.testing import ScriptedModel, say
from glidepath.testing.upstream import ScriptedUpstream

from .foreign import KEY, fly_anthropic, in_real_time
from .kept import keep_behind

NAME = "gate:run-1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store with a run that landed, one of whose sub-agents is beside it."""
    folder = tmp_path_factory.mktemp("kept")

    async def fill():
        store = SqliteStore(folder / "s.db")
        async with keep_behind("loop", store, limits={"max_tokens": 20_000}) as flown:
            main = {"x-claude-code-session-id": "s-1"}
            await fly_anthropic(flown.url, flown.key, headers=main, most=2, task="Tidy the attic.")
            child = {**main, "x-claude-code-agent-id": "a-1"}
            await fly_anthropic(flown.url, flown.key, headers=child, most=2, task="Look under the roof.")
            await fly_anthropic(flown.url, flown.key, headers=main, task="Tidy the attic.")
        await store.close()
        return flown.report()

    report = asyncio.run(asyncio.wait_for(fill(), 60))
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def test_list_and_search_show_the_program_its_turns_and_its_cost(folder):
    ran = glidepath("sessions", "list", "--store", "s.db", folder=folder)
    assert ran.code == 0, ran
    (row,) = [line for line in ran.out.splitlines() if NAME in line]
    assert "wrapped_up" in row
    assert "claude-code: Tidy the attic." in row
    found = glidepath("sessions", "search", "ATTIC", "--store", "s.db", "--json", folder=folder)
    data = json.loads(found.out)
    report = json.loads((folder / "report.json").read_text())
    assert (data["session_id"], data["foreign"], data["agent"]) == (NAME, True, "claude-code")
    assert data["tokens"] == report["tokens"]
    assert float(data["cost"]) == pytest.approx(report["cost"])
    nothing = glidepath("sessions", "search", "cellar", "--store", "s.db", folder=folder)
    assert NAME not in nothing.out
    whole = glidepath("sessions", "list", "--children", "--store", "s.db", "--json", folder=folder)
    children = [one for one in map(json.loads, whole.out.splitlines()) if one["parent"] == NAME]
    assert [one["agent"] for one in children] == ["claude-code/a-1"]


def test_show_tells_how_it_landed(folder):
    ran = glidepath("sessions", "show", NAME, "--store", "s.db", folder=folder)
    assert ran.code == 0, ran
    assert "program   claude-code, through the gate" in ran.out
    assert "state     BUDGET_EXCEEDED/WRAPPED_UP" in ran.out
    assert "cause     TokenBudgetConstraint: the limit of 20,000 tokens is reached" in ran.out
    assert "[user] Tidy the attic." in ran.out
    assert "calls lookup(" in ran.out
    plotted = glidepath("sessions", "show", NAME, "--plot", "--store", "s.db", folder=folder)
    assert plotted.code == 0, plotted


def test_export_and_import_keep_it_whole_and_foreign(folder, tmp_path):
    ran = glidepath("sessions", "export", NAME, "--store", "s.db", "-o", str(tmp_path / "out.jsonl"), folder=folder)
    assert ran.code == 0, ran

    async def take():
        store = SqliteStore(tmp_path / "other.db")
        await import_journal(store, (tmp_path / "out.jsonl").read_bytes())
        await store.close()

    asyncio.run(take())
    shown = glidepath("sessions", "show", NAME, "--store", "other.db", folder=tmp_path)
    assert "program   claude-code, through the gate" in shown.out


def test_what_if_and_tune_read_it(folder):
    ran = glidepath("whatif", "s.db", "--limits", "max_turns=4", "--json", folder=folder)
    assert ran.code == 0, ran
    data = json.loads(ran.out.splitlines()[0])
    assert data["session_id"] == NAME
    assert "max_iterations" in ran.out
    tuned = glidepath("sim", "tune", "s.db", folder=folder)
    assert tuned.code == 0, tuned
    assert "2 runs with" in tuned.out


@pytest.mark.parametrize("argv", [("resume", NAME), ("run", "-r", NAME, "more")])
def test_no_command_continues_it_and_each_says_what_to_do(folder, argv):
    ran = glidepath(*argv, "--store", "s.db", folder=folder)
    assert ran.code == 2, ran
    assert "is a run of claude-code that went through the gate" in ran.err
    assert f"glidepath sessions fork {NAME}" in ran.err


def test_an_agent_neither_resumes_it_nor_writes_into_it(folder):
    async def attempt():
        store = SqliteStore(folder / "s.db")
        agent = Agent(model=ScriptedModel([say("mine")] * 3), limits=Limits(max_iterations=3), store=store)
        with pytest.raises(ConfigurationError, match="went through the gate"):
            await agent.resume(NAME)
        with pytest.raises(ConfigurationError, match="went through the gate"):
            await agent.run("hello", session=NAME)
        fork = await agent.fork(NAME, at=1)
        result = await agent.run("Go on.", session=fork.session_id)
        await store.close()
        return result

    result = asyncio.run(attempt())
    assert result.text == "mine"
    assert result.messages[0].text == "Tidy the attic."


AGENT = """
import json, os, urllib.request
body = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello from outside."}]}
headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "1", "content-type": "application/json"}
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
print(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).status)
"""


def test_gate_run_keeps_its_run_among_the_others(tmp_path):
    async def play():
        async with ScriptedUpstream("answer") as up:
            flags = ("--max-tokens", "9000", "--store", "kept.db", "--upstream", up.url)
            command = [sys.executable, "-m", "glidepath", "gate", "run", *flags, "--", sys.executable, "-c", AGENT]
            process = await asyncio.create_subprocess_exec(
                *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            return await asyncio.wait_for(process.communicate(), 40)

    out, err = asyncio.run(play())
    assert out.strip() == b"200", err
    ran = glidepath("sessions", "show", "--last", "--store", "kept.db", folder=tmp_path)
    assert "[user] Hello from outside." in ran.out
    assert "state     COMPLETED/DONE" in ran.out


GATE_TOML = """
[upstreams.claude]
dialect = "anthropic"
url = "{url}"
mode = "swap"
key = "env:UPSTREAM_KEY"

[limits]
max_tokens = 12000

[keys.ann]
key = "env:ANN_KEY"
"""


@in_real_time
async def test_serve_with_a_gate_shows_its_runs_and_a_restart_adopts_them(tmp_path, monkeypatch):
    monkeypatch.setenv("UPSTREAM_KEY", KEY)
    monkeypatch.setenv("ANN_KEY", "gate-key-of-ann-0123456789")
    async with ScriptedUpstream("loop") as up:
        (tmp_path / "gate.toml").write_text(GATE_TOML.format(url=up.url))
        server = LiveServer(tmp_path, "--gate", "gate.toml", "--store", str(tmp_path / "store"))
        await asyncio.to_thread(server.start)
        try:
            url = f"{server.url}/gate/run-7"
            await fly_anthropic(url, "gate-key-of-ann-0123456789", most=4)
            spent = up.usage.input + up.usage.output
            headers = {"authorization": "Bearer control-token-0123456789"}
            async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
                (card,) = (await client.get("/api/runs")).json()["runs"]
                assert (card["foreign"], card["who"], card["state"]) == (True, "ann", "running")
                assert card["usage"]["total"] == spent
                server.kill()
                await asyncio.to_thread(server.start)
                flight = await fly_anthropic(url, "gate-key-of-ann-0123456789")
                assert "SCRIPTED-ANSWER" in flight.text
                assert up.usage.input + up.usage.output <= 12_000
                (again,) = (await client.get("/api/runs")).json()["runs"]
                assert again["run_id"] == card["run_id"]
                assert again["gauges"][1]["used"] == up.usage.input + up.usage.output
        finally:
            await asyncio.to_thread(server.__exit__)
    ran = await asyncio.to_thread(glidepath, "sessions", "list", "--store", str(tmp_path / "store"), folder=tmp_path)
    assert "wrapped_up" in ran.out
