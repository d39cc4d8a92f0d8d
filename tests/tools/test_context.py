"""What a running tool can ask and report."""

import asyncio
import threading

import pytest

from glidepath.errors import ToolError
from glidepath.spi import Remaining
from glidepath.tools import ToolContext


class Host:
    def __init__(self):
        self.reported = []
        self.cancelled = False

    def remaining(self):
        return Remaining(tokens=7)

    def near_budget(self):
        return True

    def is_cancelled(self):
        return self.cancelled

    def report(self, call_id, tool_name, progress):
        self.reported.append((call_id, tool_name, progress, threading.current_thread()))

    async def spawn(self, agent, prompt, limits, call_id):
        return (agent, prompt, limits, call_id)


def in_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_everything_is_passed_on_to_the_host():
    async def scene():
        host = Host()
        context = ToolContext(host, "c1", "search", "k1")
        assert (context.remaining().tokens, context.near_budget(), context.cancelled) == (7, True, False)
        host.cancelled = True
        assert context.cancelled
        assert await context.spawn("agent", "prompt", "limits") == ("agent", "prompt", "limits", "c1")
        context.report("half")
        return host.reported

    assert asyncio.run(scene()) == [("c1", "search", "half", threading.current_thread())]


def test_a_report_from_another_thread_arrives_on_the_loop():
    async def scene():
        host = Host()
        context = ToolContext(host, "c1", "search", "k1")
        in_thread(lambda: context.report("half"))
        assert host.reported == []
        await asyncio.sleep(0)
        return host.reported

    assert asyncio.run(scene()) == [("c1", "search", "half", threading.current_thread())]


def test_an_abandoned_call_is_cancelled_and_reports_no_more():
    async def scene():
        host = Host()
        context = ToolContext(host, "c1", "search", "k1")
        in_thread(lambda: context.report("on its way"))
        context.abandoned = "thread"
        context.report("late")
        await asyncio.sleep(0)
        return host.reported, context.cancelled

    assert asyncio.run(scene()) == ([], True)


def test_a_report_after_the_loop_has_closed_is_dropped():
    async def scene():
        return ToolContext(Host(), "c1", "search", "k1")

    context = asyncio.run(scene())
    context.report("too late")
    assert context._host.reported == []


def test_spawning_from_another_loop_is_a_tool_error():
    async def scene():
        context = ToolContext(Host(), "c1", "search", "k1")
        return await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(attempt(context)))

    async def attempt(context):
        with pytest.raises(ToolError, match="own loop"):
            await context.spawn("agent", "prompt")
        return "refused"

    assert asyncio.run(scene()) == "refused"


def test_a_testing_context_needs_no_run():
    context = ToolContext.for_testing(call_id="c9", remaining=Remaining(iterations=2), cancelled=True)
    context.report({"done": 1})
    context.report("two")
    assert isinstance(context, ToolContext)
    assert context.reports == [{"done": 1}, "two"]
    assert (context.call_id, context.remaining().iterations, context.cancelled) == ("c9", 2, True)
    assert context.near_budget() is False


def test_a_testing_context_spawns_what_it_is_given():
    async def child(agent, prompt, limits):
        return f"{agent}:{prompt}:{limits}"

    assert asyncio.run(ToolContext.for_testing(spawn=child).spawn("a", "p")) == "a:p:None"
    with pytest.raises(ToolError, match="for_testing"):
        asyncio.run(ToolContext.for_testing().spawn("a", "p"))
