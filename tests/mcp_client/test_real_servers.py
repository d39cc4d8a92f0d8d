"""Real servers that others wrote, of both eras, on stdio and HTTP."""

import asyncio
import json
import os
import subprocess
from contextlib import asynccontextmanager

import pytest

from glidepath import answer
from glidepath.events import ToolProgress
from glidepath.mcp import McpServer, Sampling
from glidepath.messages import ImageBlock
from glidepath.outcome import LoopOutcome
from glidepath.testing import call, no_leftovers, say

from .http_servers import free_port, raw_server, response
from .real_servers import from_npm, from_pypi, node_program, node_server, python_server
from .servers import agent_with, collect, results


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Everything is there before the first test begins: installing takes longer than a test may."""
    from_pypi()
    from_npm()


pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


async def version_of(server):
    supply = server.open()
    listing = await supply.owner.await_listing()
    await supply.close()
    return listing.version


# --- of PyPI: the newer protocol --------------------------------------------------------------------------------


async def test_time_speaks_the_newer_protocol_and_tells_the_time():
    server = python_server("mcp_server_time", "--local-timezone", "UTC")
    assert await version_of(server) == "2026-07-28"
    result = await agent_with([call("get_current_time", timezone="Europe/Oslo"), say("ok")], server).run("go")
    assert json.loads(results(result)[0].text)["timezone"] == "Europe/Oslo"


async def test_time_refuses_a_zone_that_is_none_with_an_error_result():
    server = python_server("mcp_server_time", "--local-timezone", "UTC")
    result = await agent_with([call("get_current_time", timezone="Nowhere"), say("ok")], server).run("go")
    assert results(result)[0].is_error


async def test_git_shows_the_status_of_a_repository(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "new.txt").write_text("x")
    server = python_server("mcp_server_git", "--repository", str(tmp_path))
    result = await agent_with([call("git_status", repo_path=str(tmp_path)), say("ok")], server).run("go")
    assert "new.txt" in results(result)[0].text


async def test_fetch_gets_a_page():
    page = response("200 OK", "<html><body><h1>Handbook</h1><p>Leave rules.</p></body></html>", "text/html")
    async with raw_server(lambda *_: page) as url:
        server = python_server("mcp_server_fetch", "--ignore-robots-txt", "--allow-private-ips")
        result = await agent_with([call("fetch", url=url, raw=True), say("ok")], server).run("go")
    said = results(result)[0].text
    assert "Handbook" in said or "private" in said.lower(), said


# --- of npm: the older protocol ---------------------------------------------------------------------------------


async def test_everything_speaks_the_older_protocol():
    assert await version_of(node_server("everything", "stdio")) == "2025-11-25"


async def test_everything_echoes_adds_and_shows_a_picture():
    turns = [call("echo", message="hi"), call("get-sum", a=2, b=3), call("get-tiny-image"), say("ok")]
    result = await agent_with(turns, node_server("everything", "stdio")).run("go")
    echoed, added, picture = results(result)
    assert "hi" in echoed.text
    assert "5" in added.text
    assert any(isinstance(block, ImageBlock) for block in picture.content)


async def test_everything_reports_progress():
    turns = [call("trigger-long-running-operation", duration=1, steps=4), say("ok")]
    result, events = await collect(agent_with(turns, node_server("everything", "stdio")))
    assert len([event for event in events if isinstance(event, ToolProgress)]) >= 3, "the last may come with the result"
    assert not results(result)[0].is_error, results(result)[0].text


async def test_everything_sees_nothing_of_our_environment(monkeypatch):
    monkeypatch.setenv("SECRET_API_KEY", "hush")
    result = await agent_with([call("get-env"), say("ok")], node_server("everything", "stdio")).run("go")
    assert "PATH" in results(result)[0].text
    assert "hush" not in results(result)[0].text


async def test_everything_samples_within_its_share():
    server = node_server("everything", "stdio", sampling=Sampling(max_calls=1))
    turns = [call("trigger-sampling-request", prompt="Say hi", maxTokens=50), say("hi from the model"), say("ok")]
    result = await agent_with(turns, server).run("go")
    assert "hi from the model" in results(result)[0].text
    assert [spend.calls for spend in result.breakdown if spend.name == "mcp:everything"] == [1]


async def test_everything_asks_a_person():
    agent = agent_with(
        [call("trigger-elicitation-request"), say("ok")], node_server("everything", "stdio", elicitation=True)
    )
    async with agent:
        paused = await agent.run("go")
        assert paused.outcome is LoopOutcome.PAUSED
        [pending] = paused.pending
        given = {name: _example(shape) for name, shape in pending.form["properties"].items()}
        done = await agent.resume(paused, decisions={pending.call.id: answer(given)})
    assert done.outcome is LoopOutcome.DONE
    assert not results(done)[0].is_error, results(done)[0].text


def _example(shape):
    """Something that fits a field of a form."""
    if "default" in shape:
        return shape["default"]
    options = [one["const"] for one in shape.get("oneOf", shape.get("anyOf", []))] or shape.get("enum")
    if shape.get("type") == "array":
        items = shape.get("items", {})
        return [one["const"] for one in items.get("anyOf", items.get("oneOf", []))][:2] or items.get("enum", ["x"])[:2]
    if options:
        return options[0]
    formats = {
        "email": "a@example.com",
        "uri": "https://example.com",
        "date": "2026-01-01",
        "date-time": "2026-01-01T00:00:00Z",
    }
    kinds = {"integer": shape.get("minimum", 1), "number": shape.get("minimum", 1), "boolean": True}
    return kinds.get(shape.get("type"), formats.get(shape.get("format"), "Ada Lovelace"))


async def test_filesystem_reads_inside_its_folder_and_refuses_the_rest(tmp_path):
    (tmp_path / "a.txt").write_text("inside")
    folder = os.path.realpath(tmp_path)
    turns = [call("read_text_file", path=f"{folder}/a.txt"), call("read_text_file", path="/etc/passwd"), say("ok")]
    result = await agent_with(turns, node_server("filesystem", folder)).run("go")
    inside, outside = results(result)
    assert "inside" in inside.text
    assert outside.is_error


async def test_memory_keeps_what_it_was_told(tmp_path):
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    server = node_server("memory").configured(env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    turns = [call("create_entities", entities=[entity]), call("read_graph"), say("ok")]
    result = await agent_with(turns, server).run("go")
    assert "first program" in results(result)[1].text


async def test_memory_gets_arguments_that_are_checked_first(tmp_path):
    server = node_server("memory").configured(env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    result = await agent_with([call("create_entities", entities=[{"name": "Ada"}]), say("ok")], server).run("go")
    assert results(result)[0].kind == "invalid_arguments"
    assert "missing required field 'entityType'" in results(result)[0].text


@asynccontextmanager
async def everything_over_http():
    import shutil

    port = free_port()
    program = await asyncio.create_subprocess_exec(
        shutil.which("node"),
        *node_program("everything"),
        "streamableHttp",
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        program.kill()
        await program.wait()


async def test_everything_over_http_speaks_the_older_protocol():
    async with everything_over_http() as url, no_leftovers():
        server = McpServer("everything", url=url)
        result = await agent_with([call("echo", message="over the wire"), say("ok")], server).run("go")
    assert "over the wire" in results(result)[0].text
