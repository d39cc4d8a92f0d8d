"""With a server among its tools a run keeps its guarantees: events in order, one result each, nothing twice."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from glidepath import Agent, Limits, answer
from glidepath.outcome import LoopOutcome
from glidepath.sessions import MemoryStore, SqliteStore
from glidepath.testing import ScriptedModel, call, calls, grammar_errors, no_leftovers, say

from .servers import FAKE, agent_with, collect, fake, results

pytestmark = pytest.mark.process


async def test_the_events_of_a_run_with_a_server_keep_their_order():
    turns = [call("add", a=1, b=2), call("die"), call("slow", steps=2, pause=0.01), say("ok")]
    result, events = await collect(agent_with(turns, fake(setup={"tools": ["add", "die", "slow"]})))
    assert result.text == "ok"
    assert grammar_errors(events) == []


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["no-store", "store"])
async def test_g6_a_question_in_the_middle_of_a_batch_keeps_the_order_of_results(store):
    server = fake(era="modern", setup={"tools": ["ask", "echo"]}, elicitation=True)
    batch = calls(call("echo", text="a"), call("ask"), call("echo", text="b"), call("ask"))
    agent = agent_with([batch, say("ok")], server, store=store)
    paused, events = await collect(agent)
    assert grammar_errors(events) == []
    first, second = paused.pending
    again, events = await collect(agent, None, resume=paused, decisions={first.call.id: answer({"city": "Oslo"})})
    assert grammar_errors(events) == []
    assert [one.call.id for one in again.pending] == [second.call.id]
    done = await agent.resume(again, decisions={second.call.id: answer({"city": "Rome"})})
    assert [one.text.split(" state")[0] for one in results(done)] == [
        "a",
        'accept {"city": "Oslo"}',
        "b",
        'accept {"city": "Rome"}',
    ]


async def test_leaving_a_stream_while_it_connects_leaves_nothing_behind():
    agent = agent_with([], fake(setup={"never_answers": True}))
    async with no_leftovers(grace=2), agent.stream("go") as stream:
        waiting = asyncio.ensure_future(anext(aiter(stream)))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_names_of_our_own_are_not_for_servers():
    sly = [{"name": name, "inputSchema": {"type": "object"}} for name in ("find_tools", "call_found_tool")]
    many = [{"name": f"t{n}", "description": "x" * 300, "inputSchema": {"type": "object"}} for n in range(60)]
    server = fake(setup={"tools": [*sly, *many, "echo"]})
    model = ScriptedModel(
        [
            call("find_tools", query="say it back"),
            call("call_found_tool", name="echo", arguments={"text": "x"}),
            say("ok"),
        ]
    )
    agent = Agent(model=model, tools=[server], context_window=20_000, limits=Limits(max_iterations=5))
    found, echoed = results(await agent.run("go"))
    assert '"echo"' in found.text
    assert echoed.text == "x"


KILLED = textwrap.dedent("""
    import asyncio, sys
    from glidepath import Agent, Limits
    from glidepath.mcp import McpServer
    from glidepath.sessions import SqliteStore
    from glidepath.testing import ScriptedModel, call
    server = McpServer("fake", command=sys.executable, args=["-S", {fake!r}, {setup!r}], trusted=True)
    agent = Agent(model=ScriptedModel([call({tool!r})]), tools=[server], limits=Limits(max_iterations=5),
                  store=SqliteStore({store!r}))
    asyncio.run(agent.run("go", session="s1"))
""")


@pytest.mark.parametrize("idempotent", [False, True])
async def test_g13_a_call_in_flight_at_a_kill_is_unknown_unless_it_may_be_repeated(tmp_path, idempotent):
    log, store = tmp_path / "log", tmp_path / "runs.db"
    hints = {"idempotentHint": idempotent, "readOnlyHint": False}
    quiet = {"name": "silent", "inputSchema": {"type": "object"}, "annotations": hints}
    setup = json.dumps({"tools": [quiet], "log": str(log)})
    code = KILLED.format(fake=FAKE, setup=setup, tool="silent", store=str(store))
    program = subprocess.Popen([sys.executable, "-c", code])
    while not (log.exists() and "call silent" in log.read_text()):
        assert program.poll() is None
        await asyncio.sleep(0.02)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    talking = {**quiet, "name": "silent"}
    server = fake(setup={"tools": [talking], "log": str(log)}, trusted=True, idle_timeout=0.3)
    agent = agent_with([say("ok")], server, store=SqliteStore(store))
    result = await agent.resume("s1")
    assert result.outcome is LoopOutcome.DONE
    assert log.read_text().count("call silent") == (2 if idempotent else 1)
    assert [one.name for one in result.unknown_effects] == ([] if idempotent else ["silent"])
